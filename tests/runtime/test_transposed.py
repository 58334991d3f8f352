"""What lies across goes through shared tiles: the same bits on every device, in every run."""

from __future__ import annotations

from hypothesis import example, given, settings

from dmlc.pipeline import compile
from dmlc.runtime import opencl, vulkan
from tests.reductions import make_inputs
from tests.transposed import Transposed, draw_transposed

WAYS = (("opencl", "gpu", opencl.load), ("hlsl", "gpu", vulkan.load))


@settings(deadline=None, max_examples=12)
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
