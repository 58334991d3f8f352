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

import math
from collections.abc import Mapping, Sequence

from dmlc.ir import Constant, Function, Index, Parameter, Stage, Tensor, packed_strides
from dmlc.sizes import Taken, find_symbols
from dmlc.transform.centres import MOST_TERMS, Cut, Pieces, Places, count_points, find_places
from dmlc.transform.cost import Budget
from dmlc.transform.inline import inline_producers
from dmlc.transform.online import find_online
from dmlc.transform.simplify import is_inlinable, list_live, replace_stages
from dmlc.transform.traffic import count_bytes

_LEAST_POINTS = 1024
"""Smallest number of points of a reduction that is worth pieces."""
_MOST_WAITED = 8
"""Largest number of reductions recorded as those that a stage needs."""
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


_LARGE = 40 << 20
"""Bytes of a tensor that the cache shared by all groups does not hold, on a large GPU."""


def reduce_in_pieces(function: Function, budget: Budget, taken: Taken = ()) -> Function:
    """Function in which reductions that need others of the same rows are taken in pieces; the same
    object if there are none. Of a row without a divisor near the length of a piece, the last piece
    is shorter. Rows whose sizes are known at run time only stay whole, unless these are `taken` to
    have some values: their pieces have a fixed length."""
    if not budget.held or not budget.groups:
        return function
    long, waits = _find_long(function, taken)
    if not any(waits[name] for name in long):
        return function
    kept = {s.name: "" for s in function.stages if is_inlinable(s) and not waits[s.name]}
    drawn = function.with_stages(inline_producers(function, kept, (), budget).stages)
    online = {m.stage for found in find_online(drawn, budget) for m in found.members}
    read: dict[str, list[Stage]] = {}
    """Long reductions by the tensors that they read."""
    for stage in drawn.stages:
        if stage.name in long and stage.name not in online:
            for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
                read.setdefault(name, []).append(stage)
    tensors = drawn.tensors()
    names = {t.name: None for t in (*function.parameters, *function.tables, *function.stages)}
    made: dict[str, list[Stage]] = {}
    for name, stages in read.items():
        own = [stage for stage in stages if stage.name not in made]
        if any(waits[stage.name] & {s.name for s in own} for stage in own):
            left = {n: [s for s in found if s.name not in made] for n, found in read.items()}
            made |= _Family(tensors, tensors[name], left, waits, budget, taken).part(names)
    if not made:
        return function
    stages = [new for stage in function.stages for new in made.get(stage.name, (stage,))]
    return replace_stages(function, list_live(stages, {r.name for r in function.results}))


def _find_long(function: Function, taken: Taken) -> tuple[set[str], dict[str, set[str]]]:
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
        if _is_long(stage, taken):
            long.add(stage.name)
    return long, waits


def _is_long(stage: Stage, taken: Taken) -> bool:
    if stage.combiner not in ("sum", "max") or stage.body.guard is not None:
        return False
    if not set(find_symbols(stage.sizes)) <= dict(taken).keys() or 0 in stage.sizes:
        return False
    points = count_points(stage.sizes, taken)
    is_long = points >= _LEAST_POINTS * count_points(stage.extents, taken)
    return is_long and stage.body.dtype.is_float


class _Family:
    """Reductions that read one tensor, some of which need others."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        whole: Tensor,
        readers: Mapping[str, Sequence[Stage]],
        waits: Mapping[str, set[str]],
        budget: Budget,
        taken: Taken,
    ) -> None:
        self._tensors, self._whole, self._budget = tensors, whole, budget
        self._taken = taken
        found = (find_places(stage, whole) for stage in readers[whole.name])
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
                found = find_places(stage, self._tensors[tensor])
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
        means = {p.stage.combiner for p in self._places if self._is_first(p)} != {"max"}
        pieces = Pieces(self._whole.extents, cut, self._late, names, means=means)
        made: dict[str, list[Stage]] = {}
        helped = False
        for places in self._places:
            found = pieces.part(places, self._tensors)
            if found is not None:
                made[places.stage.name] = found
                helped = helped or not self._is_first(places)
        return made if helped and len(pieces.stages) <= MOST_TERMS else {}

    def _is_first(self, places: Places) -> bool:
        """Whether a reduction needs none of the others."""
        return self._waits[places.stage.name].isdisjoint(self._names)

    def _choose(self) -> Cut | None:
        """Pieces of suitable length; None if one kernel may have whole rows."""
        extents, taken = self._whole.extents, self._taken
        if len(self._places) < 2 or all(map(self._is_first, self._places)):
            return None
        sizes = [count_points([extent], taken) for extent in extents]
        given = self._whole.strides if isinstance(self._whole, Parameter) else None
        strides = [count_points([s], taken) for s in given or packed_strides(tuple(sizes))]
        inner = self._find_inner()
        moving = [axis for axis, size in enumerate(sizes) if size > 1 and strides[axis]]
        if not inner or not all(sizes) or not moving:
            return None
        beside = min(moving, key=lambda axis: strides[axis]) not in inner
        if not self._pays(math.prod(sizes), beside=beside):
            return None
        budget = self._budget
        order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
        if find_symbols(extents):
            # Rows are cut if they are contiguous, along one axis.
            is_row = inner == frozenset(order[-1:])
            cut = Cut(tuple(order), (), order[-1], budget.piece) if is_row else None
        else:
            wanted = math.prod(sizes) // (_PIECES * budget.groups)
            most = min(max(wanted, budget.piece), 2 * budget.piece) // (_BESIDE if beside else 1)
            cut = _cut_axes(sizes, order, inner, most)
        if cut is None:
            return None
        rows = [count_points([e for _, e in p.stage.axes], taken) for p in self._places]
        return cut if max(rows) > cut.count(sizes) else None

    def _pays(self, points: int, *, beside: bool) -> bool:
        """Whether whole rows take several passes over memory: if there are too few to keep a
        device busy, or one kernel does not reduce and apply them, or they are too long for a
        group to hold, and their tensor for the cache of all groups."""
        budget = self._budget
        outputs = [count_points(places.stage.extents, self._taken) for places in self._places]
        columns = min(_ADJACENT, min(outputs)) if beside else 1
        groups = -(-min(outputs) // columns)
        if groups < budget.groups and points > 2 * budget.piece * groups:
            return True
        size = count_bytes(self._whole) or points * self._whole.dtype.bytes
        if size < _LEAST_TIMES * budget.launch_bytes:
            return False
        if len(set(outputs)) > 1 or not all(map(_reads_plainly, self._places)):
            return True
        row, columns = points // max(outputs), _BESIDE if beside else 1
        held = beside and row * columns <= budget.held
        again = row * columns * self._whole.dtype.bytes >= 2 * budget.cached_bytes
        return size >= _LARGE and again and not held


def _reads_plainly(places: Places) -> bool:
    """Whether a tensor is read at indices as they are. A kernel that applies reductions of other
    elements, such as those of groups of channels, does not compute them as well."""
    indices = (places.body.instructions[number] for number in places.axes)
    return all(isinstance(index, Index | Constant) for index in indices)


def _cut_axes(
    sizes: Sequence[int], order: Sequence[int], inner: frozenset[int], most: int
) -> Cut | None:
    """Pieces of at most so many points, which have the last axes of an `order` whole, of those that
    are `inner`; None if sizes allow only much shorter ones."""
    kept: list[int] = []
    points, split, length = 1, None, 1
    for axis in reversed([axis for axis in order if axis in inner]):
        if points * sizes[axis] > most:
            length = _find_length(sizes[axis], most // points, points)
            split = axis if length > 1 else None
            break
        kept.append(axis)
        points *= sizes[axis]
    if 4 * points * length < most:
        return None
    outer = tuple(axis for axis in order if axis not in kept)
    return Cut(outer, tuple(sorted(kept)), split, length)


def _find_length(size: int, most: int, points: int) -> int:
    """Length of the pieces of an axis, at most so large: a divisor of its size if there is one near
    that; else a length of whole cache lines if elements are cut one by one."""
    found = _find_divisor(size, most, points)
    if points > 1 or 4 * found >= most:
        return found
    return min(most, -(-size // (-(-size // most) * _EVEN)) * _EVEN)


def _find_divisor(size: int, most: int, points: int) -> int:
    """Divisor of a size that is at most so large: of those near it, one that makes pieces end at
    cache lines, if possible."""
    found = [n for n in range(1, most + 1) if size % n == 0]
    near = [n for n in found if 2 * n > found[-1]]
    return max(near, key=lambda n: (math.gcd(n * points, _EVEN), n))
