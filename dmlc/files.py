"""Writes files, all of them or none; and where those are kept that can be made again."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from dmlc.source import DmlcError


def write_files(directory: str | Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Writes files into a folder, which is made if it is not there, and gives their paths.

    Each is written under a temporary name first; they get their own names when all are there.
    A file that is replaced keeps its permissions. Raises `DmlcError` where the folder cannot be
    made or written to.
    """
    folder = Path(directory)
    pending: list[tuple[Path, Path]] = []
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
            if path.exists():
                shutil.copymode(path, temporary)
        for temporary, path in pending:
            os.replace(temporary, path)
    except OSError as error:
        raise DmlcError(
            f"cannot write '{error.filename or folder}': {error.strerror or error}",
            notes=["give an output folder that you may write to"],
        ) from error
    finally:
        for temporary, _ in pending:
            temporary.unlink(missing_ok=True)
    return [path for _, path in pending]


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The user's folder for what dmlc can find out again. It may not be there yet."""
    if platform == "win32":
        base = environment.get("LOCALAPPDATA") or "~/AppData/Local"
    elif platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dmlc"
