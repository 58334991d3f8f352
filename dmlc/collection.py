"""Throttling of Python's cycle collector while the compiler works.

A compiler's objects live at least until it is done, in trees without cycles. Collections during
their growth took a quarter of the time for large graphs. Nothing is switched off: collections are
rarer.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator

OBJECTS_BETWEEN_SEARCHES = 100_000
"""Number of new objects between collections."""


class _Holders:
    """Number of current holders, and the usual threshold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = 0

    def enter(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._usual, *older = gc.get_threshold()
                # Who searches more rarely, or never (0), has chosen so.
                if 0 < self._usual < OBJECTS_BETWEEN_SEARCHES:
                    gc.set_threshold(OBJECTS_BETWEEN_SEARCHES, *older)

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            now, *older = gc.get_threshold()
            if self._count == 0 and now == OBJECTS_BETWEEN_SEARCHES:
                gc.set_threshold(self._usual, *older)


_HOLDERS = _Holders()


@contextlib.contextmanager
def throttle_garbage_collection() -> Generator[None, None, None]:
    """Raises the collector's threshold during the block, in all threads. Also a decorator."""
    _HOLDERS.enter()
    try:
        yield
    finally:
        _HOLDERS.leave()
