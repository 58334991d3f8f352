"""Checks of the types of callers' arguments, with error messages.

They check types only (a text, a mapping from texts, a path); the function that takes a value checks
its meaning.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from dmlc.source import ArgumentError

T = TypeVar("T")

_SHOWN = 60
"""Largest number of characters of a value in a message."""


def wrong_kind(
    parameter: str, expected: str, given: object, notes: Sequence[str] = ()
) -> ArgumentError:
    """Error about a value of the wrong type: `target must be a text, not 5`."""
    return ArgumentError(f"{parameter} must be {expected}, not {show_kind(given)}", None, notes)


def show_kind(given: object) -> str:
    """Value in a message: itself if it is plain and short, else its type."""
    if given is None or isinstance(given, bool | int | float | str):
        text = repr(given)
        return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    if isinstance(given, type):
        return f"the type {given.__name__}"
    name = type(given).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def expect(
    parameter: str,
    given: object,
    kinds: type[T] | tuple[type[T], ...],
    expected: str,
    notes: Sequence[str] = (),
) -> T:
    """Value of one of some classes. Raises `ArgumentError` for any other, as all below do."""
    if isinstance(given, kinds):
        return given
    raise wrong_kind(parameter, expected, given, notes)


def expect_text(parameter: str, given: object, expected: str = "a text") -> str:
    return expect(parameter, given, str, expected)


def expect_flag(parameter: str, given: object) -> bool:
    return expect(parameter, given, bool, "True or False")


def expect_integer(parameter: str, given: object, expected: str = "a whole number") -> int:
    """Integer of anything that represents one, such as NumPy's; no boolean."""
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(cast(int, given))
    except TypeError:
        raise wrong_kind(parameter, expected, given) from None


def expect_path(parameter: str, given: object) -> Path:
    if isinstance(given, str | os.PathLike):
        path = os.fspath(cast("str | os.PathLike[str] | os.PathLike[bytes]", given))
        if isinstance(path, str):
            return Path(path)
    raise wrong_kind(parameter, "a path: a text or a pathlib.Path", cast("object", given))


def expect_folders(parameter: str, given: object) -> list[Path]:
    items = expect_items(parameter, given, "a list of folders")
    return [expect_path(f"a folder of {parameter}", item) for item in items]


def expect_items(parameter: str, given: object, expected: str) -> Iterable[object]:
    """Iterable with a defined order: no text, no mapping, no set."""
    if isinstance(given, Iterable) and not isinstance(
        given, str | bytes | bytearray | Mapping | set | frozenset
    ):
        items = cast("Iterable[object]", given)
        try:
            iter(items)
        except TypeError:
            # An array of no dimensions has the method, and nothing to give.
            pass
        else:
            return items
    raise wrong_kind(parameter, expected, cast("object", given))


def expect_mapping(
    parameter: str, given: object, expected: str, notes: Sequence[str] = ()
) -> Mapping[str, object]:
    """Mapping whose keys are texts."""
    if not isinstance(given, Mapping):
        raise wrong_kind(parameter, expected, given, notes)
    for name in cast("Mapping[object, object]", given):
        if not isinstance(name, str):
            raise wrong_kind(f"each name in {parameter}", "a text", name)
    return cast("Mapping[str, object]", given)
