"""Variants of a case agree with it, and what they cannot do they say."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.devices import compile_for
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.group import lower_group
from dmlc.matrices import INSTRUCTIONS, Instruction
from dmlc.pipeline import Steps, make_kernels
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime.interface import AnyDevice
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from dmlc.testing import case, variants
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Call, Case, judge, run_case
from dmlc.testing.fill import fill
from dmlc.testing.permute import draw_orders, invert, permute_axes
from dmlc.testing.schedules import DrawnSchedule, fuse_plainly
from dmlc.testing.variants import (
    Variant,
    VariantRun,
    hold_to,
    list_variants,
    lower_in_parts,
    open_sizes,
    try_variants,
)
from dmlc.transform.fuse import Group, keep_apart
from tests.testing.mutate import Mutant, list_mutants

WINDOWS = {
    "DimensionCount": 2, "Strides": [1, 1], "WindowSize": [3, 3],
    "StartPadding": [1, 1], "EndPadding": [1, 1],
}  # fmt: skip


def make_call(operator: str, sizes: dict[str, tuple[int, ...]], **attributes: object) -> Call:
    found = dmlc.operator(operator)
    given = {n: dmlc.TensorDesc("FLOAT32", s) for n, s in sizes.items()}
    outputs = {
        n: dmlc.TensorDesc(t.dtype, t.sizes)
        for n, t in found.resolve(given, attributes).tensors.items()
        if n not in given and t.dtype is not None and t.sizes is not None
    }
    return Call(found, {**given, **outputs}, attributes)


def test_bounds_of_a_case_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cases take turns, as they do for mutants."""
    asked: list[object] = []

    def count(*given: object) -> dict[str, Array]:
        asked.append(given)
        return bound_errors(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(case, "bound_errors", count)
    call = make_call("directml.ACTIVATION_RELU", {"InputTensor": (3,)})
    source = np.random.default_rng(0)
    cases = [Case(call, fill(call, "random", source), f"{n}") for n in range(20)]
    for each in cases * 2:
        assert all(v.holds for v in judge(each, dict(each.reference)).values())
    assert len(asked) == len(cases)


def make_case(call: Call, seed: int = 0) -> Case:
    return Case(call, fill(call, "random", np.random.default_rng(seed)), "drawn")


CALLS = {
    "ReLU's gradient": make_call(
        "directml.ACTIVATION_RELU_GRAD",
        dict.fromkeys(("InputTensor", "InputGradientTensor"), (3, 5, 17)),
    ),
    "softmax": make_call("directml.ACTIVATION_SOFTMAX1", {"InputTensor": (5, 33)}, Axes=[1]),
    "a product": make_call(
        "directml.GEMM", {"ATensor": (19, 20), "BTensor": (20, 18), "CTensor": (19, 18)}, Beta=2.0
    ),
    "pooling": make_call("directml.MAX_POOLING", {"InputTensor": (1, 2, 9, 7)}, **WINDOWS),
    "layer normalization's gradient": make_call(
        "onednn.LayerNormBackward",
        {**dict.fromkeys(("src", "diff_dst"), (9, 12)), "mean": (9,), "variance": (9,),
         "gamma": (12,)},
    ),
}  # fmt: skip


def interpret(case: Case, steps: Steps, target: str, profile: str) -> dict[str, Array]:
    fused, kernels = make_kernels(case.call.function, target, profile, steps=steps)
    return run_kernels(fused, kernels, dict(case.inputs), misaligned=1)


STEPS = {
    "apart": Steps(fuse=keep_apart),
    "in parts": Steps(lower=lower_in_parts),
    **{f"schedule {n}": Steps(fuse_plainly, DrawnSchedule(n)) for n in range(4)},
    **{f"schedule of each {n}": Steps(keep_apart, DrawnSchedule(n)) for n in range(4)},
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", CALLS)
def test_other_kernels_give_the_same(name: str, steps: str) -> None:
    case = make_case(CALLS[name])
    for target, profile in (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu")):
        wanted = interpret(case, Steps(), target, profile)
        found = interpret(case, STEPS[steps], target, profile)
        for output, verdict in hold_to(case, wanted, found).items():
            assert verdict.holds, f"{target} {profile} {output}: {verdict}"


@pytest.mark.grid(2)
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("name", CALLS)
def test_variants_agree_on_devices(name: str, device: str) -> None:
    case, random = make_case(CALLS[name]), np.random.default_rng(1)
    runs = list(try_variants(case, device, run_case(case, device), random))
    assert [run.name for run in runs] == [v.name for v in list_variants(case, random)]
    for run in runs:
        assert run.holds, str(run)
        assert bool(run.verdicts) != bool(run.reason), run
    ran = {run.name for run in runs if not run.reason}
    assert {"every stage in a kernel of its own", "permuted axes", "strides of 0"} <= ran


def test_a_wrong_result_disagrees() -> None:
    case = make_case(CALLS["pooling"])
    results = {n: a.copy() for n, a in run_case(case, "opencl").items()}
    results["OutputTensor"][0, 1, 3, 2] += 1e-6
    tried = try_variants(case, "opencl", results, np.random.default_rng(0))
    runs = [run for run in tried if not run.holds]
    assert runs
    # A maximum rounds nothing: it must be the same bits.
    assert "at [0, 1, 3, 2] it is" in str(runs[0])
    assert "must be exact" in str(runs[0])


def test_sums_that_may_overflow_are_held_to_nothing() -> None:
    call = CALLS["a product"]
    inputs = {n: np.full(a.shape, 1e25, np.float32) for n, a in make_case(call).inputs.items()}
    inputs["ATensor"][:, ::2] *= -1.0
    case = Case(call, inputs, "large")
    zeros = {"OutputTensor": np.zeros((19, 18), np.float32)}
    either = {"OutputTensor": np.full((19, 18), np.nan, np.float32)}
    assert hold_to(case, zeros, either)["OutputTensor"].holds
    inputs["ATensor"][0] = 0.0
    verdict = hold_to(Case(call, inputs, "large"), zeros, either)["OutputTensor"]
    assert not verdict.holds
    assert verdict.misplaced == 18


def find(case: Case, name: str) -> Variant:
    return next(v for v in list_variants(case, np.random.default_rng(0)) if v.name == name)


def test_the_first_matrix_instruction_of_a_device_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Instruction, ...]] = []

    def watch(function: ir.Function, device: AnyDevice, steps: Steps, profile: None) -> Program:
        made.append(steps.instructions)
        return compile_for(function, device, steps, profile)

    monkeypatch.setattr(variants, "list_matrices", lambda _: INSTRUCTIONS[1:])
    monkeypatch.setattr(variants, "compile_for", watch)
    case = make_case(CALLS["a product"])
    assert find(case, "matrix instructions").run("vulkan").keys() == {"OutputTensor"}
    assert made == [INSTRUCTIONS[1:2]]


@pytest.mark.parametrize(
    ("name", "device", "why"),
    [
        ("another profile", "vulkan", "has no profile but 'gpu'"),
        ("another schedule", "reference", "the reference evaluates functions"),
        ("permuted axes", "opencl", "no tensor has two axes"),
        ("matrix instructions", "opencl", "opencl has no matrix instruction"),
        ("packed tensors", "opencl", "its tensors lie so already"),
        ("sizes known at run time", "opencl", "no size is more than 1"),
    ],
)
def test_what_a_case_has_no_variant_of_is_said(name: str, device: str, why: str) -> None:
    tensors = ("InputTensor", "InputGradientTensor")
    call = make_call("directml.ACTIVATION_RELU_GRAD", dict.fromkeys(tensors, (1,)))
    variant = find(make_case(call), name)
    with pytest.raises(UnsupportedError, match=why):
        variant.run(device)
    results = run_case(variant.case, device)
    runs = {
        r.name: r for r in try_variants(variant.case, device, results, np.random.default_rng(0))
    }
    assert runs[name] == VariantRun(name, {}, reason=runs[name].reason)
    assert why in str(runs[name])
    assert runs[name].holds


def test_sizes_are_left_open_one_by_one() -> None:
    function = open_sizes(CALLS["a product"])
    assert function.symbols() == ("S0", "S1", "S2")
    # The windows are of 3, which is a size as well; what is left open is none of it.
    call = make_call("directml.MAX_POOLING", {"InputTensor": (3, 2, 9, 7)}, **WINDOWS)
    assert len(open_sizes(call).symbols()) == 4


def test_sizes_left_open_are_those_of_the_call() -> None:
    """Where an output has others than those that follow, too."""
    images = {"InputTensor": (1, 1, 1, 3), "OutputTensor": (1, 1, 1, 9)}
    given = {"WindowSize": [1, 2], "Strides": [1, 2], "StartPadding": [0, 0], "EndPadding": [0, 0]}
    call = make_call("directml.MAX_POOLING", images, **given)
    function = open_sizes(call)
    assert function.stages[-1].extents[3] == 9
    assert find(make_case(call), "sizes known at run time").run("opencl")["OutputTensor"].size == 9


def test_sizes_that_none_left_open_takes_are_said() -> None:
    # The windows are longer than the padded rows: there is no output.
    call = make_call("directml.MAX_POOLING", {"InputTensor": (1, 2, 9, 3)},
                     **{**WINDOWS, "WindowSize": [3, 6]})  # fmt: skip
    with pytest.raises(UnsupportedError, match="left open, its sizes are not taken"):
        find(make_case(call), "sizes known at run time").run("opencl")
    for name in ("another schedule", "other schedules of each stage"):
        assert find(make_case(call), name).run("opencl")["OutputTensor"].size == 0


@pytest.mark.parametrize("name", CALLS)
def test_permuted_axes_change_no_value(name: str) -> None:
    case = make_case(CALLS[name])
    function = case.call.function
    for seed in range(4):
        random = Random(seed)
        orders = draw_orders(function, random)
        permuted = permute_axes(function, orders, random)
        assert permuted != function
        found = evaluate(permuted, {n: a.transpose(orders[n]) for n, a in case.inputs.items()})
        back = {n: a.transpose(invert(orders[n])) for n, a in found.items()}
        verdicts = hold_to(case, evaluate(function, dict(case.inputs)), back)
        assert all(v.holds for v in verdicts.values()), verdicts


def test_positions_of_a_reduction_keep_the_order_of_its_axes() -> None:
    call = make_call("directml.REDUCE", {"InputTensor": (3, 4, 5)}, Function="ARGMAX", Axes=[0, 2])
    case = make_case(call)
    for seed in range(4):
        random = Random(seed)
        orders = draw_orders(call.function, random)
        permuted = permute_axes(call.function, orders, random)
        found = evaluate(permuted, {n: a.transpose(orders[n]) for n, a in case.inputs.items()})
        (result,) = call.function.results
        back = found[result.name].transpose(invert(orders[result.name]))
        assert np.array_equal(back, case.reference["OutputTensor"])


def test_a_broken_kernel_is_rendered_and_run() -> None:
    case = make_case(CALLS["pooling"])
    _, (kernel,) = make_kernels(case.call.function, "opencl", "cpu")
    kind = "an accumulator forgets"
    mutant = Mutant(kind, 0, 0, kernel, list_mutants(kernel, kind)[0])
    whole = interpret(case, Steps(), "opencl", "cpu")
    found = interpret(case, mutant.steps, "opencl", "cpu")
    assert not np.array_equal(whole["OutputTensor"], found["OutputTensor"])
    assert str(mutant).startswith(f"{kind}, kernel 0:\n-")


def test_no_work_item_takes_all_of_a_large_tensor() -> None:
    # Lavapipe ends loops after 65,535 steps, and leaves outputs unwritten.
    function = ir.parse("""
        func @f(%X: f32[90, 70, 50]) -> (%Y) {
          %Y: f32[i0 < 90, i1 < 70] = sum[r0 < 50] %X[i0, i1, r0]
        }""")
    for seed in range(6):
        steps = Steps(keep_apart, DrawnSchedule(seed))
        _, (kernel,) = make_kernels(function, "hlsl", steps=steps)
        launch = kernel.launch
        assert isinstance(launch.count, int)
        assert -(-launch.count // launch.per_group) * 65_535 > 90 * 70 * 50
    text = "func @f(%X: f32[40000]) -> (%Y) { %Y: f32[i0 < 1] = sum[r0 < 40000] %X[r0] }"
    with pytest.raises(UnsupportedError, match="one work item would take 40,001 steps"):
        make_kernels(ir.parse(text), "hlsl", steps=Steps(keep_apart, DrawnSchedule(0)))


def test_kernels_stand_apart_and_in_parts() -> None:
    function = CALLS["layer normalization's gradient"].function
    _, together = make_kernels(function, "hlsl")
    fused, apart = make_kernels(function, "hlsl", steps=Steps(fuse=keep_apart))
    _, parts = make_kernels(function, "hlsl", steps=Steps(lower=lower_in_parts))
    assert len(apart) == len(fused.stages) > len(parts) == len(together)
    assert max(kernel.launch.group_size for kernel in together) > 32
    assert all(kernel.launch.group_size <= 32 for kernel in parts)


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_small_groups_go_over_long_tiles(target: str) -> None:
    """A tile of 64 by 16, of which 32 work items have no more rows than are written out."""
    text = """func @f(%x: f32[1, 55, 1, 9]) -> (%y{256, 1, 2304, 256}) {
      %y: f32[i0 < 1, i1 < 55, i2 < 1, i3 < 9] = abs(%x[i0, i1, i2, i3])
    }"""
    _, (kernel,) = make_kernels(ir.parse(text), target, steps=Steps(lower=lower_in_parts))
    assert kernel.launch.group_size == 32


def test_a_group_that_one_kernel_cannot_have_is_refused() -> None:
    text = """
        func @f(%X: f32[40]) -> (%A, %B) {
          %A: f32[i0 < 4] = sum[r0 < 40 where le(r0, i0)] %X[r0]
          %B: f32[i0 < 4] = max[r0 < 40 where le(i0, r0)] %X[r0]
        }"""
    refusals: list[str] = []

    def lower(
        function: ir.Function, group: Group, profile: Profile, limits: Limits
    ) -> tuple[k.Kernel, ...]:
        try:
            return DrawnSchedule(0)(function, group, profile, limits)
        except UnsupportedError as error:
            refusals.append(str(error))
            return lower_group(function, group, profile, limits)

    make_kernels(ir.parse(text), "opencl", "gpu", steps=Steps(fuse_plainly, lower))
    assert all("several kernels" in refusal for refusal in refusals)


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
def test_no_schedule_is_drawn_of_what_is_stored_two_to_a_word(dtype: str) -> None:
    described = dmlc.TensorDesc(dtype, (1,))
    relu = dmlc.operator("onednn.ReLU").bind({"src": described, "dst": described})
    steps = Steps(fuse_plainly, DrawnSchedule(0))
    make_kernels(relu, "hlsl", steps=steps)
    with pytest.raises(UnsupportedError, match=f"'dst' is {dtype} and is stored two elements at"):
        make_kernels(relu, "hlsl", shader_model="6.0", steps=steps)


def test_schedules_are_those_that_a_number_stands_for() -> None:
    function = CALLS["softmax"].function
    limits = find_dialect("hlsl").limits
    made = [DrawnSchedule(seed) for seed in (0, 0, 1, 2, 3, 4, 5, 6, 7, 8)]
    kernels = [make_kernels(function, "hlsl", steps=Steps(keep_apart, drawn))[1] for drawn in made]
    assert kernels[0] == kernels[1]
    assert len({drawn.done[0] for drawn in made}) > 4
    for each in kernels:
        assert all(kernel.launch.group_size <= limits.group_size for kernel in each)
    assert dataclasses.replace(made[0]) == made[1]


def test_results_that_depend_on_strides_are_not_held_to_other_memory() -> None:
    """An index outside picks what lies in memory there: 4 of the packed rows, and else a gap."""
    found = dmlc.operator("directml.GATHER")
    tensors = {"InputTensor": dmlc.TensorDesc("INT32", (3, 2)),
               "IndicesTensor": dmlc.TensorDesc("INT32", (1, 1)),
               "OutputTensor": dmlc.TensorDesc("INT32", (3, 1))}  # fmt: skip
    call = Call(found, tensors, {"Axis": 1, "IndexDimensions": 1})
    inputs = {"InputTensor": np.arange(1, 7, dtype=np.int32).reshape(3, 2),
              "IndicesTensor": np.full((1, 1), 3, np.int32)}  # fmt: skip
    case = Case(call, inputs, "drawn")
    results = run_case(case, "opencl")
    assert results["OutputTensor"].tolist() == [[4], [6], [6]]
    runs = {r.name: r for r in try_variants(case, "opencl", results, np.random.default_rng(0))}
    assert all(run.holds for run in runs.values())
    assert runs["transposed tensors"].reason == "its results depend on the strides of its tensors"
    assert runs["sizes known when compiled"].verdicts
