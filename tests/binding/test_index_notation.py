"""Index notation in `compute`: what it computes, and what its mistakes are told."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import DmlcError
from tests.binding.declare import ANY, declare, f32, refusals, says

X = f"X | Input | 1 to 8 | {ANY}"
W = f"W | Input | 1 to 8 | {ANY}"
K = "K | Input | 1 to 8 | INT32, INT64, UINT32, UINT8, FLOAT32"
Y = f"Y | Output | 1 to 8 | {ANY}"
OFF = "| Off | INT[] | | |"
REAL = "| Real | FLOAT[] | | |"


def compute(
    text: str, out: tuple[int, ...] | None = None, attributes: dict[str, object] | None = None,
    constraints: str = "", **arrays: Array,
) -> Array:  # fmt: skip
    """The output Y of a formula on arrays X, W and K."""
    rows = [row for row in (X, W, K) if row[0] in arrays]
    table = "\n".join(row for row in (OFF, REAL) if row.split("|")[1].strip() in (attributes or {}))
    op = declare(text, *rows, Y, attributes=table, constraints=constraints)
    tensors = {n: TensorDesc(_type_of(a), a.shape) for n, a in arrays.items()}
    if out is not None:
        tensors["Y"] = TensorDesc(_type_of(arrays["X"]), out)
    return evaluate(op.bind(tensors, attributes), arrays)["Y"]


def _type_of(array: Array) -> str:
    return {"float32": "FLOAT32", "int32": "INT32", "float64": "FLOAT64", "float16": "FLOAT16"}[
        str(array.dtype)
    ]


def counted(*sizes: int, dtype: str = "float32") -> Array:
    return np.arange(1, 1 + int(np.prod(sizes))).reshape(sizes).astype(dtype)


ONE, TWO = counted(4), counted(2, 3)
ROWS = np.arange(3.0, dtype=np.float32)
CORRECT: list[tuple[str, tuple[int, ...], dict[str, object], Array, Array]] = [
    ("Y[i] = X[3 - i]", (4,), {}, ONE, ONE[::-1]),
    ("Y[i] = X[clamp(ceil((i < 2 ? 3 : 1) / 2), 0, 3)]", (4,), {}, ONE, ONE[[2, 2, 1, 1]]),
    ("Y[i, j] = X[j, i]", (3, 2), {}, TWO, TWO.T),
    ("Y[i...] = X[i[[1, 0]]...]", (3, 2), {}, TWO, TWO.T),
    ("Y[i...] = X[i[inverse(Off)]...]", (3, 2), {"Off": [1, 0]}, TWO, TWO.T),
    ("Y[n, i...] = X[n, i...] * 2", (2, 3), {}, TWO, TWO * 2),
    ("Y[i] = i * 2 + 1", (4,), {}, ONE, ONE * 2 - 1),
    ("Y[i] = X[i] * i", (4,), {}, ONE, ONE * np.arange(4)),
    ("Y[i] = X[floor(i / 2)]", (4,), {}, ONE, ONE[[0, 0, 1, 1]]),
    ("Y[i] = X[ceil(i / 2)]", (4,), {}, ONE, ONE[[0, 1, 1, 2]]),
    ("Y[i] = X[2 + floor((i - 3) / 2)]", (4,), {}, ONE, ONE[[0, 1, 1, 2]]),
    ("Y[i] = X[2 + ceil((i - 3) / 2)]", (4,), {}, ONE, ONE[[1, 1, 2, 2]]),
    ("Y[i] = X[2 + trunc((i - 3) / 2)]", (4,), {}, ONE, ONE[[1, 1, 2, 2]]),
    ("Y[i] = X[floor(3 / (0 - 1 - i)) + 3]", (4,), {}, ONE, ONE[[0, 1, 2, 2]]),
    ("Y[i] = X[3 + floor((0 - 3) / (i + 1))]", (4,), {}, ONE, ONE[[0, 1, 2, 2]]),
    ("Y[i] = floor(7 / (i * 2 - 3))", (4,), {}, ONE, np.array([-3, -7, 7, 2])),
    ("Y[i] = ceil((0 - 7) / (i * 2 - 3))", (4,), {}, ONE, np.array([3, 7, -7, -2])),
    ("Y[i] = max[k : 3](k * i) - min[k : 3](k)", (4,), {}, ONE, 2 * np.arange(4)),
    ("Y[i] = product[k : 2](k + 2) + i", (4,), {}, ONE, 6 + np.arange(4)),
    ("Y[i] = sum[k : 4](X[k] > 2 ? 1 : 0)", (4,), {}, ONE, np.full(4, 2)),
    ("Y[i] = X[X[i] > 2 ? 1 : 0]", (4,), {}, ONE, ONE[[0, 0, 1, 1]]),
    ("Y[i] = X[floor(i * 0.5) + 1]", (4,), {}, ONE, ONE[[1, 1, 2, 2]]),
    ("Y[i] = X[i > 1 ? floor(i * 0.5) : 3.0]", (4,), {}, ONE, ONE[[3, 3, 1, 1]]),
    ("Y[i] = X[floor(i * 0.75)]", (4,), {}, ONE, ONE[[0, 0, 1, 2]]),
    ("Y[i] = X[round(i * 0.5)]", (4,), {}, ONE, ONE[[0, 0, 1, 2]]),
    ("Y[i] = X[i % 2]", (4,), {}, ONE, ONE[[0, 1, 0, 1]]),
    ("Y[i] = X[i + 1] else 7", (4,), {}, ONE, np.array([2, 3, 4, 7])),
    ("Y[i] = i > 0 ? X[i - 1] : 7", (4,), {}, ONE, np.array([7, 1, 2, 3])),
    ("Y[i...] = all((i > 0)...) ? X[(i - 1)...] : 0", (2, 3), {}, TWO,
     np.array([[0, 0, 0], [0, 1, 2]])),
    ("Y[i] = X.Sizes[-1] * X[i]", (4,), {}, ONE, ONE * 4),
    ("Y[i...] = X[i...] * X.Sizes[-1] + i[-1]", (2, 3), {}, TWO, TWO * 3 + [0, 1, 2]),
    ("Y[i] = X[i] * Off[-2] + Off[[-1, 0]][0]", (4,), {"Off": [2, 3]}, ONE, ONE * 2 + 3),
    ("Y[i] = X[i] * Off[floor(0.5)]", (4,), {"Off": [2, 3]}, ONE, ONE * 2),
    ("Y[i] = X[i - 1] else -X[0]", (4,), {}, ONE, np.array([-1, 1, 2, 3])),
    ("Y[i] = X[i + 9] else 7", (4,), {}, ONE, np.full(4, 7)),
    ("Y[i] = X[i] else 7", (4,), {}, ONE, ONE),
    ("Y[i] = sum[k : 4](X[k])", (4,), {}, ONE, np.full(4, 10)),
    ("Y[i] = sum[k : 4 where k <= i](X[k])", (4,), {}, ONE, np.cumsum(ONE)),
    ("Y[i] = mean[k : 4 where k <= i](X[k])", (4,), {}, ONE, np.cumsum(ONE) / [1, 2, 3, 4]),
    ("Y[i] = mean[k : 4](X[k])", (4,), {}, ONE, np.full(4, 2.5)),
    ("Y[i] = mean[k : 4](k)", (4,), {}, ONE, np.full(4, 1.5)),
    ("Y[i] = max[k : 2](X[floor(i / 2) * 2 + k])", (4,), {}, ONE, ONE[[1, 1, 3, 3]]),
    ("Y[i] = product[k : 3](k + 1) * X[i]", (4,), {}, ONE, ONE * 6),
    ("Y[i] = min[k : 3](k + 2) * X[i]", (4,), {}, ONE, ONE * 2),
    ("Y[i] = sum[k : 4 where k > i](1)", (4,), {}, ONE, np.array([3, 2, 1, 0])),
    ("Y[i] = sum[k : 4](k * 0.5)", (4,), {}, ONE, np.full(4, 3)),
    ("Y[i] = sum[k : 4 where false](X[k])", (4,), {}, ONE, np.zeros(4)),
    ("Y[i] = sum[k : 0](X[k])", (4,), {}, ONE, np.zeros(4)),
    ("Y[i] = X[argmax[k : 4](X[k])]", (4,), {}, ONE, np.full(4, 4)),
    ("Y[i] = argmax[k : 4 where k <= i](X[k])", (4,), {}, ONE, np.arange(4)),
    ("Y[i] = argmin[k : 2, l : 3](X[k, l] * -1)", (2,), {}, TWO, np.full(2, 5)),
    ("Y[i] = all[k : 4](X[k] > 0) ? 1 : 0", (4,), {}, ONE, np.ones(4)),
    ("Y[i] = sum[k : 4](sum[l : 4 where l <= k](X[l]))", (4,), {}, ONE, np.full(4, 20)),
    ("Y[i] = sum[k... : X.Sizes](X[k...])", (2,), {}, TWO, np.full(2, 21)),
    ("Y[i] = sum(X, axes: [1])[i, 0]", (2,), {}, TWO, TWO.sum(1)),
    ("Y[i] = (X * 2)[0, i]", (3,), {}, TWO, TWO[0] * 2),
    ("Y = X * sum[k : 4](X[k])", (4,), {}, ONE, ONE * 10),
    ("Y = X * X[3]", (4,), {}, ONE, ONE * 4),
    ("A[i : 2, j... : [3]] = X[i, j...] + 1\nY[i...] = A[i...]", (2, 3), {}, TWO, TWO + 1),
    ("A[i : 4] = i\nY[i] = X[A[3 - i]] else 0", (4,), {}, ONE, ONE[::-1]),
    ("A[i : 4] = i / 2\nY = A", (4,), {}, ONE, np.arange(4) / 2),
    ("A[i : 4] = argmax[k : 4](X[k])\nY = X + cast(A, FLOAT32)", (4,), {}, ONE, ONE + 3),
    ("A[i : 4] = 1\nY = X + cast(A, FLOAT32)", (4,), {}, ONE, ONE + 1),
    ("Y[i...] = product(i...)", (2, 3), {}, TWO, np.outer([0, 1], [0, 1, 2])),
    ("Y[i...] = max(i...) - min(i...)", (2, 3), {}, TWO, np.array([[0, 1, 2], [1, 0, 1]])),
    ("Y[i...] = all((i >= Off)...) ? 1 : 0", (2, 3), {"Off": [1, 1]}, TWO,
     np.array([[0, 0, 0], [0, 1, 1]])),
    ("Y[i...] = any((i == 0)...) ? 1 : 0", (2, 3), {}, TWO, np.array([[1, 1, 1], [1, 0, 0]])),
    ("Y[i...] = mean(i...)", (2, 3), {}, TWO, (np.arange(2)[:, None] + np.arange(3)) / 2),
    ("Y[i...] = X[(range(0, X.DimensionCount) == 1 ? 0 : i)...]", (2, 3), {}, TWO,
     np.repeat(TWO[:, :1], 3, 1)),
    ("Y[n, i...] = X[[n, i...]...]", (2, 3), {}, TWO, TWO),
    ("Y[i...] = X[(i - [0, Off...])...] else 0", (2, 3), {"Off": [1]}, TWO,
     np.array([[0, 1, 2], [0, 4, 5]])),
    ("Y[i...] = flatten(i, Y.Sizes)", (2, 3), {}, TWO, np.arange(6).reshape(2, 3)),
    ("Y[i] = X[unflatten(i, X.Sizes)...]", (6,), {}, TWO, TWO.reshape(-1)),
    ("Y[i...] = flatten([1, 2], X.Sizes) + unflatten(5, X.Sizes)[0]", (2, 3), {}, TWO,
     np.full((2, 3), 6)),
    ("Y[i...] = length(Off) + sum(Off)", (2, 3), {"Off": [1, 2]}, TWO, np.full((2, 3), 5)),
    ("Y[i] = product(Off) * X[i]", (4,), {"Off": [2, 3]}, ONE, ONE * 6),
    ("f(a, k) = X[a..., k]\nY[i...] = f(i[[0]], i[1])", (2, 3), {}, TWO, TWO),
    ("f(a) = a * 2 - a\nY[i...] = X[f(i)...]", (2, 3), {}, TWO, TWO),
    ("f(a, s) = a * s[0] * s[1]\nY[i...] = sum(f(i, Off)...)", (2, 3), {"Off": [2, 3]}, TWO,
     6 * (np.arange(2)[:, None] + np.arange(3))),
    ("count(o, n) = sum[k : 3 where o + k < n](1)\nY[i...] = product(count(i, Y.Sizes)...)",
     (2, 3), {}, TWO, np.outer([2, 1], [3, 2, 1])),
    ("Y[i] = X[clamp(i + Off[0], 0, 3)]", (4,), {"Off": [2]}, ONE, ONE[[2, 3, 3, 3]]),
    ("Y[i] = X[Real[0]]", (4,), {"Real": [2.0]},
     ONE, np.full(4, 3)),
    ("Y[i...] = X[(Off * 0)..., i[range(2, 2)]...]", (2, 3), {"Off": [1, 1]}, TWO,
     np.full((2, 3), 1)),
    ("s = sum(Off)\nY[i] = X[i] * s", (4,),
     {"Off": [1, 2]}, ONE, ONE * 3),
]  # fmt: skip


@pytest.mark.parametrize("case", CORRECT, ids=lambda case: case[0].replace("\n", "; "))
def test_what_index_notation_computes(
    case: tuple[str, tuple[int, ...], dict[str, object], Array, Array],
) -> None:
    text, out, attributes, x, expected = case
    found = compute(text, out, attributes, X=x)
    assert found.shape == out
    assert np.array_equal(found, np.broadcast_to(expected, out).astype(np.float32))


def test_a_factor_that_is_zero_leaves_its_term_out() -> None:
    x = np.array([np.nan, 1, 2, np.inf], np.float32)
    window = "max(0, 1 - abs(k - i))"
    assert np.array_equal(
        compute(f"Y[i] = sum[k : 4](X[k] * {window})", (4,), X=x), x, equal_nan=True
    )
    halved = compute(f"Y[i] = sum[k : 4](-(X[k] * {window} / 2))", (4,), X=x)
    assert np.array_equal(halved, -x / 2, equal_nan=True)
    kept = compute("Y[i] = sum[k : 4]((k == i ? 0 : 1) * X[k] * 1)", (4,), X=x)
    assert np.array_equal(kept, np.array([np.inf, np.nan, np.nan, np.nan]), equal_nan=True)
    whole = compute("Y[i] = sum[k : 4]((i - k) * X[k])", (4,), X=x)
    assert np.isnan(whole[1:]).all()
    assert whole[0] == -np.inf


def test_a_window_reads_nothing_outside() -> None:
    text = """
    inside(o, k) = o + k - 1 >= 0 && o + k - 1 < X.Sizes[0]
    Y[o] = sum[k : 3 where inside(o, k)](X[o + k - 1] * W[k])
    """
    w = np.array([1, 10, 100], np.float32)
    found = compute(text, (4,), X=ONE, W=w)
    assert found.tolist() == [210, 321, 432, 43]


def test_numbers_take_the_type_they_meet() -> None:
    x = counted(4, dtype="float64")
    found = compute("Y[i] = X[i] * (1 - i / 4)", (4,), X=x)
    assert found.dtype == np.float64
    assert np.array_equal(found, x * [1, 0.75, 0.5, 0.25])
    whole = compute("Y[i] = X[i] + i * 2 - 1", (4,), X=counted(4, dtype="int32"))
    assert whole.tolist() == [0, 3, 6, 9]
    half = compute("Y[i] = X[i] + sum[k : 2](X[k])\nZ = Y", (4,), X=counted(4, dtype="float16"))
    assert half.dtype == np.float16


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_positions_from_tensors(dtype: str) -> None:
    k = np.array([3, -1, 0], dtype)
    clamp = "Y[i] = X[clamp(v(K[i]), 0, 3)]"
    wrap = "v(p) = trunc(p < 0 ? p + 4 : p)\n"
    assert compute(wrap + clamp, (3,), X=ONE, K=k).tolist() == [4, 4, 1]
    outside = "Y[i] = X[floor(K[i])] else 9"
    assert compute(outside, (3,), X=ONE, K=k).tolist() == [4, 9, 1]


ARRAYS = [
    ("Y[i] = X[i] * Off[3 - i]", [9, 16, 21, 24]),
    ("Y[i] = Off[i % 2] + Off[floor(i / 2)]", [12, 13, 13, 14]),
    ("Y[i] = i > 0 ? Off[i - 1] : X[i]", [1, 6, 7, 8]),
    ("f(p) = Off[p]\nY[i] = sum[k : 4](k == i ? f(k) : 0)", [6, 7, 8, 9]),
    ("Y[i] = K[i] >= 0 && K[i] < 4 ? Off[K[i]] : -1", [9, -1, 6, -1]),
]


@pytest.mark.parametrize(("text", "expected"), ARRAYS)
def test_arrays_are_read_at_computed_positions(text: str, expected: list[float]) -> None:
    k = np.array([3, -1, 0, 4], np.int32)
    arrays = {"X": ONE} | ({"K": k} if "K[" in text else {})
    assert compute(text, (4,), {"Off": [6, 7, 8, 9]}, **arrays).tolist() == expected


def test_equal_reductions_are_computed_once() -> None:
    op = declare(
        "total(n) = sum[k : 4](X[n, k])\nY[n, i] = X[n, i] / total(n)\nZ[n, i] = total(n)",
        X, Y, "Z | Output | 2 | FLOAT32",
    )  # fmt: skip
    function = op.bind({"X": f32(3, 4), "Y": f32(3, 4), "Z": f32(3, 4)})
    sums = [s for s in function.stages if s.reduction is not None]
    assert [s.name for s in sums] == ["Y_sum"]
    assert sums[0].extents == (3,)


def test_a_reduction_that_is_the_whole_statement_is_its_stage() -> None:
    function = declare("Y[n, c] = sum[b : 5](X[b, c]) ", X, Y).bind(
        {"X": f32(5, 4), "Y": f32(2, 4)}
    )
    assert [s.name for s in function.stages] == ["Y"]
    assert str(function.stages[0].reduction) == "Reduction(combiner='sum', axes=((0, 5),))"


def test_results_stay_in_place_only_where_elements_are_read_in_theirs() -> None:
    def pairs(text: str) -> tuple[tuple[str, str], ...]:
        return declare(text, X, Y).bind({"X": f32(4), "Y": f32(4)}).in_place

    assert pairs("Y[i] = X[i] * 2") == (("Y", "X"),)
    assert pairs("Y[i] = X[3 - i]") == ()
    assert pairs("A = X * 2\nY[i] = A[3 - i] + X[i]") == ()
    assert pairs("Y[i] = sum[k : 4](X[k])") == ()


SIZES: list[tuple[str, dict[str, object], tuple[int, ...]]] = [
    ("require Y.Sizes == X.Sizes * 2", {}, (4, 6)),
    ("require X.Sizes + Off == Y.Sizes", {"Off": [1, 2]}, (3, 5)),
    ("require Y.Sizes == [X.Sizes[1], X.Sizes[0]] && X.DimensionCount == 2", {}, (3, 2)),
    ("require Y.Sizes == floor((X.Sizes + 1) / [1, Off...])", {"Off": [2]}, (3, 2)),
    ("require all(Y.Sizes <= X.Sizes - Off)", {"Off": [0, 1]}, (2, 2)),
    ("require Y.Sizes == max(X.Sizes - Off, 0)", {"Off": [0, 9]}, (2, 0)),
    ("require length(Off) == 0 ? Y.Sizes == X.Sizes : Y.Sizes == Off", {"Off": [7]}, (7,)),
    ("require Y.Sizes == (Off == -1 ? X.Sizes : Off)", {"Off": [-1, 8]}, (2, 8)),
]


@pytest.mark.parametrize("case", SIZES, ids=lambda case: case[0])
def test_sizes_come_from_what_is_required(
    case: tuple[str, dict[str, object], tuple[int, ...]],
) -> None:
    constraint, attributes, expected = case
    found = compute("Y[i...] = 1", None, attributes, constraint, X=TWO)
    assert found.shape == expected


def test_sizes_come_from_stated_extents() -> None:
    assert compute("Y[i : 2, j : 5] = i + j", None, X=TWO).shape == (2, 5)


_CURE = ": leave points out with 'where', or give a value for them with 'else'"
MISTAKES: list[tuple[str, str, str]] = [
    ("Y[i] = i > 0 ? X[i - 2] : 0", "i - 2", "'X[i - 2]' may leave its tensor: axis 0 has size 4, "
     "and is read at -1 to 1" + _CURE),
    ("Y[i] = i > 0 ? 0 : X[i - 1]", "i - 1", "'X[i - 1]' may leave its tensor: axis 0 has size 4, "
     "and is read at -1" + _CURE),
    ("Y[i] = i > 0 || X[0] > 0 ? X[i - 1] : 0", "i - 1", "'X[i - 1]' may leave its tensor: axis 0 "
     "has size 4, and is read at -1 to 2" + _CURE),
    ("Y[i] = X[i - 1] > 0 && i > 0 ? 1 : 0", "i - 1", "'X[i - 1]' may leave its tensor: axis 0 has "
     "size 4, and is read at -1 to 2" + _CURE),
    ("Y[i] = (i > 0 ? 1 : 0) * X[i - 1]", "i - 1", "'X[i - 1]' may leave its tensor: axis 0 has "
     "size 4, and is read at -1 to 2" + _CURE),
    ("A[i : 4] = i * 3 - 4\nY[i] = A[i] >= 0 ? X[A[i]] : 0", "A[i]", "'X[A[i]]' may leave its "
     "tensor: axis 0 has size 4, and is read at 0 to 5" + _CURE),
    ("Y[i] = X.Sizes[-2]", "-2", "index -2 is out of bounds: 'X.Sizes' has 1 value"),
    ("Y[i] = Off[-3]", "-3", "index -3 is out of bounds: 'Off' has 2 values"),
    ("Y[i] = X[18446744073709551615]", "1844", "18446744073709551615 does not fit a position"),
    ("Y[i] = X[i + 1]", "i + 1", "'X[i + 1]' may leave its tensor: axis 0 has size 4, and is read "
     "at 1 to 4: leave points out with 'where', or give a value for them with 'else'"),
    ("Y[i] = X[7]", "7", "'X[7]' may leave its tensor: axis 0 has size 4, and is read at 7: leave "
     "points out with 'where', or give a value for them with 'else'"),
    ("Y[i] = sum[k : 3 where i + k <= 4](X[i + k])", "i + k", "'X[i + k]' may leave its tensor: "
     "axis 0 has size 4, and is read at 0 to 4: leave points out with 'where', or give a value "
     "for them with 'else'"),
    ("Y[i] = X[floor(X[i])]", "floor(X[i])", "'X[floor(X[i])]' may leave its tensor: axis 0 has "
     "size 4, and is read at positions that are not known at compile time: clamp the position, or "
     "give a value for what lies outside with 'else'"),
    ("Y[i] = X[i / 2]", "i / 2", "a position is a whole number, but 'i / 2' may be a fraction: "
     "write floor(...), ceil(...), round(...) or trunc(...)"),
    ("Y[i] = X[0.5]", "0.5", "a position is one whole number, but this is 0.5"),
    ("f(p) = X[p]\nY[i] = f(i > 0)", "p", "a position is a whole number, but this is a boolean"),
    ("f(p) = X[p]\nY[i] = f([1])", "p", "'p' is an array of 1 values: write 'p...' to give a "
     "position for each"),
    ("Y[i] = X[Off...]", "X[Off...]", "'X' has 1 dimensions, but is read at 2 positions"),
    ("f(p) = p[0]\nY[i] = f(i)", "p[0]", "'p' is one value and has no index"),
    ("f(p) = p[0]\nY[i] = X[i] * f(3)", "p[0]", "'p' is a number and cannot be indexed"),
    ("f(p) = p[0] else 0\nY[i] = f(Off)", "p[0] else 0", "'else' belongs to a read of a tensor, "
     "and 'p' is none"),
    ("f(p) = p[Off...]\nY[i] = f(Off)", "p[Off...]", "an array takes one index"),
    ("f(p) = Off[p]\nY[i] = f(i)", "p", "'Off[p]' may leave its array, which has 2 values: the "
     "position is 0 to 3"),
    ("Y[i] = Off[2]", "2", "index 2 is out of bounds: 'Off' has 2 values"),
    ("f(p) = sum(p...)\nY[i] = f(i)", "p...", "'...' expands a pack, and there is none in this "
     "expression"),
    ("Y[i...] = sum((i * Off)...)", "(i * Off)...", "'i' has 1 entry and 'Off' has 2: what one "
     "'...' expands has one length"),
    ("Y[i] = sum[k : Off[0] - 5](X[k])", "Off[0] - 5", "an extent is a whole number of 0 or more, "
     "not -3"),
    ("Y[i] = sum[k : i](X[k])", "i", "the extent of 'k' must be known at compile time: leave "
     "points out with 'where' instead"),
    ("f(n) = sum[k : n](X[k])\nY[i] = f(Off)", "n", "'k' runs over an array of sizes: write "
     "'k... : n'"),
    ("f(n) = sum[k... : n](X[k...])\nY[i] = f(2)", "n", "'k...' needs one extent per axis, and "
     "this is one value"),
    ("f(c) = sum[k : 4 where c](X[k])\nY[i] = f(i)", "c", "the condition after 'where' must be a "
     "boolean, but this is a number"),
    ("f(c) = sum[k : 4 where c](X[k])\nY[i] = f(Off > 0)", "c", "the condition after 'where' must "
     "be a boolean, but this is no boolean"),
    ("f(e) = sum[k : 4](e)\nY[i] = f(Off)", "e", "'sum' folds one value for each point, and this "
     "is an array of 2"),
    ("f(e) = e\nY[i] = f(Off)", "f(Off)", "one element of 'Y' is defined here, but 'f(Off)' is an "
     "array of 2 values"),
    ("Y[i, j] = 0", "Y[i, j]", "'Y' has 1 dimensions, but is defined with 2 indices"),
    ("Y[i, j, k...] = 0", "Y[i, j, k...]", "'Y' has 1 dimensions, but is defined with 3 indices"),
    ("Y[i : 3] = 0", "Y[i", "'Y' has sizes [4], but is defined over [3]"),
    ("A[i... : range(0, 9)] = 0\nY = X", "A[i...", "'A' would have 9 dimensions: a tensor has 1 to "
     "8"),
    ("f(e) = all(e...)\nY[i] = f(Off) ? 1 : 0",
     "all(e...)", "'&&' takes booleans, but 2 is a number"),
    ("Y[i] = flatten([1], [2, 3])", "[1]", "'flatten' takes a position along each of 2 axes, but "
     "'[1]' has 1 values"),
    ("f(n) = unflatten(n, [2])[0]\nY[i] = f(Off)", "n", "'unflatten' takes the number of a place, "
     "and this is an array"),
    ("Y[i] = X[inverse([0, 2])[0]]", "[0, 2]", "'inverse' takes a permutation of 0 to 1, not "
     "[0, 2]"),
    ("f(n) = length(n)\nY[i] = f(2)", "n", "'length' takes an array"),
    ("f(n) = flatten([0], n)\nY[i] = f([0.5])", "n", "sizes are an array of whole numbers of 0 or "
     "more"),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0].replace("\n", "; "))
def test_mistakes(case: tuple[str, str, str]) -> None:
    text, place, message = case
    op = declare(text, X, Y, attributes=OFF)
    found = refusals(lambda: op.bind({"X": f32(4), "Y": f32(4)}, {"Off": [2, 3]}))
    assert found[0].message == message
    span = found[0].span
    assert span is not None
    assert span.text.startswith(place)


def test_mistakes_in_functions_say_where_they_were_called() -> None:
    op = declare("f(p) = X[p + 1]\nY[i] = f(i)", X, Y)
    (found,) = refusals(lambda: op.bind({"X": f32(4), "Y": f32(4)}))
    assert says(found)[1:] == ("called from here",)


def test_every_read_that_leaves_is_reported() -> None:
    op = declare("Y[i] = X[i + 1] + X[i - 1]", X, Y)
    found = refusals(lambda: op.bind({"X": f32(4), "Y": f32(4)}))
    assert [d.span.text for d in found if d.span is not None] == ["i + 1", "i - 1"]


def test_index_notation_needs_sizes() -> None:
    (found,) = refusals(lambda: declare("Y[i...] = X[i...]", X, Y).bind({}))
    assert found.message == "index notation 'Y[i...]' needs the sizes of its tensors"
    (found,) = refusals(lambda: declare("Y = X * X[0]", X, Y).bind({}))
    assert found.message == "index notation 'X[0]' needs the sizes of its tensors"


def test_sizes_that_nothing_decides() -> None:
    (found,) = refusals(lambda: declare("Y[i] = 1", X, Y).bind({"X": f32(4)}))
    assert found.message == "the sizes of 'Y' are needed here, and are not given"


@pytest.mark.parametrize("out", [None, (4,), (1, 4), (2, 1, 4)])
def test_the_pack_of_an_output_takes_what_its_description_has_more(
    out: tuple[int, ...] | None,
) -> None:
    found = compute("Y[lead..., i : X.Sizes[0]] = X[i]", out, X=ONE)
    assert found.shape == (out or (4,))
    np.testing.assert_array_equal(found, np.broadcast_to(ONE, found.shape))


def test_an_output_is_described_as_its_definition_says() -> None:
    with pytest.raises(DmlcError, match="has sizes \\[2, 3\\], but is defined over \\[2, 4\\]"):
        compute("Y[lead..., i : X.Sizes[0]] = X[i]", (2, 3), X=ONE)


def test_sizes_that_no_tensor_has() -> None:
    op = declare("Y[i] = 1", X, Y, constraints="require Y.Sizes == X.Sizes - 9")
    (found,) = refusals(lambda: op.bind({"X": f32(4)}))
    assert found.message == "the sizes of output 'Y' come to [-5], which no tensor has"


# Properties --------------------------------------------------------------------------------

ROUNDED = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(ROUNDED)),
    st.integers(-3, 3),
    st.integers(-20, 20),
    st.integers(-7, 7).filter(bool),
)
def test_whole_numbers_divide_exactly(name: str, step: int, start: int, divisor: int) -> None:
    text = f"Y[i] = {name}((i * {step} + {start}) / ({divisor}))"
    found = compute(text, (6,), X=ONE)
    exact = [ROUNDED[name](Fraction(i * step + start, divisor)) for i in range(6)]
    assert found.tolist() == exact


@settings(deadline=None)
@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 6), st.integers(1, 3))
def test_a_read_is_refused_where_it_leaves_and_nowhere_else(
    a: int, b: int, c: int, window: int
) -> None:
    points = [a * i + b * k + c for i in range(4) for k in range(window)]
    inside = [p for p in points if 0 <= p < 4]
    at = f"i * {a} + k * {b} + {c}"
    op = declare(f"Y[i] = sum[k : {window}](X[{at}])", X, Y)
    sizes = {"X": f32(4), "Y": f32(4)}
    if len(inside) < len(points):
        (found,) = refusals(lambda: op.bind(sizes))
        low, high = min(points), max(points)
        where = f"at {low} to {high}" if low != high else f"at {low}"
        assert f"axis 0 has size 4, and is read {where}: " in found.message
    else:
        op.bind(sizes)
    guarded = f"Y[i] = sum[k : {window} where {at} >= 0 && {at} < 4](X[{at}])"
    other = f"Y[i] = sum[k : {window}](X[{at}] else 0)"
    expected = [
        float(sum(ONE[p] for k in range(window) if 0 <= (p := a * i + b * k + c) < 4))
        for i in range(4)
    ]
    assert compute(guarded, (4,), X=ONE).tolist() == expected
    assert compute(other, (4,), X=ONE).tolist() == expected


# Arrays of tensors -------------------------------------------------------------------------

PARTS = "Parts | Array of inputs | 1 to 8 | FLOAT32, INT32"
OUTS = "Outs | Array of outputs | 1 to 8 | FLOAT32, INT32"
AXIS = "| Axis | INT | | |"


def test_tensors_are_joined_along_an_axis() -> None:
    op = declare("Y = join(Parts, axis: Axis)", PARTS, Y, attributes=AXIS)
    given = {"Parts_0": TWO, "Parts_1": TWO[:, :1], "Parts_2": TWO[:, :0]}
    function = op.bind({n: f32(*a.shape) for n, a in given.items()}, {"Axis": -1})
    assert [p.name for p in function.parameters] == list(given)
    found = evaluate(function, given)["Y"]
    assert np.array_equal(found, np.concatenate(list(given.values()), axis=1))
    listed = op.bind({"Parts": [f32(2, 0), f32(2, 0)]}, {"Axis": 1})
    empty = {"Parts_0": TWO[:, :0], "Parts_1": TWO[:, :0]}
    assert evaluate(listed, empty)["Y"].shape == (2, 0)


def test_tensors_are_split_along_an_axis() -> None:
    op = declare("Outs = split(X * 2, axis: 1)", X, OUTS,
                 constraints="X and Outs must have the same DataType.")  # fmt: skip
    sizes = {"Outs[0]": (2, 1), "Outs[1]": (2, 2), "Outs[2]": (2, 0)}
    function = op.bind({"X": f32(2, 3), **sizes})
    found = evaluate(function, {"X": TWO})
    assert [r.name for r in function.results] == ["Outs_0", "Outs_1", "Outs_2"]
    whole = np.concatenate(list(found.values()), axis=1)
    assert np.array_equal(whole, TWO * 2)


def test_entries_of_arrays_are_tensors() -> None:
    op = declare(
        "Y[i] = Parts[1][i] * Parts.Count + Parts[0].Sizes[0]", PARTS, Y,
        constraints="require Parts.Count == 2 && Parts[0].Sizes == Parts[1].Sizes",
    )  # fmt: skip
    function = op.bind({"Parts[0]": f32(4), "Parts[1]": f32(4), "Y": f32(4)})
    assert np.array_equal(evaluate(function, {"Parts_0": ONE, "Parts_1": ONE})["Y"], ONE * 2 + 4)


def declare_lists(compute: str, constraints: str = "") -> Operator:
    return declare(
        compute, PARTS, "Others | Array of inputs | 1 to 8 | FLOAT32, INT32", OUTS,
        constraints=f"Parts, Others, and Outs must have the same DataType.\n{constraints}",
    )  # fmt: skip


def test_arrays_of_tensors_are_computed_tensor_by_tensor() -> None:
    op = declare_lists(
        "way(from, to) = from + 0.25 * (to - from)\n"
        "size = sqrt(sum(sum(Parts * Parts, axes: [0, 1])...))\n"
        "Outs = [way(Parts, Others) * size...]",
        "require [Parts.Sizes == Outs.Sizes...]",
    )
    shapes = [(2, 3), (1, 4)]
    lists = {"Parts": shapes, "Others": shapes, "Outs": shapes}
    function = op.bind({name: [f32(*s) for s in sizes] for name, sizes in lists.items()})
    random = np.random.default_rng(0)
    given = {p.name: random.random(p.extents).astype(np.float32) for p in function.parameters}
    found = evaluate(function, given)
    size = np.sqrt(sum((given[f"Parts_{n}"].astype(np.float64) ** 2).sum() for n in range(2)))
    for n in range(2):
        start, end = given[f"Parts_{n}"], given[f"Others_{n}"]
        np.testing.assert_allclose(found[f"Outs_{n}"], (start + (end - start) / 4) * size, 1e-6)
    wrong = {**lists, "Outs": [(2, 3), (1, 1)]}
    (broken,) = refusals(lambda: op.bind({n: [f32(*s) for s in v] for n, v in wrong.items()}))
    assert broken.message == 'broken constraint: "require [Parts.Sizes == Outs.Sizes...]"'
    assert "Outs[1].Sizes is [1, 1]" in says(broken)


def test_lists_that_are_computed_together_have_one_length() -> None:
    op = declare_lists("Outs = [Parts + Others...]")
    two, three = [f32(2)] * 2, [f32(2)] * 3
    found = refusals(lambda: op.bind({"Parts": two, "Others": three, "Outs": two}))
    assert found[0].message == (
        "'Parts' has 2 entries and 'Others' has 3: what one '...' expands has one length"
    )
    found = refusals(lambda: op.bind({"Parts": two, "Others": two, "Outs": three}))
    assert found[0].message.startswith("'Outs' is an array of 3 tensors: write split(X, axis: A)")


def test_every_entry_keeps_to_the_table() -> None:
    op = declare("Y = join(Parts, axis: 0)", PARTS, Y,
                 constraints="Parts and Y must have the same DimensionCount.")  # fmt: skip
    found = refusals(lambda: op.bind({"Parts[0]": f32(4), "Parts[1]": TensorDesc("BOOL", (4,))}))
    assert found[0].message == "'Parts[1]' cannot be BOOL: it is FLOAT32 or INT32"
    found = refusals(lambda: op.bind({"Parts[0]": f32(4), "Parts[1]": f32(4, 1), "Y": f32(8)}))
    assert says(found[0])[1] == (
        "Parts[0] and Y have DimensionCount 1; Parts[1] has DimensionCount 2"
    )


ARRAY_MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("Y = join(Parts, axis: 0)", {"Parts": []}, "array of inputs 'Parts' is not given: describe "
     "'Parts[0]' and so on"),
    ("Y = join(Parts, axis: 0)", {"Parts": [(2, 3), (2, 4)]}, "tensors of sizes [2, 3], [2, 4] "
     "cannot be joined along axis 0: their other sizes must be the same"),
    ("Y = join(Parts, axis: 2)", {"Parts": [(2, 3)]}, "axis 2 is not among the axes of a tensor of "
     "2 dimensions"),
    ("Y = Parts[2]", {"Parts": [(2, 3)]}, "'Parts' has 1 tensors, and this is number 2"),
    ("Y[i] = Parts[i][0]", {"Parts": [(2,)], "Y": (2,)}, "which tensor of an array it is must be "
     "known at compile time"),
    ("Y = Parts", {"Parts": [(2,)]}, "'Parts' is an array of tensors: pick one, as in 'Parts[0]', "
     "or join them"),
    ("Y = split(Parts[0], axis: 0)", {"Parts": [(2,)]}, "'split' defines an array of outputs: "
     "write OutputTensors = split(X, axis: A)"),
    ("Y = join(Parts, axis: 0)", {"Parts_2000": (2,)}, "'Parts' has 2001 tensors; 1024 at most"),
    ("Y = join(Parts, axis: 0)", {"Parts_1": (2,)}, "required tensor 'Parts[0]' is not given"),
]  # fmt: skip


@pytest.mark.parametrize("case", ARRAY_MISTAKES, ids=lambda case: case[2])
def test_mistakes_with_arrays_of_tensors(case: tuple[str, dict[str, Any], str]) -> None:
    text, given, message = case
    op = declare(text, PARTS, Y)
    found = refusals(lambda: op.bind(given))
    assert found[0].message == message


SPLIT_MISTAKES = [
    ("Outs = split(X, axis: 1)", "a tensor of sizes [2, 3] cannot be split along axis 1 into "
     "[2, 1], [2, 1]"),
    ("Outs[i] = X[i]", "'Outs' is an array of tensors, and is defined as a whole: by "
     "split(X, axis: A), or [e...]"),
    ("Outs = X", "'Outs' is an array of 2 tensors: write split(X, axis: A), or [e...] with an "
     "array of as many in e"),
]  # fmt: skip


@pytest.mark.parametrize("case", SPLIT_MISTAKES, ids=lambda case: case[1])
def test_mistakes_in_splits(case: tuple[str, str]) -> None:
    text, message = case
    op = declare(text, X, OUTS)
    found = refusals(lambda: op.bind({"X": f32(2, 3), "Outs[0]": f32(2, 1), "Outs[1]": f32(2, 1)}))
    assert found[0].message == message


def test_binding_is_quick_at_large_sizes() -> None:
    function = declare(
        "w(i, o) = max(0, 1 - abs((o + 0.5) / 2 - 0.5 - i))\n"
        "Y[i...] = sum[o... : X.Sizes](X[o...] * product(w(i, o)...))", X, Y,
    ).bind({"X": f32(8, 64, 224, 224), "Y": f32(8, 64, 112, 112)})  # fmt: skip
    guard = function.stages[0].body.guard
    assert guard is not None
    assert len(ir.Body.make(function.stages[0].body.instructions, guard).instructions) > 4


@pytest.mark.parametrize("dtype", ["FLOAT32", "FLOAT16"])
def test_outputs_whose_sizes_follow_are_read_by_index(dtype: str) -> None:
    op = declare("Y[i : 3] = X[i] * 2\nZ[i : 4] = Y[3 - max(i, 1)] + i", X, Y, Y.replace("Y", "Z"))
    tensors = {n: TensorDesc(dtype, (4,) if n == "X" else None) for n in "XYZ"}
    kind = dtype.lower()
    found = evaluate(op.bind(tensors), {"X": counted(4, dtype=kind)})
    assert found["Y"].tolist() == [2, 4, 6]
    assert found["Z"].tolist() == [6, 7, 6, 5]
