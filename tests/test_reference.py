"""The reference evaluator, against values worked out by hand and against plain NumPy."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from dmlc import ir, reference
from dmlc.reference import evaluate
from dmlc.scalars import TENSOR_TYPES, Array
from dmlc.scalars import DataType as T
from dmlc.source import DmlcError
from tests.strategies import make_array, same_bits


def run(text: str, inputs: Mapping[str, Array] | None = None) -> dict[str, Array]:
    return evaluate(ir.parse(text), inputs or {})


def one(expression: str, dtype: str = "f32", **inputs: Array) -> Array:
    """A stage of one element over one-element inputs."""
    types = {t.dtype: t.short for t in TENSOR_TYPES}
    given = ", ".join(f"%{name}: {types[a.dtype]}[{len(a)}]" for name, a in inputs.items())
    return run(f"func @f({given}) -> (%Y) {{ %Y: {dtype}[] = {expression} }}", inputs)["Y"]


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def test_relu_grad() -> None:
    text = """func @f(%X: f32[2, 3], %dY: f32[2, 3]) -> (%dX) {
      %dX: f32[i0 < 2, i1 < 3] = select(gt(%X[i0, i1], 0.0), %dY[i0, i1], 0.0)
    }"""
    x = f32(1, -1, 0, -0.0, np.nan, np.inf).reshape(2, 3)
    dy = f32(np.nan, np.nan, 3, 4, np.inf, -6).reshape(2, 3)
    found = run(text, {"X": x, "dY": dy})["dX"]
    assert same_bits(found, f32(np.nan, 0, 0, 0, 0, -6).reshape(2, 3))


def test_floats_are_rounded_once() -> None:
    # 1 + 2**-30 is no FLOAT32; only a wider sum keeps it.
    tiny = f32(2.0**-30)
    assert one("sub(add(1.0, %X[0]), 1.0)", X=tiny) == tiny[0]
    kept = run(
        """func @f(%X: f32[1]) -> (%t, %Y) {
          %t: f32[i0 < 1] = add(1.0, %X[i0])
          %Y: f32[i0 < 1] = sub(%t[i0], 1.0)
        }""",
        {"X": tiny},
    )
    assert kept["t"] == np.float32(1)
    assert kept["Y"] == tiny


@pytest.mark.parametrize(("dtype", "step"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
def test_sixteen_bit_stages_are_read_as_stored(dtype: str, step: float) -> None:
    found = run(
        f"""func @f(%X: f32[1]) -> (%Y) {{
          %t: {dtype}[i0 < 1] = add(1.0, %X[i0])
          %Y: f32[i0 < 1] = sub(%t[i0], 1.0)
        }}""",
        {"X": f32(step)},
    )
    assert found["Y"] == 0  # A tie, to the even neighbour 1.


@pytest.mark.parametrize("dtype", [T.FLOAT16, T.BFLOAT16])
def test_sixteen_bit_results_do_not_round_twice(dtype: T) -> None:
    bits = 10 if dtype is T.FLOAT16 else 7
    tie, above = 1 + 2.0 ** -(bits + 1), 2.0**-40
    found = one("add(%X[0], %Z[0])", dtype.short, X=f32(tie), Z=f32(above))
    assert float(found) == 1 + 2.0**-bits
    assert float(one("sub(%X[0], %Z[0])", dtype.short, X=f32(tie), Z=f32(above))) == 1


def test_float64_is_computed_natively() -> None:
    x = np.array([1 / 3])
    assert one("mul(%X[0], %X[0])", "f64", X=x) == (1 / 3) * (1 / 3)


def test_constants_are_as_given() -> None:
    assert one("cast(0.1, f64)", "f64") == np.float64(np.float32(0.1))
    assert one("0.1:f64", "f64") == 0.1


def test_casts_to_float32_round_and_to_the_same_type_do_not() -> None:
    x = np.array([0.1])
    assert one("cast(cast(%X[0], f32), f64)", "f64", X=x) == np.float64(np.float32(0.1))
    big = np.array([2**24 + 1], np.int32)
    assert one("cast(cast(%X[0], f32), s32)", "s32", X=big) == 2**24
    tiny = f32(2.0**-30)
    assert one("sub(cast(add(1.0, %X[0]), f32), 1.0)", X=tiny) == tiny[0]


def test_casts_to_integers_truncate_and_saturate() -> None:
    for value, expected in ((-1.9, -1), (3e9, 2**31 - 1), (-np.inf, -(2**31)), (np.nan, 0)):
        assert one("cast(%X[0], s32)", "s32", X=f32(value)) == expected


def test_integers_wrap() -> None:
    x = np.array([120], np.int8)
    assert one("add(%X[0], %X[0])", "s8", X=x) == np.int8(-16)
    assert one("div(%X[0], 0:s8)", "s8", X=x) == 0
    assert one("cast(sub(cast(%X[0], u8), 121:u8), u8)", "u8", X=x) == 255


def test_indices_are_values() -> None:
    found = run("func @f() -> (%Y) { %Y: s64[i0 < 2, i1 < 3] = cast(add(mul(i0, 10), i1), s64) }")
    assert found["Y"].tolist() == [[0, 1, 2], [10, 11, 12]]


def test_broadcast_transpose_and_gather() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    row = f32(10, 20, 30).reshape(1, 3)
    places = np.array([2, -7, 9], np.int64)
    found = run(
        """func @f(%X: f32[2, 3], %R: f32[1, 3], %P: s64[3]) -> (%B, %T, %G) {
          %B: f32[i0 < 2, i1 < 3] = add(%X[i0, i1], %R[0, i1])
          %T: f32[i0 < 3, i1 < 2] = %X[i1, i0]
          %G: f32[i0 < 3] = %X[1, min(max(cast(%P[i0], index), 0), 2)]
        }""",
        {"X": x, "R": row, "P": places},
    )
    assert np.array_equal(found["B"], x + row)
    assert np.array_equal(found["T"], x.T)
    assert found["T"].flags.c_contiguous
    assert np.array_equal(found["G"], x[1, [2, 0, 2]])


REDUCE = (
    "func @f(%X: {t}[3, 5, 4]) -> (%Y) {{ %Y: {u}[i0 < 3] = {c}[r0 < 5, r1 < 4] %X[i0, r0, r1] }}"
)


@pytest.mark.parametrize("block", [1, 7, 1 << 17])
@pytest.mark.parametrize("dtype", TENSOR_TYPES)
def test_reductions(dtype: T, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_BLOCK", block)
    x = make_array(dtype, (3, 5, 4), np.random.default_rng(5))
    wide = x.astype(np.float64) if dtype.is_float else x
    flat = wide.reshape(3, 20)
    expected: dict[str, Array] = {}
    if dtype is T.BOOL:
        expected = {"any": flat.any(1), "all": flat.all(1)}
    else:
        with np.errstate(all="ignore"):
            expected = {
                "sum": flat.sum(1, dtype=flat.dtype),
                "product": flat.prod(1, dtype=flat.dtype),
                "min": flat.min(1),
                "max": flat.max(1),
                "argmin": flat.argmin(1),
                "argmax": flat.argmax(1),
            }
    for combiner, values in expected.items():
        result = "s64" if combiner.startswith("arg") else dtype.short
        found = run(REDUCE.format(t=dtype.short, u=result, c=combiner), {"X": x})["Y"]
        with np.errstate(all="ignore"):
            stored = values.astype(found.dtype)
        if combiner in ("sum", "product") and dtype.is_float:
            np.testing.assert_allclose(found.astype(float), stored.astype(float), rtol=1e-2)
        else:
            assert np.array_equal(found, stored, equal_nan=dtype.is_float), combiner


def test_guards_leave_points_out() -> None:
    x = f32(5, 1, 7, -3)
    text = """func @f(%X: f32[4]) -> (%S, %M, %A, %B, %N) {
      %S: f32[] = sum[r0 < 4 where gt(%X[r0], 0.0)] %X[r0]
      %M: f32[] = max[r0 < 4 where lt(%X[r0], 6.0)] %X[r0]
      %A: s32[] = argmin[r0 < 4 where gt(r0, 0)] neg(%X[r0])
      %B: s32[] = argmax[r0 < 4 where lt(%X[r0], -9.0)] %X[r0]
      %N: s32[] = argmin[r0 < 4 where ge(r0, 2)] inf
    }"""
    found = run(text, {"X": x})
    assert {name: float(v) for name, v in found.items()} == {
        "S": 13,
        "M": 5,
        "A": 2,
        "B": 0,
        "N": 2,
    }


def test_empty_reductions_and_domains() -> None:
    text = """func @f(%X: f32[0, 2]) -> (%S, %M, %A, %E) {
      %S: f32[i0 < 2] = sum[r0 < 0] %X[r0, i0]
      %M: f16[i0 < 2] = min[r0 < 0] %X[r0, i0]
      %A: s8[i0 < 2] = argmax[r0 < 0] %X[r0, i0]
      %E: f32[i0 < 0, i1 < 2] = exp(%X[i0, i1])
    }"""
    found = run(text, {"X": np.zeros((0, 2), np.float32)})
    assert found["S"].tolist() == [0, 0]
    assert found["M"].tolist() == [math.inf, math.inf]
    assert found["A"].tolist() == [0, 0]
    assert found["E"].shape == (0, 2)


def test_an_empty_tensor_behind_a_guard_is_not_read() -> None:
    text = """func @f(%X: f32[0, 2]) -> (%S) {
      %S: f32[i0 < 3] = sum[r0 < 2] {
        where lt(i0, 0)
        %X[i0, r0]
      }
    }"""
    assert run(text, {"X": np.zeros((0, 2), np.float32)})["S"].tolist() == [0, 0, 0]


def test_first_of_equals_and_nan_beats_numbers() -> None:
    text = """func @f(%X: f32[4]) -> (%I, %A, %M) {
      %I: u8[] = argmin[r0 < 4] %X[r0]
      %A: u8[] = argmax[r0 < 4] %X[r0]
      %M: f32[] = max[r0 < 4] %X[r0]
    }"""
    found = run(text, {"X": f32(2, 1, 2, 1)})
    assert (found["I"], found["A"]) == (1, 0)
    found = run(text, {"X": f32(2, np.nan, np.inf, np.nan)})
    assert (found["I"], found["A"]) == (1, 1)
    assert np.isnan(found["M"])
    zeros = run(text, {"X": f32(-3, -0.0, 0.0, -1)})["M"]
    assert np.signbit(zeros)


def test_large_reductions_use_little_memory() -> None:
    count = 3_000_000
    text = f"func @f(%X: f32[{count}]) -> (%S, %A) {{ %S: f32[i0 < 2] = sum[r0 < {count}] %X[r0] "
    text += f"%A: s32[] = argmax[r0 < {count}] %X[r0] }}"
    x = np.ones(count, np.float32)
    x[-5] = 2
    tracemalloc.start()
    found = run(text, {"X": x})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found["S"].tolist() == [count + 1, count + 1]
    assert found["A"] == count - 5
    assert peak < 32 * 2**20


def test_long_bodies_over_large_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "func @f(%X: f32[5, 7, 3]) -> (%Y) { %Y: f32[i0 < 5, i1 < 7, i2 < 3] = "
    text += "neg(add(%X[i0, i1, i2], cast(add(i1, i2), f32))) }"
    x = make_array(T.FLOAT32, (5, 7, 3), np.random.default_rng(0))
    whole = run(text, {"X": x})["Y"]
    monkeypatch.setattr(reference, "_BLOCK", 4)
    assert same_bits(run(text, {"X": x})["Y"], whole)


SYMBOLIC = """func @f(%X: f16[n], %Z: f16[n], %s: f32[]) -> (%Y, %S) {
  %Y: f16[i0 < n] = add(%X[i0], mul(%Z[i0], %s[]))
  %S: f32[] = sum[r0 < n] %X[r0]
}"""


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3, 1), (0, 4), ()])
def test_run_time_sizes_take_any_shape(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float16)
    found = run(SYMBOLIC, {"X": x, "Z": x, "s": np.array(2, np.float32)})
    assert found["Y"].shape == shape
    assert np.all(found["Y"] == 3)
    assert found["S"] == math.prod(shape)


def test_any_strides_and_byte_orders() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    text = "func @f(%X: f32[3, 2]) -> (%Y) { %Y: f32[i0 < 3, i1 < 2] = neg(%X[i0, i1]) }"
    for given in (x[::-2].T, x[::-2].T.astype(">f4"), np.asfortranarray(x[::-2].T)):
        assert np.array_equal(run(text, {"X": given})["Y"], -x[::-2].T)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"X": f32(1, 2)}, "input 'Z' is missing"),
        ({"X": f32(1, 2), "z": f32(1, 2)}, "unknown input 'z' [E0201]\n  note: did you mean 'Z'?"),
        (
            {"X": f32(1, 2), "Z": np.zeros(2)},
            "expected FLOAT32 for input 'Z', found an array of float64",
        ),
        (
            {"X": f32(1, 2), "Z": np.array([None, 1])},
            "expected FLOAT32 for input 'Z', found an array of object",
        ),
        ({"X": f32(1, 2), "Z": f32(1)}, "expected sizes [2] for input 'Z', found [1]"),
    ],
)
def test_refuses_inputs_that_do_not_fit(inputs: dict[str, Array], message: str) -> None:
    text = "func @f(%X: f32[2], %Z: f32[2]) -> (%Y) { %Y: f32[i0 < 2] = add(%X[i0], %Z[i0]) }"
    with pytest.raises(DmlcError) as raised:
        run(text, inputs)
    assert message in str(raised.value)


def test_refuses_run_time_shapes_that_differ() -> None:
    with pytest.raises(DmlcError) as raised:
        run(SYMBOLIC, {"X": np.ones((2, 3), np.float16), "Z": np.ones(6, np.float16)})
    assert "inputs 'X' and 'Z' to have the same sizes, found [2, 3] and [6]" in str(raised.value)


def test_bfloat16_in_and_out() -> None:
    x = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    text = "func @f(%X: bf16[2]) -> (%Y) { %Y: bf16[i0 < 2] = mul(%X[i0], 2.0) }"
    assert run(text, {"X": x})["Y"].tolist() == [3, -4.5]
    assert run(text, {"X": x})["Y"].dtype == ml_dtypes.bfloat16
