"""Kernels that compute softmax-weighted sums online, in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel.counts import Body
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests.attention import ONLINE, Attention

PROFILES = "cpu", "gpu"


def hold(function: ir.Function, inputs: dict[str, Array], found: dict[str, Array]) -> None:
    """Holds results to the reference's: within the bounds, NaN and infinities in place."""
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in found.items():
        got, expected = (v.astype(np.float64) for v in (values, wanted[name]))
        with np.errstate(invalid="ignore"):
            same = (np.abs(got - expected) <= allowed[name]) | (got == expected)
        same |= (np.isnan(got) & np.isnan(expected)) | np.isposinf(allowed[name])
        assert same.all(), name


def check(attention: Attention, profile: str, inputs: dict[str, Array] | None = None) -> None:
    function, inputs = attention.make(), inputs or attention.fill()
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    assert len(kernels) == 1
    hold(function, inputs, run_kernels(fused, kernels, inputs, misaligned=1))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "attention",
    [
        Attention(17, 33, mask="causal"),
        Attention(9, 16, batch=2, mask="lengths", heads=1),
        Attention(16, 40, mask="bias", heads=1, last=True),
        Attention(33, 17, mask="flags", heads=1, dtype="f16"),
        Attention(8, 24, mask="rows", heads=1, value_size=40, also="sum largest"),
    ],
    ids=str,
)
def test_in_the_interpreter(attention: Attention, profile: str) -> None:
    check(attention, profile)


def check_gradient(attention: Attention, profile: str) -> None:
    function = attention.differentiate()
    inputs = attention.fill(function)
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    assert len(kernels) == 3
    held = {b.name for kernel in kernels for b in kernel.buffers}
    named = {p.name for p in function.parameters} | {r.name for r in function.results}
    assert held - named == {"largest", "sum", "d_sum_2"}
    hold(function, inputs, run_kernels(fused, kernels, inputs, misaligned=1))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "attention",
    [
        Attention(17, 65, mask="causal", heads=1),
        Attention(33, 17, heads=1, size=72, value_size=32),
        Attention(16, 40, mask="bias", heads=1, last=True, dtype="f16"),
        Attention(24, 33, mask="lengths", heads=1, batch=2),
        Attention(33, 17, mask="flags", heads=1, value_size=40),
    ],
    ids=str,
)
def test_gradients_in_the_interpreter(attention: Attention, profile: str) -> None:
    check_gradient(attention, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_gradients_leave_out_what_a_mask_leaves_out(profile: str) -> None:
    attention = Attention(16, 80, heads=1, mask="causal")
    function = attention.differentiate()
    inputs = attention.fill(function)
    inputs["V"][0, 0, 64:, :2], inputs["K"][0, 0, 70:, 2] = np.inf, np.nan
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    found = run_kernels(fused, kernels, inputs, misaligned=1)
    assert np.isnan(evaluate(function, inputs)["dQ"]).any()
    assert all(np.isfinite(values).all() for values in found.values())
    hold(function, inputs, found)


@pytest.mark.parametrize(
    "attention",
    [
        Attention(5, 17, 96, 128, heads=1, mask="lengths", batch=2),
        Attention(4, 65, 80, 33, heads=1, mask="causal", dtype="f16"),
    ],
    ids=str,
)
def test_wide_heads_on_a_gpu(attention: Attention) -> None:
    """Sizes that are no whole tiles, of rows, keys, points and columns."""
    check(attention, "gpu")


@pytest.mark.parametrize(
    ("size", "is_gradient", "products", "least"),
    [(size, False, (2,), 7) for size in (32, 64, 96, 128)]
    + [(size, True, (2, 3, 4), 4.5) for size in (32, 64)],
)
def test_products_on_a_gpu_read_little_of_shared_memory(
    size: int, is_gradient: bool, products: tuple[int, ...], least: float
) -> None:
    """One read or write for `least` multiply-adds at most, vectors of four among them. With a row
    to a work item that is one for each."""
    attention = Attention(1024, 1024, size, size, batch=2, heads=8)
    function = attention.differentiate() if is_gradient else attention.make()
    _, kernels = make_kernels(function, "hlsl", "gpu", steps=ONLINE)

    def add(body: Body) -> float:
        return body.shared + sum(loop.turns * add(loop.body) for loop in body.loops)

    for kernel, count in zip(kernels, products, strict=True):
        counted = count_steps(kernel)
        assert counted is not None
        assert counted.threads * add(counted.body) < count * size * 16 * 1024**2 / least
        assert sum(array.size * 4 for array in kernel.arrays if array.shared) <= 1 << 15


@pytest.mark.parametrize("profile", PROFILES)
def test_scores_that_are_no_numbers(profile: str) -> None:
    """Rows whose first keys, last keys, or all of them are left out; NaN, and infinities."""
    attention = Attention(16, 24, heads=1, mask="bias", also="sum largest")
    inputs = attention.fill()
    bias = inputs["B"]
    bias[0], bias[1, 8:], bias[2, :20] = -np.inf, -np.inf, -np.inf
    bias[3, 0], bias[4, 23] = np.nan, np.nan
    bias[5, 0], bias[6, 23] = np.inf, np.inf
    bias[7], bias[8, ::2] = np.inf, -np.inf
    inputs["V"][0, 0, 3, :2] = np.inf
    inputs["V"][0, 0, 5, 2:4] = np.nan
    check(attention, profile, inputs)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_mask_leaves_out_may_be_anything(profile: str) -> None:
    """Its blocks are not computed, where a condition on positions leaves all of one out. As
    written, its weight of 0 makes an infinity NaN; that is allowed too."""
    attention = Attention(24, 80, heads=1, mask="causal")
    function, inputs = attention.make(), attention.fill()
    inputs["V"][0, 0, 64:, :2], inputs["V"][0, 0, 70:, 2] = np.inf, np.nan
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    found = run_kernels(fused, kernels, inputs, misaligned=1)["O"]
    assert np.isnan(evaluate(function, inputs)["O"][0, 0, :, :3]).all()
    assert np.isfinite(found).all()
    allowed = bound_errors(function, inputs)["O"]
    assert np.isposinf(allowed[0, 0, :, :3]).all()
    assert np.isfinite(allowed[0, 0, :, 3:]).all()
    hold(function, inputs, {"O": found})


SUM = """%w: f32[i0 < 1, i1 < 2, i2 < 17, i3 < 40] = sum[r0 < 33] mul(
                %p[i0, i1, i2, r0], %V[i0, i1, r0, i3])
              %O: f32[i0 < 1, i1 < 17, i2 < 2, i3 < 40]"""
PLAIN, VALUE, READ = "= %t[i0, i1, i2, i3]", "%V[i0, i1, r0, i3])", "%V: f32[1, 2, 33, 40]"
OTHERS: dict[str, tuple[str, str, str, str]] = {
    "a residual": (
        READ, "%R: f32[1, 17, 2, 40]", "",
        f"{SUM} = add(%w[i0, i2, i1, i3], %R[i0, i1, i2, i3])",
    ),
    "a relative bias": (READ, "%R: f32[60]", PLAIN, "= add(%t[i0, i1, i2, i3], %R[add(i2, i3)])"),
    "flags of keys": (
        READ, "%R: bool[1, 33]", PLAIN, "= select(%R[i0, i3], %t[i0, i1, i2, i3], -inf)",
    ),
    "a window": (
        READ, "", PLAIN,
        "= select(and(le(i3, add(i2, 3)), le(i2, add(i3, 9))), %t[i0, i1, i2, i3], -inf)",
    ),
    "a soft cap": (READ, "", PLAIN, "= mul(tanh(mul(%t[i0, i1, i2, i3], 0.1)), 10.0)"),
    "dropout": (
        READ, "%R: f32[17, 33]", "mul(%p[i0, i1, i2, r0]",
        "mul(mul(%p[i0, i1, i2, r0], %R[i2, r0])",
    ),
    "values that are computed": (
        READ, "%R: f32[33]", VALUE, "add(%V[i0, i1, r0, i3], %R[r0]))",
    ),
    "keys that are computed": (
        READ, "%R: f32[2, 32]", "%K[i0, i1, i3, r0]", "add(%K[i0, i1, i3, r0], %R[i1, r0])",
    ),
    "strides": (
        "%K: f32[1, 2, 33, 32]", "%K: f32[1, 2, 33, 32]{2112, 1, 64, 2}",
        "%Q: f32[1, 2, 17, 32]", "%Q: f32[1, 2, 17, 32]{1088, 32, 64, 1}",
    ),
    "keys that heads share": (
        "%K: f32[1, 2, 33, 32]", "%K: f32[1, 1, 33, 32]", "%K[i0, i1,", "%K[i0, 0,",
    ),
}  # fmt: skip
"""What is given besides, and what stands in place of a text."""


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", OTHERS)
def test_what_else_is_computed_of_scores_and_sums(name: str, profile: str) -> None:
    given, more, text, by = OTHERS[name]
    written = str(Attention(17, 33, value_size=40).make())
    if not text:
        text = next(line.strip() for line in written.splitlines() if line.strip().startswith("%O:"))
    assert given in written
    assert text in written
    whole = more if more.startswith(given[:3]) else ", ".join(filter(None, (given, more)))
    function = ir.parse(written.replace(given, whole).replace(text, by))
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        sizes = [int(e) for e in p.extents]
        drawn = random.standard_normal(sizes) if p.dtype.is_float else random.integers(0, 2, sizes)
        inputs[p.name] = drawn.astype(p.dtype.dtype)
    fused, kernels = make_kernels(function, "opencl", profile, steps=ONLINE)
    assert len(kernels) == 1
    hold(function, inputs, run_kernels(fused, kernels, inputs, misaligned=1))
