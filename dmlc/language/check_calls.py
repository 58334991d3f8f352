"""Checks of calls: functions of the file, and builtins."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from dmlc.language import foreign_words as foreign
from dmlc.language import syntax
from dmlc.language.builtins import (
    AXES,
    BUILT_IN,
    REDUCTIONS,
    Builtin,
    Given,
    Parameter,
    Reduction,
    Takes,
    find_reduction,
)
from dmlc.language.check_kinds import Checking, TypingContext
from dmlc.language.definitions import level_number
from dmlc.language.kinds import TYPE, UNKNOWN, Form, ValueKind, What
from dmlc.scalars import find_data_type
from dmlc.source import Edit, Note, counted, replace_word, unknown_name

FOLDS = ", ".join(r.name for r in REDUCTIONS.values() if r.folds)


class Calls:
    """Checker of calls; `checking` checks their arguments."""

    def __init__(self, checking: Checking, functions: Mapping[str, Builtin]) -> None:
        self._checking = checking
        self._functions = functions

    def check(self, call: syntax.Call, context: TypingContext) -> ValueKind:
        checking = self._checking
        name = call.function.name if isinstance(call.function, syntax.Reference) else ""
        named = any(a.name is not None for a in call.arguments)
        own = checking.names.functions.get(name)
        reduction = find_reduction(name, len(call.arguments), named)
        if reduction is not None and own is None and name not in checking.names.later_functions:
            return self._reduction(call, context, reduction)
        parameters: Sequence[Parameter] = ()
        if own is not None:
            self._count(call, name, len(own.parameters))
        else:
            parameters = self._find_parameters(call, name)
        kinds: list[ValueKind] = []
        for argument, parameter in itertools.zip_longest(call.arguments, parameters):
            if parameter is not None:
                kind = self._argument(argument.value, parameter, context)
            elif own is None and isinstance(argument.value, syntax.Pack):
                kind = checking.expand(argument.value, context)
            else:
                kind = checking.visit(argument.value, context)
            kinds.append(kind)
        if own is not None:
            return self._own_kind(call, name, kinds, context)
        gives = self._functions[name].gives if parameters else UNKNOWN
        if isinstance(gives, ValueKind):
            return checking.per_axis(gives, context)
        if isinstance(gives, What):
            form, ranks = checking.combine(kinds, context, call.span)
            return ValueKind(gives, form, ranks=ranks)
        return gives(Given(kinds, [a.value.span for a in call.arguments], call.span))

    def _find_parameters(self, call: syntax.Call, name: str) -> Sequence[Parameter]:
        """Parameters of the builtin that a call names; empty after an error."""
        checking, names, span = self._checking, self._checking.names, call.function.span
        if not name:
            cures = self._cure_method(call)
            meant = foreign.find_unprefixed(span.text, self._functions)
            fixes = replace_word(span, span.text, meant)
            message = "expected the name of a function before '('"
            checking.fail(message, span, *cures, code="E0208", fixes=fixes)
        elif name in names.later_functions:
            declared = Note("it is declared here", names.later_functions[name])
            checking.fail(
                f"function '{name}' is called before it is declared", span, declared, code="E0206"
            )
        elif name in self._functions:
            function = self._functions[name]
            labels = [None if a.name is None else a.name.text for a in call.arguments]
            if function.usage and labels != function.labels:
                checking.fail(function.usage[0], call.span, *function.usage[1:], code="E0304")
            elif function.usage or self._count(call, name, len(function.parameters)):
                return function.parameters
        elif name in names.tensors or name in names.locals:
            given = ", ".join(a.value.span.text for a in call.arguments) or "..."
            message = f"'{name}' is no function: an element is read as {name}[{given}]"
            checking.fail(message, call.span, code="E0208")
        else:
            known = [*names.functions, *BUILT_IN]
            cure, right = self._cure(call, name)
            found = unknown_name("function", name, known, span, "E0204", cure)
            if right is not None:
                found = dataclasses.replace(found, fixes=((Edit(call.span, right),),))
            checking.diagnostics.append(found)
        return ()

    def _cure(self, call: syntax.Call, name: str) -> tuple[str | None, str | None]:
        """Suggestion for a function of another language, and the corrected call if it is
        unambiguous."""
        texts = [a.value.span.text for a in call.arguments]
        given = ", ".join(texts)
        if name in foreign.CHOICES and len(texts) == 3:
            right = f"{texts[0]} ? {texts[1]} : {texts[2]}"
            return f"a choice is {right}", f"({right})"
        dtype = find_data_type(name)
        found = foreign.find_type(name) if dtype is None else dtype.name
        if found is None:
            return foreign.FUNCTIONS.get(name), None
        right = f"cast({given}, {found})"
        return f"a number becomes another type by {right}", right

    def _cure_method(self, call: syntax.Call) -> tuple[str, ...]:
        """Suggestion for `x.sum()`, or for a call of an operator in a formula."""
        if not isinstance(call.function, syntax.Member):
            return ()
        cure = foreign.cure_method(call.function.base.span.text, call.function.member.text)
        return (cure,)

    def _count(self, call: syntax.Call, name: str, count: int) -> bool:
        """Checks that a call has `count` arguments, none named; returns whether it has."""
        for argument in call.arguments:
            if argument.name is not None:
                label = argument.name
                self._checking.fail(
                    f"'{name}' takes no argument called '{label.text}'", label.span, code="E0304"
                )
                return False
        given = len(call.arguments)
        if given != count:
            takes = counted(count, "argument")
            self._checking.fail(
                f"'{name}' takes {takes}, but is given {given}", call.span, code="E0304"
            )
        return given == count

    def _own_kind(
        self,
        call: syntax.Call,
        name: str,
        kinds: Sequence[ValueKind],
        context: TypingContext,
    ) -> ValueKind:
        """Kind of the result of a function of the file for arguments of these kinds."""
        result = self._checking.per_axis(self._checking.names.results.get(name, UNKNOWN), context)
        if {Form.TENSOR, Form.ARRAY} <= {k.form for k in kinds}:
            # The use of the array, such as axes, is in the function's body.
            return ValueKind(result.what, Form.UNKNOWN)
        form, ranks = self._checking.combine(kinds, context, call.span)
        if result.form is Form.ARRAY:
            form = Form.ARRAY
        elif result.form is Form.UNKNOWN and form is Form.SCALAR and context.pack is None:
            form = Form.UNKNOWN  # It may give an array.
        elif form is Form.ARRAY or result.form is Form.TENSOR:
            form = Form.UNKNOWN
        return ValueKind(result.what, form, ranks=ranks)

    def _argument(
        self, value: syntax.Expression, parameter: Parameter, context: TypingContext
    ) -> ValueKind:
        checking = self._checking
        if parameter.takes is Takes.TENSOR:
            if not isinstance(value, syntax.Reference):
                return checking.fail(parameter.wrong, value.span, code="E0304")
            if value.name not in {*checking.names.tensors, *checking.names.broken}:
                checking.fail_unknown("tensor", value.name, checking.names.tensors, value.span)
            return UNKNOWN
        if parameter.takes is Takes.LEVEL:
            if not isinstance(value, syntax.Reference) or level_number(value.name) is None:
                return checking.fail(parameter.wrong, value.span, code="E0304")
            return UNKNOWN
        if parameter.takes is Takes.TENSORS:
            named = checking.names_array(value)
            return UNKNOWN if named else checking.fail(parameter.wrong, value.span, code="E0304")
        if parameter.takes is Takes.TYPE:
            kind = checking.visit(value, context, TYPE)
        else:
            whole = parameter.takes is Takes.WHOLE
            kind = checking.visit(value, context.outside_pack() if whole else context)
        if not kind.is_unknown and not parameter.fits(kind):
            return checking.fail(
                parameter.wrong.format(kind=kind.describe()), value.span, code="E0304"
            )
        if parameter.number is not None:
            checking.expect_number(kind, parameter.number, value.span)
        return kind

    # Reductions ---------------------------------------------------------------------------

    def _reduction(
        self, call: syntax.Call, context: TypingContext, reduction: Reduction
    ) -> ValueKind:
        checking, name = self._checking, reduction.name
        positional = [a.value for a in call.arguments if a.name is None]
        named = [a for a in call.arguments if a.name is not None]
        if len(positional) != 1:
            cures: list[str] = []
            if len(positional) == 2 and not named:
                axes = positional[1].span.text.strip("()[]")
                cures.append(f"axes are named: {name}({positional[0].span.text}, axes: [{axes}])")
            return checking.fail(
                f"'{name}' takes one value to reduce", call.span, *cures, code="E0304"
            )
        value = positional[0]
        if isinstance(value, syntax.Pack):
            if not reduction.folds or named:
                checking.fail(
                    f"'{name}' folds no pack", call.span, f"what does: {FOLDS}", code="E0406"
                )
            kind = checking.expand(value, context)
            return checking.folded(name, kind, value.span, Form.SCALAR)
        kind = checking.visit(value, context if named else context.outside_pack())
        if {"like", "axes"} <= {a.name.text for a in named if a.name is not None}:
            checking.fail(f"'{name}' takes either 'like:' or 'axes:'", call.span, code="E0405")
        for argument in named:
            self._over(argument, context, name)
        if named:
            folded = checking.folded(name, kind, value.span, Form.TENSOR)
            return dataclasses.replace(folded, ranks=kind.ranks)
        if kind.form is Form.ARRAY and reduction.folds:
            return checking.folded(name, kind, value.span, Form.SCALAR)
        if kind.form is Form.TENSOR or (kind.form is Form.SCALAR and not context.in_function):
            return checking.fail(
                f"'{name}' needs to know what to reduce over",
                call.span,
                f"write {name}(x, like: T), {name}(x, axes: [...]) or {name}[k : n](...)",
                code="E0405",
            )
        return checking.folded(name, kind, value.span, Form.UNKNOWN)

    def _over(self, argument: syntax.Argument, context: TypingContext, name: str) -> None:
        """Checks `like:` or `axes:` of a reduction."""
        checking, value = self._checking, argument.value
        label = "" if argument.name is None else argument.name.text
        if label == "axes":
            self._argument(value, AXES, context.outside_pack())
        elif label == "like":
            if not isinstance(value, syntax.Reference):
                checking.fail("'like:' takes the name of a tensor", value.span, code="E0208")
                return
            known = {**checking.names.tensors, **checking.names.locals, **context.variables}
            if value.name not in known and value.name not in checking.names.broken:
                checking.fail_unknown("tensor", value.name, known, value.span)
        elif argument.name is not None:
            what = f"argument of '{name}'"
            cure, known = foreign.LABELS.get(label), ["like", "axes"]
            checking.fail_unknown(what, label, known, argument.name.span, "E0304", cure)
            checking.visit(value, context)
