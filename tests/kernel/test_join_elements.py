"""What a work item reads and stores at once: four neighbours of a window, sixteen bytes of halves,
and rows that several phases read."""

from __future__ import annotations

import dataclasses
import math

import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.join_elements import join_elements
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.rewrite import walk_parts
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import make_kernels
from dmlc.scalars import OPERATIONS, DataType
from tests.kernel.lowering import run
from tests.kernel.statements import walk

FLOAT = k.Type(DataType.FLOAT32)
LIMITS = find_dialect("hlsl").limits


def bind(
    name: str, attributes: dict[str, object], data_type: str = "FLOAT32", **sizes: tuple[int, ...]
) -> ir.Function:
    tensors = {n: dmlc.TensorDesc(data_type, s) for n, s in sizes.items()}
    return dmlc.operator(name).bind(tensors, attributes=attributes)


def pool_gradient(width: int) -> ir.Function:
    return bind(
        "directml.AVERAGE_POOLING_GRAD",
        {"Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1], "EndPadding": [0, 0],
         "IncludePadding": True},
        InputGradientTensor=(1, 2, 4, width // 2), OutputGradientTensor=(1, 2, 8, width),
    )  # fmt: skip


def softmax(data_type: str, axis: int, *sizes: int) -> ir.Function:
    return bind("onednn.SoftMax", {"axis": axis}, data_type, src=sizes)


def list_stored(kernel: k.Kernel) -> list[int]:
    """The lanes of each store."""
    return [s.value.type.lanes for s in walk(kernel.body) if isinstance(s, k.Store)]


@pytest.mark.parametrize("target", ["hlsl", "opencl", "wgsl"])
@pytest.mark.parametrize(("width", "stored"), [(16, {4}), (18, {1})])
def test_windows_store_four_neighbours_at_once(width: int, stored: set[int], target: str) -> None:
    fused, kernels = make_kernels(pool_gradient(width), target, "gpu")
    assert set(list_stored(kernels[0])) == stored
    run(fused, kernels)


def test_what_a_cpu_stores_stays_single() -> None:
    _, kernels = make_kernels(pool_gradient(16), "opencl", "cpu")
    assert 4 not in list_stored(kernels[0])


@pytest.mark.parametrize(("data_type", "kept"), [("FLOAT32", "f32"), ("FLOAT16", "f16")])
def test_wgsl_scans_rows_in_vectors(data_type: str, kept: str) -> None:
    """What is read goes to registers one by one, and what is stored comes from there."""
    tensor = dmlc.TensorDesc(data_type, (4, 1024))
    function = dmlc.operator("directml.CUMULATIVE_SUMMATION").bind(
        {"InputTensor": tensor},
        attributes={"Axis": 1, "AxisDirection": "INCREASING", "HasExclusiveSum": False},
    )
    fused, kernels = make_kernels(function, "wgsl")
    run(fused, kernels)
    (kernel,) = dmlc.compile(function, target="wgsl").kernels
    assert kernel.source.count(f"array<vec4<{kept}>>;") == 2
    assert {b.structure_bytes for b in kernel.buffers} == {16 if kept == "f32" else 8}


def test_a_store_goes_through_to_the_cache() -> None:
    """Four single stores of a wave come by each sector four times, a vector by each once."""
    fused, (kernel,) = make_kernels(pool_gradient(1024), "hlsl")
    steps = count_steps(kernel, fused.tables)
    assert steps is not None
    made: list[k.Statement] = []
    for each in kernel.body:
        if not isinstance(each, k.Store):
            made.append(each)
            continue
        for lane in range(4):
            at = k.Operate(OPERATIONS["add"], (each.index, number(lane)), k.INDEX)
            made.append(k.Store(each.buffer, at, k.Extract(each.value, (lane,), FLOAT)))
    parted = count_steps(dataclasses.replace(kernel, body=tuple(made)), fused.tables)
    assert parted is not None
    assert parted.sector_bytes - steps.sector_bytes == 3 * 4 * 2 * 8 * 1024


def number(value: int) -> k.Literal:
    return k.Literal(k.INDEX, value)


def make_stores(places: list[int], between: k.Statement | None = None) -> k.Kernel:
    """A kernel that stores a number at some places from 8 times the work item's on."""
    _, (kernel,) = make_kernels(pool_gradient(16), "hlsl")
    lane = k.Local("first", k.INDEX)
    own = k.Operate(OPERATIONS["mul"], (k.Position(k.Geometry.LANE), number(8)), k.INDEX)
    stores: list[k.Statement] = [k.Let(lane, own)]
    for count, place in enumerate(places):
        at = k.Operate(OPERATIONS["add"], (lane, number(place)), k.INDEX)
        stores.append(k.Store("OutputGradientTensor", at, k.Literal(FLOAT, 1.0)))
        if between is not None and count == 1:
            stores.append(between)
    return dataclasses.replace(kernel, body=tuple(stores))


@pytest.mark.parametrize(
    ("places", "stored"),
    [
        ([0, 1, 2, 3], [4]),
        ([4, 5, 6, 7, 0, 1, 2, 3], [4, 4]),
        ([1, 2, 3, 4], [1, 1, 1, 1]),
        ([0, 1, 2], [1, 1, 1]),
        ([3, 2, 1, 0], [1, 1, 1, 1]),
        ([0, 4, 1, 5, 2, 6, 3, 7], [4, 4]),
    ],
)
def test_neighbours_begin_where_a_vector_does(places: list[int], stored: list[int]) -> None:
    assert list_stored(join_elements(make_stores(places), LIMITS)) == stored


def test_nothing_is_moved_past_a_barrier() -> None:
    kernel = make_stores([0, 1, 2, 3], k.Barrier())
    assert list_stored(join_elements(kernel, LIMITS)) == [1, 1, 1, 1]


def copy_through(*, early: bool) -> k.Kernel:
    """A kernel that reads four neighbours and stores four, of which each comes by an element of an
    array: all are read and put there first, or (`early`) each is stored at once."""
    lines: list[list[str]] = []
    for n in range(4):
        read = f"let v{n}: f32 = x[add(mul(lane, 4), {n})] store_local kept[0] = v{n}"
        lines.append([read, f"store y[add(mul(lane, 4), {n})] = kept[0]"])
    parts = [part for pair in lines for part in pair] if early else [
        *(read for read, _ in lines), *(store for _, store in lines)
    ]  # fmt: skip
    return parse_kernel(f"""kernel f {{
        launch ceil(8 / 8) groups of 8, index u32
        buffer x: f32 read
        buffer y: f32 write
        array kept: f32[1]
        {" ".join(parts)}
    }}""")


@pytest.mark.parametrize(("early", "stored"), [(False, [4]), (True, [1, 1, 1, 1])])
def test_reads_go_past_what_is_put_into_arrays_and_stores_do_not(
    early: bool, stored: list[int]
) -> None:
    made = join_elements(copy_through(early=early), LIMITS)
    assert list_stored(made) == stored
    reads = [e for s in made.body for e in walk_parts(s) if isinstance(e, k.Load)]
    assert [read.type.lanes for read in reads] == [4]


@pytest.mark.parametrize("data_type", ["FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize(
    ("target", "words"), [("hlsl", "StructuredBuffer<uint4>"), ("opencl", "__global const uint4 *")]
)
def test_halves_are_moved_as_four_words(data_type: str, target: str, words: str) -> None:
    given = dict.fromkeys(("src", "diff_dst"), (8, 256))
    function = bind("onednn.ReLUBackward", {}, data_type, **given)
    (kernel,) = dmlc.compile(function, target=target, profile="gpu").kernels
    assert {b.structure_bytes for b in kernel.buffers} == {16}
    assert words in kernel.source
    assert "_t4>" not in kernel.source


@pytest.mark.parametrize("target", ["hlsl", "opencl"])
def test_the_steps_of_a_loop_are_known_to_begin_where_vectors_do(target: str) -> None:
    graph = dmlc.parse("""graph g(x: FLOAT16[64, 4096], w: FLOAT16[64, 4096]) {
        output y = sum(x * w, axes: [1])
    }""").graphs["g"]
    function = graph.bind()
    (kernel,) = dmlc.compile(function, target=target, profile="gpu").kernels
    assert [b.structure_bytes for b in kernel.buffers if not b.written] == [16, 16]


def test_each_phase_over_a_row_of_halves_moves_four_words() -> None:
    """So they are held, and read once in all."""
    fused, (kernel,) = make_kernels(softmax("FLOAT16", 1, 6, 4096), "hlsl", "gpu")
    loads = [p for s in walk(kernel.body) for p in walk_parts(s) if isinstance(p, k.Load)]
    assert [p.type.lanes * 2 for p in loads] == [16] * 2
    run(fused, (kernel,))


def test_halves_beside_floats_stay_vectors_of_four() -> None:
    tensors = {
        "src": dmlc.TensorDesc("FLOAT16", (8, 256)),
        "gamma": dmlc.TensorDesc("FLOAT32", (256,)),
        "beta": dmlc.TensorDesc("FLOAT32", (256,)),
    }
    function = dmlc.operator("onednn.LayerNorm").bind(tensors, attributes={"keep_stats": False})
    (kernel,) = dmlc.compile(function, target="hlsl").kernels
    assert "StructuredBuffer<float16_t4> src" in kernel.source


@pytest.mark.parametrize(
    ("function", "groups", "size"),
    [
        (softmax("FLOAT32", 1, 8192, 4096), 4096, 256),
        (softmax("FLOAT16", 1, 8192, 4096), 4096, 256),
        (softmax("FLOAT32", 0, 4096, 4096), 512, 1024),
        (softmax("FLOAT16", 0, 4096, 4096), 512, 1024),
    ],
)
def test_rows_are_read_once(function: ir.Function, groups: int, size: int) -> None:
    fused, (kernel,) = make_kernels(function, "hlsl")
    steps = count_steps(kernel, fused.tables)
    assert steps is not None
    assert (steps.groups, steps.group_size) == (groups, size)
    assert steps.loads == math.prod(function.parameters[0].extents)


def test_rows_that_do_not_come_out_even_are_read_again() -> None:
    fused, kernels = make_kernels(softmax("FLOAT32", 1, 64, 999), "hlsl")
    steps = count_steps(kernels[0], fused.tables)
    assert steps is not None
    assert steps.loads > 1.4 * 64 * 999
    run(fused, kernels)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT16"])
def test_what_is_held_gives_the_reference(axis: int, data_type: str) -> None:
    sizes = (512, 8) if axis == 0 else (8, 512)
    fused, kernels = make_kernels(softmax(data_type, axis, *sizes), "hlsl")
    (steps,) = [count_steps(kernel, fused.tables) for kernel in kernels]
    assert steps is not None
    assert steps.loads == math.prod(sizes)
    run(fused, kernels)


@pytest.mark.parametrize(("data_type", "columns"), [("FLOAT32", 8), ("FLOAT16", 16)])
def test_columns_of_a_group_are_a_sector(data_type: str, columns: int) -> None:
    given: dict[str, object] = {"Function": "SUM", "Axes": [0]}
    function = bind("directml.REDUCE", given, data_type, InputTensor=(8192, 8192))
    fused, (kernel,) = make_kernels(function, "hlsl")
    steps = count_steps(kernel, fused.tables)
    assert steps is not None
    assert steps.groups == 8192 // columns


@pytest.mark.parametrize(("model", "converts"), [("6.2", True), ("6.0", False)])
def test_a_cast_rounds_as_a_store_does(model: str, converts: bool) -> None:
    function = ir.parse("""
        func @f(%X: FLOAT16[64]) -> (%Y) {
          %Y: FLOAT16[i0 < 64] = mul(round_float16(add(%X[i0], %X[i0])), %X[i0])
        }""")
    (kernel,) = dmlc.compile(function, target="hlsl", shader_model=model).kernels
    assert ("return (float)(float16_t)value;" in kernel.source) is converts


@pytest.mark.parametrize(("data_type", "steps"), [("FLOAT32", 4), ("FLOAT16", 8)])
def test_as_many_bytes_are_asked_for_one_by_one_where_much_is_computed(
    data_type: str, steps: int
) -> None:
    _, (kernel,) = make_kernels(softmax(data_type, 0, 2048, 4096), "opencl", "gpu")
    assert [line.split()[4] for line in kernel.script if "share" in line][1:] == [str(steps)] * 2
