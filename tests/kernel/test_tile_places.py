"""Quotients of places in loops that fill tiles: fewer of them, and the same values."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.rewrite import walk, walk_parts, walk_statements
from dmlc.kernel.tile_places import settle_places
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from tests.products import Windows

TEXT = """
kernel places {{
  launch ceil(1 / 1) groups of 16, index u32
  buffer A: f16 read
  buffer C: f32 write
  let column: index = mod(lane, 4)
  for k in 0 .. {end} step {step} {{
    barrier
    let n: index = {place}
    let x: f32 = A[{read}]
    store C[add(mul(div(k, {step}), 16), lane)] = x
  }}
}}
"""


def interpret(kernel: k.Kernel) -> Array:
    """The elements that a kernel reads of 0, 1, 2 and so on: its places."""
    function = ir.parse("""
        func @f(%A: f16[256]) -> (%C) { %C: f32[i0 < 128] = %A[i0] }""")
    return run_kernels(function, (kernel,), {"A": np.arange(256, dtype=np.float16)})["C"]


def count_quotients(kernel: k.Kernel) -> int:
    """The quotients and remainders at which A is read."""
    parts = (p for s in walk_statements(kernel.body) for p in walk_parts(s))
    inside = (p for load in parts if isinstance(load, k.Load) for p in walk(load.index))
    return sum(isinstance(p, k.Operate) and p.operation.name in ("div", "mod") for p in inside)


@pytest.mark.parametrize(
    ("step", "place", "read", "left"),
    [
        # Where a tile starts is a multiple of what it has: the quotient is the same for all of it.
        (4, "k, column", "div(n, 16)", 1),
        (4, "k, column", "mod(n, 16)", 1),
        # It may be one of what is divided by: then there is none.
        (4, "mul(k, 3), column", "div(n, 12)", 1),
        (4, "mul(k, 3), column", "mod(n, 12)", 0),
        (4, "k, column", "mod(n, 4)", 0),
        (4, "k, column", "div(mod(n, 32), 8)", 2),
        # A tile that goes beyond keeps its quotients.
        (1, "k, column", "div(n, 8)", 1),
        (2, "k, column", "mod(n, 3)", 1),
        (1, "k, lane", "mod(div(n, 3), 5)", 2),
    ],
)
def test_quotients_have_the_same_values(step: int, place: str, read: str, left: int) -> None:
    place = f"add({place})"
    kernel = parse_kernel(TEXT.format(step=step, place=place, read=read, end=8 * step))
    settled = settle_places(kernel)
    assert count_quotients(settled) == left
    np.testing.assert_array_equal(interpret(settled), interpret(kernel))


@pytest.mark.parametrize(("kind", "dilation"), [("forward", 1), ("data", 2)])
def test_a_work_item_knows_where_in_a_row_of_the_window_it_reads(kind: str, dilation: int) -> None:
    """A tile has 12 points: 4 rows of windows, of which a work item reads all 3 elements."""
    windows = Windows(1, 16, 12, 12, 16, 3, 1, 1, dilation)
    function = windows.make(kind)
    fused, (kernel,) = make_kernels(function, "hlsl")
    assert "tile k 12 as point" in kernel.script
    assert "split right_point 3 as right_taps" in kernel.script
    random = np.random.default_rng(0)
    inputs = {
        p.name: random.integers(-2, 3, [int(e) for e in p.extents]).astype(np.float32)
        for p in function.parameters
    }
    wanted = evaluate(function, inputs)
    for name, values in run_kernels(fused, (kernel,), inputs).items():
        np.testing.assert_array_equal(values.reshape(wanted[name].shape), wanted[name])
