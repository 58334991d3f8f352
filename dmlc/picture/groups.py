"""Draws the kernels that compute one group together: one below the other, in a frame around all.

Lines lead to the first kernel and from the last; what the others move from and to elsewhere their
tags say in words.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from dmlc.picture.blocks import OUTSIDE, Block, Look, draw_kernel
from dmlc.picture.diagram import Kernel
from dmlc.picture.lettering import measure
from dmlc.picture.shapes import LINE, NAME, PAD, Curve, Drawing, Line, Shape

_BETWEEN = 30.0
"""From one kernel of a group to the next."""

_HEAD = 34.0


def draw_group(
    kernels: Sequence[Kernel],
    look: Look,
    sources: Mapping[str, str],
    targets: Mapping[str, Mapping[str, str]],
) -> Block:
    """The kernels of a group. `sources` say in words where each tensor comes from, and `targets`
    for each who reads it: the words for each reader, by its label."""
    if len(kernels) == 1:
        return draw_kernel(kernels[0], look)
    look = dataclasses.replace(look, limit=look.limit - 2 * OUTSIDE)
    done = set[str]()
    blocks: list[Block] = []
    for at, kernel in enumerate(kernels):
        before = {t.tensor for t in kernels[at - 1].writes} if at else set[str]()
        after = kernels[at + 1] if at + 1 < len(kernels) else None
        own = dataclasses.replace(
            look,
            done={*_list_done(look, kernel), *done},
            reads_from={
                t.tensor: sources.get(t.tensor, "")
                for t in kernel.reads
                if t.tensor not in before and (at or not look.linked)
            },
            writes_to=_say_targets(kernel, after, targets, linked=look.linked),
        )
        blocks.append(draw_kernel(kernel, own))
        done |= {step.name for step in kernel.steps}
    return _stack(kernels, blocks, linked=look.linked)


def _list_done(look: Look, kernel: Kernel) -> set[str]:
    return {step.name for step in kernel.steps if step.name in look.done}


def _say_targets(
    kernel: Kernel,
    after: Kernel | None,
    targets: Mapping[str, Mapping[str, str]],
    *,
    linked: bool,
) -> dict[str, str]:
    """Where what a kernel writes goes, as far as no line shows it; lines lead from the last."""
    if after is None and linked:
        return {}
    found: dict[str, str] = {}
    for transfer in kernel.writes:
        readers = targets.get(transfer.tensor, {})
        words = [t for label, t in readers.items() if after is None or label != after.label]
        if words:
            found[transfer.tensor] = ", ".join(words)
    return found


def _stack(kernels: Sequence[Kernel], blocks: Sequence[Block], *, linked: bool) -> Block:
    """The frame of a group around its kernels."""
    text = f"Kernels {kernels[0].label} to {kernels[-1].label}, one group"
    if len(kernels) == 2:
        text = f"Kernels {kernels[0].label} and {kernels[1].label}, one group"
    title = Line(14, 21, text, "name")
    widest = max(block.drawing.width for block in blocks)
    width = max(widest, measure(text, NAME, bold=True) + PAD) + 2 * OUTSIDE
    shapes: list[Shape] = []
    curves: list[Curve] = []
    lefts: list[float] = []
    y = _HEAD
    spans: list[tuple[float, float]] = []
    for block in blocks:
        left = (width - block.drawing.width) / 2
        moved = block.drawing.moved(left, y)
        shapes += moved.shapes
        curves += moved.curves
        lefts.append(left)
        spans.append((y, y + block.drawing.height))
        y += block.drawing.height + _BETWEEN
    height = y - _BETWEEN + LINE
    frame = Shape(0, 0, width, height, "group", (title,))
    middles = [at + block.drawing.width / 2 for at, block in zip(lefts, blocks, strict=True)]
    pairs = itertools.pairwise(zip(blocks, spans, middles, strict=True))
    for (upper, above, a), (lower, below, b) in pairs:
        for name in upper.writes:
            if name in lower.reads:
                start = (a + upper.writes[name], above[1])
                curves.append(
                    Curve((start, (b + lower.reads[name], below[0])), "memory", 1.6, name)
                )
    first, last = spans[0], spans[-1]
    reads = {n: x + middles[0] - width / 2 for n, x in blocks[0].reads.items()}
    writes = {n: x + middles[-1] - width / 2 for n, x in blocks[-1].writes.items()}
    if linked:
        # The lines from outside end at the frame: these go on to the tags.
        curves += [_lead(width / 2 + x, 0.0, first[0], n) for n, x in reads.items()]
        curves += [_lead(width / 2 + x, last[1], height, n) for n, x in writes.items()]
    return Block(Drawing(width, height, (frame, *shapes), tuple(curves)), reads, writes)


def _lead(x: float, start: float, end: float, name: str) -> Curve:
    return Curve(((x, start), (x, end)), "memory", 1.3, name)
