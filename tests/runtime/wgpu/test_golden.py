"""Every golden WGSL kernel on a WebGPU device."""

from __future__ import annotations

import pytest

from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import wgpu
from dmlc.source import UnsupportedError
from tests.goldens import CASES, find_wrong, make_inputs, read_case

REFUSED = {"doubles", "literal_zeros"}
"""Cases of types that WGSL has not got."""


@pytest.mark.parametrize("case", [case for case in CASES if case not in REFUSED])
def test_golden_kernel(case: str) -> None:
    function = read_case(case)
    executable = wgpu.load(compile(function, "wgsl"))
    for count in (1, 1000, 33001) if function.symbols() else (1,):
        inputs = make_inputs(function, count)
        assert find_wrong(case, executable(inputs), evaluate(function, inputs)) == []


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_the_others_are_refused(case: str) -> None:
    with pytest.raises(UnsupportedError, match="WGSL"):
        compile(read_case(case), "wgsl")
