"""`dmlc profile`: time of each kernel of an operator or a graph."""

from __future__ import annotations

import json

import click

from dmlc.api import plan_run
from dmlc.cli.calls import RunOptions, call_options
from dmlc.runtime.profile import RUNS, refuse


@click.command(
    "profile",
    epilog="Example: dmlc profile directml.ACTIVATION_RELU_GRAD --input InputTensor=x.npy "
    "--input InputGradientTensor=dy.npy",
)
@call_options(
    "An OpenCL device, or a Vulkan one with a clock: opencl or vulkan, also with :<index or part "
    "of a name>."
)
@click.option("--runs", type=click.IntRange(1, 100_000), default=RUNS, show_default=True,
              help="Number of runs, of which the median is shown.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(
    call: RunOptions,
    runs: int,
    as_json: bool,
) -> None:
    """Measure the time of each kernel of an operator or a graph.

    The arguments are those of `dmlc run`. Launches do not overlap, and the device's own clock times
    them. For each kernel, a line shows the median time in microseconds, its share of the total, the
    launches per run, the bytes moved, the rate, and the stages that it computes."""
    plan = plan_run(*call.arguments)
    if plan.executable is None:
        raise refuse("the reference")
    found = plan.executable.profile(plan.inputs, plan.outputs, runs)
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
