"""Quotients that decide positions are correctly rounded where devices are off in others: by what is
left over, in the functions of HLSL and WGSL, and as the program is built, in OpenCL."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pyopencl
import pytest

from dmlc import ir
from dmlc.codegen import simulate
from dmlc.codegen.spell import prepare_function
from dmlc.codegen.targets import find_dialect
from dmlc.codegen.trace import Definition, write_out
from dmlc.freedoms import Freedom, Taken
from dmlc.kernel.interpret import evaluate_kernel
from dmlc.pipeline import compile
from dmlc.runtime import opencl
from dmlc.scalars import Array, two_floats
from dmlc.scalars.two_floats import LEAST, MOST

SEEDS = range(4)
KINDS = [
    (write_out(two_floats.div_nearest), np.float32, 24),
    (write_out(two_floats.div_nearest_double), np.float64, 53),
]


def divide(function: Definition, a: Array, b: Array, seed: int) -> Array:
    """What a function gives on a device that takes every freedom."""
    dialect = find_dialect("hlsl")
    taken = Taken(seed, frozenset(Freedom), (), 2, 4)
    make = functools.partial(simulate.StrictLaunch, taken=taken, dialect=dialect)
    return evaluate_kernel(prepare_function(dialect, function), (a, b), make)


def find_close_calls(digits: int, count: int) -> tuple[list[int], list[int]]:
    """Numbers of so many binary digits whose quotients lie next to half-way between two such."""
    rng, whole = np.random.default_rng(7), 1 << digits
    numbers: list[int] = []
    divisors: list[int] = []
    while len(numbers) < count:
        divisor = int(rng.integers(whole // 2, whole)) | 1
        rest = int(rng.choice([-3, -1, 1, 3]))
        # An odd number of one digit more, which is half-way, times the divisor: all but `rest` of
        # it is divided by the power of two.
        middle = whole + rest * pow(divisor, -1, whole) % whole
        number = (middle * divisor - rest) // whole
        if number < whole:
            numbers.append(number)
            divisors.append(divisor)
    return numbers, divisors


@pytest.mark.parametrize(("function", "dtype", "digits"), KINDS)
def test_close_calls_are_rounded_correctly(
    function: Definition, dtype: type[np.floating], digits: int
) -> None:
    a, b = (np.array(each, dtype) for each in find_close_calls(digits, 500))
    scaled = a * dtype(2.0**-digits), b * dtype(-(2.0 ** (20 - digits)))
    for seed in SEEDS:
        assert np.array_equal(divide(function, *scaled, seed), scaled[0] / scaled[1])


@pytest.mark.parametrize(("function", "dtype", "digits"), KINDS)
def test_quotients_of_all_sizes(
    function: Definition, dtype: type[np.floating], digits: int
) -> None:
    rng = np.random.default_rng(8)
    a, b = (
        (rng.choice([-1, 1], 4000) * rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-50, 50, 4000))
        .astype(dtype)
        .clip(-MOST, MOST)
        for _ in "ab"
    )
    assert min(abs(a).min(), abs(b).min()) >= LEAST
    rough = simulate.step_away(a / b, np.arange(4000, dtype=np.uint64), 2)
    assert (rough != a / b).mean() > 0.7, "devices may be off in nearly all of them"
    for seed in SEEDS:
        assert np.array_equal(divide(function, a, b, seed), a / b)


@pytest.mark.parametrize(("function", "dtype", "digits"), KINDS)
def test_what_is_no_common_number_is_divided_as_it_is(
    function: Definition, dtype: type[np.floating], digits: int
) -> None:
    a = np.array([0, -0.0, np.inf, 1, -1, np.nan, 1, np.inf, 1e30], dtype)
    b = np.array([3, 3, 2, 0, np.inf, 1, np.nan, np.inf, 1e30], dtype)
    with np.errstate(all="ignore"):
        assert np.array_equal(function.evaluate(a, b), a / b, equal_nan=True)


DIVIDES, OPTION = "DIVIDES_CORRECTLY", "-cl-fp32-correctly-rounded-divide-sqrt"
PLACES = """func @F(%x: f32[97], %w: f32[97]) -> (%y) {
  %y: f32[i0 < 97] = %x[max(min(cast(floor(div(%w[i0], 1.5)), index), 96), 0)]
}"""


@pytest.mark.parametrize("divides_correctly", [True, False])
def test_opencl_divides_as_the_program_is_built(
    divides_correctly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL divides correctly in any case: what is seen is that both ways are right."""
    builds, build = list[list[str]](), pyopencl.Program.build

    def note(self: pyopencl.Program, options: list[str], **given: object) -> object:
        builds.append(options)
        return build(self, options, **given)

    monkeypatch.setattr(pyopencl.Program, "build", note)
    device = dataclasses.replace(opencl.find_device(), divides_correctly=divides_correctly)
    program = compile(ir.parse(PLACES), "opencl")
    x, w = np.arange(97, dtype=np.float32), np.arange(97, dtype=np.float32) * 1.5
    assert np.array_equal(opencl.load_on(program, device)({"x": x, "w": w})["y"], x)
    asked = [DIVIDES in options for options in builds]
    assert asked == [divides_correctly]
    assert [OPTION in options for options in builds] == asked
