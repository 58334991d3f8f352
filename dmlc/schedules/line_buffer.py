"""Schedules for CPUs of reductions that other reductions reduce row by row: numbers for the
primitive `line_buffer`."""

from __future__ import annotations

from dmlc.loops.line_buffer import LineBuffer, has_lines
from dmlc.loops.nodes import Nest
from dmlc.schedules.rule import Work

_ROWS_AT_ONCE = 4
"""Largest number of rows computed before they are reduced, as loads of recent stores must wait,
unless each has the elements of one store."""

_MOST_AT_ONCE = 4096
"""Largest number of elements of the line buffers, if there are several."""


def choose_line_buffer(work: Work) -> Nest | None:
    """Nest of phases with a line buffer; None for others."""
    if not has_lines(work.phases):
        return None
    rule, p = work.begin(), work.profile
    made = LineBuffer(work.function, work.phases, p.lanes)
    run = max(1, min(p.per_item // max(1, made.work), -(-made.count // p.groups)))
    at_once = 1
    if made.is_permuted:
        most = min(run, _ROWS_AT_ONCE, max(1, _MOST_AT_ONCE // made.pitch))
        at_once = max(n for n in range(1, most + 1) if made.count % n == 0)
    run = run // at_once * at_once
    rule.do("line_buffer", run, at_once, p.lanes)
    outputs = f"{made.size:,} output{'' if made.size == 1 else 's'}"
    rows = f"a row of {outputs}" if run == 1 else f"{run:,} rows of {outputs}"
    return rule.finish(f"each computes {rows}")
