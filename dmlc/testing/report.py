"""Reports of the harness: table of operators, failures, JUnit's XML, JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from dmlc.source import counted
from dmlc.testing.coverage import CoverageItem, show_table
from dmlc.testing.jobs import Done
from dmlc.testing.loose import Looseness, add_up
from dmlc.testing.outcome import Cause, CheckKind, Outcome, Status
from dmlc.testing.replay import replay_command

_COLUMNS = (
    "operator", "cases", "passed", "failed", "unsupported", "weak", "loose", "told apart",
    "coverage", "bound used", "seconds",
)  # fmt: skip
_LONGEST = 400
"""Largest number of characters of a call in a failure's text."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Tally:
    """Totals over the cases of one operator, or of several."""

    def __init__(self, name: str, operators: Sequence[Done]) -> None:
        self.name = name
        outcomes = [outcome for done in operators for outcome in done.outcomes]
        summaries = [done.summary for done in operators]
        passed = [outcome for outcome in outcomes if outcome.status is Status.PASSED]
        self.cases = len(outcomes)
        self.counts = {status: _number(outcomes, status) for status in Status}
        self.seconds = sum(outcome.seconds for outcome in outcomes)
        self.share = max((outcome.share for outcome in passed), default=0.0)
        """Largest error of an element relative to its bound, of the cases that pass."""
        self.looseness = add_up(outcome.looseness for outcome in passed)
        """Number of elements with bounds that exceed their results."""
        self.rows = sum(len(summary.rows) for summary in summaries)
        """Number of coverage items."""
        self.hit = sum(row.hits > 0 for summary in summaries for row in summary.rows)
        self.weak = sum(summary.weak for summary in summaries)
        self.told_apart = sum(summary.told_apart for summary in summaries)
        self.exchanges = sum(summary.exchanges for summary in summaries)


class Report:
    """Outcomes of a run, collected as they arise."""

    def __init__(self, devices: Sequence[str], seed: int) -> None:
        self.devices = tuple(devices)
        self.seed = seed
        self.operators: dict[str, Done] = {}

    def add(self, done: Done) -> None:
        """Adds the outcomes of one operator."""
        self.operators[done.name] = done

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for done in self.operators.values() for outcome in done.outcomes]

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status is Status.FAILED]

    # Text -------------------------------------------------------------------------------------

    def render_table(self) -> str:
        """Table with a line per operator, and a total."""
        every = list(self.operators.values())
        tallies = [Tally(done.name, [done]) for done in every]
        tallies += [Tally("all", every)] if len(every) > 1 else []
        return _align([_COLUMNS, *map(_list_cells, tallies)])

    def render_failures(self) -> str:
        """Text of each failure; similar ones are counted after the first."""
        alike: dict[object, list[Outcome]] = {}
        for outcome in self.failures:
            key = (outcome.operator, outcome.kind, outcome.cause)
            alike.setdefault(key, []).append(outcome)
        blocks: list[str] = []
        for first, *others in alike.values():
            blocks.append(render_failure(first))
            if others:
                devices = dict.fromkeys(o.device for o in others if o.device is not None)
                where = f", on {' and '.join(devices)}" if devices else ""
                blocks[-1] += f"\n  and {counted(len(others), 'case')} more like it{where}"
        return "\n\n".join(blocks)

    def render_coverage(self) -> str:
        """Numbers of coverage items that were hit, by kind, and the items that were not."""
        lines = [show_table({name: d.summary.rows for name, d in self.operators.items()})]
        for name, done in self.operators.items():
            missing = [f"  {row}" for row in done.summary.rows if not row.hits]
            lines += [f"{name}:", *missing] if missing else []
        return "\n".join(lines)

    def render_weak(self) -> str:
        """Smallest weak case of each operator that has one: reason, and command to run it again."""
        found = (done.summary for done in self.operators.values())
        return "\n".join(_render_weak(s.weakest, s.weak) for s in found if s.weakest)

    def render_unsupported(self) -> str:
        """Constructs that devices or languages cannot express, each reason once."""
        reasons: dict[tuple[str, str], int] = {}
        for outcome in self.outcomes:
            if outcome.status is Status.UNSUPPORTED:
                where = f"on {outcome.device or 'no device'}"
                where = "not exported" if outcome.kind is CheckKind.EXPORT else where
                reason = (where, outcome.message.partition("\n")[0])
                reasons[reason] = reasons.get(reason, 0) + 1
        lines = (
            f"  {count} {where}: {_truncate(reason)}" for (where, reason), count in reasons.items()
        )
        return "\n".join(lines)

    def render_verdict(self) -> str:
        """Line that says whether all passed."""
        failed, cases = len(self.failures), len(self.outcomes)
        operators = counted(len(self.operators), "operator")
        verdict = f"FAIL: {failed} of {cases}" if failed else f"PASS: {cases}"
        where = " and ".join(self.devices)
        return f"{verdict} cases of {operators} on {where}, seed {self.seed}"

    # Machines ---------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": not self.failures,
            "devices": list(self.devices),
            "seed": self.seed,
            "operators": [
                {
                    **_describe_tally(Tally(done.name, [done])),
                    "weakest": None
                    if done.summary.weakest is None
                    else describe_outcome(done.summary.weakest),
                    "coverage": _describe_rows(done.summary.rows),
                }
                for done in self.operators.values()
            ],
            "failures": [describe_outcome(outcome) for outcome in self.failures],
            "weak": [describe_outcome(outcome) for outcome in self.outcomes if outcome.weakness],
            "unsupported": [
                describe_outcome(o) for o in self.outcomes if o.status is Status.UNSUPPORTED
            ],
        }


def write_junit(reports: Sequence[Report]) -> str:
    """JUnit's XML of some reports for continuous integration, with a suite per operator."""
    outcomes = [outcome for report in reports for outcome in report.outcomes]
    root = ElementTree.Element("testsuites", _count(outcomes), name="dmlc test")
    for name in dict.fromkeys(name for report in reports for name in report.operators):
        own = [outcome for outcome in outcomes if outcome.operator == name]
        counts = {**_count(own), "skipped": str(_number(own, Status.UNSUPPORTED))}
        suite = ElementTree.SubElement(root, "testsuite", counts, name=name)
        for number, outcome in enumerate(own, 1):
            _add_case(suite, number, outcome)
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, "unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def render_failure(outcome: Outcome) -> str:
    """Text of a failure: description, location, smallest case, and command to run it again."""
    where = "" if outcome.device is None else f" on {outcome.device}"
    lines = [f"FAIL {outcome.operator}{where}: {outcome.cause}"]
    if outcome.place:
        lines.append(f"  at {outcome.place}")
    lines.append(f"  {outcome.kind}: {outcome.title}")
    if outcome.call:
        lines.append(f"  with {_truncate(outcome.call)}")
    if outcome.data:
        lines += [f"    {line}" for line in outcome.data.splitlines()]
    lines += [f"  {line}" for line in outcome.message.splitlines()]
    if outcome.folder is not None:
        lines.append(f"  again: {replay_command(outcome.folder)}")
    return "\n".join(lines)


def _render_weak(weakest: Outcome, count: int) -> str:
    lines = [f"  {weakest.operator}, {counted(count, 'case')}: {weakest.weakness}"]
    lines.append(f"    {weakest.kind}, {weakest.title}, with {_truncate(weakest.call)}")
    lines += [f"      {line}" for line in weakest.data.splitlines()]
    if weakest.folder is not None:
        lines.append(f"    again: {replay_command(weakest.folder)}")
    return "\n".join(lines)


def find_suspects(outcomes: Iterable[Outcome]) -> list[str]:
    """Devices with wrong results, except on examples that are wrong themselves."""
    found = (o.device for o in outcomes if o.status is Status.FAILED and o.cause != Cause.EXPECTED)
    return [device for device in dict.fromkeys(found) if device is not None]


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Outcome for `--json`."""
    span = outcome.span
    return {
        "operator": outcome.operator,
        "kind": outcome.kind.value,
        "title": outcome.title,
        "status": outcome.status.value,
        "device": outcome.device,
        "cause": None if outcome.cause is None else outcome.cause.value,
        "message": outcome.message,
        "weakness": outcome.weakness,
        "loose": outcome.looseness.loose,
        "inexact": outcome.looseness.inexact,
        "file": None if span is None else span.source.name,
        "line": None if span is None else span.line,
        "column": None if span is None else span.column,
        "call": outcome.call,
        "folder": None if outcome.folder is None else str(outcome.folder),
    }


def _describe_tally(tally: Tally) -> dict[str, Any]:
    return {
        "name": tally.name,
        "cases": tally.cases,
        **{status.value: count for status, count in tally.counts.items()},
        "weak": tally.weak,
        "loose": tally.looseness.loose,
        "inexact": tally.looseness.inexact,
        "told_apart": tally.told_apart,
        "exchanges": tally.exchanges,
        "bound_used": tally.share if math.isfinite(tally.share) else None,
        "seconds": round(tally.seconds, 3),
    }


def _describe_rows(rows: Iterable[CoverageItem]) -> list[dict[str, Any]]:
    return [
        {
            "kind": row.kind,
            "what": row.what,
            "file": None if row.place is None else row.place.source.name,
            "line": None if row.place is None else row.place.line,
            "hits": row.hits,
            **({} if row.hits else {"reason": row.reason}),
        }
        for row in rows
    ]


def _list_cells(tally: Tally) -> tuple[str, ...]:
    counts = [str(tally.counts[status]) for status in Status]
    share = f"{tally.share:.0%}" if tally.share else "exact"
    loose = _show_share(tally.looseness)
    told = f"{tally.told_apart}/{tally.exchanges}"
    covered = f"{tally.hit}/{tally.rows}"
    return (
        tally.name, str(tally.cases), *counts, str(tally.weak), loose, told, covered, share,
        f"{tally.seconds:.1f}",
    )  # fmt: skip


def _show_share(found: Looseness) -> str:
    """Loose part of the inexact elements, not rounded down to none."""
    return "<1%" if 0 < found.share < 0.005 else f"{found.share:.0%}"


def _align(rows: Iterable[Sequence[str]]) -> str:
    """Rows in aligned columns: the first one left, numbers right."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in listed
    )
    return "\n".join(line.rstrip() for line in lines)


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# JUnit -----------------------------------------------------------------------------------------


def _number(outcomes: Iterable[Outcome], status: Status) -> int:
    return sum(outcome.status is status for outcome in outcomes)


def _count(outcomes: Sequence[Outcome]) -> dict[str, str]:
    seconds = sum(outcome.seconds for outcome in outcomes)
    failures = _number(outcomes, Status.FAILED)
    counts: Mapping[str, object] = {"tests": len(outcomes), "failures": failures, "errors": 0}
    return {**{name: str(count) for name, count in counts.items()}, "time": f"{seconds:.3f}"}


def _add_case(suite: ElementTree.Element, number: int, outcome: Outcome) -> None:
    """Adds a case under a name that is stable from run to run."""
    where = "" if outcome.device is None else f" on {outcome.device}"
    name = _as_xml(f"{number}: {outcome.kind}, {outcome.title}{where}")
    case = ElementTree.SubElement(
        suite, "testcase", name=name, classname=outcome.operator, time=f"{outcome.seconds:.3f}"
    )
    if outcome.status is Status.FAILED:
        message = _as_xml(f"{outcome.cause}: {outcome.message.partition(chr(10))[0]}")
        failure = ElementTree.SubElement(
            case, "failure", message=message, type=_as_xml(str(outcome.cause))
        )
        failure.text = _as_xml(render_failure(outcome))
    elif outcome.status is Status.UNSUPPORTED:
        message = _as_xml(outcome.message.partition("\n")[0])
        ElementTree.SubElement(case, "skipped", message=message)
    if outcome.weakness:
        said = ElementTree.SubElement(case, "system-out")
        said.text = _as_xml(f"weak: {outcome.weakness}")


def _as_xml(text: str) -> str:
    """Text without the characters that XML forbids."""
    return _NOT_XML.sub("\ufffd", text)
