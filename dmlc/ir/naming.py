"""Names for the stages and tables that are made on the way."""

from __future__ import annotations


def take_name(wanted: str, taken: dict[str, None]) -> str:
    """A name like the one wanted that is not taken yet; it is from here on."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken[name] = None
    return name
