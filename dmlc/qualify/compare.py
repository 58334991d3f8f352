"""Comparison of the records of two devices, or versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from dmlc.qualify.record import Failure, Qualification, Speed
from dmlc.source import counted

NOISE = 0.1
"""Relative difference below which ratios count as equal, however steady they are."""
_MOST_SHOWN = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """Differences, one per line, under their headings."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]
    worse: bool
    """Whether the second has a failure, or a wrong answer, that the first lacks."""

    def render(self) -> str:
        """Text for people."""
        lines: list[str] = []
        for title, said in self.parts:
            if said:
                lines += [f"{title}:", *(f"  {line}" for line in said)]
        return "\n".join(lines) or "nothing differs beyond noise"


def compare_records(first: Qualification, second: Qualification) -> Differences:
    """Differences of the second record from the first. For operators that only one of them has
    tested, failures are neither new nor gone."""
    both = {t.name for t in first.tests.operators} & {t.name for t in second.tests.operators}
    before, after = (
        {_key(f): f for f in record.tests.failures if f.operator in both}
        for record in (first, second)
    )
    new = [failure for key, failure in after.items() if key not in before]
    gone = [failure for key, failure in before.items() if key not in after]
    wrong = _list_missing(second.answers.wrong, first.answers.wrong)
    right = _list_missing(first.answers.wrong, second.answers.wrong)
    parts = (
        ("what they are", tuple(_compare_machines(first, second))),
        ("what they promise", tuple(_compare_promises(first, second))),
        ("limits", tuple(_compare_limits(first, second))),
        ("the verdict", tuple(_change("", first.verdict.status, second.verdict.status))),
        ("known answers that are wrong now", tuple(_truncate(wrong))),
        ("known answers that are right now", tuple(_truncate(right))),
        ("new failures", tuple(_truncate(map(_show, new)))),
        ("failures that are gone", tuple(_truncate(map(_show, gone)))),
        ("tests", tuple(_compare_tests(first, second, len(both)))),
        ("speeds, as times that a copy takes", tuple(_compare_speeds(first, second))),
    )
    return Differences(parts, bool(new or wrong))


def _change(name: str, first: str, second: str) -> Iterator[str]:
    if first != second:
        yield f"{name}{first or '(nothing)'} -> {second or '(nothing)'}"


def _compare_machines(first: Qualification, second: Qualification) -> Iterator[str]:
    one, other = first.machine, second.machine
    yield from _change("dmlc: ", first.dmlc, second.dmlc)
    for name in ("name", "runtime", "driver", "note", "host"):
        yield from _change(f"{name}: ", getattr(one, name), getattr(other, name))


def _compare_promises(first: Qualification, second: Qualification) -> Iterator[str]:
    for one, other in zip(first.machine.floats.facts, second.machine.floats.facts, strict=True):
        yield from _change("", one, other)


def _compare_limits(first: Qualification, second: Qualification) -> Iterator[str]:
    if first.machine.runtime != second.machine.runtime:
        return
    one, other = ({limit.name: limit.value for limit in record.machine.limits}
                  for record in (first, second))  # fmt: skip
    for name in dict.fromkeys((*one, *other)):
        yield from _change(f"{name}: ", one.get(name, ""), other.get(name, ""))


def _compare_tests(first: Qualification, second: Qualification, both: int) -> Iterator[str]:
    one, other = first.tests, second.tests
    if (one.seed, one.cases) != (other.seed, other.cases):
        yield (
            f"the cases are not the same: {one.cases} of each operator with seed {one.seed} -> "
            f"{other.cases} with seed {other.seed}"
        )
    for record, name in ((one, "first"), (other, "second")):
        alone = len(record.operators) - both
        if alone:
            yield f"{counted(alone, 'operator')} only the {name} has tested"
    counts = [sum(reason.cases for reason in each.unsupported) for each in (one, other)]
    yield from _change("cases that cannot be run: ", *map(str, counts))


def _compare_speeds(first: Qualification, second: Qualification) -> Iterator[str]:
    if first.speeds.clock != second.speeds.clock:
        yield (
            f"the first was timed by the {first.speeds.clock}'s clock and the second by the "
            f"{second.speeds.clock}'s, so that they cannot be compared"
        )
        return
    known = {(s.name, s.sizes): s for s in second.speeds.kernels}
    for one in first.speeds.kernels:
        other = known.get((one.name, one.sizes))
        if other is None:
            continue
        if one.problem or other.problem:
            yield from _change(f"{one.name}: ", one.problem or "timed", other.problem or "timed")
        elif differ(one, other):
            change = other.ratio / one.ratio
            word = "slow" if change > 1 else "fast"
            said = f"{max(change, 1 / change):.2f} times as {word}"
            yield f"{one.name}: {one.ratio:.2f} -> {other.ratio:.2f}, {said}"


def differ(one: Speed, other: Speed) -> bool:
    """Whether two ratios differ beyond noise: their quartile ranges are disjoint, and their
    difference is at least a tenth."""
    apart = one.high < other.low or other.high < one.low
    return apart and abs(one.ratio - other.ratio) > NOISE * min(one.ratio, other.ratio)


def _key(failure: Failure) -> tuple[str, ...]:
    """Key that identifies a failure on two devices, without the call, since the smallest failing
    calls may differ."""
    return (failure.operator, failure.kind, failure.title, failure.cause)


def _show(failure: Failure) -> str:
    return f"{failure.operator}: {failure.cause} ({failure.kind}, {failure.title})"


def _list_missing(items: Iterable[str], others: Iterable[str]) -> list[str]:
    known = set(others)
    return [item for item in items if item not in known]


def _truncate(lines: Iterable[str]) -> Iterator[str]:
    """First lines, and the number of further ones."""
    listed = list(lines)
    yield from listed[:_MOST_SHOWN]
    if len(listed) > _MOST_SHOWN:
        yield f"and {len(listed) - _MOST_SHOWN:,} more"
