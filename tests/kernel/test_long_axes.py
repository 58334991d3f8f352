"""What a compile takes does not grow with the length of an axis."""

from __future__ import annotations

import tracemalloc

import pytest

from dmlc import ir
from dmlc.pipeline import compile

FUNCTIONS = {
    "one-hot": "func @f(%a: f32[4]) -> (%y) {\n"
    "  %y: f32[i0 < 4, i1 < 1000000000] = cast(eq(cast(%a[i0], index), i1), f32)\n}",
    "step": "func @f(%a: f32[2000000001]) -> (%y) {\n"
    "  %y: f32[i0 < 1000000000] = %a[add(mul(i0, 2), 1)]\n}",
    "far": "func @f(%a: f32[2000000000001]) -> (%y) {\n"
    "  %y: f32[i0 < 1000000000000] = %a[add(mul(i0, 2), 1)]\n}",
}


@pytest.mark.parametrize("text", FUNCTIONS.values(), ids=FUNCTIONS)
def test_memory_of_a_compile(text: str) -> None:
    """Each place along the axis was looked at: they took 15 GB and more."""
    function = ir.parse(text)
    tracemalloc.start()
    compile(function, "opencl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20
