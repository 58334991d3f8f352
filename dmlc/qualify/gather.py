"""Collects the properties and test results of a device in a record."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import platform
import random
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, cast

from dmlc.catalog import operators
from dmlc.devices import selector_of
from dmlc.known_answers import find_all_wrong
from dmlc.program import VERSION
from dmlc.qualify.judge import judge
from dmlc.qualify.record import (
    Answers,
    Failure,
    Limit,
    Machine,
    Qualification,
    Reason,
    Speeds,
    Tested,
    Tests,
)
from dmlc.runtime.interface import AnyDevice
from dmlc.source import UnavailableError
from dmlc.testing.harness import Settings
from dmlc.testing.jobs import Done, Target, run_targets
from dmlc.testing.outcome import Outcome, Status
from dmlc.testing.report import Tally


def make_record(device: AnyDevice, answers: Answers, tests: Tests, speeds: Speeds) -> Qualification:
    """Record of the given results, with its verdict."""
    machine = describe_device(device)
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    verdict = judge(machine, answers, tests, speeds)
    return Qualification(VERSION, made, machine, answers, tests, speeds, verdict)


def describe_device(device: AnyDevice) -> Machine:
    """Properties and promises of a device."""
    host = f"{platform.system()} {platform.release()}, {platform.machine()}"
    return Machine(
        selector_of(device),
        device.runtime,
        device.name,
        device.driver,
        device.note,
        device.facts,
        device.floats,
        tuple(_list_limits(device)),
        f"{host}, Python {platform.python_version()}",
    )


_SAID = ("index", "name", "driver", "note", "floats", "float_controls")
"""Fields of devices that a record has elsewhere."""


def _list_limits(device: Any, before: str = "") -> Iterator[Limit]:
    """Fields of a device in which its runtime distinguishes devices."""
    for field in dataclasses.fields(device):
        value: object = getattr(device, field.name)
        if not field.repr or (not before and field.name in _SAID):
            continue
        if dataclasses.is_dataclass(value):
            yield from _list_limits(value, f"{before}{field.name}.")
        else:
            yield Limit(before + field.name, _show_value(value))


def _show_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, enum.Enum):
        return str(getattr(value, "label", value.value))
    if isinstance(value, frozenset | tuple):
        items = cast("frozenset[object] | tuple[object, ...]", value)
        shown = [_show_value(item) for item in items]
        return ", ".join(sorted(shown) if isinstance(value, frozenset) else shown) or "none"
    return "none" if value is None else str(value)


def ask_answers(device: AnyDevice) -> Answers:
    """All known answers of a device."""
    start = time.perf_counter()
    try:
        wrong, problem = find_all_wrong(device), ""
    except UnavailableError as error:
        wrong, problem = (), error.diagnostics[0].message
    return Answers(wrong, problem, round(time.perf_counter() - start, 3))


def run_tests(
    targets: Sequence[Target], settings: Settings, jobs: int, allowed: int | None
) -> Tests:
    """Tests of some operators on one device. With `allowed`, no operator is begun after that many
    seconds; the seed determines the order."""
    targets = list(targets)
    if allowed is not None:
        random.Random(settings.seed).shuffle(targets)
    start = time.perf_counter()
    tested: list[Tested] = []
    failed: list[Outcome] = []
    reasons: dict[str, int] = {}
    stopped = ""
    running = run_targets(targets, settings, jobs)
    try:
        for done in running if targets else ():
            tested.append(_count(done))
            for outcome in done.outcomes:
                if outcome.status is Status.FAILED:
                    failed.append(outcome)
                elif outcome.status is Status.UNSUPPORTED:
                    text = _find_reason(outcome.message)
                    reasons[text] = reasons.get(text, 0) + 1
            if allowed is not None and time.perf_counter() - start > allowed:
                break
    except BrokenProcessPool:
        near = targets[len(tested)].name
        stopped = f"a process that tested operators was ended, by the driver perhaps, near {near}"
    finally:
        running.close()
    names = {each.name for each in tested}
    return Tests(
        settings.seed,
        settings.cases,
        allowed,
        round(time.perf_counter() - start, 3),
        len({*operators(), *(target.name for target in targets)}),
        tuple(sorted(tested, key=lambda each: each.name)),
        tuple(sorted(target.name for target in targets if target.name not in names)),
        tuple(map(_describe, failed)),
        tuple(Reason(text, cases) for text, cases in reasons.items()),
        stopped,
    )


_REASON = re.compile(r"(?:.*?:\d+:\d+: )?error: (.*?)(?: \[[EW]\d{4}\])?")


def _find_reason(message: str) -> str:
    """First line of an error, without its location, which differs between machines."""
    line = message.partition("\n")[0]
    found = _REASON.fullmatch(line)
    return line if found is None else found[1]


def _count(done: Done) -> Tested:
    tally = Tally(done.name, [done])
    passed, failed, unsupported = (tally.counts[status] for status in Status)
    return Tested(done.name, tally.cases, passed, failed, unsupported, round(tally.seconds, 3))


def _describe(outcome: Outcome) -> Failure:
    return Failure(
        outcome.operator,
        str(outcome.kind),
        outcome.title,
        str(outcome.cause or ""),
        outcome.message,
        outcome.call,
        "" if outcome.folder is None else str(outcome.folder),
    )
