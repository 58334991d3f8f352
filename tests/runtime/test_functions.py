"""Every transcendental function of the language, swept over a million inputs and the special
values: on Vulkan the bits of its definition, on OpenCL what the OpenCL specification promises."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.trace import FUNCTIONS, write_out
from dmlc.pipeline import compile
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import OPERATIONS, Array
from dmlc.scalars.two_floats import with_sign_of
from tests.functions import (
    SPECIAL,
    TRANSCENDENTAL,
    error_in_ulp,
    make_arguments,
    reference,
)

COUNT = 600_000
"""Of random bit patterns; ranges of interest bring it over a million."""

OPENCL_BOUNDS = {
    "exp": 3, "exp2": 3, "expm1": 3, "log": 3, "log2": 3, "log1p": 2, "pow": 16, "sin": 4,
    "cos": 4, "tan": 5, "asin": 4, "acos": 4, "atan": 5, "atan2": 6, "sinh": 4, "cosh": 4,
    "tanh": 5, "asinh": 4, "acosh": 4, "atanh": 5, "erf": 16, "rsqrt": 2,
    # 1 / (1 + exp(-x)): exp's 3, and half a unit for each of the two operations, each of which
    # can land in a binade where that counts double.
    "sigmoid": 8,
}  # fmt: skip
"""Units in the last place that the OpenCL specification allows in its full profile."""


def make_function(name: str) -> ir.Function:
    operands = "AB"[: OPERATIONS[name].arity]
    parameters = ", ".join(f"%{o}: f32[n]" for o in operands)
    loads = ", ".join(f"%{o}[i0]" for o in operands)
    return ir.parse(f"func @f({parameters}) -> (%Y) {{\n  %Y: f32[i0 < n] = {name}({loads})\n}}")


@functools.cache
def arguments(name: str) -> dict[str, Array]:
    return dict(zip("AB", make_arguments(name, COUNT), strict=False))


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_vulkan_gives_the_bits_of_the_definition(name: str) -> None:
    given = arguments(name)
    actual = vulkan.load(compile(make_function(name), "hlsl"))(given)["Y"]
    expected = FUNCTIONS[name].evaluate(*given.values())
    assert len(actual) >= 1_000_000
    same = actual.view(np.uint32) == expected.view(np.uint32)
    same |= np.isnan(actual) & np.isnan(expected)
    assert same.all(), [array[~same][:5] for array in (*given.values(), actual, expected)]


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_opencl_keeps_to_its_specification(name: str) -> None:
    given = arguments(name)
    actual = opencl.load(compile(make_function(name), "opencl"))(given)["Y"]
    with np.errstate(all="ignore"):
        expected = reference(name)(*(array.astype(np.float64) for array in given.values()))
        error = error_in_ulp(actual, expected)
    worst = int(np.argmax(error))
    assert error[worst] <= OPENCL_BOUNDS[name], (
        error[worst],
        [array[worst] for array in (*given.values(), actual)],
        expected[worst],
    )


WRITTEN_OUT = ("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid")
"""Those that dmlc writes out for processors."""


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_opencl_gives_the_same_bits_at_every_position(name: str) -> None:
    """What is left beside the vectors is computed one by one."""
    sample = np.concatenate([make_arguments(name, 4_000)[0], SPECIAL])
    values = np.append(sample[: len(sample) // 16 * 16], sample[:15])
    run = opencl.load(compile(make_function(name), "opencl"))
    whole, turned = (run({"A": x})["Y"] for x in (values, np.roll(values, 7)))
    same = np.roll(whole, 7).view(np.uint32) == turned.view(np.uint32)
    assert (same | np.isnan(turned)).all()


@pytest.mark.parametrize(("name", "first", "last"), [("tanh", 8.99, 9.03), ("erf", 3.8, 3.95)])
def test_opencl_reaches_limits_where_they_are_nearest(name: str, first: float, last: float) -> None:
    """Every number around the place where the result becomes 1."""
    low, high = np.array([first, last], np.float32).view(np.int32)
    x = np.arange(low, high, dtype=np.int32).view(np.float32)
    found = opencl.load(compile(make_function(name), "opencl"))({"A": x})["Y"]
    reached = reference(name)(x.astype(np.float64)).astype(np.float32) == 1
    assert 0 < reached.sum() < len(x)
    assert (found[reached] == 1).all()
    assert found.max() == 1


SIGNED = ("tanh", "sinh", "asin", "atan", "asinh", "atanh", "erf")
"""Those that give a result the sign of their argument."""

_SWEEP = f"""\
import numpy as np
from dmlc.codegen.trace import FUNCTIONS
from dmlc.pipeline import compile
from dmlc.runtime import vulkan
from tests.functions import SPECIAL
from tests.runtime.test_functions import make_function
for name in {SIGNED}:
    found = vulkan.load(compile(make_function(name), "hlsl"))({{"A": SPECIAL}})["Y"]
    expected = FUNCTIONS[name].evaluate(SPECIAL)
    same = found.view(np.int32) == expected.view(np.int32)
    same |= np.isnan(found) & np.isnan(expected)
    assert same.all(), (name, SPECIAL[~same], found[~same], expected[~same])
"""


def test_signs_are_right_whatever_instructions_the_driver_takes() -> None:
    """Set to nothing, the variable keeps `instructions` from choosing: lavapipe takes AVX-512
    where the processor has it, and puts no sign on by an instruction that LLVM gets wrong."""
    done = subprocess.run(
        [sys.executable, "-c", _SWEEP],
        env=os.environ | {"GALLIUM_OVERRIDE_CPU_CAPS": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_sign_is_put_on_whole() -> None:
    """-0 and NaN have signs too."""
    values = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    y, x = (a.ravel() for a in np.meshgrid(values, values))
    found = write_out(with_sign_of).evaluate(y, x).view(np.uint32)
    assert (found == np.copysign(y, x).view(np.uint32)).all()
