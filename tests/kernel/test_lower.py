"""The shape of kernels: launches, loops, named values, index width, streaming stores."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names, local_name
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import walk as walk_expression
from dmlc.kernel.target import CPU, GPU, RUN_TIME_COUNT, Profile, find_profile
from dmlc.loops.element import collect_elements
from dmlc.source import InternalError, UnknownNameError
from tests.kernel.lowering import lower_elements
from tests.kernel.statements import list_parts, walk


def make(text: str, profile: Profile = CPU, target: str = "opencl") -> k.Kernel:
    return lower_elements(ir.parse(text), profile, target)


def packed(count: int | str) -> str:
    return f"func @f(%x: f32[{count}]) -> (%y) {{ %y: f32[i0 < {count}] = neg(%x[i0]) }}"


def find_loops(kernel: k.Kernel) -> list[k.For]:
    return [s for s in walk(kernel.body) if isinstance(s, k.For)]


def find_stores(kernel: k.Kernel) -> list[k.Store]:
    return [s for s in walk(kernel.body) if isinstance(s, k.Store)]


def find_locals(kernel: k.Kernel) -> list[str]:
    return [s.local.name for s in walk(kernel.body) if isinstance(s, k.Let)]


def test_cpu_runs_over_vectors_and_what_is_left() -> None:
    kernel = make(packed("n"))
    assert kernel.launch == k.Launch("n", 32768, 1)
    # Up to the first aligned vector, over vectors, and what is left.
    assert [loop.step for loop in find_loops(kernel)] == [1, 16, 1]
    assert [store.value.type.lanes for store in find_stores(kernel)] == [1, 16, 1]
    before, vectors, after = find_loops(kernel)
    assert before.stop == vectors.start
    assert vectors.stop == after.start
    assert kernel.scalars == ((k.Scalar("n"), "n"),)


def test_only_vectors_stream() -> None:
    before, vector, after = find_stores(make(packed("n")))
    assert vector.streaming is not None
    assert before.streaming is None
    assert after.streaming is None
    assert all(store.streaming is None for store in find_stores(make(packed("n"), GPU)))


def test_gpu_vectors_are_a_group_apart() -> None:
    kernel = make(packed("n"), GPU, "hlsl")
    assert kernel.launch == k.Launch("n", 4096, 256, row=65535)
    whole, rest = (part for part in kernel.body if isinstance(part, k.If))
    reads, *_, store = whole.then[1:]
    assert isinstance(reads, k.Let)
    assert isinstance(store, k.Store)
    assert reads.value.type.lanes == store.value.type.lanes == 4
    places = [str(s.index) for s in whole.then if isinstance(s, k.Store)]
    assert len(set(places)) == 4
    # The last group goes element by element.
    (loop,) = (s for s in rest.then if isinstance(s, k.For))
    assert isinstance(loop.stop, k.Literal)
    assert loop.stop.value == 16


def test_gpu_elements_are_a_group_apart_where_a_vector_begins_anywhere() -> None:
    kernel = make(STRIDED.format(1000, 1001), GPU, "hlsl")
    assert kernel.launch == k.Launch(1000 * 1001, 1024, 256)
    (loop,) = find_loops(kernel)
    assert loop.unroll
    assert isinstance(loop.stop, k.Literal)
    assert loop.stop.value == 4


def test_gpu_vectors_go_through_several_dimensions() -> None:
    # A row is a whole number of vectors, so that no vector is in two of them.
    kernel = make(STRIDED.format(1024, 1024), GPU, "hlsl")
    loads = [p for p in list_parts(kernel.body) if isinstance(p, k.Load)]
    assert {(load.buffer, load.type.lanes) for load in loads} == {("x", 4), ("s", 1)}
    assert {b.name: b.lanes for b in kernel.buffers} == {"x": 4, "s": 1, "y": 4}


def test_a_vector_begins_where_one_of_memory_does() -> None:
    text = "func @f(%x: f32[64, 64]) -> (%y) {{ %y: f32[i0 < 64, i1 < {0}] = neg(%x[{1}]) }}"
    for size, place, lanes in ((64, "i0, i1", 4), (60, "i0, add(i1, 4)", 4),
                               (60, "i0, add(i1, 3)", 1), (61, "i0, i1", 1),
                               (16, "i0, mul(i1, 4)", 1)):  # fmt: skip
        kernel = make(text.format(size, place), GPU, "hlsl")
        loads = [p for p in list_parts(kernel.body) if isinstance(p, k.Load)]
        assert max(load.type.lanes for load in loads) == lanes, (size, place)


STRIDED = (
    "func @f(%x: f32[{0}, {1}], %s: f32[{0}, 1]) -> (%y) "
    "{{ %y: f32[i0 < {0}, i1 < {1}] = mul(%x[i0, i1], %s[i0, 0]) }}"
)


def test_rows_of_groups_where_one_dimension_is_too_short() -> None:
    assert make(STRIDED.format(1000, 1000), GPU, "hlsl").launch.row is None
    assert make(STRIDED.format(66000, 4096), GPU, "hlsl").launch.row == 33000
    assert make(STRIDED.format(66000, 4096), GPU, "opencl").launch.row is None
    # A number of groups that is not known yet has the longest rows.
    assert make(packed("n"), GPU, "hlsl").launch.row == 65535


@pytest.mark.parametrize(
    ("rows", "row", "launch"),
    [
        (10, 100, k.Launch(1, 1, 1)),
        (2000, 100, k.Launch(2000, 327, 1)),
        (50, 30000, k.Launch(50, 1, 1)),
        (3, 70000, k.Launch(9, 1, 1)),
    ],
)
def test_cpu_shares_rows_out(rows: int, row: int, launch: k.Launch) -> None:
    assert make(STRIDED.format(rows, row)).launch == launch


def test_what_a_row_shares_is_read_once_per_row() -> None:
    kernel = make(STRIDED.format(2000, 100))
    outer = next(loop for loop in find_loops(kernel) if loop.step == 1)
    named = [s.local.name for s in outer.body if isinstance(s, k.Let)]
    assert "s_value" in named


def test_a_strided_innermost_dimension_is_walked_in_scalars() -> None:
    kernel = make(
        "func @f(%x: f32[40, 50]{1, 40}) -> (%y) { %y: f32[i0 < 40, i1 < 50] = neg(%x[i0, i1]) }"
    )
    assert {store.value.type.lanes for store in find_stores(kernel)} == {1}


def test_a_transposed_operand_is_walked_in_tiles() -> None:
    transposed = (
        "func @f(%x: f32[{0}, {1}]{{1, {0}}}) -> (%y) "
        "{{ %y: f32[i0 < {0}, i1 < {1}] = neg(%x[i0, i1]) }}"
    )
    kernel = make(transposed.format(600, 1000))
    assert [loop.step for loop in find_loops(kernel)] == [8, 1, 1]
    assert kernel.launch == k.Launch(24, 1, 1)
    small = make(transposed.format(20, 30))
    assert [loop.step for loop in find_loops(small)] == [8, 1, 1]
    assert small.launch == k.Launch(1, 1, 1)
    beside = make(
        "func @f(%x: f32[40, 50]{100, 2}) -> (%y) { %y: f32[i0 < 40, i1 < 50] = neg(%x[i0, i1]) }"
    )
    assert [loop.step for loop in find_loops(beside)] == [1]


def test_index_width() -> None:
    assert make(packed(RUN_TIME_COUNT)).index_bits == 32
    assert make(packed(RUN_TIME_COUNT + 1)).index_bits == 64
    strided = "func @f(%x: f32[2]{{{0}}}) -> (%y) {{ %y: f32[i0 < 2] = neg(%x[i0]) }}"
    assert make(strided.format(2**31 - 1)).index_bits == 32
    assert make(strided.format(2**31)).index_bits == 64
    assert make(strided.format(2**31), GPU, "hlsl").index_bits == 32


def test_repeated_and_long_values_are_named() -> None:
    chain = "\n".join(f"v{n + 1} = mul(add(v{n}, 1.0), v{n})" for n in range(50))
    text = f"func @f(%x: f32[n]) -> (%y) {{ %y: f32[i0 < n] = {{\nv0 = %x[i0]\n{chain}\nv50\n}} }}"
    names = find_locals(make(text, GPU))
    assert names.count("x_value") == 1
    assert names.count("y_value") == 1
    assert len([n for n in names if n.startswith("value")]) == 49


def test_long_expressions_are_cut() -> None:
    value = "%x[i0]"
    for _ in range(40):
        value = f"neg(abs({value})) " if len(value) < 300 else value
    kernel = make(f"func @f(%x: f32[n]) -> (%y) {{ %y: f32[i0 < n] = {value} }}", GPU)
    assert len(find_locals(kernel)) > 5


def test_arithmetic_is_named_where_only_named_locals_are_rounded_as_written() -> None:
    text = """
        func @f(%x: f32[n], %y: f32[n]) -> (%z) { %z: f32[i0 < n] = select(
            gt(abs(mul(%x[i0], 3.0)), abs(%y[i0])), add(%x[i0], max(neg(%y[i0]), 0.5)), 0.0) }"""
    _, _, by_element = print_kernel(make(text, GPU, "hlsl")).partition("if not(whole)")
    lines = [line.strip() for line in by_element.splitlines()]
    named = [line for line in lines if line.startswith(("let value", "let z_value"))]
    assert named == [
        "let value: f32 = abs(mul(x_value, 3.0))",
        "let value_1: f32 = neg(y_value)",
        "let z_value: f32 = select(gt(value, abs(y_value)), add(x_value, max(value_1, 0.5)), 0.0)",
    ]
    assert "value" not in find_locals(make(text, GPU))


def test_arithmetic_that_is_named_already_is_named_once() -> None:
    text = """
        func @f(%x: f32[n]) -> (%y, %z) {
          %y: f32[i0 < n] = max(mul(%x[i0], 3.0), 1.0)
          %z: f32[i0 < n] = min(mul(%x[i0], 3.0), 2.0)
        }"""
    names = [n for n in find_locals(make(text, GPU, "hlsl")) if "value" in n]
    assert names[-4:] == ["x_value", "value", "y_value", "z_value"]


def test_a_position_along_one_element_is_known() -> None:
    text = """
        func @f(%x: f32[3, 5]) -> (%z) {
          %z: f32[i0 < 1, i1 < 5] = %x[min(max(add(i0, 1), 0), 2), i1]
        }"""
    for profile, target in ((CPU, "opencl"), (GPU, "opencl"), (GPU, "hlsl")):
        loads = [p for p in list_parts(make(text, profile, target).body) if isinstance(p, k.Load)]
        assert loads
        parts = [p for load in loads for p in walk_expression(load.index)]
        assert {p.operation.name for p in parts if isinstance(p, k.Operate)} <= {"add", "mul"}


def test_results_of_one_kernel_share_their_values() -> None:
    function = ir.parse(
        """func @f(%x: f32[n]) -> (%y, %z) {
          %y: f32[i0 < n] = exp(%x[i0])
          %z: f32[i0 < n] = add(exp(%x[i0]), %y[i0])
        }"""
    )
    elements = collect_elements(function, ("y", "z"))
    assert len(elements.values) == 3
    assert [view.tensor for view, _ in elements.results] == ["y", "z"]


def test_what_the_same_kernel_stores_in_16_bits_is_read_rounded() -> None:
    function = ir.parse(
        """func @f(%x: f16[n]) -> (%y, %z) {
          %y: f16[i0 < n] = exp(%x[i0])
          %z: f32[i0 < n] = %y[i0]
        }"""
    )
    elements = collect_elements(function, ("y", "z"))
    (_, stored), (_, read) = elements.results
    rounded = elements.values[read]
    assert isinstance(rounded, ir.Apply)
    assert (rounded.operation.name, rounded.operands) == ("round_float16", (stored,))


def test_a_read_elsewhere_of_what_the_same_kernel_stores_is_a_bug() -> None:
    function = ir.parse(
        """func @f(%x: f32[4, 4]) -> (%y, %z) {
          %y: f32[i0 < 4, i1 < 4] = exp(%x[i0, i1])
          %z: f32[i0 < 4, i1 < 4] = %y[i1, i0]
        }"""
    )
    with pytest.raises(InternalError, match="z reads y, which the same kernel stores"):
        collect_elements(function, ("y", "z"))


def test_kernels_are_over_one_domain_and_stages_exist() -> None:
    function = ir.parse(
        """func @f(%x: f32[4], %w: f32[5]) -> (%y, %z) {
          %y: f32[i0 < 4] = exp(%x[i0])
          %z: f32[i0 < 5] = exp(%w[i0])
        }"""
    )
    with pytest.raises(InternalError, match="differ in domain: y, z"):
        collect_elements(function, ("y", "z"))
    with pytest.raises(InternalError, match="not there: q"):
        collect_elements(function, ("q",))


def test_profiles() -> None:
    assert find_profile("cpu") is CPU
    assert GPU.per_group == 1024
    with pytest.raises(UnknownNameError, match="unknown device profile 'gpuu'"):
        find_profile("gpuu")


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        ("InputTensor", "input"),
        ("InputGradientTensor", "input_gradient"),
        ("ATensor", "a"),
        ("src", "src_value"),
        ("diff_dst", "diff_dst_value"),
        ("Tensor", "tensor"),
        ("X", "x"),
    ],
)
def test_local_names(tensor: str, name: str) -> None:
    assert local_name(tensor) == name


def test_names_are_numbered() -> None:
    names = Names(["i"])
    assert [names.take("i"), names.take("j"), names.take("i")] == ["i#1", "j", "i#2"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("neg(add(%x[i0], 1.5))", "-(x[i0] + 1.5)"),
        ("select(gt(%x[i0], 0.0), exp(%x[i0]), -inf)", "(x[i0] > 0) ? exp(x[i0]) : -inf"),
        ("cast(cast(%x[i0], s32), f32)", "float32(int32(x[i0]))"),
        ("mul(%x[i0], 1e-05)", "x[i0] * 1e-05"),
    ],
)
def test_formulas(value: str, shown: str) -> None:
    function = ir.parse(f"func @f(%x: f32[n]) -> (%y) {{ %y: f32[i0 < n] = {value} }}")
    assert describe_stage(function, "y") == f"y[i0] = {shown}"


def test_a_long_formula_is_summed_up() -> None:
    chain = "\n".join(f"v{n + 1} = mul(add(v{n}, 1.0), v{n})" for n in range(50))
    text = f"func @f(%x: f32[n]) -> (%y) {{ %y: f32[i0 < n] = {{\nv0 = %x[i0]\n{chain}\nv50\n}} }}"
    assert describe_stage(ir.parse(text), "y") == "y[i0] = a formula of 100 operations on x"
