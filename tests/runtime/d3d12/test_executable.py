"""Programs on Direct3D 12 devices, over a stand-in for the package that reaches them.

The shaders are compiled by the real compiler and run on the Vulkan device, register by register,
with the very bytes that the host put there.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.hlsl import HLSL_6_0, HLSL_6_2
from dmlc.codegen.hlsl_host import HLSL
from dmlc.codegen.opencl_host import OPENCL_C
from dmlc.devices import compile_for, list_dialects
from dmlc.pipeline import compile
from dmlc.program import BufferBinding, KernelSource, Program, Role, ScalarBinding, TensorSpec
from dmlc.reference import evaluate
from dmlc.runtime import copied, d3d12, vulkan
from dmlc.runtime.arrays import Array
from dmlc.runtime.copied import list_launches
from dmlc.runtime.d3d12 import device as d3d12_device
from dmlc.runtime.d3d12 import plan as d3d12_plan
from dmlc.runtime.d3d12.device import D3D12Device, DeviceType
from dmlc.runtime.d3d12.package import Abilities
from dmlc.runtime.d3d12.plan import build_shader, check_program, plan_windows
from dmlc.runtime.dxbc import find_checksum
from dmlc.runtime.floats import LEAST
from dmlc.runtime.interface import ForeignError
from dmlc.scalars import DataType
from dmlc.source import DmlcError, InternalError, UnavailableError, UnsupportedError
from tests.foreign import FrozenTensor, Tensor
from tests.goldens import find_wrong, make_inputs, read_case
from tests.runtime.d3d12 import fake_compushady
from tests.runtime.d3d12.fake_compushady import (
    HEAP_DEFAULT,
    HEAP_READBACK,
    HEAP_UPLOAD,
    Bound,
    Kernel,
    Machine,
    Resource,
)
from tests.runtime.handmade_hlsl import (
    BF16,
    F16,
    F32,
    add_one,
    count_up,
    make_kernel,
    relu_grad,
    square_then_double,
    sum_of,
)
from tests.runtime.vulkan.test_golden import COMPILED


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(d3d12_device, "PLATFORM", "win32")
    monkeypatch.setattr(d3d12_device, "_contexts", {})
    return fake_compushady.install(monkeypatch)


def on_vulkan(kernel: KernelSource) -> Kernel:
    """What a kernel does to the bytes in its registers, by running it."""
    read = sorted((b for b in kernel.buffers if not b.written), key=lambda b: b.slot)
    written = sorted((b for b in kernel.buffers if b.written), key=lambda b: b.slot)

    def run(bound: Bound) -> None:
        arrays = {
            b.name: m.view(b.dtype.dtype)
            for b, m in zip((*read, *written), (*bound.srv, *bound.uav), strict=True)
        }
        scalars: list[ScalarBinding] = []
        for scalar in kernel.scalars:
            kind = "<Q" if scalar.bits == 64 else "<I"
            value = struct.unpack_from(kind, bound.cbv[0].tobytes(), scalar.offset)[0]
            scalars.append(dataclasses.replace(scalar, value=value))
        x, y, _ = bound.groups
        dispatch = dataclasses.replace(kernel.dispatch, count=x * y * kernel.dispatch.per_group)
        assert dispatch.groups({}) == bound.groups
        tensors = tuple(
            TensorSpec(
                b.name, Role.OUTPUT if b.written else Role.INPUT, b.dtype, arrays[b.name].shape
            )
            for b in (*read, *written)
        )
        alone = dataclasses.replace(
            kernel,
            buffers=tuple(dataclasses.replace(b, tensor=b.name) for b in kernel.buffers),
            scalars=tuple(scalars),
            dispatch=dispatch,
            after=(),
        )
        program = Program("alone", HLSL, "gpu", tensors, (alone,), 2**31 - 1)
        vulkan.load(program)(
            {b.name: arrays[b.name] for b in read}, {b.name: arrays[b.name] for b in written}
        )

    return run


def load(machine: Machine, program: Program, selector: str | None = None) -> d3d12.Executable:
    for kernel in program.kernels:
        machine.shaders[build_shader(kernel).dxil] = on_vulkan(kernel)
    return d3d12.load(program, selector)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def masked(x: Array, dy: Array) -> Array:
    return np.where(x > 0, dy, dy.dtype.type(0))


def heaps(resources: list[Resource]) -> list[tuple[int, int, int]]:
    return [(r.heap_type, r.size, r.stride) for r in resources]


# Devices


def test_devices_are_described_and_marked_as_untested(machine: Machine) -> None:
    found = d3d12.devices()
    assert [d.type for d in found] == [
        DeviceType.INTEGRATED_GPU, DeviceType.DISCRETE_GPU, DeviceType.CPU,
    ]  # fmt: skip
    assert [d.index for d in found] == [0, 1, 2]
    assert [d.promised_bytes >> 20 for d in found] == [128, 2048, 128]
    assert str(found[1]) == "Discrete 2 (discrete GPU, Direct3D 12, untested on hardware)"
    assert found[1].memory_bytes == 8 << 30


@pytest.mark.parametrize(
    ("selector", "index"),
    [(None, 1), ("d3d12", 1), ("d3d12:0", 0), ("d3d12:basic render", 2), ("integrated", 0)],
)
def test_a_selector_means_a_device(machine: Machine, selector: str | None, index: int) -> None:
    assert d3d12.find_device(selector).index == index


def test_selectors_that_mean_nothing(machine: Machine) -> None:
    with pytest.raises(UnavailableError, match="no Direct3D 12 device matches 'radeon'"):
        d3d12.find_device("d3d12:radeon")
    with pytest.raises(DmlcError, match="names nothing after the colon"):
        d3d12.find_device("d3d12:")


def test_a_machine_without_any_device(machine: Machine) -> None:
    machine.adapters.clear()
    with pytest.raises(UnavailableError, match="no Direct3D 12 device was found"):
        d3d12.find_device()


def test_other_systems_have_no_direct3d(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d3d12_device, "PLATFORM", "darwin")
    with pytest.raises(ForeignError, match="Direct3D 12 is a part of Windows") as caught:
        d3d12.devices()
    assert "on Linux, vkd3d runs it" in str(caught.value)


def test_a_missing_package_is_said_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d3d12_device, "PLATFORM", "win32")
    monkeypatch.setitem(d3d12_device.sys.modules, "compushady", None)
    with pytest.raises(UnavailableError, match="reached through the package compushady") as caught:
        d3d12.load(relu_grad())
    assert "pip install dmlc[d3d12]" in str(caught.value)


def test_the_environment_may_ask_the_package_for_another_interface(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compushady.install(monkeypatch, "vulkan")
    assert len(d3d12.devices()) == 3


def test_the_package_used_before_for_another_interface(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compushady.install(monkeypatch, "vulkan")
    d3d12_device.sys.modules["compushady"].get_backend()
    with pytest.raises(UnavailableError, match="serves vulkan in this process"):
        d3d12.devices()


def test_a_package_without_its_direct3d_part(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_backend() -> None:
        raise ImportError("DLL load failed while importing d3d12")

    monkeypatch.setattr(d3d12_device.sys.modules["compushady"], "get_backend", get_backend)
    with pytest.raises(UnavailableError, match=r"cannot load its Direct3D 12 part: DLL load"):
        d3d12.devices()


def test_devices_that_cannot_be_listed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_discovered_devices() -> None:
        raise Exception("unable to create IDXGIFactory1: Access is denied.")

    package = d3d12_device.sys.modules["compushady"]
    monkeypatch.setattr(package, "get_discovered_devices", get_discovered_devices)
    with pytest.raises(DmlcError, match="cannot list its devices: unable to create IDXGIFactory1"):
        d3d12.devices()


# What is asked of the package


def test_buffers_heaps_strides_and_the_order_of_everything(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    x, dy = random(100), random(100, seed=1)
    out = executable({"X": x, "dY": dy})
    assert np.array_equal(out["dX"], masked(x, dy))

    compute = machine.computes[0]
    assert compute.device is machine.adapters[1]
    assert heaps(compute.cbv) == [(HEAP_UPLOAD, 256, 0)]
    assert heaps(compute.srv) == [(HEAP_DEFAULT, 512, 4)] * 2
    assert heaps(compute.uav) == [(HEAP_DEFAULT, 512, 4)]
    assert compute.cbv[0].memory[:4].view("<u4")[0] == 100

    constants, *steps = machine.log
    assert constants == ("upload", compute.cbv[0], 16)
    names = [step[0] for step in steps]
    assert names == ["upload", "copy", "upload", "copy", "dispatch", "copy", "readback"]
    for (_, host, count), (_, source, target), view in zip(
        steps[0:4:2], steps[1:4:2], compute.srv, strict=True
    ):
        assert (host.heap_type, count) == (HEAP_UPLOAD, 400)
        assert source is host
        assert target is view
    assert steps[4][2] == (2, 1, 1)
    assert steps[5][1] is compute.uav[0]
    assert steps[5][2] is steps[6][1]
    assert (steps[6][1].heap_type, steps[6][2]) == (HEAP_READBACK, 400)


def test_registers_are_filled_by_number_and_not_by_order(machine: Machine) -> None:
    program = relu_grad()
    kernel = program.kernels[0]
    shuffled = dataclasses.replace(kernel, buffers=tuple(reversed(kernel.buffers)))
    executable = load(machine, dataclasses.replace(program, kernels=(shuffled,)))
    x, dy = random(10), random(10, seed=1)
    assert np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy))
    first, second = machine.computes[0].srv
    assert np.array_equal(first.memory.view(np.float32)[:10], x)
    assert np.array_equal(second.memory.view(np.float32)[:10], dy)


def test_several_kernels_run_in_order_over_scratch_memory(machine: Machine) -> None:
    a = random(1000)
    out = load(machine, square_then_double())({"A": a})
    square = a * a
    assert np.array_equal(out["B"], 2 * square[::-1])
    assert np.array_equal(out["C"], square + a)
    first, second = machine.computes
    assert [entry[1] for entry in machine.named("dispatch")] == [first, second]
    assert first.uav[0] is second.srv[0]
    assert first.srv[0] is second.srv[1]
    assert len(second.uav) == 2
    # Scratch memory never leaves the device.
    moved = [r for _, *pair in machine.named("copy") for r in pair]
    assert first.uav[0] not in moved
    assert second.cbv[0].memory[:12].tobytes() == struct.pack("<QI", 2, 1000)


def test_a_second_run_of_the_same_size_makes_nothing(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    for seed in (0, 2):
        x, dy = random(70, seed=seed), random(70, seed=seed + 1)
        out = executable({"X": x, "dY": dy})
        assert np.array_equal(out["dX"], masked(x, dy))
    assert len(machine.computes) == 1
    made = len(machine.buffers)
    executable({"X": random(71), "dY": random(71)})
    assert len(machine.computes) == 2
    assert len(machine.buffers) == 2 * made


def test_frames_of_old_sizes_are_given_up(machine: Machine) -> None:
    executable = load(machine, count_up())
    for count in (1, 2, 3, 4, 5, 2, 1):
        out = executable({}, {"A": (count,)})
        assert np.array_equal(out["A"], np.arange(count, dtype=np.uint32))
    assert len(machine.computes) == 6


def test_executables_keep_few_bytes_together(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the one that ran longest ago are given up first, and of one that is dropped all."""
    monkeypatch.setattr(copied, "_recent", weakref.WeakKeyDictionary())
    first, second, third = (load(machine, count_up()) for _ in range(3))
    first({}, {"A": (1000,)})
    (frame,) = first.frames.values()
    monkeypatch.setattr(copied, "_KEPT_BYTES", 3 * frame.bytes)
    for executable in (second, third, first, second):
        executable({}, {"A": (1000,)})
    assert len(machine.computes) == 3
    second({}, {"A": (999,)})
    assert [len(e.frames) for e in (first, second, third)] == [1, 2, 0]
    monkeypatch.setattr(copied, "_KEPT_BYTES", frame.bytes - 1)
    third({}, {"A": (1000,)})
    assert [len(e.frames) for e in (first, second, third)] == [0, 0, 0]
    assert len(machine.computes) == 5
    del third, executable
    assert [*copied._recent] == [first, second]


def wide_copy() -> Program:
    """`S = A` seen as four numbers at once, then `B = S + 1` as one, in memory of its own."""
    first = make_kernel(
        "wide",
        "StructuredBuffer<float4> A : register(t0);\nRWStructuredBuffer<float4> S : register(u0);",
        "    if (i < 8) {\n        S[i] = A[i];\n    }\n",
        (
            BufferBinding("A", "A", F32, False, True, 0, 16),
            BufferBinding("S", "S", F32, True, False, 0, 16),
        ),
        (),
        8,
    )
    second = make_kernel(
        "narrow",
        "StructuredBuffer<float> S : register(t0);\nRWStructuredBuffer<float> B : register(u0);",
        "    if (i < 32) {\n        B[i] = S[i] + 1.0f;\n    }\n",
        (
            BufferBinding("S", "S", F32, False, True, 0),
            BufferBinding("B", "B", F32, True, False, 0),
        ),
        (),
        32,
        after=(0,),
    )
    tensors = (
        TensorSpec("A", Role.INPUT, F32, (32,)),
        TensorSpec("S", Role.SCRATCH, F32, (32,)),
        TensorSpec("B", Role.OUTPUT, F32, (32,)),
    )
    return Program("wide_copy", HLSL, "gpu", tensors, (first, second), 2**31 - 1)


def test_kernels_that_see_one_tensor_in_different_structures(machine: Machine) -> None:
    a = random(32)
    out = load(machine, wide_copy())({"A": a})
    assert np.array_equal(out["B"], a + np.float32(1))
    first, second = machine.computes
    assert [r.stride for r in (*first.srv, *first.uav)] == [16, 16]
    assert [r.stride for r in (*second.srv, *second.uav)] == [4, 4]
    assert ("copy", first.uav[0], second.srv[0]) in machine.log


# Arrays


ARRANGEMENTS = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "every second": lambda a: a[::2, 1::2],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "Fortran order": np.asfortranarray,
}


@pytest.mark.parametrize("arrange", ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_arrays_of_any_arrangement(machine: Machine, arrange: Any) -> None:
    executable = load(machine, relu_grad())
    x, dy = arrange(random(6, 8)), arrange(random(6, 8, seed=1))
    x.flags.writeable = dy.flags.writeable = False
    given = arrange(np.zeros((6, 8), np.float32)).copy(order="K")
    out = executable({"X": x, "dY": dy}, {"dX": given})
    assert out["dX"] is given
    assert np.array_equal(given, masked(x, dy))
    strided = np.zeros((2 * x.shape[0], 3 * x.shape[1]), np.float32)[::2, ::3]
    executable({"X": x, "dY": dy}, {"dX": strided})
    assert np.array_equal(strided, masked(x, dy))
    assert executable.last_report.copies
    assert executable.last_report.device == str(executable.device)


def test_arrays_of_other_libraries(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    x, dy, out = random(6, 8), random(6, 8, seed=1), Tensor(np.zeros((6, 8), np.float32))
    found = executable({"X": Tensor(x), "dY": memoryview(dy)})["dX"]
    assert isinstance(found, Tensor)
    assert np.array_equal(found.array, masked(x, dy))
    call = executable.bind([Tensor(x), dy], {"dX": out})
    x *= -1
    assert call()["dX"] is out
    assert np.array_equal(out.array, masked(x, dy))
    changing = executable.bind([x, FrozenTensor(dy)])
    first, before = changing()["dX"], masked(x, dy)
    x *= -1
    assert np.array_equal(changing()["dX"].array, masked(x, dy))
    assert np.array_equal(first.array, before)
    assert [c.tensor for c in changing.report.copies] == ["dX"]


def test_strides_of_the_program(machine: Machine) -> None:
    program = add_one((3, 4), (1, 3), "i / 4 + i % 4 * 3", (5, 1), "i / 4 * 5 + i % 4")
    a = random(3, 4)
    assert np.array_equal(load(machine, program)({"A": a})["B"], a + np.float32(1))
    counts = [entry[2] for entry in machine.log if entry[0] in ("upload", "readback")]
    # What lies between the elements of B goes there, so that it comes back as it was.
    assert counts == [48, (1 + 2 * 5 + 3) * 4, (1 + 2 * 5 + 3) * 4]


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_every_16_bit_pattern(machine: Machine, dtype: DataType) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    x, dy = patterns.view(dtype.dtype), np.roll(patterns, 12345).view(dtype.dtype)
    out = load(machine, relu_grad(dtype))({"X": x, "dY": dy})["dX"]
    expected = np.where(x.astype(np.float32) > 0, dy, dtype.dtype.type(0))
    assert np.array_equal(out.view(np.uint16), expected.view(np.uint16))
    assert heaps(machine.computes[0].srv) == [(HEAP_DEFAULT, 1 << 17, 2)] * 2


def test_empty_tensors_reach_no_device(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    nothing = np.empty((0, 3), np.float32)
    assert executable({"X": nothing, "dY": nothing})["dX"].shape == (0, 3)
    assert executable.bind({"X": nothing, "dY": nothing})()["dX"].shape == (0, 3)
    assert machine.buffers == []


def test_an_empty_tensor_beside_others_gets_a_buffer_all_the_same(machine: Machine) -> None:
    program = add_one((4,), None, "i")
    kernel = program.kernels[0]
    unread = dataclasses.replace(
        kernel,
        source=kernel.source.replace("A[i]", "(float)i"),
    )
    empty = dataclasses.replace(program.tensors[0], extents=(0,))
    program = dataclasses.replace(program, tensors=(empty, program.tensors[1]), kernels=(unread,))
    out = load(machine, program)({"A": np.empty(0, np.float32)})
    assert np.array_equal(out["B"], np.arange(1, 5, dtype=np.float32))
    assert heaps(machine.computes[0].srv) == [(HEAP_DEFAULT, 256, 4)]


def test_an_output_over_an_input(machine: Machine) -> None:
    x, dy = random(64), random(64, seed=1)
    expected = masked(x, dy)
    load(machine, relu_grad())({"X": x, "dY": dy}, {"dX": dy})
    assert np.array_equal(dy, expected)


def test_a_call_with_fixed_arrays_computes_anew(machine: Machine) -> None:
    x, dy = random(9), random(9, seed=1)
    call = load(machine, relu_grad()).bind({"X": x, "dY": dy})
    assert call.report.copies == ()
    first = call()["dX"]
    x *= -1
    assert call()["dX"] is first
    assert np.array_equal(first, masked(x, dy))


def test_arrays_that_do_not_fit(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    with pytest.raises(DmlcError, match="no array is given for the input dY"):
        executable({"X": random(3)})
    assert machine.buffers == []


def test_threads_take_turns_on_a_device(machine: Machine) -> None:
    program = relu_grad()
    executables = [load(machine, program), load(machine, program)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in (5, 200):
                x, dy = random(count, seed=number), random(count, seed=number + 10)
                out = executables[number % 2]({"X": x, "dY": dy})
                assert np.array_equal(out["dX"], masked(x, dy))
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_output_that_a_later_kernel_reads(machine: Machine) -> None:
    program = square_then_double()
    tensors = tuple(
        dataclasses.replace(t, role=Role.OUTPUT) if t.name == "S" else t for t in program.tensors
    )
    a = random(100)
    out = load(machine, dataclasses.replace(program, tensors=tensors))({"A": a})
    assert np.array_equal(out["S"], a * a)
    assert np.array_equal(out["C"], a * a + a)


def test_a_tensor_that_one_kernel_reads_and_stores(machine: Machine) -> None:
    program = wide_copy()
    narrow = dataclasses.replace(
        program.kernels[1],
        source=make_kernel(
            "raise",
            "RWStructuredBuffer<float> S : register(u0);\n",
            "    if (i < 32) {\n        S[i] = S[i] + 1.0f;\n    }\n",
            (), (), 32,
        ).source,
        buffers=(BufferBinding("S", "S", F32, True, True, 0, 4),),
    )  # fmt: skip
    tensors = (program.tensors[0], dataclasses.replace(program.tensors[1], role=Role.OUTPUT))
    program = dataclasses.replace(program, kernels=(program.kernels[0], narrow), tensors=tensors)
    executable = load(machine, program)

    def add_one_in_place(bound: Bound) -> None:
        bound.uav[0].view(np.float32)[:32] += np.float32(1)

    machine.shaders[build_shader(narrow).dxil] = add_one_in_place
    a = random(32)
    assert np.array_equal(executable({"A": a})["S"], a + np.float32(1))


# Programs of the compiler


@pytest.mark.parametrize("case", COMPILED)
def test_golden_kernel(machine: Machine, case: str) -> None:
    function = read_case(case)
    executable = load(machine, compile(function, "hlsl"))
    for count in (1, 1000) if function.symbols() else (1,):
        inputs = make_inputs(function, count)
        wanted = evaluate(function, inputs)
        got = executable(inputs)
        assert list(got) == list(wanted)
        assert find_wrong(case, got, wanted) == []


# Limits


def test_windows_of_a_program_over_the_size_of_a_buffer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d3d12_plan.limits, "VIEW_ELEMENTS", d3d12_device.Limit("elements", 65536))
    program = relu_grad()
    count = 2 * 65536 + 3
    x, dy = random(count), random(count, seed=1)
    assert np.array_equal(load(machine, program)({"X": x, "dY": dy})["dX"], masked(x, dy))
    assert [entry[2] for entry in machine.named("dispatch")] == [(1024, 1, 1)] * 2 + [(1, 1, 1)]
    assert len(machine.computes) == 2


def test_windows_stay_within_what_a_device_promises(machine: Machine) -> None:
    program = relu_grad()
    shaders = [build_shader(k) for k in program.kernels]
    integrated, discrete, _ = d3d12.devices()
    small = plan_windows(program, shaders, {"n": 1 << 27}, integrated)
    assert [(w.start, w.sizes["n"]) for w in small] == [(k << 25, 1 << 25) for k in range(4)]
    large = plan_windows(program, shaders, {"n": (1 << 27) + 1}, discrete)
    assert [(w.start, w.sizes["n"]) for w in large] == [(0, 1 << 27), (1 << 27, 1)]


def test_a_large_domain_goes_out_in_two_dimensions(machine: Machine) -> None:
    kernel = relu_grad().kernels[0]
    windows = plan_windows(
        relu_grad(), [build_shader(kernel)], {"n": 65536 * 64}, d3d12.find_device()
    )
    (launch,) = list_launches(relu_grad(), windows[0].sizes)
    assert launch.groups == (65535, 2, 1)


def refusal(program: Program, sizes: dict[str, int]) -> str:
    shaders = [build_shader(k) for k in program.kernels]
    with pytest.raises(UnsupportedError) as caught:
        plan_windows(program, shaders, sizes, d3d12.find_device())
    return str(caught.value)


def test_sizes_over_a_limit_are_refused_by_its_name(machine: Machine) -> None:
    whole = relu_grad(elementwise=False)
    assert "65,535 (D3D12_CS_DISPATCH_MAX_THREAD_GROUPS_PER_DIMENSION)" in refusal(
        relu_grad(elementwise=False, row=None), {"n": 65535 * 64 + 1}
    )
    assert "134,217,728 (D3D12_REQ_BUFFER_RESOURCE_TEXEL_COUNT_2_TO_EXP)" in refusal(
        whole, {"n": (1 << 27) + 1}
    )
    assert "D3D12_REQ_RESOURCE_SIZE_IN_MEGABYTES_EXPRESSION_C_TERM" in refusal(
        whole, {"n": (1 << 29) + 1}
    )


def test_programs_over_a_limit_are_refused_by_its_name(machine: Machine) -> None:
    program = relu_grad()
    kernel = program.kernels[0]
    wide = dataclasses.replace(kernel.dispatch, group_size=1025)
    written = tuple(BufferBinding(f"Y{k}", "dX", F32, True, False, k) for k in range(65))
    far = ScalarBinding("far", 1, 32, 4, 65536)
    for changed, limit in (
        (dataclasses.replace(kernel, dispatch=wide), "D3D12_CS_THREAD_GROUP_MAX_THREADS_PER_GROUP"),
        (dataclasses.replace(kernel, buffers=written), "D3D12_UAV_SLOT_COUNT"),
        (dataclasses.replace(kernel, scalars=(far,)), "D3D12_REQ_CONSTANT_BUFFER_ELEMENT_COUNT"),
    ):
        with pytest.raises(UnsupportedError, match=limit):
            check_program(dataclasses.replace(program, kernels=(changed,)), d3d12.find_device())


def test_a_number_that_does_not_fit_its_constant(machine: Machine) -> None:
    program = square_then_double()
    kernel = program.kernels[1]
    factor = dataclasses.replace(kernel.scalars[1], value=1 << 32)
    changed = dataclasses.replace(kernel, scalars=(kernel.scalars[0], factor))
    executable = load(machine, dataclasses.replace(program, kernels=(program.kernels[0], changed)))
    with pytest.raises(UnsupportedError, match="n is 4,294,967,296, and the kernel finish takes"):
        executable({"A": random(3)})


def test_many_inputs_are_no_matter(machine: Machine) -> None:
    arrays = {f"X{k}": random(5, seed=k) for k in range(20)}
    out = load(machine, sum_of(20))(arrays)["Y"]
    np.testing.assert_allclose(out, sum(arrays.values()), rtol=1e-5, atol=1e-5)


def test_a_program_for_another_target(machine: Machine) -> None:
    with pytest.raises(UnsupportedError, match="compiled for opencl"):
        d3d12.load(dataclasses.replace(relu_grad(), language=OPENCL_C))


def test_registers_with_a_gap(machine: Machine) -> None:
    program = relu_grad()
    kernel = program.kernels[0]
    moved = dataclasses.replace(
        kernel,
        source=kernel.source.replace("register(t1)", "register(t3)"),
        buffers=tuple(
            dataclasses.replace(b, slot=3) if b.name == "dY" else b for b in kernel.buffers
        ),
    )
    with pytest.raises(UnsupportedError, match="uses the register t3 and leaves t1 out"):
        d3d12.load(dataclasses.replace(program, kernels=(moved,)))


def test_a_buffer_that_is_not_structured(machine: Machine) -> None:
    program = add_one((4,), None, "i")
    kernel = program.kernels[0]
    source = kernel.source.replace("StructuredBuffer<float> A", "Buffer<float> A")
    typed = dataclasses.replace(kernel, source=source)
    changed = dataclasses.replace(program, kernels=(typed,))
    with pytest.raises(UnsupportedError, match="another kind than structured at t0"):
        d3d12.load(changed)


def test_a_shader_that_disagrees_with_its_program(machine: Machine) -> None:
    program = relu_grad()
    kernel = program.kernels[0]
    swapped = dataclasses.replace(
        kernel, source=kernel.source.replace("[numthreads(64", "[numthreads(32")
    )
    with pytest.raises(InternalError, match="otherwise than its program"):
        d3d12.load(dataclasses.replace(program, kernels=(swapped,)))


def test_shaders_hold_their_checksum() -> None:
    dxil = build_shader(relu_grad().kernels[0]).dxil
    assert dxil[4:20] == find_checksum(dxil)


def with_abilities(machine: Machine, abilities: Abilities) -> D3D12Device:
    """A device that says what it can do, as vkd3d's does."""
    vars(machine.adapters[1]).update(abilities=abilities, driver="vkd3d 2.1", note="")
    return d3d12.find_device()


def test_programs_are_for_what_a_device_says_that_it_can_do(machine: Machine) -> None:
    assert list_dialects(d3d12.find_device()) == (HLSL_6_2, HLSL_6_0)
    assert d3d12.find_device().floats == d3d12_device.STRICT
    assert d3d12.find_device().facts[:2] == ("Direct3D 12", "discrete GPU")
    old = with_abilities(machine, Abilities("6.0", int16=False, int64=True, float64=True))
    assert old.compile_options == {"root_signature": False, "shader_model": "6.0"}
    assert list_dialects(old) == (HLSL_6_0,)
    assert old.floats == LEAST
    assert str(old) == "Discrete 2 (discrete GPU, Direct3D 12)"
    assert old.facts[:4] == (
        "Direct3D 12, shader model 6.0", "vkd3d 2.1", "discrete GPU", "no 16-bit types",
    )  # fmt: skip
    function = ir.parse("func @f(%A: f32[n]) -> (%r) {\n  %r: f32[i0 < n] = neg(%A[i0])\n}")
    kernels = compile_for(function, old).kernels
    assert {kernel.shader_model for kernel in kernels} == {"6.0"}
    # 6.2 asks for the types of 16 bits that it has.
    newer = with_abilities(machine, Abilities("6.6", int16=False, int64=True, float64=True))
    assert newer.compile_options["shader_model"] == "6.0"
    newest = with_abilities(machine, Abilities("6.10", int16=True, int64=True, float64=True))
    assert newest.compile_options["shader_model"] == "6.2"


def test_programs_that_ask_for_more_than_a_device_has_are_refused(machine: Machine) -> None:
    device = with_abilities(machine, Abilities("6.0", int16=False, int64=False, float64=True))
    program = relu_grad()
    with pytest.raises(
        UnsupportedError, match=r"for shader model 6\.2, and Discrete 2 runs 6\.0"
    ) as caught:
        check_program(program, device)
    assert "compile it with shader_model='6.0'" in str(caught.value)
    device = with_abilities(machine, Abilities("6.2", int16=False, int64=False, float64=True))
    check_program(program, device)
    for source, need in (
        ("int64_t x;", "64-bit integers"),
        ("float16_t x; int64_t y;", "64-bit integers and 16-bit types"),
    ):
        kernel = dataclasses.replace(program.kernels[0], source=source)
        changed = dataclasses.replace(program, kernels=(kernel,))
        with pytest.raises(UnsupportedError, match=f"needs {need}, which Discrete 2 does not have"):
            check_program(changed, device)


def test_what_direct3d_refuses_is_said(machine: Machine) -> None:
    executable = load(machine, relu_grad())
    machine.adapters[1].refuses_pipelines = True
    with pytest.raises(
        DmlcError, match="cannot run relu_grad on Discrete 2: Unable to create Compute Pipeline"
    ):
        executable({"X": random(3), "dY": random(3)})
    machine.adapters[1].refuses_pipelines = False
    x, dy = random(3), random(3, seed=1)
    assert np.array_equal(executable({"X": x, "dY": dy})["dX"], masked(x, dy))


def test_the_wheel_brings_what_is_asked_for() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert "compushady==0.17.5; sys_platform == 'win32'" in text.partition("\nd3d12 = [")[2]
