"""Shell completion: names of operators, of their tensors and attributes, codes and files. Nothing
is compiled or parsed for it: the library's names are in `library/index.json`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, split_arg_string

from dmlc import summaries
from dmlc.diagnostics import explain, list_codes

Items = list[CompletionItem]
OPERATOR_COMMANDS = (
    "compile", "export", "graph", "inspect", "ir", "qualify", "run", "show", "test", "tune",
)  # fmt: skip
"""Commands whose arguments are operators, or files of operators."""


def stand_in(name: str) -> click.Command | None:
    """Command that completes operators, and the values of options known from the library's index,
    like the one of that name, without importing its module. None if other options are on the line:
    the command itself completes them."""
    words = split_arg_string(os.environ.get("COMP_WORDS", ""))
    if name not in OPERATOR_COMMANDS:
        return None
    argument = click.Argument(["operator"], nargs=-1, shell_complete=complete_operator)
    option = _find_value(words)
    if name in TAKERS.get(option, ()):
        taken = click.Option([option], multiple=True, shell_complete=_VALUES[option])
        return click.Command(name, params=[argument, taken])
    if any(word.startswith("-") for word in words):
        return None
    return click.Command(name, params=[argument])


def _find_value(words: Sequence[str]) -> str:
    """Last word before the one being typed: an option, if its value is typed. Shells tell the
    number of words before it, and fish the word itself."""
    typed = os.environ.get("COMP_CWORD", "")
    if typed.isdigit():
        words = words[: int(typed)]
    elif typed and words[-1:] == [typed]:
        words = words[:-1]
    return words[-1] if words else ""


def complete_operator(_: click.Context, __: click.Parameter, typed: str) -> Items:
    """Operators whose name, or name within the family, has this prefix in any case; and files."""
    wanted = typed.lower()
    names = [
        name
        for name in summaries.list_files()
        if name.lower().startswith(wanted) or name.partition(".")[2].lower().startswith(wanted)
    ]
    # Files first: the script for bash forgets what stands before them.
    return [CompletionItem(typed, type="file"), *map(CompletionItem, names)]


def complete_file(_: click.Context, __: click.Parameter, typed: str) -> Items:
    return [CompletionItem(typed, type="file")]


def complete_attribute(ctx: click.Context, _: click.Parameter, typed: str) -> Items:
    """`Epsilon=` and so on for the operator on the command line."""
    known = _find_operator(ctx)
    return _pairs(typed, () if known is None else known.attributes)


def complete_tensor(ctx: click.Context, _: click.Parameter, typed: str) -> Items:
    """`InputTensor=` and so on for the operator on the command line."""
    known = _find_operator(ctx)
    return _pairs(typed, () if known is None else known.tensors)


def _find_operator(ctx: click.Context) -> summaries.Summary | None:
    """Library operator on the command line. While the last word is an option without its value,
    click has parsed none of the words before it."""
    words = split_arg_string(os.environ.get("COMP_WORDS", ""))
    known = summaries.read_index()
    return next((known[w] for w in (ctx.params.get("operator"), *words) if w in known), None)


def complete_input(ctx: click.Context, parameter: click.Parameter, typed: str) -> Items:
    """`InputTensor=` followed by a file."""
    if "=" in typed:
        return complete_file(ctx, parameter, typed)
    return complete_tensor(ctx, parameter, typed)


def complete_code(_: click.Context, __: click.Parameter, typed: str) -> Items:
    codes = (code for code in list_codes() if code.startswith(typed.upper()))
    return [CompletionItem(code, help=explain(code).title) for code in codes]


_VALUES = {"--tensor": complete_tensor, "--attr": complete_attribute, "--input": complete_input}
TAKERS = {
    "--tensor": ("compile", "export", "graph", "inspect", "ir", "run", "tune"),
    "--attr": ("compile", "export", "graph", "inspect", "ir", "run", "tune"),
    "--input": ("export", "run"),
}
"""Commands that take each of these options."""


def _pairs(typed: str, names: tuple[str, ...]) -> Items:
    return [CompletionItem(f"{name}=") for name in names if name.lower().startswith(typed.lower())]
