"""How domains are walked: sizes around every boundary, ranks, broadcasts, strides, transposes."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl
from dmlc.scalars import Array, DataType
from tests.agreement import disagreements
from tests.cover import cover
from tests.opencl_launch import run_program
from tests.samples import sample

PROFILES = ["cpu", "gpu"]


def make_function(
    shape: tuple[int | str, ...],
    a_strides: tuple[int, ...] | None = None,
    b_ones: tuple[int, ...] = (),
    y_strides: tuple[int, ...] | None = None,
    dtype: str = "s32",
) -> ir.Function:
    """`y = a - b`, where b has size 1 along the axes `b_ones`."""

    def braces(strides: tuple[int, ...] | None) -> str:
        return "" if strides is None else "{" + ", ".join(map(str, strides)) + "}"

    axes = range(len(shape))
    sizes = ", ".join(map(str, shape))
    b_sizes = ", ".join("1" if axis in b_ones else str(shape[axis]) for axis in axes)
    b_reads = ", ".join("0" if axis in b_ones else f"i{axis}" for axis in axes)
    domain = ", ".join(f"i{axis} < {shape[axis]}" for axis in axes)
    reads = ", ".join(f"i{axis}" for axis in axes)
    return ir.parse(
        f"func @f(%a: {dtype}[{sizes}]{braces(a_strides)}, %b: {dtype}[{b_sizes}]) "
        f"-> (%y{braces(y_strides)}) {{ %y: {dtype}[{domain}] = sub(%a[{reads}], %b[{b_reads}]) }}"
    )


def check(function: ir.Function, profile: str) -> None:
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        shape = tuple(e for e in p.extents if isinstance(e, int))
        own = shape
        if p.strides is not None:
            own = tuple(e if s else 1 for e, s in zip(shape, p.strides, strict=True))
        inputs[p.name] = np.broadcast_to(sample(p.dtype, own, p.name), shape)
    ir.verify(function)
    wanted = evaluate(function, inputs)["y"]
    got = run_program(compile(function, "opencl", profile), inputs)["y"]
    assert disagreements(got, wanted, 0.0).size == 0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 1023, 1024, 1025, 32768, 33000, 70001])
def test_counts(count: int, profile: str) -> None:
    function = make_function(("n",))
    a, b = sample(function.parameters[0].dtype, (count,), "a"), np.arange(count, dtype=np.int32)
    wanted = evaluate(function, {"a": a, "b": b})["y"]
    got = run_program(compile(function, "opencl", profile), {"a": a, "b": b})["y"]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rank", range(1, 9))
def test_ranks_with_every_other_axis_broadcast(rank: int, profile: str) -> None:
    shape = (3, 2, 5, 1, 2, 3, 2, 17)[-rank:]
    for start in (0, 1):
        check(make_function(shape, b_ones=tuple(range(start, rank, 2))), profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_transposes(order: tuple[int, ...], profile: str) -> None:
    shape = (5, 33, 18)
    steps = {}
    step = 1
    for axis in reversed(order):
        steps[axis] = step
        step *= shape[axis]
    strides = tuple(steps[axis] for axis in range(3))
    check(make_function(shape, a_strides=strides), profile)
    check(make_function(shape, a_strides=strides, y_strides=strides), profile)
    check(make_function(shape, y_strides=strides, b_ones=(1,)), profile)


Steps: TypeAlias = tuple[int, ...] | None
STRIDES: list[tuple[tuple[int, ...], Steps, tuple[int, ...], Steps]] = [
    ((40, 50), (100, 2), (), None),
    ((600, 300), (1, 600), (0,), None),
    ((3, 300, 520), (1, 1560, 3), (1,), None),
    ((513, 9, 129), (1161, 129, 1), (2,), (1, 513, 4617)),
    ((40, 50), (0, 1), (0,), None),
    ((40, 50), (1, 0), (), (64, 1)),
    ((7, 3), (3, 1), (1,), (6, 2)),
    ((2, 70000), None, (0,), None),
    ((70000, 2), None, (1,), None),
    ((3, 40000), (40016, 1), (), (40032, 1)),
    ((1, 1), (9, 9), (), (5, 5)),
    ((4, 0, 5), (0, 5, 1), (), None),
    ((300, 3, 200), (1000, 300, 1), (1,), None),
    ((100_000,), (3,), (), None),
    ((33_000,), (0,), (), None),
    ((5, 6, 7, 8), (0, 56, 0, 1), (0, 3), (400, 64, 8, 1)),
]
"""The sizes of both operands, the strides of the first, the axes along which the second has size 1,
and the strides of the result."""


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("case", "dtype", "profile"),
    cover(2, range(len(STRIDES)), ("s32", "f16", "bf16", "s8"), PROFILES),
)
def test_strides(case: int, dtype: str, profile: str) -> None:
    function = make_function(*STRIDES[case], dtype)
    if dtype == "s32":
        check(function, profile)
    else:
        check(ir.parse(str(function).replace("sub", "max")), profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_streaming_rows(profile: str) -> None:
    """Rows on cache lines in a tensor large enough that its stores pass the caches by."""
    function = make_function((50, 64, 1024), b_ones=(0, 2))
    source = compile(function, "opencl", profile).kernels[0].source
    assert ("__builtin_nontemporal_store" in source) == (profile == "cpu")
    check(function, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_source_for_every_packed_shape(profile: str) -> None:
    texts = {
        compile(make_function(shape), "opencl", profile).kernels[0].source.partition("#pragma")[2]
        for shape in [(7,), (3, 5), (2, 3, 4, 1, 6), (1, 1), (0, 4)]
    }
    assert len(texts) == 1


@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16])
@pytest.mark.parametrize("offset", [0, 1, 5, 31])
def test_large_results_at_any_place_in_memory(dtype: DataType, offset: int) -> None:
    """Streaming stores start where the memory is aligned, wherever the array starts."""
    count = (24 << 20) // (3 * dtype.bytes) + 40_003
    bits = {2: np.uint16, 4: np.uint32}[dtype.bytes]
    text = (
        f"func @f(%X: {dtype.short}[n], %dY: {dtype.short}[n]) -> (%dX) {{\n"
        f"  %dX: {dtype.short}[i0 < n] = select(gt(%X[i0], 0.0), %dY[i0], 0.0)\n}}"
    )
    random = np.random.default_rng(offset)
    x, dy = (random.standard_normal(count).astype(dtype.dtype) for _ in range(2))
    memory = np.zeros(count + 64, dtype.dtype)
    out = memory[offset : offset + count]
    opencl.load(compile(ir.parse(text), "opencl"))({"X": x, "dY": dy}, {"dX": out})
    expected = np.where(x.astype(np.float32) > 0, dy, dtype.dtype.type(0))
    np.testing.assert_array_equal(out.view(bits), expected.view(bits))
    assert not memory[:offset].any()
    assert not memory[offset + count :].any()


@pytest.mark.parametrize("offset", [0, 3])
def test_large_results_that_depend_on_where_they_are(offset: int) -> None:
    """Computed one by one, and all of them: no vector waits for aligned memory."""
    count = (24 << 20) // 4 + 40_003
    function = ir.parse(f"func @f() -> (%y) {{ %y: s32[i0 < {count}] = cast(i0, s32) }}")
    memory = np.full(count + 64, -1, np.int32)
    out = memory[offset : offset + count]
    opencl.load(compile(function, "opencl"))({}, {"y": out})
    np.testing.assert_array_equal(out, np.arange(count, dtype=np.int32))
    assert (memory[:offset] == -1).all()
    assert (memory[offset + count :] == -1).all()
