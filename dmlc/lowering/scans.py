"""Kernels of prefix scans.

A work group owns a row, reads it once, and scans it in registers. If there are few rows, groups own
chunks: one kernel reduces each chunk, and the next scans it, starting with the total of the chunks
before. That reads memory twice and writes it once. A single kernel would need a decoupled look-back
to preceding chunks, and neither Vulkan nor D3D12 guarantees forward progress of the groups that it
waits for.

Open sizes are arguments. Rows then have a fixed number of chunks, however long they are.
"""

from __future__ import annotations

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.texts import Texts, find_source, show
from dmlc.scalars import COMBINERS
from dmlc.sizes import Measure, divide_up, estimate, is_multiple, multiply
from dmlc.transform.scans import Scan

_TEMPLATE = "scan.group.j2"
_MOST_HELD = 16
"""Largest number of elements that a work item scans at once."""
_MOST_APART = 4
"""The same if elements are moved one by one, as adjacent work items then store that far apart."""
_WIDE = 32
"""Interleaved rows that one group scans."""
_FEW = 4
"""Number of tiles of a row that one group always processes in sequence, as a second kernel would
cost more."""
_BUSY = 2
"""Chunks of all rows per group that keeps a device busy: each sums the totals of the preceding
chunks."""


def lower_scan(
    function: ir.Function, scan: Scan, stages: tuple[str, ...], profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """Kernels of a scan, and of its conversion to another type if there are two stages. Raises
    `UnsupportedError` if a limit of the target is exceeded."""
    stage, name = scan.stage, stages[-1]
    texts, dtype = Texts(function, name, limits), stage.dtype
    rows, length, inner = (multiply(extents) for extents in scan.part_extents())
    many, much = estimate(inner, profile.taken), estimate(length, profile.taken)
    lanes = profile.group_size
    if not isinstance(length, int):
        lanes = min(lanes, max(_WIDE, 1 << (many * much - 1).bit_length()))
    wide = min(_WIDE, lanes, 1 << (many.bit_length() - 1))
    columns, parts = divide_up(inner, wide), lanes // wide
    per = min(_MOST_HELD * 4 // max(4, dtype.bytes), -(-much // parts))
    source = find_source(texts, scan.stage, scan.place(BodyBuilder()), profile, limits)
    fours = inner == 1 and is_multiple(length, 4) and not scan.goes_back
    fours = fours and lanes > 1 and dtype.bytes == 4
    # Sizes alone decide, so that the order of summation is the same in every language.
    per = -(-per // 4) * 4 if fours else per if wide > 1 else min(per, _MOST_APART)
    per = per if lanes > 1 else 1
    vector = 4 if fours and source.dtype.compute is dtype and limits.vector_lanes != 1 else 1
    # 16-bit elements are moved 16 bytes at a time, too.
    halves = vector > 1 and {source.dtype.bytes, function.tensors()[name].dtype.bytes} == {2}
    vector = 8 if halves and is_multiple(length, 8) and per % 8 == 0 else vector
    blocks, tiles = multiply((rows, columns)), divide_up(length, parts * per)
    busy, long = estimate(blocks, profile.taken), estimate(tiles, profile.taken)
    is_enough = busy >= profile.groups or long <= _FEW
    wanted = 1 if is_enough else max(1, _BUSY * profile.groups // busy)
    # For an open size, one chunk per tile, or a fixed number of chunks.
    size = divide_up(tiles, wanted) * (parts * per) if long > wanted else parts * per
    per_row: Measure = wanted
    if wanted > 1 and isinstance(size, int):
        per_row = divide_up(length, size)
    is_parted = per_row != 1
    combiner, count = COMBINERS[stage.combiner or ""], multiply(stage.extents)
    nothing = k.Literal(k.Type(dtype), combiner.identity(dtype))
    arrays = {"held": k.Array("", dtype, per, registers=True)}
    if lanes > 1:
        arrays["sums"] = k.Array("", dtype, lanes + lanes // 16, shared=True)
    result = texts.find_buffer(name)
    totals = texts.make_buffer("totals", dtype, multiply((blocks, per_row, wide)))
    values: dict[str, object] = {
        "dtype": dtype.short,
        "per": per,
        "wide": wide,
        "inner": inner,
        "last_row": inner - 1,
        "rows": rows,
        "blocks": blocks,
        "columns": columns,
        "plane": length * inner,
        "length": length,
        "end": length - 1,
        "size": size,
        "per_row": per_row,
        "is_parted": is_parted,
        "is_one": tiles == 1,
        "is_whole": is_multiple(length, parts * per),
        "is_ragged": not is_multiple(inner, wide),
        "vector": vector,
        "source": source.name,
        "totals": totals.name,
        "combine": combiner.operation.name,
        "nothing": print_expression(nothing),
        "backwards": scan.goes_back,
        "inclusive": scan.is_inclusive,
    }
    steps = [(result, "scan its elements")]
    if is_parted:
        steps.insert(0, (totals, "add up its elements"))
    groups = multiply((blocks, per_row))
    has = f"{show(size)} elements of a row" if is_parted else "a row"
    loops = (f"i: 0..{show(groups)}", f"k: 0..{show(size)}")
    for written, each in steps:
        is_last = written is result
        read = (source, totals) if is_last and is_parted else (source,)
        texts.add(
            _TEMPLATE, {**values, "result_name": name if is_last else ""}, arrays, read, (written,),
            stages if is_last else stages[:1], groups, lanes, count,
            (*loops, each, f"each has {has}, in order"),
        )  # fmt: skip
    return texts.finish("stretches of rows are added up before they are scanned")
