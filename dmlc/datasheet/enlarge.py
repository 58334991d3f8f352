"""A call with larger tensors: the size at which the cost of an operator shows.

Examples have a few elements, so that a launch is all that they cost. The axes that can grow are
found by trial: the operator's own constraints say which sizes go together.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from dmlc.binding import TensorDesc
from dmlc.ir import Extent
from dmlc.source import DmlcError
from dmlc.testing.case import Call

_BYTES = 1 << 26
"""The most memory of an enlarged call: more than most caches hold."""
_MOST_TOGETHER = 3
"""The most axes that are tried together, besides those of one place in all tensors."""

_Axis: TypeAlias = tuple[str, int]
"""A tensor's name, and the number of one of its dimensions."""
_Sizes: TypeAlias = Mapping[str, tuple[int, ...]]


def enlarge(call: Call) -> Call | None:
    """The call with each size that can grow multiplied by one power of two, the largest for which
    its tensors and stages take at most 64 MiB. None where no size can grow, or a tensor has
    strides."""
    if any(desc.strides is not None for desc in call.tensors.values()):
        return None
    trial = _Trial.make(call)
    axes = [axis for group in trial.list_groups() for axis in group]
    best: Call | None = None
    factor = 2
    while axes:
        found = trial.resolve(_multiply(trial.sizes, axes, factor))
        if found is None:
            break
        tensors = {n: TensorDesc(desc.data_type, found[n]) for n, desc in call.tensors.items()}
        larger = dataclasses.replace(call, tensors=tensors)
        if _count_bytes(larger) > _BYTES:
            break
        best, factor = larger, 2 * factor
    return best


def _count_bytes(call: Call) -> int:
    """The memory of all parameters and stages of a call whose sizes are known."""
    function = call.function
    return sum(
        each.dtype.bytes * math.prod(e for e in each.extents if isinstance(e, int))
        for each in (*function.parameters, *function.stages)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Trial:
    """A call, and the sizes of it that are given: those of its inputs, and of the outputs whose
    sizes nothing else says."""

    call: Call
    sizes: _Sizes
    whole: _Sizes
    """The sizes of all tensors."""

    @staticmethod
    def make(call: Call) -> _Trial:
        whole = {name: _keep_numbers(desc.sizes) for name, desc in call.tensors.items()}
        inputs = _Trial(call, {name: whole[name] for name in call.inputs}, whole)
        return inputs if inputs.resolve(inputs.sizes) else _Trial(call, whole, whole)

    def resolve(self, sizes: _Sizes) -> _Sizes | None:
        """The sizes of all tensors, given some. None where the operator refuses them."""
        described = {
            name: TensorDesc(desc.data_type, sizes.get(name))
            for name, desc in self.call.tensors.items()
        }
        try:
            found = self.call.operator.resolve(described, self.call.attributes).tensors
        except DmlcError:
            return None
        known = {
            name: _keep_numbers(tensor.sizes)
            for name, tensor in found.items()
            if name in self.whole and tensor.sizes is not None
        }
        return known if len(known) == len(self.whole) else None

    def list_groups(self) -> Iterator[Sequence[_Axis]]:
        """The axes that can grow, with those that have to grow with them."""
        first = next(iter(self.sizes), None)
        axes = [(name, axis) for name, sizes in self.sizes.items() for axis in range(len(sizes))]
        grown: set[_Axis] = set()
        for name, axis in axes:
            # A size of 1 is often one that is repeated: it grows in the first tensor alone.
            if (name, axis) in grown or (self.sizes[name][axis] == 1 and name != first):
                continue
            free = [other for other in axes if other not in grown and other != (name, axis)]
            for group in self._list_candidates((name, axis), free):
                if self._grows(group):
                    grown.update(group)
                    yield group
                    break

    def _list_candidates(self, axis: _Axis, free: Sequence[_Axis]) -> Iterator[Sequence[_Axis]]:
        """An axis alone; with all axes of its number and size; with others of its size."""
        yield (axis,)
        alike = [other for other in free if self._size(other) == self._size(axis)]
        beside = [other for other in alike if other[1] == axis[1]]
        if len(beside) >= _MOST_TOGETHER:
            yield (axis, *beside)
        for count in range(1, _MOST_TOGETHER):
            for others in itertools.combinations(alike, count):
                yield (axis, *others)
        for other in alike:
            if other not in beside:
                yield (axis, *beside, other)

    def _size(self, axis: _Axis) -> int:
        return self.sizes[axis[0]][axis[1]]

    def _grows(self, group: Sequence[_Axis]) -> bool:
        """Whether the call with these sizes doubled is one, and no tensor gets smaller: a larger
        window leaves a smaller output."""
        found = self.resolve(_multiply(self.sizes, group, 2))
        return found is not None and all(
            all(now >= before for now, before in zip(found[name], sizes, strict=True))
            for name, sizes in self.whole.items()
        )


def _multiply(sizes: _Sizes, axes: Sequence[_Axis], factor: int) -> _Sizes:
    found = {name: list(each) for name, each in sizes.items()}
    for name, axis in axes:
        found[name][axis] *= factor
    return {name: tuple(each) for name, each in found.items()}


def _keep_numbers(sizes: Sequence[Extent] | None) -> tuple[int, ...]:
    """The sizes that are numbers: all of a call with its data."""
    return tuple(size for size in sizes or () if isinstance(size, int))
