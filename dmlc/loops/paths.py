"""Nodes of a nest, each with its enclosing nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlc.loops.nodes import Loop, Node, Numbers, Turns, inside

Path = tuple[Node, ...]
"""A node after its enclosing nodes, outermost first."""


def list_paths(nodes: Sequence[Node], around: Path = ()) -> Iterator[Path]:
    """Nodes and their descendants, each with its enclosing nodes."""
    for node in nodes:
        path = (*around, node)
        yield path
        yield from list_paths(inside(node), path)


def excludes(first: Path, second: Path) -> bool:
    """Whether two points are in different branches, or process different ranges."""
    pairs = enumerate(zip(first, second, strict=False))
    place = next((n for n, (a, b) in pairs if a is not b), None)
    if place is None:
        return False
    own, other = first[place], second[place]
    cases: tuple[tuple[Node, ...], ...] = ()
    match first[place - 1] if place else None:
        case Numbers() as node:
            cases = (node.body, node.others)
        case Turns() as node:
            cases = (*node.cases, node.others)
        case _:
            before, after = (
                {n.dim: n.part for n in path[place:] if isinstance(n, Loop) and n.part}
                for path in (first, second)
            )
            return any(before[dim][1] <= after[dim][0] for dim in before.keys() & after.keys())
    return not any({id(own), id(other)} <= set(map(id, case)) for case in cases)
