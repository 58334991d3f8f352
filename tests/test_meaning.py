"""What the language says of casts, positions, numbers and conditions, by the reference and by every
device alike: OpenCL for both kinds of device, Vulkan in both shader models."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.language.check import check_text
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import Array, DataType, data_type_of, find_data_type

Run = Callable[[ir.Function, dict[str, Array]], dict[str, Array]]

RUNS: dict[str, Run] = {
    "reference": evaluate,
    "opencl-cpu": lambda f, inputs: opencl.load(compile(f, "opencl", "cpu"))(inputs),
    "opencl-gpu": lambda f, inputs: opencl.load(compile(f, "opencl", "gpu"))(inputs),
    "vulkan-6.2": lambda f, inputs: vulkan.load(compile(f, "hlsl", shader_model="6.2"))(inputs),
    "vulkan-6.0": lambda f, inputs: vulkan.load(compile(f, "hlsl", shader_model="6.0"))(inputs),
}
EVERY = tuple(RUNS)
WITHOUT_BYTES = ("reference", "opencl-cpu", "opencl-gpu")


def bind(
    compute: str, out: str, sizes: tuple[int, ...] | None = None, optional: str = "",
    **inputs: Array,
) -> ir.Function:  # fmt: skip
    """An operator of these inputs and an output Z, bound to them."""
    types = {n: _type_of(a) for n, a in inputs.items()}
    rows = "".join(f"| {n} | Input | {t} |\n" for n, t in types.items())
    if optional:
        rows += f"| G | Optional input | {optional} |\n"
    text = (
        f"operator F {{ tensors {{\n| Tensor | Kind | Types |\n{rows}| Z | Output | {out} |\n}}\n"
        f"compute {{ {compute} }} }}"
    )
    given: dict[str, dmlc.TensorDesc | tuple[int, ...]] = {
        n: dmlc.TensorDesc(types[n], a.shape) for n, a in inputs.items()
    }
    if sizes is not None:
        given["Z"] = sizes
    return dmlc.Operator(check_text(text, "f.dml").operators["F"]).bind(given)


def _type_of(array: Array) -> str:
    dtype = data_type_of(array.dtype)
    assert dtype is not None
    return dtype.name


def check(
    function: ir.Function, inputs: dict[str, Array], wanted: Array, runs: tuple[str, ...] = EVERY
) -> None:
    """Holds every run to the same values."""
    for name in runs:
        got = RUNS[name](function, inputs)["Z"]
        np.testing.assert_array_equal(
            got.astype(np.float64), wanted.astype(np.float64), err_msg=name
        )


# Casts -----------------------------------------------------------------------------------------

ROUNDED = np.array(
    [70000, 1.0001, np.nan, -np.inf, 6e-8, 2.9e-8, -0.0, 65519, 65520, 1 / 3, 9e-8, -1.0001,
     3.0e-8, 2049, 2051, -65504, 5.96e-8], np.float32,
)  # fmt: skip
STORED = {"FLOAT16": np.dtype(np.float16), "BFLOAT16": np.dtype(ml_dtypes.bfloat16)}
CASTS = {
    "an operand": "Z = cast(X, {}) * 1",
    "what is stored": "Z = cast(X, {})",
    "a local": "t = cast(X, {})\nZ = t * 1",
    "by index": "Z[i : 17] = cast(X[i], {})",
    "of a reduction": "Z[i : 17] = cast(sum[k : 1](X[i + k]), {})",
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("place", CASTS)
def test_a_cast_to_a_16_bit_float_rounds(place: str, stored: str) -> None:
    with np.errstate(over="ignore"):
        wanted = ROUNDED.astype(STORED[stored]).astype(np.float32)
    function = bind(CASTS[place].format(stored), "FLOAT32", (17,), X=ROUNDED)
    check(function, {"X": ROUNDED}, wanted)
    signs = evaluate(function, {"X": ROUNDED})["Z"]
    assert place == "of a reduction" or np.signbit(signs[6])  # A sum starts from +0.


@pytest.mark.parametrize("stored", STORED)
def test_casts_in_graphs_and_of_constants_round_alike(stored: str) -> None:
    with np.errstate(over="ignore"):
        wanted = ROUNDED.astype(STORED[stored]).astype(np.float32)
    text = f"graph G[N](X: FLOAT32[N]) {{ output Z = cast(X, {stored}) + X * 0 }}"
    graph = check_text(text, "g.dml").graphs["G"]
    finite = np.isfinite(ROUNDED)
    function = dmlc.Graph(graph).bind({"X": (17,)})
    for name, run in RUNS.items():
        got = run(function, {"X": ROUNDED})["Z"]
        np.testing.assert_array_equal(got[finite], wanted[finite], err_msg=name)
    for value in (70000, 1.0001, -6e-8):
        x = np.zeros(2, np.float32)
        with np.errstate(over="ignore"):
            rounded = np.full(2, value, np.float32).astype(STORED[stored]).astype(np.float32)
        check(bind(f"Z = X + cast({value!r}, {stored})", "FLOAT32", (2,), X=x), {"X": x}, rounded)


def test_a_cast_of_an_expression_of_16_bit_tensors_rounds_it() -> None:
    text = "graph G[N](X: FLOAT16[N]) { output Z = cast(cast(X * X, FLOAT16) - X * X, FLOAT32) }"
    function = dmlc.Graph(check_text(text, "g.dml").graphs["G"]).bind({"X": (3,)})
    x = np.array([1.001, 0.333, 7.5], np.float16)
    exact = x.astype(np.float32) * x.astype(np.float32)
    check(function, {"X": x}, exact.astype(np.float16).astype(np.float32) - exact)


def test_integers_and_float64_are_cast_by_way_of_float32() -> None:
    x = np.array([2**24 + 2**16 + 1, 2049, 2051, 70000, -3], np.int32)
    single = x.astype(np.float32)
    for stored, dtype in STORED.items():
        with np.errstate(over="ignore"):
            wanted = single.astype(dtype).astype(np.float32)
        check(bind(f"Z = cast(X, {stored})", "FLOAT32", (5,), X=x), {"X": x}, wanted)
    double = np.array([1 + 2.0**-11 + 2.0**-40, 65519.999999999, 1e300])
    with np.errstate(over="ignore"):
        wanted = double.astype(np.float32).astype(np.float16).astype(np.float32)
    function = bind("Z = cast(X, FLOAT16)", "FLOAT32", (3,), X=double)
    check(function, {"X": double}, wanted)


# Positions -------------------------------------------------------------------------------------

INTEGERS = ("INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    "read", ["X[clamp(I[i], 0, 3)]", "X[min(max(I[i], 0), 3)]", "X[I[i]] else -1"]
)
def test_positions_saturate(name: str, read: str) -> None:
    dtype = find_data_type(name)
    assert dtype is not None
    limits = np.iinfo(dtype.dtype)
    middle = int(limits.max) // 2
    values = [limits.max, limits.min, 0, 1, 2, 3, 4, limits.max - 1, middle, middle + 1]
    whole = [int(v) for v in values] * 2
    places = np.array(whole, dtype.dtype)
    x = np.array([10, 11, 12, 13], np.float32)
    inside = x[np.clip(np.array(whole, object), 0, 3).astype(np.int64)]
    if "else" in read:
        inside = np.where([0 <= v <= 3 for v in whole], inside, -1)
    function = bind(f"Z[i : {len(whole)}] = {read}", "FLOAT32", None, X=x, I=places)
    runs = EVERY if dtype.bytes >= 4 else (*WITHOUT_BYTES, "vulkan-6.2")
    check(function, {"X": x, "I": places}, inside, runs if dtype.bytes > 1 else WITHOUT_BYTES)


# Numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("INT64", -(2**63)), ("INT64", 2**63 - 1), ("UINT64", 2**64 - 1), ("UINT64", 2**63),
        ("INT32", -(2**31)), ("UINT32", 2**32 - 1),
    ],
)  # fmt: skip
def test_every_whole_number_can_be_written(name: str, number: int) -> None:
    dtype = find_data_type(name)
    assert dtype is not None
    x = np.array([0, 1], dtype.dtype)
    chosen = bind(f"Z = X > 0 ? {number} : 0", name, (2,), X=x)
    for run, load in RUNS.items():
        got = load(chosen, {"X": x})["Z"]
        assert got.tolist() == [0, number], run
    assert str(number) in str(chosen)
    assert ir.parse(str(chosen)) == chosen


def test_rounding_a_constant_gives_a_whole_number() -> None:
    x = np.arange(3, dtype=np.int32)
    for text, value in [
        ("floor(5 * 0.5)", 2), ("ceil(2.5)", 3), ("round(2.5)", 2), ("trunc(-2.5)", -2),
        ("ceil(-0.5)", 0), ("(floor(1e15 / 7) - 142857142857142)", 0),
    ]:  # fmt: skip
        function = bind(f"Z[i : 3] = X[i] + {text}", "INT32", None, X=x)
        check(function, {"X": x}, x + value)


def test_a_boolean_is_read_by_index() -> None:
    x = np.array([1, -1, 2, 3], np.float32)
    same = bind("valid = X > 0\nZ[i...] = valid[i...] ? X[i...] : 0", "FLOAT32", (4,), X=x)
    check(same, {"X": x}, np.array([1, 0, 2, 3], np.float32))
    moved = bind(
        "valid = X > 0\nZ[i...] = (valid[(i - 1)...] else true) ? X[i...] : 0", "FLOAT32", (4,), X=x
    )
    check(moved, {"X": x}, np.array([1, -1, 0, 3], np.float32))


# Conditions ------------------------------------------------------------------------------------

X = np.arange(1, 6, dtype=np.float32)
SHIFTED = np.array([0, 1, 2, 3, 4], np.float32)
WINDOW = np.array([-1, -1, 1, 2, 3, 4, 5, -1, -1], np.float32)
GUARDED: dict[str, Array] = {
    "Z[i : 5] = i > 0 ? X[i - 1] : 0": SHIFTED,
    "Z[i : 5] = i == 0 ? 0 : X[i - 1]": SHIFTED,
    "Z[i : 5] = i != 0 ? X[i - 1] : 0": SHIFTED,
    "Z[i : 9] = i >= 2 && i < 7 ? X[i - 2] : -1": WINDOW,
    "Z[i : 9] = i < 2 || i >= 7 ? -1 : X[i - 2]": WINDOW,
    "Z[i : 9] = !(i < 2 || i >= 7) ? X[i - 2] : -1": WINDOW,
    "Z[i : 9] = i >= 2 ? (i < 7 ? X[i - 2] : -1) : -1": WINDOW,
    "Z[i : 9] = i < 2 ? -1 : i >= 7 ? -1 : X[i - 2]": WINDOW,
    "at(k) = X[k - 2]\nZ[i : 9] = i >= 2 && i < 7 ? at(i) * 1 : -1": WINDOW,
    "t[i : 9] = i >= 2 && i < 7 ? X[i - 2] : -1\nZ[i : 9] = i < 8 ? t[i] : t[0]": WINDOW,
    "Z[i : 5] = i > 0 && X[i - 1] > 2 ? 1 : 0": np.array([0, 0, 0, 1, 1]),
    "Z[i : 5] = i == 0 || X[i - 1] > 2 ? 1 : 0": np.array([1, 0, 0, 1, 1]),
    "Z[i : 5] = i > 1 ? sum[k : 3](X[i - k]) : 0": np.array([0, 0, 6, 9, 12]),
    "Z[i : 5] = sum[k : 3 where i + k > 0](i + k <= 5 ? X[i + k - 1] : 0)": (
        np.array([3, 6, 9, 12, 9])
    ),
    "Z[i : 5] = sum[k : 3 where i + k > 0 && i + k < 5](sum[l : 2](X[i + k - l]))": (
        np.array([8, 15, 21, 16, 9])
    ),
    "Z[i : 5] = argmax[k : 3](i + k < 5 ? X[i + k] : -9)": np.array([2, 2, 2, 1, 0]),
    "Z[i : 5] = i + sum[j : 5 where X[j] < 2](1) > 1 ? X[i] : X[4 - i]": (
        np.array([5, 2, 3, 4, 5])
    ),
    "Z[i : 5] = i / 2 >= 1 ? X[floor(i / 2) - 1] : 0": np.array([0, 0, 1, 1, 2]),
}


@pytest.mark.parametrize("text", GUARDED)
def test_a_condition_keeps_a_read_inside(text: str) -> None:
    check(bind(text, "FLOAT32", None, X=X), {"X": X}, GUARDED[text])


PLACES = np.array([-1, 0, 4, 5, -(2**31), 2**31 - 1], np.int32)
FOUND = np.array([-1, 1, 5, -1, -1, -1])
DATA: dict[str, Array] = {
    "Z[i : 6] = I[i] >= 0 && I[i] < 5 ? X[I[i]] : -1": FOUND,
    "Z[i : 6] = I[i] < 0 || 4 < I[i] ? -1 : X[I[i]]": FOUND,
    "Z[i : 6] = 0 <= I[i] ? (I[i] <= 4 ? X[4 - (4 - I[i])] : -1) : -1": FOUND,
    "Z[i : 6] = I[i] == 4 ? X[I[i]] : -1": np.array([-1, -1, 5, -1, -1, -1]),
    "Z[i : 1] = sum[k : 6 where I[k] >= 0 && I[k] < 5](X[I[k]])": np.array([6]),
}


@pytest.mark.parametrize("text", DATA)
def test_a_condition_on_what_is_read_keeps_a_read_inside(text: str) -> None:
    function = bind(text, "FLOAT32", None, X=X, I=PLACES)
    check(function, {"X": X, "I": PLACES}, DATA[text])


def test_conditions_on_fractions_keep_reads_inside_too() -> None:
    p = np.array([-0.5, 0, 4.9, 5, np.nan, np.inf, -np.inf, 4], np.float32)
    holds = "at(i) = floor(P[i])\nZ[i : 8] = at(i) >= 0 && at(i) < 5 ? X[at(i)] : -1"
    check(bind(holds, "FLOAT32", None, X=X, P=p), {"X": X, "P": p},
          np.array([-1, 1, 5, -1, -1, -1, -1, 5]))  # fmt: skip
    # NaN compares false, and is position 0.
    fails = "Z[i : 8] = P[i] < 0 || P[i] >= 5 ? -1 : X[trunc(P[i])]"
    check(bind(fails, "FLOAT32", None, X=X, P=p), {"X": X, "P": p},
          np.array([-1, 1, 5, -1, 1, -1, -1, 5]))  # fmt: skip


def test_what_is_not_chosen_does_not_show() -> None:
    x = np.array([np.nan, np.inf, 1, 2], np.float32)
    function = bind("Z[i : 4] = i > 2 ? X[i - 1] : i < 1 ? 7 : 8", "FLOAT32", None, X=x)
    check(function, {"X": x}, np.array([7, 8, 8, 1], np.float32))


def test_every_read_is_inside_whether_or_not_it_is_used() -> None:
    function = bind("Z[i : 5] = i > 0 ? X[i - 1] : 0", "FLOAT32", None, X=X)
    assert "%X[max(sub(i0, 1), 0)]" in str(function)
    both = bind("Z[i : 9] = i > 1 && i < 7 ? X[i - 2] : 0", "FLOAT32", None, X=X)
    assert "%X[min(max(sub(i0, 2), 0), 4)]" in str(both)
    # What needs no condition, and what a guard leaves out, stays as it is written.
    plain = bind("Z[i : 5] = i > 0 ? X[4 - i] : 0", "FLOAT32", None, X=X)
    assert "%X[sub(4, i0)]" in str(plain)
    guard = bind("Z[i : 5] = sum[k : 3 where i + k > 0 && i + k <= 5](X[i + k - 1])", "FLOAT32",
                 None, X=X)  # fmt: skip
    assert "max(" not in str(guard)


def test_nothing_is_read_of_an_empty_tensor() -> None:
    empty = np.zeros(0, np.float32)
    function = bind("Z[i : 2] = i > 4 ? X[i - 4] : 7", "FLOAT32", None, X=empty)
    check(function, {"X": empty}, np.array([7, 7], np.float32))


# Types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "types", "wanted"),
    [
        ("t[i : 3] = present(G) ? G[i] : 1\nZ = X * t[0]", "FLOAT32", DataType.FLOAT32),
        ("t[i : 3] = present(G) ? abs(G[i]) * 2 : 1\nZ = X * t[0]", "FLOAT16", DataType.FLOAT32),
        ("t[i : 3] = present(G) ? cast(G[i], FLOAT64) : 1\nZ = X * cast(t[0], FLOAT32)", "INT32",
         DataType.FLOAT64),
        ("t[i : 3] = present(G) ? G[i] : 1\nZ = X * cast(t[0], FLOAT32)", "INT64", DataType.INT64),
        ("t[i : 3] = present(G) ? G[i] : 1\nZ = X * cast(t[0], FLOAT32)", "FLOAT64, FLOAT32",
         DataType.FLOAT32),
        ("w(i) = present(G) ? 2 * G[i] : 1\nt[i : 3] = w(i)\nZ = X * t[0]", "FLOAT32",
         DataType.FLOAT32),
        ("t[i : 3] = X.Sizes[0] == 9 ? X[i] : 1\nZ = X * t[0]", "FLOAT32", DataType.FLOAT32),
        ("t[i : 3] = present(G) ? sum[k : 2](G[k]) : i\nZ = X * t[0]", "FLOAT32",
         DataType.FLOAT32),
    ],
)  # fmt: skip
def test_a_number_chosen_at_bind_has_the_type_of_the_other_side(
    text: str, types: str, wanted: DataType
) -> None:
    x = np.arange(3, dtype=np.float32)
    function = bind(text, "FLOAT32", (3,), types, X=x)
    assert function.stages[0].dtype is wanted


def test_a_position_chosen_at_bind_stays_one() -> None:
    x = np.arange(3, dtype=np.float32)
    function = bind("Z[i : 3] = X[present(G) ? clamp(G[i], 0, 2) : i]", "FLOAT32", None, "INT32",
                    X=x)  # fmt: skip
    assert "%X[i0]" in str(function)
