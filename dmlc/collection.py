"""Holds back Python's search for cycles while the compiler works.

What a compiler makes lives at least until it is done, in trees that hold no cycles. To search them
again and again as they grow took a quarter of the time of large graphs. Nothing is switched off:
searches are rarer.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator

OBJECTS_BETWEEN_SEARCHES = 100_000
"""How many more objects there are from one search to the next."""


class _Holders:
    """How many hold searches back right now, and how often there were some before."""

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
    """While it lasts, in any thread, the search for cycles comes once in so many objects. A
    decorator too."""
    _HOLDERS.enter()
    try:
        yield
    finally:
        _HOLDERS.leave()
