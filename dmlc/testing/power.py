"""Strength of a case: the wrong results that its bounds would let pass.

Zeros, a copy of an input and a formula with one operation exchanged are wrong results, unless the
formula itself gives the same. A case that lets zeros or a copy pass is weak, and so is one that
lets every detectable exchange pass, or whose bounds exceed its results (`loose`): the harness draws
another. `Power` records, over all cases of an operator, which exchanges some case distinguished.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterator

import numpy as np

from dmlc.binding import Operator, ir_name
from dmlc.oracle import find_work, shorten
from dmlc.reference import evaluate
from dmlc.runtime.floats import KEEPING
from dmlc.scalars import Array, data_type_of
from dmlc.source import DmlcError
from dmlc.testing.case import Case, find_wanted
from dmlc.testing.compare import find_within
from dmlc.testing.exchange import Exchange, list_exchanges, lower_exchanged
from dmlc.testing.fill import fill
from dmlc.testing.loose import find_looseness, show_loosest
from dmlc.testing.trace import trace_formula

MOST_EXCHANGES = 24
"""Largest number of exchanges tried on one case; fewer for large arrays."""
_MOST_KNOWN = 4
"""Largest number among these whose fate is already known."""
_ENOUGH = 6
"""Number of tries after which an exchange that no case distinguished gets no more tries than
others."""
_FRESH = ("random", "ties", "random")
"""Kinds of other data, to test whether a formula's result depends on them."""
_FEW = 3
"""Number of detectable exchanges below which a case is not judged: it may be for one branch of a
formula."""
_FREELY = 1 << 18
"""Work that is not limited, in instructions over all points."""
_MOST_GROWN = 8
"""Largest work of an exchange, relative to the formula."""
_MOST_WORK = 1 << 25
"""Largest work of all exchanges of one case."""
_MOST_LENGTH = 1 << 12
"""Largest number of instructions of all exchanged formulas of one case, except the first few."""
_LEAST = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Weakness:
    """Wrong results that a case would let pass, one sentence each."""

    reasons: tuple[str, ...]
    loose: float = 0.0
    """Loose part of the inexact elements, if too large."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)


class Fate(enum.Enum):
    """State of an exchange over the cases of an operator."""

    KILLED = "told apart"
    SURVIVED = "let pass"
    """It computes something else, and no case detected it."""
    EQUIVALENT = "the same formula"
    """It computes the same in every binding that evaluates its span."""
    REFUSED = "refused"
    """No binding permits it: it is reported as an error before anything runs."""
    UNTRIED = "not tried yet"
    UNREACHED = "not reached"
    """No case evaluates its span."""


@dataclasses.dataclass(slots=True)
class Standing:
    """Record of one exchange."""

    exchange: Exchange
    fate: Fate = Fate.UNREACHED
    tries: int = 0


def find_weakness(case: Case, power: Power | None = None) -> Weakness | None:
    """Wrong results that a case lets pass; None for a strong one. With the record of its operator,
    also formulas that other cases distinguish. Results that the formula gives for any data are not
    counted. Raises `DmlcError` for a call that the operator refuses."""
    reasons = [
        f"{_show_all(case.reference[output].size)} of '{output}' would also pass as {what}"
        for output, what in list_accepted(case)
        if not _gives_always(case, output, what)
    ]
    if not reasons and power is not None:
        reasons += power.compare_with_others(case)
    loose = find_loose(case)
    if loose is not None:
        return Weakness((*reasons, *loose.reasons), loose.loose)
    return Weakness(tuple(reasons)) if reasons else None


def find_loose(case: Case) -> Weakness | None:
    """Weakness of a case whose bounds exceed its results at too many elements, or None. The
    flushing of denormals is not counted, since other devices keep them. Raises `DmlcError` for a
    call that the operator refuses."""
    wanted = find_wanted(case, KEEPING)
    found = {
        name: find_looseness(expected, wanted.allowed[name])
        for name, expected in wanted.expected.items()
    }
    weak = {name: each for name, each in found.items() if each.is_weak}
    if not weak:
        return None
    return Weakness(
        tuple(
            f"the bound is larger than the result at {weak[n]} of '{n}': "
            + show_loosest(wanted.expected[n], wanted.allowed[n])
            for n in weak
        ),
        max(each.share for each in weak.values()),
    )


def list_accepted(case: Case) -> Iterator[tuple[str, str]]:
    """Outputs that would also pass as zeros, as NaN, or as an input that has their sizes, or 1 in
    their place: the output, and the name of the wrong result."""
    wanted = find_wanted(case)
    for output, expected in wanted.expected.items():
        for what, candidate in _list_candidates(case, expected):
            if find_within(candidate, expected, wanted.allowed[output]).all():
                yield output, what


def _show_all(elements: int) -> str:
    return "the one element" if elements == 1 else f"all {elements} elements"


def _list_candidates(case: Case, expected: Array) -> Iterator[tuple[str, Array]]:
    """Wrong results to try, with their names."""
    if not expected.size:
        return
    dtype = data_type_of(expected.dtype)
    yield "zeros", np.zeros_like(expected)
    if dtype is not None and dtype.is_float:
        yield "NaN", np.full_like(expected, np.nan)
    for given, array in case.inputs.items():
        if array.ndim == expected.ndim and all(
            size in (1, whole) for size, whole in zip(array.shape, expected.shape, strict=True)
        ):
            with np.errstate(all="ignore"):
                copy = np.broadcast_to(array.astype(expected.dtype), expected.shape)
            yield f"a copy of '{given}'", copy


def _gives_always(case: Case, name: str, what: str) -> bool:
    """Whether the formula gives such a result for all inputs: a gradient of zeros, a window of one
    element."""
    random = np.random.default_rng(0)
    for kind in _FRESH:
        fresh = Case(case.call, fill(case.call, kind, random), case.title)
        expected = fresh.reference[name]
        candidate = dict(_list_candidates(fresh, expected))[what]
        if not find_within(candidate, expected, fresh.truth.allowed[name]).all():
            return False
    return True


# Exchanges -------------------------------------------------------------------------------------


class Power:
    """Record of the exchanges in an operator's formula that its cases distinguish."""

    def __init__(self, operator: Operator, most: int = MOST_EXCHANGES) -> None:
        self._most = most
        self.standings = [Standing(e) for e in list_exchanges(operator.definition)]
        self._last: tuple[Case, dict[int, Fate]] | None = None
        """Outcomes on the last case, by the number of the exchange."""

    def add(self, case: Case) -> None:
        """Tries the exchanges on a case. Raises `DmlcError` for a call that the operator
        refuses."""
        visited = trace_formula(case.call).log.visited
        for standing in self.standings:
            if standing.fate is Fate.UNREACHED and standing.exchange.place in visited:
                standing.fate = Fate.UNTRIED
        for number, fate in self._try(case).items():
            standing = self.standings[number]
            standing.tries += 1
            standing.fate = max(standing.fate, fate, key=_PRECEDENCE.index)

    def compare_with_others(self, case: Case) -> list[str]:
        """Sentences about a case that lets pass what other cases distinguish."""
        trials = self._try(case)
        known = [
            fate
            for number, fate in trials.items()
            if self.standings[number].fate is Fate.KILLED and fate is Fate.SURVIVED
        ]
        if Fate.KILLED in trials.values() or len(known) < _FEW:
            return []
        return [
            f"it would let pass all {len(known)} formulas with one operation exchanged that it "
            "was tried with and that other cases tell apart"
        ]

    def _try(self, case: Case) -> dict[int, Fate]:
        if self._last is None or self._last[0] is not case:
            self._last = case, self._try_anew(case)
        return self._last[1]

    def _try_anew(self, case: Case) -> dict[int, Fate]:
        """Tries the exchanges whose span the case evaluates, those with the fewest tries first, and
        only a few of known fate. A case without elements distinguishes nothing."""
        if not any(array.size for array in case.reference.values()):
            return {}
        visited = trace_formula(case.call).log.visited
        tester = _Tester(case)
        most = min(self._most, tester.most)
        reached = [n for n, s in enumerate(self.standings) if s.exchange.place in visited]
        reached.sort(key=lambda n: self.standings[n].tries)
        known = [n for n in reached if self._is_settled(n)][:_MOST_KNOWN]
        unsettled = [n for n in reached if not self._is_settled(n)]
        tried = [*unsettled[: max(1, most - len(known))], *known][:most]
        return {n: tester.test(self.standings[n].exchange) for n in tried}

    def _is_settled(self, number: int) -> bool:
        standing = self.standings[number]
        return standing.fate is Fate.KILLED or standing.tries >= _ENOUGH

    def count(self) -> Counter[Fate]:
        """Number of exchanges of each fate."""
        return Counter(standing.fate for standing in self.standings)


_PRECEDENCE = (
    Fate.UNREACHED, Fate.UNTRIED, Fate.REFUSED, Fate.EQUIVALENT, Fate.SURVIVED, Fate.KILLED,
)  # fmt: skip
"""Fates, each of which replaces those before it as the fate over several cases."""


class _Tester:
    """Trials of exchanges on one case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._wanted = find_wanted(case)
        self._function = case.call.function
        self._work = find_work(shorten(self._function))

    @property
    def most(self) -> int:
        """Number of exchanges to try: fewer if each takes long."""
        length = sum(len(stage.body.instructions) for stage in self._function.stages)
        return min(_MOST_WORK // max(1, self._work), max(_LEAST, _MOST_LENGTH // length))

    def test(self, exchange: Exchange) -> Fate:
        """Fate of an exchange on the case."""
        try:
            function = lower_exchanged(self._case.call.binding, exchange)
        except DmlcError:
            return Fate.REFUSED
        if function == self._function:
            return Fate.EQUIVALENT
        if find_work(function) > _FREELY:
            # The count of a reduction's points includes those that its guard excludes.
            function = shorten(function)
        if find_work(function) > max(_MOST_GROWN * self._work, _FREELY):
            return Fate.UNTRIED
        found = evaluate(function, self._case.given)
        for name, expected in self._wanted.expected.items():
            if not find_within(found[ir_name(name)], expected, self._wanted.allowed[name]).all():
                return Fate.KILLED
        return Fate.EQUIVALENT if shorten(function) == shorten(self._function) else Fate.SURVIVED
