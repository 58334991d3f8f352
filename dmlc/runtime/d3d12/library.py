"""C library for Direct3D 12 on Linux, built by the system's compiler at first use.

The source is `templates/vkd3d.c`. The library is kept in the user's cache folder, under the
source's digest, if nobody else can have written there; else in a folder of this process alone.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dmlc.files import cache_folder, can_keep_files, private_folder, write_files
from dmlc.resources import resource_path
from dmlc.source import UnavailableError

COMPILER = "cc"
SOURCE = "templates/vkd3d.c"
FOLDERS = ("/usr/include/vkd3d", "/usr/local/include/vkd3d")
"""Folders of the headers, besides the compiler's own."""
OPTIONS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("-lvkd3d-utils", "-lvkd3d", "-lvkd3d-shader", "-lvulkan")
_HEADERS = ("vkd3d_utils.h", "vkd3d_shader.h", "vkd3d.h", "vulkan/vulkan.h")
_NEEDED = "Direct3D 12 on Linux needs vkd3d 2.0 or newer"
INSTALL = (
    "on Debian sid: apt-get install libvkd3d-dev gcc libc6-dev mesa-vulkan-drivers; the vkd3d of "
    "Debian 12 and 13 is too old",
    "the device vulkan runs the same HLSL here",
)


@functools.cache
def load_library() -> ctypes.CDLL:
    """Library, built if necessary. Raises `UnavailableError`, with the cure, for a compiler,
    headers or a library that are missing or too old."""
    path = _build(resource_path(SOURCE))
    try:
        return ctypes.CDLL(str(path))
    except OSError as problem:
        raise UnavailableError(f"{_NEEDED}: {problem}", notes=INSTALL) from problem


def _build(source: Path) -> Path:
    """Path of the library built from a source."""
    content = source.read_bytes()
    about = f"{platform.machine()} {' '.join((*OPTIONS, *_LIBRARIES))}".encode()
    name = f"vkd3d-{hashlib.sha256(content + about).hexdigest()[:32]}.so"
    folder = _find_folder()
    path = folder / name
    if not path.is_file():
        write_files(folder, {name: _compile(source)})
    return path


def _find_folder() -> Path:
    """Folder of built libraries, whose contents are executed."""
    usual = cache_folder()
    if usual is not None and can_keep_files(usual / "d3d12") and is_own(usual / "d3d12"):
        return usual / "d3d12"
    return private_folder()


def is_own(folder: Path) -> bool:
    """Whether only this user can have put files into a folder."""
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(source: Path) -> bytes:
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise UnavailableError(
            f"Direct3D 12 on Linux needs a C compiler, and there is no `{COMPILER}` here",
            notes=INSTALL,
        )
    with tempfile.TemporaryDirectory(prefix="dmlc-") as folder:
        made = Path(folder) / "vkd3d.so"
        folders = [f"-I{folder}" for folder in FOLDERS]
        command = [compiler, *OPTIONS, *folders, "-o", str(made), str(source), *_LIBRARIES]
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        if done.returncode:
            raise UnavailableError(explain(done.stderr.splitlines()), notes=INSTALL)
        return made.read_bytes()


def explain(said: Sequence[str]) -> str:
    """Missing component, from the compiler's messages."""
    for header in _HEADERS:
        if any(f" {header}: No such file" in line for line in said):
            return f"{_NEEDED}, and there is no {header} here"
    for library in _LIBRARIES:
        if any(f"cannot find {library}" in line for line in said):
            return f"{_NEEDED}, and there is no lib{library.removeprefix('-l')}.so here"
    errors = [line for line in said if "error" in line]
    first = (errors or [*said, "the compiler gave no reason"])[0]
    return f"{_NEEDED}, and what is here does not do: {first.strip()}"
