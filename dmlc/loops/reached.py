"""Conditions on whether any point of a tile may matter, where index conditions exclude some scores.

An index comparison is relaxed to a condition on the whole tile: it is true if the comparison may be
true at any of its points. Where it is false, the tile adds nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from dmlc import ir
from dmlc.loops.element import (
    Elements,
    Gather,
    Place,
    Read,
    Value,
    View,
    find_moving,
    list_needed,
    prune,
)
from dmlc.scalars import OPERATIONS, DataType

_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_POSITIONS = (DataType.INDEX, DataType.INT32, DataType.INT64)


def find_reached(elements: Elements, spans: Mapping[int, int]) -> Elements | None:
    """Work that computes, at the first point of a tile, whether any of its points may matter: a
    score other than negative infinity, or a summand other than 0. `spans` are the tile's sizes
    along some axes. None if every tile may matter."""
    tile = _Tile(elements, spans)
    found = tile.join("or", [
        tile.keeps(each.values[0])
        if each.combiner == "max"
        else tile.join("and", [tile.adds(value) for value in each.values])
        for each in elements.reductions
    ])  # fmt: skip
    if found is None:
        return None
    view = View("reached#block", DataType.BOOL, (0,) * len(elements.space.extents), local=True)
    work = dataclasses.replace(elements, values=tuple(tile.values), reductions=())
    return prune(dataclasses.replace(work, results=((view, found),)))


class _Tile:
    """Values at the first point of a tile, and their ranges over the tile."""

    def __init__(self, elements: Elements, spans: Mapping[int, int]) -> None:
        self._elements, self._spans = elements, spans
        self.values = list(elements.values)
        moving = [find_moving(elements, axis) for axis in spans]
        self._moves = [any(along) for along in zip(*moving, strict=True)]

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _apply(self, name: str, *given: int, dtype: DataType = DataType.BOOL) -> int:
        return self._add(ir.Apply(OPERATIONS[name], given, dtype))

    def join(self, name: str, parts: list[int | None]) -> int | None:
        """Conjunction or disjunction of conditions, where None is always true."""
        known = [part for part in parts if part is not None]
        if not known or (name == "or" and len(known) < len(parts)):
            return None
        first, *others = known
        for other in others:
            first = self._apply(name, first, other)
        return first

    def keeps(self, number: int, nothing: float = -math.inf) -> int | None:
        """Condition that a value may be other than `nothing`, which a select may choose."""
        match self.values[number]:
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                arms = (then, True), (otherwise, False)
            case _:
                return None
        may = self.adds if nothing == 0.0 else self.keeps
        left = [each for each in arms if not self._is(each[0], nothing)]
        ways = ([self._holds(condition, wanted), may(arm)] for arm, wanted in left)
        return self.join("or", [self.join("and", way) for way in ways])

    def adds(self, number: int) -> int | None:
        """Condition that a summand may be other than 0."""
        match self.values[number]:
            case ir.Apply(operation=operation, operands=parts):
                name = operation.name
            case ir.Cast(operand=operand):
                return self.adds(operand)
            case _:
                return self.keeps(number, 0.0)
        if name in ("add", "sub"):
            return self.join("or", [self.adds(part) for part in parts])
        if name == "mul":
            return self.join("and", [self.adds(part) for part in parts])
        if name in ("div", "neg"):
            return self.adds(parts[0])
        distance = self.values[parts[0]]
        if name == "exp" and isinstance(distance, ir.Apply) and distance.operation.name == "sub":
            return self.keeps(distance.operands[0])
        return None

    def _is(self, number: int, wanted: float) -> bool:
        """Whether a value is a constant."""
        match self.values[number]:
            case ir.Constant(value=value):
                return value == wanted
            case _:
                return False

    def _holds(self, number: int, wanted: bool) -> int | None:
        """Condition that a condition may be true, or false."""
        match self.values[number]:
            case ir.Apply(operation=operation, operands=parts):
                name = operation.name
            case _:
                return None
        if name == "not":
            return self._holds(parts[0], not wanted)
        if name in ("and", "or"):
            other = "or" if name == "and" else "and"
            found = [self._holds(part, wanted) for part in parts]
            return self.join(name if wanted else other, found)
        if name not in _OPPOSITE:
            return None
        name = name if wanted else _OPPOSITE[name]
        is_below = name in ("lt", "le")
        left, right = self._reach(parts[0], not is_below), self._reach(parts[1], is_below)
        return None if left is None or right is None else self._apply(name, left, right)

    def _reach(self, number: int, most: bool) -> int | None:
        """Largest or smallest value of an index in a tile."""
        value = self.values[number]
        if value.dtype not in _POSITIONS:
            return None
        if not self._moves[number]:
            return number
        match value:
            case Place(view=view):
                steps = [view.strides[axis] * span for axis, span in self._spans.items()]
                far = sum(s for s in steps if isinstance(s, int) and (s > 0) is most)
                known = all(isinstance(s, int) for s in steps)
                at = self._add(ir.Constant(value.dtype, far))
                return self._apply("add", number, at, dtype=value.dtype) if known else None
            case ir.Cast(operand=operand):
                found = self._reach(operand, most)
                return None if found is None else self._add(ir.Cast(found, value.dtype))
            case ir.Apply(operation=operation, operands=parts):
                ways = {"add": (most, most), "sub": (most, not most), "neg": (not most,),
                        "min": (most, most), "max": (most, most)}.get(operation.name)  # fmt: skip
                # A sum with a loaded value may overflow at some point, and wrap.
                needed = list_needed(self._elements, number)
                read = any(isinstance(self.values[n], Read | Gather) for n in needed)
                if ways is None or (read and operation.name not in ("min", "max")):
                    return None
                found = [self._reach(p, way) for p, way in zip(parts, ways, strict=True)]
                known = tuple(n for n in found if n is not None)
                return self._apply(operation.name, *known, dtype=value.dtype) if len(
                    known) == len(parts) else None  # fmt: skip
            case _:
                return None
