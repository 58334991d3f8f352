"""Products that are added to sums, as one operation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc
from dmlc.kernel.contract import contract_sums
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.pipeline import compile
from dmlc.scalars import MULTIPLY_ADD

KERNEL = """kernel sums {{
  launch ceil(1 / 1) groups of 1, index u32
  buffer x: {t}[2] read
  buffer y: {t}[2] write
  array part: {t}[4]
  var a: {t} = 0:{t}
  for i in 0 .. 2 {{
    {body}
  }}
  store y[0] = a
}}"""


def contract(body: str, t: str = "f32") -> str:
    kernel = parse_kernel(KERNEL.format(t=t, body=body))
    lines = print_kernel(contract_sums(kernel)).splitlines()
    text = lines[lines.index("  for i in 0 .. 2 {") + 1].strip()
    assert parse_kernel(print_kernel(contract_sums(kernel))) == contract_sums(kernel)
    return text


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("set a = add(a, mul(x[i], x[0]))", "set a = fma(x[i], x[0], a)"),
        ("store_local part[i] = add(part[i], mul(x[i], x[0]))",
         "store_local part[i] = fma(x[i], x[0], part[i])"),
    ],
)  # fmt: skip
def test_products_that_are_summed(body: str, made: str) -> None:
    assert contract(body) == made


@pytest.mark.parametrize(
    "body",
    [
        "set a = add(x[0], mul(x[i], x[0]))",
        "set a = add(a, neg(x[i]))",
        "set a = mul(a, mul(x[i], x[0]))",
        "set a = mul(x[i], x[0])",
        "store_local part[i] = add(part[0], mul(x[i], x[0]))",
        "let b: f32 = add(a, mul(x[i], x[0]))",
    ],
)
def test_what_is_no_sum_stays(body: str) -> None:
    assert contract(body) == body


def test_other_types_stay() -> None:
    for t in ("f64", "s32"):
        assert contract("set a = add(a, mul(x[i], x[0]))", t).startswith("set a = add(")


@pytest.mark.parametrize(
    ("target", "word"), [("opencl", "fma_float"), ("hlsl", "mad("), ("wgsl", "fma(")]
)
def test_it_is_left_out_where_that_is_asked_for(target: str, word: str) -> None:
    square = TensorDesc("FLOAT32", (4, 4))
    function = dmlc.operator("directml.GEMM").bind({"ATensor": square, "BTensor": square})
    for asked in (True, False):
        program = compile(function, target, contract=asked)
        assert (word in "".join(k.source for k in program.kernels)) == asked == program.contract


# What it evaluates to ---------------------------------------------------------------------------


def round_exactly(exact: Fraction) -> np.float32:
    near = np.float32(float(exact))
    ends = [np.nextafter(near, np.float32(e), dtype=np.float32) for e in (-np.inf, np.inf)]
    even = {float(v): int(v.view(np.int32)) & 1 for v in (near, *ends)}
    return np.float32(min(even, key=lambda v: (abs(Fraction(v) - exact), even[v])))


def test_it_rounds_once() -> None:
    random = np.random.default_rng(5)
    size = 2000
    scale = 2.0 ** random.integers(-30, 10, (2, size))
    x, y = (random.integers(-(2**24), 2**24, (2, size)) * scale).astype(np.float32)
    product = x.astype(np.float64) * y
    z = (product * 2.0 ** random.integers(-40, 40, size) * random.choice([-1, 1], size)).astype(
        np.float32
    )
    # Ties of the product, and what is too small for FLOAT64 beside it.
    x[:4] = y[:4] = 1 + 2.0**-12
    z[:4] = 2.0**-80, -(2.0**-80), 0, 2.0**-24
    found = MULTIPLY_ADD.evaluate(x, y, z)
    wanted = [
        round_exactly(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    np.testing.assert_array_equal(found, wanted)
    assert found[0] != found[1]


def test_special_values() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([inf, inf, nan, 0, 3e38, 3e38, -0.0], np.float32)
    y = np.array([0, 1, 1, 1, 10, 10, 1], np.float32)
    z = np.array([1, -inf, 0, -0.0, -inf, 0, -0.0], np.float32)
    with np.errstate(all="ignore"):
        found = MULTIPLY_ADD.evaluate(x, y, z)
    np.testing.assert_array_equal(found, np.array([nan, nan, nan, 0, -inf, inf, -0.0], np.float32))
    assert np.signbit(found).tolist()[3:] == [False, True, False, True]
