"""Models of strangers: what is broken is refused in words, and nothing takes no end."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dmlc
from dmlc.onnx.importing import budget
from dmlc.onnx.importing.budget import BudgetError
from dmlc.source import DmlcError, InternalError
from tests.fuzz import hostile
from tests.onnx import mutate

F32, I64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
VERSION = helper.make_opsetid("", 21)


def make(
    nodes: Sequence[onnx.NodeProto], sizes: Sequence[int | str] = (3,),
    held: dict[str, Any] | None = None, **settings: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one input `x` and one output `y`."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", F32, sizes)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (held or {}).items()],
    )  # fmt: skip
    opsets = [VERSION, helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **settings)


def node(kind: str, inputs: str, outputs: str = "y", **settings: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **settings)


def refuse(model: onnx.ModelProto, words: str) -> None:
    with pytest.raises(DmlcError, match=words):
        dmlc.onnx.load(model)


# No end ----------------------------------------------------------------------------------------


def double(count: int) -> onnx.ModelProto:
    """Functions each of which calls the next one twice."""
    functions: list[onnx.FunctionProto] = []
    for number in range(count):
        inner = f"f{number + 1}" if number + 1 < count else "Relu"
        domain = "own" if number + 1 < count else ""
        nodes = [node(inner, "a", "b", domain=domain), node(inner, "b", "c", domain=domain)]
        opsets = [VERSION, helper.make_opsetid("own", 1)]
        functions.append(helper.make_function("own", f"f{number}", ["a"], ["c"], nodes, opsets))
    return make([node("f0", "x", domain="own")], functions=functions)


def nest(depth: int) -> onnx.ModelProto:
    """Loops of ten steps in one another."""
    made = [node("Relu", "v", "w")]
    for _ in range(depth):
        body = helper.make_graph(
            [node("Identity", "go", "on"), *made], "body",
            [helper.make_tensor_value_info("i", I64, []),
             helper.make_tensor_value_info("go", BOOL, []),
             helper.make_tensor_value_info("v", F32, [3])],
            [helper.make_tensor_value_info("on", BOOL, []),
             helper.make_tensor_value_info("w", F32, [3])],
        )  # fmt: skip
        made = [helper.make_node("Loop", ["ten", "", "v"], ["w"], body=body)]
    start = node("Identity", "x", "v")
    return make([start, *made, node("Identity", "w")], held={"ten": np.int64(10)})


def test_calls_and_loops_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    dmlc.onnx.load(double(5))
    dmlc.onnx.load(nest(2))
    monkeypatch.setattr(budget, "MOST_WORK", 1 << 14)
    for model, words in ((double(31), "the node .*Relu"), (nest(7), "in loops multiply")):
        with pytest.raises(BudgetError, match="more than 16,384 instructions"):
            dmlc.onnx.load(model)
        refuse(model, words)


def test_what_lies_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = double(2)
    del chain.functions[0].node[1]
    chain.functions[0].node[0].op_type = "f0"
    refuse(chain, "more than 48 deep")


def measure(model: onnx.ModelProto) -> tuple[str, int]:
    """What is said of a model, and the most bytes that Python had meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(DmlcError) as raised:
            dmlc.onnx.load(model)
        return str(raised.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("nodes", "held"),
    [
        ([node("Range", "zero many one", "r"), node("Cast", "r", to=F32)],
         {"zero": np.int64(0), "many": np.int64(10**12), "one": np.int64(1)}),
        ([node("Tile", "row many")], {"row": np.ones(1, np.float32), "many": [10**10]}),
        ([node("ConstantOfShape", "many", "c"), node("Neg", "c")], {"many": [10**10]}),
        ([node("ConstantOfShape", "many", "c"), node("CastLike", "c half", "d"), node("Neg", "d")],
         {"many": [10**10], "half": np.ones(1, np.float16)}),
        ([node("HannWindow", "many")], {"many": np.int64(10**10)}),
        ([node("Expand", "row many", "c"), node("Neg", "c")],
         {"row": np.array([[1.0], [2]], np.float32), "many": [2, 10**10]}),
        ([node("Resize", "x a b many", mode="linear")],
         {"a": np.zeros(0, np.float32), "b": np.zeros(0, np.float32), "many": [2 * 10**9]}),
    ],
    ids=["range", "tile", "fill", "cast", "window", "expand", "resize"],
)  # fmt: skip
def test_constants_that_take_gigabytes(nodes: list[onnx.NodeProto], held: dict[str, Any]) -> None:
    said, peak = measure(make(nodes, held=held))
    assert "while the model is imported take more than 256 MiB: the node" in said
    assert peak < 64 << 20


def test_one_number_many_times_takes_no_memory() -> None:
    fill = node("ConstantOfShape", "many", "y")
    found = dmlc.onnx.load(make([fill], held={"many": np.array([2**20, 2**15])}))
    assert "0.0" in str(found.function)


def test_constants_of_a_large_model_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are cast take as much as the weights themselves."""
    monkeypatch.setattr(budget, "MOST_BYTES", 1 << 10)
    weights = np.arange(4096, dtype=np.float16)
    nodes = [node("Cast", "w", "c", to=F32), node("ReduceSum", "c", "s"), node("Add", "s x")]
    dmlc.onnx.load(make(nodes, held={"w": weights}))
    monkeypatch.setattr(budget, "GROWTH", 1)
    refuse(make(nodes, held={"w": weights}), "more than 0 MiB")


def test_a_sum_of_many_letters_is_left_to_kernels() -> None:
    """The reference would not end."""
    held = {f"w{k}": np.arange(8, dtype=np.float32) for k in range(12)}
    letters = "abcdefghijkl"
    nodes = [node("Einsum", " ".join(held), "s", equation=f"{','.join(letters)}->"),
             node("Add", "s x")]  # fmt: skip
    assert "sum[" in str(dmlc.onnx.load(make(nodes, held=held)).function)


def test_places_out_of_range_are_left_to_kernels() -> None:
    """The reference counts up to them."""
    held = {"t": np.arange(3, dtype=np.float32), "i": np.array([0, 1 << 62, 2])}
    nodes = [node("GatherElements", "t i", "s"), node("Add", "s x")]
    assert "i[i0]" in str(dmlc.onnx.load(make(nodes, held=held)).function)


def test_samples_of_a_region_are_left_to_kernels() -> None:
    held = {"m": np.ones((1, 1, 4, 4), np.float32), "r": np.ones((1, 4), np.float32), "n": [0]}
    region = node("RoiAlign", "m r n", "s", sampling_ratio=10**9, output_height=2)
    dmlc.onnx.load(make([region, node("Add", "s x")], sizes=[1], held=held))


def test_a_spectrum_of_one_number_stands_for_nothing() -> None:
    made = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=1, onesided=1)
    refuse(make([made], sizes=[1, 1, 2], held={"axis": np.int64(1)}), "a transform of 0 points")


def test_a_region_of_other_axes() -> None:
    held = {"r": np.zeros(1, np.float32), "b": np.zeros(0, np.float32), "n": [6]}
    crop = node("Resize", "x r b n", coordinate_transformation_mode="tf_crop_and_resize")
    refuse(make([crop], held=held), "its region has 1 numbers for 1 axes")


def test_windows_over_other_axes_than_there_are() -> None:
    """ONNX believes the kernel_shape."""
    window = node("Conv", "m w", "c", kernel_shape=[3, 3])
    held = {"w": np.ones((1, 1, 3, 3, 1), np.float32)}
    made = make([node("Identity", "x", "m"), window, node("Relu", "c")], [1, 1, 5, 5], held)
    refuse(made, "its windows have 3 numbers for 2 axes of space")


# Broken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (node("Relu", "x x"), "2 inputs, and Relu has 1"),
        (node("Relu", "x", alpha=1.0), "attribute 'alpha', which Relu has not"),
        (node("Softmax", "x", axis="1"), "attribute 'axis' is no INT"),
        (node("Concat", "x x"), "no attribute 'axis', which Concat needs"),
        (node("Concat", "x x", axis=2**62), "there is no such axis"),
        (node("Softmax", "x", axis=3), r"of inputs of the sizes \[3\]: 'axis' must be in"),
        (node("AveragePool", "x", kernel_shape=[2], strides=[-(2**63)]), "ONNX does not take it"),
        (node("Split", "x", "y z", num_outputs=2**31 - 1), "2 outputs, and its num_outputs is"),
        (node("Einsum", "x x", equation="((n))"), "is no equation of 2 tensors"),
        (node("Einsum", "x x", equation="i,2*n - 7"), "is no equation of 2 tensors"),
        (node("Einsum", "x x", equation="i,i->j"), "is no equation of 2 tensors"),
        (node("GatherND", "x i", batch_dims=-7), "its batch_dims is -7"),
        (node("Cast", "x", to=0), "which no tensor can hold|ONNX does not take it"),
        (node("GatherElements", "x i"), "i has 2 axes, and x has 1: they must have as many"),
    ],
)
def test_a_node_is_held_to_its_schema(made: onnx.NodeProto, words: str) -> None:
    refuse(make([made], held={"i": np.zeros((2, 1), np.int64)}), words)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (node("LpPool", "x", kernel_shape=[1], p=0), "the power 0"),
        (node("ConstantOfShape", "s"), "it gives a tensor of 9,223,372,036,854,775,808 elements"),
    ],
)
def test_numbers_that_nothing_is_computed_of(made: onnx.NodeProto, words: str) -> None:
    refuse(make([made], (1, 1, 2), held={"s": np.array([2**31, 2**32], np.int64)}), words)


def test_a_size_that_int64_cannot_hold() -> None:
    refuse(make([node("Size", "x")], sizes=(2, 1 << 62)), "a size of 9,223,372,036,854,775,808 is")


@pytest.mark.parametrize("policy", ["stretch", "not_larger"])
def test_an_axis_of_no_elements_is_not_resized(policy: str) -> None:
    nodes = [helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], keep_aspect_ratio_policy=policy
    )]  # fmt: skip
    for wanted in (3, 0):
        model = make(nodes, sizes=(0, 2), held={"sizes": np.array([wanted, 2])})
        if wanted:
            refuse(model, "an axis of no elements cannot be resized to 3")
        else:
            dmlc.onnx.load(model)


@pytest.mark.parametrize(
    ("inputs", "given", "words"),
    [
        (["x", "", "s"], np.array([1, -1e18], np.float32), "a scale of -9.99"),
        (["x", "", "s"], np.array([1, np.nan], np.float32), "a scale of nan"),
        (["x", "", "", "s"], np.array([3, -2]), "an axis is resized to -2"),
    ],
)
def test_a_size_of_less_than_nothing(
    inputs: list[str], given: np.ndarray[Any, Any], words: str
) -> None:
    made = helper.make_node("Resize", inputs, ["y"], mode="linear")
    refuse(make([made], sizes=(3, 2), held={"s": given}), words)


def test_no_groups() -> None:
    held = {"s": np.ones(4, np.float32)}
    made = node("GroupNormalization", "x s s", num_groups=0)
    refuse(make([made], sizes=(1, 4, 3), held=held), "4 channels are not 0 groups of one size")


def test_a_definition_that_onnx_cannot_write() -> None:
    """It writes the definition as text, in which no name has a dot."""
    sizes = [1, 2, 4, 4]
    body = helper.make_graph(
        [node("Mul", "s a.b", "t")], "score", [helper.make_tensor_value_info("s", F32, sizes)],
        [helper.make_tensor_value_info("t", F32, sizes)],
        [numpy_helper.from_array(np.float32(1), "a.b")],
    )  # fmt: skip
    preview = helper.make_opsetid("ai.onnx.preview", 1)
    made = node("FlexAttention", "x x x", domain=preview.domain, score_mod=body)
    model = make([made], sizes=(1, 2, 4, 8))
    model.opset_import.append(preview)
    refuse(model, "FlexAttention .*: ONNX cannot write out its definition: Error parsing node")


def test_attributes_that_are_there_twice() -> None:
    twice = node("Softmax", "x", axis=0)
    twice.attribute.append(twice.attribute[0])
    refuse(make([twice]), "attribute 'axis' twice")


@pytest.mark.parametrize("place", ["name", "op_type", "input", "attribute"])
def test_texts_that_are_no_utf8(place: str, tmp_path: Path) -> None:
    made = node("Gelu", "marked" if place == "input" else "x",
                approximate="marked" if place == "attribute" else "none")  # fmt: skip
    if place in ("name", "op_type"):
        setattr(made, place, "marked")
    path = tmp_path / "m.onnx"
    path.write_bytes(make([made]).SerializeToString().replace(b"marked", b"\xff\xfem\xff\xfd "))
    with pytest.raises(DmlcError, match="no UTF-8"):
        dmlc.onnx.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.dims.__setitem__(0, -3), r"the constant 'w' has the sizes \[-3\]"),
        (lambda w: w.dims.__setitem__(0, 2**62), "and not as many elements"),
        (lambda w: w.dims.append(5), "and not as many|not of its type"),
        (lambda w: setattr(w, "data_type", 0), "not of its type"),
        (lambda w: setattr(w, "raw_data", b"\0"), "and not as many|not of its type"),
    ],
)
def test_constants_that_are_not_what_they_say(change: Callable[[Any], None], words: str) -> None:
    model = make([node("Add", "x w")], held={"w": np.zeros(3, np.float32)})
    change(model.graph.initializer[0])
    refuse(model, words)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"offset": "-8"}, "offset '-8', which is no number"),
        ({"offset": "x"}, "which is no number"),
        ({"offset": "4096"}, "12 bytes from 4,096 on of .* 0 there"),
        ({"length": "9999999"}, "takes 12 bytes, and 9,999,999 are said"),
        ({"location": "none.bin"}, "no such file"),
        ({"location": "../w.bin"}, "cannot read"),
        ({"location": ""}, "without a name"),
        ({}, ""),
    ],
)
def test_constants_in_files(told: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    weights = np.array([1, 2, 3], np.float32)
    for place in (folder, tmp_path):
        (place / "w.bin").write_bytes(weights.tobytes())
    model = make([node("Add", "x w")], held={"w": weights})
    stored = model.graph.initializer[0]
    stored.ClearField("raw_data")
    stored.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", **told}.items():
        stored.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    if words:
        with pytest.raises(DmlcError, match=words):
            dmlc.onnx.load(folder / "m.onnx")
        return
    found = dmlc.onnx.load(folder / "m.onnx").run({"x": np.zeros(3, np.float32)}, "reference")
    assert np.array(found["y"]).tolist() == [1, 2, 3]


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        return
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(DmlcError, match="no regular file"):
        dmlc.onnx.load(tmp_path / "m.onnx")


# Names of dimensions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "dims", "extents"),
    [
        (["a*b"], {}, ("a_b",)),
        (["a", "b", "a*b"], {}, ("a", "b", "a * b")),
        (["a*b"], {"a": 2, "b": 3}, (6,)),
        (["a * 2"], {}, ("a_2",)),
        (["(" * 3000 + "n" + ")" * 3000], {}, ("_",)),
        (["7"], {}, (7,)),
        (["7x"], {}, ("_7x",)),
        (["n" * 5000], {}, ("n" * 5000,)),
    ],
)
def test_dimensions_named_by_formulas(
    sizes: list[str], dims: dict[str, int], extents: tuple[int | str, ...]
) -> None:
    found = dmlc.onnx.load(make([node("Relu", "x")], sizes), dims=dims)
    assert found.function.parameters[0].extents == extents


def test_a_dimension_of_less_than_nothing() -> None:
    refuse(make([node("Relu", "x")], [-2]), "'x' has -2 places along axis 0")


def test_names_that_are_there_twice() -> None:
    model = make([node("Relu", "x")])
    model.graph.output.append(model.graph.output[0])
    refuse(model, "two outputs that are called 'y'")


# Mutants ---------------------------------------------------------------------------------------


def test_a_few_hundred_mutants() -> None:
    models = hostile.READERS[mutate.KIND][0]()
    ran: Counter[str] = Counter()
    for number in range(300):
        hostile.look(mutate.KIND, mutate.make_mutant(7, number, models), ran)
    assert sum(ran.values()) == 300
    assert min(ran["taken"], ran["refused"]) > 50


def test_that_a_mutant_that_breaks_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InternalError("broken")

    monkeypatch.setattr(dmlc.onnx, "load", fail)
    model = make([node("Relu", "x")]).SerializeToString()
    _, found = mutate._try([0, 1], 0, [model])
    assert [(number, kind) for number, kind, _ in found] == [
        (number, "hostile onnx: InternalError in test_hostile.py fail") for number in (0, 1)
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_mutants_are_tried_on_any_number_of_processes(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "CHUNK", 2)
    models = [make([node("Relu", "x")]).SerializeToString()]
    found = list(mutate._try_all(range(5), 3, models, jobs))
    assert len(found) == 3
    assert sum(sum(ran.values()) for ran, _ in found) == 5


def test_progress_is_told_while_mutants_are_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [make([node("Relu", "x")]).SerializeToString()]
    monkeypatch.setattr(mutate, "make_models", lambda _: models)
    monkeypatch.setattr(mutate, "EVERY", 0.0)
    monkeypatch.setattr("sys.argv", ["mutate", "--count", "3", "--seed", "5", "--sample"])
    assert mutate.main() == 0
    said = capsys.readouterr()
    assert said.err == "seed 5: 3 of 3 mutants, 0 findings\n"
    assert "3 mutants of 1 models" in said.out
