"""`Graph`: a checked graph, and its binding to concrete inputs and sizes. `symbols` solves for its
sizes, `graph_statements` makes its stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc import ir
from dmlc.binding.call_errors import raise_mistakes
from dmlc.binding.facts import Binding
from dmlc.binding.graph_statements import lower_graph
from dmlc.binding.operator import Description, read_description, read_descriptions
from dmlc.binding.symbols import Symbols
from dmlc.binding.tensors import Described, TensorDesc
from dmlc.collection import throttle_garbage_collection
from dmlc.language import syntax
from dmlc.language.definitions import GraphDefinition, OperatorDefinition
from dmlc.language.format import format_declaration
from dmlc.language.walk import parts
from dmlc.parameters import expect, expect_integer, expect_mapping
from dmlc.source import Diagnostic, DmlcError, Note, list_names, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """A graph of the language, ready to be bound."""

    definition: GraphDefinition

    def __post_init__(self) -> None:
        notes = ["dmlc.parse and dmlc.load give graphs"]
        expect("definition", self.definition, GraphDefinition, "a checked definition", notes)

    @property
    def name(self) -> str:
        """The qualified name."""
        return self.definition.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs, in the order declared."""
        return tuple(i.name.text for i in self.definition.syntax.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs, in the order declared."""
        statements = self.definition.syntax.statements
        return tuple(name.text for s in statements if s.output for name in s.names)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of its symbols, in the order declared."""
        return tuple(s.text for s in self.definition.syntax.symbols)

    def __repr__(self) -> str:
        symbols = f"[{list_names(self.symbols)}]" if self.symbols else ""
        given, found = list_names(self.inputs), list_names(self.outputs)
        return f"<graph {self.name}{symbols}: {given} -> {found}>"

    def __str__(self) -> str:
        """The graph in the language."""
        return format_declaration(self.definition.syntax)

    @throttle_garbage_collection()
    def bind(
        self,
        tensors: Mapping[str, Description] | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> ir.Function:
        """The graph for these sizes, as one verified function: its parameters are the graph's
        inputs and its results the graph's outputs, by name.

        `dims` states symbols. `tensors` describes inputs, or gives their sizes: symbols are worked
        out from those, and strides are kept. An input that is left out is as the graph declares it,
        and symbols of inputs that nothing says are left open: the function serves all their sizes.
        Outputs may be described too, to say how they are stored.

        Raises `DmlcError` with every independent mistake, and `UnsupportedError` for what this
        version cannot bind.
        """
        given = {n: read_description(n, value) for n, value in read_descriptions(tensors).items()}
        known = (*self.inputs, *self.outputs)
        diagnostics = [
            unknown_name(f"tensor of graph '{self.name}'", name, known)
            for name in given
            if name not in known
        ]
        surroundings = _surroundings(self.definition)
        symbols = Symbols(self.definition.syntax, surroundings)
        symbols.state(read_dims(dims))
        symbols.infer({n: g.sizes for n, g in given.items() if g.sizes is not None})
        diagnostics += symbols.diagnostics
        if not diagnostics:
            symbols.leave_open()
            symbols.require(list(_declared_sizes(self.definition.syntax)))
        raise_mistakes([*diagnostics, *symbols.diagnostics])
        inputs = self._describe_inputs(symbols, given, diagnostics)
        raise_mistakes(diagnostics)
        stored = {n: d for n, d in given.items() if n in self.outputs}
        function = lower_graph(self.definition, surroundings, symbols, inputs, stored)
        ir.verify(function, "bind")
        return function

    def _describe_inputs(
        self,
        symbols: Symbols,
        given: Mapping[str, Described],
        diagnostics: list[Diagnostic],
    ) -> dict[str, TensorDesc]:
        """Type, sizes and strides of every input, checked against the graph's declaration."""
        found: dict[str, TensorDesc] = {}
        for declared in self.definition.syntax.inputs:
            name = declared.name.text
            try:
                desc = symbols.desc(declared.type)
            except DmlcError as error:
                diagnostics += error.diagnostics
                continue
            described = given.get(name, Described())
            if described.dtype not in (None, desc.data_type):
                note = Note("declared here", declared.span)
                message = (
                    f"input '{name}' is {desc.data_type.name}, but {described.dtype.name} is given"
                )
                diagnostics.append(Diagnostic(message, declared.type.span, (note,), code="E0802"))
                continue
            if described.strides is not None:
                desc = TensorDesc(desc.data_type, desc.sizes, described.strides)
            found[name] = desc
        return found


def read_dims(given: object) -> dict[str, int]:
    """The `dims` of a caller. Raises `ArgumentError`."""
    if given is None:
        return {}
    found = expect_mapping("dims", given, "a mapping of symbols' names to sizes")
    return {n: expect_integer(f"dims['{n}']", size) for n, size in found.items()}


def _declared_sizes(graph: syntax.Graph) -> list[syntax.Expression]:
    """Expressions that may name a symbol: the sizes of inputs, then those that statements state."""
    return [e for node in (*graph.inputs, *graph.statements) for e in parts(node)]


def _surroundings(definition: GraphDefinition) -> Binding:
    """Binding without tensors, in which a graph's expressions find the functions of its file."""
    graph = definition.syntax
    empty = syntax.Operator(
        graph.name, None, None, None, None, (), None, None, None, None, (), (), span=graph.span
    )
    operator = OperatorDefinition(
        definition.name, None, None, None, (), (), (), (), (), None, (),
        definition.functions, definition.enums, empty,
    )  # fmt: skip
    return Binding(operator, {}, {}, {}, False)
