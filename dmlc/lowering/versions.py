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
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.ir.specialize import replace_extent, replace_size
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import walk_parts, walk_statements
from dmlc.kernel.rows import name_memory
from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.phases import VECTOR
from dmlc.loops.sections import NONE, Sections
from dmlc.lowering.group import collect_group
from dmlc.lowering.scans import find_group_prefix
from dmlc.sizes import (
    Measure,
    Size,
    Taken,
    choose_size,
    divide_down,
    estimate,
    find_least,
    find_symbols,
    multiply,
    write_condition,
)  # fmt: skip
from dmlc.source import UnsupportedError
from dmlc.transform.fuse import Group
from dmlc.transform.passes import Pass

Classes: TypeAlias = tuple[tuple[int | None, int | None], ...]
"""How many there may be, each as less than a number, and what that is taken for: None where other
sizes say."""

_OUTPUTS: Classes = ((2, 1), (33, 17), (257, 65), (2049, 513), (None, 4097))
"""Outputs on a GPU. What is taken is odd, so that nothing is taken to begin where vectors do."""
_SHORT = 512
_POINTS: Classes = ((2, 1), (33, 17), (_SHORT + 1, 129))
"""Few points on a GPU."""
_MIDDLE, _LONG = 4097, (1 << 20) + 1
"""What more points are taken for."""
_SCANS: tuple[Classes, ...] = (
    ((33, 17), (_MIDDLE, 4096), (16385, 16384), (1 << 18, 1 << 17), (None, _LONG)),
    ((2, 1), (8, 4), (512, 32), (4096, 512), (None, 1 << 17)),
    ((2, 1), (17, 4), (128, 32), (None, 4097)),
)
"""What a scan goes along; elements that lie side by side, of which a group takes several; and rows
of such."""
_SIDES: Classes = ((17, 8), (None, None))
"""Rows of a product, or columns: those of a skinny one, and others."""
_SKINNY: Classes = ((64, 32), (4097, 1024), (None, 1 << 14))
"""The long side of a skinny product."""
_TILES: Classes = (
    (1 << 15, 1 << 12), (1 << 18, 1 << 15), (1 << 20, 1 << 18), (1 << 22, 1 << 20), (None, 1 << 24),
)  # fmt: skip
"""Outputs of any other: how large its tiles are, and how many pieces its points are cut into."""
_ITEMS = 1 << 15
"""Work items of pieces of products, together."""

Lower: TypeAlias = Callable[[ir.Function, Group, Taken, Sections], tuple[k.Kernel, ...]]
"""Makes the kernels that suit sizes as they are taken, of a function and one of its groups;
sections have schedules for some."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """Sizes that a version is for."""

    taken: Taken = ()
    given: tuple[tuple[str, Measure], ...] = ()
    """What symbols come to in this case: 1, or a multiple of `VECTOR`. A vector begins wherever
    such a multiple ends."""

    def take(self, symbols: Sequence[str], many: int) -> _Case:
        """The case with symbols taken for a number each."""
        return dataclasses.replace(self, taken=(*self.taken, *((s, many) for s in symbols)))

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
    function: ir.Function, group: Group, profile: Profile, lower: Lower, own: Sections
) -> tuple[k.Kernel, ...]:
    """The kernels of a group: all versions one after the other. Those after the first have numbers
    in sections of `own`: `kernel Y.2`."""
    tree = _plan(function, group, profile)
    versions: list[tuple[k.Kernel, ...]] = []
    texts: list[str] = []
    chosen: dict[_Case, int] = {}
    for case in dict.fromkeys(_list_cases(tree)):
        # Which versions there are, schedules of a person's own do not change.
        make = functools.partial(lower, *_assume(function, group, case), case.taken)
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
        again = larger.first if isinstance(larger, _Fork) and larger.of == at.of else None
        if again is not None and choose(size, otherwise, again) == first:
            return second
        return choose_size(write_condition(at.of, at.comparison, at.bound), first, second)

    launch = dataclasses.replace(kernel.launch, count=choose(kernel.launch.count, 0, tree))
    buffers = tuple(
        dataclasses.replace(b, count=choose(b.count, 1, tree)) if isinstance(b.count, str) else b
        for b in kernel.buffers
    )
    return dataclasses.replace(kernel, launch=launch, buffers=buffers)


def _list_cases(tree: _Tree) -> Iterator[_Case]:
    """The cases of a tree; those of any sizes before those of multiples."""
    if isinstance(tree, _Fork):
        sides = (tree.first, tree.second)
        for side in reversed(sides) if tree.comparison == "==" else sides:
            yield from _list_cases(side)
    else:
        yield tree


def _plan(function: ir.Function, group: Group, profile: Profile) -> _Tree:
    """The sizes that are told apart."""
    prefix = find_group_prefix(function, group)
    if prefix is not None:
        return _plan_scan(*map(multiply, prefix.part_extents()))
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
    most = 2 * profile.piece
    lengths: Classes = ((most, _MIDDLE), (None, _LONG))
    if profile.lanes > 1:
        # The few work items of a CPU are worth no more launches where outputs may be many.
        return _fork([(points, lengths), (outputs, _OUTPUTS[-1:])])
    (first, *_) = reduced or [()]

    def share_out(case: _Case) -> _Tree:
        is_long = estimate(points, case.taken) > _SHORT
        return _part_fours(
            str(first[-1]) if first and is_long else "", _fork([(outputs, _OUTPUTS)], case)
        )

    return _fork([(points, (*_POINTS, *lengths))], _ANY, share_out)


def _plan_product(product: Contraction, last: str) -> _Tree:
    """The sizes that are told apart of a product for tiles of a GPU. `last` is the extent along
    which its results lie side by side."""
    rows, columns, batches, depth = product.extents
    outputs, is_skinny = multiply((rows, columns, batches)), _SIDES[0][0] or 1

    def share_out(case: _Case) -> _Tree:
        known = [_settle(side, case.taken) for side in (rows, columns)]
        few = [number for number in known if number is not None and number < is_skinny]
        if few:
            longer = next((s for s, n in zip((rows, columns), known, strict=True) if n is None), 1)
            return _fork([(longer, _SKINNY)], case, lambda case: deepen_skinny(case, longer))
        least = estimate(batches, case.taken) * math.prod(n or is_skinny for n in known)
        classes = tuple(each for each in _TILES if each[0] is None or each[0] > least)
        return _fork([(outputs, classes)], case, deepen)

    def deepen_skinny(case: _Case, longer: Measure) -> _Tree:
        pieces = 2 * _ITEMS // estimate(longer, case.taken)
        return _fork([(depth, _list_depths(pieces, 128, 2))], case)

    def deepen(case: _Case) -> _Tree:
        pieces = 64 * _ITEMS // estimate(outputs, case.taken)
        tree = _fork([(depth, _list_depths(pieces, 256, 3))], case)
        # Storing results takes as long as few products do.
        return tree if pieces > 2 else _part_fours(last, tree)

    # Where one side is known, a single row of the other is no product.
    alone = isinstance(rows, int) or isinstance(columns, int)
    sides = ((2, 1), *_SIDES) if alone else _SIDES
    return _fork([(side, sides) for side in (rows, columns)], _Case(), share_out)


def _list_depths(pieces: int, length: int, least: int) -> Classes:
    """The products in each sum that are told apart where they are cut into so many pieces at most,
    and at least, of some length."""
    if pieces < least:
        return ((None, 1024),)
    middle: Classes = ((8192, 4096), (1 << 17, 1 << 16))
    told = (each for each in middle if pieces * length >= (each[1] or 0))
    return ((least * length, length), *told, (None, _LONG))


def _settle(size: Measure, taken: Taken) -> int | None:
    """What a size is taken for; None where nothing says."""
    known = dict(taken)
    symbols = size.symbols if isinstance(size, Size) else ()
    return estimate(size, taken) if all(symbol in known for symbol in symbols) else None


def _plan_scan(rows: Measure, length: Measure, inner: Measure) -> _Tree:
    """The sizes that are told apart of a scan."""
    sizes = list(zip((length, inner, rows), _SCANS, strict=True))
    return _part_fours(str(length) if inner == 1 else "", _fork(sizes))


def _part_fours(symbol: str, plain: _Tree) -> _Tree:
    """The cases of a tree, and the same for multiples of a size that is a symbol."""
    if not symbol.isidentifier():
        return plain
    size = Size.of(symbol)
    multiple = divide_down(size, VECTOR) * VECTOR

    def assume(tree: _Tree) -> _Tree:
        if isinstance(tree, _Fork):
            return dataclasses.replace(tree, first=assume(tree.first), second=assume(tree.second))
        return tree.give(symbol, multiple)

    return _Fork(multiple, "==", size, assume(plain), plain)


def _find_product(function: ir.Function, group: Group, profile: Profile) -> Contraction | None:
    """The product of matrices that a group is, for tiles of a GPU."""
    if profile.lanes > 1 or len(group.passes) > 2:
        return None
    try:
        phases, _ = collect_group(function, group)
    except UnsupportedError:
        return None
    return find_contraction(part_axes(phases))


def _fork(
    sizes: Sequence[tuple[Measure, Classes]],
    case: _Case = _ANY,
    then: Callable[[_Case], _Tree] = lambda case: case,
) -> _Tree:
    """Every class of the first size, with those of the others, and what there is `then`."""
    if not sizes:
        return then(case)
    (size, classes), *rest = sizes
    known = dict(case.taken)
    symbols = [s for s in find_symbols([str(size)]) if s not in known]

    def take(bound: int | None, many: int | None) -> _Tree:
        if many is None or not symbols:
            return _fork(rest, case, then)
        ones = {**dict.fromkeys(symbols, 1), **known}
        once = size.evaluate(ones) if isinstance(size, Size) else 1
        each = max(1, round((many / max(1, once)) ** (1 / len(symbols))))
        made = case.take(symbols, each)
        # What is less than 2 is 1: then it is as good as known.
        made = made.give(str(size), 1) if bound == 2 and symbols == [str(size)] else made
        return _fork(rest, made, then)

    *bounded, (_, last) = classes
    tree = take(None, last)
    for bound, many in reversed(bounded if symbols else []):
        if bound is not None and find_least(size) < bound:
            tree = _Fork(size, "<", bound, take(bound, many), tree)
    return tree
