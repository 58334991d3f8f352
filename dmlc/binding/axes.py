"""Which axes the arguments `like:` and `axes:` name, and where `squeeze` and `unsqueeze` put them.

`other_axes` and `range` are here too. Pure arithmetic on ranks and sizes; making nodes of it is
the evaluator's and the builder's work.
"""

from __future__ import annotations

from typing import TypeGuard

from dmlc import ir
from dmlc.binding.builder import join_shapes, span_text
from dmlc.binding.nodes import Pack, Value
from dmlc.binding.packs import entries, find_entry
from dmlc.binding.tensors import MAXIMUM_RANK, show_sizes
from dmlc.source import DmlcError, Span


def axes_array(value: Value, span: Span) -> tuple[int, ...]:
    """The value of `axes:` as whole numbers. Raises `DmlcError`."""
    numbers = value if isinstance(value, tuple) else ()
    axes = tuple(v for v in numbers if isinstance(v, int) and not isinstance(v, bool))
    if not isinstance(value, tuple) or len(axes) != len(value):
        raise DmlcError("axes are an array of whole numbers, such as [0, 2]", span)
    return axes


def read_axes(value: Value, rank: int, span: Span) -> list[int]:
    """The axes of a tensor of that rank which an array names, ascending; negative ones count from
    the end. Raises `DmlcError` for one that is not there, or that stands twice."""
    return _settle(axes_array(value, span), rank, f"a tensor of {rank} dimensions", span)


def _settle(axes: tuple[int, ...], rank: int, whose: str, span: Span) -> list[int]:
    found: dict[int, int] = {}
    for axis in axes:
        settled = find_entry(axis, rank)
        if settled is None:
            raise DmlcError(f"axis {axis} is not among the axes of {whose}", span)
        if settled in found:
            first = found[settled]
            same = axis == first
            raise DmlcError(
                f"axis {axis} stands twice" if same else f"axes {first} and {axis} are one axis",
                span,
            )
        found[settled] = axis
    return sorted(found)


def reduce_like(
    shape: tuple[ir.Extent, ...], like: tuple[ir.Extent, ...], operand: Span, target: Span
) -> list[int]:
    """The axes to fold so that a shape comes to another's: those where only that one's size is 1.

    An axis of size 1 stays, and repeats. Raises `DmlcError` where the sizes do not fit.
    """
    if len(shape) != len(like) or join_shapes(shape, like) is None or _grows(shape, like):
        raise DmlcError(
            f"{span_text(operand)} has sizes {show_sizes(shape)}, which cannot be reduced to the "
            f"sizes {show_sizes(like)} of {span_text(target)}: each must be the same or 1 there",
            operand,
        )
    return [a for a, (ours, other) in enumerate(zip(shape, like, strict=True)) if ours != other]


def _grows(shape: tuple[ir.Extent, ...], like: tuple[ir.Extent, ...]) -> bool:
    return any(a == 1 and b != 1 for a, b in zip(shape, like, strict=True))


def move_axes(
    name: str, shape: tuple[ir.Extent, ...], axes: tuple[int, ...], span: Span, place: Span
) -> tuple[list[int], int]:
    """For `squeeze` and `unsqueeze`: where each axis of a shape goes (-1: dropped), and the rank
    of the result. Raises `DmlcError`."""
    if name == "squeeze":
        rank = len(shape) - len(axes)
        dropped = _settle(axes, len(shape), f"a tensor of {len(shape)} dimensions", place)
        long = [a for a in dropped if shape[a] != 1]
        if long:
            raise DmlcError(
                f"axis {long[0]} cannot be dropped: its size in {show_sizes(shape)} is "
                f"{shape[long[0]]}, not 1",
                span,
            )
        kept = [a for a in range(len(shape)) if a not in dropped]
        moved = [kept.index(a) if a in kept else -1 for a in range(len(shape))]
    else:
        rank = len(shape) + len(axes)
        added = _settle(axes, rank, f"a result of {rank} dimensions", place)
        moved = [a for a in range(rank) if a not in added]
    if not 1 <= rank <= MAXIMUM_RANK:
        raise DmlcError(
            f"{span_text(span)} would have {rank} dimensions: a tensor has 1 to {MAXIMUM_RANK}",
            span,
        )
    return moved, rank


def other_axes(listed: Value, count: Value, span: Span, place: Span) -> tuple[int, ...]:
    """The axes of a tensor of `count` dimensions that are not listed. Raises `DmlcError`."""
    if not _is_whole(count) or not 0 <= count <= MAXIMUM_RANK:
        raise DmlcError(f"'other_axes' takes a dimension count of 0 to {MAXIMUM_RANK}", place)
    found = read_axes(listed, count, span)
    return tuple(a for a in range(count) if a not in found)


_MOST_VALUES = 65_536


def list_range(first: Value, end: Value, span: Span) -> tuple[int, ...]:
    """The whole numbers from `first` up to but not including `end`. Raises `DmlcError`."""
    if not _is_whole(first) or not _is_whole(end):
        raise DmlcError("'range' takes two whole numbers", span)
    found = range(first, end)
    if len(found) > _MOST_VALUES:
        raise DmlcError(f"this range has {len(found)} values; {_MOST_VALUES} at most", span)
    return tuple(found)


def _is_whole(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def invert_order(order: Value, span: Span) -> tuple[int, ...]:
    """The inverse of a permutation: where each axis went. Raises `DmlcError`."""
    axes = axes_array(order, span)
    if sorted(axes) != list(range(len(axes))):
        raise DmlcError(
            f"'inverse' takes a permutation of 0 to {len(axes) - 1}, not {list(axes)}", span
        )
    return tuple(axes.index(axis) for axis in range(len(axes)))


def count_entries(value: Value, span: Span) -> int:
    """The number of entries of an array. Raises `DmlcError`."""
    if not isinstance(value, tuple | Pack):
        raise DmlcError("'length' takes an array", span)
    return len(entries(value))


def whole_sizes(value: Value, span: Span) -> tuple[int, ...]:
    """An array as sizes: whole numbers of 0 or more. Raises `DmlcError`."""
    items = value if isinstance(value, tuple) else ()
    sizes = tuple(v for v in items if _is_whole(v) and v >= 0)
    if not isinstance(value, tuple) or len(sizes) != len(items):
        raise DmlcError("sizes are an array of whole numbers of 0 or more", span)
    return sizes
