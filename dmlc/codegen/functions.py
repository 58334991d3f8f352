"""The functions of an output language that are text: a file of `templates/` for each language.

Each stands below a line `//// name`, or `//// name name` where they differ in their names alone.
Kernels use a function by its key, which is its name without placeholders; where a function of that
key is written for one type or one number of lanes alone, that one is taken. The placeholders are

    $T  the type it works on        $L  its number of lanes, empty for one     $H  its own name
    $U  the unsigned integer and    $X  the same as the end of a name: _x8     $K  its own key
    $I  the signed one as wide      $S  what the buffer holds
    $W  the integer of 32 bits      $B  the unsigned integer as wide as that
    $V  the unsigned one that has its values without their signs: of 32 bits at least
    $R  the type of a conversion's result, $LEAST and $MOST its bounds, and $LOW and $HIGH floats of
        type $T: the largest that is no more than the least, and the smallest that is more than all

and, in small letters, the keys of other functions of the file, for their names.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.resources import read_resource

_SECTION = re.compile(r"^//// (.*)\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"_?\$\{?[A-Z]\}?_?")


@dataclasses.dataclass(frozen=True, slots=True)
class Helper:
    """Helper function, generated where it is used."""

    key: str
    name: string.Template
    text: string.Template
    needs: tuple[str, ...]
    """Keys of the functions it calls, which are written before it."""


def read_helpers(file: str) -> Mapping[str, Helper]:
    """Functions of a file in `templates/`, by their keys."""
    _, *parts = _SECTION.split(read_resource(f"templates/{file}"))
    helpers: dict[str, Helper] = {}
    for names, body in zip(parts[::2], parts[1::2], strict=True):
        text = string.Template(body.strip())
        needs = tuple(n for n in text.get_identifiers() if not n.isupper())
        for name in names.split():
            key = _PLACEHOLDER.sub("", name)
            helpers[key] = Helper(key, string.Template(name), text, needs)
    return MappingProxyType(helpers)


def match_names(helpers: Mapping[str, Helper], types: str) -> str:
    """Pattern of every name that the functions may get; `types` matches the name of a type."""
    parts = {"T": rf"({types})\d*", "R": f"({types})", "X": r"(_x\d+)?"}
    return "|".join(helper.name.substitute(parts) for helper in helpers.values())
