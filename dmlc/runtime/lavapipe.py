"""Version of the LLVM in lavapipe, read from its file before the loader loads it.

After loading it is too late to choose its instructions (see `instructions`). The library contains
the beginning of its device's name: `llvmpipe (LLVM 15.0.6, ...`.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

from dmlc.files import open_regular
from dmlc.processes import setting
from dmlc.runtime.instructions import LAVAPIPE, Choice, Facts, choose, may_go_wrong, read_flags
from dmlc.runtime.manifests import find_library, list_manifests
from dmlc.source import DmlcError

NAME = "llvmpipe"
"""Beginning of the names of lavapipe's devices."""

_LIBRARY = "vulkan_lvp"
_VERSION = re.compile(rb"llvmpipe \(LLVM (\d+)\.")
_MAPS = Path("/proc/self/maps")


@functools.cache
def choose_instructions() -> Choice:
    """Choice for lavapipe in this process, made once, before it is first loaded."""
    flags = read_flags()
    llvm = find_llvm(os.environ) if may_go_wrong(flags) else None
    return choose(LAVAPIPE, Facts(flags, llvm, os.environ, started=_is_loaded()))


@contextlib.contextmanager
def starting() -> Generator[None]:
    """Has Vulkan's drivers start during the block as was chosen for lavapipe."""
    choice = choose_instructions()
    # Some drivers look for a display server and complain where there is no such folder.
    with (
        setting("XDG_RUNTIME_DIR", tempfile.gettempdir()),
        setting(choice.variable, choice.value),
    ):
        yield


def find_note(device: str) -> str:
    """Note on a device of that name: what was chosen for lavapipe, if it is one of its devices."""
    return choose_instructions().note if device.startswith(NAME) else ""


def _is_loaded() -> bool:
    try:
        return _LIBRARY in _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def find_llvm(environment: Mapping[str, str]) -> int | None:
    """Lowest version of LLVM in a lavapipe here; None if none is found."""
    found: list[int] = []
    for manifest in list_manifests(environment):
        library = find_library(manifest, _LIBRARY, environment)
        version = None if library is None else read_version(library)
        if version is not None:
            found.append(version)
    return min(found, default=None)


def read_version(library: Path) -> int | None:
    """Major version of LLVM that a lavapipe's library names; None if it names none."""
    try:
        with (
            open_regular(library) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            named = _VERSION.search(content)
            return int(named.group(1)) if named else None
    except (DmlcError, OSError, ValueError):
        # No such file, or an empty one.
        return None
