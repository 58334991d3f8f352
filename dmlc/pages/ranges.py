"""Numeric facts of pages: bounds, ranges and defaults."""

from __future__ import annotations

import re

from dmlc.pages.draft import Attribute, Draft
from dmlc.pages.formulas import NameMap, translate

_WORDS = {
    "greater than or equal to": ">=", "greater than": ">", "at least": ">=", "at most": "<=",
    "larger than or equal to": ">=", "larger than": ">",
    "less than or equal to": "<=", "less than": "<", "positive": "> 0", "non-negative": ">= 0",
}  # fmt: skip
_NOT = {">=": "<", ">": "<=", "<": ">=", "<=": ">"}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def of_each(attribute: Attribute, comparison: str) -> str:
    """Comparison of a number, or of each entry of an array."""
    text = f"{attribute.name} {comparison}"
    return f"all({text})" if attribute.is_array else text


def read_bound(
    draft: Draft, attribute: Attribute, word: str, bound: str, allowed: bool = True
) -> str | None:
    """Condition `greater than 0`, or its negation unless `allowed`."""
    operator = _WORDS[word]
    if not bound:
        return of_each(attribute, operator) if operator.endswith("0") and allowed else None
    operator = operator if allowed else _NOT[operator]
    # `the DimensionCount of the InputTensor`
    bound = re.sub(r"^(DimensionCount) of (?:the )?(\w+)$", r"\2.\1", bound)
    value = translate(bound, NameMap(draft))
    return None if value is None else of_each(attribute, f"{operator} {value}")


def read_range(
    draft: Draft, attribute: Attribute, low: str, high: str, end: str = "]"
) -> str | None:
    """Condition for `[0, InputTensor.DimensionCount - 1]`, or `[0, InputTensor.DimensionCount)`."""
    bounds = [translate(text, NameMap(draft)) for text in (low, high)]
    if bounds[0] is None or bounds[1] is None:
        return None
    both = [
        of_each(attribute, f">= {bounds[0]}"),
        of_each(attribute, f"{'<' if end == ')' else '<='} {bounds[1]}"),
    ]
    if bounds[0] == "0" and attribute.type.startswith("UINT"):
        del both[0]
    return " && ".join(both)


def find_default(attribute: Attribute, text: str) -> str | None:
    """Default in the language's form."""
    bare = text.rstrip(".,f") if re.match(r"-?\d", text) else text.rstrip(".,")
    if attribute.is_array and bare != "none":
        return None
    base = attribute.type.partition("[")[0]
    if base == "BOOL":
        return bare.lower() if bare.lower() in ("true", "false") else None
    if base in ("FLOAT", "INT", "UINT", "NUMBER"):
        whole = base in ("INT", "UINT") and not re.fullmatch(r"-?\d+", bare)
        return bare if _NUMBER.fullmatch(bare) and not whole else None
    if base.startswith("DML_") and bare.startswith(base + "_"):
        return bare.removeprefix(base + "_")
    return None
