"""What lies across goes through shared tiles: the same bits on every device, in every run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings

from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.testing.bounds import bound_errors
from tests.reductions import make_inputs
from tests.transposed import Transposed, draw_transposed, reduce_both_ways

WAYS = (("opencl", "gpu", opencl.load), ("hlsl", "gpu", vulkan.load))


@settings(deadline=None, max_examples=8)
@given(work=draw_transposed())
@example(work=Transposed(64, 96, 2, along=1))
@example(work=Transposed(130, 70, 3, across=2, dtype="f16", stored="f16"))
@example(work=Transposed(1000, 1030, along=1, stored="bf16"))
@example(work=Transposed(2048, 1024, dtype="f16", stored="f16"))
@example(work=Transposed(40, 130, 2, across=2, along=2, turned=True))
@example(work=Transposed(64, 70, shifted=True))
def test_tiles_give_the_same_bits_on_every_device(work: Transposed) -> None:
    function = work.make()
    inputs = make_inputs(function)
    wanted = opencl.load(compile(function, "opencl", "cpu"))(inputs)
    for target, profile, load in WAYS:
        loaded = load(compile(function, target, profile))
        for _ in range(2):
            for name, values in loaded(inputs).items():
                assert values.tobytes() == wanted[name].tobytes(), (target, name)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [(40, 70), (300, 8), (512, 4100)])
def test_reductions_of_what_lies_both_ways(sizes: tuple[int, int], dtype: str) -> None:
    function = reduce_both_ways(*sizes, dtype)
    inputs = make_inputs(function)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    made: list[bytes] = []
    for target, profile, load in WAYS:
        found = load(compile(function, target, profile))(inputs)["y"]
        apart = np.abs(found.astype(np.float64) - wanted["y"].astype(np.float64))
        assert (apart <= allowed["y"]).all()
        made.append(found.tobytes())
    assert made[0] == made[1]
