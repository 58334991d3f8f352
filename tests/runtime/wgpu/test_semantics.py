"""What WGSL leaves to implementations, on a device that makes use of it: lavapipe's compiler takes
floats for real numbers unless it is kept from it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile, make_kernels
from dmlc.runtime import wgpu
from dmlc.scalars import Array

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 7.25, -1e10, 3e9, 2147483648.0, 3e38,
    -3e38, np.inf, -np.inf, np.nan,
)  # fmt: skip
WHOLE = (0, 1, -1, 2, 3, -7, 31, 32, 33, 255, 2**31 - 1, -(2**31), 12345678)

FLOATS = (
    "sub(a, a)", "div(a, a)", "add(a, neg(a))", "sub(add(a, b), a)", "add(a, 0.0)", "mul(a, 0.0)",
    "mul(a, -0.0)", "div(a, 0.0)", "add(add(a, 1e30), -1e30)", "mul(mul(a, 1e-30), 1e30)",
    "sub(sub(a, b), neg(b))", "div(mul(a, b), b)", "min(a, b)", "max(a, b)", "min(b, a)",
    "min(a, a)", "mod(a, b)", "sign(a)", "abs(a)", "neg(a)", "floor(a)", "ceil(a)", "round(a)",
    "trunc(a)", "sub(a, floor(a))", "sqrt(abs(a))", "select(eq(a, a), 1.0, -0.0)",
    "select(ne(a, a), a, b)", "select(not(lt(a, b)), a, b)", "select(lt(sub(a, b), 0.0), a, b)",
    "select(isnan(a), 1.0, a)", "select(isinf(a), 1.0, a)", "select(gt(a, b), nan, inf)",
    "round_float16(a)", "max(min(a, 6.0), 0.0)", "cast(lt(a, b), f32)", "cast(cast(a, s32), f32)",
    "cast(cast(a, u32), f32)", "cast(cast(a, boolean), f32)",
)  # fmt: skip
INTEGERS = (
    "add(a, b)", "sub(a, b)", "mul(a, b)", "div(a, b)", "mod(a, b)", "div(a, 0)", "min(a, b)",
    "max(a, b)", "shift_left(a, b)", "shift_right(a, b)", "shift_left(a, 3)", "bit_and(a, b)",
    "shift_right(a, -1)", "min(a, -1)",
    "bit_or(a, bit_xor(b, bit_not(a)))", "neg(a)", "abs(a)", "sign(a)", "select(le(a, b), a, b)",
    "cast(cast(a, boolean), {T})", "cast(cast(a, f32), {T})", "add(mul(a, 3), neg(b))",
)  # fmt: skip


def make_function(dtype: str, formulas: tuple[str, ...]) -> ir.Function:
    """A function with an output for each formula; a bare number in one has the formula's type."""
    lines: list[str] = []
    for number, formula in enumerate(formulas):
        text = formula.replace("{T}", dtype)
        for name in "ab":
            text = text.replace(f"({name},", f"(%{name}[i0],").replace(
                f", {name},", f", %{name}[i0],"
            )
            text = text.replace(f"({name})", f"(%{name}[i0])").replace(
                f" {name})", f" %{name}[i0])"
            )
        if dtype != "f32":
            for whole in ("0", "3", "-1"):
                text = text.replace(f", {whole})", f", cast({whole}, {dtype}))")
        lines.append(f"  %r{number}: {dtype}[i0 < n] = {text}")
    results = ", ".join(f"%r{number}" for number in range(len(formulas)))
    head = f"func @f(%a: {dtype}[n], %b: {dtype}[n]) -> ({results}) {{"
    return ir.parse("\n".join([head, *lines, "}"]))


def pairs(values: tuple[float, ...], dtype: type) -> dict[str, Array]:
    first, second = zip(*itertools.product(values, repeat=2), strict=True)
    given = (np.array(v).astype(np.int64) if dtype is np.uint32 else np.array(v) for v in
             (first, second))  # fmt: skip
    return {name: v.astype(dtype) for name, v in zip("ab", given, strict=True)}


def find_wrong(dtype: str, formulas: tuple[str, ...], given: dict[str, Array]) -> list[str]:
    """The formulas whose results are not those of the kernels as NumPy runs them, bit for bit."""
    wrong: list[str] = []
    for start in range(0, len(formulas), 6):
        some = formulas[start : start + 6]
        function = make_function(dtype, some)
        got = wgpu.load(compile(function, "wgsl"))(given)
        wanted = run_kernels(*make_kernels(function, "wgsl"), given)
        for number, formula in enumerate(some):
            a, b = got[f"r{number}"], wanted[f"r{number}"]
            same = (a.view(np.uint32) == b.view(np.uint32)) | ((a != a) & (b != b))
            if not same.all():
                at = int(np.flatnonzero(~same)[0])
                where = f"a = {given['a'][at]}, b = {given['b'][at]}"
                wrong.append(f"{formula} is {a[at]}, not {b[at]}: {where}")
    return wrong


def test_floats() -> None:
    assert find_wrong("f32", FLOATS, pairs(SPECIAL, np.float32)) == []


@pytest.mark.parametrize(("name", "dtype"), [("s32", np.int32), ("u32", np.uint32)])
def test_integers(name: str, dtype: type) -> None:
    assert find_wrong(name, INTEGERS, pairs(WHOLE, dtype)) == []


def test_divisors_stay_where_a_quotient_is_exact_enough() -> None:
    # Beyond 2^126 WGSL grants nothing: lavapipe is as exact there, other devices may not be.
    formulas = ("div(a, b)", "div(1.0, a)", "div(a, 3.0)", "div(a, 1e38)", "div(a, 0.0)")
    calls = ["divide(" in compile(make_function("f32", (formula,)), "wgsl").kernels[0].source
             for formula in formulas]  # fmt: skip
    assert calls == [True, True, False, True, True]
    large = (1e-3, 1.0, -7.25, 8.5e37, 8.6e37, -1.7e38, 3.4e38, np.inf)
    assert find_wrong("f32", formulas, pairs(large, np.float32)) == []


def test_f16_is_rounded_to_nearest_even_and_keeps_denormals() -> None:
    function = ir.parse(
        "func @f(%x: f16[n], %y: f32[n]) -> (%u, %v) {\n"
        "  %u: f16[i0 < n] = %x[i0]\n  %v: f16[i0 < n] = %y[i0]\n}"
    )
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    steps = halves.view(np.uint16).astype(np.uint32)[:0x7C00]
    exact = halves[:0x7C00].astype(np.float32)
    between = (exact[:-1] + np.diff(exact) / 2).astype(np.float32)
    y = np.resize(
        np.concatenate(
            [
                between,
                np.nextafter(between, np.float32(np.inf)),
                -between,
                np.float32([65519.9, 65520, 1e9, np.inf, np.nan]),
            ]
        ),
        65536,
    )
    assert steps.size == 31744
    got = wgpu.load(compile(function, "wgsl"))({"x": halves, "y": y})
    for found, wanted in ((got["u"], halves), (got["v"], y.astype(np.float16))):
        same = found.view(np.uint16) == wanted.view(np.uint16)
        assert (same | (np.isnan(found) & np.isnan(wanted))).all()


def test_a_value_less_itself_is_kept_where_both_sides_have_unseen_zeros() -> None:
    """A zero that is joined in twice by an operation such as `|` is one that a compiler drops."""
    function = ir.parse("""func @f(%X: f32[8, 1], %B: s32[1]) -> (%y) {
      %s: f32[i0 < 8, i1 < 1] = {
        v0 = lt(cast(i1, s32), %B[0])
        select(v0, mul(%X[i0, i1], 0.25), -inf)
      }
      %m: f32[i0 < 8, i1 < 1] = max[r1 < 1] %s[i0, r1]
      %y: f32[i0 < 8, i1 < 1] = sub(%s[i0, i1], %m[i0, 0])
    }""")
    inputs = {"X": np.ones((8, 1), np.float32), "B": np.zeros(1, np.int32)}
    assert np.isnan(wgpu.load(compile(function, "wgsl"))(inputs)["y"]).all()
