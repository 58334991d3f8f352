"""Inverts loads: finds the points of a stage that load a given element of a tensor.

For a load `T[p(i), q(i)]` and the element at `t`, which indices `i` have `p(i) == t0` and
`q(i) == t1`? An index that the equations determine becomes an expression of `t`; the others become
reduction axes, and remaining equations become conditions. A transposed load thus gives a transposed
load, a window the outputs that contain the element, a diagonal the condition that `t` is on it.

Indices are linear combinations of loop indices, with quotients and remainders by constants, as a
reshape splits indices into digits. Equations in any other form, such as with elements of tensors,
become conditions: correct, and left for later passes to optimize.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.index.affine import Affine, combine, single
from dmlc.index.intervals import Interval, is_within, meet
from dmlc.ir import Apply, Body, Constant, Extent, Index, Load, Stage, Symbol
from dmlc.ir.below import SizeBounds
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import find_part
from dmlc.scalars import DataType
from dmlc.sizes import find_least, measure
from dmlc.transform.digits import (
    Digit,
    Quotient,
    Sum,
    TensorIndex,
    Term,
    divide,
    find_ends,
    find_interval,
    list_digits,
    read_size,
    replace_digit,
    take_part,
    walk_digits,
)

_MOST_SPLITS = 32
"""Largest number of digit splits for one load."""


@dataclasses.dataclass(frozen=True, slots=True)
class Readers:
    """Points that load an element, for a body over the tensor that is loaded."""

    positions: Mapping[int, int]
    """INDEX values of the stage's body, its indices included, by their new values in the body over
    the tensor."""
    axes: tuple[tuple[int, Extent], ...]
    """Reduction axes of the remaining indices."""
    conditions: tuple[int, ...]
    """Conditions that the points must fulfil, as values of the new body."""
    left: tuple[tuple[int, int], ...]
    """INDEX values of the stage that could not be solved for, each with the tensor axis whose index
    it must equal."""


def find_readers(
    stage: Stage,
    load: Load,
    extents: Sequence[Extent],
    conditions: Sequence[tuple[int, bool]],
    builder: BodyBuilder,
) -> Readers:
    """Points of a stage that load the element at an index of a tensor with these extents.
    `conditions` are values of the stage's body, each with its truth wherever the load matters. The
    builder makes a body over the tensor."""
    equations = _Equations(stage, load, extents, SizeBounds(stage, conditions=conditions))
    equations.solve()
    return equations.write(builder)


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """Condition on a sum: that it is at least 0, less than `extent`, or 0."""

    form: Sum
    comparison: str
    extent: Extent = 0

    @property
    def is_certain(self) -> bool:
        low, high = find_ends(self.form)
        match self.comparison:
            case "ge":
                return low is not None and find_least(low) >= 0
            case "lt":
                return high is not None and find_least(measure(self.extent) - 1 - high) >= 0
            case _:
                return self.form == Affine()


class _Equations:
    """State of solving the equations of one load."""

    def __init__(
        self, stage: Stage, load: Load, extents: Sequence[Extent], proof: SizeBounds
    ) -> None:
        self._body = stage.body
        self._others = [each for each in stage.body.loads() if each.tensor != load.tensor]
        self._extents = extents
        self._proof = proof
        self._digits = 0
        self._indices: dict[Index, Sum] = {}
        for index in stage.indices:
            extent = stage.extent(index)
            digit = None if extent is None or extent == 1 else self._digit(extent)
            self._indices[index] = Affine() if digit is None else single(digit)
        self._open = [
            (axis, number)
            for axis, (number, extent) in enumerate(zip(load.indices, extents, strict=True))
            if extent != 1
        ]
        self._asked: list[_Asked] = []
        self._left: list[tuple[int, int]] = []

    def _digit(self, extent: Extent) -> Digit:
        self._digits += 1
        return Digit(self._digits, extent)

    def solve(self) -> None:
        """Solves for as many indices as possible."""
        pending = self._join_digits()
        splits = 0
        while True:
            forms = _Forms(self._body, self._indices, self._proof)
            found = [(axis, number, forms.find(number)) for axis, number in self._open]
            if forms.split is None or splits == _MOST_SPLITS:
                break
            # A digit is split into one below `step`, and the number of steps.
            digit, step, extent = forms.split
            low, high = self._digit(step), self._digit(-(-extent // step))
            value: Sum = Affine(0, ((low, 1), (high, step)))
            if extent % step:
                self._asked.append(_Asked(value, "lt", extent))
            pending = self._substitute(digit, value, pending)
            splits += 1
        for axis, number, form in found:
            if form is None:
                self._left.append((axis, number))
            else:
                pending.append(form.plus(single(TensorIndex(axis, self._extents[axis])), -1))
        while pending:
            pending.sort(key=lambda form: len(list_digits(form)))
            for digit, value in self._solve(pending.pop(0)):
                pending = self._substitute(digit, value, pending)

    def _substitute(self, digit: Digit, value: Sum, pending: Sequence[Sum]) -> list[Sum]:
        """Substitutes a sum for a digit everywhere; returns the equations `pending`."""
        self._asked = [
            dataclasses.replace(asked, form=replace_digit(asked.form, digit, value))
            for asked in self._asked
        ]
        self._indices = {i: replace_digit(f, digit, value) for i, f in self._indices.items()}
        return [replace_digit(form, digit, value) for form in pending]

    def _join_digits(self) -> list[Sum]:
        """Equations for numbers whose digits, split by a reshape, are the indices of several
        axes."""
        forms = _Forms(self._body, self._indices, self._proof)
        parts: dict[int, list[tuple[int, int, int | None]]] = {}
        for axis, number in self._open:
            given, step, count = find_part(self._body, number)
            parts.setdefault(given, []).append((step, axis, count))
        joined: list[Sum] = []
        for given, found in parts.items():
            form = forms.find(given)
            found.sort()
            starts = [step for step, _, _ in found]
            ends = [math.inf if count is None else step * count for step, _, count in found]
            if form is None or len(found) == 1 or starts[0] != 1 or ends[:-1] != starts[1:]:
                continue
            if not is_within(find_interval(form), ends[-1]):
                continue
            for step, axis, _ in found:
                form = form.plus(single(TensorIndex(axis, self._extents[axis])), -step)
            joined.append(form)
            gone = [axis for _, axis, _ in found]
            self._open = [(axis, number) for axis, number in self._open if axis not in gone]
        return joined

    # Solutions ----------------------------------------------------------------------------

    def _solve(self, form: Sum) -> list[tuple[Digit, Sum]]:
        """Digits for which `form == 0` is solved, each with the sum to substitute, in order."""
        # Digits that also occur in a quotient cannot be solved for linearly.
        inner = {d for term, _ in form.factors if isinstance(term, Quotient)
                 for d in walk_digits(term.given)}  # fmt: skip
        digits = [(digit, factor) for digit, factor in list_digits(form) if digit not in inner]
        known: Sum = Affine(form.constant, tuple(f for f in form.factors if f not in digits))
        if not digits:
            self._asked.append(_Asked(form, "eq"))
            return []
        if all(factor < 0 for _, factor in digits):
            digits = [(digit, -factor) for digit, factor in digits]
        else:
            known = known.times(-1)
        return self._solve_all(digits, known) or self._solve_one(digits, known)

    def _solve_all(
        self, digits: Sequence[tuple[Digit, int]], known: Sum
    ) -> list[tuple[Digit, Sum]]:
        """Solution for all digits of a number, if the digits of smaller steps always add up to less
        than the next step; else empty."""
        ordered = sorted(digits, key=lambda item: item[1])
        reach = 0
        for digit, step in ordered:
            if step <= reach or (not isinstance(digit.extent, int) and len(ordered) > 1):
                return []
            reach += step * (digit.extent - 1) if isinstance(digit.extent, int) else 0
        settled, rest = list[tuple[Digit, Sum]](), known
        self._asked.append(_Asked(rest, "ge"))
        for digit, step in reversed(ordered):
            value = take_part(rest, step, remains=False)
            self._asked.append(_Asked(value, "lt", digit.extent))
            settled.append((digit, value))
            rest = take_part(rest, step, remains=True)
        self._asked.append(_Asked(rest, "eq"))
        return settled

    def _solve_one(
        self, digits: Sequence[tuple[Digit, int]], known: Sum
    ) -> list[tuple[Digit, Sum]]:
        """Solution for one digit in terms of the others: the longest of those with the smallest
        step. If another tensor, such as weights, is indexed by all shorter ones, the longest
        digit of all: the sum is then over the points of a window, and a sum of products is a
        contraction."""
        forms = _Forms(self._body, self._indices, self._proof)
        found = (forms.find(n) for load in self._others for n in load.indices)
        read = {digit for form in found if form is not None for digit, _ in list_digits(form)}

        def measure(item: tuple[Digit, int]) -> float:
            return -item[0].extent if isinstance(item[0].extent, int) else -math.inf

        _, *short = sorted(digits, key=measure)
        is_window = bool(short) and all(digit in read for digit, _ in short)

        def rank(item: tuple[Digit, int]) -> tuple[float, float]:
            length, step = measure(item), abs(item[1])
            return (length, step) if is_window else (step, length)

        digit, factor = min(digits, key=rank)
        others: Sum = Affine(0, tuple((d, f) for d, f in digits if d != digit))
        rest = known.plus(others, -1).times(1 if factor > 0 else -1)
        value = take_part(rest, abs(factor), remains=False)
        self._asked += [
            _Asked(rest, "ge"),
            _Asked(value, "lt", digit.extent),
            _Asked(take_part(rest, abs(factor), remains=True), "eq"),
        ]
        return [(digit, value)]

    # A body -------------------------------------------------------------------------------

    def write(self, builder: BodyBuilder) -> Readers:
        """Solution, as values of a body over the tensor."""
        asked = [each for each in self._asked if not each.is_certain]
        # A digit on which no index depends any more may still occur in a condition.
        forms = [*self._indices.values(), *(each.form for each in asked)]
        open_digits = dict.fromkeys(digit for form in forms for digit in walk_digits(form))
        axes = {digit: label for label, digit in enumerate(open_digits)}
        writer = _Writer(builder, axes)
        known = _Forms(self._body, self._indices, self._proof)
        found = ((number, known.find(number)) for number in range(len(self._body.instructions)))
        positions = {number: writer.write(form) for number, form in found if form is not None}
        conditions = [writer.compare(each) for each in asked]
        return Readers(
            positions,
            tuple((label, digit.extent) for digit, label in axes.items()),
            tuple(dict.fromkeys(conditions)),
            tuple(self._left),
        )


class _Writer:
    """Writes sums as values of a body."""

    def __init__(self, builder: BodyBuilder, axes: Mapping[Digit, int]) -> None:
        self._builder = builder
        self._axes = axes

    def write(self, form: Sum) -> int:
        return form.ordered().write(self._write_term, self._builder.constant, self._builder.apply)

    def _write_term(self, term: Term) -> int:
        match term:
            case Digit():
                return self._builder.add(Index(self._axes[term], reduced=True))
            case TensorIndex():
                return self._builder.add(Index(term.axis))
            case Symbol():
                return self._builder.add(term)
            case Quotient():
                name = "mod" if term.remains else "div"
                divisor = self._builder.constant(term.divisor)
                return self._builder.apply(name, self.write(term.given), divisor)

    def compare(self, asked: _Asked) -> int:
        limit = self._builder.size(asked.extent)
        if asked.comparison != "eq":
            return self._builder.apply(asked.comparison, self.write(asked.form), limit)
        # Written as a comparison of one term with the rest.
        places = tuple(f for f in asked.form.factors if abs(f[1]) == 1)
        for term, factor in places[:1]:
            place: Sum = single(term)
            rest = asked.form.plus(place, -factor).times(-factor)
            return self._builder.apply("eq", self.write(place), self.write(rest))
        return self._builder.apply("eq", self.write(asked.form), limit)


# Positions ----------------------------------------------------------------------------------


class _Forms:
    """Values of a body as sums of digits, if they are."""

    def __init__(self, body: Body, indices: Mapping[Index, Sum], proof: SizeBounds) -> None:
        self._body = body
        self._indices = indices
        self._proof = proof
        self._found: dict[int, Sum | None] = {}
        self.split: tuple[Digit, int, int] | None = None
        """Digit to split so that a quotient becomes a sum, with the step and the digit's extent."""

    def find(self, number: int) -> Sum | None:
        if number not in self._found:
            self._found[number] = self._make(number)
        return self._found[number]

    def _make(self, number: int) -> Sum | None:
        match self._body.instructions[number]:
            case Index() as index:
                return self._indices[index]
            case Constant(dtype=DataType.INDEX, value=value):
                return Affine(int(value))
            case Symbol(name=name):
                return read_size(name)
            case Apply(operation=operation, operands=given, dtype=DataType.INDEX):
                found = [self.find(value) for value in given]
                known = [form for form in found if form is not None]
                return self._combine(operation.name, given, known) if known == found else None
            case _:
                return None

    def _combine(self, name: str, given: Sequence[int], forms: Sequence[Sum]) -> Sum | None:
        match name, *forms:
            case (("div" | "mod"), form, Affine(constant=divisor, factors=())) if divisor > 0:
                return self._part(form, self._reach(given[0], form), divisor, name == "mod")
            case (("min" | "max"), left, right):
                (a, b), (c, d) = (self._reach(v, f) for v, f in zip(given, forms, strict=True))
                if a >= d or c >= b:
                    return right if (c >= b) == (name == "max") else left
                # Symbolic bounds may decide it.
                for least, most in (given, given[::-1]):
                    if self._proof.is_at_most(least, most):
                        return self.find(least if name == "min" else most)
                return None
            case _:
                return combine(name, forms)

    def _reach(self, number: int, form: Sum) -> Interval:
        """Interval of a value wherever the load matters."""
        return meet(find_interval(form), self._proof.interval(number))

    def _part(self, form: Sum, reach: Interval, divisor: int, remains: bool) -> Sum | None:
        if reach[0] < 0:
            return None
        if reach[1] < divisor:
            return form if remains else Affine()
        made = divide(form, divisor, remains)
        if made is not None or self.split is not None:
            return made
        for digit, factor in list_digits(form):
            step = divisor // factor if factor > 0 and divisor % factor == 0 else 0
            if isinstance(digit.extent, int) and 1 < step < digit.extent:
                self.split = digit, step, digit.extent
        return None
