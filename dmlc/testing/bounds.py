"""Error bounds of results, per element: an error analysis that runs beside the computation.

A function's *error function* computes, in float64 and from the same inputs, a bound on the error of
each of its results: the rounding error of every operation, propagated through those after it. So
after cancellation every digit may be wrong, a mask whose comparison is close may go either way, and
selections and copies are exact.

A compiler may hoist factors out of sums, or not, and compute softmax-weighted sums online: the
bound is the largest of these errors. A product of large numbers may overflow before a small factor
is applied to it, and one of small numbers may underflow.

Devices differ in what they promise: the errors of quotients and square roots, and whether denormals
are kept. If not, an operation may read a denormal as zero, and a result may be flushed to zero.
Selections and copies keep denormals.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Delay,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Reduction,
    Result,
    Select,
    Stage,
    operands,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.driver import apply_rules
from dmlc.ir.index import find_index_only
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.ir.specialize import specialize
from dmlc.oracle import find_expected
from dmlc.parameters import expect, expect_mapping
from dmlc.reference import evaluate
from dmlc.runtime.floats import CORRECT, LEAST, FloatPromises
from dmlc.scalars import Array, DataType, Error, Keeps, Operation, Value, held_type
from dmlc.sizes import Shapes
from dmlc.testing.online import write_online
from dmlc.testing.plain import EMPTY, PlainBuilder
from dmlc.transform.factor import take_out_factors
from dmlc.transform.online import may_be_online
from dmlc.transform.simplify import simplify

_FEW_UNITS = 4.0
"""Error in units in the last place (ULP) of an operation without a promise."""
_QUOTIENTS = ("div", "div_nearest")
_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""Relative and absolute error of a transcendental function."""
_EARLIER = 0.9
"""Part of the operand at which a function must be saturated already, since devices saturate a
little later than exact rounding does."""
_MOST_IN_ROW = 256.0
"""Largest number of sequential additions before partial sums are combined as a tree."""

_DOUBLE = DataType.FLOAT64
_EPSILON = {
    DataType.FLOAT64: 2.0**-52,
    DataType.FLOAT32: 2.0**-23,
    DataType.FLOAT16: 2.0**-10,
    DataType.BFLOAT16: 2.0**-7,
}
_SMALLEST = {
    DataType.FLOAT64: 2.0**-1022,
    DataType.FLOAT32: 2.0**-126,
    DataType.FLOAT16: 2.0**-24,
    DataType.BFLOAT16: 2.0**-126,
}
"""Error of a result that is flushed to zero, or of a FLOAT16 rounded to a denormal."""
_STEP = {
    DataType.FLOAT64: 2.0**-1074,
    DataType.FLOAT32: 2.0**-149,
    DataType.FLOAT16: 2.0**-24,
    DataType.BFLOAT16: 2.0**-133,
}
"""Smallest denormal: the error of rounding to a denormal."""
_LARGEST = {
    DataType.FLOAT64: float(np.finfo(np.float64).max),
    DataType.FLOAT32: float(np.finfo(np.float32).max),
    DataType.FLOAT16: 65504.0,
    DataType.BFLOAT16: (2.0 - 2.0**-7) * 2.0**127,
}
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
        return 0.0 if self.floats.keeps_denormals(dtype) else _SMALLEST[dtype]

    def may_flush(self, dtype: DataType) -> bool:
        """Whether an exact operand may be a denormal read as zero. An inexact operand has an error
        at least as large anyway."""
        return self.flushes and dtype.is_float and not self.floats.keeps_denormals(dtype)

    def find_loss(self, dtype: DataType, ulps: float = 1.0) -> float:
        """Error of a result near zero, or of `ulps` units in the last place elsewhere."""
        kept = self.floats.keeps_denormals(dtype)
        return max(ulps, 1.0) * _STEP[dtype] if kept else _SMALLEST[dtype]

    def find_ulps(self, operation: Operation, dtype: DataType) -> float:
        """Error of one operation, in units in the last place."""
        if IR_OPERATIONS[operation.name].error not in (Error.ROUNDED, Error.PROMISED):
            return _FEW_UNITS
        # The reference itself has an error of up to half a unit.
        return self.floats.find_ulps(operation.name, dtype) + CORRECT


def bound_errors(
    function: Function, inputs: Mapping[str, Array], floats: FloatPromises = LEAST
) -> dict[str, Array]:
    """Largest permitted difference from the reference for each element of each result, by the
    result's name, in float64: 0 for an exact element, infinity for one without a bound.

    `inputs` are those of `reference.evaluate`, whose errors are raised. `floats` are the promises
    of the device that computed the results; by default, those that every device keeps.
    """
    expect("function", function, Function, "an ir.Function")
    expect("floats", floats, FloatPromises, "what a device promises of floats")
    if function.run_symbol() is None and function.symbols():
        # The error of a sum depends on its length.
        shapes = Shapes()
        shaped = ((p, np.shape(inputs[p.name])) for p in function.parameters if p.name in inputs)
        if not any(shapes.match(p.name, p.extents, shape) for p, shape in shaped):
            function = specialize(function, shapes.sizes)
    given = expect_mapping("inputs", inputs, "a mapping of inputs' names to arrays")
    rules = Rules(floats, _hold_denormals(given.values(), floats))
    bounds = _evaluate_errors(function, inputs, rules)
    for other in _list_others(function):
        others = _evaluate_errors(other, inputs, rules)
        bounds = {name: np.maximum(bound, others[name]) for name, bound in bounds.items()}
        finite = all(np.all(np.isfinite(value)) for value in map(np.asarray, given.values()))
        if not finite or may_be_online(function):
            # Such as what a mask leaves out, or a row of which it leaves out all: it is read, or
            # it is not.
            written, found = evaluate(function, inputs), evaluate(other, inputs)
            lost = {name: np.isnan(written[name]) & ~np.isnan(found[name]) for name in bounds}
            bounds = {name: np.where(lost[name], np.inf, bound) for name, bound in bounds.items()}
    return bounds


def _hold_denormals(given: Iterable[object], floats: FloatPromises) -> bool:
    """Whether some array holds a denormal that a device may flush. The reference refuses other
    values than arrays."""
    arrays: list[Array] = [each for each in given if isinstance(each, np.ndarray)]
    for array in arrays:
        dtype = held_type(array.dtype)
        if dtype is None or not dtype.is_float or floats.keeps_denormals(dtype):
            continue
        sizes = np.abs(array.astype(np.float64))
        if ((sizes > 0) & (sizes < _SMALLEST[dtype])).any():
            return True
    return False


@functools.lru_cache(maxsize=32)
def _list_others(function: Function) -> tuple[Function, ...]:
    """Other forms in which a function may be compiled: with factors hoisted out of its sums, and
    with sums computed online. Empty for a function with loops over time steps, and if nothing
    changes. Cached for other devices and values."""
    if function.loops:
        return ()
    if not any(s.reduction is not None and s.reduction.combiner == "sum" for s in function.stages):
        return ()
    simplified = simplify(function)
    factored = take_out_factors(simplified)
    online = write_online(factored)
    found = (None if factored is simplified else factored, online)
    return tuple(other for other in found if other is not None)


def _evaluate_errors(
    function: Function, inputs: Mapping[str, Array], rules: Rules
) -> dict[str, Array]:
    """Results of a function's error function, by the name of the function's result."""
    errors = make_error_function(function, rules)
    found = find_expected(errors, inputs)
    return {
        result.name: found[error.name]
        for result, error in zip(function.results, errors.results, strict=True)
    }


@functools.lru_cache(maxsize=32)
def make_error_function(function: Function, rules: Rules = Rules(LEAST)) -> Function:
    """Error function: from the function's parameters to the error of each result, in order. A
    multiply-add, which a device may round once or twice, is rounded twice here. Cached for other
    values."""
    if any("fma" in map(_name, stage.body.instructions) for stage in function.stages):
        function = apply_rules(function, _part_multiply_add)
    taken = set(function.tensors())
    sources: dict[str, _Source] = {}
    stages: list[Stage] = []
    loops: list[Loop] = []
    opened = {loop.stages[0]: loop for loop in function.loops}
    closed = {loop.stages[-1] for loop in function.loops}
    first = 0
    for stage in function.stages:
        if stage.name in opened:
            first = len(stages)
            for delay in opened[stage.name].delays:
                # Its error is that of its stage, which is not known yet.
                before = _free(f"{delay.name}_error", taken)
                sources[delay.name] = _Source(before, delay.dtype)
            loops.append(opened[stage.name])
        stages.append(stage)
        maker = _Maker(rules, stage.body, sources)
        made, source = _fold(stage, maker, _free(f"{stage.name}_error", taken))
        stages += made
        settles = stage.reduction is None and maker.settles[stage.body.result]
        sources[stage.name] = dataclasses.replace(
            source, signless=_is_signless(stage, maker), settles=settles
        )
        if stage.name in closed:
            delays = _delay_errors(loops[-1], sources, stages, taken)
            names = tuple(each.name for each in stages[first:])
            loops[-1] = dataclasses.replace(loops[-1], stages=names, delays=delays)
    results: list[Result] = []
    for result in function.results:
        stage = function.stage(result.name)
        if stage is not None:
            last = _close(stage, sources, rules, _free(f"{stage.name}_bound", taken))
            stages.append(last)
            results.append(Result(last.name))
    return Function(
        function.name,
        function.parameters,
        tuple(stages),
        tuple(results),
        tables=function.tables,
        loops=tuple(loops),
    )


def _name(instruction: Instruction) -> str:
    return instruction.operation.name if isinstance(instruction, Apply) else ""


def _part_multiply_add(builder: BodyBuilder, instruction: Instruction) -> int | None:
    """Replaces a multiply-add by a product and a sum."""
    if _name(instruction) != "fma":
        return None
    x, y, z = operands(instruction)
    return builder.apply("add", builder.apply("mul", x, y), z)


def _delay_errors(
    loop: Loop, sources: dict[str, _Source], stages: list[Stage], taken: set[str]
) -> tuple[Delay, ...]:
    """Delays of a loop's stages and of their errors. Adds error stages for exact stages too, since
    delays need them."""
    made: list[Delay] = []
    for delay in loop.delays:
        of = sources[delay.of].stage
        if of is None:
            of = _free(f"{delay.of}_error", taken)
            body = Body.make([Constant(_DOUBLE, 0.0)], 0)
            stages.append(Stage(of, _DOUBLE, delay.extents, body))
        name = sources[delay.name].stage or ""
        made += [delay, Delay(name, _DOUBLE, delay.extents, of)]
    return tuple(made)


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """Error of a stage's elements: a stage, or None for 0."""

    stage: str | None
    dtype: DataType
    signless: bool = False
    """Whether all elements are at least 0, however they are rounded."""
    ranged: bool = False
    """Whether the error is infinite already where the value may overflow its type."""
    settles: bool = False
    """Whether elements may be whole numbers, as sums of saturated functions."""


class _Maker(PlainBuilder):
    """Emitter of the errors of a body's values."""

    def __init__(
        self,
        rules: Rules,
        body: Body = EMPTY,
        sources: Mapping[str, _Source] = MappingProxyType({}),
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
            return self.wrap(self.literal(given, _DOUBLE))
        value = given if isinstance(given, Value) else self.wrap(given)
        return value.cast(_DOUBLE)

    def scaled(self, number: int, factor: float) -> Value:
        """Fraction of a value's magnitude; 0 for infinity and NaN."""
        return self.where_finite(number, factor * abs(self.double(number)))

    def rounded(self, number: int, dtype: DataType, ulps: float = 1.0) -> list[Value]:
        """Errors of rounding a value to a type."""
        smallest = self.where_finite(number, self.rules.find_loss(dtype, ulps))
        return [self.scaled(number, ulps * _EPSILON[dtype]), smallest]

    def flushed(self, number: int, dtype: DataType) -> Value | None:
        """Error of reading a denormal as zero; None for a type whose denormals are kept, and if
        there are none."""
        if not self.rules.may_flush(dtype):
            return None
        value = self.instructions[number]
        if isinstance(value, Constant) and not 0 < abs(value.value) < _SMALLEST[dtype]:
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
        inside = abs(self.double(value)) + error <= _LARGEST[dtype]
        return inside.select(error, self.finite(value).select(math.inf, error))

    def rounded_away(self, number: int, dtype: DataType, error: Value) -> Value:
        """Error of a value that is still to be rounded to a type, infinite if it may overflow or
        not."""
        largest = _LARGEST[dtype]
        distance = abs(abs(self.double(number)) - largest)
        close = distance <= error + largest * _EPSILON[dtype]
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
        error = self.value(Load(source.stage, load.indices, _DOUBLE))
        if source.dtype.is_storage_only:
            if not source.ranged:
                # An inexact infinity comes from an overflow, or nearly one.
                unknown = (error > 0.0).select(math.inf, error)
                odd = self.double(number).apply("isnan").select(error, unknown)
                error = self.finite(number).select(error, odd)
            # A value that is read back was rounded, up or down.
            error = _join("add", [error, *self.rounded(number, source.dtype)])
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
                short = abs(self.double(number)) <= 1 / _EPSILON[computed]
                rounding = [short.select(0.0, _join("add", rounding))]
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
            near = abs(limit) * _EPSILON[computed] / 4 or _SMALLEST[computed]
            towards = self.double(limit)
            earlier = [(_EARLIER * end).apply(operation.name) for end in ends[0]]
            reached = [self.apart(each, towards) <= near for each in earlier]
            left = self.apart(number, towards)
            if limit == 0:
                left = left + near
            error = _join("and", reached).select(left, error)
        return error

    def _unless_settled(
        self, number: int, operation: Operation, ends: Sequence[_Ends], error: Value
    ) -> Value:
        """Error of a sum or a product, without rounding if its operands are whole numbers. An
        operand is whole where no other number of its type is as close."""
        epsilon = _EPSILON[value_type(self.instructions[number])]
        settled: list[Value] = []
        nearest: list[Value] = []
        for some in ends:
            whole = some[0].apply("round")
            near = epsilon / 4 * abs(whole)
            settled += [self.apart(end, whole) <= near for end in some]
            nearest.append(whole)
        exact = nearest[0].apply(operation.name, *nearest[1:])
        settled.append(abs(exact) <= 1 / epsilon)
        return _join("and", settled).select(self.apart(exact, number), error)

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
        return _unless_nan(_join("max", moved))

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
        return (_join("max", terms) > 0.0).select(self.double(most), 0.0)

    def _find_choice(self, choice: Select) -> Value | None:
        condition, then, otherwise = (self.errors[v] for v in operands(choice))
        terms: list[Value] = []
        chosen = [error for error in (then, otherwise) if error is not None]
        if chosen:
            parts = (0.0 if error is None else error for error in (then, otherwise))
            terms.append(self.wrap(choice.condition).select(*parts))
        if condition is not None:
            distance = self.apart(choice.then, choice.otherwise)
            either = _unless_nan(_join("add", [distance, *chosen]))
            terms.append((condition > 0.0).select(either, 0.0))
        return _add_up(terms)

    def _find_cast(self, number: int, operand: int, dtype: DataType) -> Value | None:
        source = value_type(self.instructions[operand])
        error = self.errors[operand]
        if error is None and source.is_float and not dtype.is_integer:
            error = self.flushed(operand, source)
        if dtype.is_float and source.is_float:
            narrows = _EPSILON[dtype] > _EPSILON[source]
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
        moved = _join("max", [self.apart(end, center) for end in ends])
        known = (error < math.inf).select(_unless_nan(moved), math.inf)
        return (error > 0.0).select(known, 0.0)


_Ends: TypeAlias = tuple[Value, ...]
"""Values that an operand may have."""


def _join(name: str, terms: Sequence[Value]) -> Value:
    return functools.reduce(lambda one, other: one.apply(name, other), terms)


def _add_up(terms: Sequence[Value]) -> Value | None:
    """Sum of errors; None if there are none."""
    return _join("add", terms) if terms else None


def _unless_nan(error: Value) -> Value:
    """Error, infinite if it is NaN."""
    return error.apply("isnan").select(math.inf, error)


def _find_quotient(terms: Sequence[Value]) -> Value:
    return (terms[0] / terms[1]).apply("trunc")


def _is_signless(stage: Stage, maker: _Maker) -> bool:
    """Whether no element of a stage is below 0."""
    kept = stage.reduction is None or stage.reduction.record.signless
    return kept and maker.signless[stage.body.result]


def _fold(stage: Stage, maker: _Maker, name: str) -> tuple[list[Stage], _Source]:
    """Stage of a stage's errors, and how to read it."""
    error = maker.errors[stage.body.result]
    reduction = stage.reduction
    if reduction is None:
        if error is None:
            return [], _Source(None, stage.dtype)
        if stage.dtype.is_storage_only:
            error = maker.rounded_away(stage.body.result, stage.dtype, error)
        return [_over(stage, name, maker, error, None)], _Source(name, stage.dtype, ranged=True)
    value, dtype = stage.body.result, stage.body.dtype
    lost = maker.flushed(value, dtype)
    if reduction.record.beats and error is None:
        if lost is None:
            return [], _Source(None, stage.dtype)
        return _choose_flushed(stage, maker, name, lost), _Source(name, stage.dtype)
    if error is None:
        error = lost
    if reduction.is_positional or not dtype.is_float:
        if error is None:
            return [], _Source(None, stage.dtype)
        error = (error > 0.0).select(maker.double(math.inf), 0.0)
        return [_over(stage, name, maker, error, "max")], _Source(name, stage.dtype)
    if reduction.record.beats and error is not None:
        return [_over(stage, name, maker, error, "max")], _Source(name, stage.dtype)
    count = _count(reduction)
    terms = [] if error is None else [error]
    if reduction.combiner == "sum":
        part = _EPSILON[dtype] * min(count, _MOST_IN_ROW)
        terms += [maker.scaled(value, part)]
        # A partial sum may be as large as the sum of all terms of one sign.
        size = (max(count, 1.0) if math.isfinite(count) else 1.0) * maker.double(value)
        whole = maker.within_range(size, dtype, _join("add", terms))
        return [_over(stage, name, maker, whole, "sum")], _Source(name, stage.dtype)
    return _multiply(stage, maker, name, error, count)


def _choose_flushed(stage: Stage, maker: _Maker, name: str, lost: Value) -> list[Stage]:
    """Errors of a reduction that selects among exact values, if denormals may be flushed: denormals
    then compare as equal. That shows only if no larger value is selected."""
    assert stage.reduction is not None
    combiner = stage.reduction.record.operation.name
    made = [
        _over(stage, f"{name}_lost", maker, lost, "max"),
        _over(stage, f"{name}_chosen", maker, maker.double(stage.body.result), combiner),
    ]
    last = _Maker(maker.rules)
    most, chosen = (last.wrap(last.read(each)) for each in made)
    unknown = math.inf if stage.is_positional else most
    some = (most > 0.0).select(unknown, most.like(0.0))
    small = abs(chosen) < maker.rules.find_smallest(stage.body.dtype)
    return [*made, _over(stage, name, last, small.select(some, 0.0), None)]


def _multiply(
    stage: Stage, maker: _Maker, name: str, error: Value | None, count: float
) -> tuple[list[Stage], _Source]:
    """Errors of a product: the growth of the product of factors at their largest."""
    value, dtype = stage.body.result, stage.body.dtype
    # NaN is exact, and is left out.
    size = maker.finite(value).select(abs(maker.double(value)), 1.0)
    large = size if error is None else size + error
    # A partial product may overflow, or underflow, although the whole does not.
    most = _LARGEST[dtype] ** (1 / count) if 1 <= count < math.inf else _LARGEST[dtype]
    least = _SMALLEST[dtype] ** (1 / max(count, 1.0))
    whole = (large <= most).select(large, math.inf)
    whole = size.equals(0.0).select(whole, (size < least).select(math.inf, whole))
    ends = {"least": size, "most": whole, "each": large, "top": large}
    made = [_over(stage, f"{name}_{end}", maker, factor, "max" if end == "top" else "product")
            for end, factor in ends.items()]  # fmt: skip
    last = _Maker(maker.rules)
    exact, larger, plain, top = (last.wrap(last.read(factor)) for factor in made)
    product = last.wrap(last.read(stage))
    part = (count if math.isfinite(count) else _MOST_IN_ROW) * _EPSILON[dtype]
    # Of factors up to about 1 all come to less than 3, however many they are. So no part is too
    # large, and where one vanishes, so does all but that.
    below = top <= 1.0 + 1.0 / max(count, 1.0)
    larger = below.select(plain + 3 * _SMALLEST[dtype], larger)
    total = last.where_finite(product, larger - exact + exact * part)
    total = (larger < math.inf).select(total, math.inf)
    return [*made, _over(stage, name, last, total, None)], _Source(name, stage.dtype)


def _count(reduction: Reduction) -> float:
    sizes = [extent for _, extent in reduction.axes if isinstance(extent, int)]
    return float(math.prod(sizes)) if len(sizes) == len(reduction.axes) else math.inf


def _over(stage: Stage, name: str, maker: _Maker, error: Value, combiner: str | None) -> Stage:
    """Stage of errors over a stage's domain and, with a combiner, its reduction axes."""
    reduction, guard = None, None
    if combiner is not None and stage.reduction is not None:
        reduction, guard = Reduction(combiner, stage.reduction.axes), stage.body.guard
    return Stage(name, _DOUBLE, stage.extents, maker.finish(error, guard), reduction)


def _close(stage: Stage, sources: Mapping[str, _Source], rules: Rules, name: str) -> Stage:
    """Bound of a result: its error, and the rounding to its storage type."""
    indices = tuple(range(len(stage.extents)))
    load = Load(stage.name, indices, stage.dtype.compute)
    value = len(indices)
    body = Body((*(Index(axis) for axis in indices), load), value)
    maker = _Maker(rules, body, sources)
    error = maker.errors[value]
    whole = maker.double(0.0)
    if error is not None:
        # No error is below 0, which is the maximum of an empty set.
        whole = error.apply("max", 0.0)
        # A load of 16 bits has the rounding in it.
        if stage.dtype.is_float and not stage.dtype.is_storage_only:
            rounding = _join("add", maker.rounded(value, stage.dtype))
            whole = whole + (whole > 0.0).select(rounding, 0.0)
    return _over(stage, name, maker, whole, None)
