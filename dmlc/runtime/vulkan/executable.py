"""Program on a Vulkan device: arrays in, arrays out.

A device that can work in host memory uses large arrays in place. Small ones go through buffers that
an executable keeps with their recorded commands, so that a further run of the same sizes creates
nothing. Any thread may call; concurrent runs use separate frames."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from dmlc.program import KernelSource, Program
from dmlc.progress import track
from dmlc.runtime.arrays import Array
from dmlc.runtime.executable import ArrayExecutable, Give
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.hlsl import CompiledKernel, compile_kernels
from dmlc.runtime.interface import check_target
from dmlc.runtime.placement import Placement
from dmlc.runtime.profile import Interval, refuse
from dmlc.runtime.quick import QuickPlan, plan_quick
from dmlc.runtime.renaming import find_equal
from dmlc.runtime.report import Report
from dmlc.runtime.vulkan.context import Context, reopen_context
from dmlc.runtime.vulkan.device import VulkanDevice
from dmlc.runtime.vulkan.frame import Recording
from dmlc.runtime.vulkan.memory import Allocator
from dmlc.runtime.vulkan.pipeline import Pipeline, PipelineCache
from dmlc.runtime.vulkan.plan import Plan, check_kernels, make_plan

LEND_BYTES = 6 << 20
"""The arrays of a run are lent from so many bytes on, all together: copying fewer is quicker than
making buffers over them."""
_KEPT_FRAMES = 8
_KEPT_BYTES = 256 << 20
"""What an executable keeps between runs, at most."""
_KEPT_PLANS = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Options of an executable."""

    timed: bool = False
    """Whether reports say how long the kernels took."""
    staged: bool | None = None
    """Whether values go through memory that only copies touch: None, where the device has memory
    of its own."""
    lend: bool = True
    """Whether the device may work in the caller's own memory."""


class Session:
    """State shared by the executables on one context."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.allocator = Allocator(context)
        self.pipelines = PipelineCache(context)


_sessions: weakref.WeakKeyDictionary[Context, Session] = weakref.WeakKeyDictionary()


def session_of(context: Context) -> Session:
    """Session of a context, made once. There is no lock, as a thread may hold it while another
    forks."""
    found = _sessions.get(context)
    return found if found is not None else _sessions.setdefault(context, Session(context))


class _Built:
    """Pipelines of a program on one context, and the frames that are free for a run."""

    def __init__(
        self, session: Session, compiled: Sequence[tuple[KernelSource, CompiledKernel]]
    ) -> None:
        self.session = session
        self._compiled = tuple(compiled)
        self._pipelines: dict[int, Pipeline] = {}
        # Of the versions for sizes that are left open, those are built that run.
        built = [number for number, (kernel, _) in enumerate(self._compiled)
                 if not kernel.dispatch.is_chosen]  # fmt: skip
        for number in track("building pipelines", built):
            self.find_pipeline(number)
        self._lock = threading.Lock()
        self._free: dict[tuple[int, ...], list[Recording]] = {}

    def find_pipeline(self, number: int) -> Pipeline:
        """Pipeline of a kernel, by its number in the program."""
        found = self._pipelines.get(number)
        if found is None:
            made = self.session.pipelines.find(*self._compiled[number])
            found = self._pipelines.setdefault(number, made)
        return found

    def take(self, sizes: tuple[int, ...]) -> Recording | None:
        """Free frame that was recorded for these sizes."""
        with self._lock:
            frames = self._free.get(sizes)
            return frames.pop() if frames else None

    def put(self, sizes: tuple[int, ...], frame: Recording) -> None:
        """Returns a frame for later runs, and drops the oldest ones if there are too many."""
        with self._lock:
            kept = self._free.pop(sizes, [])
            kept.append(frame)
            self._free[sizes] = kept
            while self._count() > _KEPT_FRAMES or (self._bytes() > _KEPT_BYTES):
                oldest = next(iter(self._free))
                self._free[oldest].pop(0)
                if not self._free[oldest]:
                    del self._free[oldest]

    def _count(self) -> int:
        return sum(len(frames) for frames in self._free.values())

    def _bytes(self) -> int:
        return sum(f.bytes for frames in self._free.values() for f in frames)


def _compile(program: Program, floats: FloatPromises) -> list[tuple[KernelSource, CompiledKernel]]:
    """Compiled kernels: for each kernel its own, or that of the first kernel equal to it up to
    names."""
    numbers = find_equal(program.kernels)
    firsts = [program.kernels[number] for number in dict.fromkeys(numbers)]
    made = zip(firsts, compile_kernels(firsts, floats=floats), strict=True)
    built = dict(zip(dict.fromkeys(numbers), made, strict=True))
    return [built[number] for number in numbers]


class Executable(ArrayExecutable["Call"]):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, context: Context, options: Options) -> None:
        check_target(program, "hlsl", "Vulkan devices")
        self.options = options
        self.device: VulkanDevice = context.device
        program = program.choose(self.device.matrices)
        self._compiled = _compile(program, self.device.floats)
        check_kernels(program, [made for _, made in self._compiled], self.device)
        report = Report(str(self.device), matrices=tuple(i.name for i in program.matrices))
        super().__init__(program, report, plan_quick(program, self.device.limits.allocation))
        self._names = (*self.input_names, *self.output_names)
        shares = self.device.type.shares_memory
        self._staged = not shares if options.staged is None else options.staged
        self._lends = options.lend and not self._staged and self.device.import_alignment is not None
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._built = _Built(session_of(context), self._compiled)

    def run_placed(self, placement: Placement) -> float | None:
        for name in self._names:
            placement.operands[name].load()
        memories = {name: placement.operands[name].memory for name in self._names}
        seconds = self._run(placement.sizes, memories)
        for name in self.output_names:
            placement.operands[name].store()
        return seconds

    def run_quick(self, quick: QuickPlan, arrays: list[Array]) -> float | None:
        sizes = {quick.symbol: arrays[quick.counted].size} if quick.symbol else {}
        return self._run(sizes, dict(zip(self._names, arrays, strict=True)))

    def bind_placed(self, placement: Placement, give: Give, report: Report) -> Call:
        return Call(self, placement, give, report)

    def _run(self, sizes: Mapping[str, int], memories: Mapping[str, Array]) -> float | None:
        plan = self._plan(sizes)
        if not plan.launches:
            return None
        key = tuple(sizes.values())
        built = self._here()
        lends = self._lends and sum(m.nbytes for m in memories.values()) >= LEND_BYTES
        frame = None if lends else built.take(key)
        if frame is None:
            frame = self._make_frame(built, plan, memories if lends else {})
        moves = frame.move(memories)
        moves.load()
        frame.run()
        moves.store()
        seconds = frame.seconds()
        if not lends:
            built.put(key, frame)
        return seconds

    def _plan(self, sizes: Mapping[str, int]) -> Plan:
        key = tuple(sizes.values())
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.clear()
            found = self._plans[key] = make_plan(self.program, sizes, self.device)
        return found

    def _here(self) -> _Built:
        """Pipelines of this process; those made before a fork belong to the parent."""
        built = self._built
        if built.session.context.process != os.getpid():
            context = reopen_context(built.session.context)
            built = self._built = _Built(session_of(context), self._compiled)
        return built

    def _make_frame(
        self,
        built: _Built,
        plan: Plan,
        lent: Mapping[str, Array],
        turns: int | None = None,
        each: bool = False,
    ) -> Recording:
        return Recording(
            built.session.context,
            built.session.allocator,
            self.program,
            {launch.kernel: built.find_pipeline(launch.kernel) for launch in plan.launches},
            plan,
            lent=lent,
            staged=self._staged,
            timed=self.options.timed or turns is not None,
            turns=turns or 1,
            each=each,
        )

    def fix(
        self, placement: Placement, turns: int | None = None, each: bool = False
    ) -> Recording | None:
        """Frame for the arrays of a placement alone, which times `turns` consecutive runs, or
        `each` launch, if requested; None if there is nothing to run."""
        plan = self._plan(placement.sizes)
        if not plan.launches:
            return None
        lent = {n: placement.operands[n].memory for n in self._names} if self._lends else {}
        return self._make_frame(self._here(), plan, lent, turns, each)


class Call:
    """Run bound to its arrays: a call launches, waits, and returns the outputs. Each call reads the
    current contents of the input arrays, and overwrites the same output arrays. Concurrent calls
    run one after the other."""

    def __init__(
        self,
        executable: Executable,
        placement: Placement,
        give: Give,
        report: Report,
    ) -> None:
        self._executable = executable
        self._give = give
        self.report = report
        copied = {n: o for n, o in placement.operands.items() if o.reason is not None}
        self._operands = [copied[n] for n in executable.input_names if n in copied]
        self._outputs = [copied[n] for n in executable.output_names if n in copied]
        self._memories = {n: o.memory for n, o in placement.operands.items()}
        self._placement = placement
        self.sizes = placement.sizes
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._prepare()
        self._timed: tuple[int, Recording | None] | None = None
        """A frame for as many turns as were timed last."""
        self._each: Recording | None = None
        """A frame that times each launch."""

    def _prepare(self) -> None:
        frame = self._executable.fix(self._placement)
        self._run = None if frame is None else (frame, frame.move(self._memories))

    def __call__(self) -> dict[str, Any]:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._prepare()
            self._timed = self._each = None
            self._process = os.getpid()
        with self._lock:
            if self._run is not None:
                frame, moves = self._run
                for operand in self._operands:
                    operand.load()
                moves.load()
                frame.run()
                moves.store()
                for operand in self._outputs:
                    operand.store()
                seconds = frame.seconds()
                if seconds is not None:
                    self.report = dataclasses.replace(self.report, seconds=seconds)
        return self._give()

    def time_kernels(self, turns: int) -> float:
        """Mean seconds of the kernels per run on the device, over `turns` consecutive runs. Arrays
        are uploaded once, before these."""
        self()
        with self._lock:
            if self._timed is None or self._timed[0] != turns:
                self._timed = turns, self._executable.fix(self._placement, turns)
            frame = self._timed[1]
            if frame is None:
                return 0.0
            frame.move(self._memories).load()
            start = time.perf_counter()
            frame.run()
            seconds = frame.seconds()
            # Without a clock on the device, its copies count as well.
            return (time.perf_counter() - start if seconds is None else seconds) / turns

    def time_launches(self) -> list[Interval]:
        """Call whose launches are timed, by kernel."""
        self()
        device = self._executable.device
        if device.timestamp_period is None:
            raise refuse(device)
        with self._lock:
            if self._each is None:
                self._each = self._executable.fix(self._placement, each=True)
            frame = self._each
            if frame is None:
                return []
            frame.move(self._memories).load()
            frame.run()
            return frame.launches()
