"""`dmlc graph`: a picture of a graph before and after fusion."""

from __future__ import annotations

from pathlib import Path

import click

import dmlc
from dmlc.cli.arguments import (
    bind_subject,
    bindings,
    find_subject,
    profile_option,
    show_warnings,
    target_option,
)
from dmlc.cli.completion import complete_operator
from dmlc.files import write_files
from dmlc.picture import FORMATS, SUFFIXES, draw
from dmlc.picture.diagram import VIEWS
from dmlc.pipeline import explain


@click.command(
    "graph",
    epilog="Example: dmlc graph examples/graphs/residual_block_backward.dml --dim N=32 --dim C=64 "
    "--dim H=56 --dim W=56 -o picture.svg",
)
@click.argument("subject", shell_complete=complete_operator)
@bindings
@click.option("--format", "form", type=click.Choice(FORMATS),
              help="What to write. [default: what the name after -o ends in, or text]")  # fmt: skip
@click.option("--view", type=click.Choice([*VIEWS, "both"]), default="both", show_default=True,
              help="Show every stage as a kernel, the kernels after fusion, or both.")  # fmt: skip
@target_option("The target that kernels are made for.")
@profile_option
@click.option("-o", "--output", metavar="FILE", help="Write to this file, not to the terminal.")
def command(
    subject: str,
    tensors: tuple[str, ...],
    attributes: tuple[str, ...],
    dimensions: tuple[str, ...],
    folders: tuple[str, ...],
    form: str | None,
    view: str,
    target: str,
    profile: str | None,
    output: str | None,
) -> None:
    """Show what fusion makes of a graph: its kernels, the stages in each, and the bytes moved.

    SUBJECT is FILE[:NAME], or an operator of the library, which is a small graph. As SVG it is a
    picture for a page, light or dark; DOT is for Graphviz; text is for the terminal.
    """
    if form is None:
        form = SUFFIXES.get(Path(output).suffix.lower(), "text") if output else "text"
    function = bind_subject(subject, tensors, attributes, dimensions, folders)
    views = VIEWS if view == "both" else (view,)
    found = None if subject.endswith(".ir") else find_subject(subject, folders)
    graph = found if isinstance(found, dmlc.Graph) else None
    report = explain(function, target, profile)
    show_warnings(report.warnings)
    content = draw(report, form, views, graph)
    if output is None:
        click.echo(content, nl=False)
        return
    path = Path(output)
    for written in write_files(path.parent, {path.name: content.encode()}):
        click.echo(written)
