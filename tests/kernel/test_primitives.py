"""Primitives: whatever they make of a nest computes what the naive one does."""

from __future__ import annotations

import dataclasses
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
from dmlc.scalars import DataType
from dmlc.testing.schedules import DRAWN, SCALAR, Step, draw_steps, follow
from tests.kernel.random_scripts import run_script
from tests.kernel.schedules import FOLDS, FUNCTIONS, HALVES, LIMITS, STEPS, Kernels, read, start
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
@settings(max_examples=35, deadline=None, suppress_health_check=list(HealthCheck))
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
    for number in range(30 * len(FUNCTIONS)):
        name = tuple(FUNCTIONS)[number % len(FUNCTIONS)]
        sizes = (draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 18))
        steps = draw_steps(draw)
        kernels = read(name, sizes, draw.choice(FOLDS))
        for nest in start(kernels):
            done.update(follow(nest, kernels.function, LIMITS, steps)[1])
    rare = {"share", "vectorize whole", "vectorize gather", "stream", "pack", "part", "fission"}
    rare |= {"thin"}
    rare |= {"items of a block"}
    assert set(DRAWN) - set(done) <= rare
    assert min(n for name, n in done.items() if name not in rare) > 1, done


@pytest.mark.parametrize("number", range(16))
def test_random_scripts_of_all_primitives(number: int) -> None:
    failure = run_script(number).failure
    assert failure is None, failure


@pytest.mark.parametrize("script", ["split pair 2\nunroll pair", "split pair 4\nsplit pair 2"])
def test_the_last_word_of_an_odd_number_of_halves_is_a_word(script: str) -> None:
    """What whole steps leave over is stored in words, too."""
    kernels = read("halves", (3, 5, 7), "sum", HALVES)
    limits = dataclasses.replace(LIMITS, pair_types=(DataType.FLOAT16,))
    calls = parse_script(f"pair i\n{script}")
    nests = [apply(nest, kernels.function, limits, *calls) for nest in start(kernels)]
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, kernels.lower(nests, limits), inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        np.testing.assert_array_equal(got[result], values)


def test_a_loop_over_pairs_is_fused_with_no_other() -> None:
    kernels = read("halves", (3, 5, 7), "sum", HALVES)
    limits = dataclasses.replace(LIMITS, pair_types=(DataType.FLOAT16,))
    (nest,) = start(kernels)
    made = apply(nest, kernels.function, limits, *parse_script("pair i\nonce"))
    with pytest.raises(ScheduleError, match="pairs of points are a loop of their own"):
        apply(made, kernels.function, limits, *parse_script("fuse once as both"))


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
        "  loop i1i2.2 by 1 as i1i2.2: 0..80",
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
        ("split i9 2", "no loop is called 'i9': i0, k, k1, i1i2.2 are"),
        ("spilt i0 2", "no primitive is called so: .* split, "),
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
        ("pair i1i2.2", "nothing is stored in 16 bits"),
        ("interleave i0", "kept in arrays"),
        ("normalize k 4", "it takes a loop and nothing"),
        ("axis row 3", "power of two"),
        ("axis row", "it takes a word and a number"),
        ("share k1 row", "no work items stand along an axis 'row'"),
        ("axis row 4\nshare k1 row", "outermost loops of a group"),
        ("axis row 4\nbind i0 group\nshare k1 row", "outermost loops of a group"),
        ("axis row 4\nbind i0 group\nfuse k as e\nshare e row 2", "do not begin where vectors"),
        ("axis row 4\nshare i0 row", "single points are shared"),
        ("axis row 4\nbind i0 group\nshare i1i2.2 row 3", "do not begin where vectors"),
        ("panel 6 8 8 8", "there is no sum of products of rows and columns"),
        ("panel 6 8 8 4", "a product has vectors of 8 or 16 lanes"),
        ("dot 8 4", "a product has vectors of 8 or 16 lanes"),
        ("panel 6 8 0 8", "a tile has rows, columns and points"),
        ("split i0 2\npanel 6 8 8 8", "it makes all loops anew, and so comes first"),
        ("cross 4 1 1", "nothing is reduced down the columns of rows"),
        ("expand k", "what is in a block are outputs"),
        ("split i0 2\nexpand i0", "steps around are numbered first"),
        ("normalize i0\nexpand i0_number", "points of one dimension"),
        ("expand i0\nexpand i0", "the loop over a block of outputs stays whole"),
        ("expand i0\nunroll i0.2", "the loop over a block of outputs stays whole"),
        ("vectorize k1 16\nvectorize i1i2.2 16\nexpand i0\nbind k lane", "share no block"),
        ("partial k", "all that is reduced is no part"),
        ("partial i1i2.2", "walks no points that are reduced"),
        ("split k 4\npartial k\npartial k", "all that is reduced is no part"),
        ("relax i1i2.2", "nothing is reduced in order"),
        ("resume k", "not all of a part"),
        ("partial k1\nresume k1", "no accumulator for each output"),
        ("expand i0\npartial k1\nvectorize k1 16\nresume k1", "no accumulator for each output"),
        ("split k 4\nreverse k_block", "written out"),
        ("prefetch i0", "loops in vectors fetch"),
        ("hoist i1i2.2", "of a block of outputs"),
        ("expand i0\nhoist i0.3", "nothing that takes work"),
        ("normalize i0\nrename i0_number as n", "a dimension of parts keeps its name"),
        (
            "split k 4\npartial k1\nvectorize k1 16\npartial k\nexpand i0",
            "parts of one output have no parts",
        ),
        ("expand i0\nreorder i0\nreorder i0\nfuse k1", "over a block of outputs stays whole"),
        ("vectorize k1 16\nexpand i0\nreorder i0\nreorder i0", "only serial loops are moved out"),
        ("pack i1i2.2 4\nexpand i0", "only loops are parted"),
        ("expand i0\nvectorize i0.2 8 gather", "outputs of a block lie side by side"),
    ],
)
def test_what_would_change_results_is_refused(refused: str, message: str) -> None:
    *first, last = refused.splitlines()
    begun = change("rows", *first, sizes=(4, 20, 16))
    kernels = read("rows", (4, 20, 16), "sum")
    with pytest.raises(ScheduleError, match=message):
        apply(begun, kernels.function, LIMITS, *parse_script(last))


def test_what_packs_panels_takes_no_more_calls() -> None:
    with pytest.raises(ScheduleError, match="rename tile as t: what 'panel' makes stays as it is"):
        change("product", "panel 6 8 8 8", "rename tile as t")


def test_a_dimension_that_others_are_made_of_keeps_its_name() -> None:
    with pytest.raises(ScheduleError, match="of several loops keeps its name"):
        change("rows", "split i0 2", "normalize i0_block", "rename i0 as n")


BLOCK = """
    split i0 16 as part
    normalize part as block
    bind block group
    expand i0 as j
    split k 4 as band
    reorder j
    split band 2 as strip
    partial band
    unroll k
    resume k
    vectorize j 16 as i
    hoist j.3 as factors
    reorder j.3
    reverse i0i1.2
    vectorize j.3 4 as i.3"""


def test_outputs_of_a_block_are_reduced_side_by_side() -> None:
    kernels = read("columns", (6, 3, 37), "sum")
    (nest,) = start(kernels)
    nest = apply(nest, kernels.function, LIMITS, *parse_script(BLOCK))
    assert nest.list_lines() == [
        "group block by 1 as block: 0..3 of i0",
        "  reduce 0 array yes: S",
        "    loop k by 8 as strip: 0..18",
        "      reduce 0 array yes: S",
        "        loop k by 4 as band: 8",
        "          vector i0 by 16 as i rest [4]: 0..37",
        "            reduce 0 resumes yes: S",
        "              unroll k by 1 as k extent 4",
        "                point 0: add to S",
        "  loop i0 by 1 as j.2: 0..37",
        "    point 1: store S",
        "  loop i0 by 1 as factors: 0..37",
        "    point 3 into [(buffer factor#0 dim i0)]: keep factors",
        "  loop i0i1.2 by 1 as i0i1.2 backwards yes: 0..18",
        "    vector i0 by 4 as i.3: 0..37",
        "      point 2: store Y",
    ]
    check_script("columns", BLOCK, (6, 3, 37))


def check_script(name: str, script: str, sizes: tuple[int, int, int], fold: str = "sum") -> None:
    """Holds what a script makes of a function's first kernel to the reference."""
    kernels = read(name, sizes, fold)
    first, *others = start(kernels)
    nest = apply(first, kernels.function, LIMITS, *parse_script(script))
    inputs = kernels.inputs(1)
    got = run_kernels(kernels.function, kernels.lower([nest, *others]), inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values), str(nest)


def test_each_work_item_has_an_array_of_its_own() -> None:
    script = """
        expand i0
        hoist i0.3
        split i1.2 4
        reorder i0.3
        bind i1.2_block column"""
    check_script("normalized", script, (3, 1, 14))


@pytest.mark.parametrize(
    ("name", "script", "sizes"),
    [
        # Each copy of what is written out has registers of its own.
        ("product", "split i1 2; unroll i1; jam i1; unroll i0", (2, 4, 8)),
        # A tile that is left over has points that are checked, too.
        ("product", "split i1 3; unroll i1; recheck i1; relax k; jam i1", (2, 5, 8)),
        # A range is settled by what is known around it.
        ("windows", "axis row 2; fuse i0 as m; split m 2 as b; bind b group; deal m column 2;"
         " jam m", (3, 6, 1)),
        # Of the loops around work items, the innermost goes in rounds.
        ("rows", "axis row 1; fuse k as m; share m row; partial row; split strip 8", (1, 4, 7)),
    ],
)  # fmt: skip
def test_what_was_wrong_once_is_right(name: str, script: str, sizes: tuple[int, int, int]) -> None:
    check_script(name, script.replace("; ", "\n"), sizes)


def test_a_vector_has_no_block() -> None:
    with pytest.raises(ScheduleError, match="no vectors of blocks"):
        change("element-wise", "vectorize i2 4", "reorder i1", "expand i1")


def test_lanes_that_are_outputs_have_parts() -> None:
    check_script("columns", "vectorize i0 4\nsplit k 4\npartial k", (4, 4, 9))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        # The second of two parts may begin beyond the end.
        ("split i0 8\nsplit i0 4\nbind i0_block group\nunroll i0_block.2", "there may not be"),
        # A part of a dimension leaves over what it does, in names of its own.
        ("split k 8\nsplit i2.2 8", "may end at different places"),
    ],
)
def test_what_is_interleaved_has_all_its_steps(script: str, message: str) -> None:
    lines = (*script.splitlines(), "vectorize k 4", "vectorize i2.2 4", "interleave i0")
    with pytest.raises(ScheduleError, match=message):
        change("rows", *lines, sizes=(9, 1, 32))


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        # Each was legal once, and its kernel was wrong, or its nest no order of the points.
        ("rows", ("split k 3", "normalize k_block", "rename k"), "keeps its name"),
        ("transposed", ("bind i1 group", "split i2 8", "vectorize i2 8 gather"),
         "ends where no vector does"),
        ("normalized", ("split k 8", "normalize k_block", "split k 16"), "split into shorter ones"),
        ("normalized", ("axis row 1", "share i1.2 row 1 1", "deal strip column 4"),
         "written out, in work groups"),
        ("normalized", ("split k 16", "bind k_block lane", "once", "unroll once"),
         "work items reduce nothing"),
        ("normalized", ("split i1.2 3", "normalize i1.2_block", "pack i1.2 4"), "is not packed"),
        ("element-wise", ("split i0 4 as a", "bind a group", "split i0 4 as b", "unroll b",
                          "split i0 2 as c", "unroll c", "reorder b"), "settled outside"),
        ("flat", ("split i 8 as a", "bind a group", "split i 4 as b", "bind b lane",
                  "vectorize i 4 whole", "reorder lane"), "vectors are inside"),
        # What fills a tile stands inside a reduction, and is no part of it.
        ("product", ("tile k 8 as point", "stage k left shared point", "partial left_point"),
         "walks no points that are reduced"),
        # Work items stand in one way in a block.
        ("element-wise", ("axis row 32", "bind i0 group", "bind i1 up own", "bind i2 row"),
         "has axes of its own"),
        ("columns", ("axis row 8", "split i0 8 as b", "bind b group", "bind i0 up own",
                     "share k row"), "outermost loops of a group"),
        ("element-wise", ("axis row 32", "bind i0 group", "reorder i1", "bind i2 row",
                          "reorder row", "bind i1 up own"), "has other axes"),
        ("transposed", ("split i2 8 as g", "reorder i1", "bind g group", "split i2 4 as b",
                        "unroll b", "reorder i1", "reorder i1", "fission i2 Y", "unroll i2"),
         "side by side"),
        ("transposed", ("fission i2 Y", "split i2.2 4", "expand i2"), "several loops go over"),
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
        share i1i2.2 row 8 4
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
    with pytest.raises(ScheduleError, match="<script>:2:1: error: 'split! i0' is no call"):
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


def test_work_items_whose_parts_have_ranges_stay_in_place() -> None:
    lines = ("split i 4", "bind i_block row", "split i 2", "bind i_block column", "reorder row")
    with pytest.raises(ScheduleError, match="settled outside"):
        change("element-wise", *lines, sizes=(1, 1, 7))


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
        "  loop i1i2.2 by 1 as i1i2.2: 0..256",
        "    point 2: store Y",
    ]
    kernels = read("rows", (4, 8, 32), "sum")
    inputs = kernels.inputs(0)
    (kernel,) = kernels.lower([nest])
    got = run_kernels(kernels.function, [kernel], inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values)


TILED = (
    "tile i0 4 as row",
    "tile i1 4 as column",
    "tile k 8 as point",
    "reorder row",
    "fuse i0 as tile",
    "bind tile group",
    "split row 2 as rows",
    "split column 2 as columns",
    "bind rows down",
    "unroll row",
    "unroll column",
    "reorder row",
    "bind columns across",
    "jam column",
    "jam row",
)
STAGED = (
    "stage k left shared row 1",
    "bind left_row left_rows",
    "stage k right shared point",
    "reorder right_column",
    "unroll right_column",
)


def test_a_group_shares_what_its_outputs_read() -> None:
    script = (*TILED, *STAGED)
    nest = change("product", *script, sizes=(7, 6, 21))
    assert nest.list_lines() == [
        "group tile by 1 as tile: 0..4 of i0, i1",
        "  lane row by 2 as down extent 2",
        "    lane column by 2 as across extent 2",
        "      reduce 0 array yes tile (rows 2 columns 2 pitch 2 lanes 1 registers yes): S",
        "        loop k by 8 as k: 0..21",
        "          stage [left#tile right#tile]: put into shared left_tile (40), right_tile (32)",
        "            lane left_row by 1 as left_rows extent 4",
        "              loop left_point by 1 as left_point: 0..8",
        "                point 2 into [(buffer left#tile dim left_row"
        " tile [[left_row 1] [left_point 5]] loose [left_row])]: keep left_tile",
        "            loop right_point by 1 as right_point: 0..8",
        "              unroll right_column by 1 as right_column extent 4",
        "                point 3 into [(buffer right#tile dim right_point"
        " tile [[right_point 1] [right_column 8]] loose [right_column])]: keep right_tile",
        "          loop point by 1 as point: 0..8",
        "            unroll row by 1 as row extent 2 output 2",
        "              unroll column by 1 as column extent 2 output 1",
        "                point 0: add to S",
        "      unroll row by 1 as row.2 extent 2 output 2",
        "        unroll column by 1 as column.2 extent 2 output 1",
        "          point 1: store Y",
    ]
    kernels = read("product", (7, 6, 21), "sum")
    inputs = kernels.inputs(0)
    (kernel,) = kernels.lower([nest])
    got = run_kernels(kernels.function, [kernel], inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])
    assert print_kernel(kernel).count("barrier") == 2


@pytest.mark.parametrize("fold", ["sum", "max"])
def test_what_is_no_number_takes_no_part_in_tiles(fold: str) -> None:
    """A product of 0 and an infinity is none, though its point is left out."""
    kernels = read("masked product", (6, 5, 9), fold)
    (nest,) = start(kernels)
    with pytest.raises(ScheduleError, match="recheck"):
        apply(nest, kernels.function, LIMITS, *parse_script("\n".join((*TILED, *STAGED))))
    script = parse_script("\n".join(("recheck i1", *TILED, *STAGED)))
    nest = apply(nest, kernels.function, LIMITS, *script)
    inputs = kernels.inputs(1)
    inputs["B"][2, 7] = np.inf
    inputs["B"][3, 1] = np.nan
    got = run_kernels(kernels.function, kernels.lower([nest]), inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"], equal_nan=True)


@pytest.mark.parametrize(
    ("lines", "refused", "message"),
    [
        (("tile i1 4 as column",), "stage i1 left shared column", "one phase reads what is"),
        (("tile i0 4",), "tile i0_tile 2", "a dimension in steps is not tiled"),
        (("split i1 2 as n", "fuse i0 as mn"), "tile mn 4", "numbered steps are not tiled"),
        (("tile i0 4 as row",), "fuse i0", "settled|range|a loop of their own"),
        (("tile i0 4 as row",), "reorder i0", "settled outside"),
        (("tile k 8 as point",), "vectorize point 4", "vectors of a tile are whole"),
        (("tile k 8 as point",), "stage k X shared point", "not one value is called 'X'"),
        (("tile k 8 as point",), "stage k left local point", "shared memory"),
        (("tile k 8 as point",), "stage k left shared row", "it lies along point"),
        (("tile k 8 as point",), "stage point left shared point", "nothing that the loops below"),
        (("tile k 8 as point", "split k 2 as two"), "stage two left shared point", "not known yet"),
        (TILED, "stage k W shared row", "not one value is called 'W'"),
        ((*TILED, *STAGED), "bind left_point down", "an axis of a tile is its own"),
        ((*TILED, *STAGED), "bind left_point own", "a group has not so many work items"),
        ((*TILED, *STAGED), "unroll k", "settled|work items have points|steps of several"),
        (TILED[:9], "jam down", "work items jam nothing"),
        (("tile k 4 as point",), "jam point", "only outputs are reduced side by side"),
        ((), "jam i0", "no reduction comes first|too many outputs at once"),
        (("vectorize i1 4",), "jam i1", "work items jam nothing"),
        (("recheck i1",), "recheck i1", "more than one reduction"),
        ((), "part i0 2", "no positions along it are divided by 2"),
        ((), "thin k 2", "no guard lets one point in 2 through first"),
        ((), "roll i0", "steps of tiles are counted"),
        ((*TILED, "axis own 4"), "bind k own", "sums of their own"),
    ],
)
def test_tiles_are_refused_that_change_results(
    lines: tuple[str, ...], refused: str, message: str
) -> None:
    begun = change("product", *lines, sizes=(24, 16, 32))
    kernels = read("product", (24, 16, 32), "sum")
    with pytest.raises(ScheduleError, match=message):
        apply(begun, kernels.function, LIMITS, *parse_script(refused))


def test_work_items_do_not_share_a_tile_that_each_needs_of_its_own() -> None:
    """Staging a row for each step of a serial loop, and then dealing out the rows."""
    lines = ("tile i0 4 as row", "tile k 8 as point", "stage k left shared point")
    assert "left_tile (8)" in str(change("product", *lines, sizes=(8, 2, 16)))
    with pytest.raises(ScheduleError, match="work items"):
        change("product", *lines, "bind i0 group", "bind row row", sizes=(8, 2, 16))


BLOCKS = (
    "tile i0 8 as row",
    "tile i2 8 as column",
    "reorder row",
    "reorder row",
    "fuse i0 as tile",
    "fuse tile as tile",
    "bind tile group",
    "stage tile X shared row 1 as x",
    "fission row Y",
    "bind row.2 rows",
    "bind column.2 columns",
    "bind row up own",
    "reorder x_row",
    "bind x_column side",
)


def test_blocks_of_a_group_have_axes_of_their_own() -> None:
    nest = change("transposed", *BLOCKS, sizes=(9, 3, 10))
    assert nest.list_lines() == [
        "group tile.2 by 1 as tile: 0..12 of i0, i1, i2",
        "  stage [x#tile] repeats no: put into shared x_tile (72)",
        "    lane x_column by 1 as side extent 8",
        "      loop x_row by 1 as x_row: 0..8",
        "        point 1 into [(buffer x#tile dim x_row"
        " tile [[x_row 1] [x_column 9]] loose [x_row x_column])]: keep x_tile",
        "  lane row by 1 as up extent 8",
        "    loop column by 1 as column: 0..8",
        "      point 0: store Y",
        "  lane row by 1 as rows extent 8",
        "    lane column by 1 as columns extent 8",
        "      point 2: store Z",
    ]
    assert nest.lanes == (("rows", 8), ("columns", 8))
    kernels = read("transposed", (9, 3, 10), "sum")
    inputs = kernels.inputs(0)
    (kernel,) = kernels.lower([nest])
    got = run_kernels(kernels.function, [kernel], inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        assert np.array_equal(got[result], values)
    # Eight of the 64 fill the tile, and as many store the first result.
    assert print_kernel(kernel).count("lt(lane, 8)") == 2


@pytest.mark.parametrize(
    ("lines", "refused", "message"),
    [
        (BLOCKS, "bind column rows own", "an axis of a tile is its own"),
        (BLOCKS, "axis side 2", "a block has an axis 'side' of its own"),
        (BLOCKS[:9], "bind row up own", "a group has not so many work items"),
        (BLOCKS[:6], "bind row up own", "blocks of a group have axes of their own"),
        (BLOCKS[:9], "bind row up mine", "block's own, if that is said"),
        (BLOCKS[:11], "deal row rows 2 own", "an axis of a tile is its own"),
        (BLOCKS[:8], "fission row W", "it stores no such results"),
        (BLOCKS[:8], "fission tile Y", "serial loops around a point"),
        (BLOCKS[:8], "stage tile %9 shared row", "not one value is called '%9'"),
        (("fuse i0 as i",), "rename i1.2", "no loop is called"),
        (("fission i0 Y", "fuse i0 as i"), "rename i0.2 as j", "several loops keeps its name"),
        (("split i0 3 as g", "bind g group", "fission i0 Y"), "unroll i0", "side by side"),
    ],
)
def test_blocks_are_refused_that_change_results(
    lines: tuple[str, ...], refused: str, message: str
) -> None:
    begun = change("transposed", *lines, sizes=(9, 3, 10))
    kernels = read("transposed", (9, 3, 10), "sum")
    with pytest.raises(ScheduleError, match=message):
        apply(begun, kernels.function, LIMITS, *parse_script(refused))


def test_all_work_items_reduce_what_they_fill_tiles_for() -> None:
    """Those that nothing around a reduction is for have its outcome, too: they read it later."""
    lines = ("deal i1.2 item 2", "tile k 2", "stage k X shared k_tile", "bind X_k_tile side")
    nest = change("rows", *lines, sizes=(1, 2, 1))
    kernels = read("rows", (1, 2, 1), "sum")
    given = {"X": [[[1.0], [2.0]]], "W": [3.0]}
    inputs = {name: np.array(values, np.float32) for name, values in given.items()}
    got = run_kernels(kernels.function, kernels.lower([nest]), inputs)
    assert got["Y"].tolist() == [[[10.0], [11.0]]]


def test_groups_are_parted() -> None:
    nest = change("products of groups", "part i0 2", sizes=(3, 4, 5))
    assert loops(nest) == ["i0", "i0_rest", "i1", "k"]
    kernels = read("products of groups", (3, 4, 5), "sum")
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, kernels.lower([nest]), inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])


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
