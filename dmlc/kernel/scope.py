"""What is known at a place of a kernel in the making, and what a schedule tree says of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.accumulators import Accumulators
from dmlc.kernel.element import View
from dmlc.kernel.emit import Emitter, index
from dmlc.kernel.lanes import Lanes
from dmlc.kernel.schedule.nest import (
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Point,
    Reduce,
    Turns,
    inside,
    list_loops,
    list_phases,
    walk,
)
from dmlc.kernel.streaming import Streams
from dmlc.scalars import OPERATIONS

ZERO = index(0)


class Half(enum.Enum):
    """What is written of a reduction whose two ends lie apart."""

    MAKE = "make"
    END = "end"


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What is known in the body of a loop."""

    depth: int = 0
    """The loops around."""
    lanes: int = 1
    starts: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Where the range starts that the loops inside walk; elsewhere it is 0."""
    stops: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Where it ends; elsewhere that is the end of the dimension."""
    known: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """The point along each dimension that is settled."""
    loose: frozenset[Dim] = frozenset()
    """The dimensions whose range may go beyond their end."""
    output: k.Expression = ZERO
    """Which output of a block it is."""
    bases: Mapping[int, tuple[frozenset[Dim], Mapping[View, k.Expression]]] = dataclasses.field(
        default_factory=dict[int, "tuple[frozenset[Dim], Mapping[View, k.Expression]]"]
    )
    """Of phases what positions come to that are known along some dimensions."""
    opened: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    """For each phase the innermost scope whose values are written."""
    emitters: Mapping[int, Emitter] = dataclasses.field(default_factory=dict[int, Emitter])
    """In place of those of whole phases."""
    together: Lanes | None = None
    """How the lanes of a vector go together, where they do not lie side by side."""
    conditions: Mapping[int, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[int, ...]]
    )
    """The conditions of each reduction that are still to be tested."""
    states: Mapping[int, Accumulators] = dataclasses.field(default_factory=dict[int, Accumulators])
    used: frozenset[str] = frozenset()
    """The axes of the work items that loops around have taken."""
    half: Half | None = None
    """Which end is written of reductions whose ends lie apart."""
    is_own: k.Expression | None = None
    """Whether what is computed is this work item's to store; None where all is."""
    streams: Mapping[int, Streams] = dataclasses.field(default_factory=dict[int, Streams])
    packs: Mapping[str, tuple[k.Local | str, k.Expression]] = dataclasses.field(
        default_factory=dict[str, "tuple[k.Local | str, k.Expression]"]
    )
    """What is put together of what is stored: the word or array of each buffer, and the number of
    the element in it."""


Inside: TypeAlias = Callable[[Scope], list[k.Statement]]
"""The statements inside others, from what is known there."""


def has_flush(node: Reduce) -> bool:
    """Whether a part of a reduction is made in arrays of its own."""
    return any(isinstance(n, Reduce) and n.array for n in walk(node.body))


def find_shared(node: Reduce) -> list[str]:
    """The axes along which work items share what they reduce."""
    loops = [n for n in walk(node.body) if isinstance(n, Loop) and n.kind is Kind.LANE]
    return [loop.name for loop in loops if loop.extent > 1]


def roll(nodes: Sequence[Node], dim: Dim) -> tuple[Node, ...]:
    """The same with one step of the written out loops over a dimension."""
    made: list[Node] = []
    for node in nodes:
        if not isinstance(node, Loop | Reduce | Pack):
            made.append(node)
            continue
        node = dataclasses.replace(node, body=roll(node.body, dim))
        if isinstance(node, Pack) and node.dim is dim:
            made += node.body
            continue
        if isinstance(node, Loop) and node.dim is dim and node.extent:
            node = dataclasses.replace(node, extent=1)
        made.append(node)
    return tuple(made)


def find_path(nodes: Sequence[Node], number: int) -> tuple[Node, ...]:
    """The nodes around a phase's point, outermost first."""
    for node in nodes:
        if isinstance(node, Point):
            if node.phase == number:
                return (node,)
            continue
        found = find_path(inside(node), number)
        if found:
            return (node, *found)
    return ()


def find_levels(dims: Sequence[Dim], path: Sequence[Node]) -> dict[Dim, int]:
    """How many loops are around where a point of each dimension is settled."""
    levels = dict.fromkeys(dims, 0)

    def settle(dim: Dim, level: int) -> None:
        levels[dim] = max(level, levels.get(dim, 0))
        for part, _ in dim.parts:
            settle(part, level)

    around = 0
    for node in path:
        if isinstance(node, Loop):
            around += 1
            settle(node.dim, around)
        elif isinstance(node, Turns):
            settle(node.turn, around)
    return levels


def find_terms(nest: Nest, number: int) -> dict[View, tuple[tuple[Dim, int], ...]]:
    """For each view of a phase the dimensions it moves along, each with its stride. Along merged
    dimensions that it walks as one it moves along these."""
    phase, dims = nest.phases[number], nest.dims[number]
    merged = dict.fromkeys(
        n.dim
        for n in walk(nest.body)
        if isinstance(n, Loop) and len(n.dim.parts) > 1 and number in list_phases(n)
    )
    terms: dict[View, tuple[tuple[Dim, int], ...]] = {}
    for view, strides in phase.space.walk.strides.items():
        steps = {dim: step for dim, step in zip(dims, strides, strict=True) if step}
        for whole in merged:
            parts = [part for part, _ in whole.parts]
            if any(step != 1 for _, step in whole.parts) or not set(parts) <= set(dims):
                continue
            if any(list_loops(nest.body, part) for part in parts):
                continue
            sizes = tuple(p.size for p in parts if isinstance(p.size, int))
            own = tuple(steps.get(part, 0) for part in parts)
            if own == ir.packed_strides(sizes) and not view.near:
                steps = {d: s for d, s in steps.items() if d not in parts} | {whole: 1}
        terms[view] = tuple(steps.items())
    return terms


def known_number(place: k.Expression) -> int | None:
    """A position that is known as it is written."""
    return int(place.value) if isinstance(place, k.Literal) else None


def count_steps(dim: Dim, step: int) -> int:
    return -(-dim.size // step) if isinstance(dim.size, int) else 0


def both(first: k.Expression, second: k.Expression) -> k.Expression:
    return k.Operate(OPERATIONS["and"], (first, second), k.BOOL)


def guard(
    conditions: Sequence[k.Expression], statements: Sequence[k.Statement]
) -> list[k.Statement]:
    """The statements where all conditions hold."""
    if not conditions or not statements:
        return list(statements)
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = both(whole, condition)
    return [k.If(whole, tuple(statements))]
