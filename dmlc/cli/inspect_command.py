"""`dmlc inspect`: figures of each kernel on a GPU, without a GPU."""

from __future__ import annotations

import json

import click

from dmlc.cli.arguments import (
    Bindings,
    binding_options,
    schedule_option,
    show_warnings,
    table_options,
)
from dmlc.cli.completion import complete_operator
from dmlc.inspection import inspect
from dmlc.inspection.radv import DEFAULT
from dmlc.shader_model import SHADER_MODELS
from dmlc.source import Source


@click.command(
    "inspect",
    epilog="Example: dmlc inspect directml.ACTIVATION_RELU_GRAD "
    "--tensor InputTensor=FLOAT32[4096,4096] --tensor InputGradientTensor=FLOAT32[4096,4096]",
)
@click.argument("operator", shell_complete=complete_operator)
@binding_options
@click.option("--gpu", "gpus", default=DEFAULT, show_default=True, metavar="GPU,...",
              help="The GPU to compile for: an AMD GPU by its name in Mesa's RADV, such as "
              "gfx1100, navi21, rembrandt or vega10, or an NVIDIA architecture, such as sm_90.",
              )  # fmt: skip
@click.option("--shader-model", type=click.Choice(SHADER_MODELS), default=SHADER_MODELS[0],
              show_default=True, help="Shader model of the HLSL for AMD's GPUs.")  # fmt: skip
@schedule_option
@table_options
@click.option("--isa", is_flag=True, help="Also show the machine code.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(
    operator: str,
    bindings: Bindings,
    gpus: str,
    shader_model: str,
    schedule: Source | None,
    gpu_class: str | None,
    schedules: Source | None,
    isa: bool,
    as_json: bool,
) -> None:
    """Show statistics of each kernel on a GPU: registers, instructions, loads, and a modelled time
    beside its lower bound.

    OPERATOR is a name of the library, or FILE[:NAME]. No GPU is needed: the GPU's own compiler
    works offline, and the time comes from a model."""
    names = [name.strip() for name in gpus.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("expected names of GPUs, such as gfx1100", param_hint="'--gpu'")
    function = bindings.bind(operator)
    found = inspect(
        function,
        names,
        shader_model=shader_model,
        schedule=schedule,
        gpu_class=gpu_class,
        schedules=schedules,
    )
    show_warnings(found.warnings)
    if as_json:
        click.echo(json.dumps(found.to_json(isa), indent=2))
    else:
        click.echo(found.to_text(isa))
