"""Says which tensor IR is well formed. It runs after every pass: what it finds is a bug of dmlc,
an `InternalError` that names the pass, the node and where the node came from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Parameter,
    Select,
    Stage,
    operands,
    packed_strides,
    value_type,
)
from dmlc.scalars import COMBINERS, Operands
from dmlc.scalars import DataType as T
from dmlc.source import InternalError, Span

ARGUMENT_COMBINERS = ("argmin", "argmax")
"""Reductions that give a position: their stage holds integers, whatever the body's type."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_UNKNOWN = (-math.inf, math.inf)
_Interval = tuple[float, float]


def verify(function: Function, pass_name: str = "") -> None:
    """Raises `InternalError` if the function breaks a rule of the IR."""
    _Verifier(function, pass_name).run()


class _Verifier:
    def __init__(self, function: Function, pass_name: str) -> None:
        self.function = function
        self.pass_name = pass_name

    def fail(self, node: str, why: str, span: Span | None = None) -> NoReturn:
        after = f" after {self.pass_name}" if self.pass_name else ""
        place = ""
        if span is not None:
            place = f" ({span.source.name}:{span.line}:{span.column})"
        raise InternalError(f"broken IR{after}: @{self.function.name}, {node}: {why}{place}")

    def run(self) -> None:
        function = self.function
        if not _NAME.fullmatch(function.name):
            self.fail("function", f"{function.name!r} is no name", function.span)
        known: dict[str, Parameter | Stage] = {}
        for parameter in function.parameters:
            self.check_parameter(parameter)
            self.define(parameter, known)
        symbols = {e for p in function.parameters for e in p.extents if isinstance(e, str)}
        for stage in function.stages:
            self.check_stage(stage, known, symbols)
            self.define(stage, known)
        self.check_results()
        self.check_in_place()

    def define(self, node: Parameter | Stage, known: dict[str, Parameter | Stage]) -> None:
        if not _NAME.fullmatch(node.name):
            self.fail(f"%{node.name}", "this is no name", node.span)
        if node.name in known:
            self.fail(f"%{node.name}", "defined twice", node.span)
        if node.dtype is T.INDEX:
            self.fail(f"%{node.name}", "a tensor holds no INDEX", node.span)
        known[node.name] = node

    def check_extents(self, name: str, extents: tuple[Extent, ...], span: Span | None) -> None:
        for extent in extents:
            if isinstance(extent, int) and extent < 0:
                self.fail(name, f"extent {extent} is negative", span)
            if isinstance(extent, str) and not _NAME.fullmatch(extent):
                self.fail(name, f"{extent!r} is no symbol", span)

    def check_parameter(self, parameter: Parameter) -> None:
        name = f"%{parameter.name}"
        self.check_extents(name, parameter.extents, parameter.span)
        strides = parameter.strides
        if strides is None:
            return
        if len(strides) != len(parameter.extents):
            self.fail(name, "as many strides as extents are needed", parameter.span)
        if any(isinstance(e, str) for e in parameter.extents):
            self.fail(name, "a tensor of run-time size is packed", parameter.span)
        if any(s < 0 for s in strides):
            self.fail(name, "a stride is negative", parameter.span)

    # Stages -------------------------------------------------------------------------------

    def check_stage(
        self, stage: Stage, known: Mapping[str, Parameter | Stage], symbols: set[str]
    ) -> None:
        name = f"%{stage.name}"
        self.check_extents(name, stage.domain, stage.span)
        reduction = stage.reduction
        axes = () if reduction is None else reduction.axes
        self.check_extents(name, tuple(e for _, e in axes), stage.span)
        for extent in (*stage.domain, *(e for _, e in axes)):
            if isinstance(extent, str) and extent not in symbols:
                self.fail(name, f"symbol '{extent}' is no parameter's size", stage.span)
        if len({label for label, _ in axes}) != len(axes):
            self.fail(name, "two reduction axes share a label", stage.span)
        body = stage.body
        self.check_body(stage, body, known)
        result = body.dtype
        if reduction is None:
            if body.guard is not None:
                self.fail(name, "a guard needs a reduction", stage.span)
        elif reduction.combiner in ARGUMENT_COMBINERS:
            if not stage.dtype.is_integer or not Operands.NUMBER.accept(result):
                self.fail(name, f"{reduction.combiner} gives integers, from numbers", stage.span)
            return
        elif reduction.combiner not in COMBINERS:
            self.fail(name, f"no reduction is called {reduction.combiner!r}", stage.span)
        elif not COMBINERS[reduction.combiner].operands.accept(result):
            self.fail(name, f"{reduction.combiner} does not take {result.name}", stage.span)
        if result is not stage.dtype.compute:
            self.fail(
                name, f"the body gives {result.name} for a {stage.dtype.name} tensor", stage.span
            )

    def check_body(self, stage: Stage, body: Body, known: Mapping[str, Parameter | Stage]) -> None:
        name = f"%{stage.name}"
        count = len(body.instructions)
        if not 0 <= body.result < count or not (body.guard is None or 0 <= body.guard < count):
            self.fail(name, "the result or the guard is no value", stage.span)
        ranges: list[_Interval] = []
        for number, instruction in enumerate(body.instructions):
            node = f"{name}, value {number}"
            if any(not 0 <= o < number for o in operands(instruction)):
                self.fail(node, "an operand is not defined before it", stage.span)
            given = [value_type(body.instructions[o]) for o in operands(instruction)]
            why = self.check_instruction(stage, instruction, given, ranges, known)
            if why:
                self.fail(node, why, stage.span)
            ranges.append(_range(stage, instruction, ranges))
        if body.guard is not None and value_type(body.instructions[body.guard]) is not T.BOOL:
            self.fail(name, "the guard is no BOOL", stage.span)
        if Body.make(body.instructions, body.result, body.guard) != body:
            self.fail(name, "the body is not in canonical form", stage.span)

    def check_instruction(
        self,
        stage: Stage,
        instruction: Instruction,
        given: list[T],
        ranges: list[_Interval],
        known: Mapping[str, Parameter | Stage],
    ) -> str | None:
        """What is wrong with an instruction, if anything."""
        match instruction:
            case Constant():
                return _check_constant(instruction)
            case Index():
                return _check_index(stage, instruction)
            case Load():
                if any(dtype is not T.INDEX for dtype in given):
                    return "a position is no INDEX"
                return _check_load(stage, instruction, ranges, known)
            case Apply():
                operation = instruction.operation
                if len(given) != operation.arity:
                    return f"{operation.name} takes {operation.arity} operands"
                if len(set(given)) > 1:
                    return f"the operands of {operation.name} have different types"
                if not operation.operands.accept(given[0]):
                    return f"{operation.name} does not take {given[0].name}"
                if given[0].is_storage_only:
                    return "a value has a storage type"
                if instruction.dtype is not operation.result_type(given[0]):
                    return f"{operation.name} does not give {instruction.dtype.name}"
            case Select():
                if given[0] is not T.BOOL:
                    return "the condition is no BOOL"
                if given[1] is not given[2] or instruction.dtype is not given[1]:
                    return "the branches of a select differ in type"
            case Cast():
                if instruction.dtype.is_storage_only:
                    return "a value has a storage type"
        return None

    # Results ------------------------------------------------------------------------------

    def check_results(self) -> None:
        function = self.function
        names = [r.name for r in function.results]
        if len(set(names)) != len(names):
            self.fail("results", "a result is named twice", function.span)
        for result in function.results:
            stage = function.stage(result.name)
            if stage is None:
                self.fail(f"result %{result.name}", "no stage defines it", function.span)
            if result.strides is None:
                continue
            if len(result.strides) != len(stage.domain) or any(s < 0 for s in result.strides):
                self.fail(f"result %{result.name}", "its strides do not fit", stage.span)
            sizes = [e for e in stage.domain if isinstance(e, int)]
            if len(sizes) != len(stage.domain):
                self.fail(f"result %{result.name}", "run-time sizes are packed", stage.span)
            if overlaps(tuple(sizes), result.strides):
                self.fail(f"result %{result.name}", "its elements overlap", stage.span)

    def check_in_place(self) -> None:
        function = self.function
        for result_name, parameter_name in function.in_place:
            node = f"in place %{result_name} over %{parameter_name}"
            stage, parameter = function.stage(result_name), function.parameter(parameter_name)
            result = next((r for r in function.results if r.name == result_name), None)
            if stage is None or parameter is None or result is None:
                self.fail(node, "not a result and a parameter", function.span)
            same = (stage.dtype, stage.domain) == (parameter.dtype, parameter.extents)
            if not same or _layout(stage.domain, result.strides) != _layout(
                parameter.extents, parameter.strides
            ):
                self.fail(node, "they differ in type, extents or strides", stage.span)
            for other in function.stages:
                for load in other.body.loads():
                    if load.tensor == parameter_name and not _reads_own_place(other, load):
                        self.fail(node, f"%{other.name} reads it elsewhere", other.span)


def overlaps(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements of a tensor of these sizes and strides may share memory.

    True for every layout that overlaps, and for the rare interleaved ones that do not.
    """
    if 0 in sizes:
        return False
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _layout(extents: tuple[Extent, ...], strides: tuple[int, ...] | None) -> object:
    sizes = tuple(e for e in extents if isinstance(e, int))
    if len(sizes) != len(extents):
        return extents
    steps = strides or packed_strides(sizes)
    return tuple((n, s) for n, s in zip(sizes, steps, strict=True) if n != 1)


def _reads_own_place(stage: Stage, load: Load) -> bool:
    """Whether a load is at the very element that the stage is computing."""
    if stage.reduction is not None or len(load.indices) != len(stage.domain):
        return False
    for axis, number in enumerate(load.indices):
        position = stage.body.instructions[number]
        fixed = isinstance(position, Constant) and stage.domain[axis] == 1
        if position != Index(axis) and not fixed:
            return False
    return True


def _check_constant(constant: Constant) -> str | None:
    dtype, value = constant.dtype, constant.value
    if dtype.is_storage_only:
        return "a value has a storage type"
    if dtype is T.BOOL:
        return None if isinstance(value, bool) else "a BOOL is true or false"
    if isinstance(value, bool):
        return f"{value} is no {dtype.name}"
    if dtype.is_float:
        if not isinstance(value, float):
            return f"{value!r} is no {dtype.name}"
        if dtype is T.FLOAT32 and math.isfinite(value):
            with np.errstate(over="ignore"):
                return None if float(np.float32(value)) == value else f"{value!r} is no FLOAT32"
        return None
    limits = np.iinfo(dtype.dtype)
    if not isinstance(value, int) or not limits.min <= value <= limits.max:
        return f"{value!r} is no {dtype.name}"
    return None


def _extent_of(stage: Stage, index: Index) -> Extent | None:
    if not index.reduced:
        return stage.domain[index.axis] if 0 <= index.axis < len(stage.domain) else None
    axes = dict(stage.reduction.axes) if stage.reduction is not None else {}
    return axes.get(index.axis)


def _check_index(stage: Stage, index: Index) -> str | None:
    return None if _extent_of(stage, index) is not None else f"there is no axis {index.name}"


def _check_load(
    stage: Stage,
    load: Load,
    ranges: list[_Interval],
    known: Mapping[str, Parameter | Stage],
) -> str | None:
    tensor = known.get(load.tensor)
    if tensor is None:
        return f"%{load.tensor} is not defined before it"
    extents = tensor.extents if isinstance(tensor, Parameter) else tensor.domain
    if len(load.indices) != len(extents):
        return f"%{load.tensor} has {len(extents)} axes"
    if load.dtype is not tensor.dtype.compute:
        return f"a load of %{load.tensor} gives {tensor.dtype.compute.name}"
    empty = 0 in stage.domain or any(
        e == 0 for _, e in (stage.reduction.axes if stage.reduction else ())
    )
    for axis, (number, extent) in enumerate(zip(load.indices, extents, strict=True)):
        position = stage.body.instructions[number]
        if isinstance(extent, str):
            if not isinstance(position, Index) or _extent_of(stage, position) != extent:
                return f"axis {axis} of %{load.tensor} may be left: its size is '{extent}'"
            continue
        low, high = ranges[number]
        if not empty and not (low >= 0 and high < extent):
            return f"axis {axis} of %{load.tensor} has size {extent}, read at {low} to {high}"
    return None


def _range(stage: Stage, instruction: Instruction, ranges: list[_Interval]) -> _Interval:
    """The smallest and the largest value of an INDEX, as far as this can tell."""
    if value_type(instruction) is not T.INDEX:
        return _UNKNOWN
    match instruction:
        case Constant():
            return float(instruction.value), float(instruction.value)
        case Index():
            extent = _extent_of(stage, instruction)
            return (0.0, float(extent - 1)) if isinstance(extent, int) else (0.0, math.inf)
        case Select():
            a, b = ranges[instruction.then], ranges[instruction.otherwise]
            return min(a[0], b[0]), max(a[1], b[1])
        case Apply():
            return _combine(instruction.operation.name, [ranges[o] for o in instruction.operands])
        case _:
            return _UNKNOWN


def _combine(name: str, given: list[_Interval]) -> _Interval:
    (a, b), (c, d) = given[0], given[-1]
    if math.inf in (abs(a), abs(b), abs(c), abs(d)) and name not in ("min", "max"):
        return _UNKNOWN
    match name:
        case "add":
            return a + c, b + d
        case "sub":
            return a - d, b - c
        case "mul":
            ends = (a * c, a * d, b * c, b * d)
            return min(ends), max(ends)
        case "neg":
            return -b, -a
        case "min":
            return min(a, c), min(b, d)
        case "max":
            return max(a, c), max(b, d)
        case "div" if c == d and c > 0:
            return float(int(a / c)), float(int(b / c))
        case "mod" if c == d and c > 0:
            return (0.0 if a >= 0 else -(c - 1)), (c - 1 if b >= 0 else 0.0)
        case _:
            return _UNKNOWN
