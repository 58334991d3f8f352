"""The scalar functions where they reach a limit: what each gives there is exact, zeros have their
signs, and near it nothing goes the wrong way; so gradients that take a limit's difference from a
result, as 1 - tanh^2, are exact there too."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import OPERATIONS, Array, DataType

INF, NAN, PI = math.inf, math.nan, math.pi

ODD = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "expm1", "log1p")
"""Those that give small numbers and zeros back as they are."""

UNARY: Mapping[str, Mapping[float, float]] = {
    "sqrt": {0.0: 0.0, 1.0: 1.0, 4.0: 2.0, INF: INF, -1.0: NAN},
    "rsqrt": {0.0: INF, 1.0: 1.0, 4.0: 0.5, INF: 0.0, -1.0: NAN},
    "exp": {0.0: 1.0, INF: INF, -INF: 0.0, 1000.0: INF, -1000.0: 0.0, 1e-30: 1.0, -1e-30: 1.0},
    "exp2": {0.0: 1.0, 3.0: 8.0, INF: INF, -INF: 0.0, 2000.0: INF, -2000.0: 0.0, 1e-30: 1.0},
    "expm1": {INF: INF, -INF: -1.0, 1000.0: INF, -1000.0: -1.0, -50.0: -1.0},
    "log": {0.0: -INF, 1.0: 0.0, INF: INF, -1.0: NAN, -INF: NAN},
    "log2": {0.0: -INF, 1.0: 0.0, 8.0: 3.0, INF: INF, -1.0: NAN, -INF: NAN},
    "log1p": {-1.0: -INF, INF: INF, -2.0: NAN, -INF: NAN},
    "sin": {INF: NAN, -INF: NAN},
    "cos": {0.0: 1.0, 1e-30: 1.0, INF: NAN, -INF: NAN},
    "tan": {INF: NAN, -INF: NAN},
    "asin": {1.0: PI / 2, -1.0: -PI / 2, 2.0: NAN, -INF: NAN},
    "acos": {1.0: 0.0, -1.0: PI, 0.0: PI / 2, 2.0: NAN, -INF: NAN},
    "atan": {INF: PI / 2, -INF: -PI / 2, 1e30: PI / 2, -1e30: -PI / 2},
    "sinh": {INF: INF, -INF: -INF, 1000.0: INF, -1000.0: -INF},
    "cosh": {0.0: 1.0, 1e-30: 1.0, INF: INF, -INF: INF, 1000.0: INF, -1000.0: INF},
    "tanh": {INF: 1.0, -INF: -1.0, 1e30: 1.0, -1e30: -1.0, 100.0: 1.0, -100.0: -1.0, 20.0: 1.0},
    "asinh": {INF: INF, -INF: -INF},
    "acosh": {1.0: 0.0, INF: INF, 0.5: NAN, -INF: NAN},
    "atanh": {1.0: INF, -1.0: -INF, 2.0: NAN, -INF: NAN},
    "erf": {INF: 1.0, -INF: -1.0, 10.0: 1.0, -10.0: -1.0, 1e30: 1.0},
    "sigmoid": {0.0: 0.5, INF: 1.0, -INF: 0.0, 100.0: 1.0, -1000.0: 0.0, 1e-30: 0.5},
}

BINARY: Mapping[str, tuple[tuple[float, float, float], ...]] = {
    "pow": (
        (2.0, 3.0, 8.0), (0.0, 0.0, 1.0), (INF, 0.0, 1.0), (NAN, 0.0, 1.0), (1.0, NAN, 1.0),
        (0.0, 2.0, 0.0), (0.0, -1.0, INF), (-0.0, 3.0, -0.0), (-0.0, -1.0, -INF),
        (0.5, INF, 0.0), (2.0, INF, INF), (-INF, 3.0, -INF), (-2.0, 0.5, NAN), (-1.0, INF, 1.0),
        (-2.0, 3.0, -8.0),
    ),
    "atan2": (
        (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0), (0.0, -1.0, PI), (-0.0, -1.0, -PI), (0.0, 0.0, 0.0),
        (0.0, -0.0, PI), (1.0, 0.0, PI / 2), (-1.0, 0.0, -PI / 2), (INF, 1.0, PI / 2),
        (1.0, INF, 0.0), (1.0, -INF, PI), (INF, INF, PI / 4), (INF, -INF, 3 * PI / 4),
        (NAN, 1.0, NAN), (1.0, NAN, NAN),
    ),
}  # fmt: skip

REPEATED, TAIL = 48, 15
"""Of this many elements, OpenCL computes the first in vectors and the last one by one."""


def list_points(name: str, dtype: DataType) -> list[tuple[float, ...]]:
    """Operands of a function, with the result that is known to the last bit."""
    if name in BINARY:
        return list(BINARY[name])
    points = [*UNARY[name].items(), (NAN, NAN)]
    if name in ODD:
        tiny = float(np.nextafter(dtype.dtype.type(0), dtype.dtype.type(1)))
        points += [(x, x) for x in (0.0, -0.0, tiny, -tiny)]
    if name in ("sqrt", "rsqrt"):
        points.append((-0.0, -0.0 if name == "sqrt" else -INF))
    return points


def make_arrays(name: str, dtype: DataType) -> list[Array]:
    """The operands and the result, for vectors and for single elements."""
    points = list_points(name, dtype)
    assert len(points) <= TAIL
    made: list[Array] = []
    for column in zip(*points, strict=True):
        values = np.array(column)
        with np.errstate(over="ignore"):
            laid = [np.resize(values, REPEATED), np.resize(values, TAIL)]
            made.append(np.concatenate(laid).astype(dtype.dtype))
    return made


@functools.cache
def make_function(dtype: DataType) -> ir.Function:
    kind, names = dtype.short, [*UNARY, *BINARY]
    letters = {name: "AB"[: OPERATIONS[name].arity] for name in names}
    given = ", ".join(f"%{name}{x}: {kind}[n]" for name in names for x in letters[name])
    stages = "\n".join(
        f"  %{name}: {kind}[i0 < n] = {name}({', '.join(f'%{name}{x}[i0]' for x in letters[name])})"
        for name in names
    )
    results = ", ".join(f"%{name}" for name in names)
    return ir.parse(f"func @f({given}) -> ({results}) {{\n{stages}\n}}")


def test_every_function_has_limits() -> None:
    assert {*UNARY, *BINARY} == {"sqrt", *(o.name for o in OPERATIONS.values() if o.transcendental)}


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        (device, dtype)
        for device in ("reference", "opencl cpu", "opencl gpu", "vulkan")
        for dtype in (DataType.FLOAT32, DataType.FLOAT64, DataType.FLOAT16, DataType.BFLOAT16)
        if device != "vulkan" or dtype is not DataType.FLOAT64
        if device != "opencl gpu" or not dtype.is_storage_only  # Their functions are FLOAT32's.
    ],
)
def test_limits_are_exact(device: str, dtype: DataType) -> None:
    function = make_function(dtype)
    arrays = {name: make_arrays(name, dtype) for name in (*UNARY, *BINARY)}
    given = {
        f"{name}{letter}": array
        for name, (*columns, _) in arrays.items()
        for letter, array in zip("AB", columns, strict=False)
    }
    if device == "reference":
        found = evaluate(function, given)
    elif device == "vulkan":
        found = vulkan.load(compile(function, "hlsl"))(given)
    else:
        found = opencl.load(compile(function, "opencl", device.removeprefix("opencl ")))(given)
    for name, (*columns, expected) in arrays.items():
        got = found[name]
        same = (got == expected) & (np.signbit(got) == np.signbit(expected))
        same |= np.isnan(got) & np.isnan(expected)
        assert same.all(), (name, [c[~same] for c in columns], got[~same], expected[~same])


RISING: Mapping[str, tuple[tuple[float, float], ...]] = {
    "tanh": ((8.5, 9.2), (-9.2, -8.5)),
    "erf": ((3.6, 4.1), (-4.1, -3.6)),
    "sigmoid": ((15.0, 18.0), (-104.5, -86.0)),
    "exp": ((-104.5, -86.0), (88.5, 89.0), (-1e-6, 1e-6)),
    "exp2": ((-150.5, -125.0), (127.5, 128.5)),
    "expm1": ((-18.0, -16.0), (88.5, 89.0)),
    "log": ((0.9999, 1.0001), (1e-45, 1e-38)),
    "log1p": ((-1.0, -0.999),),
    "asin": ((0.999, 1.0), (-1.0, -0.999)),
    "atan": ((1e6, 1e9), (-1e9, -1e6)),
    "sinh": ((88.5, 90.0), (-90.0, -88.5)),
    "asinh": ((1e38, 3.4e38),),
    "acosh": ((1.0, 1.001),),
    "atanh": ((0.999, 1.0), (-1.0, -0.999)),
}


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_nothing_goes_the_wrong_way_near_a_limit(profile: str) -> None:
    windows = [(name, window) for name, several in RISING.items() for window in several]
    given: dict[str, Array] = {}
    for number, (_, window) in enumerate(windows):
        low, high = np.array(window, np.float32)
        spread = np.linspace(low, high, 6000, dtype=np.float32)
        given[f"X{number}"] = np.sort(np.concatenate([spread, np.nextafter(spread, low)]))
    parameters = ", ".join(f"%{x}: f32[n]" for x in given)
    stages = "\n".join(
        f"  %Y{number}: f32[i0 < n] = {name}(%X{number}[i0])"
        for number, (name, _) in enumerate(windows)
    )
    results = ", ".join(f"%Y{number}" for number in range(len(windows)))
    function = ir.parse(f"func @f({parameters}) -> ({results}) {{\n{stages}\n}}")
    found = opencl.load(compile(function, "opencl", profile))(given)
    for number, each in enumerate(windows):
        y = found[f"Y{number}"]
        falls = np.flatnonzero(y[1:] < y[:-1])
        assert falls.size == 0, (each, given[f"X{number}"][falls[:3]], y[falls[:3]])


DEVICES = ("reference", "opencl", "vulkan")

GELU = """
function inner(x) = 0.7978845608 * (x + 0.044715 * x * x * x)
operator GELU_TANH {
  tensors {
    | Tensor | Kind   | Types    |
    | x      | Input  | f32, f16 |
    | y      | Output | f32, f16 |
  }
  constraints { x and y must have the same DataType and Sizes. }
  compute { y = 0.5 * x * (1 + tanh(inner(x))) }
}"""


@pytest.mark.parametrize("device", DEVICES)
def test_a_slope_is_exact_where_tanh_is_one(device: str) -> None:
    """The slope of x * (1 + tanh(x^3 ...)) has x^3 * (1 - tanh^2) in it."""
    operator = dmlc.parse(GELU).operators["GELU_TANH"]
    gradient = dmlc.gradient(operator, wrt=["x"])
    for dtype, x in (
        (np.float32, [20, 100, 1000, -100, -1000]),
        (np.float16, [30000, 20, -20, -30000]),
    ):
        values = np.array(x, dtype)
        found = dmlc.run(gradient, {"x": values, "d_y": np.ones_like(values)}, device=device)
        np.testing.assert_array_equal(found["d_x"], values > 0)
    x = np.array([-1e4, -1e8], np.float32)
    y = np.array(dmlc.run(operator, {"x": x}, device=device)["y"])
    assert y.tobytes() == np.array([-0.0, -0.0], np.float32).tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "x", "slope"),
    [
        ("onednn.MishBackward", (1e4, 100.0, -1e4), (1.0, 1.0, 0.0)),
        ("onednn.GELUBackward", (1e4, 20.0, -1e4), (1.0, 1.0, 0.0)),
        ("onednn.TanhBackward", (1e4, 20.0, -1e4), (0.0, 0.0, 0.0)),
        ("onednn.SigmoidBackward", (1e4, 100.0, -1e4), (0.0, 0.0, 0.0)),
        ("onednn.SoftPlusBackward", (1e4, 100.0, -1e4), (1.0, 1.0, 0.0)),
    ],
)
def test_slopes_of_activations_far_out(
    name: str, x: tuple[float, ...], slope: tuple[float, ...], device: str
) -> None:
    values = np.array(x, np.float32)
    inputs = {"src": values, "diff_dst": np.ones_like(values)}
    attributes = (
        {"use_dst": False} if name in ("onednn.TanhBackward", "onednn.SigmoidBackward") else {}
    )
    found = dmlc.run(name, inputs, attributes, device=device)
    np.testing.assert_array_equal(next(iter(found.values())), np.array(slope, np.float32))
