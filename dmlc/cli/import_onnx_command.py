"""`dmlc import-onnx`: ONNX model as a function of the tensor IR."""

from __future__ import annotations

import textwrap

import click

from dmlc import onnx
from dmlc.cli.arguments import read_pairs, read_symbols, read_tensors, tensor_option
from dmlc.cli.arrays import read_arrays
from dmlc.cli.imported import show_imported


def _list_operators(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        for kind, names in onnx.list_operators().items():
            text = textwrap.wrap(f"{kind}: {', '.join(names)}", 100, subsequent_indent="  ")
            click.echo("\n".join(text))
        context.exit()


@click.command(
    "import-onnx", epilog="Example: dmlc import-onnx model.onnx --dim batch=8 -o imported"
)
@click.argument("model")
@tensor_option
@click.option("--dim", "dimensions", multiple=True, metavar="NAME=SIZE",
              help="The value of a symbol among the model's sizes: batch=8. May repeat.",
              )  # fmt: skip
@click.option("--constant", "constants", multiple=True, metavar="NAME=FILE.npy",
              help="The value of an input that determines shapes, such as the sizes of a Reshape. "
              "May repeat.")  # fmt: skip
@click.option("--operators", is_flag=True, is_eager=True, expose_value=False,
              callback=_list_operators,
              help="List the supported operators of ONNX, and exit.")  # fmt: skip
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write the function to DIR/MODEL.ir, and its weights to files in "
              "DIR/MODEL.weights, where dmlc run finds them. Without it, print the function.",
              )  # fmt: skip
def command(
    model: str,
    tensors: tuple[str, ...],
    dimensions: tuple[str, ...],
    constants: tuple[str, ...],
    directory: str | None,
) -> None:
    """Convert an ONNX model to a function of the tensor IR.

    Commands that take a function, such as dmlc compile, ir, graph, inspect and run, take the file
    that -o writes. Constants that are too large for kernels become parameters of the function, its
    weights."""
    fixed = read_arrays(read_pairs("--constant", constants), {})
    found = onnx.load(model, fixed, read_tensors(tensors), read_symbols(dimensions))
    show_imported(found, model, directory)
