"""The harness: which cases an operator is run on, and what came of each.

An operator's examples come first, with every choice of data types; then calls that its tables and
constraints permit, with several kinds of data each; then calls that they forbid. A case is made
once, whatever devices it runs on, and the same seed makes the same cases of an operator, whatever
others run beside it. Whatever goes wrong in a case, an exception of any kind too, is its outcome,
and the run goes on. What one case is held to is in `outcome`; what shrinks and keeps one that
fails in `shrink` and `replay`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from dmlc.binding import Operator
from dmlc.known_answers import find_trusted
from dmlc.language import syntax
from dmlc.parameters import expect, expect_integer, expect_items, expect_text
from dmlc.source import DmlcError
from dmlc.testing.case import Case
from dmlc.testing.draw import draw_calls
from dmlc.testing.examples import read_cases
from dmlc.testing.fill import KINDS, fill
from dmlc.testing.forbid import draw_refused
from dmlc.testing.outcome import (
    CHECKS,
    Cause,
    Kind,
    Outcome,
    Status,
    find_formula,
    is_bindable,
    say,
    show_inputs,
)
from dmlc.testing.pairs import is_pair
from dmlc.testing.replay import write_failure
from dmlc.testing.shrink import shrink

CASES = 24
"""How many cases are made of an operator where nothing else is said, besides its examples."""
_KINDS_EACH = 3
"""Kinds of data that each call is given."""
_GRADIENT_DATA = ("random data", "ties data")
"""What gradients are held to their forward operators on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How much is run, and where."""

    devices: tuple[str, ...] = ("opencl",)
    seed: int = 0
    cases: int = CASES
    failures: Path | None = None
    """The folder that failures are kept in, each in a folder of its own; None keeps none."""


def run_tests(
    operators: Iterable[Operator],
    devices: Iterable[str] = ("opencl",),
    seed: int = 0,
    cases: int = CASES,
    failures: Path | None = None,
) -> Iterator[Outcome]:
    """Runs the harness on operators, and gives what came of each case as it comes.

    Raises `UnavailableError` at once where there is no such device.
    """
    named = expect_items("devices", devices, "a list of devices' names")
    chosen = tuple(expect_text("each of devices", device) for device in named)
    settings = Settings(
        chosen, expect_integer("seed", seed), expect_integer("cases", cases), failures
    )
    for device in chosen:
        find_trusted(device)
    for operator in operators:
        yield from OperatorTest(operator, settings).run()


class OperatorTest:
    """The tests of one operator."""

    def __init__(self, operator: Operator, settings: Settings) -> None:
        self.operator = expect("operator", operator, Operator, "a dmlc.Operator")
        self.settings = settings
        self._kept: set[tuple[Kind, Cause | None]] = set()

    def run(self) -> Iterator[Outcome]:
        """What came of each case, as it comes."""
        for example in self.operator.definition.examples:
            yield from self.run_example(example)
        yield from self.run_drawn()

    def run_example(self, example: syntax.Example) -> Iterator[Outcome]:
        """What came of one of the operator's examples, with each choice of data types."""
        return self._finish(self._check_example(example))

    def run_drawn(self) -> Iterator[Outcome]:
        """What came of the cases that are drawn."""
        return self._finish(self._check_drawn())

    def run_examples(self) -> Iterator[Outcome]:
        for example in self.operator.definition.examples:
            yield from self._check_example(example)

    def _finish(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The outcomes with the time that each took, failures shrunk and kept."""
        start = time.perf_counter()
        for outcome in outcomes:
            seconds = time.perf_counter() - start
            yield self._keep(dataclasses.replace(outcome, seconds=seconds))
            start = time.perf_counter()

    def _check_example(self, example: syntax.Example) -> Iterator[Outcome]:
        cases = read_cases(self.operator, example)
        return self._check_all(Kind.EXAMPLE, example.title, cases)

    def _check_drawn(self) -> Iterator[Outcome]:
        yield from self._check_all(Kind.CALL, "calls that are drawn", self._draw_cases())
        refused = self._draw_refused()
        yield from self._check_all(Kind.REFUSED, "calls that are refused", refused)
        if is_pair(self.operator):
            gradients = (c for c in self._draw_cases() if c.title in _GRADIENT_DATA)
            yield from self._check_all(Kind.GRADIENT, "gradients", gradients)

    def _check_all(self, kind: Kind, title: str, cases: Iterator[Case]) -> Iterator[Outcome]:
        """What comes of cases, and of making them."""
        try:
            for case in cases:
                yield from self._check(kind, case)
        except Exception as error:
            spans = [d.span for d in error.diagnostics] if isinstance(error, DmlcError) else []
            place = spans[0] if spans and spans[0] else find_formula(self.operator)
            yield Outcome(
                self.operator.name, kind, title, Status.FAILED, cause=Cause.NO_CASE,
                message=say(error), span=place,
            )  # fmt: skip

    def _check(self, kind: Kind, case: Case) -> Iterator[Outcome]:
        """What comes of one case on every device, or before it comes to any."""
        for device in self.settings.devices:
            with warnings.catch_warnings():
                # Of what kernels do slowly, or leave to drivers: no mistakes.
                warnings.simplefilter("ignore", UserWarning)
                outcome = CHECKS[kind](case, device)
            yield outcome
            if outcome.device is None:
                return

    def _draw_cases(self) -> Iterator[Case]:
        """Calls that the operator permits, each with several kinds of data: its kernels are built
        once for all."""
        count = -(-self.settings.cases // _KINDS_EACH)
        drawn = 0
        for number, call in enumerate(draw_calls(self.operator, self._draw("calls"), count)):
            kinds = _choose_kinds(number)[: self.settings.cases - drawn]
            # What cannot be bound needs data of no other kind.
            for kind in kinds if is_bindable(call) else kinds[:1]:
                drawn += 1
                inputs = fill(call, kind, self._draw(f"{kind} data of call {number}"))
                yield Case(call, inputs, f"{kind} data")

    def _draw_refused(self) -> Iterator[Case]:
        """Calls that a table or a constraint forbids."""
        count = -(-self.settings.cases // _KINDS_EACH)
        for drawn in draw_refused(self.operator, self._draw("refused"), count):
            yield Case(drawn.call, {}, drawn.why, span=drawn.span)

    def _draw(self, what: str) -> np.random.Generator:
        """Random numbers that depend on the seed, the operator and what is drawn, alone."""
        text = f"{self.settings.seed} {self.operator.name} {what}"
        return np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))

    # Failures -----------------------------------------------------------------------------

    def _keep(self, outcome: Outcome) -> Outcome:
        """A failure with the smallest case that fails so, written down. Of failures that look
        alike, the first is enough."""
        case, alike = outcome.case, (outcome.kind, outcome.cause)
        if outcome.status is not Status.FAILED or case is None or alike in self._kept:
            return outcome
        self._kept.add(alike)
        if outcome.cause is not Cause.EXPECTED:
            # It fails whatever the example expects.
            case = dataclasses.replace(case, expected={}, within={}, places={})
        device = outcome.device or self.settings.devices[0]

        def fails(candidate: Case) -> bool:
            found = CHECKS[outcome.kind](candidate, device)
            return found.status is Status.FAILED and found.cause is outcome.cause

        smallest = shrink(case, fails)
        if smallest is not case:
            found = CHECKS[outcome.kind](smallest, device)
            outcome = dataclasses.replace(found, seconds=outcome.seconds)
        if outcome.device is not None and outcome.case is not None:
            outcome = dataclasses.replace(outcome, data=show_inputs(outcome.case))
        if self.settings.failures is None:
            return outcome
        folder = write_failure(self.settings.failures, outcome, device, self.settings.seed)
        return dataclasses.replace(outcome, folder=folder)


def _choose_kinds(number: int) -> list[str]:
    """The kinds of data that a call is given: the plainest, and others in turn."""
    first, *others = KINDS
    turn = number * (_KINDS_EACH - 1)
    return [first, *(others[(turn + k) % len(others)] for k in range(_KINDS_EACH - 1))]


def run_examples(operator: Operator, device: str = "opencl") -> Iterator[Outcome]:
    """Every example of an operator with every choice of data types that holds its numbers and
    that the operator permits. Raises as `run_tests` does."""
    expect("operator", operator, Operator, "a dmlc.Operator")
    find_trusted(expect_text("device", device, "the name of a device"))
    yield from OperatorTest(operator, Settings((device,))).run_examples()
