"""Verifier of the tensor IR.

`verify` runs after every pass: a fault is a bug of dmlc, reported as an `InternalError` that names
the pass, the node and the node's source. `find_fault` returns it as a value, for the parsers of
text and JSON, where the fault is the author's.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from dmlc.index.intervals import Interval
from dmlc.ir.function import Function
from dmlc.ir.inside import find_outside
from dmlc.ir.nodes import (
    Body,
    Delay,
    Extent,
    Index,
    Instruction,
    Load,
    Loop,
    Parameter,
    Result,
    Stage,
    Step,
    Symbol,
    Table,
    Tensor,
    operands,
    value_type,
)
from dmlc.ir.operand_types import check_constant, check_rank, check_types
from dmlc.ir.places import is_own_place, overlaps
from dmlc.ir.ranges import Ranges, number_ranges, stage_range, table_ranges
from dmlc.parameters import expect, expect_items, wrong_kind
from dmlc.scalars import COMBINERS, Operands, integer_limits
from dmlc.scalars import DataType as T
from dmlc.sizes import LARGEST, find_symbols, holds, list_symbols, parse_size
from dmlc.source import DmlcError, InternalError, Span

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_VERIFIED = "verified"
_LARGEST_LABEL = 9999
_LARGEST_SIZE = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Violation of a rule of the IR by a node. `why` is a clause that starts in lower case."""

    node: str
    why: str
    span: Span | None = None


def verify(function: Function, pass_name: str = "", verified: Function | None = None) -> None:
    """Raises `InternalError` if the function breaks a rule of the IR. `pass_name` is the pass that
    made it, and `verified` the function it was made from, if that one is verified: identical stages
    with unchanged operands are not checked again. A function that was verified before is not
    checked at all."""
    if _VERIFIED in expect("function", function, Function, "an ir.Function").marks:
        return
    fault = find_fault(function, verified)
    if fault is None:
        function.marks.add(_VERIFIED)
        return
    after = f" after {pass_name}" if pass_name else ""
    place = ""
    if fault.span is not None:
        place = f" ({fault.span.source.name}:{fault.span.line}:{fault.span.column})"
    raise InternalError(f"broken IR{after}: @{function.name}, {fault.node}: {fault.why}{place}")


def accept(function: Function) -> Function:
    """A user's function, marked as verified. Raises `DmlcError` if it is not well formed."""
    fault = find_fault(function)
    if fault is not None:
        raise DmlcError(f"this breaks a rule of the IR at {fault.node}: {fault.why}", fault.span)
    function.marks.add(_VERIFIED)
    return function


def find_fault(function: Function, verified: Function | None = None) -> Fault | None:
    """First violation of a rule of the IR, or None if the function is well formed. Parts shared
    with a `verified` function are not checked again."""
    if not _NAME.fullmatch(expect("function", function, Function, "an ir.Function").name):
        return Fault("function", f"{function.name!r} is no name", function.span)
    seen: Mapping[str, Tensor] = {} if verified is None else verified.tensors()
    known: dict[str, Tensor] = {}
    for tensor in (*function.parameters, *function.tables):
        fault = _check_name(tensor, known)
        if fault is None and seen.get(tensor.name) is not tensor:
            fault = _check_definition(tensor)
        if fault is not None:
            return fault
        known[tensor.name] = tensor
    given = [p.extents for p in function.parameters]
    symbols = [e for extents in given for e in find_symbols(extents) if e in extents]
    symbols += function.inherited
    for parameter in function.parameters:
        for symbol in find_symbols((*parameter.extents, *(parameter.strides or ()))):
            if symbol not in symbols:
                why = f"no axis of a parameter has the size '{symbol}' by itself"
                return Fault(f"%{parameter.name}", why, parameter.span)
    reach = table_ranges(function.tables)
    opened = {loop.stages[0]: loop for loop in function.loops if loop.stages}
    for number, stage in enumerate(function.stages):
        loop = opened.get(stage.name)
        if loop is not None:
            fault = check_loop(function, loop, number)
            for delay in () if fault else loop.delays:
                fault = fault or _check_name(delay, known)
                known[delay.name] = delay
            if fault is not None:
                return fault
        fault = _check_name(stage, known)
        if fault is None and _is_seen(stage, known, seen):
            _note_range(stage, reach)
        elif fault is None:
            fault = _check_definition(stage) or _check_stage(stage, known, symbols, reach)
        has_step = any(isinstance(i, Step) for i in stage.body.instructions)
        if fault is None and function.one_step is None and has_step:
            fault = Fault(f"%{stage.name}", "a step is that of one step of a loop", stage.span)
        if fault is not None:
            return fault
        known[stage.name] = stage
    return (
        _check_delays(function)
        or _check_results(function)
        or check_in_place(function, function.in_place)
        or _check_conditions(function)
    )


def _check_conditions(function: Function) -> Fault | None:
    """Fault of the function's checks on its symbols."""
    symbols = (*function.symbols(), *function.inherited)
    for check in function.checks:
        for symbol in list_symbols(check):
            if symbol not in symbols:
                return Fault("function", f"'{check}' is of no size it has", function.span)
        try:
            holds(check, dict.fromkeys(symbols, 1))
        except DmlcError as error:
            return Fault("function", error.diagnostics[0].message, function.span)
    return None


def check_loop(function: Function, loop: Loop, first: int) -> Fault | None:
    """Fault of a loop whose first stage is stage number `first`."""
    stages = function.stages[first : first + len(loop.stages)]
    name = f"loop of %{loop.stages[0]}"
    if tuple(stage.name for stage in stages) != loop.stages:
        return Fault(name, "its stages do not stand one after another", function.span)
    own = {stage.name: stage for stage in stages}
    steps = stages[0].extents[:1]
    if not steps:
        return Fault(name, "its stages have no axis, which steps could go along", stages[0].span)
    theirs = {*own, *(delay.name for delay in loop.delays)}
    for stage in stages:
        node = f"%{stage.name}"
        if stage.extents[:1] != steps:
            return Fault(node, f"a stage of a loop of {steps[0]} steps has others", stage.span)
        if stage.dtype.is_storage_only:
            why = f"a stage of a loop holds values as they are computed, not {stage.dtype.name}"
            return Fault(node, why, stage.span)
        for load in stage.body.loads():
            places = [stage.body.instructions[i] for i in load.indices[:1]]
            if load.tensor in theirs and places != [Index(0)]:
                return Fault(node, f"it reads %{load.tensor} at another step", stage.span)
    for delay in loop.delays:
        node, of = f"%{delay.name}", own.get(delay.of)
        if of is None:
            return Fault(node, f"%{delay.of} is no stage of its loop", delay.span)
        if (delay.dtype, delay.extents) != (of.dtype, of.extents):
            return Fault(node, f"it has another type or other sizes than %{of.name}", delay.span)
    return None


def _check_delays(function: Function) -> Fault | None:
    """Fault of the loops of a function whose stages are well formed."""
    names = [stage.name for stage in function.stages]
    homes = {name: number for number, loop in enumerate(function.loops) for name in loop.stages}
    if len(homes) != sum(len(loop.stages) for loop in function.loops):
        return Fault("function", "a stage is in two loops", function.span)
    for loop in function.loops:
        if not loop.stages or loop.stages[0] not in names:
            return Fault("function", "a loop has no stages", function.span)
    of = {d.name: number for number, loop in enumerate(function.loops) for d in loop.delays}
    for stage in function.stages if of else ():
        for load in stage.body.loads():
            if load.tensor in of and homes.get(stage.name) != of[load.tensor]:
                why = f"%{load.tensor} is for the stages of its loop alone"
                return Fault(f"%{stage.name}", why, stage.span)
    return None


def _is_seen(stage: Stage, known: Mapping[str, Tensor], seen: Mapping[str, Tensor]) -> bool:
    """Whether a stage and the tensors it reads are unchanged from a verified function."""
    if seen.get(stage.name) is not stage:
        return False
    for load in stage.body.loads():
        tensor, before = known.get(load.tensor), seen.get(load.tensor)
        # The values of a table bound indices.
        has_values = not isinstance(tensor, Stage | Delay) or not isinstance(before, Stage | Delay)
        if tensor is None or (has_values and tensor is not before):
            return False
        if before is None or (tensor.dtype, tensor.extents) != (before.dtype, before.extents):
            return False
    return True


def find_stage_fault(function: Function, stage: Stage) -> Fault | None:
    """First violation by one stage that reads a function's tensors."""
    known = function.tensors()
    read = [known[name] for name in {load.tensor for load in stage.body.loads()} if name in known]
    reach = table_ranges([tensor for tensor in read if isinstance(tensor, Table)])
    reach |= number_ranges(tensor for tensor in read if isinstance(tensor, Stage))
    return _check_stage(stage, known, (*function.symbols(), *function.inherited), reach)


def are_sound(function: Function, before: Sequence[Stage], made: Sequence[Stage]) -> bool:
    """Whether stages that a pass appends to the stages `before` of a function are well formed."""
    known = dataclasses.replace(function, stages=(*before, *made))
    return all(find_stage_fault(known, each) is None for each in made)


def _check_name(node: Tensor, known: Mapping[str, object]) -> Fault | None:
    if not _NAME.fullmatch(node.name):
        return Fault(f"%{node.name}", "this is no name", node.span)
    if node.name in known:
        return Fault(f"%{node.name}", "it is defined twice", node.span)
    return None


def _check_definition(node: Tensor) -> Fault | None:
    """Fault of a tensor's type, extents, layout or values."""
    name = f"%{node.name}"
    if node.dtype is T.INDEX:
        return Fault(name, "a tensor holds no INDEX", node.span)
    why = _check_extents(node.extents)
    if isinstance(node, Parameter):
        why = why or _check_strides(node.extents, node.strides)
    elif isinstance(node, Table):
        why = why or _check_table(node)
    return Fault(name, why, node.span) if why else None


def _check_extents(extents: Sequence[Extent]) -> str | None:
    for extent in extents:
        if isinstance(extent, str):
            why = _check_size(extent)
            if why:
                return why
        elif not 0 <= extent <= _LARGEST_SIZE:
            return f"an axis has size {extent}"
    sizes = [e for e in extents if isinstance(e, int)]
    return "it has more than 2**63 elements" if math.prod(sizes) > _LARGEST_SIZE else None


def _check_size(text: str) -> str | None:
    """Error of the text of a run-time size."""
    try:
        size = parse_size(text)
    except DmlcError as error:
        return error.diagnostics[0].message
    if isinstance(size, int):
        return f"'{text}' is {size}, a number"
    return None if str(size) == text else f"'{text}' is written '{size}'"


def _check_strides(extents: tuple[Extent, ...], strides: tuple[Extent, ...] | None) -> str | None:
    if strides is None:
        return None
    if len(strides) != len(extents):
        return f"it has strides for {len(strides)} axes, not {len(extents)}"
    for stride in strides:
        if isinstance(stride, str):
            why = _check_size(stride)
            if why is not None:
                return f"of a stride, {why}"
        elif not 0 <= stride <= _LARGEST_SIZE:
            return "a stride is negative or beyond 63 bits"
    return None


def _check_table(table: Table) -> str | None:
    if table.dtype.is_storage_only or table.strides is not None:
        return "a table holds a compute type, packed"
    if math.prod(table.extents) != len(table.values):
        return f"it has {len(table.values)} values"
    if _holds_exactly(table):
        return None
    return next((why for c in table.constants() if (why := check_constant(c))), None)


def _holds_exactly(table: Table) -> bool:
    """Whether all values are floats of the table's type. Vectorized, as tables are long."""
    if not table.dtype.is_float or not all(type(value) is float for value in table.values):
        return False
    values = np.array(table.values, np.float64)
    with np.errstate(over="ignore"):
        rounded = values.astype(table.dtype.dtype).astype(np.float64)
    return bool(np.array_equal(values, rounded, equal_nan=True))


# Stages ------------------------------------------------------------------------------------


def _check_stage(
    stage: Stage, known: Mapping[str, Tensor], symbols: Sequence[str], reach: dict[str, Interval]
) -> Fault | None:
    name = f"%{stage.name}"
    why = _check_extents([e for _, e in stage.axes])
    if why:
        return Fault(name, why, stage.span)
    values = stage.body.instructions
    named = [i.name for i in values if isinstance(i, Symbol)]
    named += [i.steps for i in values if isinstance(i, Step) and isinstance(i.steps, str)]
    for symbol in find_symbols((*stage.sizes, *named)):
        if symbol not in symbols:
            return Fault(name, f"'{symbol}' is no parameter's size", stage.span)
    labels = [label for label, _ in stage.axes]
    if len(set(labels)) != len(labels):
        return Fault(name, "two reduction axes share a label", stage.span)
    if any(not 0 <= label <= _LARGEST_LABEL for label in labels):
        return Fault(name, f"a label lies outside 0 to {_LARGEST_LABEL}", stage.span)
    fault = _check_body(stage, known, reach)
    if fault is not None:
        return fault
    why = _check_result_type(stage)
    return Fault(name, why, stage.span) if why else None


def _check_result_type(stage: Stage) -> str | None:
    result, reduction = stage.body.dtype, stage.reduction
    if reduction is None:
        if stage.body.guard is not None:
            return "a guard needs a reduction"
    elif reduction.is_positional:
        if not stage.dtype.is_integer or not Operands.NUMBER.accept(result):
            return f"{reduction.combiner} gives integers, from numbers"
        extents = [e for _, e in reduction.axes]
        known = math.prod(e for e in extents if isinstance(e, int))
        points = known if all(isinstance(e, int) for e in extents) else LARGEST
        if points - 1 > integer_limits(stage.dtype)[1]:
            return f"{stage.dtype.name} cannot hold the last of {points} positions"
        return None
    elif reduction.combiner not in COMBINERS:
        return f"no reduction is called {reduction.combiner!r}"
    elif not reduction.record.accepts(result):
        return f"{reduction.combiner} does not take {result.name}"
    if result is not stage.dtype.compute:
        return f"the body gives {result.name} for a {stage.dtype.name} tensor"
    return None


def _check_body(
    stage: Stage, known: Mapping[str, Tensor], reach: dict[str, Interval]
) -> Fault | None:
    name, body = f"%{stage.name}", stage.body
    count = len(body.instructions)
    if not 0 <= body.result < count or not (body.guard is None or 0 <= body.guard < count):
        return Fault(name, "its result or its guard is no value", stage.span)
    ranges = Ranges(stage, reach)
    types: list[T] = []
    for number, instruction in enumerate(body.instructions):
        node = f"{name}, value {number}"
        numbers = operands(instruction)
        if numbers and not 0 <= min(numbers) <= max(numbers) < number:
            return Fault(node, "an operand is not defined before it", stage.span)
        given = [types[o] for o in numbers]
        why = check_types(instruction, given)
        why = why or _check_instruction(stage, instruction, ranges, known)
        if why:
            return Fault(node, why, stage.span)
        ranges.add(instruction)
        types.append(value_type(instruction))
    if body.guard is not None and value_type(body.instructions[body.guard]) is not T.BOOL:
        return Fault(name, "its guard is no BOOL", stage.span)
    if Body.make(body.instructions, body.result, body.guard) != body:
        return Fault(name, "its body is not in canonical form", stage.span)
    held = stage_range(stage, ranges)
    if held is not None:
        reach[stage.name] = held
    return None


def _note_range(stage: Stage, reach: dict[str, Interval]) -> None:
    """Records the interval of an integer stage that is not checked again, for later stages."""
    held = stage_range(stage, Ranges.of(stage, reach)) if stage.dtype.is_integer else None
    if held is not None:
        reach[stage.name] = held


def _check_instruction(
    stage: Stage, instruction: Instruction, ranges: Ranges, known: Mapping[str, Tensor]
) -> str | None:
    """Error of an instruction whose operands have valid types."""
    match instruction:
        case Index():
            found = stage.extent(instruction)
            return None if found is not None else f"there is no axis {instruction.name}"
        case Symbol():
            return _check_size(instruction.name)
        case Step(steps=str(steps)):
            return _check_size(steps)
        case Load():
            return _check_load(stage, instruction, ranges, known)
        case _:
            return None


def _check_load(
    stage: Stage, load: Load, ranges: Ranges, known: Mapping[str, Tensor]
) -> str | None:
    tensor = known.get(load.tensor)
    if tensor is None:
        return f"%{load.tensor} is not defined before it"
    why = check_rank(tensor, len(load.indices))
    if why is not None:
        return why
    if load.dtype is not tensor.dtype.compute:
        return f"a load of %{load.tensor} gives {tensor.dtype.compute.name}"
    for axis, (low, high) in find_outside(stage, load, ranges, tensor.extents):
        size = tensor.extents[axis]
        if isinstance(size, str):
            return f"%{load.tensor} may be left: axis {axis} has the run-time size '{size}'"
        return f"%{load.tensor} is left: axis {axis} has size {size}, read at {low} to {high}"
    return None


# Results -----------------------------------------------------------------------------------


def _check_results(function: Function) -> Fault | None:
    stages = {s.name: s for s in function.stages}
    symbols = function.symbols()
    seen: list[str] = []
    for result in function.results:
        name = f"result %{result.name}"
        stage = stages.get(result.name)
        if stage is None:
            return Fault(name, "no stage defines it", function.span)
        if result.name in seen:
            return Fault(name, "it is given twice", stage.span)
        seen.append(result.name)
        why = _check_strides(stage.extents, result.strides)
        for symbol in find_symbols(result.strides or ()):
            if symbol not in symbols:
                why = why or f"'{symbol}' is no parameter's size"
        if not why and result.strides is not None and overlaps(stage.extents, result.strides):
            why = "its elements overlap in memory"
        if why:
            return Fault(name, why, stage.span)
    return None


def check_in_place(function: Function, pairs: Sequence[tuple[str, str]]) -> Fault | None:
    """First fault of a (result, parameter) pair that may not share memory: their layouts differ, or
    an element of the parameter is read at another index than its own. None if all pairs may."""
    expect("function", function, Function, "an ir.Function")
    return next(iter(find_unsound_pairs(function, _read_pairs(pairs)).values()), None)


def find_unsound_pairs(
    function: Function, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Fault]:
    """Pairs that may not share memory, each with its fault."""
    if not pairs:
        return {}
    parameters = {p.name: p for p in function.parameters}
    elsewhere: dict[str, Stage] = {}
    """For each tensor the first stage, if any, that reads it at another index than its own."""
    for stage in function.stages:
        for load in stage.body.loads():
            if load.tensor not in elsewhere and not is_own_place(stage, load):
                elsewhere[load.tensor] = stage
    found: dict[tuple[str, str], Fault] = {}
    for pair in pairs:
        result, parameter = function.result(pair[0]), parameters.get(pair[1])
        stage, other = function.stage(pair[0]), elsewhere.get(pair[1])
        if result is None or parameter is None or stage is None:
            why, span = "they are not a result and a parameter", function.span
        elif not _have_one_layout(function, stage, result, parameter):
            why, span = "they differ in type, extents or strides", stage.span
        elif other is not None:
            why, span = f"%{other.name} reads it at other places", other.span
        else:
            continue
        found[pair] = Fault(f"in place %{pair[0]} over %{pair[1]}", why, span)
    return found


def _read_pairs(given: object) -> list[tuple[str, str]]:
    expected = "a list of pairs of a result's name and a parameter's"
    pairs: list[tuple[str, str]] = []
    for pair in expect_items("pairs", given, expected):
        names = cast("tuple[object, ...]", pair) if isinstance(pair, tuple) else ()
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise wrong_kind("pairs", expected, given)
        pairs.append(cast("tuple[str, str]", names))
    return pairs


def _have_one_layout(
    function: Function, stage: Stage, result: Result, parameter: Parameter
) -> bool:
    if (stage.dtype, stage.extents) != (parameter.dtype, parameter.extents):
        return False
    if result.strides == parameter.strides or 0 in stage.extents:
        return True
    ours, theirs = function.strides(stage.name), function.strides(parameter.name)
    # The stride of an axis of one element is never used.
    return all(a == b for a, b, n in zip(ours, theirs, stage.extents, strict=True) if n != 1)
