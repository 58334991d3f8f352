"""Orders of reductions: fusion finds each, its text names it, and kernels are made of it without
recognizing the formula again."""

from __future__ import annotations

import json

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.target import CPU, GPU
from dmlc.lowering.group import find_subject, lower_group
from dmlc.pipeline import find_fusion
from dmlc.report import explain_plain
from dmlc.source import DmlcError
from dmlc.transform import inverse_index, ranks, scans
from dmlc.transform.fuse import Fusion, keep_apart
from dmlc.transform.json import fusion_from_json, fusion_to_json

SCAN = """func @scan(%X: {dtype}[4, {n}]) -> (%Y) {{
  %Y: {dtype}[i0 < 4, i1 < {n}] = sum[r0 < {n} where {holds}] %X[i0, r0]
}}"""
SORT = """func @sort(%X: s32[2, 300]) -> (%Y) {
  %rank: s32[i0 < 2, i1 < 300] = sum[r0 < 300 where
    or(lt(%X[i0, r0], %X[i0, i1]), and(eq(%X[i0, r0], %X[i0, i1]), lt(r0, i1)))] 1:s32
  %Y: s32[i0 < 2, i1 < {count}] = max[r0 < 300 where eq(%rank[i0, r0], cast(i1, s32))] %X[i0, r0]
}"""
SCATTER = """func @scatter(%I: s32[100000]) -> (%Y) {
  %Y: s32[i0 < 1000] = sum[r0 < 100000 where eq(%I[r0], cast(i0, s32))] 1:s32
}"""


def scan(holds: str = "le(r0, i1)", n: int | str = 100_000, dtype: str = "f32") -> str:
    return SCAN.format(holds=holds, n=n, dtype=dtype)


def sort(count: int) -> str:
    return SORT.replace("{count}", str(count))


def fuse(text: str, profile: str) -> Fusion:
    return find_fusion(ir.parse(text), "opencl", profile)


def list_orders(fusion: Fusion) -> list[str]:
    return [str(order) for group in fusion.groups for order in group.orders]


CASES = {
    "scan": (scan(), "gpu", "%Y scans rows along i1: the points up to each element"),
    "before": (scan("gt(i1, r0)"), "gpu", "%Y scans rows along i1: the points before each element"),
    "from": (scan("ge(r0, i1)"), "gpu", "%Y scans rows along i1: the points from each element"),
    "after": (scan("lt(i1, r0)"), "gpu", "%Y scans rows along i1: the points after each element"),
    "open": (scan(n="n"), "cpu", "%Y scans rows along i1: the points up to each element"),
    "whole rows": (
        sort(300), "cpu", "%Y_rank puts the first 300 elements of rows in ascending order"
    ),
    "first few": (sort(9), "gpu", "%Y_rank puts the first 9 elements of rows in ascending order"),
    "scatter": (SCATTER, "cpu", "%Y adds each point to the element that its key names"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "profile", "order"), CASES.values(), ids=CASES)
def test_an_order_is_in_the_fusion(text: str, profile: str, order: str) -> None:
    fusion = fuse(text, profile)
    (found,) = list_orders(fusion)
    assert found.partition(" ")[2] == order.partition(" ")[2]
    (group,) = (group for group in fusion.groups if group.orders)
    assert found in group.reasons
    assert group.orders[0].names[0] == found.partition(" ")[0].removeprefix("%")
    content = fusion_to_json(fusion)
    assert [each for k in json.loads(content)["kernels"] for each in k["orders"]] == [found]
    assert fusion_from_json(content) == fusion


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        (scan(), "cpu"),  # in blocks
        (scan(n=100), "gpu"),
        (scan("and(le(r0, i1), gt(r0, sub(i1, 9)))"), "gpu"),
        (sort(9), "cpu"),
    ],
)
def test_all_others_are_plain(text: str, profile: str) -> None:
    assert not any(" first 9 " in o or "scans" in o for o in list_orders(fuse(text, profile)))


def test_a_gpu_sorts_the_keys_of_points() -> None:
    (order,) = list_orders(fuse(SCATTER, "gpu"))
    assert "the first 100,000 elements of rows in ascending order" in order


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        ("scan", "up to", "from"),
        ("before", "before", "up to"),
        ("after", "after", "before"),
        ("open", "i1", "i0"),
        ("whole rows", "ascending", "descending"),
        ("first few", "first 9", "first 8"),
        ("scatter", "%Y", "%X"),
    ],
)
def test_an_order_that_a_reduction_has_not_is_refused(case: str, before: str, after: str) -> None:
    fusion = fuse(*CASES[case][:2])
    (found,) = list_orders(fusion)
    content = json.loads(fusion_to_json(fusion))
    (kernel,) = (kernel for kernel in content["kernels"] if kernel["orders"])
    kernel["orders"] = [found.replace(before, after, 1)]
    with pytest.raises(DmlcError, match="unknown order of kernel"):
        fusion_from_json(json.dumps(content))


@pytest.mark.parametrize(("text", "profile", "order"), CASES.values(), ids=CASES)
def test_kernels_are_made_of_the_order_alone(
    text: str, profile: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion, shape = fuse(text, profile), {"cpu": CPU, "gpu": GPU}[profile]
    limits = find_dialect("opencl").limits
    usual = [lower_group(fusion.function, group, shape, limits) for group in fusion.groups]

    def refuse(*_: object) -> None:
        raise AssertionError("it is recognized again")

    for module, name in (
        (scans, "find_scan"),
        (ranks, "find_ranking"),
        (inverse_index, "find_choice"),
    ):
        monkeypatch.setattr(module, name, refuse)
    again = [lower_group(fusion.function, group, shape, limits) for group in fusion.groups]
    assert again == usual


def test_the_schedule_table_has_a_class_for_each_order() -> None:
    limits = find_dialect("opencl").limits
    for text, profile, kind in ((scan(), "gpu", "scan"), (sort(300), "cpu", "sort")):
        fusion = fuse(text, profile)
        shape = {"cpu": CPU, "gpu": GPU}[profile]
        kinds = (find_subject(fusion.function, g, shape, limits) for g in fusion.groups if g.orders)
        assert [each.kind for each in kinds if each is not None] == [kind]


def test_stages_that_are_kept_apart_have_no_order_with_others() -> None:
    orders = list_orders(keep_apart(fuse(sort(300), "gpu").function))
    assert orders == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (scan(n=100), "an element has 100 points or fewer, and that is short"),
        (scan("and(le(r0, i1), gt(r0, sub(i1, 9)))"), "depends on i1 in other ways, too"),
        (scan("gt(mul(i1, 3), r0)"), "its elements are not the points of whole rows one by one"),
        (scan(dtype="s32").replace("sum[", "argmax["), "'argmax' gives a position"),
    ],
)
def test_it_is_said_why_a_reduction_is_no_scan(text: str, why: str) -> None:
    (stage,) = ir.parse(text).stages
    found = explain_plain(stage)
    assert found.startswith("%Y is no scan along r0: ")
    assert why in found


def test_reductions_without_an_end_have_nothing_to_say() -> None:
    (stage,) = ir.parse(SCATTER).stages
    assert explain_plain(stage) == ""
