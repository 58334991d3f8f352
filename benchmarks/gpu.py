"""Every benchmark on a GPU: through OpenCL and through Vulkan, beside PyTorch and a plain copy.

Arrays are brought to the device once, and stay there while kernels run one after the other; the
device's own clock says how long. What a machine lacks is said below the tables. Without a GPU
nothing is timed, unless a CPU may stand in for one, to try all this out.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import itertools
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

import dmlc
from benchmarks import batch_norm, contenders, gpu_kernels, gpu_scan, graphs, resample
from benchmarks.measure import measure
from benchmarks.table import show_rows
from benchmarks.task import Array, Peer, Task, take_first
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.opencl.device import Device, DeviceKind
from dmlc.runtime.vulkan import VulkanDevice
from dmlc.runtime.vulkan.device import DeviceType

COPY = "device copy"
KERNELS = "GPU kernels"
"""Those that `gpu_kernels` models."""
SCAN = "GPU scan"
"""Those of `gpu_scan`."""
TITLES = (KERNELS, SCAN)
"""The benchmarks that are timed on a GPU alone, each function once, in the types that it has."""
SAMPLE_SECONDS = 0.02
"""A sample repeats a contender for about this long."""
_MOST_TURNS = 200
WRONG = "a wrong result"
_NO_DEVICE = 3
"""The exit status where a device is missing."""

_TYPES: dict[str, npt.DTypeLike] = {"f32": np.float32, "f16": np.float16}
_LENGTHS = {"1K": 1 << 10, "64K": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}

Make: TypeAlias = Callable[[npt.DTypeLike], Task]


class Timer(Protocol):
    """A contender at work on a task."""

    def seconds(self, turns: int) -> float:
        """Of one run, on average over so many, by the device's clock where it has one."""
        ...

    def result(self) -> Array | None:
        """What it gave; None where there is nothing to look at."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Player:
    """Somebody who takes part on a device."""

    name: str
    device: str
    start: Callable[[Task], Timer | None]
    """None where there is nothing for it to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A row of a table."""

    title: str
    name: str
    make: Callable[[], Task]


def list_cases(
    operators: Iterable[str], types: Iterable[str], lengths: Sequence[str]
) -> list[Case]:
    """The benchmarks asked for, table by table, and those of `TITLES` once."""
    makers: dict[str, dict[str, Make]] = {
        "ReLU grad": {name: _make_relu(_LENGTHS[name]) for name in lengths},
        "BN training grad": {n: _make_batch_norm(s) for n, s in batch_norm.SHAPES.items()},
        "Resampling grad": {n: _make_resample(kind) for n, kind in resample.CASES.items()},
        "Graph": {name: _make_graph(make) for name, (make, _, _) in graphs.CASES.items()},
    }
    found = [
        Case(f"{operator} {dtype}", name, lambda make=make, dtype=dtype: make(_TYPES[dtype]))
        for operator, dtype in itertools.product(operators, types)
        for name, make in makers.get(operator, {}).items()
    ]
    if KERNELS in operators:
        kernels = gpu_kernels.ROWS.items()
        found += [Case(KERNELS, n, lambda make=make: _fill(make())) for n, make in kernels]
    if SCAN in operators:
        scan = gpu_scan.ROWS.items()
        found += [Case(SCAN, n, lambda row=row: make_row_task(row)) for n, row in scan]
    return found


def _fill(function: dmlc.ir.Function, limits: Mapping[str, int] | None = None) -> Task:
    """A function on arrays of its own; what it gives is compared with nothing. By their names,
    `limits` says what the whole numbers of tensors are below, where that is not 9."""
    random = np.random.default_rng(1)
    tensors = function.tensors()
    arrays: dict[str, Array] = {}
    for name in (*(p.name for p in function.parameters), *(r.name for r in function.results)):
        sizes = [extent for extent in tensors[name].extents if isinstance(extent, int)]
        dtype = tensors[name].dtype
        if dtype.is_float:
            arrays[name] = random.uniform(0.5, 2, sizes).astype(dtype.dtype)
        else:
            most = 9 if limits is None else limits.get(name, 9)
            arrays[name] = random.integers(0, most, sizes).astype(dtype.dtype)
    results = [result.name for result in function.results]
    return Task(
        function,
        {p.name: arrays[p.name] for p in function.parameters},
        {name: arrays[name] for name in results},
        max(results, key=lambda name: arrays[name].size),
        lambda found: bool(np.isfinite(found.astype(np.float64)).all()),
        sum(array.nbytes for array in arrays.values()),
    )


def make_row_task(row: gpu_scan.Row) -> Task:
    """A row of the scan on arrays of its own, and PyTorch on the same."""
    task, run = _fill(row.bind(), row.limits), row.peer
    if run is None:
        return task

    def make(torch: Any, put: Callable[[Array], Any]) -> Peer:
        given = {name: put(array) for name, array in task.inputs.items()}
        return Peer(lambda: run(torch, given))

    return dataclasses.replace(task, torch=make)


def _make_relu(length: int) -> Make:
    return lambda dtype: contenders.make_task(contenders.Case.make(dtype, length))


def _make_batch_norm(shape: tuple[int, ...]) -> Make:
    return lambda dtype: batch_norm.make_task(batch_norm.Case.make(dtype, shape))


def _make_resample(kind: resample.Kind) -> Make:
    return lambda dtype: resample.make_task(resample.Case.make(dtype, kind))


def _make_graph(make: Callable[[npt.DTypeLike], graphs.Case]) -> Make:
    return lambda dtype: graphs.make_task(make(dtype))


# dmlc -----------------------------------------------------------------------------------------


class _Call(Protocol):
    def __call__(self) -> dict[str, Array]: ...
    def time_kernels(self, turns: int) -> float: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Kernels:
    """A program with its arrays on a device."""

    call: _Call
    name: str

    def seconds(self, turns: int) -> float:
        return self.call.time_kernels(turns)

    def result(self) -> Array:
        return self.call()[self.name]


def _on_opencl(device: Device) -> Player:
    def start(task: Task) -> Timer:
        executable = opencl.load_on(dmlc.compile(task.function, "opencl", "gpu"), device)
        return _Kernels(executable.bind(task.inputs, task.outputs), task.result)

    return Player("dmlc on OpenCL", str(device), start)


def _on_vulkan(device: VulkanDevice) -> Player:
    def start(task: Task) -> Timer:
        executable = vulkan.load_on(dmlc.compile(task.function, "hlsl"), device)
        return _Kernels(executable.bind(task.inputs, task.outputs), task.result)

    return Player("dmlc on Vulkan", str(device), start)


# PyTorch --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Torch:
    """Something that PyTorch does on its device."""

    torch: Any
    device: str
    run: Callable[[], Any]
    shows: bool = True

    def seconds(self, turns: int) -> float:
        self.run()
        if self.device == "cpu":
            start = time.perf_counter()
            for _ in range(turns):
                self.run()
            return (time.perf_counter() - start) / turns
        clock = getattr(self.torch, self.device)
        first, last = (clock.Event(enable_timing=True) for _ in range(2))
        clock.synchronize()
        first.record()
        for _ in range(turns):
            self.run()
        last.record()
        clock.synchronize()
        return first.elapsed_time(last) * 1e-3 / turns

    def result(self) -> Array | None:
        return take_first(self.run()).cpu().numpy() if self.shows else None


def _on_torch(torch: Any, device: str) -> Iterator[Player]:
    title = "CPU" if device == "cpu" else getattr(torch, device).get_device_name()

    def put(array: Array) -> Any:
        return torch.from_numpy(array).to(device)

    def eager(task: Task) -> Timer | None:
        peer = None if task.torch is None else task.torch(torch, put)
        return None if peer is None else _Torch(torch, device, peer.eager)

    def fused(task: Task) -> Timer | None:
        peer = None if task.torch is None else task.torch(torch, put)
        if peer is None or peer.formula is None:
            return None
        compiled = torch.compile(peer.formula, dynamic=False)
        return _Torch(torch, device, lambda: compiled(*peer.arguments))

    def copy(task: Task) -> Timer:
        source = torch.zeros(task.moved // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return _Torch(torch, device, lambda: target.copy_(source), shows=False)

    yield Player(COPY, title, copy)
    yield Player("PyTorch eager", title, eager)
    yield Player("torch.compile", title, fused)


# What there is --------------------------------------------------------------------------------


def find_players(*, allow_cpu: bool) -> tuple[list[Player], list[str]]:
    """Who can take part on this machine, and what is missing."""
    players: list[Player] = []
    missing: list[str] = []
    for find in (_find_torch, _find_opencl, _find_vulkan):
        try:
            players += find(allow_cpu)
        except (dmlc.DmlcError, ImportError) as problem:
            missing.append(str(problem).removeprefix("error: "))
    return players, missing


def _find_opencl(allow_cpu: bool) -> list[Player]:
    found = opencl.devices()
    usable = [d for d in found if d.kind is DeviceKind.GPU]
    usable += [d for d in found if allow_cpu and d not in usable]
    if not usable:
        raise dmlc.UnavailableError(_tell_none("OpenCL", [str(d) for d in found]))
    return [_on_opencl(usable[0])]


def _find_vulkan(allow_cpu: bool) -> list[Player]:
    found = vulkan.devices()
    gpus = (DeviceType.DISCRETE_GPU, DeviceType.INTEGRATED_GPU, DeviceType.VIRTUAL_GPU)
    usable = sorted((d for d in found if d.type in gpus), key=lambda d: gpus.index(d.type))
    usable += [d for d in found if allow_cpu and d not in usable]
    if not usable:
        raise dmlc.UnavailableError(_tell_none("Vulkan", [str(d) for d in found]))
    return [_on_vulkan(usable[0])]


def _find_torch(allow_cpu: bool) -> list[Player]:
    if not has_torch():
        raise dmlc.UnavailableError("PyTorch is not installed: no copy, and nothing beside dmlc")
    torch: Any = importlib.import_module("torch")
    for device in ("cuda", "xpu"):
        if hasattr(torch, device) and getattr(torch, device).is_available():
            # dmlc computes FLOAT32 in full; PyTorch rounds what it convolves if it may.
            torch.backends.cudnn.allow_tf32 = False
            return list(_on_torch(torch, device))
    if not allow_cpu:
        raise dmlc.UnavailableError("PyTorch finds no GPU")
    return list(_on_torch(torch, "cpu"))


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def _tell_none(runtime: str, devices: Sequence[str]) -> str:
    return f"{runtime} finds no GPU, but {'; '.join(devices) or 'nothing at all'}"


# Timing ---------------------------------------------------------------------------------------


def time_task(
    task: Task, players: Iterable[Player], rounds: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Median seconds of everyone who does a task rightly, and what is wrong with the others."""
    samplers: dict[str, Callable[[], float]] = {}
    problems: dict[str, str] = {}
    for player in players:
        try:
            timer = player.start(task)
            if timer is None:
                continue
            result = timer.result()
            shape = task.outputs[task.result].shape
            if result is not None and not task.accepts(result.reshape(shape)):
                problems[player.name] = WRONG
                continue
            timer.seconds(2)
            once = max(timer.seconds(2), 1e-7)
        except Exception as problem:
            # PyTorch's compiler fails in many ways, and none of them ends the other contenders.
            problems[player.name] = " ".join(str(problem).split())[:200] or repr(problem)
            continue
        turns = max(1, min(_MOST_TURNS, round(SAMPLE_SECONDS / once)))
        samplers[player.name] = lambda timer=timer, turns=turns: timer.seconds(turns)
    return measure(samplers, rounds) if samplers else {}, problems


def run(cases: Sequence[Case], rounds: int, path: str | None, *, allow_cpu: bool) -> int:
    """Times the cases, and shows a table for each title; with a `path`, writes the seconds as JSON
    too. Gives the exit status."""
    players, missing = find_players(allow_cpu=allow_cpu)
    if not any(player.name.startswith("dmlc") for player in players):
        for problem in missing:
            print(problem, file=sys.stderr)
        print("error: there is no GPU to time kernels on; --allow-cpu tries it on a CPU",
              file=sys.stderr)  # fmt: skip
        return _NO_DEVICE
    out: Any = sys.stderr if path == "-" else sys.stdout
    for player in players:
        print(f"{player.name}: {player.device}", file=out)
    for problem in missing:
        print(f"missing: {problem}", file=out)
    print(f"\n{rounds} rounds; median time (ratio to the {COPY})\n", file=out, flush=True)
    times: dict[str, dict[str, dict[str, float]]] = {}
    problems: dict[str, list[str]] = {}
    for title, group in itertools.groupby(cases, lambda case: case.title):
        rows = times[title] = {}
        for case in group:
            rows[case.name], wrong = time_task(case.make(), players, rounds)
            for who, what in wrong.items():
                problems.setdefault(f"{who}: {what}", []).append(f"{title} {case.name}")
        print(show_rows(title, rows, COPY) + "\n", file=out, flush=True)
    for problem, where in problems.items():
        print(f"not timed: {problem} ({'; '.join(where)})", file=out)
    if path is not None:
        found = {"devices": {p.name: p.device for p in players}, "times": times,
                 "missing": missing, "problems": problems}  # fmt: skip
        text = json.dumps(found, indent=2) + "\n"
        if path == "-":
            sys.stdout.write(text)
        else:
            pathlib.Path(path).write_text(text, encoding="utf-8")
    return 1 if any(problem.endswith(WRONG) for problem in problems) else 0
