"""Verbs of schedules: whatever they make of a nest computes what the naive one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.verify import verify_kernel
from dmlc.reference import evaluate
from tests.kernel.schedules import FOLDS, FUNCTIONS, STEPS, Step, follow, read, start

SIZES = st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 21))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(SIZES, st.sampled_from(FOLDS), st.lists(STEPS, min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=240, deadline=None, suppress_health_check=list(HealthCheck))
def test_legal_verbs_change_no_result(
    name: str, sizes: tuple[int, int, int], fold: str, steps: list[list[Step]], seed: int
) -> None:
    kernels = read(name, sizes, fold)
    inputs = kernels.inputs(seed)
    wanted = evaluate(kernels.function, inputs)
    nests = start(kernels)
    verbs: list[str] = []
    for number, nest in enumerate(nests):
        nests[number], done = follow(nest, steps[number % len(steps)])
        verbs += done
    made = kernels.lower(nests)
    for kernel in made:
        verify_kernel(kernel, " and ".join(verbs))
    got = run_kernels(kernels.function, made, inputs)
    for result, values in wanted.items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))
