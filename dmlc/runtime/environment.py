"""Environment variables for drivers, which read most of them once, when they start.

So a variable is set for that moment and restored: neither the caller's own later use of the driver
nor its child processes see a setting that they did not make.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path

from dmlc.files import cache_folder, can_keep_files, private_folder


@contextlib.contextmanager
def setting(variable: str, value: str | None) -> Generator[None]:
    """Sets a variable during the block, unless it is set already or `value` is None."""
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
    """Cache folder for drivers and packages; None if they find one themselves. Without a home
    folder, PoCL uses a folder in /tmp that anyone can create first; with a home that is not
    writable, it has no device."""
    home = environment.get("HOME")
    usual = environment.get(_CACHES) or (home and f"{home}/.cache")
    if usual and can_keep_files(Path(usual)):
        return None
    own = cache_folder(environment)
    return str(own if own is not None and can_keep_files(own) else private_folder())


@contextlib.contextmanager
def keeping_caches() -> Generator[None]:
    """Sets the cache folder during the block to one of the user, or of this process."""
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
