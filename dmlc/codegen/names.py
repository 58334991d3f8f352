"""Names in generated sources: safe, unique, and as near to the user's as the language allows."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

_LONGEST = 64


@functools.lru_cache(4096)
def make_identifier(name: str) -> str:
    """A name of letters, digits and single underscores that starts with a letter, at most 64
    characters long. Names that are such already stay as they are."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    plain = re.sub(r"__+", "_", plain)
    if not plain or not plain[0].isalpha():
        plain = f"t{plain}"
    return plain[:_LONGEST]


def make_file_stem(name: str) -> str:
    """A file name, without suffix, that is a plain identifier: no path can hide in it."""
    return make_identifier(name)


def free_name(name: str, reserved: Callable[[str], bool]) -> str:
    """The name itself, or one that ends in an underscore where the language keeps it; where a
    whole family of names is kept, one that begins differently."""
    if not reserved(name):
        return name
    return f"t_{name}" if reserved(f"{name}_") else f"{name}_"


class Mangler:
    """Gives each name of a kernel a spelling that the language accepts, unique in the file."""

    def __init__(self, reserved: Callable[[str], bool]) -> None:
        self._reserved = reserved
        self._spellings: dict[str, str] = {}
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """Reserves a spelling for something the file defines itself, as it stands."""
        self._taken.add(name)
        return name

    def spell(self, name: str) -> str:
        """The spelling of a name: the same each time it is asked for."""
        if name not in self._spellings:
            self._spellings[name] = self.make(name)
        return self._spellings[name]

    def make(self, name: str) -> str:
        """A new spelling, as near to the name as those given out leave free."""
        wanted = spelling = free_name(make_identifier(name), self._reserved)
        number = 1
        while spelling in self._taken:
            number += 1
            spelling = free_name(f"{wanted.rstrip('_')}_{number}", self._reserved)
        self._taken.add(spelling)
        return spelling


def make_comment(text: str) -> str:
    """Text that is safe behind `//`: one line of printable ASCII that neither ends in a backslash
    nor holds a trigraph for one."""
    return re.sub(r"[^ -~]|\\", "_", text).replace("??", "_").rstrip()


def wrap_comment(text: str, width: int = 94) -> list[str]:
    """Lines of a comment no longer than `width`, where spaces allow: broken after the first third,
    outside as many brackets as can be."""
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
