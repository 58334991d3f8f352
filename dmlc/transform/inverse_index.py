"""Inverse indices for reductions whose points are selected by elements of a tensor.

The gradient of a gather, `Y[p] = X[I[p]]`, is a sum over all points that read an element:
`dX[e] = sum[p : n where I[p] == e](dY[p])`. As it stands it visits every point for each element. If
that is long, stages first build the inverse index: the key of each point, which is the number of
the element it reads; the points sorted by key (`sort`); and the start of each element's points
among them. The sum then visits the points of its element alone, `start[e] <= k < start[e + 1]`, and
reads the point `order[k]`.

The sort is stable, so that each element reduces the same values in the same order on every device,
and no two points write to one place. If a condition depends on further axes of the result, there is
one index for each position along these (`batch`). `docs/explanation/inverse-index.md` has the rest.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from dmlc.ir import Cast, Function, Index, Load, Reduction, Select, Stage, packed_strides
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.scalars import Array, DataType
from dmlc.transform.keys import Key, add_places, find_point_keys, guard_choices
from dmlc.transform.simplify import replace_soundly
from dmlc.transform.sort import LEAST_ROW, MOST_POINTS, NUMBER, find_starts, rank_rows

_MOST_ELEMENTS = int(np.iinfo(NUMBER.dtype).max)
"""Largest number of elements of one index, as a key is a `NUMBER`."""
_LEAST_STEPS = 1 << 25
"""Smallest number of steps of a sum that is worth the launches."""
_GAIN = 16
"""Smallest ratio of steps without an index to steps with one: the former are vectorized, while the
steps of sorting depend on one another. Measured on a CPU with 2,000 to 16,000 points: an index is
faster from a ratio of 15 to 20."""
_NEIGHBOURS = 4
"""Points of a rank that take as long as one random access."""
_BISECTED = 4
"""Steps that one step of a bisection takes."""


def index_inverses(
    function: Function, walked: Container[str] = (), *, always: bool = False
) -> Function:
    """Function with an inverse index for each long reduction over points selected by keys, or for
    any such reduction with `always`, except those in `walked`; the same object if there is none."""
    names, tables = dict.fromkeys(function.tensors()), function.arrays()

    def make(stage: Stage) -> list[Stage]:
        choice = None if stage.name in walked else find_choice(stage, tables)
        long = choice is not None and choice.suits and (always or choice.is_worth_it)
        return _index(choice, names) if choice and long else []

    return replace_soundly(function, make)


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A reduction whose points are assigned to elements of the result by keys from tensors."""

    stage: Stage
    """The reduction, with all conditions in its guard."""
    keys: tuple[Key, ...]
    batch: tuple[Index, ...]
    """Domain indices on which the keys depend: there is one inverse index for each of their
    values."""
    points: tuple[Index, ...]
    """Reduction indices that number the points."""
    conditions: tuple[int, ...]
    """Further conditions on a point alone; a point that fails one belongs to no element."""

    def count(self, indices: Sequence[Index]) -> int:
        return math.prod(map(self.stage.size, indices))

    @property
    def elements(self) -> int:
        """Number of keys, without the key for excluded points."""
        return math.prod(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the keys' axes."""
        return tuple(self.stage.size(key.index) for key in self.keys)

    @property
    def dense_steps(self) -> int:
        """Number of points visited without an index."""
        return self.count(self.stage.indices)

    @property
    def short_steps(self) -> int:
        """Estimated number of steps to build an index, and to reduce by it."""
        points, elements = self.count(self.points), self.elements
        each = self.count(self.batch)
        others = self.dense_steps // max(1, each * elements * points)
        sorting = points * min(points, LEAST_ROW) // _NEIGHBOURS
        starts = _BISECTED * points.bit_length() * elements
        return each * (sorting + starts + (points + elements) * others)

    @property
    def suits(self) -> bool:
        """Whether an index is possible: for reductions to a value, if keys and points fit in 32
        bits."""
        if self.stage.is_positional:
            return False
        return self.elements < _MOST_ELEMENTS and self.count(self.points) < MOST_POINTS

    @property
    def is_long(self) -> bool:
        """Whether the reduction is long enough to be worth launches."""
        return self.dense_steps >= _LEAST_STEPS

    @property
    def is_worth_it(self) -> bool:
        """Whether the reduction is long, and much shorter with an index."""
        return self.is_long and self.dense_steps >= _GAIN * self.short_steps


def find_choice(stage: Stage, tables: Mapping[str, Array]) -> Choice | None:
    """Key selection of a stage's points; None if its guard has no condition that admits one index
    along an axis, given by a value. The elements of `tables` are known."""
    if stage.reduction is None or not all(isinstance(e, int) and e for e in stage.sizes):
        return None
    stage = guard_choices(stage)
    facts = IndexFacts(stage, tables)
    keys: list[Key] = []
    for condition in facts.conditions:
        made = [*keys, *itertools.islice(find_point_keys(facts, condition), 1)]
        few = math.prod(stage.size(key.index) for key in made) < _MOST_ELEMENTS
        # Each key has its own axis, on which no key depends.
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


def _index(choice: Choice, names: dict[str, None]) -> list[Stage]:
    """The stages that build an inverse index, and the stage that reduces by it."""
    name = choice.stage.name
    keys = _make_keys(choice, take_name(f"{name}_keys", names))
    made = rank_rows(keys, name, names, descends=False)
    starts = find_starts(made.numbers, choice.elements, take_name(f"{name}_start", names))
    indexed = [keys, made.ranks, made.places, made.numbers, starts]
    return [*indexed, _reduce(choice, made.places, starts)]


def _make_keys(choice: Choice, name: str) -> Stage:
    """Stage of the keys of all points."""
    builder, body = BodyBuilder(), choice.stage.body
    number = builder.add(Index(len(choice.batch)))
    moved = {index: builder.add(Index(axis)) for axis, index in enumerate(choice.batch)}
    moved |= _split_number(choice, builder, number)
    numbers = builder.copy(body, places=moved)
    strides = packed_strides(choice.sizes)
    total, conditions = add_places(builder, choice.keys, numbers, strides)
    conditions += (numbers[condition] for condition in choice.conditions)
    outside = builder.constant(choice.elements, NUMBER)
    found = builder.add(Cast(total, NUMBER))
    for condition in conditions:
        found = builder.add(Select(condition, found, outside, NUMBER))
    sizes = (choice.stage.extent(index) for index in choice.batch)
    domain = (*(size for size in sizes if size is not None), choice.count(choice.points))
    return Stage(name, NUMBER, domain, builder.make(found))


def _reduce(choice: Choice, places: Stage, starts: Stage) -> Stage:
    """Stage that reduces the points of each element, which are contiguous in the index."""
    stage, body = choice.stage, choice.stage.body
    count, first, builder = choice.count(choice.points), choice.points[0], BodyBuilder()
    outer = tuple(builder.add(index) for index in choice.batch)
    number = builder.add(first)
    found = builder.add(Load(places.name, (*outer, number), NUMBER))
    place, last = builder.add(Cast(found, DataType.INDEX)), builder.constant(count - 1)
    point = builder.apply("max", builder.apply("min", place, last), builder.constant(0))
    numbers = builder.copy(body, places=_split_number(choice, builder, point))
    element = builder.constant(0)
    strides = packed_strides(choice.sizes)
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


def _split_number(choice: Choice, builder: BodyBuilder, number: int) -> dict[Index, int]:
    """Index of a point along each axis of those that number the points."""
    sizes = tuple(choice.count([index]) for index in choice.points)
    found: dict[Index, int] = {}
    for index, size, stride in zip(choice.points, sizes, packed_strides(sizes), strict=True):
        place = builder.apply("div", number, builder.constant(stride)) if stride > 1 else number
        if index is not choice.points[0]:
            place = builder.apply("mod", place, builder.constant(size))
        found[index] = place
    return found
