"""The operators of ONNX that have a rule, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.onnx import (
    casts,
    elementwise,
    indexing,
    products,
    recurrent,
    reductions,
    resampling,
    shapes,
    windows,
)
from dmlc.onnx.nodes import Rule

MODULES = (
    elementwise, casts, reductions, products, windows, resampling, indexing, recurrent, shapes,
)  # fmt: skip

RULES: Mapping[tuple[str, str], Rule] = {
    ("", op_type): rule for module in MODULES for op_type, rule in module.RULES.items()
} | {("ai.onnx.ml", op_type): rule for op_type, rule in indexing.MACHINE_LEARNING.items()}
"""What has none is taken apart where ONNX defines it by other operators."""
