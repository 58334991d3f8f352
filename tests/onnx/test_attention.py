"""Attention of ONNX, which is taken apart as ONNX defines it, is computed online like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlc.onnx
from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from tests.attention import ONLINE
from tests.kernel.test_online import hold

QUERIES, KEYS = 17, 33
FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (0, {}),
    "causal": (0, {"is_causal": 1}),
    "soft cap": (0, {"softcap": 2.0}),
    "a mask that is added": (FLOAT, {}),
    "a mask that chooses": (BOOL, {}),
    "heads inside the sequence": (0, {"q_num_heads": 2, "kv_num_heads": 2}),
}
"""The type of the mask, and the attributes."""


def load(mask: int, attributes: dict[str, Any]) -> ir.Function:
    def lay(length: int, heads: int) -> tuple[int, ...]:
        own = attributes.get(f"{'kv' if heads else 'q'}_num_heads")
        return (1, length, 32 * own) if own else (1, 2, length, 32)

    sizes = {"Q": lay(QUERIES, 0), "K": lay(KEYS, 1), "V": lay(KEYS, 1)}
    given = [helper.make_tensor_value_info(name, FLOAT, own) for name, own in sizes.items()]
    if mask:
        given.append(helper.make_tensor_value_info("M", mask, (QUERIES, KEYS)))
    node = helper.make_node("Attention", [g.name for g in given], ["Y"], **attributes)
    results = [helper.make_tensor_value_info("Y", FLOAT, None)]
    graph = helper.make_graph([node], "attention", given, results)
    opset = [helper.make_opsetid("", 23)]
    return dmlc.onnx.load(helper.make_model(graph, opset_imports=opset, ir_version=10)).function


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_attention_stores_no_scores(name: str, profile: str) -> None:
    function = load(*CASES[name])
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        sizes = [int(e) for e in p.extents]
        drawn = random.standard_normal(sizes) if p.dtype.is_float else random.integers(0, 2, sizes)
        inputs[p.name] = drawn.astype(p.dtype.dtype)
    if "M" in inputs:
        inputs["M"][3] = 0 if inputs["M"].dtype == np.bool_ else -np.inf
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    scores = {s.name for s in fused.stages if "QKAttnWeight" in s.name}
    assert scores.isdisjoint(b.name for kernel in kernels for b in kernel.buffers)
    if "M" in inputs:
        assert not evaluate(function, inputs)["Y"][0, :, 3].any()
    hold(function, inputs, run_kernels(fused, kernels, inputs, misaligned=1))
