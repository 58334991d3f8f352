"""Errors, warnings and notes on the terminal: on standard error, in colour if that is a terminal
and NO_COLOR is not set (https://no-color.org)."""

from __future__ import annotations

import contextlib
import os
import re
import sys

import click

from dmlc.source import Diagnostic, DmlcError, printable

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_SAID = re.compile(r"^((?:  )?(?:\S[^\n]*?:\d+:\d+: )?)(error|warning|note)(?=: )", re.MULTILINE)
_CARETS = re.compile(r"^( +\| *)(\^+)$", re.MULTILINE)
_CODE = re.compile(r"(?<= )\[[EW]\d{4}\]$", re.MULTILINE)


def wants_colour() -> bool:
    """Whether standard error is a terminal that wants colour."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stderr.isatty() and not plain


def show(what: DmlcError | Diagnostic | str) -> None:
    """Writes an error or a warning to standard error."""
    text = printable(what.render() if isinstance(what, Diagnostic) else str(what))
    colour = wants_colour()
    # If the message cannot be written, the exit status still reports the error.
    with contextlib.suppress(OSError):
        click.echo(paint(text) if colour else text, err=True, color=colour)


def paint(text: str) -> str:
    """Text of diagnostics with the words, the carets and the code in colour."""
    text = _SAID.sub(lambda m: m[1] + click.style(m[2], fg=_COLOURS[m[2]], bold=True), text)
    text = _CARETS.sub(lambda m: m[1] + click.style(m[2], fg="green", bold=True), text)
    return _CODE.sub(lambda m: click.style(m[0], dim=True), text)
