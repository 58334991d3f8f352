"""Manifests of the Vulkan loader: small JSON files that name a driver's library. The module of each
driver examines its library."""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from dmlc.files import expand_home, read_bounded
from dmlc.source import DmlcError

_MOST_BYTES = 1 << 20
_CONFIGURATION = ("XDG_CONFIG_HOME", "~/.config", "XDG_CONFIG_DIRS", "/etc/xdg:/etc")
_DATA = ("XDG_DATA_HOME", "~/.local/share", "XDG_DATA_DIRS", "/usr/local/share:/usr/share")


def list_manifests(environment: Mapping[str, str]) -> Iterator[Path]:
    """Manifests that the loader reads."""
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
        home = expand_home(environment.get(own) or own_default)
        if home is not None:
            yield home
        yield from _split(environment.get(shared) or shared_default)
        if shared == "XDG_CONFIG_DIRS" and environment.get(shared):
            yield Path("/etc")


def _split(paths: str) -> list[Path]:
    return [Path(path) for path in paths.split(os.pathsep) if path]


def find_library(manifest: Path, part: str, environment: Mapping[str, str]) -> Path | None:
    """Library that a manifest names, if `part` is in its name; None for other drivers, and for an
    unreadable manifest, which the loader will report."""
    try:
        content: Any = json.loads(read_bounded(manifest, _MOST_BYTES))
        named = content["ICD"]["library_path"]
    except (DmlcError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(named, str) or part not in Path(named).name:
        return None
    if "/" in named:
        return manifest.parent / named
    folders = [*_split(environment.get("LD_LIBRARY_PATH", "")), *_list_library_folders()]
    return next((f / named for f in folders if (f / named).exists()), None)


def _list_library_folders() -> list[Path]:
    """Folders of the system's dynamic loader, most likely first."""
    architecture = cast("str | None", sysconfig.get_config_var("MULTIARCH"))
    names = [f"lib/{architecture}"] if architecture else []
    names += ["lib64", "lib"]
    return [Path(f"/{above}{name}") for above in ("usr/", "", "usr/local/") for name in names]
