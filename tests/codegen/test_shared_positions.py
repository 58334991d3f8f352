"""Reductions that depend on positions and are shared out as others are: what they compute.

Whole numbers that stay small make every sum exact, whatever its order, so that both profiles must
agree with the reference to the bit.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from tests import positions
from tests.cover import cover
from tests.opencl_launch import run_program
from tests.shared_positions import FUNCTIONS, read

PROFILES = ("cpu", "gpu")


def check(function: ir.Function, profile: str) -> None:
    inputs = positions.make_inputs(function)
    wanted = evaluate(function, inputs)
    program = compile(function, "opencl", profile)
    got = run_program(program, inputs, misaligned=1)
    assert positions.find_differences(got, wanted) == []
    again = run_program(program, inputs)
    assert all(got[name].tobytes() == again[name].tobytes() for name in got)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kind(name: str, profile: str) -> None:
    check(read(name, 41, 937, 5), profile)


@pytest.mark.parametrize(
    ("name", "dtype", "profile"),
    cover(
        2,
        ("label", "columns", "window", "extremes", "first_of_most"),
        ("f64", "s64", "s32", "f16", "bf16"),
        PROFILES,
    ),
)
def test_types(name: str, dtype: str, profile: str) -> None:
    check(read(name, 9, 131, 20, dtype), profile)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.integers(1, 40),
    st.sampled_from([1, 2, 15, 16, 17, 64, 100, 333, 2000]),
    st.sampled_from([1, 2, 3, 16, 40]),
    st.sampled_from(PROFILES),
)
def test_any_sizes(name: str, a: int, b: int, c: int, profile: str) -> None:
    check(read(name, a, b, c), profile)


@pytest.mark.parametrize("name", ["label", "groups", "window", "first_of_most", "far_positions"])
def test_shaders(name: str) -> None:
    function = read(name, 41, 937, 5)
    inputs = positions.make_inputs(function)
    got = dmlc.run(function, inputs, device="vulkan")
    assert positions.find_differences(got, evaluate(function, inputs)) == []
