"""Processes that dmlc starts, none of which runs or imports what lies in the folder that it starts
in; and commands that it suggests, in which no name is more than a word.

Python itself puts that folder first among those that `python -m` and `python -c` search, so that a
`numpy.py` in it, which came with someone's files, would run.
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
    """The command that runs a module in a process of its own. One that imports dmlc is to have
    `python_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of such a process: it finds modules where this one does. The empty entry of
    `sys.path`, which is whatever folder a process is in, is left out."""
    folders = dict.fromkeys(os.path.abspath(path) for path in sys.path if path)
    return {**given, "PYTHONPATH": os.pathsep.join(folders), _SAFE: "1"}


def find_program(
    name: str, environment: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str | None:
    """Where a program is, in the folders of PATH; None where it is in none. The working directory
    is none of them: Windows looks there first, as `shutil.which` does on it, and so does a PATH
    with a `.` on any system."""
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
def isolating_workers() -> Generator[None]:
    """Has the processes that `multiprocessing` starts meanwhile not search the folder they start
    in. Their command is its own, so the environment tells them."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE, None)
        else:
            os.environ[_SAFE] = before


def spell_command(*words: str | Path, platform: str = sys.platform) -> str:
    """A command as a shell takes it, for people to copy: each word is quoted where it must be, and
    no path is taken for an option."""
    spelt = [
        os.path.join(".", word) if isinstance(word, Path) and str(word).startswith("-") else word
        for word in words
    ]
    texts = [str(word) for word in spelt]
    return subprocess.list2cmdline(texts) if platform == "win32" else shlex.join(texts)
