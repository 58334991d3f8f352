"""Names by a part of them, or by a pattern."""

from __future__ import annotations

import fnmatch


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a name has a pattern as a part, or is all of it where that has '*' or '?' in it;
    case does not matter."""
    folded = pattern.lower()
    whole = folded if any(c in folded for c in "*?[") else f"*{folded}*"
    return fnmatch.fnmatchcase(name.lower(), whole)
