"""Text in pictures: upper bounds on widths, wrapping, and numbers of bytes.

A picture names common fonts and contains none, so widths are those of a wide one, DejaVu Sans: with
any other, text is narrower than its room.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

_SANS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84,
)  # fmt: skip
"""Advance widths of the printable ASCII characters, in hundredths of the font size."""

TIMES = "\N{MULTIPLICATION SIGN}"

_BOLD = 1.11
_MONOSPACED = 0.602
_OTHER = 1.0
"""Width of any other character, relative to the font size."""


def measure(text: str, size: float, *, bold: bool = False, code: bool = False) -> float:
    """Upper bound on the width of a text, in the unit of the font size; `code` is in a monospaced
    font."""
    if code:
        return len(text) * _MONOSPACED * size
    total = math.fsum(_SANS[ord(c) - 32] / 100 if " " <= c <= "~" else _OTHER for c in text)
    return total * size * (_BOLD if bold else 1.0)


def wrap(text: str, width: int) -> list[str]:
    """Text in lines of at most `width` characters, broken at spaces if possible."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def wrap_to(text: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """Text in lines no wider than `room`, in the unit of the font size."""
    lines = [text]
    longest = max(int(room / (0.45 * size)), 1)
    while any(measure(line, size, bold=bold) > room for line in lines) and longest > 1:
        lines = wrap(text, longest)
        longest -= 1
    return lines


def wrap_name(name: str, width: int) -> list[str]:
    """Name in lines of at most `width` characters, broken before an underscore or a dot near the
    end, or else anywhere. Nothing is left out."""
    lines: list[str] = []
    while len(name) > width:
        place = max(name.rfind(mark, width // 2, width + 1) for mark in "_. ,/")
        place = place if place > 0 else width
        lines.append(name[:place])
        name = name[place:]
    return [*lines, name]


def wrap_evenly(text: str, width: int) -> list[str]:
    """Lines as by `wrap`, but narrower where that avoids a short last line."""
    found = wrap(text, width)
    for narrower in range(width - 1, width // 2, -1):
        tried = wrap(text, narrower)
        if len(tried) > len(found) or 2 * len(found[-1]) >= max(map(len, found)):
            break
        found = tried
    return found


_UNITS = ("KB", "MB", "GB", "TB", "PB")


def show_bytes(count: int | None) -> str:
    """Number of bytes for people, in powers of 1000: `25.7 MB`."""
    if count is None:
        return "unknown bytes"
    if count < 1000:
        return f"{count} B"
    value, units = count / 1000, iter(_UNITS)
    unit = next(units)
    while value >= 999.5 and unit != _UNITS[-1]:
        value, unit = value / 1000, next(units)
    digits = 0 if value >= 99.95 else 1
    return f"{value:.{digits}f} {unit}"


def show_sizes(sizes: Sequence[int | str]) -> str:
    """Sizes of a tensor: `32x64x56x56`, with multiplication signs."""
    return TIMES.join(str(size) for size in sizes) if sizes else "one"
