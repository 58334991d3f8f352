"""The portable elementary functions: their error against float64, and the kernel IR and the text
that are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from dmlc.codegen.dialect import Dialect
from dmlc.codegen.spell import PREFIX, spell_function
from dmlc.codegen.targets import find_dialect
from dmlc.codegen.trace import FUNCTIONS, Definition, write_out
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.kernel.rewrite import list_operands, walk
from dmlc.kernel.verify import verify_kernel
from dmlc.scalars import DataType
from dmlc.scalars.angles import sin
from dmlc.scalars.expression import Value, bits, define, let, select
from dmlc.scalars.two_floats import at_most, div_nearest, div_nearest_double
from dmlc.source import InternalError
from tests.functions import TRANSCENDENTAL, error_in_ulp, make_arguments, reference

BOUNDS = {"pow": 4.0}
"""Units in the last place; 2 where nothing else is said."""

HLSL = find_dialect("hlsl")
ROUTINES = (div_nearest, div_nearest_double)


def list_functions() -> dict[str, Definition]:
    """The functions of the table, those of quotients, and all that these call, by their names."""
    found = {**FUNCTIONS, **{f.name: f for f in map(write_out, ROUTINES)}}
    pending = list(found.values())
    while pending:
        function = pending.pop().function()
        for expression in (*(step.value for step in function.steps), function.result):
            for part in walk(expression):
                if isinstance(part, k.Operate) and isinstance(part.operation, Definition):
                    called = part.operation
                    if called.name not in found:
                        found[called.name] = called
                        pending.append(called)
                    assert found[called.name] is called, "two functions have one name"
    return found


ALL = list_functions()


def spell(name: str, dialect: Dialect = HLSL) -> str:
    return spell_function(dialect, ALL[name])[PREFIX + name]


def test_every_transcendental_function_of_the_table_is_defined() -> None:
    assert set(FUNCTIONS) == set(TRANSCENDENTAL)


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_error_stays_within_two_units_in_the_last_place(name: str) -> None:
    given = make_arguments(name, 100_000 if name == "erf" else 400_000)
    actual = FUNCTIONS[name].evaluate(*given)
    with np.errstate(all="ignore"):
        expected = reference(name)(*(g.astype(np.float64) for g in given))
        error = error_in_ulp(actual, expected)
    worst = int(np.argmax(error))
    assert actual.dtype == np.float32
    assert error[worst] <= BOUNDS.get(name, 2.0), [g[worst] for g in given]


@pytest.mark.parametrize("name", ALL)
def test_a_function_is_a_kernel_that_verifies(name: str) -> None:
    verify_kernel(ALL[name].function().as_kernel(), "trace")


@pytest.mark.parametrize("name", ALL)
def test_what_a_function_needs_several_times_has_a_name(name: str) -> None:
    """One operation on what has a name may be written again."""
    function = ALL[name].function()
    found: Counter[k.Expression] = Counter()
    for expression in (*(step.value for step in function.steps), function.result):
        found.update(e for e in walk(expression) if any(map(list_operands, list_operands(e))))
    assert [print_expression(e) for e, count in found.items() if count > 1] == []


@pytest.mark.parametrize("name", ALL)
def test_every_float_of_a_function_is_precise(name: str) -> None:
    lines = spell(name).splitlines()
    assert lines[-1] == "}"
    declared = [line for line in lines if line.startswith("    ") and "float " in line]
    assert all(line.startswith("    precise const float ") for line in declared), lines


@pytest.mark.parametrize("target", ["hlsl", "opencl"])
def test_functions_stand_after_what_they_need(target: str) -> None:
    dialect = find_dialect(target)
    for name in TRANSCENDENTAL:
        texts = spell_function(dialect, FUNCTIONS[name])
        for place, text in enumerate(texts.values()):
            later = list(texts)[place + 1 :]
            assert not [other for other in later if f"{other}(" in text], name


def test_a_function_reads_like_its_definition() -> None:
    assert spell("exp") == (
        "float portable_exp(const float x)\n"
        "{\n"
        "    precise const float b = portable_at_least(portable_at_most(x, 89.0f), (-104.0f));\n"
        "    precise const float k = round(b * 1.442695f);\n"
        "    precise const float r = b - k * 0.6933594f - k * (-0.00021219444f);\n"
        "    precise const float c = 0.04166724f + r * (0.008367643f + r * 0.0013863579f);\n"
        "    precise const float p = r * r * (0.5f + r * (0.16666533f + r * c));\n"
        "    precise const float value = 1.0f + (r + p);\n"
        "    precise const float y = portable_scale(value, k);\n"
        "    precise const float result = isnan_float(x) ? x : y;\n"
        "    return result;\n"
        "}"
    )


def test_erf_has_the_exponential_that_formulas_with_it_have() -> None:
    """A compiler finds both alike in the gradient of GELU, and computes one."""
    lines = spell("erf").splitlines()
    assert "    precise const float z = x * x;" in lines
    assert "    precise const float value = -z;" in lines
    assert "    precise const float far = 1.0f - portable_exp(value) * q;" in lines


def test_a_function_says_what_it_computes() -> None:
    assert spell("scale").splitlines()[:2] == [
        "// y * 2^k, for whole k in [-252, 254], rounded once even where it is denormal.",
        "float portable_scale(const float y, const float k)",
    ]
    assert "    const uint half_ = both >> 1u;" in spell("scale")


def test_bits_are_hexadecimal_and_shifts_by_numbers_plain() -> None:
    assert "asfloat(asuint(a) & 0xfffff000u)" in spell("product_tail")
    assert "asfloat(half_ << 23u)" in spell("scale")


def test_the_same_definition_in_another_language() -> None:
    assert spell("with_sign_of", find_dialect("opencl")) == (
        "// |y| with the sign of x, -0 and NaN included.\n"
        "static float portable_with_sign_of(const float y, const float x)\n"
        "{\n"
        "    const float result = (as_int(x) < 0) ? (-fabs(y)) : fabs(y);\n"
        "    return result;\n"
        "}"
    )


# The tracer -----------------------------------------------------------------------------------


def test_a_call_evaluates_the_function_that_is_called() -> None:
    double = define(lambda x: x + x)
    power = write_out(define(lambda x: let(y=double(x)) * 2.0))
    values = np.array([[1.5, -0.0], [np.inf, np.nan]], np.float32)
    np.testing.assert_array_equal(power.evaluate(values), values * 4)
    assert len(power.function().steps) == 1


def test_numbers_take_the_type_of_what_they_meet() -> None:
    shifted = write_out(define(lambda u: (1 - u << 3) & ~(u | 5) | 7 - u, DataType.UINT32))
    values = np.array([0, 1, 77, 0xFFFFFFFF], np.uint32)
    with np.errstate(all="ignore"):
        expected = ((1 - values) << np.uint32(3)) & ~(values | 5) | (7 - values)
    found = shifted.evaluate(values)
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, expected)


def test_names_that_are_taken_get_a_number() -> None:
    made = write_out(define(lambda x: let(x=let(x=x + 1.0) * x) - x))
    text = spell_function(HLSL, made)[PREFIX + "<lambda>"]
    assert [line.split(" = ")[0].split()[-1] for line in text.splitlines() if " = " in line] == [
        "x_1",
        "x_2",
        "result",
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x + bits(x), "u32 stands where f32 must"),
        (lambda x: bits(x), "u32 stands where f32 must"),
        (lambda x: select(x.equals(0.0), x, bits(x)), "u32 stands where f32 must"),
        (lambda x: x << 3, "shift_left takes no 2 f32"),
        (lambda x: ~x, "bit_not takes no 1 f32"),
        (lambda x: at_most(x), "at_most takes no 1 f32"),
        (lambda x: sin(bits(x)).cast(DataType.FLOAT32), "sin takes no 1 u32"),
    ],
)
def test_what_has_no_type_is_refused(function: Callable[[Value], Value], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        write_out(define(function)).function()
