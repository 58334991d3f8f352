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
from dmlc.scalars import Array, DataType, Error, Keeps, Operation, held_type
from dmlc.sizes import Shapes
from dmlc.testing.online import write_online
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
        maker = _Maker(stage.body, sources, rules)
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


class _Maker:
    """Emitter of the errors of a body's values."""

    def __init__(self, body: Body, sources: Mapping[str, _Source], rules: Rules) -> None:
        self.rules = rules
        self.instructions: list[Instruction] = list(body.instructions)
        self._sources = sources
        self._numbers: dict[Instruction, int] = {}
        self.errors: list[int | None] = []
        self.signless: list[bool] = []
        """Whether each value of the body is at least 0, or NaN, however its operands are
        rounded."""
        self.whole: list[bool] = []
        """Whether each value of the body is a whole number, infinite or NaN, however its operands
        are rounded."""
        self.settles: list[bool] = []
        """Whether each value of the body is whole where transcendental functions in it are
        saturated: it combines their limits, which are whole, with whole numbers."""
        index_only = find_index_only(body)
        for number, instruction in enumerate(body.instructions):
            self.signless.append(self._is_signless(instruction))
            self.whole.append(self._is_whole(instruction))
            self.settles.append(self._settles(instruction))
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

    def _is_signless(self, instruction: Instruction) -> bool:
        match instruction:
            case Constant(value=value):
                return value >= 0
            case Load(tensor=tensor):
                return tensor in self._sources and self._sources[tensor].signless
            case Select(then=then, otherwise=otherwise):
                return self.signless[then] and self.signless[otherwise]
            case Cast(operand=operand):
                return self.signless[operand]
            case Apply(operation=operation, operands=given):
                if operation.name == "mul":
                    one, other = (self.instructions[g] for g in given)
                    if given[0] == given[1] or one == other:
                        return True
                if operation.name == "max":
                    return any(self.signless[g] for g in given)
                keeps = IR_OPERATIONS[operation.name].never_negative
                if keeps is Keeps.OPERANDS:
                    return all(self.signless[g] for g in given)
                return keeps is not Keeps.NEVER
            case _:
                return False

    def _is_whole(self, instruction: Instruction) -> bool:
        if not value_type(instruction).is_float:
            return True
        match instruction:
            case Constant(value=value):
                return float(value).is_integer()
            case Select(then=then, otherwise=otherwise):
                return self.whole[then] and self.whole[otherwise]
            case Cast(operand=operand):
                return self.whole[operand]
            case Apply(operation=operation, operands=given):
                keeps = IR_OPERATIONS[operation.name].whole
                every = keeps is Keeps.OPERANDS and all(self.whole[g] for g in given)
                return every or keeps is Keeps.ALWAYS
            case _:
                return False

    def _settles(self, instruction: Instruction) -> bool:
        match instruction:
            case Load(tensor=tensor):
                return tensor in self._sources and self._sources[tensor].settles
            case Select(then=then, otherwise=otherwise):
                return self.settles[then] or self.settles[otherwise]
            case Cast(operand=operand):
                return self.settles[operand]
            case Apply(operation=operation, operands=given):
                if IR_OPERATIONS[operation.name].limits:
                    return True
                keeps = operation.name in ("add", "sub", "mul", "neg", "abs")
                some = any(self.settles[g] for g in given)
                return keeps and some and all(self.settles[g] or self.whole[g] for g in given)
            case _:
                return False

    # Instructions -------------------------------------------------------------------------

    def add(self, instruction: Instruction) -> int:
        if instruction not in self._numbers:
            self._numbers[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return self._numbers[instruction]

    def constant(self, value: float) -> int:
        return self.add(Constant(_DOUBLE, value))

    def apply(self, name: str, *numbers: int) -> int:
        """Operation on float64 values."""
        operation = IR_OPERATIONS[name]
        return self.add(Apply(operation, numbers, operation.result_type(_DOUBLE)))

    def choose(self, condition: int, then: int, otherwise: int) -> int:
        return self.add(Select(condition, then, otherwise, _DOUBLE))

    def double(self, number: int) -> int:
        """Value as float64."""
        if value_type(self.instructions[number]) is _DOUBLE:
            return number
        return self.add(Cast(number, _DOUBLE))

    def total(self, terms: Sequence[int]) -> int | None:
        """Sum of errors; None if there are none."""
        return None if not terms else self.fold("add", terms)

    def fold(self, name: str, terms: Sequence[int]) -> int:
        whole = terms[0]
        for term in terms[1:]:
            whole = self.apply(name, whole, term)
        return whole

    def scaled(self, number: int, factor: float) -> int:
        """Fraction of a value's magnitude; 0 for infinity and NaN."""
        part = self.apply("mul", self.constant(factor), self.apply("abs", self.double(number)))
        return self.where_finite(number, part)

    def rounded(self, number: int, dtype: DataType, ulps: float = 1.0) -> list[int]:
        """Errors of rounding a value to a type."""
        smallest = self.where_finite(number, self.constant(self.rules.find_loss(dtype, ulps)))
        return [self.scaled(number, ulps * _EPSILON[dtype]), smallest]

    def flushed(self, number: int, dtype: DataType) -> int | None:
        """Error of reading a denormal as zero; None for a type whose denormals are kept, and if
        there are none."""
        if not self.rules.may_flush(dtype):
            return None
        value = self.instructions[number]
        if isinstance(value, Constant) and not 0 < abs(value.value) < _SMALLEST[dtype]:
            return None
        return self.where_small(number, dtype)

    def where_small(self, number: int, dtype: DataType) -> int:
        """Magnitude of a value that may be a denormal, and 0 for any other."""
        size, smallest = self.apply("abs", self.double(number)), self.rules.find_smallest(dtype)
        small = self.apply("lt", size, self.constant(smallest))
        return self.choose(small, size, self.constant(0.0))

    def finite(self, number: int) -> int:
        return self.apply("lt", self.apply("abs", self.double(number)), self.constant(math.inf))

    def where_finite(self, number: int, error: int) -> int:
        """Error of a finite value; 0 for infinity and NaN, which are exact."""
        return self.choose(self.finite(number), error, self.constant(0.0))

    def within_range(self, number: int, dtype: DataType, error: int) -> int:
        """Error of a value, infinite if it may exceed the largest number of its type."""
        size = self.apply("add", self.apply("abs", self.double(number)), error)
        inside = self.apply("le", size, self.constant(_LARGEST[dtype]))
        unknown = self.choose(self.finite(number), self.constant(math.inf), error)
        return self.choose(inside, error, unknown)

    def rounded_away(self, number: int, dtype: DataType, error: int) -> int:
        """Error of a value that is still to be rounded to a type, infinite if it may overflow or
        not."""
        largest = _LARGEST[dtype]
        size = self.apply("abs", self.double(number))
        distance = self.apply("abs", self.apply("sub", size, self.constant(largest)))
        reach = self.apply("add", error, self.constant(largest * _EPSILON[dtype]))
        close = self.apply("le", distance, reach)
        return self.choose(close, self.constant(math.inf), error)

    def apart(self, one: int, other: int) -> int:
        """Distance of two values; 0 for equal infinities, and for two NaN."""
        one, other = self.double(one), self.double(other)
        distance = self.apply("abs", self.apply("sub", one, other))
        zero = self.constant(0.0)
        both = self.choose(self.apply("isnan", one), self.number_nan(other, zero), distance)
        return self.choose(self.apply("eq", one, other), zero, both)

    def number_nan(self, number: int, error: int) -> int:
        """Error where a value is NaN, and infinity elsewhere."""
        return self.choose(self.apply("isnan", number), error, self.constant(math.inf))

    def unless_nan(self, error: int) -> int:
        """Error, infinite if it is NaN."""
        return self.choose(self.apply("isnan", error), self.constant(math.inf), error)

    # Errors -------------------------------------------------------------------------------

    def _find(self, number: int, instruction: Instruction) -> int | None:
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

    def _find_load(self, number: int, load: Load) -> int | None:
        source = self._sources.get(load.tensor)
        if source is None or source.stage is None:
            return None
        error = self.add(Load(source.stage, load.indices, _DOUBLE))
        if source.dtype.is_storage_only:
            if not source.ranged:
                # An inexact infinity comes from an overflow, or nearly one.
                inexact = self.apply("gt", error, self.constant(0.0))
                unknown = self.choose(inexact, self.constant(math.inf), error)
                is_nan = self.apply("isnan", self.double(number))
                odd = self.choose(is_nan, error, unknown)
                error = self.choose(self.finite(number), error, odd)
            # A value that is read back was rounded, up or down.
            error = self.fold("add", [error, *self.rounded(number, source.dtype)])
            error = self.within_range(number, source.dtype, error)
        return error

    def _find_operation(self, number: int, operation: Operation) -> int | None:
        given = operands(self.instructions[number])
        computed = value_type(self.instructions[given[0]])
        if not computed.is_float:
            return self._find_whole(number, operation, given)
        terms: list[int] = []
        ends = [self._ends(g, computed) for g in given]
        if any(len(some) > 1 for some in ends):
            spread = self._spread(number, operation, ends, given)
            if operation.name in _QUOTIENTS and len(ends[1]) > 1:
                spread = self._unless_across_zero(given[1], spread)
            terms.append(self._known(given, spread, 1.0 if operation.gives_bool else math.inf))
        if operation.gives_bool:
            return self.total(terms)
        if operation.transcendental:
            absolute = self.where_finite(number, self.constant(_ABSOLUTE))
            own = self.apply("add", self.scaled(number, _RELATIVE), absolute)
            terms.append(self._unless_at_limit(number, operation, ends, own))
        elif IR_OPERATIONS[operation.name].error is not Error.NONE:
            rounding = self.rounded(number, computed, self.rules.find_ulps(operation, computed))
            if self.whole[number]:
                # A whole number that the type holds is not rounded.
                size, held = self.apply("abs", self.double(number)), 1 / _EPSILON[computed]
                short = self.apply("le", size, self.constant(held))
                rounding = [self.choose(short, self.constant(0.0), self.fold("add", rounding))]
            terms += rounding
        elif operation.name == "mod" and self.rules.find_smallest(computed):
            # It is the only exact operation with denormal results of normal operands.
            terms.append(self.where_small(number, computed))
        total = self.total(terms)
        if total is None or IR_OPERATIONS[operation.name].error is Error.NONE:
            return total
        if self.settles[number] and not operation.transcendental:
            total = self._unless_settled(number, operation, ends, total)
        return self.within_range(number, computed, total)

    def _unless_at_limit(
        self, number: int, operation: Operation, ends: Sequence[tuple[int, ...]], error: int
    ) -> int:
        """Error of a transcendental function itself: where it is saturated for the whole range of
        its operand, the distance to the limit and the error of flushing to zero."""
        computed = value_type(self.instructions[number])
        for limit in map(float, IR_OPERATIONS[operation.name].limits):
            # Half of the way to the number before it, or less.
            near = self.constant(abs(limit) * _EPSILON[computed] / 4 or _SMALLEST[computed])
            towards = self.constant(limit)
            reached: list[int] = []
            for end in ends[0]:
                earlier = self.apply(
                    operation.name, self.apply("mul", self.constant(_EARLIER), end)
                )
                reached.append(self.apply("le", self.apart(earlier, towards), near))
            left = self.apart(number, towards)
            if limit == 0:
                left = self.apply("add", left, near)
            error = self.choose(self.fold("and", reached), left, error)
        return error

    def _unless_settled(
        self, number: int, operation: Operation, ends: Sequence[tuple[int, ...]], error: int
    ) -> int:
        """Error of a sum or a product, without rounding if its operands are whole numbers. An
        operand is whole where no other number of its type is as close."""
        computed = value_type(self.instructions[number])
        part = self.constant(_EPSILON[computed] / 4)
        settled: list[int] = []
        nearest: list[int] = []
        for some in ends:
            whole = self.apply("round", some[0])
            near = self.apply("mul", part, self.apply("abs", whole))
            settled += [self.apply("le", self.apart(end, whole), near) for end in some]
            nearest.append(whole)
        exact = self.apply(operation.name, *nearest)
        short = self.apply("le", self.apply("abs", exact), self.constant(1 / _EPSILON[computed]))
        return self.choose(self.fold("and", [*settled, short]), self.apart(exact, number), error)

    def _spread(
        self,
        number: int,
        operation: Operation,
        ends: Sequence[tuple[int, ...]],
        given: tuple[int, ...],
    ) -> int:
        """Largest change of the result when the operands change by their errors."""
        center = number
        middles = [self.double(g) for g in given]
        moved: list[int] = []
        for corner in itertools.product(*ends):
            value = self.apply(operation.name, *corner)
            if operation.gives_bool:
                moved.append(self._flips(value, center))
                continue
            apart = self.apart(value, center)
            if operation.name == "mod":
                # Where the quotient passes a whole number, any remainder is near.
                jumps = self.apply("ne", self._quotient(corner), self._quotient(middles))
                all_of_it = self.apply("abs", corner[1])
                jump = self.choose(jumps, all_of_it, self.constant(0.0))
                apart = self.apply("add", apart, jump)
            moved.append(apart)
        return self.unless_nan(self.fold("max", moved))

    def _unless_across_zero(self, divisor: int, error: int) -> int:
        """Error of a quotient, infinite if the divisor may have either sign, since its ends then
        bound nothing."""
        own = self.errors[divisor]
        if own is None or (divisor < len(self.signless) and self.signless[divisor]):
            return error
        near = self.apply("le", self.apply("abs", self.double(divisor)), own)
        inexact = self.apply("gt", own, self.constant(0.0))
        across = self.apply("and", near, inexact)
        return self.choose(across, self.constant(math.inf), error)

    def _known(self, given: tuple[int, ...], error: int, most: float) -> int:
        """Error, or `most` if an operand has no bound: it may be NaN as well."""
        for operand in given:
            own = self.errors[operand]
            if own is not None:
                known = self.apply("lt", own, self.constant(math.inf))
                error = self.choose(known, error, self.constant(most))
        return error

    def _quotient(self, terms: Sequence[int]) -> int:
        return self.apply("trunc", self.apply("div", *terms))

    def _flips(self, value: int, center: int) -> int:
        """1 if a comparison differs between a corner and the centre, else 0."""
        one, zero = self.constant(1.0), self.constant(0.0)
        at_corner, in_middle = (self.choose(v, one, zero) for v in (value, center))
        return self.apply("abs", self.apply("sub", at_corner, in_middle))

    def _ends(self, number: int, dtype: DataType) -> tuple[int, ...]:
        """Least and largest value of an operand, the operand itself, and zero if it may be
        flushed."""
        error = self.errors[number]
        middle = self.double(number)
        if error is not None:
            least = self.apply("sub", middle, error)
            if number < len(self.signless) and self.signless[number]:
                least = self.apply("max", least, self.constant(0.0))
            return (self.apply("add", middle, error), least)
        lost = self.flushed(number, dtype)
        if lost is None:
            return (middle,)
        kept = self.apply("eq", lost, self.constant(0.0))
        return (middle, self.choose(kept, middle, self.constant(0.0)))

    def _find_whole(self, number: int, operation: Operation, given: tuple[int, ...]) -> int | None:
        """Error of a whole number or boolean: 0, or no bound if an operand may be wrong."""
        terms = [e for g in given if (e := self.errors[g]) is not None]
        if not terms:
            return None
        worst = self.fold("max", terms)
        wrong = self.apply("gt", worst, self.constant(0.0))
        most = 1.0 if value_type(self.instructions[number]) is DataType.BOOL else math.inf
        return self.choose(wrong, self.constant(most), self.constant(0.0))

    def _find_choice(self, choice: Select) -> int | None:
        condition, then, otherwise = (
            self.errors[v] for v in (choice.condition, choice.then, choice.otherwise)
        )
        zero = self.constant(0.0)
        terms: list[int] = []
        if then is not None or otherwise is not None:
            terms.append(
                self.choose(
                    choice.condition,
                    zero if then is None else then,
                    zero if otherwise is None else otherwise,
                )
            )
        if condition is not None:
            apart = [self.apart(choice.then, choice.otherwise)]
            apart += [e for e in (then, otherwise) if e is not None]
            either = self.unless_nan(self.fold("add", apart))
            close = self.apply("gt", condition, zero)
            terms.append(self.choose(close, either, zero))
        return self.total(terms)

    def _find_cast(self, number: int, operand: int, dtype: DataType) -> int | None:
        source = value_type(self.instructions[operand])
        error = self.errors[operand]
        if error is None and source.is_float and not dtype.is_integer:
            error = self.flushed(operand, source)
        if dtype.is_float and source.is_float:
            narrows = _EPSILON[dtype] > _EPSILON[source]
            terms = [] if error is None else [error]
            terms += self.rounded(number, dtype) if narrows else []
            total = self.total(terms)
            return self.within_range(number, dtype, total) if narrows and total else total
        if error is None:
            # A whole number too long for the float is rounded alike everywhere.
            return None
        if source is DataType.BOOL and dtype.is_float:
            return error
        if source.is_float and dtype.is_integer:
            return self._find_cut(operand, error, dtype)
        return self.choose(
            self.apply("gt", error, self.constant(0.0)),
            self.constant(1.0 if dtype is DataType.BOOL else math.inf),
            self.constant(0.0),
        )

    def _find_cut(self, number: int, error: int, dtype: DataType) -> int:
        """Largest change of a float's truncation to an integer when the float changes by its error.
        NaN and exact values are truncated alike everywhere."""
        limits = np.iinfo(dtype.dtype)
        low, high = self.constant(float(limits.min)), self.constant(float(limits.max))
        middle = self.double(number)
        given = (middle, self.apply("sub", middle, error), self.apply("add", middle, error))
        center, *ends = (
            self.apply("min", self.apply("max", self.apply("trunc", g), low), high) for g in given
        )
        moved = self.fold("max", [self.apart(end, center) for end in ends])
        zero, unknown = self.constant(0.0), self.constant(math.inf)
        known = self.choose(self.apply("lt", error, unknown), self.unless_nan(moved), unknown)
        return self.choose(self.apply("gt", error, zero), known, zero)


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
        wrong = maker.apply("gt", error, maker.constant(0.0))
        error = maker.choose(wrong, maker.constant(math.inf), maker.constant(0.0))
        return [_over(stage, name, maker, error, "max")], _Source(name, stage.dtype)
    if reduction.record.beats and error is not None:
        return [_over(stage, name, maker, error, "max")], _Source(name, stage.dtype)
    count = _count(reduction)
    terms = [] if error is None else [error]
    if reduction.combiner == "sum":
        part = _EPSILON[dtype] * min(count, _MOST_IN_ROW)
        terms += [maker.scaled(value, part)]
        # A partial sum may be as large as the sum of all terms of one sign.
        many = maker.constant(max(count, 1.0) if math.isfinite(count) else 1.0)
        size = maker.apply("mul", many, maker.double(value))
        whole = maker.within_range(size, dtype, maker.fold("add", terms))
        return [_over(stage, name, maker, whole, "sum")], _Source(name, stage.dtype)
    return _multiply(stage, maker, name, error, count)


def _choose_flushed(stage: Stage, maker: _Maker, name: str, lost: int) -> list[Stage]:
    """Errors of a reduction that selects among exact values, if denormals may be flushed: denormals
    then compare as equal. That shows only if no larger value is selected."""
    assert stage.reduction is not None
    value, dtype = stage.body.result, stage.body.dtype
    combiner = stage.reduction.record.operation.name
    made = [
        _over(stage, f"{name}_lost", maker, lost, "max"),
        _over(stage, f"{name}_chosen", maker, maker.double(value), combiner),
    ]
    places = tuple(range(len(stage.extents)))
    loads = (Load(each.name, places, _DOUBLE) for each in made)
    body = Body((*(Index(axis) for axis in places), *loads), len(places))
    last = _Maker(body, {}, maker.rules)
    most, chosen = len(places), len(places) + 1
    size, smallest = last.apply("abs", chosen), maker.rules.find_smallest(dtype)
    zero, small = last.constant(0.0), last.apply("lt", size, last.constant(smallest))
    unknown = last.constant(math.inf) if stage.is_positional else most
    some = last.choose(last.apply("gt", most, zero), unknown, zero)
    whole = Body.make(last.instructions, last.choose(small, some, zero))
    return [*made, Stage(name, _DOUBLE, stage.extents, whole)]


def _multiply(
    stage: Stage, maker: _Maker, name: str, error: int | None, count: float
) -> tuple[list[Stage], _Source]:
    """Errors of a product: the growth of the product of factors at their largest."""
    value, dtype = stage.body.result, stage.body.dtype
    # NaN is exact, and is left out.
    size = maker.apply("abs", maker.double(value))
    size = maker.choose(maker.finite(value), size, maker.constant(1.0))
    large = size if error is None else maker.apply("add", size, error)
    # A partial product may overflow, or underflow, although the whole does not.
    most = _LARGEST[dtype] ** (1 / count) if 1 <= count < math.inf else _LARGEST[dtype]
    least = _SMALLEST[dtype] ** (1 / max(count, 1.0))
    unknown = maker.constant(math.inf)
    small = maker.apply("lt", size, maker.constant(least))
    nothing = maker.apply("eq", size, maker.constant(0.0))
    whole = maker.choose(maker.apply("le", large, maker.constant(most)), large, unknown)
    whole = maker.choose(nothing, whole, maker.choose(small, unknown, whole))
    ends = {"least": size, "most": whole, "each": large, "top": large}
    made = [_over(stage, f"{name}_{end}", maker, factor, "max" if end == "top" else "product")
            for end, factor in ends.items()]  # fmt: skip
    places = tuple(range(len(stage.extents)))
    loads = [Load(factor.name, places, _DOUBLE) for factor in made]
    loads.append(Load(stage.name, places, stage.dtype.compute))
    exact, larger, plain, top, product = range(len(places), len(places) + 5)
    last = _Maker(Body((*(Index(axis) for axis in places), *loads), product), {}, maker.rules)
    part = (count if math.isfinite(count) else _MOST_IN_ROW) * _EPSILON[dtype]
    # Of factors up to about 1 all come to less than 3, however many they are. So no part is too
    # large, and where one vanishes, so does all but that.
    below = last.apply("le", top, last.constant(1.0 + 1.0 / max(count, 1.0)))
    lost = last.constant(3 * _SMALLEST[dtype])
    larger = last.choose(below, last.apply("add", plain, lost), larger)
    grown = last.apply("sub", larger, exact)
    total = last.apply("add", grown, last.apply("mul", exact, last.constant(part)))
    total = last.where_finite(product, total)
    known = last.apply("lt", larger, last.constant(math.inf))
    total = last.choose(known, total, last.constant(math.inf))
    body = Body.make(last.instructions, total)
    return [*made, Stage(name, _DOUBLE, stage.extents, body)], _Source(name, stage.dtype)


def _count(reduction: Reduction) -> float:
    sizes = [extent for _, extent in reduction.axes if isinstance(extent, int)]
    return float(math.prod(sizes)) if len(sizes) == len(reduction.axes) else math.inf


def _over(stage: Stage, name: str, maker: _Maker, error: int, combiner: str | None) -> Stage:
    """Stage of errors over a stage's domain and its reduction axes."""
    reduction = None
    if combiner is not None and stage.reduction is not None:
        reduction = Reduction(combiner, stage.reduction.axes)
    body = Body.make(maker.instructions, error, stage.body.guard)
    return Stage(name, _DOUBLE, stage.extents, body, reduction)


def _close(stage: Stage, sources: Mapping[str, _Source], rules: Rules, name: str) -> Stage:
    """Bound of a result: its error, and the rounding to its storage type."""
    indices = tuple(range(len(stage.extents)))
    load = Load(stage.name, indices, stage.dtype.compute)
    value = len(indices)
    maker = _Maker(Body((*(Index(axis) for axis in indices), load), value), sources, rules)
    error = maker.errors[value]
    zero = maker.constant(0.0)
    if error is None:
        whole = zero
    else:
        # No error is below 0, which is the maximum of an empty set.
        terms = [maker.apply("max", error, zero)]
        # A load of 16 bits has the rounding in it.
        if stage.dtype.is_float and not stage.dtype.is_storage_only:
            positive = maker.apply("gt", terms[0], zero)
            rounding = maker.fold("add", maker.rounded(value, stage.dtype))
            terms.append(maker.choose(positive, rounding, zero))
        whole = maker.fold("add", terms)
    return Stage(name, _DOUBLE, stage.extents, Body.make(maker.instructions, whole))
