"""Primitives: whatever they make of a nest computes what the naive one does."""

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
from dmlc.kernel.target import GPU, Limits
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Call, Loop, Nest, Reduce, list_dims, walk
from dmlc.loops.primitives import apply
from dmlc.loops.script import PRIMITIVES, ScheduleError, parse_script, print_script
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import vulkan
from dmlc.testing.schedules import DRAWN, SCALAR, Step, draw_steps, follow
from tests.kernel.schedules import FOLDS, FUNCTIONS, LIMITS, STEPS, Kernels, read, start
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
def test_legal_calls_change_no_result(
    name: str, sizes: tuple[int, int, int], fold: str, steps: list[list[Step]], seed: int
) -> None:
    kernels = read(name, sizes, fold)
    inputs = kernels.inputs(seed)
    wanted = evaluate(kernels.function, inputs)
    nests = [
        follow(n, kernels.function, LIMITS, steps[i % len(steps)])[0]
        for i, n in enumerate(start(kernels))
    ]
    for (phases, _), nest in zip(kernels.phases, nests, strict=True):
        script = parse_script(print_script(nest.script))
        assert apply(naive(phases), kernels.function, LIMITS, *script) == nest
    got = run_kernels(kernels.function, kernels.lower(nests), inputs)
    for result, values in wanted.items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


def test_every_primitive_is_legal_often_enough() -> None:
    draw = random.Random(7)
    done: Counter[str] = Counter()
    for number in range(25 * len(FUNCTIONS)):
        name = tuple(FUNCTIONS)[number % len(FUNCTIONS)]
        sizes = (draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 18))
        steps = draw_steps(draw)
        kernels = read(name, sizes, draw.choice(FOLDS))
        for nest in start(kernels):
            done.update(follow(nest, kernels.function, LIMITS, steps)[1])
    rare = {"share", "vectorize whole", "vectorize gather", "stream", "pack"}
    assert set(DRAWN) - set(done) <= rare
    assert min(n for name, n in done.items() if name not in rare) >= 10, done


SAMPLES = [(name, seed) for name in FUNCTIONS for seed in range(2)]
"""Two schedules of each function."""


def sample(
    name: str, seed: int, drawn: Sequence[str], limits: Limits
) -> tuple[Kernels, list[Nest]]:
    """A function, and nests that many of the primitives have been at."""
    choose = random.Random(f"{name} {seed}")
    kernels = read(name, (4, 5, 17), choose.choice(FOLDS))
    steps = [(choose.choice(drawn), choose.randrange(8), choose.randrange(4)) for _ in range(12)]
    function = kernels.function
    return kernels, [follow(nest, function, limits, steps)[0] for nest in start(kernels)]


def make_program(kernels: Kernels, nests: Sequence[Nest], target: str) -> Program:
    return render(kernels.function, tuple(kernels.lower(nests)), find_dialect(target), GPU)


@pytest.mark.parametrize(("name", "seed"), SAMPLES)
def test_a_sample_on_opencl(name: str, seed: int) -> None:
    kernels, nests = sample(name, seed, tuple(DRAWN), LIMITS)
    inputs = kernels.inputs(seed)
    got = run_program(make_program(kernels, nests, "opencl"), inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


@pytest.mark.parametrize(("name", "seed"), SAMPLES)
def test_a_sample_on_vulkan(name: str, seed: int) -> None:
    # HLSL has no vectors of sixteen, nor private arrays that are loaded four by four.
    kernels, nests = sample(name, seed, SCALAR, find_dialect("hlsl").limits)
    inputs = kernels.inputs(seed)
    got = vulkan.load(make_program(kernels, nests, "hlsl"))(inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values), "\n\n".join(map(str, nests))


# What is refused -----------------------------------------------------------------------------


def loops(nest: Nest) -> list[str]:
    return [node.name for node in walk(nest.body) if isinstance(node, Loop)]


def change(
    name: str, *lines: str, sizes: tuple[int, int, int] = (4, 5, 16), fold: str = "sum"
) -> Nest:
    """The first kernel of a function, after a script."""
    kernels = read(name, sizes, fold)
    (nest, *_) = start(kernels)
    return apply(nest, kernels.function, LIMITS, *parse_script("\n".join(lines)))


def test_a_nest_prints_one_line_per_loop() -> None:
    nest = change("rows", "bind i0 group", "vectorize k1 16")
    assert nest.list_lines() == [
        "group i0 by 1 as i0: 0..4",
        "  reduce 0 array yes: S",
        "    reduce 0: S",
        "      loop k by 1 as k: 0..5",
        "        vector k1 by 16 as k1 rest [4]: 0..16",
        "          point 0: add to S",
        "  point 1: store S",
        "  loop i1.2 by 1 as i1.2: 0..80",
        "    point 2: store Y",
    ]


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("split i0 1", "split i0 1: a loop is split by two steps at least"),
        ("split i0 2 as k", "there is a loop 'k'"),
        ("split i0 two", "'two' is not a number"),
        ("split i0", "it takes a loop and a number"),
        ("split", "it names no loop"),
        ("split i9 2", "no loop is called 'i9': i0, k, k1, i1.2 are"),
        ("spilt i0 2", "no primitive is called so: split, fuse, "),
        ("bind k group", "outermost loop"),
        ("bind k lane", "outermost loops of a group"),
        ("deal i0 row 3", "power of two"),
        ("deal i0 row 2048", "so many work items"),
        ("deal i0 row 2 as column", "called after their axis"),
        ("fuse i0", "nothing beside it"),
        ("reorder i0", "nothing beside it"),
        ("rename i0 as k", "there is a loop 'k'"),
        ("vectorize i0 16", "does not lie side by side"),
        ("vectorize k 16", "innermost"),
        ("vectorize k1 4 whole", "vectors across outputs"),
        ("vectorize k1 16 sideways", "whole, gather or aligned"),
        ("unroll k", "too many"),
        ("stream k1", "loops in vectors stream"),
        ("pair i1.2", "nothing is stored in 16 bits"),
        ("interleave i0", "kept in arrays"),
        ("normalize k 4", "it takes a loop and nothing"),
        ("axis row 3", "power of two"),
        ("axis row", "it takes a word and a number"),
        ("share k1 row", "no work items stand along an axis 'row'"),
        ("axis row 4\nshare k1 row", "outermost loops of a group"),
        ("axis row 4\nbind i0 group\nshare k1 row", "outermost loops of a group"),
        ("axis row 4\nbind i0 group\nfuse k as e\nshare e row 2", "do not begin where vectors"),
        ("axis row 4\nshare i0 row", "single points are shared"),
        ("axis row 4\nbind i0 group\nshare i1.2 row 3", "do not begin where vectors"),
    ],
)
def test_what_would_change_results_is_refused(refused: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        change("rows", refused, sizes=(4, 20, 16))


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        # Each was legal once, and its kernel was wrong, or its nest no order of the points.
        ("rows", ("split k 3", "normalize k_block", "rename k"), "others are made of"),
        ("transposed", ("bind i0 group", "split i1 8", "vectorize i1 8 gather"),
         "ends where no vector does"),
        ("normalized", ("split k 8", "normalize k_block", "split k 16"), "split into shorter ones"),
        ("normalized", ("axis row 1", "share i0.2 row 1 1", "deal strip column 4"),
         "written out, in work groups"),
        ("normalized", ("split k 16", "bind k_block lane", "once", "unroll once"),
         "work items reduce nothing"),
        ("normalized", ("split i0.2 3", "normalize i0.2_block", "pack i0.2 4"), "is not packed"),
        ("element-wise", ("split i0 4 as a", "bind a group", "split i0 4 as b", "unroll b",
                          "split i0 2 as c", "unroll c", "reorder b"), "settled outside"),
        ("flat", ("split i 8 as a", "bind a group", "split i 4 as b", "bind b lane",
                  "vectorize i 4 whole", "reorder lane"), "vectors are inside"),
    ],
)  # fmt: skip
def test_what_was_wrong_once_is_refused(name: str, lines: tuple[str, ...], message: str) -> None:
    sizes = (1, 3, 32) if name in ("transposed", "normalized") else (8, 4, 32)
    with pytest.raises(ScheduleError, match=message):
        change(name, *lines, sizes=sizes)


def test_a_group_without_work_items_of_its_own_goes_point_by_point_at_its_end() -> None:
    kernels = read("flat", (1, 1, 10), "sum")
    script = parse_script("split i 4 as block\nbind block group\nvectorize i 4 whole")
    (nest,) = start(kernels)
    lowered = kernels.lower([apply(nest, kernels.function, LIMITS, *script)])
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, lowered, inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])


def test_one_work_item_may_stand_around_those_that_go_beyond_the_end() -> None:
    kernels = read("rows", (2, 5, 8), "sum")
    script = """
        axis row 1
        bind i0 group
        share i1.2 row 8 4
        bind strip column
        reorder column"""
    (nest,) = start(kernels)
    lowered = kernels.lower([apply(nest, kernels.function, LIMITS, *parse_script(script))])
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, lowered, inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])


def test_every_primitive_says_what_it_does() -> None:
    for name, primitive in PRIMITIVES.items():
        assert primitive.words.endswith((".", "`")), name


def test_a_script_has_a_call_to_a_line() -> None:
    text = "split i0 64 as block // what a group takes\n\n  bind block group\n"
    script = parse_script(text)
    assert script == (
        Call("split", ("i0", 64), "block"),
        Call("bind", ("block", "group")),
    )
    assert parse_script(print_script(script)) == script
    with pytest.raises(ScheduleError, match="line 2: 'split! i0' is no call"):
        parse_script("once as block\nsplit! i0")


def test_a_loop_that_is_alone_keeps_its_name() -> None:
    assert loops(change("element-wise", "unroll i", sizes=(1, 1, 8))) == ["i"]


def test_a_nest_is_equal_to_one_that_is_made_again() -> None:
    lines = ("split i2 4 as part", "bind i0 group", "vectorize i2 4")
    assert change("element-wise", *lines) == change("element-wise", *lines)
    assert change("element-wise", *lines) != change("element-wise", *lines[:2])


INTERLEAVED = ("vectorize k 4", "vectorize i1.2 4", "interleave i0")


@pytest.mark.parametrize(
    ("early", "which"), [("split i0 2", 0), ("deal i0 row 2", 0), ("deal i0 row 2", 1)]
)
def test_what_is_in_steps_is_not_interleaved(early: str, which: int) -> None:
    begun = change("normalized", *INTERLEAVED[:2], early, sizes=(5, 1, 17))
    script = (*INTERLEAVED[:2], early, f"interleave {loops(begun)[which]}")
    with pytest.raises(ScheduleError, match="loops by ones are interleaved"):
        change("normalized", *script, sizes=(5, 1, 17))


@pytest.mark.parametrize("refused", ["split i0 2", "deal i0 row 2", "bind i0 group", "unroll i0"])
def test_what_is_interleaved_stays_so_or_the_call_is_refused(refused: str) -> None:
    with pytest.raises(ScheduleError, match="loops by ones are interleaved"):
        change("normalized", *INTERLEAVED, refused, sizes=(5, 1, 17))


def test_a_loop_is_split_before_its_steps_change_places() -> None:
    with pytest.raises(ScheduleError, match="settled outside"):
        change("element-wise", "split i0 2 as block", "reorder block")


def test_work_items_share_what_they_reduce() -> None:
    script = ("axis row 4", "bind i0 group", "fuse k as element", "share element row 4 2 as strip")
    nest = change("rows", *script, sizes=(4, 8, 32))
    assert nest.list_lines() == [
        "group i0 by 1 as i0: 0..4",
        "  reduce 0: S",
        "    loop element by 32 as strip: 0..256 of k, k1",
        "      lane element by 4 as row extent 4",
        "        unroll element by 16 as k extent 2",
        "          vector element by 4 as i extent 1",
        "            point 0: add to S",
        "  point 1: store S",
        "  loop i1.2 by 1 as i1.2: 0..256",
        "    point 2: store Y",
    ]
    kernels = read("rows", (4, 8, 32), "sum")
    inputs = kernels.inputs(0)
    (kernel,) = kernels.lower([nest])
    got = run_kernels(kernels.function, [kernel], inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values)


def test_dimensions_have_names_of_their_own_though_loops_may_take_one_again() -> None:
    script = ("fuse k as part", "split part 2 as block", "unroll part as two", "fuse i0.2 as part")
    nest = change("channels", *script)
    assert [name for name in loops(nest) if name.startswith("part")] == ["part"]
    assert [dim.name for dim in list_dims(nest) if dim.wanted == "part"] == ["part", "part.2"]


def test_reductions_forget_their_order() -> None:
    nest = change("places")
    assert [n.serial for n in walk(nest.body) if isinstance(n, Reduce)] == [True]
    nest = change("places", "reorder k")
    assert [n.serial for n in walk(nest.body) if isinstance(n, Reduce)] == [False]


def test_work_items_guard_no_vectors_of_their_own() -> None:
    kernels = read("element-wise", (3, 2, 29), "sum")
    script = """
        fuse i0 as rows
        bind rows group
        split i2 4 as part
        bind part lane
        vectorize i2 4"""
    (nest,) = start(kernels)
    nest = apply(nest, kernels.function, LIMITS, *parse_script(script))
    (kernel,) = kernels.lower([nest])
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, [kernel], inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])
    text = print_kernel(kernel)
    assert "f32x4" in text
    assert "if " not in text, "the range of each work item ends where the dimension does"
