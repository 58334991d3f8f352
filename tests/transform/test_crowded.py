"""Stages that read more tensors than a kernel has buffers for are split."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.ir.verify import verify
from dmlc.transform.crowded import split_crowded

COUNT = 40


def count_reads(function: ir.Function) -> list[int]:
    return [len({load.tensor for load in s.body.loads()}) for s in function.stages]


def joined() -> ir.Function:
    """Rows of many tensors one after the other, each for as many numbers as it has rows."""
    parameters = ", ".join(f"%x{k}: f32[{1 + k % 2}, 3]" for k in range(COUNT))
    rows = [1 + k % 2 for k in range(COUNT)]
    starts = [sum(rows[:k]) for k in range(COUNT)]
    text = f"%x{COUNT - 1}[min(max(sub(i0, {starts[-1]}), 0), {rows[-1] - 1}), i1]"
    for k in reversed(range(COUNT - 1)):
        place = f"min(max(sub(i0, {starts[k]}), 0), {rows[k] - 1})"
        text = f"select(lt(i0, {starts[k + 1]}), %x{k}[{place}, i1], {text})"
    whole = sum(rows)
    return ir.parse(
        f"func @joined({parameters}) -> (%y) {{\n  %y: f32[i0 < {whole}, i1 < 3] = {text}\n}}\n"
    )


def summed() -> ir.Function:
    """The sum of products over rows, of pairs of which one is by row and one by column."""
    parameters = ", ".join(f"%x{k}: f32[4, 6], %w{k}: f32[6]" for k in range(COUNT // 2))
    text = "mul(%x0[i0, r0], %w0[r0])"
    for k in range(1, COUNT // 2):
        text = f"add({text}, mul(%x{k}[i0, r0], %w{k}[r0]))"
    return ir.parse(
        f"func @summed({parameters}) -> (%y) {{\n  %y: f32[i0 < 4] = sum[r0 < 6] {text}\n}}\n"
    )


FUNCTIONS = {"joined": joined, "summed": summed}


@pytest.mark.parametrize("most", [8, 31])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_stage_is_within_the_limit_and_computes_the_same(name: str, most: int) -> None:
    function = FUNCTIONS[name]()
    split = split_crowded(function, most)
    verify(split, "split_crowded", function)
    assert max(count_reads(function)) == COUNT
    assert max(count_reads(split)) == most - 1
    numbers = np.random.default_rng(0)
    inputs = {
        p.name: numbers.standard_normal([int(e) for e in p.extents]) for p in function.parameters
    }
    given = {name: values.astype(np.float32) for name, values in inputs.items()}
    expected = dmlc.run(function, given, device="reference")["y"]
    assert np.array_equal(dmlc.run(split, given, device="reference")["y"], expected)


def test_a_part_of_a_reduction_that_does_not_need_its_axes_is_without_them() -> None:
    function = ir.parse(
        "func @f(%a: f32[4], %b: f32[4], %c: f32[4, 6]) -> (%y) {\n"
        "  %y: f32[i0 < 4] = sum[r0 < 6] mul(add(%a[i0], %b[i0]), %c[i0, r0])\n}\n"
    )
    part, left = split_crowded(function, 3).stages
    assert part.extents == (4,)
    assert {load.tensor for load in left.body.loads()} == {part.name, "c"}


def test_what_is_within_the_limit_is_left_as_it_is() -> None:
    function = joined()
    assert split_crowded(function, COUNT + 1) is function


@pytest.mark.parametrize(("target", "most"), [("hlsl", 31), ("wgsl", 8)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_keep_to_the_buffers_of_a_target(name: str, target: str, most: int) -> None:
    program = dmlc.compile(FUNCTIONS[name](), target)
    assert len(program.kernels) > 1
    assert max(len(kernel.buffers) for kernel in program.kernels) <= most


def test_a_device_computes_what_the_whole_does() -> None:
    function = joined()
    numbers = np.random.default_rng(1)
    given = {
        p.name: numbers.standard_normal((1 + k % 2, 3)).astype(np.float32)
        for k, p in enumerate(function.parameters)
    }
    found = dmlc.run(function, given, device="strict")["y"]
    assert np.array_equal(found, np.concatenate([*given.values()]))
