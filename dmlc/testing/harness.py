"""Harness: selects the cases of an operator, and collects their outcomes.

An operator's examples come first, with every choice of data types; then calls that its tables and
constraints permit, with several kinds of data each; then calls that they forbid. A case is made
once for all devices, and the same seed makes the same cases of an operator, independently of other
operators.

Any exception in a case is its outcome, and the run goes on. `outcome` has the checks of a case;
`shrink` and `replay` shrink and keep a failure. A given function may export the cases to other
tools.
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
"""Default number of cases per operator, besides its examples."""
VARIANTS = 1
"""Default number of random calls that also run as variants."""
_KINDS_EACH = 3
"""Number of kinds of data for each call."""
_PLAIN_KINDS = (KINDS[0], "ties", MILD)
"""Kinds of data whose error bounds should be small. The others have infinities and large numbers on
purpose; their large bounds are reported, and the cases kept."""
_WEAK_TRIES, _WEAK_SECONDS = 60, 3.0
"""Limits on shrinking a weak case, in tries and seconds."""
_VARIED_DATA = "random data"
"""Data of variants."""
_GRADIENT_DATA = ("random data", "ties data")
"""Data of comparisons with the forward operator."""
_CALLED = (CheckKind.EXAMPLE, CheckKind.CALL)
"""Kinds of cases whose memory accesses are checked, the first of each, and which are exported."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run: devices, and amount of work."""

    devices: tuple[str, ...] = ("opencl",)
    seed: int = 0
    cases: int = CASES
    failures: Path | None = None
    """Folder of kept failures, with a folder for each; None keeps none."""
    variants: int = VARIANTS
    """Number of random calls that also run as variants, for which many kernels are built."""
    check_memory: bool = False
    """Whether memory accesses are checked for the first example and the first random call on each
    device."""
    export: CaseExport | None = None
    """Export of every example, every random call, and every shrunk failure to other tools."""


@dataclasses.dataclass(frozen=True, slots=True)
class CaseExport:
    """Function that exports cases, and its folder."""

    folder: Path
    write: Callable[[Case, Path], object]
    """Writes a case into a folder. Raises `UnsupportedError` for a case that the tool's files
    cannot express."""


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Coverage of an operator by its cases, and their strength."""

    rows: tuple[CoverageItem, ...]
    """Coverage items."""
    weak: int
    """Number of random cases that let a wrong result pass after all tries for a better one, and of
    examples whose bounds exceed their results."""
    weakest: Outcome | None
    """Smallest of these, kept in a folder for `dmlc test --replay`; None if there is none."""
    told_apart: int
    """Number of formulas with an exchanged operation that some case distinguishes from the
    operator's own."""
    exchanges: int
    """Number of all such formulas that differ from it on some case."""


def run_tests(
    operators: Iterable[Operator],
    devices: Iterable[str] = ("opencl",),
    seed: int = 0,
    cases: int = CASES,
    failures: Path | None = None,
    variants: int = VARIANTS,
    check_memory: bool = False,
) -> Iterator[Outcome]:
    """Runs the harness on operators, and yields the outcome of each case.

    Raises `UnavailableError` at once for a missing device, and for a missing tool if memory is to
    be checked.
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
    """Tests of one operator."""

    shrinking = (TRIES, SECONDS)
    """Limits on shrinking a failure, in tries and seconds."""
    candidate: Mapping[str, str] = MappingProxyType({})
    """Description of the candidate that a kept failure recreates."""

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
        """Outcomes of all cases, as they arise."""
        definition = self.operator.definition
        for example in (*definition.examples, *definition.differences):
            yield from self.run_example(example)
        yield from self.run_drawn()

    def run_example(self, example: syntax.Example) -> Iterator[Outcome]:
        """Outcomes of one of the operator's examples, with each choice of data types."""
        return self._finish(self._check_example(example))

    def run_drawn(self) -> Iterator[Outcome]:
        """Outcomes of the random cases."""
        return self._finish(self._check_drawn())

    def _finish(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """Outcomes with their times, failures shrunk and kept, and the outcomes of exports."""
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
        """Cases of an example to be run."""
        return read_cases(self.operator, example)

    def _draw_calls(self, count: int) -> Iterator[Call]:
        """Random calls to be run."""
        return draw_calls(self.operator, self._draw("calls"), count)

    def _try(self, kind: CheckKind, case: Case, device: str) -> Outcome:
        """Outcome of one case on a device."""
        return CHECKS[kind](case, device)

    def _explain(self, outcome: Outcome) -> Outcome:
        """Failure with more about its cause."""
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
        """Coverage and strength of the cases so far."""
        fates = self.power.count()
        killed, survived = fates[Fate.KILLED], fates[Fate.SURVIVED]
        rows, weak = self.coverage.rows(), len(self._weak)
        return Summary(rows, weak, self._keep_weak(), killed, killed + survived)

    def _check_all(self, kind: CheckKind, title: str, cases: Iterator[Case]) -> Iterator[Outcome]:
        """Outcomes of some cases, and of making them."""
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
        """Outcomes of one case on every device, or its failure before any."""
        for device in self.settings.devices:
            outcome = self._check_on(kind, case, device)
            yield outcome
            if outcome.device is None:
                return
            if self._is_watched(outcome, device):
                yield self._check_on(CheckKind.MEMORY, case, device)

    def _check_on(self, kind: CheckKind, case: Case, device: str) -> Outcome:
        with warnings.catch_warnings():
            # Warnings about slow kernels or drivers are no errors.
            warnings.simplefilter("ignore", UserWarning)
            outcome = self._try(kind, case, device)
        return dataclasses.replace(outcome, weakness=str(self._weak.get(case, "")))

    def _is_watched(self, outcome: Outcome, device: str) -> bool:
        """Whether memory accesses of a case are checked: the first of its kind on a device."""
        place = (outcome.kind, device)
        runs = outcome.kind in _CALLED and outcome.status is not Status.UNSUPPORTED
        if not (self.settings.check_memory and runs) or place in self._watched:
            return False
        self._watched.add(place)
        return True

    def _list_further(self, kind: CheckKind, case: Case) -> Iterator[CheckKind]:
        """Further checks of a random case."""
        if kind is not CheckKind.CALL or not is_bindable(case.call):
            return
        if is_pair(self.operator) and case.title in _GRADIENT_DATA:
            yield CheckKind.GRADIENT
        if self._varied < self.settings.variants and case.title == _VARIED_DATA:
            self._varied += 1
            yield CheckKind.VARIANT

    def _draw_cases(self) -> Iterator[Case]:
        """Permitted calls, each with several kinds of data: its kernels are built once for all."""
        count = -(-self.settings.cases // _KINDS_EACH)
        drawn = 0
        for number, call in enumerate(self._draw_calls(count)):
            kinds = _choose_kinds(number)[: self.settings.cases - drawn]
            # A call that cannot be bound needs no other kinds of data.
            for kind in kinds if is_bindable(call) else kinds[:1]:
                drawn += 1
                case = self._fill(call, kind, number)
                if is_bindable(call):
                    self.coverage.add(case)
                yield case

    def _fill(self, call: Call, kind: str, number: int) -> Case:
        """Case with data of one kind. If it lets wrong results pass, other data are drawn: of that
        kind, of one with small bounds, and of the plainest. If none is strong enough, the strongest
        is taken, the last one of equals."""
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
        """Random generator that depends on the seed, the operator and `what` alone."""
        text = f"{self.settings.seed} {self.operator.name} {what}"
        return np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))

    # Failures -----------------------------------------------------------------------------

    def _keep(self, outcome: Outcome) -> Outcome:
        """Failure with the smallest failing case, kept in a folder. Only the first of similar
        failures is kept."""
        case, alike = outcome.case, (outcome.kind, outcome.cause)
        if outcome.status is not Status.FAILED or case is None or alike in self._kept:
            return outcome
        self._kept.add(alike)
        device = outcome.device or self.settings.devices[0]

        def fails(candidate: Case) -> bool:
            found = self._try(outcome.kind, candidate, device)
            return found.status is Status.FAILED and found.cause is outcome.cause

        # An example's expected values are valid for its own inputs only.
        smallest = case
        if outcome.cause not in (Cause.EXPECTED, Cause.ALIKE):
            plain = case.plain
            smallest = shrink(plain, fails, *self.shrinking)
            smallest = case if smallest is plain else smallest
        if smallest is not case:
            # A failure that depends on timing may not be repeatable.
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
        """Smallest of the weak cases, kept in a folder. A case with large bounds is shrunk first;
        for other reasons shrinking would replace the inputs by zeros, which are weak as well."""
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
        """Outcome of exporting a case, once for all devices, and of exporting its shrunk
        failure."""
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
            # A call that the formula does not take cannot be exported.
            if has_truth(each):
                start = time.perf_counter()
                found = check_export(each, export.write, folder)
                yield dataclasses.replace(found, case=None, seconds=time.perf_counter() - start)


def _is_loose(case: Case) -> bool:
    return has_truth(case) and find_loose(case) is not None


def _choose_kinds(number: int) -> list[str]:
    """Kinds of data of a call: the plainest, and others in turn."""
    first, *others = KINDS
    turn = number * (_KINDS_EACH - 1)
    return [first, *(others[(turn + k) % len(others)] for k in range(_KINDS_EACH - 1))]
