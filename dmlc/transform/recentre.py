"""Reduces pieces of long rows around centres of their own, where rows are reduced several times.

A variance is reduced around the mean, and a softmax's sum of exponentials around the largest value:
the first reduction of a row comes before the second, and each goes through memory. If pieces of the
row are reduced instead, the second reduction of a piece needs only the first one of that piece,
which a work group still has at hand. A small reduction over the pieces follows.

    m = sum[k](x[k]) / n                     a[p] = sum[k in p](x[k]),  c[p] = a[p] / n[p]
    v = sum[k]((x[k] - m)^2)           ->    b[p] = sum[k in p](x[k] - c[p])
                                             d[p] = sum[k in p]((x[k] - c[p])^2)
                                             m = sum[p](a[p]) / n
                                             v = sum[p](d[p] + 2 (c[p] - m) b[p]
                                                        + n[p] (c[p] - m)^2)

    m = max[k](x[k])                         c[p] = max[k in p](x[k])
    s = sum[k](exp(x[k] - m))          ->    s[p] = sum[k in p](exp(x[k] - c[p]))
                                             m = max[p](c[p]),  s = sum[p](s[p] exp(c[p] - m))

For real numbers, both are equal whatever the centres are. For floats, the centres keep what is
added up as small as the row's own would: no squares of means are subtracted, and no exponential
overflows. This is the update of Chan, Golub and LeVeque, and online softmax. Sums round in another
order. A row with an infinity or a NaN has the same results.

A sum's body is expanded as a polynomial in differences from values that need earlier reductions.
Sums of several such factors, as in gradients of normalizations, are recentred alike; and reductions
over unlike axes of one tensor share its pieces: the sums of an image's channels, and those of a
channel over all images.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Load,
    Parameter,
    Reduction,
    Stage,
    Table,
    Tensor,
    operands,
    packed_strides,
    with_operands,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.inside import find_open_reads
from dmlc.ir.naming import take_name
from dmlc.ir.ranges import table_ranges
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import find_online
from dmlc.transform.simplify import is_inlinable, list_live, replace_stages
from dmlc.transform.traffic import count_bytes

_LEAST_POINTS = 1024
"""Smallest number of points of a reduction that is worth pieces."""
_MOST_WAITED = 8
"""Largest number of reductions recorded as those that a stage needs."""
_MOST_TERMS = 8
"""Largest number of sums that one is expanded to, and of sums of a piece."""
_BESIDE = 8
"""Outputs that a group reduces side by side if these are contiguous in memory."""
_ADJACENT = 32
"""Largest number of such outputs in groups that reduce whole rows."""
_PIECES = 8
"""Pieces, as a multiple of the groups that keep a device busy."""
_EVEN = 32
"""Number of points of which the lengths of pieces are multiples, if sizes allow: a cache line."""
_LEAST_TIMES = 4
"""Smallest size of a tensor, in launches, that is worth one more."""


def reduce_in_pieces(function: Function, budget: Budget) -> Function:
    """Function in which reductions that need others of the same rows are taken in pieces; the same
    object if there are none. Rows whose sizes are known at run time only stay whole, as do those
    that have no divisor near the length of a piece."""
    if not budget.held or not budget.groups:
        return function
    long, waits = _find_long(function)
    if not any(waits[name] for name in long):
        return function
    kept = {s.name: "" for s in function.stages if is_inlinable(s) and not waits[s.name]}
    drawn = function.with_stages(inline_producers(function, kept, (), budget).stages)
    taken = {m.stage for found in find_online(drawn, budget) for m in found.members}
    read: dict[str, list[Stage]] = {}
    """Long reductions by the tensors that they read."""
    for stage in drawn.stages:
        if stage.name in long and stage.name not in taken:
            for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
                read.setdefault(name, []).append(stage)
    tensors = drawn.tensors()
    names = {t.name: None for t in (*function.parameters, *function.tables, *function.stages)}
    made: dict[str, list[Stage]] = {}
    for name, stages in read.items():
        own = [stage for stage in stages if stage.name not in made]
        if any(waits[stage.name] & {s.name for s in own} for stage in own):
            left = {n: [s for s in found if s.name not in made] for n, found in read.items()}
            made |= _Family(tensors, tensors[name], left, waits, budget).part(names)
    if not made:
        return function
    stages = [new for stage in function.stages for new in made.get(stage.name, (stage,))]
    return replace_stages(function, list_live(stages, {r.name for r in function.results}))


def _find_long(function: Function) -> tuple[set[str], dict[str, set[str]]]:
    """Reductions that may be taken in pieces; and some of them that each stage needs, directly or
    by element-wise stages."""
    long: set[str] = set()
    waits: dict[str, set[str]] = {}
    for stage in function.stages:
        own = waits[stage.name] = set()
        for load in dict.fromkeys(stage.body.loads()):
            source = function.stage(load.tensor)
            if source is None or len(own) >= _MOST_WAITED:
                continue
            own |= {source.name} & long if source.reduction is not None else waits[source.name]
        if _is_long(stage):
            long.add(stage.name)
    return long, waits


def _is_long(stage: Stage) -> bool:
    if stage.combiner not in ("sum", "max") or stage.body.guard is not None:
        return False
    sizes = [extent for extent in stage.sizes if isinstance(extent, int) and extent]
    if len(sizes) < len(stage.sizes) or not stage.body.dtype.is_float:
        return False
    return math.prod(sizes) >= _LEAST_POINTS * math.prod(sizes[: len(stage.extents)])


@dataclasses.dataclass(frozen=True, slots=True)
class _Places:
    """Values at which a reduction reads a tensor, by axis: with a body in which equal values are
    one."""

    stage: Stage
    body: Body
    axes: tuple[int, ...]
    """Indices of the tensor's axes, as values of the body."""
    inner: frozenset[int]
    """Axes along which it reduces each row of the tensor whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Cut:
    """Pieces of a tensor's elements."""

    outer: tuple[int, ...]
    """Axes that number the pieces, in memory order, with the split one."""
    inner: tuple[int, ...]
    """Axes along which a piece has all elements."""
    split: int | None = None
    """Axis that is cut into chunks."""
    length: int = 1
    """Elements of a chunk."""

    def count(self, extents: Sequence[int]) -> int:
        """Points of a piece."""
        return self.length * math.prod(extents[axis] for axis in self.inner)


_Term = tuple["int | None", "int | None"]
"""A product of a factor that is the same for all points of a piece, and one that needs no earlier
reduction; each a value, or None for 1."""


class _Family:
    """Reductions that read one tensor, some of which need others."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        whole: Tensor,
        readers: Mapping[str, Sequence[Stage]],
        waits: Mapping[str, set[str]],
        budget: Budget,
    ) -> None:
        self._tensors, self._whole, self._budget = tensors, whole, budget
        found = (_find_places(stage, whole) for stage in readers[whole.name])
        self._places = [places for places in found if places is not None]
        self._add_beside(readers)
        self._names = {places.stage.name for places in self._places}
        self._late = self._find_late()
        self._waits = waits

    def _add_beside(self, readers: Mapping[str, Sequence[Stage]]) -> None:
        """Adds reductions that read another tensor which some of these read at the same places: it
        is gone through anyway."""
        own = {places.stage.name for places in self._places}
        inner = self._find_inner()
        beside = {
            load.tensor: None
            for places in self._places
            for load in places.body.loads()
            if load.indices == places.axes and load.tensor != self._whole.name
        }
        for tensor in beside:
            for stage in readers.get(tensor, ()):
                found = _find_places(stage, self._tensors[tensor])
                if stage.name not in own and found is not None and found.inner >= inner:
                    own.add(stage.name)
                    self._places.append(found)
        order = {name: number for number, name in enumerate(self._tensors)}
        self._places.sort(key=lambda places: order[places.stage.name])

    def _find_inner(self) -> frozenset[int]:
        """Axes along which all of the reductions reduce whole rows."""
        own = [places.inner for places in self._places]
        return frozenset[int]().union(*own[:1]).intersection(*own)

    def _find_late(self) -> set[str]:
        """Tensors that need one of these reductions."""
        late: set[str] = set()
        for name, tensor in self._tensors.items():
            if isinstance(tensor, Stage):
                read = {load.tensor for load in tensor.body.loads()}
                if name in self._names or not read.isdisjoint(late):
                    late.add(name)
        return late

    def part(self, names: dict[str, None]) -> dict[str, list[Stage]]:
        """Stages that replace each reduction; empty if that does not pay."""
        cut = self._choose()
        if cut is None:
            return {}
        extents = [extent if isinstance(extent, int) else 0 for extent in self._whole.extents]
        means = {p.stage.combiner for p in self._places if self._is_first(p)} != {"max"}
        pieces = _Pieces(self._whole.name, extents, cut, self._late, names, means=means)
        made: dict[str, list[Stage]] = {}
        helped = False
        for places in self._places:
            found = pieces.part(places, self._tensors)
            if found is not None:
                made[places.stage.name] = found
                helped = helped or not self._is_first(places)
        return made if helped and len(pieces.stages) <= _MOST_TERMS else {}

    def _is_first(self, places: _Places) -> bool:
        """Whether a reduction needs none of the others."""
        return self._waits[places.stage.name].isdisjoint(self._names)

    def _choose(self) -> _Cut | None:
        """Pieces of suitable length; None if one kernel may have whole rows."""
        extents = self._whole.extents
        if len(self._places) < 2 or all(map(self._is_first, self._places)):
            return None
        sizes = [extent if isinstance(extent, int) else 0 for extent in extents]
        given = self._whole.strides if isinstance(self._whole, Parameter) else None
        strides = [s if isinstance(s, int) else 0 for s in given or packed_strides(tuple(sizes))]
        inner = self._find_inner()
        moving = [axis for axis, size in enumerate(sizes) if size > 1 and strides[axis]]
        if not inner or not all(sizes) or not moving:
            return None
        beside = min(moving, key=lambda axis: strides[axis]) not in inner
        if not self._pays(math.prod(sizes), beside=beside):
            return None
        budget = self._budget
        wanted = math.prod(sizes) // (_PIECES * budget.groups)
        most = min(max(wanted, budget.piece), 2 * budget.piece) // (_BESIDE if beside else 1)
        order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
        cut = _cut_axes(sizes, order, inner, most)
        if cut is None:
            return None
        rows = [_count([extent for _, extent in p.stage.axes]) for p in self._places]
        return cut if max(rows) > cut.count(sizes) else None

    def _pays(self, points: int, *, beside: bool) -> bool:
        """Whether whole rows take several passes over memory: if there are too few to keep a
        device busy, or one kernel does not reduce and apply them, or they are too long to be
        cached or held in registers."""
        budget = self._budget
        outputs = [_count(places.stage.extents) for places in self._places]
        columns = min(_ADJACENT, min(outputs)) if beside else 1
        groups = -(-min(outputs) // columns)
        if groups < budget.groups and points > 2 * budget.piece * groups:
            return True
        size = count_bytes(self._whole) or 0
        if size < _LEAST_TIMES * budget.launch_bytes:
            return False
        if len(set(outputs)) > 1 or not all(map(_reads_plainly, self._places)):
            return True
        row, columns = points // max(outputs), _BESIDE if beside else 1
        held = beside and row * columns <= budget.held
        return not held and row * columns * self._whole.dtype.bytes >= 2 * budget.cached_bytes


def _reads_plainly(places: _Places) -> bool:
    """Whether a tensor is read at indices as they are. A kernel that applies reductions of other
    elements, such as those of groups of channels, does not compute them as well."""
    indices = (places.body.instructions[number] for number in places.axes)
    return all(isinstance(index, Index | Constant) for index in indices)


def _count(extents: Sequence[object]) -> int:
    return math.prod(extent if isinstance(extent, int) else 1 for extent in extents)


def _find_places(stage: Stage, whole: Tensor) -> _Places | None:
    """Places at which a reduction reads a tensor; None if it reads several elements at a point."""
    builder = BodyBuilder()
    numbers = builder.copy(stage.body)
    body = Body(tuple(builder.instructions), numbers[stage.body.result])
    loads = {load for load in body.instructions if isinstance(load, Load)}
    own = [load for load in loads if load.tensor == whole.name]
    # Every element is read once.
    if len(own) != 1 or _count(stage.sizes) != _count(whole.extents):
        return None
    (load,) = own
    inner: set[int] = set()
    for axis, number in enumerate(load.indices):
        index = body.instructions[number]
        plain = isinstance(index, Index) and index.reduced and load.indices.count(number) == 1
        if plain and stage.extent(index) == whole.extents[axis]:
            inner.add(axis)
    used = {load.indices[axis] for axis in range(len(load.indices)) if axis not in inner}
    needed = _reach(body.instructions, used)
    return _Places(
        stage, body, load.indices,
        frozenset(axis for axis in inner if load.indices[axis] not in needed),
    )  # fmt: skip


def _reach(instructions: Sequence[object], roots: set[int]) -> set[int]:
    """Values that some values depend on, with these."""
    seen, pending = set(roots), list(roots)
    while pending:
        for operand in operands(instructions[pending.pop()]):  # type: ignore[arg-type]
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return seen


def _cut_axes(
    sizes: Sequence[int], order: Sequence[int], inner: frozenset[int], most: int
) -> _Cut | None:
    """Pieces of at most so many points, which have the last axes of an `order` whole, of those that
    are `inner`; None if sizes allow only much shorter ones."""
    kept: list[int] = []
    points, split, length = 1, None, 1
    for axis in reversed([axis for axis in order if axis in inner]):
        if points * sizes[axis] > most:
            length = _find_divisor(sizes[axis], most // points, points)
            split = axis if length > 1 else None
            break
        kept.append(axis)
        points *= sizes[axis]
    if 4 * points * length < most:
        return None
    outer = tuple(axis for axis in order if axis not in kept)
    return _Cut(outer, tuple(sorted(kept)), split, length)


def _find_divisor(size: int, most: int, points: int) -> int:
    """Divisor of a size that is at most so large: of those near it, one that makes pieces end at
    cache lines, if possible."""
    found = [n for n in range(1, most + 1) if size % n == 0]
    near = [n for n in found if 2 * n > found[-1]]
    return max(near, key=lambda n: (math.gcd(n * points, _EVEN), n))


class _Pieces:
    """Stages of the pieces of a tensor, made as reductions need them."""

    def __init__(
        self,
        name: str,
        extents: Sequence[int],
        cut: _Cut,
        late: set[str],
        names: dict[str, None],
        *,
        means: bool,
    ) -> None:
        self.name, self.extents, self.cut, self.late, self.means = name, extents, cut, late, means
        self._names = names
        self.stages: dict[tuple[str, Body], Stage] = {}
        """Reductions of pieces, by combiner and body."""

    def part(self, places: _Places, tensors: Mapping[str, Tensor]) -> list[Stage] | None:
        """Reduction over the pieces, after the reductions of these that it is the first to need;
        None if it cannot be taken in pieces."""
        before = dict(self.stages)
        made = _Parting(self, places).make()
        new = [stage for key, stage in self.stages.items() if key not in before]
        reach = table_ranges([t for t in tensors.values() if isinstance(t, Table)])
        known = {**tensors, **{stage.name: stage for stage in self.stages.values()}}
        is_inside = not any(find_open_reads(stage, known, reach)[0] for stage in new)
        if made is None or len(self.stages) > _MOST_TERMS or not is_inside:
            self.stages = before
            return None
        return [*new, made]

    def reduce(self, combiner: str, body: Body, stage: Stage) -> Stage:
        """Reduction of each piece, made for a stage if there is none with this body."""
        key = combiner, body
        if key not in self.stages:
            name = take_name(f"{stage.name}_pieces", self._names)
            axes = [(axis, self.extents[axis]) for axis in self.cut.inner]
            if self.cut.split is not None:
                axes = sorted([*axes, (self.cut.split, self.cut.length)])
            self.stages[key] = Stage(
                name, body.dtype, self.domain, body, Reduction(combiner, tuple(axes)), stage.span
            )
        return self.stages[key]

    @property
    def domain(self) -> tuple[int, ...]:
        """Numbers of pieces along each axis that numbers them."""
        cut = self.cut
        sizes = {axis: self.extents[axis] for axis in cut.outer}
        if cut.split is not None:
            sizes[cut.split] //= cut.length
        return tuple(sizes.values())


class _NoPiecesError(Exception):
    """A reduction cannot be taken in pieces."""


class _Parting:
    """Rewriting of one reduction as one over pieces."""

    def __init__(self, pieces: _Pieces, places: _Places) -> None:
        self._pieces, self._places, self._stage = pieces, places, places.stage
        self._builder = BodyBuilder()
        numbers = self._builder.copy(places.body)
        self._root = numbers[places.body.result]
        cut, axes = pieces.cut, [numbers[place] for place in places.axes]
        whole = [*cut.inner, *([] if cut.split is None else [cut.split])]
        self._inner = {axes[axis] for axis in whole}
        self._labels = {self._index(axes[axis]).axis for axis in whole}
        free = 1 + max(label for label, _ in self._stage.axes)
        self._chunk = Index(free, reduced=True)
        self._outer = {axis: axes[axis] for axis in cut.outer}
        """Values of the indices that number the pieces, by axis."""
        if cut.split is not None:
            self._outer[cut.split] = self._builder.reduced(free)
        self._axes = axes
        self._facts: list[tuple[bool, bool]] = []

    def _index(self, number: int) -> Index:
        index = self._builder.instructions[number]
        if not isinstance(index, Index):
            raise _NoPiecesError
        return index

    def make(self) -> Stage | None:
        """The reduction over pieces; None if it is not possible."""
        stage, builder, cut = self._stage, self._builder, self._pieces.cut
        axes = [(label, extent) for label, extent in stage.axes if label not in self._labels]
        if cut.split is not None:
            chunks = self._pieces.domain[cut.outer.index(cut.split)]
            axes.append((self._chunk.axis, chunks))
        combiner = stage.combiner or ""
        try:
            value = self._take(combiner)
        except _NoPiecesError:
            return None
        if not axes:
            value = builder.total(combiner, value)
        reduction = Reduction(combiner, tuple(axes)) if axes else None
        return dataclasses.replace(stage, body=builder.make(value), reduction=reduction)

    def _take(self, combiner: str) -> int:
        """Value of a piece, from those of its reductions."""
        if combiner == "max":
            if self._find_facts(self._root)[1]:
                raise _NoPiecesError
            return self._reduce("max", self._root)
        terms = self._merge(self._expand(self._root))
        if len(terms) > _MOST_TERMS:
            raise _NoPiecesError
        return self._builder.fold(
            "add", [self._times(factor, self._sum(kept)) for factor, kept in terms]
        )

    def _sum(self, kept: int | None) -> int:
        """Sum of a value over a piece; the number of its points for None."""
        if kept is None:
            count = self._pieces.cut.count(self._pieces.extents)
            return self._builder.constant(float(count), self._stage.body.dtype)
        return self._reduce("sum", kept)

    def _reduce(self, combiner: str, kept: int) -> int:
        """Reduction of a value over a piece, as a value of this body."""
        stage = self._pieces.reduce(combiner, self._move(kept), self._stage)
        return self._builder.load(stage, *self._outer.values())

    def _move(self, root: int) -> Body:
        """Body of a reduction of each piece."""
        cut, made, builder = self._pieces.cut, self._builder.instructions, BodyBuilder()
        moved = {place: builder.index(n) for n, place in enumerate(self._outer.values())}
        moved |= {self._axes[axis]: builder.reduced(axis) for axis in cut.inner}
        if cut.split is not None:
            first = builder.apply("mul", moved[self._outer[cut.split]], builder.constant(cut.length))
            inside = builder.apply("add", first, builder.reduced(cut.split))
            moved[self._axes[cut.split]] = inside
        needed, pending = {root}, [root]
        while pending:
            number = pending.pop()
            for operand in operands(made[number]) if number not in moved else ():
                if operand not in needed:
                    needed.add(operand)
                    pending.append(operand)
        for number in sorted(needed):
            instruction = made[number]
            if number in moved:
                continue
            if isinstance(instruction, Index):
                raise _NoPiecesError
            given = tuple(moved[operand] for operand in operands(instruction))
            moved[number] = builder.add(with_operands(instruction, given))
        return builder.make(moved[root])

    # Terms -----------------------------------------------------------------------------------

    def _find_facts(self, number: int) -> tuple[bool, bool]:
        """Whether a value varies over the points of a piece, and whether it needs one of the
        reductions."""
        made = self._builder.instructions
        for each in range(len(self._facts), len(made)):
            instruction = made[each]
            own = [self._facts[operand] for operand in operands(instruction)]
            late = isinstance(instruction, Load) and instruction.tensor in self._pieces.late
            varies = each in self._inner or any(v for v, _ in own)
            self._facts.append((varies, late or any(needs for _, needs in own)))
        return self._facts[number]

    def _times(self, one: int | None, other: int | None) -> int:
        """Product of two values, of which None is 1."""
        if one is None or other is None:
            given = other if one is None else one
            dtype = self._stage.body.dtype
            return self._builder.constant(1.0, dtype) if given is None else given
        return self._builder.apply("mul", one, other)

    def _expand(self, number: int) -> list[_Term]:
        """Terms whose sum is a value. Raises `_NoPiecesError` if there are none."""
        varies, late = self._find_facts(number)
        if not varies:
            return [(number, None)]
        builder, instruction = self._builder, self._builder.instructions[number]
        name = instruction.operation.name if isinstance(instruction, Apply) else ""
        given = operands(instruction)
        made: list[_Term] | None = None
        if name == "neg":
            made = [(self._negate(factor), kept) for factor, kept in self._expand(given[0])]
        elif name == "mul":
            made = self._expand_product(*given)
        elif name == "div" and not self._find_facts(given[1])[0]:
            made = [
                (builder.apply("div", self._times(factor, None), given[1]), kept)
                for factor, kept in self._expand(given[0])
            ]
        elif name in ("add", "sub") and late:
            made = self._expand_sum(name, *given)
        elif name == "exp" and late:
            made = [self._expand_power(given[0])]
        if made is None and not late:
            return [(None, number)]
        if made is None or len(made) > _MOST_TERMS:
            raise _NoPiecesError
        return made

    def _negate(self, factor: int | None) -> int:
        return self._builder.apply("neg", self._times(factor, None))

    def _expand_product(self, left: int, right: int) -> list[_Term]:
        made: list[_Term] = []
        for factor, kept in self._expand(left):
            for other, its in self._expand(right):
                whole = None if factor is None and other is None else self._times(factor, other)
                both = None if kept is None and its is None else self._times(kept, its)
                made.append((whole, both))
        return self._merge(made)

    def _expand_sum(self, name: str, left: int, right: int) -> list[_Term]:
        """Sum or difference: of values of which one needs no reduction, and the other does not
        vary, around the centre of the first."""
        builder, sides = self._builder, (left, right)
        facts = [self._find_facts(side) for side in sides]
        for own, other in ((0, 1), (1, 0)):
            if facts[own] == (True, False) and not facts[other][0]:
                centre = self._find_centre(sides[own])
                near = builder.apply("sub", sides[own], centre)
                given = (centre, sides[other]) if own == 0 else (sides[other], centre)
                sign = self._negate(None) if name == "sub" and own == 1 else None
                return [(sign, near), (builder.apply(name, *given), None)]
        first, second = self._expand(left), self._expand(right)
        if name == "sub":
            second = [(self._negate(factor), kept) for factor, kept in second]
        return self._merge([*first, *second])

    def _merge(self, terms: Sequence[_Term]) -> list[_Term]:
        """Terms with unlike varying factors."""
        found: dict[int | None, int | None] = {}
        for factor, kept in terms:
            if kept not in found:
                found[kept] = factor
                continue
            both = self._times(found[kept], None), self._times(factor, None)
            found[kept] = self._builder.apply("add", *both)
        return [(factor, kept) for kept, factor in found.items()]

    def _find_centre(self, number: int) -> int:
        """Mean of a value over a piece, or its largest one if reductions need no means."""
        if not self._pieces.means:
            return self._find_largest(number)[0]
        builder, count = self._builder, self._sum(None)
        return builder.apply("div", self._reduce("sum", number), count)

    def _expand_power(self, number: int) -> _Term:
        """Exponential of a difference: that around the largest value of the piece, scaled."""
        builder, made = self._builder, self._builder.instructions[number]
        if not isinstance(made, Apply) or made.operation.name != "sub":
            raise _NoPiecesError
        left, right = made.operands
        if self._find_facts(left) != (True, False) or self._find_facts(right)[0]:
            raise _NoPiecesError
        finite, largest = self._find_largest(left)
        near = builder.apply("exp", builder.apply("sub", left, finite))
        return builder.apply("exp", builder.apply("sub", largest, right)), near

    def _find_largest(self, number: int) -> tuple[int, int]:
        """Largest value over a piece: with 0 in place of negative infinity, whose difference with
        itself is NaN; and as it is."""
        builder, dtype = self._builder, self._stage.body.dtype
        largest = self._reduce("max", number)
        none = builder.add(Constant(dtype, -math.inf))
        zero = builder.constant(0.0, dtype)
        return builder.select(builder.apply("eq", largest, none), zero, largest), largest
