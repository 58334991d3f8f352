"""Completion of device names."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from dmlc.devices import REFERENCE, RUNTIMES


def complete_device(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (*RUNTIMES, REFERENCE) if name.startswith(typed)]
