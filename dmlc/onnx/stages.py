"""Stages of the tensor IR as nodes over whole tensors.

A body is computed over the points of its stage: the domain, followed by the axes of its reduction.
A value has an axis for each index, of size 1 if it does not depend on it. An index-only value is a
constant, evaluated here, unless it has many elements. The reduction comes last, over its own
axes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import string
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
    Step,
    Symbol,
    operands,
    value_type,
)
from dmlc.ir.index import IndexFacts, reach_back
from dmlc.onnx.arithmetic import Arithmetic, hold
from dmlc.onnx.convolutions import find_convolution
from dmlc.onnx.folds import Folds
from dmlc.onnx.nodes import Value
from dmlc.onnx.places import split_sum
from dmlc.onnx.reads import MOST_KNOWN, Position, Reader
from dmlc.scalars import Array, DataType
from dmlc.source import InternalError

_MOST_AT_ONCE = 1 << 22
"""Points of a contraction with conditions, beyond which it is taken apart."""
_MOST_PARTS = 1 << 8
"""The parts it may be taken into."""


class StageLowering:
    """Adds the nodes of one stage. `tensors` are the tensors that it may load, as they are held;
    `tables` the elements of those that are known."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        stage: Stage,
        tensors: Mapping[str, Value],
        tables: Mapping[str, Array],
    ) -> None:
        self.nodes = arithmetic.nodes
        self.arithmetic = arithmetic
        self.reader = Reader(self.arithmetic)
        self.stage = stage
        self.tensors = tensors
        self.tables = tables
        self.facts = IndexFacts(stage, tables)
        self.body: Body = stage.body
        self.indices = stage.indices
        self.extents = tuple(_known_extent(stage, index) for index in stage.indices)
        self.domain = self.extents[: len(stage.extents)]
        self.folds = Folds(self.arithmetic, self.extents, len(self.domain))
        self._found: dict[int, Array | Value] = {}

    def lower(self) -> Value:
        """Elements of the stage, as they are held, with the stage's extents."""
        stage = self.stage
        reduction = stage.reduction
        dtype = stage.dtype.compute
        if 0 in self.domain:
            return self.nodes.constant(hold(np.zeros(self.domain), dtype))
        if reduction is not None and 0 in self.extents:
            number = reduction.record.empty(dtype)
            whole = self.nodes.constant(hold(np.array(number, dtype.dtype), dtype))
        elif reduction is None:
            self._evaluate([self.body.result])
            whole = self._value(self.body.result)
        else:
            whole = self._reduce(reduction)
            if reduction.is_positional:
                whole = self.arithmetic.cast(whole, DataType.INDEX, dtype)
        return self.nodes.expand(whole, self.domain)

    # Bodies -----------------------------------------------------------------------------------

    def _evaluate(self, wanted: Sequence[int]) -> None:
        """Computes values of the body, after those that they depend on."""
        needed: set[int] = set()
        pending = list(wanted)
        while pending:
            value = pending.pop()
            if value in needed or value in self._found:
                continue
            known = self._evaluate_known(value)
            if known is not None:
                self._found[value] = known
                continue
            needed.add(value)
            pending += operands(self.body.instructions[value])
        for value in sorted(needed):
            self._found[value] = self._lower(self.body.instructions[value])

    def _evaluate_known(self, value: int) -> Array | None:
        """Index-only value, with an axis for each index; None if it has too many elements, and
        nodes compute the very same."""
        facts = self.facts
        if not facts.known[value]:
            return None
        over = facts.dependencies[value]
        found = facts.evaluate([value], over)
        if found is None:
            return None
        extents = dict(zip(self.indices, self.extents, strict=True))
        shape = [extents[index] if index in over else 1 for index in self.indices]
        array = np.broadcast_to(found[0], [extents[index] for index in over]).reshape(shape)
        few = array.size <= MOST_KNOWN or self._rounds(value)
        return array if few or (self._type(value) is DataType.INDEX and split_sum(array)) else None

    def _rounds(self, value: int) -> bool:
        """Whether nodes may compute other bits than the IR specifies."""
        made_of = (self.body.instructions[v] for v in reach_back(self.body.instructions, [value]))
        return any(isinstance(i, Apply) and i.operation.transcendental for i in made_of)

    def _lower(self, instruction: Instruction) -> Value:
        """Value of an instruction whose operands are computed."""
        match instruction:
            case Load():
                positions = [self._position(v) for v in instruction.indices]
                clamp = self.body.guard is not None
                tensor = self.tensors[instruction.tensor]
                return self.reader.read(tensor, positions, len(self.extents), clamp)
            case Apply():
                given = [self._value(v) for v in instruction.operands]
                dtype = self._type(instruction.operands[0])
                return self.arithmetic.apply(instruction.operation, given, dtype)
            case Select():
                return self.arithmetic.where(*map(self._value, operands(instruction)))
            case Cast():
                source = self._type(instruction.operand)
                given = self._value(instruction.operand)
                return self.arithmetic.cast(given, source, instruction.dtype)
            case Index():
                at = self.indices.index(instruction)
                shape = [n if axis == at else 1 for axis, n in enumerate(self.extents)]
                return self.nodes.constant(np.arange(self.extents[at]).reshape(shape))
            case Constant():
                return self.arithmetic.literal(instruction)
            case Symbol():
                raise InternalError(f"the size '{instruction.name}' is known at run time only")
            case Step():
                raise InternalError("a step of a loop has no node of its own")

    def _type(self, value: int) -> DataType:
        return value_type(self.body.instructions[value])

    def _position(self, value: int) -> Position:
        found = self._found[value]
        return found if isinstance(found, np.ndarray) else self.folds.whole_rank(found)

    def _value(self, value: int) -> Value:
        found = self._found[value]
        if isinstance(found, Value):
            return found
        held = hold(found, self._type(value))
        if held.size == 1:
            held = held.reshape(())
        kinds = {DataType.BOOL: "mask", DataType.INDEX: "positions"}
        wanted = f"{self.nodes.scope}_{kinds.get(self._type(value), 'table')}"
        return self.nodes.constant(held, wanted if held.ndim else None)

    # Reductions -------------------------------------------------------------------------------

    def _reduce(self, reduction: Reduction) -> Value:
        """Reduction, with an axis for each of the domain."""
        body, dtype, combiner = self.body, self.body.dtype, reduction.combiner
        extents = dict(zip(self.indices, self.extents, strict=True))
        convolution = find_convolution(self.stage, self.facts, extents, self.tensors)
        padded = convolution is not None and any(convolution.pads)
        if convolution is not None and (self.arithmetic.pads_with_zeros or not padded):
            return convolution.add(self.nodes, self.tensors, extents)
        guard = self._find_guard()
        if guard is not None and self._is_better_apart(reduction):
            return self._reduce_apart(reduction)
        positional = reduction.is_positional
        identity = None if positional else self.arithmetic.identity(combiner, dtype)
        # A condition on the domain alone is asked once for all the points.
        late = guard is not None and not positional and self._is_of_domain(guard)
        factors = self._find_factors(reduction) if guard is None or late else None
        if factors is not None:
            found = self._contract(*factors)
        else:
            self._evaluate([body.result])
            value = self._value(body.result)
            if identity is None:
                return self.folds.find_position(combiner, dtype, value, guard)
            if guard is not None and not late:
                value = self.arithmetic.where(guard, value, identity)
            found = self.folds.fold(combiner, dtype, value)
        if guard is None or identity is None or not late:
            return found
        guard = self.folds.whole_rank(guard)
        outer = self.nodes.reshape(guard, guard.shape[: len(self.domain)])
        return self.arithmetic.where(outer, found, identity)

    def _find_guard(self) -> Value | None:
        """Guard; None if it is always true."""
        if self.body.guard is None:
            return None
        self._evaluate([self.body.guard])
        found = self._found[self.body.guard]
        if isinstance(found, np.ndarray) and found.all():
            return None
        return self._value(self.body.guard)

    def _is_of_domain(self, value: Value) -> bool:
        rank = len(self.domain)
        return math.prod(self.folds.whole_rank(value).shape[rank:]) == 1

    # Contractions -----------------------------------------------------------------------------

    def _find_factors(self, reduction: Reduction) -> tuple[Value, Value] | None:
        """Factors of a sum of products, if each depends on an index that the other does not, so
        that there are far more products than factors."""
        product = self.body.instructions[self.body.result]
        named = isinstance(product, Apply) and product.operation.name == "mul"
        if reduction.combiner != "sum" or not self.body.dtype.is_float or not named:
            return None
        self._evaluate(operands(product))
        left, right = (self.folds.whole_rank(self._value(o)) for o in operands(product))
        rank, axes = len(self.domain), [_find_axes(left), _find_axes(right)]
        every = {at for at in range(rank, len(self.extents)) if self.extents[at] > 1}
        apart = axes[0] - axes[1] and axes[1] - axes[0]
        return (left, right) if apart and every <= axes[0] | axes[1] else None

    def _contract(self, left: Value, right: Value) -> Value:
        """Sum of products as one node, without the separate products."""
        rank, terms, given = len(self.domain), list[str](), list[Value]()
        for value in (left, right):
            axes = sorted(_find_axes(value))
            made = self.nodes.reshape(value, [value.shape[at] for at in axes])
            source, order = self.nodes.find_transposed(made)
            letters = {
                place: string.ascii_letters[at] for place, at in zip(order, axes, strict=True)
            }
            terms.append("".join(letters[place] for place in sorted(order)))
            given.append(source)
        axes = sorted(at for at in _find_axes(left) | _find_axes(right) if at < rank)
        whole = "".join(string.ascii_letters[at] for at in axes)
        shape = [self.extents[at] for at in axes]
        if _is_matrix_product(terms, whole):
            made = self.nodes.add("MatMul", given, left.element, shape)
        else:
            equation = f"{','.join(terms)}->{whole}"
            made = self.nodes.add("Einsum", given, left.element, shape, equation=equation)
        return self.nodes.reshape(
            made, [n if at in axes else 1 for at, n in enumerate(self.domain)]
        )

    def _is_better_apart(self, reduction: Reduction) -> bool:
        """Whether a contraction with a guard has too many products to compute them all, and would
        be a plain one without the guard."""
        if math.prod(self.extents) <= _MOST_AT_ONCE:
            return False
        asked = self._find_asked()
        parts = math.prod(self._extent(index) for index in asked)
        if not asked or parts > _MOST_PARTS or len(asked) == len(reduction.axes):
            return False
        return self._find_factors(reduction) is not None

    def _find_asked(self) -> list[Index]:
        """Axes of the reduction on which the guard depends."""
        guard = self.body.guard
        return [] if guard is None else [i for i in self.facts.dependencies[guard] if i.reduced]

    def _extent(self, index: Index) -> int:
        return self.extents[self.indices.index(index)]

    def _reduce_apart(self, reduction: Reduction) -> Value:
        """Sum in parts, one for each index along the axes on which the guard depends."""
        asked = self._find_asked()
        axes = tuple((n, e) for n, e in reduction.axes if Index(n, reduced=True) not in asked)
        total: Value | None = None
        for places in itertools.product(*(range(self._extent(index)) for index in asked)):
            at = dict(zip(asked, places, strict=True))
            body = _fix(self.body, at)
            part = dataclasses.replace(
                self.stage, body=body, reduction=Reduction(reduction.combiner, axes)
            )
            lowering = StageLowering(self.arithmetic, part, self.tensors, self.tables)
            made = lowering.reduce_some()
            if made is not None:
                total = made if total is None else self.arithmetic.add("Add", total, made)
        if total is None:
            return self.arithmetic.identity(reduction.combiner, self.body.dtype)
        return total

    def reduce_some(self) -> Value | None:
        """Reduction; None if the guard admits no points."""
        guard, reduction = self.body.guard, self.stage.reduction
        if guard is not None:
            self._evaluate([guard])
            found = self._found[guard]
            if isinstance(found, np.ndarray) and not found.any():
                return None
        return None if reduction is None else self._reduce(reduction)


def _find_axes(value: Value) -> set[int]:
    """Indices on which a value depends."""
    return {at for at, size in enumerate(value.shape) if size > 1}


def _is_matrix_product(terms: Sequence[str], whole: str) -> bool:
    """Whether the axes' letters are those of `MatMul`: a stack of matrices by a stack of
    matrices."""
    left, right = terms
    if len(left) < 2 or len(right) != len(left):
        return False
    inner = left[-1]
    columns = right[:-2] + left[-2] + right[-1]
    return right == f"{left[:-2]}{inner}{right[-1]}" and whole == columns and inner not in whole


def _fix(body: Body, places: Mapping[Index, int]) -> Body:
    """Body with constants in place of some indices."""
    return body.map(
        lambda i: Constant(DataType.INDEX, places[i]) if isinstance(i, Index) and i in places else i
    )


def _known_extent(stage: Stage, index: Index) -> int:
    extent = stage.extent(index)
    if not isinstance(extent, int):
        raise InternalError(f"%{stage.name}: {index.name} has no extent known here")
    return extent
