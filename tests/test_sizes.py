"""Sizes known at run time only, as sums of products, and conditions on them."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlc
from dmlc.ir.below import is_inside_open
from dmlc.ir.parse import parse
from dmlc.ir.ranges import Ranges
from dmlc.sizes import (
    LARGEST,
    Measure,
    Shapes,
    Size,
    choose_size,
    divide_down,
    divide_up,
    estimate,
    evaluate_size,
    find_least,
    holds,
    known,
    list_symbols,
    multiply,
    pack_strides,
    parse_size,
    read_counted,
    refuse_sizes,
    write_condition,
)
from dmlc.source import DmlcError, InternalError
from tests.open_sizes import evaluate_formula

VALUES = {"N": 7, "C": 3, "H2": 1}


@st.composite
def measures(draw: st.DrawFn) -> tuple[Measure, int]:
    """A size, and what it comes to with `VALUES`."""
    symbol = draw(st.sampled_from(list(VALUES)))
    size: Measure = Size.of(symbol)
    value = VALUES[symbol]
    for _ in range(draw(st.integers(0, 4))):
        other = draw(st.sampled_from(list(VALUES)))
        number = draw(st.integers(1, 9))
        match draw(st.integers(0, 3)):
            case 0:
                size, value = size * Size.of(other), value * VALUES[other]
            case 1:
                size, value = number + size, value + number
            case 2:
                size, value = number * size + Size.of(other), value * number + VALUES[other]
            case _ if "/" in str(size) and value:
                size, value = size - 1, value - 1
            case _:
                size, value = divide_up(size, number) * 2, -(-value // number) * 2
    return size, value


@given(measures(), measures())
def test_sizes_compute_and_print(first: tuple[Measure, int], second: tuple[Measure, int]) -> None:
    for size, value in (first, second):
        assert parse_size(str(size)) == size
        assert evaluate_size(str(size), VALUES) == evaluate_formula(str(size), VALUES) == value
    for name, compare in (("<=", int.__le__), ("==", int.__eq__), ("!=", int.__ne__)):
        condition = write_condition(first[0], name, second[0])
        assert holds(condition, VALUES) == compare(first[1], second[1])
        # Nothing is taken from anything: C would wrap.
        assert bool(evaluate_formula(condition, VALUES)) == compare(first[1], second[1])


def test_one_form() -> None:
    n, c = Size.of("N"), Size.of("C")
    assert str(64 * n * c + n + 3 - 2 * n) == "64 * C * N - N + 3"
    assert n * c == c * n
    assert n - n == 0
    assert (n + 1) * (n + 1) == n * n + 2 * n + 1
    assert n.bounds() == (1, float("inf"))
    assert (4 * n).bounds()[0] == 4
    assert (6 * n).divide(3) == 2 * n
    assert (6 * n + 1).divide(3) is None
    assert multiply(["N", 2, "N"]) == 2 * n * n
    assert pack_strides((2, "N", 0, "C")) == (n * c, c, c, 1)
    assert str(divide_up(n * c, 64)) == "((C * N + 63) / 64)"
    assert divide_up(65, 64) == 2
    assert list_symbols("((C * N + 63) / 64) * H") == ("C", "N", "H")
    assert estimate("N") == 1024
    assert estimate(2 * n) == 2048


@pytest.mark.parametrize("text", ["", "N +", "N N", "* N", "N / 0", "N % 2", "N / N", "(N", "2N"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(DmlcError, match="is no size: expected sums, products and quotients"):
        parse_size(text)


def test_quotients_have_one_form() -> None:
    n, c = Size.of("N"), Size.of("C")
    assert str(divide_down(n - 3, 2) + 1) == "((N + 1) / 2) - 1"
    assert divide_down(n - 3, 2) + 1 == divide_down(n - 1, 2)
    assert divide_down(divide_down(n + 1, 2) + 1, 3) == divide_down(n + 3, 6)
    assert divide_down(4 * n * c + 7, 8) == divide_down(n * c + 1, 2) + 0
    assert str(divide_down(n * -1, 2)) == "(N / 2) - N"
    assert parse_size("(H - 3) / 2 + 1") == parse_size("((H + 1) / 2) - 1")
    assert str(n - c) == "N - C"


def test_bounds() -> None:
    n, c = Size.of("N"), Size.of("C")
    half = divide_down(n, 2)
    for size, low, high in (
        (n * c - n, 0, math.inf),
        (n - 2 * half, 0, 1),
        (half - 1, -1, math.inf),
        (divide_down(n + 1, 2), 1, math.inf),
        (half - n, -math.inf, -1),
        (c - n, -math.inf, math.inf),
    ):
        assert isinstance(size, Size)
        assert size.bounds() == (low, high), size


def test_what_conditions_say() -> None:
    assert write_condition(divide_down(Size.of("N") - 3, 2) + 1, ">=", 1) == "N >= 3"
    conditions = ["N >= 3", "C < N", "C == 2 * H", "N != 4"]
    found = ["N - 3", "N - C - 1", "C - 2 * H", "2 * H - C"]
    assert [parse_size(text) for text in found] == read_counted(conditions)


def test_conditions() -> None:
    n = Size.of("N")
    assert write_condition(n - 5, ">=", 1) == "N >= 6"
    assert write_condition(3, "<", n * 2) == "3 < 2 * N"
    with pytest.raises(
        DmlcError, match="'N' is no condition on sizes: expected one such as 'N != 1'"
    ):
        holds("N", {"N": 1})
    refuse_sizes("f", ["N != 1"], {"N": 2})
    with pytest.raises(DmlcError, match="f was made for sizes where C <= N, and C is 3 and N is 2"):
        refuse_sizes("f", ["C <= N"], {"N": 2, "C": 3})


def test_numbers_alone() -> None:
    assert known([2, 3]) == (2, 3)
    with pytest.raises(InternalError, match="a size is known at run time only: 2, N"):
        known([2, Size.of("N")])


def test_shapes() -> None:
    shapes = Shapes()
    assert shapes.match("x", ("N", 4), (3, 4)) is None
    assert shapes.match("y", (1, "N"), (1, 3)) is None
    assert shapes.sizes == {"N": 3}
    assert shapes.match("z", ("N",), (2,)) == (
        "the size 'N' is 3 along axis 0 of x, and 2 along axis 0 of z"
    )


def test_shapes_made_of_symbols() -> None:
    shapes = Shapes()
    assert shapes.match("dy", ("2 * N", "(H / 2)"), (6, 4)) is None
    assert shapes.match("x", ("N",), (3,)) is None
    assert shapes.match("z", ("H",), (7,)) == (
        "the size '(H / 2)' is 3 where 'H' is 7 along axis 0 of z, and the array given has 4 along "
        "axis 1 of dy"
    )


@pytest.mark.parametrize(
    ("position", "inside"),
    [
        ("i0", True),
        ("sub(size(N), 1)", True),
        ("sub(sub(size(N), 1), i0)", True),
        ("min(max(sub(i1, 3), 0), sub(size(N), 1))", True),
        ("min(sub(i1, 3), sub(size(N), 1))", False),
        ("max(sub(i0, 1), 0)", True),
        ("add(i0, 1)", False),
        ("div(i0, 2)", True),
        ("mod(add(i0, i1), size(N))", True),
        ("select(lt(i1, 2), i0, 0)", True),
        ("select(lt(i1, 2), i0, i1)", False),
        ("i1", False),
        ("1", False),
        ("div(i2, 2)", True),
        ("div(add(i2, 1), 2)", False),
        ("sub(i2, i0)", False),
        ("add(mul(i3, 2), 1)", True),
        ("add(mul(i3, 2), 2)", False),
        ("div(add(mul(i0, size(M)), mod(i1, size(M))), size(M))", True),
        ("select(lt(i2, size(N)), i2, sub(size(2 * N - 1), i2))", True),
        ("select(lt(i2, size(N)), i2, sub(size(2 * N), i2))", False),
        ("mod(i1, max(1, size(2 * N - 2)))", False),
    ],
)
def test_positions_below_an_open_size(position: str, inside: bool) -> None:
    # That an axis has an element says something of its size.
    half = ", i3 < (N / 2)" if "i3" in position else ""
    text = (
        "func @f(%X: f32[N], %Z: f32[M]) -> (%Y) "
        f"{{ %Y: f32[i0 < N, i1 < 9, i2 < 2 * N{half}] = %X[{position}] }}"
    )
    if inside:
        parse(text)
        return
    with pytest.raises(DmlcError, match="%X may be left: axis 0 has the run-time size 'N'"):
        parse(text)


@pytest.mark.parametrize(
    ("guard", "inside"),
    [
        ("and(ge(v0, 0), lt(v0, size(N)))", True),
        ("and(le(0, v0), gt(size(N), v0))", True),
        ("and(ge(v0, 0), le(v0, sub(size(N), 1)))", True),
        ("lt(v0, size(N))", False),
        ("and(ge(v0, 0), le(v0, size(N)))", False),
        ("and(ge(v0, 0), lt(v0, size(M)))", False),
    ],
)
def test_guards_keep_reads_below_an_open_size(guard: str, inside: bool) -> None:
    text = f"""func @f(%X: f32[N], %Z: f32[M]) -> (%Y) {{
      %Y: f32[i0 < N] = sum[r0 < 3] {{
        v0 = sub(add(i0, r0), 1)
        where {guard}
        %X[v0]
      }}
    }}"""
    if inside:
        stage = parse(text).stages[0]
        ranges = Ranges(stage)
        for instruction in stage.body.instructions:
            ranges.add(instruction)
        (load,) = stage.body.loads()
        assert is_inside_open(stage, load.indices[0], "N", ranges)
        assert ranges[load.indices[0]] == (-1, LARGEST)
        return
    with pytest.raises(DmlcError, match="%X may be left: axis 0 has the run-time size 'N'"):
        parse(text)


# From strangers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        " * ".join(["(A + B + C + D + E + F + G + H)"] * 9),
        "(" * 5000 + "N" + ")" * 5000,
        "9" * 5000,
        " + ".join(f"N{number}" for number in range(5000)),
        " * ".join(["N"] * 5000),
        "N + " * 30_000 + "1",
        "9" * 30 + " * 9999999999" * 3000,
    ],
    ids=["sums", "parentheses", "digits", "symbols", "factors", "length", "number"],
)
def test_texts_that_multiply_out_are_refused_at_once(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(DmlcError) as raised:
        parse_size(text)
    assert raised.value.diagnostics[0].code == "E0807"
    assert len(str(raised.value)) < 400
    assert time.process_time() - begun < 1


def test_bounds_of_what_is_nested_or_long_are_found_in_time() -> None:
    begun = time.process_time()
    text = "N"
    for number in range(31):
        text = f"(({text}) + M{number}) / {number % 3 + 2}"
    assert find_least(parse_size(text)) == 0
    assert find_least(parse_size(" * ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + " - 1")) == 0
    assert find_least(parse_size(" * ".join(["(A + B)"] * 64))) == 2**64
    assert find_least(parse_size(" * ".join(["(N - 1)"] * 40))) <= 0
    assert time.process_time() - begun < 2


def test_the_limits_leave_room_for_tensors_of_eight_axes() -> None:
    sums = parse_size(" * ".join(f"(N{axis} + 2)" for axis in range(8)))
    assert isinstance(sums, Size)
    assert len(sums.terms) == 256


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
@pytest.mark.parametrize("read", ["%a[i0, 0]", "add(%a[i0, 0], %b[i0])"])
def test_a_constant_position_along_an_open_axis(target: str, read: str) -> None:
    """All that is walked has sizes that are numbers; how far apart it lies does not."""
    function = parse(
        f"func @f(%a: f32[40, N], %b: f32[40]) -> (%y) {{\n  %y: f32[i0 < 40] = {read}\n}}"
    )
    for profile in ("cpu", "gpu") if target == "opencl" else (None,):
        program = dmlc.compile(function, target, **({"profile": profile} if profile else {}))
        assert program.symbols == ("N",)
    a, b = np.arange(120, dtype=np.float32).reshape(40, 3), np.ones(40, np.float32)
    if target == "opencl":
        wanted = a[:, 0] + (b if "%b" in read else 0)
        np.testing.assert_array_equal(dmlc.run(function, [a, b])["y"], wanted)


def test_a_choice_is_a_formula_that_is_read_as_c_reads_it() -> None:
    few = choose_size("C < 16", "256 * C", 1)
    whole = choose_size("(N + 63) / 64 < 9", choose_size("N < 3", "(N + 1) / 2", 0), few)
    assert whole == "((N + 63) / 64 < 9 ? (N < 3 ? (N + 1) / 2 : 0) : (C < 16 ? 256 * C : 1))"
    assert choose_size("N < 3", 7, 7) == 7
    for n, c, wanted in ((2, 1, 1), (3, 1, 0), (1000, 15, 3840), (1000, 16, 1)):
        sizes = {"N": n, "C": c}
        assert evaluate_size(whole, sizes) == evaluate_formula(whole, sizes) == wanted
        assert (multiply([whole]) * 4).evaluate(sizes) == 4 * wanted
    with pytest.raises(DmlcError, match="is no size"):
        parse_size("(N < 3 ? 1 : 0)")
