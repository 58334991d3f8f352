"""Builds kernels on PoCL in a quarter of the time, for tests that build thousands.

Before every kernel, PoCL 3 reads a header of 18,000 lines that declares what OpenCL C has built
in: four fifths of the time of a build. Here a kernel is given the lines of that very header for
the names it uses, and PoCL is told that the header was read; what it compiles is the same.
Other drivers, and a PoCL that keeps no such header, build as ever. So does what PoCL refuses, to
be told in the usual words, every golden kernel, and what processes build that a test starts, unless
they ask for it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl
import pytest

from dmlc.runtime.opencl import builds

HEADERS = Path("/usr/share/pocl/include")
READ_ALREADY = "-D_OPENCL_H_"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE = re.compile(r"[ \t]*#(?:[^\n]*\\\n)*[^\n]*|[^\n]+")
_DECLARED = re.compile(r"\b(?!__attribute__)(\w+)[ \t]*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")


@functools.cache
def read_header() -> tuple[tuple[str | None, str], ...]:
    """The header's directives and declarations in order, each with the name that it declares or
    None. Nothing where PoCL keeps no such header."""
    try:
        base, header = ((HEADERS / n).read_text() for n in ("opencl-c-base.h", "opencl-c.h"))
    except FileNotFoundError:
        return ()
    parts: list[tuple[str | None, str]] = [(None, _COMMENT.sub("", base))]
    begun: list[str] = []
    guard, *lines, end = _LINE.findall(_COMMENT.sub("", header))
    if (guard.split(), end.split()) != (["#ifndef", "_OPENCL_H_"], ["#endif"]):
        return ()
    for line in lines:
        if line.lstrip().startswith("#"):
            if "_OPENCL_H_" not in line and "opencl-c-base.h" not in line:
                parts.append((None, line))
            continue
        begun.append(line)
        if line.rstrip().endswith(";"):
            whole = " ".join(begun)
            begun = []
            name = _DECLARED.search(whole)
            parts.append((name.group(1) if name else None, whole))
    return tuple(parts)


def declare(source: str) -> str:
    """What a kernel needs declared before it; nothing where there is no header."""
    used = set(_WORD.findall(source))
    chosen = [text for name, text in read_header() if name is None or name in used]
    return "\n".join([*chosen, "#line 1\n"]) if chosen else ""


def build(
    context: cl.Context,
    source: str,
    devices: Sequence[Any],
    options: Sequence[str] = builds.BUILD_OPTIONS,
) -> cl.Program | None:
    """A kernel built the quick way, with these options; None where there is none, or the driver
    refuses it."""
    declared = declare(source)
    if not declared or any("PoCL " not in d.platform.version for d in devices):
        return None
    program = cl.Program(context, declared + source)
    with contextlib.suppress(cl.Error):
        return program.build([*options, READ_ALREADY], devices=list(devices))
    return None


@contextlib.contextmanager
def building_quickly() -> Iterator[None]:
    """Every kernel that the runtime builds meanwhile is built so."""
    plain = builds.Builds.compile

    def compile_source(
        own: builds.Builds, source: str, options: Sequence[str], unit: int
    ) -> cl.Program:
        quick = build(own.context, source, [own.units[unit]], options)
        return plain(own, source, options, unit) if quick is None else quick

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builds.Builds, "compile", compile_source)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_builds() -> Iterator[None]:
    """Every kernel that the runtime builds in a test is built so."""
    with building_quickly():
        yield
