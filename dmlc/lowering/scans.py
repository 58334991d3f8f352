"""The kernels of scans: of what each element of a row and all before it come to.

A work group has a row, goes through it once, and keeps in registers what it scans. Of few rows
groups have stretches: a kernel says what each stretch comes to, and the next one begins with those
before. That is twice through memory for reading, and once for writing. In one kernel a group would
have to wait for those of the stretches before (a decoupled look-back), and neither Vulkan nor D3D12
says that these ever come to an end while another group waits for them.
"""

from __future__ import annotations

import math

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.texts import Texts, find_source
from dmlc.scalars import COMBINERS, combiner_identity
from dmlc.source import InternalError
from dmlc.transform.prefixes import find_prefix

_TEMPLATE = "scan.group.j2"
_MOST_HELD = 16
"""Elements that a work item scans at once, at most."""
_MOST_APART = 4
"""The same where neighbours are moved one by one: work items that store side by side are so far
apart in memory."""
_WIDE = 32
"""Rows that lie side by side, and are scanned by one group."""
_BUSY = 2
"""Stretches of all rows, by the groups that keep a device busy: work items add up one of those
before each."""


def lower_scan(
    function: ir.Function, name: str, profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """The kernels of a scan. Raises `UnsupportedError` where a limit of the target is passed."""
    stage = function.stage(name)
    prefix = None if stage is None else find_prefix(stage)
    if stage is None or prefix is None or stage.reduction is None:
        raise InternalError(f"%{name} is no scan of rows")
    texts, dtype, lanes = Texts(function, name, limits), stage.dtype, profile.group_size
    sizes = [extent for extent in stage.extents if isinstance(extent, int)]
    length, inner = sizes[prefix.axis], math.prod(sizes[prefix.axis + 1 :])
    rows = math.prod(sizes[: prefix.axis])
    wide = min(_WIDE, 1 << (inner.bit_length() - 1))
    columns, parts = -(-inner // wide), lanes // wide
    per = min(_MOST_HELD * 4 // max(4, dtype.bytes), -(-length // parts))
    source = find_source(texts, prefix.stage, prefix.place(BodyBuilder()), profile, limits)
    vectors = wide == 1 and not (length % 4 or prefix.goes_back) and dtype.bytes == 4
    # By sizes alone: what is added to what is the same in every language.
    per = -(-per // 4) * 4 if vectors else per if wide > 1 else min(per, _MOST_APART)
    vectors = vectors and source.dtype.compute is dtype and limits.vector_lanes != 1
    blocks, tiles = rows * columns, -(-length // (parts * per))
    wanted = 1 if blocks >= profile.groups else min(_BUSY * profile.groups // blocks, tiles)
    size = -(-tiles // max(1, wanted)) * parts * per
    per_row = -(-length // size)
    combiner = stage.reduction.combiner
    nothing = k.Literal(k.Type(dtype), combiner_identity(combiner, dtype))
    arrays = {
        "held": k.Array("", dtype, per, registers=True),
        "sums": k.Array("", dtype, lanes + lanes // 16, shared=True),
    }
    result = k.Buffer(name, dtype, k.Access.READ, None, math.prod(sizes) * dtype.bytes)
    totals = texts.make_buffer("totals", dtype, blocks * per_row * wide)
    values: dict[str, object] = {
        "dtype": dtype.short,
        "per": per,
        "wide": wide,
        "inner": inner,
        "columns": columns,
        "length": length,
        "size": size,
        "per_row": per_row,
        "vectors": vectors,
        "source": source.name,
        "totals": totals.name,
        "combine": COMBINERS[combiner].name,
        "nothing": print_expression(nothing),
        "backwards": prefix.goes_back,
        "inclusive": prefix.is_inclusive,
    }
    steps = [(result, "scan its elements")]
    if per_row > 1:
        steps.insert(0, (totals, "add up its elements"))
    groups = blocks * per_row
    for written, each in steps:
        is_last = written is result
        read = (source, totals) if is_last and per_row > 1 else (source,)
        walk = f"each has {'a row' if per_row == 1 else f'{size:,} elements of a row'}, in order"
        texts.add(
            _TEMPLATE, {**values, "result_name": name if is_last else ""}, arrays, read, (written,),
            (name,), groups, lanes, math.prod(sizes),
            (f"i: 0..{groups:,}", f"k: 0..{size:,}", each, walk),
        )  # fmt: skip
    return texts.finish("stretches of rows are added up before they are scanned")
