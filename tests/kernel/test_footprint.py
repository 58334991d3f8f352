"""How much memory kernels touch, and which stores pass the caches by for it."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU
from dmlc.pipeline import make_kernels
from tests.kernel.test_lower import find_stores, make

LARGE = CPU.streaming_bytes or 0


def touched(kernel: k.Kernel) -> dict[str, int | None]:
    return {buffer.name: buffer.bytes for buffer in kernel.buffers}


def streams(kernel: k.Kernel) -> bool:
    return any(store.streaming is not None for store in find_stores(kernel))


def test_each_tensor_has_its_own_size() -> None:
    kernel = make(
        "func @f(%x: f32[8, 32], %row: f32[32], %one: f32[1]{0}) -> (%y) {"
        " %y: f16[i0 < 8, i1 < 32] = mul(add(%x[i0, i1], %row[i1]), %one[0]) }"
    )
    assert touched(kernel) == {"x": 1024, "row": 128, "one": 4, "y": 512}


def test_of_a_part_the_part() -> None:
    kernel = make(
        "func @f(%x: f32[8, 100], %z: f32[8, 100]) -> (%y) {"
        " %y: f32[i0 < 8, i1 < 10] = add(add(%x[i0, add(i1, 5)], %x[i0, add(i1, 60)]),"
        " %z[i0, mod(mul(i1, i1), 7)]) }"
    )
    # Two views of one tensor add up; what is read at computed positions may be anywhere.
    assert touched(kernel) == {"x": 2 * 320, "z": 3200, "y": 320}


def test_what_has_no_memory_passes_no_caches_by() -> None:
    # What the second stage divides by is kept for the rows of a block, in an array.
    function = ir.parse(f"""
        func @f(%x: f32[2, {LARGE >> 3}]) -> (%y) {{
          %s: f32[i0 < {LARGE >> 3}] = sum[r0 < 2] %x[r0, i0]
          %y: f32[i0 < 2, i1 < {LARGE >> 3}] = div(%x[i0, i1], max(%s[i1], 0.5))
        }}""")
    _, (kernel,) = make_kernels(function, "opencl", "cpu")
    assert any(array.name == "factors" for array in kernel.arrays), kernel.arrays
    assert {s.buffer for s in find_stores(kernel) if s.streaming is not None} == {"y"}


def test_run_time_sizes_are_not_known() -> None:
    kernel = make(
        "func @f(%x: f32[n], %one: f32[1]) -> (%y) { %y: f32[i0 < n] = mul(%x[i0], %one[0]) }"
    )
    assert touched(kernel) == {"x": None, "one": 4, "y": None}
    (least,) = [
        s.value.operands[1]
        for s in kernel.body
        if isinstance(s, k.Let) and isinstance(s.value, k.Operate)
        if s.value.operation.name == "ge"
    ]
    assert isinstance(least, k.Literal)
    # The scalar does not grow with n.
    assert least.value == -(-(LARGE - 4) // 8)


@pytest.mark.parametrize("rows", [90, 100])
def test_small_operands_do_not_make_a_kernel_large(rows: int) -> None:
    """Rows of 32 Ki elements: of 8 bytes each, however many small operands there are."""
    small = [f"%s{n}: f32[{rows}]" for n in range(6)]
    value = "%x[i0, i1]"
    for n in range(6):
        value = f"add({value}, %s{n}[i0])"
    kernel = make(
        f"func @f(%x: f32[{rows}, 32768], {', '.join(small)}) -> (%y) {{"
        f" %y: f32[i0 < {rows}, i1 < 32768] = {value} }}"
    )
    total = sum(size or 0 for size in touched(kernel).values())
    assert total == rows * (2 * 32768 + 6) * 4
    assert streams(kernel) == (total >= LARGE) == (rows == 100)
