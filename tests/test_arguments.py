"""Wrong kinds of arguments, at every public function: they are refused in words.

A function may take a wrong value that happens to mean something; what it must not do is let an
`AttributeError` or the like out from inside. Records (the nodes of the IR, spans, diagnostics) hold
what they are given: `ir.verify` and whoever reads them say what is wrong with it.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dmlc
import dmlc.testing.bounds
import dmlc.testing.compare
import dmlc.testing.examples
import dmlc.testing.gradients
import dmlc.testing.verify
from dmlc import DataType, DmlcError, TensorDesc, compiler, ir
from dmlc.testing.compare import Tolerance


class Strange:
    """An object that nothing expects."""


WRONG: tuple[Any, ...] = (
    None, True, 5, -1, 2.5, float("nan"), 10**40, 1j, "", "directml.ACTIVATION_RELUU", "\0", b"x",
    [], [None], [[1], 2], (1, "a"), {}, {5: 6}, {"X": None}, {"X": Strange()}, {"X": "f32"},
    {"A": [1, [2]], "B": {}}, {1, 2}, iter([1]), range(3), len, int, Strange, Strange(),
    np.float32, np.float32(1), np.zeros(0, "f4"), np.zeros((2, 3), "c8"), np.array(None), "opencl",
    np.array(["a"]), np.zeros(2, [("a", "f4")]), DataType.FLOAT32, DataType.INDEX, Exception(),
    TensorDesc("f32"), pathlib.Path("nowhere.dml"), ..., ml_dtypes.bfloat16, "reference",
)  # fmt: skip

RELU = dmlc.operator("directml.ACTIVATION_RELU_GRAD")
OWN = dmlc.parse(
    """
operator SCALED {
    attributes {
        | Attribute | Type    | Default |
        | A         | FLOAT   | 1       |
        | B         | UINT[]  | [1]     |
    }
    tensors {
        | Tensor | Kind             | Types |
        | X      | Input            | f32   |
        | L      | Optional input   | f32   |
        | Z      | Output           | f32   |
    }
    constraints { X and Z must have the same DataType, DimensionCount, and Sizes. }
    compute { Z = A * X }
    example "one" {
        X = [1]
        expect Z = [1]
    }
}
graph twice[N](x: FLOAT32[N]) { output y = x + x }
"""
)
SCALED, TWICE = OWN.operators["SCALED"], OWN.graphs["twice"]
STATED = dmlc.parse("graph stated[N](x: FLOAT32[2 * N]) { output y = x + x }").graphs["stated"]
X = np.ones(3, np.float32)
FUNCTION = TWICE.bind(dims={"N": 3})
PROGRAM = dmlc.compile(FUNCTION)
EXECUTABLE = dmlc.load_program(PROGRAM)
VULKAN = dmlc.load_program(dmlc.compile(FUNCTION, "hlsl"), "vulkan")
STAGE = FUNCTION.stages[0]
FUSION = compiler.find_fusion(FUNCTION)
KERNEL = compiler.make_kernels(FUNCTION)[1][0]
LOAD = STAGE.body.loads()[0]
GRAPH_X = "a value of the graph"


def builder() -> tuple[dmlc.GraphBuilder, Any]:
    graph = dmlc.GraphBuilder("g")
    return graph, graph.input("x", "FLOAT32", [3])


def in_builder(method: str) -> Callable[..., Any]:
    """A method of a new builder, with the value `x` where the place of one is left."""

    def call(**given: object) -> object:
        graph, x = builder()
        filled = {n: x if v is GRAPH_X else v for n, v in given.items()}
        made = getattr(graph, method)(**filled)
        return made if method in ("symbols", "where") else (made, str(graph))

    return call


def finish(results: Any) -> object:
    return list(results)


BUILDER = {"name": "g", "import_folders": ()}
ARRAYS = {"inputs": {"x": X}, "outputs": None}
WHERE = {"condition": GRAPH_X, "then": 1, "otherwise": 2}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "DataType": (lambda value: DataType(value) if not isinstance(value, np.ndarray) else None,
                 {"value": "f32"}),
    "GraphBuilder": (dmlc.GraphBuilder, BUILDER),
    "Graph": (dmlc.Graph, {"definition": TWICE.definition}),
    "Operator": (dmlc.Operator, {"definition": RELU.definition}),
    "TensorDesc": (TensorDesc, {"data_type": "f32", "sizes": (2, 3), "strides": (3, 1)}),
    "compile": (dmlc.compile, {"function": FUNCTION, "target": "opencl", "profile": "cpu",
                               "root_signature": True, "shader_model": None}),
    "compile for hlsl": (dmlc.compile, {"function": FUNCTION, "target": "hlsl", "profile": None,
                                        "root_signature": True, "shader_model": "6.2",
                                        "float_controls": (32,)}),
    "gradient": (dmlc.gradient, {"subject": RELU, "wrt": ["InputTensor"], "names": None}),
    "gradient of a graph": (dmlc.gradient, {"subject": TWICE, "wrt": ["x"], "names": {"y": "d"}}),
    "gradient name": (lambda value: dmlc.gradient(TWICE, ["x"], {"x": value}), {"value": "dx"}),
    "inspect": (dmlc.inspect, {"function": FUNCTION, "gpus": ["gfx1100"], "shader_model": "6.2"}),
    "load": (dmlc.load, {"path": "nowhere.dml", "import_folders": ()}),
    "read_manifest": (dmlc.read_manifest, {"directory": "nowhere"}),
    "load_program": (dmlc.load_program, {"program": PROGRAM, "device": "opencl"}),
    "mlir.export": (dmlc.mlir.export, {"subject": SCALED, "tensors": {"X": (3,)},
                                       "attributes": {}}),
    "mlir.export of a graph": (dmlc.mlir.export, {"subject": TWICE, "tensors": None,
                                                  "dims": {"N": 3}}),
    "onnx.export": (dmlc.onnx.export, {"subject": SCALED, "tensors": {"X": (3,)},
                                       "attributes": {}}),
    "onnx.export of a graph": (dmlc.onnx.export, {"subject": TWICE, "tensors": None,
                                                  "dims": {"N": 3}}),
    "onnx.load": (dmlc.onnx.load, {"subject": dmlc.onnx.export(SCALED, {"X": (3,)}),
                                   "constants": {}, "tensors": {}, "dims": {}}),
    "operator": (dmlc.operator, {"name": RELU.name}),
    "operators": (lambda name: dmlc.operators()[name], {"name": RELU.name}),
    "parse": (dmlc.parse, {"text": "", "filename": "x.dml", "import_folders": ()}),
    "run": (dmlc.run, {"subject": SCALED, "inputs": {"X": X}, "attributes": None, "outputs": None,
                       "device": "opencl", "dims": None}),
    "run an input": (lambda value: dmlc.run(SCALED, {"X": value}), {"value": X}),
    "run an output": (lambda value: dmlc.run(SCALED, [X, None], outputs={"Z": value}),
                      {"value": (3,)}),
    "run a graph": (dmlc.run, {"subject": TWICE, "inputs": {"x": X}, "attributes": None,
                               "outputs": None, "device": "reference", "dims": None}),
    "run a function": (dmlc.run, {"subject": FUNCTION, "inputs": [X], "attributes": None,
                                  "outputs": None, "device": "vulkan", "dims": None}),
    "Operator.bind": (SCALED.bind, {"tensors": {"X": (2,)}, "attributes": None, "level": None}),
    "Operator.bind tensor": (lambda value: SCALED.bind({"X": value}), {"value": (2,)}),
    "Operator.bind attribute": (lambda value: SCALED.bind({"X": (2,)}, {"A": value}),
                                {"value": 1}),
    "Operator.bind array": (lambda value: SCALED.bind({"X": (2,)}, {"B": value}), {"value": [1]}),
    "Operator.resolve": (SCALED.resolve, {"tensors": {"X": (2,)}, "attributes": None,
                                          "level": None, "computed": ()}),
    "Graph.bind": (TWICE.bind, {"tensors": None, "dims": {"N": 3}}),
    "Graph.bind tensor": (lambda value: TWICE.bind({"x": value}), {"value": (3,)}),
    "Graph.bind size": (lambda value: TWICE.bind(dims={"N": value}), {"value": 3}),
    "Program.tensor": (PROGRAM.tensor, {"name": "x"}),
    "Program.file_name": (PROGRAM.file_name, {"kernel": PROGRAM.kernels[0]}),
    "Executable": (EXECUTABLE, ARRAYS),
    "Executable.run": (EXECUTABLE.run, ARRAYS),
    "Executable.bind": (EXECUTABLE.bind, ARRAYS),
    "Vulkan executable": (VULKAN, ARRAYS),
    "Vulkan executable's bind": (VULKAN.bind, ARRAYS),
    "an executable's input": (lambda value: EXECUTABLE({"x": value}), {"value": X}),
    "an executable's output": (lambda value: EXECUTABLE([X], {"y": value}), {"value": (3,)}),
    "GraphBuilder.symbols": (in_builder("symbols"), {"names": "N C"}),
    "GraphBuilder.input": (in_builder("input"), {"name": "z", "data_type": "f32", "sizes": [2]}),
    "GraphBuilder.output": (in_builder("output"), {"name": "z", "value": GRAPH_X}),
    "GraphBuilder.name": (in_builder("name"), {"name": "z", "value": GRAPH_X}),
    "GraphBuilder.where": (in_builder("where"), WHERE),
    "GraphBuilder.cast": (in_builder("cast"), {"value": GRAPH_X, "data_type": "f16"}),
    "GraphBuilder.reduce": (in_builder("reduce"), {"combiner": "sum", "value": GRAPH_X,
                                                   "axes": [0], "like": None}),
    "GraphBuilder.reduce like": (in_builder("reduce"), {"combiner": "sum", "value": GRAPH_X,
                                                        "axes": None, "like": GRAPH_X}),
    "GraphBuilder.gradient": (in_builder("gradient"),
                              {"of": GRAPH_X, "wrt": GRAPH_X, "given": GRAPH_X}),
    "GraphBuilder.exp": (lambda value: builder()[0].exp(value), {"value": 1}),
    "GraphBuilder.call": (
        lambda operator, name, **given: builder()[0].call(operator, name=name, **given),
        {"operator": "onednn.ReLU", "name": None, "src": 1, "dst": ("f32", [3])},
    ),
    "GraphBuilder attribute": (
        lambda value: builder()[0].directml.REDUCE(Function=value, Axes=value), {"value": 1}),
    "Value": (lambda value: builder()[1] + value, {"value": 1}),
    "ir.parse": (ir.parse, {"text": str(FUNCTION), "filename": "<ir>"}),
    "ir.from_json": (ir.from_json, {"text": ir.to_json(FUNCTION)}),
    "ir.to_json": (ir.to_json, {"function": FUNCTION}),
    "ir.print_function": (ir.print_function, {"function": FUNCTION}),
    "ir.verify": (lambda function: ir.verify(function), {"function": FUNCTION}),
    "ir.check_in_place": (ir.check_in_place, {"function": FUNCTION, "pairs": [("y", "x")]}),
    "ir.reads_own_place": (ir.reads_own_place, {"stage": STAGE, "load": LOAD}),
    "ir.operands": (ir.operands, {"instruction": LOAD}),
    "ir.with_operands": (ir.with_operands, {"instruction": ir.Cast(0, DataType.FLOAT32),
                                            "new": (1,)}),
    "ir.value_type": (ir.value_type, {"instruction": LOAD}),
    "ir.apply_rules": (lambda function: ir.apply_rules(function), {"function": FUNCTION}),
    "ir.combiner_identity": (ir.combiner_identity, {"combiner": "sum", "dtype": DataType.FLOAT32}),
    "compiler.evaluate": (compiler.evaluate, {"function": FUNCTION, "inputs": {"x": X}}),
    "ir.find_affine": (ir.find_affine, {"body": STAGE.body}),
    "ir.find_fault": (lambda function: ir.find_fault(function), {"function": FUNCTION}),
    "compiler.find_fusion": (compiler.find_fusion, {"function": FUNCTION, "target": "opencl",
                                        "profile": "cpu"}),
    "ir.fixed_strides": (ir.fixed_strides, {"tensor": FUNCTION.parameters[0]}),
    "ir.function_schema": (ir.function_schema, {}),
    "compiler.fuse": (lambda function: compiler.fuse(function), {"function": FUNCTION}),
    "compiler.fusion_from_json": (compiler.fusion_from_json,
                                  {"text": compiler.fusion_to_json(FUSION)}),
    "compiler.fusion_schema": (compiler.fusion_schema, {}),
    "compiler.fusion_to_json": (compiler.fusion_to_json, {"fusion": FUSION}),
    "compiler.kernel_from_json": (compiler.kernel_from_json,
                                  {"text": compiler.kernel_to_json(KERNEL)}),
    "compiler.kernel_schema": (compiler.kernel_schema, {}),
    "compiler.kernel_to_json": (compiler.kernel_to_json, {"kernel": KERNEL}),
    "compiler.make_kernels": (compiler.make_kernels, {"function": FUNCTION, "target": "opencl",
                                          "profile": "cpu", "shader_model": None}),
    "compiler.parse_kernel": (compiler.parse_kernel, {"text": compiler.print_kernel(KERNEL),
                                                      "filename": "<kernel>"}),
    "compiler.print_kernel": (compiler.print_kernel, {"kernel": KERNEL}),
    "compiler.rewrite": (lambda function: compiler.rewrite(function), {"function": FUNCTION}),
    "compiler.simplify": (lambda function: compiler.simplify(function), {"function": FUNCTION}),
    "ir.specialize": (ir.specialize, {"function": TWICE.bind(), "sizes": {"N": 3}}),
    "ir.packed_strides": (ir.packed_strides, {"extents": (2, 3)}),
    "Function.sort_tensors": (FUNCTION.sort_tensors, {"names": ["y", "x"]}),
    "testing.bound_errors": (dmlc.testing.bounds.bound_errors,
                             {"function": FUNCTION, "inputs": {"x": X}}),
    "testing.Tolerance.allow": (Tolerance(0, 0).allow, {"expected": X}),
    "testing.Verdict.of": (dmlc.testing.compare.Verdict.of,
                           {"actual": X, "expected": X, "allowed": 0.0}),
    "testing.verify": (dmlc.testing.verify.verify,
                       {"subject": SCALED, "inputs": {"X": X}, "attributes": {},
                        "results": {"Z": X}, "dims": None}),
    "testing.bind_for_arrays": (dmlc.testing.verify.bind_for_arrays,
                                {"subject": SCALED, "tensors": {"X": (3,)}, "attributes": {},
                                 "dims": {}}),
    "testing.read_cases": (
        lambda operator, example: finish(dmlc.testing.examples.read_cases(operator, example)),
        {"operator": SCALED, "example": SCALED.definition.examples[0]}),
    "testing.widen_floats": (dmlc.testing.gradients.widen_floats, {"function": FUNCTION}),
    "testing.measure_gradient": (
        dmlc.testing.gradients.measure_gradient,
        {"function": FUNCTION, "inputs": {"x": X}, "weights": {"y": X}, "with_respect_to": "x",
         "step": 1e-5}),
}  # fmt: skip
"""Every public call, with arguments that fit."""

CHECKED_ELSEWHERE = {
    "ArgumentError", "Diagnostic", "DmlcError", "Inspection", "InternalError", "Results", "Span",
    "UnavailableError", "UnknownNameError", "UnsupportedError", "Module", "Program", "__version__",
    "ir", "OPEN", "cgc",
}  # fmt: skip
"""Public names that callers are given and do not call."""


@pytest.mark.parametrize("name", CALLS)
def test_the_arguments_below_fit(name: str) -> None:
    call, given = CALLS[name]
    if name not in ("load", "read_manifest", "Value", "GraphBuilder attribute", "GraphBuilder.exp",
                    "GraphBuilder.call"):  # fmt: skip
        call(**given)


@pytest.mark.parametrize("name", CALLS)
def test_wrong_kinds_are_refused_in_words(name: str) -> None:
    call, fitting = CALLS[name]
    silent: list[str] = []
    for parameter in fitting:
        for number, value in enumerate(WRONG):
            try:
                call(**{**fitting, parameter: value})
            except (TypeError, DmlcError) as error:
                if not str(error).strip():
                    silent.append(f"{parameter}={value!r} (number {number}): no words")
            except Exception as error:
                silent.append(f"{parameter}={value!r} (number {number}): {error!r}")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dmlc.compile(5), "function must be an ir.Function, an operator, its name, or a "
         "graph, not 5"),
        (lambda: dmlc.gradient(RELU, "InputTensor"),
         "wrt must be a list of inputs' names, not 'InputTensor'"),
        (lambda: dmlc.gradient(RELU, ["InputTensor"], names=["dX"]),
         "names must be a mapping of tensors' names to names, not a list"),
        (lambda: dmlc.compile(FUNCTION, 5), "target must be the name of a target, not 5"),
        (lambda: dmlc.compile(FUNCTION, "hlsl", float_controls=[8]),
         "float_controls must be a list of 16, 32 and 64, or some of these, not a list"),
        (lambda: dmlc.compile(FUNCTION, root_signature="no"),
         "root_signature must be True or False, not 'no'"),
        (lambda: dmlc.load(5), "path must be a path: a text or a pathlib.Path, not 5"),
        (lambda: dmlc.load("x.dml", [b"x"]),
         "a folder of import_folders must be a path: a text or a pathlib.Path, not a bytes"),
        (lambda: dmlc.load("x.dml", "folder"),
         "import_folders must be a list of folders, not 'folder'"),
        (lambda: dmlc.parse(None), "text must be a text, not None"),
        (lambda: dmlc.operator(RELU),
         "name must be the name of an operator, not an Operator"),
        (lambda: dmlc.load_program(FUNCTION),
         "program must be a dmlc.Program, which dmlc.compile gives, not a Function"),
        (lambda: dmlc.load_program(PROGRAM, 0),
         "device must be the name of a device, such as 'opencl', not 0"),
        (lambda: dmlc.run(5, {}), "subject must be an operator, its name, a graph, or an "
         "ir.Function, not 5"),
        (lambda: dmlc.run(SCALED, X), "inputs must be a mapping of inputs' names to arrays, or a "
         "list with one for each, not an ndarray"),
        (lambda: dmlc.run(SCALED, {5: X}), "each name in inputs must be a text, not 5"),
        (lambda: dmlc.run(SCALED, {"X": X}, attributes=[1]),
         "attributes must be a mapping of attributes' names to values, not a list"),
        (lambda: dmlc.run(SCALED, {"X": X}, outputs=[(3,)]), "outputs must be a mapping of "
         "outputs' names to arrays to write into, or to sizes, not a list"),
        (lambda: dmlc.run(TWICE, {"x": X}, dims=3),
         "dims must be a mapping of symbols' names to sizes, not 3"),
        (lambda: SCALED.bind([(2,)]),
         "tensors must be a mapping of tensors' names to descriptions, not a list"),
        (lambda: SCALED.bind({"X": X}),
         "tensors['X'] must be a TensorDesc, or sizes such as (2, 3), not an ndarray"),
        (lambda: SCALED.bind({"X": "f32"}),
         "tensors['X'] must be a TensorDesc, or sizes such as (2, 3), not 'f32'"),
        (lambda: SCALED.bind({"X": (2, "3")}),
         "each size of tensors['X'] must be a whole number, not '3'"),
        (lambda: SCALED.bind({"X": (2,)}, level=5),
         "level must be the name of a feature level, not 5"),
        (lambda: TWICE.bind(dims={"N": 2.5}), "dims['N'] must be a whole number, not 2.5"),
        (lambda: TensorDesc(float, (2,)), "data_type must be a data type: a dmlc.DataType, a name "
         "such as 'FLOAT32', or a NumPy dtype, not the type float"),
        (lambda: TensorDesc("f32", 3), "sizes must be a list of whole numbers, or names "
         "of open sizes, not 3"),
        (lambda: TensorDesc("f32", (2,), "x"), "strides must be a list of whole numbers, not 'x'"),
        (lambda: dmlc.Operator("directml.ACTIVATION_RELU"),
         "definition must be a checked definition, not 'directml.ACTIVATION_RELU'"),
        (lambda: EXECUTABLE(5), "inputs must be a mapping of inputs' names to arrays, or a list "
         "with one for each, not 5"),
        (lambda: PROGRAM.write(5), "directory must be a path: a text or a pathlib.Path, not 5"),
        (lambda: ir.verify("x"), "function must be an ir.Function, not 'x'"),
    ],
)  # fmt: skip
def test_messages_name_the_parameter(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(dmlc.ArgumentError) as raised:
        call()
    assert raised.value.diagnostics[0].message == message
    assert isinstance(raised.value, TypeError)


# What has one meaning ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["FLOAT32", "f32", "Float32", np.float32, np.dtype("f4"), np.dtype(">f4"),
              DataType.FLOAT32],
)  # fmt: skip
def test_spellings_of_a_data_type(given: Any) -> None:
    assert TensorDesc(given, (2,)) == TensorDesc(DataType.FLOAT32, (2,))
    assert DataType(given) is DataType.FLOAT32


def test_data_types_that_numpy_has_from_elsewhere() -> None:
    assert TensorDesc(ml_dtypes.bfloat16).data_type is DataType.BFLOAT16
    assert TensorDesc(np.dtype(ml_dtypes.bfloat16)).data_type is DataType.BFLOAT16
    assert TensorDesc(bool).data_type is DataType.BOOL
    with pytest.raises(DmlcError, match="data_type is complex64, which no tensor can hold"):
        TensorDesc(np.complex64)


def test_a_list_of_inputs_is_in_the_order_of_the_table() -> None:
    dy = np.float32([5, 6, 7])
    x = np.float32([-1, 0, 1])
    for device in ("opencl", "reference"):
        found = dmlc.run(RELU, [x, dy], device=device)
        assert found["OutputGradientTensor"].tolist() == [0, 0, 7]
    assert dmlc.run(SCALED, (X, None))["Z"].tolist() == X.tolist()
    assert dmlc.run(TWICE, [X])["y"].tolist() == [2, 2, 2]
    assert dmlc.run(FUNCTION, [X])["y"].tolist() == [2, 2, 2]
    joined = dmlc.run("directml.JOIN", [[X, X]], {"Axis": 0})
    assert joined["OutputTensor"].shape == (6,)
    for executable in (EXECUTABLE, VULKAN):
        assert executable([X])["y"].tolist() == [2, 2, 2]
        assert executable.bind([X])()["y"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("inputs", [[X], [X, X, X], []])
def test_a_list_of_inputs_has_an_entry_for_each(inputs: list[Any]) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.run(SCALED, inputs)
    assert raised.value.diagnostics[0].message == (
        f"inputs is a list of {len(inputs)}, and 2 are needed: X, L"
    )


def test_what_needs_no_sizes_is_compiled_by_itself() -> None:
    whole = dmlc.compile(SCALED.bind(), "hlsl")
    assert dmlc.compile(SCALED, "hlsl") == whole
    assert dmlc.compile("directml.ACTIVATION_RELU") == dmlc.compile(
        dmlc.operator("directml.ACTIVATION_RELU").bind()
    )
    fixed = dmlc.parse("graph g(x: FLOAT32[4]) { output y = x + x }").graphs["g"]
    assert dmlc.compile(fixed) == dmlc.compile(fixed.bind())


@pytest.mark.parametrize(
    ("subject", "message", "note"),
    [
        ("directml.GEMM", "the sizes of 'ATensor' are needed here", "GEMM cannot be compiled "
         "unbound: compile what its bind(tensors, attributes) gives"),
        ("directml.SLICE1", "attribute 'InputWindowOffsets' is not given", "SLICE1 cannot be "
         "compiled unbound: compile what its bind(tensors, attributes) gives"),
        (STATED, "the size of symbol 'N' is not known", "stated cannot be compiled unbound: "
         "compile what its bind(tensors, dims) gives"),
    ],
)  # fmt: skip
def test_what_needs_bindings_says_which(subject: Any, message: str, note: str) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.compile(subject)
    assert any(message in d.message for d in raised.value.diagnostics)
    assert note in [n.message for n in raised.value.diagnostics[0].notes]


# What values look like --------------------------------------------------------------------------


def test_public_values_look_like_one_line() -> None:
    values = [
        (RELU, "<operator directml.ACTIVATION_RELU_GRAD: InputTensor, InputGradientTensor -> "
         "OutputGradientTensor>"),
        (TWICE, "<graph twice[N]: x -> y>"),
        (OWN, "<module of SCALED, twice>"),
        (FUNCTION, "<function twice: x -> y, 1 stage>"),
        (PROGRAM, "<program twice, opencl for cpu: x -> y, 1 kernel>"),
        (EXECUTABLE, f"<executable twice on {EXECUTABLE.device}>"),
        (VULKAN, f"<executable twice on {VULKAN.device}>"),
        (builder()[0], "<graph g in the making: x -> >"),
        (TensorDesc("f32", (2,)), "TensorDesc(data_type=DataType.FLOAT32, sizes=(2,), "
         "strides=None)"),
    ]  # fmt: skip
    for value, text in values:
        assert repr(value) == text
    for operator in dmlc.operators().values():
        assert len(repr(operator)) < 300
        assert "\n" not in repr(operator)
    assert len(repr(PROGRAM.kernels[0])) < 1000
    assert PROGRAM.kernels[0].source not in repr(PROGRAM.kernels)


def test_the_tables_of_an_operator() -> None:
    reduce = dmlc.operator("directml.REDUCE")
    assert list(reduce.attributes) == ["Function", "AxisCount", "Axes"]
    function, count, axes = reduce.attributes.values()
    assert function.type == "DML_REDUCE_FUNCTION"
    assert function.values is not None
    assert "SUM" in function.values
    assert (function.optional, count.optional, axes.optional) == (False, True, False)
    assert (count.type, axes.type) == ("UINT", "UINT[AxisCount]")
    tensors = reduce.tensors
    assert [t.kind for t in tensors.values()] == ["Input", "Output"]
    assert tensors["InputTensor"].ranks == tuple(range(1, 9))
    assert DataType.FLOAT16 in tensors["InputTensor"].data_types
    gemm = dmlc.operator("directml.GEMM")
    assert gemm.tensors["CTensor"].kind == "Optional input"
    assert gemm.tensors["CTensor"].optional
    assert gemm.attributes["Alpha"].default == "1"
    join = dmlc.operator("directml.JOIN").tensors["InputTensors"]
    assert (join.kind, join.array, join.output) == ("Array of inputs", True, False)
    rows = dmlc.operator("onednn.LayerNorm").types
    assert rows
    assert all(set(row) <= set(dmlc.operator("onednn.LayerNorm").tensors) for row in rows)
    assert RELU.types == ()


# What is long -----------------------------------------------------------------------------------


def test_arrays_of_attributes_are_settings_and_no_data() -> None:
    note = "give longer data as a tensor"
    SCALED.bind({"X": (2,)}, {"B": [1] * 1024})
    endless = iter(lambda: 1, 2)
    for value, count in (([1] * 10**6, "1,000,000"), (endless, "more than 1,024"),
                         (np.ones(1025, int), "1,025")):  # fmt: skip
        with pytest.raises(DmlcError) as raised:
            SCALED.bind({"X": (2,)}, {"B": value})
        (found,) = raised.value.diagnostics
        assert found.message == f"attribute 'B' has {count} values; 1,024 at most"
        assert found.notes[0].message == note


def test_every_public_name_is_walked() -> None:
    walked = {name.partition(".")[0].partition(" ")[0] for name in CALLS}
    assert set(dmlc.__all__) <= walked | CHECKED_ELSEWHERE
    for name, module in (("ir", ir), ("compiler", compiler)):
        functions = {n for n in module.__all__ if inspect.isfunction(getattr(module, n))}
        assert functions == {n.removeprefix(f"{name}.") for n in CALLS if n.startswith(f"{name}.")}
    for kind in (dmlc.Operator, dmlc.Graph, dmlc.GraphBuilder):
        methods = {
            n
            for n, member in inspect.getmembers(kind, inspect.isfunction)
            if not n.startswith("_") and len(inspect.signature(member).parameters) > 1
        }
        assert methods <= {n.partition(" ")[0].partition(".")[2] for n in CALLS}, kind
