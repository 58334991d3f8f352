"""Kernels are made to read as if one person had written them: of the same values, less text."""

from __future__ import annotations

from dmlc.kernel import nodes as k
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.offsets import name_offsets
from dmlc.kernel.print import print_kernel
from dmlc.scalars import OPERATIONS, DataType

FLOAT = k.Type(DataType.FLOAT32)


def position(name: str) -> k.Local:
    return k.Local(name, k.INDEX)


def number(value: int) -> k.Literal:
    return k.Literal(k.INDEX, value)


def apply(name: str, *operands: k.Expression) -> k.Operate:
    return k.Operate(OPERATIONS[name], operands, operands[0].type)


def load(buffer: str, index: k.Expression) -> k.Load:
    return k.Load(buffer, index, FLOAT)


def let(name: str, value: k.Expression) -> k.Let:
    return k.Let(k.Local(name, value.type), value)


def loop(name: str, *body: k.Statement) -> k.For:
    return k.For(position(name), number(0), number(8), 1, body)


def lines(*body: k.Statement, arrays: tuple[k.Array, ...] = ()) -> list[str]:
    """The lines of a tidy kernel's body, without indents."""
    buffers = (
        k.Buffer("x", DataType.FLOAT32, k.Access.READ),
        k.Buffer("y", DataType.FLOAT32, k.Access.READ_WRITE),
    )
    kernel = k.Kernel("f", buffers, (), k.Launch(1, 1, 1), body, arrays=arrays)
    text = [line.strip() for line in print_kernel(clean_up(name_offsets(kernel))).splitlines()]
    return text[1 + text.index("buffer y: f32 read_write") : -1]


def test_what_is_in_sight_is_used_again() -> None:
    mean, again = k.Local("mean", FLOAT), k.Local("mean#1", FLOAT)
    assert lines(
        k.Let(mean, load("x", number(0))),
        loop("i", k.Let(again, load("x", number(0))), k.Store("y", position("i"), again)),
    ) == [
        "let mean: f32 = x[0]",
        "for i in 0 .. 8 {",
        "store y[i] = mean",
        "}",
    ]


def test_another_name_for_the_same_is_left_out() -> None:
    a, b = k.Local("a", FLOAT), k.Local("b", FLOAT)
    made = lines(k.Let(a, load("x", number(0))), k.Let(b, a), k.Store("y", number(0), b))
    assert made == ["let a: f32 = x[0]", "store y[0] = a"]


def test_a_negative_zero_is_not_a_positive_one() -> None:
    value = k.Local("a", FLOAT)
    sums = [let(f"s#{n}", apply("add", value, k.Literal(FLOAT, n))) for n in (0.0, -0.0, 0.0)]
    made = lines(k.Let(value, load("x", number(0))), *sums)
    assert made == [
        "let a: f32 = x[0]",
        "let s: f32 = add(a, 0.0)",
        "let s_1: f32 = add(a, -0.0)",
    ]


def test_every_nan_is_the_one_nan() -> None:
    assert k.Literal(FLOAT, float("nan")) == k.Literal(FLOAT, -float("nan"))
    assert len({k.Literal(FLOAT, float("nan")), k.Literal(FLOAT, float("nan"))}) == 1
    assert k.Literal(FLOAT, 1.0) != k.Literal(k.Type(DataType.FLOAT64), 1.0)


def test_what_was_in_an_inner_scope_is_computed_again() -> None:
    found = k.Local("a", FLOAT)
    test = k.Operate(OPERATIONS["lt"], (number(1), number(2)), k.BOOL)
    made = lines(
        k.If(test, (k.Let(found, load("x", number(0))), k.Store("y", number(0), found))),
        let("a#1", load("x", number(0))),
        k.Store("y", number(1), k.Local("a#1", FLOAT)),
    )
    assert made.count("let a: f32 = x[0]") == 2


def test_what_may_have_changed_is_read_again() -> None:
    variable, kept = k.Local("v", k.INDEX), k.Array("kept", DataType.FLOAT32, 8)
    local = k.LoadLocal("kept", number(0), FLOAT)
    body = (
        k.Variable(variable, number(0)),
        let("a", load("y", number(0))),
        let("a#1", load("y", number(0))),
        let("b", local),
        let("b#1", local),
        let("c", apply("add", variable, number(1))),
        k.Assign(variable, number(5)),
        let("c#1", apply("add", variable, number(1))),
    )
    made = lines(*body, arrays=(kept,))
    assert [line.split(":")[0] for line in made if line.startswith("let")] == [
        "let a", "let a_1", "let b", "let b_1", "let c", "let c_1",
    ]  # fmt: skip


def test_positions_that_stand_in_several_places_get_a_name() -> None:
    at = apply("add", apply("mul", position("i"), number(9)), position("j"))
    far = apply("add", at, number(4))
    value = k.Local("a", FLOAT)
    assert lines(
        loop(
            "i",
            loop(
                "j",
                k.Let(value, load("x", at)),
                k.Store("y", at, apply("mul", value, load("x", far))),
            ),
        )
    )[2:6] == [
        "let offset: index = add(mul(i, 9), j)",
        "let a: f32 = x[offset]",
        "store y[offset] = mul(a, x[add(offset, 4)])",
        "}",
    ]


def test_a_position_is_named_where_all_that_need_it_see_it() -> None:
    outer = apply("add", apply("mul", position("i"), number(9)), number(1))
    rows = [
        loop(name, k.Store("y", apply("add", outer, position(name)), load("x", number(0))))
        for name in ("j", "j#1")
    ]
    assert lines(loop("i", *rows)) == [
        "for i in 0 .. 8 {",
        "let offset: index = add(mul(i, 9), 1)",
        *["for j in 0 .. 8 {", "store y[add(offset, j)] = x[0]", "}"] * 2,
        "}",
    ]


def test_a_position_that_has_a_name_keeps_it() -> None:
    at = apply("add", apply("mul", position("i"), number(9)), number(1))
    made = lines(loop("i", let("row", at), k.Store("y", at, load("x", at))))
    assert made[1:3] == ["let row: index = add(mul(i, 9), 1)", "store y[row] = x[row]"]


def test_a_position_that_a_variable_moves_gets_no_name() -> None:
    moving = k.Local("v", k.INDEX)
    at = apply("add", apply("mul", moving, number(9)), number(1))
    made = lines(
        k.Variable(moving, number(0)),
        k.Store("y", at, load("x", number(0))),
        k.Assign(moving, number(1)),
        k.Store("y", at, load("x", number(0))),
    )
    assert not any("offset" in line for line in made)


def test_names_are_numbered_where_they_would_hide_another() -> None:
    inner = loop("i#1", k.Store("y", position("i#1"), load("x", position("i"))))
    made = lines(
        loop("i", inner),
        loop("i#2", k.Store("y", position("i#2"), load("x", position("i#2")))),
        let("x#1", load("x", number(3))),
        k.Store("y", number(0), k.Local("x#1", FLOAT)),
        arrays=(k.Array("i_row", DataType.FLOAT32, 4), k.Array("i_row#1", DataType.FLOAT32, 4)),
    )
    assert made == [
        "array i_row: f32[4]",
        "array i_row_1: f32[4]",
        "for i in 0 .. 8 {",
        "for i_1 in 0 .. 8 {",
        "store y[i_1] = x[i]",
        "}",
        "}",
        "for i in 0 .. 8 {",
        "store y[i] = x[i]",
        "}",
        "let x_1: f32 = x[3]",
        "store y[0] = x_1",
    ]


def test_what_is_computed_from_literals_is_one_and_stands_where_it_is_needed() -> None:
    """A dialect has to see a zero to hide it from a driver, which would fold `x / 0`."""
    zero = let("zero", k.Convert(apply("add", number(0), number(0)), FLOAT))
    first = let("first", k.Operate(OPERATIONS["eq"], (number(0), number(0)), k.BOOL))
    other = k.Literal(FLOAT, 1.0)
    factor = let("factor", k.Select(first.local, zero.local, other, FLOAT))
    quotient = apply("div", load("x", number(0)), factor.local)
    sine = apply("sin", zero.local)
    assert lines(
        zero,
        first,
        factor,
        k.Store("y", number(0), quotient),
        k.Store("y", number(1), sine),
    ) == ["store y[0] = div(x[0], 0.0)", "store y[1] = sin(0.0)"]


def test_a_position_below_zero_is_no_literal() -> None:
    """It may be unsigned, of 32 bits or 64."""
    below = apply("sub", number(1), number(2))
    assert lines(k.Store("y", apply("add", below, number(1)), k.Literal(FLOAT, 0.0))) == [
        "store y[add(sub(1, 2), 1)] = 0.0"
    ]
