"""`python -m benchmarks.onnx_models` on three small models, with ONNX's reference in the place of
ONNX Runtime."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks import onnx_models
from benchmarks.onnx_models import Model

SAMPLE = {
    "convolution": ("""g (float[N, 2, 6, 6] x) => (float[N, 3, 4, 4] y) {
        sizes = Constant <value_ints = [3, 2, 3, 3]> () half = Constant <value_float = 0.5> ()
        w = Expand (half, sizes) z = Conv (x, w) y = Relu (z) }""", {"x": (1, 2, 6, 6)}, {}),
    "embedding": ("""g (int64[N] at) => (float[N, 3] y) {
        table = Constant <value = float[4, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
        rows = Gather (table, at) y = Softmax (rows) }""", {"at": (5,)}, {"at": 2}),
    "a choice": ("""g (float[N] x, int64 rate) => (float[N] y) {
        wide = Constant <value_int = 16000> () is_wide = Equal (rate, wide)
        y = If (is_wide) <then_branch = one () => (float[N] p) { p = Relu (x) },
                          else_branch = other () => (float[N] q) { q = Neg (x) }> }""",
        {"x": (7,)}, {"rate": 16000}),
}  # fmt: skip


class Session:
    """ONNX's reference as ONNX Runtime is called."""

    def __init__(self, path: Path, *_: object, **__: object) -> None:
        self._evaluator: Any = ReferenceEvaluator(onnx.load(path))

    def get_outputs(self) -> list[Any]:
        return [types.SimpleNamespace(name=name) for name in self._evaluator.output_names]

    def run(self, names: object, arrays: dict[str, Any]) -> list[Any]:
        return self._evaluator.run(None, arrays)


class Options(types.SimpleNamespace):
    """The settings of a session, and what `add_session_config_entry` was told, all together."""

    told: ClassVar[list[tuple[str, str]]] = []

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.told.append((name, value))


@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_is_examined(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "told", [])
    runtime = types.SimpleNamespace(SessionOptions=Options, InferenceSession=Session)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    text, sizes, constants = SAMPLE[name]
    head = '<ir_version: 10, opset_import: ["": 20]>'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"{head}\n{text}"), path)
    fixed = ("rate",) if name == "a choice" else ()
    model = Model("", str(path), sizes, constants, fixed=fixed)
    steps = {"as is": 0, "cold": 0, "hlsl": 0, "run": 1}
    clock = "cpu" if name == "embedding" else "wall"
    found = {step: onnx_models.take_step(step, model, path, rounds, clock)
             for step, rounds in steps.items()}  # fmt: skip
    # Threads of ONNX Runtime that spin would count as work.
    spinning = ("session.intra_op.allow_spinning", "0")
    assert Options.told == ([spinning] if clock == "cpu" else [])
    assert found["as is"]["as is"] == ("names it" if fixed else "yes")
    assert found["cold"]["kernels"] >= 1
    assert found["run"]["error"] < 1e-6
    shown = onnx_models.show([(model, found)])
    assert shown.splitlines()[2].split()[1] == "model"
    assert "and neither holds for 0." in shown


def test_a_step_that_fails_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    model = Model("", str(path), {})
    found = onnx_models.examine(model, path, limit=60, rounds=1, steps=("as is", "run"))
    assert found["as is"] == {"as is": "refused",
                              "message": f"error: '{path}' is no ONNX model"}  # fmt: skip
    assert "failed" in found["run"]
    assert "and neither holds for 1." in onnx_models.show([(model, found)])


def test_the_table_goes_into_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- models -->\nold\n<!-- end of models -->\nafter\n", "utf-8")
    monkeypatch.setattr(onnx_models, "PAGE", page)
    onnx_models.write("new")
    said = page.read_text("utf-8")
    assert said == "before\n<!-- models -->\n\nnew\n\n<!-- end of models -->\nafter\n"
