"""Reader of `manifest.json`, for hosts in Python: a program with other files than its own is
refused."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast

from dmlc.files import open_regular, read_bounded
from dmlc.parameters import expect_path
from dmlc.program import MANIFEST, MANIFEST_VERSION, describe_file
from dmlc.source import DmlcError

_MOST_BYTES = 64 << 20
"""Largest file in bytes."""
_Object = dict[str, Any]


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """Manifest of a folder written by `Program.write` or `dmlc compile`, as plain data, after a
    check of every file that it lists.

    A file that is missing, truncated, changed, or of another compilation is refused, by its
    SHA-256: the sizes and launches of a manifest are valid for its own kernels only. Raises
    `DmlcError` that names the file; also for a folder without a manifest, and for a manifest of
    another version, or one without digests, as old versions of dmlc wrote.
    """
    folder = Path(expect_path("directory", directory))
    path = folder / MANIFEST
    try:
        found: object = json.loads(read_bounded(path, _MOST_BYTES))
    except (ValueError, RecursionError):
        raise DmlcError(f"'{path}' is no JSON: it is damaged") from None
    manifest = _expect_object(found, path, "the manifest")
    version = manifest.get("version")
    if type(version) is not int or version != MANIFEST_VERSION:
        raise DmlcError(
            f"'{path}' is a manifest of version {_spell(version)}, and this dmlc reads version "
            f"{MANIFEST_VERSION}"
        )
    files = manifest.get("files")
    if files is None:
        raise DmlcError(
            f"'{path}' has no digests of its files: an older dmlc wrote it",
            notes=["compile the operator again"],
        )
    files = _expect_object(files, path, "'files'")
    for name in _list_sources(manifest, path):
        if name not in files:
            raise DmlcError(f"'{path}' has no digest of its kernel {_spell(name)}")
    for name, said in files.items():
        _check_file(folder, name, said, path)
    return manifest


def _list_sources(manifest: _Object, path: Path) -> list[str]:
    """Files of the kernels."""
    found: list[str] = []
    programs = _expect_list(manifest.get("programs", [manifest]), path, "'programs'")
    for program in programs:
        program = _expect_object(program, path, "a program")
        for kernel in _expect_list(program.get("kernels"), path, "'kernels'"):
            name = _expect_object(kernel, path, "a kernel").get("file")
            if not isinstance(name, str):
                raise _refuse(path, "the 'file' of a kernel", "a name")
            found.append(name)
    return found


def _check_file(folder: Path, name: str, said: object, path: Path) -> None:
    said = _expect_object(said, path, f"the digest of {_spell(name)}")
    if name in ("", ".", "..") or {PurePosixPath(name).name, PureWindowsPath(name).name} != {name}:
        raise DmlcError(f"'{path}' names {_spell(name)}, which is no file of its folder")
    with open_regular(folder / name) as file:
        size = os.fstat(file.fileno()).st_size
        fits = size == said.get("bytes") and size <= _MOST_BYTES
        found = describe_file(file.read(size)) if fits else None
    if found != said:
        raise DmlcError(
            f"'{folder / name}' is not the file that {MANIFEST} was written with",
            notes=["compile the operator again"],
        )


def _expect_object(found: object, path: Path, what: str) -> _Object:
    if not isinstance(found, dict):
        raise _refuse(path, what, "an object")
    return cast(_Object, found)


def _expect_list(found: object, path: Path, what: str) -> list[object]:
    if not isinstance(found, list):
        raise _refuse(path, what, "a list")
    return cast("list[object]", found)


def _refuse(path: Path, what: str, expected: str) -> DmlcError:
    return DmlcError(f"'{path}' is no manifest of dmlc: {what} is not {expected}")


def _spell(value: object) -> str:
    return repr(value)[:60]
