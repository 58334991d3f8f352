"""Random scripts of random functions, as many as wanted: `python -m tests.kernel.random_scripts`.

Each is drawn by a number, runs in the interpreter, and is held to the reference bit for bit. What
fails is printed by its shortest script: the number makes it again. In the end it says how many
kernels each primitive is in, and how often it was refused.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import random
import sys
import traceback
from collections import Counter

import numpy as np

from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.passes import set_verify_each
from dmlc.loops.contraction import list_divided
from dmlc.loops.nodes import Nest
from dmlc.loops.primitives import apply
from dmlc.loops.script import PRIMITIVES, ScheduleError, parse_script, print_script
from dmlc.matrices import find_instruction
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.testing.schedules import DRAWN, Step, draw_steps, follow
from tests.kernel.schedules import FOLDS, FUNCTIONS, HALVES, LIMITS, QUOTIENTS, read, start
from tests.kernel.whole_scripts import draw_whole

_LONG = 32, 48, 64, 68
_CHAIN = (
    *("axis", "axis", "fuse", "split", "groups", "items", "split", "split", "split", "items"),
    *("share", "share", "vectorize whole", "unroll", "reorder", *sorted(set(DRAWN))),
)
"""Primitives in an order in which many of them are legal."""
_INSTRUCTION = "8x8x8/8"
_MATRICES = """\
tile i0 {side} as row
tile i1 {side} as column
tile k {depth} as point
reorder row
fuse i0 as tile
bind tile group
tensorize row {instruction} {rows} {columns}
stage k left shared point {pad}
stage k right shared {beside} {pad}"""
"""What a product is made of matrices by."""
_WHOLE = 0.1
"""Of all scripts, those of one call that makes all loops anew."""
_EVERY = FUNCTIONS | HALVES | QUOTIENTS
_LIMITS = dataclasses.replace(
    LIMITS, pair_types=(DataType.FLOAT16,), instruction=find_instruction(_INSTRUCTION)
)
"""Those of a target that has all that primitives are for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A script that went wrong."""

    number: int
    kind: str
    """The error and where it came from: those of one kind are one defect, mostly."""
    words: str
    length: int


@dataclasses.dataclass(slots=True)
class Tried:
    """Which primitives a script is made by, and which of them were refused, with the reason."""

    legal: Counter[str] = dataclasses.field(default_factory=Counter[str])
    refused: Counter[str] = dataclasses.field(default_factory=Counter[str])
    failure: Failure | None = None


def draw_chain(draw: random.Random) -> list[Step]:
    """Some steps, drawn alike or along a chain of legal ones."""
    steps = draw_steps(draw)
    if draw.random() < 0.4:
        return steps
    chain = [(name, draw.choice((0, draw.randrange(8))), draw.randrange(4)) for name in _CHAIN]
    return [step for step in chain if draw.random() < 0.7] + steps[:3]


def begin(name: str, nest: Nest, function: ir.Function, draw: random.Random) -> Nest:
    """A nest after what pairs halves, multiplies matrices of them, packs panels or rows, or parts
    what positions divide, as far as that is legal."""
    script = ""
    divided = [
        f"part {dim.name} {number}"
        for phase, dims in zip(nest.phases, nest.dims, strict=True)
        for axis, dim in enumerate(dims)
        for number in list_divided(phase, axis)
    ]
    if divided and draw.random() < 0.5:
        script = draw.choice(divided)
    if "product" in name and draw.random() < 0.2:
        numbers = (draw.choice((1, 2, 3, 6, 7, 20)) for _ in range(3))
        script = f"panel {' '.join(map(str, numbers))} {draw.choice((8, 16))}"
    if "product" in name and draw.random() < 0.1:
        script = f"dot {draw.choice((1, 3, 20))} 8"
    if name == "halves" and draw.random() < 0.7:
        script = "fuse i0 as i\nfuse i as e\npair e" if draw.random() < 0.8 else "pair i"
    elif name == "product of halves" and draw.random() < 0.8:
        side = draw.choice((8, 16))
        script = _MATRICES.format(
            side=side, depth=draw.choice((8, 16)), instruction=_INSTRUCTION,
            rows=draw.choice((1, side // 8)), columns=draw.choice((1, side // 8)),
            pad=draw.choice((0, 8)), beside=draw.choice(("column", "point")),
        )  # fmt: skip
    try:
        return apply(nest, function, _LIMITS, *parse_script(script))
    except ScheduleError:
        return nest


def run_script(number: int) -> Tried:
    """The script of a number: what it is made by, and what is wrong with it, if anything is."""
    draw, tried = random.Random(number), Tried()
    if draw.random() < _WHOLE:
        return run_whole(number, draw)
    name, fold = draw.choice(list(_EVERY)), draw.choice(FOLDS)
    sizes = (draw.randint(0, 5), draw.randint(0, 6), draw.randint(0, 18))
    if draw.random() < 0.15:
        sizes = (draw.randint(1, 3), draw.randint(1, 3), draw.choice(_LONG))
    nests: list[Nest] = []
    set_verify_each(True)
    try:
        kernels = read(name, sizes, fold, _EVERY)
        function = kernels.function
        if draw.random() < 0.25:
            kernels, calls = kernels.cut(draw)
            tried.legal.update(call.verb for call in calls)
        for nest in start(kernels):
            begun = begin(name, nest, function, draw)
            steps = draw_chain(draw)
            made, _ = follow(begun, function, _LIMITS, steps, refused=tried.refused)
            nests.append(made)
            tried.legal.update({call.verb for call in made.script})
        inputs = kernels.inputs(number % 2**32)
        got = run_kernels(function, kernels.lower(nests, _LIMITS), inputs)
        for result, values in evaluate(function, inputs).items():
            assert np.array_equal(got[result], values), f"'{result}' is wrong"
    except Exception as error:
        scripts = "\n--\n".join(print_script(nest.script) for nest in nests)
        length = sum(len(nest.script) for nest in nests)
        tried.failure = fail(number, error, f"{name} {sizes} {fold}", scripts, length)
    return tried


def fail(number: int, error: Exception, name: str, scripts: str, length: int) -> Failure:
    """What went wrong with the scripts of a function."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__} in {place.name}:{place.lineno}"
    return Failure(number, kind, f"{name}: {str(error)[:300]}\n{scripts}", length)


def run_whole(number: int, draw: random.Random) -> Tried:
    """A primitive that makes all loops anew, with numbers that are drawn."""
    tried = Tried()
    name, whole, script = draw_whole(draw)
    set_verify_each(True)
    try:
        tried.legal.update(call.verb for nest in whole.run(script) for call in nest.script)
    except ScheduleError as error:
        reason = error.diagnostics[0].message.removeprefix(f"{script}: ")
        tried.refused[f"{script.partition(' ')[0]}: {reason}"] += 1
    except Exception as error:
        tried.failure = fail(number, error, name, script, 1)
    return tried


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.random_scripts")
    parser.add_argument("--count", type=int, default=10_000, help="scripts (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--refusals", type=int, default=0, help="reasons to print, the most first")
    given = parser.parse_args(arguments)
    numbers = range(given.first, given.first + given.count)
    shortest: dict[str, Failure] = {}
    failed, legal, refused = 0, Counter[str](), Counter[str]()
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        found = pool.map(run_script, numbers, chunksize=25)
        for tried in found:
            legal.update(tried.legal)
            refused.update(tried.refused)
            failure = tried.failure
            if failure is None:
                continue
            failed += 1
            if failure.kind not in shortest:
                print(f"script {failure.number}: {failure.kind}", flush=True)
            known = shortest.setdefault(failure.kind, failure)
            if failure.length < known.length:
                shortest[failure.kind] = failure
    for failure in shortest.values():
        print(f"\nscript {failure.number}: {failure.kind}\n{failure.words}")
    calls = Counter[str]()
    for reason, count in refused.items():
        calls[reason.partition(":")[0]] += count
    print(f"{'primitive':12} {'kernels':>8} {'refused':>9}")
    for verb in sorted(PRIMITIVES):
        print(f"{verb:12} {legal[verb]:8,} {calls[verb]:9,}")
    for reason, count in refused.most_common(given.refusals):
        print(f"{count:9,} {reason}")
    print(f"{given.count:,} scripts, {failed:,} wrong, {len(shortest)} kinds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
