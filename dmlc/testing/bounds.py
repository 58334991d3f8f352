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
import math
from collections.abc import Iterable, Mapping

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Delay,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Reduction,
    Result,
    Stage,
    operands,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.driver import apply_rules
from dmlc.ir.naming import take_name
from dmlc.ir.specialize import specialize
from dmlc.oracle import find_expected
from dmlc.parameters import expect, expect_mapping
from dmlc.reference import evaluate
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.scalars import Array, Value, held_type
from dmlc.sizes import Shapes
from dmlc.testing.online import write_online
from dmlc.testing.value_errors import (
    DOUBLE,
    EPSILON,
    LARGEST,
    SMALLEST,
    ErrorBuilder,
    Rules,
    Source,
    join,
)
from dmlc.transform.factor import take_out_factors
from dmlc.transform.online import may_be_online
from dmlc.transform.simplify import simplify

_MOST_IN_ROW = 256.0
"""Largest number of sequential additions before partial sums are combined as a tree."""


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
        if ((sizes > 0) & (sizes < SMALLEST[dtype])).any():
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
def make_error_function(function: Function, rules: Rules) -> Function:
    """Error function: from the function's parameters to the error of each result, in order. A
    multiply-add, which a device may round once or twice, is rounded twice here. Cached for other
    values."""
    if any("fma" in map(_name, stage.body.instructions) for stage in function.stages):
        function = apply_rules(function, _split_multiply_add)
    taken = dict.fromkeys(function.tensors())
    sources: dict[str, Source] = {}
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
                before = take_name(f"{delay.name}_error", taken)
                sources[delay.name] = Source(before, delay.dtype)
            loops.append(opened[stage.name])
        stages.append(stage)
        maker = ErrorBuilder(rules, stage.body, sources)
        made, source = _fold(stage, maker, take_name(f"{stage.name}_error", taken))
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
            last = _close(stage, sources, rules, take_name(f"{stage.name}_bound", taken))
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


def _split_multiply_add(builder: BodyBuilder, instruction: Instruction) -> int | None:
    """Replaces a multiply-add by a product and a sum."""
    if _name(instruction) != "fma":
        return None
    x, y, z = operands(instruction)
    return builder.apply("add", builder.apply("mul", x, y), z)


def _delay_errors(
    loop: Loop, sources: dict[str, Source], stages: list[Stage], taken: dict[str, None]
) -> tuple[Delay, ...]:
    """Delays of a loop's stages and of their errors. Adds error stages for exact stages too, since
    delays need them."""
    made: list[Delay] = []
    for delay in loop.delays:
        of = sources[delay.of].stage
        if of is None:
            of = take_name(f"{delay.of}_error", taken)
            body = Body.make([Constant(DOUBLE, 0.0)], 0)
            stages.append(Stage(of, DOUBLE, delay.extents, body))
        name = sources[delay.name].stage or ""
        made += [delay, Delay(name, DOUBLE, delay.extents, of)]
    return tuple(made)


def _is_signless(stage: Stage, maker: ErrorBuilder) -> bool:
    """Whether no element of a stage is below 0."""
    kept = stage.reduction is None or stage.reduction.record.signless
    return kept and maker.signless[stage.body.result]


def _fold(stage: Stage, maker: ErrorBuilder, name: str) -> tuple[list[Stage], Source]:
    """Stage of a stage's errors, and how to read it."""
    error = maker.errors[stage.body.result]
    reduction = stage.reduction
    if reduction is None:
        if error is None:
            return [], Source(None, stage.dtype)
        if stage.dtype.is_storage_only:
            error = maker.rounded_away(stage.body.result, stage.dtype, error)
        return [_over(stage, name, maker, error, None)], Source(name, stage.dtype, ranged=True)
    value, dtype = stage.body.result, stage.body.dtype
    lost = maker.flushed(value, dtype)
    if reduction.record.beats and error is None:
        if lost is None:
            return [], Source(None, stage.dtype)
        return _choose_flushed(stage, maker, name, lost), Source(name, stage.dtype)
    if error is None:
        error = lost
    if reduction.is_positional or not dtype.is_float:
        if error is None:
            return [], Source(None, stage.dtype)
        error = (error > 0.0).select(maker.double(math.inf), 0.0)
        return [_over(stage, name, maker, error, "max")], Source(name, stage.dtype)
    if reduction.record.beats and error is not None:
        return [_over(stage, name, maker, error, "max")], Source(name, stage.dtype)
    count = _count(reduction)
    terms = [] if error is None else [error]
    if reduction.combiner == "sum":
        part = EPSILON[dtype] * min(count, _MOST_IN_ROW)
        terms += [maker.scaled(value, part)]
        # A partial sum may be as large as the sum of all terms of one sign.
        size = (max(count, 1.0) if math.isfinite(count) else 1.0) * maker.double(value)
        whole = maker.within_range(size, dtype, join("add", terms))
        return [_over(stage, name, maker, whole, "sum")], Source(name, stage.dtype)
    return _multiply(stage, maker, name, error, count)


def _choose_flushed(stage: Stage, maker: ErrorBuilder, name: str, lost: Value) -> list[Stage]:
    """Errors of a reduction that selects among exact values, if denormals may be flushed: denormals
    then compare as equal. That shows only if no larger value is selected."""
    assert stage.reduction is not None
    combiner = stage.reduction.record.operation.name
    made = [
        _over(stage, f"{name}_lost", maker, lost, "max"),
        _over(stage, f"{name}_chosen", maker, maker.double(stage.body.result), combiner),
    ]
    last = ErrorBuilder(maker.rules)
    most, chosen = (last.wrap(last.read(each)) for each in made)
    unknown = math.inf if stage.is_positional else most
    some = (most > 0.0).select(unknown, most.like(0.0))
    small = abs(chosen) < maker.rules.find_smallest(stage.body.dtype)
    return [*made, _over(stage, name, last, small.select(some, 0.0), None)]


def _multiply(
    stage: Stage, maker: ErrorBuilder, name: str, error: Value | None, count: float
) -> tuple[list[Stage], Source]:
    """Errors of a product: the growth of the product of factors at their largest."""
    value, dtype = stage.body.result, stage.body.dtype
    # NaN is exact, and is left out.
    size = maker.finite(value).select(abs(maker.double(value)), 1.0)
    large = size if error is None else size + error
    # A partial product may overflow, or underflow, although the whole does not.
    most = LARGEST[dtype] ** (1 / count) if 1 <= count < math.inf else LARGEST[dtype]
    least = SMALLEST[dtype] ** (1 / max(count, 1.0))
    whole = (large <= most).select(large, math.inf)
    whole = size.equals(0.0).select(whole, (size < least).select(math.inf, whole))
    ends = {"least": size, "most": whole, "each": large, "top": large}
    made = [_over(stage, f"{name}_{end}", maker, factor, "max" if end == "top" else "product")
            for end, factor in ends.items()]  # fmt: skip
    last = ErrorBuilder(maker.rules)
    exact, larger, plain, top = (last.wrap(last.read(factor)) for factor in made)
    product = last.wrap(last.read(stage))
    part = (count if math.isfinite(count) else _MOST_IN_ROW) * EPSILON[dtype]
    # Of factors up to about 1 all come to less than 3, however many they are. So no part is too
    # large, and where one vanishes, so does all but that.
    below = top <= 1.0 + 1.0 / max(count, 1.0)
    larger = below.select(plain + 3 * SMALLEST[dtype], larger)
    total = last.where_finite(product, larger - exact + exact * part)
    total = (larger < math.inf).select(total, math.inf)
    return [*made, _over(stage, name, last, total, None)], Source(name, stage.dtype)


def _count(reduction: Reduction) -> float:
    sizes = [extent for _, extent in reduction.axes if isinstance(extent, int)]
    return float(math.prod(sizes)) if len(sizes) == len(reduction.axes) else math.inf


def _over(
    stage: Stage, name: str, maker: ErrorBuilder, error: Value, combiner: str | None
) -> Stage:
    """Stage of errors over a stage's domain and, with a combiner, its reduction axes."""
    reduction, guard = None, None
    if combiner is not None and stage.reduction is not None:
        reduction, guard = Reduction(combiner, stage.reduction.axes), stage.body.guard
    return Stage(name, DOUBLE, stage.extents, maker.finish(error, guard), reduction)


def _close(stage: Stage, sources: Mapping[str, Source], rules: Rules, name: str) -> Stage:
    """Bound of a result: its error, and the rounding to its storage type."""
    indices = tuple(range(len(stage.extents)))
    load = Load(stage.name, indices, stage.dtype.compute)
    value = len(indices)
    body = Body((*(Index(axis) for axis in indices), load), value)
    maker = ErrorBuilder(rules, body, sources)
    error = maker.errors[value]
    whole = maker.double(0.0)
    if error is not None:
        # No error is below 0, which is the maximum of an empty set.
        whole = error.apply("max", 0.0)
        # A load of 16 bits has the rounding in it.
        if stage.dtype.is_float and not stage.dtype.is_storage_only:
            rounding = join("add", maker.rounded(value, stage.dtype))
            whole = whole + (whole > 0.0).select(rounding, 0.0)
    return _over(stage, name, maker, whole, None)
