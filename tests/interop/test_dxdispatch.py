"""DxDispatch models: valid, complete, and replayed on a Vulkan device they give the reference's
results, so that they say what they should."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc, cli
from dmlc.interop.dxdispatch import DispatchModel, FileComparison, make_model
from dmlc.interop.export import export_case
from dmlc.interop.proof import prove
from dmlc.runtime import hlsl
from dmlc.scalars import Array, DataType, find_data_type
from dmlc.source import DmlcError, UnavailableError, UnsupportedError
from dmlc.testing.case import Call, Case
from tests.interop import shaders
from tests.interop.shaders import OPERATORS, describe

SCHEMA = json.loads(
    (Path(dmlc.__file__).parent / "interop" / "model.schema.json").read_text(encoding="utf-8")
)
ROOT = Path(__file__).parents[2]
FACTS = Path(__file__).parents[3] / "shared" / "data" / "directml_operators.json"
RELU_GRAD = "directml.ACTIVATION_RELU_GRAD"


def model_of(
    name: str, tensors: dict[str, TensorDesc], model: str | None = None, **attributes: object
) -> DispatchModel:
    """The model of an operator of the library, or of the one in an example's file."""
    path = ROOT / "examples" / f"{name}.dml"
    known = next(iter(dmlc.load(path).operators.values())) if path.is_file() else None
    return make_model(prove(known or dmlc.operator(name), tensors, attributes, seed=7), model)


def relu_grad(
    *sizes: int, dtype: str = "FLOAT32", strides: tuple[int, ...] | None = None,
    model: str | None = None,
) -> DispatchModel:  # fmt: skip
    names = ("InputTensor", "InputGradientTensor")
    return model_of(RELU_GRAD, {n: TensorDesc(dtype, sizes, strides) for n in names}, model)


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
    "float32": relu_grad(3, 5, 7),
    "structures of four": relu_grad(64, 64),
    "float16": relu_grad(4097, dtype="FLOAT16"),
    "float16 in words": relu_grad(5, 7, dtype="FLOAT16", model="6.0"),
    "bytes": model_of(
        "directml.ACTIVATION_RELU",
        {"InputTensor": describe(5, 7, dtype="INT8", strides=(9, 1))},
    ),
    "strided": model_of(
        RELU_GRAD,
        {
            "InputTensor": describe(5, 6, strides=(1, 5)),
            "InputGradientTensor": describe(5, 6, strides=(12, 2)),
            "OutputGradientTensor": describe(5, 6, strides=(13, 2)),
        },
    ),
    "repeated": relu_grad(5, 6, strides=(0, 1)),
    "unused": model_of(
        "directml.AVERAGE_POOLING_GRAD",
        {n: describe(5, 6, 1, 1) for n in ("InputGradientTensor", "OutputGradientTensor")},
        IncludePadding=True,
        Strides=[4, 3],
        WindowSize=[1, 3],
        StartPadding=[1, 1],
        EndPadding=[1, 3],
    ),
    "bfloat16": model_of(
        "onednn.ReLUBackward",
        {"src": describe(2, 9, dtype="BFLOAT16"), "diff_dst": describe(2, 9, dtype="BFLOAT16")},
        use_dst=False,
    ),
    "broadcast": make_model(
        shaders.parse(
            TWO_KERNELS,
            {"X": describe(4, 8, dtype="FLOAT16"), "W": describe(1, 8, dtype="FLOAT16")},
        )
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
            assert {n for found in command["bindings"].values() for n in names(found)} <= set(
                resources
            )
        else:
            assert command["resource"] in resources
    files = model.all_files()
    readme = files["README.txt"].decode()
    assert f"dxdispatch.exe {model.name}.json" in readme
    assert f"{model.name}.json" in files
    for comparison in model.comparisons:
        assert f"dmlc compare {' '.join(comparison.arguments())}" in readme


def names(found: Any) -> list[str]:
    """The resources of a binding, which is a name, a view, or a list."""
    if isinstance(found, list):
        return [str(name) for name in found]
    return [found["name"] if isinstance(found, dict) else found]


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
        "OutputGradientTensor": {"DataType": "FLOAT32", "Sizes": [5, 6], "Strides": [13, 2]},
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
            if short in fields:
                assert set(dispatchable["desc"]) <= set(fields[short])
                checked += 1
    assert checked >= 6


@pytest.mark.parametrize(("name", "field"), [("JOIN", "InputTensors"), ("SPLIT", "OutputTensors")])
def test_directml_gets_arrays_of_tensors_as_lists(name: str, field: str) -> None:
    content = make_model(shaders.example(f"directml.{name}")).content
    described = content["dispatchables"]["DirectML"]["desc"][field]
    assert [tensor["Sizes"] for tensor in described] == [[2, 2], [2, 1]]
    (command,) = (c for c in content["commands"] if c.get("dispatchable") == "DirectML")
    resources = content["resources"]
    assert len(command["bindings"][field]) == 2
    assert set(command["bindings"][field]) <= set(resources)
    assert not any(key.endswith(("_0", "_1")) for key in command["bindings"])


def test_operators_and_sizes_in_attributes_are_structures() -> None:
    tensors = {n: describe(1, 1, 2, 2) for n in ("ATensor", "BTensor")}
    for activation, wanted in (
        ("NONE", None),
        ("ACTIVATION_RELU", {"Type": "DML_OPERATOR_ACTIVATION_RELU"}),
        ("ACTIVATION_SHRINK",
         {"Type": "DML_OPERATOR_ACTIVATION_SHRINK", "Desc": {"Bias": 0, "Threshold": 0.5}}),
    ):  # fmt: skip
        model = model_of("directml.GEMM", tensors, FusedActivation=activation)
        desc = model.content["dispatchables"]["DirectML"]["desc"]
        assert desc.get("FusedActivation") == wanted
        assert "FusedActivationParameters" not in desc
    model = make_model(shaders.example("directml.UPSAMPLE_2D"))
    desc = model.content["dispatchables"]["DirectML"]["desc"]
    assert desc["ScaleSize"] == {"Width": 3, "Height": 2}
    model = model_of(
        "directml.ELEMENT_WISE_CLIP1", {"InputTensor": describe(1, 1, 2, 2)},
        ScaleBias=[2, 0.5], Min=-1, Max=1,
    )  # fmt: skip
    desc = model.content["dispatchables"]["DirectML"]["desc"]
    assert desc["ScaleBias"] == {"Scale": 2, "Bias": 0.5}
    assert (desc["MinMaxDataType"], desc["Min"], desc["Max"]) == ("FLOAT32", -1, 1)


def test_sizes_are_needed() -> None:
    operator = dmlc.operator(RELU_GRAD)
    with pytest.raises(DmlcError, match="before the sizes of its tensors are known"):
        prove(operator, {}, {})
    with pytest.raises(UnsupportedError, match="is empty"):
        relu_grad(0, 3)


def test_what_the_compiler_leaves_out_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = MODELS["unused"].content["commands"]
    assert list(first["bindings"]) == ["OutputGradientTensor"]

    def find_none(*_: object) -> None:
        raise UnavailableError("no compiler")

    monkeypatch.setattr(hlsl, "load_library", find_none)
    (first, *_) = relu_grad(3, 4).content["commands"]
    names = {"InputTensor", "InputGradientTensor", "OutputGradientTensor", "Arguments"}
    assert set(first["bindings"]) == names


# Replaying ------------------------------------------------------------------------------------


class Replay:
    """Carries out a model's commands as DxDispatch does, from the model alone, with Vulkan."""

    def __init__(self, model: DispatchModel) -> None:
        self.model = model
        self.buffers = {n: self.make_buffer(r) for n, r in model.content["resources"].items()}
        self.written: dict[str, Array] = {}

    def make_buffer(self, resource: dict[str, Any]) -> Array:
        """A resource's bytes: whole words of them."""
        values = resource["initialValues"]
        if "sourcePath" in values:
            array: Array = np.load(io.BytesIO(self.model.files[values["sourcePath"]])).reshape(-1)
        elif resource["initialValuesDataType"] == "UNKNOWN":
            parts = [np.asarray(v["value"], numpy_type(v["type"])).tobytes() for v in values]
            content = b"".join(parts).ljust(resource["sizeInBytes"], b"\0")
            array = np.frombuffer(content, np.uint8)
        else:
            dtype = numpy_type(resource["initialValuesDataType"])
            value = values["value"]
            value = float(value) if isinstance(value, str) else value
            array = np.full(values["valueCount"], value, dtype)
        size = resource.get("sizeInBytes", -(-array.nbytes // 4) * 4)
        assert size >= array.nbytes
        behind = np.zeros((size - array.nbytes) // array.itemsize, array.dtype)
        return np.concatenate([array, behind])

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
        bindings = {name: names(found)[0] for name, found in command["bindings"].items()}
        bound = {name: self.buffers[found] for name, found in bindings.items()}
        constants = bound.get("Arguments")
        groups = command["threadGroupCount"]
        reflection = shaders.dispatch(source, shader["compilerArgs"], bound, constants, groups)
        # What a shader does not use must not be bound.
        assert {r.name for r in reflection.resources} == set(bindings)
        for resource in reflection.resources:
            if resource.stride:
                found, buffer = command["bindings"][resource.name], bound[resource.name]
                # Without a count, a structure for each element of the initial values.
                view = found["elementCount"] if isinstance(found, dict) else buffer.size
                assert view * resource.stride == buffer.nbytes


def numpy_type(name: str) -> np.dtype[Any]:
    found = find_data_type(name)
    assert found is not None
    return found.dtype


ROOT_OF = """
operator ROOT {
    tensors {
        | Tensor | Kind   | Types   |
        | X      | Input  | FLOAT32 |
        | Y      | Output | FLOAT32 |
    }
    compute { Y = sqrt(X * 2) }
}
"""


ROUNDED = {
    "NaN among results": make_model(
        prove(
            next(iter(dmlc.parse(ROOT_OF).operators.values())),
            {},
            {},
            arrays={"X": np.array([-1, np.nan, np.inf, 2, 3], np.float32)},
        )
    ),
    "rms_norm": model_of(
        "rms_norm", {"src": describe(16, 1024), "gamma": describe(1024), "rms": describe(16)}
    ),
    "rms_norm of bfloat16": model_of("rms_norm", {"src": describe(8, 512, dtype="BFLOAT16")}),
    "rms_norm of strided rows": model_of("rms_norm", {"src": describe(6, 32, strides=(40, 1))}),
    "softmax": model_of("onednn.SoftMax", {"src": describe(8, 300)}, axis=1),
    "gemm": model_of(
        "directml.GEMM", {"ATensor": describe(1, 1, 17, 65), "BTensor": describe(1, 1, 65, 9)}
    ),
    "layer_norm": model_of("onednn.LayerNorm", {"src": describe(4, 6, 100)}, use_affine=False),
    "softmax of float16": model_of("directml.ACTIVATION_SOFTMAX1",
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
        assert np.count_nonzero(written[comparison.actual]) or name == "unused"
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
    bound = load(model, comparison.bounds[0]).reshape(-1)
    stored = load(model, comparison.expected)
    expected = stored.reshape(-1).view(comparison.dtype.dtype)
    place = int(np.flatnonzero(bound > 0)[-1])
    words = shaders.spoil(written[comparison.actual], place, stored, bound, comparison.dtype)
    found = words.view(comparison.dtype.dtype)[place]
    (status, text), *_ = run_printed_comparisons(
        model, {**written, comparison.actual: words}, tmp_path, capsys
    )
    assert status == 1
    at = [int(k) for k in np.unravel_index(place, stored.shape)]
    got = f"it is {float(found):.9g} where {float(expected[place]):.9g} is expected"
    assert f"at {at} {got}: it may be off by {bound[place]:.3g} at most" in text


def test_rms_norm_fails_where_any_one_element_is_ten_bounds_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tensors = {"src": describe(3, 18), "gamma": describe(18), "rms": describe(3)}
    model = model_of("rms_norm", tensors)
    written = Replay(model).run()
    found = run_printed_comparisons(model, written, tmp_path, capsys)
    assert [status for status, _ in found] == [0, 0], found
    for comparison in model.comparisons:
        stored = load(model, comparison.expected)
        bounds = load(model, comparison.bounds[0]).reshape(-1)
        assert bounds.size in (3, 54)
        assert bounds.min() > 0
        for place in range(bounds.size):
            right = written[comparison.actual]
            wrong = shaders.spoil(right, place, stored, bounds, comparison.dtype)
            np.save(tmp_path / comparison.actual, wrong)
            assert cli.run(["compare", *comparison.arguments()]) == 1, place


def load(model: DispatchModel, name: str) -> Array:
    array: Array = np.load(io.BytesIO(model.files[name]))
    return array


def spoilt(
    model: DispatchModel, written: dict[str, Array]
) -> Iterator[tuple[FileComparison, Array]]:
    """Each result with an element made wrong: of those held closest and least, and the last."""
    for comparison in model.comparisons:
        if comparison.expected not in model.files:
            continue
        stored = load(model, comparison.expected)
        bounds = load(model, comparison.bounds[0]).reshape(-1)
        places = {int(bounds.argmin()), int(bounds.argmax()), bounds.size - 1}
        for place in sorted(places):
            actual = written[comparison.actual]
            yield comparison, shaders.spoil(actual, place, stored, bounds, comparison.dtype)


@pytest.mark.grid(4)
@pytest.mark.parametrize("name", OPERATORS)
def test_examples_of_the_library_pass_and_their_mistakes_do_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    proof = shaders.example(name)
    if proof.function.loops:
        with pytest.raises(UnsupportedError, match="a model dispatches each kernel once"):
            make_model(proof)
        return
    model = make_model(proof)
    jsonschema.validate(model.content, SCHEMA)
    written = Replay(model).run()
    found = run_printed_comparisons(model, written, tmp_path, capsys)
    assert [status for status, _ in found] == [0] * len(found), found
    checked = 0
    for comparison, wrong in spoilt(model, written):
        np.save(tmp_path / comparison.actual, wrong)
        assert cli.run(["compare", *comparison.arguments()]) == 1
        np.save(tmp_path / comparison.actual, written[comparison.actual])
        checked += 1
    assert checked >= len(found) > 0


def test_a_graph_passes_and_its_mistakes_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "examples" / "graphs" / "softmax_cross_entropy_backward.dml"
    graph = dmlc.load(path).graphs["softmax_cross_entropy_backward"]
    model = make_model(prove(graph, {}, {}, dims={"N": 65, "K": 300}))
    assert len(model.content["dispatchables"]) > 1
    written = Replay(model).run()
    found = run_printed_comparisons(model, written, tmp_path, capsys)
    assert [status for status, _ in found] == [0] * len(found), found
    for comparison, wrong in spoilt(model, written):
        np.save(tmp_path / comparison.actual, wrong)
        assert cli.run(["compare", *comparison.arguments()]) == 1


def test_what_nothing_writes_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result of zeros is no proof where memory was full of them."""
    monkeypatch.chdir(tmp_path)
    tensors = {n: describe(4, 5) for n in ("InputTensor", "InputGradientTensor")}
    arrays = {"InputTensor": np.full((4, 5), -1, np.float32)}
    model = make_model(prove(dmlc.operator(RELU_GRAD), tensors, {}, arrays=arrays))
    assert not np.any(load(model, "expected.OutputGradientTensor.npy"))
    replay = Replay(model)
    model.content["commands"][:] = [c for c in model.content["commands"] if "resource" in c]
    found = run_printed_comparisons(model, replay.run(), tmp_path, capsys)
    assert [status for status, _ in found] == [1]


def test_a_case_is_exported_with_what_its_example_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    operator = dmlc.operator("directml.ACTIVATION_RELU")
    tensors = {n: describe(3) for n in ("InputTensor", "OutputTensor")}
    inputs = {"InputTensor": np.float32([-1, 0, 2])}
    case = Case(
        Call(operator, tensors, {}),
        inputs,
        "three",
        {"OutputTensor": np.float64([0, 0, 2.5])},
        {"OutputTensor": 0.75},
    )
    paths = export_case(case, "proof")
    assert Path("proof/ACTIVATION_RELU.json") in paths
    assert np.load("proof/expected.OutputTensor.npy").tolist() == [0, 0, 2.5]
    assert np.load("proof/bound.OutputTensor.npy").tolist() == [0.75] * 3
    assert case.inputs["InputTensor"].tolist() == np.load("proof/InputTensor.npy").tolist()


def divide(*, seed: int = 0, **arrays: Array) -> DispatchModel:
    operator = dmlc.operator("directml.ELEMENT_WISE_DIVIDE")
    desc = describe(2, 3, dtype="INT32")
    tensors = {"ATensor": desc, "BTensor": desc}
    return make_model(prove(operator, tensors, {}, arrays=arrays, seed=seed))


def test_what_directml_differs_in_is_left_out_of_the_comparison_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Element by element, and said in the folder's README. dmlc's own result is held to all."""
    monkeypatch.chdir(tmp_path)
    model = divide(
        ATensor=np.int32([[7, -7, 6], [8, 9, 1]]), BTensor=np.int32([[0, 0, 2], [4, 3, 1]])
    )
    title = "signed integers divided by 0 are -1, and 1 of a negative dividend"
    assert (
        f"    OutputTensor: 2 of 6 elements: {title}\n" in model.all_files()["README.txt"].decode()
    )
    for path, content in model.files.items():
        Path(path).write_bytes(content)
    np.save("OutputTensor.dmlc.npy", np.int32([[0, 0, 3], [2, 3, 1]]))
    own, directml = (comparison.arguments() for comparison in model.comparisons)
    for given, status in (([[-1, 1, 3], [2, 3, 1]], 0), ([[-1, 1, 4], [2, 3, 1]], 1)):
        np.save("OutputTensor.directml.npy", np.int32(given))
        assert cli.run(["compare", *directml]) == status
    assert cli.run(["compare", *own]) == 0
    np.save("OutputTensor.dmlc.npy", np.int32([[-1, 1, 3], [2, 3, 1]]))
    assert cli.run(["compare", *own]) == 1


def test_drawn_values_are_those_that_nobody_disagrees_on_where_there_are() -> None:
    """Divisors of 0 are in half of the first draws."""
    models = [divide(seed=seed) for seed in range(6)]
    for model in models:
        assert np.all(load(model, "BTensor.npy"))
        assert "differs.OutputTensor.npy" not in model.files
        assert "DirectML is known" not in model.all_files()["README.txt"].decode()
    zeros = divide(BTensor=np.zeros((2, 3), np.int32))
    assert np.all(np.isposinf(load(zeros, "differs.OutputTensor.npy")))


def test_an_operator_that_directml_does_alike_leaves_nothing_out() -> None:
    model = relu_grad(2, 3)
    assert model.left_out == ()
    assert [len(comparison.bounds) for comparison in model.comparisons] == [1, 2]


def test_empty_elements_are_told_from_wrong_ones() -> None:
    """Bounds lie where the elements do."""
    model = MODELS["strided"]
    bound = load(model, "bound.OutputGradientTensor.npy")
    expected = load(model, "expected.OutputGradientTensor.npy")
    assert bound.shape == expected.shape == (63,)
    assert np.count_nonzero(~np.isnan(expected)) == 30
    assert DataType.FLOAT32.dtype == expected.dtype
