"""Kernels that sort rows by ranks; those for whole rows are in `radix`.

If the first few elements of rows are wanted, a work group owns a row, and reads it once. It finds
the elements one by one, starting with the first. Long rows are cut into chunks: the first elements
of all chunks then form rows of their own, of which the first ones are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.radix import SortedKeys, Sorter, Stretches
from dmlc.lowering.texts import find_source
from dmlc.transform.ranked import Sorted
from dmlc.transform.ranks import copy_number
from dmlc.transform.sort import NUMBER

_MOST_HELD = 32
"""Largest number of elements that a work item holds in registers."""
_HEADS = 16
"""Work items that each find the first element of an equal share of the group's."""


class Keeper(Sorter):
    """Generator of the kernels that keep the first elements of the rows of one tensor."""

    template = "keep.group.j2"
    _level = 0
    """Number of chunked levels so far."""

    def write(self, source: k.Buffer) -> tuple[k.Kernel, ...]:
        """All kernels, in execution order; the rows of `source` are contiguous."""
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
                after = SortedKeys(places=self.make_buffer("first", NUMBER, rows * length))
            own = {"after": after.names, "is_last": is_last}
            each = f"keep the first {kept}, one by one"
            self._finish([{**step, **own}], read, after.buffers, each)
            if is_last:
                return self.finish("pieces of rows come before rows of what they have first")
            read = [source, *after.buffers]
            step["given"] = after.names["place"]
            self._level += 1

    @property
    def _held(self) -> int:
        return -(-self._stretches.size // self._lanes)

    def _make_arrays(self) -> Mapping[str, k.Array]:
        held = {"keys": self._key, "places": NUMBER} if self._level else {"keys": self._key}
        heads = {"heads": self._key, "head_places": NUMBER}
        made = {what: k.Array("", t, self._held, registers=True) for what, t in held.items()}
        size = self._lanes + _HEADS
        return made | {what: k.Array("", t, size, shared=True) for what, t in heads.items()}


def lower_rows(
    function: ir.Function, rows: Sorted, stages: tuple[str, ...], profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """Kernels of rows sorted by ranks. Raises `UnsupportedError` if a limit of the target is
    exceeded."""
    make = Sorter if rows.is_whole else Keeper
    sorter, builder = make(function, rows, profile, limits), BodyBuilder()
    places = [builder.index(axis) for axis in range(len(rows.ranking.stage.extents))]
    made = builder.make(copy_number(builder, rows.ranking, places))
    source = find_source(sorter, rows.ranking.stage, made, profile, limits)
    return sorter.write(source)
