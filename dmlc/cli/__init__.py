"""`dmlc` command. Each command is a module of its own, imported when it is used, so that `dmlc
--help` starts at once; none has logic of its own.

Exit status: 0 success; 1 an error in the input, or a failed check; 2 wrong usage; 3 a missing
device or tool.
"""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

import click

from dmlc import __version__
from dmlc.cli.messages import show
from dmlc.cli.output import OutputError, forget_unwritten, guarding_output, occupy_closed
from dmlc.cli.progress import showing_progress
from dmlc.collection import throttle_garbage_collection
from dmlc.source import DmlcError, InternalError, UnavailableError

COMMANDS = {
    "ops": "List operators.",
    "show": "Show one operator: tables, constraints, formula and examples.",
    "check": "Parse and check files; report each error with its location.",
    "explain": "Explain the code of an error or a warning.",
    "fmt": "Format files: tables aligned, comments kept.",
    "lsp": "Serve editors, by the Language Server Protocol.",
    "ir": "Print the tensor IR of an operator.",
    "graph": "Show a graph before and after fusion: a picture, DOT or text.",
    "compile": "Compile an operator to HLSL, OpenCL or WGSL, with a manifest.",
    "inspect": "Show statistics of each kernel on a GPU, without a GPU.",
    "run": "Run an operator on arrays.",
    "profile": "Measure the time of each kernel.",
    "tune": "Search for the fastest schedules on a device.",
    "test": "Test operators on devices, by their own tables and examples.",
    "import": "Convert reference pages to descriptions of operators.",
    "import-onnx": "Convert an ONNX model to a function of the tensor IR.",
    "import-cgc": "Convert a graph of Windows' CGC to a function of the tensor IR.",
    "export": "Write an operator or a graph for other tools.",
    "compare": "Compare two arrays, such as the results of two devices.",
    "devices": "List the devices that programs can run on.",
    "qualify": "Test whether a device is fit to ship to, and write a report.",
    "cache": "Show the results cached on disk, or remove them.",
    "completion": "Print the script for completion in a shell.",
}
"""Commands, with their lines in `dmlc --help`."""


class _Commands(click.Group):
    """Group of these commands; a command's module is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if ctx.resilient_parsing:
            # A shell asks what could be typed: most of it is known without the command's imports.
            completion = importlib.import_module("dmlc.cli.completion")
            light: click.Command | None = completion.stand_in(cmd_name)
            if light is not None:
                return light
        module = cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f"dmlc.cli.{module}_command").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: dmlc compile directml.ACTIVATION_RELU_GRAD --target all -o out",
)
@click.version_option(__version__, prog_name="dmlc")
def group() -> None:
    """Compile GPU operators from their reference pages to kernels that run."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the command; exits with the exit status."""
    occupy_closed()
    with throttle_garbage_collection():
        status = run(arguments)
    forget_unwritten()
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with guarding_output(), showing_progress():
                return _run(arguments)
        except OutputError as error:
            if not error.is_left:
                show(f"error: {error}")
            return 1


def _show_warning(message: Warning | str, *_: object) -> None:
    """Shows a warning in the form of errors, without its location in the program."""
    show(f"warning: {message}")


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status: object = group.main(args=arguments, prog_name="dmlc", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        show(said.getvalue().rstrip("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        show("stopped")
        return 130
    except UnavailableError as error:
        show(error)
        return 3
    except DmlcError as error:
        show(error)
        return 1
    except MemoryError as error:
        show(f"error: there is not enough memory: {error}")
        return 1
    except InternalError as error:
        show(f"internal error: {error}\nThis is a bug in dmlc: please report it.")
        return 1
    return status if isinstance(status, int) else 0
