"""Name patterns."""

from __future__ import annotations

import fnmatch


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a name contains a pattern, or matches it as a whole if it has '*' or '?'; case does
    not matter."""
    folded = pattern.lower()
    whole = folded if any(c in folded for c in "*?[") else f"*{folded}*"
    return fnmatch.fnmatchcase(name.lower(), whole)
