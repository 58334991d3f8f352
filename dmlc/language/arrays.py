"""Arithmetic on compile-time arrays: axes, permutations, ranges, sizes. Values are the binder's;
anything but an array of whole numbers is refused with `DmlcError`."""

from __future__ import annotations

from typing import TypeGuard, cast

from dmlc.language.tables import MAX_RANK
from dmlc.source import DmlcError, Span

_MOST_VALUES = 65_536


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole_array(value: object, least: float) -> tuple[int, ...] | None:
    """Array of whole numbers that are all at least `least`; None for anything else."""
    items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (None,)
    found = tuple(v for v in items if _is_whole(v) and v >= least)
    return found if len(found) == len(items) else None


def axes_array(value: object, span: Span) -> tuple[int, ...]:
    """The value of `axes:` as whole numbers."""
    axes = _whole_array(value, float("-inf"))
    if axes is None:
        raise DmlcError("axes are an array of whole numbers, such as [0, 2]", span, code="E0404")
    return axes


def whole_sizes(value: object, span: Span) -> tuple[int, ...]:
    """Array as sizes: whole numbers of 0 or more."""
    sizes = _whole_array(value, 0)
    if sizes is None:
        raise DmlcError("sizes are an array of whole numbers of 0 or more", span, code="E0303")
    return sizes


def find_entry(number: int, count: int) -> int | None:
    """Position among `count` entries of an index, which counts from the end if negative; None out
    of bounds."""
    settled = number + count if number < 0 else number
    return settled if 0 <= settled < count else None


def read_axes(value: object, rank: int, span: Span) -> list[int]:
    """Axes in an array, ascending; negative ones count from the end. Raises `DmlcError` for an axis
    out of bounds or a repeated one."""
    return settle_axes(axes_array(value, span), rank, f"a tensor of {rank} dimensions", span)


def settle_axes(axes: tuple[int, ...], rank: int, whose: str, span: Span) -> list[int]:
    found: dict[int, int] = {}
    for axis in axes:
        settled = find_entry(axis, rank)
        if settled is None:
            raise DmlcError(f"axis {axis} is not among the axes of {whose}", span, code="E0404")
        if settled in found:
            first = found[settled]
            same = axis == first
            raise DmlcError(
                f"axis {axis} stands twice" if same else f"axes {first} and {axis} are one axis",
                span,
                code="E0404",
            )
        found[settled] = axis
    return sorted(found)


def other_axes(listed: object, count: object, span: Span, place: Span) -> tuple[int, ...]:
    """Axes of a tensor of `count` dimensions that are not listed."""
    if not _is_whole(count) or not 0 <= count <= MAX_RANK:
        raise DmlcError(
            f"'other_axes' takes a dimension count of 0 to {MAX_RANK}", place, code="E0404"
        )
    found = read_axes(listed, count, span)
    return tuple(a for a in range(count) if a not in found)


def are_axes(listed: object, count: object, span: Span, place: Span) -> bool:
    """Whether an array lists axes of a tensor of `count` dimensions without repetition."""
    if not _is_whole(count) or not 0 <= count <= MAX_RANK:
        raise DmlcError(
            f"'are_axes' takes a dimension count of 0 to {MAX_RANK}", place, code="E0404"
        )
    found = [find_entry(axis, count) for axis in axes_array(listed, span)]
    return None not in found and len(set(found)) == len(found)


def list_range(first: object, end: object, span: Span) -> tuple[int, ...]:
    """The whole numbers from `first` up to but not including `end`."""
    if not _is_whole(first) or not _is_whole(end):
        raise DmlcError("'range' takes two whole numbers", span, code="E0304")
    found = range(first, end)
    if len(found) > _MOST_VALUES:
        raise DmlcError(
            f"this range has {len(found)} values; {_MOST_VALUES} at most", span, code="E0304"
        )
    return tuple(found)


def invert_order(order: object, span: Span) -> tuple[int, ...]:
    """Inverse of a permutation."""
    axes = axes_array(order, span)
    if sorted(axes) != list(range(len(axes))):
        raise DmlcError(
            f"'inverse' takes a permutation of 0 to {len(axes) - 1}, not {list(axes)}",
            span,
            code="E0404",
        )
    return tuple(axes.index(axis) for axis in range(len(axes)))
