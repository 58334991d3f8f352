"""Operators by name: the built-in library, and files and texts of one's own.

Knows nothing of devices, so that compiling loads none of what runs.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterator, Mapping

from dmlc import library
from dmlc.binding import Module, Operator
from dmlc.collection import rare_searches
from dmlc.language.check import check_file, check_text

__all__ = ["load", "operator", "operators", "parse"]


class _Library(Mapping[str, Operator]):
    """The built-in operators by qualified name; each is read when it is first asked for."""

    def __getitem__(self, name: str) -> Operator:
        return _built_in(name)

    def __iter__(self) -> Iterator[str]:
        return iter(library.names())

    def __len__(self) -> int:
        return len(library.names())

    def __repr__(self) -> str:
        return f"<{len(self)} operators: {', '.join(self)}>"


_LIBRARY = _Library()


@functools.cache
def _built_in(name: str) -> Operator:
    return Operator(library.find(name).operators[name])


def operators() -> Mapping[str, Operator]:
    """The built-in operators by qualified name, such as `directml.ACTIVATION_RELU_GRAD`."""
    return _LIBRARY


def operator(name: str) -> Operator:
    """The built-in operator of that qualified name.

    Raises `UnknownNameError`, a `KeyError`, with the nearest name where there is none.
    """
    return _built_in(name)


@rare_searches()
def load(path: str | os.PathLike[str]) -> Module:
    """The operators and graphs of a `.dml` file. Raises `DmlcError` with every mistake in it."""
    return Module.of(check_file(pathlib.Path(path), library.BUILT_IN))


@rare_searches()
def parse(text: str, filename: str = "<text>") -> Module:
    """The operators and graphs of a `.dml` text; `filename` is what messages call it, and where
    its imports are relative to."""
    return Module.of(check_text(text, filename, library.BUILT_IN))
