"""The portable elementary functions: their error against float64, and their translation."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

import numpy as np
import pytest

from dmlc.codegen import float32
from dmlc.codegen.translate import PREFIX, float_literal, translate
from dmlc.scalars import OPERATIONS, Array
from dmlc.source import InternalError

TRANSCENDENTAL = [o.name for o in OPERATIONS.values() if o.transcendental]
BOUNDS = {"pow": 4.0}
"""Units in the last place; 2 where nothing else is said."""
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-45, -1e-45,
     1.17549435e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -87.33655, -103.97208, 16384.0,
     8388608.0, 16777216.0, 0.99999994, 1.0000001, -0.99999994, 1e18, 1e-30], np.float32,
)  # fmt: skip


def make_inputs(count: int) -> Array:
    """Random bit patterns, ranges where the functions do most, multiples of pi/2, specials."""
    random = np.random.default_rng(7)
    patterns = random.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    quarter_turns = (np.arange(1, count // 8) * np.pi / 2).astype(np.float32)
    near_one = 1 + random.uniform(-1, 1, count // 8) * 10.0 ** random.uniform(-7, 0, count // 8)
    ranges = [
        random.uniform(-bound, bound, count // 8).astype(np.float32) for bound in (1.2, 10, 110)
    ]
    parts = [
        patterns.view(np.float32), *ranges, quarter_turns, near_one.astype(np.float32),
        np.nextafter(quarter_turns, np.float32(0)), SPECIAL,
    ]  # fmt: skip
    return np.concatenate(parts)


def reference(name: str) -> Callable[..., Array]:
    if name == "sigmoid":
        # Without the cancellation of 1 / (1 + exp(-x)) where that overflows.
        return lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
    return OPERATIONS[name].evaluate


def error_in_ulp(actual: Array, expected: Array) -> Array:
    """The distance from float64 values in units of the last place of float32; infinite where
    NaN, an infinity or the sign of a zero is out of place."""
    rounded = expected.astype(np.float32)
    finite = np.isfinite(rounded)
    unit = np.spacing(np.abs(np.where(finite, rounded, 1)).astype(np.float32)).astype(np.float64)
    error = np.where(finite, np.abs(actual.astype(np.float64) - expected) / unit, 0.0)
    wrong = np.isnan(rounded) != np.isnan(actual)
    wrong |= np.isinf(rounded) & (actual != rounded)
    wrong |= (rounded == 0) & (actual == 0) & (np.signbit(rounded) != np.signbit(actual))
    return np.where(wrong, np.inf, error)


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_error_stays_within_two_units_in_the_last_place(name: str) -> None:
    count = 100_000 if name == "erf" else 400_000
    x = make_inputs(count)
    given = [x]
    if OPERATIONS[name].arity == 2:
        order = np.random.default_rng(3).permutation(len(x))
        grid = np.meshgrid(SPECIAL, SPECIAL)
        powers = np.random.default_rng(4).uniform(-40, 40, len(x)).astype(np.float32)
        given = [
            np.concatenate([x, np.abs(x), grid[0].ravel()]),
            np.concatenate([x[order], powers, grid[1].ravel()]),
        ]
    with np.errstate(all="ignore"):
        actual = getattr(float32, name)(*given)
        expected = reference(name)(*(g.astype(np.float64) for g in given))
        error = error_in_ulp(actual, expected)
    worst = int(np.argmax(error))
    assert actual.dtype == np.float32
    assert error[worst] <= BOUNDS.get(name, 2.0), [g[worst] for g in given]


def test_every_function_is_translated() -> None:
    made = translate()
    for name in TRANSCENDENTAL:
        text = made[PREFIX + name].text
        assert text.splitlines()[-1] == "}"
        declared = [line for line in text.splitlines() if "float " in line and "=" in line]
        assert all("precise float" in line for line in declared), text
    for portable in made.values():
        assert all(needed in made for needed in portable.needs)


def test_functions_stand_after_what_they_need() -> None:
    order = list(translate())
    for portable in translate().values():
        for needed in portable.needs:
            assert order.index(needed) < order.index(portable.name)


def test_the_translation_reads_like_the_original() -> None:
    assert translate()["portable_exp"].text == (
        "float portable_exp(const float x)\n"
        "{\n"
        "    precise float k;\n"
        "    precise float r;\n"
        "    precise float p;\n"
        "    portable_exp_parts(portable_clamp(x, -104.0f, 89.0f), k, r, p);\n"
        "    precise float y = portable_scale(1.0f + (r + p), int(k));\n"
        "    precise float result = isnan(x) ? x : y;\n"
        "    return result;\n"
        "}"
    )


@pytest.mark.parametrize("value", [0.1, 1.0, 1e-45, 3.4028235e38, -0.0, 16777216.0, 1e18])
def test_literals_read_back_equal(value: float) -> None:
    text = float_literal(value)
    assert text.endswith("f")
    assert np.float32(text[:-1]) == np.float32(value)
    assert math.copysign(1, float(text[:-1])) == math.copysign(1, value)


def test_literals_that_are_no_number_are_bits() -> None:
    assert float_literal(math.inf) == "asfloat(0x7f800000)"
    assert float_literal(-math.inf) == "asfloat(0xff800000)"
    assert float_literal(math.nan) == "asfloat(0x7fc00000)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x: Float) -> Float:\n    while x: pass", "not in the language"),
        ("def f(x: Float) -> Float:\n    return x ** 2.0", "not in the language"),
        ("def f(x: Float) -> Float:\n    return print(x)", "not a function of this module"),
        ("def f(x: Float, u: Uint) -> Float:\n    return x + u", "mixed types"),
        ("def f(x: Float) -> Float:\n    y = bits(x)\n    y = x\n    return y", "changes its type"),
        ("def f(x: Float) -> Uint:\n    return x", "is no uint"),
        ("def f(x: Float) -> Float:\n    y, z = select(x, x)\n    return y", "not a function"),
        ("def f(x) -> Float:\n    return x", "has no type"),
    ],
)
def test_what_is_outside_the_language_is_refused(text: str, message: str) -> None:
    from dmlc.codegen.translate import _signature, _Translator

    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    with pytest.raises(InternalError, match=message):
        _Translator(node, {"f": _signature(node)}).translate()
