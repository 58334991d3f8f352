"""Program on an OpenCL device: arrays in, arrays out.

The usual call takes the fast path of `quick`; any other goes through `placement`, which checks,
copies and explains. Both launch the same kernels without waiting for other threads: a call takes a
launcher (kernel objects with their own argument slots) from a list of free ones, and returns it
afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dmlc.program import Program, Role
from dmlc.runtime.arrays import Array, Operand, constant_array, is_loaded
from dmlc.runtime.executable import ArrayExecutable, Give
from dmlc.runtime.foreign import Given
from dmlc.runtime.interface import check_target
from dmlc.runtime.opencl.device import Device, Memory
from dmlc.runtime.opencl.direct import Direct, is_direct
from dmlc.runtime.opencl.driver import Launcher, Session
from dmlc.runtime.placement import Placement, place
from dmlc.runtime.profile import Interval
from dmlc.runtime.quick import QuickPlan, plan_quick
from dmlc.runtime.report import Report
from dmlc.scalars import DataType
from dmlc.source import UnsupportedError

if TYPE_CHECKING:
    import pyopencl as cl

SMALL_LAUNCH_BYTES = 9 << 20
"""Up to this much memory a launch goes to the quicker of a processor's two interfaces: about
where one core's time for a pass over memory equals the time it takes to wake the others."""


class Executable(ArrayExecutable["Call"]):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, session: Session) -> None:
        _check_program(program, session.device)
        super().__init__(program, Report(str(session.device)))
        self.device: Device = session.device
        self._session = session
        inputs, outputs = program.inputs, program.outputs
        scratch = tuple(t for t in program.tensors if t.role is Role.SCRATCH)
        tensors = (*inputs, *outputs, *scratch, *program.constants)
        self._tensors = {t.name: k for k, t in enumerate(tensors)}
        self._access = {
            t.name: (is_loaded(t) or _is_read(program, t.name), t.role is Role.OUTPUT)
            for t in (*inputs, *outputs)
        }
        self._strided = tuple(t.name for t in outputs if is_loaded(t))
        self._free: list[list[Launcher]] = [[] for _ in range(session.unit_count)]
        copied = session.device.memory is Memory.COPIED
        self._alignments = {} if copied else program.alignments
        if session.device.memory is Memory.SHARED and not self._alignments:
            self._quick = plan_quick(program, session.device.max_allocation)
            self._quick_flags = [session.access_flags(*self._access[n]) for n in self._access]
            self._quick_bytes = sum(t.dtype.bytes for t in (*inputs, *outputs))
        # Whatever is wrong with the sources shows now rather than at the first call.
        unit = session.unit_count - 1
        launcher = self._new_launcher(unit)
        self._free[unit].append(launcher)
        self._constants = [constant_array(t) for t in program.constants]
        self._constant_buffers: list[cl.Buffer] = []
        with session.reporting(f"cannot run {program.name}"):
            for array in self._constants:
                buffer = session.buffer(array, True, False)
                session.upload(launcher.queue, buffer, array)
                self._constant_buffers.append(buffer)

    def run_placed(self, placement: Placement) -> None:
        session = self._session
        session.check_usable()
        with session.reporting(f"cannot run {self.program.name}"):
            run, launcher = self._prepare(placement)
            run.launch(launcher)
        self._free[launcher.unit].append(launcher)

    def bind_placed(self, placement: Placement, give: Give, report: Report) -> Call:
        self._session.check_usable()
        with self._session.reporting(f"cannot run {self.program.name}"):
            run, launcher = self._prepare(placement)
        return Call(self._session, run, launcher, give, report, placement.sizes)

    def direct(self, sizes: Mapping[str, int]) -> Direct | None:
        """Program with its symbols of these sizes, called by address and without checks; None if
        the device does not work on host memory, or has too little."""
        if not is_direct(self.program, self.device, sizes):
            return None
        return Direct(self.program, self._session, sizes, SMALL_LAUNCH_BYTES)

    def run_quick(self, quick: QuickPlan, arrays: list[Array]) -> None:
        session = self._session
        if not session.usable:
            session.check_usable()
        count = arrays[quick.counted].size if quick.symbol else 1
        if count == 0:
            return
        try:
            make, context = session.make_buffer, session.context
            buffers = [
                make(context, flags, 0, array)
                for flags, array in zip(self._quick_flags, arrays, strict=True)
            ]
            if quick.symbol:
                unit = self._unit_for(count * self._quick_bytes)
            else:
                unit = self._unit_for(sum(array.nbytes for array in arrays))
            free = self._free[unit]
            launcher = free.pop() if free else self._new_launcher(unit)
            if launcher.count != count:
                launcher.set_sizes({quick.symbol: count} if quick.symbol else {})
                launcher.count = count
            launcher.set_buffers(buffers + self._constant_buffers)
            launcher.launch()
            free.append(launcher)
        except session.driver_error as problem:
            raise session.translate(f"cannot run {self.program.name}", problem) from problem

    def place(self, call: Given) -> Placement:
        gaps = self.device.memory is Memory.SHARED
        return place(self.program, call, gaps=gaps, alignments=self._alignments)

    def _prepare(self, placement: Placement) -> tuple[_Run, Launcher]:
        run = _Run(self._session, self._access, self._strided, placement)
        unit = self._unit_for(run.bytes)
        free = self._free[unit]
        try:
            launcher = free.pop()
        except IndexError:
            launcher = self._new_launcher(unit)
        launcher.set_sizes(placement.sizes)
        launcher.count = None
        run.keep_constants(self._constants, self._constant_buffers)
        launcher.set_buffers(run.buffers)
        return run, launcher

    def _new_launcher(self, unit: int) -> Launcher:
        return Launcher(self._session, unit, self.program, self._tensors)

    def _unit_for(self, size: int) -> int:
        """Unit for a launch that works on `size` bytes."""
        small = size * self.program.effort <= SMALL_LAUNCH_BYTES
        return len(self._free) - 1 if small else 0


def _check_program(program: Program, device: Device) -> None:
    check_target(program, "opencl", "OpenCL devices")
    if not device.float64 and any(t.dtype is DataType.FLOAT64 for t in program.tensors):
        raise UnsupportedError(f"{program.name} works in FLOAT64, which {device} cannot compute")


def _is_read(program: Program, tensor: str) -> bool:
    return any(b.read for k in program.kernels for b in k.buffers if b.tensor == tensor)


class _Run:
    """Buffers of a placement, in the order of the launcher's tensors, with the transfers of
    values."""

    def __init__(
        self,
        session: Session,
        access: Mapping[str, tuple[bool, bool]],
        strided: Sequence[str],
        placement: Placement,
    ) -> None:
        self._session = session
        self._inputs: list[tuple[Operand, cl.Buffer]] = []
        self._strided: list[tuple[Operand, cl.Buffer]] = []
        self._outputs: list[tuple[Operand, cl.Buffer]] = []
        self._constants: Sequence[Array] = ()
        self.buffers: list[cl.Buffer] = []
        self.bytes = 0
        places: dict[tuple[int, int], cl.Buffer] = {}
        memories = {n: _memory_range(placement.operands[n].memory) for n in access}
        for name, (_, written) in access.items():
            operand = placement.operands[name]
            place = memories[name]
            self.bytes += operand.memory.nbytes
            if place in places:
                # One buffer per stretch of memory: two over the same bytes are undefined.
                buffer = places[place]
            elif operand.memory.nbytes == 0:
                buffer = session.scratch(0)
            else:
                shared = [access[other] for other in access if memories[other] == place]
                buffer = session.buffer(
                    operand.memory, any(r for r, _ in shared), any(w for _, w in shared)
                )
                places[place] = buffer
            self.buffers.append(buffer)
            if operand.memory.nbytes:
                (self._outputs if written else self._inputs).append((operand, buffer))
                if name in strided:
                    self._strided.append((operand, buffer))
        self.bytes += sum(placement.scratch.values())
        self.buffers += session.scratch_parts(placement.scratch, placement.offsets)

    def keep_constants(self, arrays: Sequence[Array], buffers: Sequence[cl.Buffer]) -> None:
        """Adds the program's constants, which live as long as the run, since a launcher keeps
        nothing alive."""
        self._constants = arrays
        self.buffers += buffers

    @property
    def moves_nothing(self) -> bool:
        """Whether a run is a launch alone, without copies before or after it."""
        moved = any(o.reason is not None for o, _ in (*self._inputs, *self._outputs))
        return not moved and self._session.device.memory is Memory.SHARED

    def launch(self, launcher: Launcher) -> None:
        """Uploads the inputs, launches, and downloads the outputs."""
        for operand, _ in self._inputs:
            operand.load()
        for operand, buffer in (*self._inputs, *self._strided):
            self._session.upload(launcher.queue, buffer, operand.memory)
        launcher.launch()
        for operand, buffer in self._outputs:
            self._session.download(launcher.queue, buffer, operand.memory)
            operand.store()


def _memory_range(memory: Array) -> tuple[int, int]:
    """Address and length in bytes."""
    return memory.__array_interface__["data"][0], memory.nbytes


class Call:
    """Run bound to its arrays: a call launches, waits, and returns the outputs. Each call reads the
    current contents of the input arrays, and overwrites the same output arrays. On a device with
    memory of its own, a call also transfers the data."""

    __slots__ = (
        "_enqueue",
        "_give",
        "_launch",
        "_launcher",
        "_queue",
        "_run",
        "_session",
        "_step",
        "report",
        "sizes",
    )

    def __init__(
        self,
        session: Session,
        run: _Run,
        launcher: Launcher,
        give: Give,
        report: Report,
        sizes: Mapping[str, int],
    ) -> None:
        self._session = session
        self.sizes = sizes
        self._run = run
        self._launcher = launcher
        self._give = give
        self.report = report
        self._enqueue = session.enqueue
        self._queue = launcher.queue
        self._step = launcher.only_step() if run.moves_nothing else None
        self._launch = launcher.launch if run.moves_nothing else partial(run.launch, launcher)

    def __call__(self) -> dict[str, Any]:
        session = self._session
        if not session.usable:
            session.check_usable()
        step = self._step
        try:
            if step is not None:
                self._enqueue(self._queue, step[0], step[1], step[2]).wait()
            else:
                self._launch()
        except session.driver_error as problem:
            raise session.translate("cannot run", problem) from problem
        return self._give()

    def time_kernels(self, turns: int) -> float:
        """Mean seconds of the kernels per run on the device, over `turns` consecutive runs. Arrays
        are transferred once, in a call before these."""
        self()
        with self._session.reporting("cannot run"):
            return self._launcher.time(turns)

    def time_launches(self) -> list[Interval]:
        """Call whose launches are timed, by kernel."""
        self()
        with self._session.reporting("cannot run"):
            return self._launcher.time_launches()
