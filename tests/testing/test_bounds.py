"""How far a result may be off: exact where nothing rounds, else as wide as rounding explains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmlc import ir
from dmlc.ir.verify import verify
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.runtime.floats import CORRECT, LEAST, Division, FloatPromises
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors, make_error_function
from dmlc.testing.compare import find_within
from dmlc.testing.value_errors import Rules

EPSILON = 2.0**-23
KEEPS = FloatPromises(denormals=(16, 32, 64))
"""A device that keeps denormals."""


def bound(
    formula: str,
    x: Array,
    result: str = "f32",
    y: Array | None = None,
    floats: FloatPromises = LEAST,
) -> list[float]:
    """The bound of `%Z = formula` at each element; `%X` is float32, `%Y` a second input."""
    count = len(x)
    text = f"func @f(%X: f32[{count}], %Y: f32[{count}]) -> (%Z) {{\n"
    function = ir.parse(text + f"  %Z: {result}[i0 < {count}] = {formula}\n}}")
    verify(make_error_function(function, Rules(LEAST)), "error function")
    inputs = {"X": x, "Y": x if y is None else y}
    return bound_errors(function, inputs, floats)["Z"].tolist()


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    "formula",
    [
        "%X[i0]",
        "neg(abs(%X[i0]))",
        "select(gt(%X[i0], %Y[i0]), max(%X[i0], %Y[i0]), floor(%X[i0]))",
    ],
)
def test_what_rounds_nothing_is_exact(formula: str) -> None:
    assert bound(formula, f32(1.5, -0.0, math.nan, math.inf)) == [0, 0, 0, 0]


def test_whole_numbers_and_booleans_are_exact() -> None:
    assert bound("cast(%X[i0], s32)", f32(1.5, -7), "s32") == [0, 0]
    assert bound("isnan(%X[i0])", f32(1.5, math.nan), "bool") == [0, 0]


def test_functions_of_positions_differ_from_device_to_device() -> None:
    near, far = bound("exp(cast(i0, f32))", f32(0, 0))
    assert 0 < near < far
    # What is rounded alike everywhere is exact, and so is what positions decide.
    assert bound("mul(cast(i0, f32), 0.3)", f32(0, 0)) == [0, 0]
    assert bound("select(gt(exp(cast(i0, f32)), 2.0), %X[i0], 0.0)", f32(1, 1)) == [0, 0]


def test_of_positions_quotients_are_exact_and_roots_are_as_a_device_takes_them() -> None:
    """Quotients are correctly rounded on every device where positions alone decide them."""
    assert bound("div(add(cast(i0, f32), 0.5), 1.5)", f32(0, 0)) == [0, 0]
    _, root = bound("sqrt(add(cast(i0, f32), 1.0))", f32(0, 0))
    assert root > 0
    function = ir.parse(
        "func @F(%X: f32[2]) -> (%Z) {\n  %Z: f32[i0 < 2] = sqrt(add(cast(i0, f32), 1.0))\n}"
    )
    correct = FloatPromises(single=Division(CORRECT, CORRECT))
    assert not bound_errors(function, {"X": f32(0, 0)}, correct)["Z"].any()


def test_one_operation_may_be_off_by_its_rounding_and_the_results() -> None:
    (found,) = bound("add(%X[i0], %Y[i0])", f32(1.5))
    assert found == pytest.approx(2 * 3 * EPSILON)


@pytest.mark.parametrize("formula", ["div(1.0, %X[i0])", "sqrt(%X[i0])"])
def test_quotients_and_roots_may_be_off_as_wgsl_and_spirv_allow(formula: str) -> None:
    x = np.concatenate([f32(1, 4, 16), np.random.default_rng(0).uniform(0.1, 9, 99)])
    x = x.astype(np.float32)

    def move(values: Array, ulps: float) -> Array:
        return values + ulps * np.spacing(values.astype(np.float32)).astype(np.float64)

    wide = x.astype(np.float64)
    is_root = "sqrt" in formula
    exact = np.sqrt(wide) if is_root else 1 / wide
    # Without what storing the result may cost.
    allowed = bound(f"sub({formula}, %Y[i0])", x, y=exact.astype(np.float32))
    for sign in (-1, 1):
        below = move(1 / np.sqrt(wide), -sign * 2) if is_root else wide
        assert (abs(move(1 / below, sign * 2.5) - exact) <= allowed).all()


def test_a_remainder_jumps_where_its_quotient_may_be_whole() -> None:
    # 3 times a third may be a little less than 1.
    near, far = bound("mod(mul(%X[i0], %Y[i0]), 1.0)", f32(3, 0.5), y=f32(1 / 3, 0.5))
    assert near >= 1
    assert far < 1e-6


def test_an_error_grows_where_digits_cancel() -> None:
    x, y = f32(3.0), f32(1 / 3)
    (found,) = bound("sub(mul(%X[i0], %Y[i0]), 1.0)", x, y=y)
    assert EPSILON <= found <= 2 * EPSILON, "of the product's size, not of the difference's"


def test_a_multiply_add_may_be_rounded_once_or_twice() -> None:
    x, z = 1 + 2.0**-12, -(1 + 2.0**-11)
    function = ir.parse("""
        func @f(%X: f32[n], %Z: f32[n]) -> (%R) {
          %R: f32[i0 < n] = fma(%X[i0], %X[i0], %Z[i0])
        }""")
    inputs = {"X": f32(x), "Z": f32(z)}
    once, twice = evaluate(function, inputs)["R"][0], np.float32(x) * np.float32(x) + np.float32(z)
    assert (once, twice) == (2.0**-24, 0)
    assert bound_errors(function, inputs)["R"][0] >= 2.0**-24


def test_an_error_is_carried_through_a_function() -> None:
    (steep,) = bound("exp(mul(%X[i0], %Y[i0]))", f32(9.0))
    (flat,) = bound("tanh(mul(%X[i0], %Y[i0]))", f32(2.0))
    assert steep == pytest.approx(math.exp(81) * (1e-5 + 81 * EPSILON), rel=0.2)
    assert flat == pytest.approx(1.1e-5, rel=0.1)


@pytest.mark.parametrize(
    ("name", "end", "limit"),
    [("tanh", 12.0, 1.0), ("tanh", -12.0, -1.0), ("erf", -5.0, -1.0), ("sigmoid", 25.0, 1.0),
     ("expm1", -25.0, -1.0)],
)  # fmt: skip
def test_functions_are_exact_where_they_have_reached_their_limits(
    name: str, end: float, limit: float
) -> None:
    """In the type that they are computed in: nothing is left there but the way to the limit."""
    near, far = bound(f"{name}(%X[i0])", f32(end / 4, end))
    assert near > 1e-6
    assert far < 1.5 * EPSILON, "what storing may cost"
    # All that is made of whole numbers is exact there; and a large factor makes nothing of it.
    difference = f"sub(mul({name}(%X[i0]), {name}(%X[i0])), {limit * limit})"
    assert bound(difference, f32(2 * end))[0] < 1e-15
    assert bound(f"mul({difference}, %Y[i0])", f32(2 * end), y=f32(1e7))[0] < 1e-9
    # An operand that may lie on either side of where that begins tells nothing.
    wide = bound(f"{name}(sub(add(%X[i0], 9e7), 9e7))", f32(end))
    assert wide[0] > 1e-6


def test_a_device_reaches_the_limits_of_functions() -> None:
    names = ("tanh", "erf", "sigmoid", "exp", "exp2", "expm1")
    stages = [f"  %{name}: f32[i0 < n] = {name}(%X[i0])\n" for name in names]
    results = ", ".join(f"%{name}" for name in names)
    function = ir.parse(f"func @f(%X: f32[n]) -> ({results}) {{\n{''.join(stages)}}}")
    far = np.array([1e3, 1e30, math.inf])
    x = np.concatenate([np.linspace(-30, 30, 20_001), np.linspace(-200, 200, 999), far, -far])
    inputs = {"X": x.astype(np.float32)}
    found = opencl.load(compile(function, "opencl"))(inputs)
    expected, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name in names:
        assert find_within(found[name], expected[name], allowed[name]).all(), name
        assert np.count_nonzero(allowed[name][np.isfinite(expected[name])] < 1e-30) > 50, name


def test_exponentials_reach_zero_where_numbers_end() -> None:
    for name, end in (("exp", -200.0), ("exp2", -200.0), ("sigmoid", -200.0)):
        near, far = bound(f"mul({name}(%X[i0]), 1e10)", f32(-50, end))
        assert far < 1e-25 < near, name


def test_a_choice_that_is_a_close_call_may_go_either_way() -> None:
    formula = "select(gt(mul(%X[i0], %Y[i0]), 1.0), 7.0, 2.0)"
    close, clear = bound(formula, f32(3.0, 3.0), y=f32(1 / 3, 1 / 2))
    assert close == pytest.approx(5.0, rel=1e-5)
    assert clear == 0


def test_whole_numbers_may_be_off_where_a_float_is_cut() -> None:
    formula = "cast(mul(%X[i0], %Y[i0]), s32)"
    assert bound(formula, f32(3.0, 3.0), "s32", y=f32(3.0, 0.5)) == [1, 0]
    # A large number moves by its own rounding, a saturated one by nothing.
    (far, end) = bound(formula, f32(1.1e9, 1e30), "s32", y=f32(1.1, 7.0))
    assert 100 < far < 1000
    assert end == 0


def test_what_comes_of_an_uncertain_whole_number_is_not_judged() -> None:
    formula = "mul(cast(mul(%X[i0], %Y[i0]), s32), 3:s32)"
    assert bound(formula, f32(3.0, 3.0), "s32", y=f32(3.0, 0.5)) == [math.inf, 0]


def test_sums_of_short_whole_numbers_round_nothing() -> None:
    assert bound("add(round(%X[i0]), 5.0)", f32(2.4, 1e6)) == [0, 0]
    assert bound("cast(add(round(%X[i0]), 5.0), s32)", f32(2.4, 1e6), "s32") == [0, 0]
    (long,) = bound("add(round(%X[i0]), 5.0)", f32(1e9))
    assert long > 0


def test_16_bits_are_rounded_once_more() -> None:
    (found,) = bound("add(%X[i0], %Y[i0])", f32(1.0), "f16")
    assert 2 * 2.0**-10 <= found <= 1.01 * 2 * 2.0**-10
    assert bound("%X[i0]", f32(1.0), "f16") == [0]


def reduce(combiner: str, values: Array, body: str = "%X[r0]", result: str = "f32") -> float:
    count = len(values)
    function = ir.parse(
        f"func @f(%X: f32[{count}]) -> (%Z) {{\n"
        f"  %Z: {result}[i0 < 1] = {combiner}[r0 < {count}] {body}\n}}"
    )
    verify(make_error_function(function, Rules(LEAST)), "error function")
    return bound_errors(function, {"X": values})["Z"].tolist()[0]


def test_a_sum_is_off_by_its_terms_sizes() -> None:
    found = reduce("sum", f32(1e4, -1e4, 3.0))
    assert found == pytest.approx(3 * EPSILON * 20003, rel=1e-3)
    long = reduce("sum", np.ones(1 << 16, np.float32))
    assert long == pytest.approx(257 * EPSILON * (1 << 16), rel=1e-3), "partial sums make a tree"


def test_extremes_and_positions_of_exact_values_are_exact() -> None:
    values = f32(3, 1, 2)
    assert reduce("max", values) == 0
    assert reduce("argmin", values, result="s32") == 0
    assert reduce("max", values, "mul(%X[r0], %X[r0])") == pytest.approx(9 * 2 * EPSILON)
    assert reduce("argmax", values, "mul(%X[r0], %X[r0])", "s32") == math.inf


def test_a_product_is_off_by_a_part_of_itself() -> None:
    assert reduce("product", f32(2, 3, 4)) == pytest.approx(24 * 4 * EPSILON)
    assert reduce("product", f32(2, 0, 4), "mul(%X[r0], %X[r0])") < 1e-30


def test_what_may_be_too_large_on_the_way_is_unknown() -> None:
    # The reference computes wider: 3 * x * x * 0 is 0 there, and NaN where x * x is infinite.
    large = f32(2.2e19, 1.0)
    unknown, known = bound("mul(mul(mul(3.0, %X[i0]), %X[i0]), %Y[i0])", large, y=f32(0, 0))
    assert unknown == math.inf
    assert known < 1e-30
    near = bound("sub(mul(%X[i0], %Y[i0]), %Y[i0])", f32(0.5, 1.0), y=f32(3.4e38, 3.4e38))
    assert near[0] < 1e33
    # A sum of terms that cancel may pass the largest number before they do.
    assert bound("sum[r0 < 3] mul(%X[i0], cast(sub(r0, 1), f32))", f32(2e38, 1.0))[0] == math.inf
    assert bound("sum[r0 < 3] mul(%X[i0], cast(sub(r0, 1), f32))", f32(2e37, 1.0))[0] < 1e33
    assert bound("product[r0 < 3] %X[i0]", f32(1e20, 1e12))[0] == math.inf
    assert bound("product[r0 < 3] %X[i0]", f32(1e20, 1e12))[1] < 1e32


def test_nothing_is_known_of_what_comes_of_an_unknown_value() -> None:
    # It may be NaN as well, which is neither below nor above anything.
    large = f32(1e30, 1.0)
    quotient = bound("div(1.0, mul(%X[i0], %X[i0]))", large)
    assert quotient[0] == math.inf
    assert quotient[1] < 1e-5
    assert bound("select(isnan(mul(%X[i0], %X[i0])), 1.0, 2.0)", large) == [1 + 2 * EPSILON, 0]


def test_rounding_takes_nothing_below_zero() -> None:
    # A root of less than 0 is NaN; of what may be denormal it is small.
    assert bound("div(%X[i0], max(sqrt(mul(%X[i0], %X[i0])), 1e-5))", f32(0))[0] < 1e-30
    assert bound("div(1.0, max(sqrt(mul(%X[i0], %Y[i0])), 1e-5))", f32(0))[0] == math.inf


def test_a_factor_that_is_not_surely_zero_is_a_part_of_its_product() -> None:
    factors = "product[r0 < 2] select(eq(r0, 0), sub(mul(%X[i0], %Y[i0]), 1.0), 5.0)"
    inexact, exact = bound(factors, f32(0.1, 0), y=f32(10, 1))
    assert 5 * EPSILON < inexact < 50 * EPSILON
    assert exact < 50 * EPSILON


def test_an_exact_infinity_is_exact_and_so_is_nan() -> None:
    x = f32(math.inf, -math.inf, math.nan)
    for formula in ("add(%X[i0], 1.0)", "mul(add(%X[i0], 1.0), 2.0)", "sqrt(abs(%X[i0]))"):
        assert bound(formula, x) == [0, 0, 0], formula
    assert bound("exp(%X[i0])", x)[0] == 0
    # What is far beyond a type is an infinity; near its end there may be one, or none.
    far, near, inside = bound("mul(%X[i0], 2.0)", f32(65000.0, 32752.0, 1.0), "f16")
    assert far < 1
    assert near == math.inf
    assert inside < 0.01


def test_a_denormal_operand_may_be_taken_for_zero() -> None:
    (amplified,) = bound("mul(%X[i0], %Y[i0])", f32(1e-40), y=f32(1e38))
    assert 0.009 < amplified < 0.02
    assert bound("sqrt(%X[i0])", f32(-1e-40)) == [math.inf]
    assert bound("sqrt(%X[i0])", f32(-1e-40), floats=KEEPS) == [0]
    (kept,) = bound("mul(%X[i0], %Y[i0])", f32(1e-40), y=f32(1e38), floats=KEEPS)
    assert kept < 1e-8


@pytest.mark.parametrize(
    ("formula", "lost"),
    [
        ("neg(%X[i0])", 1e-40),
        ("abs(%X[i0])", 1e-40),
        ("max(%X[i0], -1.0)", 1e-40),
        ("ceil(%X[i0])", 1),
        ("sign(%X[i0])", 1),
        ("select(gt(%X[i0], 0.0), %X[i0], 0.0)", 1e-40),
        ("select(eq(%X[i0], 0.0), 7.0, 9.0)", 2),
        ("select(cast(%X[i0], bool), 7.0, 9.0)", 2),
        ("select(lt(%X[i0], 2e-40), 7.0, 9.0)", 2),
        ("select(eq(cast(%X[i0], f64), cast(0.0, f64)), 7.0, 9.0)", 2),
        ("mod(%X[i0], 3.0)", 1e-40),
    ],
)
def test_what_computes_with_a_denormal_or_compares_it_may_take_it_for_zero(
    formula: str, lost: float
) -> None:
    flushed, other = bound(formula, f32(1e-40, 0.75))
    assert lost * 0.999 <= flushed <= lost * 1.001 + 2.0**-125
    assert other <= 2.0**-125
    assert bound(formula, f32(1e-40, 0.75), floats=KEEPS) == [0, 0]
    # Where no input is a denormal, nothing is lost either.
    assert bound(formula, f32(1.0, 0.75))[1] <= 2.0**-125


def test_what_moves_or_does_not_choose_a_denormal_keeps_it() -> None:
    for formula in ("%X[i0]", "select(lt(%Y[i0], 1.0), %X[i0], 0.0)", "max(%X[i0], 1.0)",
                    "select(lt(%X[i0], 3.0), %X[i0], %Y[i0])"):  # fmt: skip
        assert bound(formula, f32(1e-40, -1e-40), y=f32(0.5, 0.5)) == [0, 0], formula
    function = ir.parse("func @f(%X: f16[1]) -> (%Z) {\n  %Z: f16[i0 < 1] = neg(%X[i0])\n}")
    # FLOAT16 keeps its denormals everywhere: they are none of FLOAT32.
    assert bound_errors(function, {"X": np.array([1e-7], np.float16)})["Z"] == [0]


def test_a_result_may_be_zero_in_place_of_a_denormal() -> None:
    x, y = f32(1e-20), f32(1e-20)
    assert bound("mul(%X[i0], %Y[i0])", x, y=y)[0] >= 1e-40
    assert bound("mul(%X[i0], %Y[i0])", x, y=y, floats=KEEPS)[0] < 1e-44
    x, y = f32(2.0**-120 + 2.0**-140), f32(2.0**-120)
    assert bound("mod(%X[i0], %Y[i0])", x, y=y)[0] >= 2.0**-140
    assert bound("mod(%X[i0], %Y[i0])", x, y=y, floats=KEEPS) == [0]


@pytest.mark.parametrize(
    ("combiner", "row", "lost"),
    [
        ("max", (1e-40, 2e-40, -3.0), 2e-40),
        ("max", (1e-40, 2e-40, 3.0), 0),
        ("max", (0.0, -1.0, -2.0), 0),
        ("min", (1e-40, 2e-40, -3.0), 0),
        ("min", (1e-40, 2e-40, 3.0), 1e-40),
        ("argmax", (1e-40, 2e-40, -3.0), math.inf),
        ("argmax", (1e-40, 2e-40, 3.0), 0),
        ("argmin", (0.0, -1e-40, 2.0), math.inf),
        ("argmin", (0.0, -1e-40, -2.0), 0),
    ],
)
def test_denormals_may_be_as_large_as_each_other_where_one_is_chosen(
    combiner: str, row: tuple[float, ...], lost: float
) -> None:
    result = "u32" if "arg" in combiner else "f32"
    function = ir.parse(
        f"func @f(%X: f32[3]) -> (%Z) {{\n  %Z: {result}[] = {combiner}[r0 < 3] %X[r0]\n}}"
    )
    found = float(bound_errors(function, {"X": f32(*row)})["Z"])
    assert found == lost if lost in (0, math.inf) else lost * 0.999 < found < 2.0**-124
    assert bound_errors(function, {"X": f32(*row)}, KEEPS)["Z"] == 0


def test_a_sum_of_denormals_may_be_zero() -> None:
    function = ir.parse("func @f(%X: f32[4]) -> (%Z) {\n  %Z: f32[] = sum[r0 < 4] %X[r0]\n}")
    x = f32(1e-39, 1e-39, 1e-39, 1e-39)
    assert bound_errors(function, {"X": x})["Z"] >= 4e-39
    assert bound_errors(function, {"X": x}, KEEPS)["Z"] < 1e-44


def test_quotients_are_as_near_as_a_device_promises() -> None:
    correct = FloatPromises(single=Division(CORRECT, CORRECT), double=Division(CORRECT, CORRECT))
    for formula in ("div(1.0, %X[i0])", "sqrt(%X[i0])"):
        (promised,), (least,) = (bound(formula, f32(3.0), floats=f) for f in (correct, LEAST))
        # Half a unit for each rounding, of the device and of the reference, and the stored result.
        exact = 1 / 3 if "div" in formula else math.sqrt(3)
        assert promised == pytest.approx(2 * EPSILON * exact)
        assert least == pytest.approx((4 if "div" in formula else 6) * EPSILON * exact)


def test_nothing_reduced_is_exact() -> None:
    assert reduce("sum", f32()) == 0
    assert reduce("max", f32(), "mul(%X[r0], %X[r0])") == 0


def test_errors_go_from_stage_to_stage() -> None:
    function = ir.parse(
        "func @f(%X: f32[4, 3]) -> (%Z) {\n"
        "  %m: f32[i0 < 4, i1 < 1] = sum[r1 < 3] %X[i0, r1]\n"
        "  %Z: f32[i0 < 4, i1 < 3] = sub(%X[i0, i1], %m[i0, 0])\n}"
    )
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = bound_errors(function, {"X": x})["Z"]
    assert found.shape == (4, 3)
    assert np.all(found > 3 * EPSILON * x.sum(axis=1, keepdims=True) * 0.9)
    assert np.all(found < 12 * EPSILON * x.sum(axis=1, keepdims=True) + 1e-6)


def test_a_divisor_on_either_side_of_zero_says_nothing() -> None:
    formula = "div(%X[i0], sub(add(%Y[i0], 1.0), 1.0))"
    across, apart = bound(formula, f32(1, 1), y=f32(1e-7, 1))
    assert across == math.inf
    assert apart < 1e-5
    # One that is 0 exactly divides alike everywhere.
    assert bound("div(%X[i0], abs(%Y[i0]))", f32(1), y=f32(0)) == [0]


def find_quotients(x: Array, y: Array) -> tuple[float, float]:
    """The sum of x * y / r^2, r being the sum of x, and its bound."""
    function = ir.parse(
        f"func @f(%X: f32[{len(x)}], %Y: f32[{len(x)}]) -> (%Z) {{\n"
        f"  %r: f32[i0 < 1] = sum[r1 < {len(x)}] abs(%X[r1])\n"
        f"  %Z: f32[i0 < 1] = sum[r1 < {len(x)}]\n"
        "    mul(div(%X[r1], %r[0]), div(%Y[r1], %r[0]))\n}"
    )
    inputs = {"X": x, "Y": y}
    return evaluate(function, inputs)["Z"].item(), bound_errors(function, inputs)["Z"].item()


def test_what_overflows_once_a_factor_has_left_its_sum_is_not_known() -> None:
    # Each quotient is small, and the products of what they divide are beyond float32.
    value, allowed = find_quotients(f32(2e30, 1e30), f32(1e30, 1e20))
    assert 0 < value < 1
    assert allowed == math.inf
    value, allowed = find_quotients(f32(2e18, 1e18), f32(1e18, 1e18))
    assert allowed < 1e-5 * value


def test_what_vanishes_once_a_factor_has_left_its_sum_may_be_lost() -> None:
    value, allowed = find_quotients(f32(1e-22, 0), f32(1e-22, 0))
    assert value == pytest.approx(1)
    assert allowed >= 1
    assert find_quotients(f32(1e-15, 0), f32(1e-15, 0))[1] < 1e-4


@pytest.mark.parametrize(
    "formula",
    [
        "div(sub(mul(%X[i0], %Y[i0]), %X[i0]), add(%Y[i0], 1.5))",
        "sqrt(abs(sub(mul(%X[i0], %X[i0]), %Y[i0])))",
        "tanh(add(exp(%X[i0]), mul(%Y[i0], -3.0)))",
        "select(gt(add(%X[i0], %Y[i0]), 0.0), div(1.0, %X[i0]), mul(%X[i0], %Y[i0]))",
    ],
)
def test_a_device_keeps_to_the_bound_and_the_bound_to_its_purpose(formula: str) -> None:
    text = "func @f(%X: f32[n], %Y: f32[n]) -> (%Z) {\n  %Z: f32[i0 < n] = "
    function = ir.parse(f"{text}{formula}\n}}")
    x, y = np.random.default_rng(5).standard_normal((2, 100_000)).astype(np.float32)
    inputs = {"X": x, "Y": y}
    found = opencl.load(compile(function, "opencl"))(inputs)["Z"].astype(np.float64)
    expected = evaluate(function, inputs)["Z"].astype(np.float64)
    allowed = bound_errors(function, inputs)["Z"]
    assert np.all(np.abs(found - expected) <= allowed)
    assert np.median(allowed / np.abs(expected)) < 5e-5, "nobody is served by a bound this wide"


def test_what_a_table_holds_is_exact() -> None:
    function = ir.parse("""func @f(%X: f32[3]) -> (%Y, %Z) {
      table %t: f32[3] = {1.0, 0.5, 0.25}
      %Y: f32[i0 < 3] = %t[i0]
      %Z: f32[i0 < 3] = mul(%t[i0], %X[i0])
    }""")
    found = bound_errors(function, {"X": f32(1, 2, 3)})
    assert found["Y"].tolist() == [0, 0, 0]
    np.testing.assert_allclose(found["Z"], 2 * EPSILON * np.array([1, 1, 0.75]), 1e-6)
