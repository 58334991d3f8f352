"""Checks a graph: symbols, inputs, names, and calls of operators with their arguments.

What is called is looked up among the operators of the file and its imports, then in the library
that the caller brings. Without a library, a dotted name of a module that the file does not declare
(`directml.X`) is left open. Sizes and data types are for binding to settle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.builtins import BUILT_IN, GRAPH_FUNCTIONS
from dmlc.language.check_expressions import ExpressionChecker
from dmlc.language.check_kinds import Place
from dmlc.language.definitions import (
    AttributeDefinition,
    Library,
    OperatorDefinition,
    TensorDefinition,
)
from dmlc.language.kinds import NUMBER, UNKNOWN, Form, Kind, Names, What, attribute_kind
from dmlc.language.walk import subexpressions
from dmlc.scalars import DataType, data_type_names, find_data_type
from dmlc.source import Diagnostic, Note, Span, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Operators:
    """The operators that names in a file may mean."""

    module: str | None
    known: Mapping[str, OperatorDefinition]
    library: Library | None = None

    def find(self, name: syntax.Name, diagnostics: list[Diagnostic]) -> OperatorDefinition | None:
        """The operator with that name, if it is declared here; a mistake if it should be."""
        found = self.known.get(name.text) or self.known.get(self._qualify(name.text))
        if found is None and self.library is not None:
            found = self.library.find(name.text)
        if found is not None:
            return found
        module, _, _ = name.text.rpartition(".")
        modules = {n.rpartition(".")[0] for n in self.known} | {self.module or ""}
        if self.library is not None or not module or module in modules:
            names = [*self.known, *(self.library.names() if self.library is not None else ())]
            diagnostics.append(unknown_name("operator", name.text, names, name.span))
        return None

    def declares(self, name: str) -> bool:
        """Whether the file or an import has an operator of that name."""
        return name in self.known or self._qualify(name) in self.known

    def _qualify(self, name: str) -> str:
        return name if self.module is None else f"{self.module}.{name}"


def check_graph(
    graph: syntax.Graph,
    names: Names,
    operators: Operators,
    diagnostics: list[Diagnostic],
    warnings: list[Diagnostic],
) -> dict[str, OperatorDefinition]:
    """Checks a graph, and gives the operators it calls by the name each call has for them.

    `names` brings the enums and functions of the file, and is filled. `warnings` takes what is
    computed or given and used by nothing.
    """
    checker = _GraphChecker(names, operators, diagnostics, graph.statements)
    places: dict[str, Span] = {}
    for symbol in graph.symbols:
        checker.hold_once(symbol, places, *_twice("symbol", symbol))
        names.locals[symbol.text] = NUMBER
    for given in graph.inputs:
        checker.hold_once(given.name, places, *_twice("input", given.name))
        checker.check_type(given.type)
        names.locals[given.name.text] = _tensor_of(given.type)
    names.later.update({s.name.text: s.name.span for s in reversed(graph.statements)})
    outputs = 0
    for statement in graph.statements:
        what = "output" if statement.output else "name"
        checker.hold_once(statement.name, places, *_twice(what, statement.name))
        checker.check_statement(statement)
        outputs += statement.output
    if not outputs:
        checker.fail(
            f"graph '{graph.name.text}' has no output",
            graph.name.span,
            "write 'output name = ...' for each result",
        )
    warnings += _find_unused(graph, checker.reads)
    return checker.found


def _twice(what: str, name: syntax.Name) -> tuple[str, str]:
    return f"{what} '{name.text}' is declared twice in this graph", "the first is here"


def _find_unused(graph: syntax.Graph, reads: Mapping[str, Sequence[str]]) -> list[Diagnostic]:
    """Warnings of what nothing reads: it is left out of what is compiled."""
    used = {name for names in reads.values() for name in names}
    sizes = [size for given in graph.inputs for size in given.type.sizes]
    used |= {p.name for e in sizes for p in subexpressions(e) if isinstance(p, syntax.Reference)}
    found: list[Diagnostic] = []

    def warn(what: str, name: syntax.Name, cure: str) -> None:
        if name.text not in used:
            message = f"{what} '{name.text}' is never read"
            found.append(Diagnostic(message, name.span, (Note(cure),), warning=True))

    for symbol in graph.symbols:
        warn("symbol", symbol, "remove it, or use it in a size")
    for given in graph.inputs:
        warn("input", given.name, "remove it: a run has to give it all the same")
    for statement in graph.statements:
        if not statement.output:
            cure = f"remove it, or write 'output {statement.name.text} = ...'"
            warn("the value", statement.name, cure)
    return found


def _tensor_of(declared: syntax.TensorType) -> Kind:
    dtype = find_data_type(declared.dtype.text)
    what = What.BOOL if dtype is DataType.BOOL else What.NUMBER
    return Kind(what, Form.TENSOR, ranks=frozenset((len(declared.sizes),)))


class _GraphChecker(ExpressionChecker):
    """Expressions of a graph, where operators are called and have outputs."""

    def __init__(
        self,
        names: Names,
        operators: Operators,
        diagnostics: list[Diagnostic],
        statements: Sequence[syntax.GraphStatement],
    ) -> None:
        super().__init__(names, diagnostics, GRAPH_FUNCTIONS)
        self.operators = operators
        self.found: dict[str, OperatorDefinition] = {}
        """The operators called, by the name a call has for them."""
        self.called: dict[str, OperatorDefinition | None] = {}
        """The operator whose call each name stands for; None where it is not known."""
        self.last: OperatorDefinition | None = None
        self.reads = {s.name.text: _references(s.value) for s in statements}
        """The names that each statement reads."""
        self.current: syntax.GraphStatement | None = None
        self.cyclic: set[str] = set()
        """The names in cycles that have been reported."""

    def check_type(self, declared: syntax.TensorType) -> None:
        if find_data_type(declared.dtype.text) is None:
            dtype = declared.dtype
            self.fail_unknown("data type", dtype.text, data_type_names(), dtype.span)
        if not 1 <= len(declared.sizes) <= 8:
            self.fail("a tensor has 1 to 8 sizes", declared.span)
        for size in declared.sizes:
            kind = self.check(size)
            if kind.form is Form.TENSOR or kind.what is What.BOOL:
                self.fail("a size is a number or a symbol", size.span)

    def check_statement(self, statement: syntax.GraphStatement) -> None:
        name, value = statement.name.text, statement.value
        self.current = statement
        kind = self.check(value)
        if isinstance(value, syntax.Call) and self._operator_name(value) is not None:
            self.called[name] = self.last
        if statement.output and kind.form in (Form.SCALAR, Form.ARRAY) and not kind.is_unknown:
            self.fail(f"output '{name}' is {kind.form.value}, and must be a tensor", value.span)
        self.names.later.pop(name, None)
        self.names.locals[name] = kind if kind.form is Form.TENSOR else UNKNOWN

    def _name_output(self, name: str, operator: OperatorDefinition, span: Span) -> bool:
        """Whether a call's name may stand for its output, of which it must have one."""
        outputs = _outputs(operator)
        if len(outputs) == 1 and not outputs[0].array:
            return True
        if not outputs:
            return False  # Its own check refuses it.
        entry = "[0]" if outputs[0].array else ""
        cure = f"as in {name}.{outputs[0].name}{entry}"
        self.fail(f"'{name}' has {_count(outputs)}: name one", span, cure)
        return False

    # Names --------------------------------------------------------------------------------

    def _reference(self, expression: syntax.Reference, place: Place, expected: Kind | None) -> Kind:
        name = expression.name
        operator = self.called.get(name)
        if operator is not None and not self._name_output(name, operator, expression.span):
            return UNKNOWN
        if name not in self.names.locals and self._is_early(expression):
            return UNKNOWN
        return super()._reference(expression, place, expected)

    def _is_early(self, expression: syntax.Reference) -> bool:
        """Whether a name is defined by this statement or further down, which is a mistake."""
        name, span = expression.name, expression.span
        if name not in self.names.later:
            return False
        current = "" if self.current is None else self.current.name.text
        if name == current:
            self.fail(f"'{name}' is read by its own definition", span)
            return True
        defined = Note("it is defined here", self.names.later[name])
        chain = self._find_chain(name, current)
        if not chain:
            self.fail(f"'{name}' is used before it is defined", span, defined)
            return True
        if name in self.cyclic and current in self.cyclic:
            return True
        self.cyclic.update(chain)
        shown = ", which reads ".join(f"'{n}'" for n in chain)
        self.fail(
            f"this closes a cycle: '{current}' reads {shown}",
            span,
            defined,
            "a graph has no cycles: each value is computed from inputs and values above it",
        )
        return True

    def _find_chain(self, start: str, end: str) -> list[str]:
        """The shortest chain of names, each read by the one before, from `start` to `end`."""
        before: dict[str, str] = {start: ""}
        pending = [start]
        for name in pending:
            for read in self.reads.get(name, ()):
                if read not in before:
                    before[read] = name
                    pending.append(read)
        chain: list[str] = []
        name = end if end in before else ""
        while name:
            chain.append(name)
            name = before[name]
        return chain[::-1]

    def _member(self, expression: syntax.Member, place: Place) -> Kind:
        output = self._find_output(expression)
        if output is None:
            return UNKNOWN
        if output.array:
            text = expression.span.text
            return self.fail(
                f"'{text}' is an array of tensors: pick one", expression.span, f"as in {text}[0]"
            )
        return Kind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(output.ranks))

    def _find_output(self, expression: syntax.Member) -> TensorDefinition | None:
        """The output that `call.Name` means; None after a mistake, or where nothing is known."""
        base = expression.base
        if not isinstance(base, syntax.Reference):
            self.fail("only the name of a call has outputs: name the call first", expression.span)
            return None
        if base.name not in self.called:
            known = self.names.locals
            if base.name in known and not known[base.name].is_unknown:
                self.fail(f"'{base.name}' is no call, so it has no outputs", expression.span)
            elif base.name not in known and not self._is_early(base):
                self.fail_unknown("name", base.name, known, base.span)
            return None
        operator = self.called[base.name]
        if operator is None:
            return None
        outputs = {o.name: o for o in _outputs(operator)}
        if not outputs:
            return None  # Its own check refuses it.
        name = expression.member
        if name.text not in outputs:
            what = f"output of {operator.name}"
            self.fail_unknown(what, name.text, list(outputs), name.span)
        return outputs.get(name.text)

    def _index(self, expression: syntax.Index, place: Place) -> Kind:
        """`parts.OutputTensors[0]`; anything else as elsewhere."""
        base = expression.base
        if not isinstance(base, syntax.Member):
            return super()._index(expression, place)
        output = self._find_output(base)
        if output is None:
            return UNKNOWN
        if not output.array:
            self.fail(f"'{base.span.text}' is one tensor, and has no entries", expression.span)
        if len(expression.indices) != 1 or expression.otherwise is not None:
            self.fail("an array of tensors takes one number", expression.span)
        self.visit(expression.indices[0], place)
        return Kind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(output.ranks))

    # Calls --------------------------------------------------------------------------------

    def _operator_name(self, call: syntax.Call) -> syntax.Name | None:
        """The dotted name of what is called, where that is an operator and no function."""
        name = called_name(call)
        if name is None:
            return None
        if "." not in name and not self.operators.declares(name):
            named = any(a.name is not None for a in call.arguments)
            if not named or name in BUILT_IN or name in self.names.functions:
                return None
        return syntax.Name(name, span=call.function.span)

    def call(self, expression: syntax.Call, place: Place) -> Kind:
        name = self._operator_name(expression)
        if name is not None:
            return self._operator_call(expression, place, name)
        return self.calls.check(expression, place)

    def _operator_call(self, expression: syntax.Call, place: Place, name: syntax.Name) -> Kind:
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
                self.visit(argument.value, place)
                continue
            message = f"'{label.text}' is given twice in this call"
            self.hold_once(label, given, message, "it is given here first")
            self._operator_argument(argument, label, operator, place)
        self.last = operator
        if operator is None:
            return UNKNOWN
        self.found[name.text] = operator
        missing = [r for r in _required(operator, given) if r.name not in given]
        if missing:
            shown = ", ".join(r.name for r in missing)
            notes = [Note(f"'{r.name}' is declared here", r.span) for r in missing[:4]]
            self.fail(f"this call of {operator.name} does not give {shown}", name.span, *notes)
        outputs = _outputs(operator)
        if len(outputs) == 1 and not outputs[0].array:
            return Kind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(outputs[0].ranks))
        if not outputs:
            return UNKNOWN  # Its own check refuses it.
        named = self.current is not None and self.current.value is expression
        if not named or (self.current is not None and self.current.output):
            entry = "[0]" if outputs[0].array else ""
            self.fail(
                f"{operator.name} has {_count(outputs)}, and one tensor is expected here",
                name.span,
                f"name the call, as in 'parts = {name.text}(...)', and read one output of it: "
                f"parts.{outputs[0].name}{entry}",
            )
        return UNKNOWN

    def _operator_argument(
        self,
        argument: syntax.Argument,
        label: syntax.Name,
        operator: OperatorDefinition | None,
        place: Place,
    ) -> Kind:
        value = argument.value
        tensor = attribute = None
        if operator is not None:
            tensor = operator.levels[-1].tensor(label.text)
            attribute = operator.attribute(label.text)
            if tensor is None and attribute is None:
                tensors = [t.name for t in operator.levels[-1].tensors]
                known = [*tensors, *(a.name for a in operator.attributes)]
                self.fail_unknown(f"argument of {operator.name}", label.text, known, label.span)
        if tensor is not None or (attribute is None and isinstance(value, syntax.Array)):
            return self._tensor_argument(value, label, tensor, place)
        declared = as_tensor_type(value)
        if declared is not None:
            self.check_type(declared)
            return UNKNOWN
        if operator is None and self._is_open(value, place):
            return UNKNOWN  # It may be a member of an enum that is not known here.
        expected = None if attribute is None else attribute_kind(attribute)
        kind = self.visit(value, place, expected)
        if attribute is not None and not kind.is_unknown and expected is not None:
            if kind.form is Form.TENSOR:
                self.fail(f"'{label.text}' is an attribute and takes no tensor", value.span)
            elif (kind.what, kind.enum) != (expected.what, expected.enum):
                self.fail(
                    f"'{label.text}' must be {expected.describe()}, but this is {kind.describe()}",
                    value.span,
                )
        return kind

    def _tensor_argument(
        self,
        value: syntax.Expression,
        label: syntax.Name,
        tensor: TensorDefinition | None,
        place: Place,
    ) -> Kind:
        """A tensor, a list of them, or the type and sizes of an output."""
        listed = isinstance(value, syntax.Array)
        if tensor is not None and tensor.array != listed:
            wanted = "a list of tensors, as in [a, b]" if tensor.array else "one tensor"
            return self.fail(f"'{label.text}' takes {wanted}", value.span)
        for item in value.items if isinstance(value, syntax.Array) else (value,):
            declared = as_tensor_type(item)
            if tensor is not None and tensor.output != (declared is not None):
                types = "a type and sizes, such as FLOAT32[N, C]"
                wanted = types if tensor.output else "a value"
                self.fail(f"'{label.text}' takes {wanted}", item.span)
            if declared is not None:
                self.check_type(declared)
                continue
            kind = self.visit(item, place)
            if tensor is not None and kind.form is not Form.TENSOR and not kind.is_unknown:
                self.fail(
                    f"'{label.text}' takes a tensor, but this is {kind.form.value}", item.span
                )
        return UNKNOWN


def called_name(call: syntax.Call) -> str | None:
    """The name that a call has for what it calls, dots and all; None where that is no name."""
    parts: list[str] = []
    function = call.function
    while isinstance(function, syntax.Member):
        parts.append(function.member.text)
        function = function.base
    if not isinstance(function, syntax.Reference):
        return None
    return ".".join([function.name, *reversed(parts)])


def as_tensor_type(value: syntax.Expression) -> syntax.TensorType | None:
    """`FLOAT32[N, C]` in a call, which states an output's type and sizes."""
    if not isinstance(value, syntax.Index) or not isinstance(value.base, syntax.Reference):
        return None
    if find_data_type(value.base.name) is None:
        return None
    return syntax.TensorType(
        syntax.Name(value.base.name, span=value.base.span), value.indices, span=value.span
    )


def _outputs(operator: OperatorDefinition) -> list[TensorDefinition]:
    return [t for t in operator.levels[-1].tensors if t.output]


def _count(outputs: Sequence[TensorDefinition]) -> str:
    """How many outputs an operator has that has not just one."""
    return f"{len(outputs)} outputs" if len(outputs) > 1 else "an array of outputs"


def _required(
    operator: OperatorDefinition, given: Mapping[str, Span]
) -> list[TensorDefinition | AttributeDefinition]:
    """What a call has to give. An array brings its own length: `AxisCount` for `Axes`."""
    tensors = [t for t in operator.levels[-1].tensors if not t.optional]
    attributes = [
        a
        for a in operator.attributes
        if a.default is None
        and not any(other.name in given for other in operator.arrays_of_length(a.name))
    ]
    return [*(t for t in tensors if not t.output or t.array), *attributes]


def _references(expression: syntax.Expression) -> list[str]:
    """The names an expression reads."""
    parts = list(subexpressions(expression))
    found = {p.name: None for p in parts if isinstance(p, syntax.Reference)}
    return list(found)
