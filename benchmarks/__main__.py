"""`python -m benchmarks`: gradients beside other programs and the machine's own limit."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks import against, batch_norm, calls, gpu, graphs, resample
from benchmarks.contenders import Case, contenders, vulkan_contenders
from benchmarks.limit import Limit
from benchmarks.measure import PAUSE_SECONDS, measure, repeats_for, sample
from benchmarks.startup import measure_startup
from benchmarks.table import LIMIT, show_table, show_time
from benchmarks.task import Array, Contender

TYPES = {"f32": np.float32, "f16": np.float16}
SIZES = {"1K": 1 << 10, "64K": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}

Times = dict[str, dict[str, dict[str, float]]]
"""Seconds by operator and type, by size, and by contender."""


class Timed(Protocol):
    """The arrays of a case: what the limit moves, and what a result is held to."""

    @property
    def reads(self) -> tuple[Array, ...]: ...
    @property
    def out(self) -> Array: ...
    def accepts(self, result: Array) -> bool: ...


def time_case(
    limit: Limit, case: Timed, groups: Iterable[Iterable[Contender]], rounds: int
) -> dict[str, float]:
    """Median seconds of every contender, and of the limit: the best of its variants.

    Groups are timed one after the other: what runs shaders on a CPU has threads of its own,
    which linger.
    """
    moved = case.out.nbytes + sum(a.nbytes for a in case.reads)
    repeats = max(1, min(20_000, 40_000_000 // moved))
    found: dict[str, float] = {}
    for number, entrants in enumerate(groups):
        samplers = make_samplers(case, entrants)
        for variant in range(limit.variants if number == 0 else 0):
            samplers[f"limit {variant}"] = functools.partial(
                sample_limit, limit, variant, case, repeats
            )
        found |= measure(samplers, rounds) if samplers else {}
    variants = [found.pop(f"limit {k}") for k in range(limit.variants)]
    return {LIMIT: min(variants)} | found


def make_samplers(case: Timed, entrants: Iterable[Contender]) -> dict[str, Callable[[], float]]:
    """How to time each contender, once it has been seen to give the right result."""
    samplers: dict[str, Callable[[], float]] = {}
    for contender in entrants:
        case.out[...] = 1
        contender.run()
        if not case.accepts(contender.result()):
            raise SystemExit(f"{contender.name} gives a wrong result for {case.out.dtype}")
        repeats = repeats_for(contender.run)
        samplers[contender.name] = functools.partial(sample, contender.run, repeats)
    return samplers


def sample_limit(limit: Limit, variant: int, case: Timed, repeats: int) -> float:
    """As `measure.sample` does it, timed in C: at a thousand elements a call from Python takes
    longer than the work."""
    time.sleep(PAUSE_SECONDS)
    limit.seconds(variant, case.reads, case.out, 1)
    return limit.seconds(variant, case.reads, case.out, repeats)


def time_relu_grad(limit: Limit, dtype: npt.DTypeLike, size: str, rounds: int) -> dict[str, float]:
    case = Case.make(dtype, SIZES[size])
    return time_case(
        limit, case, (contenders(case, limit.threads), vulkan_contenders(case)), rounds
    )


def time_batch_norm(
    limit: Limit, dtype: npt.DTypeLike, shape: str, rounds: int
) -> dict[str, float]:
    case = batch_norm.Case.make(dtype, batch_norm.SHAPES[shape])
    return time_case(limit, case, (batch_norm.contenders(case, limit.threads),), rounds)


def time_resample(limit: Limit, dtype: npt.DTypeLike, case: str, rounds: int) -> dict[str, float]:
    made = resample.Case.make(dtype, resample.CASES[case])
    return time_case(limit, made, (resample.contenders(made, limit.threads),), rounds)


def time_graph(limit: Limit, dtype: npt.DTypeLike, case: str, rounds: int) -> dict[str, float]:
    make, _, _ = graphs.CASES[case]
    made = make(dtype)
    return time_case(limit, made, (graphs.contenders(made, limit.threads),), rounds)


OPERATORS = {
    "ReLU grad": (time_relu_grad, tuple(SIZES)),
    "BN training grad": (time_batch_norm, tuple(batch_norm.SHAPES)),
    "Resampling grad": (time_resample, tuple(resample.CASES)),
    "Graph": (time_graph, tuple(graphs.CASES)),
}
"""How each is timed, and in which columns."""
CALLS, CALLS_COLUMN = "Calls of ReLU", f"{calls.COUNT:,} elements"


Found = list[tuple[str, float, float]]
"""What was looked at, the figure found, and the most it may be."""


def check_relu_grad(title: str, columns: dict[str, dict[str, float]]) -> Found:
    found: Found = []
    large, small = columns.get("16M"), columns.get("1K")
    if large:
        bound = large["dmlc bound call"]
        found.append((f"{title} 16M: bound call / limit", bound / large[LIMIT], 1.15))
        if "naive HLSL on Vulkan" in large:
            naive, ours = large["naive HLSL on Vulkan"], large["dmlc on Vulkan, bound call"]
            found.append((f"{title} 16M: HLSL on Vulkan / naive", ours / naive, 0.7))
        if "PyTorch eager, out=" in large:
            torch = large["PyTorch eager, out="]
            found.append((f"{title} 16M: bound call / PyTorch out=", bound / torch, 1.0))
    if small and title.endswith("f32") and "PyTorch eager, out=" in small:
        torch = small["PyTorch eager, out="]
        bound, called = small["dmlc bound call"], small["dmlc executable, out="]
        found.append((f"{title} 1K: bound call / PyTorch out=", bound / torch, 1.5))
        found.append((f"{title} 1K: executable / PyTorch out=", called / torch, 4.0))
    return found


def check_batch_norm(title: str, columns: dict[str, dict[str, float]]) -> Found:
    found: Found = []
    for shape, times in columns.items():
        bound = times["dmlc bound call"]
        large = shape == next(iter(batch_norm.SHAPES))
        if large:
            found.append((f"{title} {shape}: bound call / limit", bound / times[LIMIT], 1.8))
        torch = [t for name, t in times.items() if "orch" in name]
        if torch:
            most = 0.5 if large else 1.0
            found.append(
                (f"{title} {shape}: bound call / best of PyTorch", bound / min(torch), most)
            )
    return found


def check_resample(title: str, columns: dict[str, dict[str, float]]) -> Found:
    found: Found = []
    for name, times in columns.items():
        bound, case = times["dmlc bound call"], resample.CASES[name]
        if case.most_limits is not None:
            ratio = bound / times[LIMIT]
            found.append((f"{title} {name}: bound call / limit", ratio, case.most_limits))
        if "PyTorch eager" in times:
            ratio = bound / times["PyTorch eager"]
            found.append((f"{title} {name}: bound call / PyTorch eager", ratio, case.most_torch))
    return found


def check_graph(title: str, columns: dict[str, dict[str, float]]) -> Found:
    found: Found = []
    for name, times in columns.items():
        _, most_limits, most_torch = graphs.CASES[name]
        bound = times["dmlc bound call"]
        found.append((f"{title} {name}: bound call / limit", bound / times[LIMIT], most_limits))
        torch = [t for contender, t in times.items() if "orch" in contender]
        if torch and most_torch is not None:
            ratio = bound / min(torch)
            found.append((f"{title} {name}: bound call / best of PyTorch", ratio, most_torch))
    return found


def check_calls(title: str, columns: dict[str, dict[str, float]]) -> Found:
    times = columns[CALLS_COLUMN]
    if calls.BASELINE not in times:
        return []
    ratio = times["dmlc.torch.register"] / times[calls.BASELINE]
    return [(f"{title}: registered operator / torch.relu", ratio, 11.0)]


CHECKS = {
    CALLS: check_calls,
    "ReLU": check_relu_grad,
    "BN": check_batch_norm,
    "Resampling": check_resample,
    "Graph": check_graph,
}
"""By what the title of a table starts with."""


def check(times: Times, startup: dict[str, float]) -> Found:
    """What the project holds itself to. Only what was measured is listed."""
    found: Found = []
    for title, columns in times.items():
        look = next(c for name, c in CHECKS.items() if title.startswith(name))
        found += look(title, columns)
    for name, most in (("dmlc --help", 0.3), ("dmlc compile, one operator", 0.7)):
        if name in startup:
            found.append((f"{name}, seconds", startup[name], most))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Times gradients in dmlc beside NumPy, PyTorch and others (where they are "
        "installed) and a C program that only moves the bytes.",
    )
    parser.add_argument("--operator", nargs="+", choices=[*OPERATORS, CALLS, *gpu.TITLES])
    parser.add_argument("--type", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--size", nargs="+", choices=SIZES, default=list(SIZES),
                        help="elements of ReLU gradient")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=21, help="rounds per case (default 21)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-startup", action="store_true", help="leave whole processes out")
    parser.add_argument("--json", metavar="FILE", help="write seconds as JSON too ('-': only that)")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 where a target is missed"
    )
    parser.add_argument(
        "--gpu", action="store_true",
        help="time every benchmark on a GPU, through OpenCL and Vulkan, beside PyTorch and a copy",
    )  # fmt: skip
    parser.add_argument(
        "--allow-cpu", action="store_true", help="with --gpu: take a CPU where there is no GPU"
    )
    parser.add_argument(
        "--against", metavar="PATH", type=pathlib.Path,
        help="time dmlc beside that of another checkout, and nothing else; status 1 where a row "
        f"takes over {against.MOST} times as long",
    )  # fmt: skip
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads take a number of 1 or more")
    everything = [*OPERATORS, *gpu.TITLES] if options.gpu else [*OPERATORS, CALLS]
    wanted = options.operator or everything
    for title in gpu.TITLES:
        if title in wanted and not options.gpu:
            parser.error(f"'{title}' is timed with --gpu")
    if CALLS in wanted and options.gpu:
        parser.error(f"'{CALLS}' are timed on a CPU")
    if options.check and options.gpu:
        parser.error("--check is of targets on a CPU, and --gpu has none")
    if options.against is not None:
        if options.gpu or options.check or options.json or CALLS in (options.operator or ()):
            parser.error(f"--against goes with neither --gpu, --check, --json nor '{CALLS}'")
        if not (options.against / "dmlc" / "__init__.py").is_file():
            parser.error(f"--against {options.against} has no dmlc: give the root of a checkout")
        chosen = [name for name in wanted if name != CALLS]
        where = options.against.resolve()
        return against.compare(where, chosen, options.type, options.size, options.rounds)
    if options.gpu:
        cases = gpu.list_cases(wanted, options.type, options.size)
        return gpu.run(cases, options.rounds, options.json, allow_cpu=options.allow_cpu)
    # Read by PoCL when its devices are first used, which is later than this.
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(options.threads))

    out: Any = sys.stderr if options.json == "-" else sys.stdout
    limit = Limit(options.threads)
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, "
          f"{options.rounds} rounds; median time (ratio to the limit)\n", file=out)  # fmt: skip
    times: Times = {}
    for name, type_name in itertools.product([n for n in wanted if n != CALLS], options.type):
        timer, columns = OPERATORS[name]
        chosen = [c for c in columns if name != "ReLU grad" or c in options.size]
        title = f"{name} {type_name}"
        times[title] = {c: timer(limit, TYPES[type_name], c, options.rounds) for c in chosen}
        print(show_table(title, times[title]) + "\n", file=out, flush=True)
    if CALLS in wanted:
        times[CALLS] = {CALLS_COLUMN: calls.time_calls(options.rounds)}
        print(show_table(CALLS, times[CALLS], calls.BASELINE) + "\n", file=out, flush=True)
    startup = {} if options.no_startup else measure_startup(5)
    for name, seconds in startup.items():
        print(f"{name}: {show_time(seconds)}", file=out)
    targets = check(times, startup)
    print("\nTargets:", file=out)
    for what, figure, most in targets:
        verdict = "met" if figure <= most else "MISSED"
        print(f"  {what}: {figure:.2f} (at most {most:g}): {verdict}", file=out)
    if options.json:
        text = json.dumps({"times": times, "startup": startup}, indent=2) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            pathlib.Path(options.json).write_text(text, encoding="utf-8")
    return 1 if options.check and any(figure > most for _, figure, most in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
