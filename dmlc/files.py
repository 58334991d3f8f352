"""Regular files of bounded size; output files, written all or none; and the cache folder."""

from __future__ import annotations

import atexit
import errno
import functools
import os
import re
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from dmlc.source import DmlcError, Span


def open_regular(path: str | Path, span: Span | None = None) -> BinaryIO:
    """Opens a regular file for reading: a device or a pipe may have no end, or block a reader for
    ever. Raises `DmlcError`, at the span that names the file if there is one."""
    try:
        # A pipe that nobody writes to would be waited for already here.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DmlcError(f"cannot read '{path}': {reason}", span, code="E0001") from None
    except ValueError:
        raise DmlcError("this is no file name", span, code="E0001") from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        what = "it is a directory" if stat.S_ISDIR(mode) else "it is no regular file"
        raise DmlcError(f"cannot read '{path}': {what}", span, code="E0001")
    return os.fdopen(number, "rb")


def read_bounded(path: str | Path, most_bytes: int, span: Span | None = None) -> bytes:
    """Contents of a regular file of at most `most_bytes`. Raises `DmlcError`, as `open_regular`
    does."""
    try:
        with open_regular(path, span) as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DmlcError(f"cannot read '{path}': {reason}", span, code="E0001") from None
    if len(content) > most_bytes:
        raise DmlcError(f"'{path}' is larger than {most_bytes >> 20} MiB", span, code="E0003")
    return content


def write_files(directory: str | Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Writes files into a folder, which is created if necessary, and returns their paths.

    Each is written under a temporary name first; all are renamed when all are complete. Where
    several are to be replaced, all old ones are removed before the first rename: a process that is
    killed in between leaves files missing, and never a new one beside an old one. A replaced file
    keeps its permissions. Raises `DmlcError` if the folder cannot be created or written to.
    """
    folder = Path(directory)
    pending: list[tuple[Path, Path]] = []
    old: list[tuple[Path, Path]] = []
    if "\0" in f"{folder}{''.join(contents)}":
        # No file system has such a name.
        raise DmlcError(f"cannot write '{folder}': this is no file name", code="E0005")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            temporary = folder / f".{name[:100]}.{uuid.uuid4().hex}.tmp"
            path = folder / name
            pending.append((temporary, path))
            with temporary.open("xb") as file:
                file.write(content)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if path.exists() and not path.is_file():
                # A device or a pipe, such as /dev/stdout, must not be replaced by a file.
                raise OSError(errno.EINVAL, "it is no regular file", str(path))
            if path.exists():
                shutil.copymode(path, temporary)
        _replace(pending, old)
    except OSError as error:
        for kept, path in old:
            os.replace(kept, path)
        raise DmlcError(
            f"cannot write '{error.filename or folder}': {error.strerror or error}",
            notes=["give an output folder that you may write to"],
            code="E0005",
        ) from error
    finally:
        for temporary, _ in (*pending, *old):
            temporary.unlink(missing_ok=True)
    return [path for _, path in pending]


def _replace(pending: Sequence[tuple[Path, Path]], old: list[tuple[Path, Path]]) -> None:
    """Renames files. `old` collects the paths of the files that had these names before."""
    for temporary, path in pending if len(pending) > 1 else ():
        if os.path.lexists(path):
            kept = temporary.with_suffix(".old")
            os.replace(path, kept)
            old.append((kept, path))
    for temporary, path in pending:
        os.replace(temporary, path)


_DEVICES = re.compile(r"((con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])_*)(?=\.|$)", re.IGNORECASE)


def name_file(name: str, suffix: str = "") -> str:
    """File name for a name, valid on any system: Windows reserves some for devices, with any
    suffix. Different names stay different."""
    whole = name + suffix
    return _DEVICES.sub(r"\1_", whole, count=1) if _DEVICES.match(whole) else whole


def cache_folder(
    environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Path | None:
    """User's cache folder, which may not exist yet; None without a home folder."""
    if platform == "win32":
        base = environment.get("LOCALAPPDATA") or "~/AppData/Local"
    elif platform == "darwin":
        base = "~/Library/Caches"
    else:
        # The specification has relative paths ignored: they are of whoever filled this folder.
        named = environment.get("XDG_CACHE_HOME", "")
        base = named if os.path.isabs(named) else "~/.cache"
    found = expand_home(base)
    return None if found is None else found / "dmlc"


def expand_home(path: str) -> Path | None:
    """Path with `~` expanded; None without a home folder, as for a user of a container."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return None


def can_keep_files(folder: Path) -> bool:
    """Whether files can be kept in a folder, which is created if necessary."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@functools.cache
def private_folder() -> Path:
    """Cache folder of this process alone, removed at its end."""
    folder, owner = tempfile.mkdtemp(prefix="dmlc-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
