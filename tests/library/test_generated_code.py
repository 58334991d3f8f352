"""What the code of every operator is made of, for devices that no test here runs on."""

from __future__ import annotations

import re

import pytest

from dmlc import library
from tests.library_programs import find_compiled, find_shaders, list_signed

_UNSIGNED = re.compile(r"\b(uint|ulong|u32)\d*\b.*%")


@pytest.mark.parametrize("name", library.names())
def test_no_remainder_is_of_what_may_be_negative(name: str) -> None:
    """HLSL and Vulkan leave those undefined, and NVIDIA takes the numbers for unsigned."""
    assert [found for found in map(list_signed, find_shaders(name)) if found] == []
    for target in ("opencl", "wgsl"):
        compiled = find_compiled(name, "opencl")
        if compiled is not None and any(kernel.index_signed for kernel in compiled[1]):
            compiled = find_compiled(name, target)
        if compiled is None:
            continue
        for made, kernel in zip(compiled[0].kernels, compiled[1], strict=True):
            body = made.source.partition(f" {made.entry_point}(")[2]
            divided = [line for line in body.splitlines() if "%" in line.split("//")[0]]
            if kernel.index_signed:
                assert [line for line in divided if not _UNSIGNED.search(line)] == []


@pytest.mark.parametrize("name", library.names())
def test_no_opencl_kernel_asks_for_halves(name: str) -> None:
    """NVIDIA's OpenCL has no `cl_khr_fp16`: halves are loaded and stored, and floats computed
    with."""
    compiled = find_compiled(name, "opencl")
    assert compiled is not None
    for kernel in compiled[0].kernels:
        code = re.sub(r"//.*", "", kernel.source)
        assert "cl_khr_fp16" not in code
        # What is declared is where they lie: not one of them, and no vector.
        assert not re.search(r"\bhalf\d*\b(?! *\*)", code)
