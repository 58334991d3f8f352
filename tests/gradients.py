"""Random functions to differentiate, and derived gradients held to differences in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.testing.gradients import widen_floats
from dmlc.transform.differentiate import Gradient, differentiate

Draw = Any

FLOAT = DataType.FLOAT64
UNARY = ("neg", "abs", "exp", "sin", "cos", "tanh", "sigmoid", "erf", "atan", "sqrt", "log1p")
BINARY = ("add", "sub", "mul", "div", "min", "max", "atan2", "pow")


def derive(function: ir.Function, wrt: Sequence[str] | None = None, **kept: str) -> Gradient:
    """The gradient of every result by some parameters, by default every one that holds floats:
    `g_X` by `X`, from `d_Y` for every `Y`."""
    results = [r.name for r in function.results if function.tensors()[r.name].dtype.is_float]
    if wrt is None:
        wrt = [p.name for p in function.parameters if p.dtype.is_float]
    given = {name: f"d_{name}_in" for name in results}
    return differentiate(function, wrt, given, {name: f"g_{name}" for name in wrt}, kept)


def is_moderate(function: ir.Function, inputs: Mapping[str, Array]) -> bool:
    """Whether all results are finite, and none so large that a sine of it goes through several
    periods within the step of a difference."""
    found = evaluate(function, inputs)
    return all((np.abs(a) <= 1e3).all() for a in found.values() if a.dtype.kind == "f")


def check_gradient(
    function: ir.Function,
    inputs: Mapping[str, Array],
    kept: Mapping[str, str] | None = None,
    step: float = 1e-6,
) -> ir.Function:
    """Holds the derived gradient of a function to differences along a random direction, in
    float64, where its results are finite. Gives the gradient.

    Differences at half the step say how far those at the step are from the slope: a formula that
    bends within a step is no reason to doubt its gradient."""
    wide = widen_floats(function)
    made = derive(wide, **(kept or {})).function
    floats = [p.name for p in wide.parameters if p.dtype.is_float]
    given = {n: np.asarray(a, np.float64) if n in floats else a for n, a in inputs.items()}
    results = evaluate(wide, given)
    source = np.random.default_rng(11)
    weights = {
        n: source.uniform(0.5, 1.5, a.shape) for n, a in results.items() if a.dtype.kind == "f"
    }
    held = {kept[n]: a for n, a in results.items() if kept is not None and n in kept}
    known = {**given, **held, **{f"d_{n}_in": w for n, w in weights.items()}}
    found = evaluate(made, {p.name: known[p.name] for p in made.parameters})
    for name in floats:
        way = source.uniform(-1, 1, given[name].shape)
        derived = float((found[f"g_{name}"] * way).sum())
        scale = float(np.abs(found[f"g_{name}"]).sum()) + abs(derived) + 1
        slope = _slope(wide, given, name, way, weights, step)
        if abs(derived - slope) <= 1e-5 * scale:
            continue
        finer = _slope(wide, given, name, way, weights, step / 2)
        allowed = 1e-5 * scale + abs(finer - slope)
        assert abs(derived - finer) <= allowed, (name, derived, finer, str(function))
    return made


def _slope(
    function: ir.Function,
    given: Mapping[str, Array],
    name: str,
    way: Array,
    weights: Mapping[str, Array],
    step: float,
) -> float:
    """Of the weighted results, as one input goes a way, by the difference of two points."""
    above, below = (
        evaluate(function, {**given, name: given[name] + by * way}) for by in (step, -step)
    )
    return sum(float((w * (above[n] - below[n])).sum()) for n, w in weights.items()) / (2 * step)


@dataclasses.dataclass
class _Tensor:
    name: str
    extents: tuple[int, ...]


@st.composite
def functions(draw: Draw) -> ir.Function:
    """Stages that read at strides, on diagonals, backwards, in windows, twice, in parts of a
    reshape; element-wise and reduced by every combiner that has a derivative."""
    tensors = [
        _Tensor(name, tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))))
        for name in ("X", "W")
    ]
    parameters = tuple(ir.Parameter(t.name, FLOAT, t.extents) for t in tensors)
    stages: list[ir.Stage] = []
    for number in range(draw(st.integers(1, 3))):
        stage = draw(_stages(f"s{number}", tensors))
        stages.append(stage)
        tensors.append(_Tensor(stage.name, stage.extents))
    results = tuple(ir.Result(s.name) for s in stages)
    function = ir.Function("random", parameters, tuple(stages), results)
    ir.verify(function)
    return function


@st.composite
def _stages(draw: Draw, name: str, tensors: Sequence[_Tensor]) -> ir.Stage:
    domain = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    combiner = draw(st.sampled_from([None, "sum", "sum", "product", "max", "min"]))
    axes = tuple(enumerate(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))))
    reduction = None if combiner is None else ir.Reduction(combiner, axes)
    builder = BodyBuilder()
    indices = [(builder.add(ir.Index(n)), e) for n, e in enumerate(domain)]
    if reduction is not None:
        indices += [(builder.add(ir.Index(n, reduced=True)), e) for n, e in axes]
    values: list[int] = []
    conditions: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        tensor = draw(st.sampled_from(tensors))
        value, inside = _read(draw, builder, tensor, indices)
        if inside:
            condition = builder.join(inside)
            if reduction is not None and condition is not None and draw(st.booleans()):
                conditions.append(condition)
            elif condition is not None:
                zero = builder.add(ir.Constant(FLOAT, 0.5))
                value = builder.add(ir.Select(condition, value, zero, FLOAT))
        values.append(value)
    for _ in range(draw(st.integers(0, 4))):
        values.append(_operate(draw, builder, values))
    result = values[-1]
    for value in values[:-1]:
        result = builder.apply("add", result, value)
    return ir.Stage(name, FLOAT, domain, builder.make(result, builder.join(conditions)), reduction)


def _read(
    draw: Draw, builder: BodyBuilder, tensor: _Tensor, indices: Sequence[tuple[int, int]]
) -> tuple[int, list[int]]:
    """An element of a tensor at a random place, and what has to hold for the place to be one."""
    places: list[int] = []
    conditions: list[int] = []
    for extent in tensor.extents:
        position = _place(draw, builder, indices)
        last = builder.constant(extent - 1)
        zero = builder.constant(0)
        conditions.append(builder.apply("ge", position, zero))
        conditions.append(builder.apply("le", position, last))
        places.append(builder.apply("min", builder.apply("max", position, zero), last))
    return builder.add(ir.Load(tensor.name, tuple(places), FLOAT)), conditions


def _place(draw: Draw, builder: BodyBuilder, indices: Sequence[tuple[int, int]]) -> int:
    kind = draw(st.sampled_from(["own", "own", "sum", "back", "div", "mod", "flat", "fixed"]))
    one, extent = draw(st.sampled_from(indices))
    two, size = draw(st.sampled_from(indices))
    number = builder.constant(draw(st.integers(1, 3)))
    match kind:
        case "own":
            return one
        case "sum":
            start = builder.constant(draw(st.integers(0, 2)))
            moved = builder.apply("add", builder.apply("mul", one, number), two)
            return builder.apply("sub", moved, start)
        case "back":
            return builder.apply("sub", builder.constant(extent - 1), one)
        case "div" | "mod":
            flat = builder.apply("add", builder.apply("mul", one, builder.constant(size)), two)
            return builder.apply(kind, draw(st.sampled_from([one, flat])), number)
        case "flat":
            return builder.apply("add", builder.apply("mul", one, builder.constant(size)), two)
        case _:
            return builder.constant(0)


def _operate(draw: Draw, builder: BodyBuilder, values: Sequence[int]) -> int:
    """An operation on values so far, that is smooth and stays small."""
    one, two = draw(st.sampled_from(values)), draw(st.sampled_from(values))
    name = draw(st.sampled_from((*UNARY, *BINARY, "select")))
    unit = builder.add(ir.Constant(FLOAT, 1.0))

    def positive(value: int) -> int:
        return builder.apply("add", builder.apply("mul", value, value), unit)

    match name:
        case "select":
            limit = builder.add(ir.Constant(FLOAT, 0.3))
            return builder.add(ir.Select(builder.apply("gt", one, limit), two, one, FLOAT))
        case "exp":
            return builder.apply("exp", builder.apply("sin", one))
        case "sqrt" | "log1p":
            return builder.apply(name, positive(one))
        case "div":
            return builder.apply("div", one, positive(two))
        case "atan2":
            return builder.apply("atan2", one, positive(two))
        case "pow":
            return builder.apply(
                "pow", positive(builder.apply("sin", one)), builder.apply("sin", two)
            )
        case _ if name in UNARY:
            return builder.apply(name, one)
        case _:
            return builder.apply(name, one, two)


def make_inputs(function: ir.Function, seed: int = 3) -> dict[str, Array]:
    """Values of both signs, no two alike."""
    source = np.random.default_rng(seed)
    return {
        p.name: source.uniform(-1.5, 1.5, [e for e in p.extents if isinstance(e, int)])
        for p in function.parameters
    }
