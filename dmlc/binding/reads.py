"""Indexed reads of tensors, with a value for elements out of bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.binding.conversions import Conversions
from dmlc.binding.nodes import Node, Nodes, Op, Value
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.index.intervals import Interval
from dmlc.ir import Extent
from dmlc.scalars import DataType
from dmlc.source import Note, Span


@dataclasses.dataclass(frozen=True, slots=True)
class ReadSite:
    """Source of a read, for messages: its span, those of its indices (one that expands gives
    several), and notes of the calls it was inlined from."""

    span: Span
    positions: tuple[Span, ...]
    notes: tuple[Note, ...]
    reach: tuple[Interval, ...] = ()
    """Range of each index where the conditions around the read hold."""


class Reads:
    """Builder of reads; it remembers the source of each."""

    def __init__(
        self,
        nodes: Nodes,
        conversions: Conversions,
        positions: Positions,
        operations: Operations,
    ) -> None:
        self._nodes = nodes
        self._conversions = conversions
        self._positions = positions
        self._operations = operations
        self.sites: dict[Node, ReadSite] = {}
        """First source of each read."""

    def read(self, tensor: str, dtype: DataType, positions: Sequence[Node], site: ReadSite) -> Node:
        """Element of a tensor at an index along each axis."""
        made = self._nodes.add(Node(Op.READ, tensor, tuple(positions), dtype.compute))
        self.sites.setdefault(made, site)
        return made

    def read_or(
        self,
        tensor: str,
        dtype: DataType,
        sizes: Sequence[Extent],
        positions: Sequence[Node],
        otherwise: Value,
        site: ReadSite,
    ) -> Value:
        """Element of a tensor of these sizes if the indices are in bounds, and `otherwise` out of
        bounds. The result has the tensor's type even if only one of the two is possible."""
        reaches = [*map(self._positions.reach, positions, sizes)]
        if 0 in sizes or any(map(_is_outside, reaches, sizes)):
            value = self._conversions.adapt(otherwise, dtype.compute, site.span)
            return self._nodes.add(dataclasses.replace(value, soft=False))
        clamped = [*map(self._positions.keep_inside, positions, sizes, reaches)]
        value = self.read(tensor, dtype, [kept for kept, _ in clamped], site)
        inside = [condition for _, conditions in clamped for condition in conditions]
        if not inside:
            return value
        chosen = (self._positions.all(inside), value, otherwise)
        return self._operations.select(chosen, site.span)


def _is_outside(reach: Interval, size: Extent) -> bool:
    """Whether no index of a range is in bounds."""
    return reach[1] < 0 or (isinstance(size, int) and reach[0] >= size)
