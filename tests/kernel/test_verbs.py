"""Verbs of schedules: whatever they make of a nest computes what the naive one does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dmlc.codegen.render import render
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.print import print_kernel
from dmlc.kernel.target import GPU
from dmlc.loops.nodes import Kind, Loop, Nest, Reduce, walk
from dmlc.loops.primitives import (
    ScheduleError,
    bind,
    deal,
    interleave,
    merge,
    reorder,
    split,
    unroll,
    vectorize,
)
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import vulkan
from dmlc.testing.schedules import SCALAR_VERBS, VERBS, Step, draw_steps, follow
from tests.kernel.schedules import FOLDS, FUNCTIONS, STEPS, Kernels, read, start
from tests.opencl_launch import run_program

SIZES = st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 18))


@pytest.mark.parametrize("name", FUNCTIONS)
@example(
    # A loop that goes by its range stays outside of those with so many steps.
    (3, 1, 1),
    "sum",
    [[(verb, 0, 0) for verb in ("split", "groups", "split", "unroll", "reorder")]],
    0,
)
@example(
    # Each work item stays in its own part, and one that starts beyond the end does nothing.
    (3, 3, 1),
    "sum",
    [[(verb, 0, 0) for verb in ("split", "items", "split", "unroll")]],
    0,
)
@example(
    # Interleaved loops are alike only where their pieces end alike.
    (2, 1, 3),
    "sum",
    [[("split", 2, 0), ("split", 1, 0), ("vectorize all", 0, 0), ("interleave", 0, 0)]],
    0,
)
@given(SIZES, st.sampled_from(FOLDS), st.lists(STEPS, min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=240, deadline=None, suppress_health_check=list(HealthCheck))
def test_legal_verbs_change_no_result(
    name: str, sizes: tuple[int, int, int], fold: str, steps: list[list[Step]], seed: int
) -> None:
    kernels = read(name, sizes, fold)
    inputs = kernels.inputs(seed)
    wanted = evaluate(kernels.function, inputs)
    nests = [follow(n, steps[i % len(steps)])[0] for i, n in enumerate(start(kernels))]
    got = run_kernels(kernels.function, kernels.lower(nests), inputs)
    for result, values in wanted.items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


def test_every_verb_is_legal_often_enough() -> None:
    draw = random.Random(7)
    done: Counter[str] = Counter()
    for number in range(25 * len(FUNCTIONS)):
        name = tuple(FUNCTIONS)[number % len(FUNCTIONS)]
        sizes = (draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 18))
        steps = draw_steps(draw)
        for nest in start(read(name, sizes, draw.choice(FOLDS))):
            done.update(follow(nest, steps)[1])
    assert set(done) == set(VERBS)
    assert min(done.values()) >= 10, done


SAMPLES = [(name, seed) for name in FUNCTIONS for seed in range(2)]
"""Two schedules of each function."""


def sample(name: str, seed: int, verbs: Sequence[str]) -> tuple[Kernels, list[Nest]]:
    """A function, and nests that many of the verbs have been at."""
    choose = random.Random(f"{name} {seed}")
    kernels = read(name, (4, 5, 17), choose.choice(FOLDS))
    steps = [(choose.choice(verbs), choose.randrange(8), choose.randrange(4)) for _ in range(12)]
    return kernels, [follow(nest, steps)[0] for nest in start(kernels)]


def make_program(kernels: Kernels, nests: Sequence[Nest], target: str) -> Program:
    return render(kernels.function, tuple(kernels.lower(nests)), find_dialect(target), GPU)


@pytest.mark.parametrize(("name", "seed"), SAMPLES)
def test_a_sample_on_opencl(name: str, seed: int) -> None:
    kernels, nests = sample(name, seed, tuple(VERBS))
    inputs = kernels.inputs(seed)
    got = run_program(make_program(kernels, nests, "opencl"), inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


@pytest.mark.parametrize(("name", "seed"), SAMPLES)
def test_a_sample_on_vulkan(name: str, seed: int) -> None:
    # HLSL has no vectors of sixteen, nor private arrays that are loaded four by four.
    kernels, nests = sample(name, seed, SCALAR_VERBS)
    inputs = kernels.inputs(seed)
    got = vulkan.load(make_program(kernels, nests, "hlsl"))(inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


# What is refused -----------------------------------------------------------------------------


def loops(nest: Nest) -> list[Loop]:
    return [node for node in walk(nest.body) if isinstance(node, Loop)]


def make(name: str, sizes: tuple[int, int, int] = (4, 5, 16), fold: str = "sum") -> Nest:
    (nest, *_) = start(read(name, sizes, fold))
    return nest


def test_a_nest_prints_one_line_per_loop() -> None:
    nest = make("rows")
    nest = bind(nest, loops(nest)[0], Kind.GROUP)
    nest = vectorize(nest, loops(nest)[2], 16)
    assert str(nest).splitlines() == [
        "group i0: 0..4",
        "  reduce S",
        "    reduce S",
        "      loop k: 0..5",
        "        vector k1: 0..16 by 16",
        "          add to S",
        "  store S",
        "  loop i1: 0..80",
        "    store Y",
    ]


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda n: split(n, loops(n)[0], 1), "two steps at least"),
        (lambda n: bind(n, loops(n)[1], Kind.GROUP), "outermost loop"),
        (lambda n: bind(n, loops(n)[1], Kind.LANE), "outermost loops of a group"),
        (lambda n: deal(n, loops(n)[0], "row", 3), "power of two"),
        (lambda n: deal(n, loops(n)[0], "row", 2048), "so many work items"),
        (lambda n: merge(n, loops(n)[0], "m"), "nothing beside it"),
        (lambda n: reorder(n, loops(n)[0]), "nothing beside it"),
        (lambda n: vectorize(n, loops(n)[0], 16), "several phases"),
        (lambda n: vectorize(n, loops(n)[1], 16), "innermost"),
        (lambda n: unroll(n, loops(n)[1]), "too many"),
        (lambda n: interleave(n, loops(n)[0]), "kept in arrays"),
    ],
)
def test_what_would_change_results_is_refused(refused: object, message: str) -> None:
    nest = make("rows", (4, 20, 16))
    assert callable(refused)
    with pytest.raises(ScheduleError, match=message):
        refused(nest)


def test_what_is_interleaved_stays_so_or_the_verb_is_refused() -> None:
    nest = make("normalized", (5, 1, 17))
    nest = vectorize(nest, loops(nest)[1], 4)
    nest = vectorize(nest, loops(nest)[2], 4)
    for early, which in (
        (split(nest, loops(nest)[0], 2), 0),
        (deal(nest, loops(nest)[0], "row", 2), 0),
        (deal(nest, loops(nest)[0], "row", 2), 1),
    ):
        with pytest.raises(ScheduleError, match="loops by ones are interleaved"):
            interleave(early, loops(early)[which])
    nest = interleave(nest, loops(nest)[0])
    for refused in (
        lambda n: split(n, loops(n)[0], 2),
        lambda n: deal(n, loops(n)[0], "row", 2),
        lambda n: bind(n, loops(n)[0], Kind.GROUP),
        lambda n: unroll(n, loops(n)[0]),
    ):
        with pytest.raises(ScheduleError, match="loops by ones are interleaved"):
            refused(nest)


def test_a_loop_is_split_before_its_steps_change_places() -> None:
    nest = make("element-wise")
    nest = split(nest, loops(nest)[0], 2)
    with pytest.raises(ScheduleError, match="settled outside"):
        reorder(nest, loops(nest)[0])


def test_reductions_forget_their_order() -> None:
    nest = make("places")
    assert [n.serial for n in walk(nest.body) if isinstance(n, Reduce)] == [True]
    reduced = [n for n in loops(nest) if len(n.body) == 1 and isinstance(n.body[0], Loop)]
    nest = reorder(nest, reduced[-1])
    assert [n.serial for n in walk(nest.body) if isinstance(n, Reduce)] == [False]


def test_work_items_guard_no_vectors_of_their_own() -> None:
    kernels = read("element-wise", (3, 2, 29), "sum")
    (nest,) = start(kernels)
    nest = merge(nest, loops(nest)[0], "rows")
    nest = bind(nest, loops(nest)[0], Kind.GROUP)
    nest = split(nest, loops(nest)[1], 4)
    nest = vectorize(bind(nest, loops(nest)[1], Kind.LANE), loops(nest)[2], 4)
    (kernel,) = kernels.lower([nest])
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, [kernel], inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])
    text = print_kernel(kernel)
    assert "f32x4" in text
    assert "if " not in text, "the range of each work item ends where the dimension does"
