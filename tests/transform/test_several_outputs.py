"""Reductions that store as well: which stages go through the points of a pass, and which do
not."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, fuse
from dmlc.transform.passes import list_read_back
from tests.reductions import Shape, folded_result
from tests.transform.test_fuse import check_order

_DEAR = "%e: f32[i0 < 8, i1 < 40] = mul(%Z[i0, i1], tanh(%X[i0, i1]))"
_CHEAP = "%e: f32[i0 < 8, i1 < 40] = mul(%Z[i0, i1], %X[i0, i1])"
_STORE = Budget(launch_bytes=0, bytes_per_operation=100)
"""Computing anything twice is dear."""


def fused(stages: str, results: str, budget: Budget = _STORE, inputs: str = "") -> Fusion:
    function = ir.parse(
        f"func @f(%X: f32[8, 40], %Z: f32[8, 40]{inputs}) -> ({results}) {{\n{stages}\n}}"
    )
    fusion = fuse(function, budget=budget)
    ir.verify(fusion.function)
    check_order(fusion)
    return fusion


def list_groups(fusion: Fusion) -> list[set[str]]:
    return [set(group.stages) for group in fusion.groups]


@pytest.mark.parametrize("dear", [_DEAR, _CHEAP])
@pytest.mark.parametrize(
    "fold",
    [
        "%s: f32[i0 < 8] = sum[r0 < 40] {}[i0, r0]",
        "%s: f32[i0 < 1, i1 < 40] = max[r0 < 8] {}[r0, i1]",
        "%s: f32[] = sum[r0 < 8, r1 < 40] mul({}[r0, r1], %X[r0, r1])",
    ],
)
def test_a_result_is_stored_while_it_is_folded(dear: str, fold: str) -> None:
    # Whether the reduction reads it, or has it computed in its own body.
    fusion = fused(f"{dear}\n{fold.format('%e')}", "%e, %s", Budget())
    (group,) = fusion.groups
    assert set(group.stages) == {"e", "s"}
    assert len(group.passes) == 1
    assert group.reason.startswith("%s is a reduction (")
    assert "; %e is stored in the same loops" in group.reason
    sizes = {"s": 8 if "i0 < 8]" in fold else 40 if "i1" in fold else 1}
    assert fusion.traffic(group) == (2 * 8 * 40 * 4, (8 * 40 + sizes["s"]) * 4)


def test_a_16_bit_result_is_folded_as_it_is_rounded() -> None:
    fusion = fuse(folded_result(Shape((5, 70), (1,)), "f16"), budget=_STORE)
    check_order(fusion)
    (group,) = fusion.groups
    assert set(group.local) == {"e_rounded", "product"}
    said = "%e_rounded is computed in the same loops; %e is stored in the same loops"
    assert said in group.reason
    assert fusion.function.stage("e_rounded") is not None
    assert "round_float16" in str(fusion.function)


def test_other_kernels_read_a_16_bit_result_and_no_copy_of_it() -> None:
    stages = """%e: f16[i0 < 8, i1 < 40] = mul(%Z[i0, i1], tanh(%X[i0, i1]))
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
      %t: f32[i0 < 40] = sum[r0 < 8] %e[r0, i0]"""
    fusion = fused(stages, "%e, %s, %t")
    first, second = fusion.groups
    assert first.local == ("e_rounded",)
    assert set(first.stages) == {"e_rounded", "e", "s"}
    assert second.reason == "%t is a reduction (sum); the kernel runs after %e is stored"
    assert fusion.traffic(second) == (8 * 40 * 2, 40 * 4)
    # A result that is rounded more than what it is made of is no copy.
    exact = (
        stages.replace("%e: f16", "%e: f32")
        + """
      %h: f16[i0 < 8, i1 < 40] = %e[i0, i1]"""
    )
    kept = fused(exact, "%h, %s, %t").function.stage("t")
    assert kept is not None
    assert [load.tensor for load in kept.body.loads()] == ["e"]


def test_stages_beside_it_are_stored_on_the_way_too() -> None:
    stages = f"""{_DEAR}
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
      %t: f32[i0 < 8] = max[r1 < 40] mul(%e[i0, r1], %s[i0])
      %y: f32[i0 < 8, i1 < 40] = add(%e[i0, i1], 1.0)
      %w: f32[i0 < 8, i1 < 40] = add(%X[i0, i1], 1.0)"""
    fusion = fused(stages, "%t, %y, %w, %e")
    # What needs the first reduction comes after it, and reads memory.
    assert list_groups(fusion) == [{"e", "s", "y", "w"}, {"t"}]
    assert "%t is a reduction (max); the kernel runs after %s and %e are stored" in (
        fusion.groups[1].reason.replace("%e and %s", "%s and %e")
    )


def test_what_applies_a_fold_is_stored_by_the_next() -> None:
    stages = """%s: f32[i0 < 8] = sum[r0 < 40] %X[i0, r0]
      %y: f32[i0 < 8, i1 < 40] = sub(%X[i0, i1], %s[i0])
      %n: f32[i0 < 8] = sum[r0 < 40] mul(%y[i0, r0], %y[i0, r0])"""
    fusion = fused(stages, "%y, %n", Budget())
    (group,) = fusion.groups
    passes = [{member.stage for member in each.members} for each in group.passes]
    assert passes == [{"s"}, {"n", "y"}]
    assert fusion.traffic(group) == (2 * 8 * 40 * 4, (8 * 40 + 8) * 4)


_SOFTMAX = """%m: f32[i0 < 8] = max[r0 < 40] %X[i0, r0]
  %e: f32[i0 < 8, i1 < 40] = exp(sub(%X[i0, i1], %m[i0]))
  %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
  %y: f32[i0 < 8, i1 < 40] = div(%e[i0, i1], %s[i0])"""


def test_a_work_item_reads_back_what_it_stored_for_a_row() -> None:
    fusion = fused(_SOFTMAX, "%y", Budget(bytes_per_operation=0.4, walks=True))
    (group,) = fusion.groups
    passes = [{member.stage for member in each.members} for each in group.passes]
    assert passes == [{"m"}, {"e", "s"}, {"y"}]
    assert [each.reduces for each in group.passes] == [True, True, False]
    assert group.local == ("m", "s")
    assert list_read_back(fusion.function, group.passes) == {"e"}
    # Where a group shares rows, an element is that of another work item.
    shared = fused(_SOFTMAX, "%y", Budget(bytes_per_operation=100))
    assert list_groups(shared) == [{"m", "e"}, {"s", "y"}]
    # Another launch is what keeps a kernel that shares rows from storing.
    fusion = fused(_SOFTMAX, "%y", Budget(bytes_per_operation=0.4))
    assert list_groups(fusion) == [{"m", "s", "y"}]


def test_what_later_passes_reduce_again_is_stored_on_the_way() -> None:
    stages = """%e: f32[i0 < 8, i1 < 40] = mul(%Z[i0, i1], tanh(%X[i0, i1]))
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
      %v: f32[i0 < 8] = sum[r0 < 40] mul(%e[i0, r0], sub(%e[i0, r0], %s[i0]))
      %y: f32[i0 < 8, i1 < 40] = div(sub(%e[i0, i1], %s[i0]), %v[i0])"""
    fusion = fused(stages, "%y", Budget(bytes_per_operation=100, walks=True))
    (group,) = fusion.groups
    passes = [{member.stage for member in each.members} for each in group.passes]
    assert passes == [{"e", "s"}, {"v"}, {"y"}]
    assert "%e is stored in the same loops" in group.reason
    # What reads it at another point may read it before it is there.
    reversed_row = stages.replace("div(sub(%e[i0, i1],", "div(sub(%e[i0, sub(39, i1)],")
    fusion = fused(reversed_row, "%y", Budget(bytes_per_operation=100, walks=True))
    assert all("y" not in group or "e" not in group for group in list_groups(fusion))


@pytest.mark.parametrize(
    ("fold", "why"),
    [
        ("%s: f32[i0 < 8] = sum[r0 < 20] %e[i0, r0]", "half of the points"),
        ("%s: f32[i0 < 8, i1 < 2] = sum[r0 < 40] %e[i0, r0]", "every point twice"),
        ("%s: f32[i0 < 8] = sum[r0 < 40] %e[i0, sub(39, r0)]", "another point"),
        ("%s: f32[i0 < 8] = sum[r0 < 40] %e[i0, min(add(r0, 1), 39)]", "computed places"),
        ("%s: f32[i0 < 8] = sum[r0 < 40 where gt(%X[i0, r0], 0.0)] %e[i0, r0]", "a guard"),
        ("%s: s32[i0 < 8] = argmax[r0 < 40] %e[i0, r0]", "point by point"),
        ("%s: f32[i0 < 8] = sum[r0 < 40] mul(%e[i0, r0], %T[r0, i0])", "against memory's order"),
        ("%s: f32[i0 < 8] = sum[r0 < 40] mul(%e[i0, r0], %U[i0, r0])", "with gaps"),
        ("%s: f32[i0 < 8] = sum[r0 < 40] select(lt(r0, 4), %e[i0, r0], 0.0)", "a position"),
    ],
)
@pytest.mark.parametrize("body", [_DEAR, _CHEAP])
def test_other_folds_have_kernels_of_their_own(fold: str, why: str, body: str) -> None:
    for budget in (_STORE, Budget()):
        fusion = fused(
            f"{body}\n{fold}", "%e, %s", budget, ", %T: f32[40, 8], %U: f32[8, 40]{1, 8}"
        )
        assert sorted(map(sorted, list_groups(fusion))) == [["e"], ["s"]], why


def test_a_result_with_gaps_is_stored_by_itself() -> None:
    text = """func @f(%X: f32[8, 40]) -> (%e{1, 8}, %s) {
      %e: f32[i0 < 8, i1 < 40] = mul(%X[i0, i1], tanh(%X[i0, i1]))
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
    }"""
    assert list_groups(fuse(ir.parse(text), budget=_STORE)) == [{"e"}, {"s"}]
    even = text.replace("{1, 8}", "{48, 1}")
    assert list_groups(fuse(ir.parse(even), budget=_STORE)) == [{"e", "s"}]


def test_short_runs_do_not_fill_vectors() -> None:
    def fold(columns: int, budget: Budget) -> Fusion:
        return fuse(folded_result(Shape((9000, columns), (1,))), budget=budget)

    wide = Budget(lanes=16)
    assert len(fold(7, Budget()).groups) == 1
    assert len(fold(64, wide).groups) == 1
    apart = fold(7, wide)
    check_order(apart)
    assert list_groups(apart)[0] == {"e"}
    assert apart.groups[1].reason.startswith(
        "%total is a reduction (sum); another kernel computes %e, as a fold would compute it in "
        "runs of 7 elements only; "
    )


def test_what_is_stored_in_pairs_is_stored_by_itself() -> None:
    dear = Budget(launch_bytes=0, bytes_per_operation=100, paired_types=(DataType.FLOAT16,))
    fusion = fuse(folded_result(Shape((5, 64), (1,)), "f16"), budget=dear)
    check_order(fusion)
    assert "e" in fusion.groups[0].stages
    assert not fusion.groups[0].passes
    words = "another kernel stores %e_rounded, for FLOAT16 is stored two elements at a time"
    assert fusion.groups[1].reason.count(words) == 1
    # What merely fits 16 bits is stored in 32 by a kernel that stores single elements.
    stages = """%e: f16[i0 < 8, i1 < 40] = max(%H[i0, i1], 0.0)
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
      %t: f32[i0 < 40] = sum[r0 < 8] %e[r0, i0]"""
    exact = fused(stages, "%s, %t", dear, ", %H: f16[8, 40]")
    stored = exact.function.stage("e")
    assert stored is not None
    assert stored.dtype is DataType.FLOAT32


def test_memory_that_a_fold_reads_is_not_overwritten() -> None:
    text = """func @f(%X: f32[8, 40]) -> (%e, %s) in place (%e over %X) {
      %e: f32[i0 < 8, i1 < 40] = mul(%X[i0, i1], 2.0)
      %s: f32[i0 < 8] = sum[r0 < 40] %e[i0, r0]
    }"""
    fusion = fuse(ir.parse(text))
    assert list_groups(fusion) == [{"e", "s"}]
    assert fusion.function.in_place == ()
