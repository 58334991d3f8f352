"""Evaluates `join` and `split`: one tensor of an array of tensors, and the reverse.

Each becomes a tensor whose element at each position is read from the one it comes from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from dmlc import ir
from dmlc.binding.indexed import IndexNotation
from dmlc.binding.nodes import Node, Value
from dmlc.binding.reads import Place
from dmlc.binding.scope import Evaluating
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import span_text
from dmlc.language.arrays import read_axes
from dmlc.language.builtins import Given
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Span


class TensorArrays:
    """What joins and splits tensors among the expressions that `on` evaluates."""

    def __init__(self, on: Evaluating, index: IndexNotation) -> None:
        self._on = on
        self._index = index

    def shaped(self, name: str, value: Value, span: Span) -> tuple[Node, tuple[ir.Extent, ...]]:
        """A value that has a shape, and the shape. `name` is what it is given to."""
        if not isinstance(value, Node) or value.shape is None:
            raise DmlcError(f"'{name}' takes a tensor, but {span_text(span)} has no sizes", span)
        return value, value.shape

    def join(self, given: Given) -> Value:
        """`join(InputTensors, axis: A)`"""
        (name, axis), (span, place) = given.values, given.spans
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("'join' in", given.span)
        parts = [self._on.tensor(m.name, span) for m in self._on.binding.members(name)]
        return self._join(parts, axis, given.span, place)

    def split(self, given: Given) -> Value:
        """`split(InputTensor, axis: A)`"""
        (tensor, axis), (span, place) = given.values, given.spans
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("'split' in", given.span)
        value, _ = self.shaped("split", tensor, span)
        return self._split(value, axis, given.span, place)

    def _place_in(
        self, value: Node, axis: int, offset: int, span: Span
    ) -> Callable[[list[Node]], Node]:
        """What reads a tensor so many places further along an axis; a position before it or after
        it reads its edge."""
        builder = self._on.built()
        tensor, dtype = self._index.hold(value, span)
        size = self._known_shape(value, span)[axis]
        place = Place(span, (), ())

        def read(at: list[Node]) -> Node:
            moved = at[axis]
            if offset:
                moved = builder.operations.apply("add", [moved, offset], span)
            kept = builder.positions.keep_inside(moved, size)
            return builder.reads.read(tensor, dtype, [*at[:axis], kept, *at[axis + 1 :]], place)

        return read

    def _known_shape(self, value: Node, span: Span) -> tuple[int, ...]:
        shape = value.shape or ()
        return tuple(e for e in shape if isinstance(e, int))

    def _join(self, parts: list[Node], axis: Value, span: Span, place: Span) -> Value:
        """Tensors one after another along an axis; their other sizes are the same."""
        builder = self._on.built()
        if self._on.place is None:
            raise DmlcError("tensors cannot be joined here", span)
        shapes = [self._known_shape(p, span) for p in parts]
        (at,) = read_axes((axis,) if isinstance(axis, int) else axis, len(shapes[0]), place)
        rest = {(*s[:at], *s[at + 1 :]) for s in shapes}
        if len(rest) > 1 or len({len(s) for s in shapes}) > 1:
            shown = ", ".join(show_sizes(s) for s in shapes)
            raise DmlcError(
                f"tensors of sizes {shown} cannot be joined along axis {at}: their other sizes "
                "must be the same",
                span,
            )
        ends = list(itertools.accumulate(s[at] for s in shapes))
        whole = (*shapes[0][:at], ends[-1], *shapes[0][at + 1 :])
        filled = [
            (part, end - shape[at], end)
            for part, shape, end in zip(parts, shapes, ends, strict=True)
            if 0 not in shape
        ]
        readers = [
            (self._place_in(part, at, -start, span), end) for part, start, end in filled
        ] or [(self._zero(parts[0], span), 0)]

        def make(bound: list[Node]) -> Value:
            found: Value = readers[-1][0](bound)
            for read, end in reversed(readers[:-1]):
                before = builder.operations.apply("lt", [bound[at], end], span)
                found = builder.operations.select((before, read(bound), found), span)
            return found

        return self._on.place(whole, make, span)

    def _zero(self, value: Node, span: Span) -> Callable[[list[Node]], Node]:
        """What gives the elements of a tensor that has none."""
        builder = self._on.built()
        dtype = value.dtype
        settled = dtype if isinstance(dtype, DataType) else DataType.FLOAT32
        zero = False if settled is DataType.BOOL else 0
        return lambda _: builder.conversions.adapt(zero, settled, span)

    def _split(self, value: Node, axis: Value, span: Span, place: Span) -> Value:
        """The parts of a tensor along an axis, as long as the outputs say."""
        shape = self._known_shape(value, span)
        (at,) = read_axes((axis,) if isinstance(axis, int) else axis, len(shape), place)
        if self._on.targets is None or self._on.place is None:
            raise DmlcError(
                "'split' defines an array of outputs: write OutputTensors = split(X, axis: A)", span
            )
        rest = (*shape[:at], *shape[at + 1 :])
        lengths = [sizes[at] if at < len(sizes) else -1 for sizes in self._on.targets]
        others = [(*s[:at], *s[at + 1 :]) for s in self._on.targets]
        if any(o != rest for o in others) or sum(lengths) != shape[at]:
            shown = ", ".join(show_sizes(s) for s in self._on.targets)
            raise DmlcError(
                f"a tensor of sizes {show_sizes(shape)} cannot be split along axis {at} into "
                f"{shown}",
                span,
            )
        made: list[Node] = []
        for sizes, end in zip(self._on.targets, itertools.accumulate(lengths), strict=True):
            read = self._place_in(value, at, end - sizes[at], span)
            made.append(
                self._on.place(sizes, read if 0 not in shape else self._zero(value, span), span)
            )
        return tuple(made)
