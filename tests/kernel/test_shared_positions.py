"""How reductions that depend on positions are shared out: counted, not timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import dmlc
from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.kernel.target import CPU, GPU, Profile
from dmlc.pipeline import find_fusion
from dmlc.reference import evaluate
from tests import positions
from tests.kernel.lowering import interpret, lower_fusion
from tests.kernel.statements import count_steps, count_threads, list_parts, walk
from tests.shared_positions import FUNCTIONS, read

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "graphs"

MOST_ALONE = 1 << 20
"""Steps that fewer threads than `LEAST_THREADS` may take in all."""
LEAST_THREADS = 1024


def lower(function: ir.Function, profile: Profile, target: str = "opencl") -> tuple[k.Kernel, ...]:
    return lower_fusion(find_fusion(function, target, profile.name), profile, target)


def load_loss(rows: int, classes: int) -> ir.Function:
    name = "softmax_cross_entropy_backward"
    graph = dmlc.load(EXAMPLES / f"{name}.dml").graphs[name]
    return graph.bind(dims={"N": rows, "K": classes})


def is_shared_out(kernel: k.Kernel) -> bool:
    threads = count_threads(kernel)
    return threads >= LEAST_THREADS or threads * count_steps(kernel) <= MOST_ALONE


def list_loops(kernel: k.Kernel) -> list[tuple[int, object, object, int]]:
    """The loops of a kernel, outermost first: how deep each is, and its bounds and step where they
    are numbers."""

    def visit(
        statements: tuple[k.Statement, ...], depth: int
    ) -> list[tuple[int, object, object, int]]:
        found: list[tuple[int, object, object, int]] = []
        for statement in statements:
            if isinstance(statement, k.For):
                start, stop = (
                    e.value if isinstance(e, k.Literal) else None
                    for e in (statement.start, statement.stop)
                )
                found.append((depth, start, stop, statement.step))
                found += visit(statement.body, depth + 1)
            elif isinstance(statement, k.If):
                found += visit(statement.then, depth)
        return found

    return visit(kernel.body, 0)


def count_lanes(kernel: k.Kernel) -> int:
    """The elements that the widest load of a kernel reads."""
    return max(p.type.lanes for p in list_parts(kernel.body) if isinstance(p, k.Load))


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
@pytest.mark.parametrize(("rows", "classes"), [(128, 32000), (4, 128256), (8192, 4096)])
def test_no_kernel_of_a_loss_is_serial(rows: int, classes: int, target: str) -> None:
    kernels = lower(load_loss(rows, classes), GPU, target)
    assert all(is_shared_out(kernel) for kernel in kernels)
    assert all(count_steps(kernel) <= 1024 for kernel in kernels)


def test_a_loss_goes_in_vectors() -> None:
    first, pieces, rest = lower(load_loss(128, 32000), CPU)
    assert [count_lanes(kernel) for kernel in (first, pieces, rest)] == [16, 16, 16]
    assert (count_threads(first), count_threads(pieces)) == (128, 64)


def test_positions_as_values_are_in_the_kernel_of_a_row() -> None:
    """What is reduced along a row and applied to it, less one at the label."""
    for profile in (CPU, GPU):
        first, *_ = lower(load_loss(128, 32000), profile)
        assert {"logits", "labels", "dlogits"} <= {b.name for b in first.buffers}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_points_are_shared_out_on_a_gpu(name: str) -> None:
    kernels = lower(read(name, 300, 20_000, 4), GPU)
    assert all(is_shared_out(kernel) for kernel in kernels)
    assert max(map(count_steps, kernels)) < 1 << 15


@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_points_are_shared_out_on_a_cpu(name: str) -> None:
    kernels = lower(read(name, 2000, 20_000, 4), CPU)
    assert max(map(count_steps, kernels)) <= 2000 * 20_000 * 4 // CPU.groups


IN_VECTORS = (
    "label", "groups", "rows_elsewhere", "triangle", "any_and_all", "applied",
    "weighted", "far_positions", "derived",
)  # fmt: skip


@pytest.mark.parametrize("name", IN_VECTORS)
def test_what_lies_side_by_side_is_folded_in_vectors(name: str) -> None:
    first, *_ = lower(read(name, 60, 4000, 32), CPU)
    # A product of a row has vectors of a register's lanes.
    assert count_lanes(first) == (8 if name == "weighted" else CPU.lanes)


def test_two_spellings_of_a_sum_have_kernels_of_one_shape() -> None:
    """The sum of a group normalization's gradient by its scale: the statistics of a channel's
    group are read where they are, or come repeated for each channel."""
    sizes = "32, 256, 56, 56"
    text = """func @scale(%X: f32[{0}], %D: f32[{0}], %M: f32[32, {1}]) -> (%Z) {{
      %Z: f32[i0 < 256] = sum[r0 < 32, r1 < 56, r2 < 56]
        mul(%D[r0, i0, r1, r2], sub(%X[r0, i0, r1, r2], %M[r0, {2}]))
    }}"""
    by_index = ir.parse(text.format(sizes, 32, "div(i0, 8)"))
    whole = ir.parse(text.format(sizes, 256, "i0"))
    for profile in (CPU, GPU):
        (one,), (other,) = lower(by_index, profile), lower(whole, profile)
        assert list_loops(one) == list_loops(other)
        assert one.launch == other.launch
        assert [s.dtype for s in one.arrays] == [s.dtype for s in other.arrays]


def test_neighbouring_lanes_read_neighbours_in_pieces_of_rows() -> None:
    first, _ = lower(read("label", 128, 32_000, 1), GPU)
    loop = next(s for s in walk(first.body) if isinstance(s, k.For))
    places: Mapping[str, k.Expression] = {
        s.local.name: s.value for s in loop.body if isinstance(s, k.Let)
    }
    load = next(p for p in list_parts(loop.body) if isinstance(p, k.Load) and p.buffer == "X")
    inner = [places.get(p.name) for p in list_parts([k.Let(loop.variable, load.index)])
             if isinstance(p, k.Local)]  # fmt: skip
    remainder = next(e for e in inner if isinstance(e, k.Operate) and e.operation.name == "mod")
    place, length = remainder.operands
    assert length == k.Literal(k.INDEX, 64)
    assert isinstance(place, k.Local)
    assert print_expression(places[place.name]) == "add(strip, mul(row, 4))"


@pytest.mark.parametrize("profile", [CPU, GPU])
def test_guards_stand_before_what_they_protect(profile: Profile) -> None:
    first, *_ = lower(read("window", 300, 2000, 1), profile)
    reads = [p for p in list_parts(first.body) if isinstance(p, k.Load) and p.buffer == "X"]
    tests = [s for s in walk(first.body) if isinstance(s, k.If) and _reads(s, "X")]
    innermost = [s for s in tests if not any(isinstance(i, k.If) and _reads(i, "X")
                                             for i in walk(s.then))]  # fmt: skip
    guarded = [p for s in innermost for p in list_parts(s.then) if isinstance(p, k.Load)]
    assert reads
    assert len(reads) == len([p for p in guarded if p.buffer == "X"])


def _reads(test: k.If, buffer: str) -> bool:
    return any(isinstance(p, k.Load) and p.buffer == buffer for p in list_parts(test.then))


@pytest.mark.parametrize("combiner", ["argmin", "argmax"])
def test_places_are_folded_in_vectors(combiner: str) -> None:
    function = ir.parse(f"""func @f(%X: f32[40, 900]) -> (%Y) {{
      %Y: u32[i0 < 40] = {combiner}[r0 < 900] %X[i0, r0]
    }}""")
    (kernel,) = lower(function, CPU)
    assert count_lanes(kernel) == CPU.lanes
    assert any(isinstance(part, k.Numbers) for part in list_parts(kernel.body))


ON_TARGETS = [
    (name, target)
    for name in FUNCTIONS
    for target in ("opencl", "hlsl")
    if (name, target) != ("any_and_all", "hlsl")  # Shaders have no buffers of bytes.
]


@pytest.mark.parametrize("sizes", [(9, 300, 5), (37, 1, 16), (3, 1100, 1)])
@pytest.mark.parametrize(("name", "target"), ON_TARGETS)
def test_no_lane_reads_outside_or_races(
    name: str, target: str, sizes: tuple[int, int, int]
) -> None:
    function = read(name, *sizes)
    inputs = positions.make_inputs(function)
    got = interpret(function, inputs, target, misaligned=1)
    assert positions.find_differences(got, evaluate(function, inputs)) == []
