"""Evaluates calls: functions of the file and of the language, reductions of whole tensors, folds
of packs, `squeeze`, `present`.

`Evaluator` is the whole evaluator of expressions. Functions are inlined; an argument is evaluated
once, however often the function uses it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from dmlc import ir
from dmlc.binding.axes import (
    axes_array,
    count_entries,
    invert_order,
    list_range,
    move_axes,
    other_axes,
    read_axes,
    reduce_like,
    whole_sizes,
)
from dmlc.binding.builder import span_text
from dmlc.binding.expressions import Scope
from dmlc.binding.facts import Binding
from dmlc.binding.indexing import Indexing
from dmlc.binding.nodes import Element, Pack, Shape, Value
from dmlc.binding.packs import entries, make_array
from dmlc.binding.tensor_arrays import TensorArrays
from dmlc.binding.values import cast_constant, describe, show
from dmlc.ir import packed_strides
from dmlc.language import syntax
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.vocabulary import (
    ARRAY_FUNCTIONS,
    AXIS_FUNCTIONS,
    BUILT_IN,
    FOLDS,
    REDUCTIONS,
    SCALAR_FUNCTIONS,
    TENSOR_ARRAY_FUNCTIONS,
)
from dmlc.language.walk import Step
from dmlc.scalars import COMBINERS, DataType, combiner_identity
from dmlc.source import DmlcError, Span, unknown_name

_MOST_CALLS = 20_000


class Evaluator(TensorArrays):
    """Expressions of one binding. Without a `builder`, elements of tensors may not be read."""

    def __init__(self, binding: Binding, builder: Indexing | None = None) -> None:
        super().__init__(binding, builder)
        self._calls = 0

    def _call(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        if not isinstance(expression.function, syntax.Reference):
            raise DmlcError("only a function's name can be called here", expression.function.span)
        name = expression.function.name
        if name in self.functions:
            return self._inline(self.functions[name], expression, scope)
        if name == "present":
            return self._present(expression)
        if name == "cast":
            return self._cast(expression, scope)
        named = any(a.name is not None for a in expression.arguments)
        folds = named or len(expression.arguments) == 1
        if name in REDUCTIONS and (folds or name not in SCALAR_FUNCTIONS):
            return self._reduce(name, expression, scope)
        if name in AXIS_FUNCTIONS:
            return self._move_axes(name, expression, scope)
        if name in TENSOR_ARRAY_FUNCTIONS:
            return self._tensor_array(name, expression, scope)
        if name in ARRAY_FUNCTIONS:
            return self._array_function(name, expression, scope)
        if name == "clamp":
            return self._clamp(expression, scope)
        if name in SCALAR_FUNCTIONS:
            return self._function(name, expression, scope)
        raise DmlcError(
            unknown_name("function", name, [*self.functions, *BUILT_IN], expression.span)
        )

    def _arguments(self, expression: syntax.Call, count: int) -> list[syntax.Expression]:
        if len(expression.arguments) != count:
            raise DmlcError(
                f"{span_text(expression.function.span)} takes {count} arguments, not "
                f"{len(expression.arguments)}",
                expression.span,
            )
        return [a.value for a in expression.arguments]

    def _inline(
        self, function: FunctionDefinition, expression: syntax.Call, scope: Scope
    ) -> Step[Value]:
        arguments = self._arguments(expression, len(function.parameters))
        given: dict[str, Value] = {}
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            # An array by name stays whole inside the function, where it stands for its entry.
            whole = isinstance(argument, syntax.Reference | syntax.Member | syntax.Array)
            value: Value = yield self._visit(argument, scope.outside() if whole else scope)
            given[parameter] = value
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise DmlcError(
                f"the operator makes more than {_MOST_CALLS} calls once its functions are "
                "inlined: split it",
                expression.span,
            )
        inner = dataclasses.replace(scope, parameters=given, call=expression.span, outer=scope)
        result: Value = yield self._visit(function.body, inner)
        self._scope = scope
        return result

    def _present(self, expression: syntax.Call) -> Step[Value]:
        yield from ()
        (argument,) = self._arguments(expression, 1)
        if not isinstance(argument, syntax.Reference):
            raise DmlcError("present takes the name of a tensor", argument.span)
        return argument.name in self.binding.tensors

    def _cast(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        argument, target = self._arguments(expression, 2)
        to: Value = yield self._visit(target, scope, DataType.FLOAT32)
        if not isinstance(to, DataType):
            raise DmlcError("cast takes a data type, such as FLOAT32, second", target.span)
        value: Value = yield self._visit(argument, scope)
        self._scope = scope
        return self._convert(value, to, expression.span)

    def _convert(self, value: Value, to: DataType, span: Span) -> Value:
        if isinstance(value, Element):
            return self._built().cast(value, to, span)
        if isinstance(value, tuple | Pack):
            return make_array([self._convert(v, to, span) for v in entries(value)])
        made = cast_constant(value, to, span)
        if self.builder is None:
            return made
        return self.builder.adapt(made, to.compute, span)

    def _clamp(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        x, low, high = self._arguments(expression, 3)
        value: Value = yield self._visit(x, scope)
        bottom: Value = yield self._visit(low, scope)
        top: Value = yield self._visit(high, scope)
        raised = self._apply("max", [value, bottom], [x.span, low.span], expression.span, scope)
        return self._apply("min", [raised, top], [x.span, high.span], expression.span, scope)

    def _function(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        arguments = self._arguments(expression, SCALAR_FUNCTIONS[name])
        values: list[Value] = []
        for argument in arguments:
            value: Value = yield self._visit(argument, scope)
            values.append(value)
        return self._apply(name, values, [a.span for a in arguments], expression.span, scope)

    def _reduce(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """`all(Scales > 0)` folds a compile-time array; `like:` and `axes:` reduce a tensor."""
        if any(a.name is not None for a in expression.arguments):
            return (yield self._reduce_tensor(name, expression, scope))
        (argument,) = self._arguments(expression, 1)
        if isinstance(argument, syntax.Pack):
            items: list[Value] = yield self._expand(argument, scope)
            value: Value = make_array(items)
        else:
            value = yield self._visit(argument, scope.outside())
        self._scope = scope
        if isinstance(value, Element) and self._built().shape(value) is not None:
            raise DmlcError(
                f"'{name}' needs to know what to reduce over: write {name}(x, like: T) or "
                f"{name}(x, axes: [...])",
                expression.span,
            )
        if not isinstance(value, tuple | Pack):
            if isinstance(value, bool) and name in ("all", "any"):
                return value
            shown, what = span_text(argument.span), "one value"
            if not isinstance(value, Element):
                shown, what = show(value), describe(value)
            raise DmlcError(f"'{name}' folds an array, but {shown} is {what}", argument.span)
        return self._fold(name, entries(value), expression.span)

    def _fold(self, name: str, values: Sequence[Value], span: Span) -> Value:
        """One value of all entries, from the first to the last."""
        if name == "mean" and values:
            total = self._fold("sum", values, span)
            return self._combine("div", [total, len(values)], [span, span], span)
        if name not in FOLDS:
            raise DmlcError(f"'{name}' does not fold an array", span)
        if not values:
            if name in ("min", "max"):
                raise DmlcError(f"'{name}' of an array without values", span)
            return combiner_identity(name, DataType.INT64)
        folded = values[0]
        for value in itertools.islice(values, 1, None):
            if name in ("all", "any"):
                folded = self._join("&&" if name == "all" else "||", folded, value, span, span)
            else:
                folded = self._combine(COMBINERS[name].name, [folded, value], [span, span], span)
        if name in ("all", "any"):
            self._check_boolean(folded, name, span)
        return folded

    def _check_boolean(self, value: Value, name: str, span: Span) -> None:
        element = isinstance(value, Element)
        if not isinstance(value, bool) and not (
            element and self._built().dtype(value) is DataType.BOOL
        ):
            raise DmlcError(
                f"'{name}' folds booleans, but this is a number: compare it first, as in 'x != 0'",
                span,
            )

    def _reduce_tensor(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        operand, named = self._operand_and_named(name, expression)
        value, shape = yield self._shaped(name, operand, scope)
        if self.binding.symbolic:
            raise DmlcError(
                f"reduction {span_text(expression.span)} needs the sizes of its tensors",
                expression.span,
                ["give a description with sizes for each input"],
            )
        if named.name is not None and named.name.text == "like":
            like = self._like(named.value, scope)
            axes = reduce_like(shape, like, operand.span, named.value.span)
        else:
            axes = yield self._axes(named.value, len(shape), scope)
        self._scope = scope
        return self._built().fold(name, value, axes, expression.span)

    def _axes(self, expression: syntax.Expression, rank: int, scope: Scope) -> Step[list[int]]:
        """The value of `axes:`, as axes of a tensor of that rank."""
        value: Value = yield self._visit(expression, scope)
        self._scope = scope
        return read_axes(value, rank, expression.span)

    def _like(self, expression: syntax.Expression, scope: Scope) -> tuple[ir.Extent, ...]:
        """The sizes of the tensor, local or parameter that `like:` names."""
        if not isinstance(expression, syntax.Reference):
            raise DmlcError("'like:' takes the name of a tensor", expression.span)
        name, span = expression.name, expression.span
        tensor = self.binding.tensors.get(name)
        value = scope.parameters.get(name)
        if value is None and (tensor is None or tensor.sizes is None):
            value = self.locals.get(name)
        if isinstance(value, DmlcError):
            raise value
        if value is None:
            return self.binding.extents(name, span)
        shape: Shape = self._built().shape(value) if isinstance(value, Element) else None
        if shape is None:
            raise DmlcError(f"'like:' takes a tensor, but '{name}' has no sizes", span)
        return shape

    # Axes ---------------------------------------------------------------------------------

    def _move_axes(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """`squeeze` and `unsqueeze`."""
        operand, named = self._operand_and_named(name, expression)
        value, shape = yield self._shaped(name, operand, scope)
        if self.binding.symbolic:
            raise DmlcError(
                f"{span_text(expression.span)} needs the sizes of its tensors",
                expression.span,
                ["give a description with sizes for each input"],
            )
        given: Value = yield self._visit(named.value, scope)
        self._scope = scope
        axes = axes_array(given, named.value.span)
        moved, rank = move_axes(name, shape, axes, expression.span, named.value.span)
        return self._built().move(value, moved, rank)

    # Arrays -------------------------------------------------------------------------------

    def _array_function(self, name: str, expression: syntax.Call, scope: Scope) -> Step[Value]:
        """Functions of whole arrays: inside an expansion too, their arguments stand for
        themselves, and what they give for its entry."""
        arguments = self._arguments(expression, ARRAY_FUNCTIONS[name])
        values: list[Value] = []
        for argument in arguments:
            value: Value = yield self._visit(argument, scope.outside())
            values.append(value)
        self._scope = scope
        spans = [a.span for a in arguments]
        span = expression.span
        match name:
            case "other_axes":
                made: Value = other_axes(values[0], values[1], spans[0], spans[1])
            case "range":
                made = list_range(values[0], values[1], span)
            case "inverse":
                made = invert_order(values[0], spans[0])
            case "length":
                made = count_entries(values[0], spans[0])
            case "flatten":
                sizes = whole_sizes(values[1], spans[1])
                made = self._flatten(values[0], sizes, spans)
            case _:
                sizes = whole_sizes(values[1], spans[1])
                made = self._unflatten(values[0], sizes, spans[0])
        return scope.entry(made, span)

    def _flatten(self, value: Value, sizes: tuple[int, ...], spans: list[Span]) -> Value:
        """The number of a place among all of a shape's."""
        if not isinstance(value, tuple | Pack) or len(entries(value)) != len(sizes):
            count = (
                f"{len(entries(value))} values" if isinstance(value, tuple | Pack) else "one value"
            )
            raise DmlcError(
                f"'flatten' takes a position along each of {len(sizes)} axes, but "
                f"{span_text(spans[0])} has {count}",
                spans[0],
            )
        if isinstance(value, tuple):
            strides = packed_strides(sizes)
            terms = [self._combine("mul", [v, s], spans, spans[0])
                     for v, s in zip(value, strides, strict=True)]  # fmt: skip
            return self._fold("sum", terms, spans[0])
        return self._built().flatten(value.items, sizes, spans[0])

    def _unflatten(self, value: Value, sizes: tuple[int, ...], span: Span) -> Value:
        """The place along each axis of a shape that a number counts to."""
        if isinstance(value, int) and not isinstance(value, bool):
            strides = packed_strides(sizes)
            return tuple(
                value // stride % max(size, 1) if axis else value // stride
                for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
            )
        if isinstance(value, tuple | Pack):
            raise DmlcError("'unflatten' takes the number of a place, and this is an array", span)
        return self._built().unflatten(value, sizes, span)
