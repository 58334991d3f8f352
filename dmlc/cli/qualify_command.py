"""`dmlc qualify`: qualification of a device for shipping, as a page for people and as JSON."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from dmlc.cli.arguments import find_file, import_option, is_file
from dmlc.cli.completion import complete_file, complete_operator
from dmlc.cli.device_names import complete_device
from dmlc.cli.messages import show
from dmlc.cli.test_command import list_targets
from dmlc.devices import DEFAULT, REFERENCE, RUNTIMES, find_device, selector_of
from dmlc.files import write_files
from dmlc.qualify.bundle import PLATFORMS, VERSIONS, write_bundle
from dmlc.qualify.compare import compare_records
from dmlc.qualify.gather import ask_answers, make_record, run_tests
from dmlc.qualify.page import write_page
from dmlc.qualify.record import Qualification, Status, read_record, show_plainly, write_record
from dmlc.qualify.speed import ROUNDS, SIDE, list_subjects, time_subjects
from dmlc.runtime.interface import AnyDevice
from dmlc.source import DmlcError
from dmlc.testing.harness import Settings

CASES = 6
REPORT = "report"
PAGE, RECORD, KEPT = "qualification.html", "qualification.json", "kept"
_STEP = 32
"""Unit of the sizes of timed kernels."""


@click.command(
    "qualify",
    epilog="Example: dmlc qualify --device vulkan -o report, "
    "dmlc qualify --compare old/qualification.json report/qualification.json, or "
    "dmlc qualify --device d3d12 --bundle folder --platform windows",
)
@click.argument("subjects", nargs=-1, metavar="[OP|FILE]...", shell_complete=complete_operator)
@click.option("--device", metavar="DEVICE", default=DEFAULT, show_default=True,
              shell_complete=complete_device,
              help=f"{', '.join(RUNTIMES)}, each also with :<index or part of a name>.",
              )  # fmt: skip
@click.option("-o", "--output", "folder", metavar="DIR", default=REPORT, show_default=True,
              help=f"Write {PAGE} and {RECORD} into DIR, and cases to run again into DIR/{KEPT}.",
              )  # fmt: skip
@click.option("--cases", type=click.IntRange(1), default=CASES, show_default=True,
              help="Random cases per operator, besides its examples.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Seed of the random cases.")  # fmt: skip
@click.option("--seconds", type=click.IntRange(1), metavar="N",
              help="Begin no further operator after N seconds. The seed determines their order.",
              )  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N",
              help="Number of processes. [default: one per core]")  # fmt: skip
@click.option("--rounds", type=click.IntRange(0), default=ROUNDS, show_default=True,
              help="Rounds of timing; 0 times no kernels.")  # fmt: skip
@click.option("--size", type=click.IntRange(_STEP), default=SIDE, show_default=True,
              help="Rows and columns of the matrices that are timed, a multiple of "
              f"{_STEP}; 4096 suits a large GPU.")  # fmt: skip
@click.option("--compare", "compared", nargs=2, metavar="A.json B.json",
              shell_complete=complete_file,
              help="Only show the differences between two records: of two devices, or of two "
              "versions.")  # fmt: skip
@click.option("--bundle", metavar="DIR",
              help="Only write a folder with wheels and scripts that qualifies a machine without "
              "a network. That needs a network here.")  # fmt: skip
@click.option("--platform", type=click.Choice([*PLATFORMS]),
              help="The system of that machine, with an x86-64 processor. [default: this one's]",
              )  # fmt: skip
@click.option("--python", "version", type=click.Choice(VERSIONS),
              help="The version of Python on that machine. [default: this one's]")  # fmt: skip
@import_option
def command(
    subjects: tuple[str, ...],
    device: str,
    folder: str,
    cases: int,
    seed: int,
    seconds: int | None,
    jobs: int | None,
    rounds: int,
    size: int,
    compared: tuple[str, str] | None,
    bundle: str | None,
    platform: str | None,
    version: str | None,
    folders: tuple[str, ...],
) -> int:
    """Test whether a device is fit to ship to, and write a report for people and as JSON.

    The report has the properties and promises of the device, its known answers, the results of the
    library's tests (or those of each OP and FILE, as in dmlc test), and the speed of ten kernels
    relative to a copy. The exit status is 1 if the device is not qualified; with --compare, if B
    has failures or wrong answers that A does not have."""
    if size % _STEP:
        raise click.BadParameter(f"{size} is no multiple of {_STEP}", param_hint="'--size'")
    if compared and bundle is not None:
        raise click.UsageError("--compare and --bundle do not go together")
    if bundle is None and (platform or version):
        raise click.UsageError("--platform and --python are those of a --bundle")
    if compared:
        first, second = map(read_record, compared)
        differences = compare_records(first, second)
        click.echo(differences.render())
        return 1 if differences.worse else 0
    targets = list_targets(subjects, folders)
    if bundle is not None:
        files = [text for text in subjects if is_file(find_file(text))]
        if files or folders:
            raise click.UsageError("a bundle has no files of yours: name operators of the library")
        given = [*subjects, "--device", device, "--cases", cases, "--seed", seed,
                 "--rounds", rounds, "--size", size]  # fmt: skip
        given += [] if seconds is None else ["--seconds", seconds]
        given += [] if jobs is None else ["--jobs", jobs]
        return _write_bundle(Path(bundle), platform, version, [str(word) for word in given])
    found = find_device(device)
    if found is None:
        raise click.BadParameter(
            f"{REFERENCE} is no device: it is what devices are held to", param_hint="'--device'"
        )
    path = Path(folder)
    _check_folder(path)
    # By its number it is used even where it computes wrongly, which is to be said of it.
    settings = Settings((selector_of(found),), seed, cases, path / KEPT)
    show(f"{selector_of(found)}, {found}: known answers")
    answers = ask_answers(found)
    tests = run_tests(targets, settings, jobs or os.cpu_count() or 1, seconds)
    speeds = time_subjects(found, list_subjects(size) if rounds else [], rounds, _tell)
    record = make_record(found, answers, tests, speeds)
    files = {PAGE: write_page(record).encode(), RECORD: write_record(record).encode()}
    written = write_files(path, files)
    _show(record, found)
    for each in written:
        click.echo(each)
    return 1 if record.verdict.status is Status.FAILED else 0


def _tell(name: str) -> None:
    show(f"timing: {name}")


def _check_folder(path: Path) -> None:
    """Raises for a folder that cannot be written to, before there are results."""
    write_files(path, {})
    if not os.access(path, os.W_OK):
        raise DmlcError(
            f"cannot write '{path}': permission denied",
            notes=["give an output folder that you may write to"],
            code="E0005",
        )


def _show(record: Qualification, device: AnyDevice) -> None:
    click.echo(f"{selector_of(device)}, {show_plainly(str(device))}: {record.verdict.status}")
    for kind, lines in (("", record.verdict.reasons), ("remark: ", record.verdict.remarks)):
        for line in lines:
            click.echo(f"  {kind}{show_plainly(line)}")


def _write_bundle(
    folder: Path, platform: str | None, version: str | None, arguments: list[str]
) -> int:
    platform = platform or ("windows" if sys.platform == "win32" else "linux")
    version = version or "{}.{}".format(*sys.version_info[:2])
    if version not in VERSIONS:
        raise DmlcError(
            f"bundles are made for Python {', '.join(VERSIONS)}, and this is {version}",
            notes=["name one with --python"],
        )
    for path in write_bundle(folder, platform, version, arguments):
        click.echo(path)
    return 0
