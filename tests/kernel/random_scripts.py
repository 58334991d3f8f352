"""Random scripts of random functions, as many as wanted: `python -m tests.kernel.random_scripts`.

Each is drawn by a number, runs in the interpreter, and is held to the reference bit for bit. What
fails is printed by its shortest script: the number makes it again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import random
import sys
import traceback

import numpy as np

from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.passes import set_verify_each
from dmlc.loops.nodes import Nest
from dmlc.loops.script import print_script
from dmlc.reference import evaluate
from dmlc.testing.schedules import DRAWN, Step, draw_steps, follow
from tests.kernel.schedules import FOLDS, FUNCTIONS, LIMITS, read, start

_LONG = 32, 48, 64, 68
_CHAIN = (
    *("axis", "axis", "fuse", "split", "groups", "items", "split", "split", "split", "items"),
    *("share", "share", "vectorize whole", "unroll", "reorder", *sorted(set(DRAWN))),
)
"""Primitives in an order in which many of them are legal."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A script that went wrong."""

    number: int
    kind: str
    """The error and where it came from: those of one kind are one defect, mostly."""
    words: str
    length: int


def draw_chain(draw: random.Random) -> list[Step]:
    """Some steps, drawn alike or along a chain of legal ones."""
    steps = draw_steps(draw)
    if draw.random() < 0.4:
        return steps
    chain = [(name, draw.choice((0, draw.randrange(8))), draw.randrange(4)) for name in _CHAIN]
    return [step for step in chain if draw.random() < 0.7] + steps[:3]


def run_script(number: int) -> Failure | None:
    """The script of a number: what is wrong with it, if anything is."""
    draw = random.Random(number)
    name, fold = draw.choice(list(FUNCTIONS)), draw.choice(FOLDS)
    sizes = (draw.randint(0, 5), draw.randint(0, 6), draw.randint(0, 18))
    if draw.random() < 0.15:
        sizes = (draw.randint(1, 3), draw.randint(1, 3), draw.choice(_LONG))
    nests: list[Nest] = []
    set_verify_each(True)
    try:
        kernels = read(name, sizes, fold)
        nests += (follow(nest, kernels.function, LIMITS, draw_chain(draw))[0]
                  for nest in start(kernels))  # fmt: skip
        inputs = kernels.inputs(number % 2**32)
        got = run_kernels(kernels.function, kernels.lower(nests), inputs)
        for result, values in evaluate(kernels.function, inputs).items():
            assert np.array_equal(got[result], values), f"'{result}' is wrong"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} in {place.name}:{place.lineno}"
        scripts = "\n--\n".join(print_script(nest.script) for nest in nests)
        words = f"{name} {sizes} {fold}: {str(error)[:300]}\n{scripts}"
        return Failure(number, kind, words, sum(len(nest.script) for nest in nests))
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.random_scripts")
    parser.add_argument("--count", type=int, default=10_000, help="scripts (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    numbers = range(given.first, given.first + given.count)
    shortest: dict[str, Failure] = {}
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        found = pool.map(run_script, numbers, chunksize=25)
        for failure in itertools.filterfalse(lambda each: each is None, found):
            assert failure is not None
            failed += 1
            if failure.kind not in shortest:
                print(f"script {failure.number}: {failure.kind}", flush=True)
            known = shortest.setdefault(failure.kind, failure)
            if failure.length < known.length:
                shortest[failure.kind] = failure
    for failure in shortest.values():
        print(f"\nscript {failure.number}: {failure.kind}\n{failure.words}")
    print(f"{given.count:,} scripts, {failed:,} wrong, {len(shortest)} kinds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
