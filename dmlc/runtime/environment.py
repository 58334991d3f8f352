"""Cache folder for drivers and packages, which read its variable once, when they start.

So it is set for that moment and restored: neither the caller's own later use of the driver nor its
child processes see a setting that they did not make.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from dmlc.files import cache_folder, can_keep_files, private_folder
from dmlc.processes import setting

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


def keeping_caches() -> contextlib.AbstractContextManager[None]:
    """Sets the cache folder during the block to one of the user, or of this process."""
    return setting(_CACHES, find_caches(), replaces=True)
