"""`python -m benchmarks`: gradients beside other programs and the machine's own limit."""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import batch_norm
from benchmarks.contenders import Case, Contender, contenders
from benchmarks.limit import Limit
from benchmarks.measure import PAUSE_SECONDS, measure, repeats_for, sample
from benchmarks.startup import measure_startup

Array = npt.NDArray[Any]

LIMIT = "machine's limit"
TYPES = {"f32": np.float32, "f16": np.float16}
SIZES = {"1K": 1 << 10, "64K": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}

Times = dict[str, dict[str, dict[str, float]]]
"""Seconds by type, size and contender."""


def time_relu_grad(limit: Limit, type_name: str, count: int, rounds: int) -> dict[str, float]:
    """Median seconds of every contender, and of the limit."""
    case = Case.make(TYPES[type_name], count)

    def prepare(contender: Contender) -> bool:
        case.out[...] = 1
        contender.run()
        return np.array_equal(contender.result(), case.expected)

    found = contenders(case, limit.threads)
    what = f"{type_name}[{count}]"
    return time_contenders(limit, found, (case.x, case.dy, case.out), prepare, what, rounds)


def time_batch_norm(limit: Limit, type_name: str, size: str, rounds: int) -> dict[str, float]:
    """The same of the gradient of batch normalization."""
    case = batch_norm.Case(TYPES[type_name], batch_norm.SHAPES[size])

    def prepare(contender: Contender) -> bool:
        contender.run()
        return case.is_right(contender.result())

    found = batch_norm.contenders(case, limit.threads)
    what = f"{type_name}[{size}]"
    return time_contenders(limit, found, (case.x, case.dy, case.out), prepare, what, rounds)


def time_contenders(
    limit: Limit,
    contenders: Iterable[Contender],
    arrays: tuple[Array, Array, Array],
    prepare: Callable[[Contender], bool],
    what: str,
    rounds: int,
) -> dict[str, float]:
    """Median seconds of contenders whose results are right, and of reading the first two arrays
    and writing the third: the best of the limit's variants."""
    samplers: dict[str, Callable[[], float]] = {}
    for contender in contenders:
        if not prepare(contender):
            raise SystemExit(f"{contender.name} gives a wrong result for {what}")
        repeats = repeats_for(contender.run)
        samplers[contender.name] = functools.partial(sample, contender.run, repeats)
    repeats = max(1, min(20_000, 40_000_000 // (3 * arrays[0].nbytes)))
    for variant in range(limit.variants):
        samplers[f"limit {variant}"] = functools.partial(
            sample_limit, limit, variant, arrays, repeats
        )
    found = measure(samplers, rounds)
    variants = [found.pop(f"limit {k}") for k in range(limit.variants)]
    return {LIMIT: min(variants)} | found


def sample_limit(
    limit: Limit, variant: int, arrays: tuple[Array, Array, Array], repeats: int
) -> float:
    """As `measure.sample` does it, timed in C: at a thousand elements a call from Python takes
    longer than the work."""
    time.sleep(PAUSE_SECONDS)
    limit.seconds(variant, *arrays, 1)
    return limit.seconds(variant, *arrays, repeats)


def show_time(seconds: float) -> str:
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def show_table(title: str, columns: dict[str, dict[str, float]]) -> str:
    """A Markdown table: the time, and in brackets its ratio to the limit."""
    names = dict.fromkeys(name for times in columns.values() for name in times)
    rows = [[title, *columns]]
    rows += [[name, *(show_cell(t[name], t[LIMIT]) for t in columns.values())] for name in names]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def show_cell(seconds: float, limit: float) -> str:
    """A time with its ratio to the limit."""
    ratio = seconds / limit
    return f"{show_time(seconds)} ({ratio:{'.2f' if ratio < 10 else '.0f'}})"


Target = tuple[str, float, float]
"""What, the figure found, and the most it may be."""


def check(times: Times, norms: Times, startup: dict[str, float]) -> list[Target]:
    """What the project holds itself to. Only what was measured is listed."""
    found: list[Target] = []
    for type_name, columns in times.items():
        large = columns.get("16M")
        if large:
            bound = large["dmlc bound call"]
            found.append((f"{type_name} 16M: bound call / limit", bound / large[LIMIT], 1.15))
            if "PyTorch eager, out=" in large:
                torch = large["PyTorch eager, out="]
                found.append((f"{type_name} 16M: bound call / PyTorch out=", bound / torch, 1.0))
        small = columns.get("1K")
        if small and type_name == "f32" and "PyTorch eager, out=" in small:
            torch = small["PyTorch eager, out="]
            bound, called = small["dmlc bound call"], small["dmlc executable, out="]
            found.append(("f32 1K: bound call / PyTorch out=", bound / torch, 1.5))
            found.append(("f32 1K: executable / PyTorch out=", called / torch, 4.0))
    for type_name, columns in norms.items():
        found += [t for size, taken in columns.items() for t in check_norm(type_name, size, taken)]
    for name, most in (("dmlc --help", 0.3), ("dmlc compile, one operator", 0.7)):
        if name in startup:
            found.append((f"{name}, seconds", startup[name], most))
    return found


def check_norm(type_name: str, size: str, taken: dict[str, float]) -> list[Target]:
    """The targets of one shape of batch normalization: a large one is held against the limit too,
    and is to take half the time of the best of PyTorch."""
    large = size == "32x64x56x56"
    what, bound = f"batch norm {type_name} {size}: bound call", taken["dmlc bound call"]
    found: list[Target] = []
    if large:
        found.append((f"{what} / limit", bound / taken[LIMIT], 1.8))
    others = [taken[name] for name in ("PyTorch eager", "torch.compile") if name in taken]
    if others:
        found.append((f"{what} / best of PyTorch", bound / min(others), 0.5 if large else 1.0))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Times the gradients of ReLU and of batch normalization in dmlc beside NumPy, "
        "PyTorch and numexpr (where they are installed) and a C program that only moves the bytes.",
    )
    parser.add_argument("--type", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--size", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--norm", nargs="*", choices=batch_norm.SHAPES, default=list(batch_norm.SHAPES),
        metavar="SHAPE", help="shapes of batch normalization; with none it is left out",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=21, help="rounds per case (default 21)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-startup", action="store_true", help="leave whole processes out")
    parser.add_argument("--json", metavar="FILE", help="write seconds as JSON too ('-': only that)")
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 where a target is missed"
    )
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads take a number of 1 or more")
    # Read by PoCL when its devices are first used, which is later than this.
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(options.threads))

    out: Any = sys.stderr if options.json == "-" else sys.stdout
    limit = Limit(options.threads)
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, "
          f"{options.rounds} rounds; median time (ratio to the limit)\n", file=out)  # fmt: skip
    times: Times = {}
    norms: Times = {}
    for type_name in options.type:
        times[type_name] = {
            size: time_relu_grad(limit, type_name, SIZES[size], options.rounds)
            for size in options.size
        }
        norms[type_name] = {
            size: time_batch_norm(limit, type_name, size, options.rounds) for size in options.norm
        }
        for title, columns in (("ReLU", times[type_name]), ("Batch norm", norms[type_name])):
            if columns:
                print(show_table(f"{title} grad {type_name}", columns) + "\n", file=out, flush=True)
    startup = {} if options.no_startup else measure_startup(5)
    for name, seconds in startup.items():
        print(f"{name}: {show_time(seconds)}", file=out)
    targets = check(times, norms, startup)
    print("\nTargets:", file=out)
    for what, figure, most in targets:
        verdict = "met" if figure <= most else "MISSED"
        print(f"  {what}: {figure:.2f} (at most {most:g}): {verdict}", file=out)
    if options.json:
        text = (
            json.dumps({"times": times, "batch_norm": norms, "startup": startup}, indent=2) + "\n"
        )
        if options.json == "-":
            sys.stdout.write(text)
        else:
            pathlib.Path(options.json).write_text(text, encoding="utf-8")
    return 1 if options.check and any(figure > most for _, figure, most in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
