"""Makes sums over the points that read an element short, where elements of a tensor say which.

The gradient of a read at positions that come from data, `Y[p] = X[I[p]]`, is a sum over all points
with the condition that a point reads this element: `dX[e] = sum[p : n where I[p] == e](dY[p])`. As
it stands it goes through every point for each element. Where that is long, stages first build the
inverse index: each point's key, which is the number of the element it reads; the points in the
order of their keys (`sort`); and where each element's begin among them. The sum then goes through
those of its element alone, `start[e] <= k < start[e + 1]`, and reads the point `order[k]`.

The points of an element keep their order, so that what is reduced is the same values in the same
order on every device, and no two points write to one place. A kernel adds them up one after the
other, those of an element with many in strips (`narrow_loops`). Points whose data lie outside of
every element, or which another condition leaves out, have the largest key and fall to none. Several
conditions, one for each axis of the element, make one key; what they read may depend on further
axes of the result: each place along these has an index.

Sizes alone say where it pays. Of long sums that stay as they are, compiled kernels warn.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Cast,
    Function,
    Index,
    Load,
    Reduction,
    Select,
    Stage,
    packed_strides,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.ir.verify import are_sound
from dmlc.scalars import Array, DataType
from dmlc.transform.keys import Key, find_place, find_point_keys, guard_choices
from dmlc.transform.sort import (
    BLOCK,
    NUMBER,
    Order,
    count_merges,
    count_padded,
    find_starts,
    rank_rows,
    sort_rows,
)

_MOST_ELEMENTS = int(np.iinfo(NUMBER.dtype).max)
"""Elements of one index, at most: a key is a number."""
_MOST_POINTS = 1 << 30
"""Points of one index, at most: positions a little beyond the last have 32 bits."""
_LEAST_STEPS = 1 << 25
"""Steps of a sum that is worth the launches."""
_GAIN = 16
"""How many times the steps there are to be without an index: these are of neighbours, in vectors,
while steps of sorting wait for one another. Measured on a CPU, with 2,000 to 16,000 points: from 15
to 20 times as many on, an index is quicker."""
_NEIGHBOURS = 4
"""Points of a rank that take as long as one step that reads somewhere."""
_BISECTED = 4
"""Steps that one of a bisection takes."""


def index_inverses(
    function: Function, walked: Container[str] = (), *, walks: bool = False, always: bool = False
) -> Function:
    """The function with an inverse index for each long sum over points that data choose by their
    keys, or `always`, however short it is, but for those whose points are `walked`; the function
    itself where it has none. Where a work item `walks` them, the kernels put keys in order."""
    names, tables = dict.fromkeys(function.tensors()), function.arrays()
    stages: list[Stage] = []
    for stage in function.stages:
        choice = find_choice(stage, tables)
        short = choice is not None and not (always or choice.is_worth_it)
        if choice is None or not choice.suits or short or stage.name in walked:
            stages.append(stage)
            continue
        made = _index(choice, names, walks=walks)
        # What a condition may protect can be read no longer where points come from an index.
        stages += made if are_sound(function, stages, made) else [stage]
    return function.with_stages(stages)


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A reduction over points of which elements say to what element of the result each belongs."""

    stage: Stage
    """With all that leaves points out in its guard."""
    keys: tuple[Key, ...]
    batch: tuple[Index, ...]
    """The indices of the domain on which keys depend: each place of theirs has an index."""
    points: tuple[Index, ...]
    """Those of the reduction that number the points."""
    conditions: tuple[int, ...]
    """What else leaves out a point, wherever it is read: it then belongs to no element."""

    def count(self, indices: Sequence[Index]) -> int:
        extents = (self.stage.extent(index) for index in indices)
        return math.prod(e for e in extents if isinstance(e, int))

    @property
    def elements(self) -> int:
        """The keys that a point may have, without that of those outside."""
        return math.prod(key.places for key in self.keys)

    @property
    def dense_steps(self) -> int:
        """The points that are gone through without an index."""
        return self.count(self.stage.indices)

    @property
    def short_steps(self) -> int:
        """About how many steps it takes to build an index, and to reduce by it."""
        points, elements = self.count(self.points), self.elements
        each = self.count(self.batch)
        others = self.dense_steps // max(1, each * elements * points)
        padded, depth = count_padded(points), points.bit_length()
        ranks = padded * min(padded, BLOCK) // _NEIGHBOURS
        sorting = _BISECTED * depth * (padded * count_merges(points) + elements)
        return each * (ranks + sorting + (points + elements) * others)

    @property
    def suits(self) -> bool:
        """Whether there can be an index: one for values, as positions would be other numbers; of
        keys and places that 32 bits hold."""
        if self.stage.combiner in POSITIONAL_COMBINERS:
            return False
        return self.elements < _MOST_ELEMENTS and self.count(self.points) < _MOST_POINTS

    @property
    def is_long(self) -> bool:
        """Whether there are steps enough for launches to be worth it."""
        return self.dense_steps >= _LEAST_STEPS

    @property
    def is_worth_it(self) -> bool:
        """Whether the sum is long, and much shorter with an index."""
        return self.is_long and self.dense_steps >= _GAIN * self.short_steps


def find_choice(stage: Stage, tables: Mapping[str, Array]) -> Choice | None:
    """How elements choose what a stage reduces; None where they do not say it by conditions that
    each hold for one place along an axis. The elements of `tables` are known."""
    if stage.reduction is None or not all(isinstance(e, int) and e for e in stage.sizes):
        return None
    stage = guard_choices(stage)
    facts = IndexFacts(stage, tables)
    keys: list[Key] = []
    for condition in facts.conditions:
        made = [*keys, *itertools.islice(find_point_keys(facts, condition), 1)]
        few = math.prod(key.places for key in made) < _MOST_ELEMENTS
        # Each has an axis of its own, on which none of them depends.
        axes, own = [key.index for key in made], facts.depends_on(key.value for key in made)
        apart = len(set(axes)) == len(axes) and set(axes).isdisjoint(own)
        if apart and (few or len(made) == 1):
            keys = made
    read = facts.depends_on(key.value for key in keys)
    batch = tuple(index for index in read if not index.reduced)
    points = tuple(index for index in stage.indices if index.reduced and index in read)
    settled = {key.condition for key in keys}
    others = (c for c in facts.conditions if c not in settled)
    own = tuple(c for c in others if set(facts.dependencies[c]) <= set(read))
    return Choice(stage, tuple(keys), batch, points, own) if keys else None


# Stages --------------------------------------------------------------------------------------


def _index(choice: Choice, names: dict[str, None], *, walks: bool) -> list[Stage]:
    """A stage that is reduced by an inverse index, after the stages that build that."""
    name = choice.stage.name
    keys = _make_keys(choice, take_name(f"{name}_keys", names))
    order = Order(is_bounded=True)
    whole = choice.count(choice.points) > BLOCK
    make = rank_rows if whole else sort_rows
    made = make(keys, name, names, order)
    starts = find_starts(made.numbers, choice.elements, take_name(f"{name}_start", names))
    return [keys, *made.stages, starts, _reduce(choice, made.places, starts)]


def _make_keys(choice: Choice, name: str) -> Stage:
    """The key of each point, and of those that fill the last block."""
    builder, body = BodyBuilder(), choice.stage.body
    count = choice.count(choice.points)
    own = builder.add(Index(len(choice.batch)))
    number = builder.apply("min", own, builder.constant(count - 1))
    moved = {index: builder.add(Index(axis)) for axis, index in enumerate(choice.batch)}
    moved |= _part(choice, builder, number)
    numbers = builder.copy(body, places=moved)
    total, conditions = builder.constant(0), [builder.apply("lt", own, builder.constant(count))]
    strides = packed_strides(tuple(key.places for key in choice.keys))
    for key, stride in zip(choice.keys, strides, strict=True):
        place, inside = find_place(builder, numbers[key.value], key)
        total = builder.apply("add", total, builder.apply("mul", place, builder.constant(stride)))
        conditions += inside
    conditions += (numbers[condition] for condition in choice.conditions)
    outside = builder.constant(choice.elements, NUMBER)
    found = builder.add(Cast(total, NUMBER))
    for condition in conditions:
        found = builder.add(Select(condition, found, outside, NUMBER))
    sizes = (choice.stage.extent(index) for index in choice.batch)
    domain = (*(size for size in sizes if size is not None), count_padded(count))
    return Stage(name, NUMBER, domain, builder.make(found))


def _reduce(choice: Choice, places: Stage, starts: Stage) -> Stage:
    """The stage that reduces the points of each element, which lie side by side."""
    stage, body = choice.stage, choice.stage.body
    count, first, builder = choice.count(choice.points), choice.points[0], BodyBuilder()
    outer = tuple(builder.add(index) for index in choice.batch)
    number = builder.add(first)
    found = builder.add(Load(places.name, (*outer, number), NUMBER))
    place, last = builder.add(Cast(found, DataType.INDEX)), builder.constant(count - 1)
    point = builder.apply("max", builder.apply("min", place, last), builder.constant(0))
    numbers = builder.copy(body, places=_part(choice, builder, point))
    element = builder.constant(0)
    strides = packed_strides(tuple(key.places for key in choice.keys))
    for key, stride in zip(choice.keys, strides, strict=True):
        step = builder.apply("mul", builder.add(key.index), builder.constant(stride))
        element = builder.apply("add", element, step)
    ends: list[int] = []
    for place in (element, builder.apply("add", element, builder.constant(1))):
        start = builder.add(Load(starts.name, (*outer, place), NUMBER))
        ends.append(builder.add(Cast(start, DataType.INDEX)))
    settled = {*choice.conditions, *(key.condition for key in choice.keys)}
    left = [numbers[c] for c in IndexFacts(stage).conditions if c not in settled]
    inside = [builder.apply("ge", number, ends[0]), builder.apply("lt", number, ends[1])]
    made = builder.make(numbers[body.result], builder.join([*inside, *left]))
    kept = tuple(
        (label, count if label == first.axis else extent)
        for label, extent in stage.axes
        if label == first.axis or Index(label, reduced=True) not in choice.points
    )
    return dataclasses.replace(stage, body=made, reduction=Reduction(stage.combiner or "", kept))


def _part(choice: Choice, builder: BodyBuilder, number: int) -> dict[Index, int]:
    """Where a point lies along each axis, of those that number the points."""
    sizes = tuple(choice.count([index]) for index in choice.points)
    found: dict[Index, int] = {}
    for index, size, stride in zip(choice.points, sizes, packed_strides(sizes), strict=True):
        place = builder.apply("div", number, builder.constant(stride)) if stride > 1 else number
        if index is not choice.points[0]:
            place = builder.apply("mod", place, builder.constant(size))
        found[index] = place
    return found
