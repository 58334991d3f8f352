"""Partitioning of a graph into groups that are computed together.

The nodes that stay with eager divide a graph into phases: a mapped node that needs no result of
eager is in the first; one that needs a result made after the first phase is in the second, and so
on. All nodes of a phase can be computed together, so that no group waits for itself. A node then
moves to the phase of its readers, if fewer bytes are kept in memory; and a phase is split into
groups that share nothing. Views go with their readers."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch.fx import Graph, Node

from dmlc.torch.groups import find_reason, is_creation, is_view, tensors_of, value_of

FEW_NODES = 3
LEAST_ELEMENTS = 1024
"""A group of `FEW_NODES` or less over fewer elements stays with eager: calling it costs more than
it saves."""

LARGE_BYTES = 1 << 16
"""Nodes that read the same tensor of at least this size are computed together, to read it once; and
so are all of a phase that see smaller ones only, for one call."""


class Partition:
    """Partition of a graph's nodes. Groups of a few operators over fewer than `least` elements stay
    with eager, and so do products of more than `most_work` multiply-adds, if that is given."""

    def __init__(self, graph: Graph, least: int, most_work: int | None = None) -> None:
        self._graph = graph
        self._most_work = most_work
        self.reasons: dict[Node, str] = {}
        """Why a node stays with eager, by node."""
        self._computed = self._find_computed()
        self.phases: dict[Node, int] = {}
        self._set_phases()
        self._sink()
        self.groups: list[list[Node]] = self._collect(least)
        """The nodes of each group, in order."""

    def _find_computed(self) -> dict[Node, None]:
        found: dict[Node, None] = {}
        self.views: dict[Node, None] = {}
        unmapped: dict[Node, str] = {}
        for node in self._graph.nodes:
            if node.op != "call_function" or not tensors_of(node):
                continue
            reason = find_reason(node, unmapped, self._most_work)
            if reason is not None:
                unmapped[node] = reason
                if node.target is not operator.getitem:
                    self.reasons[node] = reason
            elif is_view(node) or is_creation(node):
                self.views[node] = None
            else:
                found[node] = None
        return found

    def roots(self, node: Node) -> list[Node]:
        """Nodes that a node reads, through views, in order, whether groups or eager compute
        them."""
        found: dict[Node, None] = {}
        pending = list(reversed(node.all_input_nodes))
        seen: dict[Node, None] = {}
        while pending:
            current = pending.pop()
            if current in seen or not tensors_of(current):
                continue
            seen[current] = None
            if current in self.views:
                if not is_creation(current):
                    pending += reversed(current.all_input_nodes)
            else:
                found[current] = None
        return list(found)

    def _set_phases(self) -> None:
        """Assigns each node to the first possible phase. Nodes of eager come after the groups of
        their phase; those that draw random numbers or write in place keep their order."""
        ordered = 0
        self._roots: dict[Node, list[Node]] = {}
        self._readers: dict[Node, list[Node]] = {}
        for node in self._graph.nodes:
            if node in self.views or node.op == "output":
                continue
            roots = self._roots[node] = self.roots(node)
            for root in roots:
                self._readers.setdefault(root, []).append(node)
            if node.op in ("placeholder", "get_attr"):
                self.phases[node] = -1
                continue
            later = 1 if node in self._computed else 0
            phase = max(
                (self.phases[r] + (later if r not in self._computed else 0) for r in roots),
                default=0,
            )
            phase = max(phase, 0)
            if node not in self._computed and node.is_impure():
                phase = ordered = max(phase, ordered)
            self.phases[node] = phase
        (output,) = (n for n in self._graph.nodes if n.op == "output")
        self._returned = dict.fromkeys(self.roots(output))

    def _is_kept(self, node: Node, phase: int) -> bool:
        """Whether a node's result is in memory even if `phase` does not read it."""
        if node not in self._computed or node in self._returned:
            return True
        own = self.phases[node]
        others = (r for r in self._readers.get(node, ()))
        return any(
            r not in self._computed or (self.phases[r] != own and self.phases[r] != phase)
            for r in others
        )

    def _sink(self) -> None:
        """Moves nodes to the phase of their readers if that keeps fewer bytes in memory."""
        for node in reversed(list(self._computed)):
            readers = self._readers.get(node, [])
            target = min((self.phases[r] for r in readers), default=0)
            if target <= self.phases[node] or isinstance(value_of(node), (tuple, list)):
                continue
            if node.target is operator.getitem:
                continue
            alone = node not in self._returned and all(
                r in self._computed and self.phases[r] == target for r in readers
            )
            gained = _bytes_of(node) if alone else 0
            paid = sum(
                _bytes_of(root)
                for root in self._roots[node]
                if root in self._computed
                and self.phases[root] < target
                and not self._is_kept(root, target)
            )
            if alone and paid <= gained:
                self.phases[node] = target

    def _collect(self, least: int) -> list[list[Node]]:
        """Groups: nodes of a phase that read each other, or the same large tensor; and all small
        ones."""
        parents: dict[Node, Node] = {}

        def find(node: Node) -> Node:
            while parents.setdefault(node, node) is not node:
                node = parents[node]
            return node

        shared: dict[tuple[Node, int], Node] = {}
        for node in self._computed:
            phase = self.phases[node]
            for root in self._roots[node]:
                if root in self._computed and self.phases[root] == phase:
                    parents[find(node)] = find(root)
                elif _bytes_of(root) >= LARGE_BYTES:
                    parents[find(node)] = find(shared.setdefault((root, phase), node))
        large: dict[Node, None] = {}
        for node in self._computed:
            if max(map(_bytes_of, (node, *self._roots[node]))) >= LARGE_BYTES:
                large[find(node)] = None
        small: dict[int, Node] = {}
        for node in self._computed:
            if find(node) not in large:
                parents[find(node)] = find(small.setdefault(self.phases[node], node))
        found: dict[Node, list[Node]] = {}
        for node in self._computed:
            found.setdefault(find(node), []).append(node)
        groups: list[list[Node]] = []
        for members in found.values():
            seen = (n for member in members for n in (member, *self._roots[member]))
            if len(members) <= FEW_NODES and _elements_of(seen) < least:
                why = "these are few operators over few elements"
                self.reasons.update(dict.fromkeys(members, why))
            else:
                groups.append(members)
        return sorted(groups, key=lambda members: self.phases[members[0]])

    def outputs(self, members: Iterable[Node]) -> list[Node]:
        """Nodes of a group that are read elsewhere."""
        inside = dict.fromkeys(members)
        return [
            node
            for node in inside
            if not isinstance(value_of(node), (tuple, list))
            and (
                node in self._returned
                or any(reader not in inside for reader in self._readers.get(node, ()))
            )
        ]


def _bytes_of(node: Node) -> int:
    return sum(t.numel() * t.element_size() for t in tensors_of(node))


def _elements_of(nodes: Iterable[Node]) -> int:
    return max((t.numel() for node in nodes for t in tensors_of(node)), default=0)
