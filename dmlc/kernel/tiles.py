"""A walk in tiles, for operands that lie across the others in memory.

A transposed operand takes a new cache line for every element of a row. The lines of a tile's
first row hold the elements of the rows below it: walking a tile to its end before the next uses
each line up while it is near.
"""

from __future__ import annotations

import math

from dmlc.kernel import nodes as k
from dmlc.kernel.build import CACHE_LINE, Builder, Shape
from dmlc.kernel.element import View
from dmlc.kernel.emit import Emitter, add, index, multiply, operate

_ROWS, _COLUMNS = 256, 8
"""The size of a tile. Tall, since each column of it lies on pages of its own, and opening one
costs more than reading on; narrow enough for its lines to stay near. Of 16 shapes tried on
matrices of 3072 by 4000 and 4096 by 4096, 1.4 to 3 times as quick as 64 by 16 or 16 by 16."""


def find_crossing_axis(b: Builder) -> int | None:
    """The dimension along which some operand is dense that takes a new line for each element of
    the innermost one; None where there is no such operand."""
    last = len(b.sizes()) - 1
    best: tuple[int, int] | None = None
    for view, strides in b.walk.strides.items():
        if not view.tensor or strides[last] * view.dtype.bytes < CACHE_LINE:
            continue
        for axis, step in enumerate(strides[:last]):
            if 0 < step * view.dtype.bytes < CACHE_LINE:
                best = min(best or (step, axis), (step, axis))
    return None if best is None else best[1]


def lower_tiles(b: Builder, rows: int) -> Shape:
    """A work item takes strips of 256 along dimension `rows`, and walks them tile by tile."""
    sizes, per_item = b.sizes(), b.profile.per_item
    last = len(sizes) - 1
    others = [axis for axis in range(last) if axis != rows]
    width = per_item // _ROWS
    strips, pieces = -(-sizes[rows] // _ROWS), -(-sizes[last] // width)
    blocks = math.prod(sizes[axis] for axis in others) * strips * pieces
    block_size = min(_ROWS, sizes[rows]) * min(width, sizes[last])
    run = min(max(1, per_item // block_size), blocks)
    launch = k.Launch(blocks, run, 1)
    words = f"each computes {run * block_size:,} elements in tiles of {_ROWS} by {_COLUMNS}"

    levels = dict.fromkeys(others, 1) | {rows: 2, last: 3}
    emitter = Emitter(b.elements, b.names, b.depth(lambda axis: levels[axis]))
    body = emitter.lets(0, b.fixed)

    def make(block: k.Expression) -> list[k.Statement]:
        known: dict[int, k.Expression] = {}
        parts = [(axis, sizes[axis]) for axis in others] + [(rows, strips), (last, pieces)]
        inside = b.decompose(block, parts, known)
        strip, piece = known.pop(rows), known.pop(last)
        inside += emitter.lets(1, b.at(known))
        strip_rows = _stretch(b, "row", strip, _ROWS, sizes[rows], inside)
        columns = _stretch(b, "column", piece, width, sizes[last], inside)
        return [*inside, _loop_tiles(b, emitter, rows, known, strip_rows, columns)]

    return Shape(launch, words, body + b.share_blocks(blocks, run, make))


def _stretch(
    b: Builder,
    name: str,
    number: k.Expression,
    length: int,
    size: int,
    statements: list[k.Statement],
) -> tuple[k.Expression, k.Expression]:
    """The bounds of a stretch of `length` among `size`, named in `statements`."""
    if size <= length:
        return index(0), index(size)
    first = b.let(f"first_{name}", multiply(number, length))
    end: k.Expression = add(first.local, index(length))
    if size % length:
        end = operate("min", end, index(size))
    last = b.let(f"end_{name}", end)
    statements += [first, last]
    return first.local, last.local


def _loop_tiles(
    b: Builder,
    emitter: Emitter,
    rows: int,
    known: dict[int, k.Expression],
    strip: tuple[k.Expression, k.Expression],
    columns: tuple[k.Expression, k.Expression],
) -> k.For:
    """The tiles of one strip: for each, its rows; for each row, its elements."""
    last = len(b.sizes()) - 1
    tile = k.Local(b.names.take("tile"), k.INDEX)
    row = k.Local(b.names.take(f"i{rows}"), k.INDEX)
    column = k.Local(b.names.take("i"), k.INDEX)
    end: k.Expression = add(tile, index(_COLUMNS))
    if b.sizes()[last] % _COLUMNS:
        end = operate("min", end, columns[1])
    tile_end = b.let("tile_end", end)
    inner = {**known, rows: row}
    in_row = emitter.lets(2, b.at(inner))
    bases = b.bases(inner, last, in_row)

    def position(view: View) -> k.Expression:
        return add(bases[view], multiply(column, b.walk.strides[view][last]))

    elements = (*emitter.lets(3, position), *emitter.stores(position, 1, {}))
    in_row.append(k.For(column, tile, tile_end.local, 1, elements))
    in_tile = (tile_end, k.For(row, strip[0], strip[1], 1, tuple(in_row)))
    return k.For(tile, columns[0], columns[1], _COLUMNS, in_tile)
