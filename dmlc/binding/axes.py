"""Axis arithmetic on ranks and sizes: broadcasting, the axes that `like:` reduces, `squeeze` and
`unsqueeze`. No nodes are made here."""

from __future__ import annotations

from dmlc import ir
from dmlc.binding.tensors import MAXIMUM_RANK, show_sizes
from dmlc.binding.values import span_text
from dmlc.language.arrays import settle_axes
from dmlc.source import DmlcError, Span


def join_shapes(
    left: tuple[ir.Extent, ...], right: tuple[ir.Extent, ...]
) -> tuple[ir.Extent, ...] | None:
    """The shape two shapes broadcast to, or None if they do not."""
    if len(left) != len(right):
        return None
    joined: list[ir.Extent] = []
    for a, b in zip(left, right, strict=True):
        if a != b and 1 not in (a, b):
            return None
        joined.append(b if a == 1 else a)
    return tuple(joined)


def reduce_like(
    shape: tuple[ir.Extent, ...], like: tuple[ir.Extent, ...], operand: Span, target: Span
) -> list[int]:
    """Axes to reduce so that a shape becomes another's: those whose size in the other is 1. An axis
    of size 1 is kept and broadcasts. Raises `DmlcError` if the sizes do not fit."""
    grows = any(a == 1 and b != 1 for a, b in zip(shape, like, strict=False))
    if len(shape) != len(like) or join_shapes(shape, like) is None or grows:
        raise DmlcError(
            f"{span_text(operand)} has sizes {show_sizes(shape)}, which cannot be reduced to the "
            f"sizes {show_sizes(like)} of {span_text(target)}: each must be the same or 1 there",
            operand,
            code="E0402",
        )
    return [a for a, (ours, other) in enumerate(zip(shape, like, strict=True)) if ours != other]


def move_axes(
    name: str, shape: tuple[ir.Extent, ...], axes: tuple[int, ...], span: Span, place: Span
) -> tuple[list[int], int]:
    """Result axis of each axis of a shape under `squeeze` or `unsqueeze` (-1: removed), and the
    rank of the result. Raises `DmlcError`."""
    if name == "squeeze":
        rank = len(shape) - len(axes)
        dropped = settle_axes(axes, len(shape), f"a tensor of {len(shape)} dimensions", place)
        long = [a for a in dropped if shape[a] != 1]
        if long:
            raise DmlcError(
                f"axis {long[0]} cannot be dropped: its size in {show_sizes(shape)} is "
                f"{shape[long[0]]}, not 1",
                span,
                code="E0404",
            )
        kept = [a for a in range(len(shape)) if a not in dropped]
        moved = [kept.index(a) if a in kept else -1 for a in range(len(shape))]
    else:
        rank = len(shape) + len(axes)
        added = settle_axes(axes, rank, f"a result of {rank} dimensions", place)
        moved = [a for a in range(rank) if a not in added]
    if not 1 <= rank <= MAXIMUM_RANK:
        raise DmlcError(
            f"{span_text(span)} would have {rank} dimensions: a tensor has 1 to {MAXIMUM_RANK}",
            span,
            code="E0409",
        )
    return moved, rank
