"""Reductions, `squeeze` and `unsqueeze`: what they bind to, what it computes, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.ir import Reduction
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.source import DmlcError
from tests.binding.declare import ANY, X, Y, Z, declare, f32, refusal, says

Array = npt.NDArray[Any]


def values(*sizes: int, dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(sizes).astype(dtype)


def bind(
    op: Operator, outputs: dict[str, TensorDesc] | None = None, **inputs: Array
) -> ir.Function:
    given = {n: TensorDesc(np.dtype(a.dtype).name, a.shape) for n, a in inputs.items()}
    return op.bind({**given, **(outputs or {})})


def compute(text: str, outputs: dict[str, TensorDesc] | None = None, **inputs: Array) -> Array:
    """What `Y` comes to."""
    rows = [f"{n} | Input | 1 to 8 | {ANY}" for n in inputs]
    op = declare(text, *rows, Y.replace("BOOL", "BOOL, UINT32, INT64"))
    function = bind(op, outputs, **inputs)
    return evaluate(function, inputs)["Y"]


FLOATS: dict[str, Any] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "product": np.prod,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2), (-1,), (-3, -1), ()])
def test_values_are_folded_over_the_axes(name: str, axes: tuple[int, ...]) -> None:
    x = values(3, 4, 5)
    found = compute(f"Y = {name}(X, axes: {list(axes)})", X=x)
    expected = FLOATS[name](x.astype(np.float64), axis=axes, keepdims=True).astype(np.float32)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected if axes else x)


def test_booleans_and_integers_fold_too() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    for name in ("sum", "product", "min", "max"):
        expected = FLOATS[name](x, axis=1, keepdims=True)
        np.testing.assert_array_equal(compute(f"Y = {name}(X, axes: [1])", X=x), expected)
    flags = np.array([[True, False], [True, True], [False, False]])
    bools = {"Y": TensorDesc("BOOL")}
    np.testing.assert_array_equal(
        compute("Y = any(X, axes: [1])", bools, X=flags), flags.any(1, keepdims=True)
    )
    np.testing.assert_array_equal(
        compute("Y = all(X, axes: [1])", bools, X=flags), flags.all(1, keepdims=True)
    )
    large = np.full((300,), 100, np.uint8)
    assert compute("Y = sum(X, axes: [0])", X=large).tolist() == [30000 % 256]


@pytest.mark.parametrize("dtype", ["INT32", "UINT32", "INT64", "UINT8"])
def test_a_position_takes_the_type_of_what_it_meets(dtype: str) -> None:
    x = values(4, 6)
    x[1] = np.nan
    x[2, [1, 4]] = 99
    found = compute("Y = argmax(X, axes: [1])", {"Y": TensorDesc(dtype)}, X=x)
    assert found.dtype == np.dtype(dtype.lower())
    np.testing.assert_array_equal(found, x.argmax(1, keepdims=True))
    whole = compute("Y = argmin(X, axes: [0, 1])", {"Y": TensorDesc(dtype)}, X=x)
    assert whole.tolist() == [[x.argmin()]]


def test_a_position_in_a_formula() -> None:
    x = values(4, 6)
    found = compute("Y = argmax(X, axes: [1]) * 0.5 + min(X, axes: [1])", X=x)
    wanted = x.argmax(1, keepdims=True) * 0.5 + x.min(1, keepdims=True).astype(np.float64)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    found = compute("Y = argmax(X > 0 ? 2 : 1, axes: [1]) + 1", {"Y": TensorDesc("INT32")}, X=x)
    np.testing.assert_array_equal(found, (x > 0).argmax(1, keepdims=True) + 1)
    flat = compute("Y = argmax(X, axes: []) + argmin(X, axes: [0])",
                   {"Y": TensorDesc("INT32")}, X=x[:1])  # fmt: skip
    np.testing.assert_array_equal(flat, np.zeros((1, 6)))


def test_counting_takes_the_type_of_what_the_count_meets() -> None:
    x = values(3, 7)
    found = compute("n = sum(X > 0 ? 1 : 0, axes: [1])\nY = n / 7", X=x)
    expected = ((x > 0).sum(1, keepdims=True) / np.float64(7)).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    share = compute("Y = mean(X > 0 ? 1 : 0, axes: [1])", X=x)
    np.testing.assert_array_equal(share, expected)
    whole = compute("Y = sum(X > 0 ? 1 : 0, axes: [1])", {"Y": TensorDesc("INT32")}, X=x)
    np.testing.assert_array_equal(whole, (x > 0).sum(1, keepdims=True))


LIKES = [(1, 1, 1), (3, 1, 1), (1, 4, 1), (1, 1, 5), (3, 4, 1), (3, 1, 5), (1, 4, 5), (3, 4, 5)]


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_like_reduces_to_the_sizes_of_another(name: str, like: tuple[int, ...]) -> None:
    x, z = values(3, 4, 5), values(*like, seed=1)
    axes = tuple(a for a in range(3) if like[a] == 1)
    found = compute(f"Y = X - {name}(X, like: Z) * Z", X=x, Z=z)
    wide = x.astype(np.float64)
    folded = FLOATS[name](wide, axis=axes, keepdims=True) if axes else wide
    np.testing.assert_array_equal(found, (wide - folded * z.astype(np.float64)).astype(np.float32))


def test_like_takes_locals_and_parameters() -> None:
    x, z = values(3, 4), values(1, 4, seed=1)
    text = "w = Z * 2\nover(t, m) = sum(t, like: m)\nY = over(X, Z) + over(X * X, w)"
    wide = x.astype(np.float64)
    expected = wide.sum(0, keepdims=True) + (wide**2).sum(0, keepdims=True)
    np.testing.assert_allclose(compute(text, X=x, Z=z), expected, rtol=1e-6)


EMPTY = [
    ("sum", 0.0), ("product", 1.0), ("max", -np.inf), ("min", np.inf), ("mean", np.nan),
    ("argmin", 0), ("argmax", 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "identity"), EMPTY)
def test_an_empty_reduction_gives_the_identity(name: str, identity: float) -> None:
    found = compute(f"Y = {name}(X, axes: [0, 2])", X=np.zeros((0, 3, 2), np.float32))
    assert found.shape == (1, 3, 1)
    np.testing.assert_array_equal(found, np.full((1, 3, 1), identity, np.float32))
    assert compute(f"Y = {name}(X, axes: [0])", X=np.zeros((2, 0), np.float32)).shape == (1, 0)


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
def test_sixteen_bits_are_folded_in_float32(dtype: str) -> None:
    op = declare("s = sum(X, axes: [0])\nY = s", X, Y)
    function = op.bind({"X": TensorDesc(dtype, (4096, 3))})
    (fold, stored) = function.stages
    assert (fold.name, fold.dtype, stored.dtype.name) == ("s", DataType.FLOAT32, dtype)
    direct = declare("Y = sum(X, axes: [0])", X, Y).bind({"X": TensorDesc(dtype, (4096, 3))})
    assert [s.name for s in direct.stages] == ["X_sum", "Y"]
    ones = np.full((4096, 3), 1.0).astype(DataType[dtype].dtype)
    assert evaluate(direct, {"X": ones})["Y"].astype(float).tolist() == [[4096.0] * 3]


def test_float64_is_folded_in_float64() -> None:
    function = declare("Y = mean(X, axes: [0])", X, Y).bind({"X": TensorDesc("FLOAT64", (3, 2))})
    assert [s.dtype for s in function.stages] == [DataType.FLOAT64] * 2


def test_a_reduction_is_one_stage_however_often_it_stands() -> None:
    op = declare(
        "m = mean(X, axes: [0])\nn = sum(X, axes: [0])\nsquare(t) = t * t\n"
        "Y = square(X - mean(X, axes: [-2])) + sum(X, axes: [0]) + n",
        X, Y,
    )  # fmt: skip
    function = op.bind({"X": f32(4, 3)})
    assert [(s.name, s.reduction) for s in function.stages] == [
        ("X_sum", Reduction("sum", ((0, 4),))),
        ("m", None),
        ("Y", None),
    ]


def test_a_reduction_is_named_after_what_it_folds_and_no_local_is_taken() -> None:
    op = declare("X_sum = X + 1\nY = sum(X, axes: [0]) + max(X_sum * 2, axes: [0])", X, Y)
    function = op.bind({"X": f32(4)})
    assert [s.name for s in function.stages] == ["X_sum", "X_sum_1", "Y_max", "Y"]


def test_a_reduction_of_a_reduction() -> None:
    x = values(3, 4, 5)
    found = compute("Y = max(sum(X, axes: [2]), axes: [0])", X=x)
    expected = x.astype(np.float64).sum(2, keepdims=True).max(0, keepdims=True)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    nested = declare("Y = max(sum(X, axes: [2]), axes: [0])", X, Y).bind({"X": f32(3, 4, 5)})
    assert [s.name for s in nested.stages] == ["X_sum", "Y"]


def test_an_output_is_its_reduction_and_later_statements_read_it() -> None:
    both = (X, Y, "W | Output | 1 to 8 | FLOAT32, FLOAT16")
    op = declare("Y = sum(X, axes: [0])\nW = X / Y", *both)
    function = op.bind({"X": f32(4, 3)})
    assert [s.name for s in function.stages] == ["Y", "W"]
    x = values(4, 3)
    wide = x.astype(np.float64)
    expected = (wide / wide.sum(0, keepdims=True)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(function, {"X": x})["W"], expected)
    halves = op.bind({"X": TensorDesc("FLOAT16", (4, 3))})
    assert [(s.name, s.dtype.short) for s in halves.stages] == [
        ("Y_value", "f32"), ("Y", "f16"), ("W", "f16"),
    ]  # fmt: skip


def test_what_is_not_used_is_no_stage() -> None:
    op = declare("Y = present(Z) ? X - mean(X, like: Z) : X + 0 * X", X,
                 Z.replace("Input", "Optional input"), Y)  # fmt: skip
    assert [s.name for s in op.bind({"X": f32(4)}).stages] == ["Y"]
    bound = op.bind({"X": f32(4), "Z": f32(1)})
    assert [s.name for s in bound.stages] == ["X_sum", "Y"]


def test_no_result_overwrites_what_a_reduction_reads() -> None:
    op = declare("Y = X - sum(X, axes: [0])", X, Y)
    assert op.bind({"X": f32(4)}).in_place == ()
    scaled = declare("Y = Z * sum(X * Z, axes: [0])", X, Z, Y)
    assert scaled.bind({"X": f32(4, 3), "Z": f32(1, 3)}).in_place == ()
    assert scaled.bind({"X": f32(1, 3), "Z": f32(1, 3)}).in_place == (("Y", "X"), ("Y", "Z"))


# Axes ------------------------------------------------------------------------------------------


def test_squeeze_and_unsqueeze_move_axes() -> None:
    x, z = values(2, 3, 4), values(3, seed=1)
    rest = "rest = other_axes([1], X.DimensionCount)\n"
    found = compute(rest + "Y = X * unsqueeze(Z, axes: rest)", X=x, Z=z)
    np.testing.assert_array_equal(
        found, (x.astype(np.float64) * z[None, :, None]).astype(np.float32)
    )
    found = compute(rest + "Y = squeeze(sum(X, axes: rest), axes: rest) - Z", X=x, Z=z)
    wide = x.astype(np.float64).sum((0, 2)) - z
    np.testing.assert_array_equal(found, wide.astype(np.float32))
    rows = compute("Y = unsqueeze(squeeze(max(X, axes: [-1]), axes: [-1]), axes: [0])", X=x)
    np.testing.assert_array_equal(rows, x.max(-1)[None])


def test_a_moved_expression_is_computed_where_it_is_read() -> None:
    op = declare(
        "Y = X + unsqueeze(squeeze(Z * 2, axes: [0]), axes: [1]) * Z",
        X, Z, Y,
    )  # fmt: skip
    function = op.bind({"X": f32(3, 3), "Z": f32(1, 3)})
    assert [s.name for s in function.stages] == ["Y"]
    x, z = values(3, 3), values(1, 3, seed=1)
    wide = z.astype(np.float64)
    expected = x + (wide[0] * 2)[:, None] * wide
    np.testing.assert_array_equal(
        evaluate(function, {"X": x, "Z": z})["Y"], expected.astype(np.float32)
    )


def test_other_axes_may_be_none_or_all() -> None:
    x = values(2, 3)
    assert compute("Y = sum(X, axes: other_axes([], X.DimensionCount))", X=x).shape == (1, 1)
    np.testing.assert_array_equal(compute("Y = sum(X, axes: other_axes([0, -1], 2))", X=x), x)


def test_ranges() -> None:
    x = values(2, 3, 4)
    found = compute("Y = sum(X, axes: range(1, X.DimensionCount))", X=x)
    expected = x.astype(np.float64).sum((1, 2), keepdims=True).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        compute("Y = X + sum(range(2, 5)) + sum(range(3, 3))", X=x), x + 9
    )


# Refusals --------------------------------------------------------------------------------------

MISTAKES = [
    ("Y = sum(X, axes: [2])", "axis 2 is not among the axes of a tensor of 2 dimensions"),
    ("Y = sum(X, axes: [-3])", "axis -3 is not among the axes of a tensor of 2 dimensions"),
    ("Y = sum(X, axes: [0, 0])", "axis 0 stands twice"),
    ("Y = sum(X, axes: [1, -1])", "axes 1 and -1 are one axis"),
    ("Y = sum(X, axes: [0.5])", "axes are an array of whole numbers, such as [0, 2]"),
    ("Y = sum(1, axes: [0])", "'sum' takes a tensor, but '1' has no sizes"),
    ("Y = X + sum(cast(1, FLOAT32), axes: [0])",
     "'sum' takes a tensor, but 'cast(1, FLOAT32)' has no sizes"),
    ("Y = sum(X, like: Z)", "'X' has sizes [3, 4], which cannot be reduced to the sizes [5, 4] of "
     "'Z': each must be the same or 1 there"),
    ("k = 1\nY = sum(X, like: k)", "'like:' takes a tensor, but 'k' has no sizes"),
    ("f(t) = any(t, axes: [0])\nY = X + (f(X) ? 1 : 0)",
     "'any' folds booleans, but this is FLOAT32: compare it first, as in 'x != 0'"),
    ("f(t) = sum(t, axes: [0])\nY = X + f(X > 0)",
     "'sum' folds numbers, but this is BOOL: write cast(..., INT32)"),
    ("Y = mean(cast(X, INT32), axes: [0])",
     "'mean' folds floating-point numbers, but this is INT32: write cast(..., FLOAT32)"),
    ("Y = squeeze(X, axes: [1])", "axis 1 cannot be dropped: its size in [3, 4] is 4, not 1"),
    ("Y = unsqueeze(X, axes: [4])", "axis 4 is not among the axes of a result of 3 dimensions"),
    ("Y = unsqueeze(X, axes: [0, 1, 2, 3, 4, 5, 6])",
     "'unsqueeze(X, axes: [0, 1, 2, 3, 4, 5, 6])' would have 9 dimensions: a tensor has 1 to 8"),
    ("f(a) = range(0, a)\nY = sum(X, axes: f(0.5))", "'range' takes two whole numbers"),
    ("Y = sum(X, axes: range(0, 100000))", "this range has 100000 values; 65536 at most"),
    ("f(a) = sum(X, axes: a)\nY = f(1)", "axes are an array of whole numbers, such as [0, 2]"),
    ("f(a) = squeeze(a, axes: [0])\nY = f(1)", "'squeeze' takes a tensor, but 'a' has no sizes"),
    ("Y = sum(X, axes: other_axes([0], 9))", "'other_axes' takes a dimension count of 0 to 8"),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0])
def test_mistakes(case: tuple[str, str]) -> None:
    text, message = case
    op = declare(text, X, Z, Y)
    given = {"X": f32(3, 4), "Z": f32(5, 4), "Y": f32(3, 4)}
    assert refusal(op, given).message == message


def test_a_position_must_fit_its_type() -> None:
    op = declare("Y = argmax(X, axes: [0])", X, Y)
    given = {"X": f32(300), "Y": TensorDesc("INT8")}
    assert refusal(op, given).message == (
        "'argmax' gives a position among 300 values, which INT8 cannot hold"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Y = sum(X, axes: [0])", "reduction 'sum(X, axes: [0])'"),
        ("Y = unsqueeze(X, axes: [0])", "'unsqueeze(X, axes: [0])'"),
    ],
)
def test_reductions_need_sizes(text: str, what: str) -> None:
    said = says(refusal(declare(text, X, Y), {"X": TensorDesc("FLOAT32")}))
    assert said == (
        f"{what} needs the sizes of its tensors",
        "give a description with sizes for each input",
    )


def test_the_elements_of_a_reduction_are_not_known_in_a_constraint() -> None:
    with pytest.raises(DmlcError, match="the elements of tensor 'X' are not known here"):
        declare("Y = X", X, Y, constraints="require all(sum(X, axes: [0]) > 0)")
