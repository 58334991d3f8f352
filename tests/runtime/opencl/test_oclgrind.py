"""Kernels under Oclgrind: what it objects to is told by kernel, line and buffer.

Everything is tested with Oclgrind itself where it is installed, and everywhere with a program that
stands in for it: that runs kernels on this machine's own driver, or, of those that no driver may
run, says what Oclgrind 21.10 says of them.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from dmlc.program import Dispatch, Program
from dmlc.runtime import opencl
from dmlc.runtime.opencl import oclgrind
from dmlc.runtime.opencl.oclgrind import find_objections, find_oclgrind, read_log
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

_STAND_IN = """#!{python}
import os, pickle, sys
options, log, command = sys.argv[1:3], sys.argv[3], sys.argv[4:]
assert options == ["--data-races", "--log"], options
said = os.environ.get("STAND_IN_SAYS")
if said is None:
    os.execv(command[0], command)
pickle.load(sys.stdin.buffer)
if said:
    pickle.dump((said, ""), sys.stdout.buffer)
"""

_ACCESS = """
Invalid {kind} of size 4 at global memory address 0x2000000000020
\tKernel: add_one
\tEntity: Global({item},0,0) Local(0,0,0) Group({item},0,0)
\t  %2 = load float, float addrspace(1)* %arrayidx, align 4, !dbg !27
\tAt line 5 (column 12) of input.cl:
\t  (source not available)
\t
"""
_READ = _ACCESS.format(kind="read", item=7)
_WRITES = "".join(_ACCESS.format(kind="write", item=item) for item in (6, 7))
_RACE = """
Read-write data race at local memory address 0x100000000000{place}
\tKernel: add_one
\t
\tFirst entity:  Global({first},0,0) Local({first},0,0) Group(0,0,0)
\t  %2 = load float, float addrspace(3)* %arrayidx4, align 4, !dbg !37
\tAt line {one} (column 27) of input.cl:
\t  (source not available)
\t
\tSecond entity: Global({second},0,0) Local({second},0,0) Group(0,0,0)
\t  store float %1, float addrspace(3)* %arrayidx2, align 4, !dbg !34
\tAt line {two} (column 27) of input.cl:
\t  (source not available)
\t
"""
_RACES = "".join(
    _RACE.format(place=place, first=first, second=second, one=one, two=two)
    for place, first, second, one, two in ((4, 2, 1, 7, 5), (8, 2, 1, 5, 7), (0, 3, 0, 7, 5))
)

Say: TypeAlias = Callable[[str | None], None]


@pytest.fixture(params=["stand-in", *(["Oclgrind"] if find_oclgrind() else [])], autouse=True)
def say(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Say]:
    """Has what stands in for Oclgrind say something of the next program, and stop where that is
    empty; it runs the program for None, as at first. Oclgrind itself says what it says."""
    stop = oclgrind._simulator.stop  # pyright: ignore[reportPrivateUsage]

    def say(text: str | None) -> None:
        stop()
        if text is None:
            monkeypatch.delenv("STAND_IN_SAYS", raising=False)
        else:
            monkeypatch.setenv("STAND_IN_SAYS", text)

    if request.param == "stand-in":
        program = tmp_path / "oclgrind"
        program.write_text(_STAND_IN.format(python=sys.executable))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        say(None)
    yield say
    if request.param == "stand-in":
        stop()


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


def test_accesses_outside_of_a_buffer(say: Say) -> None:
    say(_READ)
    (said,) = find_objections(handmade.add_one((8,), None, "i + 1"), A, {})
    assert said == (
        "the kernel add_one, line 5: `b[i] = a[i + 1] + 1;` (A, B): Invalid read of size 4 at "
        "global memory, work item (7,0,0) (said 1 times)"
    )
    say(_WRITES)
    (said,) = find_objections(handmade.add_one((8,), None, "i", None, "i + 2"), A, {})
    assert "Invalid write of size 4" in said
    assert said.endswith("(said 2 times)")


def test_a_race_between_work_items(say: Say) -> None:
    say(_RACES)
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


def test_a_program_that_does_not_run_there(say: Say) -> None:
    say("")
    with pytest.raises(DmlcError, match="add_one does not run under Oclgrind: Oclgrind"):
        find_objections(handmade.add_one((8,), None, "j"), A, {})
    # The next one does.
    say(None)
    assert find_objections(handmade.add_one((8,), None, "i"), A, {}) == []


def test_a_run_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(oclgrind, "SECONDS", 0.0)
        with pytest.raises(DmlcError, match="takes more than 0 seconds"):
            find_objections(handmade.add_one((8,), None, "i"), A, {})
    assert find_objections(handmade.add_one((8,), None, "i"), A, {}) == []


def test_a_process_that_stops_is_started_again() -> None:
    program = handmade.add_one((8,), None, "i")
    assert find_objections(program, A, {}) == []
    process = oclgrind._simulator._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    process.kill()
    process.wait()
    assert find_objections(program, A, {}) == []


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


def test_the_runtime_has_it_watch(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    say(_READ)
    program = handmade.add_one((8,), None, "i + 1")
    tool = opencl.find_tool()
    assert tool is not None
    assert tool.name == "Oclgrind"
    assert "Invalid read" in tool.watch(program, opencl.find_device(), A, {})[0]
    monkeypatch.setenv("PATH", "/nowhere")
    assert opencl.find_tool() is None
