"""Rows that are reduced several times, in pieces around centres of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile, find_fusion, make_kernels
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from dmlc.transform.cost import Budget
from dmlc.transform.recentre import reduce_in_pieces
from tests.kernel.lowering import interpret
from tests.reductions import make_inputs

SMALL = Budget(held=1, groups=16, piece=256, launch_bytes=1 << 12)
"""Pieces of 256 to 512 points."""

NORM = """\
func @norm(%x: f32[6, 3, 32, 20]) -> (%mean, %variance, %y) {
  %sum: f32[i0 < 3] = sum[r0 < 6, r1 < 32, r2 < 20] %x[r0, i0, r1, r2]
  %mean: f32[i0 < 3] = div(%sum[i0], 3840.0)
  %centred: f32[i0 < 6, i1 < 3, i2 < 32, i3 < 20] = sub(%x[i0, i1, i2, i3], %mean[i1])
  %squares: f32[i0 < 3] = sum[r0 < 6, r1 < 32, r2 < 20] {
    v0 = %centred[r0, i0, r1, r2]
    mul(v0, v0)
  }
  %variance: f32[i0 < 3] = div(%squares[i0], 3840.0)
  %y: f32[i0 < 6, i1 < 3, i2 < 32, i3 < 20] = {
    div(%centred[i0, i1, i2, i3], sqrt(add(%variance[i1], 1e-05)))
  }
}"""

SOFTMAX = """\
func @softmax(%x: f32[2, 6144]) -> (%most, %total, %y) {
  %most: f32[i0 < 2] = max[r1 < 6144] %x[i0, r1]
  %odds: f32[i0 < 2, i1 < 6144] = exp(sub(%x[i0, i1], %most[i0]))
  %total: f32[i0 < 2] = sum[r1 < 6144] %odds[i0, r1]
  %y: f32[i0 < 2, i1 < 6144] = div(%odds[i0, i1], %total[i0])
}"""

LOSS = """\
func @loss(%x: f32[2, 6144], %target: f32[2, 6144]) -> (%loss) {
  %most: f32[i0 < 2] = max[r1 < 6144] %x[i0, r1]
  %total: f32[i0 < 2] = sum[r1 < 6144] exp(sub(%x[i0, r1], %most[i0]))
  %loss: f32[i0 < 2] = sum[r1 < 6144] {
    mul(neg(%target[i0, r1]), sub(sub(%x[i0, r1], %most[i0]), log(%total[i0])))
  }
}"""

GROUPS = """\
func @groups(%x: f32[4, 8, 16, 20], %dy: f32[4, 8, 16, 20], %scale: f32[8])
    -> (%turn, %plain, %dscale, %dbias) {
  %sum: f32[i0 < 4, i1 < 2] = sum[r0 < 4, r1 < 16, r2 < 20] %x[i0, add(mul(i1, 4), r0), r1, r2]
  %mean: f32[i0 < 4, i1 < 2] = div(%sum[i0, i1], 1280.0)
  %squares: f32[i0 < 4, i1 < 2] = sum[r0 < 4, r1 < 16, r2 < 20] {
    v0 = sub(%x[i0, add(mul(i1, 4), r0), r1, r2], %mean[i0, i1])
    mul(v0, v0)
  }
  %root: f32[i0 < 4, i1 < 2] = sqrt(add(div(%squares[i0, i1], 1280.0), 1e-05))
  %turn: f32[i0 < 4, i1 < 2] = sum[r0 < 4, r1 < 16, r2 < 20] {
    v0 = add(mul(i1, 4), r0)
    mul(mul(%dy[i0, v0, r1, r2], %scale[v0]), sub(%x[i0, v0, r1, r2], %mean[i0, i1]))
  }
  %plain: f32[i0 < 4, i1 < 2] = sum[r0 < 4, r1 < 16, r2 < 20] {
    v0 = add(mul(i1, 4), r0)
    mul(%dy[i0, v0, r1, r2], %scale[v0])
  }
  %dscale: f32[i0 < 8] = sum[r0 < 4, r1 < 16, r2 < 20] {
    v0 = div(i0, 4)
    mul(%dy[r0, i0, r1, r2], div(sub(%x[r0, i0, r1, r2], %mean[r0, v0]), %root[r0, v0]))
  }
  %dbias: f32[i0 < 8] = sum[r0 < 4, r1 < 16, r2 < 20] %dy[r0, i0, r1, r2]
}"""

ROWS = """\
func @rows(%x: f32[2, 6143]) -> (%mean, %variance) {
  %sum: f32[i0 < 2] = sum[r1 < 6143] %x[i0, r1]
  %mean: f32[i0 < 2] = div(%sum[i0], 6143.0)
  %variance: f32[i0 < 2] = sum[r1 < 6143] {
    v0 = sub(%x[i0, r1], %mean[i0])
    mul(v0, v0)
  }
}"""
"""Rows of a prime length: their last pieces are shorter."""

TEXTS = {
    "norm": NORM,
    "softmax": SOFTMAX,
    "loss": LOSS,
    "groups": GROUPS,
    "prime softmax": SOFTMAX.replace("6144", "6143"),
    "prime rows": ROWS,
}


def part(text: str, budget: Budget = SMALL) -> tuple[ir.Function, ir.Function]:
    """A function, and the same in pieces."""
    function = ir.parse(text)
    parted = reduce_in_pieces(function, budget)
    assert parted is not function
    ir.verify(parted, "reduce_in_pieces", function)
    return function, parted


def read_whole(function: ir.Function) -> list[str]:
    """Reductions that read elements of large parameters."""
    large = {p.name for p in function.parameters if len(p.extents) > 1}
    return [
        s.name
        for s in function.stages
        if s.reduction is not None and any(load.tensor in large for load in s.body.loads())
    ]


def is_near(found: Array, wanted: Array, allowed: Array) -> bool:
    return bool((abs(found.astype("f8") - wanted.astype("f8")) <= allowed).all())


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_only_pieces_read_whole_rows(text: str) -> None:
    function, parted = part(text)
    assert all("_pieces" in name for name in read_whole(parted))
    inputs = make_inputs(function)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in evaluate(parted, inputs).items():
        assert is_near(values, wanted[name], allowed[name]), name


def test_sums_of_unlike_axes_share_pieces() -> None:
    _, parted = part(GROUPS)
    # Of x, of its difference from the centre, of that squared, of that times dy, and of dy.
    assert len(read_whole(parted)) == 5


def test_a_large_mean_beside_a_small_variance_loses_no_more_than_before() -> None:
    function, parted = part(NORM)
    noise = np.random.default_rng(7).normal(size=(6, 3, 32, 20))
    inputs = {"x": (1e6 + noise).astype("f4")}
    whole = inputs["x"].astype("f8")
    exact = whole.var(axis=(0, 2, 3))
    before, after = (evaluate(f, inputs)["variance"].astype("f8") for f in (function, parted))
    # Means are rounded to multiples of 1/16, whose square is the error of a variance of 1.
    assert (abs(after - exact) <= abs(before - exact) + 1 / 256).all()


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "special",
    [
        [(0, 1, -INF)],
        [(0, 6143, -INF)],
        [(0, 2048, -INF)],
        [(0, 6144, -200.0), (0, 2048, -INF)],
        [(0, 6144, -INF)],
        [(5, 6, INF)],
        [(5, 6, INF), (4000, 4001, -INF)],
        [(5, 6, NAN)],
        [(0, 6144, -3e38)],
        [(0, 3072, -3e38), (3072, 6144, 3e38)],
    ],
    ids=[
        "one",
        "all but one",
        "whole pieces",
        "all low",
        "all",
        "infinity",
        "both",
        "NaN",
        "low",
        "far",
    ],
)
def test_special_values_of_a_softmax_are_as_before(special: list[tuple[int, int, float]]) -> None:
    function, parted = part(SOFTMAX)
    x = np.random.default_rng(3).normal(size=(2, 6144)).astype("f4")
    for first, last, value in special:
        x[0, first:last] = value
    with np.errstate(all="ignore"):
        wanted, found = (evaluate(f, {"x": x}) for f in (function, parted))
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_special_values_of_a_variance_are_as_before(value: float) -> None:
    function, parted = part(NORM)
    inputs = make_inputs(function)
    inputs["x"] = inputs["x"].copy()
    inputs["x"][2, 1, 5, 7] = value
    with np.errstate(all="ignore"):
        wanted, found = (evaluate(f, inputs) for f in (function, parted))
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "sizes",
    [{"6144": "512"}, {"%x: f32[2, 6144]": "%x: f32[N, 6144]", "< 2": "< N"}],
    ids=["short rows", "open sizes"],
)
def test_others_are_left(sizes: dict[str, str]) -> None:
    text = SOFTMAX
    for was, now in sizes.items():
        text = text.replace(was, now)
    function = ir.parse(text)
    assert reduce_in_pieces(function, SMALL) is function


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("mul(v0, v0)", "abs(v0)"),
        ("mul(v0, v0)", "exp(mul(v0, 0.5))"),
        ("mul(v0, v0)", "mul(v0, %mean[mod(r1, 3)])"),
        ("%centred[r0, i0, r1, r2]", "%centred[sub(5, r0), i0, sub(31, r1), sub(19, r2)]"),
    ],
    ids=["no polynomial", "a scaled exponent", "a factor that varies", "other places"],
)
def test_sums_that_have_no_centre_are_left(was: str, now: str) -> None:
    function = ir.parse(NORM.replace(was, now))
    assert reduce_in_pieces(function, SMALL) is function


def test_many_rows_are_left() -> None:
    function = ir.parse(SOFTMAX)
    assert reduce_in_pieces(function, dataclasses.replace(SMALL, groups=2)) is function


def test_a_cpu_reduces_whole_rows() -> None:
    text = SOFTMAX.replace("6144", "131072")
    names = [n for g in find_fusion(ir.parse(text), "opencl", "cpu").groups for n in g.stages]
    assert not any("pieces" in name for name in names)


LARGE = {
    "norm": NORM.replace("32", "256").replace("f256", "f32").replace("3840", "30720"),
    "softmax": SOFTMAX.replace("6144", "65536"),
    "prime": SOFTMAX.replace("6144", "65537"),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_two_kernels_go_through_memory(target: str, text: str) -> None:
    _, kernels = make_kernels(ir.parse(text), target, "gpu")
    assert len(kernels) == 2
    assert [any(b.name == "x" for b in kernel.buffers) for kernel in kernels] == [True, True]


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize(("target", "runtime"), [("opencl", opencl), ("hlsl", vulkan)])
def test_devices_agree(target: str, runtime: object, text: str) -> None:
    function = ir.parse(text)
    inputs = make_inputs(function)
    run = (opencl if runtime is opencl else vulkan).load(compile(function, target, "gpu"))
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in run(inputs).items():
        assert is_near(values, wanted[name], allowed[name]), name


@pytest.mark.parametrize("size", [32768, 32771])
def test_kernels_compute_special_values_as_stages_do(size: int) -> None:
    function = ir.parse(SOFTMAX.replace("6144", str(size)))
    x = np.random.default_rng(3).normal(size=(2, size)).astype("f4")
    x[0, :16384] = -INF
    x[1] = -INF
    with np.errstate(all="ignore"):
        wanted = evaluate(function, {"x": x})
    for name, values in interpret(function, {"x": x}, "hlsl", "gpu").items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-5)
