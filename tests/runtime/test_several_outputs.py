"""Programs that store a result while they fold it: one pass over memory on every device, and what
is folded is what is stored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

import dmlc
from dmlc.pipeline import compile, explain
from dmlc.program import KernelSource, Program, Role
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import Array
from tests.examples.graphs import FOLDER
from tests.reductions import SHAPES, Shape, folded_result, make_inputs

TARGETS = {"cpu": ("opencl", "cpu"), "gpu": ("opencl", "gpu"), "vulkan": ("hlsl", "gpu")}

FOLDED = {
    **{name: SHAPES[name] for name in ("everything, in pieces", "rows", "long channels")},
    "columns": Shape((2100, 67), (1,)),
    "wide columns": Shape((37, 4200), (1,)),
    "short channels": Shape((5, 6, 7, 7), (1,)),
    "channels in the middle": Shape((3, 40, 67), (0, 2)),
}


def load(program: Program) -> Callable[[dict[str, Array]], dict[str, Array]]:
    return (opencl if program.target == "opencl" else vulkan).load(program)


CASES = [
    (shape, device, dtype, cheap)
    for number, shape in enumerate(FOLDED)
    for device in TARGETS
    for dtype, cheap in ((("f32", "f16")[number % 2], number % 3 == 0),)
]


@pytest.mark.grid(3)
@pytest.mark.parametrize(("shape", "device", "dtype", "cheap"), CASES)
def test_what_is_folded_is_what_is_stored(shape: str, device: str, dtype: str, cheap: bool) -> None:
    function = folded_result(FOLDED[shape], dtype, cheap)
    target = TARGETS[device]
    (work,) = explain(function, *target).after
    moved = {m.tensor: m for m in work.moves}
    sizes = math.prod(FOLDED[shape].sizes) * (4 if dtype == "f32" else 2)
    assert (moved["e"].read, moved["e"].written) == (0, sizes)
    assert (moved["x"].read, moved["dy"].read) == (sizes, sizes)
    inputs = make_inputs(function)
    found = load(compile(function, *target))(inputs)
    expected = evaluate(function, inputs)
    rounding = 1e-5 if dtype == "f32" else 2e-3
    for name, values in expected.items():
        size = np.abs(values.astype(np.float64)).max()
        np.testing.assert_allclose(
            found[name].astype(np.float64), values.astype(np.float64), rounding, rounding * size
        )
    # Whichever way a value was rounded, it was folded like that.
    e = found["e"].astype(np.float64)
    x = inputs["x"].astype(np.float64)
    over = FOLDED[shape].folded
    assert found["most"].tobytes() == found["e"].max(axis=over, keepdims=True).tobytes()
    near = 1e-6 * np.sqrt(FOLDED[shape].points) * np.abs(e).max()
    np.testing.assert_allclose(found["total"], e.sum(axis=over, keepdims=True), 1e-6, near)
    np.testing.assert_allclose(
        found["half"], (e * x).sum(axis=over, keepdims=True) / 2, 1e-6, 4 * near
    )


@pytest.mark.parametrize("dtype", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_gelu_reads_and_writes_its_tensors_once(target: tuple[str, str], dtype: str) -> None:
    text = (FOLDER / "gelu_mlp_backward.dml").read_text("utf-8").replace("FLOAT32", dtype)
    graph = dmlc.parse(text).graphs["gelu_mlp_backward"]
    n, f = 4099, 3077
    size = 4 if dtype == "FLOAT32" else 2
    function = graph.bind(dims={"N": n, "F": f})
    report = explain(function, *target)
    program = compile(function, *target)
    # What the pieces come to is small, and written and read once as well.
    parts = sum(t.bytes or 0 for t in program.tensors if t.role is Role.SCRATCH)
    assert 0 < parts < n * f * size / 20
    (work,) = report.after
    assert work.traffic() == ((2 * n * f + f) * size + parts, (n * f + f) * size + parts)
    assert "%dh is stored in the same loops" in work.reason
    whole, *rest = program.kernels
    assert {b.tensor for b in whole.buffers} >= {"h", "bias", "da", "dh"}
    # What folds the pieces is after that, and meets none of the large tensors.
    assert all({b.tensor for b in k.buffers} <= {"dbias", "dbias_parts", "dh_sum_parts"}
               for k in rest)  # fmt: skip
    assert not any(b.read for b in whole.buffers if b.tensor == "dh")
    # Each loop, over vectors or what is left of them, does everything once.
    counts = {name: count_lines(whole, name) for name in ("h", "da", "dh")}
    assert len(set(counts.values())) == 1
    assert counts["dh"] > 0


def count_lines(kernel: KernelSource, name: str) -> int:
    """The statements of a kernel that touch a buffer's elements."""
    _, _, body = kernel.source.rpartition(f" {kernel.entry_point}(")
    pattern = re.compile(rf"(?<![\w.]){name}(\[| \+|\);)")
    lines = [line for line in body.splitlines() if "prefetch" not in line]
    return sum(bool(pattern.search(line)) for line in lines)
