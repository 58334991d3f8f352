"""Judges a kernel or a Python function as an implementation of an operator, with the harness's own
cases.

The operator's examples and random calls are those for dmlc's own kernels, restricted to calls that
the candidate takes, and results are compared with the reference within the same error bounds. A
kernel runs with guard words around its tensors, twice, and once more with its work items in reverse
order.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.catalog import operator as find_operator
from dmlc.language import syntax
from dmlc.oracle import find_work
from dmlc.parameters import expect, expect_integer, wrong_kind
from dmlc.runtime.arrays import packed
from dmlc.runtime.fences import as_bits
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, UnsupportedError, counted
from dmlc.testing.candidate import (
    Candidate,
    Kernel,
    Options,
    Runs,
)
from dmlc.testing.case import Call, Case, lay_out
from dmlc.testing.case import judge as hold
from dmlc.testing.compare import Verdict
from dmlc.testing.draw import draw_calls
from dmlc.testing.draw_values import Random, draw_strides, pick, shuffle
from dmlc.testing.expressions import OutsideError
from dmlc.testing.function import Function, read_function
from dmlc.testing.harness import CASES, OperatorTest, Settings
from dmlc.testing.jobs import Done
from dmlc.testing.mistakes import explain
from dmlc.testing.outcome import Cause, CheckKind, Maker, Outcome, is_bindable
from dmlc.testing.replay import Replay
from dmlc.testing.report import Report
from dmlc.testing.roofline import MeasuredSpeed, measure_roofline

_DRAWN_FOR_EACH = 16
"""Largest number of calls drawn for each one that the candidate takes."""
_SHRINKING = (80, 8.0)
_STRIDE_TRIES = 8
_GROUP = 64
"""Assumed group size of a candidate without groups."""
_BEYOND = (1, 3, 67)
_LONGEST = 1024
_MOST_WORK = 1 << 22
"""Largest work of the reference for a lengthened call, in instructions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """Result of judging a candidate; its text is that of the command line."""

    name: str
    """Candidate and device."""
    described: tuple[str, ...]
    """Bindings of the candidate, one per line."""
    report: Report = dataclasses.field(repr=False)
    outside: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """Reasons that the candidate does not take permitted calls, with the number of calls drawn."""
    roofline: MeasuredSpeed | None = None
    """Speed, if all cases pass and the candidate can be timed."""
    untimed: str = ""
    """Reason for a missing roofline."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(self.report.outcomes)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Failed cases."""
        return tuple(self.report.failures)

    @property
    def passed(self) -> bool:
        """Whether no case failed."""
        return not self.report.failures

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return self.report.as_json() | {
            "candidate": list(self.described),
            "outside": dict(self.outside),
            "roofline": None if self.roofline is None else self.roofline.to_json(),
        }

    def __str__(self) -> str:
        lines = [*self.described]
        for why, count in self.outside.items():
            lines.append(f"  not judged, {counted(count, 'call')}: {why}")
        lines += ["", self.report.render_failures()] if not self.passed else []
        failed, cases = len(self.failures), len(self.outcomes)
        verdict = f"FAIL: {failed} of {cases} cases" if failed else f"PASS: {cases} cases"
        name = next(iter(self.report.operators))
        speed = self.untimed if self.roofline is None else str(self.roofline)
        lines += ["", f"{verdict}: {self.name} is {'not ' * bool(failed)}{name}, seed "
                  f"{self.report.seed}", *([f"  {speed}"] if speed else [])]  # fmt: skip
        return "\n".join(lines)


def judge(
    candidate: str | Path | Kernel | Function | Callable[..., Any],
    operator: str | Operator,
    *,
    device: str | None = None,
    cases: int = CASES,
    seed: int = 0,
    failures: Path | None = None,
    roofline: bool = True,
    entry: str = "",
    bindings: str = "",
    groups: str = "",
    group_size: str = "",
    where: str = "",
) -> Judgement:
    """Judges an implementation of an operator with the operator's examples and with random calls
    from its tables: NaN and infinities, strides, sizes of 1 and primes, large values.

    `candidate` is a kernel's file (`.hlsl`, `.spv`, `.cl`, `.wgsl`), or a Python function, also in
    a file (`.py`), that takes arrays and returns an array, one per output, or a mapping by name;
    its parameters are the operator's inputs in table order, then any of its attributes by name.
    `device` runs a kernel: by default, the first one for its language. `failures` is a folder for
    failures; `roofline` says whether a candidate that passes is timed.

    The other parameters are the options of `dmlc test --kernel` and may stand in the kernel's file:
    its function, `NAME=TENSOR` for buffers and `NAME=FORMULA` for arguments, the groups of a launch
    and the work items of a group along x, y and z, and a condition on the calls that it takes.

    Raises `DmlcError` for a kernel that does not compile or cannot be bound, and for one that takes
    none of the operator's calls; `UnavailableError` without a device for it.
    """
    found = find_operator(operator) if isinstance(operator, str) else operator
    expect("operator", found, Operator, "an operator, or the name of one of the library")
    options = Options(entry, bindings, groups, group_size, where)
    made = make_candidate(candidate, found, device, options)
    settings = Settings(
        (made.name,), expect_integer("seed", seed), expect_integer("cases", cases), failures
    )
    test = Judging(made, settings)
    report = Report((made.name,), settings.seed)
    outcomes: list[Outcome] = []
    for outcome in test.run():
        outcomes.append(outcome.without_arrays())
        if test.mistake is not None:
            break
    if test.mistake is not None:
        raise test.mistake
    if not outcomes:
        reasons = [f"{why} ({counted(count, 'call')})" for why, count in test.outside.items()]
        raise DmlcError(f"{made.name} takes no call that {found.name} permits", None, reasons)
    report.add(Done(found.name, tuple(outcomes), test.summarize()))
    described = tuple(made.describe())
    if report.failures or not roofline or not test.taken:
        return Judgement(made.name, described, report, test.outside)
    try:
        timed = measure_roofline(made, max(test.taken, key=_weigh))
    except DmlcError as error:
        return Judgement(made.name, described, report, test.outside, None, _first_line(error))
    return Judgement(made.name, described, report, test.outside, timed)


def make_candidate(
    candidate: object, operator: Operator, device: str | None, options: Options
) -> Candidate:
    """Candidate of `judge`'s argument."""
    if isinstance(candidate, Kernel | Function):
        return candidate
    is_file = isinstance(candidate, str | Path)
    if is_file and Path(candidate).suffix != ".py":
        return Kernel(candidate, operator, options, device)
    if not is_file and not callable(candidate):
        raise wrong_kind("candidate", "a kernel's file, or a function", candidate)
    if device is not None or options.bindings or options.groups or options.group_size:
        raise DmlcError("a Python function has no device, no bindings and no groups")
    if is_file:
        return read_function(Path(candidate), options.entry, operator, options.where)
    return Function(cast("Callable[..., Any]", candidate), operator, options.where)


class Judging(OperatorTest):
    """Tests of one candidate."""

    shrinking = _SHRINKING

    def __init__(self, judged: Candidate, settings: Settings) -> None:
        if not judged.kept:
            # A candidate that cannot be recreated is not kept.
            settings = dataclasses.replace(settings, failures=None)
        super().__init__(judged.operator, settings)
        self.judged = judged
        self.candidate = judged.kept
        self.outside: dict[str, int] = {}
        self.taken: list[Call] = []
        """Calls drawn that the candidate takes."""
        self.mistake: DmlcError | None = None
        """Error in one of the candidate's formulas."""

    def _read_cases(self, example: syntax.Example) -> Iterator[Case]:
        for case in super()._read_cases(example):
            call = self._adapt(case.call)
            if call is not None:
                yield dataclasses.replace(case, call=call)

    def _draw_calls(self, count: int) -> Iterator[Call]:
        drawn = draw_calls(self.operator, self._draw("calls"), count * _DRAWN_FOR_EACH)
        fixed = (self._fix(call) for call in drawn)
        calls = (call for each in fixed if (call := self._adapt(each)) is not None)
        different = {str(call): call for call in itertools.islice(calls, 2 * count)}
        for number, call in enumerate(itertools.islice(different.values(), count)):
            longer = (None if number % 2 else self._lengthen(call)) or call
            yield (self._spread(longer) if number % 3 else None) or longer

    def _fill(self, call: Call, kind: str, number: int) -> Case:
        """Case with data of one kind; special data have a NaN and an infinity in every input,
        however small."""
        case = super()._fill(call, kind, number)
        if case.title != "special data":
            return case
        random = self._draw(f"special elements of {call}")
        inputs = dict(case.inputs)
        for name, array in case.inputs.items():
            if not call.tensors[name].data_type.is_float or array.size == 0:
                continue
            values = np.array(array)
            places = random.permutation(values.size)
            values.flat[places[0]] = np.nan
            if values.size > 1:
                values.flat[places[1]] = random.choice([np.inf, -np.inf])
            inputs[name] = lay_out(values, call.tensors[name])
        return dataclasses.replace(case, inputs=inputs)

    def _fix(self, call: Call) -> Call:
        """Call with the attributes and tensors that the candidate is for, if permitted, since
        random calls rarely have them."""
        known = {attribute.name for attribute in self.operator.definition.attributes}
        wanted = {name: value for name, value in self.judged.fixed.items() if name in known}
        made = Call(call.operator, self.judged.fit(call), {**call.attributes, **wanted})
        return made if is_bindable(made) else call

    def _spread(self, call: Call) -> Call | None:
        """Call with strides for every tensor, if all are packed and the operator permits it. The
        candidate gets only the strides that it reads."""
        if any(map(_is_moved, call.tensors.values())):
            return None
        random = self._draw(f"strides of {call}")
        for _ in range(_STRIDE_TRIES):
            tensors = {
                name: TensorDesc(desc.data_type, sizes, draw_strides(random, sizes, is_output))
                if sizes and 0 not in sizes
                else desc
                for name, desc in call.tensors.items()
                for sizes, is_output in [(desc.shape, name in call.outputs)]
            }
            made = self._adapt(Call(call.operator, tensors, call.attributes))
            if made is not None and is_bindable(made) and any(map(_is_moved, tensors.values())):
                return made
        return None

    def _lengthen(self, call: Call) -> Call | None:
        """Call with one size longer than a group of work items, and not a multiple of it; None if
        impossible."""
        random = self._draw(f"longer sizes of {call}")
        sizes = call.sizes
        items = self.judged.count_group() or _GROUP
        length = items + pick(random, _BEYOND)
        for size in shuffle(random, sorted({s for shape in sizes.values() for s in shape})):
            if size == 0 or items > _LONGEST:
                continue
            longer = {n: tuple(length if s == size else s for s in each)
                      for n, each in sizes.items()}  # fmt: skip
            made = call.resize(longer, strides=False)
            if made is None or not is_bindable(made) or find_work(made.function) > _MOST_WORK:
                continue
            tensors = {n: self._lay_out(d, call.tensors[n], random, n in call.outputs)
                       for n, d in made.tensors.items()}  # fmt: skip
            made = self._adapt(Call(call.operator, tensors, call.attributes))
            if made is not None and is_bindable(made):
                return made
        return None

    @staticmethod
    def _lay_out(desc: TensorDesc, like: TensorDesc, random: Random, output: bool) -> TensorDesc:
        """Tensor with strides, if a similar tensor of the operator may have some."""
        sizes = desc.shape
        if like.strides is None or 0 in sizes:
            return desc
        return TensorDesc(desc.data_type, sizes, draw_strides(random, sizes, output))

    def _adapt(self, call: Call) -> Call | None:
        try:
            _ = call.binding
        except DmlcError:
            return None  # A constraint reads strides.
        try:
            found = self.judged.adapt(call)
        except OutsideError as outside:
            self.outside[str(outside)] = self.outside.get(str(outside), 0) + 1
            return None
        except DmlcError as error:
            # Messages about the kernel belong to no single case.
            self.mistake = self.mistake or error
            return None
        self.taken.append(found)
        return found

    def _try(self, kind: CheckKind, case: Case, device: str) -> Outcome:
        return check_candidate(case, self.judged, kind)

    def _explain(self, outcome: Outcome) -> Outcome:
        case = outcome.case
        if case is None:
            return outcome

        def run(other: Case) -> Outcome:
            return check_candidate(other, self.judged, outcome.kind)

        results: Mapping[str, Array] = {}
        if outcome.cause is Cause.RESULT:
            results = self.judged.run(case).results[""]
        said = explain(case, outcome, results, self.judged.count_items(case.call), run)
        return dataclasses.replace(outcome, message="\n".join([outcome.message, *said]))

    def _list_further(self, kind: CheckKind, case: Case) -> Iterator[CheckKind]:
        return iter(())

    def _draw_refused(self) -> Iterator[Case]:
        return iter(())


def replay(kept: Replay) -> Outcome:
    """Outcome of running a kept failure again, of the same file, which may have changed."""
    options = dict(kept.candidate)
    path, device = options.pop("path", ""), options.pop("device", None)
    judged = make_candidate(Path(path), kept.case.call.operator, device, Options(**options))
    return check_candidate(kept.case, judged, kept.kind)


def check_candidate(case: Case, candidate: Candidate, kind: CheckKind = CheckKind.CALL) -> Outcome:
    """Runs a candidate on a case, and compares each of its runs with the expected results."""
    make, device = Maker(kind, case), candidate.name
    refused = make.check_formula()
    if refused is not None:
        return refused

    def compute() -> tuple[Runs, dict[str, dict[str, Verdict]]]:
        try:
            # A case that was made smaller may be none of the candidate's any more.
            candidate.adapt(case.call)
            runs = candidate.run(case)
        except OutsideError as outside:
            raise UnsupportedError(str(outside)) from None
        return runs, {how: hold(case, each, candidate.floats) for how, each in runs.results.items()}

    found = make.attempt(compute, Cause.EXCEPTION, device)
    if isinstance(found, Outcome):
        # The operator is not at fault.
        return dataclasses.replace(found, span=None)
    runs, verdicts = found
    first = verdicts[""]
    wrong = {how: found for how, found in verdicts.items() if _list_wrong(found)}
    if runs.stray:
        return make.failed(Cause.MEMORY, "\n".join(runs.stray), None, device, first)
    differing = _list_differing(runs)
    if wrong and differing:
        lines = [*differing, *_list_wrong(next(iter(wrong.values())))]
        return make.failed(Cause.RACE, "\n".join(lines), None, device, first)
    if runs.unsettled:
        return make.failed(Cause.MEMORY, "\n".join(runs.unsettled), None, device, first)
    if not wrong:
        return make.passed(device, first)
    return make.failed(Cause.RESULT, "\n".join(_list_wrong(first)), None, device, first)


def _list_wrong(verdicts: Mapping[str, Verdict]) -> list[str]:
    return [f"{name}: {verdict}" for name, verdict in verdicts.items() if not verdict.holds]


def _list_differing(runs: Runs) -> list[str]:
    """First element of each output in which a run differs from the plain one."""
    lines: list[str] = []
    for how, found in runs.results.items():
        for name, one in runs.results[""].items():
            other = found[name]
            places = np.flatnonzero(as_bits(one) != as_bits(other))
            if len(places) and how:
                at = tuple(int(k) for k in np.unravel_index(int(places[0]), one.shape))
                lines.append(f"{name}{list(at)} is {one[at]}, and {other[at]} in {how}")
    return lines[:1]


def _is_moved(desc: TensorDesc) -> bool:
    """Whether a tensor is not packed."""
    sizes, strides = desc.shape, desc.strides or ()
    steps = zip(sizes, strides, packed(sizes), strict=False)
    return any(size > 1 and step != tight for size, step, tight in steps)


def _weigh(call: Call) -> tuple[int, int]:
    """Numbers of elements of a call that are 32-bit floats, and of all."""
    tensors = call.tensors.values()
    plain = sum(desc.data_type is DataType.FLOAT32 for desc in tensors)
    return plain, sum(math.prod(desc.shape) for desc in tensors)


def _first_line(error: DmlcError) -> str:
    return f"not timed: {error.diagnostics[0].message}"


__all__ = ["Judgement", "Judging", "check_candidate", "judge", "make_candidate", "replay"]
