"""Lowering of a graph's statements to stages of one tensor IR function.

Every call of an operator is bound to its arguments and inlined: its stages are renamed after the
statement (`masked`, `bn_OutputGradientTensor`). Every other expression becomes a stage, as a local
of an operator does. Equal calls are bound once, so that the time taken grows with the number of
statements and not with the size of the operators.

A value of a graph is a tensor with a data type of its own. An expression over FLOAT16 tensors gives
a FLOAT16 tensor, rounded as one; over tensors of several floating-point types that are computed in
float32 it gives FLOAT32. `cast` gives the type it names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dmlc import ir
from dmlc.binding.attributes import any_member
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.call_errors import explain_at_call
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.gradient import lower
from dmlc.binding.graph_stages import GraphStages
from dmlc.binding.nodes import Node, Value
from dmlc.binding.operator import Description, Operator
from dmlc.binding.scope import Scope
from dmlc.binding.stages import keep_loops, make_function, rename_tensors
from dmlc.binding.symbols import Symbols
from dmlc.binding.tensors import Described, TensorDesc, show_sizes
from dmlc.binding.values import OpenSize, span_text, whole_number
from dmlc.language import syntax
from dmlc.language.arrays import find_entry
from dmlc.language.builtins import GRAPH_FUNCTIONS
from dmlc.language.check_graph import as_tensor_type, called_name
from dmlc.language.definitions import GraphDefinition, OperatorDefinition
from dmlc.language.walk import Step, Visit, subexpressions
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Span
from dmlc.transform.simplify import list_live, rename_loop, rename_stage

_Output: TypeAlias = Node | tuple[Node, ...]
"""Value of a row of a called operator's table; a tuple for an array of outputs."""


def lower_graph(
    definition: GraphDefinition,
    surroundings: Binding,
    symbols: Symbols,
    inputs: Mapping[str, TensorDesc],
    outputs: Mapping[str, Described],
) -> ir.Function:
    """Function of a graph for inputs of known types and sizes. `outputs` gives the strides of
    results. Raises `DmlcError` with every independent error."""
    lowering = _GraphLowering(definition, surroundings, symbols, inputs)
    lowering.run()
    lowering.raise_errors()
    return lowering.function(outputs)


class _GraphLowering(GraphStages):
    def __init__(
        self,
        definition: GraphDefinition,
        surroundings: Binding,
        symbols: Symbols,
        inputs: Mapping[str, TensorDesc],
    ) -> None:
        super().__init__(definition.syntax, surroundings, inputs)
        self.definition = definition
        self.symbols = symbols
        self.results: list[str] = []
        self.renamed: dict[str, str] = {}
        """Stages that are outputs under another name."""
        self.bound: dict[object, ir.Function] = {}
        """Bound functions of calls, by their arguments."""
        sizes = {n: k.size for n, k in symbols.known.items()}
        self.evaluator.locals.update(
            {n: OpenSize.of(s) if isinstance(s, str) else s for n, s in sizes.items()}
        )

    def make_evaluator(self) -> Evaluator:
        return _GraphEvaluator(self.binding, self.builder, self)

    def run(self) -> None:
        for statement in self.graph.statements:
            names = [name.text for name in statement.names]
            self.define_several(names, functools.partial(self.assign, statement))

    def assign(self, statement: syntax.GraphStatement) -> list[Value]:
        """Lowers a statement, and returns the values that later reads of its names have."""
        self.statement = statement
        if isinstance(statement.value, syntax.Gradient):
            values: list[Value] = [*self.differentiate(statement.value, statement.names)]
        else:
            values = [self.evaluator.evaluate(statement.value)]
        define = self.define_output if statement.output else self.define_tensor
        pairs = zip(statement.names, values, strict=True)
        return [define(name.text, value, statement.span) for name, value in pairs]

    # Values -------------------------------------------------------------------------------

    def define_output(self, name: str, value: Value, span: Span) -> Value:
        if not isinstance(value, Node) or value.shape is None:
            raise DmlcError(
                f"output '{name}' is one value, and must be a tensor", span, code="E0603"
            )
        tensor = self.builder.nodes.loaded(value)
        own = tensor is not None and tensor not in self.inputs and tensor not in self.results
        if tensor is None or (not own and tensor != name) or tensor in self.renamed:
            tensor = name
            value = self.hold(name, value, span)
        if tensor != name:
            self.renamed[tensor] = name
        self.results.append(name)
        return value

    def describe(self, value: Node) -> tuple[str, TensorDesc]:
        """The tensor that holds a value, and its description."""
        name = self.builder.nodes.loaded(value) or ""
        given = self.inputs.get(name)
        if given is not None:
            return name, given
        return name, TensorDesc(self.types[name], self.extents[name])

    # Calls --------------------------------------------------------------------------------

    def inline(
        self,
        operator: OperatorDefinition,
        stem: str,
        function: ir.Function,
        given: Mapping[str, str],
        span: Span,
    ) -> dict[str, _Output]:
        """Outputs of a call, by table row; `given` maps parameters to tensors. The only output of
        an operator takes the name of the statement."""
        outputs = operator.newest.outputs
        single = outputs[0].name if len(outputs) == 1 else None
        names = dict(given)
        for stage in function.stages:
            own = stem if stage.name == single else f"{stem}_{stage.name}"
            kept = own == stem and stem in self.kept
            names[stage.name] = own if kept else self.fresh_name(own)
        for delay in function.delays():
            names[delay.name] = self.fresh_name(f"{stem}_{delay.name}")
        made = rename_tensors(function, names, span)
        self.loops += made.loops
        self.add_made(made.stages, operator.order)
        if any(stage.reduction is not None for stage in made.stages):
            self.at_hand.update(dict.fromkeys(result.name for result in made.results))
        found: dict[str, _Output] = {}
        results = [r.name for r in function.results]
        for output in outputs:
            if output.name in results:
                found[output.name] = self.load(names[output.name])
            elif output.array:
                entries = [r for r in results if ir_name(f"{output.name}[{_entry(r)}]") == r]
                found[output.name] = tuple(self.load(names[r]) for r in entries)
        return found

    # The function -------------------------------------------------------------------------

    def function(self, outputs: Mapping[str, Described]) -> ir.Function:
        stages, loops = self.stages, self.loops
        if self.renamed:
            stages = [rename_stage(s, self.renamed) for s in stages]
            loops = [rename_loop(loop, self.renamed) for loop in loops]
        stages = list_live(stages, self.results, loops)
        made = {s.name: s for s in stages}
        results = [self.result(made[name], outputs.get(name, Described())) for name in self.results]
        parameters = self.parameters()
        name, span = self.definition.short_name, self.graph.name.span
        checks = dict.fromkeys(check for made in self.bound.values() for check in made.checks)
        checks |= self.binding.checks
        loops = keep_loops(loops, stages)
        function = make_function(name, parameters, stages, results, span, checks, loops)
        warnings = (w for made in self.bound.values() for w in made.warnings)
        return dataclasses.replace(function, warnings=(*warnings, *self.warnings))

    def result(self, stage: ir.Stage, wanted: Described) -> ir.Result:
        """Result with its strides. Raises `DmlcError` if `wanted` contradicts the stage."""
        if wanted.sizes not in (None, stage.extents):
            raise DmlcError(
                f"output '{stage.name}' has sizes {show_sizes(stage.extents)}, but "
                f"{show_sizes(wanted.sizes)} are asked for",
                stage.span,
                code="E0810",
            )
        if wanted.dtype not in (None, stage.dtype):
            raise DmlcError(
                f"output '{stage.name}' is {stage.dtype.name}, but {wanted.dtype.name} is "
                "asked for",
                stage.span,
                code="E0810",
            )
        return ir.Result(stage.name, wanted.strides)


def _entry(name: str) -> str:
    """Number at the end of `OutputTensors_0`."""
    return name.rpartition("_")[2]


class _GraphEvaluator(Evaluator):
    """Evaluator of a graph's expressions: calls of operators, and their outputs."""

    def __init__(self, binding: Binding, builder: NodeBuilder, lowering: _GraphLowering) -> None:
        super().__init__(binding, builder, GRAPH_FUNCTIONS)
        self.lowering = lowering
        self.outputs: dict[str, Mapping[str, _Output]] = {}
        """Outputs of each named call."""
        self.read = _read_outputs(lowering.graph)

    # Outputs of calls -----------------------------------------------------------------------

    def visit(
        self,
        expression: syntax.Expression,
        scope: Scope,
        expected: Value | None = None,
        *,
        decided: bool = True,
    ) -> Visit[Value]:
        match expression:
            case syntax.Member():
                found = self._output(expression)
                if isinstance(found, Node):
                    return found
            case syntax.Index(base=syntax.Member() as base):
                found = self._output(base)
                if isinstance(found, tuple):
                    return self._entry_of_results(expression, found, scope)
            case syntax.Call():
                name = called_name(expression)
                operator = self.lowering.definition.operators.get(name or "")
                if operator is not None:
                    return self._operator_call(operator, expression, scope)
            case _:
                pass
        return super().visit(expression, scope, expected, decided=decided)

    def _entry_of_results(
        self, expression: syntax.Index, found: tuple[Node, ...], scope: Scope
    ) -> Step[Value]:
        number = whole_number((yield self.visit(expression.indices[0], scope)))
        entry = None if number is None else find_entry(number, len(found))
        if entry is None:
            raise DmlcError(
                f"{span_text(expression.base.span)} has {len(found)} tensors: pick one by its "
                f"number, 0 to {len(found) - 1}",
                expression.span,
                code="E0411",
            )
        return found[entry]

    def _output(self, expression: syntax.Member) -> _Output | None:
        base = expression.base
        if not isinstance(base, syntax.Reference):
            return None
        failed = self.locals.get(base.name)
        if isinstance(failed, DmlcError):
            raise failed
        return self.outputs.get(base.name, {}).get(expression.member.text)

    # Calls --------------------------------------------------------------------------------

    def _operator_call(
        self, operator: OperatorDefinition, expression: syntax.Call, scope: Scope
    ) -> Step[Value]:
        lowering = self.lowering
        stem = lowering.stem(expression.span, operator.short_name)
        tensors: dict[str, str] = {}
        described: dict[str, Description | Sequence[Description]] = {}
        attributes: dict[str, object] = {}
        for argument in expression.arguments:
            label = "" if argument.name is None else argument.name.text
            tensor = operator.newest.tensor(label)
            value = argument.value
            if tensor is None:
                attribute = operator.attribute(label)
                expected = None if attribute is None else any_member(attribute)
                attributes[label] = self.constant(value, expected, scope)
            elif tensor.output:
                described[label] = self._stated(value)
            else:
                listed = isinstance(value, syntax.Array)
                descs: list[TensorDesc] = []
                for number, item in enumerate(value.items if listed else (value,)):
                    entry = ir_name(f"{label}[{number}]") if listed else label
                    held: Node = yield self._tensor_argument(item, label, f"{stem}_{entry}", scope)
                    tensors[entry], desc = lowering.describe(held)
                    descs.append(desc)
                described[label] = descs if listed else descs[0]
        named = lowering.statement is not None and expression is lowering.statement.value
        declared = operator.newest.outputs
        wanted = self.read.get(stem, ()) if named else ()
        if len(declared) == 1:
            wanted = (declared[0].name,)  # The call itself reads it.
        try:
            function = self._bind(operator, described, attributes, wanted)
        except DmlcError as error:
            raise explain_at_call(error, operator, expression) from None
        outputs = lowering.inline(operator, stem, function, tensors, expression.span)
        if named:
            self.outputs[stem] = outputs
        # What has several outputs, of which none may be read, is never read as a whole: the
        # checker refuses it.
        return next(iter(outputs.values()), ())

    def _bind(
        self,
        operator: OperatorDefinition,
        tensors: Mapping[str, Description | Sequence[Description]],
        attributes: Mapping[str, object],
        wanted: Sequence[str],
    ) -> ir.Function:
        """Bound function of a call; equal calls share it."""
        bound = self.lowering.bound
        described = tuple((n, tuple(d) if isinstance(d, list) else d) for n, d in tensors.items())
        values = tuple((n, repr(v)) for n, v in attributes.items())
        key = (operator.name, described, values, tuple(wanted))
        if key not in bound:
            bound[key] = lower(Operator(operator).resolve(tensors, attributes, computed=wanted))
        return bound[key]

    def _stated(self, value: syntax.Expression) -> Any:
        """Type and sizes that a call states for an output, or for each entry of an array."""
        if isinstance(value, syntax.Array):
            return [self._stated(item) for item in value.items]
        return self.lowering.symbols.desc(as_tensor_type(value))

    def _tensor_argument(
        self, value: syntax.Expression, label: str, name: str, scope: Scope
    ) -> Step[Node]:
        """Argument of an operator's tensor, stored in a stage unless it is an input."""
        found: Value = yield self.visit(value, scope)
        if not isinstance(found, Node) or found.shape is None:
            raise DmlcError(
                f"'{label}' takes a tensor, but {span_text(value.span)} is one value",
                value.span,
                code="E0601",
            )
        if self.built().nodes.loaded(found) is not None:
            return found
        return self.lowering.hold(name, found, value.span)

    def convert(self, value: Value, to: DataType, span: Span) -> Value:
        """Cast of a tensor to a tensor of the type it names, also if the compute type stays the
        same, as in `cast(x, FLOAT32)` of a FLOAT16 tensor."""
        builder = self.built()
        if not isinstance(value, Node) or value.shape is None:
            return super().convert(value, to, span)
        tensor = builder.nodes.loaded(value)
        if tensor is not None and self.lowering.types[tensor] is to:
            return value
        made = builder.conversions.cast(value, to, span)
        return builder.conversions.convert(value, to, to.name) if made is value else made


def _read_outputs(graph: syntax.Graph) -> Mapping[str, Sequence[str]]:
    """Outputs of each call that some statement reads by name."""
    found: dict[str, dict[str, None]] = {}
    for statement in graph.statements:
        for part in subexpressions(statement):
            if isinstance(part, syntax.Member) and isinstance(part.base, syntax.Reference):
                found.setdefault(part.base.name, {})[part.member.text] = None
    return {name: tuple(members) for name, members in found.items()}
