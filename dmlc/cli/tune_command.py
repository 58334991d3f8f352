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
              help="Devices that the rows apply to: a class of GPUs, or an architecture such as "
              "nvidia.sm_90. [default: any device of the same profile]")  # fmt: skip
@click.option("-o", "--output", "path", metavar="FILE", required=True,
              help="The file of rows, for dmlc compile --schedules; existing rows are kept. "
              "FILE.md is a report, and FILE.state.json the state to resume from.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=1), default=SECONDS, show_default=True,
              help="The time limit of a candidate, compilation included, after which it is hung.",
              )  # fmt: skip
@click.option("--retry", is_flag=True,
              help="Continue with a device that hung, without the candidate that hung.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write the outcomes as JSON.")
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
    """Search for the fastest schedule parameters of the kernels of an operator or a graph on a
    device, and write them as rows of the schedule table.

    OPERATOR is a name of the library, or FILE[:NAME]; its sizes must be known. At most ten
    configurations of each kernel are tried, the most promising by the model of times first. Each
    runs in a process of its own, is compared with the reference first, and is timed only if it is
    right, alternating with the usual kernel. An interrupted run can be resumed. The exit status is
    1 if a candidate was wrong, or the device hung."""
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
