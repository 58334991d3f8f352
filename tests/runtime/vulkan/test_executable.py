"""Programs on a Vulkan device, under the validation layer (see `conftest`)."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dmlc.program import Program
from dmlc.runtime import vulkan
from dmlc.runtime.arrays import Array
from dmlc.runtime.spirv import read_module
from dmlc.runtime.vulkan import Options, pipeline
from dmlc.runtime.vulkan import executable as vulkan_executable
from dmlc.runtime.vulkan.api import VulkanError
from dmlc.runtime.vulkan.context import Context, open_context
from dmlc.runtime.vulkan.device import FloatControls
from dmlc.runtime.vulkan.pipeline import build_pipeline
from dmlc.runtime.vulkan.plan import Plan, check_kernels, make_plan
from dmlc.scalars import DataType
from dmlc.source import DmlcError, InternalError, UnsupportedError
from tests.runtime import handmade
from tests.runtime.handmade_hlsl import (
    BF16,
    F16,
    F32,
    add_one,
    count_up,
    relu_grad,
    square_then_double,
    sum_of,
)

WAYS = {
    "lent and copied": Options(),
    "copied by the host": Options(lend=False),
    "staged, as on a device with memory of its own": Options(staged=True),
    "timed": Options(timed=True),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
def options(request: pytest.FixtureRequest) -> Options:
    made: Options = request.param
    return made


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def masked(x: Array, dy: Array) -> Array:
    return np.where(x > 0, dy, dy.dtype.type(0))


@pytest.mark.parametrize("special", [(), (16, 64), (32,)])
def test_a_device_is_asked_for_what_it_lists(
    special: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that lists nothing is asked for nothing, and runs kernels all the same."""
    context = open_context()
    listed = dataclasses.replace(
        context.device,
        float_controls=FloatControls(special),
        capabilities=context.device.capabilities
        - (frozenset() if special else {"SignedZeroInfNanPreserve"}),
    )
    monkeypatch.setattr(context, "device", listed)
    built: list[bytes] = []

    def build(context: Context, stack: Any, spirv: bytes, *others: Any, subgroup: int) -> Any:
        built.append(spirv)
        return build_pipeline(context, stack, spirv, *others, subgroup=subgroup)

    monkeypatch.setattr(pipeline, "build_pipeline", build)
    # A name of its own, so that no pipeline that was made before is taken.
    (kernel,) = relu_grad().kernels
    renamed = dataclasses.replace(kernel, name=f"relu_grad_{'_'.join(map(str, special))}")
    program = dataclasses.replace(relu_grad(), kernels=(renamed,))
    x, dy = random(100), random(100, seed=1)
    out = vulkan.load(program)({"X": x, "dY": dy})
    assert np.array_equal(out["dX"], masked(x, dy))
    (spirv,) = built
    modes = read_module(spirv).float_modes
    assert modes == ((("SignedZeroInfNanPreserve", 32),) if 32 in special else ())


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 1 << 20, (1 << 20) + 1])
def test_relu_grad_of_any_count(count: int, options: Options) -> None:
    executable = vulkan.load(relu_grad(), "vulkan", options)
    x, dy = random(count), random(count, seed=1)
    for _ in range(2):
        out = executable({"X": x, "dY": dy})
        assert np.array_equal(out["dX"], masked(x, dy))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_16_bit_pattern(dtype: DataType, options: Options) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    x = patterns.view(dtype.dtype)
    dy = np.roll(patterns, 12345).view(dtype.dtype)
    for end in (1 << 16, (1 << 16) - 1):
        out = vulkan.load(relu_grad(dtype), None, options)({"X": x[:end], "dY": dy[:end]})
        expected = np.where(x[:end].astype(np.float32) > 0, dy[:end], dtype.dtype.type(0))
        assert out["dX"].dtype == dtype.dtype
        assert np.array_equal(out["dX"].view(np.uint16), expected.view(np.uint16))


def test_a_shape_of_any_rank_and_the_array_given_is_the_result() -> None:
    executable = vulkan.load(relu_grad())
    x, dy = random(2, 3, 4, 5), random(2, 3, 4, 5, seed=1)
    given = np.empty_like(x)
    out = executable({"X": x, "dY": dy}, {"dX": given})
    assert out["dX"] is given
    assert np.array_equal(given, masked(x, dy))


ARRANGEMENTS = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "every second": lambda a: a[::2, 1::2],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "not aligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype),
}


@pytest.mark.parametrize("name", ARRANGEMENTS)
@pytest.mark.parametrize("size", [40, 800])
def test_inputs_of_any_strides(name: str, size: int, options: Options) -> None:
    x = ARRANGEMENTS[name](random(size, size))
    dy = random(*x.shape, seed=1)
    executable = vulkan.load(relu_grad(), None, options)
    out = executable({"X": x, "dY": dy})
    assert np.array_equal(out["dX"], masked(x, dy))
    (copy,) = executable.last_report.copies
    assert copy.tensor == "X"


@pytest.mark.parametrize("size", [40, 800])
def test_outputs_of_any_strides(size: int, options: Options) -> None:
    whole = np.full((size, 2 * size), 7, np.float32)
    x, dy = random(size, size), random(size, size, seed=1)
    executable = vulkan.load(relu_grad(), None, options)
    executable({"X": x, "dY": dy}, {"dX": whole[:, ::2]})
    assert np.array_equal(whole[:, ::2], masked(x, dy))
    assert np.all(whole[:, 1::2] == 7)


@pytest.mark.parametrize("size", [40, 800])
def test_an_output_over_an_input(size: int, options: Options) -> None:
    x, dy = random(size, size), random(size, size, seed=1)
    expected = masked(x, dy)
    vulkan.load(relu_grad(), None, options)({"X": x, "dY": dy}, {"dX": dy})
    assert np.array_equal(dy, expected)


def test_read_only_memory() -> None:
    x, dy = random(1 << 20), random(1 << 20, seed=1)
    x.flags.writeable = False
    frozen = np.frombuffer(dy.tobytes(), np.float32)
    out = vulkan.load(relu_grad())({"X": x, "dY": frozen})
    assert np.array_equal(out["dX"], masked(x, dy))


def test_memory_that_a_binding_cannot_begin_at() -> None:
    x, dy = random((1 << 20) + 1)[1:], random(1 << 20, seed=1)
    call = vulkan.load(relu_grad()).bind({"X": x, "dY": dy})
    assert np.array_equal(call()["dX"], masked(x, dy))
    x[:] = dy
    assert np.array_equal(call()["dX"], masked(dy, dy))


@pytest.mark.parametrize("refusal", ["the address", "the allocation"])
def test_memory_that_the_driver_will_not_work_in(
    refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = open_context()
    make = context.make

    def make_nothing_of_the_hosts(function: str, kind: str, asked: Any) -> Any:
        if function == "vkAllocateMemory" and asked.pNext != context.api.null:
            raise VulkanError(function, "VK_ERROR_INVALID_EXTERNAL_HANDLE")
        return make(function, kind, asked)

    if refusal == "the address":
        monkeypatch.setattr(context, "import_properties", lambda *arguments: -1)
    else:
        monkeypatch.setattr(context, "make", make_nothing_of_the_hosts)
    x, dy = random(1 << 20), random(1 << 20, seed=1)
    executable = vulkan.load(relu_grad())
    assert np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy))
    assert np.array_equal(executable.bind({"X": x, "dY": dy})()["dX"], masked(x, dy))


def test_one_array_for_two_inputs(options: Options) -> None:
    x = random(1 << 18)
    call = vulkan.load(relu_grad(), None, options).bind({"X": x, "dY": x})
    assert np.array_equal(call()["dX"], masked(x, x))


def test_strides_that_the_program_was_compiled_for(options: Options) -> None:
    columns = add_one((3, 4), (1, 3), "i % 4 * 3 + i / 4", (8, 2), "i / 4 * 8 + i % 4 * 2")
    a = random(3, 4)
    out = vulkan.load(columns, None, options)({"A": a})
    assert np.array_equal(out["B"], a + 1)
    assert out["B"].strides == (32, 8)


def test_empty_tensors_launch_nothing() -> None:
    executable = vulkan.load(relu_grad())
    empty = np.empty((0, 3), np.float32)
    assert executable({"X": empty, "dY": empty})["dX"].shape == (0, 3)
    assert executable.bind({"X": empty, "dY": empty})()["dX"].shape == (0, 3)


def test_two_kernels_and_scratch_memory(options: Options) -> None:
    a = random(100_000)
    out = vulkan.load(square_then_double(), None, options)({"A": a})
    assert np.array_equal(out["B"], 2 * (a * a)[::-1])
    assert np.array_equal(out["C"], a * a + a)


def test_an_output_and_no_input() -> None:
    out = vulkan.load(count_up())({}, {"A": (10, 20)})
    assert np.array_equal(out["A"].ravel(), np.arange(200, dtype=np.uint32))
    with pytest.raises(DmlcError, match="compiled for at most 1000 elements"):
        vulkan.load(count_up())({}, {"A": (1001,)})


def test_more_read_only_buffers_than_the_usual_bindings_hold() -> None:
    arrays = {f"X{k}": random(100, seed=k) for k in range(20)}
    total = np.zeros(100, np.float32)
    for array in arrays.values():
        total = total + array
    assert np.array_equal(vulkan.load(sum_of(20))(arrays)["Y"], total)


def test_more_groups_than_one_dimension_holds() -> None:
    count = 65535 * 64 + 1000
    x, dy = random(count), random(count, seed=1)
    assert np.array_equal(vulkan.load(relu_grad())({"X": x, "dY": dy})["dX"], masked(x, dy))


@pytest.mark.parametrize("staged", [False, True])
def test_tensors_larger_than_a_binding_run_window_by_window(
    staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dataclasses.replace(open_context().device.limits, storage_range=1 << 20)
    device = dataclasses.replace(open_context().device, limits=limits)
    monkeypatch.setattr(open_context(), "device", device)
    count = (1 << 19) + 3
    x, dy = random(count), random(count, seed=1)
    executable = vulkan.load(relu_grad(), None, Options(staged=staged))
    assert len(make_plan(executable.program, {"n": count}, device).launches) == 3
    assert np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy))


def test_bound_arrays_are_read_and_stored_at_each_call(options: Options) -> None:
    for size in (100, 1 << 17):
        x, dy = random(size), random(size, seed=1)
        given = np.zeros_like(x)
        call = vulkan.load(relu_grad(), None, options).bind({"X": x, "dY": dy}, {"dX": given})
        assert not given.any()
        for seed in range(3):
            x[:] = random(size, seed=seed)
            assert call()["dX"] is given
            assert np.array_equal(given, masked(x, dy))
        assert call.report.device == str(vulkan.find_device())


def test_a_bound_call_does_little_besides_the_drivers_work() -> None:
    x, given = random(16), np.zeros(16, np.float32)
    call = vulkan.load(relu_grad()).bind({"X": x, "dY": x}, {"dX": given})
    call()
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    assert "submit" in entered
    assert len(entered) <= 12, entered


def test_bound_arrays_that_are_copied_are_read_at_each_call() -> None:
    whole, given = random(50, 60), np.zeros((60, 50), np.float32)
    call = vulkan.load(relu_grad()).bind({"X": whole.T, "dY": whole.T}, {"dX": given[:, ::-1]})
    whole[:] = random(50, 60, seed=3)
    call()
    assert np.array_equal(given[:, ::-1], masked(whole.T, whole.T))
    assert [c.tensor for c in call.report.copies] == ["X", "dY", "dX"]


def test_a_clock_times_the_kernels() -> None:
    x = random(1 << 20)
    executable = vulkan.load(relu_grad(), None, Options(timed=True))
    executable({"X": x, "dY": x})
    assert executable.last_report.seconds is not None
    assert 1e-6 < executable.last_report.seconds < 60
    call = executable.bind({"X": x, "dY": x})
    assert call.report.seconds is None
    call()
    assert call.report.seconds is not None
    assert vulkan.load(relu_grad()).last_report.seconds is None


def test_kernels_are_timed_turn_after_turn(options: Options) -> None:
    x = random(1 << 16)
    call = vulkan.load(relu_grad(), None, options).bind({"X": x, "dY": x})
    seconds = [call.time_kernels(turns) for turns in (1, 1, 10)]
    assert all(1e-7 < each < 10 for each in seconds)
    # They are timed on copies of their own: the results stay those of a call.
    assert np.array_equal(call()["dX"], masked(x, x))
    nothing = vulkan.load(relu_grad(), None, options).bind({"X": x[:0], "dY": x[:0]})
    assert nothing.time_kernels(3) == 0


def test_threads_share_an_executable() -> None:
    executable = vulkan.load(relu_grad())
    failures: list[str] = []

    def work(seed: int) -> None:
        for k in range(10):
            count = 100 * (seed + 1) + k if seed % 2 else 1 << 20
            x, dy = random(count, seed=seed), random(count, seed=seed + 100)
            if not np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy)):
                failures.append(f"thread {seed}, run {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_share_a_call() -> None:
    x, dy = random(5000), random(5000, seed=1)
    call = vulkan.load(relu_grad(), None, Options(lend=False)).bind({"X": x, "dY": dy})
    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(call()["dX"], masked(x, dy))


def test_a_child_process_makes_its_own_context() -> None:
    executable = vulkan.load(relu_grad())
    x, dy = random(1000), random(1000, seed=1)
    call = executable.bind({"X": x, "dY": dy})
    call()
    executable({"X": x, "dY": dy})
    child = os.fork()
    if child == 0:
        right = np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy))
        dy += 1
        right = right and np.array_equal(call()["dX"], masked(x, dy))
        del executable, call
        gc.collect()
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert np.array_equal(call()["dX"], masked(x, dy))


def test_an_executable_keeps_few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(vulkan_executable.Recording):
        def __init__(self, *arguments: object, **options: object) -> None:
            made.append(1)
            super().__init__(*arguments, **options)  # pyright: ignore

    monkeypatch.setattr(vulkan_executable, "Recording", Counted)
    executable = vulkan.load(relu_grad())
    for _ in range(3):
        for count in range(1, 9):
            executable({"X": random(count), "dY": random(count)})
    assert len(made) == 8
    for count in (9, 1):
        executable({"X": random(count), "dY": random(count)})
    assert len(made) == 10


@pytest.fixture
def interrupted() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_run_that_is_interrupted_leaves_the_device_in_order(interrupted: None) -> None:
    executable = vulkan.load(relu_grad())
    x = random(1 << 24)
    call = executable.bind({"X": x, "dY": x})
    call()

    def run_for_long() -> None:
        for _ in range(1000):
            call()

    signal.setitimer(signal.ITIMER_REAL, 0.02)
    with pytest.raises(KeyboardInterrupt):
        run_for_long()
    assert np.array_equal(call()["dX"], masked(x, x))


def test_a_missing_barrier_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof that the validation layer watches: without it every test here means less."""

    def plan_without_barriers(*arguments: object) -> Plan:
        plan = make_plan(*arguments)  # pyright: ignore
        launches = tuple(dataclasses.replace(launch, waits=False) for launch in plan.launches)
        return dataclasses.replace(plan, launches=launches)

    executable = vulkan.load(square_then_double())
    monkeypatch.setattr(vulkan_executable, "make_plan", plan_without_barriers)
    with pytest.raises(
        InternalError, match=r"(?s)prepares a run of square_then_double.*(?i:hazard)"
    ):
        executable({"A": random(100)})


def test_a_program_for_another_target_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        vulkan.load(handmade.relu_grad())
    assert "relu_grad was compiled for opencl" in str(caught.value)
    assert "compile it with target='hlsl'" in str(caught.value)


def too_large() -> Program:
    count = (1 << 25) + 3
    return add_one((count,), None, "i")


def test_a_tensor_over_the_range_of_a_binding_is_refused() -> None:
    a = np.broadcast_to(np.float32(1), ((1 << 25) + 3,))
    with pytest.raises(UnsupportedError) as caught:
        vulkan.load(too_large())({"A": a})
    assert "the tensor A takes 134,217,740 bytes" in str(caught.value)
    assert "134,217,728 (maxStorageBufferRange)" in str(caught.value)


def test_too_many_groups_are_refused() -> None:
    program = add_one((65536 * 64,), None, "i", row=None)
    with pytest.raises(UnsupportedError) as caught:
        vulkan.load(program)({"A": random(65536 * 64)})
    assert "the kernel add_one needs 65,536 groups along x" in str(caught.value)
    assert "65,535 (maxComputeWorkGroupCount)" in str(caught.value)


def test_too_many_buffers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a device that permits as many as Mesa 22 does; newer versions permit a million."""

    def check_few(program: Program, compiled: Any, device: vulkan.VulkanDevice) -> None:
        limits = dataclasses.replace(device.limits, stage_storage_buffers=32)
        check_kernels(program, compiled, dataclasses.replace(device, limits=limits))

    monkeypatch.setattr(vulkan_executable, "check_kernels", check_few)
    with pytest.raises(UnsupportedError) as caught:
        vulkan.load(sum_of(32))
    assert "the kernel sum_of has 33 buffers" in str(caught.value)
    assert "32 (maxPerStageDescriptorStorageBuffers)" in str(caught.value)


def test_the_devices_are_described() -> None:
    device = vulkan.devices()[0]
    assert device.limits.groups[0] >= 65535
    assert device.limits.group_threads >= 128
    assert vulkan.find_device(f"vulkan:{device.index}") == device
    assert vulkan.load_on(relu_grad(), device).device == device
    assert ml_dtypes.bfloat16 is BF16.dtype.type
    assert F32.dtype == np.float32
