"""Finite differences of a forward function in float64, to check gradients.

The operators of the library compute in at most 32 bits, where rounding drowns the differences. So a
bound function is widened: the same stages, with FLOAT64 for every float.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Instruction,
    Load,
    Loop,
    Parameter,
    Select,
    Stage,
    verify,
)
from dmlc.parameters import expect, expect_mapping, expect_text
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import check_known

_Tensor = TypeVar("_Tensor", Parameter, Stage)


def widen_floats(function: Function, least: DataType = DataType.FLOAT64) -> Function:
    """Function with every floating tensor and value in FLOAT64, or with types below `least`
    replaced by `least`; constants keep their values."""
    expect("function", function, Function, "an ir.Function")
    expect("least", least, DataType, "a data type")
    widened = dataclasses.replace(
        function,
        parameters=tuple(_widen_tensor(p, least) for p in function.parameters),
        stages=tuple(
            dataclasses.replace(_widen_tensor(s, least), body=_widen_body(s.body, least))
            for s in function.stages
        ),
        in_place=(),
        loops=tuple(_widen_loop(loop, least) for loop in function.loops),
    )
    verify(widened, "widen_floats")
    return widened


def _wide(dtype: DataType, least: DataType) -> DataType:
    return least if dtype.is_float and dtype.bytes < least.bytes else dtype


def _widen_loop(loop: Loop, least: DataType) -> Loop:
    delays = (dataclasses.replace(d, dtype=_wide(d.dtype, least)) for d in loop.delays)
    return dataclasses.replace(loop, delays=tuple(delays))


def _widen_tensor(tensor: _Tensor, least: DataType) -> _Tensor:
    return dataclasses.replace(tensor, dtype=_wide(tensor.dtype, least))


def _widen_body(body: Body, least: DataType) -> Body:
    return body.map(lambda instruction: _widen_instruction(instruction, least))


def _widen_instruction(instruction: Instruction, least: DataType) -> Instruction:
    if isinstance(instruction, Constant | Load | Apply | Select | Cast):
        return dataclasses.replace(instruction, dtype=_wide(instruction.dtype, least))
    return instruction


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Gradient by finite differences, with its error: infinite at a kink."""

    gradient: Array
    allowed: Array


def measure_gradient(
    function: Function,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    with_respect_to: str,
    step: float = 1e-5,
) -> Slopes:
    """Gradient of `sum(weight * result)`, over the results that have weights, with respect to one
    input: central differences, element by element. Its error is estimated from three sources: the
    change when the step is doubled, rounding, and the difference of the one-sided slopes. Floating
    inputs and weights may have any float type."""
    moving = _Moving(function, inputs, weights, with_respect_to)
    expect("step", step, float, "a small number")
    above, below, middle = moving.sample(step), moving.sample(-step), moving.find()
    twice = (moving.sample(2 * step) - moving.sample(-2 * step)) / (4 * step)
    gradient = (above - below) / (2 * step)
    rounding = 16 * 2.0**-52 * moving.size() / step
    with np.errstate(all="ignore"):
        bend = np.abs(above - 2 * middle + below) / step
        kinked = ~(bend <= 1e-2 * np.abs(gradient) + 1e-4 + 4 * rounding)
        allowed = 4 * np.abs(gradient - twice) + 1e-9 * np.abs(gradient) + rounding
    return Slopes(gradient, np.where(kinked, np.inf, allowed))


class _Moving:
    """Weighted sum of a widened function's results, as a function of one input."""

    def __init__(
        self,
        function: Function,
        inputs: Mapping[str, Array],
        weights: Mapping[str, Array],
        moved: str,
    ) -> None:
        self.function = widen_floats(function)
        expect_mapping("inputs", inputs, "a mapping of inputs' names to arrays")
        expect_mapping("weights", weights, "a mapping of results' names to arrays")
        expect_text("with_respect_to", moved, "the name of an input")
        for what, known, names in (
            ("input", inputs, [moved]),
            ("result", [r.name for r in function.results], list(weights)),
        ):
            check_known(what, known, *names)
        floats = {p.name for p in function.parameters if p.dtype.is_float}
        self.given = {n: np.array(a, np.float64) if n in floats else a for n, a in inputs.items()}
        self.weights = weights
        self.moved = self.given[moved]

    def find(self) -> float:
        """Sum at the unchanged inputs."""
        results = evaluate(self.function, self.given)
        return sum(float((w * results[name]).sum()) for name, w in self.weights.items())

    def size(self) -> float:
        """Sum of the terms' magnitudes."""
        results = evaluate(self.function, self.given)
        return sum(float(np.abs(w * results[name]).sum()) for name, w in self.weights.items())

    def sample(self, offset: float) -> Array:
        """Sum with each element of the input, one at a time, moved by `offset`."""
        found = np.zeros(self.moved.shape)
        for place in np.ndindex(self.moved.shape):
            kept = self.moved[place]
            self.moved[place] = kept + offset
            found[place] = self.find()
            self.moved[place] = kept
        return found
