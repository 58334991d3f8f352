"""Fusion: decides which stages are stored, and groups stages into kernels.

Element-wise stages, results included, are recomputed where they are read, unless that costs more
than storing them (`cost`) or makes a kernel too large (`inline`). `grouping` groups the rest, and
`traffic` counts the bytes moved. Reasons for both decisions are made here. A 16-bit stage that is
not stored is still rounded (`storage`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.ir import Extent, Function, Parameter, Result, Stage, Table
from dmlc.parameters import expect
from dmlc.sizes import find_symbols
from dmlc.transform.cost import Budget, decide_stored
from dmlc.transform.grouping import Grouping, Plain, group_apart, group_stages
from dmlc.transform.inline import Attempts, Drawn, inline_producers
from dmlc.transform.online import (
    Online,
    OnlineGroup,
    describe,
    find_online,
    free_weights,
    may_be_online,
)
from dmlc.transform.orders import Order, find_orders
from dmlc.transform.passes import Crossed, Draft, Pass, list_read_back
from dmlc.transform.recentre import reduce_in_pieces
from dmlc.transform.recompute import recompute
from dmlc.transform.simplify import replace_stages, simplify_stage
from dmlc.transform.stepwise import reduce_stepwise
from dmlc.transform.storage import carry_rounding, read_results, store_rounded
from dmlc.transform.traffic import Move, add_moves, list_moves, total

_USUAL = Budget()

_FEW, _LONG = 4, 1 << 20
"""Assumed number of rows of run-time size if they are few, and of their elements."""

_SHOWN = 4
"""Largest number of tensors named in a reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Stages of one kernel, with the clauses of a sentence that gives the reason.

    If some are reductions, `passes` is the order in which they run over the `parallel` points;
    schedules may still split the group into several kernels if there are too few points to
    distribute.
    """

    stages: tuple[str, ...]
    reasons: tuple[str, ...]
    parallel: tuple[Extent, ...] = ()
    passes: tuple[Pass, ...] = ()
    inlined: tuple[str, ...] = ()
    """Stages that are computed where these read them, and not stored."""
    local: tuple[str, ...] = ()
    """Stages of the group that are not stored, as no other group reads them."""
    row: str | None = None
    """The first stage, if it is a reduction that only the second reads, along its last axis: a
    kernel then keeps one row of it at a time."""
    crossed: Crossed | None = None
    """Group of the reductions that some of its passes do `across`."""
    orders: tuple[Order, ...] = ()
    """Orders of its reductions that are not plain: that of a kernel which scans or sorts rows, or
    of any that a work item adds point by point."""
    online: Online | None = None
    """Softmax-weighted sums that the kernel computes online, if it does."""
    pieces: Fusion | None = None
    """The same stages for long rows of run-time size, with reductions taken in pieces; None if they
    are not (see `recentre`)."""

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)

    @property
    def is_plain(self) -> bool:
        """Whether loops over the points of each element are all that its kernels have."""
        return self.row is None and self.crossed is None and not self.orders


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without its inlined stages, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]
    unfused: Function
    """The function with all stages, and 16-bit roundings written out."""

    def traffic(self, group: Group) -> tuple[int, int] | None:
        """Bytes that a group reads and writes; None if a size is known at run time only."""
        return total(self.list_moves(group))

    def list_moves(self, group: Group) -> tuple[Move, ...]:
        """Bytes that a group reads and writes, by tensor. A tensor that several passes read counts
        once for each; a reduction that only the group reads takes no memory."""
        passes = [[m.stage for m in (*p.members, *p.across)] for p in group.passes]
        derived = () if group.crossed is None else group.crossed.passes[1:]
        passes += [[m.stage for m in p.members] for p in derived]
        passes = passes or [list(group.stages)]
        moves: list[Move] = []
        for members in passes:
            others = [n for n in group.stages if n not in members]
            moves += list_moves(self.function, members, {*group.local, *others})
        return add_moves(moves)


def fuse(function: Function, longest_row: int = 0, budget: Budget = _USUAL) -> Fusion:
    """Inlines stages that need no memory, and groups the rest into kernels.

    A reduction whose only reader reduces it along its last axis, of at most `longest_row` elements,
    is computed row by row in the reader's kernel. `budget` decides what is stored rather than
    recomputed, and how large kernels get.

    `in_place` pairs are dropped if a later kernel reads the parameter. Linear in the function's
    size.
    """
    function = carry_rounding(expect("function", function, Function, "an ir.Function"))
    if budget.held:
        function = reduce_stepwise(function)
    function = reduce_in_pieces(recompute(function, budget), budget)
    drawn, grouping = _group(function, longest_row, budget)
    return _assemble(function, drawn, grouping, budget)


def add_pieces(fusion: Fusion, budget: Budget) -> Fusion:
    """Fusion whose groups also have a form for long rows of run-time size, if they reduce such rows
    more than once."""
    if not fusion.function.symbols() or not budget.held:
        return fusion
    groups = tuple(_add_pieces(fusion.function, group, budget) for group in fusion.groups)
    return dataclasses.replace(fusion, groups=groups)


def _add_pieces(function: Function, group: Group, budget: Budget) -> Group:
    """Group with a form in pieces, if it has one."""
    reducing = [each.inner for each in group.passes if each.reduces]
    few = find_symbols(group.parallel)
    many = [symbol for symbol in find_symbols(sum(reducing, ())) if symbol not in few]
    if not group.is_plain or group.online is not None or len(reducing) < 2 or not many:
        return group
    taken = (*((symbol, _FEW) for symbol in few), *((symbol, _LONG) for symbol in many))
    own = _extract(function, group)
    parted = reduce_in_pieces(own, budget, taken)
    if parted is own:
        return group
    drawn, grouping = _group(parted, 0, budget)
    return dataclasses.replace(group, pieces=_assemble(parted, drawn, grouping, budget))


def _extract(function: Function, group: Group) -> Function:
    """Function of a group's stages, with parameters for the tensors that others store."""
    own, readers, tensors = set(group.stages), function.readers(), function.tensors()
    stages = [stage for stage in function.stages if stage.name in own]
    read = dict.fromkeys(load.tensor for stage in stages for load in stage.body.loads())
    outside = [tensors[name] for name in read if name not in own]
    parameters = [
        Parameter(t.name, t.dtype, t.extents, function.strides(t.name), t.span)
        for t in outside if not isinstance(t, Table)
    ]  # fmt: skip
    results = [
        function.result(stage.name) or Result(stage.name)
        for stage in stages
        if function.result(stage.name) or not own.issuperset(readers.get(stage.name, ()))
    ]
    return Function(
        function.name, tuple(parameters), tuple(stages), tuple(results), span=function.span,
        tables=function.tables, inherited=function.symbols(),
    )  # fmt: skip


def keep_apart(function: Function, longest_row: int = 0, budget: Budget = _USUAL) -> Fusion:
    """Every stage in a kernel of its own, as a reference for `fuse`."""
    names = {stage.name: (stage.name,) for stage in function.stages}
    drawn = Drawn(function.stages, names, {})
    return _assemble(function, drawn, group_apart(function, budget), budget)


def _assemble(function: Function, drawn: Drawn, grouping: Grouping, budget: Budget) -> Fusion:
    left = function.with_stages(map(simplify_stage, drawn.stages))
    homes = grouping.find_homes()
    fused = read_results(left, homes)
    groups = _describe_groups(fused, drawn, grouping, homes)
    stored = _store(fused, homes, groups, budget)
    orders = find_orders(stored, budget)
    return Fusion(stored, tuple(_add_orders(group, orders) for group in groups), function)


def _add_orders(group: Group, orders: Sequence[Order]) -> Group:
    """Group with the orders of its reductions, which are among its reasons."""
    own = tuple(order for order in orders if {*order.names} <= {*group.stages})
    first, *others = group.reasons
    return dataclasses.replace(group, reasons=(first, *map(str, own), *others), orders=own)


_Homes: TypeAlias = Mapping[str, tuple[int, int]]
"""Kernel and pass of each stage."""


def _group(function: Function, longest_row: int, budget: Budget) -> tuple[Drawn, Grouping]:
    """Inlines stages that need no memory, and groups the rest.

    A stage that several others share needs no memory if all of these are in one kernel, which is
    known after grouping. If some are not, the stage is no longer shared, and grouping is repeated
    once.
    """
    decision = decide_stored(function, budget)
    free = _find_free(function, budget)
    stored = {name: why for name, why in decision.stored.items() if name not in free}
    shared = {name: is_one for name, is_one in decision.shared.items() if name not in free}
    attempts: Attempts = {}
    while True:
        before = len(shared)
        drawn = inline_producers(function, stored, shared, budget, attempts)
        left = dataclasses.replace(function, stages=drawn.stages)
        grouping = group_stages(left, longest_row, budget)
        homes = grouping.find_homes()
        for name, is_one in tuple(shared.items()):
            if name not in homes:
                continue
            # Whether only limits on kernel size may put its readers in several kernels.
            home = homes[name][0]
            stays = is_one and isinstance(grouping.members[home], Plain)
            if not stays and _find_readers(left, name, homes) - {home}:
                del shared[name]
        if len(shared) == before:
            return drawn, grouping


def _find_free(function: Function, budget: Budget) -> set[str]:
    """Stages as large as the scores of online kernels, which recompute them."""
    if not budget.least_rows or not may_be_online(function):
        return set()
    drawn = inline_producers(function, {}, (), budget)
    found = find_online(dataclasses.replace(function, stages=drawn.stages), budget)
    return free_weights(found, function)


def _describe_groups(
    fused: Function, drawn: Drawn, grouping: Grouping, homes: _Homes
) -> tuple[Group, ...]:
    """Kernels of the remaining stages: computed and local stages, passes, and reasons."""
    results = {r.name for r in fused.results}
    rows = {reader: row for row, reader in grouping.rows.items()}
    stages = {s.name: s for s in fused.stages}
    why = {**drawn.reasons, **grouping.reasons}
    groups: list[Group] = []
    for place, made_of in enumerate(grouping.members):
        found = [stages[name] for name in made_of.stages]
        row = rows.get(found[0].name)
        whole = (*(() if row is None else (row,)), *made_of.stages)
        computed = dict.fromkeys(n for name in whole for n in drawn.computed[name][::-1])
        inlined = tuple(n for n in computed if n not in whole)
        local = tuple(
            n for n in whole if n not in results and _find_readers(fused, n, homes) == {place}
        )
        draft = made_of if isinstance(made_of, Draft) else None
        passes = () if draft is None else draft.passes()
        again = list_read_back(fused, passes)
        local = tuple(n for n in local if n not in again)
        elementwise = [] if draft is None else draft.list_elementwise()
        across = [m.stage for each in passes for m in each.across]
        online = made_of.online if isinstance(made_of, OnlineGroup) else None
        if isinstance(made_of, OnlineGroup):
            passes = made_of.passes()
        reasons = _explain(found, homes, inlined, local, why, results, elementwise, across)
        if online is not None:
            reasons = (*reasons, describe(fused, online))
        if row is not None:
            passes = (*Draft(stages[row]).passes(), *passes)
            reasons = (*reasons, f"a row of %{row} at a time is kept for it in a line buffer")
        parallel, crossed = ((), None) if draft is None else (draft.parallel, draft.crossed)
        groups.append(
            Group(whole, reasons, parallel, passes, inlined, local, row, crossed, (), online)
        )
    return tuple(groups)


def _store(fused: Function, homes: _Homes, groups: Sequence[Group], budget: Budget) -> Function:
    """Function of the remaining stages as they are stored: rounded to their memory types, and
    without `in_place` pairs that no longer hold."""
    fused = replace_stages(fused, fused.stages)
    # Nothing after a result's kernel or pass may read the parameter that it overwrites.
    pairs = tuple(
        (result, parameter)
        for result, parameter in fused.in_place
        if all(homes[reader] <= homes[result] for reader in fused.readers().get(parameter, ()))
    )
    as_they_are = {name for group in groups for name in group.local}
    if budget.paired_types:
        # Kernels with reductions store element by element.
        as_they_are.update(name for group in groups if group.passes for name in group.stages)
    if pairs != fused.in_place:
        fused = dataclasses.replace(fused, in_place=pairs)
    return store_rounded(fused, as_they_are)


def _find_readers(function: Function, name: str, homes: _Homes) -> set[int]:
    """Kernels that read a tensor."""
    return {homes[reader][0] for reader in function.readers().get(name, ())}


# Reasons ------------------------------------------------------------------------------------


def _explain(
    stages: Sequence[Stage],
    homes: Mapping[str, object],
    inlined: Sequence[str],
    local: Sequence[str],
    reasons: Mapping[str, str],
    results: set[str],
    elementwise: Sequence[str],
    across: Sequence[str],
) -> tuple[str, ...]:
    """Reasons why these stages are a group, clause by clause. `homes` has every stage of a group,
    `inlined` those that are computed where these read them, `local` those not stored, `elementwise`
    those in passes that reduce, and `across` the reductions over the group's rows. `reasons` has
    why some stages are stored."""
    first = next((s for s in stages if s.reduction is not None), stages[0])
    if first.reduction is not None:
        clauses = [f"%{first.name} is a reduction ({first.combiner})"]
        clauses += [reasons[first.name]] if first.name in reasons else []
    elif first.name in results:
        clauses = [f"%{first.name} leaves the function"]
    elif first.name in reasons:
        clauses = [reasons[first.name]]
    elif first.name in local:
        clauses = [f"%{first.name} is read by several stages over its own points"]
    else:
        clauses = [f"%{first.name} is read by several kernels, as one would be too large"]
    # Local stages are not stored, whatever their reasons, and results always are.
    plain = {first.name, *local, *results.intersection(elementwise)}
    clauses += [reasons[s.name] for s in stages if s.name in reasons and s.name not in plain]
    own = [s.name for s in stages]
    given = set(own).difference(elementwise, across)
    read = {s.name: dict.fromkeys(load.tensor for load in s.body.loads()) for s in stages}
    after = [n for n in own if n in given and not given.isdisjoint(read[n])]
    beside = [n for n in own if n in given and n not in after and n != first.name]
    waits = dict.fromkeys(n for names in read.values() for n in names)
    clauses += _list([n for n in elementwise if n in local], "computed in the same loops")
    clauses += _list([n for n in elementwise if n not in local], "stored in the same loops")
    clauses += _list(beside, "computed beside it")
    clauses += _list(after, "computed from it at once")
    clauses += _list(across, "reduced over its rows, which it goes through once for all")
    waits = [n for n in waits if n in homes and n not in own and n not in local]
    clauses += [f"the kernel runs after {clause}" for clause in _list(waits, "stored")]
    clauses += _list(inlined, "computed where read")
    return tuple(dict.fromkeys(clauses))


def _list(names: Sequence[str], done: str) -> list[str]:
    """Clause with a list of names, as in `%a, %b and 7 more are done`; empty without names."""
    shown = [f"%{name}" for name in names]
    if len(shown) > _SHOWN:
        shown = [", ".join(shown[:_SHOWN]), f"{len(shown) - _SHOWN} more"]
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
    return [f"{listed} {'is' if len(names) == 1 else 'are'} {done}"] if names else []
