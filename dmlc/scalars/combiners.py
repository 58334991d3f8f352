"""The record of a combiner: all that the compiler knows of a way to reduce points to one value. As
of a scalar operation, no field has a default, so that one left out is an error at import."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from dmlc.scalars.functions import REGISTRY
from dmlc.scalars.operation import Record
from dmlc.scalars.types import DataType, integer_limits

Number: TypeAlias = bool | int | float


class AdjointRule(enum.Enum):
    """Rules that distribute the adjoint of a reduction to its points."""

    WHOLE = "each point has the adjoint"
    FIRST = "the first point that has the result has the adjoint, and the others have 0"
    OTHERS = "each point has the adjoint times the product of the other points"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """A combiner of a reduction. Compared by identity."""

    name: str
    operation: Record
    """Operation that combines two values. Of a positional combiner, it gives the more extreme of
    two."""
    identity: Callable[[DataType], Number]
    """Value before any point. It changes no value but -0: a sum of one -0 is 0."""
    neutral: Callable[[DataType], Number]
    """Value that changes no value at all."""
    positional: bool
    """Whether the result is the number of the first most extreme point; a NaN is more extreme than
    any number, and the number is 0 where there is no point."""
    idempotent: bool
    """Whether a point that is taken twice changes nothing."""
    ordered: bool
    """Whether the order of the points changes how floats are rounded."""
    signless: bool
    """Whether the result is at least 0 if all points are."""
    adjoint: AdjointRule | None
    """None for a combiner whose result no point moves."""
    beats: str
    """Comparison that holds of a more extreme number and another; empty if none is extreme."""
    position: str
    """Combiner that gives the number of the first point that has the result; empty if a result need
    not be a point's."""
    counterpart: str
    """Combiner that does the same to 0 and 1 if this one takes BOOL; if it takes numbers, the one
    that does the same to BOOL. Empty if there is none."""
    onnx: str
    """ONNX's operator; of a positional combiner, that of the most extreme value."""

    def __repr__(self) -> str:
        return f"Combiner({self.name})"

    @property
    def matches(self) -> str:
        """Comparison that holds of a number at least as extreme and another."""
        return {"lt": "le", "gt": "ge"}[self.beats]

    def accepts(self, dtype: DataType) -> bool:
        """Whether points of that compute type have a result."""
        return self.operation.operands.accept(dtype)

    def keeps_zeros(self, dtype: DataType) -> bool:
        """Whether a reduction of one point is that point, -0 too."""
        return math.copysign(1, self.identity(dtype)) == math.copysign(1, self.neutral(dtype))

    def empty(self, dtype: DataType) -> Number:
        """Result of no point."""
        return 0 if self.positional else self.identity(dtype)


def _either(integer: int, fraction: float) -> Callable[[DataType], Number]:
    """Numbers for integers and for floats."""
    return lambda dtype: fraction if dtype.is_float else integer


def _least(dtype: DataType) -> Number:
    return -math.inf if dtype.is_float else integer_limits(dtype)[0]


def _largest(dtype: DataType) -> Number:
    return math.inf if dtype.is_float else integer_limits(dtype)[1]


_OPERATIONS = REGISTRY.records
_ONE, _NEVER, _ALWAYS = _either(1, 1.0), _either(False, False), _either(True, True)

# fmt: off
_RECORDS = (
    Combiner("sum", _OPERATIONS["add"], _either(0, 0.0), _either(0, -0.0), positional=False,
             idempotent=False, ordered=True, signless=True, adjoint=AdjointRule.WHOLE,
             beats="", position="", counterpart="", onnx="ReduceSum"),
    Combiner("product", _OPERATIONS["mul"], _ONE, _ONE, positional=False,
             idempotent=False, ordered=True, signless=True, adjoint=AdjointRule.OTHERS,
             beats="", position="", counterpart="", onnx="ReduceProd"),
    Combiner("min", _OPERATIONS["min"], _largest, _largest, positional=False,
             idempotent=True, ordered=False, signless=True, adjoint=AdjointRule.FIRST,
             beats="lt", position="argmin", counterpart="all", onnx="ReduceMin"),
    Combiner("max", _OPERATIONS["max"], _least, _least, positional=False,
             idempotent=True, ordered=False, signless=False, adjoint=AdjointRule.FIRST,
             beats="gt", position="argmax", counterpart="any", onnx="ReduceMax"),
    Combiner("any", _OPERATIONS["or"], _NEVER, _NEVER, positional=False,
             idempotent=True, ordered=False, signless=True, adjoint=None,
             beats="", position="", counterpart="max", onnx="ReduceMax"),
    Combiner("all", _OPERATIONS["and"], _ALWAYS, _ALWAYS, positional=False,
             idempotent=True, ordered=False, signless=True, adjoint=None,
             beats="", position="", counterpart="min", onnx="ReduceMin"),
    Combiner("argmin", _OPERATIONS["min"], _largest, _largest, positional=True,
             idempotent=True, ordered=False, signless=True, adjoint=None,
             beats="lt", position="", counterpart="", onnx="ReduceMin"),
    Combiner("argmax", _OPERATIONS["max"], _least, _least, positional=True,
             idempotent=True, ordered=False, signless=True, adjoint=None,
             beats="gt", position="", counterpart="", onnx="ReduceMax"),
)
# fmt: on

COMBINERS: Mapping[str, Combiner] = MappingProxyType({each.name: each for each in _RECORDS})
"""Every combiner by name."""


def is_positional(name: object) -> bool:
    """Whether that is the name of a positional combiner."""
    found = COMBINERS.get(name) if isinstance(name, str) else None
    return found is not None and found.positional
