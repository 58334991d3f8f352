"""The version of LLVM that lavapipe compiles by, read from its file before the loader loads it.

Once it is loaded it is too late to choose its instructions (see `instructions`). The loader finds
a driver by a manifest, a small JSON file that names the library; the library holds the words that
its device's name begins with: `llvmpipe (LLVM 15.0.6, ...`.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from dmlc.runtime.instructions import LAVAPIPE, Choice, Facts, choose, may_go_wrong, read_flags

NAME = "llvmpipe"
"""What the names of lavapipe's devices begin with."""

_LIBRARY = "vulkan_lvp"
_VERSION = re.compile(rb"llvmpipe \(LLVM (\d+)\.")
_MAPS = Path("/proc/self/maps")
_CONFIGURATION = ("XDG_CONFIG_HOME", "~/.config", "XDG_CONFIG_DIRS", "/etc/xdg:/etc")
_DATA = ("XDG_DATA_HOME", "~/.local/share", "XDG_DATA_DIRS", "/usr/local/share:/usr/share")


@functools.cache
def choose_instructions() -> Choice:
    """What is done about lavapipe in this process: decided once, before it is first loaded."""
    flags = read_flags()
    llvm = find_llvm(os.environ) if may_go_wrong(flags) else None
    return choose(LAVAPIPE, Facts(flags, llvm, os.environ, started=_is_loaded()))


def _is_loaded() -> bool:
    try:
        return _LIBRARY in _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def find_llvm(environment: Mapping[str, str]) -> int | None:
    """The lowest version of LLVM that a lavapipe here was built with; None where none is found."""
    found: list[int] = []
    for manifest in _list_manifests(environment):
        library = _find_library(manifest, environment)
        version = None if library is None else read_version(library)
        if version is not None:
            found.append(version)
    return min(found, default=None)


def read_version(library: Path) -> int | None:
    """The major version of LLVM that a lavapipe's library names; None where it names none."""
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            named = _VERSION.search(content)
            return int(named.group(1)) if named else None
    except (OSError, ValueError):
        # No such file, or an empty one.
        return None


def _list_manifests(environment: Mapping[str, str]) -> Iterator[Path]:
    """The manifests that the loader looks at."""
    named = environment.get("VK_DRIVER_FILES") or environment.get("VK_ICD_FILENAMES")
    if named is None:
        places = [folder / "vulkan" / "icd.d" for folder in _list_folders(environment)]
        places += _split(environment.get("VK_ADD_DRIVER_FILES", ""))
    else:
        places = _split(named)
    for place in places:
        if place.is_dir():
            yield from sorted(place.glob("*.json"))
        else:
            yield place


def _list_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    for own, own_default, shared, shared_default in (_CONFIGURATION, _DATA):
        yield Path(environment.get(own) or own_default).expanduser()
        yield from _split(environment.get(shared) or shared_default)
        if shared == "XDG_CONFIG_DIRS" and environment.get(shared):
            yield Path("/etc")


def _split(paths: str) -> list[Path]:
    return [Path(path) for path in paths.split(os.pathsep) if path]


def _find_library(manifest: Path, environment: Mapping[str, str]) -> Path | None:
    """The library of lavapipe that a manifest names; None for other drivers, or a manifest that
    cannot be read: the loader will complain of that."""
    try:
        content: Any = json.loads(manifest.read_text(encoding="utf-8"))
        named = content["ICD"]["library_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(named, str) or _LIBRARY not in Path(named).name:
        return None
    if "/" in named:
        return manifest.parent / named
    folders = [*_split(environment.get("LD_LIBRARY_PATH", "")), *_list_library_folders()]
    return next((f / named for f in folders if (f / named).exists()), None)


def _list_library_folders() -> list[Path]:
    """Where the system's dynamic loader looks, most likely first."""
    architecture = cast("str | None", sysconfig.get_config_var("MULTIARCH"))
    names = [f"lib/{architecture}"] if architecture else []
    names += ["lib64", "lib"]
    return [Path(f"/{above}{name}") for above in ("usr/", "", "usr/local/") for name in names]
