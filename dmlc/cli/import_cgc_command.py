"""`dmlc import-cgc`: graph of Windows' Compute Graph Compiler as a function of the tensor IR."""

from __future__ import annotations

import textwrap

import click

from dmlc import cgc
from dmlc.cli.imported import show_imported


def _list_operators(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(textwrap.fill(", ".join(cgc.list_operators()), 100))
        context.exit()


@click.command("import-cgc", epilog="Example: dmlc import-cgc graph.mlir -o imported")
@click.argument("graph")
@click.option("--operators", is_flag=True, is_eager=True, expose_value=False,
              callback=_list_operators,
              help="List the supported operations of cgc_op, and exit.",
              )  # fmt: skip
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write the function to DIR/GRAPH.ir, and its weights to files in "
              "DIR/GRAPH.weights, where dmlc run finds them. Without it, print the function.",
              )  # fmt: skip
def command(graph: str, directory: str | None) -> None:
    """Convert a CGC graph, an .mlir file of the dialect cgc_op, to a function of the tensor IR.

    Commands that take a function, such as dmlc compile, ir, graph, inspect and run, take the file
    that -o writes. Constants whose values are not in the file become inputs."""
    show_imported(cgc.load(graph), graph, directory)
