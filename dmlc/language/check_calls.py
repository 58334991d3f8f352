"""Checks calls: functions of the file and of the language, reductions, folds, `present`, `cast`.

`ExpressionChecker` is the whole checker of expressions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.language import syntax
from dmlc.language.check_expressions import Expressions, Place
from dmlc.language.kinds import (
    BOOL,
    NUMBER,
    NUMBERS,
    TYPE,
    UNKNOWN,
    Form,
    Kind,
    What,
)
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
from dmlc.scalars import find_data_type
from dmlc.source import Note, unknown_name


class ExpressionChecker(Expressions):
    """Checks expressions against `names`, adding mistakes to `diagnostics`."""

    def _call(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        function = expression.function
        if not isinstance(function, syntax.Reference):
            return self._bad_call(expression, place)
        name = function.name
        named = any(a.name is not None for a in expression.arguments)
        if name in self.names.functions:
            return self._user_call(expression, place, name)
        if name in self.names.later_functions:
            return self._early_call(expression, place, name)
        if name == "present":
            return self._present(expression)
        if name == "cast":
            return self._cast(expression, place)
        if name in AXIS_FUNCTIONS:
            return self._move_axes(expression, place, name)
        if name in TENSOR_ARRAY_FUNCTIONS:
            return self._tensor_array(expression, place, name)
        if name in ARRAY_FUNCTIONS:
            return self._array_function(expression, place, name)
        scalar = name in SCALAR_FUNCTIONS
        if name in REDUCTIONS and (named or len(expression.arguments) == 1 or not scalar):
            return self._reduction(expression, place, name)
        if scalar:
            return self._scalar_call(expression, place, name)
        if name in self.names.tensors or name in self.names.locals:
            message = f"'{name}' is no function: an element is read as {name}[...]"
            self.fail(message, expression.span)
        else:
            known = [*self.names.functions, *BUILT_IN]
            self.diagnostics.append(unknown_name("function", name, known, function.span))
        return self._visit_all(expression, place, UNKNOWN)

    def _visit_all(self, expression: syntax.Call, place: Place, result: Kind) -> Step[Kind]:
        for argument in expression.arguments:
            if isinstance(argument.value, syntax.Pack):
                yield self._expand(argument.value, place)
            else:
                yield self._visit(argument.value, place)
        return result

    def _bad_call(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        self.fail("expected the name of a function before '('", expression.function.span)
        return self._visit_all(expression, place, UNKNOWN)

    def _early_call(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        self.fail(
            f"function '{name}' is called before it is declared",
            expression.function.span,
            Note("it is declared here", self.names.later_functions[name]),
        )
        return self._visit_all(expression, place, UNKNOWN)

    def _count(self, expression: syntax.Call, name: str, count: int) -> bool:
        """Whether a call has so many arguments, none named."""
        for argument in expression.arguments:
            if argument.name is not None:
                self.fail(
                    f"'{name}' takes no argument called '{argument.name.text}'",
                    argument.name.span,
                )
                return False
        given = len(expression.arguments)
        if given != count:
            plural = "argument" if count == 1 else "arguments"
            self.fail(f"'{name}' takes {count} {plural}, but is given {given}", expression.span)
        return given == count

    def _user_call(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        function = self.names.functions[name]
        self._count(expression, name, len(function.parameters))
        kinds: list[Kind] = []
        for argument in expression.arguments:
            kind: Kind = yield self._visit(argument.value, place)
            kinds.append(kind)
        form, ranks = self._combine(kinds, place, expression.span) if kinds else (Form.SCALAR, None)
        result = self.names.results.get(name, UNKNOWN)
        if result.form is Form.ARRAY:
            form = Form.ARRAY
        elif result.form is Form.UNKNOWN and form is Form.SCALAR and not place.in_pack:
            form = Form.UNKNOWN  # It may give an array.
        elif form is Form.ARRAY or result.form is Form.TENSOR:
            form = Form.UNKNOWN
        return Kind(result.what, form, ranks=ranks)

    def _present(self, expression: syntax.Call) -> Step[Kind]:
        yield from ()
        if self._count(expression, "present", 1):
            argument = expression.arguments[0].value
            if not isinstance(argument, syntax.Reference):
                self.fail("'present' takes the name of a tensor", argument.span)
            elif argument.name not in self.names.tensors:
                self.diagnostics.append(
                    unknown_name("tensor", argument.name, self.names.tensors, argument.span)
                )
        return BOOL

    def _cast(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        if not self._count(expression, "cast", 2):
            return UNKNOWN
        argument, target = (a.value for a in expression.arguments)
        to: Kind = yield self._visit(target, place, TYPE)
        if not to.is_unknown and to.what is not What.TYPE:
            self.fail("the second argument of 'cast' is a data type, such as FLOAT32", target.span)
        kind: Kind = yield self._visit(argument, place)
        if kind.what not in (What.NUMBER, What.BOOL, What.UNKNOWN):
            self.fail(f"'cast' takes a number, but this is {kind.describe()}", argument.span)
        boolean = find_data_type(target.span.text)
        what = What.UNKNOWN if boolean is None else What.NUMBER
        if boolean is not None and boolean.name == "BOOL":
            what = What.BOOL
        return Kind(what, kind.form, ranks=kind.ranks)

    def _scalar_call(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        self._count(expression, name, SCALAR_FUNCTIONS[name])
        kinds: list[Kind] = []
        for argument in expression.arguments:
            kind: Kind = yield self._visit(argument.value, place)
            kinds.append(kind)
            self._expect_number(kind, f"an argument of '{name}'", argument.span)
        form, ranks = self._combine(kinds, place, expression.span)
        what = What.BOOL if name in ("isnan", "isinf") else What.NUMBER
        return Kind(what, form, ranks=ranks)

    def _reduction(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        positional = [a for a in expression.arguments if a.name is None]
        named = [a for a in expression.arguments if a.name is not None]
        if len(positional) != 1:
            self.fail(f"'{name}' takes one value to reduce", expression.span)
            return UNKNOWN
        value = positional[0].value
        if isinstance(value, syntax.Pack):
            if name not in (*FOLDS, "mean") or named:
                folds = ", ".join(FOLDS)
                self.fail(f"'{name}' folds no pack", expression.span, f"what does: {folds}")
            kind: Kind = yield self._expand(value, place)
            return self._folded(name, dataclasses.replace(kind, form=Form.SCALAR), value.span)
        kind = yield self._visit(value, place.outside_pack())
        if len(named) > 1:
            self.fail(f"'{name}' takes either 'like:' or 'axes:'", expression.span)
        for argument in named:
            yield self._reduction_argument(argument, place, name)
        if named:
            folded = self._folded(name, kind, value.span)
            return dataclasses.replace(folded, form=Form.TENSOR, ranks=kind.ranks)
        if kind.form is Form.ARRAY and name in (*FOLDS, "mean"):
            return dataclasses.replace(self._folded(name, kind, value.span), form=Form.SCALAR)
        if kind.form is Form.TENSOR or (kind.form is Form.SCALAR and not place.in_function):
            return self.fail(
                f"'{name}' needs to know what to reduce over",
                expression.span,
                f"write {name}(x, like: T), {name}(x, axes: [...]) or {name}[k : n](...)",
            )
        return dataclasses.replace(self._folded(name, kind, value.span), form=Form.UNKNOWN)

    def _reduction_argument(self, argument: syntax.Argument, place: Place, name: str) -> Step[Kind]:
        label = argument.name
        value = argument.value
        if label is not None and label.text == "like":
            tensors = self.names.tensors
            if not isinstance(value, syntax.Reference):
                return self.fail("'like:' takes the name of a tensor", value.span)
            known = {**tensors, **self.names.locals, **place.variables}
            if value.name not in known:
                self.diagnostics.append(unknown_name("tensor", value.name, known, value.span))
            return UNKNOWN
        if label is not None and label.text != "axes":
            self.diagnostics.append(
                unknown_name(f"argument of '{name}'", label.text, ["like", "axes"], label.span)
            )
            return (yield self._visit(value, place))
        return (yield self._axes(value, place))

    def _axes(self, value: syntax.Expression, place: Place, whose: str = "axes:") -> Step[Kind]:
        kind: Kind = yield self._visit(value, place)
        if kind.form in (Form.TENSOR, Form.SCALAR) and not kind.is_unknown:
            return self.fail(f"'{whose}' takes a compile-time array, such as [0, 2]", value.span)
        return self._expect_number(kind, "an axis", value.span)

    # Axes ---------------------------------------------------------------------------------

    def _move_axes(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        """`squeeze(x, axes: [...])` and `unsqueeze(x, axes: [...])`."""
        plain = [a.value for a in expression.arguments if a.name is None]
        named = [a for a in expression.arguments if a.name is not None]
        if len(plain) != 1 or [a.name.text for a in named if a.name is not None] != ["axes"]:
            return self.fail(
                f"'{name}' takes a tensor and axes: {name}(x, axes: [...])", expression.span
            )
        kind: Kind = yield self._visit(plain[0], place)
        if kind.form in (Form.SCALAR, Form.ARRAY) and not kind.is_unknown:
            self.fail(f"'{name}' takes a tensor", plain[0].span)
        yield self._axes(named[0].value, place)
        return Kind(kind.what, Form.TENSOR)

    def _tensor_array(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        """`join(InputTensors, axis: A)` and `OutputTensors = split(InputTensor, axis: A)`."""
        plain = [a.value for a in expression.arguments if a.name is None]
        named = [a for a in expression.arguments if a.name is not None]
        joins = name == "join"
        if len(plain) != 1 or [a.name.text for a in named if a.name is not None] != ["axis"]:
            takes = "an array of tensors" if joins else "a tensor"
            return self.fail(f"'{name}' takes {takes} and an axis: {name}(x, axis: A)",
                             expression.span)  # fmt: skip
        kind: Kind = UNKNOWN
        if joins and not self._names_array(plain[0]):
            self.fail("'join' takes an array of tensors", plain[0].span)
        elif not joins:
            kind = yield self._visit(plain[0], place)
            if kind.form in (Form.SCALAR, Form.ARRAY) and not kind.is_unknown:
                self.fail("'split' takes a tensor", plain[0].span)
        axis: Kind = yield self._visit(named[0].value, place)
        if axis.form in (Form.TENSOR, Form.ARRAY) and not axis.is_unknown:
            self.fail("an axis is one whole number", named[0].value.span)
        self._expect_number(axis, "an axis", named[0].value.span)
        return Kind(kind.what, Form.TENSOR if joins else Form.UNKNOWN)

    # Arrays -------------------------------------------------------------------------------

    def _array_function(self, expression: syntax.Call, place: Place, name: str) -> Step[Kind]:
        """`range(first, end)`, `other_axes(axes, count)`, `inverse(order)`, `length(array)`,
        `flatten(positions, sizes)` and `unflatten(number, sizes)`."""
        if not self._count(expression, name, ARRAY_FUNCTIONS[name]):
            return UNKNOWN
        around = place.outside_pack()
        for argument, role in zip(expression.arguments, _ROLES[name], strict=True):
            kind: Kind = yield self._visit(argument.value, around)
            span = argument.value.span
            wrong = (Form.TENSOR, Form.SCALAR if "array" in role else Form.ARRAY)
            if kind.form in wrong and not kind.is_unknown:
                self.fail(f"'{name}' takes {role}", span)
            elif name != "length":
                self._expect_number(kind, f"an argument of '{name}'", span)
        if name in ("length", "flatten"):
            return NUMBER
        return self._per_axis(NUMBERS, place)


_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "other_axes": ("a compile-time array, such as [0, 2]", "a dimension count, second"),
        "range": ("two whole numbers", "two whole numbers"),
        "inverse": ("a permutation, an array such as [1, 0]",),
        "length": ("an array",),
        "flatten": ("an array of positions, first", "an array of sizes, second"),
        "unflatten": ("a whole number, first", "an array of sizes, second"),
    }
)
"""What each argument of an array function is."""
