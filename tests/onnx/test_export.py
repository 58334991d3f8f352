"""ONNX export: operators and functions of the IR as models, which ONNX's own evaluator runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnx.printer
import pytest

import dmlc
from dmlc import ir
from dmlc.building.functions import FunctionBuilder, Point, Scalar
from dmlc.onnx import stages
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType, find_same
from dmlc.source import UnavailableError, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import find_within
from dmlc.testing.examples import read_cases
from tests.onnx.corpus import find_faults, list_cases, run_model
from tests.samples import sample

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = dmlc.operators()


def run(text: str, inputs: dict[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A function's model, and its results, which are held to the reference's."""
    function = ir.parse(text)
    model = dmlc.onnx.export(function)
    found = run_model(model, inputs)
    expected, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert find_within(found[name], array, allowed[name]).all(), (found[name], array)
    return model, found


def draw(text: str) -> dict[str, Array]:
    """Inputs of a function, with special values among them."""
    parameters = ir.parse(text).parameters
    return {p.name: sample(p.dtype, tuple(map(int, p.extents)), p.name) for p in parameters}


def list_nodes(model: onnx.ModelProto) -> list[str]:
    """The operators of a model's function, constants aside."""
    (function,) = model.functions
    return [node.op_type for node in function.node if node.op_type != "Constant"]


# The corpus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPERATORS))
def test_examples(name: str) -> None:
    """A case of each operator, in one data type or another; `make onnx-export` runs them all."""
    cases = list(read_cases(OPERATORS[name], OPERATORS[name].definition.examples[-1]))
    assert find_faults(cases[len(name) % len(cases)]) == []


# The model -----------------------------------------------------------------------------------


def test_a_model_is_a_function_and_a_call_of_it() -> None:
    operator = dmlc.operator("directml.GEMM")
    tensors = {"ATensor": dmlc.TensorDesc("FLOAT32", [2, 3]),
               "BTensor": dmlc.TensorDesc("FLOAT32", [3, 4])}  # fmt: skip
    model = dmlc.onnx.export(operator, tensors)
    (call,), (function,) = model.graph.node, model.functions
    assert (call.domain, call.op_type) == (function.domain, function.name) == ("dmlc", "GEMM")
    assert {o.domain: o.version for o in model.opset_import} == {"": 18, "dmlc": 1}
    assert [i.name for i in model.graph.input] == list(function.input) == ["ATensor", "BTensor"]
    sizes = model.graph.output[0].type.tensor_type.shape
    assert [d.dim_value for d in sizes.dim] == [2, 4]
    assert list_nodes(model) == ["MatMul", "Identity"]
    assert function.node[-1].output == ["OutputTensor"]
    assert "directml.GEMM" in function.doc_string
    assert "sum[r0 < 3](ATensor[i0, r0] * BTensor[r0, i1])" in function.doc_string


def test_values_are_named_by_stages_and_nodes_say_formulas() -> None:
    text = """func @F(%x: f32[3]) -> (%y) {
      %total: f32[] = sum[r0 < 3] %x[r0]
      %y: f32[i0 < 3] = sub(%x[i0], %total[])
    }"""
    model, _ = run(text, draw(text))
    nodes = {node.output[0]: node for node in model.functions[0].node}
    assert nodes["total"].op_type == "ReduceSum"
    assert nodes["total"].doc_string == "total[] = sum[r0 < 3](x[r0])"
    assert nodes["y"].doc_string == "y[i0] = x[i0] - total[]"
    assert "y = Sub (x, total)" in onnx.printer.to_text(model)


def test_a_printed_model_reads_back() -> None:
    case = next(list_cases(dmlc.operator("onednn.LayerNorm")))
    model = dmlc.onnx.export(case.call.function)
    again = onnx.parser.parse_model(onnx.printer.to_text(model))
    assert list_nodes(again) == list_nodes(model)


def test_a_function_named_as_an_operator_of_onnx() -> None:
    text = "func @Concat(%x: f32[2]) -> (%y) { %y: f32[i0 < 2] = neg(%x[i0]) }"
    model, _ = run(text, draw(text))
    assert model.functions[0].name == "dmlc_Concat"


def test_results_that_are_one_value_have_their_own_names() -> None:
    text = """func @F(%x: f32[2]) -> (%a, %b) {
      %a: f32[i0 < 2] = %x[i0]
      %b: f32[i0 < 2] = %x[i0]
    }"""
    run(text, draw(text))


def test_graphs() -> None:
    (graph,) = dmlc.load(ROOT / "examples/graphs/residual_block_backward.dml").graphs.values()
    dims = {"N": 2, "C": 3, "H": 4, "W": 5}
    function = graph.bind(dims=dims)
    model = dmlc.onnx.export(graph, dims=dims)
    random = np.random.default_rng(0)
    inputs = {p.name: random.normal(size=tuple(map(int, p.extents))).astype(p.dtype.dtype)
              for p in function.parameters}  # fmt: skip
    expected, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, array in run_model(model, inputs).items():
        assert find_within(array, expected[name], allowed[name]).all()


# Operations ----------------------------------------------------------------------------------


def list_operations() -> list[tuple[str, DataType]]:
    """Every operation with the compute types that tensors hold it in."""
    types = [t for t in DataType if t.compute is t and t is not DataType.INDEX]
    return [(o.name, t) for o in dmlc.scalars.OPERATIONS.values() for t in types
            if o.operands.accept(t)]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), list_operations(), ids=str)
def test_operations(name: str, dtype: DataType) -> None:
    operation = dmlc.scalars.OPERATIONS[name]
    given = ["%x[i0]", "%y[i0]", "%w[i0]"][: operation.arity]
    result = operation.result_type(dtype)
    parameters = ", ".join(f"%{p[1]}: {_short(dtype)}[300]" for p in given)
    text = f"""func @F({parameters}) -> (%z) {{
      %z: {_short(result)}[i0 < 300] = {name}({", ".join(given)})
    }}"""
    inputs = draw(text)
    _, found = run(text, inputs)
    expected = evaluate(ir.parse(text), inputs)["z"]
    if name in ("min", "max", "sign", "neg", "abs", "floor", "ceil", "round", "trunc"):
        assert find_same(found["z"], expected).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_functions_near_zero_keep_their_digits(name: str, dtype: npt.DTypeLike) -> None:
    short = dmlc.DataType(np.dtype(dtype)).short
    text = f"func @F(%x: {short}[80]) -> (%z) {{ %z: {short}[i0 < 80] = {name}(%x[i0]) }}"
    x = np.geomspace(1e-30, 0.9, 40)
    inputs = {"x": np.concatenate([x, -x]).astype(dtype)}
    exact = getattr(np, name)(inputs["x"].astype(np.float64))
    np.testing.assert_allclose(run(text, inputs)[1]["z"], exact, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("source", [t for t in DataType if t is not DataType.INDEX], ids=str)
def test_casts(source: DataType) -> None:
    """Each to every compute type, exactly: what saturates, what wraps, NaN."""
    for to in DataType:
        if to.compute is not to or to is DataType.INDEX:
            continue
        text = f"""func @F(%x: {_short(source)}[300]) -> (%z) {{
          %z: {_short(to)}[i0 < 300] = cast(%x[i0], {_short(to)})
        }}"""
        if source is to:
            text = text.replace(f"cast(%x[i0], {_short(to)})", "%x[i0]")
        inputs = draw(text)
        _, found = run(text, inputs)
        assert find_same(found["z"], evaluate(ir.parse(text), inputs)["z"]).all()


def test_a_stage_of_16_bits_rounds_once_when_it_stores() -> None:
    for short in ("f16", "bf16"):
        text = f"""func @F(%x: {short}[300], %y: {short}[300]) -> (%z) {{
          %part: {short}[i0 < 300] = mul(%x[i0], add(%y[i0], 1.0))
          %z: {short}[i0 < 300] = add(%part[i0], %x[i0])
        }}"""
        run(text, draw(text))


def _short(dtype: DataType) -> str:
    return dtype.short if dtype is not DataType.BOOL else "bool"


# Reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "domain", "read", "nodes"),
    [
        ("4, 6", "i0 < 4, i1 < 6", "i0, i1", ["Identity"]),
        ("4, 6", "i0 < 6, i1 < 4", "i1, i0", ["Transpose"]),
        ("4, 6", "i0 < 2, i1 < 3", "add(i0, 1), mul(i1, 2)", ["Slice"]),
        ("4, 6", "i0 < 4, i1 < 6", "sub(3, i0), sub(5, i1)", ["Slice"]),
        ("4, 6", "i0 < 5, i1 < 6", "2, i1", ["Slice", "Expand"]),
        ("1, 6", "i0 < 6, i1 < 4", "0, i0", ["Reshape", "Expand"]),
        ("4, 6", "i0 < 24", "div(i0, 6), mod(i0, 6)", ["Reshape"]),
        ("4, 4", "i0 < 4", "i0, i0", ["Reshape", "Slice"]),
        (
            "2, 12",
            "i0 < 4, i1 < 6",
            "mod(i1, 2), add(mul(i0, 3), div(i1, 2))",
            ["Reshape", "Transpose", "Reshape"],
        ),
        ("4, 6", "i0 < 4, i1 < 6", "div(i0, 2), i1", ["Gather"]),
        ("4, 6", "i0 < 3, i1 < 3, i2 < 2", "add(i0, i2), add(i1, i2)", ["Reshape", "Gather"]),
        ("5, 6", "i0 < 2, i1 < 3, i2 < 6", "add(i0, i1), i2", ["Gather"]),
    ],
)
def test_reads(size: str, domain: str, read: str, nodes: list[str]) -> None:
    text = f"func @F(%x: f32[{size}]) -> (%z) {{ %z: f32[{domain}] = %x[{read}] }}"
    model, _ = run(text, draw(text))
    assert list_nodes(model) == nodes


def test_reads_at_places_that_data_choose() -> None:
    text = """func @F(%x: f32[5, 3], %at: s32[4]) -> (%z) {
      %z: f32[i0 < 4, i1 < 3] = %x[max(min(cast(%at[i0], index), 4), 0), i1]
    }"""
    run(text, draw(text))


def test_positions_of_many_points_are_computed_by_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """func @F(%x: f32[90]) -> (%z) {
      %z: f32[i0 < 6, i1 < 15] = %x[mod(add(mul(i0, 7), mul(i1, i1)), 90)]
    }"""
    inputs = draw(text)
    model, _ = run(text, inputs)
    assert "Mul" not in list_nodes(model)
    monkeypatch.setattr(stages, "MOST_KNOWN", 20)
    model, _ = run(text, inputs)
    assert "Mul" in list_nodes(model)


def test_a_chain_of_values_used_twice_takes_no_exponential_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each value is read twice by the next one: one walk over all paths would never end."""
    monkeypatch.setattr(stages, "MOST_KNOWN", 20)
    builder = FunctionBuilder("F")

    def element(at: Point) -> Scalar:
        place = at.indices[0]
        for _ in range(64):
            place = (place * place + 1) % 90
        return place.cast(DataType.INT32)

    builder.result("z", builder.compute("z", [90], element))
    function = builder.build()
    found = run_model(dmlc.onnx.export(function), {})
    np.testing.assert_array_equal(found["z"], evaluate(function, {})["z"])


# Reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guard", ["", "where ne(r0, i0)", "where gt(%y[r0], 0:s32)", "where ge(r0, 3)"]
)
@pytest.mark.parametrize("dtype", [t for t in DataType if t not in (DataType.INDEX,)], ids=str)
def test_reductions(dtype: DataType, guard: str) -> None:
    combiners = ["any", "all"] if dtype is DataType.BOOL else ["sum", "product", "min", "max"]
    positional = [] if dtype is DataType.BOOL else ["argmin", "argmax"]
    stages = [
        f"%z{n}: {'s32' if c in positional else _short(dtype)}[i0 < 4] = {c}[r0 < 3, r1 < 2] {{\n"
        f"{guard}\n%x[i0, r0, r1] }}"
        for n, c in enumerate((*combiners, *positional))
    ]
    results = ", ".join(f"%z{n}" for n in range(len(stages)))
    text = f"func @F(%x: {_short(dtype)}[4, 3, 2], %y: s32[3]) -> ({results}) {{\n"
    text += "\n".join(stages) + "\n}"
    run(text, draw(text))


@pytest.mark.parametrize(
    ("left", "right", "domain", "nodes"),
    [
        ("i0, r0", "r0, i1", "i0 < 4, i1 < 5", ["MatMul"]),
        ("r0, i0", "r0, i1", "i0 < 4, i1 < 5", ["Einsum"]),
        ("i0, r0", "i1, r0", "i0 < 4, i1 < 5", ["Einsum"]),
    ],
)
def test_contractions(left: str, right: str, domain: str, nodes: list[str]) -> None:
    sizes = {"i0": 4, "i1": 5, "r0": 3}
    a, b = (", ".join(str(sizes[i]) for i in read.split(", ")) for read in (left, right))
    text = f"""func @F(%x: f32[{a}], %y: f32[{b}]) -> (%z) {{
      %z: f32[{domain}] = sum[r0 < 3] mul(%x[{left}], %y[{right}])
    }}"""
    model, _ = run(text, draw(text))
    assert list_nodes(model) == nodes


def test_a_large_contraction_is_taken_apart_at_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its products are many more than its factors; what the guard leaves out stays out, an
    infinite factor too."""
    text = """func @F(%x: f32[2, 5], %w: f32[3, 2, 3]) -> (%z) {
      %z: f32[i0 < 3, i1 < 5] = sum[r0 < 2, r1 < 3] {
        v0 = sub(add(i1, r1), 1)
        where and(ge(v0, 0), lt(v0, 5))
        mul(%x[r0, v0], %w[i0, r0, r1])
      }
    }"""
    inputs = {"x": np.arange(10, dtype=np.float32).reshape(2, 5) + 1,
              "w": np.arange(18, dtype=np.float32).reshape(3, 2, 3)}  # fmt: skip
    inputs["w"][0, 0, 0] = np.inf
    model, whole = run(text, inputs)
    assert "Einsum" not in list_nodes(model)
    monkeypatch.setattr(stages, "_MOST_AT_ONCE", 10)
    model, parts = run(text, inputs)
    assert list_nodes(model).count("Einsum") == 3
    np.testing.assert_array_equal(parts["z"], whole["z"])
    assert np.isfinite(parts["z"][0, 0])


def test_empty_tensors_and_reductions() -> None:
    text = """func @F(%x: f32[0, 3], %n: f32[3]) -> (%none, %sums, %most, %at) {
      %none: f32[i0 < 0, i1 < 3] = neg(%x[i0, i1])
      %sums: f32[i0 < 3] = sum[r0 < 0] %x[r0, i0]
      %most: f32[i0 < 3] = max[r0 < 0] %x[r0, i0]
      %at: s32[i0 < 3] = argmax[r0 < 0] %x[r0, i0]
    }"""
    run(text, draw(text))


# What is refused -----------------------------------------------------------------------------


def test_open_sizes_are_refused() -> None:
    text = "func @F(%x: f32[N]) -> (%y) { %y: f32[i0 < N] = neg(%x[i0]) }"
    with pytest.raises(UnsupportedError, match="'F' has the open size 'N'") as refused:
        dmlc.onnx.export(ir.parse(text))
    assert "--tensor NAME=FLOAT32[2,3]" in str(refused.value)
    with pytest.raises(UnsupportedError, match="open size"):
        dmlc.onnx.export(dmlc.operator("onednn.ReLU"), {"src": dmlc.TensorDesc("FLOAT32")})


def test_what_is_not_taken_is_refused() -> None:
    function = ir.parse("func @F(%x: f32[2]) -> (%y) { %y: f32[i0 < 2] = neg(%x[i0]) }")
    with pytest.raises(dmlc.DmlcError, match="a function that is bound, which takes no dims"):
        dmlc.onnx.export(function, dims={"N": 2})
    with pytest.raises(dmlc.DmlcError, match=r"GEMM' is an operator, which takes no dims"):
        dmlc.onnx.export(dmlc.operator("directml.GEMM"), dims={"N": 2})


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(dmlc.ArgumentError, match="subject"):
        dmlc.onnx.export(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(dmlc.DmlcError, match="GEMM cannot be compiled unbound"):
        dmlc.onnx.export("directml.GEMM")


def test_a_name_stands_for_its_operator() -> None:
    given = {"src": dmlc.TensorDesc("FLOAT32", [2, 5])}, {"axis": 1}
    by_name = dmlc.onnx.export("onednn.SoftMax", *given)
    assert by_name == dmlc.onnx.export(dmlc.operator("onednn.SoftMax"), *given)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "onnx"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.startswith("dmlc.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(vars(dmlc.onnx), "export", raising=False)
    with pytest.raises(UnavailableError, match=r"pip install 'dmlc\[onnx\]'"):
        _ = dmlc.onnx.export
    with pytest.raises(AttributeError, match="no attribute 'exprot'"):
        getattr(dmlc.onnx, "exprot".lower())


def test_the_package_is_loaded_when_it_is_used() -> None:
    text = (
        "import sys, dmlc.onnx, dmlc.cli.export_command; assert 'onnx' not in sys.modules; "
        "dmlc.onnx.export; assert 'onnx' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT)


@pytest.mark.parametrize("padding", [0, 1])
def test_convolutions_are_one_node_where_nothing_is_padded(padding: int) -> None:
    """`Conv` multiplies what lies beside its data by weights, which may be infinite."""
    text = f"""func @f(%x: f32[2, 8, 7, 3], %w: f32[5, 3, 3, 1]) -> (%y) {{
      %y: f32[i0 < 2, i1 < 3, i2 < 7, i3 < 5] = sum[r0 < 3, r1 < 3] {{
        v0 = sub(add(mul(i1, 2), r1), {padding})
        where and(ge(v0, 0), lt(v0, 8))
        mul(%x[i0, v0, i2, r0], %w[i3, r0, r1, 0])
      }}
    }}"""
    generator = np.random.default_rng(1)
    inputs = {
        "x": generator.standard_normal((2, 8, 7, 3)).astype(np.float32),
        "w": generator.standard_normal((5, 3, 3, 1)).astype(np.float32),
    }
    model, _ = run(text, inputs)
    assert ("Conv" in list_nodes(model)) == (padding == 0)


@pytest.mark.parametrize("sizes", ["2, 9, 7, 3] 5, 3, 3, 1", "2, 8, 7, 3] 6, 3, 3, 1"])
def test_convolutions_read_all_of_their_tensors(sizes: str) -> None:
    """One image of two, or five filters of six, are no `Conv` of the whole tensors."""
    data, _, weights = sizes.partition("] ")
    images = 1 if "9" in data else 2
    text = f"""func @f(%x: f32[{data}], %w: f32[{weights}]) -> (%y) {{
      %y: f32[i0 < {images}, i1 < 3, i2 < 7, i3 < 5] = sum[r0 < 3, r1 < 3]
        mul(%x[i0, add(mul(i1, 2), r1), i2, r0], %w[i3, r0, r1, 0])
    }}"""
    model, _ = run(text, draw(text))
    assert "Conv" not in list_nodes(model)
