"""Every scalar operation with IREE on the CPU, and where what it gives is not what the IR means.

IREE computes FLOAT32 with denormals taken for zeros, and some functions by approximations that
leave IEEE 754 at special values; some FLOAT64 functions it does not link. `departures.txt` lists
all of it, operation by operation; `python -m tests.peers.mlir_operations` writes it anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator
from pathlib import Path

import numpy as np

from dmlc import ir
from dmlc.ir.specialize import specialize
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, Array, DataType
from tests.agreement import disagreements
from tests.codegen.test_operations import make_casts, make_function
from tests.peers.iree import Functions
from tests.samples import sample_pairs

LIST = Path(__file__).parent / "departures.txt"
_COUNT = 1003
_UNLINKED = {
    DataType.FLOAT64: (
        "mod", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "tanh", "erf",
    ),
}  # fmt: skip
"""Operations that IREE compiles to calls of a library that is not there."""


def read_list(dtype: DataType) -> list[str]:
    """The departures that are listed for a type."""
    lines = LIST.read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith(f"{dtype.name} ")]


def find_departures(dtype: DataType) -> list[str]:
    """What operations on a type and conversions from it give otherwise than the reference, a line
    for each set of operands."""
    found = [f"{dtype.name} {name}: not linked" for name in _UNLINKED.get(dtype, ())]
    functions = [_leave_out(make_function(dtype), _UNLINKED.get(dtype, ()))]
    if not dtype.is_storage_only:
        functions.append(make_casts(dtype))
    made = Functions([specialize(function, {"n": _COUNT}) for function in functions])
    for number, function in enumerate(functions):
        inputs = _make_inputs(function, dtype)
        wanted, got = evaluate(function, inputs), made.run(number, inputs)
        for name, values in wanted.items():
            wrong = _find_wrong(name, got[name], values, dtype)
            if wrong.size:
                shown = sorted(set(_show(inputs, name, got[name], values, wrong)))
                found += [f"{dtype.name} {name}{each}" for each in shown]
    return found


def _leave_out(function: ir.Function, names: Container[str]) -> ir.Function:
    stages = tuple(stage for stage in function.stages if stage.name not in names)
    results = tuple(ir.Result(stage.name) for stage in stages)
    return dataclasses.replace(function, stages=stages, results=results)


def _make_inputs(function: ir.Function, dtype: DataType) -> dict[str, Array]:
    left, right = sample_pairs(dtype, _COUNT, dtype.name)
    if dtype.is_float and len(function.parameters) == 1:
        limits = [2.0**k * s for k in (7, 8, 15, 16, 31, 32, 63, 64, 70) for s in (-1, 1)]
        left[-len(limits) :] = np.array(limits, dtype.dtype)
    return {p.name: v for p, v in zip(function.parameters, (left, right), strict=False)}


def _find_wrong(name: str, got: Array, wanted: Array, dtype: DataType) -> Array:
    """The places at which a result is not what the reference gives."""
    operation = OPERATIONS.get(name)
    transcendental = operation is not None and operation.transcendental
    rounded = ("add", "sub", "mul") if dtype.is_storage_only else ()
    ulps = 4.0 if transcendental else 1.0 if name in ("div", "sqrt", *rounded) else 0.0
    return disagreements(got, wanted, ulps, transcendental)


def _show(
    inputs: dict[str, Array], name: str, got: Array, wanted: Array, wrong: Array
) -> Iterator[str]:
    """What is given for which operands."""
    arity = OPERATIONS[name].arity if name in OPERATIONS else 1
    for place in wrong:
        given = [array[place] for array in list(inputs.values())[:arity]]
        if any(map(_is_denormal, [*given, wanted[place]])):
            yield ": denormals"
            continue
        operands = ", ".join(f"{value:.6g}" for value in map(float, given))
        yield f"({operands}) is {float(got[place]):.3g}, not {float(wanted[place]):.3g}"


def _is_denormal(value: np.generic) -> bool:
    """Whether a number is one of FLOAT32's that have fewer digits."""
    return 0 < abs(float(value)) < float(np.finfo(np.float32).tiny)


if __name__ == "__main__":
    LIST.write_text("".join(f"{n}\n" for dtype in TENSOR_TYPES for n in find_departures(dtype)))
