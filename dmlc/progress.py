"""Progress of long work, for a listener: the command shows it, a library does not. Work is a phase
with a name and a number of items. A nested phase is not reported."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

_Item = TypeVar("_Item")

Listener: TypeAlias = Callable[[str, int, int], None]
"""Callback with the name of a phase, the number of its finished items, and the number of all. Both
numbers are equal in the last call of a phase, unless an error ends it."""

_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar(
    "listener", default=None
)


@contextlib.contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Reports the work of this thread to a listener during the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def track(phase: str, items: Sequence[_Item]) -> Iterator[_Item]:
    """Items in order, with reports to the listener. `phase` is a participle and its object, as in
    "building kernels"."""
    listener = _listener.get()
    if listener is None:
        yield from items
        return
    token = _listener.set(None)
    try:
        for done, item in enumerate(items):
            listener(phase, done, len(items))
            yield item
        listener(phase, len(items), len(items))
    finally:
        _listener.reset(token)
