"""Drawing of the kernels of one group: one below the other, in a common frame. Links lead to the
first kernel and from the last; the tags of the others have their sources and destinations in
words."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from dmlc.picture.blocks import OUTSIDE, Block, Look, draw_kernel
from dmlc.picture.diagram import Kernel
from dmlc.picture.layered import Point
from dmlc.picture.lettering import measure
from dmlc.picture.shapes import LINE, NAME, PAD, Curve, Drawing, Line, Shape

_BETWEEN = 30.0
"""Gap between the kernels of a group."""

_HEAD = 34.0


def draw_group(
    kernels: Sequence[Kernel], look: Look, targets: Mapping[str, Mapping[str, str]]
) -> Block:
    """Kernels of a group. `targets` has for each tensor the words for each reader, by the reader's
    label."""
    own = [
        dataclasses.replace(look, targets=_describe_targets(kernel, targets, ()), done=done)
        for kernel, done in zip(kernels, _list_done(kernels, look), strict=True)
    ]
    if len(kernels) == 1:
        return draw_kernel(kernels[0], own[0])
    limit = look.limit - 2 * OUTSIDE
    blocks: list[Block] = []
    # From the last one on, for what a kernel says of its results depends on the next one's tags.
    for at in range(len(kernels) - 1, -1, -1):
        kernel, said = kernels[at], set[str]()
        words = own[at].targets
        if not look.linked or at:
            before = {t.tensor for t in kernels[at - 1].writes} if at else set[str]()
            said |= {t.tensor for t in kernel.reads} - before
        if blocks:
            # A line leads to the next kernel's tag, where that is on its rim.
            linked = {t.tensor for t in kernel.writes} & set(blocks[-1].reads)
            words = _describe_targets(kernel, targets, [(n, kernels[at + 1].label) for n in linked])
        if blocks or not look.linked:
            said |= {t.tensor for t in kernel.writes}
        blocks.append(
            draw_kernel(kernel, dataclasses.replace(own[at], limit=limit, said=said, targets=words))
        )
    return _stack(kernels, blocks[::-1])


def _list_done(kernels: Sequence[Kernel], look: Look) -> list[frozenset[str]]:
    """Stages that earlier kernels have computed, for each kernel."""
    done = frozenset(s.name for k in kernels for s in k.steps if s.name in look.done)
    found: list[frozenset[str]] = []
    for kernel in kernels:
        found.append(done)
        done |= {step.name for step in kernel.steps}
    return found


def _describe_targets(
    kernel: Kernel, targets: Mapping[str, Mapping[str, str]], shown: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """Destinations of a kernel's results, in words, except those that a link shows."""
    return {
        t.tensor: _list_readers(
            words
            for label, words in targets.get(t.tensor, {}).items()
            if (t.tensor, label) not in shown
        )
        for t in kernel.writes
    }


def _list_readers(texts: Iterable[str]) -> str:
    """Readers in words: `to kernel 3`, or `to kernel 3, 4, output`, without repetition."""
    found: list[str] = []
    for text in texts:
        start, _, last = text.rpartition(" ")
        found.append(last if start and any(t.startswith(start) for t in found) else text)
    return ", ".join(found)


def _stack(kernels: Sequence[Kernel], blocks: Sequence[Block]) -> Block:
    """Frame of a group around its kernels."""
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
                start = Point(a + upper.writes[name], above[1])
                end = Point(b + lower.reads[name], below[0])
                curves.append(Curve((start, end), "memory", 1.6, name))
    first, last = spans[0], spans[-1]
    reads = {n: x + middles[0] - width / 2 for n, x in blocks[0].reads.items()}
    writes = {n: x + middles[-1] - width / 2 for n, x in blocks[-1].writes.items()}
    drawing = Drawing(width, height, (frame, *shapes), tuple(curves))
    return Block(drawing, reads, writes, first[0], height - last[1])
