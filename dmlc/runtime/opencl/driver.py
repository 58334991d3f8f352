"""The one module that calls OpenCL: devices, builds, buffers, transfers and launches.

It imports pyopencl at the first call that needs it, so that starting is fast and a machine without
OpenCL can do everything else. It takes kernels as source text with numbered arguments; callers
decide which array is which argument.

PoCL, the CPU driver, has two interfaces to one processor: `pthread` uses every core and takes tens
of microseconds per launch, `basic` uses one core and takes one or two. Both are opened (the
variable POCL_DEVICES is set while devices are first listed, unless the user has set it), and small
launches go to the second. The instruction set is chosen at the same time (see `instructions`).

pyopencl keeps compiled kernels on disk only for drivers that do not do so themselves;
PYOPENCL_NO_CACHE turns that off."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dmlc.processes import setting
from dmlc.program import STEP, KernelSource, Program, ScalarBinding
from dmlc.runtime.environment import keeping_caches
from dmlc.runtime.floats import CORRECT, Division, FloatPromises
from dmlc.runtime.instructions import POCL, Choice, Facts, choose, read_flags, started_note
from dmlc.runtime.opencl.builds import Builds, Built
from dmlc.runtime.opencl.device import INSTALL_NOTE, Device, DeviceKind, Memory
from dmlc.runtime.profile import Interval
from dmlc.sizes import evaluate_size
from dmlc.source import DmlcError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    import pyopencl as cl

Array = npt.NDArray[Any]

_POCL = "Portable Computing Language"
_POCL_RENAMED_DEVICES = 4
"""From this version on PoCL names its CPU devices otherwise, and is left as it is."""
_POCL_MANY_LIBRARIES = "DISTRO"
"""In the version of a PoCL that heeds POCL_KERNELLIB_NAME."""
_SMALL_NAME = "basic-"
_LARGE_NAME = "pthread-"


def _pyopencl():
    try:
        import pyopencl

        if "pyopencl.invoker" not in sys.modules:
            # It looks for a place of its caches as it is imported: at a first kernel, if not here.
            with keeping_caches():
                importlib.import_module("pyopencl.invoker")
    except ImportError as problem:
        raise UnavailableError(
            f"OpenCL cannot be used: {problem}",
            notes=["`pip install pyopencl` brings the loader", INSTALL_NOTE],
        ) from problem
    return pyopencl


class _State:
    """Devices and contexts of the process, each opened once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.devices: tuple[Device, ...] | None = None
        self.handles: dict[int, cl.Device] = {}
        self.sessions: dict[Device, Session] = {}
        self.inherited = False

    def after_fork(self) -> None:
        """Marks everything opened before a fork: a driver's threads do not exist in a child."""
        self.lock = threading.RLock()
        self.inherited = self.inherited or self.devices is not None
        for session in self.sessions.values():
            session.usable = False


_state = _State()
os.register_at_fork(after_in_child=_state.after_fork)


def _forked() -> UnavailableError:
    return UnavailableError(
        "OpenCL was in use before this process was forked, and cannot be used in the child",
        notes=[
            "start worker processes with multiprocessing's 'spawn' method, "
            "or use dmlc in the parent only after forking"
        ],
    )


# Devices --------------------------------------------------------------------------------------


def discover() -> tuple[Device, ...]:
    """Every OpenCL device, in the order of the driver loader; empty without a driver. Raises
    `UnavailableError` if pyopencl cannot be imported, or in a process that was forked after OpenCL
    was used."""
    with _state.lock:
        if _state.inherited:
            raise _forked()
        if _state.devices is None:
            _state.devices = tuple(_list_devices())
        return _state.devices


def _list_devices() -> list[Device]:
    cl = _pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        # The loader reports "no platform" as an error.
        return []
    found: list[Device] = []
    for number, platform in enumerate(platforms):
        units = _pocl_units(platform)
        choice = _choose_instructions(platform)
        try:
            with (
                setting("POCL_DEVICES", units),
                setting(choice.variable, choice.value),
                keeping_caches(),
            ):
                handles = platform.get_devices()
        except cl.Error:
            # A platform without a device of its own: a GPU driver on a machine without its GPU.
            continue
        pairs = _pair(handles) if units else [(handle, None) for handle in handles]
        for handle, small in pairs:
            found.append(_describe(handle, small, len(found), number, choice))
    return found


def _pocl_units(platform: cl.Platform) -> str | None:
    """Value of POCL_DEVICES while devices are first listed, with which PoCL opens both its CPU
    devices; None to leave it, such as a user's own setting."""
    version = re.search(r"PoCL (\d+)\.", platform.version)
    known = version is not None and int(version.group(1)) < _POCL_RENAMED_DEVICES
    if platform.name != _POCL or not known or "POCL_DEVICES" in os.environ:
        return None
    return "pthread basic"


def _choose_instructions(platform: cl.Platform) -> Choice:
    """Choice of instructions for a platform before its devices are first listed. Only PoCL has one,
    and only if built with libraries for several processors."""
    llvm = re.search(r"\bLLVM (\d+)", platform.version)
    able = platform.name == _POCL and _POCL_MANY_LIBRARIES in platform.version
    version = int(llvm.group(1)) if llvm and able else None
    return choose(POCL, Facts(read_flags(), version, os.environ))


def _instructions_note(choice: Choice, name: str) -> str:
    """Note on a device's instructions: its name states the ones that it was started with."""
    ignored = choice.value is not None and "avx512" in name
    return started_note(POCL) if ignored else choice.note


def _pair(handles: Sequence[cl.Device]) -> list[tuple[cl.Device, cl.Device | None]]:
    """Joins PoCL's single-core device to its parallel one."""
    small = next((h for h in handles if h.name.startswith(_SMALL_NAME)), None)
    large = next((h for h in handles if h.name.startswith(_LARGE_NAME)), None)
    if small is None or large is None:
        return [(handle, None) for handle in handles]
    return [(h, small if h is large else None) for h in handles if h is not small]


def _describe(
    handle: cl.Device,
    small: cl.Device | None,
    index: int,
    platform_index: int,
    choice: Choice,
) -> Device:
    cl = _pyopencl()
    kind = DeviceKind.OTHER
    if handle.type & cl.device_type.GPU:
        kind = DeviceKind.GPU
    elif handle.type & cl.device_type.CPU:
        kind = DeviceKind.CPU
    platform = handle.platform
    if kind is DeviceKind.CPU:
        # PoCL's CPU devices work on the host's memory itself, whatever the mapping state.
        memory = Memory.SHARED if platform.name == _POCL else Memory.MAPPED
    else:
        memory = Memory.MAPPED if handle.host_unified_memory else Memory.COPIED
    keys = [handle.int_ptr] if small is None else [handle.int_ptr, small.int_ptr]
    _state.handles.update(zip(keys, [handle] if small is None else [handle, small], strict=True))
    return Device(
        index=index,
        name=handle.name.strip(),
        platform=platform.name.strip(),
        platform_index=platform_index,
        kind=kind,
        version=handle.version.strip(),
        compute_units=handle.max_compute_units,
        memory_size=handle.global_mem_size,
        max_allocation=handle.max_mem_alloc_size,
        memory=memory,
        float64="cl_khr_fp64" in handle.extensions.split(),
        floats=_read_floats(handle),
        divides_correctly=_can_divide_correctly(handle),
        driver=f"{platform.version.strip()}, {handle.driver_version.strip()}",
        note=_instructions_note(choice, handle.name) if kind is DeviceKind.CPU else "",
        key=keys[0],
        part_alignment=max(1, handle.mem_base_addr_align // 8),
        small_key=keys[1] if small is not None else None,
    )


_DIVISION = Division(2.5, 3.0)
"""What OpenCL promises of FLOAT32, where a program is not built for more."""


def _read_floats(handle: cl.Device) -> FloatPromises:
    """Floating-point promises of a device. FLOAT16 is loaded and stored by OpenCL's conversions,
    which are exact on every device; for FLOAT64, if supported, OpenCL promises everything."""
    config = _pyopencl().device_fp_config
    doubles = (64,) if "cl_khr_fp64" in handle.extensions.split() else ()
    special, denormals = (
        (16, *((32,) if handle.single_fp_config & flag else ()), *doubles)
        for flag in (config.INF_NAN, config.DENORM)
    )
    return FloatPromises(special, denormals, _DIVISION, Division(CORRECT, CORRECT))


def _can_divide_correctly(handle: cl.Device) -> bool:
    """Whether programs can be built with correctly rounded quotients and square roots of
    FLOAT32."""
    flag = _pyopencl().device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    return bool(handle.single_fp_config & flag)


# Sessions -------------------------------------------------------------------------------------


def open_session(device: Device) -> Session:
    """Session of a device, one per process."""
    with _state.lock:
        discover()
        if device not in _state.sessions:
            _state.sessions[device] = Session(device, _state.handles)
        return _state.sessions[device]


class Session:
    """Opened device: a context, its built kernels, and transfers. Thread-safe."""

    def __init__(self, device: Device, handles: Mapping[int, cl.Device]) -> None:
        self._cl = cl = _pyopencl()
        self.device = device
        self.enqueue = cl.enqueue_nd_range_kernel
        self.make_buffer = cl.Buffer
        self.driver_error = cl.Error
        self.usable = True
        """False in a process that was forked after the session was opened."""
        keys = [device.key] if device.small_key is None else [device.key, device.small_key]
        self._units = [handles[k] for k in keys]
        with _reporting(cl, f"cannot open {device}"):
            self.context = cl.Context(self._units)
        self.builds = Builds(device, self.context, self._units)
        flags = cl.mem_flags
        kept = 0 if device.memory is Memory.COPIED else int(flags.USE_HOST_PTR)
        self._access = {
            (True, False): int(flags.READ_ONLY) | kept,
            (False, True): int(flags.WRITE_ONLY) | kept,
            (True, True): int(flags.READ_WRITE) | kept,
        }

    def access_flags(self, read: bool, written: bool) -> int:
        """OpenCL's flags for a buffer by its use in kernels."""
        return self._access[read, written]

    def reporting(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Converts the driver's exceptions to a `DmlcError` whose message begins with `doing`."""
        return _reporting(self._cl, doing)

    def translate(self, doing: str, problem: Exception) -> DmlcError:
        """Error to raise for an exception of the driver."""
        return _translate(doing, problem)

    @property
    def unit_count(self) -> int:
        """1, or 2 if unit 1 is the faster interface for small launches."""
        return len(self._units)

    def check_usable(self) -> None:
        """Raises `UnavailableError` in a process forked after the session was opened."""
        if not self.usable:
            raise _forked()

    def kernels(self, kernels: Sequence[KernelSource], unit: int) -> list[cl.Kernel]:
        """New kernel objects with their own argument slots, for one thread at a time, built now
        unless cached. Raises `DmlcError` with the source's lines if the driver's compiler refuses a
        kernel, and `UnsupportedError` if the device cannot run groups of a kernel's size."""
        built = self.builds.find(kernels, unit)
        return [self._make_kernel(*each, unit) for each in zip(kernels, built, strict=True)]

    def _make_kernel(self, kernel: KernelSource, built: Built, unit: int) -> cl.Kernel:
        cl = self._cl
        with _reporting(cl, f"cannot make the kernel {kernel.entry_point}"):
            made = cl.Kernel(built.module, built.entry_point)
            limit = made.get_work_group_info(
                cl.kernel_work_group_info.WORK_GROUP_SIZE, self._units[unit]
            )
        if kernel.dispatch.group_size > limit:
            raise UnsupportedError(
                f"the kernel {kernel.name} runs in groups of {kernel.dispatch.group_size} work "
                f"items, and {self.device} allows it {limit}",
                notes=["compile for another profile"],
            )
        return made

    def queue(self, unit: int, *, timed: bool = False) -> cl.CommandQueue:
        """New in-order queue; if `timed`, its events have start and end times."""
        cl, device = self._cl, self._units[unit]
        if not timed:
            return cl.CommandQueue(self.context, device)
        return cl.CommandQueue(self.context, device, cl.command_queue_properties.PROFILING_ENABLE)

    # Memory

    def buffer(self, memory: Array, read: bool, written: bool) -> cl.Buffer:
        """Buffer over contiguous host memory, or of its size on a device with memory of its own.
        The buffer keeps the memory alive."""
        cl = self._cl
        flags = self._access[read, written]
        size = memory.nbytes
        if size > self.device.max_allocation:
            raise UnsupportedError(
                f"a tensor of {size} bytes is too large for {self.device}, "
                f"whose largest buffer has {self.device.max_allocation} bytes"
            )
        with _reporting(cl, f"cannot make a buffer of {size} bytes"):
            if self.device.memory is Memory.COPIED:
                return cl.Buffer(self.context, flags, size)
            return cl.Buffer(self.context, flags, 0, memory)

    def scratch(self, size: int) -> cl.Buffer:
        """Device memory of `size` bytes that only kernels access."""
        cl = self._cl
        if size > self.device.max_allocation:
            raise UnsupportedError(
                f"an intermediate tensor of {size} bytes is too large for {self.device}, "
                f"whose largest buffer has {self.device.max_allocation} bytes"
            )
        with _reporting(cl, f"cannot make a buffer of {size} bytes"):
            return cl.Buffer(self.context, int(cl.mem_flags.READ_WRITE), max(size, 16))

    def scratch_parts(
        self, sizes: Mapping[str, int], offsets: Mapping[str, int]
    ) -> list[cl.Buffer]:
        """Device memory for tensors of these bytes that only kernels access. Tensors with an offset
        are sub-buffers of one buffer, if the device's alignment permits."""
        cl = self._cl
        known = [name for name in sizes if name in offsets]
        shared = len(known) > 1 and all(
            offsets[name] % self.device.part_alignment == 0 for name in known
        )
        if not shared:
            return [self.scratch(size) for size in sizes.values()]
        whole = self.scratch(max(offsets[name] + sizes[name] for name in known))
        with _reporting(cl, "cannot make a part of a buffer"):
            # What is stored in place is the very same part: two over the same bytes are undefined.
            places = {(offsets[name], sizes[name]): None for name in known}
            parts = {at: whole.get_sub_region(at[0], max(at[1], 1)) for at in places}
            return [
                parts[offsets[name], size] if name in offsets else self.scratch(size)
                for name, size in sizes.items()
            ]

    def upload(self, queue: cl.CommandQueue, buffer: cl.Buffer, memory: Array) -> None:
        """Makes the contents of `memory` visible to the device."""
        cl = self._cl
        if self.device.memory is Memory.COPIED:
            cl.enqueue_copy(queue, buffer, memory, is_blocking=True)
        elif self.device.memory is Memory.MAPPED:
            self._map(queue, buffer, memory.nbytes, cl.map_flags.WRITE)

    def download(self, queue: cl.CommandQueue, buffer: cl.Buffer, memory: Array) -> None:
        """Copies the device's results to `memory`."""
        cl = self._cl
        if self.device.memory is Memory.COPIED:
            cl.enqueue_copy(queue, memory, buffer, is_blocking=True)
        elif self.device.memory is Memory.MAPPED:
            self._map(queue, buffer, memory.nbytes, cl.map_flags.READ)

    def _map(
        self, queue: cl.CommandQueue, buffer: cl.Buffer, size: int, flags: cl.map_flags
    ) -> None:
        mapped, _ = self._cl.enqueue_map_buffer(
            queue, buffer, flags, 0, (size,), np.dtype(np.uint8)
        )
        mapped.base.release(queue)
        queue.finish()


@contextlib.contextmanager
def _reporting(cl: Any, doing: str) -> Generator[None]:
    try:
        yield
    except cl.Error as problem:
        raise _translate(doing, problem) from problem


def _translate(doing: str, problem: Exception) -> DmlcError:
    return DmlcError(f"{doing}: the OpenCL driver says {' '.join(str(problem).split())[:300]}")


# Launches -------------------------------------------------------------------------------------


class Launcher:
    """Kernels in execution order on one unit, with their own argument slots and queue. For one
    thread at a time. `tensors` gives each tensor's index among the buffers of a launch. Of the
    versions for open sizes, only those that run are built."""

    def __init__(
        self,
        session: Session,
        unit: int,
        program: Program,
        tensors: Mapping[str, int],
    ) -> None:
        kernels = program.kernels
        self.unit = unit
        self._session = session
        self.queue = session.queue(unit)
        self.count: int | None = None
        """What the caller last set the sizes for, if it keeps count."""
        self._sources = kernels
        self._find_order = program.order
        self._tensors = tensors
        self._enqueue = session.enqueue
        self._kernels: dict[int, cl.Kernel] = {}
        self._arguments: list[tuple[Callable[[int, cl.Buffer], None], int, int]] = []
        self._build(n for n, kernel in enumerate(kernels) if not kernel.dispatch.is_chosen)
        self._steps: list[_Step] = []
        self._numbers: list[int] = []

    def _build(self, numbers: Iterable[int]) -> None:
        """Makes the kernel objects of these numbers that do not exist yet."""
        missing = [number for number in numbers if number not in self._kernels]
        sources = [self._sources[number] for number in missing]
        made = self._session.kernels(sources, self.unit) if missing else []
        for number, kernel, source in zip(missing, made, sources, strict=True):
            self._kernels[number] = kernel
            for binding in source.buffers:
                self._arguments.append(
                    (kernel.set_arg, binding.slot, self._tensors[binding.tensor])
                )

    def set_sizes(self, sizes: Mapping[str, int]) -> None:
        """Sets the scalar arguments and numbers of groups. Kernels without work are skipped.
        Kernels built here have no buffers until `set_buffers`."""
        steps: list[_Step] = []
        numbers: list[int] = []
        sizes = dict(sizes)
        launched = {n: source.dispatch.groups(sizes) for n, source in enumerate(self._sources)}
        launched = {n: groups for n, groups in launched.items() if 0 not in groups}
        self._build(launched)
        for number in launched:
            for scalar in self._sources[number].scalars:
                if scalar.value != STEP:
                    value = evaluate_size(scalar.value, sizes)
                    _set_scalar(self._kernels[number], scalar, value)
        for number, step in self._find_order(sizes):
            if number in launched:
                made, source, groups = (
                    self._kernels[number],
                    self._sources[number],
                    launched[number],
                )
                size = source.dispatch.items
                along = 1 if size[1:] == groups[1:] == (1, 1) else 3
                moving = [s for s in source.scalars if s.value == STEP]
                change = _Change(made, moving, step[STEP]) if moving else None
                if change is not None:
                    change()
                whole = tuple(g * s for g, s in zip(groups, size, strict=True))
                steps.append((made, whole[:along], size[:along], change))
                numbers.append(number)
        self._steps = steps
        self._numbers = numbers

    def keep_buffers(self, first: int, buffers: Sequence[cl.Buffer]) -> None:
        """Sets the arguments of the tensors from number `first` on permanently; `set_buffers` then
        takes only the earlier ones. The caller keeps the buffers alive."""
        for set_argument, slot, tensor in self._arguments:
            if tensor >= first:
                set_argument(slot, buffers[tensor - first])
        self._arguments = [each for each in self._arguments if each[2] < first]

    def set_buffers(self, buffers: Sequence[cl.Buffer]) -> None:
        """Sets the buffer arguments, which the caller keeps alive."""
        for set_argument, slot, tensor in self._arguments:
            set_argument(slot, buffers[tensor])

    def launch(self) -> None:
        """Runs the kernels, and returns after the last has finished."""
        event = None
        for kernel, size, group, change in self._steps:
            if change is not None:
                change()
            event = self._enqueue(self.queue, kernel, size, group)
        if event is not None:
            event.wait()

    def time(self, turns: int) -> float:
        """Seconds per run by the device's clock, over `turns` consecutive runs of the kernels."""
        times = self._time_steps(turns)
        return (times[-1].end - times[0].start) * 1e-9 / turns if times else 0.0

    def time_launches(self) -> list[Interval]:
        """Time of each launch in one run of the kernels, by the device's clock."""
        pairs = zip(self._numbers, self._time_steps(1), strict=True)
        return [Interval(number, (time.end - time.start) * 1e-9) for number, time in pairs]

    def _time_steps(self, turns: int) -> list[Any]:
        """Events of each launch over `turns` runs of the kernels."""
        queue = self._session.queue(self.unit, timed=True)
        events: list[cl.Event] = []
        for kernel, size, group, change in self._steps * turns:
            if change is not None:
                change()
            events.append(self._enqueue(queue, kernel, size, group))
        queue.finish()
        return [event.profile for event in events]

    def only_step(self) -> _Step | None:
        """The only step of a launch of exactly one kernel, whose arguments never change; else
        None."""
        return self._steps[0] if len(self._steps) == 1 else None


class _Change:
    """Setter of a kernel's arguments that depend on the step's number. A driver reads arguments
    when a kernel is enqueued."""

    def __init__(self, kernel: cl.Kernel, scalars: Sequence[ScalarBinding], step: int) -> None:
        self._kernel = kernel
        self._scalars = tuple(scalars)
        self._step = step

    def __call__(self) -> None:
        for scalar in self._scalars:
            _set_scalar(self._kernel, scalar, self._step)


_Step: TypeAlias = "tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], _Change | None]"
"""A kernel, its size, that of its groups, and what changes its arguments before."""


def _set_scalar(kernel: cl.Kernel, scalar: ScalarBinding, value: int) -> None:
    kernel.set_arg(scalar.slot, np.uint32(value) if scalar.bits == 32 else np.uint64(value))
