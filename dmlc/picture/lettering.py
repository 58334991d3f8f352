"""Text in pictures: how wide it is at most, wrapped to a width, and numbers of bytes.

A picture names common fonts and carries none, so widths are those of a wide one, DejaVu Sans: with
any other, text is narrower than the room left for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_SANS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84,
)  # fmt: skip
"""The advance widths of the printable ASCII characters, in hundredths of the font size."""

TIMES = "\N{MULTIPLICATION SIGN}"

_BOLD = 1.11
_MONOSPACED = 0.602
_OTHER = 1.0
"""The width of any other character, over the font size."""


def measure(text: str, size: float, *, bold: bool = False, code: bool = False) -> float:
    """The width of a text, at most, in the unit of the font size; `code` is in a font whose
    characters are equally wide."""
    if code:
        return len(text) * _MONOSPACED * size
    total = math.fsum(_SANS[ord(c) - 32] / 100 if " " <= c <= "~" else _OTHER for c in text)
    return total * size * (_BOLD if bold else 1.0)


def wrap(text: str, width: int, lines: int | None = None) -> list[str]:
    """A text in lines of at most `width` characters, broken at spaces where there are any; after
    so many `lines` the rest is left out, which an ellipsis shows."""
    found: list[str] = [""]
    for word in text.split():
        room = width - len(found[-1])
        if found[-1] and len(word) + 1 <= room:
            found[-1] += f" {word}"
            continue
        if found[-1]:
            found.append("")
        while len(word) > width:
            found[-1] = word[:width]
            word = word[width:]
            found.append("")
        found[-1] = word
    if lines is not None and len(found) > lines:
        found = found[:lines]
        found[-1] = f"{found[-1][: width - 2]} …"
    return found


def wrap_to(text: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """A text in lines that are no wider than `room`, in the unit of the font size."""
    lines = [text]
    longest = max(int(room / (0.45 * size)), 1)
    while any(measure(line, size, bold=bold) > room for line in lines) and longest > 1:
        lines = wrap(text, longest)
        longest -= 1
    return lines


def wrap_name(name: str, width: int) -> list[str]:
    """A name in lines of at most `width` characters, broken before an underscore or a dot where
    one is near the end, and elsewhere where none is. Nothing of it is left out."""
    lines: list[str] = []
    while len(name) > width:
        place = max(name.rfind(mark, width // 2, width + 1) for mark in "_. ,/")
        place = place if place > 0 else width
        lines.append(name[:place])
        name = name[place:]
    return [*lines, name]


def wrap_evenly(text: str, width: int, lines: int | None = None) -> list[str]:
    """As `wrap`, but narrower where that leaves no short line at the end."""
    found = wrap(text, width, lines)
    for narrower in range(width - 1, width // 2, -1):
        tried = wrap(text, narrower)
        if len(tried) > len(found) or 2 * len(found[-1]) >= max(map(len, found)):
            break
        found = tried
    return found


_UNITS = ("KB", "MB", "GB", "TB", "PB")


def show_bytes(count: int | None) -> str:
    """A number of bytes for people, in powers of 1000: `25.7 MB`."""
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
    """The sizes of a tensor: `32x64x56x56`, with multiplication signs."""
    return TIMES.join(str(size) for size in sizes) if sizes else "one"
