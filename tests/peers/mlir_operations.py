"""Every scalar operation with IREE on the CPU, and where what it gives is not what the IR means.

IREE computes FLOAT32 with denormals taken for zeros, and some functions by approximations that
leave IEEE 754 at special values; some FLOAT64 functions it does not link. `departures.txt` lists
all of it, operation by operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from iree.compiler.tools import CompilerToolError

from dmlc import ir
from dmlc.ir.specialize import specialize
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS, Array, DataType
from tests.agreement import disagreements
from tests.codegen.test_operations import make_casts, make_function
from tests.peers.iree import Functions
from tests.samples import sample_pairs, special_values

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
    """A line for each operation and each conversion from the type that gives anything else than
    the reference."""
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
                found.append(f"{dtype.name} {name}: {'; '.join(shown)}")
    return found


def find_unlinked(dtype: DataType) -> list[str]:
    """The operations on a type that IREE does not compile, of those that are listed."""
    found: list[str] = []
    for name in _UNLINKED.get(dtype, ()):
        others = [o for o in OPERATIONS if o != name]
        try:
            Functions([specialize(_leave_out(make_function(dtype), others), {"n": 4})])
        except CompilerToolError:
            found.append(name)
    return found


def _leave_out(function: ir.Function, names: object) -> ir.Function:
    stages = tuple(s for s in function.stages if s.name not in tuple(names))  # type: ignore
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
    """What is given for which operands; others than special ones are not told apart."""
    arity = OPERATIONS[name].arity if name in OPERATIONS else 1
    for place in wrong:
        given = [array[place] for array in list(inputs.values())[:arity]]
        if any(_is_denormal(value) for value in given) or _is_denormal(wanted[place]):
            yield "denormals"
            continue
        special = all((special_values_of(v) == v).any() or v != v for v in given)
        operands = ", ".join(map(str, given)) if special else "others"
        yield f"({operands}) is {got[place]}, not {wanted[place]}"


def special_values_of(value: np.generic) -> Array:
    found = next(d for d in DataType if d.dtype == value.dtype)
    return special_values(found)


def _is_denormal(value: np.generic) -> bool:
    """Whether a number is one of FLOAT32's that have fewer digits."""
    return 0 < abs(float(value)) < float(np.finfo(np.float32).tiny)
