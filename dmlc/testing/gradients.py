"""Checks gradients against differences of the forward function, in float64.

The operators of the library compute in 32 bits at most, in which differences drown in rounding.
So a bound function is widened: the same stages, with every float a FLOAT64.
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
    Parameter,
    Select,
    Stage,
    verify,
)
from dmlc.parameters import expect, expect_mapping, expect_text
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import UnknownNameError, unknown_name

_Tensor = TypeVar("_Tensor", Parameter, Stage)


def widen_floats(function: Function) -> Function:
    """The same function with every floating tensor and value in FLOAT64; constants keep the value
    they have."""
    expect("function", function, Function, "an ir.Function")
    widened = dataclasses.replace(
        function,
        parameters=tuple(_widen_tensor(p) for p in function.parameters),
        stages=tuple(
            dataclasses.replace(_widen_tensor(s), body=_widen_body(s.body)) for s in function.stages
        ),
        in_place=(),
    )
    verify(widened, "widen_floats")
    return widened


def _wide(dtype: DataType) -> DataType:
    return DataType.FLOAT64 if dtype.is_float else dtype


def _widen_tensor(tensor: _Tensor) -> _Tensor:
    return dataclasses.replace(tensor, dtype=_wide(tensor.dtype))


def _widen_body(body: Body) -> Body:
    made = [_widen_instruction(i) for i in body.instructions]
    return Body.make(made, body.result, body.guard)


def _widen_instruction(instruction: Instruction) -> Instruction:
    if isinstance(instruction, Constant | Load | Apply | Select | Cast):
        return dataclasses.replace(instruction, dtype=_wide(instruction.dtype))
    return instruction


def difference_gradient(
    function: Function,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    with_respect_to: str,
    step: float = 1e-5,
) -> Array:
    """The gradient of `sum(weight * result)`, over the results that have weights, with respect to
    one input: central differences, element by element, with errors of about `step` squared.

    Floating inputs and weights are given in any float type.
    """
    widened = widen_floats(function)
    expect_mapping("inputs", inputs, "a mapping of inputs' names to arrays")
    expect_mapping("weights", weights, "a mapping of results' names to arrays")
    expect("step", step, float, "a small number")
    expect_text("with_respect_to", with_respect_to, "the name of an input")
    for what, known, names in (
        ("input", inputs, [with_respect_to]),
        ("result", [r.name for r in function.results], list(weights)),
    ):
        for name in names:
            if name not in known:
                raise UnknownNameError(unknown_name(what, name, known))
    floats = {p.name for p in function.parameters if p.dtype.is_float}
    given = {n: np.array(a, np.float64) if n in floats else a for n, a in inputs.items()}
    moved = given[with_respect_to]
    gradient = np.zeros(moved.shape)
    for place in np.ndindex(moved.shape):
        kept = moved[place]
        sides: list[float] = []
        for offset in (step, -step):
            moved[place] = kept + offset
            results = evaluate(widened, given)
            sides.append(sum(float((w * results[name]).sum()) for name, w in weights.items()))
        moved[place] = kept
        gradient[place] = (sides[0] - sides[1]) / (2 * step)
    return gradient
