"""How kernels with reductions are shaped: spaces, blocks, pieces, tiles, barriers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_kernel
from dmlc.kernel.target import CPU, GPU, Profile
from dmlc.lowering.group import lower_group
from dmlc.pipeline import make_kernels
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import fuse
from dmlc.transform.simplify import simplify
from tests.kernel.lowering import lower_fusion, run
from tests.kernel.statements import walk
from tests.reductions import Shape, batch_norm_training_grad, every_combiner, folded_result


def lower(
    function: ir.Function, profile: Profile = CPU, target: str = "opencl"
) -> tuple[k.Kernel, ...]:
    return lower_fusion(fuse(simplify(function)), profile, target)


def fold(sizes: Sequence[int], kept: Sequence[int], combiner: str = "sum") -> ir.Function:
    return every_combiner(DataType.FLOAT32, Shape(tuple(sizes), tuple(kept)), [combiner])


def loops(kernel: k.Kernel) -> list[k.For]:
    return [s for s in walk(kernel.body) if isinstance(s, k.For)]


def groups(kernel: k.Kernel) -> int:
    assert isinstance(kernel.launch.count, int)
    return -(-kernel.launch.count // kernel.launch.per_group)


def bounds(loop: k.For) -> tuple[object, object, int]:
    ends = [e.value if isinstance(e, k.Literal) else None for e in (loop.start, loop.stop)]
    return ends[0], ends[1], loop.step


def test_a_channel_is_one_work_item_that_folds_and_applies() -> None:
    (kernel,) = lower(batch_norm_training_grad((8, 16, 56, 56), (1,)))
    assert groups(kernel) == 16
    outer = [loop for loop in loops(kernel) if bounds(loop)[1] == 8]
    rows = [loop for loop in loops(kernel) if bounds(loop)[1] == 3136]
    # What is applied goes back over what was read last.
    assert [loop.backwards for loop in outer] == [False, True]
    assert [bounds(loop) for loop in rows] == [(0, 3136, 16), (0, 3136, 16)]
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [s.buffer for s in stores] == ["dbias", "dscale", "dx"]


def test_large_channels_are_folded_while_those_before_are_applied() -> None:
    (kernel,) = lower(batch_norm_training_grad((32, 64, 56, 56), (1,)))
    assert groups(kernel) == 16
    (turns,) = [loop for loop in loops(kernel) if isinstance(loop.stop, k.Local)]
    both, *_ = [loop for loop in walk(turns.body) if isinstance(loop, k.For)]
    # The first is reduced and the last applied by itself.
    outer = [loop for loop in loops(kernel) if bounds(loop)[1] == 32]
    assert [loop.backwards for loop in outer] == [False, False, True]
    assert both is outer[1]
    (row,) = [s for s in both.body if isinstance(s, k.For)]
    assert [type(s) for s in row.body] == [k.Let, k.Let, k.Let, k.Store, k.Let, k.Let,
                                           k.Assign, k.Assign]  # fmt: skip
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [s.buffer for s in stores] == ["dbias", "dscale", "dx"] * 2
    assert [s.streaming is not None for s in stores] == [False, False, True] * 2


def test_what_stands_still_over_an_output_is_computed_once() -> None:
    (kernel,) = lower(batch_norm_training_grad((8, 16, 56, 56), (1,)))
    for loop in loops(kernel):
        names = {
            e.operation.name
            for s in walk(loop.body)
            if isinstance(s, k.Let)
            for e in operations(s.value)
        }
        assert "sqrt" not in names
    # Columns keep such values in arrays.
    (kernel,) = lower(batch_norm_training_grad((128, 1024), (1,)))
    assert len([a for a in kernel.arrays if a.name.startswith("factors")]) == 4
    bands = [loop for loop in loops(kernel) if bounds(loop) == (0, 128, 4)]
    assert len(bands) == 2
    for loop in bands:
        values = [s.value for s in walk(loop.body) if isinstance(s, k.Let)]
        assert all(e.operation.name != "sqrt" for v in values for e in operations(v))


def operations(node: object) -> Iterator[k.Operate]:
    match node:
        case k.Operate():
            yield node
            for operand in node.operands:
                yield from operations(operand)
        case k.Select():
            yield from operations(node.then)
            yield from operations(node.otherwise)
        case k.Convert() | k.Broadcast():
            yield from operations(node.operand)
        case _:
            pass


def test_short_rows_are_taken_in_blocks_of_neighbours() -> None:
    (kernel,) = lower(batch_norm_training_grad((8, 256, 14, 14), (1,)))
    assert groups(kernel) == 16
    # With fewer channels the blocks are smaller, as long as there is work for all.
    (kernel,) = lower(batch_norm_training_grad((32, 64, 14, 14), (1,)))
    assert groups(kernel) == 16


@pytest.mark.parametrize(
    ("columns", "width", "blocks"),
    [(64, 64, 1), (256, 256, 1), (1024, 256, 4), (1000, 256, 4), (300, 192, 2)],
)
def test_columns_are_folded_in_blocks_of_whole_cache_lines(
    columns: int, width: int, blocks: int
) -> None:
    (kernel,) = lower(fold((20, columns), (1,)))
    assert -(-columns // width) == blocks
    assert max(a.size for a in kernel.arrays) == width
    assert groups(kernel) * kernel.launch.per_group >= blocks


@pytest.mark.parametrize(
    ("sizes", "dtype", "fetched"),
    [
        ((4, 8, 40, 40), "f16", 2),  # x and dy, in the pass that reduces
        ((4, 8, 40, 40), "f32", 0),
        ((4, 8, 14, 14), "f16", 0),  # rows too short to be worth a hint
        ((1, 8, 40, 40), "f16", 0),  # one row: none follows
    ],
)
def test_the_next_row_of_halves_is_fetched_ahead(
    sizes: tuple[int, ...], dtype: str, fetched: int
) -> None:
    (kernel,) = lower(batch_norm_training_grad(sizes, (1,), dtype))
    hints = [s for s in walk(kernel.body) if isinstance(s, k.Prefetch)]
    assert len(hints) == fetched
    assert {h.buffer for h in hints} <= {b.name for b in kernel.buffers if b.dtype.bytes == 2}
    text = print_kernel(kernel)
    lines = [line.strip() for line in text.splitlines()]
    assert sum(line.startswith("prefetch ") for line in lines) == fetched


def test_what_a_reduction_stores_is_not_fetched() -> None:
    text = """
    func @f(%X: f16[4, 8, 2048], %W: f16[8]) -> (%S, %Y) {
      %Y: f16[i0 < 4, i1 < 8, i2 < 2048] = mul(%X[i0, i1, i2], %W[i1])
      %S: f32[i0 < 8] = sum[r0 < 4, r1 < 2048] cast(%X[r0, i0, r1], f32)
    }"""
    (kernel,) = lower(ir.parse(text))
    assert {s.buffer for s in walk(kernel.body) if isinstance(s, k.Prefetch)} == {"X"}


def test_registers_are_flushed_every_few_thousand_points() -> None:
    (kernel,) = lower(fold((40, 100_000), (0,)))
    strips = [loop for loop in loops(kernel) if loop.step == 4096]
    assert [bounds(loop) for loop in strips] == [(0, 100_000, 4096)]
    (kernel,) = lower(fold((1100, 64, 64), (1, 2)))
    assert any(loop.step == 1024 for loop in loops(kernel))
    (short,) = lower(fold((40, 4000), (0,)))
    assert not any(loop.step == 4096 for loop in loops(short))


def test_few_long_outputs_are_folded_in_pieces() -> None:
    first, second = lower(fold((1 << 24,), ()))
    assert groups(first) == 64
    assert groups(second) == 1
    (parts,) = [b for b in first.buffers if b.access is k.Access.WRITE]
    assert (parts.name, parts.count) == ("sum_parts", 64)
    assert [b.name for b in second.buffers] == ["sum", "sum_parts"]
    assert first.summary == ("sum[] = sum[r0 < 16777216](X[r0]), in 64 pieces",)
    # Pieces do not depend on the number of processors, only on sizes and profile.
    assert lower(fold((1 << 24,), ())) == (first, second)


def test_positions_in_pieces_take_a_buffer_more() -> None:
    first, _ = lower(fold((1 << 20,), (), "argmax"))
    made = [(b.name, b.dtype) for b in first.buffers if b.count is not None]
    assert made == [("argmax_parts", DataType.FLOAT32), ("argmax_parts_place", DataType.UINT32)]


def test_a_large_group_without_outputs_enough_is_taken_apart() -> None:
    kernels = lower(batch_norm_training_grad((2048, 64, 40), ()))
    assert len(kernels) == 3
    assert [b.name for b in kernels[2].buffers if b.access is k.Access.WRITE] == ["dx"]
    # With little to do, one kernel does it all.
    assert len(lower(batch_norm_training_grad((20, 64, 40), ()))) == 1


def test_more_buffers_than_one_kernel_takes_are_shared_out() -> None:
    count = 24
    parameters = ", ".join(f"%x{n}: f32[64, 100]" for n in range(count))
    values = "\n".join(
        ["v0 = %x0[i0, i1]", *(f"v{n} = add(v{n - 1}, %x{n}[i0, i1])" for n in range(1, count))]
    )
    sums = "\n".join(f"%s{n}: f32[i0 < 64] = sum[r1 < 100] %x{n}[i0, r1]" for n in range(8))
    uses = " ".join(f"%s{n}," for n in range(8))
    text = f"""func @f({parameters}) -> ({uses} %y) {{
      {sums}
      %y: f32[i0 < 64, i1 < 100] = {{
        {values}
        mul(v{count - 1}, %s0[i0])
      }}
    }}"""
    kernels = lower(ir.parse(text), GPU, "hlsl")
    assert all(len(kernel.buffers) <= find_dialect("hlsl").limits.buffers for kernel in kernels)


@pytest.mark.parametrize(("count", "combiner"), [(6, "sum"), (4, "argmax")])
def test_states_of_pieces_are_shared_out_too(count: int, combiner: str) -> None:
    most = 8
    dtype = "s64" if combiner == "argmax" else "f32"
    stages = "\n".join(
        f"%s{n}: {dtype}[] = {combiner}[r0 < {1 << 17}] max(%x[r0], {n}.5)" for n in range(count)
    )
    results = ", ".join(f"%s{n}" for n in range(count))
    function = ir.parse(f"func @f(%x: f32[{1 << 17}]) -> ({results}) {{\n{stages}\n}}")
    limits = dataclasses.replace(find_dialect("hlsl").limits, buffers=most)
    budget = Budget(most_buffers=most)
    fusion = fuse(simplify(function), budget=budget)
    kernels = [
        kernel
        for group in fusion.groups
        for kernel in lower_group(fusion.function, group, GPU, limits)
    ]
    assert all(len(kernel.buffers) <= most for kernel in kernels)
    run(fusion.function, tuple(kernels))


def test_pieces_of_one_point_each_are_whole() -> None:
    function = ir.parse("""func @f(%X: f32[48, 20]) -> (%Y) {
      %Most: f32[i0 < 20] = max[r0 < 48] %X[r0, i0]
      %Sum: f32[i0 < 20] = sum[r0 < 48] sub(%X[r0, i0], %Most[i0])
      %Y: f32[i0 < 48, i1 < 20] = add(sub(%X[i0, i1], %Most[i1]), %Sum[i1])
    }""")
    profile = dataclasses.replace(GPU, group_size=32, groups=512, piece=8)
    kernels = lower(function, profile, "hlsl")
    assert any("in 48 pieces" in line for kernel in kernels for line in kernel.summary)
    run(function, kernels)


def test_a_row_and_what_reads_it_share_a_kernel_that_has_buffers_enough() -> None:
    given = ", ".join(f"%x{n}: f32[4, 6, 5], %y{n}: f32[6]" for n in range(5))
    row = functools.reduce("add({}, {})".format, (f"%x{n}[i0, i1, r0]" for n in range(5)))
    result = functools.reduce(
        "mul({}, {})".format, ["%row[i0, r0]", *(f"%y{n}[r0]" for n in range(5))]
    )
    function = ir.parse(f"""func @f({given}) -> (%Z) {{
      %row: f32[i0 < 4, i1 < 6] = sum[r0 < 5] {row}
      %Z: f32[i0 < 4, i1 < 3] = sum[r0 < 6] {result}
    }}""")
    for most, groups in ((8, 2), (11, 1)):
        fusion = fuse(function, CPU.row, Budget(most_buffers=most))
        assert len(fusion.groups) == groups
        kernels = lower_fusion(fusion, CPU)
        assert all(len(kernel.buffers) <= most for kernel in kernels)


def test_one_group_is_as_large_as_any_whose_sums_fit_into_shared_memory() -> None:
    sizes: list[int] = []
    for target, dtype, combiners in (
        ("hlsl", DataType.FLOAT32, ["sum"]),
        ("opencl", DataType.FLOAT32, ["sum"]),
        ("hlsl", DataType.FLOAT64, ["sum", "max", "min", "product", "argmax"]),
    ):
        function = every_combiner(dtype, Shape((40, 50), ()), combiners)
        kernel = lower(function, GPU, target)[-1]
        assert kernel.launch.count == 1
        held = sum(a.size * a.dtype.bytes for a in kernel.arrays if a.shared)
        assert held <= (1 << 15 if target == "hlsl" else 1 << 14)
        sizes.append(kernel.launch.group_size)
    assert sizes == [1024, 256, 512]


@pytest.mark.parametrize("heavy", [2, 3, 5, 6, 7])
def test_lanes_are_a_power_of_two_however_much_they_compute(heavy: int) -> None:
    value = "%x[i0, r1]"
    for _ in range(heavy):
        value = f"exp({value})"
    again = value.replace("r1", "i1")
    function = ir.parse(
        "func @f(%x: f32[8, 32]) -> (%y) {\n"
        f"%s: f32[i0 < 8, i1 < 1] = sum[r1 < 32] {value}\n"
        f"%y: f32[i0 < 8, i1 < 32] = max(%s[i0, 0], {again})\n"
        "}"
    )
    (kernel,) = lower(function, GPU)
    assert kernel.launch.group_size.bit_count() == 1


@pytest.mark.parametrize(
    ("sizes", "kept", "rows", "columns"),
    [
        ((100, 5000), (0,), 256, 1),
        ((5000, 100), (0,), 32, 8),
        ((50000, 100), (0,), 8, 32),
        ((50000, 101), (0,), 32, 8),
        ((500000, 3), (0,), 1, 256),
        ((5000, 300), (1,), 32, 8),
        ((4, 3000), (1,), 1, 256),
        ((3, 4), (), 256, 1),
    ],
)
def test_the_lanes_of_a_group_share_outputs(
    sizes: tuple[int, ...], kept: tuple[int, ...], rows: int, columns: int
) -> None:
    kernels = lower(fold(sizes, kept), GPU, "hlsl")
    kernel = kernels[0]
    assert kernel.launch.group_size == 256
    assert kernel.launch.per_group == columns
    barriers = sum(isinstance(s, k.Barrier) for s in walk(kernel.body))
    # A few of many work items combine the others, before all combine these.
    assert barriers == (0 if rows == 1 else 1 if rows <= 16 else 2)
    assert all(array.shared and array.size == 256 for array in kernel.arrays)
    assert bool(kernel.arrays) == (rows > 1)


def test_barriers_are_met_by_every_lane() -> None:
    for function in (
        batch_norm_training_grad((6, 7, 30, 5), (1,)),
        batch_norm_training_grad((70, 50), (1,)),
        fold((77, 90), (0,), "argmin"),
    ):
        for kernel in lower(function, GPU, "hlsl"):
            for statement in walk(kernel.body):
                if isinstance(statement, k.If):
                    assert not any(isinstance(s, k.Barrier) for s in walk(statement.then))
                if isinstance(statement, k.For):
                    assert not any(isinstance(s, k.Barrier) for s in walk(statement.body))


def test_shared_memory_stays_within_what_every_device_has() -> None:
    stages = "\n".join(
        f"%s{n}: s64[i0 < 40] = argmax[r1 < 900] mul(%X[i0, r1], {n}.5:f64)" for n in range(12)
    )
    results = ", ".join(f"%s{n}" for n in range(12))
    function = ir.parse(f"func @f(%X: f64[40, 900]) -> ({results}) {{\n{stages}\n}}")
    kernels = lower(function, GPU, "hlsl")
    assert len(kernels) == 2
    for kernel in kernels:
        assert sum(a.size * a.dtype.bytes for a in kernel.arrays) <= 32 << 10


def test_dimensions_that_lie_together_are_one() -> None:
    (kernel,) = lower(fold((2, 3, 4, 5, 6, 7), (0, 1)))
    outputs = math.prod((2, 3))
    assert kernel.launch.count == outputs
    assert [bounds(loop) for loop in loops(kernel) if loop.step == 16] == [(0, 832, 16)]


def test_effort_counts_passes_and_the_width_of_arithmetic() -> None:
    (single,) = lower(batch_norm_training_grad((8, 256, 14, 14), (1,)))
    (half,) = lower(batch_norm_training_grad((8, 256, 14, 14), (1,), "f16"))
    assert single.effort == pytest.approx(5 / 3, rel=0.01)
    assert half.effort == pytest.approx(10 / 3, rel=0.01)


def test_the_text_of_a_kernel() -> None:
    (kernel,) = lower(fold((300, 40), (0,), "max"), GPU)
    lines = print_kernel(kernel).splitlines()
    assert '  summary "max[i0] = max[r1 < 40](X[i0, r1])"' in lines
    assert "  shared array max_lanes: f32[256]" in lines
    assert "  var max_value: f32x4 = broadcast(-inf, f32x4)" in lines
    assert "  store_local max_lanes[lane] = max_total" in lines
    assert "  barrier" in lines
    assert "  for part in 1 .. 16 {" in lines
    assert "  set max_total = max_lanes[column]" in lines
    (rows,) = lower(fold((300, 40), (0,)))
    assert "  array sum_total: f32[16]" in print_kernel(rows).splitlines()
    (applied,) = lower(batch_norm_training_grad((32, 64, 56, 56), (1,)))
    assert ".. 32 backwards {" in print_kernel(applied)


# Reductions that store as well ---------------------------------------------------------


def bind_softmax(*sizes: int) -> ir.Function:
    """Softmax along the second axis."""
    source = dmlc.TensorDesc("FLOAT32", sizes)
    return dmlc.operator("onednn.SoftMax").bind({"src": source}, {"axis": 1})


def list_stores(kernel: k.Kernel, buffer: str) -> list[k.Store]:
    return [s for s in walk(kernel.body) if isinstance(s, k.Store) and s.buffer == buffer]


def test_columns_folded_while_they_are_stored_stream_in_wide_rows() -> None:
    function = folded_result(Shape((4099, 3072), (1,)))
    first, second = lower(function)
    arrays = {a.name.removesuffix("_block"): a.size for a in first.arrays}
    assert arrays == {"total": 3072, "product": 3072, "most": 3072}
    assert all(s.streaming is not None for s in list_stores(first, "e"))
    # Rows by two, and the one left over.
    bands = [loop for loop in loops(first) if loop.unroll]
    assert next(loop.step for loop in loops(first) if bands[0] in walk(loop.body)) == 2
    assert len(list_stores(first, "e")) == 2
    assert list_stores(second, "e") == []
    assert [line.partition("[")[0] for line in second.summary] == [
        "total", "product", "most", "half",
    ]  # fmt: skip


def test_pieces_of_what_is_stored_start_on_cache_lines() -> None:
    first, _ = lower(folded_result(Shape((8_000_003,), ())))
    whole, rest = list_stores(first, "e")
    assert (whole.value.type.lanes, rest.value.type.lanes) == (16, 1)
    assert whole.streaming is not None


def test_channels_are_stored_and_folded_while_those_before_are_applied() -> None:
    points = "i0 < 8, i1 < 50, i2 < 56, i3 < 60"
    whole, at = "f32[8, 50, 56, 60]", "i0, i1, i2, i3"
    function = ir.parse(f"""func @f(%x: {whole}, %d: {whole}) -> (%e, %s, %y) {{
      %e: f32[{points}] = mul(%d[{at}], tanh(%x[{at}]))
      %s: f32[i0 < 50] = sum[r0 < 8, r2 < 56, r3 < 60] %e[r0, i0, r2, r3]
      %y: f32[{points}] = sub(%x[{at}], %s[i1])
    }}""")
    (kernel,) = lower(function)
    (turns,) = [loop for loop in loops(kernel) if isinstance(loop.stop, k.Local)]
    inside = [s.buffer for s in walk(turns.body) if isinstance(s, k.Store)]
    assert inside == ["s", "y", "e"]
    assert len(list_stores(kernel, "e")) == len(list_stores(kernel, "y")) == 2


def test_a_row_is_read_back_by_the_work_item_that_stored_it() -> None:
    fused, (kernel,) = make_kernels(bind_softmax(24, 50), "opencl", "cpu")
    run(fused, (kernel,))
    access = {b.name: b.access for b in kernel.buffers}
    assert access["powers"] is k.Access.READ_WRITE
    # What is read again stays in the caches.
    _, (kernel,) = make_kernels(bind_softmax(4096, 4096), "opencl", "cpu")
    assert all(s.streaming is None for s in list_stores(kernel, "powers"))
    assert any(s.streaming is not None for s in list_stores(kernel, "dst"))


def test_few_long_rows_that_are_read_back_are_shared_out() -> None:
    fused, kernels = make_kernels(bind_softmax(2, 100_000), "opencl", "cpu")
    run(fused, kernels)
    assert len(kernels) > 1
    assert all(b.access is not k.Access.READ_WRITE for each in kernels for b in each.buffers)


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_what_reads_elsewhere_after_a_fold_that_stores_is_in_its_kernel(profile: Profile) -> None:
    function = ir.parse("""func @f(%x: f32[8, 40], %w: f32[40]) -> (%e, %k) {
      %e: f32[i0 < 8, i1 < 40] = mul(%x[i0, i1], 2.0)
      %s: f32[i0 < 40] = sum[r0 < 8] %e[r0, i0]
      %k: f32[i0 < 40] = mul(%s[i0], %w[sub(39, i0)])
    }""")
    (kernel,) = lower(function, profile)
    assert {b.name for b in kernel.buffers} == {"x", "w", "e", "k"}


def test_a_gpu_has_groups_enough() -> None:
    shape = Shape((4096, 3072), (1,))
    for function in (fold(shape.sizes, shape.kept), folded_result(shape)):
        first, second = lower(function, GPU)
        # 16 neighbouring columns each, of which there are a thousand, and a whole number of pieces.
        assert groups(first) == 8 * 192
        assert groups(second) == 24
