"""Evaluation of calls: functions of the file, which are inlined, builtins (`language.builtins`),
reductions of whole tensors and folds of arrays. An argument of an inlined function is evaluated
once, however often the function uses it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.axes import move_axes, reduce_like
from dmlc.binding.indexed import IndexNotation
from dmlc.binding.nodes import Node, Op, Value, has_gradient, is_constant, shape_of
from dmlc.binding.scope import MOST_NOTES, Evaluating, Scope
from dmlc.binding.tensor_arrays import TensorArrays, find_axis_to_join
from dmlc.binding.values import OpenSize, Undecided, describe, refuse_open, show, span_text
from dmlc.ir import packed_strides
from dmlc.language import syntax
from dmlc.language.arrays import read_axes, whole_sizes
from dmlc.language.builtins import (
    REDUCTIONS,
    Builtin,
    Given,
    Reduction,
    Takes,
    find_reduction,
)
from dmlc.language.definitions import level_number
from dmlc.language.walk import Step
from dmlc.scalars import COMBINERS, DataType
from dmlc.sizes import Measure, Size, pack_strides
from dmlc.source import Diagnostic, DmlcError, InternalError, Note, Span

_MOST_CALLS = 20_000


class Calls:
    """Evaluator of calls; `on` evaluates their arguments."""

    def __init__(
        self, on: Evaluating, index: IndexNotation, functions: Mapping[str, Builtin]
    ) -> None:
        self._on = on
        self._index = index
        self._functions = functions
        self._arrays = TensorArrays(on, index)
        self._inlined = 0
        self._deriving: set[str] = set()
        """Functions with a gradient section whose gradient formulas are being evaluated. Inside
        these formulas, the function's derivative is that of its body."""

    def call(self, call: syntax.Call, scope: Scope, decided: bool) -> Step[Value]:
        """Value of a call. It may be `Undecided` unless `decided`."""
        if not isinstance(call.function, syntax.Reference):
            raise DmlcError(
                "only a function's name can be called here", call.function.span, code="E0208"
            )
        name = call.function.name
        if name in self._on.functions:
            return self._inline(self._on.functions[name], call, scope, decided)
        named = any(a.name is not None for a in call.arguments)
        reduction = find_reduction(name, len(call.arguments), named)
        if reduction is not None:
            if named:
                return self._reduce_tensor(reduction, call, scope)
            return self._reduce(reduction, call, scope, decided)
        return self._built_in(self._functions[name], call, scope)

    def _inline(
        self, function: syntax.ScalarFunction, call: syntax.Call, scope: Scope, decided: bool
    ) -> Step[Value]:
        given: dict[str, Value] = {}
        for parameter, argument in zip(function.parameters, call.arguments, strict=True):
            # An array by name stays whole inside the function, where it stands for its entry; of
            # an array of tensors, one is given.
            value = argument.value
            named = value.base if isinstance(value, syntax.Member) else value
            whole = isinstance(value, syntax.Reference | syntax.Member | syntax.Array)
            whole = whole and not self._on.names_tensors(named)
            given[parameter.text] = yield self._on.visit(value, scope.outside() if whole else scope)
        self._inlined += 1
        if self._inlined > _MOST_CALLS:
            raise DmlcError(
                f"the operator makes more than {_MOST_CALLS} calls once its functions are "
                "inlined: split it",
                call.span,
                code="E0003",
            )
        inner = dataclasses.replace(scope, parameters=given, call=call.span, outer=scope)
        try:
            if function.gradients and function.name.text not in self._deriving:
                return (yield self._inline_with_gradients(function, inner))
            return (yield self._on.visit(function.body, inner, decided=decided))
        except DmlcError as error:
            raise type(error)([_called(d, call.span) for d in error.diagnostics]) from None

    def _inline_with_gradients(self, function: syntax.ScalarFunction, scope: Scope) -> Step[Value]:
        """Value of a function with a gradient section. Its derivatives are the given ones for the
        parameters listed there, and those of its body for the others."""
        given, span = dict(scope.parameters), function.body.span
        for gradient in function.gradients:
            name = gradient.parameter.text
            given[name] = self._on.stop_gradient(given[name], span)
        stopped = dataclasses.replace(scope, parameters=given)
        value: Value = yield self._on.visit(function.body, stopped)
        self._deriving.add(function.name.text)
        try:
            for gradient in function.gradients:
                name, place = gradient.parameter.text, gradient.span
                by = scope.entry(scope.parameters[name], place)
                if isinstance(by, tuple):
                    by = next(filter(has_gradient, by), 0)
                    if has_gradient(by):
                        message = f"'{name}' of '{function.name.text}' is an array here"
                        cure = "a gradient of one's own is by a single number: pass the entries"
                        raise DmlcError(message, place, [cure], code="E0707")
                if not has_gradient(by):
                    continue
                slope: Value = yield self._on.visit(gradient.value, scope)
                value = self._on.give_gradient(value, by, slope, function.name.text, gradient)
        finally:
            self._deriving.discard(function.name.text)
        return value

    def _built_in(self, function: Builtin, call: syntax.Call, scope: Scope) -> Step[Value]:
        values: list[Value] = []
        for argument, parameter in zip(call.arguments, function.parameters, strict=True):
            match parameter.takes:
                case Takes.TENSOR | Takes.TENSORS | Takes.LEVEL:
                    value: Value = argument.value.span.text
                case Takes.TYPE:
                    value = yield self._on.visit(argument.value, scope, DataType.FLOAT32)
                case Takes.WHOLE:
                    value = yield self._on.visit(argument.value, scope.outside())
                case Takes.VALUE:
                    value = yield self._on.visit(argument.value, scope)
            values.append(value)
        spans = [a.value.span for a in call.arguments]
        return scope.entry(function.evaluate(self, Given(values, spans, call.span)), call.span)

    # What entries ask for -----------------------------------------------------------------

    def apply(self, operation: str, given: Given) -> Value:
        return self._on.combine(operation, given.values, given.spans, given.span)

    def convert(self, value: Value, to: DataType, span: Span) -> Value:
        return self._on.convert(value, to, span)

    def stop_gradient(self, given: Given) -> Value:
        return self._on.stop_gradient(given.values[0], given.span)

    def is_present(self, tensor: str) -> bool:
        return tensor in self._on.binding.tensors

    def is_since(self, level: str) -> bool:
        """Whether the operator is bound at this feature level or a newer one."""
        asked, wanted = (level_number(name) for name in (self._on.binding.level, level))
        return asked is None or wanted is None or asked >= wanted

    def whole_sizes(self, value: Value, span: Span) -> tuple[Measure, ...]:
        """Array as sizes, which may be open. Raises `DmlcError`."""
        items = value if isinstance(value, tuple) else ()
        opened = {n: v.size for n, v in enumerate(items) if isinstance(v, OpenSize) and v.over == 1}
        if not opened:
            return whole_sizes(value, span)
        numbers = whole_sizes(tuple(0 if n in opened else v for n, v in enumerate(items)), span)
        return tuple(opened.get(place, number) for place, number in enumerate(numbers))

    def refuse_open(self, given: Given) -> None:
        if any(isinstance(value, OpenSize) for value in given.values):
            raise refuse_open(given.values, given.span)

    def flatten(self, places: Value, sizes: tuple[Measure, ...], span: Span) -> Value:
        """Row-major linear index of a multi-dimensional index."""
        if not isinstance(places, tuple) or len(places) != len(sizes):
            count = f"{len(places)} values" if isinstance(places, tuple) else "one value"
            raise DmlcError(
                f"'flatten' takes a position along each of {len(sizes)} axes, but "
                f"{span_text(span)} has {count}",
                span,
                code="E0304",
            )
        if not all(map(is_constant, places)):
            positions = self._on.built().positions
            places = tuple(positions.of(place, span) for place in places)
        strides = [OpenSize(s) if isinstance(s, Size) else s for s in pack_strides(sizes)]
        terms = [
            place if stride == 1 else self._on.combine("mul", [place, stride], [span, span], span)
            for place, stride in zip(places, strides, strict=True)
        ]
        return self.fold(REDUCTIONS["sum"], terms, span)

    def unflatten(self, number: Value, sizes: tuple[Measure, ...], span: Span) -> Value:
        """Multi-dimensional index of a row-major linear index."""
        known = tuple(size for size in sizes if isinstance(size, int))
        single = isinstance(number, int) and not isinstance(number, bool)
        if isinstance(number, int) and single and len(known) == len(sizes):
            strides = packed_strides(known)
            return tuple(
                number // stride % max(size, 1) if axis else number // stride
                for axis, (size, stride) in enumerate(zip(known, strides, strict=True))
            )
        if isinstance(number, tuple):
            raise DmlcError(
                "'unflatten' takes the number of a place, and this is an array", span, code="E0304"
            )
        return self._on.built().positions.unflatten(number, sizes, span)

    def move_axes(self, name: str, axes: tuple[int, ...], given: Given) -> Value:
        value, shape = self._arrays.shaped(name, given.values[0], given.spans[0])
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("", given.span)
        moved, rank = move_axes(name, shape, axes, given.span, given.spans[1])
        made: list[ir.Extent] = [1] * rank
        for extent, axis in zip(shape, moved, strict=True):
            if axis >= 0:
                made[axis] = extent
        return self._on.built().nodes.add(
            Node(Op.MOVE, "move", (value,), value.dtype, tuple(made), tuple(moved))
        )

    def join(self, given: Given) -> Value:
        return self._arrays.join(given)

    def joined_sizes(self, given: Given) -> Value:
        (name, axis), (where, place), span = given.values, given.spans, given.span
        members = self._on.binding.members(name)
        shapes = [self._on.binding.sizes(member.name, where) for member in members]
        at = find_axis_to_join(shapes, axis, place, span)
        length = self.fold(REDUCTIONS["sum"], [shape[at] for shape in shapes], span)
        return (*shapes[0][:at], length, *shapes[0][at + 1 :])

    def split(self, given: Given) -> Value:
        return self._arrays.split(given)

    def gradient(self, given: Given) -> Value:
        one, other = given.values
        for value, span in zip(given.values, given.spans, strict=True):
            if shape_of(value) is None:
                raise DmlcError(
                    f"'gradient' takes tensors, but {span_text(span)} is none", span, code="E0706"
                )
        if self._on.differentiate is None:
            raise InternalError("only a graph takes gradients of its values", given.span)
        return self._on.differentiate(one, other, given)

    # Reductions ---------------------------------------------------------------------------

    def _reduce(
        self, reduction: Reduction, call: syntax.Call, scope: Scope, decided: bool
    ) -> Step[Value]:
        """Fold of a compile-time array, `all(Scales > 0)`, or of a pack, `sum(e...)`."""
        name, argument = reduction.name, call.arguments[0].value
        known = not reduction.booleans
        value: Value
        if isinstance(argument, syntax.Pack):
            items: list[Value] = yield self._index.expand(argument, scope, known)
            value = tuple(items)
        else:
            value = yield self._on.visit(argument, scope.outside(), decided=known)
        if shape_of(value) is not None:
            raise DmlcError(
                f"'{name}' needs to know what to reduce over: write {name}(x, like: T) or "
                f"{name}(x, axes: [...])",
                call.span,
                code="E0405",
            )
        if not isinstance(value, tuple):
            if isinstance(value, bool | Undecided) and reduction.booleans:
                return self._on.settle(value) if decided else value
            shown, what = span_text(argument.span), "one value"
            if not isinstance(value, Node):
                shown, what = show(value), describe(value)
            raise DmlcError(
                f"'{name}' folds an array, but {shown} is {what}", argument.span, code="E0303"
            )
        folded = self.fold(reduction, value, call.span)
        return self._on.settle(folded) if decided else folded

    def fold(self, reduction: Reduction, values: Sequence[Value], span: Span) -> Value:
        """Fold of the entries, from the first to the last."""
        name = reduction.name
        if not reduction.folds or (name == "mean" and not values):
            raise DmlcError(f"'{name}' does not fold an array", span, code="E0303")
        if name == "mean":
            total = self.fold(REDUCTIONS["sum"], values, span)
            return self._on.combine("div", [total, len(values)], [span, span], span)
        record = COMBINERS[name]
        if not values:
            if record.beats:
                raise DmlcError(f"'{name}' of an array without values", span, code="E0303")
            return record.identity(DataType.INT64)
        folded = values[0]
        for value in itertools.islice(values, 1, None):
            if reduction.booleans:
                folded = self._on.join(record.operation.symbol or "", folded, value, span, span)
            else:
                operation = record.operation.name
                folded = self._on.combine(operation, [folded, value], [span, span], span)
        whole = isinstance(folded, Node) and folded.dtype is DataType.BOOL
        if reduction.booleans and not isinstance(folded, bool | Undecided) and not whole:
            raise DmlcError(
                f"'{name}' folds booleans, but this is a number: compare it first, as in 'x != 0'",
                span,
                code="E0301",
            )
        return folded

    def _reduce_tensor(self, reduction: Reduction, call: syntax.Call, scope: Scope) -> Step[Value]:
        """`sum(x, like: T)` and `sum(x, axes: [0])`."""
        operand = next(a.value for a in call.arguments if a.name is None)
        named = next(a for a in call.arguments if a.name is not None)
        given: Value = yield self._on.visit(operand, scope)
        value, shape = self._arrays.shaped(reduction.name, given, operand.span)
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("reduction", call.span)
        if named.name is not None and named.name.text == "like":
            like = self._like(named.value, scope)
            axes = reduce_like(shape, like, operand.span, named.value.span)
        else:
            listed: Value = yield self._on.visit(named.value, scope.outside())
            axes = read_axes(listed, len(shape), named.value.span)
        return self._on.built().folds.fold(reduction.name, value, axes, call.span)

    def _like(self, expression: syntax.Expression, scope: Scope) -> tuple[ir.Extent, ...]:
        """The sizes of the tensor, local or parameter that `like:` names."""
        if not isinstance(expression, syntax.Reference):
            raise DmlcError("'like:' takes the name of a tensor", expression.span, code="E0208")
        name, span = expression.name, expression.span
        tensor = self._on.binding.tensors.get(name)
        value = scope.parameters.get(name)
        if value is None and (tensor is None or tensor.sizes is None):
            value = self._on.locals.get(name)
        if isinstance(value, DmlcError):
            raise value
        if value is None:
            return self._on.binding.extents(name, span)
        shape = shape_of(value)
        if shape is None:
            raise DmlcError(
                f"'like:' takes a tensor, but '{name}' has no sizes", span, code="E0303"
            )
        return shape


def _called(diagnostic: Diagnostic, call: Span) -> Diagnostic:
    """Diagnostic of an inlined function with notes of the calls around it, the innermost first."""
    note = Note("called from here", call)
    if sum(n.message == note.message for n in diagnostic.notes) >= MOST_NOTES:
        return diagnostic
    return dataclasses.replace(diagnostic, notes=(*diagnostic.notes, note))
