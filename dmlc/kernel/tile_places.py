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
from dmlc.index.intervals import Bound
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate
from dmlc.kernel.reaches import Reaches
from dmlc.kernel.rewrite import map_body, map_expressions, map_operands
from dmlc.kernel.sums import Sum, add_up, express, find_remainder, note


def settle_places(kernel: k.Kernel) -> k.Kernel:
    """Kernel with fewer quotients where work groups fill tiles."""
    body = _write(kernel.body, {}, {}, Reaches(kernel), fills=False)
    return dataclasses.replace(kernel, body=body)


def _write(
    statements: Sequence[k.Statement], sums: Mapping[str, Sum], origins: Mapping[str, Sum],
    around: Reaches, *, fills: bool,
) -> tuple[k.Statement, ...]:  # fmt: skip
    """Statements with simplified quotients if they are in a loop that `fills` tiles. `sums` are
    those of the locals in sight, `origins` also expand loop variables (`note`), and `around` has
    the intervals."""
    known, origins, reaches = dict(sums), dict(origins), around.copy()
    made: list[k.Statement] = []

    def change(expression: k.Expression) -> k.Expression:
        one = map_operands(expression, change)
        match one:
            case k.Operate(
                operation=operation, operands=(left, k.Literal(value=by)), type=k.INDEX
            ) if operation.name in ("div", "mod"):
                settled = _divide(left, int(by), known, origins, reaches)
                return one if settled is None else settled[operation.name == "mod"]
            case _:
                return one

    for statement in statements:
        changed = map_expressions(statement, change) if fills else statement
        match changed:
            case k.Let(local=k.Local(name=name, type=k.INDEX) as local, value=value):
                whole = add_up(value, known)
                if value not in whole.terms:
                    known[name] = whole
                reaches.note(local, value)
            case k.For():
                reaches.note_turns(changed)
            case _:
                pass
        note(changed, origins)
        inside = fills or (isinstance(changed, k.For) and k.Barrier() in changed.body)
        made.append(map_body(changed, _write, known, origins, reaches, fills=inside))
    return tuple(made)


def _divide(
    left: k.Expression, by: int, known: Mapping[str, Sum], origins: Mapping[str, Sum],
    reaches: Reaches,
) -> tuple[k.Expression, k.Expression] | None:  # fmt: skip
    """Quotient and remainder of an index, computed from those of its terms; None if that gains
    nothing."""
    place = add_up(left, known)
    if by < 2 or place.constant < 0:
        return None
    divisors: dict[k.Expression, int] = {}
    highs: dict[k.Expression, Bound] = {}
    for term, step in place.factors:
        low, high = reaches.find(term)
        if low < 0 or step < 0 or math.isinf(high):
            return None
        whole = add_up(term, origins).times(step)
        divisors[term], highs[term] = _find_unit(whole, by, origins), step * high
    even, rest = place.part(lambda term: divisors[term] == by)
    quotients = [
        operate("div", multiply(term, step), index(by)) if step % by
        else multiply(term, step // by)
        for term, step in even.factors
    ]  # fmt: skip
    whole = express(rest)
    if rest.constant + sum(highs[term] for term in rest.terms) < by:
        return add(*quotients), whole
    for unit in sorted({divisors[t] for t in rest.terms} - {1}, reverse=True):
        near, far = rest.part(lambda term, unit=unit: divisors[term] % unit != 0)
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


def _find_unit(place: Sum, by: int, origins: Mapping[str, Sum]) -> int:
    """Largest divisor of a number that always divides an index."""
    units = (unit for unit in range(by, 0, -1) if by % unit == 0)
    return next(unit for unit in units if find_remainder(place, unit, origins) == 0)
