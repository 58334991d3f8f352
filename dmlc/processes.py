"""Child processes of dmlc, which do not run or import files of the folder they start in; variables
of the environment, set for a while; and suggested commands, in which each name is one word.

Python itself puts that folder first in the path of `python -m` and `python -c`, so that a foreign
`numpy.py` in it would run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

_SAFE = "PYTHONSAFEPATH"


def python_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module in a process of its own. One that imports dmlc needs
    `python_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment of such a process: it finds modules where this one does. The empty entry of
    `sys.path`, which is the current folder, is left out."""
    folders = dict.fromkeys(os.path.abspath(path) for path in sys.path if path)
    return {**given, "PYTHONPATH": os.pathsep.join(folders), _SAFE: "1"}


def find_program(
    name: str, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str | None:
    """Path of a program in the folders of PATH, or None. The working directory is excluded: Windows
    searches it first, as `shutil.which` does there, and so does a PATH with a `.` on any system."""
    windows = platform == "win32"
    folders = environment.get("PATH", os.defpath).split(";" if windows else ":")
    suffixes = environment.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if windows else [""]
    for folder in filter(os.path.isabs, folders):
        for suffix in suffixes:
            path = os.path.join(folder, name + suffix)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


@contextlib.contextmanager
def setting(variable: str, value: str | None, *, replaces: bool = False) -> Generator[None]:
    """Sets a variable of the environment during the block, unless `value` is None, or it is set
    already and this `replaces` nothing."""
    before = os.environ.get(variable)
    if value is None or (before is not None and not replaces):
        yield
        return
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable, None)
        if before is not None:
            os.environ[variable] = before


def isolating_workers() -> contextlib.AbstractContextManager[None]:
    """Keeps the processes that `multiprocessing` starts during the block from importing from the
    folder they start in. Their command cannot be changed, so the environment tells them."""
    return setting(_SAFE, "1", replaces=True)


def spell_command(*words: str | Path, platform: str = sys.platform) -> str:
    """Command for a shell, to be copied: each word is quoted if necessary, and no path is taken for
    an option."""
    spelt = [
        os.path.join(".", word) if isinstance(word, Path) and str(word).startswith("-") else word
        for word in words
    ]
    texts = [str(word) for word in spelt]
    return subprocess.list2cmdline(texts) if platform == "win32" else shlex.join(texts)
