"""Reads of tensors at positions, with what stands for elements that are not there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.binding.conversions import Conversions
from dmlc.binding.nodes import Form, Node, Nodes, Value
from dmlc.binding.operations import Operations
from dmlc.binding.positions import Positions
from dmlc.ir import Extent
from dmlc.ir.ranges import Interval
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST, measure
from dmlc.source import Note, Span


@dataclasses.dataclass(frozen=True, slots=True)
class ReadSite:
    """Where a read was written, for messages: the read, each of its positions (one that expands
    gives several), and where the function that has it was called."""

    span: Span
    positions: tuple[Span, ...]
    notes: tuple[Note, ...]
    reach: tuple[Interval, ...] = ()
    """How far each position reaches where the conditions around it hold."""


class Reads:
    """Makes reads, and remembers where each was written."""

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
        """Where each read was written first."""

    def read(self, tensor: str, dtype: DataType, positions: Sequence[Node], site: ReadSite) -> Node:
        """The element of a tensor at a position along each axis."""
        made = self._nodes.add(Node(Form.READ, tensor, tuple(positions), dtype.compute))
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
        """The same where the positions lie inside a tensor of these sizes, and `otherwise`
        elsewhere. It has the tensor's type, whichever of the two is all there is."""
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
        """How far a position reaches along an axis: of one whose size is left open, to beyond all
        sizes where it is not known to be inside."""
        if isinstance(size, int):
            return self._positions.reach(position, size)
        if self._positions.is_inside_open(position, size):
            return 0, LARGEST - 1
        low, _ = self._positions.interval(position)
        return low, math.inf
