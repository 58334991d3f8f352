"""The harness: which cases an operator is run on, and what came of each.

An operator's examples come first, with every choice of data types; then calls that its tables and
constraints permit, with several kinds of data each; then calls that they forbid. A case is made
once, whatever devices it runs on, and the same seed makes the same cases of an operator, whatever
others run beside it. Whatever goes wrong in a case, an exception of any kind too, is its outcome,
and the run goes on. What one case is held to is in `outcome`; what shrinks and keeps one that
fails in `shrink` and `replay`. A function that is handed in may write the cases for other tools.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from dmlc.binding import Operator
from dmlc.known_answers import find_trusted
from dmlc.language import syntax
from dmlc.parameters import expect, expect_integer, expect_items, expect_text
from dmlc.source import DmlcError, UnavailableError
from dmlc.testing.case import Call, Case
from dmlc.testing.coverage import Coverage, CoverageItem
from dmlc.testing.draw import draw_calls
from dmlc.testing.examples import read_cases
from dmlc.testing.fill import KINDS, MILD, fill
from dmlc.testing.forbid import draw_refused
from dmlc.testing.outcome import (
    CHECKS,
    Cause,
    CheckKind,
    Outcome,
    Status,
    check_export,
    find_formula,
    has_truth,
    is_bindable,
    say,
    show_inputs,
)
from dmlc.testing.pairs import is_pair
from dmlc.testing.power import Fate, Power, Weakness, find_loose, find_weakness
from dmlc.testing.replay import as_file_name, write_failure
from dmlc.testing.shrink import SECONDS, TRIES, shrink

CASES = 24
"""How many cases are made of an operator where nothing else is said, besides its examples."""
VARIANTS = 1
"""How many of the drawn calls also run as variants, where nothing else is said."""
_KINDS_EACH = 3
"""Kinds of data that each call is given."""
_PLAIN_KINDS = (KINDS[0], "ties", MILD)
"""Kinds of data whose bounds are to be small. Of the others large bounds are said, and they are
kept: infinities and large numbers are what they are there for."""
_WEAK_TRIES, _WEAK_SECONDS = 60, 3.0
"""How much is tried to make a weak case smaller."""
_VARIED_DATA = "random data"
"""What variants run on."""
_GRADIENT_DATA = ("random data", "ties data")
"""What gradients are held to their forward operators on."""
_CALLED = (CheckKind.EXAMPLE, CheckKind.CALL)
"""Cases whose memory is checked, the first of each, and that are exported."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How much is run, and where."""

    devices: tuple[str, ...] = ("opencl",)
    seed: int = 0
    cases: int = CASES
    failures: Path | None = None
    """The folder that failures are kept in, each in a folder of its own; None keeps none."""
    variants: int = VARIANTS
    """How many of the calls that are drawn also run as variants, which many kernels are built
    for."""
    check_memory: bool = False
    """Whether memory is checked of the first example and the first drawn call that a device
    runs."""
    export: Export | None = None
    """Writes every example and drawn call, and what failures are shrunk to, for other tools."""


@dataclasses.dataclass(frozen=True, slots=True)
class Export:
    """Where cases are exported to, and what does it."""

    folder: Path
    write: Callable[[Case, Path], object]
    """Writes a case into a folder. Raises `UnsupportedError` where the tool's files cannot express
    it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """What the cases of an operator have come by, and what they would notice."""

    rows: tuple[CoverageItem, ...]
    """Its coverage."""
    weak: int
    """Drawn cases that would let a wrong result pass, for which no better one was found, and
    examples whose bounds are larger than their results."""
    weakest: Outcome | None
    """The smallest of these, kept in a folder for `dmlc test --replay`; None of none."""
    told_apart: int
    """Formulas with one operation exchanged that some case tells from the operator's own."""
    exchanges: int
    """All such formulas that compute something else where a case has come to them."""

    @property
    def hit(self) -> int:
        return sum(row.hits > 0 for row in self.rows)


def run_tests(
    operators: Iterable[Operator],
    devices: Iterable[str] = ("opencl",),
    seed: int = 0,
    cases: int = CASES,
    failures: Path | None = None,
    variants: int = VARIANTS,
    check_memory: bool = False,
) -> Iterator[Outcome]:
    """Runs the harness on operators, and gives what came of each case as it comes.

    Raises `UnavailableError` at once where there is no such device, and where memory is to be
    checked and a tool for it is not installed.
    """
    named = expect_items("devices", devices, "a list of devices' names")
    chosen = tuple(expect_text("each of devices", device) for device in named)
    settings = Settings(
        chosen,
        expect_integer("seed", seed),
        expect_integer("cases", cases),
        failures,
        expect_integer("variants", variants),
        expect("check_memory", check_memory, bool, "True or False"),
    )
    for device in chosen:
        find_trusted(device)
    for operator in operators:
        yield from OperatorTest(operator, settings).run()


class OperatorTest:
    """The tests of one operator."""

    shrinking = (TRIES, SECONDS)
    """How many steps are tried to make a failure smaller, and for how many seconds."""
    candidate: Mapping[str, str] = MappingProxyType({})
    """What is kept with a failure of a kernel of others, to make it again."""

    def __init__(self, operator: Operator, settings: Settings) -> None:
        self.operator = expect("operator", operator, Operator, "a dmlc.Operator")
        operator.definition.expect_formula()
        self.settings = settings
        self.coverage = Coverage(operator)
        self.power = Power(operator)
        self._weak: dict[Case, Weakness] = {}
        self._varied = 0
        self._kept: set[tuple[CheckKind, Cause | None]] = set()
        self._watched: set[tuple[CheckKind, str]] = set()
        self._exported: Counter[CheckKind] = Counter()
        self._last_exported: Case | None = None

    def run(self) -> Iterator[Outcome]:
        """What came of each case, as it comes."""
        definition = self.operator.definition
        for example in (*definition.examples, *definition.differences):
            yield from self.run_example(example)
        yield from self.run_drawn()

    def run_example(self, example: syntax.Example) -> Iterator[Outcome]:
        """What came of one of the operator's examples, with each choice of data types."""
        return self._finish(self._check_example(example))

    def run_drawn(self) -> Iterator[Outcome]:
        """What came of the cases that are drawn."""
        return self._finish(self._check_drawn())

    def run_examples(self) -> Iterator[Outcome]:
        """What came of each example, without what they cover: nothing asks for it."""
        definition = self.operator.definition
        for example in (*definition.examples, *definition.differences):
            cases = read_cases(self.operator, example)
            yield from self._check_all(CheckKind.EXAMPLE, example.title, cases)

    def _finish(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The outcomes with the time that each took, failures shrunk and kept, and what came of
        exporting the cases."""
        start = time.perf_counter()
        for outcome in outcomes:
            seconds = time.perf_counter() - start
            kept = self._keep(dataclasses.replace(outcome, seconds=seconds))
            yield kept
            yield from self._export(outcome, kept)
            start = time.perf_counter()

    def _check_example(self, example: syntax.Example) -> Iterator[Outcome]:
        cases = self._cover(self._read_cases(example))
        return self._check_all(CheckKind.EXAMPLE, example.title, cases)

    def _read_cases(self, example: syntax.Example) -> Iterator[Case]:
        """The cases of an example that are run."""
        return read_cases(self.operator, example)

    def _draw_calls(self, count: int) -> Iterator[Call]:
        """The drawn calls that are run."""
        return draw_calls(self.operator, self._draw("calls"), count)

    def _try(self, kind: CheckKind, case: Case, device: str) -> Outcome:
        """What comes of one case on a device."""
        return CHECKS[kind](case, device)

    def _explain(self, outcome: Outcome) -> Outcome:
        """A failure with what more can be said of its cause."""
        return outcome

    def _cover(self, cases: Iterator[Case]) -> Iterator[Case]:
        for case in cases:
            if has_truth(case):
                self.coverage.add(case)
                self.power.add(case)
                weakness = find_loose(case)
                if weakness is not None:
                    self._weak[case] = weakness
            yield case

    def _check_drawn(self) -> Iterator[Outcome]:
        yield from self._check_all(CheckKind.CALL, "calls that are drawn", self._draw_cases())
        refused = self._draw_refused()
        yield from self._check_all(CheckKind.REFUSED, "calls that are refused", refused)

    def summarize(self) -> Summary:
        """What the cases so far have come by."""
        fates = self.power.count()
        killed, survived = fates[Fate.KILLED], fates[Fate.SURVIVED]
        rows, weak = self.coverage.rows(), len(self._weak)
        return Summary(rows, weak, self._keep_weak(), killed, killed + survived)

    def _check_all(self, kind: CheckKind, title: str, cases: Iterator[Case]) -> Iterator[Outcome]:
        """What comes of cases, and of making them."""
        try:
            for case in cases:
                yield from self._check(kind, case)
                for further in self._list_further(kind, case):
                    yield from self._check(further, case)
        except UnavailableError:
            raise
        except Exception as error:
            spans = [d.span for d in error.diagnostics] if isinstance(error, DmlcError) else []
            place = spans[0] if spans and spans[0] else find_formula(self.operator)
            yield Outcome(
                self.operator.name, kind, title, Status.FAILED, cause=Cause.NO_CASE,
                message=say(error), span=place,
            )  # fmt: skip

    def _check(self, kind: CheckKind, case: Case) -> Iterator[Outcome]:
        """What comes of one case on every device, or before it comes to any."""
        for device in self.settings.devices:
            outcome = self._check_on(kind, case, device)
            yield outcome
            if outcome.device is None:
                return
            if self._is_watched(outcome, device):
                yield self._check_on(CheckKind.MEMORY, case, device)

    def _check_on(self, kind: CheckKind, case: Case, device: str) -> Outcome:
        with warnings.catch_warnings():
            # Of what kernels do slowly, or leave to drivers: no mistakes.
            warnings.simplefilter("ignore", UserWarning)
            outcome = self._try(kind, case, device)
        return dataclasses.replace(outcome, weakness=str(self._weak.get(case, "")))

    def _is_watched(self, outcome: Outcome, device: str) -> bool:
        """Whether memory is checked too of what ran: of the first of its kind on a device."""
        place = (outcome.kind, device)
        runs = outcome.kind in _CALLED and outcome.status is not Status.UNSUPPORTED
        if not (self.settings.check_memory and runs) or place in self._watched:
            return False
        self._watched.add(place)
        return True

    def _list_further(self, kind: CheckKind, case: Case) -> Iterator[CheckKind]:
        """What else a case that was drawn is held to."""
        if kind is not CheckKind.CALL or not is_bindable(case.call):
            return
        if is_pair(self.operator) and case.title in _GRADIENT_DATA:
            yield CheckKind.GRADIENT
        if self._varied < self.settings.variants and case.title == _VARIED_DATA:
            self._varied += 1
            yield CheckKind.VARIANT

    def _draw_cases(self) -> Iterator[Case]:
        """Calls that the operator permits, each with several kinds of data: its kernels are built
        once for all."""
        count = -(-self.settings.cases // _KINDS_EACH)
        drawn = 0
        for number, call in enumerate(self._draw_calls(count)):
            kinds = _choose_kinds(number)[: self.settings.cases - drawn]
            # What cannot be bound needs data of no other kind.
            for kind in kinds if is_bindable(call) else kinds[:1]:
                drawn += 1
                case = self._fill(call, kind, number)
                if is_bindable(call):
                    self.coverage.add(case)
                yield case

    def _fill(self, call: Call, kind: str, number: int) -> Case:
        """A case with data of one kind: others are drawn where it would let wrong results pass, of
        that kind, of one with small bounds and of the plainest. Where none will do it is the one
        that lets the least pass, of several the last."""
        weak: list[tuple[Case, Weakness]] = []
        for attempt, drawn in enumerate((kind, kind, MILD, KINDS[0]), 1):
            inputs = fill(call, drawn, self._draw(f"{drawn} data of call {number}, {attempt}"))
            case = Case(call, inputs, f"{drawn} data")
            if not has_truth(case):
                return case  # That is its outcome.
            weakness = find_weakness(case, self.power)
            if weakness is None:
                self.power.add(case)
                return case
            weak.append((case, weakness))
            if weakness.loose and drawn not in _PLAIN_KINDS:
                break
        case, weakness = min(weak[::-1], key=lambda each: (not each[1].loose, each[1].loose))
        self._weak[case] = weakness
        self.power.add(case)
        return case

    def _draw_refused(self) -> Iterator[Case]:
        """Calls that a table or a constraint forbids."""
        count = -(-self.settings.cases // _KINDS_EACH)
        for drawn in draw_refused(self.operator, self._draw("refused"), count):
            self.coverage.add_refused(drawn.call)
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
        device = outcome.device or self.settings.devices[0]

        def fails(candidate: Case) -> bool:
            found = self._try(outcome.kind, candidate, device)
            return found.status is Status.FAILED and found.cause is outcome.cause

        # What an example expects is of its numbers, and no others.
        smallest = case
        if outcome.cause not in (Cause.EXPECTED, Cause.ALIKE):
            plain = case.plain
            smallest = shrink(plain, fails, *self.shrinking)
            smallest = case if smallest is plain else smallest
        if smallest is not case:
            # What depends on time may not fail again.
            found = self._try(outcome.kind, smallest, device)
            if found.status is Status.FAILED:
                outcome = dataclasses.replace(found, seconds=outcome.seconds)
        if outcome.device is not None and outcome.case is not None:
            outcome = dataclasses.replace(outcome, data=show_inputs(outcome.case))
        outcome = self._explain(outcome)
        if self.settings.failures is None:
            return outcome
        folder = write_failure(
            self.settings.failures, outcome, device, self.settings.seed, self.candidate
        )
        return dataclasses.replace(outcome, folder=folder)

    def _keep_weak(self) -> Outcome | None:
        """The smallest of the weak cases, written down. One whose bounds are large is shrunk
        first: of other reasons, zeros in place of its inputs are one more."""
        if not self._weak:
            return None
        case = min(self._weak, key=lambda c: sum(array.size for array in c.inputs.values()))
        weakness, folder = self._weak[case], self.settings.failures
        if folder is not None and weakness.loose and not case.expected:
            case = shrink(case, _is_loose, _WEAK_TRIES, _WEAK_SECONDS)
            weakness = find_loose(case) or weakness
        kind = CheckKind.EXAMPLE if case.span is not None else CheckKind.CALL
        kept = Outcome(
            self.operator.name, kind, case.title, Status.PASSED, message=str(weakness),
            span=case.span, call=str(case.call), weakness=str(weakness), data=show_inputs(case),
            case=case,
        )  # fmt: skip
        if folder is not None:
            device = self.settings.devices[0]
            path = write_failure(folder, kept, device, self.settings.seed)
            kept = dataclasses.replace(kept, folder=path)
        return kept.without_arrays()

    # Other tools --------------------------------------------------------------------------

    def _export(self, outcome: Outcome, kept: Outcome) -> Iterator[Outcome]:
        """What came of exporting the case of an outcome, once whatever devices it ran on, and what
        a failure was shrunk to, beside that."""
        export, case = self.settings.export, outcome.case
        if export is None or case is None:
            return
        chosen: list[tuple[Case, Path]] = []
        if outcome.kind in _CALLED and case is not self._last_exported:
            self._last_exported = case
            self._exported[outcome.kind] += 1
            number = f"{self._exported[outcome.kind]:03}"
            name = as_file_name(f"{self.operator.name}-{outcome.kind}-{number}")
            chosen.append((case, export.folder / name))
        if kept.folder is not None and kept.case is not None:
            chosen.append((kept.case, kept.folder / "export"))
        for each, folder in chosen:
            # Of a call that its formula cannot take there is nothing to write.
            if has_truth(each):
                start = time.perf_counter()
                found = check_export(each, export.write, folder)
                yield dataclasses.replace(found, case=None, seconds=time.perf_counter() - start)


def _is_loose(case: Case) -> bool:
    return has_truth(case) and find_loose(case) is not None


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
