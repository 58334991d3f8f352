"""Random schedules of random functions: small ones, whose sums are exact in any order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np
from hypothesis import strategies as st

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.assemble import make_kernel
from dmlc.kernel.element import collect_elements
from dmlc.kernel.phases import Phase, collect_phases
from dmlc.kernel.schedule import CPU
from dmlc.kernel.schedule.nest import Kind, Loop, Nest, walk
from dmlc.kernel.schedule.verbs import (
    ScheduleError,
    bind,
    deal,
    interleave,
    merge,
    naive,
    reorder,
    split,
    unroll,
    vectorize,
)
from dmlc.kernel.space import collapse
from dmlc.pipeline import find_fusion
from dmlc.scalars import Array

LIMITS = find_dialect("opencl").limits

FUNCTIONS = {
    "element-wise": """
        func @f(%X: f32[{a}, {b}, {c}], %W: f32[{b}]) -> (%Y) {{
          %Y: f32[i0 < {a}, i1 < {b}, i2 < {c}] = add(%X[i0, i1, i2], mul(%W[i1], 2.0))
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
    "triangle": """
        func @f(%X: f32[{a}, {b}]) -> (%Y) {{
          %Y: f32[i0 < {a}] = {fold}[r1 < {b} where le(r1, i0)] %X[i0, r1]
        }}""",
}
FOLDS = ("sum", "max", "min", "product")


@dataclasses.dataclass(frozen=True)
class Kernels:
    """One function, and the phases of each of its kernels with the stages these compute."""

    function: ir.Function
    phases: tuple[tuple[tuple[Phase, ...], tuple[str, ...]], ...]

    def lower(self, nests: Sequence[Nest]) -> list[k.Kernel]:
        """The kernels by some schedules."""
        return [
            make_kernel(self.function, phases, stages, (stages,), CPU, LIMITS, nest=nest)
            for (phases, stages), nest in zip(self.phases, nests, strict=True)
        ]

    def inputs(self, seed: int) -> dict[str, Array]:
        """Values of which sums are exact, and so are products."""
        random = np.random.default_rng(seed)
        return {
            p.name: random.integers(-2, 3, [int(e) for e in p.extents]).astype(np.float32)
            for p in self.function.parameters
        }


def read(name: str, sizes: tuple[int, int, int], fold: str) -> Kernels:
    """A function of those sizes, in kernels as fusion has them."""
    a, b, c = sizes
    text = FUNCTIONS[name].format(a=a, b=b, c=c, last_b=b - 1, fold=fold)
    fusion = find_fusion(ir.parse(text), "opencl", "gpu")
    found: list[tuple[tuple[Phase, ...], tuple[str, ...]]] = []
    function, readers = fusion.function, fusion.function.readers()
    for group in fusion.groups:
        own = set(group.stages)
        if not group.passes:
            elements = collect_elements(function, group.stages, group.local)
            found.append(((Phase(elements, collapse(elements)),), group.stages))
            continue
        stored = {n for n in own if function.result(n) or not own.issuperset(readers.get(n, ()))}
        phases = collect_phases(function, group.parallel, group.passes, stored)
        found.append((phases, group.stages))
    return Kernels(function, tuple(found))


Step = tuple[str, int, int]
"""A verb, the loop from which on one is looked for that it suits, and its number."""


def _vectorize_all(nest: Nest, loop: Loop, number: int) -> Nest:
    """Every loop that can go in vectors: only such are interleaved."""
    done = 0
    for each in range(len(_list_loops(nest))):
        try:
            nest = vectorize(nest, _list_loops(nest)[each], (4, 16)[number % 2])
            done += 1
        except ScheduleError:
            continue
    if not done:
        raise ScheduleError("no loop goes in vectors")
    return nest


VERBS: Mapping[str, Callable[[Nest, Loop, int], Nest]] = {
    "split": lambda nest, loop, number: split(nest, loop, (2, 3, 4, 8)[number]),
    "merge": lambda nest, loop, number: merge(nest, loop, f"m{loop.name}"),
    "reorder": lambda nest, loop, number: reorder(nest, loop),
    "groups": lambda nest, loop, number: bind(nest, loop, Kind.GROUP),
    "items": lambda nest, loop, number: bind(nest, loop, Kind.LANE, ("row", "column")[number % 2]),
    "deal": lambda nest, loop, number: deal(
        nest, loop, ("row", "column")[number % 2], (2, 4)[number // 2]
    ),
    "unroll": lambda nest, loop, number: unroll(nest, loop),
    "vectorize": lambda nest, loop, number: vectorize(nest, loop, (4, 16)[number % 2]),
    "vectorize all": _vectorize_all,
    "interleave": lambda nest, loop, number: interleave(nest, loop),
}


def draw_steps(random: Random) -> list[Step]:
    """Some steps; half of them have what it takes to interleave loops."""

    def some(most: int) -> list[Step]:
        verbs, count = tuple(VERBS), random.randint(0, most)
        return [(random.choice(verbs), random.randrange(8), random.randrange(4))
                for _ in range(count)]  # fmt: skip

    if random.randrange(2):
        return some(8)
    ahead = [("vectorize all", 0, random.randrange(2)), ("interleave", 0, 0)]
    return [*some(2), *ahead, *some(4)]


STEPS = st.randoms(use_true_random=False).map(draw_steps)


def _list_loops(nest: Nest) -> list[Loop]:
    return [n for n in walk(nest.body) if isinstance(n, Loop)]


def follow(nest: Nest, steps: Sequence[Step]) -> tuple[Nest, list[str]]:
    """A nest after those of some steps that are legal for a loop of it, and their verbs."""
    done: list[str] = []
    for verb, which, number in steps:
        loops = _list_loops(nest)
        first = which % max(1, len(loops))
        for loop in (*loops[first:], *loops[:first]):
            try:
                nest = VERBS[verb](nest, loop, number)
            except ScheduleError:
                continue
            done.append(verb)
            break
    return nest, done


def start(kernels: Kernels) -> list[Nest]:
    """The schedules that verbs begin with."""
    return [naive(phases) for phases, _ in kernels.phases]
