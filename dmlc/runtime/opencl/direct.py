"""Launches of a program on memory that is known to fit, by address and without checks.

For callers that have checked everything once and call many times, such as a framework's own
operators. Everything but the addresses is settled before a call: sizes, the unit, and the arguments
for constants and scratch tensors, which belong to a launcher. `Executable` checks, copies and
explains; this does none of it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmlc.program import Program, Role
from dmlc.runtime.arrays import constant_array, is_loaded, tensor_bytes
from dmlc.runtime.opencl.device import Device, Memory
from dmlc.runtime.opencl.driver import Launcher, Session
from dmlc.sizes import refuse_sizes

if TYPE_CHECKING:
    import pyopencl as cl


def is_direct(program: Program, device: Device, sizes: Mapping[str, int]) -> bool:
    """Whether a device works on host memory at any alignment, and has room for every tensor of a
    program with these sizes of symbols."""
    if program.alignments or device.memory is not Memory.SHARED:
        return False
    if any(n > program.max_count for n in sizes.values()):
        return False
    tensors = (t for t in program.tensors if t.role is not Role.CONSTANT)
    return all(tensor_bytes(t, sizes) <= device.max_allocation for t in tensors)


class Direct:
    """Program that `is_direct`, with fixed sizes. Thread-safe. Launches over at most `small` bytes
    go to the faster of two units."""

    def __init__(
        self, program: Program, session: Session, sizes: Mapping[str, int], small: int
    ) -> None:
        refuse_sizes(program.name, program.checks, sizes)
        self.program = program
        self._session = session
        self._sizes = dict(sizes)
        tensors = (*program.inputs, *program.outputs)
        self._tensors = {
            t.name: k for k, t in enumerate((*tensors, *program.scratch, *program.constants))
        }
        counts = [tensor_bytes(t, sizes) for t in tensors]
        scratch = {t.name: tensor_bytes(t, sizes) for t in program.scratch}
        read = {b.tensor for k in program.kernels for b in k.buffers if b.read}
        flags = [
            session.access_flags(is_loaded(t) or t.name in read, t.role is Role.OUTPUT)
            for t in tensors
        ]
        # What has no elements has no memory either, and a buffer needs some.
        self._views = [
            (ctypes.c_char * count, flag) if count else None
            for count, flag in zip(counts, flags, strict=True)
        ]
        self._nothing = session.scratch(0)
        self._scratch = scratch
        self._offsets = {t.name: t.offset for t in program.scratch if t.offset is not None}
        whole = sum(counts) + sum(scratch.values())
        self._unit = session.unit_count - 1 if whole * program.effort <= small else 0
        self._constants = [constant_array(t) for t in program.constants]
        self._free: list[tuple[Launcher, list[cl.Buffer]]] = [self._new_launcher()]

    def __call__(self, addresses: Sequence[int]) -> None:
        """Runs the program once on the memory at these addresses: those of the inputs, then those
        of the outputs. An output shares no memory with another tensor."""
        session = self._session
        if not session.usable:
            session.check_usable()
        free = self._free
        launcher, _ = kept = free.pop() if free else self._new_launcher()
        try:
            make, context = session.make_buffer, session.context
            buffers = [
                self._nothing
                if view is None
                else make(context, view[1], 0, view[0].from_address(address))
                for view, address in zip(self._views, addresses, strict=True)
            ]
            launcher.set_buffers(buffers)
            launcher.launch()
        except session.driver_error as problem:
            raise session.translate(f"cannot run {self.program.name}", problem) from problem
        free.append(kept)

    def _new_launcher(self) -> tuple[Launcher, list[cl.Buffer]]:
        """Launcher, and the buffers that must live as long as it."""
        session, program = self._session, self.program
        launcher = Launcher(session, self._unit, program, self._tensors)
        launcher.set_sizes(self._sizes)
        own = session.scratch_parts(self._scratch, self._offsets)
        for array in self._constants:
            buffer = session.buffer(array, True, False)
            session.upload(launcher.queue, buffer, array)
            own.append(buffer)
        launcher.keep_buffers(len(self._views), own)
        return launcher, own
