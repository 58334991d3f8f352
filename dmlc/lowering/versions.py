"""Kernels of sizes that are left open in versions: each is right for all sizes, and has the
schedule that suits some. A host runs the one whose sizes it has, for the formulas of the others'
groups come to none.

What a version suits is how many outputs a reduction has, and how many points each: a few outputs of
many points are cut into pieces, a few of less are reduced by one large group each, and so on. Which
versions there are depends on what is left open and on the profile alone, and versions of one
schedule are one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.ir.specialize import replace_extent, replace_size
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import walk_parts, walk_statements
from dmlc.kernel.rows import name_memory
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.phases import VECTOR
from dmlc.loops.sections import NONE, Sections
from dmlc.lowering.group import collect_group
from dmlc.lowering.scans import find_group_prefix
from dmlc.schedules.skinny import MOST
from dmlc.sizes import (
    Measure,
    Size,
    Taken,
    choose_size,
    divide_down,
    estimate,
    find_least,
    list_measured,
    multiply,
    write_condition,
)  # fmt: skip
from dmlc.source import UnsupportedError
from dmlc.transform.fuse import Group
from dmlc.transform.passes import Pass


@dataclasses.dataclass(frozen=True, slots=True)
class _Typical:
    """What sizes are taken for."""

    points: int
    outputs: int
    odd: int | None = None
    """What points are taken for where they are no multiple of `VECTOR`; None where that is not told
    apart."""
    most: int | None = None
    """The most points that there are where they are a multiple, and a work item holds what it
    reads of them; None where it reads again."""


_Table: TypeAlias = tuple[tuple[int | None, tuple[tuple[int | None, _Typical], ...]], ...]
"""Points, each as less than a number; and with it, outputs alike, and what both are taken for."""

_MIDDLE, _LONG = 4097, (1 << 20) + 1
"""What many points are taken for. It is odd, so that nothing is taken to begin where vectors do."""
_FEW, _MANY = _Typical(_MIDDLE, 65, _MIDDLE), _Typical(_MIDDLE, 4097, 129)
_REDUCED: _Table = (
    (2, ((None, _Typical(1, 4097)),)),
    (33, ((None, _Typical(17, 4097)),)),
    (513, ((1025, _Typical(129, 17)), (None, _Typical(129, 4097)))),
    (1 << 15, ((2049, _FEW), (None, _MANY))),
    (
        None,
        (
            (2, _Typical(_LONG, 1)),
            (33, _Typical(_LONG, 17)),
            (257, _Typical(_LONG, 65)),
            (2049, _FEW),
            (None, _MANY),
        ),
    ),
)
"""Reductions on a GPU. `python -m benchmarks.open_sizes` has what each row comes to."""
_HELD = 1025, 4097
"""Where classes of points end that a group's work items hold, a vector each, if several passes read
them along one size."""
_REDUCED_SERIALLY: _Table = (
    (1 << 16, ((None, _Typical(_MIDDLE, 4097)),)),
    (None, ((None, _Typical(_LONG, 4097)),)),
)
"""Reductions on a CPU. Its few work items are worth no more launches where outputs may be many."""
_ROWS = _Typical(4096, 4, 4096)
_SCANNED: _Table = (
    (2, ((None, _Typical(1, 4097)),)),
    (33, ((None, _Typical(17, 4)),)),
    (_MIDDLE, ((None, _ROWS),)),
    ((1 << 14) + 1, ((257, _Typical(4096, 4, 1 << 14)), (None, _ROWS))),
    (None, ((257, _Typical(1 << 17, 4, 1 << 14)), (None, _ROWS))),
)
"""Scans of rows, which lie one after the other."""
_ACROSS = _Typical(4096, 1 << 17)
_SCANNED_ACROSS: _Table = (
    (2, ((None, _Typical(1, 4097)),)),
    (33, ((None, _Typical(17, 32)),)),
    (1025, ((None, _ACROSS),)),
    (1 << 15, ((2049, _Typical(4096, 32)), (None, _ACROSS))),
    (None, ((2, _Typical(1 << 14, 1)), (2049, _Typical(1 << 17, 32)), (None, _ACROSS))),
)
"""Scans of rows that lie side by side, a group taking some of them."""
_SCANNED_SERIALLY: _Table = (
    (_MIDDLE, ((16, _Typical(4096, 2)), (None, _Typical(4096, 4097)))),
    (None, ((16, _Typical(_LONG, 2)), (None, _Typical(_LONG, 4097)))),
)
"""Scans on a CPU: few rows are cut into pieces, and each of many is one work item's."""
_BESIDE = 4096
"""Rows that lie side by side, at most; more are behind these."""
_SKINNY = MOST + 1
"""Rows, or columns, of a product that are not a few."""
_SHALLOW, _DEEP = 768, 1 << 14
"""Products in each sum of which there are no pieces, and of which there are always so many. Between
them pieces have one length, and follow from the size."""
_TILES = ((1 << 16, 1 << 14), (1 << 19, 1 << 18), (1 << 22, 1 << 20), (None, 1 << 24))
"""Outputs of a product without pieces, each as less than a number, and what they are taken for."""
_IN_PIECES = ((1 << 17, 1 << 14), (1 << 20, 1 << 18))
_IN_DEEP_PIECES = ((1 << 13, 1 << 12), (1 << 17, 1 << 15), (1 << 20, 1 << 18))
"""The same of one with pieces; more outputs have none."""

Lower: TypeAlias = Callable[[ir.Function, Group, Profile, Sections], tuple[k.Kernel, ...]]
"""Makes the kernels that suit sizes as a profile takes them, of a function and one of its groups;
sections have schedules for some."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Sizes that a version is for."""

    taken: Taken = ()
    given: tuple[tuple[str, Measure], ...] = ()
    """What symbols come to in this case: 1, or a multiple of `VECTOR`. A vector begins wherever
    such a multiple ends."""
    bounds: Taken = ()
    """What symbols are at most in this case."""

    def take(self, size: Measure, many: int) -> _Case:
        """The case with a size taken for so many, as far as its symbols are not."""
        known = dict(self.taken)
        symbols = [s for s in list_measured(size) if s not in known]
        if not symbols:
            return self
        once = estimate(size, (*self.taken, *((s, 1) for s in symbols)))
        each = max(1, round((many / max(1, once)) ** (1 / len(symbols))))
        return dataclasses.replace(self, taken=(*self.taken, *((s, each) for s in symbols)))

    def give_one(self, size: Measure) -> _Case:
        """The case of a size that is 1. A product is 1 where all its symbols are."""
        (symbols, number), *others = size.terms if isinstance(size, Size) else [((), 0)]
        is_product = number == 1 and not others and all(s.isidentifier() for s in symbols)
        return functools.reduce(lambda c, s: c.give(s, 1), symbols if is_product else (), self)

    def give(self, symbol: str, size: Measure) -> _Case:
        """The case with what a symbol comes to, unless it is known."""
        if symbol in dict(self.given):
            return self
        return dataclasses.replace(self, given=(*self.given, (symbol, size)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Fork:
    """Sizes of which a comparison holds, and others."""

    of: Measure
    comparison: str
    bound: Measure
    first: _Tree
    second: _Tree


_Tree: TypeAlias = _Case | _Fork
_ANY = _Case()


def lower_versions(
    function: ir.Function,
    group: Group,
    profile: Profile,
    limits: Limits,
    lower: Lower,
    own: Sections,
) -> tuple[k.Kernel, ...]:
    """The kernels of a group: all versions one after the other. Those after the first have numbers
    in sections of `own`: `kernel Y.2`."""
    tree = _plan(function, group, profile, limits)
    versions: list[tuple[k.Kernel, ...]] = []
    texts: list[str] = []
    chosen: dict[_Case, int] = {}
    # The first version is that of sections without a number: not one of a size that is 1.
    cases = sorted(dict.fromkeys(_list_cases(tree)), key=_is_of_one)
    for case in cases:
        # Which versions there are, schedules of a person's own do not change.
        own_profile = dataclasses.replace(profile, taken=case.taken, bounds=case.bounds)
        make = functools.partial(lower, *_assume(function, group, case), own_profile)
        made = make(NONE)
        text = "\n".join(map(print_kernel, made))
        plain = chosen.get(dataclasses.replace(case, given=case.given[:-1]))
        if plain is not None and _has_same_nests(made, versions[plain]):
            chosen[case] = plain
            continue
        if text not in texts:
            texts.append(text)
            after = own.follow(kernel for version in versions for kernel in version)
            again = own.named or own.seen is not None
            versions.append(tuple(map(after.rename, make(after) if again else made)))
        chosen[case] = texts.index(text)
    if len(versions) == 1:
        return versions[0]
    names = dict.fromkeys(function.tensors())
    found: list[k.Kernel] = []
    for number, version in enumerate(versions):
        between = {b.name for kernel in version for b in kernel.buffers if b.count is not None}
        moved = {name: take_name(name, names) for name in sorted(between)}
        named = (name_memory(kernel, moved) for kernel in version)
        found += [_guard(kernel, tree, chosen, number) for kernel in named]
    return tuple(found)


def _assume(function: ir.Function, group: Group, case: _Case) -> tuple[ir.Function, Group]:
    """The function and the group with sizes as a case has them."""
    for symbol, by in case.given:
        function = replace_size(function, symbol, by)
        parallel, *inner = (
            tuple(replace_extent(extent, symbol, by) for extent in extents)
            for extents in (group.parallel, *(each.inner for each in group.passes))
        )
        passes = map(_drop_ones, group.passes, itertools.repeat(parallel), inner)
        group = dataclasses.replace(
            group, parallel=tuple(e for e in parallel if e != 1), passes=tuple(passes)
        )
        if find_group_prefix(function, group) is None:
            # Rows of one element are not scanned.
            group = dataclasses.replace(group, ranks=None)
    return function, group


def _drop_ones(each: Pass, parallel: tuple[ir.Extent, ...], inner: tuple[ir.Extent, ...]) -> Pass:
    """A pass of these dimensions without those of one element."""
    kept = [number for number, extent in enumerate((*parallel, *inner)) if extent != 1]
    places = {number: place for place, number in enumerate(kept)}
    members = tuple(
        dataclasses.replace(m, axes=tuple((i, places[d]) for i, d in m.axes if d in places))
        for m in each.members
    )
    return dataclasses.replace(each, members=members, inner=tuple(e for e in inner if e != 1))


def _has_same_nests(some: Sequence[k.Kernel], others: Sequence[k.Kernel]) -> bool:
    """Whether kernels do the same with vectors of as many lanes."""
    return [_outline(kernel) for kernel in some] == [_outline(kernel) for kernel in others]


def _outline(kernel: k.Kernel) -> tuple[object, ...]:
    loads = (e for e in walk_parts(*walk_statements(kernel.body)) if isinstance(e, k.Load))
    lanes = tuple((load.buffer, load.type.lanes) for load in loads)
    return kernel.walk, kernel.script, lanes


def _guard(kernel: k.Kernel, tree: _Tree, chosen: dict[_Case, int], number: int) -> k.Kernel:
    """The kernel of a version, which has no groups where another one is chosen."""

    def choose(size: int | str, otherwise: int, at: _Tree) -> int | str:
        if not isinstance(at, _Fork):
            return size if chosen[at] == number else otherwise
        first, second = (choose(size, otherwise, each) for each in (at.first, at.second))
        larger = at.second
        # What is less than one number is less than the next, too.
        again = larger.first if isinstance(larger, _Fork) and _reaches(larger, at) else None
        if again is not None and choose(size, otherwise, again) == first:
            return second
        return choose_size(write_condition(at.of, at.comparison, at.bound), first, second)

    launch = dataclasses.replace(kernel.launch, count=choose(kernel.launch.count, 0, tree))
    buffers = tuple(
        dataclasses.replace(b, count=choose(b.count, 1, tree)) if isinstance(b.count, str) else b
        for b in kernel.buffers
    )
    return dataclasses.replace(kernel, launch=launch, buffers=buffers)


def _reaches(larger: _Fork, at: _Fork) -> bool:
    """Whether all that is below the bound of a fork is below that of another one."""
    ours, theirs = at.bound, larger.bound
    if not isinstance(ours, int) or not isinstance(theirs, int):
        return False
    return larger.of == at.of and ours <= theirs


def _list_cases(tree: _Tree) -> Iterator[_Case]:
    """The cases of a tree; those of any sizes before those of multiples."""
    if isinstance(tree, _Fork):
        sides = (tree.first, tree.second)
        for side in reversed(sides) if tree.comparison == "==" else sides:
            yield from _list_cases(side)
    else:
        yield tree


def _is_of_one(case: _Case) -> bool:
    return any(size == 1 for _, size in case.given)


def _plan(function: ir.Function, group: Group, profile: Profile, limits: Limits) -> _Tree:
    """The sizes that are told apart."""
    prefix = find_group_prefix(function, group)
    if prefix is not None:
        rows, length, inner = map(multiply, prefix.part_extents())
        on_gpu = _SCANNED if inner == 1 else _SCANNED_ACROSS
        table, beside = (on_gpu, str(length)) if profile.grouped else (_SCANNED_SERIALLY, "")
        if isinstance(rows * inner, int):
            # A known number of rows are not worth a version where each has one element.
            table = tuple((bound, classes) for bound, classes in table if bound != 2)
        return _look_up(table, length, rows * inner, (inner, rows), beside)
    reduced = [each.inner for each in group.passes if each.reduces]
    points = max(
        map(multiply, reduced),
        key=lambda size: (not isinstance(size, int), find_least(size)), default=1,
    )  # fmt: skip
    outputs = multiply(group.parallel)
    plain = group.row is None and group.crossed is None and group.ranks is None
    if not plain or (isinstance(points, int) and isinstance(outputs, int)):
        return _Case()
    product = _find_product(function, group, profile)
    if product is not None:
        return _plan_product(product, str(group.parallel[-1]))
    table = _REDUCED if profile.grouped else _REDUCED_SERIALLY
    (first, *_) = reduced or [()]
    last = {tensor.extents[-1:] for tensor in function.tensors().values()}
    beside = str(first[-1]) if first[-1:] in last and first else ""
    again = [each for each in group.passes if multiply(each.inner) == points]
    if table is _REDUCED and len(again) > 1 and isinstance(points, Size) and str(points) == beside:
        table = _hold(limits)
    return _look_up(table, points, outputs, (outputs,), beside)


def _hold(limits: Limits) -> _Table:
    """Reductions on a GPU whose groups hold the points of an output that they read again."""
    most = 0 if limits.vector_lanes == 1 else limits.group_size * VECTOR
    held = (
        (bound, tuple((o, dataclasses.replace(t, most=bound - 1)) for o, t in _REDUCED[3][1]))
        for bound in _HELD if bound <= most + 1
    )  # fmt: skip
    return (*_REDUCED[:3], *held, *_REDUCED[3:])


def _look_up(
    table: _Table, points: Measure, outputs: Measure, parts: Sequence[Measure], symbol: str
) -> _Tree:
    """The sizes that a table tells apart. Outputs are the product of some parts, of which the first
    has `_BESIDE` at most; `symbol` is the size along which points lie side by side."""

    def divide(number: int) -> _Tree:
        classes = table[number][1]
        return _divide(outputs, [bound for bound, _ in classes], lambda n: take(classes[n][1]))

    def take(typical: _Typical) -> _Tree:
        case = make(typical.points, typical.outputs)
        if typical.odd is None:
            return case
        fours = case
        if typical.most is not None:
            fours = dataclasses.replace(make(typical.most, 4097), bounds=((symbol, typical.most),))
        return _part_fours(symbol, fours, make(typical.odd, typical.outputs))

    def make(many: int, each: int) -> _Case:
        case, left = _ANY.take(points, many), each
        for part in parts:
            most = left if part is parts[-1] else min(left, _BESIDE)
            case = case.take(part, most)
            left = max(1, left // max(1, estimate(part, case.taken)))
        # Less than 2 are told apart where one is taken for 1.
        case = case.give_one(points) if many == 1 else case
        return case.give_one(outputs) if each == 1 else case

    return _divide(points, [bound for bound, _ in table], divide)


def _plan_product(product: Contraction, last: str) -> _Tree:
    """The sizes that are told apart of a product for tiles of a GPU. `last` is the extent along
    which its results lie side by side."""
    rows, columns, batches, depth = product.extents
    outputs, bounds = multiply((rows, columns, batches)), (_SKINNY, None)

    def take(case: _Case, many: int) -> _Case:
        """The case of so many outputs, with sides as long as each other that are left open: however
        many symbols one is the product of."""
        sides = (rows, columns, batches)
        for side in sides:
            known = dict(case.taken)
            ones = (*case.taken, *((s, 1) for s in list_measured(outputs) if s not in known))
            once, own = (max(1, estimate(size, ones)) for size in (outputs, side))
            still_open = sum(bool(set(list_measured(each)) - known.keys()) for each in sides)
            times = max(1, many / once) ** (1 / max(1, still_open))
            case = case.take(side, round(times * own))
        return case

    def share_out(is_few: Sequence[bool]) -> _Tree:
        case = _ANY
        for side, few in zip((rows, columns), is_few, strict=True):
            case = case.take(side, 8) if few else case
        if all(is_few):
            many = case.take(batches, 4)
            long: _Tree = many.take(depth, _LONG)
            if all(str(side).isidentifier() for side in (rows, columns)):
                both = (_ANY.give_one(outputs).take(depth, _LONG), long)
                long = _divide(outputs, (2, None), lambda n: both[n])
            return _divide(depth, (4096, None), lambda n: (many.take(depth, 256), long)[n])
        if any(is_few):
            case = take(case, 1 << 13)
            return _divide(depth, (256, None), lambda n: case.take(depth, (128, 4096)[n]))
        classes = [(), _IN_PIECES, _IN_DEEP_PIECES]
        deep = (256, 4096, _LONG)
        return _divide(depth, (_SHALLOW, _DEEP, None), lambda n: cut(classes[n], deep[n]))

    def cut(classes: Sequence[tuple[int, int]], deep: int) -> _Tree:
        last_bound = classes[-1][0] if classes else 0
        whole = [each for each in _TILES if each[0] is None or each[0] > last_bound]

        def make(number: int) -> _Tree:
            if number < len(classes):
                return take(_ANY, classes[number][1]).take(depth, deep)
            bound, many = whole[number - len(classes)]
            case = take(_ANY, many).take(depth, 256)
            # Storing results takes as long as few products do.
            return case if bound is not None else _part_fours(last, case, case)

        return _divide(outputs, [bound for bound, _ in (*classes, *whole)], make)

    def pair(few: bool) -> _Tree:
        if rows == columns:
            return share_out((few, few))
        return _divide(columns, bounds, lambda n: share_out((few, n == 0)))

    tree = _divide(rows, bounds, lambda n: pair(n == 0))
    # Where one side is known, a single row of the other is no product.
    for side, other in ((rows, columns), (columns, rows)):
        if isinstance(side, Size) and isinstance(other, int):
            tree = _Fork(side, "<", 2, _ANY.give_one(side).take(depth, 4096), tree)
    return tree


def _part_fours(symbol: str, fours: _Case, others: _Case) -> _Tree:
    """The cases of multiples of a size that is a symbol, and of other sizes."""
    if not symbol.isidentifier():
        return fours
    size = Size.of(symbol)
    multiple = divide_down(size, VECTOR) * VECTOR
    return _Fork(multiple, "==", size, fours.give(symbol, multiple), others)


def _find_product(function: ir.Function, group: Group, profile: Profile) -> Contraction | None:
    """The product of matrices that a group is, for tiles of a GPU."""
    if not profile.grouped or len(group.passes) > 2:
        return None
    try:
        phases, _ = collect_group(function, group)
    except UnsupportedError:
        return None
    return find_contraction(part_axes(phases))


def _divide(size: Measure, bounds: Sequence[int | None], make: Callable[[int], _Tree]) -> _Tree:
    """What there is for each class of a size, by the number of the first bound that it is below."""
    if isinstance(size, int):
        return make(next(n for n, bound in enumerate(bounds) if bound is None or size < bound))
    tree = make(len(bounds) - 1)
    for number, bound in reversed(list(enumerate(bounds))):
        if bound is not None and find_least(size) < bound:
            tree = _Fork(size, "<", bound, make(number), tree)
    return tree
