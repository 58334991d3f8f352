"""Checks of one case on one device, and their outcomes: pass or failure, with cause and location.

Any exception in a case is an outcome. Only a tool that is not installed raises, and stops the run.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from dmlc.binding import Operator
from dmlc.devices import find_promises
from dmlc.scalars import Array
from dmlc.source import DmlcError, InternalError, Span, UnavailableError, UnsupportedError
from dmlc.testing.case import Call, Case, judge, run_case
from dmlc.testing.compare import Verdict
from dmlc.testing.differences import find_faults
from dmlc.testing.loose import Looseness, add_up
from dmlc.testing.memory import check_memory
from dmlc.testing.pairs import check_pair
from dmlc.testing.variants import try_variants

_T = TypeVar("_T")
_MOST_SHOWN = 16
"""Largest number of elements of an input that is shown."""


class Status(enum.StrEnum):
    """Result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    """A device, or this version, cannot express the case, and says so."""


class CheckKind(enum.StrEnum):
    """Kind of check."""

    EXAMPLE = "example"
    CALL = "drawn call"
    REFUSED = "refused call"
    GRADIENT = "gradient and its forward operator"
    VARIANT = "variants"
    MEMORY = "memory"
    EXPORT = "export"


class Cause(enum.StrEnum):
    """Cause of a failure in a few words."""

    NO_CASE = "it cannot be run"
    FORMULA = "the constraints permit this call, and the formula cannot take it"
    EXCEPTION = "the device ran into an error"
    RESULT = "a result is not near enough"
    EXPECTED = "the example, or the formula, is wrong"
    ALIKE = "what it says of others does not differ so"
    GRADIENT = "the gradient is not that of its forward operator"
    VARIANT = "other kernels for the same call give other results"
    MEMORY = "a kernel reads or stores where it may not, or races"
    EXPORT = "it cannot be exported"
    RACE = "two runs of one case differ"
    TAKEN = "a constraint forbids this call, and it was taken"
    REFUSAL = "a constraint forbids this call, and it was not refused in words"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one check of a case."""

    operator: str
    kind: CheckKind
    title: str
    status: Status
    device: str | None = None
    """Device, or None for a check without one."""
    cause: Cause | None = None
    """Cause of a failure."""
    message: str = ""
    """Explanation, unless it passed."""
    span: Span | None = None
    """Location of the fault in the operator's file, if known."""
    verdicts: Mapping[str, Verdict] = dataclasses.field(default_factory=dict[str, Verdict])
    """Comparison of each output, if it ran."""
    case: Case | None = None
    """Case; for a kept failure, the smallest failing one. None if it ran in another process."""
    call: str = ""
    """Call in the words of the command line."""
    weakness: str = ""
    """Wrong results that the case would let pass."""
    data: str = ""
    """Inputs of a failure, one per line, if they are small."""
    folder: Path | None = None
    """Folder of a kept failure, for `dmlc test --replay`."""
    seconds: float = 0.0

    @property
    def place(self) -> str:
        """Location `FILE:LINE`, or empty."""
        return "" if self.span is None else f"{self.span.source.name}:{self.span.line}"

    def without_arrays(self) -> Outcome:
        """Outcome without arrays, as a report needs it."""
        return dataclasses.replace(self, case=None)

    @property
    def share(self) -> float:
        """Largest error of an element relative to its bound."""
        return max((verdict.share for verdict in self.verdicts.values()), default=0.0)

    @property
    def looseness(self) -> Looseness:
        """Number of elements with bounds that exceed their results."""
        return add_up(verdict.looseness for verdict in self.verdicts.values())


class Maker:
    """Maker of the outcomes of one case."""

    def __init__(self, kind: CheckKind, case: Case) -> None:
        self.case, self.operator = case, case.call.operator
        name, call = self.operator.name, str(case.call)
        self.plain = Outcome(name, kind, case.title, Status.PASSED, case=case, call=call)

    def passed(
        self, device: str | None = None, verdicts: Mapping[str, Verdict] | None = None
    ) -> Outcome:
        return dataclasses.replace(self.plain, device=device, verdicts=verdicts or {})

    def unsupported(self, device: str | None, reason: DmlcError) -> Outcome:
        return dataclasses.replace(
            self.plain, status=Status.UNSUPPORTED, device=device, message=str(reason),
            span=find_span(reason, self.operator),
        )  # fmt: skip

    def failed(
        self,
        cause: Cause,
        message: str,
        span: Span | None,
        device: str | None = None,
        verdicts: Mapping[str, Verdict] | None = None,
    ) -> Outcome:
        return dataclasses.replace(
            self.passed(device, verdicts), status=Status.FAILED, cause=cause, message=message,
            span=span,
        )  # fmt: skip

    def attempt(
        self,
        compute: Callable[[], _T],
        cause: Cause,
        device: str | None = None,
        refusal: type[DmlcError] = UnsupportedError,
    ) -> _T | Outcome:
        """Result of a step, or the outcome of its error: a `refusal` says that the case is not
        supported, and any other fails it. Raises `UnavailableError`, with the cure, for a missing
        tool."""
        try:
            return compute()
        except UnavailableError:
            raise
        except refusal as error:
            return self.unsupported(device, error)
        except Exception as error:
            return self.failed(cause, say(error), find_span(error, self.operator), device)

    def check_formula(self) -> Outcome | None:
        """Outcome of a call that the formula does not take, although no constraint forbids it; None
        for any other."""
        call, case = self.case.call, self.case
        found = self.attempt(lambda: (call.function, case.reference), Cause.FORMULA)
        return found if isinstance(found, Outcome) else None


def check_case(case: Case, device: str, kind: CheckKind = CheckKind.CALL) -> Outcome:
    """Runs a case on a device and compares the results with the expected ones. A permitted call
    that the formula does not take fails before that."""
    make = Maker(kind, case)
    refused = make.check_formula()
    if refused is not None:
        return refused
    floats = find_promises(device)

    def compute() -> tuple[dict[str, Array], dict[str, Verdict]]:
        results = run_case(case, device)
        return results, judge(case, results, floats)

    found = make.attempt(compute, Cause.EXCEPTION, device)
    if isinstance(found, Outcome):
        return found
    results, verdicts = found
    wrong = {name: verdict for name, verdict in verdicts.items() if not verdict.holds}
    if not wrong:
        return make.passed(device, verdicts)
    cause = Cause.RESULT
    if case.expected and all(v.holds for v in judge(case.plain, results, floats).values()):
        cause = Cause.EXPECTED
    message = "\n".join(f"{name}: {verdict}" for name, verdict in wrong.items())
    name = make.operator.definition.syntax.name
    span = case.places.get(next(iter(wrong)), case.span) or name.span
    return make.failed(cause, message, span, device, verdicts)


def check_example(case: Case, device: str) -> Outcome:
    """Checks an example. For a section `differs`, also checks with the reference that the results
    differ and that its condition holds."""
    found = check_case(case, device, CheckKind.EXAMPLE)
    if case.difference is None or found.status is not Status.PASSED:
        return found
    make = Maker(CheckKind.EXAMPLE, case)
    faults = make.attempt(lambda: find_faults(case), Cause.ALIKE)
    if isinstance(faults, Outcome):
        return faults
    return make.failed(Cause.ALIKE, "\n".join(faults), case.difference.span) if faults else found


def check_refusal(case: Case, device: str) -> Outcome:
    """Checks that a call forbidden by a constraint, whose span the case has, is refused."""
    del device  # It is not come to.
    make = Maker(CheckKind.REFUSED, case)
    place = case.span or make.operator.definition.syntax.name.span
    try:
        _ = case.call.binding
    except DmlcError:
        return make.passed()
    except Exception as error:
        return make.failed(Cause.REFUSAL, say(error), place)
    return make.failed(Cause.TAKEN, case.title, place)


def check_gradient(case: Case, device: str) -> Outcome:
    """Compares a hand-written gradient with its forward operator."""
    del device  # Both are computed by the reference.
    make = Maker(CheckKind.GRADIENT, case)
    found = make.attempt(lambda: check_pair(case), Cause.EXCEPTION, refusal=DmlcError)
    if isinstance(found, Outcome):
        return found
    verdicts = {name: pair.verdict for name, pair in found.items()}
    elements = sum(verdict.elements for verdict in verdicts.values())
    if elements and not any(pair.judged for pair in found.values()):
        said = "nothing of the gradient can be compared: all elements are at kinks, or not finite"
        return make.unsupported(None, UnsupportedError(said))
    wrong = [f"{name}: {pair}" for name, pair in found.items() if not pair.holds]
    if not wrong:
        return make.passed(None, verdicts)
    formula = find_formula(make.operator)
    return make.failed(Cause.GRADIENT, "\n".join(wrong), formula, None, verdicts)


def check_variants(case: Case, device: str) -> Outcome:
    """Compares the variants of a case, which are determined by its text, with its results on a
    device."""
    make = Maker(CheckKind.VARIANT, case)
    random = np.random.default_rng(list(hashlib.sha256(str(case.call).encode()).digest()))
    tried = make.attempt(
        lambda: list(try_variants(case, device, run_case(case, device), random)),
        Cause.EXCEPTION,
        device,
    )
    if isinstance(tried, Outcome):
        return tried
    if all(run.reason for run in tried):
        return make.unsupported(device, UnsupportedError("no variant of this case can be made"))
    wrong = [run for run in tried if not run.holds]
    if not wrong:
        return make.passed(device)
    message = "\n".join(map(str, wrong))
    return make.failed(Cause.VARIANT, message, find_formula(make.operator), device)


def check_accesses(case: Case, device: str) -> Outcome:
    """Checks the memory accesses of a case on a device."""
    make = Maker(CheckKind.MEMORY, case)
    found = make.attempt(lambda: check_memory(case, device), Cause.EXCEPTION, device)
    if isinstance(found, Outcome):
        return found
    if not found:
        return make.passed(device)
    return make.failed(Cause.MEMORY, "\n".join(found), find_formula(make.operator), device)


def check_export(case: Case, write: Callable[[Case, Path], object], folder: Path) -> Outcome:
    """Exports a case into a folder for a tool on other machines. Raises `DmlcError` if the folder
    cannot be written to."""
    make = Maker(CheckKind.EXPORT, case)
    try:
        write(case, folder)
    except UnsupportedError as error:
        return make.unsupported(None, error)
    except DmlcError:
        raise
    except Exception as error:
        return make.failed(Cause.EXPORT, say(error), find_formula(make.operator))
    return make.passed()


Check: TypeAlias = Callable[[Case, str], Outcome]

CHECKS: Mapping[CheckKind, Check] = {
    CheckKind.EXAMPLE: check_example,
    CheckKind.CALL: check_case,
    CheckKind.REFUSED: check_refusal,
    CheckKind.GRADIENT: check_gradient,
    CheckKind.VARIANT: check_variants,
    CheckKind.MEMORY: check_accesses,
}
"""Check of each kind of case; an export has none."""


def is_bindable(call: Call) -> bool:
    """Whether a call can be bound. Its errors are reported when it runs."""
    try:
        _ = call.function
    except Exception:
        return False
    return True


def has_truth(case: Case) -> bool:
    """Whether the reference computes a case. Its errors are reported when the case runs."""
    try:
        _ = case.reference
    except Exception:
        return False
    return True


def say(error: Exception) -> str:
    """Text of an exception in a report."""
    if isinstance(error, DmlcError):
        return str(error)
    if isinstance(error, InternalError):
        return f"internal error: {error}"
    return f"{type(error).__name__}: {error}"


def find_span(error: Exception, operator: Operator) -> Span:
    """Location of an error in the operator, or else its formula."""
    if isinstance(error, DmlcError):
        for diagnostic in error.diagnostics:
            if diagnostic.span is not None:
                return diagnostic.span
    return find_formula(operator)


def find_formula(operator: Operator) -> Span:
    """Span of an operator's formula, or else of its name."""
    syntax = operator.definition.syntax
    formula = [span for kind, span in syntax.sections if kind in ("compute", "gradient of")]
    return formula[0] if formula else syntax.name.span


def show_inputs(case: Case) -> str:
    """Inputs of a case, one per line, if they have few elements."""
    lines: list[str] = []
    for name, array in case.inputs.items():
        if array.size > _MOST_SHOWN:
            return ""
        values = np.asarray(array).astype(np.float64) if array.dtype.kind == "V" else array
        lines.append(f"{name} = {json.dumps(values.tolist())}")
    return "\n".join(lines)
