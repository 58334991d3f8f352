"""`dmlc export`: a case as files for tools that run shaders on machines that others have."""

from __future__ import annotations

import click

from dmlc import TensorDesc, interop
from dmlc.binding import Graph, Operator
from dmlc.cli.arguments import (
    bindings,
    find_subject,
    read_attributes,
    read_dimensions,
    read_pairs,
    read_tensors,
    refuse_attributes,
    show_commands,
)
from dmlc.cli.arrays import read_arrays
from dmlc.files import write_files
from dmlc.interop.export import DXDISPATCH, FORMATS
from dmlc.shader_model import SHADER_MODELS

_PLACES = {
    "dxdispatch": "on Windows, in that folder",
    "offload-test-suite": "in the suite's build, with the file among its tests",
}


@click.command(
    "export",
    epilog="Example: dmlc export directml.GEMM --to offload-test-suite -o proof",
)
@click.argument("operator")
@bindings
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              help="An input tensor. May repeat; values are drawn for those left out.",
              )  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="What values are drawn from.")  # fmt: skip
@click.option("--to", type=click.Choice(FORMATS), default=DXDISPATCH, show_default=True,
              help="A folder for DxDispatch, which runs Direct3D 12 shaders beside DirectML; or a "
              "test file of LLVM's offload-test-suite, for Direct3D 12, Vulkan and Metal.",
              )  # fmt: skip
@click.option("--shader-model", type=click.Choice(SHADER_MODELS), default=SHADER_MODELS[0],
              show_default=True, help="What HLSL is written for.")  # fmt: skip
@click.option("--contract", is_flag=True,
              help="Sums of FLOAT32 products may be rounded once for each product and addition.",
              )  # fmt: skip
@click.option("-o", "--output", "directory", metavar="DIR", required=True,
              help="Write the files into this folder.")  # fmt: skip
def command(
    operator: str,
    tensors: tuple[str, ...],
    attributes: tuple[str, ...],
    dimensions: tuple[str, ...],
    folders: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int,
    to: str,
    shader_model: str,
    contract: bool,
    directory: str,
) -> None:
    """Write an operator's or a graph's shaders with inputs, what they must give, and how far each
    element may be off, for tools that run shaders on machines that others have.

    OPERATOR is a name of the library, or FILE[:NAME]. Without bindings it is the operator's first
    example that is written.
    """
    subject = find_subject(operator, folders)
    dims = read_dimensions(dimensions, subject)
    if isinstance(subject, Graph):
        refuse_attributes(attributes, subject)
    if isinstance(subject, Operator) and not (tensors or attributes or inputs):
        proof = interop.proof.find_example(subject, shader_model)
    else:
        described = read_tensors(tensors)
        arrays = read_arrays(read_pairs("--input", inputs), described)
        given = {n: TensorDesc(a.dtype, a.shape) for n, a in arrays.items()} | described
        known = read_attributes(attributes, subject)
        proof = interop.proof.prove(subject, given, known, dims=dims, arrays=arrays, seed=seed)
    export = interop.export.export_proof(proof, to, shader_model, contract)
    for path in write_files(directory, export.files):
        click.echo(path)
    show_commands(_PLACES[to], export.commands)
