"""Table of the operators of ONNX that have a rule, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from dmlc.onnx.importing import (
    casts,
    contributed,
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

_KINDS: Mapping[str, Mapping[str, Rule]] = {
    "element by element": elementwise.RULES,
    "types and quantisation": casts.RULES,
    "along axes": reductions.RULES,
    "products": products.RULES,
    "windows": windows.RULES,
    "between elements": resampling.RULES,
    "at places that tensors say": indexing.RULES,
    "step by step": recurrent.RULES,
    "shapes": shapes.RULES,
}

UNROLLED = ("If", "Loop", "Scan")
"""The operators with graphs of their own."""

RULES: Mapping[tuple[str, str], Rule] = {
    (domain, op_type): rule
    for domain, known in (
        *(("", rules) for rules in _KINDS.values()),
        ("ai.onnx.ml", indexing.MACHINE_LEARNING),
        (contributed.DOMAIN, contributed.RULES),
    )
    for op_type, rule in known.items()
}
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


def list_operators() -> dict[str, list[str]]:
    """Imported operators, by kind. The last kinds have no rule of their own."""
    found = {kind: sorted(rules) for kind, rules in _KINDS.items()}
    found["of ai.onnx.ml"] = sorted(indexing.MACHINE_LEARNING)
    found[f"of {contributed.DOMAIN}"] = sorted((*contributed.RULES, *contributed.list_functions()))
    found["with graphs of their own"] = list(UNROLLED)
    schemas: Sequence[Any] = onnx.defs.get_all_schemas()
    taken_apart = [
        schema.name
        for schema in schemas
        if (schema.has_function or schema.has_context_dependent_function)
        and (schema.domain, schema.name) not in RULES
        and schema.name not in REFUSED
    ]
    found["taken apart, as ONNX defines them"] = sorted(dict.fromkeys(taken_apart))
    return found
