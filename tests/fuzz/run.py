"""Draws cases of a kind from a seed, checks them, and shrinks those that fail."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.check import Checker, Finding
from tests.fuzz.formulas import formulas
from tests.fuzz.functions import functions
from tests.fuzz.hostile import READERS, read_mutants
from tests.fuzz.indexed import indexed

KINDS: dict[str, Callable[[], SearchStrategy]] = {
    "formulas": formulas,
    "indexed": indexed,
    "functions": functions,
}


@dataclasses.dataclass
class Tally:
    """What a run came to."""

    batches: int = 0
    ran: Counter[str] = dataclasses.field(default_factory=Counter)
    """Outputs compared, by backend."""
    known: Counter[str] = dataclasses.field(default_factory=Counter)
    findings: list[Finding] = dataclasses.field(default_factory=list)


def run(
    kind: str,
    seed: int,
    batches: int,
    backends: Sequence[str],
    known: Sequence[str] = (),
    shrink_seconds: float = 60.0,
    turns: bool = False,
) -> Tally:
    """Checks so many batches. Failures that match a pattern of `known` are counted only."""
    tally = Tally()
    if kind in READERS:
        tally.batches = batches
        for finding in read_mutants(kind, seed, batches, tally.ran):
            pattern = next((k for k in known if re.search(k, str(finding))), None)
            if pattern is None:
                tally.findings.append(finding)
            else:
                tally.known[pattern] += 1
        return tally
    seen: set[str] = set()

    @hypothesis.seed(seed)
    @settings(
        max_examples=batches,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind]())
    def check(case) -> None:
        tally.batches += 1
        checker = Checker(backends, tally.ran, turns)
        try:
            checker.check(case)
        except Finding as finding:
            pattern = next((k for k in known if re.search(k, str(finding))), None)
            if pattern is not None or finding.kind in seen:
                tally.known[pattern or finding.kind] += 1
                return
            seen.add(finding.kind)
            tally.findings.append(checker.shrink(case, finding, shrink_seconds))

    check()
    return tally
