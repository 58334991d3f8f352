"""Kernels that compute softmax-weighted sums online, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests.attention import ONLINE, Attention

PROFILES = "cpu", "gpu"


def hold(function: ir.Function, inputs: dict[str, Array], found: dict[str, Array]) -> None:
    """Holds results to the reference's: within the bounds, NaN and infinities in place."""
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in found.items():
        got, expected = (v.astype(np.float64) for v in (values, wanted[name]))
        with np.errstate(invalid="ignore"):
            same = (np.abs(got - expected) <= allowed[name]) | (got == expected)
        same |= np.isnan(got) & np.isnan(expected)
        assert same.all(), name


def check(attention: Attention, profile: str, inputs: dict[str, Array] | None = None) -> None:
    function, inputs = attention.make(), inputs or attention.fill()
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    assert len(kernels) == 1
    hold(function, inputs, run_kernels(fused, kernels, inputs, misaligned=1))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "attention",
    [
        Attention(17, 33, mask="causal"),
        Attention(9, 16, batch=2, mask="lengths", heads=1),
        Attention(16, 40, mask="bias", heads=1, last=True),
        Attention(33, 17, mask="flags", heads=1, dtype="f16"),
        Attention(8, 24, mask="rows", heads=1, value_size=40, also="sum largest"),
    ],
    ids=str,
)
def test_in_the_interpreter(attention: Attention, profile: str) -> None:
    check(attention, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_scores_that_are_no_numbers(profile: str) -> None:
    """Rows whose first keys, last keys, or all of them are left out; NaN, and infinities."""
    attention = Attention(16, 24, heads=1, mask="bias")
    inputs = attention.fill()
    bias = inputs["B"]
    bias[0], bias[1, 8:], bias[2, :20] = -np.inf, -np.inf, -np.inf
    bias[3, 0], bias[4, 23] = np.nan, np.nan
    bias[5, 0], bias[6, 23] = np.inf, np.inf
    bias[7], bias[8, ::2] = np.inf, -np.inf
    inputs["V"][0, 0, 3] = np.inf
    inputs["V"][0, 0, 5, :4] = np.nan
    check(attention, profile, inputs)
