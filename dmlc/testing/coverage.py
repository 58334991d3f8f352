"""Coverage of an operator's own text by its cases.

The items are read off the operator: its `types` rows, data types, dimension counts, optional
tensors, values of attributes, broadcasting, strides, empty tensors, both sides of every constraint,
and both outcomes of every decision in its constraints, defaults and formula. An item without a hit
has a reason if it is known.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.constraints import check_constraints
from dmlc.binding.facts import Binding, BoundTensor
from dmlc.binding.operator import read_call
from dmlc.binding.values import EnumValue
from dmlc.ir import packed_strides
from dmlc.language import syntax
from dmlc.language.attribute_types import What
from dmlc.language.definitions import OperatorDefinition, TensorDefinition
from dmlc.language.walk import subexpressions
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, Span, counted, join_words
from dmlc.testing.case import Call, Case
from dmlc.testing.edges import is_at_edge, list_comparisons, turn
from dmlc.testing.exchange import list_called, list_formula
from dmlc.testing.settled import find_settled
from dmlc.testing.trace import Decision, Log, Role, trace_formula, trace_tables

KINDS = (
    "types row", "data type", "dimension count", "optional tensor", "attribute", "broadcasting",
    "strides", "empty tensor", "constraint", "decision",
)  # fmt: skip
"""Kinds of coverage items, in the order of the table."""

_NO_CASE = "no case had it"


@dataclasses.dataclass(slots=True)
class CoverageItem:
    """Coverage item: a property that a case may have."""

    kind: str
    what: str
    place: Span | None
    hits: int = 0
    """Number of cases that had it."""
    reason: str = _NO_CASE
    """Reason that none had it, if known."""

    def __str__(self) -> str:
        where = ""
        if self.place is not None:
            where = f"{self.place.source.name}:{self.place.line}:{self.place.column}: "
        found = f"hit by {counted(self.hits, 'case')}" if self.hits else f"not hit: {self.reason}"
        return f"{where}{self.kind}: {self.what}: {found}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Edge:
    """Comparison in a constraint, and whether `!` negates it."""

    constraint: syntax.Require
    place: Span
    turned: bool


class Coverage:
    """Coverage items of an operator, with the hits of its cases."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._rows: dict[object, CoverageItem] = {}
        self._edges: list[_Edge] = []
        self._known: dict[Decision, None] = {}
        self._visited: dict[Span, int] = {}
        """Number of calls that evaluated each span."""
        definition = operator.definition
        self._list_tensors(definition)
        self._list_attributes(definition)
        for constraint in definition.constraints:
            self._list_constraint(constraint)
        evaluated = _list_expressions(definition)
        for expression in evaluated:
            self._list_decisions(expression)
        while definition.gradient is not None:
            definition = definition.gradient.forward
        self._settled = find_settled(definition.functions, evaluated)

    # Rows ---------------------------------------------------------------------------------

    def _add_item(
        self, key: object, kind: str, what: str, place: Span | None, reason: str = _NO_CASE
    ) -> None:
        self._rows.setdefault(key, CoverageItem(kind, what, place, reason=reason))

    def _list_tensors(self, definition: OperatorDefinition) -> None:
        tensors, combinations = definition.newest.tensors, definition.combinations
        for number, combination in enumerate(combinations):
            parts = (f"{n} {_join(t)}" for n, t in combination.types.items())
            self._add_item(("types", number), "types row", ", ".join(parts), combination.span)
        if combinations:
            table = combinations[0].span.to(combinations[-1].span)
            what = "data types that no row has are refused"
            self._add_item(("types refused",), "types row", what, table)
        for t in tensors:
            for dtype in t.dtypes:
                reason = _find_type_conflict(definition, t, dtype) or _NO_CASE
                what = f"'{t.name}' is {dtype.name}"
                self._add_item(("dtype", t.name, dtype), "data type", what, t.span, reason)
        for t in tensors:
            for rank in t.ranks:
                reason = _find_rank_conflict(definition, t, rank) or _NO_CASE
                what = f"'{t.name}' has {counted(rank, 'dimension')}"
                self._add_item(("rank", t.name, rank), "dimension count", what, t.span, reason)
        for t in tensors:
            if t.optional:
                for present, word in ((True, "given"), (False, "left out")):
                    what = f"'{t.name}' is {word}"
                    self._add_item(("present", t.name, present), "optional tensor", what, t.span)
        for t in tensors:
            if not t.output and any(_may_exceed(definition, other, t) for other in tensors):
                what = f"'{t.name}' has size 1 where another tensor is larger"
                self._add_item(("broadcast", t.name), "broadcasting", what, t.span)
            self._add_item(("strides", t.name), "strides", f"'{t.name}' is not packed", t.span)
            if not t.output:
                what = f"'{t.name}' repeats elements, by a stride of 0"
                self._add_item(("repeats", t.name), "strides", what, t.span)
            self._add_item(("empty", t.name), "empty tensor", f"'{t.name}' has a size of 0", t.span)

    def _list_attributes(self, definition: OperatorDefinition) -> None:
        for a in definition.attributes:
            values: Iterable[str] = a.values or ()
            if a.enum is not None:
                values = a.enum.members
            elif a.type.what is What.BOOL:
                values = ("true", "false")
            for value in values:
                key = ("value", a.name, _spell_listed(value))
                self._add_item(key, "attribute", f"'{a.name}' is {value}", a.span)
            if a.default is not None:
                what = f"'{a.name}' is left to its default"
                self._add_item(("default", a.name), "attribute", what, a.span)

    def _list_constraint(self, constraint: syntax.Constraint) -> None:
        place, text = constraint.span, _shorten(constraint.span)
        if isinstance(constraint, syntax.Require):
            for part, turned in list_comparisons(constraint.condition, False):
                self._edges.append(_Edge(constraint, part.span, turned))
                shown = _shorten(part.span)
                what = f"{shown}: at its edge"
                self._add_item(("edge", part.span, True), "constraint", what, part.span)
                what = f"{shown}: just beyond its edge, and refused"
                self._add_item(("edge", part.span, False), "constraint", what, part.span)
        else:
            self._add_item(("holds", place), "constraint", f"{text}: holds of tensors given", place)
            if constraint.kind == "broadcastable":
                what = f"{text}: with a size of 1 that is repeated"
                self._add_item(("repeated", place), "constraint", what, place)
        self._add_item(("broken", place), "constraint", f"{text}: broken, and refused", place)

    def _list_decisions(self, expression: syntax.Expression) -> None:
        for part in subexpressions(expression):
            match part:
                case syntax.Ternary(condition=condition, then=then, otherwise=otherwise):
                    for arm, holds in ((then, True), (otherwise, False)):
                        what = f"'{_shorten(arm.span, 40)}' of '{_shorten(condition.span, 40)} ?'"
                        self._add_decision(condition, Role.CONDITION, holds, what, arm.span)
                case syntax.Binary(operator="&&" | "||" as operator):
                    holds = operator == "||"
                    word = "holds" if holds else "fails"
                    for side in (part.left, part.right):
                        what = f"'{_shorten(side.span, 60)}' {word}"
                        self._add_decision(side, Role.CONDITION, holds, what, side.span)
                case syntax.Reduce(condition=syntax.Node() as condition):
                    for holds, word in ((True, "takes part"), (False, "is left out")):
                        what = f"a point {word}, where '{_shorten(condition.span, 60)}'"
                        self._add_decision(condition, Role.CONDITION, holds, what, condition.span)
                case syntax.Index(otherwise=syntax.Node()):
                    for holds, word in ((True, "inside"), (False, "outside")):
                        what = f"'{_shorten(part.span, 60)}' reads {word}"
                        self._add_decision(part, Role.INSIDE, holds, what, part.span)
                case _:
                    pass

    def _add_decision(
        self, condition: syntax.Expression, role: Role, holds: bool, what: str, place: Span
    ) -> None:
        self._add_item(Decision(condition.span, role, holds), "decision", what, place)

    # Cases --------------------------------------------------------------------------------

    def add(self, case: Case) -> None:
        """Counts a case. Raises `DmlcError` for a call that the operator refuses."""
        binding = case.call.binding
        trace, tables = trace_formula(case.call), trace_tables(binding)
        outcomes = {**tables.outcomes, **trace.find_outcomes(case.inputs, self._known)}
        # Known outcomes count as hit again, as far as decidable without elements.
        hits: dict[object, None] = {**dict.fromkeys(outcomes), **trace.log.outcomes}
        self._known.update(outcomes)
        self._visit(trace.log, tables)
        hits.update(dict.fromkeys(_list_bound(case.call, binding)))
        for edge in self._edges:
            for comparison in tables.comparisons.get(edge.place, ()):
                if is_at_edge(turn(comparison, edge.turned), beyond=False):
                    hits["edge", edge.place, True] = None
        for constraint in self.operator.definition.constraints:
            if isinstance(constraint, syntax.Sentence):
                hits.update(dict.fromkeys(_list_held(constraint, binding)))
        self._hit(hits)

    def add_refused(self, call: Call) -> None:
        """Counts a call that a constraint forbids. A call that the tables alone forbid reaches no
        constraint."""
        try:
            binding = read_call(call.operator.definition, call.tensors, call.attributes)
        except DmlcError:
            return
        diagnostics: list[Diagnostic] = []
        check_constraints(binding, diagnostics)
        broken = {d.span: None for d in diagnostics if d.span is not None}
        tables = trace_tables(binding)
        self._visit(tables)
        hits: dict[object, None] = dict.fromkeys(tables.outcomes)
        hits.update({("broken", place): None for place in broken})
        combinations = self.operator.definition.combinations
        if combinations and combinations[0].span.to(combinations[-1].span) in broken:
            hits["types refused",] = None
        for edge in self._edges:
            if edge.constraint.span in broken:
                for comparison in tables.comparisons.get(edge.place, ()):
                    if is_at_edge(turn(comparison, edge.turned), beyond=True):
                        hits["edge", edge.place, False] = None
        self._hit(hits)

    def _visit(self, *logs: Log) -> None:
        for place in dict.fromkeys(place for log in logs for place in log.visited):
            self._visited[place] = self._visited.get(place, 0) + 1

    def _hit(self, keys: Iterable[object]) -> None:
        for key in keys:
            if key in self._rows:
                self._rows[key].hits += 1

    # What came of it ----------------------------------------------------------------------

    def rows(self) -> tuple[CoverageItem, ...]:
        """Coverage items, in the order of `KINDS`."""
        for key, row in self._rows.items():
            if isinstance(key, Decision) and not row.hits:
                row.reason = self._explain(key)
        order = {kind: number for number, kind in enumerate(KINDS)}
        return tuple(sorted(self._rows.values(), key=lambda row: order[row.kind]))

    def _explain(self, outcome: Decision) -> str:
        visits = self._visited.get(outcome.place, 0)
        settled, function = self._settled.get(outcome.place, (outcome.holds, ""))
        if settled is not outcome.holds:
            return f"no call of '{function}' in this operator comes to it"
        if not visits:
            return "no case came to it"
        never = "held" if outcome.holds else "failed"
        if outcome.role is Role.INSIDE:
            never = "was inside" if outcome.holds else "was outside"
        return f"it never {never} in the {counted(visits, 'call')} that came to it"


def show_table(tables: Mapping[str, Sequence[CoverageItem]]) -> str:
    """Table with a line per operator and a total: the number of items of each kind that were
    hit."""
    names = [*tables, "all"]
    width = max(len(name) for name in names)
    counts = [_count_kinds(rows) for rows in tables.values()]
    whole = _count_kinds([row for rows in tables.values() for row in rows])
    lines = ["  ".join([" " * width, *KINDS, "     all"])]
    for name, found in zip(names, [*counts, whole], strict=True):
        cells = [_show_count(*found[kind]).rjust(len(kind)) for kind in KINDS]
        hit, total = (sum(found[kind][k] for kind in KINDS) for k in (0, 1))
        share = f"{100 * hit / total:.0f} %" if total else "-"
        lines.append("  ".join([name.ljust(width), *cells, share.rjust(8)]))
    return "\n".join(lines)


def _count_kinds(rows: Sequence[CoverageItem]) -> dict[str, tuple[int, int]]:
    """Numbers of hit items and of all items, by kind."""
    return {
        kind: (
            sum(row.hits > 0 for row in rows if row.kind == kind),
            sum(row.kind == kind for row in rows),
        )
        for kind in KINDS
    }


def _show_count(hit: int, total: int) -> str:
    return f"{hit}/{total}" if total else "-"


def _join(types: Iterable[DataType]) -> str:
    return join_words(t.name for t in types)


def _shorten(place: Span, most: int = 80) -> str:
    text = " ".join(place.text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _list_expressions(definition: OperatorDefinition) -> list[syntax.Expression]:
    """Expressions evaluated for an operator: its constraints, defaults and formula, and the
    functions that they call."""
    found = [c.condition for c in definition.constraints if isinstance(c, syntax.Require)]
    found += [e for a in definition.attributes for e in (a.length, a.default) if e is not None]
    found += list_called(definition, found)
    formula = list_formula(definition)
    return [*found, *(e for e in formula if not any(e is other for other in found))]


# Tables ----------------------------------------------------------------------------------------


def _list_same(
    definition: OperatorDefinition, t: TensorDefinition, facts: Sequence[str]
) -> list[str]:
    """Rows that the sentences equate with a row in these facts, itself included."""
    groups = [
        [subject.text for subject in constraint.subjects]
        for constraint in definition.constraints
        if isinstance(constraint, syntax.Sentence)
        and constraint.kind == "same"
        and any(o.text in facts for o in constraint.objects)
    ]
    found = [t.name]
    for name in found:
        met = [n for group in groups if name in group for n in group]
        found += [n for n in dict.fromkeys(met) if n not in found]
    return found


def _list_same_sizes(definition: OperatorDefinition, t: TensorDefinition) -> list[str]:
    found = _list_same(definition, t, ("Sizes",))
    if t.shape_name is not None:
        found += [
            other.name
            for other in definition.newest.tensors
            if other.shape_name == t.shape_name and other.name not in found
        ]
    return found


def _may_exceed(
    definition: OperatorDefinition, other: TensorDefinition, t: TensorDefinition
) -> bool:
    """Whether a tensor may be larger than another along an axis, as far as the sentences say."""
    same = _list_same_sizes(definition, t)
    alike = _list_same_sizes(definition, other)
    if other.name in same:
        return False
    for constraint in definition.constraints:
        if not isinstance(constraint, syntax.Sentence):
            continue
        bound = any(subject.text in alike for subject in constraint.subjects)
        if bound and constraint.kind == "scalar":
            return False
        if bound and constraint.kind == "broadcastable" and constraint.objects[0].text in same:
            return False
    return True


def _list_bound_to(
    definition: OperatorDefinition, t: TensorDefinition, facts: Sequence[str]
) -> Iterator[TensorDefinition]:
    """Rows of required tensors that the sentences equate with a row in these facts."""
    for name in _list_same(definition, t, facts):
        other = definition.newest.tensor(name)
        if other is not None and other is not t and not other.optional:
            yield other


def _find_type_conflict(
    definition: OperatorDefinition, t: TensorDefinition, dtype: DataType
) -> str | None:
    """Reason that no call can have a tensor of a data type that its row lists."""
    combinations = definition.combinations
    if combinations and all(dtype not in c.types.get(t.name, (dtype,)) for c in combinations):
        return "no row of 'types' permits it"
    for other in _list_bound_to(definition, t, ("DataType",)):
        if dtype not in other.dtypes:
            return f"'{other.name}' has the same DataType, and its row does not list that"
    return None


def _find_rank_conflict(
    definition: OperatorDefinition, t: TensorDefinition, rank: int
) -> str | None:
    for other in _list_bound_to(definition, t, ("DimensionCount", "Sizes")):
        if rank not in other.ranks:
            return f"'{other.name}' has as many dimensions, and its row does not list that"
    return None


def _spell_listed(value: object) -> str:
    """Normal form of a value in a list of values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, EnumValue):
        return value.member
    try:
        return str(float(str(value)))
    except ValueError:
        return str(value)


# Bindings --------------------------------------------------------------------------------------


def _list_bound(call: Call, binding: Binding) -> Iterator[object]:
    """Keys of the items of tensors and attributes that a call hits."""
    present = list(binding.tensors.values())
    for number, combination in enumerate(binding.operator.combinations):
        types = combination.types
        if all(t.dtype in types.get(t.definition.row, (t.dtype,)) for t in present):
            yield "types", number
    for t in binding.operator.newest.tensors:
        yield "present", t.name, bool(binding.members(t.name))
    for tensor in present:
        yield from _list_tensor(tensor, call.tensors.get(tensor.name), present)
    for name, value in binding.attributes.items():
        for entry in value if isinstance(value, tuple) else (value,):
            yield "value", name, _spell_listed(entry)
        if name not in call.attributes:
            yield "default", name


def _list_tensor(
    tensor: BoundTensor, desc: TensorDesc | None, present: Iterable[BoundTensor]
) -> Iterator[object]:
    row, sizes = tensor.definition.row, tensor.shape
    yield "dtype", row, tensor.dtype
    yield "rank", row, len(sizes)
    if 0 in sizes:
        yield "empty", row
    shapes = [other.shape for other in present]
    if any(_repeats(sizes, shape) for shape in shapes):
        yield "broadcast", row
    strides = None if desc is None else desc.strides
    if strides is None:
        return
    packed = packed_strides(sizes)
    moved = [s for s, p, size in zip(strides, packed, sizes, strict=True) if size > 1 and s != p]
    if moved:
        yield "strides", row
    if 0 in moved:
        yield "repeats", row


def _repeats(sizes: Sequence[int], larger: Sequence[int]) -> bool:
    """Whether one shape has size 1 where the other, of equal rank, is larger."""
    return len(sizes) == len(larger) and any(
        size == 1 < other for size, other in zip(sizes, larger, strict=True)
    )


def _list_held(sentence: syntax.Sentence, binding: Binding) -> Iterator[object]:
    subjects = [t for s in sentence.subjects for t in binding.members(s.text)]
    least = 2 if sentence.kind == "same" else 1
    if len(subjects) < least:
        return
    yield "holds", sentence.span
    if sentence.kind == "broadcastable":
        targets = binding.members(sentence.objects[0].text)
        pairs = itertools.product(subjects, targets)
        if any(_repeats(s.shape, t.shape) for s, t in pairs):
            yield "repeated", sentence.span
