"""Names in generated sources: safe, unique, and as close to the user's as the language permits."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

_LONGEST = 64
NAMES_KEPT = 1 << 14
"""Names whose spelling is remembered: most kernels have the same."""


@functools.lru_cache(NAMES_KEPT)
def make_identifier(name: str) -> str:
    """Name of letters, digits and single underscores that starts with a letter, at most 64
    characters long. A name of that form is unchanged."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    plain = re.sub(r"__+", "_", plain)
    if not plain or not plain[0].isalpha():
        plain = f"t{plain}"
    return plain[:_LONGEST]


def make_file_stem(name: str) -> str:
    """File name, without suffix, that is a plain identifier and so contains no path."""
    return make_identifier(name)


def free_name(name: str, reserved: Callable[[str], bool]) -> str:
    """Name itself, or with an underscore appended if it is reserved; if a whole prefix is reserved,
    a name with another one."""
    if not reserved(name):
        return name
    return f"t_{name}" if reserved(f"{name}_") else f"{name}_"


class Mangler:
    """Map from names of a kernel to spellings that the language accepts, unique in the file."""

    def __init__(self, reserved: Callable[[str], bool]) -> None:
        self._reserved = reserved
        self._spellings: dict[str, str] = {}
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """Reserves a spelling, unchanged, for a definition of the file."""
        self._taken.add(name)
        return name

    def spell(self, name: str) -> str:
        """Spelling of a name, always the same."""
        if name not in self._spellings:
            self._spellings[name] = self.make(name)
        return self._spellings[name]

    def make(self, name: str) -> str:
        """New spelling, as close to the name as the used ones permit."""
        wanted = spelling = free_name(make_identifier(name), self._reserved)
        number = 1
        while spelling in self._taken:
            number += 1
            spelling = free_name(f"{wanted.rstrip('_')}_{number}", self._reserved)
        self._taken.add(spelling)
        return spelling


def make_comment(text: str) -> str:
    """Text that is safe after `//`: one line of printable ASCII that neither ends in a backslash
    nor contains a trigraph for one."""
    return re.sub(r"[^ -~]|\\", "_", text).replace("??", "_").rstrip()


def wrap_comment(text: str, width: int = 94) -> list[str]:
    """Lines of a comment of at most `width` characters if spaces permit: broken after the first
    third, inside as few brackets as possible."""
    lines: list[str] = []
    rest, indent = text, ""
    while len(indent) + len(rest) > width:
        room = width - len(indent)
        spaces: list[tuple[int, int]] = []
        depth = 0
        for place, character in enumerate(rest):
            if place > room and spaces:
                break
            depth += (character in "([") - (character in ")]")
            if character == " ":
                spaces.append((depth, place))
        late = [space for space in spaces if space[1] > room // 3] or spaces
        if not late:
            break
        _, place = min(late, key=lambda space: (space[0], -space[1]))
        lines.append(indent + rest[:place])
        rest, indent = rest[place + 1 :], "    "
    return [*lines, indent + rest]
