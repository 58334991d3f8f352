"""`dmlc graph`: picture of a graph before and after fusion."""

from __future__ import annotations

from pathlib import Path

import click

import dmlc
from dmlc.cli.arguments import (
    Bindings,
    binding_options,
    profile_option,
    show_warnings,
    target_option,
)
from dmlc.cli.completion import complete_operator
from dmlc.files import write_files
from dmlc.picture import FORMATS, SUFFIXES, draw, draw_page
from dmlc.picture.diagram import VIEWS
from dmlc.pipeline import explain, trace


@click.command(
    "graph",
    epilog="Example: dmlc graph examples/graphs/residual_block_backward.dml --dim N=32 --dim C=64 "
    "--dim H=56 --dim W=56 -o picture.svg",
)
@click.argument("subject", shell_complete=complete_operator)
@binding_options
@click.option("--format", "form", type=click.Choice([*FORMATS, "html"]),
              help="Format of the output. [default: the suffix of -o, or text]")  # fmt: skip
@click.option("--html", is_flag=True,
              help="Write a page with a slider over the passes, which shows the formula, the "
              "source line and the kernel of the selected stage. Same as --format html.",
              )  # fmt: skip
@click.option("--view", type=click.Choice([*VIEWS, "both"]),
              help="Show every stage as a kernel, the kernels after fusion, or both. "
              "[default: both]")  # fmt: skip
@target_option("The target of the kernels.")
@profile_option
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of the terminal.")
def command(
    subject: str,
    bindings: Bindings,
    form: str | None,
    html: bool,
    view: str | None,
    target: str,
    profile: str | None,
    output: str | None,
) -> None:
    """Show a graph before and after fusion: its kernels, the stages in each, and the bytes moved.

    SUBJECT is FILE[:NAME], or an operator of the library, which is a small graph. SVG is a picture
    for a page, light or dark; DOT is for Graphviz; text is for the terminal; HTML is an interactive
    page in one file, which shows every pass."""
    form = _find_format(form, html, output)
    if form == "html" and view is not None:
        raise click.UsageError("--view does not go with HTML, which shows all views")
    function = bindings.bind(subject)
    found = None if subject.endswith(".ir") else bindings.find(subject)
    graph = found if isinstance(found, dmlc.Graph) else None
    if form == "html":
        passes = trace(function, target, profile)
        show_warnings(passes.report.warnings)
        content = draw_page(passes, graph)
    else:
        report = explain(function, target, profile)
        show_warnings(report.warnings)
        content = draw(report, form, VIEWS if view in (None, "both") else (view,), graph)
    if output is None:
        click.echo(content, nl=False)
        return
    path = Path(output)
    for written in write_files(path.parent, {path.name: content.encode()}):
        click.echo(written)


def _find_format(form: str | None, html: bool, output: str | None) -> str:
    """Format of the output, from the options and the suffix of the file."""
    if html:
        if form not in (None, "html"):
            raise click.UsageError(f"--html and --format {form} do not go together")
        return "html"
    if form is not None:
        return form
    suffixes = SUFFIXES | dict.fromkeys((".html", ".htm"), "html")
    return suffixes.get(Path(output).suffix.lower(), "text") if output else "text"
