"""Every transcendental function of the language by WebGPU: the bits of its definition."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc.codegen.trace import FUNCTIONS
from dmlc.pipeline import compile
from dmlc.runtime import wgpu
from tests.functions import TRANSCENDENTAL, make_arguments
from tests.runtime.test_functions import make_function

COUNT = 60_000


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_wgpu_gives_the_bits_of_the_definition(name: str) -> None:
    given = dict(zip("AB", make_arguments(name, COUNT), strict=False))
    actual = wgpu.load(compile(make_function(name), "wgsl"))(given)["Y"]
    expected = FUNCTIONS[name].evaluate(*given.values())
    same = actual.view(np.uint32) == expected.view(np.uint32)
    same |= np.isnan(actual) & np.isnan(expected)
    assert same.all(), [array[~same][:5] for array in (*given.values(), actual, expected)]
