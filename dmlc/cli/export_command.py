"""`dmlc export`: operators and graphs as files for other tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click
from click.core import ParameterSource

from dmlc import cgc, interop
from dmlc.binding import Graph, Operator, TensorDesc
from dmlc.cli.arguments import (
    Bindings,
    binding_options,
    read_pairs,
    show_commands,
)
from dmlc.cli.arrays import read_arrays
from dmlc.cli.completion import complete_input, complete_operator
from dmlc.cli.formats import FUNCTION_FORMATS, describe_formats, list_formats
from dmlc.cli.messages import show
from dmlc.files import write_files
from dmlc.interop.export import DOMAIN, DXDISPATCH, FORMATS
from dmlc.ir import Function
from dmlc.shader_model import SHADER_MODELS
from dmlc.source import DmlcError

_OF_PROOFS = ("inputs", "seed", "shader_model")
"""The parameters that a function alone has no use for."""
_OF_FUNCTIONS = ("domain",)
"""Those that a proof has no use for."""
_OF_BINDINGS = ("tensors", "attributes", "dimensions", "folders")
"""Those that a model has no use for either."""


@click.command(
    "export",
    epilog="Example: dmlc export directml.GEMM --to offload-test-suite -o proof",
)
@click.argument("operator", shell_complete=complete_operator)
@binding_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              shell_complete=complete_input,
              help="An input tensor. May repeat; the others get random values.",
              )  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of random values.")  # fmt: skip
@click.option("--to", type=click.Choice(list_formats()), default=DXDISPATCH, show_default=True,
              help=f"The format. {describe_formats()}")  # fmt: skip
@click.option("--shader-model", type=click.Choice(SHADER_MODELS), default=SHADER_MODELS[0],
              show_default=True, help="Shader model of HLSL.")  # fmt: skip
@click.option("--domain", default=DOMAIN, show_default=True,
              help="For ort-plugin: the domain of the operator.")  # fmt: skip
@click.option("-o", "--output", "directory", metavar="DIR", required=True,
              help="Write the files into this folder.")  # fmt: skip
def command(
    operator: str,
    bindings: Bindings,
    inputs: tuple[str, ...],
    seed: int,
    to: str,
    shader_model: str,
    domain: str,
    directory: str,
) -> None:
    """Write an operator or a graph for other tools.

    For tools that run shaders on other machines: with inputs, expected results, and a tolerance for
    each element. For tools that compile: the function alone.

    OPERATOR is a name of the library, or FILE[:NAME]. Without bindings, the operator's first
    example is written; for ort-plugin, an element-wise operator for tensors of any shape. A model
    FILE.onnx is written as a graph of CGC (--to cgc)."""
    if operator.endswith(".onnx"):
        _export_model(operator, to, directory)
        return
    subject = bindings.find(operator)
    described, known, dims = bindings.read(subject)
    bound = isinstance(subject, Graph) or bool(bindings or inputs)
    if to in FUNCTION_FORMATS:
        known_format = FUNCTION_FORMATS[to]
        _refuse_options(to, {*_OF_PROOFS, *_OF_FUNCTIONS} - {*known_format.options})
        is_example = not bound and not known_format.takes_open
        function = _bind(subject, is_example, described, known, dims)
        options = {"domain": domain, "shader_model": shader_model}
        export, place = known_format.write(function, subject, options), known_format.place
    else:
        _refuse_options(to, _OF_FUNCTIONS)
        if isinstance(subject, Operator) and not bound:
            proof = interop.proof.find_example(subject, shader_model)
        else:
            arrays = read_arrays(read_pairs("--input", inputs), described)
            proof = interop.proof.prove(
                subject, described, known, dims=dims, arrays=arrays, seed=seed
            )
        export = interop.export.export_proof(proof, to, shader_model)
        place = FORMATS[to].place
    for path in write_files(directory, export.files):
        click.echo(path)
    for note in export.notes:
        show(f"note: {note}")
    if export.commands:
        show_commands(place, export.commands)


def _export_model(path: str, to: str, directory: str) -> None:
    """Writes an ONNX model node by node, as the one format does that has such nodes."""
    if to != "cgc":
        raise DmlcError(
            f"'{path}' is an ONNX model, which is exported by --to cgc alone",
            notes=["dmlc import-onnx makes a function of it"],
        )
    _refuse_options(to, {*_OF_PROOFS, *_OF_FUNCTIONS, *_OF_BINDINGS})
    for written in write_files(directory, cgc.export_model(path).files):
        click.echo(written)


def _refuse_options(to: str, names: Collection[str]) -> None:
    """Refuses parameters of the command that are given, and that a format has no use for."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name
        if name not in names:
            continue
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            why = ", which has no data" if name in _OF_PROOFS and to in FUNCTION_FORMATS else ""
            raise click.UsageError(f"{parameter.opts[0]} says nothing of {to}{why}")


def _bind(
    subject: Operator | Graph,
    is_example: bool,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int],
) -> Function:
    """The function of these bindings, or of an operator's first example."""
    if isinstance(subject, Graph):
        return subject.bind(tensors, dims)
    if is_example:
        return interop.proof.find_function(subject)
    return subject.bind(tensors, attributes)
