"""Versions of kernels for open sizes: each is correct for all sizes, and scheduled for some. A host
runs the version for its sizes, as the group-count formulas of the others give 0.

Versions differ in the assumed number of outputs, and of points per output: few outputs of many
points are reduced in chunks, few of fewer points by one large group each, and so on. The versions
depend on the open sizes and the profile alone; versions with equal schedules are merged.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Container, Iterator, Sequence
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
from dmlc.schedules.skinny import LEAST_OUTPUTS, MOST
from dmlc.sizes import (
    Measure,
    Size,
    Taken,
    as_extent,
    choose_size,
    divide_down,
    estimate,
    find_least,
    list_measured,
    multiply,
    write_condition,
)  # fmt: skip
from dmlc.source import UnsupportedError
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Group
from dmlc.transform.orders import Keyed, Scan, find_orders
from dmlc.transform.passes import Pass


@dataclasses.dataclass(frozen=True, slots=True)
class _Typical:
    """Assumed sizes of a class."""

    points: int
    outputs: int
    odd: int | None = None
    """Assumed number of points for those that are no multiple of `VECTOR`; None if these are not
    distinguished."""
    most: int | None = None
    """Largest number of points that are a multiple of it, if a work item keeps its elements in
    registers; None if it reads them again."""
    in_pieces: bool = False
    """Whether rows are taken in pieces around their own centres: see `Group.pieces`."""


_Table: TypeAlias = tuple[tuple[int | None, tuple[tuple[int | None, _Typical], ...]], ...]
"""Classes of the number of points, each by an exclusive upper bound (None: unbounded); in each,
classes of outputs, with the assumed sizes."""

_MIDDLE, _LONG = 4097, (1 << 20) + 1
"""Assumed values of large numbers of points; odd, so that no vector is assumed to be aligned."""
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
"""Reductions on a GPU. `python -m benchmarks.open_sizes` measures each row."""
_HELD = 1025, 4097
"""Bounds of the classes of points that a group's work items keep in registers, a vector each, if
several passes read them along one dimension."""
_PARTED = _Typical(5 << 16, 3, (5 << 16) - 1, in_pieces=True)
"""Long rows that are taken in pieces around their own centres."""
_PIECES = 1024
"""Pieces of all outputs. Pieces are of the outermost reduced dimension if its extent is large
enough for that, and else of the next one."""
_SHORT = 5
"""Extent that the outermost one is taken for if it has fewer points."""
_REDUCED_SERIALLY: _Table = (
    (1 << 16, ((None, _Typical(_MIDDLE, 4097)),)),
    (None, ((None, _Typical(_LONG, 4097)),)),
)
"""Reductions on a CPU. With few work items, more launches do not pay if there may be many
outputs."""
_ROWS = _Typical(4096, 4, 4096)
_SCANNED: _Table = (
    (2, ((None, _Typical(1, 4097)),)),
    (33, ((None, _Typical(17, 4)),)),
    (_MIDDLE, ((None, _ROWS),)),
    ((1 << 14) + 1, ((257, _Typical(4096, 4, 1 << 14)), (None, _ROWS))),
    (None, ((257, _Typical(1 << 17, 4, 1 << 14)), (None, _ROWS))),
)
"""Scans of contiguous rows."""
_ACROSS = _Typical(4096, 1 << 17)
_SCANNED_ACROSS: _Table = (
    (2, ((None, _Typical(1, 4097)),)),
    (33, ((None, _Typical(17, 32)),)),
    (1025, ((None, _ACROSS),)),
    (1 << 15, ((2049, _Typical(4096, 32)), (None, _ACROSS))),
    (None, ((2, _Typical(1 << 14, 1)), (2049, _Typical(1 << 17, 32)), (None, _ACROSS))),
)
"""Scans of interleaved rows, of which a group processes several."""
_SCANNED_SERIALLY: _Table = (
    (_MIDDLE, ((16, _Typical(4096, 2)), (None, _Typical(4096, 4097)))),
    (None, ((16, _Typical(_LONG, 2)), (None, _Typical(_LONG, 4097)))),
)
"""Scans on a CPU: few rows are cut into chunks, and each of many rows is one work item's."""
_APART = "it takes several kernels, for pieces of long rows are reduced apart"
_BESIDE = 4096
"""Largest number of interleaved rows; further ones are outer rows."""
_SKINNY, _NARROW = MOST + 1, 8
"""Smallest number of rows, or columns, of a product that is not skinny; and of a convolution that
is worth tiles of which a part is empty."""
_SHALLOW, _DEEP = 768, 1 << 14
"""Depths of products below which there are no chunks, and from which their number is fixed. Between
them, chunks have a fixed length."""
_TILES = ((1 << 16, 1 << 14), (1 << 19, 1 << 18), (1 << 22, 1 << 20), (None, 1 << 24))
"""Classes of outputs of a product without chunks, with the assumed number of outputs."""
_IN_PIECES = ((1 << 17, 1 << 14), (1 << 20, 1 << 18))
_IN_DEEP_PIECES = ((1 << 13, 1 << 12), (1 << 17, 1 << 15), (1 << 20, 1 << 18))
"""Classes of outputs of a product with chunks; larger ones have none."""

Lower: TypeAlias = Callable[[ir.Function, Group, Profile, Sections], tuple[k.Kernel, ...]]
"""Lowers a group of a function for a profile's assumed sizes, with user schedules."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Sizes that a version is for."""

    taken: Taken = ()
    given: tuple[tuple[str, Measure], ...] = ()
    """Values of symbols in this case: 1, or a multiple of `VECTOR`, so that rows of that size are
    aligned to vectors."""
    bounds: Taken = ()
    """Upper bounds of symbols in this case."""
    in_pieces: bool = False
    """Whether long rows are taken in pieces: see `Group.pieces`."""

    def take(self, size: Measure, many: int) -> _Case:
        """Case that assumes a value for a size, by its symbols that have none yet."""
        known = dict(self.taken)
        symbols = [s for s in list_measured(size) if s not in known]
        if not symbols:
            return self
        once = estimate(size, (*self.taken, *((s, 1) for s in symbols)))
        each = max(1, round((many / max(1, once)) ** (1 / len(symbols))))
        return dataclasses.replace(self, taken=(*self.taken, *((s, each) for s in symbols)))

    def give_one(self, size: Measure) -> _Case:
        """Case in which a size is 1; a product is 1 if all its symbols are."""
        (symbols, number), *others = size.terms if isinstance(size, Size) else [((), 0)]
        is_product = number == 1 and not others and all(s.isidentifier() for s in symbols)
        return functools.reduce(lambda c, s: c.give(s, 1), symbols if is_product else (), self)

    def give(self, symbol: str, size: Measure) -> _Case:
        """Case with a value for a symbol, unless it has one."""
        if symbol in dict(self.given):
            return self
        return dataclasses.replace(self, given=(*self.given, (symbol, size)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Fork:
    """Decision by a comparison of a size."""

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
    """Kernels of a group, all versions in order. In sections of `own`, versions after the first are
    numbered: `kernel Y.2`."""
    tree = _plan(function, group, profile, limits)
    versions: list[tuple[k.Kernel, ...]] = []
    texts: list[str] = []
    chosen: dict[_Case, int] = {}
    # Sections without a number apply to the first version, which must not be one for size 1.
    cases = sorted(dict.fromkeys(_list_cases(tree)), key=_is_of_one)
    if cases == [_ANY]:
        return tuple(map(own.rename, lower(function, group, profile, own)))
    for case in cases:
        # User schedules do not affect the choice of versions.
        own_profile = dataclasses.replace(profile, taken=case.taken, bounds=case.bounds)
        make = functools.partial(_lower_case, function, group, case, own_profile, lower)
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


def _lower_case(
    function: ir.Function,
    group: Group,
    case: _Case,
    profile: Profile,
    lower: Lower,
    own: Sections,
) -> tuple[k.Kernel, ...]:
    """Kernels of a group in one case."""
    if group.pieces is None or not case.in_pieces:
        return lower(*_assume(function, group, case, profile.walks), profile, own)
    parted, tensors = group.pieces.function, function.tensors()
    names = [stage.name for stage in parted.stages if stage.name not in tensors]
    # Pieces count as what they are combined to, and lie between kernels.
    made_for = {n: next(r for r in parted.readers()[n] if r in tensors) for n in names}
    counts = {s.name: as_extent(multiply(s.extents)) for s in parted.stages if s.name in made_for}

    def name(stages: Sequence[str], left_out: Container[str] = ()) -> tuple[str, ...]:
        kept = (made_for.get(each, each) for each in stages if each not in left_out)
        return tuple(dict.fromkeys(kept))

    # Their combination reads them alone.
    combined = set(made_for.values())
    return tuple(
        dataclasses.replace(
            kernel,
            buffers=tuple(
                dataclasses.replace(b, count=counts.get(b.name, b.count)) for b in kernel.buffers
            ),
            stages=name(kernel.stages),
            passes=tuple(filter(None, (name(each, combined) for each in kernel.passes))),
            apart=_APART,
        )
        for each in group.pieces.groups
        for kernel in lower(*_assume(parted, each, case, profile.walks), profile, own)
    )


def _assume(
    function: ir.Function, group: Group, case: _Case, walks: bool
) -> tuple[ir.Function, Group]:
    """Function and group with the sizes of a case, for work items that walk points or not."""
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
        # Rows of one element need no scan.
        known = find_orders(function, Budget(walks=walks and not group.orders), group.stages)
        orders = tuple(each for each in known if group.orders or isinstance(each, Keyed))
        group = dataclasses.replace(group, orders=orders)
    return function, group


def _drop_ones(each: Pass, parallel: tuple[ir.Extent, ...], inner: tuple[ir.Extent, ...]) -> Pass:
    """Pass over these dimensions without those of size 1."""
    kept = [number for number, extent in enumerate((*parallel, *inner)) if extent != 1]
    places = {number: place for place, number in enumerate(kept)}
    members = tuple(
        dataclasses.replace(m, axes=tuple((i, places[d]) for i, d in m.axes if d in places))
        for m in each.members
    )
    return dataclasses.replace(each, members=members, inner=tuple(e for e in inner if e != 1))


def _has_same_nests(some: Sequence[k.Kernel], others: Sequence[k.Kernel]) -> bool:
    """Whether kernels have equal schedules and vector loads."""
    return [_outline(kernel) for kernel in some] == [_outline(kernel) for kernel in others]


def _outline(kernel: k.Kernel) -> tuple[object, ...]:
    loads = (e for e in walk_parts(*walk_statements(kernel.body)) if isinstance(e, k.Load))
    lanes = tuple((load.buffer, load.type.lanes) for load in loads)
    return kernel.walk, kernel.script, lanes


def _guard(kernel: k.Kernel, tree: _Tree, chosen: dict[_Case, int], number: int) -> k.Kernel:
    """Kernel of a version, with 0 groups for sizes of another version."""

    def choose(size: int | str, otherwise: int, at: _Tree) -> int | str:
        if not isinstance(at, _Fork):
            return size if chosen[at] == number else otherwise
        first, second = (choose(size, otherwise, each) for each in (at.first, at.second))
        larger = at.second
        # A size below one bound is also below the next.
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
    """Whether a fork's range below its bound is within that of another fork."""
    ours, theirs = at.bound, larger.bound
    if not isinstance(ours, int) or not isinstance(theirs, int):
        return False
    return larger.of == at.of and ours <= theirs


def _list_cases(tree: _Tree) -> Iterator[_Case]:
    """Cases of a tree, those for any size before those for multiples."""
    if isinstance(tree, _Fork):
        sides = (tree.first, tree.second)
        for side in reversed(sides) if tree.comparison == "==" else sides:
            yield from _list_cases(side)
    else:
        yield tree


def _is_of_one(case: _Case) -> bool:
    return any(size == 1 for _, size in case.given)


def _plan(function: ir.Function, group: Group, profile: Profile, limits: Limits) -> _Tree:
    """Decision tree of the cases."""
    scan = next((order for order in group.orders if isinstance(order, Scan)), None)
    if scan is not None:
        rows, length, inner = map(multiply, scan.part_extents())
        on_gpu = _SCANNED if inner == 1 else _SCANNED_ACROSS
        table, beside = (on_gpu, str(length)) if profile.grouped else (_SCANNED_SERIALLY, "")
        if isinstance(rows * inner, int):
            # A known number of rows of one element each is not worth a version.
            table = tuple((bound, classes) for bound, classes in table if bound != 2)
        return _look_up(table, length, rows * inner, (inner, rows), beside)
    reduced = [each.inner for each in group.passes if each.reduces]
    points = max(
        map(multiply, reduced),
        key=lambda size: (not isinstance(size, int), find_least(size)), default=1,
    )  # fmt: skip
    outputs = multiply(group.parallel)
    if not group.is_plain or (isinstance(points, int) and isinstance(outputs, int)):
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
    outer = _find_outer(function, group) if profile.lanes == 1 else 1
    if group.pieces is not None:
        table = (*table[:-1], (None, ((None, _PARTED),)))
    return _look_up(table, points, outputs, (outputs,), beside, outer)


def _find_outer(function: ir.Function, group: Group) -> Measure:
    """Outermost of several dimensions that a group's first points are reduced along and that are
    not contiguous in memory; 1 if there are not several."""
    try:
        phases, _ = collect_group(function, group)
    except UnsupportedError:
        return 1
    space = phases[0].space
    return space.extents[space.inner[0]] if len(space.inner) > 1 else 1


def _hold(limits: Limits) -> _Table:
    """Table of reductions on a GPU whose groups keep the points of an output in registers, as they
    read them again."""
    most = 0 if limits.vector_lanes == 1 else limits.group_size * VECTOR
    held = (
        (bound, tuple((o, dataclasses.replace(t, most=bound - 1)) for o, t in _REDUCED[3][1]))
        for bound in _HELD if bound <= most + 1
    )  # fmt: skip
    return (*_REDUCED[:3], *held, *_REDUCED[3:])


def _look_up(
    table: _Table,
    points: Measure,
    outputs: Measure,
    parts: Sequence[Measure],
    symbol: str,
    outer: Measure = 1,
) -> _Tree:
    """Decision tree by a table. `outputs` is the product of `parts`, of which the first is at most
    `_BESIDE`; `symbol` is the size of the contiguous dimension of points. Where points are cut into
    pieces, these are along the `outer` dimension of points if it is long."""

    def divide(number: int) -> _Tree:
        classes = table[number][1]
        return _divide(outputs, [bound for bound, _ in classes], lambda n: take(classes[n][1]))

    def take(typical: _Typical) -> _Tree:
        if typical.points == _LONG and not isinstance(outer, int):
            short = make(_LONG, typical.outputs, _ANY.take(outer, _SHORT))
            plain = make(_LONG, typical.outputs)
            fours = _split_fours(symbol, short, short)
            return _Fork(multiply((outer, outputs)), "<", _PIECES, fours, plain)
        case = _Case(in_pieces=typical.in_pieces)
        fours = case = make(typical.points, typical.outputs, case)
        if typical.odd is None:
            return case
        if typical.most is not None:
            fours = dataclasses.replace(make(typical.most, 4097), bounds=((symbol, typical.most),))
        odd = make(typical.odd, typical.outputs, _Case(in_pieces=typical.in_pieces))
        return _split_fours(symbol, fours, odd)

    def make(many: int, each: int, known: _Case = _ANY) -> _Case:
        case, left = known.take(points, many), each
        for part in parts:
            most = left if part is parts[-1] else min(left, _BESIDE)
            case = case.take(part, most)
            left = max(1, left // max(1, estimate(part, case.taken)))
        # Classes for a size of 1 have a bound of 2.
        case = case.give_one(points) if many == 1 else case
        return case.give_one(outputs) if each == 1 else case

    return _divide(points, [bound for bound, _ in table], divide)


def _plan_product(product: Contraction, last: str) -> _Tree:
    """Decision tree of a product's tiles on a GPU. `last` is the extent of the results' contiguous
    dimension."""
    rows, columns, batches, depth = product.extents
    outputs = multiply((rows, columns, batches))
    bounds = (_NARROW if product.phase.has_positions else _SKINNY, None)

    def take(case: _Case, many: int) -> _Case:
        """Case of `many` outputs, with open sides of equal length, whatever the number of their
        symbols."""
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
            few = _ANY.take(rows, 4).take(columns, 4).take(batches, 4).take(depth, _LONG)
            long = _divide(
                multiply((rows, columns)), (LEAST_OUTPUTS, None),
                lambda n: (few, many.take(depth, _LONG))[n],
            )  # fmt: skip
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
            # With few products, storing the results dominates.
            return case if bound is not None else _split_fours(last, case, case)

        return _divide(outputs, [bound for bound, _ in (*classes, *whole)], make)

    def pair(few: bool) -> _Tree:
        if rows == columns:
            return share_out((few, few))
        return _divide(columns, bounds, lambda n: share_out((few, n == 0)))

    tree = _divide(rows, bounds, lambda n: pair(n == 0))
    # If one side is known, a single row of the other is a reduction, no product.
    for side, other in ((rows, columns), (columns, rows)):
        if isinstance(side, Size) and isinstance(other, int):
            tree = _Fork(side, "<", 2, _ANY.give_one(side).take(depth, 4096), tree)
    return tree


def _split_fours(symbol: str, fours: _Case, others: _Case) -> _Tree:
    """Cases for multiples of `VECTOR` of a symbol, and for other sizes."""
    if not symbol.isidentifier():
        return fours
    size = Size.of(symbol)
    multiple = divide_down(size, VECTOR) * VECTOR
    return _Fork(multiple, "==", size, fours.give(symbol, multiple), others)


def _find_product(function: ir.Function, group: Group, profile: Profile) -> Contraction | None:
    """Matrix product that a group is, for tiles on a GPU; None if it is none."""
    if not profile.grouped or len(group.passes) > 2:
        return None
    try:
        phases, _ = collect_group(function, group)
    except UnsupportedError:
        return None
    return find_contraction(part_axes(phases))


def _divide(size: Measure, bounds: Sequence[int | None], make: Callable[[int], _Tree]) -> _Tree:
    """Decision tree by the class of a size: `make` gets the number of the first bound above it."""
    if isinstance(size, int):
        return make(next(n for n, bound in enumerate(bounds) if bound is None or size < bound))
    tree = make(len(bounds) - 1)
    for number, bound in reversed(list(enumerate(bounds))):
        if bound is not None and find_least(size) < bound:
            tree = _Fork(size, "<", bound, make(number), tree)
    return tree
