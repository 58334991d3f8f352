"""Evaluates `join` and `split`: one tensor of an array of tensors, and the reverse.

Each becomes a tensor whose element at each position is read from the one it comes from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from dmlc import ir
from dmlc.binding.axes import read_axes
from dmlc.binding.builder import span_text
from dmlc.binding.expressions import Scope
from dmlc.binding.indexed import Indexed
from dmlc.binding.indexing import Place
from dmlc.binding.nodes import Element, Value
from dmlc.binding.packs import make_array
from dmlc.binding.tensors import show_sizes
from dmlc.language import syntax
from dmlc.language.walk import Step
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import DmlcError, Span


class TensorArrays(Indexed):
    """Arrays of tensors of one binding, and what takes a tensor and a named argument."""

    # Arguments ----------------------------------------------------------------------------

    def _operand_and_named(
        self, name: str, expression: syntax.Call
    ) -> tuple[syntax.Expression, syntax.Argument]:
        """What a call is on, and its one named argument."""
        plain = [a.value for a in expression.arguments if a.name is None]
        named = [a for a in expression.arguments if a.name is not None]
        if len(plain) != 1 or len(named) != 1:
            raise DmlcError(
                f"'{name}' takes one value, and what to do it over: {name}(x, axes: [...])",
                expression.span,
            )
        return plain[0], named[0]

    def _shaped(
        self, name: str, operand: syntax.Expression, scope: Scope
    ) -> Step[tuple[Element, tuple[ir.Extent, ...]]]:
        """A value that has a shape, and the shape."""
        value: Value = yield self._visit(operand, scope)
        self._scope = scope
        shape = self._built().shape(value) if isinstance(value, Element) else None
        if not isinstance(value, Element) or shape is None:
            raise DmlcError(
                f"'{name}' takes a tensor, but {span_text(operand.span)} has no sizes",
                operand.span,
            )
        return value, shape

    # Arrays of tensors --------------------------------------------------------------------

    def _tensor_array(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """`join(InputTensors, axis: A)` and `split(InputTensor, axis: A)`."""
        operand, named = self._operand_and_named(name, expression)
        axis: Value = yield self._visit(named.value, scope)
        if self.binding.symbolic:
            raise self._needs_sizes(f"'{name}' in", expression.span)
        if name == "join":
            members = self.binding.members(operand.span.text)
            parts = [self._tensor(m.name, operand.span) for m in members]
            self._scope = scope
            return self._join_tensors(parts, axis, expression.span, named.value.span)
        value, _ = yield self._shaped(name, operand, scope)
        self._scope = scope
        return self._split_tensor(value, axis, expression.span, named.value.span)

    def _place_in(
        self, value: Element, axis: int, offset: int, span: Span
    ) -> Callable[[list[Element]], Element]:
        """What reads a tensor so many places further along an axis; a position before it or after
        it reads its edge."""
        builder = self._built()
        tensor, dtype = self._held(value, span)
        size = self._known_shape(value, span)[axis]
        place = Place(span, (), self._scope.notes())

        def read(at: list[Element]) -> Element:
            moved = at[axis]
            if offset:
                moved = builder.apply(OPERATIONS["add"], [moved, offset], [span, span], span)
            kept = builder.keep_inside(moved, size)
            return builder.read(tensor, dtype, [*at[:axis], kept, *at[axis + 1 :]], place)

        return read

    def _known_shape(self, value: Element, span: Span) -> tuple[int, ...]:
        shape = self._built().shape(value) or ()
        return tuple(e for e in shape if isinstance(e, int))

    def _join_tensors(self, parts: list[Element], axis: Value, span: Span, place: Span) -> Value:
        """Tensors one after another along an axis; their other sizes are the same."""
        builder = self._built()
        if self.place is None:
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

        def make(bound: list[Element]) -> Value:
            found: Value = readers[-1][0](bound)
            for read, end in reversed(readers[:-1]):
                before = builder.apply(OPERATIONS["lt"], [bound[at], end], [span, span], span)
                found = builder.select((before, read(bound), found), (span, span, span), span)
            return found

        return self.place(whole, make, span)

    def _zero(self, value: Element, span: Span) -> Callable[[list[Element]], Element]:
        """What gives the elements of a tensor that has none."""
        builder = self._built()
        dtype = builder.dtype(value)
        settled = dtype if isinstance(dtype, DataType) else DataType.FLOAT32
        return lambda _: builder.adapt(False if settled is DataType.BOOL else 0, settled, span)

    def _split_tensor(self, value: Element, axis: Value, span: Span, place: Span) -> Value:
        """The parts of a tensor along an axis, as long as the outputs say."""
        shape = self._known_shape(value, span)
        (at,) = read_axes((axis,) if isinstance(axis, int) else axis, len(shape), place)
        if self.targets is None or self.place is None:
            raise DmlcError(
                "'split' defines an array of outputs: write OutputTensors = split(X, axis: A)", span
            )
        rest = (*shape[:at], *shape[at + 1 :])
        lengths = [sizes[at] if at < len(sizes) else -1 for sizes in self.targets]
        others = [(*s[:at], *s[at + 1 :]) for s in self.targets]
        if any(o != rest for o in others) or sum(lengths) != shape[at]:
            shown = ", ".join(show_sizes(s) for s in self.targets)
            raise DmlcError(
                f"a tensor of sizes {show_sizes(shape)} cannot be split along axis {at} into "
                f"{shown}",
                span,
            )
        made: list[Element] = []
        for sizes, end in zip(self.targets, itertools.accumulate(lengths), strict=True):
            read = self._place_in(value, at, end - sizes[at], span)
            made.append(
                self.place(sizes, read if 0 not in shape else self._zero(value, span), span)
            )
        return make_array(made)
