"""The portable elementary functions: their error against float64, and their translation."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest

from dmlc.codegen import float32
from dmlc.codegen.translate import PREFIX, float_literal, translate
from dmlc.source import InternalError
from tests.functions import TRANSCENDENTAL, error_in_ulp, make_arguments, reference

BOUNDS = {"pow": 4.0}
"""Units in the last place; 2 where nothing else is said."""


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_error_stays_within_two_units_in_the_last_place(name: str) -> None:
    given = make_arguments(name, 100_000 if name == "erf" else 400_000)
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
        "    precise float value = 1.0f + (r + p);\n"
        "    precise float y = portable_scale(value, int(k));\n"
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
