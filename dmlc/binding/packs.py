"""Arrays as values: of constants, of index variables, and of what `...` expands.

Pure bookkeeping on entries; evaluating them is `expressions`' work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.binding.nodes import Value
from dmlc.binding.values import span_text
from dmlc.source import DmlcError, Note, Span, counted


def zip_arrays(values: Sequence[Value], span: Span) -> list[tuple[Value, ...]]:
    """The entries of arrays side by side; what is no array stands beside each. Raises `DmlcError`
    for arrays of different lengths."""
    lengths = {len(v) for v in values if isinstance(v, tuple)}
    if len(lengths) > 1:
        shown = " and ".join(str(n) for n in sorted(lengths))
        raise DmlcError(f"arrays of {shown} values cannot be combined element by element", span)
    return [
        tuple(v[k] if isinstance(v, tuple) else v for v in values) for k in range(lengths.pop())
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

    def take(self, array: tuple[Value, ...], span: Span) -> Value:
        """The entry of an array at the axis at hand. Raises `DmlcError` where arrays of different
        lengths meet, and `EmptyPack` where there is no entry."""
        if self.length is None or self.first is None:
            self.length, self.first = len(array), span
        elif self.length != len(array):
            raise DmlcError(
                f"{span_text(self.first)} has {counted(self.length, 'entry', 'entries')} and "
                f"{span_text(span)} has {len(array)}: what one '...' expands has one length",
                self.span,
                [Note(f"{len(array)} here", span)],
            )
        if not array:
            raise EmptyPack
        return array[self.axis]
