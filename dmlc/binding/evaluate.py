"""Evaluates calls: functions of the file and of the language, reductions, `squeeze`, `present`.

`Evaluator` is the whole evaluator of expressions. Functions are inlined; an argument is evaluated
once, however often the function uses it.
"""

from __future__ import annotations

import itertools

from dmlc import ir
from dmlc.binding.axes import (
    axes_array,
    list_range,
    move_axes,
    other_axes,
    read_axes,
    reduce_like,
)
from dmlc.binding.builder import Builder, span_text
from dmlc.binding.expressions import Expressions, Scope
from dmlc.binding.facts import Binding
from dmlc.binding.nodes import Element, Shape, Value
from dmlc.binding.values import Constant, apply_constant, cast_constant, describe, show
from dmlc.language import syntax
from dmlc.language.definitions import FunctionDefinition
from dmlc.language.vocabulary import AXIS_FUNCTIONS, FOLDS, REDUCTIONS, SCALAR_FUNCTIONS
from dmlc.language.walk import Step
from dmlc.scalars import COMBINERS, OPERATIONS, DataType, combiner_identity
from dmlc.source import DmlcError, Span, unknown_name

_MOST_CALLS = 20_000


class Evaluator(Expressions):
    """Expressions of one binding. Without a `builder`, elements of tensors may not be read."""

    def __init__(self, binding: Binding, builder: Builder | None = None) -> None:
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
        if name == "other_axes":
            return self._other_axes(expression, scope)
        if name == "range":
            return self._range(expression, scope)
        if name == "clamp":
            return self._clamp(expression, scope)
        if name in SCALAR_FUNCTIONS:
            return self._function(name, expression, scope)
        raise DmlcError(
            unknown_name("function", name, [*self.functions, *SCALAR_FUNCTIONS], expression.span)
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
            value: Value = yield self._visit(argument, scope)
            given[parameter] = value
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise DmlcError(
                f"the operator makes more than {_MOST_CALLS} calls once its functions are "
                "inlined: split it",
                expression.span,
            )
        inner = Scope(given, expression.span, scope)
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
        if isinstance(value, Element):
            return self._built().cast(value, to, expression.span)
        if isinstance(value, tuple):
            raise DmlcError("cast takes a number or a tensor, not an array", argument.span)
        made = cast_constant(value, to, expression.span)
        if self.builder is None:
            return made
        return self.builder.adapt(made, to.compute, expression.span)

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
            raise self._unsupported(f"pack in '{name}(...)'", expression.span)
        value: Value = yield self._visit(argument, scope)
        self._scope = scope
        if isinstance(value, Element):
            raise DmlcError(
                f"'{name}' needs to know what to reduce over: write {name}(x, like: T) or "
                f"{name}(x, axes: [...])",
                expression.span,
            )
        if not isinstance(value, tuple):
            if isinstance(value, bool) and name in ("all", "any"):
                return value
            raise DmlcError(
                f"'{name}' folds an array, but {show(value)} is {describe(value)}",
                argument.span,
            )
        return self._fold(name, value, expression.span)

    def _fold(self, name: str, values: tuple[Constant, ...], span: Span) -> Value:
        if name == "mean" and values:
            total = self._fold("sum", values, span)
            if not isinstance(total, Element):
                return apply_constant(OPERATIONS["div"], [total, len(values)], span)
        if name not in FOLDS:
            raise self._unsupported(f"'{name}' of an array", span)
        if not values:
            if name in ("min", "max"):
                raise DmlcError(f"'{name}' of an array without values", span)
            return combiner_identity(name, DataType.INT64)
        folded = values[0]
        for value in itertools.islice(values, 1, None):
            folded = apply_constant(COMBINERS[name], [folded, value], span)
        return folded

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

    def _other_axes(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        listed, count = self._arguments(expression, 2)
        axes: Value = yield self._visit(listed, scope)
        rank: Value = yield self._visit(count, scope)
        self._scope = scope
        return other_axes(axes, rank, listed.span, count.span)

    def _range(self, expression: syntax.Call, scope: Scope) -> Step[Value]:
        first, end = self._arguments(expression, 2)
        low: Value = yield self._visit(first, scope)
        high: Value = yield self._visit(end, scope)
        self._scope = scope
        return list_range(low, high, expression.span)
