"""Sums of products in FLOAT32: each step multiplies and adds at once, whatever the schedule."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import operate
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import find_body, map_expressions, map_operands, replace_body
from dmlc.loops.primitives import apply
from dmlc.loops.script import parse_script
from dmlc.pipeline import compile, make_kernels
from dmlc.scalars import OPERATIONS, Array
from dmlc.testing.schedules import draw_steps, follow
from tests.kernel.schedules import LIMITS, read, start

FMA = OPERATIONS["fma"].evaluate


def draw_inputs(function: ir.Function, seed: int = 1) -> dict[str, Array]:
    """Values whose products and sums are rounded."""
    draw = np.random.default_rng(seed)
    return {
        p.name: draw.standard_normal([int(e) for e in p.extents]).astype(p.dtype.dtype)
        for p in function.parameters
    }


def lower(text: str, target: str = "opencl", profile: str = "cpu") -> str:
    """The kernels of a function."""
    _, kernels = make_kernels(ir.parse(text), target, profile)
    return "\n".join(map(print_kernel, kernels))


# What enters a sum unrounded ------------------------------------------------------------------

SUM = """
func @f(%X: {t}[4, 40], %W: {t}[40], %V: {t}[40]) -> (%Y) {{
  %Y: {t}[i0 < 4] = {fold}[r0 < 40] {term}
}}"""


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("term", "products"),
    [
        ("mul(%X[i0, r0], %W[r0])", 0),
        ("mul(%X[i0, r0], %X[i0, r0])", 0),
        ("mul(mul(%X[i0, r0], %W[r0]), %V[r0])", 1),  # The last of several is.
        ("mul(%X[i0, r0], mul(%W[r0], %V[r0]))", 1),
    ],
)
def test_products_that_are_summed(term: str, products: int, profile: str) -> None:
    text = lower(SUM.format(t="f32", fold="sum", term=term), profile=profile)
    assert "fma(" in text
    rounded = [line for line in text.splitlines() if "mul(" in line and ": index" not in line]
    assert sum("mul(X" in line or "mul(mul" in line or "mul(W" in line for line in rounded) <= (
        products * text.count("fma(")
    )
    assert not any("add(" in line and "mul(" in line and "X" in line for line in rounded)


@pytest.mark.parametrize(
    ("t", "fold", "term"),
    [
        ("f32", "sum", "add(mul(%X[i0, r0], %W[r0]), %V[r0])"),  # No product.
        ("f32", "sum", "%X[i0, r0]"),
        ("f32", "max", "mul(%X[i0, r0], %W[r0])"),
        ("f32", "product", "mul(%X[i0, r0], %W[r0])"),
        ("f64", "sum", "mul(%X[i0, r0], %W[r0])"),
        ("s32", "sum", "mul(%X[i0, r0], %W[r0])"),
    ],
)
def test_what_is_no_sum_of_products_in_float32_stays(t: str, fold: str, term: str) -> None:
    assert "fma(" not in lower(SUM.format(t=t, fold=fold, term=term))


def test_a_product_and_a_sum_that_a_formula_writes_are_rounded_each() -> None:
    text = lower("""
        func @f(%X: f32[40], %W: f32[40], %V: f32[40]) -> (%Y) {
          %Y: f32[i0 < 40] = add(mul(%X[i0], %W[i0]), %V[i0])
        }""")
    assert "fma(" not in text
    assert "add(mul(" in text


def test_a_product_that_is_stored_as_well_enters_its_sum_unrounded() -> None:
    function = ir.parse("""
        func @f(%X: f32[4, 40], %W: f32[40]) -> (%P, %Y) {
          %P: f32[i0 < 4, i1 < 40] = mul(%X[i0, i1], %W[i1])
          %Y: f32[i0 < 4] = sum[r0 < 40] %P[i0, r0]
        }""")
    fused, kernels = make_kernels(function, "opencl", "gpu")
    text = "\n".join(map(print_kernel, kernels))
    assert len(kernels) > 1 or "fma(" in text
    inputs = draw_inputs(function)
    found = run_kernels(fused, kernels, inputs)
    np.testing.assert_array_equal(found["P"], inputs["X"] * inputs["W"])


WORDS = {"opencl": "fma_float", "hlsl": "= mad(", "wgsl": "= fma("}


@pytest.mark.parametrize("target", WORDS)
def test_each_language_has_one_operation_for_it(target: str) -> None:
    function = ir.parse(SUM.format(t="f32", fold="sum", term="mul(%X[i0, r0], %W[r0])"))
    sources = "".join(kernel.source for kernel in compile(function, target, "gpu").kernels)
    assert WORDS[target] in sources


# The same bits of every schedule --------------------------------------------------------------


def round_apart(kernel: k.Kernel) -> k.Kernel:
    """A kernel that rounds each product by itself."""

    def change(node: k.Expression) -> k.Expression:
        node = map_operands(node, change)
        if isinstance(node, k.Operate) and node.operation.name == "fma":
            x, y, z = node.operands
            return operate("add", z, operate("mul", x, y))
        return node

    def write(statements: Sequence[k.Statement]) -> tuple[k.Statement, ...]:
        made = [map_expressions(s, change) for s in statements]
        return tuple(replace_body(s, write(find_body(s))) if find_body(s) else s for s in made)

    return dataclasses.replace(kernel, body=write(kernel.body))


def are_same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return all(np.array_equal(values, other[name]) for name, values in one.items())


@pytest.mark.parametrize("name", ["rows", "product", "masked product", "products of groups"])
def test_schedules_that_keep_an_order_keep_the_bits(name: str) -> None:
    """A schedule keeps the order of the sums where nothing shows of it with rounded products. So
    nothing may where these are not, but for parts of one product, which is rounded."""
    draw, kept = random.Random(name), 0
    for seed in range(16):
        kernels = read(name, (draw.randint(2, 5), draw.randint(5, 7), draw.randint(5, 18)), "sum")
        naive = start(kernels)
        ways = [follow(n, kernels.function, LIMITS, draw_steps(draw)) for n in naive]
        nests = [nest for nest, _ in ways]
        plain, made = kernels.lower(naive), kernels.lower(nests)
        inputs = draw_inputs(kernels.function, seed)
        apart = [
            run_kernels(kernels.function, [round_apart(each) for each in some], inputs)
            for some in (plain, made)
        ]
        if are_same(*apart) and not any("partial" in done for _, done in ways):
            kept += 1
            found = [run_kernels(kernels.function, some, inputs) for some in (plain, made)]
            assert are_same(*found), "\n\n".join(map(str, nests))
    assert kept >= 4


WINDOWS = """
func @f(%X: f32[3, {n}], %W: f32[3]) -> (%Y) {{
  %Y: f32[i0 < 3, i1 < {n}] = sum[r0 < 3 where and(
      ge(sub(add(i1, r0), 1), 0), lt(sub(add(i1, r0), 1), {n}))]
    mul(%X[i0, sub(add(i1, r0), 1)], %W[r0])
}}"""


@pytest.mark.parametrize(("target", "profile"), [("opencl", "cpu"), ("hlsl", "gpu")])
@pytest.mark.parametrize("n", [5, 64, 70, 300])
def test_windows_have_the_same_bits_inside_and_at_the_edges(
    n: int, target: str, profile: str
) -> None:
    """Inside, and in vectors, windows are written out, and at the edges they are loops."""
    function = ir.parse(WINDOWS.format(n=n))
    inputs = draw_inputs(function)
    fused, kernels = make_kernels(function, target, profile)
    found = run_kernels(fused, kernels, inputs)["Y"]
    x, w = np.pad(inputs["X"], ((0, 0), (1, 1))), inputs["W"]
    total = np.zeros((3, n), np.float32)
    for place in range(3):
        total = FMA(x[:, place : place + n], np.full_like(total, w[place]), total)
    np.testing.assert_array_equal(found, total)


def test_a_point_that_takes_no_part_leaves_a_sum_as_it_is() -> None:
    """Whatever its factors are."""
    kernels = read("masked product", (4, 5, 4), "sum")
    inputs = draw_inputs(kernels.function)
    inputs["B"][:, 3], inputs["A"][0, 2] = np.inf, np.nan
    (nest,) = start(kernels)
    masked = apply(nest, kernels.function, LIMITS, *parse_script("vectorize k 4"))
    ways = [kernels.lower([nest]), kernels.lower([masked])]
    assert ["select(" in print_kernel(made) for (made,) in ways] == [False, True]
    ways += [
        make_kernels(kernels.function, *way)[1] for way in (("opencl", "gpu"), ("hlsl", "gpu"))
    ]
    for made in ways:
        found = run_kernels(kernels.function, made, inputs)["Y"]
        assert np.isfinite(found[:3]).all()
        assert not np.isfinite(found[3]).any()


# What it evaluates to -------------------------------------------------------------------------


def round_exactly(exact: Fraction) -> np.float32:
    near = np.float32(float(exact))
    ends = [np.nextafter(near, np.float32(e), dtype=np.float32) for e in (-np.inf, np.inf)]
    even = {float(v): int(v.view(np.int32)) & 1 for v in (near, *ends)}
    return np.float32(min(even, key=lambda v: (abs(Fraction(v) - exact), even[v])))


def test_it_rounds_once() -> None:
    draw = np.random.default_rng(5)
    size = 2000
    scale = 2.0 ** draw.integers(-30, 10, (2, size))
    x, y = (draw.integers(-(2**24), 2**24, (2, size)) * scale).astype(np.float32)
    product = x.astype(np.float64) * y
    z = (product * 2.0 ** draw.integers(-40, 40, size) * draw.choice([-1, 1], size)).astype(
        np.float32
    )
    # Ties of the product, and what is too small for FLOAT64 beside it.
    x[:4] = y[:4] = 1 + 2.0**-12
    z[:4] = 2.0**-80, -(2.0**-80), 0, 2.0**-24
    found = FMA(x, y, z)
    wanted = [
        round_exactly(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    np.testing.assert_array_equal(found, wanted)
    assert found[0] != found[1]


@pytest.mark.parametrize("below", [True, False])
def test_it_rounds_once_below_the_normal_numbers(below: bool) -> None:
    """A little more or less than half of the smallest number is no tie. One operand is for all."""
    tiny = np.float32(2.0**-75)
    x = np.array([tiny * np.float32(1 + 2.0**-23)])
    y = tiny * np.array([1 - 2.0**-23 if below else 1 - 2.0**-24] * 2, np.float32)
    z = np.array([2.0**-127 + 2.0**-149, 2.0**-127], np.float32)
    exact = [Fraction(float(x[0])) * Fraction(float(y[0])) + Fraction(float(c)) for c in z]
    np.testing.assert_array_equal(FMA(x, y, z), [round_exactly(e) for e in exact])


def test_special_values() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([inf, inf, nan, 0, 3e38, 3e38, -0.0], np.float32)
    y = np.array([0, 1, 1, 1, 10, 10, 1], np.float32)
    z = np.array([1, -inf, 0, -0.0, -inf, 0, -0.0], np.float32)
    with np.errstate(all="ignore"):
        found = FMA(x, y, z)
    np.testing.assert_array_equal(found, np.array([nan, nan, nan, 0, -inf, inf, -0.0], np.float32))
    assert np.signbit(found).tolist()[3:] == [False, True, False, True]


def test_products_of_halves_are_exact() -> None:
    """So that a sum of them is the same, whether they are rounded or not."""
    draw = np.random.default_rng(1)
    a, b = (draw.integers(0, 1 << 16, 4000).astype(np.uint16).view(np.float16) for _ in range(2))
    x, y = (v[np.isfinite(a) & np.isfinite(b)].astype(np.float32) for v in (a, b))
    z = draw.standard_normal(len(x)).astype(np.float32)
    np.testing.assert_array_equal(FMA(x, y, z), x * y + z)


def test_written_values_are_as_simple_as_they_can_be() -> None:
    builder = ir.BodyBuilder()
    x, y, z = (builder.add(ir.Index(axis)) for axis in range(3))
    x, y, z = (
        builder.cast(builder.cast(v, ir.DataType.INT32), ir.DataType.FLOAT32) for v in (x, y, z)
    )
    one, none = (builder.constant(v, ir.DataType.FLOAT32) for v in (1.0, -0.0))
    zero = builder.constant(0.0, ir.DataType.FLOAT32)
    assert builder.apply("fma", x, one, z) == builder.apply("add", z, x)
    assert builder.apply("fma", one, y, z) == builder.apply("add", z, y)
    assert builder.apply("fma", x, y, none) == builder.apply("mul", x, y)
    kept = builder.instructions[builder.apply("fma", x, y, zero)]
    assert isinstance(kept, ir.Apply)
    assert kept.operation.name == "fma"
