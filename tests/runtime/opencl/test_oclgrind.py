"""Kernels under Oclgrind: what it objects to is told by kernel, line and buffer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlc.program import Dispatch, Program
from dmlc.runtime import opencl
from dmlc.runtime.opencl import oclgrind
from dmlc.runtime.opencl.oclgrind import find_objections, read_log
from dmlc.source import DmlcError, UnavailableError
from tests.runtime import handmade

A = {"A": np.arange(8, dtype=np.float32)}

_EXCHANGE = """
__kernel void add_one(__global const float *a, __global float *b)
{
    __local float kept[4];
    kept[get_local_id(0)] = a[get_global_id(0)];
    BARRIER
    b[get_global_id(0)] = kept[3 - get_local_id(0)];
}
"""


def write(source: str, group_size: int = 1) -> Program:
    """A program from A to B, of eight elements each."""
    program = handmade.add_one((8,), None, "i")
    dispatch = Dispatch(8 // group_size, 1, group_size)
    kernel = dataclasses.replace(program.kernels[0], source=source, dispatch=dispatch)
    return dataclasses.replace(program, kernels=(kernel,))


def test_nothing_is_said_of_a_program_that_does_nothing_wrong() -> None:
    given = {"X": np.ones(5000, np.float32), "dY": np.ones(5000, np.float32)}
    assert find_objections(handmade.relu_grad(), given, {}) == []
    assert find_objections(handmade.square_then_double(), A, {}) == []
    assert find_objections(handmade.count_up(), {}, {"A": (4, 3)}) == []
    right = _EXCHANGE.replace("BARRIER", "barrier(CLK_LOCAL_MEM_FENCE);")
    assert find_objections(write(right, 4), A, {}) == []


_SWAP_BITS = """
__kernel void add_one(__global const float *a, __global float *b)
{
    const uint i = (uint)get_local_id(0) % 4;
    b[i % 2 * 2 + i / 2] = a[i];
}
"""


def test_kernels_are_run_as_they_are_written() -> None:
    """Optimized, a position is two bits in reverse: Oclgrind stops at that."""
    assert find_objections(write(_SWAP_BITS, 4), A, {}) == []


def test_accesses_outside_of_a_buffer() -> None:
    (said,) = find_objections(handmade.add_one((8,), None, "i + 1"), A, {})
    assert said == (
        "the kernel add_one, line 5: `b[i] = a[i + 1] + 1;` (A, B): Invalid read of size 4 at "
        "global memory, work item (7,0,0) (said 1 times)"
    )
    (said,) = find_objections(handmade.add_one((8,), None, "i", None, "i + 2"), A, {})
    assert "Invalid write of size 4" in said
    assert said.endswith("(said 2 times)")


def test_a_race_between_work_items() -> None:
    found = find_objections(write(_EXCHANGE.replace("BARRIER", ""), 4), A, {})
    assert any(
        said.startswith(
            "the kernel add_one, line 5: `kept[get_local_id(0)] = a[get_global_id(0)];`, "
            "line 7: `b[get_global_id(0)] = kept[3 - get_local_id(0)];` (A, B): "
            "Read-write data race at local memory, work item "
        )
        for said in found
    )
    assert len(found) == 2


def test_a_program_that_does_not_run_there() -> None:
    with pytest.raises(DmlcError, match="add_one does not run under Oclgrind: Oclgrind"):
        find_objections(handmade.add_one((8,), None, "j"), A, {})
    # The next one does.
    assert find_objections(handmade.add_one((8,), None, "i"), A, {}) == []


def test_a_run_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oclgrind, "SECONDS", 0.0)
    with pytest.raises(DmlcError, match="takes more than 0 seconds"):
        find_objections(handmade.add_one((8,), None, "i"), A, {})
    monkeypatch.undo()
    assert find_objections(handmade.add_one((8,), None, "i"), A, {}) == []


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    oclgrind._simulator.stop()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="Oclgrind is not installed") as caught:
        find_objections(handmade.add_one((8,), None, "i"), A, {})
    assert "apt-get install oclgrind" in str(caught.value)


def test_what_is_no_objection_of_a_known_form_is_told_as_it_stands() -> None:
    program = handmade.add_one((8,), None, "i")
    log = "\nOCLGRIND FATAL ERROR (./src/core/WorkItem.cpp:12)\nUnsupported instruction: x\n\n"
    assert read_log(log, program) == [
        "OCLGRIND FATAL ERROR (./src/core/WorkItem.cpp:12) (said 1 times)",
        "Unsupported instruction: x (said 1 times)",
    ]
    assert read_log("", program) == []


def test_the_runtime_has_it_watch() -> None:
    program = handmade.add_one((8,), None, "i + 1")
    found = opencl.check_accesses(program, opencl.find_device(), A, {})
    assert "Invalid read" in found[0]
