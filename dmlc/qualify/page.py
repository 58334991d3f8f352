"""Page of a record for people: one file, which needs no network and no script."""

from __future__ import annotations

from dmlc.qualify.record import Qualification, Speed, Status
from dmlc.templates import load_template

_CLASSES = {Status.QUALIFIED: "good", Status.REMARKS: "fair", Status.FAILED: "bad"}
_WIDEST = 100.0


def write_page(record: Qualification) -> str:
    """Page of a record, as HTML. Every text of the record is escaped."""
    tests, kernels = record.tests, record.speeds.kernels
    slowest = max((speed.ratio for speed in kernels), default=1.0)
    return load_template("qualify.html.j2").render(
        record=record,
        machine=record.machine,
        mark=_CLASSES[record.verdict.status],
        summary=_sum_up(record),
        cases=sum(tested.cases for tested in tests.operators),
        passed=sum(tested.passed for tested in tests.operators),
        speeds=[
            (each, _show_seconds(each.seconds), _show_rate(each), _find_width(each, slowest))
            for each in kernels
        ],
    )


def _sum_up(record: Qualification) -> str:
    """Sentence with the device and its verdict."""
    said = {
        Status.QUALIFIED: "is qualified: whatever was asked of it is right",
        Status.REMARKS: "is qualified, with remarks: whatever was asked of it is right",
        Status.FAILED: "is not qualified",
    }
    return f"{record.machine.name} {said[record.verdict.status]}."


def _show_seconds(seconds: float) -> str:
    """Time such as `1.23 ms`."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} µs"


def _show_rate(speed: Speed) -> str:
    """Rate of the copy, read and written: `12.3 GB/s`."""
    return f"{speed.bytes / speed.copy_seconds * 1e-9:.3g} GB/s" if speed.copy_seconds else ""


def _find_width(speed: Speed, slowest: float) -> float:
    """Length of a bar in percent, proportional to the square root of the excess over 1."""
    return max(1.0, _WIDEST * (speed.ratio / slowest) ** 0.5) if slowest else 1.0
