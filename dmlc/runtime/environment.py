"""Environment variables for drivers: most read them once, at the moment they start.

So a variable is set for that moment and taken back: neither the caller's own later use of the
driver nor the processes that it starts see a choice that they did not make.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator


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
