"""Error bounds of the values of one body: an error analysis of each operation, in float64.

The error of a value is the rounding error of its operation, and the errors of its operands
propagated through it. `bounds` joins the bodies of a function.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Instruction,
    Load,
    Select,
    operands,
    value_type,
)
from dmlc.ir.index import find_index_only
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.runtime.floats import CORRECT, FloatPromises
from dmlc.scalars import DataType, Error, Keeps, Operation, Value, float_limits
from dmlc.testing.plain import EMPTY, PlainBuilder

_FEW_UNITS = 4.0
"""Error in units in the last place (ULP) of an operation without a promise."""
_QUOTIENTS = ("div", "div_nearest")
_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""Relative and absolute error of a transcendental function."""
_EARLIER = 0.9
"""Part of the operand at which a function must be saturated already, since devices saturate a
little later than exact rounding does."""
DOUBLE = DataType.FLOAT64
_FLOATS = {dtype: float_limits(dtype) for dtype in DataType if dtype.is_float}
EPSILON = {dtype: limits.epsilon for dtype, limits in _FLOATS.items()}
_STEP = {dtype: limits.step for dtype, limits in _FLOATS.items()}
"""Smallest denormal: the error of rounding to a denormal."""
SMALLEST = {dtype: limits.smallest for dtype, limits in _FLOATS.items()}
SMALLEST[DataType.FLOAT16] = _STEP[DataType.FLOAT16]
"""Error of a result that is flushed to zero, or of a FLOAT16 rounded to a denormal."""
LARGEST = {dtype: limits.largest for dtype, limits in _FLOATS.items()}
"""Bound above which a result may be infinite, since the reference computes in a wider type."""


def rounds_alike(operation: Operation) -> bool:
    """Whether an operation on floats gives the same bits in every kernel."""
    alike = IR_OPERATIONS[operation.name].error in (Error.NONE, Error.ROUNDED)
    return alike or operation.rounds_to is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """Floating-point behaviour permitted to a device in one run."""

    floats: FloatPromises
    flushes: bool = True
    """Whether some input holds a denormal that the device may flush."""

    def find_smallest(self, dtype: DataType) -> float:
        """Magnitude below which a result may be flushed to zero."""
        return 0.0 if self.floats.keeps_denormals(dtype) else SMALLEST[dtype]

    def may_flush(self, dtype: DataType) -> bool:
        """Whether an exact operand may be a denormal read as zero. An inexact operand has an error
        at least as large anyway."""
        return self.flushes and dtype.is_float and not self.floats.keeps_denormals(dtype)

    def find_loss(self, dtype: DataType, ulps: float = 1.0) -> float:
        """Error of a result near zero, or of `ulps` units in the last place elsewhere."""
        kept = self.floats.keeps_denormals(dtype)
        return max(ulps, 1.0) * _STEP[dtype] if kept else SMALLEST[dtype]

    def find_ulps(self, operation: Operation, dtype: DataType) -> float:
        """Error of one operation, in units in the last place."""
        if IR_OPERATIONS[operation.name].error not in (Error.ROUNDED, Error.PROMISED):
            return _FEW_UNITS
        # The reference itself has an error of up to half a unit.
        return self.floats.find_ulps(operation.name, dtype) + CORRECT


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Error of a stage's elements: a stage, or None for 0."""

    stage: str | None
    dtype: DataType
    signless: bool = False
    """Whether all elements are at least 0, however they are rounded."""
    ranged: bool = False
    """Whether the error is infinite already where the value may overflow its type."""
    settles: bool = False
    """Whether elements may be whole numbers, as sums of saturated functions."""


class ErrorBuilder(PlainBuilder):
    """Emitter of the errors of a body's values."""

    def __init__(
        self,
        rules: Rules,
        body: Body = EMPTY,
        sources: Mapping[str, Source] = MappingProxyType({}),
    ) -> None:
        super().__init__(body)
        self.rules = rules
        self._sources = sources
        self.signless = body.interpret(self._is_signless)
        """Whether each value of the body is at least 0, or NaN, however its operands are
        rounded."""
        self.whole = body.interpret(self._is_whole)
        """Whether each value of the body is a whole number, infinite or NaN, however its operands
        are rounded."""
        self.settles = body.interpret(self._settles)
        """Whether each value of the body is whole where transcendental functions in it are
        saturated: it combines their limits, which are whole, with whole numbers."""
        self.errors: list[Value | None] = []
        index_only = find_index_only(body)
        for number, instruction in enumerate(body.instructions):
            exact = index_only[number] and not self._differs(instruction)
            self.errors.append(None if exact else self._find(number, instruction))

    def _differs(self, instruction: Instruction) -> bool:
        """Whether a value of indices alone may differ between devices: if it uses a transcendental
        function or a square root, and is no index or choice itself. All others are the same
        everywhere, since quotients are `div_nearest` then."""
        dtype = value_type(instruction)
        if not dtype.is_float:
            return False
        if isinstance(instruction, Apply):
            operation = instruction.operation
            rough = self.rules.floats.find_ulps("sqrt", dtype) > CORRECT
            if operation.transcendental or (operation.name == "sqrt" and rough):
                return True
        return any(self.errors[operand] is not None for operand in operands(instruction))

    def _is_signless(self, instruction: Instruction, given: list[bool]) -> bool:
        match instruction:
            case Constant(value=value):
                return value >= 0
            case Load(tensor=tensor):
                return tensor in self._sources and self._sources[tensor].signless
            case Select():
                return all(given[1:])
            case Cast():
                return given[0]
            case Apply(operation=operation, operands=numbers):
                if operation.name == "mul":
                    one, other = (self.instructions[number] for number in numbers)
                    if numbers[0] == numbers[1] or one == other:
                        return True
                if operation.name == "max":
                    return any(given)
                keeps = IR_OPERATIONS[operation.name].never_negative
                return all(given) if keeps is Keeps.OPERANDS else keeps is not Keeps.NEVER
            case _:
                return False

    def _is_whole(self, instruction: Instruction, given: list[bool]) -> bool:
        if not value_type(instruction).is_float:
            return True
        match instruction:
            case Constant(value=value):
                return float(value).is_integer()
            case Select():
                return all(given[1:])
            case Cast():
                return given[0]
            case Apply(operation=operation):
                keeps = IR_OPERATIONS[operation.name].whole
                return keeps is Keeps.ALWAYS or (keeps is Keeps.OPERANDS and all(given))
            case _:
                return False

    def _settles(self, instruction: Instruction, given: list[bool]) -> bool:
        match instruction:
            case Load(tensor=tensor):
                return tensor in self._sources and self._sources[tensor].settles
            case Select():
                return any(given[1:])
            case Cast():
                return given[0]
            case Apply(operation=operation, operands=numbers):
                if IR_OPERATIONS[operation.name].limits:
                    return True
                keeps = operation.name in ("add", "sub", "mul", "neg", "abs")
                pairs = zip(given, numbers, strict=True)
                return keeps and any(given) and all(g or self.whole[n] for g, n in pairs)
            case _:
                return False

    # Values in float64 --------------------------------------------------------------------

    def double(self, given: int | float | Value) -> Value:
        """Value as float64, by its number in the body, or a literal."""
        if isinstance(given, float):
            return self.wrap(self.literal(given, DOUBLE))
        value = given if isinstance(given, Value) else self.wrap(given)
        return value.cast(DOUBLE)

    def scaled(self, number: int, factor: float) -> Value:
        """Fraction of a value's magnitude; 0 for infinity and NaN."""
        return self.where_finite(number, factor * abs(self.double(number)))

    def rounded(self, number: int, dtype: DataType, ulps: float = 1.0) -> list[Value]:
        """Errors of rounding a value to a type."""
        smallest = self.where_finite(number, self.rules.find_loss(dtype, ulps))
        return [self.scaled(number, ulps * EPSILON[dtype]), smallest]

    def flushed(self, number: int, dtype: DataType) -> Value | None:
        """Error of reading a denormal as zero; None for a type whose denormals are kept, and if
        there are none."""
        if not self.rules.may_flush(dtype):
            return None
        value = self.instructions[number]
        if isinstance(value, Constant) and not 0 < abs(value.value) < SMALLEST[dtype]:
            return None
        return self.where_small(number, dtype)

    def where_small(self, number: int, dtype: DataType) -> Value:
        """Magnitude of a value that may be a denormal, and 0 for any other."""
        size = abs(self.double(number))
        return (size < self.rules.find_smallest(dtype)).select(size, 0.0)

    def finite(self, value: int | Value) -> Value:
        return abs(self.double(value)) < math.inf

    def where_finite(self, value: int | Value, error: float | Value) -> Value:
        """Error of a finite value; 0 for infinity and NaN, which are exact."""
        return self.finite(value).select(self.double(error), 0.0)

    def within_range(self, value: int | Value, dtype: DataType, error: Value) -> Value:
        """Error of a value, infinite if it may exceed the largest number of its type."""
        inside = abs(self.double(value)) + error <= LARGEST[dtype]
        return inside.select(error, self.finite(value).select(math.inf, error))

    def rounded_away(self, number: int, dtype: DataType, error: Value) -> Value:
        """Error of a value that is still to be rounded to a type, infinite if it may overflow or
        not."""
        largest = LARGEST[dtype]
        distance = abs(abs(self.double(number)) - largest)
        close = distance <= error + largest * EPSILON[dtype]
        return close.select(math.inf, error)

    def apart(self, one: int | Value, other: int | Value) -> Value:
        """Distance of two values; 0 for equal infinities, and for two NaN."""
        one, other = self.double(one), self.double(other)
        both_nan = other.apply("isnan").select(self.double(0.0), math.inf)
        distance = one.apply("isnan").select(both_nan, abs(one - other))
        return one.equals(other).select(0.0, distance)

    # Errors -------------------------------------------------------------------------------

    def _find(self, number: int, instruction: Instruction) -> Value | None:
        match instruction:
            case Load():
                return self._find_load(number, instruction)
            case Apply(operation=operation):
                return self._find_operation(number, operation)
            case Select():
                return self._find_choice(instruction)
            case Cast(operand=operand, dtype=dtype):
                return self._find_cast(number, operand, dtype)
            case _:
                return None

    def _find_load(self, number: int, load: Load) -> Value | None:
        source = self._sources.get(load.tensor)
        if source is None or source.stage is None:
            return None
        error = self.value(Load(source.stage, load.indices, DOUBLE))
        if source.dtype.is_storage_only:
            if not source.ranged:
                # An inexact infinity comes from an overflow, or nearly one.
                unknown = (error > 0.0).select(math.inf, error)
                odd = self.double(number).apply("isnan").select(error, unknown)
                error = self.finite(number).select(error, odd)
            # A value that is read back was rounded, up or down.
            error = join("add", [error, *self.rounded(number, source.dtype)])
            error = self.within_range(number, source.dtype, error)
        return error

    def _find_operation(self, number: int, operation: Operation) -> Value | None:
        given = operands(self.instructions[number])
        computed = value_type(self.instructions[given[0]])
        if not computed.is_float:
            return self._find_whole(number, given)
        terms: list[Value] = []
        ends = [self._ends(g, computed) for g in given]
        if any(len(some) > 1 for some in ends):
            spread = self._spread(number, operation, ends, given)
            if operation.name in _QUOTIENTS and len(ends[1]) > 1:
                spread = self._unless_across_zero(given[1], spread)
            terms.append(self._known(given, spread, 1.0 if operation.gives_bool else math.inf))
        if operation.gives_bool:
            return _add_up(terms)
        if operation.transcendental:
            own = self.scaled(number, _RELATIVE) + self.where_finite(number, _ABSOLUTE)
            terms.append(self._unless_at_limit(number, operation, ends, own))
        elif IR_OPERATIONS[operation.name].error is not Error.NONE:
            rounding = self.rounded(number, computed, self.rules.find_ulps(operation, computed))
            if self.whole[number]:
                # A whole number that the type holds is not rounded.
                short = abs(self.double(number)) <= 1 / EPSILON[computed]
                rounding = [short.select(0.0, join("add", rounding))]
            terms += rounding
        elif operation.name == "mod" and self.rules.find_smallest(computed):
            # It is the only exact operation with denormal results of normal operands.
            terms.append(self.where_small(number, computed))
        total = _add_up(terms)
        if total is None or IR_OPERATIONS[operation.name].error is Error.NONE:
            return total
        if self.settles[number] and not operation.transcendental:
            total = self._unless_settled(number, operation, ends, total)
        return self.within_range(number, computed, total)

    def _unless_at_limit(
        self, number: int, operation: Operation, ends: Sequence[_Ends], error: Value
    ) -> Value:
        """Error of a transcendental function itself: where it is saturated for the whole range of
        its operand, the distance to the limit and the error of flushing to zero."""
        computed = value_type(self.instructions[number])
        for limit in map(float, IR_OPERATIONS[operation.name].limits):
            # Half of the way to the number before it, or less.
            near = abs(limit) * EPSILON[computed] / 4 or SMALLEST[computed]
            towards = self.double(limit)
            earlier = [(_EARLIER * end).apply(operation.name) for end in ends[0]]
            reached = [self.apart(each, towards) <= near for each in earlier]
            left = self.apart(number, towards)
            if limit == 0:
                left = left + near
            error = join("and", reached).select(left, error)
        return error

    def _unless_settled(
        self, number: int, operation: Operation, ends: Sequence[_Ends], error: Value
    ) -> Value:
        """Error of a sum or a product, without rounding if its operands are whole numbers. An
        operand is whole where no other number of its type is as close."""
        epsilon = EPSILON[value_type(self.instructions[number])]
        settled: list[Value] = []
        nearest: list[Value] = []
        for some in ends:
            whole = some[0].apply("round")
            near = epsilon / 4 * abs(whole)
            settled += [self.apart(end, whole) <= near for end in some]
            nearest.append(whole)
        exact = nearest[0].apply(operation.name, *nearest[1:])
        settled.append(abs(exact) <= 1 / epsilon)
        return join("and", settled).select(self.apart(exact, number), error)

    def _spread(
        self, number: int, operation: Operation, ends: Sequence[_Ends], given: tuple[int, ...]
    ) -> Value:
        """Largest change of the result when the operands change by their errors."""
        middles = [self.double(g) for g in given]
        moved: list[Value] = []
        for corner in itertools.product(*ends):
            value = corner[0].apply(operation.name, *corner[1:])
            if operation.gives_bool:
                moved.append(self._flips(value, number))
                continue
            apart = self.apart(value, number)
            if operation.name == "mod":
                # Where the quotient passes a whole number, any remainder is near.
                jumps = _find_quotient(corner).differs(_find_quotient(middles))
                apart = apart + jumps.select(abs(corner[1]), 0.0)
            moved.append(apart)
        return _unless_nan(join("max", moved))

    def _unless_across_zero(self, divisor: int, error: Value) -> Value:
        """Error of a quotient, infinite if the divisor may have either sign, since its ends then
        bound nothing."""
        own = self.errors[divisor]
        if own is None or self.signless[divisor]:
            return error
        across = (abs(self.double(divisor)) <= own) & (own > 0.0)
        return across.select(math.inf, error)

    def _known(self, given: tuple[int, ...], error: Value, most: float) -> Value:
        """Error, or `most` if an operand has no bound: it may be NaN as well."""
        for own in map(self.errors.__getitem__, given):
            if own is not None:
                error = (own < math.inf).select(error, most)
        return error

    def _flips(self, value: Value, center: int) -> Value:
        """1 if a comparison differs between a corner and the centre, else 0."""
        one = self.double(1.0)
        return abs(value.select(one, 0.0) - self.wrap(center).select(one, 0.0))

    def _ends(self, number: int, dtype: DataType) -> _Ends:
        """Least and largest value of an operand, the operand itself, and zero if it may be
        flushed."""
        error = self.errors[number]
        middle = self.double(number)
        if error is not None:
            least = middle - error
            if self.signless[number]:
                least = least.apply("max", 0.0)
            return (middle + error, least)
        lost = self.flushed(number, dtype)
        if lost is None:
            return (middle,)
        return (middle, lost.equals(0.0).select(middle, 0.0))

    def _find_whole(self, number: int, given: tuple[int, ...]) -> Value | None:
        """Error of a whole number or boolean: 0, or no bound if an operand may be wrong."""
        terms = [e for g in given if (e := self.errors[g]) is not None]
        if not terms:
            return None
        most = 1.0 if value_type(self.instructions[number]) is DataType.BOOL else math.inf
        return (join("max", terms) > 0.0).select(self.double(most), 0.0)

    def _find_choice(self, choice: Select) -> Value | None:
        condition, then, otherwise = (self.errors[v] for v in operands(choice))
        terms: list[Value] = []
        chosen = [error for error in (then, otherwise) if error is not None]
        if chosen:
            parts = (0.0 if error is None else error for error in (then, otherwise))
            terms.append(self.wrap(choice.condition).select(*parts))
        if condition is not None:
            distance = self.apart(choice.then, choice.otherwise)
            either = _unless_nan(join("add", [distance, *chosen]))
            terms.append((condition > 0.0).select(either, 0.0))
        return _add_up(terms)

    def _find_cast(self, number: int, operand: int, dtype: DataType) -> Value | None:
        source = value_type(self.instructions[operand])
        error = self.errors[operand]
        if error is None and source.is_float and not dtype.is_integer:
            error = self.flushed(operand, source)
        if dtype.is_float and source.is_float:
            narrows = EPSILON[dtype] > EPSILON[source]
            terms = [] if error is None else [error]
            terms += self.rounded(number, dtype) if narrows else []
            total = _add_up(terms)
            return self.within_range(number, dtype, total) if narrows and total else total
        if error is None:
            # A whole number too long for the float is rounded alike everywhere.
            return None
        if source is DataType.BOOL and dtype.is_float:
            return error
        if source.is_float and dtype.is_integer:
            return self._find_cut(operand, error, dtype)
        most = 1.0 if dtype is DataType.BOOL else math.inf
        return (error > 0.0).select(self.double(most), 0.0)

    def _find_cut(self, number: int, error: Value, dtype: DataType) -> Value:
        """Largest change of a float's truncation to an integer when the float changes by its error.
        NaN and exact values are truncated alike everywhere."""
        limits, middle = np.iinfo(dtype.dtype), self.double(number)
        low, high = float(limits.min), float(limits.max)
        center, *ends = (
            given.apply("trunc").apply("max", low).apply("min", high)
            for given in (middle, middle - error, middle + error)
        )
        moved = join("max", [self.apart(end, center) for end in ends])
        known = (error < math.inf).select(_unless_nan(moved), math.inf)
        return (error > 0.0).select(known, 0.0)


_Ends: TypeAlias = tuple[Value, ...]
"""Values that an operand may have."""


def join(name: str, terms: Sequence[Value]) -> Value:
    return functools.reduce(lambda one, other: one.apply(name, other), terms)


def _add_up(terms: Sequence[Value]) -> Value | None:
    """Sum of errors; None if there are none."""
    return join("add", terms) if terms else None


def _unless_nan(error: Value) -> Value:
    """Error, infinite if it is NaN."""
    return error.apply("isnan").select(math.inf, error)


def _find_quotient(terms: Sequence[Value]) -> Value:
    return (terms[0] / terms[1]).apply("trunc")
