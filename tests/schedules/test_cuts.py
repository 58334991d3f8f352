"""Reductions that are cut into pieces: both kernels by random scripts, in the interpreter."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.rewrite import walk_parts, walk_statements
from dmlc.kernel.target import CPU
from dmlc.loops.legality import rises
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Nest, Reduce, walk
from dmlc.loops.phases import combine_partials, store_partials
from dmlc.loops.primitives import apply
from dmlc.loops.rfactor import cut_points, name_points
from dmlc.loops.script import ScheduleError, parse_script
from dmlc.lowering.assemble import make_kernel
from dmlc.matrices import find_instruction
from dmlc.pipeline import Steps, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.source import Source
from dmlc.testing.schedules import draw_steps, follow
from tests.kernel.schedules import FOLDS, FUNCTIONS, HALVES, LIMITS, read


@pytest.mark.parametrize("seed", range(8))
def test_pieces_come_to_the_same(seed: int) -> None:
    done: Counter[str] = Counter()
    for number, name in enumerate(FUNCTIONS):
        draw = random.Random(100 * seed + number)
        sizes = (draw.randint(1, 5), draw.randint(1, 6), draw.randint(1, 18))
        kernels = read(name, sizes, draw.choice(FOLDS))
        parts, calls = kernels.cut(draw)
        nests: list[Nest] = []
        for phases, _ in parts.phases:
            nest, verbs = follow(naive(phases), kernels.function, LIMITS, draw_steps(draw))
            nests.append(nest)
            done.update(verbs if calls else ())
        done["cut"] += len(calls)
        made, inputs = parts.lower(nests), kernels.inputs(seed)
        got = run_kernels(kernels.function, made, inputs)
        for result, values in evaluate(kernels.function, inputs).items():
            np.testing.assert_array_equal(got[result], values, "\n\n".join(map(str, made)))
    assert done["cut"] >= 3
    assert len(done) >= 5


PLACES = """
func @f(%X: f32[{sizes}]) -> (%P) {{
  %P: s64[i0 < 5] = argmax[r0 < 3, r1 < 4] %X[{place}]
}}"""


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("part", ["", "rfactor k 2", "rfactor k1 2"])
@pytest.mark.parametrize(("sizes", "place"), [("3, 5, 4", "r0, i0, r1"), ("4, 5, 3", "r1, i0, r0")])
def test_the_first_of_equals_is_first_in_any_order(
    sizes: str, place: str, part: str, profile: str
) -> None:
    """In the order of memory, and piece by piece, points do not come in that of their numbers."""
    function = ir.parse(PLACES.format(sizes=sizes, place=place))
    text = f"kernel P\n{part}\nbind i0 group" + "\nkernel P_parts\nbind piece group" * bool(part)
    steps = Steps(schedule=Source("own.txt", text))
    fused, kernels = make_kernels(function, "opencl", profile, steps=steps)
    for seed in range(4):
        shape = [int(size) for size in sizes.split(", ")]
        x = np.random.default_rng(seed).integers(0, 3, shape).astype(np.float32)
        wanted = evaluate(function, {"X": x})["P"]
        np.testing.assert_array_equal(run_kernels(fused, kernels, {"X": x})["P"], wanted)


EXTREMES = """
func @f(%X: f32[3, 9000]) -> (%P) {{
  %P: s64[i0 < 3] = {combiner}[r1 < 9000{guard}] %X[i0, r1]
}}"""


@pytest.mark.parametrize("guard", ["", " where ne(%X[i0, r1], 1.0)"])
@pytest.mark.parametrize("combiner", ["argmax", "argmin"])
@pytest.mark.parametrize(("target", "profile"), [("opencl", "cpu"), ("hlsl", "gpu")])
def test_numbers_of_points_are_compared_between_work_items_alone(
    target: str, profile: str, combiner: str, guard: str
) -> None:
    """A work item, and a lane of a vector, takes its points in order: an equal one never wins."""
    function = ir.parse(EXTREMES.format(combiner=combiner, guard=guard))
    fused, kernels = make_kernels(function, target, profile)
    x = np.random.default_rng(1).integers(0, 3, (3, 9000)).astype(np.float32)
    x[1] = -np.inf
    x[2, [700, 900]] = np.nan
    for values in (x, -x):
        wanted = evaluate(function, {"X": values})["P"]
        np.testing.assert_array_equal(run_kernels(fused, kernels, {"X": values})["P"], wanted)
    loops = [s for s in walk_statements(kernels[0].body) if isinstance(s, k.For)]
    reading = [s for s in loops if any(isinstance(p, k.Load) for p in walk_parts(*s.body))]
    orders = [p for p in walk_parts(*walk_statements(reading)) if isinstance(p, k.Operate)]
    assert reading
    assert not any(
        p.operation.name == "lt" and p.operands[0].type.dtype is DataType.UINT32 for p in orders
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", True),
        ("reorder k", False),
        ("fuse k as m; split m 4 as s", True),
        ("split k 2 as s; reorder k", False),
        ("axis row 2; bind i0 group; fuse k as m; share m row 4 2", True),
        ("axis row 2; bind i0 group; fuse k as m; share m row 8 2; reorder k", False),
        ("vectorize k1 4", True),
    ],
)
def test_points_come_in_order_where_loops_say_so(script: str, expected: bool) -> None:
    kernels = read("places", (4, 5, 16), "max")
    (phases, _), *_ = kernels.phases
    nest = apply(naive(phases), kernels.function, LIMITS, *parse_script(script))
    found = [rises(nest, node) for node in walk(nest.body) if isinstance(node, Reduce)]
    assert found[-1] is expected


def test_a_dimension_that_numbers_pieces_keeps_its_name() -> None:
    (phases, _), *_ = read("normalized", (3, 4, 10), "sum").phases
    divided = cut_points(phases, parse_script("rfactor k 4")[0])
    nest, function = (
        naive(store_partials(divided)),
        read("normalized", (3, 4, 10), "sum"),
    )
    with pytest.raises(ScheduleError, match="a dimension that others are made of keeps its name"):
        apply(nest, function.function, LIMITS, *parse_script("rename piece as j"))


def test_a_fused_loop_that_numbers_pieces_stays_around_them() -> None:
    kernels = read("rows", (2, 3, 4), "sum")
    (phases, _), *_ = kernels.phases
    nest = naive(store_partials(cut_points(phases, parse_script("rfactor k 2")[0])))
    script = parse_script("fuse piece as m; unroll m; fuse k as n; jam m")
    with pytest.raises(ScheduleError, match="jam m: which piece is reduced, the loop says"):
        apply(nest, kernels.function, LIMITS, *script)


@pytest.mark.parametrize("script", ["split k1 8\nfuse k", "split k 2\nreorder k\nfuse k_block"])
def test_numbers_of_steps_end_with_a_shorter_piece(script: str) -> None:
    """Of four rows the second piece has one, of two steps of eight: there are two numbers."""
    kernels = read("channels", (4, 2, 16), "sum")
    made: list[k.Kernel] = []
    for phases, stages in kernels.phases:
        first, *rest = phases
        divided = cut_points(phases, parse_script("rfactor k 3")[0])
        parts = [
            store_partials(divided),
            (combine_partials(first, divided.space.parallel_sizes), *rest),
        ]
        nests = [naive(part) for part in parts]
        nests[0] = apply(nests[0], kernels.function, LIMITS, *parse_script(script))
        made += [make_kernel(kernels.function, part, stages, (stages,), CPU, LIMITS, nest=nest)
                 for part, nest in zip(parts, nests, strict=True)]  # fmt: skip
    inputs = kernels.inputs(0)
    got = run_kernels(kernels.function, made, inputs)
    for result, values in evaluate(kernels.function, inputs).items():
        np.testing.assert_array_equal(got[result], values)


def test_pieces_are_no_rows_of_a_tensorized_product() -> None:
    """Both factors are others in each piece."""
    kernels = read("product of halves", (1, 3, 16), "sum", HALVES)
    (phases, _), *_ = kernels.phases
    nest = naive(store_partials(cut_points(phases, parse_script("rfactor k 8")[0])))
    script = parse_script("""
        tile piece 8 as row; tile i1 8 as column; tile k 8 as point; reorder row
        fuse piece as tile; bind tile group; tensorize row 8x8x8/8 1 1""")
    limits = dataclasses.replace(LIMITS, instruction=find_instruction("8x8x8/8"))
    with pytest.raises(ScheduleError, match="one factor is of the rows of the tile, and the other"):
        apply(nest, kernels.function, limits, *script)


def test_a_cut_names_the_loops_of_the_naive_nest() -> None:
    (phases, _), *_ = read("rows", (3, 4, 5), "sum").phases
    names = name_points(phases[0])
    assert set(names) <= {dim.name for dim in naive(phases).dims[0]}
    assert len(names) == len(phases[0].space.inner)


def test_a_script_has_no_cut_in_it() -> None:
    kernels = read("element-wise", (3, 4, 5), "sum")
    with pytest.raises(ScheduleError, match="rfactor i0 2: it stands at the head of the section"):
        apply(naive(kernels.phases[0][0]), kernels.function, LIMITS, *parse_script("rfactor i0 2"))


@pytest.mark.parametrize("pieces", [2, 3, 6, 7])
def test_no_piece_is_empty(pieces: int) -> None:
    """Ten points in six pieces: five have two each, and a sixth would have none."""
    (phases, _), *_ = read("normalized", (3, 4, 10), "sum").phases
    space = cut_points(phases, parse_script(f"rfactor k {pieces} pieces")[0]).space
    assert (space.sizes[0] - 1) * space.sizes[-1] < 10 <= space.sizes[0] * space.sizes[-1]
