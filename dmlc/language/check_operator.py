"""Checks one operator: tables, sentences, statements, examples; gives its definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.language import syntax
from dmlc.language.builtins import BUILT_IN, SENTENCE_FACTS
from dmlc.language.check_expressions import ExpressionChecker
from dmlc.language.check_functions import check_function_gradients, order_functions
from dmlc.language.check_kinds import TypingContext, show_ranks
from dmlc.language.definitions import (
    AttributeDefinition,
    OperatorDefinition,
    TensorDefinition,
    TensorLevel,
    level_number,
    qualify,
)
from dmlc.language.kinds import (
    NUMBER,
    NUMBERS,
    Form,
    SymbolTable,
    ValueKind,
    What,
    attribute_kind,
)
from dmlc.language.recurrences import Recurrence, find_recurrences
from dmlc.language.tables import read_attributes, read_tensors, read_types
from dmlc.scalars import find_data_type
from dmlc.source import Diagnostic, Note, Span, counted, join_words


def check_operator(
    operator: syntax.Operator, module: str | None, names: SymbolTable, diagnostics: list[Diagnostic]
) -> OperatorDefinition:
    """Definition of an operator of a module; every error is added to `diagnostics`. `names` has the
    enums and functions of the file, and is filled."""
    return _OperatorChecker(operator, module, names, diagnostics).run()


class _OperatorChecker(ExpressionChecker):
    """Checker of an operator's sections, and of the expressions in them."""

    def __init__(
        self,
        operator: syntax.Operator,
        module: str | None,
        names: SymbolTable,
        diagnostics: list[Diagnostic],
    ) -> None:
        super().__init__(names, diagnostics)
        self.operator = operator
        self.module = module
        self.functions = dict(names.functions)
        """Functions of the file; `compute` may declare more."""

    def run(self) -> OperatorDefinition:
        operator = self.operator
        levels = self.check_levels()
        attributes = self.check_attributes()
        combinations = ()
        if operator.types is not None:
            known, broken = list(self.names.tensors), self.names.broken
            combinations = tuple(read_types(operator.types, known, self.diagnostics, broken))
        for constraint in operator.constraints or ():
            self.check_constraint(constraint)
        name = qualify(self.module, operator.name.text)
        forward = None
        if operator.forward is not None:
            forward = qualify(self.module, operator.forward.operator.text)
            if forward == name:
                place = operator.forward.operator.span
                self.fail(f"operator '{name}' is its own forward", place, code="E0701")
        if operator.compute is not None:
            self.check_compute(operator.compute)
        made = OperatorDefinition(
            name=name,
            doc=operator.doc,
            introduced=None if operator.introduced is None else operator.introduced.text,
            forward=forward,
            attributes=attributes,
            levels=levels,
            combinations=combinations,
            constraints=operator.constraints or (),
            compute=operator.compute,
            gradient=None,
            examples=operator.examples,
            functions=self.functions,
            enums=self.names.enums,
            syntax=operator,
            broken=frozenset(self.names.broken),
        )
        for example in (*operator.examples, *operator.differences):
            self.check_example(example, made)
        for difference in operator.differences:
            self.check_difference(difference)
        return made

    # Tables -------------------------------------------------------------------------------

    def check_levels(self) -> tuple[TensorLevel, ...]:
        levels: dict[str | None, TensorLevel] = {}
        places: dict[str | None, Span] = {}
        lossy: set[str | None] = set()
        for section in self.operator.tensors:
            name = None if section.level is None else section.level.text
            place = section.span if section.level is None else section.level.span
            tensors = read_tensors(section.table, self.diagnostics, self.names.broken)
            if name in levels:
                what = "without a level" if name is None else f"for {name}"
                message = f"there are two tables of tensors {what}"
                self.fail(message, place, Note("the first is here", places[name]), code="E0507")
                continue
            levels[name] = TensorLevel(name, tuple(tensors))
            places[name] = place
            if len(tensors) < len(section.table.rows):
                lossy.add(name)
            for tensor in tensors:
                self.add_tensor(tensor)
        for name, level in levels.items():
            # Where rows were refused, the output may be among them.
            if name not in lossy and not any(t.output for t in level.tensors):
                where = "" if name is None else f" at {name}"
                place = self.operator.name.span if name is None else places[name]
                self.fail(
                    f"operator '{self.operator.name.text}' has no output{where}",
                    place,
                    code="E0501",
                )
        # A table without a level stands for the oldest.
        return tuple(sorted(levels.values(), key=lambda t: level_number(t.level) or (0, 0)))

    def add_tensor(self, tensor: TensorDefinition) -> None:
        """Records a row; a tensor of several feature levels may have the ranks and types of any."""
        named = {d.name: NUMBER for d in tensor.dimensions or () if d.name is not None}
        if tensor.shape_name is not None:
            named[tensor.shape_name] = NUMBERS
        for name, kind in named.items():
            if self.names.dimensions.setdefault(name, kind) != kind:
                self.fail(
                    f"'{name}' names one size of one tensor and the shape of another",
                    tensor.span,
                    code="E0507",
                )
        known = self.names.tensors.get(tensor.name)
        if known is None:
            self.names.tensors[tensor.name] = tensor
            return
        if known.output != tensor.output or known.array != tensor.array:
            message = f"tensor '{tensor.name}' is of another kind at another feature level"
            self.fail(message, tensor.span, Note("the other row is here", known.span), code="E0507")
        self.names.tensors[tensor.name] = dataclasses.replace(
            tensor,
            ranks=tuple(sorted({*known.ranks, *tensor.ranks})),
            dtypes=tuple(dict.fromkeys((*known.dtypes, *tensor.dtypes))),
            optional=known.optional and tensor.optional,
        )

    def check_attributes(self) -> tuple[AttributeDefinition, ...]:
        table = self.operator.attributes
        if table is None:
            return ()
        found = read_attributes(table, self.names.enums, self.diagnostics, self.names.broken)
        for attribute in found:
            if attribute.name in self.names.tensors:
                self.fail(
                    f"'{attribute.name}' is both a tensor and an attribute",
                    attribute.span,
                    Note("the tensor is declared here", self.names.tensors[attribute.name].span),
                    code="E0205",
                )
            # Only the attributes above are known yet, so no default can depend on itself.
            if attribute.length is not None:
                kind = self.check(attribute.length)
                self.expect_kind(kind, NUMBER, "the length of an array", attribute.length.span)
            if attribute.default is not None:
                self.check_value(attribute, attribute.default, "the default of")
            self.names.attributes[attribute.name] = attribute
        return tuple(found)

    def check_value(
        self, attribute: AttributeDefinition, value: syntax.Expression, role: str
    ) -> None:
        """Checks a default, or an example's value, against the attribute's type."""
        wanted = attribute_kind(attribute)
        kind = self.check(value, expected=wanted)
        what = f"{role} '{attribute.name}'"
        if kind.is_unknown:
            return
        if attribute.is_array and kind.form is Form.SCALAR:
            self.fail(f"{what} must be an array", value.span, code="E0503")
        elif not attribute.is_array and kind.form is Form.ARRAY:
            self.fail(f"{what} must be one value", value.span, code="E0503")
        else:
            self.expect_kind(kind, wanted, what, value.span)

    # Constraints --------------------------------------------------------------------------

    def check_constraint(self, constraint: syntax.Constraint) -> None:
        if isinstance(constraint, syntax.Require):
            kind = self.check(constraint.condition)
            self.expect_kind(
                kind,
                ValueKind(What.BOOL, kind.form),
                "what is required",
                constraint.condition.span,
            )
            return
        subjects = self.check_tensor_names(constraint.subjects)
        if constraint.kind == "same":
            if len(constraint.subjects) == 1:
                self.fail(
                    "this sentence names one tensor only", constraint.subjects[0].span, code="E0505"
                )
            self.check_facts(constraint.objects)
            facts = [o.text for o in constraint.objects]
            if "DimensionCount" in facts or "Sizes" in facts:
                self.check_ranks(subjects, constraint)
        elif constraint.kind == "broadcastable":
            subjects += self.check_tensor_names(constraint.objects)

    def check_ranks(self, tensors: list[TensorDefinition], sentence: syntax.Sentence) -> None:
        for other in tensors[1:]:
            if not set(other.ranks) & set(tensors[0].ranks):
                first = tensors[0]
                self.fail(
                    f"'{first.name}' has {show_ranks(first.ranks)} dimensions and "
                    f"'{other.name}' {show_ranks(other.ranks)}: they cannot have the "
                    "same",
                    sentence.span,
                    code="E0505",
                )

    def check_facts(self, facts: tuple[syntax.Name, ...]) -> None:
        seen: dict[str, Span] = {}
        for fact in facts:
            if fact.text not in SENTENCE_FACTS:
                self.fail_unknown("fact", fact.text, SENTENCE_FACTS, fact.span)
            self.hold_once(fact, seen, *_named_twice(fact))

    def check_tensor_names(self, names: tuple[syntax.Name, ...]) -> list[TensorDefinition]:
        seen: dict[str, Span] = {}
        found: list[TensorDefinition] = []
        for name in names:
            tensor = self.names.tensors.get(name.text)
            if tensor is not None:
                found.append(tensor)
            elif name.text not in self.names.broken:
                self.fail_unknown("tensor", name.text, self.names.tensors, name.span)
            self.hold_once(name, seen, *_named_twice(name))
        return found

    # Compute ------------------------------------------------------------------------------

    def check_compute(self, statements: tuple[syntax.Statement, ...]) -> None:
        names = self.names
        names.elements = True
        for statement in reversed(statements):
            if isinstance(statement, syntax.ScalarFunction):
                names.later_functions[statement.name.text] = statement.name.span
            else:
                names.later[statement.name.text] = statement.name.span
        _, recursive = order_functions(
            [s for s in statements if isinstance(s, syntax.ScalarFunction)], self.diagnostics
        )
        for tensor in names.tensors:
            # An output's sizes may be asked for before it is defined; its elements may not.
            if not names.tensors[tensor].output:
                names.later.pop(tensor, None)
        assigned: dict[str, Span] = {}
        recurrences = {r.first: r for r in find_recurrences(statements, names.tensors)}
        for number, statement in enumerate(statements):
            if number in recurrences:
                self.note_recurrence(recurrences[number], statements)
            if isinstance(statement, syntax.ScalarFunction):
                self.check_local_function(statement, statement.name.text in recursive)
            else:
                self.check_assignment(statement, assigned)
        for tensor in names.tensors.values():
            if tensor.output and not tensor.optional and tensor.name not in assigned:
                self.fail(
                    f"output '{tensor.name}' is never defined",
                    tensor.span,
                    f"'compute' defines each: {tensor.name} = ...",
                    code="E0501",
                )

    def note_recurrence(
        self, recurrence: Recurrence, statements: Sequence[syntax.Statement]
    ) -> None:
        """Makes the names of a recurrence readable within it."""
        for statement in statements[recurrence.first : recurrence.last + 1]:
            if isinstance(statement, syntax.Assignment) and statement.indices is not None:
                packs = [index for index in statement.indices if index.pack]
                if statement.name.text in recurrence.names and packs:
                    message = "a recurrence has an index for each axis, and no pack"
                    self.fail(message, packs[0].span, code="E0413")
                elif statement.name.text in recurrence.names:
                    self.names.recurrent[statement.name.text] = len(statement.indices)

    def check_local_function(self, function: syntax.ScalarFunction, recursive: bool) -> None:
        name = function.name.text
        names = self.names
        known = names.functions.get(name)
        if known is not None:
            note = Note("the first is here", known.name.span)
            self.fail(
                f"function '{name}' is declared twice", function.name.span, note, code="E0205"
            )
        elif name in BUILT_IN:
            self.fail(f"'{name}' is a function of the language", function.name.span, code="E0207")
        names.results[name] = self.check_function(function, recursive)
        names.later_functions.pop(name, None)
        names.functions[name] = function
        check_function_gradients(self, function)

    def check_assignment(self, statement: syntax.Assignment, assigned: dict[str, Span]) -> None:
        name = statement.name
        tensor = self.names.tensors.get(name.text)
        if tensor is not None and not tensor.output:
            message = f"'{name.text}' is an input and cannot be assigned"
            self.fail(message, name.span, Note("declared here", tensor.span), code="E0502")
        elif name.text in self.names.attributes:
            self.fail(
                f"'{name.text}' is an attribute and cannot be assigned", name.span, code="E0502"
            )
        elif name.text in assigned:
            note = Note("it is assigned here first", assigned[name.text])
            self.fail(f"'{name.text}' is assigned twice", name.span, note, code="E0502")
        variables = self.check_indices(statement, tensor)
        value = statement.value
        if tensor is not None and tensor.array and statement.indices is None:
            # `[e...]` gives each of an array of outputs.
            several = isinstance(value, syntax.Array) and len(value.items) == 1
            value = value.items[0] if several and isinstance(value, syntax.Array) else value
        if isinstance(value, syntax.Pack):
            kind = self.expand(value, TypingContext(variables))
        else:
            kind = self.check(value, variables)
        place = statement.value.span
        if kind.what in (What.STRING, What.ENUM, What.TYPE) and tensor is not None:
            self.fail(
                f"'{name.text}' holds numbers, but this is {kind.describe()}", place, code="E0301"
            )
        if statement.indices is not None:
            if kind.form is Form.TENSOR:
                self.fail(
                    "a whole tensor stands where one element is defined: index it",
                    place,
                    f"as in X[{', '.join(i.text for i in statement.indices)}]",
                    code="E0303",
                )
            if kind.form is Form.ARRAY:
                self.fail(
                    f"one element of '{name.text}' is defined here, and this is an array",
                    place,
                    code="E0303",
                )
            packs = any(i.pack for i in statement.indices)
            count = None if packs else frozenset({len(statement.indices)})
            ranks = count if tensor is None else frozenset(tensor.ranks)
            kind = ValueKind(kind.what, Form.TENSOR, ranks=ranks)
        elif tensor is not None:
            self.check_output(tensor, kind, place)
            kind = ValueKind(kind.what, Form.TENSOR, ranks=frozenset(tensor.ranks))
        assigned.setdefault(name.text, name.span)
        self.names.later.pop(name.text, None)
        if tensor is None or tensor.output:
            self.names.locals[name.text] = kind

    def check_output(self, tensor: TensorDefinition, kind: ValueKind, span: Span) -> None:
        if kind.form is Form.ARRAY:
            self.fail(f"'{tensor.name}' is a tensor, but this is an array", span, code="E0303")
        ranks = frozenset(tensor.ranks)
        if kind.form is Form.TENSOR and kind.ranks is not None and not kind.ranks & ranks:
            self.fail(
                f"'{tensor.name}' has {show_ranks(ranks)} dimensions, but this has "
                f"{show_ranks(kind.ranks)}",
                span,
                code="E0402",
            )

    def check_indices(
        self, statement: syntax.Assignment, tensor: TensorDefinition | None
    ) -> dict[str, ValueKind]:
        """The index variables of `T[n, c...] = e`."""
        indices = statement.indices or ()
        variables = self.bind(indices, TypingContext({}))
        packs = [index for index in indices if index.pack]
        stated = [index for index in indices if index.extent is not None]
        name = statement.name.text
        open_packs = [pack for pack in packs if pack.extent is None]
        if open_packs and len(packs) > 1:
            self.fail("a tensor is indexed with one pack at most", packs[1].span, code="E0406")
        count = len(indices)
        # The pack of an output takes the axes that the others leave.
        needed = count if tensor is None else count - len(open_packs)
        if stated and len(stated) < needed:
            message = "either every index says what it runs over, or none does"
            self.fail(message, statement.name.span.to(statement.value.span), code="E0414")
        elif indices and tensor is None and not stated and name not in self.names.broken:
            shown = ", ".join(f"{i.text} : {'Sizes' if i.pack else 'n'}" for i in indices)
            self.fail(
                f"'{name}' is no output, so it has no sizes to index over",
                statement.name.span,
                f"say what each index runs over: {name}[{shown}] = ...",
                code="E0414",
            )
        elif tensor is not None and count and not packs and count not in tensor.ranks:
            self.fail(
                f"'{tensor.name}' has {show_ranks(tensor.ranks)} dimensions, but is "
                f"defined with {counted(count, 'index', 'indices')}",
                statement.name.span.to(indices[count - 1].span),
                code="E0401",
            )
        return variables

    # Examples -----------------------------------------------------------------------------

    def check_example(self, example: syntax.Example, definition: OperatorDefinition) -> None:
        seen: dict[str, Span] = {}
        for item in example.items:
            name = item.name
            message = f"'{item.tensor}' is given twice in this example"
            given = syntax.Name(item.tensor, span=name.span)
            self.hold_once(given, seen, message, "it is given here first")
            tensor = self.names.tensors.get(name.text)
            attribute = self.names.attributes.get(name.text)
            if tensor is not None and tensor.array != (item.entry is not None):
                cure = f"it is one tensor: write '{name.text} = ...'"
                if tensor.array:
                    cure = f"it is an array of tensors: write '{name.text}[0] = ...'"
                self.fail(f"'{name.text}' cannot be given so: {cure}", name.span, code="E0506")
            elif attribute is not None and item.entry is not None:
                self.fail(
                    f"'{name.text}' is an attribute: give all of its values",
                    name.span,
                    code="E0506",
                )
            elif tensor is not None:
                shape = self.check_example_tensor(item, tensor)
                self.check_example_type(item, tensor)
                if item.instead is not None:
                    self.check_instead(item, item.instead, shape, example, tensor)
                if item.within is not None:
                    self.check_within(item.within, tensor)
            elif attribute is not None:
                for node, message in (
                    (item.within, "'within' belongs to what is expected"),
                    (name if item.expected else None, f"'{name.text}' is an attribute, not an "
                     "output"),
                    (item.dtype, f"'{name.text}' is an attribute, whose type its table says"),
                    (item.instead, "'instead of' belongs to what is expected"),
                ):  # fmt: skip
                    if node is not None:
                        self.fail(message, node.span, code="E0506")
                self.check_example_attribute(item, attribute)
            elif name.text not in self.names.broken:
                known = [*self.names.tensors, *self.names.attributes]
                self.fail_unknown("tensor or attribute", name.text, known, name.span)
        shown = f'{_section_of(example)} "{example.title}"'
        if not any(item.expected for item in example.items):
            self.fail(f"{shown} expects nothing", example.span, code="E0506")
        missing = definition.list_missing([item.name.text for item in example.items])
        if missing:
            names = ", ".join(row.name for row in missing)
            self.fail(f"{shown} does not give {names}", example.span, code="E0506")

    def check_example_tensor(
        self, item: syntax.ExampleItem, tensor: TensorDefinition
    ) -> tuple[int, ...] | None:
        """Shape of the numbers given for a tensor; None after an error."""
        if tensor.output != item.expected:
            cure = "write 'expect' before it" if tensor.output else "leave out 'expect'"
            what = "an output" if tensor.output else "an input"
            self.fail(f"'{tensor.name}' is {what}: {cure}", item.name.span, code="E0506")
        return self.check_numbers(item.value, tensor)

    def check_numbers(
        self, value: syntax.Expression, tensor: TensorDefinition
    ) -> tuple[int, ...] | None:
        """Shape of a tensor's numbers, checked against its ranks; None after an error."""
        shape = self.literal_shape(value)
        if shape is None:
            return None
        if not shape:
            self.fail(f"'{tensor.name}' is a tensor: write an array, such as [1, 2]",
                      value.span, code="E0506")  # fmt: skip
        elif len(shape) not in tensor.ranks:
            self.fail(
                f"'{tensor.name}' has {show_ranks(tensor.ranks)} dimensions, but this "
                f"has {len(shape)}",
                value.span,
                code="E0506",
            )
        else:
            return shape
        return None

    def check_example_type(self, item: syntax.ExampleItem, tensor: TensorDefinition) -> None:
        if item.dtype is None:
            return
        name = item.dtype.text
        dtype = find_data_type(name)
        known = [t.name for t in tensor.dtypes]
        if dtype is None:
            self.fail_unknown("data type", name, known, item.dtype.span)
        elif dtype not in tensor.dtypes:
            message = f"'{tensor.name}' is none of {dtype.name}: it may be {join_words(known)}"
            self.fail(message, item.dtype.span, code="E0506")

    def check_instead(
        self,
        item: syntax.ExampleItem,
        instead: syntax.Expression,
        given: tuple[int, ...] | None,
        example: syntax.Example,
        tensor: TensorDefinition,
    ) -> None:
        """Checks the sizes of the values after `instead of` against those of the expected ones,
        `given`."""
        if not isinstance(example, syntax.Difference):
            message = "an example says what is given, and not what others give: write 'differs'"
            self.fail(message, instead.span, code="E0506")
        elif not item.expected:
            self.fail("'instead of' belongs to what is expected", instead.span, code="E0506")
        else:
            shape = self.check_numbers(instead, tensor)
            if shape is not None and given is not None and shape != given:
                message = (
                    f"'{item.tensor}' has sizes {list(given)}, and what others give has "
                    f"{list(shape)}: write as many numbers, in rows of the same length"
                )
                self.fail(message, instead.span, code="E0506")

    def check_difference(self, difference: syntax.Difference) -> None:
        """Checks those parts of a section `differs` that an example does not have."""
        if not any(item.instead is not None for item in difference.items):
            self.fail(
                f'differs "{difference.title}" does not say what others give',
                difference.span,
                "say it behind what is expected: expect Y = [0] instead of [1]",
                code="E0506",
            )
        name, tensor = difference.tensor, None
        if name is not None:
            tensor = self.names.tensors.get(name.text)
            if tensor is None and name.text not in self.names.broken:
                outputs = [t.name for t in self.names.tensors.values() if t.output]
                self.fail_unknown("output", name.text, outputs, name.span)
            elif tensor is not None and (not tensor.output or tensor.array):
                message = f"'{name.text}' is no single output: an output differs"
                self.fail(message, name.span, code="E0506")
                tensor = None
        condition = difference.condition
        if condition is None:
            return
        variables: dict[str, ValueKind] = {}
        if tensor is not None and difference.indices is not None:
            variables = self.check_indices(difference.defined, tensor)
        self.names.elements = True
        kind = self.check(condition, variables)
        self.expect_kind(kind, ValueKind(What.BOOL, kind.form), "the condition", condition.span)

    def check_within(self, within: syntax.Literal, tensor: TensorDefinition) -> None:
        if not tensor.output:
            self.fail("'within' belongs to what is expected", within.span, code="E0506")
        elif not tensor.holds_floats:
            self.fail(
                f"'{tensor.name}' holds whole numbers, which are exact: leave out 'within'",
                within.span,
                code="E0506",
            )

    def literal_shape(self, value: syntax.Expression) -> tuple[int, ...] | None:
        """Shape of a nested array of numbers; None after an error."""
        level: list[syntax.Expression] = [value]
        shape: list[int] = []
        while level and all(isinstance(v, syntax.Array) for v in level):
            arrays = [v for v in level if isinstance(v, syntax.Array)]
            lengths = [len(a.items) for a in arrays]
            for array, length in zip(arrays, lengths, strict=True):
                if length != lengths[0]:
                    message = f"this row has {length} values where the first has {lengths[0]}"
                    self.fail(message, array.span, code="E0506")
                    return None
            shape.append(lengths[0])
            level = [item for a in arrays for item in a.items]
        for item in level:
            number = item.operand if isinstance(item, syntax.Unary) else item
            if not isinstance(number, syntax.Literal):
                self.fail(
                    "expected a number, or rows that are all equally deep", item.span, code="E0506"
                )
                return None
        return tuple(shape)

    def check_example_attribute(
        self, item: syntax.ExampleItem, attribute: AttributeDefinition
    ) -> None:
        value = item.value
        if attribute.enum is not None and isinstance(value, syntax.Reference):
            # A bare word is always a member here, whatever else the operator calls so.
            if attribute.enum.find(value.name) is None:
                what = f"member of {attribute.enum.name}"
                known = attribute.enum.members
                self.fail_unknown(what, value.name, known, value.span)
            return
        elements, self.names.elements = self.names.elements, False
        self.check_value(attribute, value, "the value of")
        self.names.elements = elements


def _section_of(example: syntax.Example) -> str:
    return "differs" if isinstance(example, syntax.Difference) else "example"


def _named_twice(name: syntax.Name) -> tuple[str, str]:
    return f"'{name.text}' is named twice in this sentence", "it is named here first"
