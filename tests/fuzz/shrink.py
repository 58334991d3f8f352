"""Cuts a failing case down: fewer outputs, smaller formulas, smaller sizes, plainer data.

Hypothesis draws the cases. It would shrink them too, by drawing thousands of others; a tree can be
cut where it stands, which takes tens of builds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from dmlc.scalars import DataType as T
from tests.fuzz.trees import Apply, Cast, Choose, Fold, Name, Node, Number, Read, Reduce, walk


class Shrinks(Protocol):
    """What can be cut down: it gives smaller ones of itself, the smallest first."""

    def smaller(self) -> Iterator[Shrinks]: ...


C = TypeVar("C", bound=Shrinks)


def shrink(case: C, fails: Callable[[C], bool], seconds: float = 60.0) -> C:
    """The smallest case found that still fails."""
    end = time.monotonic() + seconds
    going = True
    while going:
        going = False
        for other in case.smaller():
            if time.monotonic() > end:
                return case
            if fails(other):
                case, going = other, True
                break
    return case


def smaller_trees(node: Node) -> Iterator[Node]:
    """Trees of the same type with less in them: a part in its place, or a part made smaller."""
    below = [n for n in walk(node) if n is not node]
    for part in reversed(below):
        if part.dtype is node.dtype and not _bound(node, part):
            yield part
    if not isinstance(node, Number | Name) and node.dtype not in (T.BOOL, T.INDEX):
        yield Number(node.dtype, 1.0 if node.dtype.is_float else 1)
    match node:
        case Apply():
            for at, operand in enumerate(node.operands):
                for other in smaller_trees(operand):
                    given = (*node.operands[:at], other, *node.operands[at + 1 :])
                    yield dataclasses.replace(node, operands=given)
        case Cast() | Fold():
            for other in smaller_trees(node.operand):
                yield dataclasses.replace(node, operand=other)
        case Choose():
            for name in ("condition", "then", "otherwise"):
                for other in smaller_trees(getattr(node, name)):
                    yield dataclasses.replace(node, **{name: other})
        case Read():
            for at, position in enumerate(node.positions):
                for other in smaller_trees(position):
                    given = (*node.positions[:at], other, *node.positions[at + 1 :])
                    yield dataclasses.replace(node, positions=given)
            if node.otherwise is not None:
                for other in smaller_trees(node.otherwise):
                    yield dataclasses.replace(node, otherwise=other)
        case Reduce():
            if node.condition is not None:
                yield dataclasses.replace(node, condition=None)
                for other in smaller_trees(node.condition):
                    yield dataclasses.replace(node, condition=other)
            for other in smaller_trees(node.body):
                yield dataclasses.replace(node, body=other)
            for at, (name, extent) in enumerate(node.variables):
                for less in {1, extent // 2, extent - 1}:
                    if 0 < less < extent:
                        made = (*node.variables[:at], (name, less), *node.variables[at + 1 :])
                        yield dataclasses.replace(node, variables=made)
        case _:
            pass


def _bound(node: Node, part: Node) -> bool:
    """Whether a part needs an index variable that its parents bind."""
    inner = [n for n in walk(node) if isinstance(n, Reduce)]
    names = {name for r in inner for name, _ in r.variables}
    return bool(names) and any(getattr(n, "name", None) in names for n in walk(part))
