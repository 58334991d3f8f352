"""`dmlc ir`: tensor IR of an operator or a graph, before and after the passes."""

from __future__ import annotations

import click

from dmlc import ir
from dmlc.cli.arguments import (
    Bindings,
    binding_options,
    profile_option,
    show_warnings,
    table_options,
    target_option,
)
from dmlc.cli.completion import complete_operator
from dmlc.pipeline import (
    USUAL,
    describe_kernels,
    describe_nests,
    describe_schedules,
    find_fusion,
    list_passes,
    read_steps,
)
from dmlc.report import explain_plain
from dmlc.source import Source
from dmlc.transform.fuse import Fusion
from dmlc.transform.json import fusion_to_json
from dmlc.transform.rewrite import PASSES
from dmlc.transform.simplify import simplify


@click.command(
    "ir",
    epilog="Example: dmlc ir directml.ACTIVATION_RELU_GRAD --tensor InputTensor=FLOAT16[2,3]",
)
@click.argument("operator", shell_complete=complete_operator)
@binding_options
@click.option("--after", type=click.Choice([*PASSES, "factor", "fuse"]), metavar="PASS",
              help="Print it after this pass: fuse, or one of those before it, which are "
              f"{', '.join(PASSES)}. factor means the last of them.")  # fmt: skip
@click.option("--kernel", is_flag=True, help="Print the kernel IR: with --json a list of kernels.")
@click.option("--schedule", is_flag=True,
              help="Print the schedule of each kernel: the calls that make its loops, as dmlc "
              "compile --schedule FILE takes them.")  # fmt: skip
@click.option("--program", is_flag=True, help="Print the loops of each kernel, one per line.")
@target_option("The target that --kernel, --schedule, --program and --after are for.")
@profile_option
@table_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write JSON: after fuse, with the kernels and the bytes that they move.",
)
def command(
    operator: str,
    bindings: Bindings,
    after: str | None,
    kernel: bool,
    schedule: bool,
    program: bool,
    target: str,
    profile: str | None,
    gpu_class: str | None,
    schedules: Source | None,
    as_json: bool,
) -> None:
    """Print the tensor IR of an operator or a graph, or the kernel IR it is lowered to.

    OPERATOR is a name of the library, or FILE[:NAME].
    """
    if sum((kernel, schedule, program, after is not None)) > 1:
        raise click.UsageError("--kernel, --schedule, --program and --after do not go together")
    if (schedule or program) and as_json:
        raise click.UsageError(
            f"--{'schedule' if schedule else 'program'} has no JSON: --kernel has"
        )
    function = bindings.bind(operator)
    show_warnings(function.warnings)
    steps = read_steps(gpu_class=gpu_class, schedules=schedules)
    if steps != USUAL and not (kernel or schedule or program):
        raise click.UsageError(
            "--gpu-class and --schedules are for --kernel, --schedule and --program"
        )
    if kernel:
        click.echo(describe_kernels(function, target, profile, as_json=as_json, steps=steps))
        return
    if schedule:
        click.echo(describe_schedules(function, target, profile, steps))
        return
    if program:
        click.echo(describe_nests(function, target, profile, steps))
        return
    fusion: Fusion | None = None
    if after == "fuse":
        fusion = find_fusion(function, target, profile)
        function = fusion.function
    elif after == "simplify":
        function = simplify(function)
    elif after is not None:
        last = PASSES[-1] if after == "factor" else after
        function = next(
            made for name, made in list_passes(function, target, profile) if name == last
        )
    if as_json:
        click.echo(ir.to_json(function) if fusion is None else fusion_to_json(fusion))
        return
    click.echo(str(function))
    if fusion is not None:
        for number, group in enumerate(fusion.groups):
            moved = fusion.traffic(group)
            bytes_moved = "" if moved is None else f"; reads {moved[0]:,} B, writes {moved[1]:,} B"
            click.echo(f"// kernel {number}: {group.reason}{bytes_moved}")
            ordered = [name for order in group.orders for name in order.names]
            plain = (s for s in function.stages if s.name in {*group.stages}.difference(ordered))
            for why in filter(None, map(explain_plain, plain)):
                click.echo(f"//   {why}")
