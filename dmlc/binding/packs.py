"""Arrays as values: of constants, of index variables, and of what `...` expands.

Pure bookkeeping on entries; evaluating them is `expressions`' work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

from dmlc.binding.builder import span_text
from dmlc.binding.nodes import Element, Pack, Value
from dmlc.binding.values import Constant
from dmlc.source import DmlcError, Note, Span, counted


def entries(array: tuple[Constant, ...] | Pack) -> tuple[Value, ...]:
    return array.items if isinstance(array, Pack) else array


def make_array(items: Sequence[Value]) -> Value:
    """An array of these entries: a plain tuple where all are known at compile time."""
    if any(isinstance(item, Element | Pack) for item in items):
        return Pack(tuple(items))
    return tuple(cast("Constant", item) for item in items)


def zip_arrays(values: Sequence[Value], span: Span) -> list[tuple[Value, ...]]:
    """The entries of arrays side by side; what is no array stands beside each. Raises `DmlcError`
    for arrays of different lengths."""
    lengths = {len(entries(v)) for v in values if isinstance(v, tuple | Pack)}
    if len(lengths) > 1:
        shown = " and ".join(str(n) for n in sorted(lengths))
        raise DmlcError(f"arrays of {shown} values cannot be combined element by element", span)
    return [
        tuple(entries(v)[k] if isinstance(v, tuple | Pack) else v for v in values)
        for k in range(lengths.pop())
    ]


class EmptyPack(Exception):
    """What `...` expands has no entries."""


@dataclasses.dataclass(slots=True)
class Expansion:
    """One `e...` while it is evaluated for one axis after the other."""

    span: Span
    axis: int = 0
    length: int | None = None
    """The number of entries, once an array has been met."""
    first: Span | None = None
    """That array."""

    def take(self, array: tuple[Constant, ...] | Pack, span: Span) -> Value:
        """The entry of an array at the axis at hand. Raises `DmlcError` where arrays of different
        lengths meet, and `EmptyPack` where there is no entry."""
        items = entries(array)
        if self.length is None or self.first is None:
            self.length, self.first = len(items), span
        elif self.length != len(items):
            raise DmlcError(
                f"{span_text(self.first)} has {counted(self.length, 'entry', 'entries')} and "
                f"{span_text(span)} has {len(items)}: what one '...' expands has one length",
                self.span,
                [Note(f"{len(items)} here", span)],
            )
        if not items:
            raise EmptyPack
        return items[self.axis]
