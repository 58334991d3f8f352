"""Cache on disk of results that took long to compute.

An entry is a file named after all its inputs, and begins with a digest of both: a truncated or
corrupted entry is computed again. The folder has a size limit; the least recently used entries are
removed first. Everything in it may be lost at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from dmlc.files import cache_folder, read_bounded, write_files
from dmlc.source import DmlcError

OFF = "DMLC_NO_CACHE"
"""Environment variable that disables the cache unless empty."""

_DIGEST = hashlib.sha256
_DIGEST_BYTES = 32
_SUFFIX = ".kept"


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """Number and size of a folder's entries."""

    entries: int
    bytes: int


class Kept:
    """Entries in one folder, with a limit on their total size in bytes. Safe for several threads
    and processes at once. Without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, most_bytes: int) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._unseen: int | None = None
        """Bytes written since the folder was last scanned; None before the first scan."""

    def find(self, key: bytes, make: Callable[[], bytes]) -> bytes:
        """Entry of a key, which names all its inputs; or else the result of `make`, which is
        kept."""
        if os.environ.get(OFF):
            return make()
        found = self.read(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def read(self, key: bytes) -> bytes | None:
        """Entry of a key; None if there is none."""
        if self.folder is None:
            return None
        path = self.folder / _name_entry(key)
        try:
            content = read_bounded(path, self._most_bytes)
        except DmlcError:
            return None
        found = content[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] != _digest(key, found):
            return None
        try:
            os.utime(path)
        except OSError:
            # It is another user's, or gone by now: it counts as not used.
            return found
        return found

    def keep(self, key: bytes, found: bytes) -> None:
        """Keeps an entry, unless it is too large, or nothing can be kept."""
        content = _digest(key, found) + found
        folder = self.folder
        if folder is None or len(content) > self._most_bytes:
            return
        try:
            write_files(folder, {_name_entry(key): content})
        except DmlcError:
            # A home that cannot be written to, or something else under this name.
            return
        with self._lock:
            due = self._unseen is None or self._unseen > self._most_bytes // 16
            self._unseen = 0 if due else (self._unseen or 0) + len(content)
        if due:
            self._bound(folder)

    def _bound(self, folder: Path) -> None:
        """Removes the least recently used entries beyond the limit."""
        found = sorted(_list_entries(folder), key=lambda each: each[1].st_mtime_ns)
        size = sum(status.st_size for _, status in found)
        for path, status in found:
            if size <= self._most_bytes:
                break
            _remove(path)
            size -= status.st_size


def _name_entry(key: bytes) -> str:
    return f"{_DIGEST(key).hexdigest()[:40]}{_SUFFIX}"


def _digest(key: bytes, content: bytes) -> bytes:
    return _DIGEST(_DIGEST(key).digest() + content).digest()


def _list_entries(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Regular files of a folder: entries, and remains of killed processes."""
    found: list[tuple[Path, os.stat_result]] = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        path = folder / name
        try:
            status = path.lstat()
        except OSError:
            # Another process has removed it.
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((path, status))
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        # Another process has removed it, or it is not ours to remove.
        return


_usual = cache_folder()
SHADERS = Kept(None if _usual is None else _usual / "shaders", 256 << 20)
"""Kernels compiled by DXC."""

PARTS = {
    "shaders": "HLSL kernels as DXC compiled them, 256 MiB at most",
    "devices": "devices that compute rightly",
    "d3d12": "the library for Direct3D 12 on Linux",
}
"""Folders of the cache, and their contents."""


def measure(part: str) -> Contents:
    """Number of a part's entries, and their size on disk."""
    sizes = [] if _usual is None else [s.st_size for _, s in _list_entries(_usual / part)]
    return Contents(len(sizes), sum(sizes))


def clear(part: str) -> None:
    """Removes every entry of a part, and remains of killed processes."""
    if _usual is not None:
        for path, _ in _list_entries(_usual / part):
            _remove(path)
