"""Operators by name: the built-in library, and your own files and texts.

The module knows no devices, so that compiling loads no runtime.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence

from dmlc import library
from dmlc.binding import Graph, Module, Operator
from dmlc.binding.operator import Description
from dmlc.collection import throttle_garbage_collection
from dmlc.ir import Function
from dmlc.language.check import check_file, check_text
from dmlc.parameters import expect_folders, expect_path, expect_text, wrong_kind
from dmlc.source import DmlcError, Note, UnknownNameError, unknown_name
from dmlc.transform.simplify import drop_marks

__all__ = ["find_function", "load", "operator", "operators", "parse"]


class _Library(Mapping[str, Operator]):
    """Built-in operators by qualified name; each file is read at its first use."""

    def __getitem__(self, name: str) -> Operator:
        return _built_in(_as_key(name))

    def __iter__(self) -> Iterator[str]:
        return iter(library.names())

    def __len__(self) -> int:
        return len(library.names())

    def __repr__(self) -> str:
        return f"<{len(self)} operators: {', '.join(self)}>"


_LIBRARY = _Library()


def _as_key(name: object) -> str:
    """Name, if it is a text: a mapping has no entry for anything else."""
    if isinstance(name, str):
        return name
    raise UnknownNameError(unknown_name("operator", str(name), library.names(), code="E0202"))


@functools.cache
def _built_in(name: str) -> Operator:
    return Operator(library.find(name).operators[name])


def operators() -> Mapping[str, Operator]:
    """Built-in operators by qualified name, such as `directml.ACTIVATION_RELU_GRAD`."""
    return _LIBRARY


def operator(name: str) -> Operator:
    """Built-in operator of that qualified name. Raises `UnknownNameError`, a `KeyError`, with the
    nearest name, for an unknown one."""
    return _built_in(expect_text("name", name, "the name of an operator"))


@throttle_garbage_collection()
def load(
    path: str | os.PathLike[str], import_folders: Sequence[str | os.PathLike[str]] = ()
) -> Module:
    """Operators and graphs of a `.dml` file. Raises `DmlcError` with every error in it. Its imports
    must lie below its own folder, or below `import_folders`."""
    folders = expect_folders("import_folders", import_folders)
    return Module.of(check_file(expect_path("path", path), library.BUILT_IN, folders))


@throttle_garbage_collection()
def parse(
    text: str,
    filename: str = "<text>",
    import_folders: Sequence[str | os.PathLike[str]] = (),
) -> Module:
    """Operators and graphs of a `.dml` text; `filename` is its name in messages, and imports are
    relative to it. Files are imported as by `load`."""
    folders = expect_folders("import_folders", import_folders)
    found = check_text(
        expect_text("text", text), expect_text("filename", filename), library.BUILT_IN, folders
    )
    return Module.of(found)


def find_function(
    subject: object,
    tensors: Mapping[str, Description] | None = None,
    attributes: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    parameter: str = "function",
) -> Function:
    """Function of an operator, of an operator's name, or of a graph, bound with these arguments; or
    the function itself.

    It is for compilation and export: stages that only its gradient would read are removed. Raises
    `DmlcError`, which names missing arguments. `parameter` is the caller's name of the subject.
    """
    found = operator(subject) if isinstance(subject, str) else subject
    given = {"tensors": tensors, "attributes": attributes, "dims": dims}
    try:
        match found:
            case Function():
                _refuse(found.name, "a function that is bound", given, *given)
                return drop_marks(found)
            case Operator():
                _refuse(found.name, "an operator", given, "dims")
                return drop_marks(found.bind(tensors, attributes))
            case Graph():
                _refuse(found.name, "a graph", given, "attributes")
                return drop_marks(found.bind(tensors, dims))
            case _:
                kinds = "an ir.Function, an operator, its name, or a graph"
                raise wrong_kind(parameter, kinds, found)
    except DmlcError as error:
        if not isinstance(found, Operator | Graph) or any(v is not None for v in given.values()):
            raise
        kind = "dims" if isinstance(found, Graph) else "attributes"
        name = found.definition.short_name
        note = Note(
            f"{name} cannot be compiled unbound: compile what its bind(tensors, {kind}) gives"
        )
        first, *rest = error.diagnostics
        made = dataclasses.replace(first, notes=(*first.notes, note))
        raise type(error)([made, *rest]) from None


def _refuse(name: str, kind: str, given: Mapping[str, object], *parameters: str) -> None:
    for parameter in parameters:
        if given[parameter] is not None:
            raise DmlcError(f"'{name}' is {kind}, which takes no {parameter}", code="E0811")
