"""Lowering of groups of stages to kernels: one if that keeps the device busy, else one per step.

A group without reductions is one kernel. A group with reductions is one kernel that also applies
them, if there are enough outputs to distribute. If there are few outputs and large tensors, every
pass has its own kernels: a reduction has two, the first of which reduces chunks of a long
dimension, and the second their partial results. The split depends on sizes and profile alone, so
that results are bit-identical whatever runs in parallel.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile, Row, Subject
from dmlc.loops.arrange import collapse
from dmlc.loops.element import collect_elements
from dmlc.loops.line_buffer import collect_lines
from dmlc.loops.online import collect_online
from dmlc.loops.phases import Phase, collect_phases, combine_partials, part_members, store_partials
from dmlc.loops.rfactor import cut_points
from dmlc.loops.script import ScheduleError
from dmlc.loops.sections import NONE, Sections
from dmlc.loops.windows import write_windows
from dmlc.lowering.assemble import count_buffers, make_kernel
from dmlc.lowering.ranked import lower_rows
from dmlc.lowering.scans import lower_scan
from dmlc.lowering.scatter import lower_keyed
from dmlc.schedules.choose import (
    arrange,
    combines_again,
    cut_up,
    keeps_busy,
    repeats_cheaply,
    suits_serial,
    takes_neighbours,
)
from dmlc.schedules.crossing import cut_rows
from dmlc.schedules.kinds import describe, describe_reduction
from dmlc.sizes import Measure
from dmlc.source import UnsupportedError
from dmlc.transform.fuse import Group
from dmlc.transform.orders import Keyed, Order, Scan, Sorted
from dmlc.transform.passes import Crossed, Pass, list_read_back

_ORDERED: Mapping[type[Order], tuple[str, Callable[..., tuple[k.Kernel, ...]]]] = {
    Scan: ("scan", lower_scan), Sorted: ("sort", lower_rows),
}  # fmt: skip
"""Kernels of a group whose rows are scanned or sorted: their class in the schedule table, and the
lowering."""


def _find_order(group: Group) -> Order | None:
    """Order of a group whose kernels are of that order alone."""
    return next((order for order in group.orders if type(order) in _ORDERED), None)


def _find_keyed(group: Group, steps: Sequence[Pass]) -> Keyed | None:
    """Order of the reduction that begins a step, if its points name their elements."""
    names = tuple(member.stage for member in steps[0].members) if steps[0].reduces else ()
    keyed = (order for order in group.orders if isinstance(order, Keyed))
    return next((order for order in keyed if order.names == names), None)


def lower_group(
    function: ir.Function, group: Group, profile: Profile, limits: Limits, own: Sections = NONE
) -> tuple[k.Kernel, ...]:
    """Kernels of a group, in execution order; `own` has schedules for some of them. If the profile
    has a row of the schedule table for the group, rules take their parameters from it.

    Raises `UnsupportedError` if a limit of the target is exceeded, and `ScheduleError` if a section
    or a row is not legal.
    """
    lowering = _Lowering(function, profile, limits, own)
    row = lowering.find_row(group)
    if row is None:
        return lowering.lower(group)
    try:
        made = dataclasses.replace(lowering, profile=profile.take_row(row)).lower(group)
    except ScheduleError as error:
        raise ScheduleError(
            d if d.span else dataclasses.replace(d, message=f"{row}: {d.message}", span=row.span)
            for d in error.diagnostics
        ) from None
    return tuple(dataclasses.replace(kernel, row=str(row)) for kernel in made)


def find_subject(
    function: ir.Function, group: Group, profile: Profile, limits: Limits
) -> Subject | None:
    """Key of a group in the schedule table; None if no row applies to it."""
    return _Lowering(function, profile, limits, NONE).find_subject(group)


def lower_stages(
    function: ir.Function, stages: tuple[str, ...], profile: Profile, limits: Limits
) -> k.Kernel:
    """Kernel of element-wise stages over one domain.

    Packed tensors of any shape share one kernel, which gets their element count at run time; if
    operands are strided or broadcast, sizes are constants in the kernel. Raises `UnsupportedError`
    if the stages are reductions or exceed a limit of the target.
    """
    return _Lowering(function, profile, limits, NONE).lower_stages(stages)


def collect_group(
    function: ir.Function, group: Group
) -> tuple[tuple[Phase, ...], tuple[tuple[str, ...], ...]]:
    """Phases of a group as a single kernel, before scheduling, and the stages of each pass. Raises
    `UnsupportedError` if it takes several kernels, or a schedule of its own."""
    if not group.passes:
        elements = collect_elements(function, group.stages, group.local)
        return (Phase(collapse(elements)),), (group.stages,)
    if (order := _find_order(group)) is not None:
        raise UnsupportedError(f"{order}, in kernels of its own")
    names = _name_members(group.passes)
    if group.row is not None:
        return collect_lines(function, group.stages), names
    if group.online is not None:
        found, (whole,) = group.online, group.passes
        derived = [m for m in whole.members if m not in found.members]
        return collect_online(function, found, derived, group.local), names
    if group.crossed is not None:
        raise UnsupportedError(
            f"the kernel of '{group.stages[0]}' holds rows, which takes a schedule of its own"
        )
    stored = _list_stored(function, group.stages) | list_read_back(function, group.passes)
    phases = collect_phases(function, group.parallel, group.passes, stored)
    passes: Sequence[Pass] = group.passes
    if any(p.tests_guard for p in phases):
        passes = _separate_guards(function, passes)
        phases = collect_phases(function, group.parallel, passes, stored)
    if len(_split(passes)) > 1 and _is_parted(phases):
        raise UnsupportedError(_PARTED)
    return phases, _name_members(passes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Lowering:
    """Parameters for lowering the groups of one function."""

    function: ir.Function
    profile: Profile
    limits: Limits
    own: Sections

    def lower(self, group: Group) -> tuple[k.Kernel, ...]:
        """Kernels of a group."""
        function, profile, limits = self.function, self.profile, self.limits
        if not group.passes:
            return (self.lower_stages(group.stages, group.local),)
        if (order := _find_order(group)) is not None:
            return _ORDERED[type(order)][1](function, order, group.stages, profile, limits)
        _check_words(function, group, limits)
        names = _name_members(group.passes)
        if group.row is not None or group.online is not None:
            phases, _ = collect_group(function, group)
            return (self._make(phases, group.stages, names),)
        if group.crossed is not None:
            return self._lower_crossed(group, group.crossed)
        phases, alone = self._arrange(group.parallel, group.passes, group.stages)
        passes: Sequence[Pass] = group.passes
        if any(p.tests_guard for p in phases):
            passes = _separate_guards(function, passes)
        parts = _split(passes)
        walks = any(_find_keyed(group, steps) is not None for steps in parts)
        apart = _WALKED if walks else self._find_obstacle(phases, len(parts))
        sections = [self.own.find(_name_step(function, steps)) for steps in parts]
        if any(section is not None and section.cut for section in sections):
            apart = apart or _CUT
        if not apart:
            if takes_neighbours(phases, profile, alone=alone):
                windows = write_windows(function, group, _list_stored(function, group.stages))
                phases, alone = windows or phases, alone or windows is not None
            return (self._make(phases, group.stages, _name_members(passes), serial=alone),)
        again = combines_again(phases, profile) and not alone and not walks
        kernels = self._lower_again(phases, parts) if again else []
        if not kernels:
            for steps in parts:
                kernels += self._lower_step(group, steps)
        if len(kernels) == 1:
            return tuple(kernels)
        return tuple(dataclasses.replace(kernel, apart=apart) for kernel in kernels)

    def find_row(self, group: Group) -> Row | None:
        """Row of the schedule table for a group."""
        subject = self.find_subject(group) if self.profile.rows else None
        return None if subject is None else self.profile.find_row(subject)

    def find_subject(self, group: Group) -> Subject | None:
        """Key of a group in the schedule table. Kernels that keep rows of one reduction for another
        have none."""
        function = self.function
        if not group.passes:
            return describe(function, group.stages, "elementwise")
        if (order := _find_order(group)) is not None:
            return describe(function, group.stages, _ORDERED[type(order)][0])
        if group.row is not None or group.online is not None or group.crossed is not None:
            return None
        phases, _ = self._arrange(group.parallel, group.passes, group.stages)
        return describe_reduction(function, group.stages, phases, self.profile)

    def lower_stages(self, stages: tuple[str, ...], local: tuple[str, ...] = ()) -> k.Kernel:
        """Kernel of element-wise stages over one domain; those in `local` are not stored."""
        elements = collect_elements(self.function, stages, local)
        return self._make((Phase(collapse(elements)),), stages, (stages,))

    def _make(
        self,
        phases: Sequence[Phase],
        stages: tuple[str, ...],
        passes: tuple[tuple[str, ...], ...],
        **how: Any,
    ) -> k.Kernel:
        """One kernel: see `make_kernel`."""
        profile, limits = self.profile, self.limits
        return make_kernel(
            self.function, phases, stages, passes, profile, limits, own=self.own, **how
        )

    def _find_obstacle(self, phases: Sequence[Phase], parts: int) -> str:
        """Reason why one kernel cannot have all phases, which are `parts` reductions with their
        derived stages; empty if it can."""
        if parts > 1 and _is_parted(phases):
            return _PARTED
        if not keeps_busy(phases, self.profile, self.limits):
            return _IDLE
        most = self.limits.buffers
        if count_buffers(phases) > most:
            return f"it takes several kernels, for one may have no more than {most} buffers"
        return ""

    def _arrange(
        self, parallel: tuple[ir.Extent, ...], steps: Sequence[Pass], stages: Sequence[str]
    ) -> tuple[tuple[Phase, ...], bool]:
        """Phases of some passes, in a suitable order of their points, and whether each work item
        reduces its own outputs sequentially."""
        stored = _list_stored(self.function, stages) | list_read_back(self.function, steps)
        collect = functools.partial(collect_phases, self.function, parallel, steps, stored)
        return arrange(self.function, collect, self.profile)

    def _lower_step(self, group: Group, steps: Sequence[Pass]) -> list[k.Kernel]:
        """Kernels of a reduction with its derived stages, or of a pass that applies reductions.
        Stages are distributed over more kernels if one would have too many buffers."""
        function, limits = self.function, self.limits
        stages = tuple(member.stage for each in steps for member in each.members)
        if not steps[0].reduces:
            domains: dict[object, list[str]] = {}
            for name in stages:
                stage = function.stage(name)
                domains.setdefault(stage and stage.extents, []).append(name)
            return [
                self.lower_stages(tuple(part))
                for names in domains.values()
                for part in _share_out(function, names, limits)
            ]
        walk = _find_keyed(group, steps)
        if walk is not None:
            first = lower_keyed(function, walk, self.profile, limits, self.own)
            return [first, *(m for each in steps[1:] for m in self._lower_step(group, [each]))]
        phases, alone = self._arrange(group.parallel, steps, stages)
        name = _name_step(function, steps)
        call, divided = self._cut(phases, name, self.own, alone=alone)
        made = [phases]
        if divided is not None:
            second = (combine_partials(phases[0], divided.space.outputs), *phases[1:])
            made = [store_partials(divided), second]
        if max(map(count_buffers, made)) > limits.buffers and len(stages) > 1:
            halves = _halve(function, steps)
            return [m for half in halves for m in self._lower_step(group, half)]
        if divided is None:
            return [self._make(phases, stages, _name_members(steps), serial=alone)]
        first, second = made
        elementwise, reductions = part_members(function, steps[0])
        names = tuple(member.stage for member in (*elementwise, *reductions))
        rest = tuple(name for name in stages if name not in names[: len(elementwise)])
        (pieces, *_), after = divided.space.extents, _name_members(steps[1:])
        alone = suits_serial(function, second, self.profile)
        return [
            self._make(first, names, (names,), pieces=pieces, cut=(name, call)),
            self._make(second, rest, after, serial=alone),
        ]

    def _cut(
        self, phases: Sequence[Phase], name: str, own: Sections, *, alone: bool = False
    ) -> tuple[str, Phase | None]:
        """Split of a reduction with its derived stages into chunks: the call, and the first phase
        then; None for one kernel. A section of `own` decides, or else a rule, unless
        work items reduce their own outputs (`alone`)."""
        section = own.find(name)
        call = None if section is None else section.cut
        if section is None and not alone:
            call = cut_up(phases, self.profile, self.limits)
        return str(call or ""), None if call is None else cut_points(phases, call)

    def _lower_crossed(self, group: Group, crossed: Crossed) -> tuple[k.Kernel, ...]:
        """Kernels of a group that also reduces over its rows: one that visits all rows and stores
        partial results for chunks of them, and one that combines these."""
        function, profile, limits = self.function, self.profile, self.limits
        stored = _list_stored(function, group.stages)
        phases = cut_rows(
            collect_phases(function, group.parallel, group.passes, stored), profile, limits
        )
        (across,) = (phase for phase in phases if phase.is_across)
        pieces = phases[-1].space.sizes[0]
        first, *derived = collect_phases(function, crossed.parallel, crossed.passes, stored)
        second = (combine_partials(across, (pieces, *first.space.parallel_sizes)), *derived)
        names = _name_members(group.passes)
        stages = tuple(dict.fromkeys(name for each in names for name in each))
        added = [m.stage for each in group.passes for m in each.across]
        after = _name_members(crossed.passes[1:])
        rest = (*added, *(name for each in after for name in each))
        return (
            self._make(phases, stages, names),
            self._make(second, rest, after),
        )

    def _lower_again(
        self, phases: Sequence[Phase], parts: Sequence[Sequence[Pass]]
    ) -> list[k.Kernel]:
        """Kernels of chunked reductions that each recombine the partial results of earlier kernels
        that they need; empty if that is not possible. `parts` are the steps that the group is split
        into."""
        tails: list[list[Phase]] = []
        for phase in phases:
            if not phase.is_parallel:
                tails.append([phase])
            elif tails:
                tails[-1].append(phase)
        parts = _join_derived(parts)
        unlike = len(tails) != len(parts) or len(phases) != sum(map(len, tails))
        if unlike or any(p.has_computed_reads or p.tests_guard for p in phases):
            return []
        combined: dict[str, Phase] = {}
        derived: list[Phase] = []
        kernels: list[k.Kernel] = []
        combining: tuple[str, ...] = ()
        after: tuple[str, ...] = ()

        def make(
            main: Sequence[Phase],
            members: tuple[str, ...],
            pieces: Measure | None,
            cut: tuple[str, ...] = (),
        ) -> bool:
            needed = {v.tensor for p in (*derived, *main) for v in p.elements.views() if v.local}
            for name, phase in reversed(combined.items()):
                if name in needed:
                    needed |= {v.tensor for v in phase.elements.views() if v.local}
            again = {id(phase): phase for name, phase in combined.items() if name in needed}
            made = [*again.values(), *derived, *main]
            stored = {view.tensor for p in derived for view, _ in p.elements.results}
            read = {v.tensor for p in (*again.values(), *main) for v in p.elements.buffers()}
            last = {view.tensor for p in main for view, _ in p.elements.results}
            early = {view.tensor for p in derived for view in p.elements.buffers()}
            if count_buffers(made) > self.limits.buffers or stored & read or last & early:
                return False
            passes = tuple(names for names in (after, members) if names)
            stages = tuple(dict.fromkeys((*combining, *after, *members)))
            kernels.append(self._make(made, stages, passes, pieces=pieces, cut=cut))
            return True

        def repeats(main: Phase, count: Measure) -> bool:
            return repeats_cheaply(main, count, self.profile)

        for (main, *rest), steps in zip(tails, parts, strict=True):
            # The split of steps without reductions is decided by their rule alone.
            name = _name_step(self.function, steps)
            said = self.own if main.accumulators else NONE
            call, divided = self._cut((main, *rest), name, said)
            members, names = (
                tuple(m.stage for each in some for m in each.members)
                for some in (steps[:1], steps[1:])
            )
            if not main.accumulators:
                derived, after = [*derived, *rest], after + names
                if not make((divided or main,), members, None):
                    return []
                derived, combining, after = [], (), ()
                continue
            _, reductions = part_members(self.function, steps[0])
            reduced = tuple(m.stage for m in reductions)
            if divided is None:
                # A short reduction is repeated by each group that needs it, like a combination.
                count = main.settle(self.profile.taken).space.inner_count
                if main.elements.results or not repeats(main, count):
                    return []
                combined.update({n: main for each in main.accumulators for n, _ in each.stages})
                derived, combining, after = [*derived, *rest], combining + reduced, after + names
                continue
            if not make(store_partials(divided), members, divided.space.extents[0], (name, call)):
                return []
            partial = combine_partials(main, divided.space.outputs)
            if not repeats(main, divided.space.extents[0]):
                return []
            combined.update({n: partial for each in main.accumulators for n, _ in each.stages})
            derived, combining, after = rest, reduced, names
        if derived and not make((), (), None):
            return []
        return kernels


def _is_parted(phases: Sequence[Phase]) -> bool:
    """Whether each reduction among the phases needs its own kernel, even for few points."""
    return any(p.has_computed_reads or p.tests_guard for p in phases)


_WALKED = "a work item has no element before it has gone through all points"
_PARTED = "it takes several kernels, for values depend on the positions of points"
_IDLE = "it takes several kernels, for there are too few outputs to share out"
_CUT = "it takes several kernels, for its schedule reduces pieces"


def _name_members(passes: Sequence[Pass]) -> tuple[tuple[str, ...], ...]:
    """Stages of each pass."""
    return tuple(tuple(m.stage for m in (*each.members, *each.across)) for each in passes)


def _separate_guards(function: ir.Function, passes: Sequence[Pass]) -> list[Pass]:
    """Passes in which a guarded reduction is alone, as a loop tests one guard."""
    parted: list[Pass] = []
    for each in passes:
        _, reductions = part_members(function, each)
        stages = [function.stage(m.stage) for m in reductions]
        guarded = any(s is not None and s.body.guard is not None for s in stages)
        if len(reductions) > 1 and guarded:
            parted += [dataclasses.replace(each, members=(m,)) for m in each.members]
        else:
            parted.append(each)
    return parted


def _check_words(function: ir.Function, group: Group, limits: Limits) -> None:
    """Raises `UnsupportedError` for stages that would be stored half a word at a time."""
    stored = _list_stored(function, group.stages) if limits.word_types else set[str]()
    for name in function.sort_tensors(stored):
        stage = function.stage(name)
        if stage is not None and stage.dtype in limits.word_types:
            raise UnsupportedError(
                f"'{stage.name}' is {stage.dtype.name} and computed from a reduction, and without "
                "16-bit types kernels store two elements at a time",
                stage.span,
                notes=["compile for shader model 6.2, or store it as FLOAT32"],
            )


def _split(passes: Sequence[Pass]) -> list[list[Pass]]:
    """Steps of a group: a reduction with its point-wise derived stages, or another pass."""
    steps: list[list[Pass]] = []
    for each in passes:
        derived = not each.reduces and not each.inner
        if derived and steps and steps[-1][0].reduces and len(steps[-1]) == 1:
            steps[-1].append(each)
        else:
            steps.append([each])
    return steps


def _join_derived(parts: Sequence[Sequence[Pass]]) -> list[list[Pass]]:
    """Steps in which passes over the parallel points alone belong to the pass before them that
    applies reductions."""
    joined: list[list[Pass]] = []
    for steps in parts:
        first = steps[0]
        if joined and not (first.reduces or first.inner or joined[-1][0].reduces):
            joined[-1] += steps
        else:
            joined.append([*steps])
    return joined


def _name_step(function: ir.Function, steps: Sequence[Pass]) -> str:
    """Title of a kernel with all of a step."""
    members = [m.stage for each in steps for m in (*each.members, *each.across)]
    reduced = {m.stage for each in steps for m in part_members(function, each)[1]}
    return function.sort_tensors({*_list_stored(function, members), *reduced})[-1]


def _share_out(function: ir.Function, names: Sequence[str], limits: Limits) -> list[list[str]]:
    """Element-wise stages, distributed over as many kernels as the limit of buffers requires."""
    parts: list[list[str]] = []
    tensors: set[str] = set()
    for name in names:
        stage = function.stage(name)
        own = {name} if stage is None else {name, *(load.tensor for load in stage.body.loads())}
        if not parts or len(tensors | own) > limits.buffers:
            parts.append([])
            tensors = set()
        parts[-1].append(name)
        tensors |= own
    return parts


def _halve(function: ir.Function, steps: Sequence[Pass]) -> list[list[Pass]]:
    """A reduction separated from its derived stages; or half of the reductions each; or the stored
    element-wise stages separated from a single reduction."""
    reduction, *derived = steps
    if derived:
        return [[reduction], *([each] for each in derived)]
    elementwise, reductions = part_members(function, reduction)
    half = len(reductions) // 2
    first = dataclasses.replace(
        reduction, members=(*elementwise, *reductions[:half]), reduces=half > 0
    )
    return [[first], [dataclasses.replace(reduction, members=tuple(reductions[half:]))]]


def _list_stored(function: ir.Function, stages: Sequence[str]) -> set[str]:
    """Stages that are results, or that other groups read."""
    own, readers = set(stages), function.readers()
    return {n for n in own if function.result(n) or not own.issuperset(readers.get(n, ()))}
