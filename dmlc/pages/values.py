"""Facts of oneDNN Graph's tables of attributes: types, values, defaults and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dmlc.pages.blocks import code_spans, words
from dmlc.pages.draft import Attribute, Draft
from dmlc.pages.ranges import of_each

TYPES = {"f32": "FLOAT", "s64": "INT", "bool": "BOOL", "string": "STRING", "s32": "INT",
         "float": "FLOAT", "int64": "INT", "boolean": "BOOL"}  # fmt: skip
_DEFAULTS = (
    re.compile(r"([\w.+-]+) *\((?:in |by )?default\)", re.IGNORECASE),
    re.compile(r"([\w.+-]+) +(?:is|by|in) +default\b", re.IGNORECASE),
    re.compile(r"\bdefault(?:s to| is|:)? +([\w.+-]+)", re.IGNORECASE),
)
_PLAIN = re.compile(
    r"(?:arbitrary|an?|any|valid|positive|non-negative|value|values|list|containing|float|f32|s64"
    r"|s32|true|false|none|is|by|in|default|of|the|range|where|only|contain|one|element|integer"
    r"|1d|tensor|with|boolean|which|empty|rank|src|dst|r|and|or|string|greater|than|equal|to)",
    re.IGNORECASE,
)
_SINGLE = re.compile(r"\bonly contain one element if (\w+) is (\w+)")
_RANKED = re.compile(r"\[ *-r *, *r *- *1 *\],? *where +r *= *rank\((\w+)\)")


def read_attribute(draft: Draft, made: Attribute, cell: str, needed: bool) -> Iterator[str]:
    """Completes an attribute from its cell of values, and yields the text that was not
    understood."""
    text = words(cell).strip(" -")
    base = TYPES[made.type]
    made.type = f"{base}[]" if re.search(r"\blist\b|\bvector\b", text) else base
    default = next((m[1] for p in _DEFAULTS if (m := p.search(text))), None)
    if base == "STRING":
        yield from _read_strings(made, cell, text, default)
    elif base == "BOOL":
        known = default is not None and default.lower() in ("true", "false")
        made.default = default.lower() if known and default is not None else None
        made.values = text.lower() if re.fullmatch(_BOOLEANS, text.lower()) else None
    else:
        yield from _read_numbers(draft, made, text, default)
    if not needed and made.default is None:
        if made.is_array:
            made.default = _find_filled(draft, text)
            if made.default == "[]" and "empty" not in text.lower():
                draft.note(f"{made.name} is optional; [] stands for the page's default.")
        else:
            draft.note(f"{made.name} is optional; the page has no default for it.")


_BOOLEANS = r"(?:true|false)(?: \(default\))?, ?(?:true|false)(?: \(default\))?"


def _find_filled(draft: Draft, text: str) -> str:
    """Default of an array described as `all zeros by default`, or `a list of 1s (default)`: as long
    as the first array before it. None of these is empty."""
    match = re.search(r"\b(?:all |list of )(zeros|0s|ones|1s)\b.*\bdefault\b", text)
    known = next((a.name for a in draft.attributes if a.is_array and a.default is None), None)
    if match is None or known is None:
        return "[]"
    return f"{known} * 0" if match[1] in ("zeros", "0s") else f"{known} * 0 + 1"


def _read_strings(made: Attribute, cell: str, text: str, default: str | None) -> Iterator[str]:
    values = [s for s in code_spans(cell) if re.fullmatch(r"\w[\w.-]*", s)]
    if not values:
        bare = re.sub(r"\([^()]*\)", "", text)
        values = [v for p in bare.split(",") if re.fullmatch(r"\w[\w.-]*", v := p.strip())]
    if not values:
        yield f"the values '{text}'"
        values = ["none"]
    marked = (f"`{v}` (default)" if v == default else f"`{v}`" for v in dict.fromkeys(values))
    made.values = ", ".join(marked)
    made.default = f'"{default}"' if default in values else None


def _read_numbers(draft: Draft, made: Attribute, text: str, default: str | None) -> Iterator[str]:
    whole = made.type.startswith("INT")
    pattern = r"-?\d+" if whole else r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    if default is not None and re.fullmatch(r"-?\d+(?:\.\d*)?f", default):
        default = re.sub(r"\.$", ".0", default.rstrip("f"))
    if default is not None and not made.is_array and re.fullmatch(pattern, default):
        made.default = default
    if default == "none" and made.is_array:
        made.default = "[]"
    comparison = next(
        (c for word, c in (("non-negative", ">= 0"), ("positive", "> 0")) if word in text.lower()),
        None,
    )
    if comparison is not None:
        draft.require(of_each(made, comparison), f"{made.name}: {text}", made.lines)
    ranked = _RANKED.search(text)
    of = None if ranked is None else draft.tensor(ranked[1])
    if ranked is not None and of is not None:
        first = "[0]" if of.kind.startswith("Array") else ""
        rank = f"{ranked[1]}{first}.DimensionCount"
        axis = f"{of_each(made, f'>= -{rank}')} && {of_each(made, f'< {rank}')}"
        draft.require(axis, f"{made.name}: {text}", made.lines)
    single = _SINGLE.search(text)
    if single is not None and draft.attribute(single[1]) is not None:
        text_of = f'{single[1]} != "{single[2]}" || length({made.name}) == 1'
        draft.require(text_of, f"{made.name}: {text}", made.lines)
    elif single is not None:
        yield f"the values '{text}'"
    rest = text if ranked is None else text.replace(ranked[0], "")
    told = re.findall(r"(?<![\w.])[A-Za-z][\w-]*", re.sub(r"\([^()]*\)", " ", rest))
    if not all(map(_PLAIN.fullmatch, told)):
        yield f"the values '{text}'"
