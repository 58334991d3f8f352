"""Kernels with reductions on OpenCL, both profiles, between guard bytes and at any alignment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.binding import TensorDesc
from dmlc.catalog import operator
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.target import CPU
from dmlc.loops.arrange import collapse
from dmlc.loops.element import collect_elements
from dmlc.loops.legality import chain
from dmlc.loops.naive import naive
from dmlc.loops.nodes import in_vectors
from dmlc.loops.phases import Phase
from dmlc.lowering.assemble import make_kernel
from dmlc.pipeline import compile, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import TENSOR_TYPES, Array, DataType
from dmlc.source import InternalError
from tests import reductions
from tests.cover import cover
from tests.opencl_launch import run_program
from tests.reductions import SHAPES, find_disagreements, make_inputs

PROFILES = ("cpu", "gpu")


def check(
    function: ir.Function, profile: str, points: int, size: float = 1.0, misaligned: int = 0
) -> None:
    inputs = make_inputs(function)
    got = run_program(compile(function, "opencl", profile), inputs, misaligned=misaligned)
    agree(function, inputs, got, points, size)


def agree(
    function: ir.Function,
    inputs: Mapping[str, Array],
    got: Mapping[str, Array],
    points: int,
    size: float,
) -> None:
    exact = ("max", "min", "argmin", "argmax")
    assert find_disagreements(got, evaluate(function, inputs), points, size, exact) == []


def every_combiner(shape: str, dtype: DataType) -> tuple[ir.Function, float]:
    """And how large its values are."""
    boolean = dtype is DataType.BOOL
    combiners = reductions.BOOLEAN_COMBINERS if boolean else reductions.COMBINERS
    function = reductions.every_combiner(dtype, SHAPES[shape], combiners)
    return function, 9.0 if dtype.is_integer else 1.0


EVERY_OTHER = [
    (shape, dtype, PROFILES[(row + column) // 2 % 2])
    for row, shape in enumerate(SHAPES)
    for column, dtype in enumerate(TENSOR_TYPES)
    if (row + column) % 2 == 0
]
"""Every shape with every other type, for each profile in turn."""


@pytest.mark.grid(3)
@pytest.mark.parametrize(("shape", "dtype", "profile"), EVERY_OTHER, ids=str)
def test_every_combiner(shape: str, dtype: DataType, profile: str) -> None:
    function, size = every_combiner(shape, dtype)
    check(function, profile, SHAPES[shape].points, size, misaligned=1)


@pytest.mark.grid(3)
@pytest.mark.parametrize("dtype", TENSOR_TYPES, ids=lambda t: t.short)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_combiner_in_numpy(shape: str, dtype: DataType) -> None:
    function, size = every_combiner(shape, dtype)
    inputs = make_inputs(function)
    got = run_kernels(*make_kernels(function, "opencl", "gpu"), inputs, misaligned=1)
    agree(function, inputs, got, SHAPES[shape].points, size)


NORMS = {
    "one group": ((2, 3, 4, 5), (1,)),
    "long rows": ((3, 20, 40, 50), (1,)),
    "short rows": ((8, 40, 7, 7), (1,)),
    "columns": ((40, 300), (1,)),
    "few columns": ((600, 3), (1,)),
    "channels last": ((2, 9, 9, 48), (3,)),
    "rows": ((50, 300), (0,)),
    "all": ((3, 4, 5), (0, 1, 2)),
    "none": ((30, 40, 9), ()),
    "few and long": ((40_000, 2), (1,)),
    "one axis": ((100,), ()),
}


@pytest.mark.parametrize(
    ("case", "dtype", "profile"), cover(2, tuple(NORMS), ("f32", "f16", "bf16"), PROFILES)
)
def test_batch_norm_training_grad(case: str, dtype: str, profile: str) -> None:
    sizes, kept = NORMS[case]
    points = math.prod(n for a, n in enumerate(sizes) if a not in kept)
    function = reductions.batch_norm_training_grad(sizes, kept, dtype)
    for misaligned in (0, 1):
        check(function, profile, points, 6.0, misaligned)


SOFTMAX = """func @softmax(%X: f32[{n}, {m}]) -> (%Y) {{
  %most: f32[i0 < {n}] = max[r1 < {m}] %X[i0, r1]
  %e: f32[i0 < {n}, i1 < {m}] = exp(sub(%X[i0, i1], %most[i0]))
  %total: f32[i0 < {n}] = sum[r1 < {m}] %e[i0, r1]
  %Y: f32[i0 < {n}, i1 < {m}] = div(%e[i0, i1], %total[i0])
}}"""

LEADING = """func @softmax_of_columns(%X: f32[{n}, {m}]) -> (%Y) {{
  %most: f32[i0 < 1, i1 < {m}] = max[r0 < {n}] %X[r0, i1]
  %e: f32[i0 < {n}, i1 < {m}] = exp(sub(%X[i0, i1], %most[0, i1]))
  %total: f32[i0 < 1, i1 < {m}] = sum[r0 < {n}] %e[r0, i1]
  %Y: f32[i0 < {n}, i1 < {m}] = div(%e[i0, i1], %total[0, i1])
}}"""

VARIANCE = """func @moments(%X: f32[{n}, {m}]) -> (%V, %M, %T) {{
  %M: f32[i0 < {n}, i1 < 1] = sum[r1 < {m}] div(%X[i0, r1], {m}.0)
  %V: f32[i0 < {n}, i1 < 1] = sum[r1 < {m}] mul(\
sub(%X[i0, r1], %M[i0, 0]), sub(%X[i0, r1], %M[i0, 0]))
  %T: f32[i0 < 1] = max[r0 < {n}] %V[r0, 0]
}}"""

SCALAR = """func @scale_to_one(%X: f32[{n}, {m}]) -> (%Y, %S, %A) {{
  %s: f32[] = sum[r0 < {n}, r1 < {m}] mul(%X[r0, r1], %X[r0, r1])
  %S: f32[] = sqrt(%s[])
  %Y: f32[i0 < {n}, i1 < {m}] = div(%X[i0, i1], sqrt(%s[]))
  %A: s32[i0 < 1, i1 < 1] = argmax[r0 < {n}, r1 < {m}] %X[r0, r1]
}}"""

ACROSS = """func @across(%X: f32[{n}, {m}], %Z: f32[{m}, {n}]) -> (%S, %Y) {{
  %S: f32[i0 < {n}] = sum[r0 < {m}] mul(%X[i0, r0], %Z[r0, i0])
  %Y: f32[i0 < {m}, i1 < {n}] = mul(%Z[i0, i1], %S[i1])
}}"""

GUARD = """func @guarded(%X: f32[{n}, {m}]) -> (%A, %S, %Y) {{
  %A: s32[i0 < {n}] = argmin[r0 < {m} where gt(%X[i0, r0], 0.0)] %X[i0, r0]
  %S: f32[i0 < {n}] = sum[r0 < {m} where gt(%X[i0, r0], 0.0)] %X[i0, r0]
  %some: boolean[i0 < {n}] = any[r0 < {m}] gt(%X[i0, r0], 2.0)
  %Y: f32[i0 < {n}, i1 < {m}] = select(%some[i0], %X[i0, i1], %S[i0])
}}"""

PRODUCT = """func @matrices(%A: f32[{n}, 33], %B: f32[33, {m}]) -> (%C, %D) {{
  %C: f32[i0 < {n}, i1 < {m}] = sum[r0 < 33] mul(%A[i0, r0], %B[r0, i1])
  %D: f32[i0 < {n}, i1 < {m}] = max(%C[i0, i1], 0.0)
}}"""

STORED = """func @less_the_most(%X: f16[{n}, {m}]) -> (%M, %Y) {{
  %M: f16[i0 < {n}] = max[r1 < {m}] %X[i0, r1]
  %Y: f16[i0 < {n}, i1 < {m}] = sub(%X[i0, i1], %M[i0])
}}"""

DIAGONAL = """func @diagonal(%X: f32[{m}, {m}]) -> (%T) {{
  %T: f32[i0 < {n}] = sum[r1 < {m}] %X[r1, r1]
}}"""

BESIDE = """func @beside(%X: f32[{n}, {m}]) -> (%R, %Y) {{
  %R: f32[i0 < {n}, i1 < {m}] = max(%X[i0, i1], 0.0)
  %s: f32[i0 < {n}] = sum[r1 < {m}] max(%X[i0, r1], 0.0)
  %Y: f32[i0 < {n}, i1 < {m}] = sub(%X[i0, i1], %s[i0])
}}"""

NOTHING = """func @nothing(%X: f32[{n}, 0]) -> (%M, %S, %Y, %A, %E) {{
  %M: f32[i0 < {n}] = max[r1 < 0] %X[i0, r1]
  %S: f32[i0 < {n}] = sum[r1 < 0] %X[i0, r1]
  %A: s32[i0 < {n}] = argmax[r1 < 0] %X[i0, r1]
  %Y: f32[i0 < {n}, i1 < {m}] = %S[i0]
  %E: f32[i0 < 0] = sum[r1 < {n}] %X[r1, i0]
}}"""

EMPTY = """func @empty(%X: f32[{n}, {m}]) -> (%S, %Y) {{
  %S: f32[i0 < {n}] = sum[r1 < {m}] %X[i0, r1]
  %Y: f32[i0 < {n}, i1 < 0] = %S[i0]
}}"""

TEXTS = {
    "softmax": SOFTMAX, "leading": LEADING, "variance": VARIANCE, "scalar": SCALAR,
    "across": ACROSS, "guard": GUARD, "product": PRODUCT, "stored": STORED,
    "diagonal": DIAGONAL, "beside": BESIDE, "nothing": NOTHING, "empty": EMPTY,
}  # fmt: skip


SIZES = [(1, 1), (3, 7), (40, 33), (5, 1000), (300, 20), (2, 70_000)]


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("text", "sizes", "profile"), cover(2, tuple(TEXTS), SIZES, PROFILES), ids=str
)
def test_stages_that_read_reductions(text: str, sizes: tuple[int, int], profile: str) -> None:
    n, m = sizes
    if text in ("diagonal", "product") and n * m > 40_000:
        n, m = 3, 200
    check(ir.parse(TEXTS[text].format(n=n, m=m)), profile, n * m)


@st.composite
def functions(draw: st.DrawFn) -> tuple[ir.Function, int]:
    """Two reductions of a strided tensor and one that repeats, over any axes, applied to it."""
    rank = draw(st.integers(1, 6))
    sizes = [draw(st.sampled_from((1, 2, 3, 4, 5, 17))) for _ in range(rank)]
    kept = [axis for axis in range(rank) if draw(st.booleans())]
    order = draw(st.permutations(range(rank)))
    step = draw(st.sampled_from((1, 1, 2)))
    strides = [0] * rank
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
    repeated = [0 if draw(st.booleans()) else s for s in ir.packed_strides(tuple(sizes))]
    first, second = (draw(st.sampled_from(("sum", "max", "min"))) for _ in range(2))
    at = ", ".join(f"i{a}" if a in kept else f"r{a}" for a in range(rank))
    domain = ", ".join(f"i{a} < {n if a in kept else 1}" for a, n in enumerate(sizes))
    over = ", ".join(f"r{a} < {n}" for a, n in enumerate(sizes) if a not in kept)
    k = ", ".join(f"i{a}" if a in kept else "0" for a in range(rank))
    whole = ", ".join(f"i{a} < {n}" for a, n in enumerate(sizes))
    own = ", ".join(f"i{a}" for a in range(rank))
    listed = ", ".join(map(str, sizes))
    text = f"""func @f(%X: f32[{listed}]{{{", ".join(map(str, strides))}}}, \
%Z: f32[{listed}]{{{", ".join(map(str, repeated))}}}) -> (%A, %B, %Y) {{
  %A: f32[{domain}] = {first}[{over}] %X[{at}]
  %B: f32[{domain}] = {second}[{over}] mul(%X[{at}], sub(%Z[{at}], %A[{k}]))
  %Y: f32[{whole}] = add(%X[{own}], mul(%A[{k}], sub(%Z[{own}], %B[{k}])))
}}"""
    points = math.prod(n for a, n in enumerate(sizes) if a not in kept)
    return ir.parse(text), points


@settings(max_examples=30, deadline=None)
@given(functions(), st.sampled_from(PROFILES))
def test_any_axes_and_strides(case: tuple[ir.Function, int], profile: str) -> None:
    function, points = case
    check(function, profile, points**3, 1.0)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("combiner", ["argmin", "argmax"])
def test_the_first_of_equals_and_nan(combiner: str, profile: str) -> None:
    function = ir.parse(
        f"func @f(%X: f32[9, 40]) -> (%P) {{\n  %P: u8[i0 < 9] = {combiner}[r1 < 40] %X[i0, r1]\n}}"
    )
    x = np.zeros((9, 40), np.float32)
    x[1, 5:] = 1
    x[2, 7] = x[2, 30] = np.nan
    x[3] = np.inf
    x[4] = -np.inf
    x[5, 39] = -1
    x[6, 20] = 1
    x[7] = np.nan
    x[8, 3], x[8, 33] = np.nan, -np.inf
    wanted = evaluate(function, {"X": x})["P"]
    assert run_program(compile(function, "opencl", profile), {"X": x})["P"].tolist() == (
        wanted.tolist()
    )


@pytest.mark.parametrize("sizes", [(1, 3, 1000, 500), (2, 5, 400, 512), (2, 4, 400, 500)])
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_parts_of_few_channels(sizes: tuple[int, ...], profile: str) -> None:
    """There are more of them than a work item combines by itself, and those of one channel lie
    apart, though its elements lie side by side."""
    ones = TensorDesc("FLOAT32", (1, sizes[1], 1, 1))
    names = ("MeanTensor", "VarianceTensor", "ScaleTensor")
    whole = dict.fromkeys(("InputTensor", "InputGradientTensor"), TensorDesc("FLOAT32", sizes))
    function = operator("directml.BATCH_NORMALIZATION_TRAINING_GRAD").bind(
        whole | dict.fromkeys(names, ones), attributes={"Epsilon": 1e-5}
    )
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        p.name: random.integers(-3, 4, [int(e) for e in p.extents]).astype(np.float32)
        for p in function.parameters
    }
    inputs["VarianceTensor"] = np.ones((1, sizes[1], 1, 1), np.float32)
    got = run_program(compile(function, "opencl", profile), inputs)
    for result, values in evaluate(function, inputs).items():
        assert np.allclose(got[result], values, 1e-4, 1e-3), result


def test_vectors_of_what_lies_apart_are_no_schedule() -> None:
    function = ir.parse("func @f(%X: f32[64, 64]) -> (%Y) {\n"
                        "  %Y: f32[i0 < 64, i1 < 64] = neg(%X[i1, i0])\n}")  # fmt: skip
    elements = collect_elements(function, ("Y",))
    phase = Phase(collapse(elements))
    nest = naive([phase])
    (outer, inner) = chain(nest.body)
    wide = in_vectors(inner.dim, 16, inner.body)
    spoilt = dataclasses.replace(nest, body=(dataclasses.replace(outer, body=(wide,)),))
    limits = find_dialect("opencl").limits
    with pytest.raises(InternalError, match="'i1' has vectors of what lies apart"):
        make_kernel(function, [phase], ("Y",), (("Y",),), CPU, limits, nest=spoilt)
