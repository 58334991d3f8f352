"""Exported functions run by IREE on the CPU and held to their bounds: every example of every
operator of the library with every data type, every golden case, and operators with sizes left
open.

`python -m tests.peers.mlir_corpus` runs all of it; tests run a part.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterator, Sequence

import numpy as np

import dmlc
from dmlc.binding import ir_name
from dmlc.reference import evaluate
from dmlc.scalars import TENSOR_TYPES, Array
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Case, judge
from dmlc.testing.compare import Verdict
from dmlc.testing.examples import read_cases
from tests.goldens import CASES, find_wrong, make_inputs, read_case
from tests.open_sizes import SUBJECTS
from tests.peers import mlir_operations
from tests.peers.iree import Functions

_TOGETHER = 40
"""Functions that are compiled together."""

_DEPARTING = {("directml.ELEMENT_WISE_ASINH", "zero, and an end")}
"""Examples that show a value at which an operation of IREE departs, as `departures.txt` lists."""

GOLDENS = [case for case in CASES if case != "special_literals"]
"""The golden cases but one, which computes with denormals."""


@functools.cache
def list_cases() -> list[Case]:
    """Every example of the library with every data type."""
    operators = map(dmlc.operator, dmlc.operators())
    return [
        case
        for operator in operators
        for example in operator.definition.examples
        for case in read_cases(operator, example)
    ]


def find_wrong_cases(cases: Sequence[Case], passes: Sequence[str] = ()) -> Iterator[str]:
    """What IREE computes otherwise than these cases say, a line for each output."""
    made = Functions([case.call.function for case in cases], passes)
    for number, case in enumerate(cases):
        given = {ir_name(name): array for name, array in case.inputs.items()}
        found = made.run(number, given)
        results = {name: found[ir_name(name)] for name in case.call.outputs}
        departs = (case.call.operator.name, case.title) in _DEPARTING
        for name, verdict in judge(case, results).items():
            if verdict.holds == departs:
                yield f"{case}: {name}: {verdict}"


def find_wrong_goldens(names: Sequence[str], passes: Sequence[str] = ()) -> Iterator[str]:
    """The same of golden cases. Sizes that are left open are 1000."""
    functions = [read_case(name) for name in names]
    made = Functions(functions, passes)
    for number, (name, function) in enumerate(zip(names, functions, strict=True)):
        inputs = {n: _flush(values) for n, values in make_inputs(function, 1000).items()}
        wanted = evaluate(function, inputs)
        yield from (f"{name}: {w}" for w in find_wrong(name, made.run(number, inputs), wanted))


def find_wrong_sizes(names: Sequence[str]) -> Iterator[str]:
    """The same of operators with sizes left open, each compiled once and run with four sizes."""
    made = Functions([SUBJECTS[name].bind() for name in names])
    for number, name in enumerate(names):
        subject, chance = SUBJECTS[name], random.Random(name)
        for seed in range(4):
            sizes = subject.draw(chance)
            inputs, bound = subject.make(sizes, seed), subject.bind(sizes)
            wanted, allowed = evaluate(bound, inputs), bound_errors(bound, inputs)
            for result, values in made.run(number, inputs).items():
                verdict = Verdict.of(values, wanted[result], allowed[result])
                if not verdict.holds:
                    yield f"{name} at {sizes}: {result}: {verdict}"


def _flush(values: Array) -> Array:
    """Zeros in place of FLOAT32's denormals, which IREE takes for zeros."""
    if values.dtype.kind in "biu":
        return values
    with np.errstate(invalid="ignore"):
        small = np.abs(values.astype(np.float64)) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(values.dtype.type(0), values), values)


def main() -> int:
    """Runs everything, and says what is wrong."""
    wrong: list[str] = []
    cases = list_cases()
    for start in range(0, len(cases), _TOGETHER):
        part = cases[start : start + _TOGETHER]
        wrong += find_wrong_cases(part)
        print(f"{start + len(part)} of {len(cases)} functions", flush=True)
    wrong += find_wrong_goldens(GOLDENS)
    print(f"{len(GOLDENS)} golden cases", flush=True)
    wrong += find_wrong_sizes(list(SUBJECTS))
    print(f"{len(SUBJECTS)} operators with open sizes", flush=True)
    for dtype in TENSOR_TYPES:
        found, listed = mlir_operations.find_departures(dtype), mlir_operations.read_list(dtype)
        wrong += [f"not listed: {line}" for line in found if line not in listed]
        wrong += [f"listed, and not so: {line}" for line in listed if line not in found]
        print(f"operations on {dtype.name}", flush=True)
    print("\n".join([*wrong, f"{len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
