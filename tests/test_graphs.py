"""Graphs as a whole: what fuses, what kernels read and write, and how long compiling takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlc
from dmlc import ir
from dmlc.ir import Function, Parameter, Result
from dmlc.pipeline import compile, explain
from dmlc.program import KernelSource
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import fuse
from tests.graphs import COLUMNS, ROWS, graphs, residual_block

DEVICES = ("opencl", "vulkan")


# The residual block ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("target", "profile"), [("opencl", "cpu"), ("hlsl", "gpu")])
def test_residual_block_reads_twice_and_writes_once(dtype: str, target: str, profile: str) -> None:
    function = residual_block(dtype, 32, 64, 56, 56)
    report = explain(function, target, profile)
    program = compile(function, target, profile)
    whole = 32 * 64 * 56 * 56 * (4 if dtype == "f32" else 2)
    assert sum(len(work.kernels) for work in report.after) == len(program.kernels) <= 2
    moved = {move.tensor: move for work in report.after for move in work.moves}
    for name in ("x", "y", "dy_main", "dy_skip"):
        assert moved[name].read == 2 * whole
    assert moved["dx"].written == whole
    assert all(s.bytes is not None and s.bytes < whole / 100 for s in report.scratch)
    assert report.peak_scratch < whole / 100
    # And so say the kernels. On a GPU the first of two reduces pieces of a channel.
    parameters = {p.name for p in function.parameters}
    parts = {b.tensor for kernel in program.kernels for b in kernel.buffers if "_parts" in b.tensor}
    assert bool(parts) == (len(program.kernels) > 1) == (profile == "gpu")
    used = {b.tensor for kernel in program.kernels for b in kernel.buffers}
    assert used == {*parameters, "dx", "dscale", "dbias", *parts}
    if profile == "cpu":
        (kernel,) = program.kernels
        for name in ("x", "y", "dy_main", "dy_skip"):
            assert count_uses(kernel, name) == 2
        assert count_uses(kernel, "dx") == 1


def count_uses(kernel: KernelSource, name: str) -> float:
    """How often each channel of a buffer is gone through: the lines that read or store elements,
    and what is in the loop over a work item's channels as often as that runs, by the channels."""
    _, _, body = kernel.source.rpartition(f" {kernel.entry_point}(")
    channels = re.search(r"end = begin \+ (\d+);", body)
    turns = int(channels[1]) if channels else 1
    pattern = re.compile(rf"\b{name}(\[| \+|\);)")
    uses = 0
    inside = False
    for line in body.splitlines():
        if line.startswith("    for (uint block = begin + 1;"):
            inside = True
        elif line == "    }":
            inside = False
        elif pattern.search(line) and "prefetch" not in line and not line.lstrip().startswith("//"):
            uses += turns - 1 if inside else 1
    return uses / turns


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("device", DEVICES)
def test_residual_block_agrees_with_the_reference(dtype: str, device: str) -> None:
    function = residual_block(dtype, 2, 3, 4, 5)
    random = np.random.default_rng(1)
    inputs = {
        p.name: random.normal(size=[e for e in p.extents if isinstance(e, int)]).astype(
            p.dtype.dtype
        )
        for p in function.parameters
    }
    inputs["variance"] = np.abs(inputs["variance"]) + inputs["variance"].dtype.type(0.1)
    expected = evaluate(function, inputs)
    found = dmlc.run(function, inputs, device=device)
    for name, values in expected.items():
        error = 1e-4 if dtype == "f32" else 4e-3
        np.testing.assert_allclose(
            found[name].astype(np.float64), values.astype(np.float64), error, error
        )


# Random graphs -----------------------------------------------------------------------------


def make_inputs(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "X": random.normal(size=(ROWS, COLUMNS)).astype(np.float32),
        "Y": random.normal(size=(ROWS, COLUMNS)).astype(np.float16),
        "R": random.normal(size=ROWS).astype(np.float32),
        "C": random.normal(size=(1, COLUMNS)).astype(np.float32),
    }


def run_apart(function: Function, inputs: dict[str, Array], device: str) -> dict[str, Array]:
    """Every stage as a program of its own."""
    values = dict(inputs)
    tensors = function.tensors()
    for stage in function.stages:
        parameters: list[Parameter] = []
        for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
            tensor = tensors[name]
            extents = tensor.extents
            parameters.append(Parameter(name, tensor.dtype, extents))
        alone = Function("alone", tuple(parameters), (stage,), (Result(stage.name),))
        given = {p.name: values[p.name] for p in parameters}
        values |= dmlc.run(alone, given, device=device)
    return {r.name: values[r.name] for r in function.results}


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 9))
def test_fused_graphs_compute_the_same(function: Function, seed: int) -> None:
    inputs = make_inputs(seed)
    fusion = fuse(function)
    ir.verify(fusion.function, "fuse")
    expected, found = evaluate(function, inputs), evaluate(fusion.function, inputs)
    for name, values in expected.items():
        assert values.tobytes() == found[name].tobytes(), name


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=2, deadline=None)
@given(function=graphs(most=20), seed=st.integers(0, 9))
def test_graphs_on_devices(device: str, function: Function, seed: int) -> None:
    inputs = make_inputs(seed)
    expected = evaluate(function, inputs)
    found = dmlc.run(function, inputs, device=device)
    for name, values in expected.items():
        agree(found[name], values)


@settings(max_examples=1, deadline=None)
@given(graphs(most=8), st.integers(0, 9))
def test_fused_and_apart_on_a_device(function: Function, seed: int) -> None:
    inputs = make_inputs(seed)
    expected = run_apart(function, inputs, "opencl")
    found = dmlc.run(function, inputs, device="opencl")
    for name, values in expected.items():
        agree(found[name], values)


def agree(found: Array, expected: Array) -> None:
    """A value of 16 bits may be rounded the other way, and that goes on to what reads it."""
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=0.03, atol=0.03
    )
    # Most of them are not.
    near = np.isclose(found.astype(np.float64), expected.astype(np.float64), 1e-2, 1e-3)
    assert near.mean() > 0.9


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(
    ("add", "sub", "mul", "max", "div"))), min_size=20, max_size=20),
    st.sampled_from(("f32", "f16")))  # fmt: skip
def test_any_twenty_element_wise_operators_are_one_kernel(
    drawn: list[tuple[int, int, str]], dtype: str
) -> None:
    names, lines = ["X", "Y"], list[str]()
    for number, (a, b, operation) in enumerate(drawn):
        left, right = names[-1 - a % len(names)], names[-1 - b % len(names)]
        read = ", ".join(f"%{n}[i0]" for n in ((names[-1], right) if number % 2 else (left, right)))
        lines.append(f"%t{number}: {dtype}[i0 < n] = {operation}({read})")
        names.append(f"t{number}")
    function = ir.parse(
        f"func @f(%X: {dtype}[n], %Y: {dtype}[n]) -> (%t19) {{\n" + "\n".join(lines) + "\n}"
    )
    (kernel,) = compile(function).kernels
    assert {b.tensor for b in kernel.buffers} <= {"X", "Y", "t19"}
    assert explain(function).scratch == ()


# Large graphs ------------------------------------------------------------------------------


def chain(count: int) -> Function:
    """One operation after another."""
    lines = [f"%t{k}: f32[i0 < n] = add(%{f't{k - 1}' if k else 'X'}[i0], %Y[i0])"
             for k in range(count)]  # fmt: skip
    return parse_lines("%X: f32[n], %Y: f32[n]", lines, [f"t{count - 1}"])


def outputs(count: int) -> Function:
    """A chain of which every tenth leaves."""
    function = chain(count)
    kept = tuple(Result(s.name) for s in function.stages[9::10])
    return Function(function.name, function.parameters, function.stages, kept)


def layers(count: int) -> Function:
    """Rounds of a scaling, a sum over all but the channels, and what subtracts it."""
    lines: list[str] = []
    before, weights = "X", list[str]()
    for k in range(count // 4):
        weights.append(f"%w{k}: f32[4]")
        lines += [
            f"%a{k}: f32[i0 < 8, i1 < 4, i2 < 16] = mul(%{before}[i0, i1, i2], %w{k}[i1])",
            f"%s{k}: f32[i0 < 4] = sum[r0 < 8, r2 < 16] %a{k}[r0, i0, r2]",
            f"%b{k}: f32[i0 < 8, i1 < 4, i2 < 16] = sub(%a{k}[i0, i1, i2], %s{k}[i1])",
            f"%c{k}: f32[i0 < 8, i1 < 4, i2 < 16] = add(%b{k}[i0, i1, i2], "
            f"%b{k}[i0, i1, sub(15, i2)])",
        ]
        before = f"c{k}"
    return parse_lines(", ".join(["%X: f32[8, 4, 16]", *weights]), lines, [before])


def parse_lines(parameters: str, lines: list[str], results: list[str]) -> Function:
    names = ", ".join(f"%{name}" for name in results)
    return ir.parse(f"func @large({parameters}) -> ({names}) {{\n" + "\n".join(lines) + "\n}")


def crossed(count: int) -> Function:
    """Sums along one axis and then the other by turns, each subtracted: every one is a kernel."""
    lines: list[str] = []
    before = "X"
    for k in range(count // 4):
        kept, folded = ("i0", "r1") if k % 2 else ("i1", "r0")
        place = "%{0}[r0, i0]" if folded == "r0" else "%{0}[i0, r1]"
        size, other = (8, 16) if k % 2 else (16, 8)
        lines += [
            f"%a{k}: f32[i0 < 8, i1 < 16] = mul(%{before}[i0, i1], %Y[i0, i1])",
            f"%s{k}: f32[i0 < {size}] = sum[{folded} < {other}] {place.format(f'a{k}')}",
            f"%b{k}: f32[i0 < 8, i1 < 16] = sub(%a{k}[i0, i1], %s{k}[{kept}])",
            f"%c{k}: f32[i0 < 8, i1 < 16] = max(%b{k}[i0, i1], 0.0)",
        ]
        before = f"c{k}"
    return parse_lines("%X: f32[8, 16], %Y: f32[8, 16]", lines, [before])


@pytest.mark.parametrize("make", [chain, outputs, layers, crossed])
def test_compile_time_is_linear(make: Callable[[int], Function]) -> None:
    seconds: dict[int, float] = {}
    for count in (30, 80, 400):
        function = make(count)
        start = time.process_time()
        compile(function)
        seconds[count] = time.process_time() - start
    assert seconds[400] < 12 * seconds[80] + 0.3


def test_kernels_wait_for_few_others_however_many_there_are() -> None:
    waits: dict[int, int] = {}
    for count in (120, 480):
        program = compile(crossed(count))
        assert len(program.kernels) >= count // 4
        waits[count] = max(len(kernel.after) for kernel in program.kernels)
    assert waits[480] <= waits[120] + 4


def test_a_graph_too_large_for_a_kernel_is_parted() -> None:
    fusion = fuse(chain(3000))
    assert [len(g.stages) for g in fusion.groups] == [1, 1]
    many = ir.parse(
        "func @f(" + ", ".join(f"%p{k}: f32[64]" for k in range(200)) + ") -> (%Y) {\n"
        "%t0: f32[i0 < 64] = %p0[i0]\n"
        + "\n".join(f"%t{k}: f32[i0 < 64] = add(%t{k - 1}[i0], %p{k}[i0])" for k in range(1, 200))
        + "\n%Y: f32[i0 < 64] = neg(%t199[i0])\n}"
    )
    for target, most in (("opencl", 120), ("hlsl", 31)):
        program = compile(many, target)
        assert len(program.kernels) > 1
        assert all(len(kernel.buffers) <= most for kernel in program.kernels)
    inputs = {f"p{k}": np.full(64, k, np.float32) for k in range(200)}
    fused = fuse(many, budget=Budget(most_buffers=31)).function
    assert evaluate(fused, inputs)["Y"][3] == -sum(range(200))
