"""Checks a graph: symbols, inputs, names, and calls of operators with their arguments.

What is called is looked up among the operators of the file and its imports. A dotted name of a
module that none of them declares (`directml.X`) is left for whoever binds the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc.language import syntax
from dmlc.language.check_calls import ExpressionChecker
from dmlc.language.check_expressions import Place
from dmlc.language.definitions import OperatorDefinition, TensorDefinition
from dmlc.language.kinds import NUMBER, UNKNOWN, Form, Kind, Names, What, attribute_kind
from dmlc.language.walk import Step
from dmlc.scalars import DataType, data_type_names, find_data_type
from dmlc.source import Diagnostic, Note, Span, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Operators:
    """The operators that names in a file may mean."""

    module: str | None
    known: Mapping[str, OperatorDefinition]

    def find(self, name: syntax.Name, diagnostics: list[Diagnostic]) -> OperatorDefinition | None:
        """The operator with that name, if it is declared here; a mistake if it should be."""
        own = f"{self.module}.{name.text}" if self.module is not None else name.text
        found = self.known.get(name.text) or self.known.get(own)
        if found is not None:
            return found
        module, _, _ = name.text.rpartition(".")
        modules = {n.rpartition(".")[0] for n in self.known} | {self.module or ""}
        if not module or module in modules:
            diagnostics.append(unknown_name("operator", name.text, self.known, name.span))
        return None


def check_graph(
    graph: syntax.Graph, names: Names, operators: Operators, diagnostics: list[Diagnostic]
) -> None:
    """Checks a graph; `names` brings the enums and functions of the file, and is filled."""
    checker = _GraphChecker(names, operators, diagnostics)
    symbols: dict[str, Span] = {}
    for symbol in graph.symbols:
        checker.declare(symbol, symbols, "symbol")
        names.locals[symbol.text] = NUMBER
    for given in graph.inputs:
        checker.declare(given.name, symbols, "input")
        checker.check_type(given.type)
        names.locals[given.name.text] = _tensor_of(given.type)
    names.later.update({s.name.text: s.name.span for s in reversed(graph.statements)})
    outputs = 0
    for statement in graph.statements:
        checker.declare(statement.name, symbols, "name")
        checker.check_statement(statement)
        outputs += statement.output
    if not outputs:
        checker.fail(
            f"graph '{graph.name.text}' has no output",
            graph.name.span,
            "write 'output name = ...' for each result",
        )


def _tensor_of(declared: syntax.TensorType) -> Kind:
    dtype = find_data_type(declared.dtype.text)
    what = What.BOOL if dtype is DataType.BOOL else What.NUMBER
    return Kind(what, Form.TENSOR, ranks=frozenset((len(declared.sizes),)))


class _GraphChecker(ExpressionChecker):
    """Expressions of a graph, where operators are called and have outputs."""

    def __init__(self, names: Names, operators: Operators, diagnostics: list[Diagnostic]) -> None:
        super().__init__(names, diagnostics)
        self.operators = operators
        self.called: dict[str, OperatorDefinition | None] = {}
        """The operator whose call each name stands for; None where it is not known."""
        self.last: OperatorDefinition | None = None

    def declare(self, name: syntax.Name, known: dict[str, Span], what: str) -> None:
        if name.text in known:
            note = Note("the first is here", known[name.text])
            self.fail(f"{what} '{name.text}' is declared twice in this graph", name.span, note)
        known.setdefault(name.text, name.span)

    def check_type(self, declared: syntax.TensorType) -> None:
        if find_data_type(declared.dtype.text) is None:
            dtype = declared.dtype
            self.diagnostics.append(
                unknown_name("data type", dtype.text, data_type_names(), dtype.span)
            )
        if not 1 <= len(declared.sizes) <= 8:
            self.fail("a tensor has 1 to 8 sizes", declared.span)
        for size in declared.sizes:
            kind = self.check(size)
            if kind.form is Form.TENSOR or kind.what is What.BOOL:
                self.fail("a size is a number or a symbol", size.span)

    def check_statement(self, statement: syntax.GraphStatement) -> None:
        name, value = statement.name.text, statement.value
        kind = self.check(value)
        if isinstance(value, syntax.Call) and self._operator_name(value) is not None:
            self.called[name] = self.last
        self.names.later.pop(name, None)
        self.names.locals[name] = kind if kind.form is Form.TENSOR else UNKNOWN

    # Names --------------------------------------------------------------------------------

    def _reference(
        self, expression: syntax.Reference, place: Place, expected: Kind | None
    ) -> Step[Kind]:
        operator = self.called.get(expression.name)
        outputs = [] if operator is None else _outputs(operator)
        if len(outputs) > 1:
            self.fail(
                f"'{expression.name}' has {len(outputs)} outputs: name one",
                expression.span,
                f"as in {expression.name}.{outputs[0].name}",
            )
            return self._give(UNKNOWN)
        return super()._reference(expression, place, expected)

    def _member(self, expression: syntax.Member, place: Place) -> Step[Kind]:
        base = expression.base
        if not isinstance(base, syntax.Reference) or base.name not in self.called:
            if isinstance(base, syntax.Reference) and base.name in self.names.locals:
                self.fail(f"'{base.name}' is no call, so it has no outputs", expression.span)
                return self._give(UNKNOWN)
            if isinstance(base, syntax.Reference):
                known = self.names.locals
                self.diagnostics.append(unknown_name("name", base.name, known, base.span))
                return self._give(UNKNOWN)
            return super()._member(expression, place)
        operator = self.called[base.name]
        if operator is None:
            return self._give(UNKNOWN)
        for output in _outputs(operator):
            if output.name == expression.member.text:
                return self._give(Kind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(output.ranks)))
        self.diagnostics.append(
            unknown_name(
                f"output of {operator.name}",
                expression.member.text,
                [o.name for o in _outputs(operator)],
                expression.member.span,
            )
        )
        return self._give(UNKNOWN)

    # Calls --------------------------------------------------------------------------------

    def _operator_name(self, call: syntax.Call) -> syntax.Name | None:
        """The dotted name of what is called, where that is an operator and no function."""
        parts: list[str] = []
        function = call.function
        while isinstance(function, syntax.Member):
            parts.append(function.member.text)
            function = function.base
        if not isinstance(function, syntax.Reference):
            return None
        name = ".".join([function.name, *reversed(parts)])
        own = f"{self.operators.module}.{name}"
        if not parts and name not in self.operators.known and own not in self.operators.known:
            named = any(a.name is not None for a in call.arguments)
            if not named or name in ("sum", "mean", "max", "min", "gradient"):
                return None
        return syntax.Name(name, call.function.span)

    def _call(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        name = self._operator_name(expression)
        if name is not None:
            return self._operator_call(expression, place, name)
        function = expression.function
        if isinstance(function, syntax.Reference) and function.name == "gradient":
            return self._gradient(expression, place)
        return super()._call(expression, place)

    def _gradient(self, expression: syntax.Call, place: Place) -> Step[Kind]:
        """`gradient(node, wrt: x)`"""
        labels = [None if a.name is None else a.name.text for a in expression.arguments]
        if labels != [None, "wrt"]:
            self.fail(
                "'gradient' takes a value and what to differentiate by",
                expression.span,
                "as in gradient(loss, wrt: x)",
            )
        for argument in expression.arguments:
            yield self._visit(argument.value, place)
        return Kind(What.NUMBER, Form.TENSOR)

    def _operator_call(
        self, expression: syntax.Call, place: Place, name: syntax.Name
    ) -> Step[Kind]:
        operator = self.operators.find(name, self.diagnostics)
        given: dict[str, Span] = {}
        for argument in expression.arguments:
            label = argument.name
            if label is None:
                self.fail(
                    f"the arguments of operator '{name.text}' are given by name",
                    argument.span,
                    "as in InputTensor: x",
                )
                yield self._visit(argument.value, place)
                continue
            if label.text in given:
                note = Note("it is given here first", given[label.text])
                self.fail(f"'{label.text}' is given twice in this call", label.span, note)
            given[label.text] = label.span
            yield self._operator_argument(argument, label, operator, place)
        self.last = operator
        if operator is None:
            return UNKNOWN
        missing = [n for n in _required(operator) if n not in given]
        if missing:
            self.fail(f"this call of {operator.name} does not give {', '.join(missing)}", name.span)
        outputs = _outputs(operator)
        ranks = frozenset(outputs[0].ranks) if len(outputs) == 1 else None
        return Kind(What.UNKNOWN, Form.TENSOR, ranks=ranks)

    def _operator_argument(
        self,
        argument: syntax.Argument,
        label: syntax.Name,
        operator: OperatorDefinition | None,
        place: Place,
    ) -> Step[Kind]:
        value = argument.value
        declared = _as_tensor_type(value)
        if declared is not None:
            yield from ()
            self.check_type(declared)
        tensors = {} if operator is None else {t.name: t for t in operator.levels[-1].tensors}
        tensor = tensors.get(label.text)
        attribute = None if operator is None else operator.attribute(label.text)
        if operator is not None and tensor is None and attribute is None:
            known = [*tensors, *(a.name for a in operator.attributes)]
            self.diagnostics.append(
                unknown_name(f"argument of {operator.name}", label.text, known, label.span)
            )
        if tensor is not None and tensor.output != (declared is not None):
            wanted = "a type and sizes, such as FLOAT32[N, C]" if tensor.output else "a value"
            self.fail(f"'{label.text}' takes {wanted}", value.span)
        if declared is not None:
            return UNKNOWN
        if operator is None and self._is_open(value, place):
            return UNKNOWN  # It may be a member of an enum that is not known here.
        expected = None if attribute is None else attribute_kind(attribute)
        kind: Kind = yield self._visit(value, place, expected)
        if attribute is not None and not kind.is_unknown and expected is not None:
            if kind.form is Form.TENSOR:
                self.fail(f"'{label.text}' is an attribute and takes no tensor", value.span)
            elif (kind.what, kind.enum) != (expected.what, expected.enum):
                self.fail(
                    f"'{label.text}' must be {expected.describe()}, but this is {kind.describe()}",
                    value.span,
                )
        return kind


def _as_tensor_type(value: syntax.Expression) -> syntax.TensorType | None:
    """`FLOAT32[N, C]` in a call, which states an output's type and sizes."""
    if not isinstance(value, syntax.Index) or not isinstance(value.base, syntax.Reference):
        return None
    if find_data_type(value.base.name) is None:
        return None
    return syntax.TensorType(
        syntax.Name(value.base.name, value.base.span), value.indices, value.span
    )


def _outputs(operator: OperatorDefinition) -> list[TensorDefinition]:
    return [t for t in operator.levels[-1].tensors if t.output]


def _required(operator: OperatorDefinition) -> list[str]:
    tensors = [t.name for t in operator.levels[-1].tensors if not (t.output or t.optional)]
    return tensors + [a.name for a in operator.attributes if a.default is None]
