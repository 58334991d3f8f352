"""What comes of one case on one device: whether it passes, and if not, what is at fault and where.

Nothing here raises for what a case does: an exception of any kind is an outcome. A tool that is
not installed is no matter of a case, and stops the run.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dmlc.binding import Operator
from dmlc.devices import find_promises
from dmlc.source import DmlcError, InternalError, Span, UnavailableError, UnsupportedError
from dmlc.testing.case import Call, Case, judge, run_case
from dmlc.testing.differences import find_faults
from dmlc.testing.loose import Looseness, add_up
from dmlc.testing.memory import check_memory
from dmlc.testing.pairs import check_pair
from dmlc.testing.variants import try_variants
from dmlc.testing.verify import Verdict

_MOST_SHOWN = 16
"""Inputs with more elements are not shown."""


class Status(enum.StrEnum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    """A device, or this version, cannot express it, and says so."""


class CheckKind(enum.StrEnum):
    """What a case is to show."""

    EXAMPLE = "example"
    CALL = "drawn call"
    REFUSED = "refused call"
    GRADIENT = "gradient and its forward operator"
    VARIANT = "variants"
    MEMORY = "memory"
    EXPORT = "export"


class Cause(enum.StrEnum):
    """Why a case fails, in a few words."""

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
    """What came of one case."""

    operator: str
    kind: CheckKind
    title: str
    status: Status
    device: str | None = None
    """None where it did not come to a device."""
    cause: Cause | None = None
    """Of a failure."""
    message: str = ""
    """What was found, where it is not passed."""
    span: Span | None = None
    """What is at fault in the operator's file, as far as that is known."""
    verdicts: Mapping[str, Verdict] = dataclasses.field(default_factory=dict[str, Verdict])
    """How near each output is, where it ran."""
    case: Case | None = None
    """What was run; of a failure that was kept the smallest case that was found. None where it was
    run in another process."""
    call: str = ""
    """The call in the words of the command line."""
    weakness: str = ""
    """What wrong results the case would let pass."""
    data: str = ""
    """The inputs of a failure, a line each, where they are few."""
    share: float = 0.0
    """The largest part of its bound that any element's error takes up."""
    looseness: Looseness = dataclasses.field(default_factory=Looseness)
    """How many elements have bounds that are larger than their results, where it ran."""
    folder: Path | None = None
    """Where a failure is kept, for `dmlc test --replay`."""
    seconds: float = 0.0

    @property
    def place(self) -> str:
        """`FILE:LINE`, or nothing."""
        return "" if self.span is None else f"{self.span.source.name}:{self.span.line}"

    def without_arrays(self) -> Outcome:
        """What a report needs of it."""
        return dataclasses.replace(self, case=None, verdicts={})


class Maker:
    """Makes the outcomes of one case."""

    def __init__(self, kind: CheckKind, case: Case) -> None:
        self.operator = case.call.operator
        name, call = self.operator.name, str(case.call)
        self.plain = Outcome(name, kind, case.title, Status.PASSED, case=case, call=call)

    def passed(
        self, device: str | None = None, verdicts: Mapping[str, Verdict] | None = None
    ) -> Outcome:
        found = verdicts or {}
        share = max((verdict.share for verdict in found.values()), default=0.0)
        looseness = add_up(verdict.looseness for verdict in found.values())
        return dataclasses.replace(
            self.plain, device=device, verdicts=found, share=share, looseness=looseness
        )

    def unsupported(self, device: str | None, error: UnsupportedError) -> Outcome:
        return dataclasses.replace(
            self.plain, status=Status.UNSUPPORTED, device=device, message=str(error),
            span=find_span(error, self.operator),
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


def check_case(case: Case, device: str, kind: CheckKind = CheckKind.CALL) -> Outcome:
    """Runs a case on a device and holds the results to what it must give. A call that the
    constraints permit and the formula cannot take fails before that."""
    make, operator = Maker(kind, case), case.call.operator
    try:
        _ = case.call.function, case.reference
    except UnsupportedError as error:
        return make.unsupported(None, error)
    except Exception as error:
        return make.failed(Cause.FORMULA, say(error), find_span(error, operator))
    try:
        results, floats = run_case(case, device), find_promises(device)
        verdicts = judge(case, results, floats)
    except UnsupportedError as error:
        return make.unsupported(device, error)
    except Exception as error:
        return make.failed(Cause.EXCEPTION, say(error), find_span(error, operator), device)
    wrong = {name: verdict for name, verdict in verdicts.items() if not verdict.holds}
    if not wrong:
        return make.passed(device, verdicts)
    cause = Cause.RESULT
    if case.expected and all(v.holds for v in judge(case.plain, results, floats).values()):
        cause = Cause.EXPECTED
    message = "\n".join(f"{name}: {verdict}" for name, verdict in wrong.items())
    span = case.places.get(next(iter(wrong)), case.span) or operator.definition.syntax.name.span
    return make.failed(cause, message, span, device, verdicts)


def check_example(case: Case, device: str) -> Outcome:
    """An example, as any case. Of what a section `differs` says, the reference shows that it does
    differ, and that its condition holds."""
    found = check_case(case, device, CheckKind.EXAMPLE)
    if case.difference is None or found.status is not Status.PASSED:
        return found
    make = Maker(CheckKind.EXAMPLE, case)
    try:
        faults = find_faults(case)
    except UnsupportedError as error:
        return make.unsupported(None, error)
    except Exception as error:
        return make.failed(Cause.ALIKE, say(error), find_span(error, case.call.operator))
    return make.failed(Cause.ALIKE, "\n".join(faults), case.difference.span) if faults else found


def check_refusal(case: Case, device: str) -> Outcome:
    """Holds a call that a constraint, which is the place of the case, forbids to being refused."""
    del device  # It is not come to.
    make, operator = Maker(CheckKind.REFUSED, case), case.call.operator
    place = case.span or operator.definition.syntax.name.span
    try:
        _ = case.call.binding
    except DmlcError:
        return make.passed()
    except Exception as error:
        return make.failed(Cause.REFUSAL, say(error), place)
    return make.failed(Cause.TAKEN, case.title, place)


def check_gradient(case: Case, device: str) -> Outcome:
    """Holds a gradient that is written by hand to its forward operator."""
    del device  # Both are computed by the reference.
    make, operator = Maker(CheckKind.GRADIENT, case), case.call.operator
    try:
        found = check_pair(case)
    except DmlcError as error:
        return make.unsupported(None, UnsupportedError(error.diagnostics))
    except Exception as error:
        return make.failed(Cause.EXCEPTION, say(error), find_formula(operator))
    verdicts = {name: pair.verdict for name, pair in found.items()}
    elements = sum(verdict.comparison.elements for verdict in verdicts.values())
    if elements and not any(pair.judged for pair in found.values()):
        said = "nothing of the gradient can be compared: all elements are at kinks, or not finite"
        return make.unsupported(None, UnsupportedError(said))
    wrong = [f"{name}: {pair}" for name, pair in found.items() if not pair.holds]
    if not wrong:
        return make.passed(None, verdicts)
    formula = find_formula(operator)
    return make.failed(Cause.GRADIENT, "\n".join(wrong), formula, None, verdicts)


def check_variants(case: Case, device: str) -> Outcome:
    """Holds the variants of a case, drawn from its own words, to what it gives on a device."""
    make, operator = Maker(CheckKind.VARIANT, case), case.call.operator
    random = np.random.default_rng(list(hashlib.sha256(str(case.call).encode()).digest()))
    try:
        tried = list(try_variants(case, device, run_case(case, device), random))
    except UnsupportedError as error:
        return make.unsupported(device, error)
    except Exception as error:
        return make.failed(Cause.EXCEPTION, say(error), find_span(error, operator), device)
    if all(run.reason for run in tried):
        return make.unsupported(device, UnsupportedError("no variant of this case can be made"))
    wrong = [run for run in tried if not run.holds]
    if not wrong:
        return make.passed(device)
    message = "\n".join(map(str, wrong))
    return make.failed(Cause.VARIANT, message, find_formula(operator), device)


def check_accesses(case: Case, device: str) -> Outcome:
    """Looks for what a device does in memory that it may not, when it runs a case. Raises
    `UnavailableError`, with the cure, where a tool that looks is not installed."""
    make, operator = Maker(CheckKind.MEMORY, case), case.call.operator
    try:
        found = check_memory(case, device)
    except UnsupportedError as error:
        return make.unsupported(device, error)
    except UnavailableError:
        raise
    except Exception as error:
        return make.failed(Cause.EXCEPTION, say(error), find_span(error, operator), device)
    if not found:
        return make.passed(device)
    return make.failed(Cause.MEMORY, "\n".join(found), find_formula(operator), device)


def check_export(case: Case, write: Callable[[Case, Path], object], folder: Path) -> Outcome:
    """Has a case written into a folder for a tool on other machines. Raises `DmlcError` where
    nothing can be written there."""
    make = Maker(CheckKind.EXPORT, case)
    try:
        write(case, folder)
    except UnsupportedError as error:
        return make.unsupported(None, error)
    except DmlcError:
        raise
    except Exception as error:
        return make.failed(Cause.EXPORT, say(error), find_formula(case.call.operator))
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
"""What a case of each kind is held to; an export is made, and no check."""


def is_bindable(call: Call) -> bool:
    """Whether the formula of an operator takes a call. Whatever is wrong is found again where the
    call is run, and reported there."""
    try:
        _ = call.function
    except Exception:
        return False
    return True


def has_truth(case: Case) -> bool:
    """Whether the reference gives what a case must give. Why it does not is found where the case is
    run, and reported there."""
    try:
        _ = case.reference
    except Exception:
        return False
    return True


def say(error: Exception) -> str:
    """An exception as a report has it."""
    if isinstance(error, DmlcError):
        return str(error)
    if isinstance(error, InternalError):
        return f"internal error: {error}"
    return f"{type(error).__name__}: {error}"


def find_span(error: Exception, operator: Operator) -> Span:
    """Where in the operator an error says that it arose, or else its formula."""
    if isinstance(error, DmlcError):
        for diagnostic in error.diagnostics:
            if diagnostic.span is not None:
                return diagnostic.span
    return find_formula(operator)


def find_formula(operator: Operator) -> Span:
    """The formula of an operator, or else its name."""
    syntax = operator.definition.syntax
    formula = [span for kind, span in syntax.sections if kind in ("compute", "gradient of")]
    return formula[0] if formula else syntax.name.span


def show_inputs(case: Case) -> str:
    """The inputs of a case, a line each, where they have few elements."""
    lines: list[str] = []
    for name, array in case.inputs.items():
        if array.size > _MOST_SHOWN:
            return ""
        values = np.asarray(array).astype(np.float64) if array.dtype.kind == "V" else array
        lines.append(f"{name} = {json.dumps(values.tolist())}")
    return "\n".join(lines)
