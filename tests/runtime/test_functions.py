"""Every transcendental function of the language, swept over a million inputs and the special
values: on Vulkan the bits of its definition, on OpenCL what the OpenCL specification promises."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen import float32
from dmlc.pipeline import compile
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import OPERATIONS, Array
from tests.functions import TRANSCENDENTAL, error_in_ulp, make_arguments, reference

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
    with np.errstate(all="ignore"):
        expected = getattr(float32, name)(*given.values())
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
