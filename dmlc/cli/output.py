"""Standard output that may be a terminal, full, or closed.

Names and titles come from foreign files. A terminal gets them without control characters; files and
pipes get them unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Generator
from typing import Any, TextIO, cast

from dmlc.source import printable


class OutputError(Exception):
    """Raised if standard output cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {(error.strerror or 'closed').lower()}")
        self.is_left = error.errno == errno.EPIPE
        """Whether the reader has closed the pipe, as `head` does when it has enough, which is no
        error."""


class _Output:
    """Wrapper of a text or byte stream that raises `OutputError`. None stands for a stream that was
    closed before the process began."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str | bytes) -> int:
        try:
            return self._write(text)
        except OSError as error:
            raise OutputError(error) from None

    def _write(self, text: str | bytes) -> int:
        if self._stream is None or self._stream.closed:
            raise OSError(errno.EBADF, "it is closed")
        if isinstance(text, bytes):
            return self._stream.write(text)
        text = printable(text) if self._stream.isatty() else text
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            plain = text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            return self._stream.write(plain)

    def flush(self) -> None:
        try:
            if self._stream is not None and not self._stream.closed:
                self._stream.flush()
        except OSError as error:
            raise OutputError(error) from None

    @property
    def buffer(self) -> _Output:
        return _Output(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarding_output() -> Generator[None]:
    """Wraps standard output during the block, and flushes it at the end. Raises `OutputError`."""
    output = _Output(sys.stdout)
    with contextlib.redirect_stdout(cast("Any", output)):
        yield
    output.flush()


def occupy_closed() -> None:
    """Opens closed standard streams on the null device, so that no other file gets their
    numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def forget_unwritten() -> None:
    """Discards unwritable output, which Python would try to write again at exit and report."""
    stream = cast("TextIO | None", sys.stdout)
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
