"""Unique names for the stages and tables that passes make."""

from __future__ import annotations


def take_name(wanted: str, taken: dict[str, None]) -> str:
    """Returns `wanted`, with a numeric suffix if it is taken, and adds it to `taken`."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken[name] = None
    return name
