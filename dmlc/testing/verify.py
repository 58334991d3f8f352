"""Comparison of a device's results with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.ir import Function
from dmlc.oracle import find_expected
from dmlc.parameters import expect, expect_mapping
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.scalars import Array, held_type
from dmlc.source import DmlcError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Comparison, compare
from dmlc.testing.loose import Looseness, find_looseness


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Comparison of one output: its errors and its bounds."""

    comparison: Comparison
    allowed: Array
    """Permitted error of each element; see `bounds`."""
    found: bool | int | float | None = None
    """Computed value of the element that exceeds its bound most, or comes closest to it; None if
    none differs."""
    wanted: bool | int | float | None = None
    """Expected value of that element."""
    share: float = 0.0
    """Largest error of an element relative to its bound."""
    looseness: Looseness = dataclasses.field(default_factory=Looseness)
    """Number of elements whose bounds exceed the expected values, which test nothing."""

    @staticmethod
    def of(actual: Array, expected: Array, allowed: Array | float) -> Verdict:
        comparison = compare(actual, expected, allowed)
        spread = np.broadcast_to(np.asarray(allowed, np.float64), actual.shape)
        looseness = find_looseness(expected, spread)
        if comparison.worst is None:
            return Verdict(comparison, spread, looseness=looseness)
        found, wanted = (a[comparison.worst].item() for a in (actual, expected))
        share = _find_share(actual, expected, spread)
        return Verdict(comparison, spread, found, wanted, share, looseness)

    @property
    def most(self) -> float | None:
        """Bound of the element in `found`."""
        worst = self.comparison.worst
        return None if worst is None else float(self.allowed[worst])

    @property
    def holds(self) -> bool:
        return self.comparison.within

    def __str__(self) -> str:
        worst, most = self.comparison.worst, self.most
        if self.holds or worst is None:
            return str(self.comparison)
        must = f"it may be off by {most:.3g} at most" if most else "it must be exact"
        place = f" at {list(worst)}" if worst else ""
        found, wanted = (
            f"{v:.9g}" if isinstance(v, float) else str(v) for v in (self.found, self.wanted)
        )
        return f"{self.comparison};{place} it is {found} where {wanted} is expected: {must}"


def _find_share(actual: Array, expected: Array, allowed: Array) -> float:
    with np.errstate(all="ignore"):
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        same = (actual == expected) | (np.isnan(a) & np.isnan(b))
        shares = np.where(same, 0.0, np.where(np.isinf(allowed), 0.0, np.abs(a - b) / allowed))
        # NaN where one of the two is: no error allows that.
        return float(np.where(np.isnan(shares), np.inf, shares).max(initial=0.0))


def verify(
    subject: Operator | Graph | Function,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object],
    results: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
    floats: FloatPromises = LEAST,
) -> dict[str, Verdict]:
    """Evaluates an operator, a graph or a function in NumPy and compares each result with it.
    `floats` are the promises of the device that gave the results."""
    inputs = {n: _expect_array("inputs", n, a) for n, a in _expect_arrays("inputs", inputs)}
    results = {n: _expect_array("results", n, a) for n, a in _expect_arrays("results", results)}
    tensors = {name: _describe(name, array) for name, array in {**inputs, **results}.items()}
    function = (
        subject
        if isinstance(subject, Function)
        else bind_for_arrays(subject, tensors, attributes, dims)
    )
    spelt = {ir_name(name): array for name, array in inputs.items()}
    given = {p.name: spelt[p.name] for p in function.parameters}
    expected, allowed = find_expected(function, given), bound_errors(function, given, floats)
    verdicts: dict[str, Verdict] = {}
    for name, array in results.items():
        own = ir_name(name)
        verdicts[name] = Verdict.of(array, expected[own], allowed[own])
    return verdicts


def bind_for_arrays(
    subject: Operator | Graph,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int] | None,
) -> Function:
    """Function for these tensors: an operator takes attributes, a graph symbols."""
    if isinstance(subject, Graph):
        return subject.bind(tensors, dims)
    return expect("subject", subject, Operator, "a dmlc.Operator or a dmlc.Graph").bind(
        tensors, attributes
    )


def _expect_arrays(parameter: str, given: object) -> Iterable[tuple[str, object]]:
    return expect_mapping(parameter, given, "a mapping of names to arrays").items()


def _expect_array(parameter: str, name: str, given: object) -> Array:
    return expect(f"{parameter}['{name}']", given, np.ndarray, "an array")


def _describe(name: str, array: Array) -> TensorDesc:
    dtype = held_type(array.dtype)
    if dtype is None:
        raise DmlcError(f"'{name}' holds {array.dtype}, which no tensor can hold")
    return TensorDesc(dtype, array.shape)
