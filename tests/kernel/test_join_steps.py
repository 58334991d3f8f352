"""One kernel for all steps of a loop: what it computes, and where launches stay."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.kernel.rewrite import find_body, replace_body, walk_statements
from dmlc.kernel.verify import verify_kernel
from dmlc.pipeline import Steps, compile_by, compile_kernels, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import InternalError

# A product of the state, of several groups, and a state that is not made by the last kernel.
LAYER = """func @layer(%X: f32[STEPS, 3, WIDE], %R: f32[WIDE, WIDE]) -> (%h, %Y) {
  loop {
    %before: f32[STEPS, 3, WIDE] = before %h
    %p: f32[i0 < STEPS, i1 < 3, i2 < WIDE] = sum[r0 < WIDE] mul(%before[i0, i1, r0], %R[i2, r0])
    %top: f32[i0 < STEPS, i1 < 3] = max[r0 < WIDE] %p[i0, i1, r0]
    %h: f32[i0 < STEPS, i1 < 3, i2 < WIDE] = {
      v0 = sub(%p[i0, i1, i2], %top[i0, i1])
      tanh(add(%X[i0, i1, i2], v0))
    }
  }
  %Y: f32[i0 < 3] = sum[r0 < WIDE] %h[STEP, i0, r0]
}"""
TARGETS = ["opencl", "hlsl", "wgsl"]


def make(steps: int, wide: int, *, backwards: bool = False) -> tuple[ir.Function, dict[str, Array]]:
    text = LAYER.replace("STEPS", str(steps)).replace("WIDE", str(wide))
    text = text.replace("STEP", "0" if backwards else str(steps - 1))
    function = ir.parse(text.replace("loop {", "loop backwards {") if backwards else text)
    random = np.random.default_rng(steps)
    sizes = {"X": (steps, 3, wide), "R": (wide, wide)}
    return function, {n: random.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


def find_joined(function: ir.Function, target: str) -> tuple[ir.Function, list[k.Kernel]]:
    fused, kernels = make_kernels(function, target)
    return fused, [kernel for kernel in kernels if kernel.steps]


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_group_goes_through_all_steps(target: str, backwards: bool) -> None:
    function, given = make(5, 9, backwards=backwards)
    program, fused, kernels = compile_kernels(function, target)
    (joined,) = (kernel for kernel in kernels if kernel.steps)
    assert (joined.steps, joined.launch.count, program.repeats) == (5, 1, ())
    assert "all 5 steps" in joined.walk
    assert parse_kernel(print_kernel(joined)) == joined
    found, expected = run_kernels(fused, kernels, given), evaluate(function, given)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, 1e-5, 1e-5)


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_devices_compute_the_same(device: str) -> None:
    function, given = make(6, 17)
    found, expected = dmlc.run(function, given, device=device), evaluate(function, given)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, 1e-4, 1e-4)


def test_a_function_may_be_one_loop() -> None:
    text = """func @total(%x: f32[4, 3]) -> (%h) {
      loop {
        %before: f32[4, 3] = before %h
        %h: f32[i0 < 4, i1 < 3] = add(%x[i0, i1], %before[i0, i1])
      }
    }"""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = dmlc.run(ir.parse(text), {"x": x}, device="opencl")["h"]
    assert np.array_equal(found, x.cumsum(axis=0))
    (kernel,) = compile_by(Steps(joins=False), ir.parse(text)).kernels
    assert [binding.tensor for binding in kernel.buffers] == ["x", "h"]


def test_a_state_that_begins_with_zeros_has_no_memory_for_them() -> None:
    text = LAYER.replace("STEPS", "5").replace("WIDE", "9").replace("STEP", "4")
    start = "  %start: f32[i0 < 3, i1 < 9] = 0.5\n  loop {"
    begin = "v0 = select(eq(i0, 0), %start[i1, i2], sub(%p[i0, i1, i2], %top[i0, i1]))"
    text = text.replace("  loop {", start)
    function = ir.parse(text.replace("v0 = sub(%p[i0, i1, i2], %top[i0, i1])", begin))
    _, given = make(5, 9)
    program = dmlc.compile(function)
    assert "start" not in [tensor.name for tensor in program.tensors]
    found = dmlc.run(function, given, device="opencl")["h"]
    np.testing.assert_allclose(found, evaluate(function, given)["h"], 1e-4, 1e-4)


def test_values_are_stored_rather_than_computed_for_each_output() -> None:
    """A step of many launches would compute the gate again for each output of the product."""
    text = """func @gated(%X: f32[7, 40], %R: f32[40, 40]) -> (%h) {
      loop {
        %before: f32[7, 40] = before %h
        %gate: f32[i0 < 7, i1 < 40] = sigmoid(add(%X[i0, i1], tanh(%before[i0, i1])))
        %h: f32[i0 < 7, i1 < 40] = sum[r0 < 40] mul(%gate[i0, r0], %R[i1, r0])
      }
    }"""
    _, _, kernels = compile_kernels(ir.parse(text), "opencl")
    (joined,) = (kernel for kernel in kernels if kernel.steps)
    assert "gate" in [buffer.name for buffer in joined.buffers]


@pytest.mark.parametrize(
    ("weight", "copied"),
    [
        ("%R[i2, r0]", True),
        ("%R[v0, r0]", True),
        ("%R[r0, i2]", False),
        ("%X[i0, i2, r0]", False),
    ],
)
def test_rows_that_each_output_reduces_are_laid_side_by_side_once(
    weight: str, copied: bool
) -> None:
    text = """func @layer(%X: f32[STEPS, 9, 9], %R: f32[11, 11]) -> (%h) {
      loop {
        %before: f32[STEPS, 3, 9] = before %h
        %h: f32[i0 < STEPS, i1 < 3, i2 < 9] = sum[r0 < 9] {
          v0 = add(i2, 2)
          mul(add(0.1, %before[i0, i1, r0]), WEIGHT)
        }
      }
    }""".replace("WEIGHT", weight).replace("v0 = add(i2, 2)" * ("v0" not in weight), "")
    function = ir.parse(text.replace("STEPS", "8"))
    random = np.random.default_rng(1)
    sizes = {"X": (8, 9, 9), "R": (11, 11)}
    given = {n: random.standard_normal(s).astype(np.float32) / 4 for n, s in sizes.items()}
    made = [tensor.name.endswith("_across") for tensor in dmlc.compile(function).tensors]
    assert any(made) is copied
    found = dmlc.run(function, given, device="opencl")["h"]
    np.testing.assert_allclose(found, evaluate(function, given)["h"], 1e-4, 1e-4)
    few = dmlc.compile(ir.parse(text.replace("STEPS", "7")))
    assert not any(tensor.name.endswith("_across") for tensor in few.tensors)


def without_barrier(kernel: k.Kernel, number: int) -> k.Kernel:
    """The kernel without one of the barriers after which stores are seen."""
    seen = iter(range(1 << 30))

    def drop(statements: tuple[k.Statement, ...]) -> tuple[k.Statement, ...]:
        made: list[k.Statement] = []
        for each in statements:
            if each == k.Barrier(memory=True) and next(seen) == number:
                continue
            made.append(replace_body(each, drop(find_body(each))) if find_body(each) else each)
        return tuple(made)

    return dataclasses.replace(kernel, body=drop(kernel.body))


def test_each_barrier_is_needed() -> None:
    function, given = make(5, 9)
    fused, (joined,) = find_joined(function, "hlsl")
    kernels = make_kernels(function, "hlsl")[1]
    barriers = [s for s in walk_statements(joined.body) if s == k.Barrier(memory=True)]
    assert len(barriers) == 2
    for number in range(len(barriers)):
        broken = without_barrier(joined, number)
        with pytest.raises(KernelFault, match=r"another item (reads or )?writes it"):
            run_kernels(fused, [broken if kernel.steps else kernel for kernel in kernels], given)


def test_one_group_alone_sees_what_it_has_stored() -> None:
    function, _ = make(5, 9)
    _, (joined,) = find_joined(function, "hlsl")
    several = dataclasses.replace(joined, launch=dataclasses.replace(joined.launch, count=2))
    with pytest.raises(InternalError, match="only the items of one group see"):
        verify_kernel(several, "test")


@pytest.mark.parametrize(("target", "wide"), [("opencl", 700), ("hlsl", 140)])
def test_steps_of_much_work_are_launched(target: str, wide: int) -> None:
    function, _ = make(3, wide)
    _, joined = find_joined(function, target)
    assert joined == []
    (repeat,) = dmlc.compile(function, target).repeats
    assert repeat.steps == 3


def test_languages_wait_for_memory_in_their_words() -> None:
    function, _ = make(5, 9)
    words = {
        "hlsl": "AllMemoryBarrierWithGroupSync();",
        "wgsl": "workgroupBarrier();\n        storageBarrier();",
    }
    for target, text in words.items():
        sources = [kernel.source for kernel in dmlc.compile(function, target).kernels]
        assert any(text in source for source in sources)
    gpu = dmlc.compile(function, "opencl", "gpu")
    assert any("CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE" in k.source for k in gpu.kernels)
