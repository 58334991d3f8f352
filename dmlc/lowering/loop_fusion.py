"""Runs two loop nests at once: loops of equal bounds become one, with both bodies.

What the nests do must not depend on which comes first; that is the caller's to know.
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
    """The statements of both, in the order of each; a loop of the first and the one of the second
    that has its place become one, which runs as the second's does.

    None where the loops do not pair up.
    """
    ours, our_end = _part(first)
    theirs, their_end = _part(second)
    if len(ours) != len(theirs):
        return None
    made: list[k.Statement] = []
    for (before, loop), (their_before, their_loop) in zip(ours, theirs, strict=True):
        both = _join(loop, their_loop)
        if both is None:
            return None
        made += [*before, *their_before, both]
    return [*made, *our_end, *their_end]


def _part(statements: Sequence[k.Statement]) -> tuple[list[_Part], list[k.Statement]]:
    """Each loop with the statements before it, and the statements after the last."""
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
    """One loop, over the second's variable."""
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
