"""Trace of a binding: the spans that it evaluates, and the decisions there.

The condition of a `?:` or a `where`, an operand of `&&` or `||`, and whether a read with `else` is
in bounds are decided at bind time, or by the elements of tensors. For those that elements decide,
stages are added that compute whether the condition holds anywhere, and whether it fails anywhere,
at the points where the conditions around it hold. For an operator with `gradient of`, the formula
is that of the forward operator.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
from collections.abc import Container, Mapping, Sequence

from dmlc import ir
from dmlc.binding.attributes import any_member
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.compute import Lowering
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.nodes import Node, Op, Value, join_free
from dmlc.binding.scope import Scope
from dmlc.binding.values import COMPARED, Scalar
from dmlc.language import syntax
from dmlc.language.walk import Step, Visit
from dmlc.oracle import find_work, shorten
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, Span
from dmlc.testing.case import Call
from dmlc.transform.simplify import list_live

_MOST_WORK = 1 << 24
"""Largest work of finding a condition's outcome, in instructions over all its points."""


class Role(enum.Enum):
    """Kind of decision."""

    CONDITION = "condition"
    """Condition of a `?:` or a `where`, or an operand of `&&` or `||`."""
    INSIDE = "inside"
    """Whether a read with `else` is in bounds of its tensor."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Decision in a formula or a constraint, with its outcome."""

    place: Span
    role: Role
    holds: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Two values compared at bind time."""

    operation: str
    left: Scalar
    right: Scalar


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    """Condition on elements (None: always true), and the conditions around it, each with whether it
    must hold."""

    place: Span
    role: Role
    node: Node | None
    path: tuple[tuple[Node, bool], ...]


class Log:
    """Record of evaluators."""

    def __init__(self) -> None:
        self.visited: dict[Span, None] = {}
        """Spans of the expressions that were evaluated."""
        self.outcomes: dict[Decision, None] = {}
        """Decisions at bind time."""
        self.seen: dict[tuple[_Seen, bool], None] = {}
        """Conditions on elements, each with a possible outcome."""
        self.comparisons: dict[Span, list[Comparison]] = {}


class _Watcher(Evaluator):
    """Evaluator that keeps a log."""

    def __init__(self, binding: Binding, builder: NodeBuilder | None, log: Log) -> None:
        super().__init__(binding, builder)
        self._log = log
        self._conditions: dict[int, None] = {}
        """Expressions that are conditions."""
        self._arms: dict[int, tuple[int, bool]] = {}
        """Expressions whose value is used only where a condition holds, or fails."""
        self._values: dict[int, Value] = {}
        """Latest value of each condition."""
        self._path: list[tuple[Node, bool]] = []

    def visit(
        self,
        expression: syntax.Expression,
        scope: Scope,
        expected: Value | None = None,
        *,
        decided: bool = True,
    ) -> Visit[Value]:
        self._log.visited[expression.span] = None
        self._enter(expression)
        visit = super().visit(expression, scope, expected, decided=decided)
        reads_or = isinstance(expression, syntax.Index) and expression.otherwise is not None
        if reads_or or id(expression) in self._conditions or id(expression) in self._arms:
            return self._watch(expression, visit)
        return visit

    def _enter(self, expression: syntax.Expression) -> None:
        """Records which parts of an expression are conditions, and which depend on those."""
        match expression:
            case syntax.Ternary(condition=condition, then=then, otherwise=otherwise):
                arms = [(then, True), (otherwise, False)]
            case syntax.Binary(operator="&&" | "||" as operator, left=condition, right=right):
                arms = [(right, operator == "&&")]
                self._conditions[id(right)] = None
            case syntax.Reduce(condition=syntax.Node() as condition, body=body):
                arms = [(body, True)]
            case _:
                return
        self._conditions[id(condition)] = None
        self._arms.update({id(arm): (id(condition), holds) for arm, holds in arms})

    def _watch(self, expression: syntax.Expression, visit: Visit[Value]) -> Step[Value]:
        depth = len(self._path)
        if id(expression) in self._arms:
            condition, holds = self._arms[id(expression)]
            decided = self._values.get(condition)
            if isinstance(decided, Node):
                self._path.append((decided, holds))
        try:
            value: Value = yield visit
            if id(expression) in self._conditions:
                self._values[id(expression)] = value
                self._note(expression.span, Role.CONDITION, value)
            if isinstance(expression, syntax.Index) and expression.otherwise is not None:
                self._note(expression.span, Role.INSIDE, _find_inside(value))
        finally:
            del self._path[depth:]
        return value

    def _note(self, place: Span, role: Role, value: Value) -> None:
        if isinstance(value, tuple):
            for entry in value:
                self._note(place, role, entry)
        elif isinstance(value, Node):
            seen = _Seen(place, role, value, tuple(self._path))
            self._log.seen.update({(seen, True): None, (seen, False): None})
        elif isinstance(value, bool) and self._path:
            self._log.seen[_Seen(place, role, None, tuple(self._path)), value] = None
        elif isinstance(value, bool):
            self._log.outcomes[Decision(place, role, value)] = None

    def combine(
        self, name: str, values: Sequence[Value], spans: Sequence[Span], span: Span
    ) -> Value:
        if name in COMPARED and not any(isinstance(v, Node | tuple) for v in values):
            left, right = (v for v in values if not isinstance(v, Node | tuple))
            self._log.comparisons.setdefault(span, []).append(Comparison(name, left, right))
        return super().combine(name, values, spans, span)


def _find_inside(value: Value) -> Value:
    """Whether a read with `else` is in bounds, from its value: see `binding.reads`."""
    if not isinstance(value, Node):
        return False
    if value.form is Op.SELECT and value.operands[1].form is Op.READ:
        return value.operands[0]
    return value.form is Op.READ


# Constraints -----------------------------------------------------------------------------------


def trace_tables(binding: Binding) -> Log:
    """Decisions in an operator's constraints, and in the defaults of attributes."""
    log = Log()
    for constraint in binding.operator.constraints:
        if isinstance(constraint, syntax.Require):
            watcher = _Watcher(binding, None, log)
            watcher.requires = True
            with contextlib.suppress(DmlcError):  # It is refused for this when it is bound.
                watcher.constant(constraint.condition)
    for attribute in binding.operator.attributes:
        watcher = _Watcher(binding, None, log)
        for expression in (attribute.default, attribute.length):
            if expression is not None:
                with contextlib.suppress(DmlcError):  # It needs what another value makes needless.
                    watcher.constant(expression, any_member(attribute))
    return log


# Formulas --------------------------------------------------------------------------------------


class FormulaTrace(Lowering):
    """Bound formula, with its log."""

    def __init__(self, binding: Binding, names: Mapping[str, str]) -> None:
        self.log = Log()
        super().__init__(binding)
        self._given = names
        """Names of the arrays given for its tensors."""
        self._flags: dict[tuple[_Seen, bool], str] = {}
        self.run()
        self.raise_errors()

    def make_evaluator(self) -> Evaluator:
        return _Watcher(self.binding, self.builder, self.log)

    def find_outcomes(
        self, inputs: Mapping[str, Array], known: Container[Decision]
    ) -> dict[Decision, None]:
        """Decisions in the formula with these inputs, without the known ones, and those that take
        too long to find."""
        found = {outcome: None for outcome in self.log.outcomes if outcome not in known}
        flags: dict[str, Decision] = {}
        for seen, holds in self.log.seen:
            outcome = Decision(seen.place, seen.role, holds)
            if outcome not in known and outcome not in found:
                if (seen, holds) not in self._flags:
                    self._flags[seen, holds] = self._add_flag(seen, holds)
                flags[self._flags[seen, holds]] = outcome
        function = _drop_long(shorten(self._choose_stages(flags, inputs)))
        arrays = {p.name: inputs[self._given[self._spelt[p.name]]] for p in function.parameters}
        for name, flag in evaluate(function, arrays).items():
            if flag.any():
                found[flags[name]] = None
        return found

    @functools.cached_property
    def _spelt(self) -> dict[str, str]:
        return {ir_name(name): name for name in self.binding.tensors}

    def _add_flag(self, seen: _Seen, holds: bool) -> str:
        """Stage that computes whether a condition has that outcome at any point where the
        conditions around it hold."""
        operations, place = self.builder.operations, seen.place
        path = seen.path
        if seen.node is not None and seen.node.shape is None and seen.node.free:
            # A whole tensor's element and that at a position are of no common point.
            path = tuple((node, wanted) for node, wanted in path if node.shape is None)
        around = [self._settle(node, wanted, place) for node, wanted in path]
        value: Value = True if seen.node is None else self._settle(seen.node, holds, place)
        if not isinstance(value, Node):
            value, *around = around
        free = join_free([value, *around])
        guard: Value = True
        for node in around:
            guard = node if guard is True else operations.apply("and", [guard, node], place)
        name = f"flag_{len(self.stages)}"
        if free and value.shape is None:
            variables = [self.builder.nodes.bind(v.level, v.extent) for v in free]
            made = self.builder.folds.reduce("any", variables, value, guard, place)
            value = self.builder.conversions.weak(made, place)
        else:
            parts = [value, *around]
            value = parts[0]
            for node in parts[1:]:
                value = operations.apply("and", [value, node], place)
            if value.shape is not None:
                axes = range(len(value.shape))
                value = self.builder.folds.fold("any", value, axes, place)
        self.add_stage(name, DataType.BOOL, value, value.shape or (1,), place, ())
        return self.stages[-1].name

    def _settle(self, node: Node, wanted: bool, place: Span) -> Node:
        return node if wanted else self.builder.operations.apply("not", [node], place)

    def _choose_stages(
        self, flags: dict[str, Decision], inputs: Mapping[str, Array]
    ) -> ir.Function:
        """Function of the flags whose inputs are given."""
        known = {
            name: None for name, spelt in self._spelt.items() if self._given.get(spelt) in inputs
        }
        for stage in self.stages:
            if all(load.tensor in known for load in stage.body.loads()):
                known[stage.name] = None
        results = [name for name in flags if name in known]
        stages = list_live(self.stages, results)
        # An output that the formula reads is computed by a stage, and is no input.
        read = {load.tensor for stage in stages for load in stage.body.loads()}
        read -= {stage.name for stage in stages}
        parameters = [
            ir.Parameter(ir_name(t.name), t.dtype, t.sizes)
            for t in self.binding.tensors.values()
            if ir_name(t.name) in read and t.dtype is not None and t.sizes is not None
        ]
        name = self.binding.operator.short_name
        return ir.Function(name, tuple(parameters), stages, tuple(map(ir.Result, results)))


def _drop_long(function: ir.Function) -> ir.Function:
    """Function without the results that take too long: a window may have any length."""
    short: dict[str, None] = {
        t.name: None for t in function.tensors().values() if not isinstance(t, ir.Stage)
    }
    for stage in function.stages:
        alone = dataclasses.replace(function, stages=(stage,))
        if find_work(alone) <= _MOST_WORK and all(
            load.tensor in short for load in stage.body.loads()
        ):
            short[stage.name] = None
    results = tuple(r for r in function.results if r.name in short)
    stages = list_live(function.stages, [r.name for r in results])
    read = {load.tensor: None for stage in stages for load in stage.body.loads()}
    parameters = tuple(p for p in function.parameters if p.name in read)
    return dataclasses.replace(function, parameters=parameters, stages=stages, results=results)


@functools.lru_cache(maxsize=4)
def trace_formula(call: Call) -> FormulaTrace:
    """Trace of a call's formula. Raises `DmlcError` for a call that the operator refuses."""
    binding = call.binding
    names = {name: name for name in binding.tensors}
    while binding.operator.gradient is not None and binding.forward is not None:
        gradient, inner = binding.operator.gradient, dict[str, str]()
        for tensor in binding.forward.tensors.values():
            row = gradient.values.get(tensor.definition.row)
            own = "" if row is None else tensor.name.replace(tensor.definition.row, row, 1)
            if own in names:
                inner[tensor.name] = names[own]
        binding, names = binding.forward, inner
    return FormulaTrace(binding, names)
