"""Built-in operators: data, one `.dml` file each, in a folder per family: DirectML's, oneDNN's, and
those of training that users of both need.

A file is named after its operator; files that start with a lower-case letter or an underscore have
declarations that others import. Listing the names reads no file.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from dmlc import summaries
from dmlc.language.check import check_file
from dmlc.language.definitions import Library, ModuleDefinition, OperatorDefinition
from dmlc.library.equivalents import suggest_operators
from dmlc.source import UnknownNameError, unknown_name


@functools.cache
def _files() -> dict[str, Path]:
    return summaries.list_files()


def names() -> tuple[str, ...]:
    """Qualified names of the built-in operators, sorted: `directml.ACTIVATION_RELU`."""
    return tuple(_files())


@functools.cache
def find(name: str) -> ModuleDefinition:
    """Definitions of a built-in operator's file. Raises `UnknownNameError`."""
    path = _files().get(name)
    if path is None:
        cure = suggest_operators(name)
        raise UnknownNameError(unknown_name("operator", name, _files(), code="E0202", cure=cure))
    return check_file(path, folders=[summaries.FOLDER])


def find_gradients(name: str) -> tuple[str, ...]:
    """Built-in operators that name this one as their `forward` operator. Reads only the files that
    mention it so."""
    short = re.escape(name.rpartition(".")[2])
    mention = re.compile(rf"^\s*forward\s+(\w+\.)?{short}\s*(\{{|$)", re.M)
    mentioning = (own for own, path in _files().items() if mention.search(path.read_text("utf-8")))
    return tuple(own for own in mentioning if find(own).operators[own].forward == name)


class _BuiltIn:
    def names(self) -> tuple[str, ...]:
        return names()

    def find(self, name: str) -> OperatorDefinition | None:
        return find(name).operators[name] if name in _files() else None


BUILT_IN: Library = _BuiltIn()
"""Built-in operators as a library for graphs."""
