"""`FunctionBuilder`, and operations on whole tensors: against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dmlc
from dmlc.building import tensors
from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 5
ROW = np.array([3, -1, 2, 0.5], np.float32)
MATRIX = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
PLACES = np.array([[2, -1], [0, 1]], np.int64)


def square(x: Scalar) -> Scalar:
    return x * x


def scale(x: Scalar, y: Scalar) -> Scalar:
    return (x > 0).select(x * y, 2 - x)


CASES: dict[str, tuple[Callable[..., Tensor], list[Array], Callable[..., Array]]] = {
    "map": (lambda b, x, y: tensors.map_elements(b, "y", scale, x, y), [X, ROW],
            lambda x, y: np.where(x > 0, x * y, 2 - x)),
    "expand": (lambda b, y: tensors.expand(b, "y", y, (3, 2, 4)), [ROW],
               lambda y: np.broadcast_to(y, (3, 2, 4))),
    "sum": (lambda b, x: tensors.reduce_axes(b, "y", "sum", x, [-1, 0], formula=square), [X],
            lambda x: (x * x).sum((0, 2))),
    "max": (lambda b, x: tensors.reduce_axes(b, "y", "max", x, [1], keep=True), [X],
            lambda x: x.max(1, keepdims=True)),
    "argmax": (lambda b, x: tensors.reduce_axes(b, "y", "argmax", x, [1], dtype=DataType.INT64),
               [X], lambda x: x.argmax(1)),
    "transpose": (lambda b, x: tensors.transpose(b, "y", x, [2, 0, 1]), [X],
                  lambda x: x.transpose(2, 0, 1)),
    "reshape": (lambda b, x: tensors.reshape(b, "y", x, (1, 6, 2, 2, 1)), [X],
                lambda x: x.reshape(1, 6, 2, 2, 1)),
    "reshape across": (lambda b, x: tensors.reshape(b, "y", x, (4, 3, 2)), [X],
                       lambda x: x.reshape(4, 3, 2)),
    "flat": (lambda b, x: tensors.reshape(b, "y", x, (24,)), [X], np.ravel),
    "one": (lambda b, x: tensors.reshape(b, "y", x, ()), [X[:1, :1, 0]], lambda x: x.reshape(())),
    "slice": (lambda b, x: tensors.slice_axes(b, "y", x, (1, 2, 3), (1, -1, -2), (1, 3, 2)), [X],
              lambda x: x[1:, ::-1, ::-2]),
    "pad": (lambda b, x: tensors.pad(b, "y", x, (0, 1, -1), (0, 2, 1), 9), [X],
            lambda x: np.pad(x[:, :, 1:], ((0, 0), (1, 2), (0, 1)), constant_values=9)),
    "join": (lambda b, x, y: tensors.concatenate(b, "y", [x, y, x], 1), [X, X[:, :1]],
             lambda x, y: np.concatenate([x, y, x], 1)),
    "gather": (lambda b, x, p: tensors.gather(b, "y", x, p, 1), [X, PLACES],
               lambda x, p: x.take(p, 1)),
    "matrices": (lambda b, x, m: tensors.matrix_multiply(b, "y", x, m), [X, MATRIX], np.matmul),
    "row": (lambda b, x, m: tensors.matrix_multiply(b, "y", x, m), [ROW, MATRIX], np.matmul),
    "column": (lambda b, x, m: tensors.matrix_multiply(b, "y", x, m), [X, ROW], np.matmul),
}  # fmt: skip


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("name", CASES)
def test_operation(name: str, device: str) -> None:
    make, arrays, expect = CASES[name]
    builder = FunctionBuilder("f")
    given: list[Tensor] = []
    for number, array in enumerate(arrays):
        dtype = dmlc.DataType(array.dtype)
        given.append(builder.parameter(f"x{number}", dtype, array.shape))
    builder.result("result", make(builder, *given))
    function = builder.build()
    assert dmlc.ir.parse(str(function)) == function
    (found,) = dmlc.run(function, arrays, device=device).values()
    wanted = expect(*arrays)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_empty_tensors() -> None:
    builder = FunctionBuilder("f")
    x = builder.parameter("x", "FLOAT32", (0, 3))
    builder.result("padded", tensors.pad(builder, "p", x, (1, 0), (1, 0), 2))
    builder.result("shaped", tensors.reshape(builder, "s", x, (3, 0, 2)))
    found = dmlc.run(builder.build(), [np.empty((0, 3), np.float32)])
    np.testing.assert_array_equal(found["padded"], np.full((2, 3), 2, np.float32))
    assert found["shaped"].shape == (3, 0, 2)


def test_sizes_may_be_symbols() -> None:
    builder = FunctionBuilder("f")
    x = builder.parameter("x", "FLOAT32", ("N", 4))
    y = tensors.concatenate(builder, "y", [x, tensors.pad(builder, "p", x, (1, 0), (0, 0))], 0)
    builder.result("y", tensors.transpose(builder, "t", y, [1, 0]))
    function = builder.build()
    for size in (1, 5):
        array = X.reshape(6, 4)[:size]
        wanted = np.concatenate([array, np.zeros((1, 4), np.float32), array]).T
        np.testing.assert_array_equal(dmlc.run(function, [array])["y"], wanted)


def test_a_function_calls_another() -> None:
    described = {"InputTensor": dmlc.TensorDesc("FLOAT32", (2, 3))}
    relu = dmlc.operator("directml.ACTIVATION_RELU").bind(described)
    builder = FunctionBuilder("f")
    x = builder.parameter("InputTensor", "FLOAT32", (2, 3))
    once = builder.call(relu, {"InputTensor": x})["OutputTensor"]
    twice = builder.call(relu, {"InputTensor": tensors.map_elements(builder, "n", neg, once)})
    builder.result("OutputTensor", once)
    builder.result("y", twice["OutputTensor"])
    array = np.array([[1, -2, 3], [-4, 5, np.nan]], np.float32)
    found = dmlc.run(builder.build(), [array])
    np.testing.assert_array_equal(found["OutputTensor"], np.where(array < 0, 0, array))
    assert np.isnan(found["y"][1, 2])
    assert not found["y"].ravel()[:5].any()


def test_a_call_reads_what_a_slice_is_made_of() -> None:
    """Of the second column, which is read in its place. The loop has other names."""
    text = """operator SUMS {
        tensors { | Tensor | Kind | Dimensions |
                  | x      | Input  | { N }    |
                  | y      | Output | { N }    | }
        compute {
            x_twice[i : N] = x[i] * 2
            total[i : N]   = (total[i - 1] else 0) + x_twice[i]
            y[i]           = total[i]
        }
    }"""
    (sums,) = dmlc.parse(text).operators.values()
    inner = sums.bind({"x": dmlc.TensorDesc("FLOAT32", (3,))})
    builder = FunctionBuilder("f")
    x = builder.parameter("columns", "FLOAT32", (3, 2))
    column = builder.compute("column", (3,), lambda at: at.read(x, at.indices[0], 1))
    made = builder.call(inner, {"x": column}, {"y": "sums"}, "inner_")
    builder.result("sums", made["y"])
    found = builder.build()
    (loop,) = found.loops
    assert (loop.stages, loop.delays[0].name) == (("inner_total",), "inner_total_before")
    assert [stage.name for stage in found.stages] == ["column_twice", "inner_total", "sums"]
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    results = dmlc.run(found, {"columns": array}, device="reference")
    assert results["sums"].tolist() == (np.cumsum(array[:, 1]) * 2).tolist()


def neg(x: Scalar) -> Scalar:
    return -x


def test_results_have_their_names() -> None:
    builder = FunctionBuilder("f")
    x = builder.parameter("x", "FLOAT16", (3,))
    table = builder.table("y", np.array([1, 2, 4], np.float32))
    total = tensors.map_elements(builder, "z", lambda a, b: a + b, x, table, dtype=x.dtype)
    unused = tensors.map_elements(builder, "unused", neg, total, dtype=x.dtype)
    for name, tensor in {"y": total, "again": total, "z": x}.items():
        builder.result(name, tensor)
    function = builder.build()
    assert [r.name for r in function.results] == ["y", "again", "z"]
    assert unused.name not in function.tensors()
    found = dmlc.run(function, [np.array([1, 1, 0.5], np.float16)])
    np.testing.assert_array_equal(found["y"], [2, 3, 4.5])
    np.testing.assert_array_equal(found["again"], found["y"])
    np.testing.assert_array_equal(found["z"], [1, 1, 0.5])
    assert found["z"].dtype == np.float16


def read_twice(at: Point) -> Scalar:
    return at.constant(1, DataType.INT32) + at.constant(1, DataType.FLOAT32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, x: b.compute("y", (3,), read_twice), "add differ in type: INT32, FLOAT32"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.read(x)), "1 axis, and 0 positions"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.indices[0]), "is to hold INDEX"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.read(x, 0).apply("exq")), "exq"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.read(x, 0).apply("exp", 1)),
         "exp takes 1 operand, not 2"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.read(x, 0).cast(DataType.FLOAT16)),
         "the storage type FLOAT16"),
        (lambda b, x: b.compute("y", (3,), lambda at: at.indices[0] + 0.5), "0.5 is no INDEX"),
        (lambda b, x: b.reduce("y", "argmax", (), (3,), lambda at: at.read(x, at.reduced[0])),
         "say which type"),
        (lambda b, x: b.parameter("x", "FLOAT32", (3,)), "two tensors are called x"),
        (lambda b, x: tensors.reshape(b, "y", x, (2, 2)), "not as many elements as"),
        (lambda b, x: tensors.expand(b, "y", x, (2, 2)), "do not broadcast"),
        (lambda b, x: tensors.slice_axes(b, "y", x, (1,), (1,), (3,)), "not all there"),
        (lambda b, x: tensors.reduce_axes(b, "y", "sum", x, [1]), "no axis 1 among 1"),
        (lambda b, x: tensors.matrix_multiply(b, "y", x, b.parameter("m", "FLOAT32", (2, 3))),
         "no matrix product of the sizes"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(
    make: Callable[[FunctionBuilder, Tensor], Tensor], message: str
) -> None:
    builder = FunctionBuilder("f")
    x = builder.parameter("x", "FLOAT32", (3,))
    with pytest.raises(DmlcError, match=message):
        make(builder, x)


@pytest.mark.parametrize("name", ['a"b', "a'b", "", "9", "a b", "a\nb"])
@pytest.mark.parametrize("what", ["function", "parameter", "result", "table"])
def test_what_is_no_name_is_refused(what: str, name: str) -> None:
    names = {"function": "f", "parameter": "x", "result": "y", "table": "t", what: name}
    builder = FunctionBuilder(names["function"])
    x = builder.parameter(names["parameter"], "FLOAT32", (3,))
    table = builder.table(names["table"], np.ones(3, np.float32))
    total = builder.compute(
        "sum", (3,), lambda at: at.read(x, at.indices[0]) + at.read(table, at.indices[0])
    )
    builder.result(names["result"], total)
    with pytest.raises(DmlcError, match=r"(?s)breaks a rule of the IR at .*is no name"):
        builder.build()
