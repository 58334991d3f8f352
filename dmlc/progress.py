"""How far long work has come, for a listener: the command shows it, a library says nothing.

Work is a phase with a name and a number of items. A phase inside another one is not told of.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

_Item = TypeVar("_Item")

Listener: TypeAlias = Callable[[str, int, int], None]
"""Takes the name of a phase, how many of its items are done, and how many there are. The last call
of a phase has both numbers equal; one that an error ends has no such call."""

_listener: contextvars.ContextVar[Listener | None] = contextvars.ContextVar(
    "listener", default=None
)


@contextlib.contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Has a listener told of the work of this thread meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def track(phase: str, items: Sequence[_Item]) -> Iterator[_Item]:
    """The items, one after the other, of which the listener is told. `phase` is a participle and
    what it is about, as in "building kernels"."""
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
