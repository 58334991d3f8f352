"""Checks what a device computed against the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.ir import Function
from dmlc.oracle import find_expected
from dmlc.scalars import Array, data_type_of
from dmlc.source import DmlcError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Comparison, compare


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One output: how near it is, and how near it must be."""

    comparison: Comparison
    allowed: Array
    """What each element may differ by: see `bounds`."""

    @staticmethod
    def of(actual: Array, expected: Array, allowed: Array) -> Verdict:
        return Verdict(compare(actual, expected, allowed), np.broadcast_to(allowed, actual.shape))

    @property
    def holds(self) -> bool:
        return self.comparison.within

    def __str__(self) -> str:
        worst = self.comparison.worst
        if self.holds or worst is None:
            return str(self.comparison)
        most = float(self.allowed[worst])
        must = f"it may be off by {most:.3g} at most" if most else "it must be exact"
        place = f" at {list(worst)}" if worst else ""
        return f"{self.comparison};{place} {must}"


def verify(
    subject: Operator | Graph,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object],
    results: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
) -> dict[str, Verdict]:
    """Evaluates an operator or a graph in NumPy and compares each result with it."""
    tensors = {name: _describe(name, array) for name, array in {**inputs, **results}.items()}
    function = bind_for_arrays(subject, tensors, attributes, dims or {})
    spelt = {ir_name(name): array for name, array in inputs.items()}
    given = {p.name: spelt[p.name] for p in function.parameters}
    expected, allowed = find_expected(function, given), bound_errors(function, given)
    verdicts: dict[str, Verdict] = {}
    for name, array in results.items():
        own = ir_name(name)
        verdicts[name] = Verdict.of(array, expected[own], allowed[own])
    return verdicts


def bind_for_arrays(
    subject: Operator | Graph,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int],
) -> Function:
    """The function for these tensors: an operator takes attributes, a graph symbols."""
    if isinstance(subject, Graph):
        return subject.bind(tensors, dims)
    return subject.bind(tensors, attributes)


def _describe(name: str, array: Array) -> TensorDesc:
    dtype = data_type_of(array.dtype)
    if dtype is None:
        raise DmlcError(f"'{name}' holds {array.dtype}, which no tensor can hold")
    return TensorDesc(dtype, array.shape)
