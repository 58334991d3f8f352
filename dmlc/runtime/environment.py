"""Environment variables for drivers: most read them once, at the moment they start.

So a variable is set for that moment and taken back: neither the caller's own later use of the
driver nor the processes that it starts see a choice that they did not make.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path

from dmlc.files import cache_folder, can_keep_files, private_folder


@contextlib.contextmanager
def setting(variable: str, value: str | None) -> Generator[None]:
    """Sets a variable for a moment, unless it is set already or there is no value to set."""
    if value is None or variable in os.environ:
        yield
        return
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable, None)


_CACHES = "XDG_CACHE_HOME"


def find_caches(environment: Mapping[str, str] = os.environ) -> str | None:
    """Where drivers and packages are to keep their caches; None where they find a place
    themselves. Without a home, PoCL takes a folder of /tmp that anyone can make before it does;
    with one that cannot be written to, it has no device."""
    home = environment.get("HOME")
    usual = environment.get(_CACHES) or (home and f"{home}/.cache")
    if usual and can_keep_files(Path(usual)):
        return None
    own = cache_folder(environment)
    return str(own if own is not None and can_keep_files(own) else private_folder())


@contextlib.contextmanager
def keeping_caches() -> Generator[None]:
    """Has what starts meanwhile keep its caches in a folder of the user's, or of this process."""
    place = find_caches()
    before = os.environ.get(_CACHES)
    if place is None:
        yield
        return
    os.environ[_CACHES] = place
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_CACHES, None)
        else:
            os.environ[_CACHES] = before
