"""Rows that kernels of CPUs put in order: every type, in both directions, with ties, NaN,
infinities and zeros of both signs where they stand, as the interpreter and a device have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc, ir
from dmlc.api import load_program
from dmlc.lowering import radix
from dmlc.pipeline import compile, describe_schedules
from dmlc.scalars import Array, DataType
from dmlc.transform.simplify import simplify
from tests.kernel.lowering import interpret
from tests.transform.test_order import read

ROWS = """func @rows(%X: {t}[{rows}{n}]) -> (%places, %values) {{
  %rank: s32[{domain}i{a} < {n}] = sum[r0 < {n}] {{
    v0 = %X[{outer}r0]
    v1 = %X[{outer}i{a}]
    where {before}
    1:s32
  }}
  %places: s32[{domain}i{a} < {n}] = sum[r0 < {n}
    where eq(%rank[{outer}r0], cast(i{a}, s32))] cast(r0, s32)
  %values: {t}[{domain}i{a} < {n}] = max[r0 < {n}
    where eq(cast(i{a}, s32), %rank[{outer}r0])] %X[{outer}r0]
}}"""
LESS = "or({less}(v0, v1), and(eq(v0, v1), lt(r0, i{a})))"
NAN = "or(or({less}(v0, v1), and(eq(v0, v1), lt(r0, i{a}))), "\
      "and(ne(v1, v1), or(eq(v0, v0), gt(i{a}, r0))))"  # fmt: skip
TYPES = [t.short for t in DataType if t not in (DataType.BOOL, DataType.INDEX)]
BY_DIGITS = "put it where"


def count_digits(t: str) -> int:
    """The digits by which rows of a type are put in order: halves are widened, and the lowest
    digits of what that gives are none of theirs."""
    return DataType(t).compute.bytes - {"f16": 1, "bf16": 2}.get(t, 0)


def make_rows(t: str, n: int, rows: int = 0, *, less: str = "lt") -> ir.Function:
    """Rows in order: the places and the values of each."""
    dtype, a = DataType(t), 1 if rows else 0
    before = (NAN if dtype.is_float else LESS).format(less=less, a=a)
    outer, domain, sizes = ("i0, ", f"i0 < {rows}, ", f"{rows}, ") if rows else ("", "", "")
    text = ROWS.format(t=t, n=n, rows=sizes, domain=domain, outer=outer, a=a, before=before)
    return simplify(ir.parse(text))


def draw(t: str, shape: tuple[int, ...]) -> Array:
    random, dtype = np.random.default_rng(7), DataType(t)
    if dtype.is_float:
        x = np.round(random.standard_normal(shape) * 20)
        values = (np.nan, np.inf, -0.0, 0.0, -np.inf, 6e-8, -6e-8)
        for step, value in zip((7, 11, 13, 17, 19, 23, 29), values, strict=True):
            x.flat[step::step] = value
        return x.astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    x = random.integers(limits.min, limits.max, shape, dtype.dtype, endpoint=True)
    x.flat[::3] = x.flat[0]
    x.flat[1::7], x.flat[2::9] = limits.min, limits.max
    return x


def find_order(x: Array, less: str) -> Array:
    if less == "lt":
        return np.argsort(x, axis=-1, kind="stable")
    return np.argsort(-x if x.dtype.kind not in "iu" else ~x, axis=-1, kind="stable")


def check(x: Array, found: Mapping[str, Array], less: str) -> None:
    is_float = x.dtype.kind not in "iu"
    x, values = (a.astype(np.float64) if is_float else a for a in (x, found["values"]))
    order = find_order(x, less)
    expected = np.take_along_axis(x, order, axis=-1)
    np.testing.assert_array_equal(found["places"], order)
    np.testing.assert_array_equal(values, expected)
    if is_float:
        numbers = ~np.isnan(expected)
        signs = np.signbit(values), np.signbit(expected)
        np.testing.assert_array_equal(signs[0][numbers], signs[1][numbers])


@pytest.fixture
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radix, "_LEAST_STRETCH", 100)


@pytest.mark.usefixtures("_short_stretches")
@pytest.mark.parametrize(
    ("t", "less"), [*zip(TYPES, ["lt", "gt"] * 6, strict=False), ("f32", "gt"), ("s32", "lt")]
)
def test_every_type(t: str, less: str) -> None:
    function = make_rows(t, 613, less=less)
    program, digits = compile(function, "opencl"), count_digits(t)
    assert len(program.kernels) == 2 * digits
    x = draw(t, (613,))
    check(x, load_program(program, "opencl")({"X": x}), less)
    if digits < 8:
        check(x, interpret(function, {"X": x}), less)


@pytest.mark.usefixtures("_short_stretches")
@pytest.mark.parametrize("n", [515, 601, 2047])
def test_rows_of_a_batch(n: int) -> None:
    """Four rows have four stretches each, the last of which may be shorter; forty have one, and one
    kernel."""
    for rows in (4, 40):
        function, x = make_rows("f32", n, rows), draw("f32", (rows, n))
        text = describe_schedules(function, "opencl")
        assert (f"i: 0..{rows}\n" in text) == (rows == 40) == (text.count("kernel ") == 1)
        check(x, interpret(function, {"X": x}), "lt")


@pytest.mark.parametrize(("n", "k"), [(600, 600), (1301, 90), (140, 9)])
def test_other_axes_and_parts_of_rows(n: int, k: int) -> None:
    """Rows that lie across memory, and results in another order of axes, from some place on."""
    function = read("f32", n, k, less="gt", first=min(3, n - k))
    x = draw("f32", (3, n, 2))
    order = find_order(x.transpose(0, 2, 1), "gt").transpose(0, 2, 1)
    found = interpret(function, {"X": x})
    first = min(3, n - k)
    np.testing.assert_array_equal(found["places"], order[:, first : first + k].transpose(2, 1, 0))
    np.testing.assert_array_equal(found["values"], np.take_along_axis(x, order[:, :k], axis=1))


def test_what_is_compared_may_be_computed() -> None:
    text = str(make_rows("f32", 700, 2))
    function = simplify(ir.parse(text.replace("%X[i0, r0]\n", "neg(%X[i0, r0])\n")
                                 .replace("%X[i0, i1]\n", "neg(%X[i0, i1])\n")))  # fmt: skip
    assert BY_DIGITS in describe_schedules(function, "opencl")
    x = draw("f32", (2, 700))
    found, order = interpret(function, {"X": x}), find_order(-x, "lt")
    np.testing.assert_array_equal(found["places"], order)
    np.testing.assert_array_equal(found["values"], np.take_along_axis(-x, order, axis=-1))


def test_strided_tensors() -> None:
    n = 4000
    layout = {"x": TensorDesc("FLOAT32", (n,), (2,)), "y": TensorDesc("FLOAT32", (n,), (3,))}
    function = dmlc.parse(SORT).operators["SORT"].bind(layout)
    assert BY_DIGITS in describe_schedules(function, "opencl")
    x = draw("f32", (n,))
    np.testing.assert_array_equal(interpret(function, {"x": x})["y"], np.sort(x))


@pytest.mark.parametrize(
    ("target", "t", "n", "rows", "less"),
    [("hlsl", "f32", 613, 0, "lt"), ("hlsl", "f32", 140, 2, "gt"),
     ("wgsl", "s32", 2049, 2, "gt"), ("hlsl", "f16", 5000, 0, "gt"),
     ("hlsl", "u8", 2060, 256, "lt"), ("opencl", "f64", 700, 3, "gt")],
)  # fmt: skip
def test_groups_share_rows_and_stretches(target: str, t: str, n: int, rows: int, less: str) -> None:
    """Rows of a tile have one kernel, which goes through memory once; others two for each digit."""
    function, x = make_rows(t, n, rows, less=less), draw(t, (rows, n) if rows else (n,))
    schedules = describe_schedules(function, target, "gpu")
    digits = 2 * count_digits(t) if n > 2048 else 1
    assert schedules.count("digit") >= digits
    check(x, interpret(function, {"X": x}, target, "gpu"), less)


@pytest.mark.parametrize(
    ("t", "n", "k", "less"),
    [("f32", 140, 5, "lt"), ("s32", 2600, 60, "gt"), ("f32", 9000, 16, "gt")],
)
def test_groups_keep_the_first_few(t: str, n: int, k: int, less: str) -> None:
    """A row has one kernel, and a long one another for its pieces; ties come as they stand."""
    function, first = read(t, n, k, less=less, first=3), 3
    kept = describe_schedules(function, "hlsl", "gpu").count("keep the first")
    assert kept == (1 if n <= 8192 else 2)
    x = draw(t, (3, n, 2))
    order = find_order(x.transpose(0, 2, 1), less).transpose(0, 2, 1)
    found = interpret(function, {"X": x}, "hlsl", "gpu")
    places = order[:, first : first + k].transpose(2, 1, 0)
    np.testing.assert_array_equal(found["places"], places)
    np.testing.assert_array_equal(found["values"], np.take_along_axis(x, order[:, :k], axis=1))


def test_short_rows_are_ranked_by_definition() -> None:
    for count, expected in ((128, False), (129, True)):
        for function in (make_rows("f32", count), read("f32", count, 9)):
            assert (BY_DIGITS in describe_schedules(function, "opencl", "cpu")) is expected


# A million elements ----------------------------------------------------------------------------

MILLION = 1_000_000
SORT = """operator SORT {
    tensors {
        | Tensor | Kind   | Dimensions | Ranks | Types   |
        | x      | Input  | { N }      | 1     | FLOAT32 |
        | y      | Output | { N }      | 1     | FLOAT32 |
    }
    compute {
        rank[i : N]  = sum[k : N where x[k] < x[i] || x[k] == x[i] && k < i
                           || x[i] != x[i] && (x[k] == x[k] || k < i)] (cast(1, INT32))
        place[p : N] = sum[k : N where rank[k] == p] (cast(k, INT32))
        y[p]         = x[clamp(place[p], 0, N - 1)]
    }
}"""


def test_a_million_come_out_the_same_ten_times_and_without_places() -> None:
    function = dmlc.parse(SORT).operators["SORT"].bind({"x": TensorDesc("FLOAT32", (MILLION,))})
    program = compile(function, "opencl")
    assert not program.warnings
    assert len(program.kernels) == 8
    assert all("order" not in buffer.name for k in program.kernels for buffer in k.buffers)
    load, x = load_program(program, "opencl"), draw("f32", (MILLION,))
    first, *others = (load({"x": x})["y"] for _ in range(10))
    np.testing.assert_array_equal(first, np.sort(x))
    for other in others:
        assert first.tobytes() == other.tobytes()
