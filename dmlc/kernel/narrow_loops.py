"""Loop bounds from conditions: a loop whose body is guarded starts and stops where the guard does.

A loop that packs a window into a panel would otherwise test each point for padding, and one that
reduces a segment, whose ends are read from a tensor, would test all points for the few inside. If
the guard compares the loop's variable with loop-invariant values, the range expresses it once.
Other reducing loops keep their guards: their iterations are few, and as many for all work items.

A segment may contain all points, and one work item sums it. Sums of floats over a segment are made
in strips, from its first point: the rounding error then grows with the length of a strip plus the
number of strips. A segment of at most one strip is summed point by point.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.index.affine import solve
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, guard, index, operate, widen
from dmlc.kernel.rewrite import NUMBER, list_operands, map_body, substitute, walk, walk_statements
from dmlc.kernel.sums import Sum, add_up, express
from dmlc.scalars import DataType

_STRIP = 256
"""Points of a strip."""


def narrow_loops(kernel: k.Kernel) -> k.Kernel:
    """Kernel with the tightened loops."""
    body = _Narrowing(is_signed=kernel.index_signed).write(kernel.body)
    return dataclasses.replace(kernel, body=tuple(body))


@dataclasses.dataclass(frozen=True, slots=True)
class _Bound:
    """Bound on a loop's variable from a condition: on its start, or else on its stop."""

    starts: bool
    place: Sum
    further: bool
    """Whether the bound is `place + 1`."""
    is_plain: bool
    """Whether the condition compares the loop's variable itself."""


class _Narrowing:
    def __init__(self, *, is_signed: bool) -> None:
        self._is_signed = is_signed
        self._count = 0
        self._read: set[str] = set()
        """Locals that depend on elements of buffers."""

    def write(self, statements: Sequence[k.Statement]) -> list[k.Statement]:
        made: list[k.Statement] = []
        for statement in statements:
            if isinstance(statement, k.Let) and self._reads(statement.value):
                self._read.add(statement.local.name)
            statement = map_body(statement, self.write)
            if isinstance(statement, k.For) and not statement.backwards and statement.step == 1:
                made += self._narrow(statement)
            else:
                made.append(statement)
        return made

    def _reads(self, value: k.Expression) -> bool:
        """Whether a value depends on elements of buffers."""
        return any(
            isinstance(part, k.Load) or (isinstance(part, k.Local) and part.name in self._read)
            for part in walk(value)
        )

    def _narrow(self, loop: k.For) -> list[k.Statement]:
        """Tightened loop, after the definitions of its bounds."""
        match loop.body:
            case (*before, k.If(condition=condition, then=then)):
                pass
            case _:
                return [loop]
        lets = [s for s in before if isinstance(s, k.Let) and _is_free(s.value)]
        if len(lets) < len(before):
            return [loop]
        known: dict[str, Sum] = {}
        conditions = {let.local.name: let.value for let in lets}
        for let in lets:
            if let.local.type == k.INDEX:
                known[let.local.name] = add_up(let.value, known)
        assigned = (s.local for s in walk_statements(then) if isinstance(s, k.Assign))
        changing = {*assigned, *(let.local for let in lets)}
        fills = all(isinstance(s, k.Let | k.StoreLocal) for s in then)
        starts, stops, rest = [loop.start], [loop.stop], list[k.Expression]()
        for part in _split_conditions(condition, conditions):
            bound = _find_bound(part, loop.variable, known)
            read = () if bound is None else (e for t in bound.place.terms for e in walk(t))
            if bound is None or not changing.isdisjoint(read):
                rest.append(part)
                continue
            # The ends of a segment may be elements of a tensor.
            is_end = bound.is_plain and any(map(self._reads, bound.place.terms))
            if is_end or (fills and self._is_signed and not bound.further):
                (starts if bound.starts else stops).append(_clamp_bound(bound, loop))
            else:
                rest.append(part)
        if len(starts) + len(stops) == 2:
            return [loop]
        if not self._is_signed and starts[0] == index(0) and len(starts) > 1:
            del starts[0]
        made: list[k.Statement] = []
        first = self._name(made, "from", "max", starts)
        last = self._name(made, "to", "min", stops)
        body = (*before, *guard(rest, then))
        short = dataclasses.replace(loop, start=first, stop=last, body=body)
        return [*made, short if fills else self._add_up(short, loop.stop)]

    def _add_up(self, loop: k.For, most: k.Expression) -> k.For:
        """Loop over a segment, which ends before `most`, with its sums of floats made in strips."""
        loop = dataclasses.replace(loop, rolled=True)
        is_short = isinstance(most, k.Literal) and int(most.value) <= _STRIP
        sums = [] if is_short else _list_sums(loop.body)
        if not sums:
            return loop
        self._count += 1
        strip = k.Local(f"strip{NUMBER}n{self._count}", k.INDEX)
        end = k.Local(f"strip_end{NUMBER}n{self._count}", k.INDEX)
        body: list[k.Statement] = []
        last: list[k.Statement] = []
        inner: k.Statement = dataclasses.replace(loop, start=strip, stop=end)
        for each in sums:
            name, _, _ = each.name.partition(NUMBER)
            part = k.Local(f"{name}_part{NUMBER}n{self._count}", each.type)
            zero = k.Literal(k.Type(each.type.dtype), 0.0)
            body.append(k.Variable(part, widen(zero, each.type.lanes)))
            inner = substitute(inner, each, part)
            last.append(k.Assign(each, operate("add", each, part)))
        body.append(k.Let(end, operate("min", add(strip, index(_STRIP)), loop.stop)))
        return k.For(strip, loop.start, loop.stop, _STRIP, (*body, inner, *last), rolled=True)

    def _name(
        self, made: list[k.Statement], name: str, operation: str, values: Sequence[k.Expression]
    ) -> k.Expression:
        found = values[0]
        for value in values[1:]:
            found = operate(operation, found, value)
        if len(values) == 1:
            return found
        self._count += 1
        local = k.Local(f"{name}{NUMBER}n{self._count}", k.INDEX)
        made.append(k.Let(local, found))
        return local


def _list_sums(statements: Sequence[k.Statement]) -> list[k.Local]:
    """Float locals defined outside the statements, which add to them."""
    found: dict[k.Local, None] = {}
    own: set[k.Local] = set()
    for statement in walk_statements(statements):
        match statement:
            case k.Variable(local=local):
                own.add(local)
            case k.Assign(local=local, value=k.Operate(operation=operation, operands=operands)):
                adds = operation.name == "add" and operands[0] == local
                if adds and local.type.dtype.is_float:
                    found[local] = None
            case _:
                pass
    return [local for local in found if local not in own]


def _clamp_bound(bound: _Bound, loop: k.For) -> k.Expression:
    """Start or stop of a loop from a bound; `place + 1` is clamped to the loop's stop first, as it
    may overflow."""
    place = express(bound.place)
    if not bound.further:
        return place
    last = operate("sub", loop.stop, index(1))
    return add(operate("min", place, last), index(1))


def _is_free(value: k.Expression) -> bool:
    """Whether a value is arithmetic on indices, or a condition on them."""
    match value:
        case k.Local() | k.Literal() | k.Scalar() | k.Operate():
            is_position = value.type.dtype in (DataType.INDEX, DataType.BOOL)
            return is_position and all(map(_is_free, list_operands(value)))
        case _:
            return False


def _split_conditions(
    condition: k.Expression, named: Mapping[str, k.Expression]
) -> list[k.Expression]:
    """Conditions that are joined by `and`."""
    match condition:
        case k.Local(name=name) if name in named:
            return _split_conditions(named[name], named)
        case k.Operate(operation=operation, operands=(left, right)) if operation.name == "and":
            return [*_split_conditions(left, named), *_split_conditions(right, named)]
        case _:
            return [condition]


def _find_bound(
    condition: k.Expression, variable: k.Local, known: Mapping[str, Sum]
) -> _Bound | None:
    """Bound on a loop's variable from a condition; None if it gives none."""
    match condition:
        case k.Operate(operation=operation, operands=(left, right)) if left.type == k.INDEX:
            first, second = add_up(left, known), add_up(right, known)
        case _:
            return None
    if operation.name not in ("lt", "le", "gt", "ge"):
        return None
    found = solve(operation.name, first, second, lambda term: term == variable)
    if found is None or any(variable in walk(term) for term in found[2].terms):
        return None
    _, name, place = found
    return _Bound(name in ("gt", "ge"), place, name in ("gt", "le"), variable in (left, right))
