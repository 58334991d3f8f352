"""Which stages are computed online: by what they compute, and not by how they are called."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.target import GPU
from dmlc.pipeline import find_fusion, make_budget
from dmlc.reference import evaluate
from dmlc.testing.bounds import bound_errors
from dmlc.testing.online import write_online
from dmlc.transform.factor import take_out_factors
from dmlc.transform.fuse import fuse
from dmlc.transform.rewrite import rewrite
from dmlc.transform.simplify import simplify
from tests.attention import MASKS, Attention

LARGE = Attention(65, 129, 64, 80, batch=2)


def list_groups(function: ir.Function) -> list[tuple[str, ...]]:
    """The stages of each kernel that computes some online."""
    fusion = find_fusion(function, "opencl", "cpu")
    return [group.stages for group in fusion.groups if group.online is not None]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("last", [False, True])
def test_attention_is_one_kernel_that_stores_no_scores(mask: str, last: bool) -> None:
    function = dataclasses.replace(LARGE, mask=mask, last=last).make()
    fusion = find_fusion(function, "opencl", "cpu")
    (group,) = fusion.groups
    assert group.online is not None
    assert [m.stage for m in group.online.scores] == ["s"]
    assert group.local == ("s", "largest", "sum", "O_sum")
    assert "%s is never stored" in group.reason
    read = sum(np.prod([int(e) for e in p.extents]) for p in function.parameters)
    assert fusion.traffic(group) == (4 * read, 4 * 2 * 2 * 65 * 80)


def test_what_else_leaves_of_a_row_is_stored() -> None:
    function = dataclasses.replace(LARGE, also="sum largest").make()
    assert list_groups(function) == [("s", "largest", "sum", "O_sum", "O")]


def bind(name: str, attributes: dict[str, object], **sizes: tuple[int, ...]) -> ir.Function:
    tensors = {tensor: dmlc.TensorDesc("FLOAT32", each) for tensor, each in sizes.items()}
    return dmlc.operator(name).bind(tensors, attributes)


def test_the_operator_of_directml_is_computed_online() -> None:
    whole = (2, 65, 128)
    function = bind(
        "directml.MULTIHEAD_ATTENTION", {"Scale": 0.2, "HeadCount": 2}, QueryTensor=whole,
        KeyTensor=whole, ValueTensor=whole, BiasTensor=(384,), OutputTensor=whole,
    )  # fmt: skip
    assert len(list_groups(function)) == 1


GRAPH = """
graph attend[N, H, S, T, D](q: FLOAT32[N, H, S, D], k: FLOAT32[N, H, T, D],
                            v: FLOAT32[N, H, T, D], mask: FLOAT32[N, 1, S, T]) {
    scores = onednn.MatMul(src: q, weights: k, transpose_b: true)
    scaled = onednn.Divide(src_0: scores, src_1: 8)
    masked = onednn.Add(src_0: scaled, src_1: mask)
    shares = onednn.SoftMax(src: masked, axis: 3)
    output o = onednn.MatMul(src: shares, weights: v)
}
graph own[N, H, S, T, D](q: FLOAT32[N, H, S, D], k: FLOAT32[N, H, T, D], v: FLOAT32[N, H, T, D]) {
    s = onednn.MatMul(src: q, weights: k, transpose_b: true) * 0.125
    e = exp(s - max(s, axes: [3]))
    output o = onednn.MatMul(src: e / sum(e, axes: [3]), weights: v)
}
"""


@pytest.mark.parametrize("name", ["attend", "own"])
def test_graphs_are_computed_online(name: str) -> None:
    text = GRAPH.replace("src_1: 8", "src_1: mask")
    graph = dmlc.parse(text).graphs[name]
    function = graph.bind(dims={"N": 2, "H": 4, "S": 64, "T": 64, "D": 32})
    assert len(list_groups(function)) == 1


def change(text: str, by: str) -> ir.Function:
    written = str(LARGE.make())
    assert text in written
    return ir.parse(written.replace(text, by))


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("max[r0 < 129] %u[i0, i1, i2, r0]", "max[r0 < 129] neg(%u[i0, i1, i2, r0])"),
        ("exp(sub(", "exp2(sub("),
        ("sub(%u[i0, i1, i2, i3], %largest[i0, i1, i2])", "sub(%u[i0, i1, i2, i3], 1.0)"),
        ("= max[", "= min["),
        ("-> (%O)", "-> (%O, %s)"),
        ("-> (%O)", "-> (%O, %e)"),
        ("sum[r0 < 129] %e[i0, i1, i2, r0]", "sum[r0 < 129] sqrt(%e[i0, i1, i2, r0])"),
        ("sum[r0 < 64]", "max[r0 < 64]"),
    ],
)
def test_what_is_no_softmax_stays_as_it_was(text: str, by: str) -> None:
    assert list_groups(LARGE.make())
    assert list_groups(change(text, by)) == []


@pytest.mark.parametrize(
    "changes",
    [{"size": 24}, {"size": 160}, {"value_size": 24}, {"value_size": 160}, {"keys": 9},
     {"queries": 1}, {"queries": 7}],
)  # fmt: skip
def test_other_sizes_stay_as_they_were(changes: dict[str, int]) -> None:
    assert list_groups(dataclasses.replace(LARGE, **changes, batch=64).make()) == []


def test_a_gpu_takes_as_many_rows_as_keep_it_busy() -> None:
    budget = make_budget(GPU, find_dialect("hlsl").limits)
    few, many = Attention(64, 64, heads=255), Attention(64, 64, heads=256)
    for attention, count in ((few, 0), (many, 1)):
        groups = fuse(rewrite(attention.make(), 0), 0, budget).groups
        assert sum(group.online is not None for group in groups) == count


@pytest.mark.parametrize("mask", MASKS)
def test_the_order_written_out_computes_the_same(mask: str) -> None:
    """And is what bounds are of: rows of which all scores are negative infinities included."""
    attention = Attention(17, 33, 32, 32, batch=2, mask=mask)
    function, inputs = attention.make(), attention.fill()
    factored = take_out_factors(simplify(function))
    written = write_online(factored)
    assert written is not None
    ir.verify(written)
    wanted, found = evaluate(function, inputs)["O"], evaluate(written, inputs)["O"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
    allowed = bound_errors(function, inputs)["O"]
    online = bound_errors(written, inputs)["O"]
    kept = np.isfinite(wanted)
    assert (allowed >= 0)[kept].all()
    assert (allowed >= 0.99 * online)[kept].all()
    assert np.isfinite(allowed[kept]).all()


def test_a_gpu_takes_rows_that_share_their_keys() -> None:
    budget = make_budget(GPU, find_dialect("hlsl").limits)
    for queries, count in ((63, 0), (64, 1)):
        groups = fuse(rewrite(Attention(queries, 64, heads=512).make(), 0), 0, budget).groups
        assert sum(group.online is not None for group in groups) == count
