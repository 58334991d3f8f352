"""Loop fusion: merges the loops of two statement lists that have equal bounds.

The caller ensures that the order of the two does not matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import index, operate
from dmlc.kernel.rewrite import substitute

_Part: TypeAlias = "tuple[list[k.Statement], k.For]"


def fuse_loops(
    first: Sequence[k.Statement], second: Sequence[k.Statement]
) -> list[k.Statement] | None:
    """Statements of both lists, each in its order; corresponding loops are merged over the second's
    variable.

    None if the loops do not correspond.
    """
    ours, our_end = _split_at_loops(first)
    theirs, their_end = _split_at_loops(second)
    if len(ours) != len(theirs):
        return None
    made: list[k.Statement] = []
    for (before, loop), (their_before, their_loop) in zip(ours, theirs, strict=True):
        both = _join(loop, their_loop)
        if both is None:
            return None
        made += [*before, *their_before, both]
    return [*made, *our_end, *their_end]


def _split_at_loops(statements: Sequence[k.Statement]) -> tuple[list[_Part], list[k.Statement]]:
    """Each loop with the statements before it, and the statements after the last loop."""
    parts: list[_Part] = []
    before: list[k.Statement] = []
    for statement in statements:
        if isinstance(statement, k.For):
            parts.append((before, statement))
            before = []
        else:
            before.append(statement)
    return parts, before


def _join(first: k.For, second: k.For) -> k.For | None:
    """Merged loop over the second's variable; None if the bounds differ."""
    bounds = (first.start, first.stop, first.step)
    if bounds != (second.start, second.stop, second.step) or second.backwards:
        return None
    variable = second.variable
    if first.backwards:
        if not isinstance(first.start, k.Literal) or not isinstance(first.stop, k.Literal):
            return None
        ends = index(int(first.start.value) + int(first.stop.value) - 1)
        body = (k.Let(first.variable, operate("sub", ends, variable)), *first.body)
    else:
        body = tuple(substitute(s, first.variable, variable) for s in first.body)
    both = fuse_loops(body, second.body)
    return None if both is None else dataclasses.replace(second, body=tuple(both))
