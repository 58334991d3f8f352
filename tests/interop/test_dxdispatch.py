"""DxDispatch models: valid, complete, and replayed on a Vulkan device they give the reference's
results, so that they say what they should."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc, cli
from dmlc.codegen.hlsl_host import HLSL
from dmlc.interop.dxdispatch import DispatchModel, make_model
from dmlc.program import (
    BufferBinding,
    Dispatch,
    KernelSource,
    Program,
    Role,
    ScalarBinding,
    TensorSpec,
)
from dmlc.runtime import vulkan
from dmlc.runtime.dxc import Reflection, compile_dxil, reflect
from dmlc.scalars import Array, DataType, find_data_type
from dmlc.source import DmlcError, UnsupportedError

SCHEMA = json.loads(
    (Path(dmlc.__file__).parent / "interop" / "model.schema.json").read_text(encoding="utf-8")
)
ROOT = Path(__file__).parents[2]
FACTS = Path(__file__).parents[3] / "shared" / "data" / "directml_operators.json"


def describe(
    *sizes: int, dtype: str = "FLOAT32", strides: tuple[int, ...] | None = None
) -> TensorDesc:
    return TensorDesc(dtype, sizes, strides)


def relu_grad(dtype: str = "FLOAT32", *sizes: int) -> DispatchModel:
    tensors = {n: TensorDesc(dtype, sizes) for n in ("InputTensor", "InputGradientTensor")}
    return make_model(dmlc.operator("directml.ACTIVATION_RELU_GRAD"), tensors, {})


TWO_KERNELS = """
operator CHAIN {
    tensors {
        | Tensor | Kind   | Types   |
        | X      | Input  | FLOAT16 |
        | W      | Input  | FLOAT16 |
        | Y      | Output | FLOAT16 |
    }
    compute { Y = exp(X) * W - 1 }
}
"""

MODELS: dict[str, DispatchModel] = {
    "float32": relu_grad("FLOAT32", 3, 5, 7),
    "float16": relu_grad("FLOAT16", 4097),
    "strided": make_model(
        dmlc.operator("directml.ACTIVATION_RELU_GRAD"),
        {
            "InputTensor": describe(5, 6, strides=(1, 5)),
            "InputGradientTensor": describe(5, 6, strides=(12, 2)),
        },
        {},
    ),
    "bfloat16": make_model(
        dmlc.operator("onednn.ReLUBackward"),
        {"src": describe(2, 9, dtype="BFLOAT16"), "diff_dst": describe(2, 9, dtype="BFLOAT16")},
        {"use_dst": False},
    ),
    "broadcast": make_model(
        next(iter(dmlc.parse(TWO_KERNELS).operators.values())),
        {"X": describe(4, 8, dtype="FLOAT16"), "W": describe(1, 8, dtype="FLOAT16")},
        {},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_to_the_schema_and_name_only_what_is_there(name: str) -> None:
    model = MODELS[name]
    jsonschema.validate(model.content, SCHEMA)
    paths = re.findall(r'"sourcePath": "([^"]+)"', json.dumps(model.content))
    assert paths
    assert set(paths) <= set(model.files)
    resources, dispatchables = model.content["resources"], model.content["dispatchables"]
    for command in model.content["commands"]:
        if command["type"] == "dispatch":
            assert command["dispatchable"] in dispatchables
            assert set(command["bindings"].values()) <= set(resources)
        else:
            assert command["resource"] in resources
    assert f"{name}.json" in model.all_files(name)


def test_the_schema_refuses_what_is_no_model() -> None:
    broken = json.loads(json.dumps(MODELS["float32"].content))
    broken["commands"][0]["threadGroupCount"] = [70000, 1, 1]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)


def test_directmls_own_operator_runs_beside_the_shader() -> None:
    content = MODELS["strided"].content
    directml = content["dispatchables"]["DirectML"]
    assert directml["type"] == "DML_OPERATOR_ACTIVATION_RELU_GRAD"
    assert directml["desc"] == {
        "InputTensor": {"DataType": "FLOAT32", "Sizes": [5, 6], "Strides": [1, 5]},
        "InputGradientTensor": {"DataType": "FLOAT32", "Sizes": [5, 6], "Strides": [12, 2]},
        "OutputGradientTensor": {"DataType": "FLOAT32", "Sizes": [5, 6]},
    }
    bounds = ("--bounds", "bound.OutputGradientTensor.npy")
    found = "OutputGradientTensor.dmlc.npy"
    assert [c.arguments() for c in MODELS["strided"].comparisons] == [
        (found, "expected.OutputGradientTensor.npy", *bounds),
        (found, "OutputGradientTensor.directml.npy", *bounds, *bounds),
    ]
    assert "DirectML" not in MODELS["bfloat16"].content["dispatchables"]


def test_fields_are_those_of_the_api() -> None:
    fields = {
        "ACTIVATION_RELU_GRAD": ["InputTensor", "InputGradientTensor", "OutputGradientTensor"]
    }
    if FACTS.is_file():
        facts = json.loads(FACTS.read_text())
        fields = {name: [field[0] for field in fact["fields"]] for name, fact in facts.items()}
    checked = 0
    for model in MODELS.values():
        for dispatchable in model.content["dispatchables"].values():
            short = dispatchable["type"].removeprefix("DML_OPERATOR_")
            if dispatchable["type"] != "hlsl":
                assert set(dispatchable["desc"]) <= set(fields[short])
                checked += 1
    assert checked == 3


def test_sizes_are_needed() -> None:
    operator = dmlc.operator("directml.ACTIVATION_RELU_GRAD")
    with pytest.raises(DmlcError, match="needs the sizes"):
        make_model(operator, {}, {})
    empty = {n: describe(0, 3) for n in ("InputTensor", "InputGradientTensor")}
    with pytest.raises(UnsupportedError, match="is empty"):
        make_model(operator, empty, {})


# Replaying ------------------------------------------------------------------------------------


class Replay:
    """Carries out a model's commands, from the model alone, on a Vulkan device."""

    def __init__(self, model: DispatchModel) -> None:
        self.model = model
        self.buffers = {n: self.make_buffer(r) for n, r in model.content["resources"].items()}
        self.written: dict[str, Array] = {}

    def make_buffer(self, resource: dict[str, Any]) -> Array:
        values = resource["initialValues"]
        if "sourcePath" in values:
            loaded = np.load(io.BytesIO(self.model.files[values["sourcePath"]]))
            return np.ascontiguousarray(loaded).reshape(-1)
        if resource["initialValuesDataType"] == "UNKNOWN":
            parts = [np.asarray(v["value"], numpy_type(v["type"])).tobytes() for v in values]
            content = b"".join(parts).ljust(resource["sizeInBytes"], b"\0")
            return np.frombuffer(content, np.uint8).copy()
        dtype = numpy_type(resource["initialValuesDataType"])
        return np.full(values["valueCount"], values["value"], dtype)

    def run(self) -> dict[str, Array]:
        for command in self.model.content["commands"]:
            if command["type"] == "writeFile":
                self.written[command["targetPath"]] = self.buffers[command["resource"]].copy()
                continue
            dispatchable = self.model.content["dispatchables"][command["dispatchable"]]
            if dispatchable["type"] == "hlsl":
                self.dispatch(dispatchable, command)
        return self.written

    def dispatch(self, shader: dict[str, Any], command: dict[str, Any]) -> None:
        source = self.model.files[shader["sourcePath"]].decode()
        entry = shader["compilerArgs"][shader["compilerArgs"].index("-E") + 1]
        reflection = reflect(compile_dxil(source, entry).code)
        bound = {r.name: self.buffers[command["bindings"][r.name]] for r in reflection.resources}
        assert set(bound) == set(command["bindings"])
        program = make_program(source, entry, reflection, bound, command["threadGroupCount"])
        outputs = {t.name: bound[t.name] for t in program.outputs}
        inputs = {t.name: bound[t.name] for t in program.inputs}
        vulkan.load(program)(inputs, outputs)


def numpy_type(name: str) -> np.dtype[Any]:
    found = find_data_type(name)
    assert found is not None
    return found.dtype


def make_program(
    source: str, entry: str, reflection: Reflection, bound: dict[str, Array], groups: list[int]
) -> Program:
    """A program around a shader, as DXC's reflection and the model's bindings describe it."""
    tensors: list[TensorSpec] = []
    buffers: list[BufferBinding] = []
    scalars: list[ScalarBinding] = []
    for resource in reflection.resources:
        kind = resource.kind.register_class
        array = bound[resource.name]
        if kind == "b":
            scalars = [
                ScalarBinding(c.name, int(array[c.offset : c.offset + 4].view(np.uint32)[0]), 32, 0,
                              c.offset)
                for c in reflection.constants
            ]  # fmt: skip
            continue
        dtype = next(t for t in DataType if t.dtype == array.dtype)
        role = Role.OUTPUT if kind == "u" else Role.INPUT
        tensors.append(TensorSpec(resource.name, role, dtype, array.shape))
        written = kind == "u"
        buffers.append(
            BufferBinding(
                resource.name,
                resource.name,
                dtype,
                written,
                not written,
                resource.slot,
                resource.stride,
            )
        )
    assert groups[1:] == [1, 1]
    dispatch = Dispatch(groups[0], 1, reflection.group_size[0], None)
    kernel = KernelSource(
        "replayed", entry, source, tuple(buffers), tuple(scalars), dispatch, shader_model="6.2"
    )
    return Program("replayed", HLSL, "gpu", tuple(tensors), (kernel,), 1 << 31)


def random_model(name: str, tensors: dict[str, TensorDesc], **attributes: object) -> DispatchModel:
    path = ROOT / "examples" / f"{name}.dml"
    known = next(iter(dmlc.load(path).operators.values())) if path.is_file() else None
    subject = known or dmlc.operator(name)
    return make_model(subject, tensors, attributes, seed=7)


ROUNDED = {
    "rms_norm": random_model(
        "rms_norm", {"src": describe(16, 1024), "gamma": describe(1024), "rms": describe(16)}
    ),
    "rms_norm of bfloat16": random_model("rms_norm", {"src": describe(8, 512, dtype="BFLOAT16")}),
    "rms_norm of strided rows": random_model("rms_norm", {"src": describe(6, 32, strides=(40, 1))}),
    "softmax": random_model("onednn.SoftMax", {"src": describe(8, 300)}, axis=1),
    "gemm": random_model(
        "directml.GEMM", {"ATensor": describe(1, 1, 17, 65), "BTensor": describe(1, 1, 65, 9)}
    ),
    "layer_norm": random_model("onednn.LayerNorm", {"src": describe(4, 6, 100)}, use_affine=False),
    "softmax of float16": random_model("directml.ACTIVATION_SOFTMAX1",
                                       {"InputTensor": describe(5, 65, dtype="FLOAT16")}, Axes=[1]),
}  # fmt: skip
"""Models of what rounds in another order on every device."""


def run_printed_comparisons(
    model: DispatchModel,
    written: dict[str, Array],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> list[tuple[int, str]]:
    """Status and output of each comparison with the reference, in the folder as Windows has it."""
    for path, content in model.files.items():
        (folder / path).write_bytes(content)
    for path, array in written.items():
        np.save(folder / path, array)
    found: list[tuple[int, str]] = []
    for comparison in model.comparisons:
        if comparison.expected in model.files:
            status = cli.run(["compare", *comparison.arguments()])
            found.append((status, capsys.readouterr().out))
    return found


@pytest.mark.parametrize("name", [*MODELS, *ROUNDED])
def test_the_printed_comparisons_pass_what_is_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = {**MODELS, **ROUNDED}[name]
    written = Replay(model).run()
    for comparison in model.comparisons:
        assert np.count_nonzero(written[comparison.actual])
    found = run_printed_comparisons(model, written, tmp_path, capsys)
    assert found
    assert [status for status, _ in found] == [0] * len(found), found
    if name == "rms_norm":
        # It is the bounds that let it pass.
        (first, *_) = model.comparisons
        assert cli.run(["compare", first.actual, first.expected]) == 1


@pytest.mark.parametrize("name", ROUNDED)
def test_the_printed_comparisons_name_what_is_ten_bounds_off(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ROUNDED[name]
    written = Replay(model).run()
    comparison = model.comparisons[0]
    bound = np.load(io.BytesIO(model.files[comparison.bounds[0]])).reshape(-1)
    stored = np.load(io.BytesIO(model.files[comparison.expected]))
    expected = stored.reshape(-1).view(comparison.dtype.dtype).astype(np.float64)
    place = int(np.flatnonzero(bound > 0)[-1])
    words = written[comparison.actual].reshape(-1).copy()
    spoilt = words.view(comparison.dtype.dtype)
    spoilt[place] = expected[place] + 10 * bound[place]
    (status, text), *_ = run_printed_comparisons(
        model, {**written, comparison.actual: words}, tmp_path, capsys
    )
    assert status == 1
    at = [int(k) for k in np.unravel_index(place, stored.shape)]
    got = f"it is {float(spoilt[place]):.9g} where {expected[place]:.9g} is expected"
    assert f"at {at} {got}: it may be off by {bound[place]:.3g} at most" in text
