"""Vectors with non-contiguous lanes: contiguous loads, and shuffles of them.

`permute` determines the element of each lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate, widen, zero_of
from dmlc.loops.permute import HALF, LANES, Pattern, Patterns

Load = Callable[[k.Expression, int], k.Expression]
"""Loads a number of contiguous elements from an offset on."""


def load_patterns(
    patterns: Patterns,
    place: k.Expression,
    base: k.Expression,
    front: int,
    load: Load,
    name: Callable[[str, k.Expression], k.Let],
) -> tuple[list[k.Let], dict[str, k.Expression]]:
    """Loads, and the vector of each pattern, where `place` is the output of the first lane, a
    multiple of a vector. Offsets are relative to `base` and `front`."""
    shared = math.gcd(LANES, patterns.step)
    turn = place if shared == LANES else operate("div", place, index(LANES // shared))
    low, high = patterns.starts
    moved = add(base, multiply(turn, patterns.step // shared), index(front + low))
    start = name("start", moved)
    lets = [start]
    for offset in range(0, HALF * patterns.loads, HALF):
        first = add(start.local, index(offset))
        if high == low + HALF:
            value = load(first, LANES)
        else:
            second = load(add(start.local, index(offset + high - low)), HALF)
            part = load(first, HALF)
            value = k.Join(part, second, k.Type(part.type.dtype, LANES))
        lets.append(name("elements", value))
    loaded = [let.local for let in lets[1:]]
    permuted: dict[str, k.Expression] = {}
    for wanted, pattern in patterns.named.items():
        steps, permuted[wanted] = _shuffle(pattern, patterns.starts, loaded, name)
        lets += steps
    return lets, permuted


def spread_load(
    pattern: Pattern, first: k.Load, name: Callable[[str, k.Expression], k.Let]
) -> tuple[list[k.Let], k.Expression]:
    """A vector whose lanes are at given distances from the first load's element: its definitions,
    and its value."""

    def load(place: k.Expression, lanes: int) -> k.Expression:
        return k.Load(first.buffer, place, k.Type(first.type.dtype, lanes))

    if pattern == tuple(range(LANES)):
        return [], load(first.index, LANES)
    if not any(pattern):
        return [], load(first.index, 1)
    alone = Patterns(0, {"": pattern})
    lets, permuted = load_patterns(alone, index(0), first.index, 0, load, name)
    return lets, permuted[""]


def _shuffle(
    pattern: Pattern,
    starts: tuple[int, int],
    loaded: Sequence[k.Local],
    name: Callable[[str, k.Expression], k.Let],
) -> tuple[list[k.Let], k.Expression]:
    """Vector of lanes picked from the loaded ones and from zeros, with the definitions of further
    shuffles if it takes several."""
    whole = loaded[0].type
    lanes: list[tuple[int, int]] = []
    for lane, place in enumerate(pattern):
        half = lane // HALF
        number, further = (len(loaded), lane % HALF)
        if place is not None:
            number, further = divmod(place - starts[half], HALF)
        lanes.append((number, half * HALF + further))
    zero = zero_of(whole.dtype)
    vectors: list[k.Expression] = [*loaded, widen(zero, whole.lanes)]
    first, *others = sorted({source for source, _ in lanes})
    made, lets = vectors[first], list[k.Let]()
    # Lanes not picked yet are arbitrary.
    taken = [further if source == first else n for n, (source, further) in enumerate(lanes)]
    if not others and taken != list(range(LANES)):
        made = k.Shuffle(made, made, tuple(taken), whole)
    for other in others:
        if isinstance(made, k.Shuffle):
            lets.append(name("elements", made))
            made = lets[-1].local
        for lane, (source, further) in enumerate(lanes):
            if source == other:
                taken[lane] = LANES + further
        made = k.Shuffle(made, vectors[other], tuple(taken), whole)
        taken = list(range(LANES))
    return lets, made
