"""`dmlc compile`: sources and a manifest."""

from __future__ import annotations

import json

import click

import dmlc
from dmlc.cli.arguments import bind_subject, bindings
from dmlc.program import combine_manifests, write_programs

_TARGETS = ("hlsl", "opencl")


@click.command(
    "compile",
    epilog="Example: dmlc compile directml.ACTIVATION_RELU_GRAD --target all -o out",
)
@click.argument("operator")
@bindings
@click.option("--target", type=click.Choice([*_TARGETS, "all"]), default="all", show_default=True,
              help="The output language.")  # fmt: skip
@click.option("--profile", type=click.Choice(["cpu", "gpu"]),
              help="The kind of device to shape kernels for. [default: cpu for OpenCL, gpu for "
              "HLSL]")  # fmt: skip
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write the files into this folder. Without it, print the sources.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the manifest.")
def command(
    operator: str,
    tensors: tuple[str, ...],
    attributes: tuple[str, ...],
    dimensions: tuple[str, ...],
    target: str,
    profile: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Compile an operator to HLSL and OpenCL sources with a manifest.

    OPERATOR is a name of the library, or FILE[:NAME]. Element-wise operators need no sizes: their
    kernels take the element count when they run.
    """
    function = bind_subject(operator, tensors, attributes, dimensions)
    targets = _TARGETS if target == "all" else (target,)
    programs = [dmlc.compile(function, target=name, profile=profile) for name in targets]
    if directory is not None:
        for path in write_programs(programs, directory):
            click.echo(path, err=as_json)
    elif not as_json:
        click.echo("\n".join(k.source for p in programs for k in p.kernels), nl=False)
    if as_json:
        whole = programs[0].manifest() if len(programs) == 1 else combine_manifests(programs)
        click.echo(json.dumps(whole, indent=2))
