"""Semantic errors of an operator whose lines are all valid, found by binding its examples and some
random calls, and by the reference.

No kernel is built. `dmlc check`, `dmlc test` and the editor report them, each once, with the
smallest call that shows it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.attributes import any_member, check_length, convert
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.language import syntax
from dmlc.language.walk import parts, subexpressions
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import Diagnostic, DmlcError, Edit, Fix, Note, Span, UnsupportedError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Call, Case
from dmlc.testing.drafts import Wish
from dmlc.testing.draw import Drawer
from dmlc.testing.draw_values import shuffle
from dmlc.testing.examples import read_cases

THOROUGH = 48
"""Number of random calls in a thorough check."""
_FEW = 4
"""Number of wishes for calls in a quick check, and of those for optional tensors."""
_RANDOM = 2
"""Number of random inputs within the range of the examples."""
_MOST_EXAMPLES = 4
_MOST_TYPES = 3
"""Number of data types of an example that are tried; the widest one is taken."""
_MOST_SHOWN = 8
_SMALL = 2.0**-10
_BESIDE = 0.97
_MOST_FOUND = 20


def find_mistakes(operator: Operator, calls: int = 0) -> tuple[Diagnostic, ...]:
    """Errors and warnings about an operator. `calls` is the number of random calls; with 0, only a
    few are tried: without optional tensors, with the fewest and with the most dimensions. Does not
    raise for errors of the operator."""
    if not operator.definition.has_formula or operator.definition.broken:
        return ()
    finder = _Finder(operator)
    finder.run(calls)
    return tuple(dict.fromkeys(finder.found))[:_MOST_FOUND]


class _Finder:
    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.definition = operator.definition
        self.found: list[Diagnostic] = []
        seed = hashlib.sha256(f"findings {operator.name}".encode()).digest()
        self.random = np.random.default_rng(list(seed))
        self.refused: dict[Span | None, tuple[Diagnostic, Call]] = {}
        """Errors of the formula on permitted calls, one per span, with the smallest such call."""
        self.warnings: list[tuple[Diagnostic, ...]] = []
        """Warnings of each call that was bound."""

    def run(self, calls: int) -> None:
        self.check_defaults()
        cases = self.check_examples()
        if self.found:
            return  # What is drawn begins with defaults and examples.
        self.try_calls(calls, [case.call for case in cases])
        self.report_refused(bool(calls))
        if self.warnings:
            shared = set(self.warnings[0]).intersection(*self.warnings[1:])
            self.found += [warning for warning in self.warnings[0] if warning in shared]
        if not self.refused:
            self.check_numbers(cases)

    # Tables and examples ------------------------------------------------------------------

    def check_defaults(self) -> None:
        """Checks constant defaults against the types of their attributes."""
        evaluator = Evaluator(Binding(self.definition, {}, {}, {}, False))
        for attribute in self.definition.attributes:
            if attribute.default is None:
                continue
            try:
                value = evaluator.constant(attribute.default, any_member(attribute))
            except DmlcError:
                continue  # It depends on tensors, or on other attributes.
            try:
                check_length(attribute, convert(attribute, value), evaluator)
            except DmlcError as error:
                said = error.diagnostics[0].message
                message = f"the default of '{attribute.name}' is none that a call may give: {said}"
                cure = Note("give one that it may be, or leave the cell empty: calls then say it")
                place = attribute.default.span
                self.found.append(Diagnostic(message, place, (cure,), code="E0503"))

    def check_examples(self) -> list[Case]:
        """First case of each example that has one; errors of the others are recorded."""
        found: list[Case] = []
        for example in (*self.definition.examples, *self.definition.differences):
            try:
                cases = list(itertools.islice(read_cases(self.operator, example), _MOST_TYPES))
            except DmlcError as error:
                self.found += [_at(d, example.span) for d in error.diagnostics]
                continue
            found.append(max(cases, key=_count_bits))
        return found

    # Calls --------------------------------------------------------------------------------

    def try_calls(self, count: int, examples: Sequence[Call]) -> None:
        """Binds the examples' calls, and random calls."""
        drawer = Drawer(self.operator, self.random)
        tried = 0
        for call in itertools.chain(examples, self.draw_calls(drawer, count)):
            tried += 1
            try:
                self.warnings.append(call.function.warnings)
            except UnsupportedError:
                continue  # This version is at fault.
            except DmlcError as error:
                for diagnostic in error.diagnostics:
                    known = self.refused.get(diagnostic.span)
                    if known is None or _measure(call) < _measure(known[1]):
                        self.refused[diagnostic.span] = diagnostic, call
        if not tried:
            self.report_unmet(list(drawer.forbidding))

    def draw_calls(self, drawer: Drawer, count: int) -> Iterator[Call]:
        """Permitted random calls. Sizes of outputs may follow from the formula, so drafts that no
        constraint forbids are bound too."""
        wishes = self.list_wishes()
        if count:
            every = shuffle(self.random, drawer.list_wishes())
            wishes = list(itertools.islice(itertools.cycle([*wishes, *every]), count))
        for wish in wishes:
            draft = drawer.begin(wish)
            if draft is None:
                continue
            found = drawer.drafter.resolve(draft)
            # Attributes are any numbers, of which some fit nothing: that takes a thorough look.
            asked = bool(count) or (wish.attribute is None and not self.definition.attributes)
            if isinstance(found, Binding):
                call = Call(self.operator, drawer.drafter.describe(draft), draft.attributes)
                yield from filter(None, (call, call.cut(1)))
            elif asked and all(map(self.is_of_formula, found)):
                yield Call(self.operator, drawer.drafter.describe(draft), draft.attributes)
            elif (call := drawer.draw(wish)) is not None:
                yield call

    def is_of_formula(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic is about the formula: not about a table, a constraint, or output
        sizes that a call must give."""
        own, span = self.definition.compute or (), diagnostic.span
        outputs = self.definition.newest.outputs
        if diagnostic.code == "E0805" and any(f"'{o.name}'" in diagnostic.message for o in outputs):
            return False
        return span is not None and any(
            s.span.source is span.source and s.span.start <= span.start < s.span.end for s in own
        )

    def list_wishes(self) -> list[Wish]:
        """Wishes for the properties that formulas forget most often."""
        rows = self.definition.newest.tensors
        wishes = [
            Wish(tensor=row.name, present=present)
            for row in rows if row.optional for present in (False, True)
        ]  # fmt: skip
        first = next((row for row in rows if not row.output), rows[0])
        few = [Wish(tensor=first.name, rank=rank) for rank in {first.ranks[0], first.ranks[-1]}]
        few += [Wish(tensor=first.name, dtype=dtype) for dtype in first.dtypes]
        return [*wishes[:_FEW], *few[:_FEW]]

    def report_refused(self, thorough: bool) -> None:
        """Reports the errors of the formula on permitted calls: an error if it takes no call, else
        a warning. Tables often omit the ranks, so a quick check passes over those, but not over
        optional tensors."""
        first = next(iter(self.definition.newest.inputs), self.definition.newest.tensors[0])
        settled = not self.warnings and len(first.ranks) <= 2
        for diagnostic, large in self.refused.values():
            absent = _find_absent(diagnostic, large)
            if not (thorough or settled or absent):
                continue
            call = _shrink(large, diagnostic)
            notes = tuple(n for n in diagnostic.notes if n.span is not None)
            cure = f"read it where it is there: present({absent}) ? ... : ..."
            if absent is None:
                cure = "mend the formula, or forbid the call: require ..."
            notes = (Note(f"no constraint forbids this call: {call}"), Note(cure), *notes)
            place = diagnostic.span or self.definition.syntax.name.span
            fixes = () if absent is None else tuple(self.list_guards(absent, place))
            made = dataclasses.replace(diagnostic, span=place, notes=notes, fixes=fixes)
            if self.warnings or absent:
                message = f"the tables permit what the formula cannot take: {diagnostic.message}"
                made = dataclasses.replace(made, message=message, warning=True, code="W0502")
            self.found.append(made)

    def list_guards(self, name: str, place: Span) -> Iterator[Fix]:
        """Fix that reads an optional tensor only if it is present, with the neutral element in its
        place: 1 as a factor or a divisor, and else 0."""
        for statement in self.definition.compute or ():
            for outer in (statement, *subexpressions(statement)):
                for read in parts(outer):
                    base = read.base if isinstance(read, syntax.Index) else read
                    named = isinstance(base, syntax.Reference) and base.name == name
                    within = read.span.start <= place.start and place.end <= read.span.end
                    same = read.span.source is place.source
                    if not (named and within and same):
                        continue
                    if isinstance(outer, syntax.Index | syntax.Member | syntax.Pack):
                        continue
                    factor = isinstance(outer, syntax.Binary) and (
                        outer.operator == "*" or (outer.operator == "/" and read is outer.right)
                    )
                    text = f"present({name}) ? {read.span.text} : {int(factor)}"
                    bare = outer is statement or isinstance(outer, syntax.Call)
                    yield (Edit(read.span, text if bare else f"({text})"),)
                    return

    def report_unmet(self, forbidding: Sequence[Diagnostic]) -> None:
        """Reports that no permitted call was found, at the constraint that forbids most."""
        counts: dict[Span | None, list[Diagnostic]] = {}
        for diagnostic in forbidding:
            counts.setdefault(diagnostic.span, []).append(diagnostic)
        if not counts:
            return
        span, most = max(counts.items(), key=lambda item: (item[0] is not None, len(item[1])))
        last = most[-1]
        self.found.append(
            Diagnostic(
                f"no call was found that meets all constraints: {last.message}",
                span or self.definition.syntax.name.span,
                (*last.notes[:2], Note("loosen it, or give an example of a call that meets it")),
                warning=True,
                code="W0501",
            )
        )

    # Numbers ------------------------------------------------------------------------------

    def check_numbers(self, cases: Sequence[Case]) -> None:
        """Warns of outputs that are NaN or infinite for finite inputs, those of the examples or
        within their range, if no example expects such."""
        expected = {
            name for case in cases for name, array in case.expected.items()
            if array.dtype.kind == "f" and not np.all(np.isfinite(array))
        }  # fmt: skip
        ranges = _find_ranges(cases)
        for case in cases[:_MOST_EXAMPLES]:
            if case.difference is not None or not all(map(_is_finite, case.inputs.values())):
                continue
            for inputs in (case.inputs, *self.draw_within(case, ranges)):
                found = _find_infinite(dataclasses.replace(case, inputs=inputs), expected)
                if found is not None:
                    name, value = found
                    self.found.append(self.warn_of_number(name, value, case, inputs))
                    return

    def draw_within(
        self, case: Case, ranges: Mapping[str, tuple[float, float]]
    ) -> Iterator[dict[str, Array]]:
        """Inputs of a case with other numbers within the examples' range."""
        for _ in range(_RANDOM):
            yield {
                name: self.random.uniform(*ranges[name], array.shape).astype(array.dtype)
                if name in ranges and array.dtype.kind == "f" else array
                for name, array in case.inputs.items()
            }  # fmt: skip

    def warn_of_number(
        self, name: str, value: float, case: Case, inputs: Mapping[str, Array]
    ) -> Diagnostic:
        same = inputs is case.inputs
        shown = [f"{n} = {a.tolist()}" for n, a in inputs.items() if a.size <= _MOST_SHOWN]
        where = f'in example "{case.title}"' if same else "within the range of the examples"
        return Diagnostic(
            f"'{name}' may come to {'NaN' if math.isnan(value) else 'infinity or NaN'} for finite "
            f"inputs {where}",
            self._find_statement(name),
            (
                *((Note("where " + ", ".join(shown)),) if shown else ()),
                Note("write it so that nothing between overflows, or expect it in an example"),
            ),
            warning=True,
            code="W0503",
        )

    def _find_statement(self, name: str) -> Span:
        row = name.partition("[")[0]
        for statement in self.definition.compute or ():
            if isinstance(statement, syntax.Assignment) and statement.name.text == row:
                return statement.value.span
        return self.definition.syntax.name.span


def _at(diagnostic: Diagnostic, span: Span) -> Diagnostic:
    """Diagnostic with a span and a code."""
    notes = (*diagnostic.notes, Note("mend the example, or the row or sentence that it breaks"))
    code, place = diagnostic.code or "E0506", diagnostic.span or span
    return dataclasses.replace(diagnostic, span=place, notes=notes, code=code)


def _find_absent(diagnostic: Diagnostic, call: Call) -> str | None:
    """Optional input that a formula reads and a call omits."""
    rows = call.operator.definition.newest.inputs
    absent = [
        row.name for row in rows
        if row.optional and row.name not in call.tensors and f"'{row.name}'" in diagnostic.message
    ]  # fmt: skip
    return absent[0] if absent and diagnostic.code == "E0805" else None


def _shrink(call: Call, diagnostic: Diagnostic) -> Call:
    """Call with packed tensors, and sizes of at most 2 if they show the same error."""
    tried = call
    for most in (None, 3, 2, 1):
        tensors = {name: _cut(desc, most) for name, desc in tried.tensors.items()}
        smaller = dataclasses.replace(tried, tensors=tensors)
        try:
            _ = smaller.function
        except DmlcError as error:
            if any(d.span == diagnostic.span and d.code == diagnostic.code
                   for d in error.diagnostics):  # fmt: skip
                tried = smaller
    return tried


def _cut(desc: TensorDesc, most: int | None) -> TensorDesc:
    sizes = desc.sizes or ()
    if most is not None:
        sizes = tuple(min(size, most) if isinstance(size, int) else size for size in sizes)
    return TensorDesc(desc.data_type, sizes)


def _measure(call: Call) -> int:
    """Size of a call's text."""
    sizes = [d.sizes or () for d in call.tensors.values()]
    counts = [math.prod(e if isinstance(e, int) else 1 for e in s) + len(s) for s in sizes]
    return sum(counts) + len(call.attributes)


def _count_bits(case: Case) -> tuple[int, int]:
    """Sort key of a case by the width of its floats: FLOAT32, which formulas are written for, comes
    first."""
    floats = [d.data_type for d in case.call.tensors.values() if d.data_type.is_float]
    usual = sum(t is DataType.FLOAT32 for t in floats)
    return usual, min((t.bytes for t in floats), default=0)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.all(np.isfinite(array.astype(np.float64))))


def _find_ranges(cases: Sequence[Case]) -> dict[str, tuple[float, float]]:
    """Range of the finite numbers that examples give each input."""
    found: dict[str, tuple[float, float]] = {}
    for case in cases:
        for name, array in case.inputs.items():
            numbers = array.astype(np.float64) if array.dtype.kind == "f" else np.zeros(0)
            finite = numbers[np.isfinite(numbers)]
            if finite.size:
                low, high = found.get(name, (math.inf, -math.inf))
                found[name] = min(low, float(finite.min())), max(high, float(finite.max()))
    return found


def _find_infinite(case: Case, expected: set[str]) -> tuple[str, float] | None:
    """Output of a case that is NaN or infinite somewhere, with that value."""
    with contextlib.suppress(DmlcError):
        given, function, rename = case.given, case.call.function, case.call.name_outputs
        found = rename(evaluate(function, given))
        floats = [name for name, array in found.items()
                  if array.dtype.kind == "f" and name not in expected]  # fmt: skip
        for name in floats:
            wrong = _list_infinite(found[name])
            if wrong.size:
                return name, float(wrong.flat[0])
        # The reference has more range than kernels between the first value and the last.
        bounds = rename(bound_errors(function, given)) if floats else {}
        beyond = [name for name in floats if _list_infinite(bounds[name]).size]
        if beyond:
            # Where small numbers have no bounds either, it is for steps, and not for range; a step
            # at these very numbers is none beside them.
            small, beside = (
                rename(bound_errors(function, _scale(given, by))) for by in (_SMALL, _BESIDE)
            )
            beyond = [name for name in beyond if not _list_infinite(small[name]).size
                      and _list_infinite(beside[name]).size]  # fmt: skip
        if beyond:
            return beyond[0], math.inf
    return None


def _scale(given: Mapping[str, Array], by: float) -> dict[str, Array]:
    """Arrays with their floats multiplied by a number."""
    return {n: (a * by).astype(a.dtype) if a.dtype.kind == "f" else a for n, a in given.items()}


def _list_infinite(array: Array) -> Array:
    numbers = array.astype(np.float64)
    return numbers[~np.isfinite(numbers)]
