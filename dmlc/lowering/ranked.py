"""The kernels of rows in order: those of whole rows are `radix`'s.

Where the first few numbers of rows are wanted, a work group has a row, and goes through memory
once. It finds them one by one, the first one first. Long rows are cut into pieces: the first
numbers of all pieces are then rows of their own, of which the first ones are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import collect_elements
from dmlc.loops.phases import Phase
from dmlc.loops.space import collapse
from dmlc.lowering.assemble import make_kernel
from dmlc.lowering.radix import Row, Sorter, Stretches
from dmlc.source import InternalError
from dmlc.transform.ranked import find_rows
from dmlc.transform.ranks import Ranking, copy_number
from dmlc.transform.sort import NUMBER

_MOST_HELD = 32
"""Numbers that a work item holds in registers, at most."""
_HEADS = 16
"""Work items of which each finds the first of what an equal part of the group has."""


class Keeper(Sorter):
    """Writes the kernels that keep the first numbers of the rows of one tensor."""

    template = "keep.group.j2"

    def write(self, source: k.Buffer) -> tuple[k.Kernel, ...]:
        """All kernels, in the order they run; the rows of `source` lie one after the other."""
        rows, length, kept = self._stretches.rows, self._stretches.length, self._rows.count
        step = {"source": source.name, "row_length": length, "kept": kept, "given": ""}
        read = [source]
        while True:
            pieces = -(-length // (_MOST_HELD * self._lanes))
            self._stretches = Stretches(rows, length, -(-length // pieces))
            length = self._stretches.per_row * kept
            is_last = pieces == 1
            after = self._find_results()
            if not is_last:
                after = Row(places=self.make_buffer("first", NUMBER, rows * length))
            own = {"after": after.names, "is_last": is_last}
            each = f"keep the first {kept}, one by one"
            self._finish([{**step, **own}], read, after.buffers, each)
            if is_last:
                return tuple(self.kernels)
            read = [source, *after.buffers]
            step["given"] = after.names["place"]

    @property
    def _held(self) -> int:
        return -(-self._stretches.size // self._lanes)

    def _make_arrays(self) -> Mapping[str, k.Array]:
        sizes = {"keys": (self._key, self._held), "places": (NUMBER, self._held)}
        sizes |= {
            "heads": (self._key, self._lanes + _HEADS),
            "head_places": (NUMBER, self._lanes + _HEADS),
        }
        return {
            what: k.Array("", t, n, n > self._held, registers=n == self._held)
            for what, (t, n) in sizes.items()
        }


def lower_rows(
    function: ir.Function, ranks: str, profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """The kernels of what ranks put in order. Raises `UnsupportedError` where a limit of the target
    is passed."""
    stage = function.stage(ranks)
    rows = None if stage is None else find_rows(function, stage, walks=profile.walks)
    if rows is None:
        raise InternalError(f"%{ranks} are no ranks that put rows in order")
    make = Sorter if rows.is_whole else Keeper
    sorter, source = make(function, rows, profile, limits), _find_source(function, rows.ranking)
    if source is not None:
        return sorter.write(sorter.find_tensor(source))
    numbers = sorter.make_rows("numbers", sorter.dtype)
    first = _store_numbers(function, rows.ranking, numbers, profile, limits)
    return (first, *sorter.write(numbers))


def _find_source(function: ir.Function, ranking: Ranking) -> str | None:
    """The tensor that the numbers are, where its rows lie one after the other."""
    stage = ranking.stage
    load = stage.body.instructions[ranking.number]
    if not isinstance(load, ir.Load):
        return None
    places = [stage.body.instructions[number] for number in load.indices]
    *outer, _ = (ir.Index(axis) for axis in range(len(stage.extents)))
    sizes = tuple(extent for extent in stage.extents if isinstance(extent, int))
    is_packed = function.strides(load.tensor) == ir.packed_strides(sizes)
    same = function.tensors()[load.tensor].extents == stage.extents
    return load.tensor if same and is_packed and places == [*outer, ranking.point] else None


def _store_numbers(
    function: ir.Function, ranking: Ranking, numbers: k.Buffer, profile: Profile, limits: Limits
) -> k.Kernel:
    """The kernel of numbers that are computed."""
    builder = BodyBuilder()
    places = [builder.index(axis) for axis in range(len(ranking.stage.extents))]
    made = builder.make(copy_number(builder, ranking, places))
    stage = ir.Stage(numbers.name, made.dtype, ranking.stage.extents, made)
    known = dataclasses.replace(function, stages=(*function.stages, stage))
    elements = collect_elements(known, (stage.name,))
    phases = (Phase(elements, collapse(elements)),)
    read = (ranking.stage.name,)
    kernel = make_kernel(known, phases, (stage.name,), (read,), profile, limits)
    between = {numbers.name: numbers.count}
    buffers = tuple(
        dataclasses.replace(b, count=between.get(b.name, b.count)) for b in kernel.buffers
    )
    return dataclasses.replace(kernel, buffers=buffers, stages=read)
