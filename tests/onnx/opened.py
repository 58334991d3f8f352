"""`python -m tests.onnx.opened 7 9`: ONNX's own node tests with sizes opened at random, by seeds 7
and 8: what an import of them comes to.

What raises anything but `DmlcError`, or gives other values than ONNX does, is a finding, and then
the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import enum
import random
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

import dmlc
from dmlc.source import DmlcError
from tests.onnx.node_cases import REFERENCE_ONLY, as_array, collect, list_modules, read_excluded

FIXED = 6
"""One axis in so many is left as it is."""
SHARED = 0.7
"""How often axes that have one size have one name, as in models that tools export."""


class Outcome(enum.Enum):
    """What came of a test."""

    RIGHT = enum.auto()
    REFUSED = enum.auto()
    """When it was imported, with a `DmlcError`."""
    UNFIT = enum.auto()
    """When it was run: by what it takes to hold of its sizes."""
    WRONG = enum.auto()


def open_sizes(model: onnx.ModelProto, draw: random.Random) -> onnx.ModelProto:
    """A model with some sizes of its inputs left open."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for declared in made.graph.input:
        if declared.type.WhichOneof("value") != "tensor_type":
            continue
        for axis, dim in enumerate(declared.type.tensor_type.shape.dim):
            if draw.randrange(FIXED):
                own = f"{declared.name}_{axis}"
                dim.dim_param = f"S{dim.dim_value}" if draw.random() < SHARED else own
    return made


def import_opened(model: onnx.ModelProto, given: dict[str, Any]) -> dmlc.onnx.ImportedModel | None:
    """The model, with what shapes it fixed; None where it is refused. What is no `DmlcError`, such
    as an `InternalError`, is raised."""
    constants: dict[str, Any] = {}
    while True:
        try:
            return dmlc.onnx.load(model, constants=constants)
        except dmlc.onnx.UnknownValueError as error:
            new = [name for name in error.names if name in given and name not in constants]
            if not new:
                return None
            constants.update({name: given[name] for name in new})
        except DmlcError:
            return None


def try_opened(case: Any, seed: int) -> Outcome:
    """One test, with its sizes opened by a seed, on the reference."""
    model = open_sizes(case.model, random.Random(f"{case.name} {seed}"))
    inputs, wanted = case.data_sets[0]
    names = [i.name for i in model.graph.input]
    given = {n: as_array(value) for n, value in zip(names, inputs, strict=False)}
    found = import_opened(model, given)
    if found is None:
        return Outcome.REFUSED
    try:
        results = found.run({n: given[n] for n in found.inputs}, device="reference")
    except DmlcError:
        return Outcome.UNFIT
    for declared, value in zip(model.graph.output, wanted, strict=True):
        array, result = as_array(value), results[declared.name]
        off = {"rtol": max(case.rtol, 1e-3), "atol": max(case.atol, 1e-3), "equal_nan": True}
        if result.shape != array.shape or not np.allclose(
            result.astype(np.float64), array.astype(np.float64), **off
        ):
            return Outcome.WRONG
    return Outcome.RIGHT


def try_all(cases: Mapping[str, Any], seeds: range, seconds: float) -> collections.Counter[str]:
    """How often each outcome came up, `FAILED` among them; findings are printed."""
    counts: collections.Counter[str] = collections.Counter()
    begun = time.monotonic()
    for seed in seeds:
        for name, case in cases.items():
            if time.monotonic() - begun > seconds:
                return counts
            try:
                outcome = try_opened(case, seed).name
            except Exception as error:  # Whatever it is, it is what is looked for.
                outcome = "FAILED"
                print(f"{name}, seed {seed}: {type(error).__name__}: {error}"[:300], flush=True)
            counts[outcome] += 1
            if outcome == Outcome.WRONG.name:
                print(f"{name}, seed {seed}: wrong", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.opened", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed after the last one")
    parser.add_argument("--seconds", type=float, default=600, help="no test begins after these")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    excluded = {*read_excluded(), *REFERENCE_ONLY}
    cases = {n: c for n, c in collect(list_modules()).items() if n not in excluded}
    counts = try_all(cases, range(asked.first, asked.last), asked.seconds)
    print(f"{counts.total():,} imports: {dict(counts)}")
    return 1 if counts["FAILED"] or counts[Outcome.WRONG.name] else 0


if __name__ == "__main__":
    sys.exit(main())
