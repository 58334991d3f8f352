"""Python processes that dmlc starts: none of them imports what lies in the folder it starts in.

Python itself puts that folder first among those that `python -m` and `python -c` search, so that a
`numpy.py` in it, which came with someone's files, would run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Mapping

_SAFE = "PYTHONSAFEPATH"


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of dmlc's in a process of its own, which is to have
    `python_environment`."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of such a process: it finds modules where this one does. The empty entry of
    `sys.path`, which is whatever folder a process is in, is left out."""
    folders = dict.fromkeys(os.path.abspath(path) for path in sys.path if path)
    return {**given, "PYTHONPATH": os.pathsep.join(folders), _SAFE: "1"}


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
