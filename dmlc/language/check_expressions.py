"""Checks expressions: names, booleans and numbers, ranks, packs. Calls are in `check_calls`.

Nothing is computed and nothing about sizes or data types is decided here; binding does that.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.kinds import (
    BOOL,
    NUMBER,
    NUMBERS,
    PACK,
    STRING,
    TYPE,
    UNKNOWN,
    Form,
    Kind,
    Names,
    What,
    attribute_kind,
    tensor_kind,
)
from dmlc.language.vocabulary import (
    ARRAY_FACTS,
    ARRAY_FUNCTIONS,
    FACTS,
    FOLDS,
    REDUCTIONS,
    SCALAR_FUNCTIONS,
    find_member,
)
from dmlc.language.walk import Step, subexpressions, walk
from dmlc.scalars import data_type_names, find_data_type
from dmlc.source import Diagnostic, Note, Span, unknown_name

_NUMERIC = ("+", "-", "*", "/", "%", "<", "<=", ">", ">=")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands: the variables bound around it, and what encloses it."""

    variables: Mapping[str, Kind]
    in_pack: bool = False
    in_function: bool = False

    def within_pack(self) -> Place:
        return dataclasses.replace(self, in_pack=True)

    def outside_pack(self) -> Place:
        return dataclasses.replace(self, in_pack=False)


class Expressions(abc.ABC):
    """Checks all but calls against `names`, adding mistakes to `diagnostics`."""

    def __init__(self, names: Names, diagnostics: list[Diagnostic]) -> None:
        self.names = names
        self.diagnostics = diagnostics

    def check(
        self,
        expression: syntax.Expression,
        variables: Mapping[str, Kind] | None = None,
        expected: Kind | None = None,
    ) -> Kind:
        """The kind of an expression. `expected` says which enum a bare name is a member of."""
        place = Place({} if variables is None else variables)
        return walk(self._visit(expression, place, expected))

    def check_function(self, parameters: Sequence[str], body: syntax.Expression) -> Kind:
        """The kind a function gives, its parameters being of any kind."""
        place = Place(dict.fromkeys(parameters, UNKNOWN), in_function=True)
        return walk(self._visit(body, place))

    def fail(self, message: str, span: Span, *notes: str | Note) -> Kind:
        made = tuple(n if isinstance(n, Note) else Note(n) for n in notes)
        self.diagnostics.append(Diagnostic(message, span, made))
        return UNKNOWN

    def _visit(
        self, expression: syntax.Expression, place: Place, expected: Kind | None = None
    ) -> Step[Kind]:
        match expression:
            case syntax.Literal():
                return self._give(BOOL if isinstance(expression.value, bool) else NUMBER)
            case syntax.String():
                return self._string(expression, expected)
            case syntax.Array():
                return self._array(expression, place, expected)
            case syntax.Reference():
                return self._reference(expression, place, expected)
            case syntax.Member():
                return self._member(expression, place)
            case syntax.Index():
                return self._index(expression, place)
            case syntax.Call():
                return self._call(expression, place)
            case syntax.Reduce():
                return self._reduce(expression, place)
            case syntax.Unary():
                return self._unary(expression, place)
            case syntax.Binary():
                return self._binary(expression, place)
            case syntax.Ternary():
                return self._ternary(expression, place, expected)
            case syntax.Pack():
                return self._stray_pack(expression, place)

    def _give(self, kind: Kind) -> Step[Kind]:
        yield from ()
        return kind

    def _string(self, expression: syntax.String, expected: Kind | None) -> Step[Kind]:
        yield from ()
        if expected is not None and expected.values is not None:
            if expression.value not in expected.values:
                self.diagnostics.append(
                    unknown_name("value", expression.value, expected.values, expression.span)
                )
            return expected
        return STRING

    def _array(self, expression: syntax.Array, place: Place, expected: Kind | None) -> Step[Kind]:
        kinds: list[Kind] = []
        for item in expression.items:
            if isinstance(item, syntax.Pack):
                kind: Kind = yield self._expand(item, place)
            else:
                kind = yield self._visit(item, place.outside_pack(), expected)
            kinds.append(kind)
            if kind.form is Form.TENSOR:
                self.fail("an array holds single values, and this is a whole tensor", item.span)
        whats = {k.what for k in kinds if not k.is_unknown}
        if len(whats) > 1:
            return self.fail("the values of an array must be of one kind", expression.span)
        what = whats.pop() if whats else What.UNKNOWN
        made = Kind(what, Form.ARRAY, enum=kinds[0].enum if kinds else None)
        return self._per_axis(made, place)

    # Names --------------------------------------------------------------------------------

    def _reference(
        self, expression: syntax.Reference, place: Place, expected: Kind | None
    ) -> Step[Kind]:
        yield from ()
        name, span, names = expression.name, expression.span, self.names
        if expected is not None and expected.enum is not None:
            if find_member(expected.enum, name) is not None:
                return dataclasses.replace(expected, form=Form.SCALAR)
        elif expected is not None and expected.what is What.TYPE and find_data_type(name):
            return TYPE
        if name in place.variables:
            return self._variable(expression, place)
        if name in names.locals:
            return self._per_axis(names.locals[name], place)
        if name in names.later:
            return self.fail(
                f"'{name}' is used before it is defined",
                span,
                Note("it is defined here", names.later[name]),
            )
        if name in names.tensors:
            return self._tensor(expression)
        if name in names.attributes:
            kind = attribute_kind(names.attributes[name])
            return self._per_axis(kind, place)
        if name in names.dimensions:
            return self._per_axis(names.dimensions[name], place)
        return self._unknown(expression, expected)

    def _per_axis(self, kind: Kind, place: Place) -> Kind:
        """An array inside `e...` stands for its value along the axis at hand."""
        if kind.form is Form.ARRAY and place.in_pack:
            return dataclasses.replace(kind, form=Form.SCALAR)
        if kind.form is Form.ARRAY and place.in_function:
            return dataclasses.replace(kind, form=Form.UNKNOWN)
        return kind

    def _variable(self, expression: syntax.Reference, place: Place) -> Kind:
        kind = place.variables[expression.name]
        if not kind.pack:
            return kind
        form = Form.SCALAR if place.in_pack else Form.ARRAY
        return dataclasses.replace(kind, form=form, pack=False)

    def _tensor(self, expression: syntax.Reference) -> Kind:
        tensor = self.names.tensors[expression.name]
        if not self.names.elements:
            return self.fail(
                f"the elements of tensor '{expression.name}' are not known here",
                expression.span,
                f"use a fact about it, such as {expression.name}.Sizes",
            )
        if tensor.output:
            return self.fail(
                f"output '{expression.name}' is read, but no statement before defines it",
                expression.span,
            )
        return tensor_kind(tensor)

    def _unknown(self, expression: syntax.Reference, expected: Kind | None) -> Kind:
        name, span, names = expression.name, expression.span, self.names
        owners = [e for e in names.enums.values() if find_member(e, name) is not None]
        if expected is not None and expected.is_unknown and (owners or find_data_type(name)):
            return UNKNOWN
        if expected is not None and expected.enum is not None:
            members = expected.enum.members
            self.diagnostics.append(
                unknown_name(f"member of {expected.enum.name}", name, members, span)
            )
        elif expected is not None and expected.what is What.TYPE:
            self.diagnostics.append(unknown_name("data type", name, data_type_names(), span))
        elif name in names.functions or name in SCALAR_FUNCTIONS or name in REDUCTIONS:
            self.fail(f"'{name}' is a function: call it, as in {name}(...)", span)
        elif owners:
            self.fail(
                f"'{name}' is a member of {owners[0].name}, and no {owners[0].name} is expected "
                "here",
                span,
                "compare it with an attribute of that type",
            )
        else:
            known = [*names.locals, *names.tensors, *names.attributes, *names.dimensions]
            self.diagnostics.append(unknown_name("name", name, known, span))
        return UNKNOWN

    def _is_open(self, expression: syntax.Expression, place: Place) -> bool:
        """Whether only the other side of a comparison can tell what a name is."""
        return isinstance(expression, syntax.Reference) and not (
            expression.name in place.variables
            or expression.name in self.names.locals
            or expression.name in self.names.tensors
            or expression.name in self.names.attributes
        )

    def _member(self, expression: syntax.Member, place: Place) -> Step[Kind]:
        base, member = expression.base, expression.member
        if isinstance(base, syntax.Index) and self._names_array(base.base):
            yield self._entry(base, place)
            base = base.base
            facts = FACTS
        elif self._names_array(base):
            facts = ARRAY_FACTS
        else:
            facts = FACTS
        if not isinstance(base, syntax.Reference):
            return self.fail(f"only tensors have facts such as '.{member.text}'", expression.span)
        if base.name not in self.names.tensors:
            names = self.names
            if any(base.name in n for n in (names.attributes, names.locals, names.dimensions)):
                return self.fail(
                    f"only tensors have facts such as '.{member.text}', and '{base.name}' is none",
                    expression.span,
                )
            tensors = self.names.tensors
            self.diagnostics.append(unknown_name("tensor", base.name, tensors, base.span))
            return UNKNOWN
        if member.text not in facts:
            self.diagnostics.append(unknown_name("fact", member.text, facts, member.span))
            return UNKNOWN
        if member.text == "DataType":
            return TYPE
        if member.text in ("Sizes", "Strides"):
            return self._per_axis(NUMBERS, place)
        return NUMBER

    def _names_array(self, expression: syntax.Expression) -> bool:
        """Whether this is the name of an array of tensors."""
        if not isinstance(expression, syntax.Reference):
            return False
        tensor = self.names.tensors.get(expression.name)
        return tensor is not None and tensor.array

    def _entry(self, expression: syntax.Index, place: Place) -> Step[Kind]:
        """`InputTensors[0]`: one tensor of an array of tensors."""
        base = expression.base
        if not isinstance(base, syntax.Reference):
            return UNKNOWN
        if len(expression.indices) != 1 or isinstance(expression.indices[0], syntax.Pack):
            return self.fail("an array of tensors takes one number", expression.span)
        if expression.otherwise is not None:
            self.fail("'else' belongs to a read of one tensor", expression.span)
        yield self._visit_index(expression.indices[0], place)
        tensor = self.names.tensors[base.name]
        return dataclasses.replace(tensor_kind(tensor), form=Form.TENSOR)

    # Indexing and packs -------------------------------------------------------------------

    def _index(self, expression: syntax.Index, place: Place) -> Step[Kind]:
        base = expression.base
        if self._names_array(base):
            return (yield self._entry(expression, place))
        kind: Kind = yield self._visit(base, place.outside_pack())
        indices: list[Kind] = []
        for index in expression.indices:
            found: Kind = yield self._visit_index(index, place, kind.form is Form.ARRAY)
            indices.append(found)
        otherwise: Kind | None = None
        if expression.otherwise is not None:
            otherwise = yield self._visit(expression.otherwise, place)
        packs = any(isinstance(i, syntax.Pack) for i in expression.indices)
        count = len(expression.indices)
        if kind.form is Form.SCALAR and not place.in_function and not kind.is_unknown:
            return self.fail(f"'{base.span.text}' is one value and has no index", expression.span)
        if kind.form is Form.ARRAY:
            if packs or count != 1:
                return self.fail("an array takes one index", expression.span)
            if expression.otherwise is not None:
                self.fail("'else' belongs to a read of a tensor, not of an array", expression.span)
            picked = Form.SCALAR if place.in_pack else indices[0].form
            return dataclasses.replace(kind, form=picked)
        ranks = kind.ranks if kind.form is Form.TENSOR and not packs else None
        if ranks is not None and count not in ranks:
            return self.fail(
                f"'{base.span.text}' has {show_ranks(ranks)} dimensions, but is read "
                f"with {count} {'index' if count == 1 else 'indices'}",
                expression.span,
            )
        if otherwise is not None:
            self._agree(kind, otherwise, expression.span, "a read and the value after 'else'")
        return Kind(kind.what, Form.UNKNOWN if kind.form is Form.UNKNOWN else Form.SCALAR)

    def _visit_index(
        self, index: syntax.Expression, place: Place, of_array: bool = False
    ) -> Step[Kind]:
        if isinstance(index, syntax.Pack):
            kind: Kind = yield self._expand(index, place)
        else:
            kind = yield self._visit(index, place)
        if kind.form is Form.TENSOR:
            return self.fail("an index is one whole number, and this is a whole tensor", index.span)
        if kind.form is Form.ARRAY and not of_array and not isinstance(index, syntax.Pack):
            return self.fail(
                f"'{index.span.text}' is an array, one value per axis, and is used without '...'",
                index.span,
                f"write '{_expanded(index)}' to give an index for each",
            )
        return self._expect_number(kind, "an index", index.span)

    def _expand(self, pack: syntax.Pack, place: Place) -> Step[Kind]:
        """What stands before `...`, which must have something to expand."""
        known = any(self._may_be_array(part, place) for part in subexpressions(pack.operand))
        kind: Kind
        kind = yield self._visit(pack.operand, place.within_pack())
        if not known:
            return self.fail(
                "'...' expands a pack, and there is none in this expression", pack.span
            )
        return kind

    def _may_be_array(self, part: syntax.Expression, place: Place) -> bool:
        match part:
            case syntax.Array():
                return True
            case syntax.Member():
                return part.member.text in ("Sizes", "Strides")
            case syntax.Call(function=syntax.Reference(name=name)):
                return name in ARRAY_FUNCTIONS or name in self.names.functions
            case syntax.Reference(name=name):
                kind = place.variables.get(name, self.names.locals.get(name))
                if kind is not None:
                    open_form = kind.form in (Form.ARRAY, Form.UNKNOWN)
                    return kind.pack or place.in_function or open_form
                if name in self.names.attributes:
                    return self.names.attributes[name].is_array
                return self.names.dimensions.get(name) == NUMBERS
            case _:
                return False

    def _stray_pack(self, expression: syntax.Pack, place: Place) -> Step[Kind]:
        yield self._visit(expression.operand, place.within_pack())
        folds = ", ".join(FOLDS)
        return self.fail(
            "'...' stands in an index, an array or a fold, and this is neither",
            expression.span,
            f"what folds a pack: {folds}",
        )

    def _reduce(self, expression: syntax.Reduce, place: Place) -> Step[Kind]:
        name = expression.combiner
        if name.text not in REDUCTIONS:
            self.diagnostics.append(unknown_name("reduction", name.text, REDUCTIONS, name.span))
        variables = dict(place.variables)
        bound: dict[str, Span] = {}
        for binding in expression.bindings:
            variable = binding.variable
            if variable.text in bound:
                self.fail(
                    f"'{variable.text}' is bound twice in this reduction",
                    variable.span,
                    Note("it is bound here first", bound[variable.text]),
                )
            around = place.outside_pack() if binding.pack else place
            extent: Kind = yield self._visit(binding.extent, around)
            self._expect_number(extent, "the extent of a reduction", binding.extent.span)
            if extent.form is Form.ARRAY and not binding.pack:
                self.fail(
                    f"'{variable.text}' runs over an array of sizes: write "
                    f"'{variable.text}... : {binding.extent.span.text}'",
                    binding.span,
                )
            if extent.form is Form.SCALAR and binding.pack and not extent.is_unknown:
                self.fail(
                    f"'{variable.text}...' needs one extent per axis, and this is one value",
                    binding.extent.span,
                )
            bound[variable.text] = variable.span
            variables[variable.text] = PACK if binding.pack else NUMBER
        inner = dataclasses.replace(place, variables=variables)
        if expression.condition is not None:
            condition: Kind = yield self._visit(expression.condition, inner)
            self._expect_bool(condition, "the condition after 'where'", expression.condition.span)
        body: Kind = yield self._visit(expression.body, inner)
        if body.form is Form.TENSOR:
            self.fail(
                f"'{name.text}[...]' reduces one element at a time, and this is a whole tensor",
                expression.body.span,
                "index it, as in X[k]",
            )
        folded = self._folded(name.text, body, expression.body.span)
        return dataclasses.replace(folded, form=Form.SCALAR)

    def _folded(self, name: str, body: Kind, span: Span) -> Kind:
        if name in ("any", "all"):
            self._expect_bool(body, f"what '{name}' folds", span)
            return Kind(What.BOOL, body.form)
        self._expect_number(body, f"what '{name}' folds", span)
        return Kind(What.NUMBER, body.form)

    # Operators ----------------------------------------------------------------------------

    def _unary(self, expression: syntax.Unary, place: Place) -> Step[Kind]:
        kind: Kind = yield self._visit(expression.operand, place)
        if expression.operator == "!":
            self._expect_bool(kind, "the operand of '!'", expression.operand.span)
            return dataclasses.replace(kind, what=What.BOOL)
        self._expect_number(kind, "the operand of '-'", expression.operand.span)
        return dataclasses.replace(kind, what=What.NUMBER, enum=None, values=None)

    def _binary(self, expression: syntax.Binary, place: Place) -> Step[Kind]:
        symbol = expression.operator
        equality = symbol in ("==", "!=")
        left: Kind
        right: Kind
        if equality and self._is_open(expression.left, place):
            right = yield self._visit(expression.right, place)
            left = yield self._visit(expression.left, place, right)
        else:
            left = yield self._visit(expression.left, place)
            right = yield self._visit(expression.right, place, left if equality else None)
        sides = ((left, expression.left.span), (right, expression.right.span))
        for kind, span in sides:
            if symbol in _NUMERIC:
                self._expect_number(kind, f"an operand of '{symbol}'", span)
            elif not equality:
                self._expect_bool(kind, f"an operand of '{symbol}'", span)
        if equality:
            self._agree(left, right, expression.span, f"the sides of '{symbol}'")
        form, ranks = self._combine([left, right], place, expression.span)
        arithmetic = symbol in ("+", "-", "*", "/", "%")
        return Kind(What.NUMBER if arithmetic else What.BOOL, form, ranks=ranks)

    def _ternary(
        self, expression: syntax.Ternary, place: Place, expected: Kind | None
    ) -> Step[Kind]:
        condition: Kind = yield self._visit(expression.condition, place)
        self._expect_bool(condition, "the condition of '?:'", expression.condition.span)
        then: Kind = yield self._visit(expression.then, place, expected)
        otherwise: Kind = yield self._visit(expression.otherwise, place, expected)
        self._agree(then, otherwise, expression.span, "the branches of '?:'")
        if condition.form is not Form.TENSOR:
            # It may be decided at bind, where only one branch counts.
            same = then == otherwise
            what = then.what if not then.is_unknown else otherwise.what
            return then if same else Kind(what, Form.UNKNOWN, enum=then.enum or otherwise.enum)
        form, ranks = self._combine([condition, then, otherwise], place, expression.span)
        return Kind(then.what, form, ranks=ranks)

    def _combine(
        self, kinds: Sequence[Kind], place: Place, span: Span
    ) -> tuple[Form, frozenset[int] | None]:
        """The form of values combined element by element, and the ranks it may have."""
        forms = {k.form for k in kinds}
        known = [k.ranks for k in kinds if k.form is Form.TENSOR and k.ranks is not None]
        ranks = known[0] if known else None
        for other in known[1:]:
            if ranks is not None and not ranks & other:
                self.fail(
                    f"tensors of {show_ranks(ranks)} and of {show_ranks(other)} dimensions "
                    "cannot be combined element by element",
                    span,
                )
                return Form.UNKNOWN, None
            ranks = other if ranks is None else ranks & other
        if {Form.TENSOR, Form.ARRAY} <= forms and not place.in_function:
            self.fail(
                "a tensor and an array cannot be combined element by element",
                span,
                "index the array, as in 'Sizes[0]'",
            )
            return Form.UNKNOWN, None
        for form in (Form.UNKNOWN, Form.TENSOR, Form.ARRAY):
            if form in forms:
                return form, ranks if form is Form.TENSOR else None
        return Form.SCALAR, None

    def _expect_number(self, kind: Kind, role: str, span: Span) -> Kind:
        return self._expect(kind, What.NUMBER, role, span)

    def _expect_bool(self, kind: Kind, role: str, span: Span) -> Kind:
        return self._expect(kind, What.BOOL, role, span)

    def _expect(self, kind: Kind, what: What, role: str, span: Span) -> Kind:
        if kind.is_unknown or kind.what is what:
            return kind
        notes = ("compare it, as in 'x != 0'",) if what is What.BOOL else ()
        return self.fail(
            f"{role} must be {what.value}, but this is {kind.describe()}", span, *notes
        )

    def _agree(self, left: Kind, right: Kind, span: Span, what: str) -> None:
        if left.is_unknown or right.is_unknown:
            return
        if left.what is not right.what or left.enum is not right.enum:
            self.fail(
                f"{what} must be of one kind, but one is {left.describe()} and one is "
                f"{right.describe()}",
                span,
            )

    @abc.abstractmethod
    def _call(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        """`check_calls` has it."""


def _expanded(index: syntax.Expression) -> str:
    """An expression with `...` behind it, in parentheses where it needs them."""
    text = " ".join(index.span.text.split())
    bare = isinstance(index, syntax.Reference | syntax.Member | syntax.Index | syntax.Call)
    return f"{text}..." if bare else f"({text})..."


def show_ranks(ranks: frozenset[int]) -> str:
    ordered = sorted(ranks)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return " or ".join(str(r) for r in ordered)
