"""What a pass that folds can store on its way: element-wise stages over the very points it folds.

A bias gradient folds a tensor that is a result as well; a norm may be wanted beside the gradient
it is of. One pass over memory then does both. It must go through the points in one order that
suits every tensor, for vectors and whole cache lines, and meet each of them once: so whatever it
reads lies in memory in that order, at the points themselves or repeated. Which stages and passes
to try is `passes`' business.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from dmlc.ir import POSITIONAL_COMBINERS, Apply, Constant, Function, Index, Load, Stage, operands
from dmlc.scalars import ROUNDINGS, DataType
from dmlc.transform.cost import Budget, count_operations
from dmlc.transform.traffic import count_bytes

_SHORT_VECTOR = 4
"""The lanes of the vectors that take what long ones leave over."""


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """How a stage goes through its points where it suits everything it reads."""

    indices: tuple[Index, ...]
    """Those that run over more than one place, outermost first."""
    whole: frozenset[str]
    """The tensors of which it reads one element at each point, along all of these."""


class Streams:
    """Knows how the tensors of a function lie in memory, and finds how its stages go through
    them."""

    def __init__(self, function: Function, stages: Iterable[Stage], budget: Budget) -> None:
        self._tensors = function.tensors()
        self._stages = {s.name: s for s in stages}
        self._budget = budget
        self._courses: dict[str, Course | None] = {}
        strides = {p.name: p.strides for p in function.parameters}
        strides |= {r.name: r.strides for r in function.results}
        self._uneven = {n for n, own in strides.items() if own and not self._is_even(n, own)}

    def _is_even(self, name: str, strides: tuple[int, ...]) -> bool:
        """Whether a tensor's axes lie in memory in their order, the last without gaps."""
        sizes = zip(self._tensors[name].extents, strides, strict=True)
        long = [stride for extent, stride in sizes if extent != 1 and stride]
        return long[-1:] in ([], [1]) and all(a > b for a, b in itertools.pairwise(long))

    def find_course(self, name: str) -> Course | None:
        """How a stage goes through its points; None where nothing suits all that it reads, or it
        needs positions."""
        if name not in self._courses:
            self._courses[name] = self._make_course(self._stages[name])
        return self._courses[name]

    def _make_course(self, stage: Stage) -> Course | None:
        if stage.body.guard is not None or _has_positions(stage):
            return None
        reads = [(load.tensor, self._locate(stage, load)) for load in stage.body.loads()]
        located = [(tensor, found) for tensor, found in reads if found is not None]
        if len(located) != len(reads):
            return None
        if stage.reduction is None:
            long = [Index(axis) for axis, extent in enumerate(stage.domain) if extent != 1]
            indices = None if stage.name in self._uneven else tuple(long)
        else:
            indices = _find_order(stage, [found for _, found in located])
        if indices is None:
            return None
        rank = {index: place for place, index in enumerate(indices)}
        for _, found in located:
            ranks = [rank[index] for index in found]
            if any(a >= b for a, b in itertools.pairwise(ranks)):
                return None
        return Course(indices, frozenset(tensor for tensor, found in located if found == indices))

    def _locate(self, stage: Stage, load: Load) -> tuple[Index, ...] | None:
        """The index along each axis longer than 1 of what a load reads, where these run over the
        whole axes."""
        if load.tensor in self._uneven:
            return None
        found: list[Index] = []
        for extent, number in zip(self._tensors[load.tensor].extents, load.indices, strict=True):
            index = stage.body.instructions[number]
            if extent == 1 and isinstance(index, Constant | Index):
                continue  # There is one place to read.
            if not isinstance(index, Index) or extent != stage.extent(index):
                return None
            found.append(index)
        return tuple(found)

    def refuse(self, stage: Stage, order: Sequence[int], kept: int) -> str | None:
        """Why a stage over a pass's dimensions had better be stored by a kernel of its own; None
        where storing it on the way takes no longer, as the tensor goes through memory once less.

        The first `kept` dimensions are those that are kept. Vectors run along the innermost ones
        as far as these are all kept or all folded; short runs leave them half empty.
        """
        for dtype in self._budget.paired_types:
            if stage.dtype is dtype or _is_rounded(stage, dtype):
                return (
                    f"another kernel stores %{stage.name}, for {dtype.name} is stored two elements "
                    "at a time"
                )
        *_, last = order
        sizes = [e for e in stage.domain if isinstance(e, int) and e != 1]
        run = 1
        for size, dimension in zip(reversed(sizes), reversed(order), strict=True):
            if (dimension < kept) != (last < kept):
                break
            run *= size
        points = math.prod(sizes)
        work = points * count_operations(stage.body) * self._budget.bytes_per_operation
        steps = _count_steps(run, self._budget.lanes) / (run / self._budget.lanes)
        names = dict.fromkeys(load.tensor for load in stage.body.loads())
        read = sum(count_bytes(self._tensors[name]) or 0 for name in names)
        own = points * stage.dtype.bytes
        apart = max(read, work) + min(read, own) + self._budget.launch_bytes
        if max(read, work * steps) <= apart:
            return None
        return (
            f"another kernel computes %{stage.name}, as a fold would compute it in runs of {run:,} "
            f"element{'s' if run > 1 else ''} only"
        )


def _find_order(fold: Stage, reads: Sequence[tuple[Index, ...]]) -> tuple[Index, ...] | None:
    """The indices of a reduction in the order of a tensor that it reads along all of them."""
    if fold.reduction is None or fold.reduction.combiner in POSITIONAL_COMBINERS:
        return None
    long = {index for index in fold.indices if fold.extent(index) != 1}
    return next((r for r in reads if len(r) == len(long) and set(r) == long), None)


def _has_positions(stage: Stage) -> bool:
    """Whether a value other than a load is made of a position."""
    instructions = stage.body.instructions
    made_of = [i for v in instructions if not isinstance(v, Load) for i in operands(v)]
    return any(isinstance(instructions[i], Index) for i in (*made_of, stage.body.result))


def _is_rounded(stage: Stage, dtype: DataType) -> bool:
    """Whether a stage's values have just been rounded to a 16-bit type, which may store them."""
    root = stage.body.instructions[stage.body.result]
    return isinstance(root, Apply) and root.operation is ROUNDINGS.get(dtype)


def _count_steps(run: int, lanes: int) -> int:
    """The vectors, long and short, and single elements that a run of points takes."""
    steps, rest = divmod(run, lanes)
    if lanes > _SHORT_VECTOR:
        short, rest = divmod(rest, _SHORT_VECTOR)
        steps += short
    return steps + rest
