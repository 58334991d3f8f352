"""Progress of a command, on standard error, once it takes longer than two seconds: a line that is
overwritten on a terminal; elsewhere a line for each tenth of it, and one per second at most."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator

import click

from dmlc.progress import listening

_QUIET = "DMLC_NO_PROGRESS"
_PATIENCE = 2.0
"""Seconds before a phase is shown."""
_WIDTH = 24
"""Width of a bar in characters."""


class Shown:
    """Listener that shows the phases of a command."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = ""
        self._start = self._said = 0.0
        self._tenths = -1
        self._on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._interval = 0.1 if self._on_terminal else 1.0
        self._is_written = False

    def __call__(self, phase: str, done: int, count: int) -> None:
        now = self._clock()
        if phase != self._phase or not done:
            self.clear()
            self._phase, self._start, self._said, self._tenths = phase, now, 0.0, -1
        if done == count:
            self.clear()
        elif (
            now - self._start >= _PATIENCE
            and now - self._said >= self._interval
            and (self._on_terminal or done * 10 // count > self._tenths)
        ):
            self._said, self._tenths = now, done * 10 // count
            self._write(f"{phase}: {done} of {count}", done / count)

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if self._is_written:
            _echo("\r\x1b[K")
            self._is_written = False

    def _write(self, text: str, part: float) -> None:
        if self._on_terminal:
            filled = round(part * _WIDTH)
            _echo(f"\r\x1b[K[{'#' * filled}{' ' * (_WIDTH - filled)}] {text}")
            self._is_written = True
        else:
            _echo(f"{text}\n")


def _echo(text: str) -> None:
    # If progress cannot be written, the work goes on.
    with contextlib.suppress(OSError):
        click.echo(text, nl=False, err=True, color=True)


@contextlib.contextmanager
def showing_progress() -> Generator[None]:
    """Shows the phases of the block, unless the environment variable DMLC_NO_PROGRESS is set."""
    if os.environ.get(_QUIET):
        yield
        return
    shown = Shown()
    with listening(shown):
        try:
            yield
        finally:
            shown.clear()
