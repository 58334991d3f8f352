"""`dmlc tune`: measured rows of the schedule table for a device."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from dmlc.cli.arguments import Bindings, binding_options
from dmlc.cli.completion import complete_operator
from dmlc.cli.device_names import complete_device
from dmlc.cli.messages import show
from dmlc.devices import DEFAULT, RUNTIMES
from dmlc.files import write_files
from dmlc.source import DmlcError
from dmlc.tuning.judge import TrialOutcome, TrialStatus
from dmlc.tuning.page import write_page
from dmlc.tuning.session import SECONDS, Session, name_kernel


@click.command(
    "tune",
    epilog="Example: dmlc tune directml.GEMM --tensor ATensor=FLOAT32[1,1,256,256] "
    "--tensor BTensor=FLOAT32[1,1,256,256] --device opencl -o rows.txt, and then dmlc compile "
    "... --schedules rows.txt",
)
@click.argument("operator", shell_complete=complete_operator)
@binding_options
@click.option("--device", default=DEFAULT, show_default=True, shell_complete=complete_device,
              help=f"{', '.join(RUNTIMES)}, each also with :<index or part of a name>.",
              )  # fmt: skip
@click.option("--gpu-class", metavar="NAME",
              help="What the rows are for: a class of GPUs, or an architecture such as "
              "nvidia.sm_90. [default: any device of the same profile]")  # fmt: skip
@click.option("-o", "--output", "path", metavar="FILE", required=True,
              help="The file of rows, which dmlc compile --schedules takes; rows that it has stay. "
              "FILE.md says what was tried, and FILE.state.json where to go on.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=1), default=SECONDS, show_default=True,
              help="A candidate that takes longer, compiling included, has hung.")  # fmt: skip
@click.option("--retry", is_flag=True,
              help="Go on with a device that hung, without the candidate that it hung on.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write what was tried as JSON.")
def command(
    operator: str,
    bindings: Bindings,
    device: str,
    gpu_class: str | None,
    path: str,
    seconds: float,
    retry: bool,
    as_json: bool,
) -> int:
    """Find the numbers that suit the kernels of an operator or a graph on a device, and write them
    as rows of the schedule table.

    OPERATOR is a name of the library, or FILE[:NAME]; its sizes must be known. Of each kernel at
    most ten configurations are tried, those first that the model of times expects most of. Each is
    compared with the reference first, and timed only if it is right, in turns with the usual
    kernel, in a process of its own. A run that was interrupted goes on where it stopped. Exits with
    1 where a candidate was wrong, or the device hung.
    """
    function = bindings.bind(operator)
    rows = Path(path)
    session = Session(function, device, rows, gpu_class, seconds, retry=retry)
    subjects = session.list_subjects()
    if not subjects:
        raise DmlcError(
            f"{function.name} has no kernel to tune: rows are there, or none are for its kind",
            notes=[f"delete a kernel's row from '{path}' to tune it again"],
        )
    show(f"{', '.join(map(name_kernel, subjects))} on {session.record.device}")
    page = rows.with_name(f"{rows.name}.md")
    try:
        for step in session.steps(subjects):
            said = _describe(step.numbers, step.outcome)
            show(f"{step.kernel} {step.number} of {step.count}: {said}")
    finally:
        write_files(page.parent, {page.name: write_page(session.records, rows.name).encode()})
    record = session.record
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(record), indent=2))
    else:
        for kernel in map(name_kernel, subjects):
            won = record.confirmed.get(kernel)
            click.echo(
                f"{kernel}: no row, the usual numbers stay"
                if won is None
                else f"{kernel}: {won.numbers}, {won.outcome.gain:.2f} times as fast"
            )
        click.echo(str(page))
    if record.hung:
        show(f"error: {record.device} hung on {record.hung}: it is left alone")
        return 1
    return 1 if any(each.outcome.status is TrialStatus.WRONG for each in record.tried) else 0


def _describe(numbers: str, outcome: TrialOutcome) -> str:
    if outcome.status is TrialStatus.TIMED:
        return f"{numbers}: {outcome.gain:.2f} times as fast"
    return f"{numbers}: {outcome.status}, {outcome.said}"
