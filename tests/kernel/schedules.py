"""Random schedules of random functions: small ones, whose sums are exact in any order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU, Limits
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase, combine_partials, store_partials
from dmlc.loops.rfactor import PIECES, cut_points, make_cut
from dmlc.loops.script import ScheduleError
from dmlc.lowering.assemble import make_kernel
from dmlc.lowering.group import collect_group
from dmlc.pipeline import find_fusion
from dmlc.scalars import Array
from dmlc.testing.schedules import draw_steps

LIMITS = find_dialect("opencl").limits

FUNCTIONS = {
    "element-wise": """
        func @f(%X: f32[{a}, {b}, {c}], %W: f32[{b}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = add(%X[i0, i1, i2], mul(%W[i1], 2.0))
        }}""",
    "flat": """
        func @f(%X: f32[{a}, {b}, {c}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = neg(%X[i0, i1, i2])
        }}""",
    "transposed": """
        func @f(%X: f32[{c}, {b}, {a}], %W: f32[{a}, {c}]) -> (%Y, %Z) {{
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = add(%X[i2, i1, i0], %W[i0, i2])
          %Z: f32[i0 < {a}, i1 < {b}, i2 < {c}] = neg(%Y[i0, i1, i2])
        }}""",
    "flipped": """
        func @f(%X: f32[{a}, {b}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}] = add(%X[i0, sub({last_b}, i1)], cast(i1, f32))
        }}""",
    "rows": """
        func @f(%X: f32[{a}, {b}, {c}], %W: f32[{c}]) -> (%S, %Y) {{
          %S: f32[i0 < {a}] = {fold}[r1 < {b}, r2 < {c}] mul(%X[i0, r1, r2], %W[r2])
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = add(%X[i0, i1, i2], %S[i0])
        }}""",
    "normalized": """
        func @f(%X: f32[{a}, {c}], %W: f32[{a}]) -> (%S, %Y) {{
          %S: f32[i0 < {a}] = {fold}[r1 < {c}] %X[i0, r1]
          %T: f32[i0 < {a}] = mul(%S[i0], %W[i0])
          %Y: f32[i0 < {a}, i1 < {c}] = add(%X[i0, i1], %T[i0])
        }}""",
    "columns": """
        func @f(%X: f32[{a}, {b}, {c}], %W: f32[{c}]) -> (%S, %Y) {{
          %S: f32[i0 < {c}] = {fold}[r0 < {a}, r1 < {b}] %X[r0, r1, i0]
          %T: f32[i0 < {c}] = add(%S[i0], %W[i0])
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = mul(%X[i0, i1, i2], %T[i2])
        }}""",
    "channels": """
        func @f(%X: f32[{a}, {b}, {c}], %D: f32[{a}, {b}, {c}]) -> (%S, %U, %Y) {{
          %S: f32[i0 < {b}] = sum[r0 < {a}, r2 < {c}] %D[r0, i0, r2]
          %U: f32[i0 < {b}] = {fold}[r0 < {a}, r2 < {c}] sub(%D[r0, i0, r2], %X[r0, i0, r2])
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = sub(mul(%D[i0, i1, i2], %S[i1]), %U[i1])
        }}""",
    "stored": """
        func @f(%X: f32[{a}, {b}, {c}], %W: f32[{c}]) -> (%S, %Y) {{
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = mul(%X[i0, i1, i2], mul(%W[i2], %W[i2]))
          %S: f32[i0 < {c}] = {fold}[r0 < {a}, r1 < {b}] %Y[r0, r1, i0]
        }}""",
    "places": """
        func @f(%X: f32[{a}, {b}, {c}]) -> (%P, %M) {{
          %P: s64[i0 < {b}] = argmax[r0 < {a}, r2 < {c}] %X[r0, i0, r2]
          %M: f32[i0 < {b}] = {fold}[r0 < {a}, r2 < {c}] %X[r0, i0, r2]
        }}""",
    "windows": """
        func @f(%X: f32[{a}, {b}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}] = {fold}[r0 < 3 where and(
              ge(sub(add(i1, r0), 1), 0), lt(sub(add(i1, r0), 1), {b}))]
            %X[i0, sub(add(i1, r0), 1)]
        }}""",
    "spread": """
        func @f(%X: f32[{a}, {b}, {c}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {c}] = {fold}[r0 < {b}, r1 < 3 where and(
              eq(mod(sub(add(i1, 1), r1), 2), 0), ge(sub(add(i1, 1), r1), 0))]
            %X[i0, r0, div(sub(add(i1, 1), r1), 2)]
        }}""",
    "triangle": """
        func @f(%X: f32[{a}, {b}]) -> (%Y) {{
          %Y: f32[i0 < {a}] = {fold}[r1 < {b} where le(r1, i0)] %X[i0, r1]
        }}""",
    "product": """
        func @f(%A: f32[{a}, {c}], %B: f32[{c}, {b}], %W: f32[{b}]) -> (%Y) {{
          %S: f32[i0 < {a}, i1 < {b}] = sum[r0 < {c}] mul(%A[i0, r0], %B[r0, i1])
          %Y: f32[i0 < {a}, i1 < {b}] = add(%S[i0, i1], %W[i1])
        }}""",
    "masked product": """
        func @f(%A: f32[{a}, {c}], %B: f32[{b}, {c}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}] = sum[r0 < {c} where le(r0, i0)]
            mul(%A[i0, r0], %B[i1, r0])
        }}""",
    "products of groups": """
        func @f(%A: f32[{two_a}, {b}], %B: f32[{a}, {b}, {c}]) -> (%Y) {{
          %Y: f32[i0 < {two_a}, i1 < {c}] = sum[r0 < {b}]
            mul(%A[i0, r0], %B[div(i0, 2), r0, i1])
        }}""",
}
FOLDS = ("sum", "max", "min", "product")


@dataclasses.dataclass(frozen=True)
class Kernels:
    """One function, and the phases of each of its kernels with the stages these compute."""

    function: ir.Function
    phases: tuple[tuple[tuple[Phase, ...], tuple[str, ...]], ...]

    def cut(self, draw: random.Random) -> tuple[Kernels, list[Call]]:
        """The same, where what reduces once is two kernels, if it can be cut into pieces that are
        drawn; and the calls that have cut it."""
        made: list[tuple[tuple[Phase, ...], tuple[str, ...]]] = []
        calls: list[Call] = []
        for phases, stages in self.phases:
            first, *rest = phases
            if not first.accumulators or any(p.accumulators for p in rest):
                made.append((phases, stages))
                continue
            axis = draw.choice(first.space.inner)
            unit: tuple[str | int, ...] = draw.choice([(), (PIECES,), (PIECES, 2)])
            call = make_cut(first, axis, draw.randint(1, max(1, first.space.sizes[axis])), *unit)
            try:
                divided = cut_points(phases, call)
            except ScheduleError:
                made.append((phases, stages))
                continue
            calls.append(call)
            made.append((store_partials(divided), stages))
            made.append(((combine_partials(first, divided.space.parallel_sizes), *rest), stages))
        return Kernels(self.function, tuple(made)), calls

    def lower(self, nests: Sequence[Nest], limits: Limits = LIMITS) -> list[k.Kernel]:
        """The kernels by some schedules."""
        return [
            make_kernel(self.function, phases, stages, (stages,), CPU, limits, nest=nest)
            for (phases, stages), nest in zip(self.phases, nests, strict=True)
        ]

    def inputs(self, seed: int) -> dict[str, Array]:
        """Values of which sums are exact, and so are products."""
        values = np.random.default_rng(seed)
        return {
            p.name: values.integers(-2, 3, [int(e) for e in p.extents]).astype(p.dtype.dtype)
            for p in self.function.parameters
        }


HALVES = {
    "halves": """
        func @f(%X: f16[{a}, {b}, {c}], %W: f16[{a}, {b}, {c}]) -> (%Y, %Z) {{
          %Y: f16[i0 < {a}, i1 < {b}, i2 < {c}] = add(%X[i0, i1, i2], mul(%W[i0, i1, i2], 2.0))
          %Z: f32[i0 < {a}, i1 < {b}, i2 < {c}] = mul(%X[i0, i1, i2], %W[i0, i1, i2])
        }}""",
    "product of halves": """
        func @f(%A: f16[{a}, {c}], %B: f16[{c}, {b}], %W: f32[{b}]) -> (%Y) {{
          %S: f32[i0 < {a}, i1 < {b}] = sum[r0 < {c}] mul(%A[i0, r0], %B[r0, i1])
          %Y: f32[i0 < {a}, i1 < {b}] = add(%S[i0, i1], %W[i1])
        }}""",
}
"""Functions for the primitives that words of two elements and matrix instructions have."""
QUOTIENTS = {
    "halved": """
        func @f(%X: f32[{a}, {b}], %W: f32[2, {c}]) -> (%Y) {{
          %Y: f32[i0 < {two_a}, i1 < {b}, i2 < {c}] =
            add(%X[div(i0, 2), i1], %W[mod(i0, 2), i2])
        }}""",
    "halved rows": """
        func @f(%X: f32[{a}, {c}], %W: f32[{b}]) -> (%S, %Y) {{
          %S: f32[i0 < {two_a}, i1 < {b}] = {fold}[r0 < {c}] mul(%X[div(i0, 2), r0], %W[i1])
          %Y: f32[i0 < {two_a}, i1 < {b}] = add(%S[i0, i1], %W[i1])
        }}""",
}
"""Functions whose positions along an axis are divided, for `part`."""


def read(
    name: str, sizes: tuple[int, int, int], fold: str, texts: Mapping[str, str] = FUNCTIONS
) -> Kernels:
    """A function of those sizes, in kernels as fusion has them."""
    a, b, c = sizes
    text = texts[name].format(a=a, b=b, c=c, two_a=2 * a, last_b=b - 1, fold=fold)
    fusion = find_fusion(ir.parse(text), "opencl", "gpu")
    found = [(collect_group(fusion.function, g)[0], g.stages) for g in fusion.groups]
    return Kernels(fusion.function, tuple(found))


STEPS = st.randoms(use_true_random=False).map(draw_steps)


def start(kernels: Kernels) -> list[Nest]:
    """The schedules that verbs begin with."""
    return [naive(phases) for phases, _ in kernels.phases]
