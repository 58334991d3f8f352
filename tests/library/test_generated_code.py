"""What the code of every operator is made of, for devices that no test here runs on."""

from __future__ import annotations

import re

import pytest

from dmlc import library
from tests.library_programs import find_compiled, find_shaders, list_signed

_UNSIGNED = re.compile(r"\b(uint|ulong|u32)\d*\b.*%")


@pytest.fixture(scope="module", params=library.names())
def name(request: pytest.FixtureRequest) -> str:
    """The name of an operator: all tests of one run before the next, which compiles it once."""
    return request.param


@pytest.mark.grid(3)
def test_no_shader_has_a_signed_remainder(name: str) -> None:
    """HLSL and Vulkan leave those of negative numbers undefined, and NVIDIA takes these for
    unsigned."""
    assert [found for found in map(list_signed, find_shaders(name)) if found] == []


@pytest.mark.grid(2)
@pytest.mark.parametrize("target", ["opencl", "wgsl"])
def test_no_remainder_is_of_positions_that_may_be_negative(name: str, target: str) -> None:
    compiled = find_compiled(name, target)
    for made, kernel in zip(*compiled, strict=True) if compiled else ():
        body = made.source.partition(f" {made.entry_point}(")[2]
        divided = [line for line in body.splitlines() if "%" in line.split("//")[0]]
        if kernel.index_signed:
            assert [line for line in divided if not _UNSIGNED.search(line)] == []


def test_no_opencl_kernel_asks_for_halves(name: str) -> None:
    """NVIDIA's OpenCL has no `cl_khr_fp16`: halves are loaded and stored, and floats computed
    with."""
    compiled = find_compiled(name, "opencl")
    assert compiled is not None
    for kernel in compiled[0]:
        code = re.sub(r"//.*", "", kernel.source)
        assert "cl_khr_fp16" not in code
        # What is declared is where they lie: not one of them, and no vector.
        assert not re.search(r"\bhalf\d*\b(?! *\*)", code)


@pytest.mark.grid(3)
def test_spirv_asks_to_keep_nan_and_signed_zeros_of_each_of_its_floats(name: str) -> None:
    """Without these execution modes a driver may ignore NaN: NVIDIA's makes a minimum of
    `x <= y ? x : y` that drops it."""
    for shader in find_shaders(name):
        facts = shader.facts
        asked = [width for mode, width in facts.float_modes if mode == "SignedZeroInfNanPreserve"]
        assert tuple(asked) == facts.float_widths


def test_most_operators_compute_with_floats() -> None:
    some = [find_shaders(f"directml.{name}") for name in ("ACTIVATION_RELU", "GEMM", "REDUCE")]
    assert all(shader.facts.float_modes for shaders in some for shader in shaders)
    assert all(some)
