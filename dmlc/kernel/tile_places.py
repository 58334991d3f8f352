"""Simplifies quotients and remainders in loops that fill shared tiles.

Points of a tile are numbered from the tile's first index. If that is a multiple of 16 and the tile
has 16 points, all have the same quotient by 64, and their remainders differ as the points do. A
tile of a convolution's windows then has one window position, and one bounds check, for all of its
channels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.index.affine import Affine
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate
from dmlc.kernel.rewrite import find_body, map_expressions, map_operands, replace_body
from dmlc.kernel.sums import Sum, add_up, express


@dataclasses.dataclass(frozen=True, slots=True)
class _Range:
    """Interval of an index, and a number that divides it."""

    low: int
    high: int
    unit: int


def settle_places(kernel: k.Kernel) -> k.Kernel:
    """Kernel with fewer quotients where work groups fill tiles."""
    launch = kernel.launch
    count = launch.count if isinstance(launch.count, int) else None
    groups = None if count is None else _Range(0, -(-count // launch.per_group) - 1, 1)
    ranges = {k.Geometry.LANE: _Range(0, launch.group_size - 1, 1), k.Geometry.GROUP: groups}
    return dataclasses.replace(kernel, body=_Places(ranges).write(kernel.body, {}, {}, False))


class _Places:
    def __init__(self, geometry: Mapping[k.Geometry, _Range | None]) -> None:
        self._geometry = geometry

    def write(
        self, statements: Sequence[k.Statement], sums: Mapping[str, Sum],
        ranges: Mapping[str, _Range], fills: bool,
    ) -> tuple[k.Statement, ...]:  # fmt: skip
        """Statements with simplified quotients if they are in a loop that `fills` tiles."""
        known, bounds, made = dict(sums), dict(ranges), list[k.Statement]()

        def change(expression: k.Expression) -> k.Expression:
            one = map_operands(expression, change)
            match one:
                case k.Operate(
                    operation=operation, operands=(left, k.Literal(value=by)), type=k.INDEX
                ) if operation.name in ("div", "mod"):
                    settled = self._part(left, int(by), known, bounds)
                    return one if settled is None else settled[operation.name == "mod"]
                case _:
                    return one

        for statement in statements:
            changed = map_expressions(statement, change) if fills else statement
            inside = bounds
            match changed:
                case k.Let(local=k.Local(name=name, type=k.INDEX), value=value):
                    whole = add_up(value, known)
                    if value not in whole.terms:
                        known[name] = whole
                    found = self._measure(value, bounds)
                    if found is not None:
                        bounds[name] = found
                case k.For(
                    variable=variable, start=k.Literal(value=start), stop=k.Literal(value=stop),
                    step=step,
                ) if stop > start >= 0:  # fmt: skip
                    own = _Range(int(start), int(stop) - 1, math.gcd(int(start), step))
                    inside = {**bounds, variable.name: own}
                case _:
                    pass
            body = find_body(changed)
            if body:
                starts = isinstance(changed, k.For) and k.Barrier() in body
                changed = replace_body(changed, self.write(body, known, inside, fills or starts))
            made.append(changed)
        return tuple(made)

    def _part(
        self, left: k.Expression, by: int, known: Mapping[str, Sum], ranges: Mapping[str, _Range]
    ) -> tuple[k.Expression, k.Expression] | None:
        """Quotient and remainder of an index, computed from those of its terms; None if that gains
        nothing."""
        place = add_up(left, known)
        if by < 2 or place.constant < 0:
            return None
        units: dict[k.Expression, int] = {}
        highs: dict[k.Expression, int] = {}
        for term, step in place.factors:
            own = self._measure(term, ranges)
            if own is None or own.low < 0 or step < 0:
                return None
            units[term], highs[term] = step * own.unit, step * own.high
        even, rest = place.part(lambda term: units[term] % by == 0)
        quotients = [
            operate("div", multiply(term, step), index(by)) if step % by
            else multiply(term, step // by)
            for term, step in even.factors
        ]  # fmt: skip
        whole = express(rest)
        if rest.constant + sum(highs[term] for term in rest.terms) < by:
            return add(*quotients), whole
        for unit in sorted({math.gcd(units[t], by) for t in rest.terms} - {1}, reverse=True):
            near, far = rest.part(lambda term, unit=unit: units[term] % unit != 0)
            small = rest.constant % unit
            if small + sum(highs[term] for term in near.terms) >= unit:
                continue
            if not (near.factors or small):
                continue
            whole = express(far.plus(Affine(-small)))
            remainder = operate("mod", whole, index(by))
            remainder = add(remainder, express(near.plus(Affine(small))))
            return add(*quotients, operate("div", whole, index(by))), remainder
        if not even.factors:
            return None
        quotient, remainder = (operate(name, whole, index(by)) for name in ("div", "mod"))
        return add(*quotients, quotient), remainder

    def _measure(self, value: k.Expression, ranges: Mapping[str, _Range]) -> _Range | None:
        """Range of an index; None if unknown."""
        match value:
            case k.Literal(value=number):
                return _Range(int(number), int(number), abs(int(number)))
            case k.Local(name=name):
                return ranges.get(name)
            case k.Position(geometry=geometry):
                return self._geometry.get(geometry)
            case k.Operate(operation=operation, operands=(left, right), type=k.INDEX):
                name = operation.name
            case _:
                return None
        first, second = self._measure(left, ranges), self._measure(right, ranges)
        if first is None or second is None:
            return None
        if name == "add":
            unit = math.gcd(first.unit, second.unit)
            return _Range(first.low + second.low, first.high + second.high, unit)
        number = second.high
        if second.low != number or number < 1 or first.low < 0:
            return None
        if name == "mul":
            return _Range(first.low * number, first.high * number, first.unit * number)
        if name == "div":
            unit = 1 if first.unit % number else first.unit // number
            return _Range(first.low // number, first.high // number, unit)
        if name == "mod":
            return _Range(0, min(first.high, number - 1), math.gcd(first.unit, number))
        return None
