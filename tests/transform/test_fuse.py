"""Fusion: what is inlined, what shares a kernel, in which order kernels run, and why."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir import Apply, Body, Function, Index, Load, Parameter, Result, Stage
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS
from dmlc.scalars import DataType as T
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, Group, fuse
from dmlc.transform.inline import MOST_PLACES
from dmlc.transform.passes import MOST_REDUCTIONS
from dmlc.transform.simplify import simplify
from dmlc.transform.traffic import list_moves, total
from tests.reductions import batch_norm_training_grad
from tests.strategies import functions, make_inputs, same_bits


@settings(max_examples=200, deadline=None)
@given(functions(), st.integers(0, 99))
def test_results_stay_bit_for_bit(function: Function, seed: int) -> None:
    inputs = make_inputs(function, seed)
    expected = evaluate(function, inputs)
    for before in (function, simplify(function)):
        fusion = fuse(before)
        ir.verify(fusion.function, "fuse")
        check_order(fusion)
        found = evaluate(simplify(fusion.function), inputs)
        assert list(expected) == list(found)
        for name, values in expected.items():
            assert same_bits(values, found[name]), name


def check_order(fusion: Fusion) -> None:
    """Every stage has one group; what a group or a pass loads was computed by an earlier one."""
    homes: dict[str, tuple[int, int]] = {}
    for number, group in enumerate(fusion.groups):
        assert group.reason
        homes |= dict.fromkeys(group.stages, (number, 0))
        for order, each in enumerate(group.passes):
            homes |= {member.stage: (number, order) for member in each.members}
    assert sum(len(g.stages) for g in fusion.groups) == len(fusion.function.stages) == len(homes)
    local = {name for group in fusion.groups for name in group.local}
    for stage in fusion.function.stages:
        for load in stage.body.loads():
            home = homes.get(load.tensor, (-1, 0))
            beside = home == homes[stage.name] and reads_own_point(fusion, stage, load)
            assert home < homes[stage.name] or beside
            assert home[0] == homes[stage.name][0] or load.tensor not in local
    for group in fusion.groups:
        members = [fusion.function.stage(name) for name in group.stages]
        assert group.passes or len({m.extents for m in members if m is not None}) == 1
        for each in group.passes:
            found = [fusion.function.stage(m.stage) for m in each.members]
            assert each.reduces == any(s is not None and s.reduction is not None for s in found)
            if not each.reduces:
                continue
            whole = math.prod((*group.parallel, *each.inner))
            for stage in found:
                # What is stored on the way has every point once.
                assert stage is not None
                assert stage.reduction or math.prod(e for e in stage.extents if e != 1) == whole


def reads_own_point(fusion: Fusion, stage: Stage, load: Load) -> bool:
    """Whether a load is at the element that its tensor's stage has at the very point."""
    axes = {m.stage: dict(m.axes) for g in fusion.groups for p in g.passes for m in p.members}
    if stage.name not in axes:
        return ir.reads_own_place(stage, load)
    own, found = axes[stage.name], axes[load.tensor]
    places = [stage.body.instructions[number] for number in load.indices]
    at = [own.get(place) if isinstance(place, Index) else None for place in places]
    return at == [found.get(Index(axis)) for axis in range(len(at))]


def fused(text: str, budget: Budget | None = None) -> Fusion:
    fusion = fuse(ir.parse(text), budget=budget or Budget())
    ir.verify(fusion.function)
    check_order(fusion)
    return fusion


def test_element_wise_stages_are_computed_where_they_are_read() -> None:
    fusion = fused("""func @f(%X: f32[2, 3], %S: f32[3]) -> (%Y) {
      %t: f32[i0 < 3] = exp(%S[i0])
      %u: f32[i0 < 2, i1 < 3] = mul(%X[i0, i1], %t[i1])
      %Y: f16[i0 < 3, i1 < 2] = add(%u[i1, i0], %t[i0])
    }""")
    assert (
        str(fusion.function)
        == """\
func @f(%X: f32[2, 3], %S: f32[3]) -> (%Y) {
  %Y: f16[i0 < 3, i1 < 2] = {
    v0 = exp(%S[i0])
    add(mul(%X[i1, i0], v0), v0)
  }
}"""
    )
    (group,) = fusion.groups
    assert group.stages == ("Y",)
    assert group.reason == "%Y leaves the function; %u and %t are computed where read"


def test_index_arithmetic_is_composed() -> None:
    fusion = fused("""func @f(%X: f32[8]) -> (%Y) {
      %t: f32[i0 < 4] = %X[mul(i0, 2)]
      %Y: f32[i0 < 3] = sub(%t[add(i0, 1)], %t[i0])
    }""")
    (stage,) = fusion.function.stages
    assert str(fusion.function).splitlines()[1].strip() == (
        "%Y: f32[i0 < 3] = sub(%X[mul(add(i0, 1), 2)], %X[mul(i0, 2)])"
    )
    assert stage.body.loads()[0].tensor == "X"


def test_stages_over_one_domain_share_a_kernel() -> None:
    fusion = fused("""func @f(%X: f32[n], %Z: f32[n]) -> (%A, %B, %C) {
      %A: f32[i0 < n] = exp(%X[i0])
      %B: f32[i0 < n] = mul(%A[i0], %Z[i0])
      %C: f16[i0 < n] = neg(%Z[i0])
    }""")
    (group,) = fusion.groups
    assert group.stages == ("A", "B", "C")
    assert group.reason == "%A leaves the function; %B and %C are computed beside it"
    assert fusion.function.stages[1].body.loads()[0].tensor == "X"


def test_a_16_bit_result_is_read_rounded_in_the_kernel_that_stores_it() -> None:
    fusion = fused("""func @f(%X: f32[4]) -> (%H, %Y, %Z) {
      %H: f16[i0 < 4] = exp(%X[i0])
      %Y: f32[i0 < 4] = add(%H[i0], 1.0)
      %Z: f32[i0 < 4] = neg(%X[i0])
    }""")
    assert [g.stages for g in fusion.groups] == [("H", "Y", "Z")]
    assert "%Y: f32[i0 < 4] = add(round_float16(exp(%X[i0])), 1.0)" in str(fusion.function)


def test_a_16_bit_stage_between_is_rounded_in_a_register() -> None:
    fusion = fused("""func @f(%X: f32[4]) -> (%Y) {
      %h: bf16[i0 < 4] = exp(%X[i0])
      %unread: f16[i0 < 4] = exp(%X[i0])
      %Y: f32[i0 < 4] = add(%h[i0], 1.0)
    }""")
    assert [g.stages for g in fusion.groups] == [("Y",)]
    assert fusion.groups[0].reason == "%Y leaves the function; %h is computed where read"
    assert "add(round_bfloat16(exp(%X[i0])), 1.0)" in str(fusion.function)


def test_what_fits_16_bits_is_stored_in_16_bits() -> None:
    fusion = fused(
        """func @f(%X: f16[6], %Z: f32[6]) -> (%Y) {
      %t: f16[i0 < 6] = select(gt(%Z[i0], 0.0), %X[i0], 0.5)
      %s: f16[i0 < 6] = add(%t[i0], 1.0)
      %a: f32[i0 < 1] = sum[r0 < 6] mul(%s[sub(5, r0)], %t[r0])
      %Y: f32[i0 < 6] = add(%s[sub(5, i0)], %a[0])
    }""",
        Budget(launch_bytes=0, bytes_per_operation=100),
    )
    # Choosing between numbers of 16 bits rounds nothing; adding them does.
    text = str(fusion.function)
    assert "%t: f16[i0 < 6] = select(gt(%Z[i0], 0.0), %X[i0], 0.5)" in text
    assert "%s: f16[i0 < 6] = add(%t[i0], 1.0)" in text


def test_reductions_take_their_prologue_and_what_applies_them() -> None:
    fusion = fused("""func @f(%X: f32[4, 8]) -> (%V, %M, %Y) {
      %sq: f32[i0 < 4, i1 < 8] = mul(%X[i0, i1], %X[i0, i1])
      %V: f32[i0 < 4] = sum[r0 < 8] %sq[i0, r0]
      %M: f32[i0 < 4] = max[r0 < 8] %X[i0, r0]
      %Y: f32[i0 < 4, i1 < 8] = mul(%X[i0, i1], rsqrt(%V[i0]))
    }""")
    (group,) = fusion.groups
    assert group.stages == ("V", "M", "Y")
    assert list_passes(group) == [("V", "M"), ("Y",)]
    assert group.reason == (
        "%V is a reduction (sum); %M is computed beside it; %Y is computed from it at once; "
        "%sq is computed where read"
    )
    assert fusion.traffic(group) == (2 * 4 * 8 * 4, 4 * 4 + 4 * 4 + 4 * 8 * 4)


def list_passes(group: Group) -> list[tuple[str, ...]]:
    return [tuple(member.stage for member in each.members) for each in group.passes]


def test_batch_norm_training_grad_reads_its_tensors_twice_and_writes_once() -> None:
    function = simplify(batch_norm_training_grad((32, 64, 56, 56), (1,)))
    fusion = fuse(function)
    check_order(fusion)
    (group,) = fusion.groups
    assert list_passes(group) == [("dy_sum", "dy_centered_sum"), ("dbias", "dscale"), ("dx",)]
    whole, statistic = 32 * 64 * 56 * 56 * 4, 64 * 4
    read, written = fusion.traffic(group) or (0, 0)
    # x and dy twice each; the mean in both passes, the variance for dscale and dx, the scale.
    assert read == 4 * whole + 5 * statistic
    assert written == whole + 2 * statistic
    before = [total(list_moves(function, (stage.name,))) for stage in function.stages]
    assert sum(sum(moved) for moved in before if moved) > read + written


def test_a_chain_of_reductions_is_one_group_in_several_passes() -> None:
    fusion = fused("""func @softmax(%X: f16[5, 8]) -> (%Y) {
      %m: f32[i0 < 5, i1 < 1] = max[r1 < 8] %X[i0, r1]
      %e: f32[i0 < 5, i1 < 8] = exp(sub(%X[i0, i1], %m[i0, 0]))
      %s: f32[i0 < 5] = sum[r0 < 8] %e[i0, r0]
      %Y: f16[i0 < 5, i1 < 8] = div(%e[i0, i1], %s[i0])
    }""")
    (group,) = fusion.groups
    assert list_passes(group) == [("m",), ("s",), ("Y",)]
    assert fusion.traffic(group) == (3 * 80, 80)


def test_a_result_nobody_reads_joins_the_pass_over_its_domain() -> None:
    fusion = fused("""func @f(%X: f32[5, 8]) -> (%R, %Y) {
      %R: f32[i0 < 5, i1 < 8] = max(%X[i0, i1], 0.0)
      %s: f32[i0 < 5] = sum[r1 < 8] %R[i0, r1]
      %Y: f32[i0 < 5, i1 < 8] = sub(%X[i0, i1], %s[i0])
    }""")
    (group,) = fusion.groups
    assert list_passes(group) == [("s",), ("Y", "R")]


def test_reductions_to_one_number_over_no_axes_are_folded_in_one_kernel() -> None:
    fusion = fused("""func @f(%X: f32[]) -> (%Y) {
      %s: f32[] = sum[] %X[]
      %Y: f32[] = sum[] %s[]
    }""")
    assert [g.stages for g in fusion.groups] == [("s", "Y")]


def test_what_reads_a_reduction_elsewhere_waits_for_its_memory() -> None:
    across = """func @f(%X: f32[5, 5]) -> (%Y) {{
      %s: {0}[i0 < 5] = sum[r1 < 5] %X[i0, r1]
      %Y: f32[i0 < 5, i1 < 5] = add(%s[i0], %s[{1}])
    }}"""
    fusion = fused(across.format("f32", "i1"))
    assert [g.stages for g in fusion.groups] == [("s",), ("Y",)]
    assert fusion.groups[1].reason == "%Y leaves the function; the kernel runs after %s is stored"
    assert len(fused(across.format("f32", "i0")).groups) == 1
    # What reads it rounded rounds it.
    assert len(fused(across.format("f16", "i0")).groups) == 1


def test_rows_and_columns_of_a_square_stay_apart() -> None:
    fusion = fused("""func @f(%X: f32[6, 6]) -> (%A, %B, %C) {
      %A: f32[i0 < 6] = sum[r1 < 6] %X[i0, r1]
      %B: f32[i0 < 6] = sum[r0 < 6] %X[r0, i0]
      %C: f32[i0 < 6] = max[r1 < 6] %X[i0, r1]
    }""")
    assert [g.stages for g in fusion.groups] == [("A", "C"), ("B",)]


def test_reductions_of_other_tensors_or_axes_stay_apart() -> None:
    fusion = fused("""func @f(%X: f32[5, 6], %Z: f32[5, 6]) -> (%A, %B, %C) {
      %A: f32[i0 < 5] = sum[r1 < 6] %X[i0, r1]
      %B: f32[i0 < 5] = sum[r1 < 6] %Z[i0, r1]
      %C: f32[i0 < 6] = sum[r0 < 5] %X[r0, i0]
    }""")
    assert [g.stages for g in fusion.groups] == [("A",), ("B",), ("C",)]


@pytest.mark.parametrize(("rows", "apart"), [(64, True), (8, False)])
def test_products_of_many_rows_and_columns_stay_apart(rows: int, apart: bool) -> None:
    fusion = fused(f"""func @f(%X: f32[{rows}, 96], %V: f32[96, 64], %W: f32[96, 64]) -> (%Y) {{
      %A: f32[i0 < {rows}, i1 < 64] = sum[r0 < 96] mul(%X[i0, r0], %V[r0, i1])
      %B: f32[i0 < {rows}, i1 < 64] = sum[r0 < 96] mul(%X[i0, r0], %W[r0, i1])
      %Y: f32[i0 < {rows}, i1 < 64] = mul(tanh(%A[i0, i1]), %B[i0, i1])
    }}""")
    groups = [g.stages for g in fusion.groups]
    assert groups == ([("A",), ("B", "Y")] if apart else [("A", "B", "Y")])


@pytest.mark.parametrize("held", [0, 4])
def test_little_products_share_a_kernel_where_launches_take_long(held: int) -> None:
    fusion = fused("""func @f(%X: f32[16, 8], %V: f32[8, 16], %W: f32[8, 16]) -> (%Y) {
      %A: f32[i0 < 16, i1 < 16] = sum[r0 < 8] mul(%X[i0, r0], %V[r0, i1])
      %B: f32[i0 < 16, i1 < 16] = sum[r0 < 8] mul(%X[i0, r0], %W[r0, i1])
      %Y: f32[i0 < 16, i1 < 16] = mul(tanh(%A[i0, i1]), %B[i0, i1])
    }""", Budget(held=held, launch_bytes=1 << 20))  # fmt: skip
    assert len(fusion.groups) == (1 if held else 2)


def test_a_product_keeps_no_row_of_what_it_reads() -> None:
    # Its tiles read a row many times over: rows of a norm, or of another product, are stored.
    fusion = fuse(ir.parse("""func @f(%X: f32[64, 96], %V: f32[96, 64], %W: f32[64, 64]) -> (%Z) {
      %S: f32[i0 < 64, i1 < 1] = sum[r0 < 96] mul(%X[i0, r0], %X[i0, r0])
      %Y: f32[i0 < 64, i1 < 64] = sum[r0 < 96] mul(div(%X[i0, r0], %S[i0, 0]), %V[r0, i1])
      %Z: f32[i0 < 64, i1 < 64] = sum[r0 < 64] mul(max(%Y[i0, r0], 0.0), %W[r0, i1])
    }"""), longest_row=4096)  # fmt: skip
    assert [g.stages for g in fusion.groups] == [("S",), ("Y",), ("Z",)]
    assert all(group.row is None for group in fusion.groups)


@pytest.mark.parametrize(("columns", "stored"), [(16, False), (4096, True)])
def test_what_takes_long_is_not_computed_again_for_each_column(columns: int, stored: bool) -> None:
    fusion = fused(f"""func @f(%X: f32[1, 512], %W: f32[512, {columns}]) -> (%Y) {{
      %A: f32[i0 < 1, i1 < 512] = tanh(%X[i0, i1])
      %Y: f32[i0 < 1, i1 < {columns}] = sum[r0 < 512] mul(%A[i0, r0], %W[r0, i1])
    }}""")
    assert [g.stages for g in fusion.groups] == ([("A",), ("Y",)] if stored else [("Y",)])


def test_a_group_takes_so_many_reductions_and_no_more() -> None:
    names = [f"s{n}" for n in range(MOST_REDUCTIONS + 2)]
    stages = "\n".join(
        f"%{name}: f32[i0 < 5] = sum[r1 < 6] mul(%X[i0, r1], {n}.5)" for n, name in enumerate(names)
    )
    results = ", ".join(f"%{name}" for name in names)
    fusion = fused(f"func @f(%X: f32[5, 6]) -> ({results}) {{\n{stages}\n}}")
    assert [len(g.stages) for g in fusion.groups] == [MOST_REDUCTIONS, 2]


def test_results_over_one_domain_share_the_pass_after_all_reductions() -> None:
    fusion = fused("""func @f(%X: f32[4, 6], %W: f32[4, 5]) -> (%A, %B) in place (%A over %X) {
      %s: f32[i0 < 4] = sum[r1 < 5] %W[i0, r1]
      %A: f32[i0 < 4, i1 < 6] = add(%X[i0, i1], %s[i0])
      %t: f32[i0 < 4] = sum[r1 < 5] mul(%W[i0, r1], %s[i0])
      %B: f32[i0 < 4, i1 < 6] = mul(%X[i0, i1], %t[i0])
    }""")
    (group,) = fusion.groups
    assert list_passes(group) == [("s",), ("t",), ("A", "B")]
    assert fusion.function.in_place == (("A", "X"),)


def test_different_domains_do_not_share() -> None:
    fusion = fused("""func @f(%X: f32[4], %Z: f32[2]) -> (%A, %B) {
      %A: f32[i0 < 4] = exp(%X[i0])
      %B: f32[i0 < 2] = exp(%Z[i0])
    }""")
    assert [g.stages for g in fusion.groups] == [("A",), ("B",)]


def test_in_place_goes_where_a_later_kernel_reads_the_parameter() -> None:
    text = """func @f(%X: f32[4]) -> (%H, %Y) in place (%H over %X) {
      %H: f32[i0 < 4] = exp(%X[i0])
      %t: f32[i0 < 1] = sum[r0 < 4] %H[sub(3, r0)]
      %Y: f32[i0 < 4] = add(%t[0], %X[i0])
    }"""
    budget = Budget(launch_bytes=0, bytes_per_operation=100)
    assert [g.stages for g in fused(text, budget).groups] == [("H",), ("t", "Y")]
    assert fused(text, budget).function.in_place == ()
    kept = fused(text.replace("%t[0], %X[i0]", "%t[0], 1.0"), budget).function
    assert kept.in_place == (("H", "X"),)


def test_in_place_goes_where_inlining_reads_other_places() -> None:
    fusion = fused("""func @f(%X: f32[3, 3]) -> (%Y) in place (%Y over %X) {
      %t: f32[i0 < 3, i1 < 3] = exp(%X[i0, i1])
      %Y: f32[i0 < 3, i1 < 3] = %t[i1, i0]
    }""")
    assert fusion.function.in_place == ()


def chain_of_stages(count: int, fan: int = 1) -> Function:
    """Stages that each add up the one before, read at `fan` places."""
    size = count * fan + 4
    stages: list[Stage] = []
    before = "X"
    for number in range(count):
        extent = size - (number + 1) * (fan - 1)
        body: list[ir.Instruction] = [Index(0), Load(before, (0,), T.FLOAT32)]
        total = 1
        for shift in range(1, fan):
            body += [
                ir.Constant(T.INDEX, shift),
                Apply(OPERATIONS["add"], (0, len(body)), T.INDEX),
                Load(before, (len(body) + 1,), T.FLOAT32),
                Apply(OPERATIONS["add"], (total, len(body) + 2), T.FLOAT32),
            ]
            total = len(body) - 1
        if fan == 1:
            body.append(Apply(OPERATIONS["add"], (1, 1), T.FLOAT32))
            total = len(body) - 1
        before = f"t{number}"
        stages.append(Stage(before, T.FLOAT32, (extent,), Body.make(body, total)))
    return Function("f", (Parameter("X", T.FLOAT32, (size,)),), tuple(stages), (Result(before),))


def test_a_chain_of_thousands_is_one_linear_body() -> None:
    start = time.perf_counter()
    fusion = fuse(chain_of_stages(5000), budget=Budget(most_instructions=6000))
    (stage,) = fusion.function.stages
    assert len(stage.body.instructions) == 5002
    assert time.perf_counter() - start < 20
    assert fusion.groups[0].reason.endswith(
        "; %t4998, %t4997, %t4996, %t4995 and 4995 more are computed where read"
    )


def test_a_chain_too_long_for_a_kernel_is_cut() -> None:
    fusion = fuse(chain_of_stages(5000))
    check_order(fusion)
    assert len(fusion.groups) == 3
    assert all(len(s.body.instructions) <= 2050 for s in fusion.function.stages)
    assert "is stored, for a kernel holds about 2,048 instructions" in fusion.groups[0].reason


def test_what_a_stage_leaves_to_another_is_counted_where_it_is_read_next() -> None:
    text = """func @f(%a: f32[6], %b: f32[6], %c: f32[6], %d: f32[6]) -> (%Y) {
      %p: f32[i0 < 6] = add(add(%a[i0], %b[i0]), %c[i0])
      %q: f32[i0 < 6] = sub(%a[i0], %b[i0])
      %Y: f32[i0 < 6] = mul(mul(%p[i0], %q[i0]), %d[i0])
    }"""
    fusion = fused(text, Budget(most_buffers=4))
    read = [{load.tensor for load in s.body.loads()} for s in fusion.function.stages]
    assert read == [{"a", "b", "c"}, {"a", "b"}, {"p", "q", "d"}]


def test_what_a_kernel_keeps_at_hand_is_no_buffer() -> None:
    text = """func @f(%x: f32[6, 5], %w: f32[6]) -> (%Y) {
      %s: f32[i0 < 6] = sum[r1 < 5] %x[i0, r1]
      %Y: f32[i0 < 6, i1 < 5] = mul(mul(%x[i0, i1], %s[i0]), %w[i0])
    }"""
    assert [len(fused(text, Budget(most_buffers=n)).groups) for n in (2, 3)] == [2, 1]


def test_stages_read_at_many_places_are_stored() -> None:
    function = chain_of_stages(60, fan=3)
    ir.verify(function)
    fusion = fuse(function)
    ir.verify(fusion.function)
    check_order(fusion)
    reasons = [g.reason for g in fusion.groups]
    assert reasons[0].startswith("%t1 is stored, since it is read at 9 places, and computing it")
    budget = Budget(most_repeated=10**9, launch_bytes=1 << 60)
    crowded = fuse(function, budget=budget).groups[0].reason
    assert f"is read at more than {MOST_PLACES} places of one stage" in crowded
    most = max(len(s.body.instructions) for s in fusion.function.stages)
    assert most < 60 * MOST_PLACES
    inputs = make_inputs(function, 1)
    name = function.results[0].name
    assert same_bits(evaluate(function, inputs)[name], evaluate(fusion.function, inputs)[name])


def test_traffic_counts_each_element_once() -> None:
    function = ir.parse("""func @f(%X: f32[4, 8], %S: f16[4, 8]{0, 1}, %E: f32[0]{0}) -> (%Y, %Z) {
      %Y: f16[i0 < 4, i1 < 8] = add(mul(%X[i0, i1], %X[i0, i1]), %S[i0, i1])
      %Z: f32[i0 < 0] = %E[i0]
    }""")
    fusion = fuse(function)
    assert [fusion.traffic(g) for g in fusion.groups] == [(4 * 8 * 4 + 8 * 2, 4 * 8 * 2), (0, 0)]
    assert total(list_moves(function, ("Y", "Z"))) == (144, 64)


def test_traffic_shrinks_where_stages_are_inlined() -> None:
    function = ir.parse("""func @f(%X: f32[100]) -> (%Y) {
      %t: f32[i0 < 100] = exp(%X[i0])
      %Y: f32[i0 < 100] = neg(%t[i0])
    }""")
    before = [total(list_moves(function, (s.name,))) for s in function.stages]
    assert before == [(400, 400), (400, 400)]
    fusion = fuse(function)
    assert [fusion.traffic(g) for g in fusion.groups] == [(400, 400)]


def test_traffic_of_run_time_sizes_is_unknown() -> None:
    fusion = fused("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    assert fusion.traffic(fusion.groups[0]) is None


def test_nothing_to_do() -> None:
    assert fuse(ir.parse("func @f(%X: f32[4]) -> () {}")).groups == ()


def test_what_several_stages_share_is_not_stored_for_a_reduction_beside_it() -> None:
    function = ir.parse("""func @clip(%g: f32[4096], %a: f32[4096]) -> (%u, %v) {
      %n: f32[i0 < 1] = sum[r0 < 4096] mul(%g[r0], %g[r0])
      %c: f32[i0 < 4096] = {
        v0 = add(sqrt(%n[0]), 1e-06)
        v1 = max(min(1.0, div(1.0, v0)), div(0.5, v0))
        mul(%g[i0], mul(v1, add(v1, 0.25)))
      }
      %u: f32[i0 < 4096] = add(%c[i0], %a[i0])
      %v: f32[i0 < 4096] = mul(%c[i0], %a[i0])
    }""")
    fusion = fuse(function)
    ir.verify(fusion.function)
    assert "c" not in [s.name for s in fusion.function.stages]
    assert {n for g in fusion.groups for n in g.stages} == {"n", "u", "v"}


def test_what_is_constant_once_it_is_put_together_is_folded() -> None:
    # A driver's own rules for constants gave infinity here, or ended the process.
    function = ir.parse("""
        func @f() -> (%y) {
          %zero: bf16[i0 < 3] = -0.0
          %y: f16[i0 < 3] = round(mul(%zero[i0], -inf))
        }""")
    (stage,) = fuse(function).function.stages
    assert stage.body.instructions == (ir.Constant(T.FLOAT32, math.nan),)


def test_a_row_at_hand_is_made_of_what_is_stored_by_then() -> None:
    # Nothing but the row reads the result, which came last and was read before it was stored.
    function = ir.parse("""func @f(%X: f32[64, 64, 64]) -> (%y, %t) {
      %y: f32[i0 < 64, i1 < 64, i2 < 64] = erf(%X[i0, i1, i2])
      %row: f32[i0 < 64, i1 < 64] = sum[r2 < 64] %y[i0, i1, r2]
      %t: f32[i0 < 64, i1 < 64] = sum[r1 < 64] max(%row[i0, r1], cast(add(r1, i1), f32))
    }""")
    fusion = fuse(function, longest_row=64)
    check_order(fusion)
    assert [group.row for group in fusion.groups] == [None, "row"]


@pytest.mark.parametrize(("place", "is_stored"), [("div(i1, 2)", False), ("min(i1, 3)", True)])
def test_what_a_block_of_an_axis_reads_is_computed_there(place: str, *, is_stored: bool) -> None:
    """As where a whole axis reads it; at other places it is stored instead of the reduction."""
    text = """func @centred(%x: f32[3, 8, 70]) -> (%y) {
      %total: f32[i0 < 3, i1 < 4] = sum[r2 < 2, r3 < 70] %x[i0, add(mul(i1, 2), r2), r3]
      %mean: f32[i0 < 3, i1 < 4] = div(%total[i0, i1], 140.0)
      %y: f32[i0 < 3, i1 < 8, i2 < 70] = sub(%x[i0, i1, i2], %mean[i0, PLACE])
    }"""
    fusion = fuse(ir.parse(text.replace("PLACE", place)))
    assert any("mean" in group.stages for group in fusion.groups) is is_stored
