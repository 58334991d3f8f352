"""Checks what a device computed against the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.binding import Operator, TensorDesc
from dmlc.reference import evaluate
from dmlc.scalars import Array, data_type_of
from dmlc.source import DmlcError
from dmlc.testing.compare import Comparison, Tolerance, compare, find_tolerance


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One output: how near it is, and how near it must be."""

    comparison: Comparison
    tolerance: Tolerance

    @property
    def holds(self) -> bool:
        return self.comparison.within

    def __str__(self) -> str:
        if self.holds:
            return str(self.comparison)
        return f"{self.comparison}; it must be {self.tolerance}"


def verify(
    operator: Operator,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object],
    results: Mapping[str, Array],
) -> dict[str, Verdict]:
    """Evaluates an operator in NumPy and compares each result with it."""
    tensors = {name: _describe(name, array) for name, array in {**inputs, **results}.items()}
    function = operator.bind(tensors, attributes)
    expected = evaluate(function, {p.name: inputs[p.name] for p in function.parameters})
    verdicts: dict[str, Verdict] = {}
    for name, array in results.items():
        tolerance = find_tolerance(function, name)
        verdicts[name] = Verdict(compare(array, expected[name], tolerance), tolerance)
    return verdicts


def _describe(name: str, array: Array) -> TensorDesc:
    dtype = data_type_of(array.dtype)
    if dtype is None:
        raise DmlcError(f"'{name}' holds {array.dtype}, which no tensor can hold")
    return TensorDesc(dtype, array.shape)
