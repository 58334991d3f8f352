"""`dmlc completion`: script for the completion of commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_DMLC_COMPLETE"


@click.command(
    "completion",
    epilog='Example: dmlc completion bash, or eval "$(dmlc completion bash)" in ~/.bashrc',
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, and the names of operators, of
    their tensors and attributes, devices and files. Run it where the shell starts: in ~/.bashrc or
    ~/.zshrc as eval "$(dmlc completion bash)", or as
    ~/.config/fish/completions/dmlc.fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "dmlc", _VARIABLE).source())
