"""`dmlc test`: tests of operators on devices, generated from their own tables."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

import dmlc
from dmlc.cli.arguments import find_file, find_subject, import_option, is_file
from dmlc.cli.completion import complete_operator
from dmlc.cli.device_names import complete_device
from dmlc.cli.judged import judge_files, show_judged
from dmlc.cli.messages import show
from dmlc.cli.patterns import matches_pattern
from dmlc.devices import DEFAULT, REFERENCE, RUNTIMES
from dmlc.files import write_files
from dmlc.interop.export import FORMATS, export_case
from dmlc.known_answers import explain_failure, find_trusted
from dmlc.source import Diagnostic, DmlcError, list_names
from dmlc.testing.candidate import Options
from dmlc.testing.harness import CASES, VARIANTS, CaseExport, Settings
from dmlc.testing.jobs import Target, run_targets
from dmlc.testing.judging import replay as judge_again
from dmlc.testing.memory import name_tool
from dmlc.testing.outcome import Outcome, Status
from dmlc.testing.replay import read_failure
from dmlc.testing.report import Report, describe_outcome, find_suspects, render_failure, write_junit

FAILURES = "dmlc-failures"


@click.command(
    "test",
    epilog="Example: dmlc test my_operators.dml --device opencl --device vulkan, "
    "dmlc test '*SOFTMAX*', or dmlc test --replay dmlc-failures/MINE-call-1234abcd",
)
@click.argument("subjects", nargs=-1, metavar="[OP|FILE]...",
                shell_complete=complete_operator)  # fmt: skip
@click.option("--device", "devices", multiple=True, metavar="DEVICE",
              shell_complete=complete_device,
              help=f"{', '.join(RUNTIMES)}, each also with :<index or part of a name>, a simulated "
              f"one with :<seed>; or {REFERENCE}. May repeat. [default: {DEFAULT}]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Seed of the random cases.")  # fmt: skip
@click.option("--cases", type=click.IntRange(0), default=CASES, show_default=True,
              help="Random cases per operator, besides its examples.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Number of processes. [default: one per core]")  # fmt: skip
@click.option("-o", "--output", "folder", metavar="DIR",
              help="Keep each failure, and what --export writes, in a folder of its own in DIR. "
              f"[default: {FAILURES}]")  # fmt: skip
@click.option("--variants", type=click.IntRange(0), default=VARIANTS, show_default=True,
              help="Random calls per operator that also run as variants: by other kernels and with "
              "other strides, which must give the same results.")  # fmt: skip
@click.option("--check-memory", is_flag=True,
              help="Also check one example and one random call of each operator for accesses out "
              "of bounds and races.")  # fmt: skip
@click.option("--export", "to", type=click.Choice(list(FORMATS)),
              help="Also export each example, random call and failure to this tool, for other "
              "machines. Needs -o.")  # fmt: skip
@click.option("--coverage", is_flag=True,
              help="Also list the rows of each operator's tables that no case covered.",
              )  # fmt: skip
@click.option("--junit", metavar="FILE", help="Also write JUnit's XML.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON in place of the table.")
@click.option("--replay", metavar="DIR",
              help="Run the failure in DIR again, with the operator kept there, or with its new "
              "version in FILE.")  # fmt: skip
@click.option("--kernel", "kernel", metavar="FILE",
              help="Judge a kernel as an implementation of OP: .hlsl, .spv, .cl, .wgsl, a Python "
              "function in .py, or a folder with KernelBench's Model and ModelNew.")  # fmt: skip
@click.option(
    "--entry", default="", metavar="NAME", help="The kernel's function. [default: the only one]"
)
@click.option("--bindings", default="", metavar="NAME=FORMULA,...",
              help="The tensor of each buffer, and the value of each argument, such as "
              "'X=InputTensor, n=InputTensor.size'. [default: by their names]")  # fmt: skip
@click.option("--groups", default="", metavar="X,Y,Z",
              help="The groups of a launch, such as 'ceil(n / 64), 1, 1'. [default: a work item "
              "for each element of the output]")  # fmt: skip
@click.option("--group-size", default="", metavar="X,Y,Z",
              help="The work items of a group, if the OpenCL C source does not state them.",
              )  # fmt: skip
@click.option("--where", default="", metavar="CONDITION",
              help="A condition on the calls that the kernel supports, such as "
              "'InputTensor.rank == 2'.",
              )  # fmt: skip
@import_option
def command(
    subjects: tuple[str, ...],
    devices: tuple[str, ...],
    seed: int,
    cases: int,
    jobs: int | None,
    folder: str | None,
    variants: int,
    check_memory: bool,
    to: str | None,
    coverage: bool,
    junit: str | None,
    as_json: bool,
    replay: str | None,
    folders: tuple[str, ...],
    kernel: str | None,
    entry: str,
    bindings: str,
    groups: str,
    group_size: str,
    where: str,
) -> int:
    """Test operators: their examples, and random calls from their own tables and constraints.

    OP is a name of the library, part of one, or a pattern with '*' and '?'; FILE tests all
    operators that it defines, FILE:NAME one. Without arguments, the whole library is tested. Every
    result is compared with the reference, within a computed error bound; calls that a constraint
    just forbids must be refused. A failure is shrunk to a small case, shown, and kept in a folder
    for --replay. The exit status is 1 if anything failed.

    With --kernel, the same cases judge a kernel that dmlc did not generate. Its options may also be
    in its file, after '// dmlc:'."""
    options = Options(entry, bindings, groups, group_size, where)
    if kernel is not None:
        if len(subjects) != 1 or len(devices) > 1 or to or coverage or replay:
            raise click.UsageError(
                "--kernel takes one operator and at most one --device, and no --export, "
                "--coverage or --replay"
            )
        targets = list_targets(subjects, folders)
        if len(targets) != 1:
            named = list_names([each.name for each in targets])
            raise click.UsageError(f"--kernel takes one operator, and this means {named}")
        judged = judge_files(
            kernel, targets[0].find(), next(iter(devices), None), cases, seed,
            Path(folder or FAILURES), options,
        )  # fmt: skip
        return show_judged(judged, junit, as_json)
    if options != Options():
        raise click.UsageError("--entry, --bindings, --groups, --group-size and --where go with "
                               "--kernel")  # fmt: skip
    if replay is not None:
        return _replay(replay, subjects, devices, folders, as_json)
    if to is not None and folder is None:
        raise click.UsageError("--export needs a folder to write into: -o DIR")
    kept = Path(folder or FAILURES)
    export = None if to is None else CaseExport(kept, functools.partial(export_case, to=to))
    chosen = devices or (DEFAULT,)
    targets = list_targets(subjects, folders)
    for device in chosen:
        find_trusted(device)
    unique = tuple(dict.fromkeys(chosen))
    used = unique if check_memory else ()
    tools = {device: name_tool(device) for device in used if device != REFERENCE}
    settings = Settings(unique, seed, cases, kept, variants, check_memory, export)
    report = Report(settings.devices, seed)
    findings: list[Diagnostic] = []
    for done in run_targets(targets, settings, jobs or os.cpu_count() or 1):
        report.add(done)
        findings += done.findings
    for finding in findings:
        show(finding)
    if junit is not None:
        path = Path(junit)
        write_files(path.parent, {path.name: write_junit([report]).encode()})
    if as_json:
        watched = {"memory_tools": tools} if check_memory else {}
        click.echo(json.dumps(report.as_json() | watched, indent=2))
    else:
        _show(report, coverage)
        for device, tool in tools.items():
            click.echo(f"memory on {device}: by {tool}")
    _explain(find_suspects(report.outcomes))
    return 1 if report.failures else 0


def _show(report: Report, coverage: bool) -> None:
    click.echo(report.render_table())
    if coverage:
        click.echo(f"\n{report.render_coverage()}")
    for title, text in (
        ("weak cases, the smallest of each operator:", report.render_weak()),
        ("what devices cannot express:", report.render_unsupported()),
        ("", report.render_failures()),
    ):
        if text:
            click.echo(f"\n{title}\n{text}" if title else f"\n{text}")
    click.echo(f"\n{report.render_verdict()}")


def _explain(devices: Sequence[str]) -> None:
    """Says of devices that failed whether their drivers are known to be wrong."""
    for said in filter(None, map(explain_failure, devices)):
        show(said)


def list_targets(subjects: Sequence[str], folders: Sequence[str]) -> list[Target]:
    """Operators that arguments name, without repetition. Raises `DmlcError` for an argument that
    names none."""
    library = list(dmlc.operators())
    if not subjects:
        return [Target(name) for name in library]
    found: dict[Target, None] = {}
    for text in subjects:
        path = find_file(text)
        if is_file(path):
            named = [text] if path != text else list(dmlc.load(path, folders).operators)
            if not named:
                raise DmlcError(f"'{path}' defines no operator")
            for name in named:
                subject = find_subject(text, folders).name if path != text else name
                found[Target(subject, path, tuple(folders))] = None
            continue
        names = [name for name in library if name == text]
        names = names or [name for name in library if matches_pattern(name, text)]
        # Of none that is near, the library says which are.
        for name in names or [dmlc.operator(text).name]:
            found[Target(name)] = None
    return list(found)


def _replay(
    folder: str,
    subjects: Sequence[str],
    devices: Sequence[str],
    folders: Sequence[str],
    as_json: bool,
) -> int:
    """Runs a failure again; returns 1 if it still fails, else 0."""
    if len(subjects) > 1:
        raise click.UsageError("--replay takes at most one operator")
    targets = list_targets(subjects, folders) if subjects else []
    kept = read_failure(folder, [target.find() for target in targets] or None)
    outcomes: dict[str, Outcome] = {}
    if kept.candidate and not devices:
        # The device of a candidate is its kernel's.
        outcomes[kept.device] = judge_again(kept)
        if not as_json:
            click.echo(_render_replay(outcomes[kept.device], kept.device))
    for device in devices or (() if kept.candidate else (kept.device,)):
        find_trusted(device)
        outcomes[device] = kept.run(device)
        if not as_json:
            click.echo(_render_replay(outcomes[device], device))
    if as_json:
        click.echo(json.dumps(list(map(describe_outcome, outcomes.values())), indent=2))
    _explain([] if kept.candidate and not devices else find_suspects(outcomes.values()))
    return 1 if any(o.status is Status.FAILED for o in outcomes.values()) else 0


def _render_replay(outcome: Outcome, device: str) -> str:
    if outcome.status is Status.FAILED:
        return render_failure(outcome)
    said = "PASS" if outcome.status is Status.PASSED else "UNSUPPORTED"
    text = f"{said} {outcome.operator} on {device}: {outcome.kind}, {outcome.title}"
    text += f"\n  weak: {outcome.weakness}" if outcome.weakness else ""
    return text if not outcome.message else f"{text}\n  {outcome.message}"
