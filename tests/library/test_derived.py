"""The gradient of every operator of the library that has one, against differences in float64."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import dmlc
from dmlc.binding import ir_name
from dmlc.ir import Function
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.summaries import read_index
from dmlc.testing.case import Case
from dmlc.testing.examples import read_cases
from dmlc.testing.gradients import measure_gradient, widen_floats
from dmlc.transform.differentiate import differentiate

NOT_DIFFERENTIABLE = {
    name for name, summary in read_index().items() if not summary.differentiable
} | {"directml.DIAGONAL_MATRIX", "directml.ELEMENT_WISE_IF", "directml.ONE_HOT"}
"""The operators that are given no floats, or give none; one whose floats are attributes; and two
that copy, whose examples are whole numbers."""


WIDE = ([DataType.FLOAT32], [DataType.FLOAT64])


@functools.lru_cache(1)
def list_cases(name: str) -> list[tuple[Case, Function]]:
    """The examples of an operator in FLOAT32, or else FLOAT64, as far as it permits that and has
    floats that come and go, with their functions in FLOAT64. A function is there once."""
    found: list[tuple[Case, Function]] = []
    operator = dmlc.operator(name)
    for example in operator.definition.examples:
        wide: list[Function] = []
        for case in read_cases(operator, example):
            types = [t.data_type for t in (case.call.inputs or case.call.outputs).values()]
            if [t for t in dict.fromkeys(types) if t.is_float] not in WIDE:
                continue
            function = case.call.function
            tensors = function.tensors()
            if any(p.dtype.is_float for p in function.parameters) and any(
                tensors[r.name].dtype.is_float for r in function.results
            ):
                wide.append(widen_floats(function))
                if wide.index(wide[-1]) == len(wide) - 1:
                    found.append((case, wide[-1]))
    return found


@pytest.mark.grid(2)
@pytest.mark.parametrize("kept", [False, True], ids=["inputs", "results at hand"])
@pytest.mark.parametrize("name", read_index())
def test_derived_gradients_are_differences(name: str, kept: bool) -> None:
    cases = list_cases(name)
    assert cases or name in NOT_DIFFERENTIABLE
    for case, wide in cases:
        check_gradient(case, wide, kept)


def check_gradient(case: Case, wide: Function, kept: bool) -> None:
    wrt = [p.name for p in wide.parameters if p.dtype.is_float]
    results = [r.name for r in wide.results if wide.tensors()[r.name].dtype.is_float]
    made = differentiate(
        wide,
        wrt,
        {name: f"arriving_{name}" for name in results},
        {name: f"gradient_{name}" for name in wrt},
        {name: f"kept_{name}" for name in results} if kept else {},
    ).function
    known = make_smooth(case, wide)
    source = np.random.default_rng(1)
    values = evaluate(wide, known)
    weights = {name: source.standard_normal(values[name].shape) for name in results}
    given = {
        **known,
        **{f"arriving_{name}": weight for name, weight in weights.items()},
        **{f"kept_{name}": values[name] for name in results},
    }
    found = evaluate(made, {p.name: given[p.name] for p in made.parameters})
    for name in wrt:
        expected = measure_gradient(wide, known, weights, name).gradient
        gradient = found[f"gradient_{name}"]
        np.testing.assert_allclose(
            gradient, expected, rtol=1e-4, atol=1e-5, err_msg=f"{case.title}: {name}"
        )


def make_smooth(case: Case, function: Function) -> dict[str, Array]:
    """The inputs of an example, moved away from ties, bounds and zeros; where these have no result
    that is a number, others."""
    source = np.random.default_rng(0)
    known = {ir_name(name): array for name, array in case.inputs.items()}
    floats = [p.name for p in function.parameters if p.dtype.is_float]
    for ends in (None, (0.2, 0.8), (1.2, 1.8)):
        for name in floats:
            array = known[name].astype(np.float64)
            drawn = source.uniform(*(ends or (0.01, 0.2)), array.shape)
            known[name] = drawn if ends else np.where(np.isfinite(array), array, 1.0) + drawn
        results = evaluate(function, known).values()
        if all(np.isfinite(r).all() for r in results if r.dtype.kind == "f"):
            return known
    raise AssertionError(f"{case.title}: no inputs with results that are numbers")


OPEN_SIZES = {"N": 3, "C": 4, "H": 5, "W": 6}

OPEN: dict[str, tuple[dict[str, tuple[str | int, ...]], dict[str, object]]] = {
    "directml.ACTIVATION_SOFTMAX1": ({"InputTensor": ("N", "C")}, {"Axes": [1]}),
    "directml.BATCH_NORMALIZATION_TRAINING": (
        {
            "InputTensor": ("N", "C", "H", "W"),
            "ScaleTensor": (1, "C", 1, 1),
            "BiasTensor": (1, "C", 1, 1),
        },
        {"Epsilon": 1e-5},
    ),
    "directml.MAX_POOLING": (
        {"InputTensor": ("N", "C", 8, 8)},
        {"Strides": [2, 2], "WindowSize": [3, 3], "StartPadding": [1, 1], "EndPadding": [1, 1]},
    ),
    "onednn.LayerNorm": (
        {"src": ("N", "C"), "gamma": ("C",), "beta": ("C",)},
        {"epsilon": 1e-5, "begin_norm_axis": -1},
    ),
    "onednn.MatMul": ({"src": ("H", "C"), "weights": ("C", "N")}, {}),
    "onednn.ReduceMax": ({"src": ("N", "H", "W")}, {"axes": [1, 2], "keep_dims": True}),
    "onednn.ReduceProd": ({"src": ("N", "H", "W")}, {"axes": [1], "keep_dims": True}),
}
"""Operators with sizes left open, and attributes."""


def size_of(extent: str | int) -> int:
    return OPEN_SIZES[extent] if isinstance(extent, str) else extent


@pytest.mark.grid(2)
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("name", OPEN)
def test_gradients_over_open_sizes(name: str, device: str) -> None:
    tensors, attributes = OPEN[name]
    made: list[Function] = []
    for known_sizes in (False, True):
        described = {
            n: dmlc.TensorDesc("FLOAT32", tuple(size_of(e) if known_sizes else e for e in extents))
            for n, extents in tensors.items()
        }
        forward = dmlc.operator(name).bind(described, attributes)
        names = {p.name: f"gradient_{p.name}" for p in forward.parameters}
        result = forward.results[0].name
        made.append(differentiate(forward, list(names), {result: "arriving"}, names).function)
    source = np.random.default_rng(4)
    known = {p.name: source.standard_normal(p.extents).astype(np.float32)
             for p in made[1].parameters}  # fmt: skip
    expected = evaluate(made[1], known)
    found = dmlc.run(made[0], {p.name: known[p.name] for p in made[0].parameters}, device=device)
    for result, values in expected.items():
        np.testing.assert_allclose(found[result], values, rtol=1e-4, atol=1e-5)
