"""What a run does, and each limit that a run or a program may exceed. No driver is asked."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.program import Program, Role, ScalarBinding, TensorSpec
from dmlc.runtime.constants import fill_constants
from dmlc.runtime.copied import window_elements
from dmlc.runtime.hlsl import CompiledKernel, compile_kernel
from dmlc.runtime.vulkan.device import DeviceType, Limits, VulkanDevice
from dmlc.runtime.vulkan.plan import (
    INDEX_LIMIT,
    Launch,
    check_kernels,
    make_plan,
)
from dmlc.source import UnsupportedError
from tests.runtime.handmade_hlsl import F16, F32, add_one, relu_grad, square_then_double

LIMITS = Limits(
    groups=(65535, 65535, 65535),
    group_size=(1024, 1024, 64),
    group_threads=1024,
    group_shared=32768,
    storage_range=1 << 27,
    stage_storage_buffers=8,
    set_storage_buffers=24,
    uniform_range=16384,
    allocation=1 << 31,
    storage_alignment=16,
    uniform_alignment=64,
)
DEVICE = VulkanDevice(
    index=0,
    name="Radiant 9000",
    type=DeviceType.DISCRETE_GPU,
    driver="radiant 1.0",
    limits=LIMITS,
    capabilities=frozenset({"Shader", "Int64"}),
    memory_bytes=1 << 34,
    import_alignment=None,
    timestamp_period=1.0,
    queue_family=0,
)


def device(**limits: object) -> VulkanDevice:
    changed = dataclasses.replace(LIMITS, **limits)  # pyright: ignore
    return dataclasses.replace(DEVICE, limits=changed)


def compiled(program: Program, **facts: object) -> list[CompiledKernel]:
    made = [compile_kernel(k, floats=DEVICE.floats) for k in program.kernels]
    return [
        dataclasses.replace(m, facts=dataclasses.replace(m.facts, **facts))  # pyright: ignore
        for m in made
    ]


def refusal(program: Program, made: list[CompiledKernel], on: VulkanDevice = DEVICE) -> str:
    with pytest.raises(UnsupportedError) as caught:
        check_kernels(program, made, on)
    return str(caught.value)


def test_a_program_within_every_limit_passes() -> None:
    for program in (relu_grad(), square_then_double()):
        check_kernels(program, compiled(program), DEVICE)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"group_size": (2048, 1, 1)},
            "has 2,048 threads along x, and Radiant 9000 allows 1,024 (maxComputeWorkGroupSize)",
        ),
        (
            {"group_size": (1, 1, 65)},
            "has 65 threads along z, and Radiant 9000 allows 64 (maxComputeWorkGroupSize)",
        ),
        (
            {"group_size": (64, 17, 1)},
            "has 1,088 threads per group, and Radiant 9000 allows 1,024 "
            "(maxComputeWorkGroupInvocations)",
        ),
        (
            {"group_shared_bytes": 33792},
            "has 33,792 bytes of group-shared memory, and Radiant 9000 allows 32,768 "
            "(maxComputeSharedMemorySize)",
        ),
        (
            {"capabilities": ("Shader", "Float64", "Float16")},
            "the kernel relu_grad needs Float64, Float16, which Radiant 9000 does not have",
        ),
    ],
)
def test_each_limit_of_a_kernel(facts: dict[str, object], message: str) -> None:
    program = relu_grad()
    assert message in refusal(program, compiled(program, **facts))


def test_the_limits_of_buffers_and_constants() -> None:
    program = square_then_double()
    made = compiled(program)
    assert (
        "the kernel finish has 4 buffers, and Radiant 9000 allows 3 "
        "(maxPerStageDescriptorStorageBuffers)"
    ) in refusal(program, made, device(stage_storage_buffers=3))
    assert "allows 3 (maxDescriptorSetStorageBuffers)" in refusal(
        program, made, device(set_storage_buffers=3)
    )
    assert (
        "the kernel square has 16 bytes of constants, and Radiant 9000 allows 8 "
        "(maxUniformBufferRange)"
    ) in refusal(program, made, device(uniform_range=8))


def plan_refusal(program: Program, on: VulkanDevice, **sizes: int) -> str:
    with pytest.raises(UnsupportedError) as caught:
        make_plan(program, sizes, on)
    return str(caught.value)


def test_each_limit_of_a_run() -> None:
    within = relu_grad(elementwise=False)
    make_plan(within, {"n": 1 << 25}, DEVICE)
    assert (
        "the tensor X takes 134,217,732 bytes, and Radiant 9000 allows 134,217,728 "
        "(maxStorageBufferRange)"
    ) in plan_refusal(within, DEVICE, n=(1 << 25) + 1)
    assert (
        "the tensor X takes 4,004 bytes, and Radiant 9000 allows 4,000 (maxMemoryAllocationSize)"
    ) in plan_refusal(relu_grad(), device(allocation=4000), n=1001)
    assert (
        "the tensor X has 4,294,967,297 elements, and Radiant 9000 allows 4,294,967,296 "
        "(the width of an element index)"
    ) in plan_refusal(
        relu_grad(F16, elementwise=False),
        device(storage_range=1 << 40, allocation=1 << 40),
        n=(1 << 32) + 1,
    )
    one_row = relu_grad(row=None)
    make_plan(one_row, {"n": 64 * 65535}, DEVICE)
    assert (
        "the kernel relu_grad needs 65,536 groups along x, and Radiant 9000 allows 65,535 "
        "(maxComputeWorkGroupCount)"
    ) in plan_refusal(one_row, DEVICE, n=64 * 65535 + 1)
    assert "needs 40 groups along y, and Radiant 9000 allows 30" in plan_refusal(
        relu_grad(elementwise=False),
        device(groups=(65535, 30, 30), storage_range=1 << 30),
        n=64 * 65535 * 40,
    )


def test_a_constant_that_does_not_fit_is_refused() -> None:
    program = relu_grad(F16, elementwise=False)
    with pytest.raises(UnsupportedError, match="n is 4,294,967,296, and the kernel relu_grad"):
        fill_constants(program.kernels[0], {"n": 1 << 32})


def test_constants() -> None:
    kernel = square_then_double().kernels[1]
    expected = (2).to_bytes(8, "little") + (777).to_bytes(4, "little") + b"\0" * 4
    assert fill_constants(kernel, {"n": 777}) == expected
    high = dataclasses.replace(kernel, scalars=(ScalarBinding("n", 5, 32, 0, 20),))
    assert fill_constants(high, {}) == b"\0" * 20 + b"\5" + b"\0" * 11


def test_a_barrier_stands_only_where_a_launch_needs_one() -> None:
    plan = make_plan(square_then_double(), {"n": 100}, DEVICE)
    assert plan.bytes_of == {"A": 400, "S": 400, "B": 400, "C": 400}
    assert [launch.waits for launch in plan.launches] == [False, True]
    square, finish = square_then_double().kernels
    thrice = dataclasses.replace(square_then_double(), kernels=(square, finish, square, finish))
    # The third stores what the second read, the fourth reads what the third stored.
    waits = [launch.waits for launch in make_plan(thrice, {"n": 100}, DEVICE).launches]
    assert waits == [False, True, True, True]
    relu = relu_grad().kernels[0]
    apart = dataclasses.replace(
        relu, buffers=(*relu.buffers[:2], dataclasses.replace(relu.buffers[2], tensor="other"))
    )
    tensors = (*relu_grad().tensors, TensorSpec("other", Role.OUTPUT, F32, ("n",)))
    twice = dataclasses.replace(relu_grad(), kernels=(relu, apart, relu), tensors=tensors)
    # The second reads what the first read; the third stores what the first stored.
    waits = [launch.waits for launch in make_plan(twice, {"n": 100}, DEVICE).launches]
    assert waits == [False, False, True]


def test_nothing_is_launched_for_no_elements() -> None:
    assert make_plan(relu_grad(), {"n": 0}, DEVICE).launches == ()
    assert make_plan(relu_grad(elementwise=False), {"n": 0}, DEVICE).launches == ()
    assert make_plan(add_one((3, 0), None, "i"), {}, DEVICE).launches == ()


def test_an_element_wise_program_runs_window_by_window() -> None:
    count = (1 << 26) + 3
    plan = make_plan(relu_grad(), {"n": count}, DEVICE)
    assert [launch.window for launch in plan.launches] == [
        (0, 1 << 25),
        (1 << 25, 1 << 25),
        (1 << 26, 3),
    ]
    assert [launch.groups for launch in plan.launches] == [
        (65535, 9, 1),
        (65535, 9, 1),
        (1, 1, 1),
    ]
    assert plan.launches[2] == Launch(0, (1, 1, 1), b"\3" + b"\0" * 15, (1 << 26, 3), False)
    assert plan.bytes_of["X"] == 4 * count
    (whole,) = make_plan(relu_grad(), {"n": 1 << 25}, DEVICE).launches
    assert whole.window is None


def test_windows_are_bounded_by_the_program_and_begin_where_bindings_may() -> None:
    assert window_elements(relu_grad(F16), 1 << 27, INDEX_LIMIT) == 1 << 26
    assert window_elements(relu_grad(), 1 << 20, INDEX_LIMIT) == 1 << 18
    assert window_elements(relu_grad(), (1 << 20) - 4, INDEX_LIMIT) == 3 << 16
    few = dataclasses.replace(relu_grad(), max_count=1000)
    assert window_elements(few, 1 << 27, INDEX_LIMIT) == 1000


def test_a_strided_tensor_takes_the_memory_that_it_spans() -> None:
    program = add_one((3, 4), (1, 3), "i", (8, 2), "i")
    assert make_plan(program, {}, DEVICE).bytes_of == {"A": 48, "B": 4 * (2 * 8 + 3 * 2 + 1)}
