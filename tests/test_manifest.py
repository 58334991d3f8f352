"""Manifests are read with their own files alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dmlc
from dmlc import ir
from dmlc.manifest import read_manifest
from dmlc.pipeline import compile
from dmlc.program import Program, write_programs
from dmlc.source import DmlcError

NEGATED = "func @f(%x: f32[4]) -> (%y) { %y: f32[i0 < 4] = neg(%x[i0]) }"
DOUBLED = "func @f(%x: f32[8]) -> (%y) { %y: f32[i0 < 8] = add(%x[i0], %x[i0]) }"


def make(text: str = NEGATED, target: str = "opencl") -> Program:
    return compile(ir.parse(text), target)


def test_a_manifest_is_read_with_its_files(tmp_path: Path) -> None:
    program = make()
    program.write(tmp_path)
    assert dmlc.read_manifest(str(tmp_path)) == program.manifest()
    programs = [make(target="hlsl"), program]
    write_programs(programs, tmp_path / "all", {"f.dxil": b"DXBC"})
    found = read_manifest(tmp_path / "all")
    assert [*found["files"]] == ["f.hlsl", "f.cl", "f.dxil"]
    assert found["programs"] == [p.manifest() for p in programs]


def replace(folder: Path) -> None:
    """As a process leaves it that is killed between two files."""
    (folder / "f.cl").write_text(make(DOUBLED).kernels[0].source, "utf-8")


def change(folder: Path) -> None:
    """Another kernel of the same length."""
    text = (folder / "f.cl").read_text("utf-8")
    (folder / "f.cl").write_text(text.replace("-", "+"), "utf-8")


def remove(folder: Path) -> None:
    (folder / "f.cl").unlink()


def lead_away(folder: Path) -> None:
    """Nothing is read from a pipe, which may wait for ever."""
    remove(folder)
    os.mkfifo(folder / "f.cl")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (replace, "f.cl' is not the file that manifest.json was written with"),
        (change, "f.cl' is not the file that manifest.json was written with"),
        (remove, "f.cl': no such file"),
        (lead_away, "f.cl': it is no regular file"),
    ],
)
def test_other_files_are_refused(
    spoil: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    make().write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DmlcError, match=re.escape(message)):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "a manifest of version 2, and this dmlc reads version 1"),
        ({"version": True}, "a manifest of version True"),
        ({"files": None}, "an older dmlc wrote it"),
        ({"files": {}}, "no digest of its kernel 'f.cl'"),
        ({"files": []}, "'files' is not an object"),
        ({"files": {"f.cl": 3}}, "the digest of 'f.cl' is not an object"),
        ({"files": {"f.cl": {}}}, "f.cl' is not the file"),
        ({"kernels": [{"file": "../f.cl"}], "files": {"../f.cl": {}}}, "no file of its folder"),
        ({"kernels": [{"file": "a\\f.cl"}], "files": {"a\\f.cl": {}}}, "no file of its folder"),
        ({"kernels": [{"file": "f\0"}], "files": {"f\0": {}}}, "this is no file name"),
        ({"kernels": [{}]}, "the 'file' of a kernel is not a name"),
        ({"kernels": 3}, "'kernels' is not a list"),
        ({"programs": [3]}, "a program is not an object"),
    ],
)
def test_what_is_no_manifest(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    make().write(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")
    with pytest.raises(DmlcError, match=re.escape(message)):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "\xff", "[]"])
def test_what_is_no_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text, "latin-1")
    with pytest.raises(DmlcError, match=r"is no JSON|is not an object"):
        read_manifest(tmp_path)
    with pytest.raises(DmlcError, match="no such file"):
        read_manifest(tmp_path / "elsewhere")


def test_a_file_is_not_read_beyond_what_kernels_take(tmp_path: Path) -> None:
    """A sparse file of any length costs nobody anything."""
    make().write(tmp_path)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    content["files"]["f.cl"]["bytes"] = 1 << 40
    path.write_text(json.dumps(content), "utf-8")
    with (tmp_path / "f.cl").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(DmlcError, match="is not the file"):
        read_manifest(tmp_path)
