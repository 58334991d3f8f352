"""Derived gradients: random formulas against differences, and what formulas come to."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from dmlc import ir
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.reference import evaluate
from dmlc.source import DmlcError
from dmlc.transform.differentiate import differentiate
from tests.gradients import check_gradient, derive, functions, is_moderate, make_inputs

DATA = Path(__file__).parent.parent / "data" / "gradients.ir"


def read_pairs() -> dict[str, tuple[str, str]]:
    """Functions and their gradients, by the names of the functions."""
    pairs: dict[str, tuple[str, str]] = {}
    for text in DATA.read_text(encoding="utf-8").strip().split("\n\n"):
        forward, _, gradient = text.partition("\n}\n")
        pairs[ir.parse(f"{forward}\n}}").name] = (f"{forward}\n}}", gradient)
    return pairs


PAIRS = read_pairs()
MOVING = [name for name, operation in IR_OPERATIONS.items() if operation.derivative is not None]


# As many again and again find nothing: `make fuzz` has others, and more of them.
EXAMPLES = 200 if settings().derandomize else 1000


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(functions())
def test_random_formulas(function: ir.Function) -> None:
    inputs = make_inputs(function)
    assume(is_moderate(function, inputs))
    check_gradient(function, inputs)


@pytest.mark.parametrize("name", PAIRS)
def test_formulas(name: str) -> None:
    forward, gradient = PAIRS[name]
    assert str(derive(ir.parse(forward)).function) == gradient


@pytest.mark.parametrize("name", [n for n in PAIRS if n not in ("open", "gathered")])
def test_formulas_are_right(name: str) -> None:
    function = ir.parse(PAIRS[name][0])
    made = check_gradient(function, make_inputs(function))
    # And again: the gradient has a gradient.
    check_gradient(made, make_inputs(made))


def test_the_page_of_gradients_has_every_function() -> None:
    page = Path(__file__).parents[2] / "docs/explanation/gradients.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    listed = set(re.findall(r"[a-z]\w*", " ".join(line.split("|")[1] for line in rows)))
    functions = [IR_OPERATIONS[name] for name in MOVING]
    assert {f.name for f in functions if f.symbol is None and not f.internal} <= listed


@pytest.mark.parametrize("name", MOVING)
def test_rules_give_values_of_their_type(name: str) -> None:
    values = ", ".join(["%X[i0]", "%W[i0]", "%X[i0]"][: IR_OPERATIONS[name].arity])
    text = "func @one(%X: f32[3], %W: f32[3]) -> (%Y) {\n"
    derive(ir.parse(f"{text}  %Y: f32[i0 < 3] = {name}({values})\n}}"))


def test_a_part_of_an_index_that_only_a_condition_knows() -> None:
    """`i0` is taken apart for the quotient, and put together again for the first position."""
    function = ir.parse("""func @parts(%X: f32[3, 2]) -> (%Y) {
      %Y: f32[i0 < 3] = sum[r0 < 2] {
        v0 = add(mul(r0, 3), i0)
        v1 = div(v0, 2)
        where and(le(v0, 2), le(v1, 1))
        %X[min(v0, 2), min(v1, 1)]
      }
    }""")
    check_gradient(function, make_inputs(function))


def test_what_no_arm_chooses_stays_out() -> None:
    """Two arms read what overflows elsewhere, each under a condition of its own."""
    function = ir.parse("""func @arms(%X: f32[3]) -> (%Y) {
      %Y: f32[i0 < 3] = {
        v0 = %X[i0]
        v1 = exp(neg(v0))
        add(select(gt(v0, 0.0), v1, 1.0), select(gt(v0, 1.0), mul(v1, v1), 2.0))
      }
    }""")
    given = {"X": np.array([-1000, 0.5, 2], np.float32), "d_Y_in": np.ones(3, np.float32)}
    found = evaluate(derive(function).function, given)["g_X"]
    expected = [0, -np.exp(-0.5), -np.exp(-2) - 2 * np.exp(-4)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_products_of_numbers_are_rounded() -> None:
    """Numbers that algebra multiplies exactly, as 0.3 by 0.1, are values of their type again."""
    function = ir.parse("""func @scaled(%X: f32[5]) -> (%Y) {
      %T: f32[i0 < 5] = mul(%X[i0], 0.1)
      %E: f32[i0 < 5] = exp(mul(%T[i0], 0.3))
      %S: f32[i0 < 1] = sum[r0 < 5] %E[r0]
      %Y: f32[i0 < 5] = div(%E[i0], %S[0])
    }""")
    check_gradient(function, make_inputs(function), {"Y": "Y_kept"})
    text = str(derive(function, Y="Y_kept").function)
    assert "mul(mul(%d_Y_in[i0], %Y_kept[i0]), 0.030000001)" in text


def test_a_ratio_is_one_number() -> None:
    """One over 0.7, as FLOAT32 has that, is 16777216 / 11744051."""
    function = ir.parse("""func @scaled(%X: f32[5]) -> (%Y) {
      %E: f32[i0 < 5] = exp(%X[i0])
      %S: f32[i0 < 1] = sum[r0 < 5] %E[r0]
      %Y: f32[i0 < 5] = div(mul(%E[i0], 0.7), %S[0])
    }""")
    assert "mul(mul(%g_X_sum[0], v0), 1.4285715)" in str(derive(function, Y="Y_kept").function)


def test_gathered_rows_add_up() -> None:
    function = derive(ir.parse(PAIRS["gathered"][0])).function
    arriving = np.arange(15, dtype=np.float32).reshape(3, 5)
    found = evaluate(function, {"I": np.array([2, 7, 2], np.int32), "d_Y_in": arriving})["g_X"]
    expected = np.zeros((4, 5), np.float32)
    np.add.at(expected, [2, 3, 2], arriving)
    np.testing.assert_array_equal(found, expected)


# What is at hand ----------------------------------------------------------------------------


def test_a_softmax_is_all_that_its_gradient_reads() -> None:
    function = ir.parse(PAIRS["softmax"][0])
    made = derive(function, Y="softmax").function
    assert [p.name for p in made.parameters] == ["softmax", "d_Y_in"]
    assert [str(s.name) for s in made.stages] == ["g_X_sum", "g_X"]
    check_gradient(function, make_inputs(function), {"Y": "softmax"})


@pytest.mark.parametrize(
    "formula",
    [
        "tanh(%X[i0])",
        "sigmoid(%X[i0])",
        "exp(mul(%X[i0], 2.0))",
        "sqrt(add(exp(%X[i0]), 1.0))",
        "max(%X[i0], 0.25)",
        "min(0.25, %X[i0])",
        "div(1.0, sqrt(add(exp(%X[i0]), 1.0)))",
    ],
)
def test_results_serve_in_place_of_inputs(formula: str) -> None:
    text = f"func @f(%X: f32[8]) -> (%Y) {{\n  %Y: f32[i0 < 8] = {formula}\n}}"
    function = ir.parse(text)
    check_gradient(function, make_inputs(function), {"Y": "y"})
    if "exp(%X" not in formula:
        made = derive(function, Y="y").function
        assert [p.name for p in made.parameters] == ["y", "d_Y_in"]


def test_logarithms_of_a_softmax_serve_for_it() -> None:
    text = PAIRS["softmax"][0].replace("div(%e[i0, i1], %s[i0])", "log(div(%e[i0, i1], %s[i0]))")
    function = ir.parse(text)
    made = check_gradient(function, make_inputs(function), {"Y": "logs"})
    assert [p.name for p in made.parameters] == ["logs", "d_Y_in"]


def test_copies_of_what_is_kept_are_kept() -> None:
    """Layer normalization gives its mean in other sizes than it uses."""
    function = ir.parse(
        "func @f(%X: f32[3, 4]) -> (%Y, %mean) {\n"
        "  %t: f32[i0 < 3, i1 < 1] = sum[r0 < 4] %X[i0, r0]\n"
        "  %m: f32[i0 < 3, i1 < 1] = div(%t[i0, i1], 4.0)\n"
        "  %mean: f32[i0 < 3] = %m[i0, 0]\n"
        "  %Y: f32[i0 < 3, i1 < 4] = mul(%X[i0, i1], exp(%m[i0, 0]))\n"
        "}"
    )
    made = check_gradient(function, make_inputs(function), {"mean": "at_hand"})
    assert "at_hand" in [p.name for p in made.parameters]
    assert made.stage("t") is None


def test_the_first_of_open_axes() -> None:
    made = derive(
        ir.parse(
            "func @f(%X: f32[N, M, K]) -> (%Y) {\n"
            "  %Y: f32[i0 < N] = max[r0 < M, r1 < K] %X[i0, r0, r1]\n"
            "}"
        )
    ).function
    x = np.random.default_rng(2).permutation(24).reshape(2, 3, 4).astype(np.float32)
    given = {"X": x, "d_Y_in": np.array([1, 2], np.float32)}
    expected = np.zeros_like(x)
    for row in range(2):
        expected[row][np.unravel_index(x[row].argmax(), (3, 4))] = row + 1
    np.testing.assert_array_equal(evaluate(made, given)["g_X"], expected)


# What is said -------------------------------------------------------------------------------


def test_a_gradient_that_is_none() -> None:
    formula = "mul(floor(%X[i0]), %W[i0])"
    text = f"func @f(%X: f32[4], %W: f32[4]) -> (%Y) {{\n  %Y: f32[i0 < 4] = {formula}\n}}"
    made = derive(ir.parse(text))
    assert made.vanishing == ("X",)
    ones = np.ones(4, np.float32)
    zeros = evaluate(made.function, {"X": ones, "d_Y_in": ones})["g_X"]
    np.testing.assert_array_equal(zeros, np.zeros(4))


@pytest.mark.parametrize(
    ("formula", "choice"),
    [
        ("max(%X[i0], 0.0)", "max(x, c) has the derivative 0 in x where x = c"),
        ("min(%X[i0], %W[i0])", "min(a, b) has the derivative 1/2 in each where a = b"),
        ("abs(%X[i0])", "abs(x) has the derivative 0 at x = 0"),
        ("add(%X[i0], %W[i0])", None),
        (
            "sqrt(mul(%X[i0], %X[i0]))",
            "sqrt(x) has the derivative 0 in x where x = 0, and x cannot be negative",
        ),
        ("sqrt(add(mul(%X[i0], %X[i0]), 0.5))", None),
        ("sqrt(mul(%X[i0], %W[i0]))", None),
    ],
)
def test_choices(formula: str, choice: str | None) -> None:
    text = f"func @f(%X: f32[4], %W: f32[4]) -> (%Y) {{\n  %Y: f32[i0 < 4] = {formula}\n}}"
    assert [c.text for c in derive(ir.parse(text)).choices] == ([] if choice is None else [choice])


def test_what_holds_no_floats_has_no_gradient() -> None:
    text = "func @f(%X: f32[4], %I: s32[4]) -> (%Y) {\n  %Y: f32[i0 < 4] = %X[i0]\n}"
    with pytest.raises(DmlcError, match="'I' has no gradient: it holds INT32"):
        differentiate(ir.parse(text), ["I"], {"Y": "dy"}, {"I": "di"})
    with pytest.raises(DmlcError, match="'Z'"):
        differentiate(ir.parse(text), ["Z"], {"Y": "dy"}, {"Z": "dz"})


# Kinks --------------------------------------------------------------------------------------


KINKS = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5], np.float32)


@pytest.mark.parametrize(
    ("formula", "slopes"),
    [
        ("max(%X[i0], 0.0)", [0, 0, 1, 0, 0, 1, 0, 1]),
        ("max(0.0, %X[i0])", [0, 0, 1, 0, 0, 1, 0, 1]),
        ("min(%X[i0], 0.5)", [1, 1, 0, 1, 0, 0, 1, 0]),
        ("min(max(%X[i0], 0.0), 1.0)", [0, 0, 0, 0, 0, 0, 0, 1]),
        ("abs(%X[i0])", [0, 0, 1, -1, np.nan, 1, -1, 1]),
        ("floor(%X[i0])", [0] * 8),
        ("select(gt(%X[i0], 0.0), log(%X[i0]), 0.0)", [0, 0, 1, 0, 0, 0, 0, 2]),
        (
            "select(gt(%X[i0], 0.0), %X[i0], mul(0.25, %X[i0]))",
            [0.25, 0.25, 1, 0.25, 0.25, 1, 0.25, 1],
        ),
        ("sqrt(%X[i0])", [np.inf, -np.inf, 0.5, np.nan, np.nan, 0, np.nan, 0.5**0.5]),
        # Roots of what is at its least at 0, and of what is at its edge there.
        ("sqrt(mul(%X[i0], %X[i0]))", [0, 0, 1, -1, np.nan, np.nan, np.nan, 1]),
        ("sqrt(abs(%X[i0]))", [0, 0, 0.5, -0.5, np.nan, 0, 0, 0.5**0.5]),
        (
            "pow(pow(abs(%X[i0]), 3.0), 0.5)",
            [0, 0, 1.5, -1.5, np.nan, np.nan, np.nan, 1.5 * 0.5**0.5],
        ),
        ("sqrt(sqrt(%X[i0]))", [np.inf, np.inf, 0.25, np.nan, np.nan, 0, np.nan, 0.25 * 2**0.75]),
    ],
)
def test_kinks(formula: str, slopes: list[float]) -> None:
    text = f"func @f(%X: f32[8]) -> (%Y) {{\n  %Y: f32[i0 < 8] = {formula}\n}}"
    made = derive(ir.parse(text)).function
    given = {"X": KINKS, "d_Y_in": np.ones(8, np.float32)}
    found = evaluate(made, {p.name: given[p.name] for p in made.parameters})["g_X"]
    np.testing.assert_allclose(found, np.array(slopes, np.float32), rtol=1e-6)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 0.5])
def test_norms_of_zeros(power: float) -> None:
    """A row of zeros, one of which has one zero, and a row of none; twice."""
    text = f"""func @norm(%X: f32[3, 2]) -> (%Y) {{
  %total: f32[i0 < 3] = sum[r0 < 2] pow(abs(%X[i0, r0]), {power})
  %Y: f32[i0 < 3] = pow(%total[i0], {1 / power!r})
}}"""
    rows = np.array([[0, 0], [0, 2], [3, -4]], np.float32)
    first = derive(ir.parse(text)).function
    given = {"X": rows, "d_Y_in": np.ones(3, np.float32)}
    found = evaluate(first, {p.name: given[p.name] for p in first.parameters})["g_X"]
    with np.errstate(divide="ignore", invalid="ignore"):
        norm = (np.abs(rows) ** power).sum(1, keepdims=True) ** (1 / power)
        wanted = np.sign(rows) * (np.abs(rows) / norm) ** (power - 1)
    np.testing.assert_allclose(found, np.where(rows == 0, 0, wanted), 1e-5)
    second = differentiate(first, ["X"], {"g_X": "seed"}, {"X": "h_X"}).function
    given["seed"] = np.ones((3, 2), np.float32)
    found = evaluate(second, {p.name: given[p.name] for p in second.parameters})["h_X"]
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[0], 0)


def test_quotients_of_open_sizes_are_of_any_size() -> None:
    # Which row is read is a quotient of a place along an open axis, and takes more than 3 values.
    function = ir.parse("""func @f(%V: f32[M], %X: f32[4 * M], %W: f32[3]) -> (%Y) {
      %Y: f32[i0 < M, i1 < 4] = mul(mul(%V[i0], %X[add(mul(i0, 4), i1)]), %W[mod(i0, 3)])
    }""")
    derived = differentiate(function, ["X"], {"Y": "dY"}, {"X": "dX"}).function
    weights, rows = np.array([1, 10, 100], np.float32), np.arange(5, dtype=np.float32)
    given = {"V": rows, "W": weights, "dY": np.ones((5, 4), np.float32)}
    found = evaluate(ir.specialize(derived, {"M": 5}), given)["dX"]
    np.testing.assert_array_equal(found, np.repeat(rows * weights[[0, 1, 2, 0, 1]], 4))


def test_powers_by_their_exponents_at_zero() -> None:
    text = "func @p(%X: f64[6], %E: f64[6]) -> (%Y) {\n  %Y: f64[i0 < 6] = pow(%X[i0], %E[i0])\n}"
    first = derive(ir.parse(text)).function
    given = {
        "X": np.array([0.0, 0.0, 0.0, -0.0, 2.0, np.nan]),
        "E": np.array([0.0, 2.0, -1.0, 0.0, 0.0, 2.0]),
        "d_Y_in": np.ones(6),
    }
    found = evaluate(first, {p.name: given[p.name] for p in first.parameters})
    by_exponent = [0, 0, -np.inf, 0, np.log(2), np.nan]
    np.testing.assert_allclose(found["g_E"], by_exponent, 1e-12)
    np.testing.assert_array_equal(found["g_X"], [0, 0, -np.inf, 0, 0, np.nan])


def test_what_is_kept_may_have_been_rounded() -> None:
    """A mean that is stored in halves is the mean that its gradient is given."""
    function = ir.parse(
        "func @f(%X: f16[3, 4]) -> (%Y, %mean) {\n"
        "  %t: f32[i0 < 3] = sum[r0 < 4] %X[i0, r0]\n"
        "  %m: f32[i0 < 3] = div(%t[i0], 4.0)\n"
        "  %mean: f16[i0 < 3] = %m[i0]\n"
        "  %Y: f16[i0 < 3, i1 < 4] = mul(%X[i0, i1], exp(%m[i0]))\n"
        "}"
    )
    made = derive(function, mean="at_hand").function
    assert "at_hand" in [p.name for p in made.parameters]
    assert made.stage("t") is None
