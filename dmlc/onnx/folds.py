"""Reductions as nodes of ONNX, along the axes after a stage's domain.

Several nodes express what ONNX or its runtimes leave open: NaN in a maximum, the first of equal
values, integers beyond 53 bits."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from dmlc.onnx.arithmetic import Arithmetic
from dmlc.onnx.nodes import Value
from dmlc.scalars import COMBINERS, DataType

_MOST_SUMMED = 1 << 20
"""Integers of at most 32 bits whose sum has no more than 53."""


class Folds:
    """Adds the nodes of one stage's reductions. `extents` are the sizes of its domain, of that
    rank, and of the axes of its reduction."""

    def __init__(self, arithmetic: Arithmetic, extents: tuple[int, ...], rank: int) -> None:
        self.arithmetic = arithmetic
        self.nodes = arithmetic.nodes
        self.extents = extents
        self.rank = rank

    def whole_rank(self, value: Value) -> Value:
        """Value with an axis for each index."""
        missing = len(self.extents) - len(value.shape)
        return self.nodes.reshape(value, (*[1] * missing, *value.shape))

    def spread(self, value: Value) -> Value:
        """Value broadcast to all points of the reduction."""
        value = self.whole_rank(value)
        rank = self.rank
        return self.nodes.expand(value, (*value.shape[:rank], *self.extents[rank:]))

    def fold(self, combiner: str, dtype: DataType, value: Value) -> Value:
        """Reduction of a value by a combiner."""
        rank = self.rank
        value = self.spread(value) if combiner in ("sum", "product") else self.whole_rank(value)
        if math.prod(value.shape[rank:]) == 1:
            return self.nodes.reshape(value, value.shape[:rank])
        match combiner:
            case "any" | "all":
                found = self._add(COMBINERS[combiner].onnx, self._number(value))
                return self.arithmetic.test("Greater", found, self.arithmetic.like(found, 0))
            case "sum" if not dtype.is_float:
                return self.arithmetic.wrap(self._sum_whole(dtype, value), dtype)
            case "product" if not dtype.is_float:
                return self._multiply_whole(dtype, value)
            case "sum" | "product":
                return self._add(COMBINERS[combiner].onnx, value)
            case _:
                ordered = self.arithmetic.ordered(value, dtype)
                found = self._add(COMBINERS[combiner].onnx, ordered)
                if dtype.is_float:
                    return self._keep_nan(value, found)
                return self.arithmetic.ordered(found, dtype)

    def _sum_whole(self, dtype: DataType, value: Value) -> Value:
        """Sum of integers, exact although onnxruntime adds in FLOAT64, which holds 53 bits."""
        wide = self.arithmetic.as_element(value, TensorProto.INT64)
        count = math.prod(self.extents[self.rank :])
        if dtype.bytes < 8 and count <= _MOST_SUMMED:
            total = self._add("ReduceSum", wide)
        else:
            line = self._line_up(wide)
            ones = self.nodes.constant(np.ones(count, np.int64), f"{self.nodes.scope}_ones")
            total = self.nodes.add("MatMul", [line, ones], wide.element, line.shape[:-1])
        return self.arithmetic.as_element(total, value.element)

    def _multiply_whole(self, dtype: DataType, value: Value) -> Value:
        """Product of integers by halving, as onnxruntime computes its own in FLOAT64."""
        line = self._line_up(value)
        while line.shape[-1] > 1:
            count = line.shape[-1]
            half = count // 2
            parts = [self._slice(line, at, at + half) for at in (0, half)]
            product = self.arithmetic.wrap(self.arithmetic.add("Mul", *parts), dtype)
            if count % 2:
                product = self._append_last(product, self._slice(line, count - 1, count))
            line = product
        return self.nodes.reshape(line, line.shape[:-1])

    def _append_last(self, line: Value, last: Value) -> Value:
        """Vector with one more number at its end."""
        rank, size = len(line.shape) - 1, line.shape[-1] + 1
        shape = (*line.shape[:-1], size)
        return self.nodes.add("Concat", [line, last], line.element, shape, axis=rank)

    def _slice(self, line: Value, start: int, end: int) -> Value:
        """Slice of a value's last axis."""
        ends = [self.nodes.sizes([number]) for number in (start, end, len(line.shape) - 1)]
        shape = (*line.shape[:-1], end - start)
        return self.nodes.add("Slice", [line, *ends], line.element, shape)

    def _line_up(self, value: Value) -> Value:
        """Value whose reduced axes are merged into one, the last."""
        rank = self.rank
        points = math.prod(self.extents[rank:])
        return self.nodes.reshape(value, (*value.shape[:rank], points))

    def _keep_nan(self, value: Value, found: Value) -> Value:
        """Largest or smallest of floats, or NaN if one of them is."""
        odd = self._number(self.arithmetic.test("IsNaN", value))
        some = self._add("ReduceMax", odd)
        some = self.arithmetic.test("Greater", some, self.arithmetic.like(some, 0))
        return self.arithmetic.where(some, self.arithmetic.like(found, math.nan), found)

    def _number(self, condition: Value) -> Value:
        """Condition as 1 or 0."""
        return self.arithmetic.as_element(condition, TensorProto.INT32)

    def _add(self, operator: str, value: Value, keep: bool = False) -> Value:
        """Reduction of ONNX over the axes of the stage's reduction."""
        rank = self.rank
        axes = self.nodes.sizes(range(rank, len(self.extents)))
        shape = value.shape[:rank]
        if keep:
            shape = (*shape, *[1] * (len(self.extents) - rank))
        return self.nodes.add(operator, [value, axes], value.element, shape, keepdims=int(keep))

    def find_position(
        self, combiner: str, dtype: DataType, value: Value, guard: Value | None
    ) -> Value:
        """Linear index of the first most extreme point; 0 if there are no points."""
        if guard is not None:
            identity = self.arithmetic.identity(combiner, dtype)
            value = self.arithmetic.where(guard, value, identity)
        value = self.spread(value)
        ordered = self.arithmetic.ordered(value, dtype)
        best = self._add(COMBINERS[combiner].onnx, ordered, keep=True)
        hits = self.arithmetic.test("Equal", ordered, best)
        if dtype.is_float:
            odd = self.arithmetic.test("IsNaN", value)
            some = self._add("ReduceMax", self._number(odd), keep=True)
            some = self.arithmetic.test("Greater", some, self.arithmetic.like(some, 0))
            hits = self.arithmetic.where(some, odd, hits)
        if guard is not None:
            hits = self.arithmetic.test("And", hits, guard)
        rank = self.rank
        line = self._number(self._line_up(hits))
        shape = line.shape[:rank]
        return self.nodes.add("ArgMax", [line], TensorProto.INT64, shape, axis=rank, keepdims=0)
