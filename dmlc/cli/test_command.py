"""`dmlc test`: every operator proves itself, from its own tables, on every device."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import dmlc
from dmlc.cli.arguments import find_file, find_subject, import_option, matches_pattern
from dmlc.devices import DEFAULT, REFERENCE, RUNTIMES
from dmlc.files import write_files
from dmlc.known_answers import find_trusted
from dmlc.source import DmlcError
from dmlc.testing.harness import CASES, Settings
from dmlc.testing.jobs import Target, run_targets
from dmlc.testing.outcome import Outcome, Status
from dmlc.testing.replay import read_failure
from dmlc.testing.report import Report, describe_outcome, render_failure

FAILURES = "dmlc-failures"


@click.command(
    "test",
    epilog="Example: dmlc test my_operators.dml --device opencl --device vulkan, "
    "dmlc test '*SOFTMAX*', or dmlc test --replay dmlc-failures/MINE-call-1234abcd",
)
@click.argument("subjects", nargs=-1, metavar="[OP|FILE]...")
@click.option("--device", "devices", multiple=True, metavar="DEVICE",
              help=f"{', '.join(RUNTIMES)}, each also with :<index or part of a name>; or "
              f"{REFERENCE}. May repeat. [default: {DEFAULT}]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="What is drawn: the same seed draws the same cases.")  # fmt: skip
@click.option("--cases", type=click.IntRange(0), default=CASES, show_default=True,
              help="Cases to make of each operator, besides its examples.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Processes to run in. [default: one for each core]")  # fmt: skip
@click.option("-o", "--output", "folder", default=FAILURES, show_default=True, metavar="DIR",
              help="Keep each failure in a folder of its own in DIR.")  # fmt: skip
@click.option("--junit", metavar="FILE", help="Also write JUnit's XML.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON in place of the table.")
@click.option("--replay", metavar="DIR",
              help="Run a failure again that was kept in DIR: of the operator kept with it, or of a "
              "FILE that was mended since.")  # fmt: skip
@import_option
def command(
    subjects: tuple[str, ...],
    devices: tuple[str, ...],
    seed: int,
    cases: int,
    jobs: int | None,
    folder: str,
    junit: str | None,
    as_json: bool,
    replay: str | None,
    folders: tuple[str, ...],
) -> int:
    """Test operators: their examples, and calls drawn from their own tables and constraints.

    OP is a name of the library, part of one, or a pattern with '*' and '?'; FILE tests all that it
    defines, FILE:NAME one. Without any, the whole library is tested. Every result is compared with
    the reference, within computed bounds of the error; calls just beyond a constraint must be
    refused. A failure is shrunk to a small case, shown, and kept in a folder for --replay. Exits
    with 1 where anything failed.
    """
    if replay is not None:
        return _replay(replay, subjects, devices, folders, as_json)
    chosen = devices or (DEFAULT,)
    targets = list_targets(subjects, folders)
    for device in chosen:
        find_trusted(device)
    settings = Settings(tuple(dict.fromkeys(chosen)), seed, cases, Path(folder))
    report = Report(settings.devices, seed)
    for outcome in _show_progress(targets, settings, jobs or os.cpu_count() or 1):
        report.add(outcome)
    if junit is not None:
        path = Path(junit)
        write_files(path.parent, {path.name: report.as_junit().encode()})
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    return 1 if report.failures else 0


def _show(report: Report) -> None:
    click.echo(report.render_table())
    for title, text in (
        ("what devices cannot express:", report.render_unsupported()),
        ("", report.render_failures()),
    ):
        if text:
            click.echo(f"\n{title}\n{text}" if title else f"\n{text}")
    click.echo(f"\n{report.render_verdict()}")


def list_targets(subjects: Sequence[str], folders: Sequence[str]) -> list[Target]:
    """The operators that arguments mean, each once. Raises `DmlcError` where one means none."""
    library = list(dmlc.operators())
    if not subjects:
        return [Target(name) for name in library]
    found: dict[Target, None] = {}
    for text in subjects:
        path = find_file(text)
        if path.endswith(".dml") or Path(path).is_file():
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


def _show_progress(targets: Sequence[Target], settings: Settings, jobs: int) -> Iterator[Outcome]:
    """Runs all, with a bar on a terminal."""
    done = run_targets(targets, settings, jobs)
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        done, len(targets), "testing", item_show_func=_show_item, file=sys.stderr, hidden=hidden
    ) as bar:
        for _, outcomes in bar:
            yield from outcomes


def _show_item(item: tuple[Target, list[Outcome]] | None) -> str | None:
    return None if item is None else item[0].name


def _replay(
    folder: str,
    subjects: Sequence[str],
    devices: Sequence[str],
    folders: Sequence[str],
    as_json: bool,
) -> int:
    """Runs a failure again: 1 while it fails, 0 once it is mended."""
    if len(subjects) > 1:
        raise click.UsageError("--replay takes at most one operator")
    targets = list_targets(subjects, folders) if subjects else []
    kept = read_failure(folder, [target.find() for target in targets] or None)
    failed = False
    described: list[object] = []
    for device in devices or (kept.device,):
        find_trusted(device)
        outcome = kept.run(device)
        failed = failed or outcome.status is Status.FAILED
        described.append(describe_outcome(outcome))
        if not as_json:
            click.echo(_render_replay(outcome, device))
    if as_json:
        click.echo(json.dumps(described, indent=2))
    return 1 if failed else 0


def _render_replay(outcome: Outcome, device: str) -> str:
    if outcome.status is Status.FAILED:
        return render_failure(outcome)
    said = "PASS" if outcome.status is Status.PASSED else "UNSUPPORTED"
    text = f"{said} {outcome.operator} on {device}: {outcome.kind}, {outcome.title}"
    return text if not outcome.message else f"{text}\n  {outcome.message}"
