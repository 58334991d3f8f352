"""Arrays that do not begin where a kernel's vectors do: GPUs' kernels move 16 bytes at once."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.runtime.opencl.device import Memory
from dmlc.runtime.opencl.direct import is_direct
from dmlc.scalars import Array

COUNT = 9000
"""A whole group's elements, and some of another's."""


def read(data_type: str) -> ir.Function:
    return ir.parse(
        f"func @twice(%X: {data_type}[{COUNT}]) -> (%Y) {{\n"
        f"  %Y: {data_type}[i0 < {COUNT}] = add(%X[i0], %X[i0])\n}}"
    )


def place(function: ir.Function, misaligned: int) -> Array:
    """An array that begins so many elements behind a cache line."""
    dtype = function.tensors()["X"].dtype.dtype
    whole = np.zeros(COUNT + 64, dtype)
    start = -whole.ctypes.data % 64 // dtype.itemsize + misaligned
    return whole[start : start + COUNT]


def run(program: Program, function: ir.Function, misaligned: int) -> list[str]:
    """What is said of a run's copies, where its results are right."""
    x, y = (place(function, misaligned) for _ in range(2))
    x[...] = np.arange(COUNT) % 50
    executable = opencl.load(program)
    executable({"X": x}, {"Y": y})
    np.testing.assert_array_equal(y, evaluate(function, {"X": x})["Y"])
    return [str(copy) for copy in executable.last_report.copies]


@pytest.mark.parametrize(("data_type", "step"), [("f32", 4), ("f16", 8), ("s8", 16)])
def test_arrays_that_begin_elsewhere_are_copied(data_type: str, step: int) -> None:
    function = read(data_type)
    program = compile(function, "opencl", "gpu")
    assert program.alignments == {"X": 16, "Y": 16}
    assert run(program, function, step) == []
    reason = "its memory does not begin at a multiple of 16 bytes, as kernels read it"
    assert run(program, function, 1) == [f"{name} was copied: {reason}" for name in "XY"]


def test_vectors_of_a_cpu_lie_anywhere() -> None:
    function = read("f16")
    program = compile(function, "opencl", "cpu")
    assert program.alignments == {}
    assert run(program, function, 1) == []


def test_addresses_that_nothing_is_known_of_need_kernels_that_take_any() -> None:
    (device,) = (d for d in opencl.devices() if d.memory is Memory.SHARED)
    function = read("f32")
    direct = {p: is_direct(compile(function, "opencl", p), device, {}) for p in ("cpu", "gpu")}
    assert direct == {"cpu": True, "gpu": False}


def test_a_manifest_says_where_buffers_begin() -> None:
    (kernel,) = compile(read("f16"), "opencl", "gpu").manifest()["kernels"]
    assert [b["structure_bytes"] for b in kernel["buffers"]] == [16, 16]
