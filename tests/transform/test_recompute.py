"""What several kernels compute again, rather than one stores it: the scores of attention, in its
gradient."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.pipeline import find_fusion
from dmlc.reference import evaluate
from dmlc.testing.bounds import bound_errors
from dmlc.testing.online import write_online
from dmlc.transform.cost import Budget
from dmlc.transform.differentiate import differentiate
from dmlc.transform.fuse import Fusion
from dmlc.transform.recompute import recompute
from dmlc.transform.rewrite import rewrite
from tests.attention import MASKS, Attention

LARGE = Attention(1024, 640, size=64, value_size=48, batch=2)
KEPT = 4 * 2 * 2 * 1024
"""Bytes of one number of each query."""


def list_kernels(fusion: Fusion) -> list[list[str]]:
    """What the kernels of a function store."""
    return [[n for n in group.stages if n not in group.local] for group in fusion.groups]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("last", [False, True])
def test_the_gradient_of_attention_stores_no_scores(mask: str, last: bool) -> None:
    dtype = "f16" if last else "f32"
    function = dataclasses.replace(LARGE, mask=mask, last=last, dtype=dtype).differentiate()
    fusion = find_fusion(function, "opencl", "cpu")
    statistics, *others = list_kernels(fusion)
    assert statistics[:2] == ["largest", "sum"]
    assert {frozenset(names) for names in others} == {frozenset(["dK", "dV"]), frozenset(["dQ"])}
    assert all(group.online is not None for group in fusion.groups)
    assert "never stored" in fusion.groups[1].reason
    assert "from blocks of them, which each kernel computes again" in fusion.groups[1].reason
    (_, written) = fusion.traffic(fusion.groups[0]) or (0, 0)
    assert written in (3 * KEPT, 4 * KEPT)


def test_a_result_that_is_kept_is_computed_with_the_statistics() -> None:
    text = """
    graph own[N, H, S, D](q: FLOAT32[N, H, S, D], k: FLOAT32[N, H, S, D], v: FLOAT32[N, H, S, D],
                          dy: FLOAT32[N, H, S, D]) {
        s = onednn.MatMul(src: q, weights: k, transpose_b: true) * 0.125
        e = exp(s - max(s, axes: [3]))
        output o = onednn.MatMul(src: e / sum(e, axes: [3]), weights: v)
        output dq, dk, dv = gradient of o with respect to q, k, v from dy
    }"""
    function = dmlc.parse(text).graphs["own"].bind(dims={"N": 2, "H": 2, "S": 1024, "D": 64})
    first, *others = list_kernels(find_fusion(function, "opencl", "cpu"))
    assert first[-1] == "o"
    assert others == [["dq"], ["dk", "dv"]]


def test_heads_may_lie_beside_each_other() -> None:
    whole = dmlc.TensorDesc("FLOAT32", (2, 1024, 128))
    names = ("QueryTensor", "KeyTensor", "ValueTensor")
    tensors: dict[str, dmlc.TensorDesc] = dict.fromkeys((*names, "OutputTensor"), whole)
    operator = dmlc.operator("directml.MULTIHEAD_ATTENTION")
    function = operator.bind(tensors, attributes={"Scale": 0.2, "HeadCount": 2})
    gradients = {name: f"d{name}" for name in names}
    made = differentiate(function, names, {"OutputTensor": "dY"}, gradients).function
    fusion = find_fusion(made, "opencl", "cpu")
    assert [group.online is not None for group in fusion.groups] == [True, True, True, False]
    sizes = [np.prod([int(e) for e in s.extents]) for s in fusion.function.stages]
    stored = {name for kernel in list_kernels(fusion) for name in kernel}
    large = [
        s.name for s, size in zip(fusion.function.stages, sizes, strict=True) if size >= 1 << 20
    ]
    assert large
    assert stored.isdisjoint(large)


@pytest.mark.parametrize("also", ["p", "d_s"])
def test_scores_that_somebody_else_reads_are_stored(also: str) -> None:
    function = LARGE.differentiate()
    result = ir.Result(also)
    wanted = dataclasses.replace(function, results=(*function.results, result))
    fusion = find_fusion(wanted, "opencl", "cpu")
    assert all(group.online is None for group in fusion.groups)
    rewritten = rewrite(wanted, 0)
    assert recompute(rewritten, Budget(least_rows=1, cached_bytes=0)) is rewritten


def test_few_scores_are_stored() -> None:
    """They stay in caches."""
    for queries, are_again in ((800, False), (1024, True)):
        small = dataclasses.replace(LARGE, queries=queries, keys=1024)
        groups = find_fusion(
            dataclasses.replace(small, heads=1).differentiate(), "opencl", "cpu"
        ).groups
        assert all(group.online is not None for group in groups) is are_again


def test_long_queries_are_not_multiplied_again() -> None:
    long = dataclasses.replace(LARGE, size=80)
    groups = find_fusion(long.differentiate(), "opencl", "cpu").groups
    assert all(group.online is None for group in groups)


def test_copies_compute_the_same() -> None:
    small = Attention(17, 20, heads=1, mask="causal", value_size=40)
    function = rewrite(small.differentiate(), 0)
    copied = recompute(function, Budget(least_rows=1, cached_bytes=0))
    assert {s.name for s in copied.stages} >= {"s", "s_2", "s_3", "d_p", "d_p_2", "d_p_3"}
    inputs = small.fill(function)
    wanted, found = evaluate(function, inputs), evaluate(copied, inputs)
    allowed = bound_errors(function, inputs)
    for name, values in found.items():
        assert (np.abs(values.astype(np.float64) - wanted[name]) <= allowed[name]).all()


@pytest.mark.parametrize("mask", ["causal", "lengths", "bias"])
def test_the_order_written_out_computes_the_same(mask: str) -> None:
    """And is what bounds are of: what a mask leaves out of a sum is not read there."""
    small = Attention(17, 20, heads=1, batch=2, mask=mask)
    function = rewrite(small.differentiate(), 0)
    written = write_online(function)
    assert written is not None
    ir.verify(written)
    assert any("_so_far" in stage.name for stage in written.stages)
    guarded = [s.name for s in written.stages if s.body.guard is not None]
    assert (mask == "bias") is not ("dK" in guarded and "dQ" in guarded)
    inputs = small.fill(function)
    wanted, found = evaluate(function, inputs), evaluate(written, inputs)
    for name, values in found.items():
        kept = np.isfinite(wanted[name])
        np.testing.assert_allclose(values[kept], wanted[name][kept], rtol=1e-5, atol=1e-6)
