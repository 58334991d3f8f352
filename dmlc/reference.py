"""Reference evaluator: tensor IR in NumPy, simple and slow.

Floats are computed in float64 from the inputs as stored, and rounded once, to nearest even, to the
type of the result; constants are the function's own. A value that depends on indices alone is
computed in its own type instead, as determined by `ir.positions`: it selects what is read, and must
be the same everywhere. Between stages a float keeps its 64 bits, unless the stage between is
FLOAT16 or BFLOAT16, which is read as stored. A cast to FLOAT32 from another type rounds, as devices
do. Integers compute in their own type and wrap. Every backend is tested against this.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Parameter,
    Reduction,
    Stage,
    operands,
    value_type,
)
from dmlc.ir.index import evaluate_instruction, find_index_only
from dmlc.ir.specialize import specialize
from dmlc.parameters import expect, expect_mapping, wrong_kind
from dmlc.scalars import OPERATIONS, Array, Combiner, DataType, convert, held_type
from dmlc.sizes import Shapes
from dmlc.source import DmlcError, check_known

_BLOCK = 1 << 17
"""Number of points evaluated at a time, over a stage's domain and its reduction together."""


def evaluate(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Results of a function by name, each packed, in its stage's type and sizes.

    `inputs` has an array of each parameter's type and sizes, by name. Symbols have the sizes of
    these arrays; if one counts the elements of all tensors, these take arrays of any one shape, and
    results have it too. Raises `DmlcError` for an input that is missing, unknown, or of another
    type or shape.
    """
    expect("function", function, Function, "an ir.Function")
    tensors, sizes, shape = _bind(function, inputs)
    counted = function.run_symbol()
    runs = {s.name for s in function.stages if counted in s.extents} if counted else set[str]()
    function = specialize(function, sizes)
    results = {r.name for r in function.results}
    looped = {name for loop in function.loops for name in loop.stages}
    found: dict[str, Array] = {}
    placed: set[str] = set()
    with np.errstate(all="ignore"):
        opened = {loop.stages[0]: loop for loop in function.loops}
        for stage in function.stages:
            if stage.name in opened:
                tensors |= _evaluate_loop(function, opened[stage.name], tensors)
            if stage.name in looped:
                values = tensors[stage.name]
            else:
                values = _evaluate_stage(stage, tensors, placed)
            stored = convert(values, stage.dtype)
            if stage.name not in looped and all(find_index_only(stage.body, placed)):
                placed.add(stage.name)
            exact = stage.dtype.is_storage_only or stage.name in placed
            tensors[stage.name] = stored if exact else values
            if stage.name in results:
                found[stage.name] = stored.reshape(shape) if stage.name in runs else stored
    return {r.name: found[r.name] for r in function.results}


def _as_array(name: str, given: object) -> Array:
    try:
        return np.asarray(given)
    except ValueError:
        # Such as lists of several lengths.
        raise wrong_kind(f"inputs['{name}']", "an array", given) from None


def _bind(
    function: Function, inputs: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, int], tuple[int, ...]]:
    """Arrays of the parameters, values of symbols, and the shape of the elements that one symbol
    counts."""
    known = [p.name for p in function.parameters]
    given = expect_mapping("inputs", inputs, "a mapping of inputs' names to arrays")
    check_known("input", known, *given)
    tensors: dict[str, Array] = {}
    shape: tuple[int, ...] = ()
    first: Parameter | None = None
    counted, found = function.run_symbol(), Shapes()
    for parameter in function.parameters:
        if parameter.name not in inputs:
            raise DmlcError(f"input '{parameter.name}' is missing")
        array = _as_array(parameter.name, inputs[parameter.name])
        if held_type(array.dtype) is not parameter.dtype:
            raise DmlcError(
                f"expected {parameter.dtype.name} for input '{parameter.name}', "
                f"found an array of {array.dtype}"
            )
        array = array.astype(parameter.dtype.dtype, copy=False)
        if counted in parameter.extents:
            if first is None:
                first, shape = parameter, array.shape
            elif array.shape != shape:
                raise DmlcError(
                    f"expected inputs '{first.name}' and '{parameter.name}' to have the same "
                    f"sizes, found {list(shape)} and {list(array.shape)}"
                )
            array = array.reshape(-1)
        else:
            wrong = found.match(parameter.name, parameter.extents, array.shape)
            if wrong is not None and any(isinstance(e, str) for e in parameter.extents):
                raise DmlcError(f"the inputs of {function.name} do not fit: {wrong}")
            if wrong is not None:
                raise DmlcError(
                    f"expected sizes {list(parameter.extents)} for input '{parameter.name}', "
                    f"found {list(array.shape)}"
                )
        tensors[parameter.name] = array
    for table in function.tables:
        values = np.array(table.values, table.dtype.dtype)
        tensors[table.name] = values.reshape(table.extents)
    sizes = found.sizes if counted is None else {counted: math.prod(shape)}
    return tensors, sizes, shape


# Stages ------------------------------------------------------------------------------------


def _evaluate_loop(
    function: Function, loop: Loop, tensors: Mapping[str, Array]
) -> dict[str, Array]:
    """Stages of a loop, and their delayed tensors, computed step by step."""
    stages = [s for name in loop.stages if (s := function.stage(name)) is not None]
    found: dict[str, Array] = {}
    for each in (*stages, *loop.delays):
        sizes = [e for e in each.extents if isinstance(e, int)]
        found[each.name] = np.zeros(sizes, _number(each.dtype))
    known = {**tensors, **found}
    steps = range(len(found[loop.stages[0]]))
    before: int | None = None
    for step in reversed(steps) if loop.backwards else steps:
        here = slice(step, step + 1)
        for delay in loop.delays if before is not None else ():
            found[delay.name][step] = found[delay.of][before]
        for stage in stages:
            found[stage.name][here] = _evaluate_stage(stage, known, (), here)[here]
        before = step
    return found


def _evaluate_stage(
    stage: Stage,
    tensors: Mapping[str, Array],
    placed: Container[str],
    here: slice | None = None,
) -> Array:
    """Values of a stage, box by box: floats in float64, but in their own type those that depend on
    indices alone, and on elements of the tensors `placed`. With `here`, only those at these indices
    along its first axis."""
    reduction = stage.reduction
    domain = [e for e in stage.extents if isinstance(e, int)]
    axes_of = () if reduction is None else reduction.axes
    inner = [e for _, e in axes_of if isinstance(e, int)]
    positional = reduction is not None and reduction.is_positional
    number = np.dtype(np.int64) if positional else _number(stage.body.dtype)
    values = np.empty(domain, number)
    index_only = find_index_only(stage.body, placed)
    plan = _Plan(stage.body, index_only, _list_dying(stage.body))
    for box in _boxes(domain, max(1, _BLOCK // max(1, math.prod(inner))), here):
        axes = {Index(axis): positions for axis, positions in enumerate(_open_mesh(box))}
        if reduction is None:
            values[box], _ = _evaluate_body(plan, axes, tensors)
        else:
            shape = values[box].shape
            blocks = _blocks(plan, reduction, inner, axes, tensors, shape)
            in_order = all(index_only)
            fold = _fold_positions if positional else _fold_in_order if in_order else _fold_values
            values[box] = fold(reduction.record, stage.body.dtype, shape, blocks)
    return values


def _number(dtype: DataType) -> np.dtype[Any]:
    """NumPy type that holds values of a compute type here."""
    return np.dtype(np.float64) if dtype.is_float else dtype.dtype


_Box = tuple[slice, ...]


def _boxes(domain: list[int], most: int, here: slice | None = None) -> Iterator[_Box]:
    """Boxes of at most `most` points that tile a domain, or the indices `here` along its first
    axis, in order."""
    if here is not None:
        yield from ((here, *box) for box in _boxes(domain[1:], most))
        return
    steps: list[int] = []
    for extent in reversed(domain):
        steps.append(max(1, min(extent, most)))
        most //= steps[-1]
    steps.reverse()
    tiles = [range(0, extent, step) for extent, step in zip(domain, steps, strict=True)]
    for starts in itertools.product(*tiles):
        yield tuple(
            slice(start, min(start + step, extent))
            for start, step, extent in zip(starts, steps, domain, strict=True)
        )


def _open_mesh(box: _Box) -> list[Array]:
    """Indices along each axis of a box, shaped to broadcast against one another."""
    rank = len(box)
    return [
        np.arange(part.start, part.stop, dtype=np.int64).reshape((-1,) + (1,) * (rank - 1 - axis))
        for axis, part in enumerate(box)
    ]


# Reductions --------------------------------------------------------------------------------

_Blocks = Iterator[tuple[int, Array, Array | None]]
"""Index of the first point; values and guard, with the points along the last axis."""


def _blocks(
    plan: _Plan,
    reduction: Reduction,
    extents: list[int],
    axes: Mapping[Index, Array],
    tensors: Mapping[str, Array],
    shape: tuple[int, ...],
) -> _Blocks:
    """Blocks of the points of a reduction, last axis fastest, for every element of a box."""
    outer = {index: positions[..., None] for index, positions in axes.items()}
    count = math.prod(extents)
    step = max(1, _BLOCK // max(1, math.prod(shape)))
    for start in range(0, count, step):
        points = np.arange(start, min(start + step, count), dtype=np.int64)
        inner: dict[Index, Array] = {}
        rest = points
        for (label, _), extent in zip(reversed(reduction.axes), reversed(extents), strict=True):
            inner[Index(label, reduced=True)] = rest % extent
            rest = rest // extent
        values, guard = _evaluate_body(plan, {**outer, **inner}, tensors)
        whole = (*shape, len(points))
        guarded = None if guard is None else np.broadcast_to(guard, whole)
        # A packed copy, so that the order of a sum depends on sizes alone.
        yield start, np.array(np.broadcast_to(values, whole), order="C"), guarded


def _fold_values(
    combiner: Combiner, dtype: DataType, shape: tuple[int, ...], blocks: _Blocks
) -> Array:
    identity = np.asarray(combiner.identity(dtype), _number(dtype))
    total: Array = np.full(shape, identity)
    for _, values, guard in blocks:
        if guard is not None:
            values[~guard] = identity
        if combiner.name == "sum":
            total = total + values.sum(axis=-1, dtype=values.dtype)
        else:
            total = combiner.operation.evaluate(total, _fold_pairs(combiner, values))
    return total


def _fold_in_order(
    combiner: Combiner, dtype: DataType, shape: tuple[int, ...], blocks: _Blocks
) -> Array:
    """Sequential fold, in its own type, of values that depend on indices alone."""
    identity = np.asarray(combiner.identity(dtype), dtype.dtype)
    total: Array = np.full(shape, identity)
    for _, values, guard in blocks:
        every = values.astype(dtype.dtype)
        if guard is not None:
            every[~guard] = identity
        for point in np.moveaxis(every, -1, 0):
            total = combiner.operation.evaluate(total, point)
    return total


def _fold_pairs(combiner: Combiner, values: Array) -> Array:
    """Pairwise fold of the last axis, which equals the fold from the left where the order of
    operands matters (which zero a `max` keeps)."""
    evaluate_pair = combiner.operation.evaluate
    while values.shape[-1] > 1:
        even = values.shape[-1] // 2 * 2
        folded = evaluate_pair(values[..., 0:even:2], values[..., 1:even:2])
        values = np.concatenate([folded, values[..., even:]], axis=-1)
    return values[..., 0]


def _fold_positions(
    combiner: Combiner, dtype: DataType, shape: tuple[int, ...], blocks: _Blocks
) -> Array:
    """Index of the first most extreme point, or 0 if there is none."""
    identity = np.asarray(combiner.identity(dtype), _number(dtype))
    evaluate_beats = OPERATIONS[combiner.beats].evaluate
    best: Array = np.full(shape, identity)
    found: Array = np.zeros(shape, np.bool_)
    place: Array = np.zeros(shape, np.int64)
    for start, values, guard in blocks:
        if guard is not None:
            values[~guard] = identity
        extreme = _fold_pairs(combiner, values)
        hits = (values == extreme[..., None]) | (_isnan(values) & _isnan(extreme)[..., None])
        if guard is not None:
            hits &= guard
        beats = evaluate_beats(extreme, best)
        better = hits.any(axis=-1) & (~found | beats | (_isnan(extreme) & ~_isnan(best)))
        best = np.where(better, extreme, best)
        place = np.where(better, start + hits.argmax(axis=-1), place)
        found |= better
    return place


def _isnan(values: Array) -> Array:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)


# Bodies ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Properties of a body that are the same for every block of points."""

    body: Body
    index_only: tuple[bool, ...]
    """For each value, whether it depends on no element."""
    dying: list[list[int]]
    """For each instruction, the values that nothing after it reads."""


def _list_dying(body: Body) -> list[list[int]]:
    last = {
        o: at for at, instruction in enumerate(body.instructions) for o in operands(instruction)
    }
    dying: list[list[int]] = [[] for _ in body.instructions]
    for value, at in last.items():
        if value not in (body.result, body.guard):
            dying[at].append(value)
    return dying


def _evaluate_body(
    plan: _Plan, axes: Mapping[Index, Array], tensors: Mapping[str, Array]
) -> tuple[Array, Array | None]:
    """Result and guard at some points; both broadcast against the points."""
    body, index_only = plan.body, plan.index_only
    values: dict[int, Array] = {}
    for at, instruction in enumerate(body.instructions):
        given = [values[o] for o in operands(instruction)]
        if index_only[at] and isinstance(instruction, Load):
            found = _evaluate_instruction(instruction, given, body, tensors)
            values[at] = found.astype(instruction.dtype.dtype)
        elif index_only[at]:
            values[at] = evaluate_instruction(instruction, given, axes, body)
        else:
            types = [value_type(body.instructions[o]) for o in operands(instruction)]
            given = [_widen(g, t) for g, t in zip(given, types, strict=True)]
            values[at] = _evaluate_instruction(instruction, given, body, tensors)
        for dead in plan.dying[at]:
            del values[dead]
    result = _widen(values[body.result], body.dtype)
    return result, None if body.guard is None else values[body.guard]


def _evaluate_instruction(
    instruction: Instruction,
    given: list[Array],
    body: Body,
    tensors: Mapping[str, Array],
) -> Array:
    """Instruction that depends on elements of tensors."""
    match instruction:
        case Load():
            tensor = tensors[instruction.tensor]
            if body.guard is not None:
                # A point that the guard leaves out may read outside: what, does not matter.
                if not tensor.size:
                    tensor = np.zeros([max(n, 1) for n in tensor.shape], tensor.dtype)
                given = [np.clip(g, 0, n - 1) for g, n in zip(given, tensor.shape, strict=True)]
            return _widen(np.asarray(tensor[tuple(given)]), instruction.dtype)
        case Apply(operation=operation) if operation.transcendental:
            # NumPy takes other paths for repeated operands, which differ in the last bit.
            return np.asarray(operation.evaluate(*(g.copy() for g in np.broadcast_arrays(*given))))
        case _:
            found = evaluate_instruction(instruction, given, {}, body)
            return _widen(found, value_type(instruction))


def _widen(values: Array, dtype: DataType) -> Array:
    """Values of a compute type in their representation here."""
    if values.dtype == DataType.BFLOAT16.dtype:
        values = convert(values, DataType.FLOAT32)
    return values.astype(_number(dtype), copy=False)
