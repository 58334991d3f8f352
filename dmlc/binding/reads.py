"""Indexed reads of tensors, with a value for elements out of bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.binding.conversions import Conversions
from dmlc.binding.nodes import Node, Nodes, Op, Value
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.index.intervals import Interval
from dmlc.ir import Extent
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST, measure
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
        span, apply, number = site.span, self._positions.apply, self._positions.number
        axes = [
            (position, size, *self._reach(position, size))
            for position, size in zip(positions, sizes, strict=True)
            if 0 not in sizes
        ]
        if any(high < 0 or (isinstance(size, int) and low >= size) for _, size, low, high in axes):
            axes = []
        if not axes:
            value = self._conversions.adapt(otherwise, dtype.compute, span)
            return self._nodes.add(dataclasses.replace(value, soft=False))
        inside: list[Node] = []
        kept: list[Node] = []
        for position, size, low, high in axes:
            bounded = position
            if low < 0:
                inside.append(apply("ge", position, number(0)))
                bounded = apply("max", bounded, number(0))
            leaves = high >= size if isinstance(size, int) else high >= LARGEST
            if leaves:
                end = self._positions.size(measure(size))
                inside.append(apply("lt", position, end))
                bounded = apply("min", bounded, self._positions.last_place(size))
            kept.append(bounded)
        value = self.read(tensor, dtype, kept, site)
        if not inside:
            return value
        condition = self._positions.all(inside)
        return self._operations.select((condition, value, otherwise), span)

    def _reach(self, position: Node, size: Extent) -> Interval:
        """Range of an index along an axis. Along an axis of open size, an index that is not proved
        in bounds reaches beyond all sizes."""
        if isinstance(size, int):
            return self._positions.reach(position, size)
        if self._positions.is_inside_open(position, size):
            return 0, LARGEST - 1
        low, _ = self._positions.interval(position)
        return low, math.inf
