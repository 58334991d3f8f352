"""Programs that reduce rows and columns in one pass: right on every device, and the same bits each
time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests.crossing import KINDS, ROWS
from tests.reductions import make_inputs

TARGETS = {"gpu": ("opencl", "gpu"), "vulkan": ("hlsl", "gpu")}

CASES = [
    *((device, name, KINDS[0]) for device in ("gpu", "vulkan") for name in ROWS),
    *(("vulkan", "halves", kind) for kind in KINDS[1:]),
    *(("gpu", "heads", kind) for kind in KINDS[1:]),
]


def load(program: Program) -> Callable[[dict[str, Array]], dict[str, Array]]:
    return (opencl if program.target == "opencl" else vulkan).load(program)


@pytest.mark.grid(3)
@pytest.mark.parametrize(("device", "name", "kind"), CASES)
def test_rows_and_columns_are_reduced_in_one_pass(device: str, name: str, kind: str) -> None:
    function = ROWS[name].make(kind)
    program = compile(function, *TARGETS[device])
    assert len(program.kernels) == 2
    inputs = make_inputs(function)
    run = load(program)
    found, again = run(inputs), run(inputs)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for result, values in found.items():
        expected = wanted[result].astype(np.float64)
        near = np.abs(values.astype(np.float64) - expected) <= allowed[result]
        assert near.all(), f"{result}: {values[~near][0]} where {expected[~near][0]} must be"
        assert values.tobytes() == again[result].tobytes()
