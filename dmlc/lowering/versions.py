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
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rows import name_memory
from dmlc.kernel.target import Profile
from dmlc.loops.contraction import find_contraction, part_axes
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
    is_multiple,
    measure,
    multiply,
    write_condition,
)  # fmt: skip
from dmlc.source import UnsupportedError
from dmlc.transform.fuse import Group

Classes: TypeAlias = tuple[tuple[int | None, int], ...]
"""How many there may be, each as less than a number, and what that is taken for."""

_OUTPUTS: Classes = ((16, 1), (256, 65), (None, 4097))
"""Outputs on a GPU. What is taken is odd, so that nothing is taken to begin where vectors do."""
_SHORT, _MIDDLE, _LONG = 17, 4097, (1 << 20) + 1
"""What points are taken for."""
_SCANS: tuple[Classes, ...] = (
    ((_MIDDLE, 4096), (None, _LONG)),
    ((8, 1), (512, 32), (4096, 512), (None, 1 << 17)),
    ((16, 1), (128, 16), (None, 4097)),
)
"""What a scan goes along; elements that lie side by side, of which a group takes several; and rows
of such."""
_ROWS: Classes = ((2, 1), (17, 8), (512, 256), (None, 4096))
"""Rows of a product, or columns, where one of both is left open."""
_SIDES: Classes = ((65, 32), (None, 1024))
"""The same where several sizes are."""
_MANY: Classes = ((1 << 18, 1 << 20), (None, 1 << 24))
"""Outputs of a product with several such sizes, as of a convolution. They are taken for many, so
that each size is for about as much as it has."""
_DEPTHS: Classes = ((2048, 256), (None, 1 << 17))
_FEW = 1 << 14
"""Outputs of a product whose points are cut into pieces where they are many."""

Lower: TypeAlias = Callable[[Taken, Sections], tuple[k.Kernel, ...]]
"""Makes the kernels that suit sizes as they are taken; sections have schedules for some."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Fork:
    """Sizes of which a comparison holds, and others."""

    of: Measure
    comparison: str
    bound: Measure
    first: _Tree
    second: _Tree


_Tree: TypeAlias = Taken | _Fork


def lower_versions(
    function: ir.Function, group: Group, profile: Profile, lower: Lower, own: Sections
) -> tuple[k.Kernel, ...]:
    """The kernels of a group: all versions one after the other. Those after the first have numbers
    in sections of `own`: `kernel Y.2`."""
    tree = _plan(function, group, profile)
    versions: list[tuple[k.Kernel, ...]] = []
    texts: list[str] = []
    chosen: dict[Taken, int] = {}
    for taken in dict.fromkeys(_list_leaves(tree)):
        # Which versions there are, schedules of a person's own do not change.
        made = lower(taken, NONE)
        text = "\n".join(map(print_kernel, made))
        if text not in texts:
            texts.append(text)
            after = own.follow(kernel for version in versions for kernel in version)
            again = own.named or own.seen is not None
            versions.append(tuple(map(after.rename, lower(taken, after) if again else made)))
        chosen[taken] = texts.index(text)
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


def _guard(kernel: k.Kernel, tree: _Tree, chosen: dict[Taken, int], number: int) -> k.Kernel:
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


def _list_leaves(tree: _Tree) -> Iterator[Taken]:
    if isinstance(tree, _Fork):
        yield from _list_leaves(tree.first)
        yield from _list_leaves(tree.second)
    else:
        yield tree


def _plan(function: ir.Function, group: Group, profile: Profile) -> _Tree:
    """The sizes that are told apart."""
    prefix = find_group_prefix(function, group)
    if prefix is not None:
        return _plan_scan(*map(multiply, prefix.part_extents()))
    points = max(
        (multiply(each.inner) for each in group.passes if each.reduces),
        key=lambda size: (not isinstance(size, int), find_least(size)), default=1,
    )  # fmt: skip
    outputs = multiply(group.parallel)
    plain = group.row is None and group.crossed is None and group.ranks is None
    if not plain or (isinstance(points, int) and isinstance(outputs, int)):
        return ()
    if _is_product(function, group, profile):
        sides = [measure(extent) for extent in group.parallel if isinstance(extent, str)]
        if len(sides) > 2:
            return _fork([(multiply(sides), _MANY)], ())
        several = len(sides) + isinstance(points, Size) > 1
        classes = [(side, _SIDES if several else _ROWS) for side in sides]

        def deepen(taken: Taken) -> _Tree:
            few = estimate(outputs, taken) <= _FEW
            return _fork([(points, _DEPTHS if few else ((None, _DEPTHS[0][1]),))], taken)

        return _fork(classes, (), deepen)
    most, is_gpu = 2 * profile.piece, profile.lanes == 1
    lengths: Classes = ((most, _MIDDLE), (None, _LONG))
    # The few work items of a CPU are worth no more launches where outputs may be many.
    few: Classes = _OUTPUTS if is_gpu else _OUTPUTS[-1:]
    return _fork([(points, ((256, _SHORT), *lengths) if is_gpu else lengths), (outputs, few)], ())


def _plan_scan(rows: Measure, length: Measure, inner: Measure) -> _Tree:
    """The sizes that are told apart of a scan. Where rows may be moved in vectors, those too."""
    sizes = list(zip((length, inner, rows), _SCANS, strict=True))
    if inner != 1 or is_multiple(length, 4):
        return _fork(sizes, ())
    fours = divide_down(length, 4)

    def note(taken: Taken) -> Taken:
        return (*taken, (str(fours), estimate(fours, taken)))

    return _Fork(fours * 4, "==", length, _fork(sizes, (), note), _fork(sizes, ()))


def _is_product(function: ir.Function, group: Group, profile: Profile) -> bool:
    """Whether a group is a product of matrices, for tiles of a GPU."""
    if profile.lanes > 1 or len(group.passes) > 2:
        return False
    try:
        phases, _ = collect_group(function, group)
    except UnsupportedError:
        return False
    return find_contraction(part_axes(phases)) is not None


def _fork(
    sizes: Sequence[tuple[Measure, Classes]],
    taken: Taken,
    then: Callable[[Taken], _Tree] = lambda taken: taken,
) -> _Tree:
    """Every class of the first size, with those of the others, and what there is `then`."""
    if not sizes:
        return then(taken)
    (size, classes), *rest = sizes
    known = {symbol for symbol, _ in taken}
    symbols = [s for s in find_symbols([str(size)]) if s not in known]

    def take(many: int) -> _Tree:
        if not symbols:
            return _fork(rest, taken, then)
        once = size.evaluate({**dict.fromkeys(size.symbols, 1)}) if isinstance(size, Size) else 1
        each = max(1, round((many / max(1, once)) ** (1 / len(symbols))))
        return _fork(rest, (*taken, *((symbol, each) for symbol in symbols)), then)

    *bounded, (_, last) = classes
    tree = take(last)
    for bound, many in reversed(bounded if symbols else []):
        if bound is not None and find_least(size) < bound:
            tree = _Fork(size, "<", bound, take(many), tree)
    return tree
