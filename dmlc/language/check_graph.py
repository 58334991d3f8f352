"""Checks of a graph: symbols, inputs, names, and calls of operators with their arguments.

Operators are looked up in the file and its imports, then in the caller's library. Without a
library, a dotted name of another module (`directml.X`) is left unresolved. Sizes and data types are
left to the binder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.builtins import BUILT_IN, GRAPH_FUNCTIONS
from dmlc.language.check_expressions import ExpressionChecker
from dmlc.language.check_kinds import TypingContext
from dmlc.language.definitions import (
    Library,
    OperatorDefinition,
    TensorDefinition,
    qualify,
)
from dmlc.language.foreign_words import cure_operator, find_type, find_unprefixed
from dmlc.language.kinds import (
    BROKEN,
    NUMBER,
    UNKNOWN,
    Form,
    SymbolTable,
    ValueKind,
    What,
    attribute_kind,
)
from dmlc.language.walk import find_chain, names_read
from dmlc.scalars import DataType, data_type_names, find_data_type
from dmlc.source import Diagnostic, Note, Span, counted, replace_word, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Operators:
    """Operators in scope of a file."""

    module: str | None
    known: Mapping[str, OperatorDefinition]
    library: Library | None = None

    def find(self, name: syntax.Name, diagnostics: list[Diagnostic]) -> OperatorDefinition | None:
        """Operator of a name; reports an unknown one that should be declared here."""
        found = self.declared(name.text)
        if found is None and self.library is not None:
            found = self.library.find(name.text)
        module, _, _ = name.text.rpartition(".")
        modules = {n.rpartition(".")[0] for n in self.known} | {self.module or ""}
        if found is None and (self.library is not None or not module or module in modules):
            names = [*self.known, *(self.library.names() if self.library is not None else ())]
            families = {n.rpartition(".")[0] for n in names}
            cure = cure_operator(name.text, BUILT_IN, families)
            unknown = unknown_name("operator", name.text, names, name.span, "E0202", cure)
            if (meant := find_unprefixed(name.text, BUILT_IN)) is not None:
                fixes = replace_word(name.span, name.text, meant)
                unknown = dataclasses.replace(unknown, fixes=fixes)
            diagnostics.append(unknown)
        return found

    def declared(self, name: str) -> OperatorDefinition | None:
        """Operator of a name in the file or an import."""
        return self.known.get(name) or self.known.get(qualify(self.module, name))


def check_graph(
    graph: syntax.Graph,
    names: SymbolTable,
    operators: Operators,
    diagnostics: list[Diagnostic],
    warnings: list[Diagnostic],
) -> dict[str, OperatorDefinition]:
    """Checks a graph, and returns the operators it calls by the names in its calls. `names` has the
    enums and functions of the file, and is filled. Unused values are added to `warnings`."""
    checker = _GraphChecker(names, operators, diagnostics, graph.statements)
    places: dict[str, Span] = {}
    for symbol in graph.symbols:
        checker.hold_once(symbol, places, *_twice("symbol", symbol))
        names.locals[symbol.text] = NUMBER
    for given in graph.inputs:
        checker.hold_once(given.name, places, *_twice("input", given.name))
        checker.check_type(given.type)
        names.locals[given.name.text] = _tensor_of(given.type)
    defined = [name for statement in graph.statements for name in statement.names]
    names.later.update({name.text: name.span for name in reversed(defined)})
    outputs = 0
    for statement in graph.statements:
        what = "output" if statement.output else "name"
        for name in statement.names:
            checker.hold_once(name, places, *_twice(what, name))
        checker.check_statement(statement)
        outputs += statement.output
    if not outputs:
        message = f"graph '{graph.name.text}' has no output"
        checker.fail(
            message, graph.name.span, "write 'output name = ...' for each result", code="E0603"
        )
    warnings += _find_unused(graph, checker.reads)
    return checker.found


def _twice(what: str, name: syntax.Name) -> tuple[str, str]:
    return f"{what} '{name.text}' is declared twice in this graph", "the first is here"


def _find_unused(graph: syntax.Graph, reads: Mapping[str, Iterable[str]]) -> list[Diagnostic]:
    """Warnings about values that nothing reads, which are not compiled."""
    used = {name for names in reads.values() for name in names}
    used.update(names_read(*graph.inputs))
    declared = [("symbol", s, "remove it, or use it in a size") for s in graph.symbols]
    cure = "remove it: a run has to give it all the same"
    declared += [("input", given.name, cure) for given in graph.inputs]
    declared += [
        ("the value", name, f"remove it, or write 'output {name.text} = ...'")
        for s in graph.statements
        if not s.output
        for name in s.names
    ]
    return [
        Diagnostic(
            f"{what} '{name.text}' is never read",
            name.span,
            (Note(cure),),
            warning=True,
            code="W0001",
        )
        for what, name, cure in declared
        if name.text not in used
    ]


def _tensor_of(declared: syntax.TensorType) -> ValueKind:
    dtype = find_data_type(declared.dtype.text)
    what = What.BOOL if dtype is DataType.BOOL else What.NUMBER
    return ValueKind(what, Form.TENSOR, ranks=frozenset((len(declared.sizes),)))


class _GraphChecker(ExpressionChecker):
    """Checker of a graph's expressions, in which operators are called and have outputs."""

    def __init__(
        self,
        names: SymbolTable,
        operators: Operators,
        diagnostics: list[Diagnostic],
        statements: Sequence[syntax.GraphStatement],
    ) -> None:
        super().__init__(names, diagnostics, GRAPH_FUNCTIONS)
        self.operators = operators
        self.found: dict[str, OperatorDefinition] = {}
        """Operators called, by the names in the calls."""
        self.called: dict[str, OperatorDefinition | None] = {}
        """Operator of the call that each name holds; None if unknown."""
        self.last: OperatorDefinition | None = None
        self.reads = {n.text: names_read(s) for s in statements for n in s.names}
        """Names that each statement reads."""
        self.current: syntax.GraphStatement | None = None
        self.cyclic: set[str] = set()
        """Names in cycles that are already reported."""

    def check_type(self, declared: syntax.TensorType) -> None:
        if find_data_type(declared.dtype.text) is None:
            dtype = declared.dtype
            self.fail_unknown("data type", dtype.text, data_type_names(), dtype.span, "E0203",
                              meant=find_type(dtype.text))  # fmt: skip
        if not 1 <= len(declared.sizes) <= 8:
            self.fail("a tensor has 1 to 8 sizes", declared.span, code="E0604")
        for size in declared.sizes:
            if isinstance(size, syntax.Reference) and size.name not in self.names.locals:
                cure = f"a symbol is declared behind the graph's name: [{size.name}]"
                symbols = list(self.names.locals)
                self.fail_unknown("size", size.name, symbols, size.span, cure=cure)
                continue
            kind = self.check(size)
            if kind.form is Form.TENSOR or kind.what is What.BOOL:
                self.fail("a size is a number or a symbol", size.span, code="E0604")

    def check_statement(self, statement: syntax.GraphStatement) -> None:
        name, value = statement.name.text, statement.value
        self.current = statement
        if isinstance(value, syntax.Gradient):
            self.check_gradient(value, statement.names)
            return
        kind = self.check(value)
        if isinstance(value, syntax.Call) and self._operator_name(value) is not None:
            self.called[name] = self.last
        if statement.output and kind.form in (Form.SCALAR, Form.ARRAY) and not kind.is_unknown:
            self.fail(
                f"output '{name}' is {kind.form.value}, and must be a tensor",
                value.span,
                code="E0603",
            )
        self.names.later.pop(name, None)
        self.names.locals[name] = kind if kind.form is Form.TENSOR else UNKNOWN

    def check_gradient(self, gradient: syntax.Gradient, names: Sequence[syntax.Name]) -> None:
        """`dx, dw = gradient of y with respect to x, w from dy`"""
        for given in (*gradient.of, *gradient.given):
            kind = self.check(given)
            if kind.what is What.BOOL:
                self.fail(
                    "a gradient is of numbers, and these are booleans", given.span, code="E0706"
                )
            self._expect_tensor(kind, given.span)
        kinds = [self.check(tensor) for tensor in gradient.wrt]
        for tensor, kind in zip(gradient.wrt, kinds, strict=True):
            self._expect_tensor(kind, tensor.span)
        if len(names) != len(kinds):
            self.fail(
                f"{counted(len(names), 'name')} for the gradients with respect to "
                f"{counted(len(kinds), 'tensor')}",
                names[0].span.to(names[-1].span),
                code="E0706",
            )
        of, given = len(gradient.of), len(gradient.given)
        if given not in (0, of):
            message = f"this is the gradient of {counted(of, 'tensor')} from {given}"
            self.fail(message, gradient.given[0].span.to(gradient.given[-1].span), code="E0706")
        for number, name in enumerate(names):
            ranks = kinds[number].ranks if number < len(kinds) else None
            self.names.later.pop(name.text, None)
            self.names.locals[name.text] = ValueKind(What.NUMBER, Form.TENSOR, ranks=ranks)

    def _expect_tensor(self, kind: ValueKind, span: Span) -> None:
        if kind.form in (Form.SCALAR, Form.ARRAY) and not kind.is_unknown:
            self.fail(f"a gradient is of and with respect to tensors, and this is "
                      f"{kind.form.value}", span, code="E0706")  # fmt: skip

    # Names --------------------------------------------------------------------------------

    def _reference(
        self,
        expression: syntax.Reference,
        context: TypingContext,
        expected: ValueKind | None,
    ) -> ValueKind:
        name = expression.name
        operator = self.called.get(name)
        if operator is not None and not isinstance(outputs := _outputs(operator), ValueKind):
            message = f"'{name}' has {outputs.count}: name one"
            return self.fail(
                message, expression.span, f"as in {name}.{outputs.first}", code="E0602"
            )
        if name not in self.names.locals and self._is_early(expression):
            return UNKNOWN
        return super()._reference(expression, context, expected)

    def _is_early(self, expression: syntax.Reference) -> bool:
        """Whether a name is defined by this statement or a later one, which is an error."""
        name, span = expression.name, expression.span
        if name not in self.names.later:
            return False
        own = () if self.current is None else tuple(n.text for n in self.current.names)
        current = own[0] if own else ""
        if name in own:
            self.fail(f"'{name}' is read by its own definition", span, code="E0206")
            return True
        defined = Note("it is defined here", self.names.later[name])
        chain = [*find_chain(name, current, self.reads), current]
        if len(chain) == 1:
            self.fail(f"'{name}' is used before it is defined", span, defined, code="E0206")
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
            code="E0206",
        )
        return True

    def _member(self, expression: syntax.Member, context: TypingContext) -> ValueKind:
        output = self._find_output(expression)
        if output is None:
            return UNKNOWN
        if output.array:
            text = expression.span.text
            return self.fail(
                f"'{text}' is an array of tensors: pick one",
                expression.span,
                f"as in {text}[0]",
                code="E0411",
            )
        return ValueKind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(output.ranks))

    def _find_output(self, expression: syntax.Member) -> TensorDefinition | None:
        """Output that `call.Name` denotes; None after an error, or if the operator is unknown."""
        base = expression.base
        if not isinstance(base, syntax.Reference):
            self.fail(
                "only the name of a call has outputs: name the call first",
                expression.span,
                code="E0602",
            )
            return None
        if base.name not in self.called:
            known = self.names.locals
            if base.name in known and not known[base.name].is_unknown:
                self.fail(
                    f"'{base.name}' is no call, so it has no outputs", expression.span, code="E0602"
                )
            elif base.name not in known and not self._is_early(base):
                self.fail_unknown("name", base.name, known, base.span)
            return None
        operator = self.called[base.name]
        if operator is None:
            return None
        outputs = {o.name: o for o in operator.newest.outputs}
        if not outputs:
            return None  # Its own check refuses it.
        name = expression.member
        if name.text not in outputs:
            what = f"output of {operator.name}"
            self.fail_unknown(what, name.text, list(outputs), name.span)
        return outputs.get(name.text)

    def _index(self, expression: syntax.Index, context: TypingContext) -> ValueKind:
        """Kind of `parts.OutputTensors[0]`; other expressions as in the base class."""
        base = expression.base
        if not isinstance(base, syntax.Member):
            return super()._index(expression, context)
        output = self._find_output(base)
        if output is None:
            return UNKNOWN
        if not output.array:
            self.fail(
                f"'{base.span.text}' is one tensor, and has no entries",
                expression.span,
                code="E0411",
            )
        if len(expression.indices) != 1 or expression.otherwise is not None:
            self.fail("an array of tensors takes one number", expression.span, code="E0411")
        self.visit(expression.indices[0], context)
        return ValueKind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(output.ranks))

    # Calls --------------------------------------------------------------------------------

    def _operator_name(self, call: syntax.Call) -> syntax.Name | None:
        """Dotted name of a called operator; None for a function."""
        name = called_name(call)
        if name is None:
            return None
        if "." not in name and not self.operators.declared(name):
            named = any(a.name is not None for a in call.arguments)
            if not named or name in BUILT_IN or name in self.names.functions:
                return None
        return syntax.Name(name, span=call.function.span)

    def call(self, expression: syntax.Call, context: TypingContext) -> ValueKind:
        name = self._operator_name(expression)
        if name is not None:
            return self._operator_call(expression, context, name)
        return self.calls.check(expression, context)

    def _operator_call(
        self, expression: syntax.Call, context: TypingContext, name: syntax.Name
    ) -> ValueKind:
        operator = self.operators.find(name, self.diagnostics)
        given: dict[str, Span] = {}
        by_place = False
        for argument in expression.arguments:
            label = argument.name
            if label is None:
                if operator is not None:
                    message = f"the arguments of operator '{name.text}' are given by name"
                    first = next((t.name for t in operator.newest.inputs), "InputTensor")
                    cure = f"as in {first}: {argument.span.text}"
                    self.fail(message, argument.span, cure, code="E0601")
                by_place = True
                self.visit(argument.value, context)
                continue
            message = f"'{label.text}' is given twice in this call"
            self.hold_once(label, given, message, "it is given here first")
            self._operator_argument(argument, label, operator, context)
        self.last = operator
        if operator is None:
            return UNKNOWN
        self.found[name.text] = operator
        missing = [] if by_place else operator.list_missing(given)
        if missing:
            shown = ", ".join(r.name for r in missing)
            notes = [Note(f"'{r.name}' is declared here", r.span) for r in missing[:4]]
            self.fail(
                f"this call of {operator.name} does not give {shown}",
                name.span,
                *notes,
                code="E0602",
            )
        outputs, statement = _outputs(operator), self.current
        if isinstance(outputs, ValueKind):
            return outputs
        if statement is None or statement.output or statement.value is not expression:
            self.fail(
                f"{operator.name} has {outputs.count}, and one tensor is expected here",
                name.span,
                f"name the call, as in 'parts = {name.text}(...)', and read one output of it: "
                f"parts.{outputs.first}",
                code="E0602",
            )
        return UNKNOWN

    def _operator_argument(
        self,
        argument: syntax.Argument,
        label: syntax.Name,
        operator: OperatorDefinition | None,
        context: TypingContext,
    ) -> ValueKind:
        value = argument.value
        tensor = attribute = None
        if operator is not None:
            tensor = operator.newest.tensor(label.text)
            attribute = operator.attribute(label.text)
            if tensor is None and attribute is None and label.text in operator.broken:
                return self.visit(value, context, BROKEN)
            if tensor is None and attribute is None:
                tensors = [t.name for t in operator.newest.tensors]
                known = [*tensors, *(a.name for a in operator.attributes)]
                self.fail_unknown(f"argument of {operator.name}", label.text, known, label.span)
        if tensor is not None or (attribute is None and isinstance(value, syntax.Array)):
            return self._tensor_argument(value, label, tensor, context)
        declared = as_tensor_type(value)
        if declared is not None:
            self.check_type(declared)
            return UNKNOWN
        if operator is None and self._is_open(value, context):
            return UNKNOWN  # It may be a member of an enum that is not known here.
        expected = None if attribute is None else attribute_kind(attribute)
        kind = self.visit(value, context, expected)
        if attribute is not None and not kind.is_unknown and expected is not None:
            if kind.form is Form.TENSOR:
                self.fail(
                    f"'{label.text}' is an attribute and takes no tensor", value.span, code="E0601"
                )
            else:
                self.expect_kind(kind, expected, f"'{label.text}'", value.span)
        return kind

    def _tensor_argument(
        self,
        value: syntax.Expression,
        label: syntax.Name,
        tensor: TensorDefinition | None,
        context: TypingContext,
    ) -> ValueKind:
        """Checks an argument: a tensor, a list of tensors, or the type and sizes of an output."""
        listed = isinstance(value, syntax.Array)
        if tensor is not None and tensor.array != listed:
            wanted = "a list of tensors, as in [a, b]" if tensor.array else "one tensor"
            return self.fail(f"'{label.text}' takes {wanted}", value.span, code="E0601")
        for item in value.items if isinstance(value, syntax.Array) else (value,):
            declared = as_tensor_type(item)
            if tensor is not None and tensor.output != (declared is not None):
                types = "a type and sizes, such as FLOAT32[N, C]"
                wanted = types if tensor.output else "a value"
                self.fail(f"'{label.text}' takes {wanted}", item.span, code="E0601")
            if declared is not None:
                self.check_type(declared)
                continue
            kind = self.visit(item, context)
            if tensor is not None and kind.form is not Form.TENSOR and not kind.is_unknown:
                self.fail(
                    f"'{label.text}' takes a tensor, but this is {kind.form.value}",
                    item.span,
                    code="E0601",
                )
        return UNKNOWN


def called_name(call: syntax.Call) -> str | None:
    """Callee of a call, with dots; None if it is no name."""
    parts: list[str] = []
    function = call.function
    while isinstance(function, syntax.Member):
        parts.append(function.member.text)
        function = function.base
    if not isinstance(function, syntax.Reference):
        return None
    return ".".join([function.name, *reversed(parts)])


def as_tensor_type(value: syntax.Expression) -> syntax.TensorType | None:
    """Type and sizes of an output that a call states, `FLOAT32[N, C]`; None for other
    expressions."""
    if not isinstance(value, syntax.Index) or not isinstance(value.base, syntax.Reference):
        return None
    if find_data_type(value.base.name) is None:
        return None
    return syntax.TensorType(
        syntax.Name(value.base.name, span=value.base.span), value.indices, span=value.span
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Several:
    """Result of a call with several outputs, of which the reader must select one: their number, and
    the first one's name."""

    count: str
    first: str


def _outputs(operator: OperatorDefinition) -> ValueKind | _Several:
    """Kind of the only output of an operator, or `_Several`."""
    outputs = operator.newest.outputs
    if not outputs or operator.broken:
        return UNKNOWN  # Its own check refuses it.
    first, *others = outputs
    if not others and not first.array:
        return ValueKind(What.UNKNOWN, Form.TENSOR, ranks=frozenset(first.ranks))
    count = f"{len(outputs)} outputs" if others else "an array of outputs"
    return _Several(count, first.name + ("[0]" if first.array else ""))
