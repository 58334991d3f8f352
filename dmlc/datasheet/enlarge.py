"""Call with larger tensors, at which the cost of an operator shows. Examples have a few elements,
so that they cost little more than a launch.

The axes that can grow are found by trial, since the operator's own constraints relate the sizes.
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
"""Largest memory of an enlarged call in bytes: more than most caches hold."""
_MOST_TOGETHER = 3
"""Largest number of axes that are tried together, besides those of one position in all tensors."""

_Axis: TypeAlias = tuple[str, int]
"""Axis: a tensor's name, and a dimension's number."""
_Sizes: TypeAlias = Mapping[str, tuple[int, ...]]


def enlarge(call: Call) -> Call | None:
    """Call with each size that can grow multiplied by one power of two, the largest for which its
    tensors and stages take at most 64 MiB. None if no size can grow, or a tensor has strides."""
    if any(desc.strides is not None for desc in call.tensors.values()):
        return None
    trial = _SizeTrial.make(call)
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
    """Bytes of all parameters and stages of a call with known sizes."""
    function = call.function
    return sum(
        each.dtype.bytes * math.prod(e for e in each.extents if isinstance(e, int))
        for each in (*function.parameters, *function.stages)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _SizeTrial:
    """Call with its independent sizes: those of its inputs, and of the outputs whose sizes do not
    follow."""

    call: Call
    sizes: _Sizes
    whole: _Sizes
    """Sizes of all tensors."""

    @staticmethod
    def make(call: Call) -> _SizeTrial:
        whole = {name: _list_numbers(desc.sizes) for name, desc in call.tensors.items()}
        inputs = _SizeTrial(call, {name: whole[name] for name in call.inputs}, whole)
        return inputs if inputs.resolve(inputs.sizes) else _SizeTrial(call, whole, whole)

    def resolve(self, sizes: _Sizes) -> _Sizes | None:
        """Sizes of all tensors from the given ones. None if the operator refuses them."""
        described = {
            name: TensorDesc(desc.data_type, sizes.get(name))
            for name, desc in self.call.tensors.items()
        }
        try:
            found = self.call.operator.resolve(described, self.call.attributes).tensors
        except DmlcError:
            return None
        known = {
            name: _list_numbers(tensor.sizes)
            for name, tensor in found.items()
            if name in self.whole and tensor.sizes is not None
        }
        return known if len(known) == len(self.whole) else None

    def list_groups(self) -> Iterator[Sequence[_Axis]]:
        """Axes that can grow, with those that must grow with them."""
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
        """Groups to try: an axis alone; with all axes of its number and size; with others of its
        size."""
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
        """Whether the call is valid with these sizes doubled, and no tensor shrinks: a larger
        window makes the output smaller."""
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


def _list_numbers(sizes: Sequence[Extent] | None) -> tuple[int, ...]:
    """Numeric sizes: all of them in a call with its data."""
    return tuple(size for size in sizes or () if isinstance(size, int))
