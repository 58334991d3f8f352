"""Loads and stores that are certainly out of bounds of a buffer or an array, for some work item.

An index is tracked if it is a linear combination of independent *roots*: numbers that take every
value from 0 to a maximum. Roots are the group and lane numbers, loop counters, and quotients and
remainders of sums that take every value in their interval. The ends of such a sum's interval are
then values that some work item reaches, and an end out of bounds is a fault. A condition narrows
the sum that it compares; other values that depend on the same roots become unknown, and so does
everything under a condition that cannot be analysed. `interpret` finds faults in what is unknown
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.index.affine import Affine, combine
from dmlc.index.intervals import DIFFERENCES, NEGATED, is_within, meet
from dmlc.index.intervals import combine as combine_ranges
from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import list_expressions, list_operands
from dmlc.scalars import DataType

_FOLLOWED = (DataType.INDEX, DataType.BOOL)
"""Types of the locals whose values are tracked."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Root:
    """Number that takes every value from 0 to `most`."""

    most: int
    sources: frozenset[_Root]
    """Independent roots that it depends on; empty if it is independent itself."""

    def origins(self) -> frozenset[_Root]:
        return self.sources or frozenset([self])


_Sum: TypeAlias = Affine[_Root]
"""An index as a linear combination of roots that do not depend on each other."""
_Known: TypeAlias = dict[str, _Sum | None]


def _find_ends(number: _Sum) -> tuple[int, int]:
    return number.interval(lambda root: (0, root.most))


def _find_origins(number: _Sum) -> frozenset[_Root]:
    found = [root.origins() for root in number.terms]
    return found[0] if len(found) == 1 else frozenset[_Root]().union(*found)


def _is_dense(number: _Sum) -> bool:
    """Whether a sum takes every value of its interval."""
    reach = 0
    for factor, most in sorted((abs(f), root.most) for root, f in number.factors):
        if factor > reach + 1:
            return False
        reach += factor * most
    return True


def _add(one: _Sum, other: _Sum, times: int = 1) -> _Sum | None:
    """`one + times * other`; None if their roots depend on each other."""
    made = one.plus(other, times)
    origins = [root.origins() for root in made.terms] if other.factors else []
    is_apart = len(origins) < 2 or sum(map(len, origins)) == len(frozenset[_Root]().union(*origins))
    return made if is_apart else None


def _dense(low: int, high: int, sources: frozenset[_Root]) -> _Sum:
    """Number that takes every value from `low` to `high`, and depends on the roots `sources`
    alone."""
    return Affine(low, ((_Root(high - low, sources), 1),) if high > low else ())


def find_outside(kernel: k.Kernel, sizes: Mapping[str, int]) -> list[tuple[k.Statement, str]]:
    """Statements that are certainly out of bounds, each with a description. `sizes` are the
    elements of buffers and arrays; others are not checked."""
    count, launch = kernel.launch.count, kernel.launch
    if isinstance(count, str) or count < 1:
        return []
    known: _Known = {s.name: Affine(n) for s, n in kernel.scalars if isinstance(n, int)}
    known[k.Geometry.GROUP.value + "#"] = _dense(0, launch.count_groups(count) - 1, frozenset())
    lane = known[k.Geometry.LANE.value + "#"] = _dense(0, launch.group_size - 1, frozenset())
    subgroups = launch.group_size // (launch.subgroup or 1)
    number = _dense(0, subgroups - 1, frozenset(lane.terms))
    known[k.Geometry.SUBGROUP.value + "#"] = number
    bounds = _Bounds(kernel, sizes)
    bounds.run(kernel.body, known)
    return bounds.found


class _Bounds:
    def __init__(self, kernel: k.Kernel, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self.found: list[tuple[k.Statement, str]] = []
        self._limits = kernel.index_limits
        self._matrices = {m.name: m for m in kernel.matrices}
        self._values: dict[str, k.Expression] = {}
        """Definitions of the immutable locals."""

    # Statements ---------------------------------------------------------------------------

    def run(self, statements: Sequence[k.Statement], outer: _Known) -> None:
        """Checks statements that the work items described by `outer` reach."""
        known = dict(outer)
        for statement in statements:
            if isinstance(statement, k.Prefetch):
                continue  # A hint: it may point anywhere.
            for expression in list_expressions(statement):
                self._visit(expression, known, statement)
            match statement:
                case k.Let(local=local, value=value):
                    if local.type.lanes == 1 and local.type.dtype in _FOLLOWED:
                        self._values[local.name] = value
                        known[local.name] = self._sum(value, known)
                case k.Variable(local=local):
                    self._values.pop(local.name, None)
                    known[local.name] = None
                case k.StoreLocal(array=name, index=index, value=value):
                    self._check(name, index, value.type.lanes, known, statement)
                case k.Store(buffer=name, index=index, value=value):
                    self._check(name, index, value.type.lanes, known, statement)
                case k.StoreWord(buffer=name, index=index):
                    # The word's second element may be past the end.
                    word = self._sum(index, known)
                    double = None if word is None else word.times(2)
                    self._check_sum(name, double, 1, statement)
                case (
                    k.LoadMatrix(array=name, matrix=matrix)
                    | k.StoreMatrix(array=name, matrix=matrix)
                ):
                    rows, length = self._matrices[matrix].lay(statement)
                    reach = (rows - 1) * statement.stride + length
                    self._check(name, statement.index, reach, known, statement)
                case k.If(condition=condition, then=then):
                    inside = self._assume(condition, known)
                    if inside is not None:
                        self.run(then, inside)
                case k.For():
                    inside = self._enter(statement, known)
                    if inside is not None:
                        self.run(statement.body, inside)
                case _:
                    pass

    def _enter(self, loop: k.For, known: _Known) -> _Known | None:
        """Known values inside a loop; None if the loop may be empty."""
        start = self._exact_sum(loop.start, known)
        least = self._list_least(loop.stop)
        stops = [self._exact_sum(stop, known) for stop in least]
        most: list[int] = []
        for stop in stops:
            length = None if start is None or stop is None else _add(stop, start, -1)
            if length is None:
                return None
            most.append(-(-_find_ends(length)[1] // loop.step))
        if start is None or min(most) < 1:
            return None
        self._values.pop(loop.variable.name, None)
        turns = _dense(0, min(most) - 1, frozenset())
        place = _add(start, turns, loop.step)
        inside: _Known | None = {**known, loop.variable.name: place}
        for stop in least:
            if inside is None:
                return None
            inside = self._compare("lt", loop.variable, stop, inside)
        return inside

    def _list_least(self, expression: k.Expression) -> list[k.Expression]:
        """Operands of a nested `min`; the expression itself if it is none."""
        if isinstance(expression, k.Local):
            value = self._values.get(expression.name)
            least = [] if value is None else self._list_least(value)
            return least if len(least) > 1 else [expression]
        if isinstance(expression, k.Operate) and expression.operation.name == "min":
            return [least for o in expression.operands for least in self._list_least(o)]
        return [expression]

    # Reads and writes ---------------------------------------------------------------------

    def _visit(self, expression: k.Expression, known: _Known, statement: k.Statement) -> None:
        """Checks the loads in an expression that is evaluated."""
        match expression:  # The most common cases come first.
            case k.Operate(operation=operation, operands=operands):
                first = operands[0]
                self._visit(first, known, statement)
                inside: _Known | None = known
                if operation.name in ("and", "or") and expression.type == k.BOOL:
                    inside = self._assume(first, known, operation.name == "and")
                if inside is not None:
                    for operand in operands[1:]:
                        self._visit(operand, inside, statement)
            case k.Local() | k.Literal():
                pass
            case k.Load(buffer=name, index=index) | k.LoadLocal(array=name, index=index):
                self._visit(index, known, statement)
                self._check(name, index, expression.type.lanes, known, statement)
            case k.Select(condition=condition, then=then, otherwise=otherwise) if (
                condition.type == k.BOOL
            ):
                self._visit(condition, known, statement)
                for arm, holds in ((then, True), (otherwise, False)):
                    inside = self._assume(condition, known, holds)
                    if inside is not None:
                        self._visit(arm, inside, statement)
            case _:
                for operand in list_operands(expression):
                    self._visit(operand, known, statement)

    def _check(
        self, name: str, index: k.Expression, lanes: int, known: _Known, statement: k.Statement
    ) -> None:
        if name in self._sizes:
            self._check_sum(name, self._sum(index, known), lanes, statement)

    def _check_sum(self, name: str, place: _Sum | None, lanes: int, statement: k.Statement) -> None:
        size = self._sizes.get(name)
        if size is None or place is None:
            return
        low, high = _find_ends(place)
        last = high + lanes - 1
        if high <= self._limits[1] and (low < 0 or last >= size):
            reach = f"elements {low} to {last}" if last > low else f"element {last}"
            self.found.append((statement, f"{reach} of '{name}', which has {size}"))

    # Positions ----------------------------------------------------------------------------

    def _sum(self, expression: k.Expression, known: _Known) -> _Sum | None:
        match expression:
            case k.Literal(type=k.INDEX, value=value):
                return Affine(int(value))
            case k.Local(name=name) | k.Scalar(name=name):
                return known.get(name)
            case k.Position(geometry=geometry):
                return known[geometry.value + "#"]
            case k.Operate(operation=operation, operands=operands, type=k.INDEX):
                return self._apply(operation.name, operands, known)
            case _:
                return None

    def _exact_sum(self, expression: k.Expression, known: _Known) -> _Sum | None:
        """Sum that fits in the index type, so that comparing and dividing it gives the mathematical
        result. (Sums and differences may overflow and come back.)"""
        found = self._sum(expression, known)
        if found is None or meet(ends := _find_ends(found), self._limits) != ends:
            return None
        return found

    def _apply(self, name: str, operands: tuple[k.Expression, ...], known: _Known) -> _Sum | None:
        if name in ("add", "sub", "mul", "neg"):
            given = [self._sum(operand, known) for operand in operands]
            first, second = given[0], given[-1]
            if first is None or second is None:
                return None
            if name in ("add", "sub"):
                return _add(first, second, -1 if name == "sub" else 1)
            return combine(name, [first, second])
        if name not in ("div", "mod", "min", "max"):
            return None
        first, second = (self._exact_sum(operand, known) for operand in operands)
        if first is None or second is None:
            return None
        if name in ("min", "max"):
            return self._limit(name, first, second)
        if second.factors or second.constant < 1 or _find_ends(first)[0] < 0:
            return None
        return self._divide(name, first, second.constant)

    def _limit(self, name: str, first: _Sum, second: _Sum) -> _Sum | None:
        ends = [_find_ends(first), _find_ends(second)]
        least, greatest = ends if name == "min" else ends[::-1]
        if least[1] <= greatest[0]:
            return first
        if greatest[1] <= least[0]:
            return second
        number = first if first.factors else second
        if (first.factors and second.factors) or not _is_dense(number):
            return None
        low, high = combine_ranges(name, ends)
        return _dense(int(low), int(high), _find_origins(number))

    def _divide(self, name: str, number: _Sum, divisor: int) -> _Sum | None:
        """Quotient or remainder of a sum that is not negative."""
        quotient, rest = number.divide(divisor)
        low, high = _find_ends(rest)
        if is_within((low, high), divisor):
            return quotient if name == "div" else rest
        if name == "div":
            least, most = (end // divisor for end in _find_ends(number))
            return _dense(least, most, _find_origins(number)) if _is_dense(number) else None
        if not _is_dense(rest) or high - low < divisor - 1:
            return None
        return _dense(0, divisor - 1, _find_origins(rest))

    # Conditions ---------------------------------------------------------------------------

    def _assume(self, condition: k.Expression, known: _Known, holds: bool = True) -> _Known | None:
        """Known values where a condition is true, or false without `holds`; None if that may be
        nowhere."""
        match condition:
            case k.Literal(value=value):
                return known if bool(value) is holds else None
            case k.Local(name=name) if name in self._values:
                return self._assume(self._values[name], known, holds)
            case k.Operate(operation=operation, operands=operands):
                name = operation.name
            case _:
                return None
        if name == "not":
            return self._assume(operands[0], known, not holds)
        if name == ("and" if holds else "or"):
            first = self._assume(operands[0], known, holds)
            return None if first is None else self._assume(operands[1], first, holds)
        if operands[0].type != k.INDEX:
            return None
        name = name if holds else NEGATED.get(name, "")
        return self._compare(name, operands[0], operands[1], known)

    def _compare(
        self, name: str, left: k.Expression, right: k.Expression, known: _Known
    ) -> _Known | None:
        """Known values where a comparison of two indices is true."""
        first, second = self._exact_sum(left, known), self._exact_sum(right, known)
        if first is None or second is None or name not in DIFFERENCES:
            return None
        difference = _add(first, second, -1)
        if difference is None:
            return None
        ends = _find_ends(difference)
        low, high = meet(ends, DIFFERENCES[name])
        if (low, high) == ends:
            return known
        if low > high or not _is_dense(difference):
            return None
        narrowed = _dense(int(low), int(high), _find_origins(difference))
        return {
            name: _replace(number, difference, narrowed) if number and number.factors else number
            for name, number in known.items()
        }


def _replace(number: _Sum, old: _Sum, new: _Sum) -> _Sum | None:
    """Sum in which `new` replaces the multiple of `old`; the same sum if it shares no root with
    `old`, and None if it shares roots other than by that multiple."""
    shared = _find_origins(old)
    if shared.isdisjoint(_find_origins(number)):
        return number
    root, factor = old.factors[0]
    times, left = divmod(number.factor(root), factor)
    rest = None if left or not times else _add(number, old, -times)
    if rest is None or not shared.isdisjoint(_find_origins(rest)):
        return None
    return _add(rest, new, times)
