"""What stands under the conditions of a fold's guard: the reads that these protect, and the rest.

A condition of the guard is tested as soon as what it depends on is known, before all other values
of its scope. How the points are walked is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.element import Elements, list_needed
from dmlc.kernel.emit import Emitter, Position
from dmlc.scalars import OPERATIONS


def open_scope(
    emitter: Emitter, level: int, position: Position, lanes: int = 1
) -> list[k.Statement]:
    """The values of a scope that have not been written yet."""
    return emitter.lets(level, position, lanes, around=True, rest=True)


def enter(
    elements: Elements,
    emitter: Emitter,
    level: int,
    position: Position,
    conditions: Sequence[int],
    inside: Callable[[], list[k.Statement]],
    lanes: int = 1,
) -> list[k.Statement]:
    """The values of a scope and what is inside, where some conditions hold. Each condition comes
    right after the values it needs, and before all others; it is the same in all lanes."""
    if not conditions:
        return open_scope(emitter, level, position, lanes) + inside()
    first, *others = conditions
    before = emitter.lets(level, position, only=list_needed(elements, first))
    condition = emitter.value(first)
    then = enter(elements, emitter, level, position, others, inside, lanes)
    match then:
        case [k.If(condition=second, then=innermost)] if others:
            both = k.Operate(OPERATIONS["and"], (condition, second), k.BOOL)
            return [*before, k.If(both, innermost)]
        case _:
            return [*before, k.If(condition, tuple(then))]
