"""The operators of ONNX that have a rule, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.onnx.importing import (
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
from dmlc.onnx.importing.nodes import Rule

MODULES = (
    elementwise, casts, reductions, products, windows, resampling, indexing, recurrent, shapes,
)  # fmt: skip

RULES: Mapping[tuple[str, str], Rule] = {
    ("", op_type): rule for module in MODULES for op_type, rule in module.RULES.items()
} | {("ai.onnx.ml", op_type): rule for op_type, rule in indexing.MACHINE_LEARNING.items()}
"""What has none is taken apart where ONNX defines it by other operators."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
         "RandomUniformLike"), "it draws random numbers"),
    **dict.fromkeys(
        ("Compress", "NonMaxSuppression", "NonZero", "Unique"),
        "the size of its result depends on values"),
    **dict.fromkeys(
        ("ConcatFromSequence", "SequenceAt", "SequenceConstruct",
         "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
         "SplitToSequence"), "it is of sequences of tensors"),
    **dict.fromkeys(
        ("LabelEncoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit",
         "TfIdfVectorizer"), "it is of texts"),
    "ImageDecoder": "it decodes images",
}  # fmt: skip
"""Operators that neither have a rule nor are taken apart, and why."""
