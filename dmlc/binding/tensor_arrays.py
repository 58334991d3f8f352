"""Evaluation of `join` and `split`: concatenation of an array of tensors, and the reverse. Each
result is a tensor whose element at each index is read from an operand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.binding.indexed import IndexNotation
from dmlc.binding.nodes import Node, Value
from dmlc.binding.reads import ReadSite
from dmlc.binding.scope import Evaluating
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import span_text
from dmlc.language.arrays import read_axes
from dmlc.language.builtins import Given
from dmlc.scalars import DataType
from dmlc.sizes import Measure, Size, as_extent, measure
from dmlc.source import DmlcError, Span


class TensorArrays:
    """Evaluator of `join` and `split`."""

    def __init__(self, on: Evaluating, index: IndexNotation) -> None:
        self._on = on
        self._index = index

    def shaped(self, name: str, value: Value, span: Span) -> tuple[Node, tuple[ir.Extent, ...]]:
        """Value with a shape, and the shape. `name` is that of the function, for messages."""
        if not isinstance(value, Node) or value.shape is None:
            raise DmlcError(
                f"'{name}' takes a tensor, but {span_text(span)} has no sizes", span, code="E0412"
            )
        return value, value.shape

    def _read_shifted(
        self, value: Node, axis: int, offset: Measure, span: Span
    ) -> Callable[[list[Node]], Node]:
        """Reader of a tensor shifted by `offset` along an axis. An index out of bounds is clamped,
        and an empty tensor reads as 0."""
        builder, shape = self._on.built(), _known_shape(value)
        if 0 in shape and isinstance(value.dtype, DataType):
            zero = False if value.dtype is DataType.BOOL else 0
            nothing = builder.conversions.adapt(zero, value.dtype, span)
            return lambda _: nothing
        tensor, dtype = self._index.hold(value, span)
        site = ReadSite(span, (), ())

        def read(at: list[Node]) -> Node:
            moved = at[axis]
            if offset != 0:
                moved = builder.positions.apply("sub", moved, builder.positions.size(offset))
            reach = builder.positions.reach(moved, shape[axis])
            kept, _ = builder.positions.keep_inside(moved, shape[axis], reach)
            return builder.reads.read(tensor, dtype, [*at[:axis], kept, *at[axis + 1 :]], site)

        return read

    def join(self, given: Given) -> Value:
        """Concatenation, `join(InputTensors, axis: A)`; the other sizes of the tensors must be
        equal."""
        (name, axis), (where, place), span = given.values, given.spans, given.span
        builder = self._on.built()
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("'join' in", span)
        parts = [self._on.tensor(m.name, where) for m in self._on.binding.members(name)]
        if self._on.place is None:
            raise DmlcError("tensors cannot be joined here", span, code="E0412")
        shapes = [_known_shape(p) for p in parts]
        at = find_axis_to_join(shapes, axis, place, span)
        lengths = [measure(s[at]) for s in shapes]
        ends = list(itertools.accumulate(lengths))
        whole = (*shapes[0][:at], as_extent(ends[-1]), *shapes[0][at + 1 :])
        readers = [
            (self._read_shifted(part, at, end - length, span), end)
            for part, shape, length, end in zip(parts, shapes, lengths, ends, strict=True)
            if 0 not in shape
        ] or [(self._read_shifted(parts[0], at, 0, span), 0)]

        def make(bound: list[Node]) -> Value:
            found: Value = readers[-1][0](bound)
            for read, end in reversed(readers[:-1]):
                before = builder.positions.apply("lt", bound[at], builder.positions.size(end))
                found = builder.operations.select((before, read(bound), found), span)
            return found

        return self._on.place(whole, make, span)

    def split(self, given: Given) -> Value:
        """Slices of a tensor along an axis, `split(InputTensor, axis: A)`, as long as the outputs'
        sizes."""
        (tensor, axis), (where, place), span = given.values, given.spans, given.span
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("'split' in", span)
        value, _ = self.shaped("split", tensor, where)
        shape = _known_shape(value)
        (at,) = read_axes((axis,) if isinstance(axis, int) else axis, len(shape), place)
        if self._on.targets is None or self._on.place is None:
            raise DmlcError(
                "'split' defines an array of outputs: write OutputTensors = split(X, axis: A)",
                span,
                code="E0412",
            )
        rest = (*shape[:at], *shape[at + 1 :])
        lengths = [measure(sizes[at]) if at < len(sizes) else -1 for sizes in self._on.targets]
        others = [(*s[:at], *s[at + 1 :]) for s in self._on.targets]
        if any(o != rest for o in others) or sum(lengths) != measure(shape[at]):
            shown = ", ".join(show_sizes(s) for s in self._on.targets)
            said = ""
            if any(isinstance(size, Size) for size in (measure(shape[at]), *lengths)):
                said = (
                    f": along it they have {sum(lengths)} together, and sizes that are left open "
                    "are the same where they are made of the same names"
                )
            raise DmlcError(
                f"a tensor of sizes {show_sizes(shape)} cannot be split along axis {at} into "
                f"{shown}{said}",
                span,
                code="E0412",
            )
        made: list[Node] = []
        ends = itertools.accumulate(lengths)
        for sizes, length, end in zip(self._on.targets, lengths, ends, strict=True):
            read = self._read_shifted(value, at, length - end, span)
            made.append(self._on.place(sizes, read, span))
        return tuple(made)


def find_axis_to_join(
    shapes: Sequence[Sequence[object]], axis: object, place: Span, span: Span
) -> int:
    """Axis along which tensors of these sizes are concatenated. Raises `DmlcError` if their other
    sizes differ."""
    (at,) = read_axes((axis,) if isinstance(axis, int) else axis, len(shapes[0]), place)
    rest = {(*s[:at], *s[at + 1 :]) for s in shapes}
    if len(rest) > 1 or len({len(s) for s in shapes}) > 1:
        shown = ", ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
        raise DmlcError(
            f"tensors of sizes {shown} cannot be joined along axis {at}: their other sizes "
            "must be the same",
            span,
            code="E0412",
        )
    return at


def _known_shape(value: Node) -> tuple[ir.Extent, ...]:
    return value.shape or ()
