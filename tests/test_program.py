"""The manifest, exactly, and what `write` leaves in a folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.hlsl_host import HLSL
from dmlc.codegen.render import render
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.target import CPU, GPU
from dmlc.lowering.group import lower_stages as lower
from dmlc.pipeline import compile
from dmlc.program import (
    VERSION,
    Dispatch,
    Program,
    Role,
    ScalarBinding,
    TensorSpec,
    constant_buffer_bytes,
    describe_file,
    list_sharing,
)
from dmlc.scalars import DataType as T
from dmlc.source import DmlcError, UnsupportedError

RELU_GRAD = """
func @relu_grad(%X: f32[n], %dY: f32[n]) -> (%dX) in place (%dX over %X, %dX over %dY) {
  %dX: f32[i0 < n] = select(gt(%X[i0], 0.0), %dY[i0], 0.0)
}"""
STRIDED = """
func @f(%x: f16[2, 3]{8, 1}, %s: f16[1, 3]) -> (%y) {
  %y: f16[i0 < 2, i1 < 3] = mul(%x[i0, i1], %s[0, i1])
}"""
CHAINED = """
func @two(%x: f16[40, 30]) -> (%z) {
  %y: f32[i0 < 40] = sum[r1 < 30] %x[i0, r1]
  %z: f32[i0 < 40, i1 < 30] = add(%y[sub(39, i0)], %x[i0, i1])
}"""


def make(text: str, target: str = "opencl") -> dict[str, Any]:
    return compile(ir.parse(text), target).manifest()


def test_a_digest_is_what_others_compute() -> None:
    """`sha256sum` of "abc", of FIPS 180-2."""
    assert describe_file(b"abc") == {
        "bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }  # fmt: skip


def test_opencl_manifest() -> None:
    source = compile(ir.parse(RELU_GRAD)).kernels[0].source
    assert make(RELU_GRAD) == {
        "version": 1,
        "generator": f"dmlc {VERSION}",
        "name": "relu_grad",
        "target": "opencl",
        "profile": "cpu",
        "symbols": {
            "n": {"meaning": "the number of elements of a packed tensor of any shape",
                  "max": 2147483647}
        },
        "tensors": [
            {"name": name, "role": role, "data_type": "FLOAT32", "element_bytes": 4,
             "sizes": ["n"], "strides": None, "bytes": None, "in_place": over,
             "formulas": {"elements": "n", "bytes": "4 * n"}}
            for name, role, over in (("X", "input", []), ("dY", "input", []),
                                     ("dX", "output", ["X", "dY"]))
        ],
        "kernels": [
            {
                "name": "relu_grad",
                "file": "relu_grad.cl",
                "entry_point": "relu_grad",
                "buffers": [
                    {"name": name, "tensor": name, "data_type": "FLOAT32", "access": access,
                     "argument": slot, "structure_bytes": 4}
                    for slot, (name, access) in enumerate(
                        [("X", "read"), ("dY", "read"), ("dX", "write")])
                ],
                "scalars": [{"name": "n", "value": "n", "type": "UINT32", "argument": 3}],
                "group_size": [1, 1, 1],
                "requires": [],
                "dispatch": {"rule": "ceil(n / 32768) groups along x", "count": "n",
                             "per_group": 32768, "row": None, "groups": None,
                             "formulas": ["(n + 32767) / 32768", "1", "1"]},
                "after": [],
                "stages": ["dX"],
                "reasons": ["%dX leaves the function"],
                "bytes_read": None,
                "bytes_written": None,
                "figures": None,
            }
        ],
        "scratch_bytes": 0,
        "elementwise": True,
        "fusion": {
            "before": {"kernels": 1, "bytes_read": None, "bytes_written": None},
            "after": {"kernels": 1, "bytes_read": None, "bytes_written": None},
            "peak_scratch": 0,
        },
        "files": {"relu_grad.cl": describe_file(source.encode())},
        "order": "kernels run in the order listed; a barrier stands between a kernel and those it "
                 "names in 'after'",
    }  # fmt: skip


def test_float_controls_are_a_part_of_a_program_and_its_manifest() -> None:
    function = ir.parse(RELU_GRAD)
    program = compile(function, "hlsl", float_controls=[64, 32])
    assert program.manifest()["kernels"][0]["float_controls"] == [32, 64]
    assert program != compile(function, "hlsl")
    with pytest.raises(UnsupportedError, match="target 'opencl' has no float controls"):
        compile(function, "opencl", float_controls=[32])


def test_hlsl_manifest() -> None:
    made = make(RELU_GRAD, "hlsl")
    assert "signs DXIL on Windows alone" in made["signing"]
    (kernel,) = made["kernels"]
    assert kernel["compile"] == {
        "compiler": "dxc",
        "arguments": ["-T", "cs_6_2", "-E", "main", "-HV", "2021", "-Gis"],
    }
    assert kernel["float_controls"] == [16, 32, 64]
    assert kernel["entry_point"] == "main"
    assert kernel["file"] == "relu_grad.hlsl"
    assert [(b["register"], b["element_bytes"]) for b in kernel["buffers"]] == [
        ("t0", 4), ("t1", 4), ("u0", 4)
    ]  # fmt: skip
    assert kernel["scalars"] == [{"name": "n", "value": "n", "type": "UINT32", "offset": 0}]
    assert kernel["constant_buffer"] == {"register": "b0", "bytes": 16, "view_alignment": 256}
    assert kernel["dispatch"]["row"] == 65535
    assert made["tensors"][2]["in_place"] == [], "D3D12 binds no buffer for both at once"


GATHER = """func @f(%X: {dtype}[9], %P: {place}[4]) -> (%Y) {{
  %Y: {dtype}[i0 < 4] = %X[{position}]
}}"""
CLAMPED = "min(max(cast(%P[i0], index), 0), 8)"


@pytest.mark.parametrize(
    ("dtype", "place", "position", "needs"),
    [
        ("f32", "f32", CLAMPED, []),
        ("f32", "u32", CLAMPED, []),
        ("f32", "s32", CLAMPED, []),
        ("f32", "s64", CLAMPED, ["64-bit integers"]),
        ("f32", "u32", "mod(cast(%P[i0], index), 9)", ["64-bit integers"]),
        ("f16", "s32", CLAMPED, ["16-bit types"]),
        ("f64", "s32", CLAMPED, ["FLOAT64"]),
        ("f64", "s64", CLAMPED, ["64-bit integers", "FLOAT64"]),
    ],
)
def test_a_kernel_says_what_it_asks_of_a_device(
    dtype: str, place: str, position: str, needs: list[str]
) -> None:
    text = GATHER.format(dtype=dtype, place=place, position=position)
    (kernel,) = make(text, "hlsl")["kernels"]
    assert kernel["requires"] == needs
    (kernel,) = make(text)["kernels"]
    assert kernel["requires"] == [need for need in needs if need == "FLOAT64"]
    if position is CLAMPED and dtype != "f64":
        (kernel,) = make(text, "wgsl")["kernels"]
        assert kernel["requires"] == [need for need in needs if need == "16-bit types"]
        return
    refused = "WGSL has no 64-bit floats" if dtype == "f64" else "no wider integers"
    with pytest.raises(UnsupportedError, match=refused):
        make(text, "wgsl")


def test_a_manifest_of_wgsl_says_what_is_bound_where() -> None:
    made = make("func @f(%x: f32[n]) -> (%y) { %y: f32[i0 < n] = neg(%x[i0]) }", "wgsl")
    (kernel,) = made["kernels"]
    assert (made["target"], kernel["file"], kernel["entry_point"]) == ("wgsl", "f.wgsl", "main")
    assert [(b["group"], b["binding"], b["access"]) for b in kernel["buffers"]] == [
        (0, 0, "read"), (0, 1, "write")
    ]  # fmt: skip
    assert kernel["scalars"] == [{"name": "n", "value": "n", "type": "UINT32", "offset": 0}]
    assert kernel["uniform_buffer"] == {"group": 0, "binding": 2, "bytes": 16}
    assert kernel["dispatch"]["row"] == 65535


def test_sizes_and_bytes() -> None:
    made = make(STRIDED)
    assert [(t["sizes"], t["strides"], t["bytes"]) for t in made["tensors"]] == [
        ([2, 3], [8, 1], 24),
        ([1, 3], None, 8),
        ([2, 3], None, 12),
    ]
    (kernel,) = made["kernels"]
    assert kernel["scalars"] == []
    assert kernel["dispatch"]["groups"] == [1, 1, 1]
    assert "constant_buffer" not in make(STRIDED, "hlsl")["kernels"][0]
    empty = make("func @f(%x: f32[2, 0]) -> (%y) { %y: f32[i0 < 2, i1 < 0] = neg(%x[i0, i1]) }")
    assert [t["bytes"] for t in empty["tensors"]] == [0, 0]
    assert empty["kernels"][0]["dispatch"]["groups"] == [0, 1, 1]


def test_a_kernel_names_those_it_waits_for() -> None:
    first, second = make(CHAINED)["kernels"]
    assert (first["name"], first["after"]) == ("two_1", [])
    assert (second["name"], second["after"]) == ("two_2", ["two_1"])


def test_scratch_has_a_place_and_a_lifetime() -> None:
    made = make(CHAINED)
    (scratch,) = [t for t in made["tensors"] if t["role"] == "scratch"]
    assert (scratch["offset"], scratch["lifetime"], scratch["bytes"]) == (0, [0, 1], 160)
    assert made["scratch_bytes"] == 160
    assert "offset" not in made["tensors"][0]


def test_scratch_that_begins_together_has_one_home() -> None:
    def scratch(name: str, size: int, offset: int | None, dtype: T = T.FLOAT32) -> TensorSpec:
        return TensorSpec(name, Role.SCRATCH, dtype, (size,), offset=offset)

    tensors = (
        scratch("a", 10, 0),
        scratch("b", 90, 0),
        scratch("c", 10, 512),
        scratch("d", 10, 0, T.FLOAT16),
        scratch("e", 10, None),
    )
    program = Program("p", HLSL, "gpu", tensors, (), 1)
    assert program.scratch_homes() == {"a": "b", "b": "b", "c": "c", "d": "d"}
    sharing = list_sharing(tensors)
    assert {name: sorted(others) for name, others in sharing.items()} == {
        "a": ["a", "b", "d"],
        "b": ["a", "b", "d"],
        "c": ["c"],
        "d": ["a", "b", "d"],
    }


def test_a_fixed_count_is_a_number() -> None:
    made = make(RELU_GRAD.replace("n]", "100000]").replace("< n", "< 100000"))
    assert made["symbols"] == {}
    assert made["kernels"][0]["scalars"][0]["value"] == 100000
    assert made["kernels"][0]["dispatch"]["groups"] == [4, 1, 1]


def test_dispatch() -> None:
    rows = Dispatch("n", 1024, 256, row=65535)
    assert rows.groups({"n": 0}) == (0, 1, 1)
    assert rows.groups({"n": 1025}) == (2, 1, 1)
    assert rows.groups({"n": 65535 * 1024}) == (65535, 1, 1)
    assert rows.groups({"n": 65535 * 1024 + 1}) == (65535, 2, 1)


def test_constant_buffers_are_whole_rows() -> None:
    def scalar(bits: int, offset: int) -> ScalarBinding:
        return ScalarBinding("n", "n", bits, 0, offset)

    assert constant_buffer_bytes(()) == 0
    assert constant_buffer_bytes((scalar(32, 0),)) == 16
    assert constant_buffer_bytes((scalar(64, 8),)) == 16
    assert constant_buffer_bytes((scalar(64, 16),)) == 32


def test_one_version() -> None:
    assert dmlc.__version__ == VERSION


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_write(target: str, tmp_path: Path) -> None:
    program = compile(ir.parse(CHAINED), target)
    suffix = {"opencl": "cl", "hlsl": "hlsl"}[target]
    paths = program.write(tmp_path / "a" / "b")
    assert [p.name for p in paths] == [f"two_1.{suffix}", f"two_2.{suffix}", "manifest.json"]
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == sorted(p.name for p in paths)
    assert paths[0].read_text(encoding="utf-8") == program.kernels[0].source
    assert json.loads(paths[2].read_text(encoding="utf-8")) == program.manifest()
    before = [p.read_bytes() for p in paths]
    assert program.write(str(tmp_path / "a" / "b")) == paths
    assert [p.read_bytes() for p in paths] == before


def test_write_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(DmlcError, match="cannot write") as caught:
        compile(ir.parse(RELU_GRAD)).write(tmp_path / "out")
    assert str(tmp_path / "out") in str(caught.value)
    assert "give an output folder that you may write to" in str(caught.value)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    open_file = Path.open

    def run_full(self: Path, *arguments: Any, **options: Any) -> Any:
        if written:
            raise OSError(28, "No space left on device", str(self))
        written.append(self)
        return open_file(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", run_full)
    with pytest.raises(DmlcError, match="No space left on device"):
        compile(ir.parse(CHAINED)).write(tmp_path)
    assert written
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "con\u0000", "x" * 500, "é", "__kernel"])
def test_hostile_names_make_plain_files_and_sources(name: str, tmp_path: Path) -> None:
    plain = ir.parse(RELU_GRAD)
    parameters = (
        ir.Parameter(f"{name}*/\n#error\\", plain.parameters[0].dtype, ("n",)),
        plain.parameters[1],
    )
    body = plain.stages[0].body
    instructions = tuple(
        ir.Load(parameters[0].name, i.indices, i.dtype)
        if isinstance(i, ir.Load) and i.tensor == "X"
        else i
        for i in body.instructions
    )
    stage = ir.Stage("dX", plain.stages[0].dtype, ("n",), ir.Body(instructions, body.result))
    function = ir.Function(name, parameters, (stage,), plain.results)
    # The verifier lets no such name into the pipeline; the renderer does not rely on that.
    for target, profile in (("opencl", CPU), ("hlsl", GPU)):
        dialect = find_dialect(target)
        kernel = lower(function, ("dX",), profile, dialect.limits)
        program = render(function, (kernel,), dialect, profile)
        source, _ = program.write(tmp_path)
        assert source.parent == tmp_path
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}\.(cl|hlsl)", source.name)
        text = program.kernels[0].source
        assert text.isascii()
        assert not any(line.lstrip().startswith("#error") for line in text.splitlines())
        assert not any(line.endswith("\\") for line in text.splitlines())
