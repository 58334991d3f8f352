"""`dmlc profile`: how long each kernel of an operator or a graph takes."""

from __future__ import annotations

import json

import click

from dmlc.api import plan_run
from dmlc.cli.arguments import (
    attribute_option,
    dimension_option,
    import_option,
    matrix_option,
    schedule_option,
    tensor_option,
)
from dmlc.cli.calls import read_call
from dmlc.cli.completion import complete_input, complete_operator
from dmlc.cli.device_names import complete_device
from dmlc.devices import DEFAULT
from dmlc.runtime.profile import RUNS, refuse
from dmlc.source import Source


@click.command(
    "profile",
    epilog="Example: dmlc profile directml.ACTIVATION_RELU_GRAD --input InputTensor=x.npy "
    "--input InputGradientTensor=dy.npy",
)
@click.argument("operator", shell_complete=complete_operator)
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
              shell_complete=complete_input,
              help="An input tensor. May repeat.")  # fmt: skip
@tensor_option
@attribute_option
@dimension_option
@import_option
@click.option("--device", default=DEFAULT, show_default=True, shell_complete=complete_device,
              help="An OpenCL device, or a Vulkan one with a clock: opencl or vulkan, also with "
              ":<index or part of a name>.")  # fmt: skip
@schedule_option
@matrix_option
@click.option("--runs", type=click.IntRange(1, 100_000), default=RUNS, show_default=True,
              help="Take the median of so many runs.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(
    operator: str,
    inputs: tuple[str, ...],
    tensors: tuple[str, ...],
    attributes: tuple[str, ...],
    dimensions: tuple[str, ...],
    folders: tuple[str, ...],
    device: str,
    schedule: Source | None,
    matrix_instructions: list[str],
    runs: int,
    as_json: bool,
) -> None:
    """Say how long each kernel of an operator or a graph takes.

    The arguments are those of `dmlc run`. Each kernel is launched after the one before it has
    ended, and timed by the device's own clock. A line has the median of its time in microseconds,
    its part of the whole, its launches in a run, the bytes that it moves, the rate, and the stages
    that it computes.
    """
    call = read_call(
        operator, inputs, tensors, attributes, dimensions, folders, device, schedule,
        matrix_instructions,
    )  # fmt: skip
    plan = plan_run(*call.arguments)
    if plan.executable is None:
        raise refuse("the reference")
    found = plan.executable.profile(plan.inputs, plan.outputs, runs)
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
