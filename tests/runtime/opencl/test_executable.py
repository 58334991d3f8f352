"""Programs on OpenCL devices: results, what is copied and what is not, limits, and threads."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlc.codegen.hlsl_host import HLSL
from dmlc.program import KernelSource, Program
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.runtime.opencl.device import Device, Memory
from dmlc.runtime.opencl.driver import open_session
from dmlc.runtime.opencl.executable import SMALL_LAUNCH_BYTES, Executable
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError
from tests.runtime import handmade

Array = npt.NDArray[Any]
DEVICES = opencl.devices()


def values(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32, seed: int = 0) -> Array:
    """Numbers of both signs with zeros, infinities and NaN among them."""
    made = np.random.default_rng(seed).standard_normal(shape)
    flat = made.reshape(-1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, -1e-7])
    flat[: special.size] = special[: flat.size]
    return made.astype(dtype)


def expected(x: Array, dy: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(x > 0, dy, x.dtype.type(0))


def same(a: Array, b: Array) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and np.array_equal(a.astype(np.float32), b.astype(np.float32), equal_nan=True)
    )


def load(program: Program, memory: Memory | None = None) -> Executable:
    """On the default device, as it is or treated as one with another kind of memory."""
    device = opencl.find_device()
    if memory is not None:
        device = dataclasses.replace(device, memory=memory)
    return Executable(program, open_session(device))


@pytest.fixture(params=list(Memory), ids=lambda m: m.value)
def memory(request: pytest.FixtureRequest) -> Memory:
    """Every way of getting arrays to a device. A CPU can be treated in all of them."""
    if opencl.find_device().memory is Memory.COPIED:
        return Memory.COPIED
    return request.param


@pytest.fixture(scope="module")
def relu_grad() -> Executable:
    return load(handmade.relu_grad())


def test_kernels_are_timed_turn_after_turn(memory: Memory) -> None:
    x = values(1 << 16)
    call = load(handmade.relu_grad(), memory).bind({"X": x, "dY": x})
    assert all(1e-7 < call.time_kernels(turns) < 10 for turns in (1, 1, 10))
    assert same(call()["dX"], expected(x, x))
    nothing = load(handmade.relu_grad(), memory).bind({"X": x[:0], "dY": x[:0]})
    assert nothing.time_kernels(3) == 0


def test_devices_are_described() -> None:
    assert DEVICES
    for number, device in enumerate(DEVICES):
        assert device.index == number
        assert device.compute_units >= 1
        assert 0 < device.max_allocation <= device.memory_size or device.memory_size == 0
        assert opencl.find_device(f"opencl:{number}") is device


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16])
@pytest.mark.parametrize("count", [1, 7, handmade.CHUNK, 3 * handmade.CHUNK + 5, 2_000_000])
def test_every_device_type_and_size(device: Device, dtype: DataType, count: int) -> None:
    executable = opencl.load(handmade.relu_grad(dtype), f"opencl:{device.index}")
    x, dy = values(count, dtype.dtype), values(count, dtype.dtype, 1)
    assert same(executable({"X": x, "dY": dy})["dX"], expected(x, dy))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 2, 1, 3, 1, 2, 1, 5)])
def test_any_shape_serves_a_program_over_an_element_count(
    relu_grad: Executable, shape: tuple[int, ...], memory: Memory
) -> None:
    x, dy = values(shape), values(shape, seed=1)
    executable = load(handmade.relu_grad(bits=64), memory)
    assert same(executable({"X": x, "dY": dy})["dX"], expected(x, dy))
    assert same(executable.bind({"X": x, "dY": dy})()["dX"], expected(x, dy))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_tensors_give_empty_results(shape: tuple[int, ...], memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    arrays = {"X": np.empty(shape, np.float32), "dY": np.empty(shape, np.float32)}
    assert executable(arrays)["dX"].shape == shape
    assert executable.bind(arrays)()["dX"].shape == shape
    assert executable({n: a[..., ::-1] for n, a in arrays.items()})["dX"].shape == shape


def test_a_run_writes_into_the_arrays_given(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy, out = values((4, 5)), values((4, 5), seed=1), np.full((4, 5), 9, np.float32)
    assert executable({"X": x, "dY": dy}, {"dX": out})["dX"] is out
    assert same(out, expected(x, dy))
    assert executable.last_report.copies == ()


def test_sizes_may_be_given_for_outputs(relu_grad: Executable) -> None:
    x = values((2, 3))
    assert relu_grad({"X": x, "dY": x}, {"dX": (2, 3)})["dX"].shape == (2, 3)
    assert relu_grad({"X": x, "dY": x}, {"dX": [np.int64(2), 3]})["dX"].shape == (2, 3)
    with pytest.raises(DmlcError, match=r"dX has .*\[3, 2\].* must be equal"):
        relu_grad({"X": x, "dY": x}, {"dX": (3, 2)})


def test_a_program_without_inputs_takes_its_sizes_from_the_output(memory: Memory) -> None:
    executable = load(handmade.count_up(), memory)
    assert executable({}, {"A": (2, 3)})["A"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(DmlcError, match=r"cannot be inferred[\s\S]*outputs=\{'A': \(2, 3\)\}"):
        executable({})
    with pytest.raises(UnsupportedError, match=r"at most 1000 elements.*1001"):
        executable({}, {"A": (1001,)})


def test_a_bound_call_reads_the_arrays_anew_each_time(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy = values((6, 8)), values((6, 8), seed=1)
    flipped = values((6, 8), seed=2)[:, ::-1]
    call = executable.bind({"X": flipped, "dY": dy})
    first = call()["dX"]
    assert same(first, expected(flipped, dy))
    assert [c.tensor for c in call.report.copies] == ["X"]
    flipped[...] = x
    dy *= 2
    second = call()["dX"]
    assert second is first
    assert same(second, expected(x, dy))


def test_a_result_of_a_bound_call_may_be_taken_apart(relu_grad: Executable) -> None:
    call = relu_grad.bind({"X": values(4), "dY": values(4)})
    call().clear()
    assert list(call()) == ["dX"]


# What is copied -------------------------------------------------------------------------------


def misaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    moved = raw[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: np.asfortranarray(a), "not packed in C order"),
        (lambda a: np.repeat(a, 2, axis=1)[:, ::2], "not packed in C order"),
        (lambda a: np.ascontiguousarray(a[::-1])[::-1], "not packed in C order"),
        (misaligned, "not aligned"),
        (lambda a: a.astype(">f4"), "bytes are in the other order"),
    ],
)
def test_arrays_that_a_buffer_cannot_express_are_copied_and_reported(
    change: Callable[[Array], Array], reason: str, memory: Memory
) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy = values((4, 6)), values((4, 6), seed=1)
    assert same(executable({"X": change(x), "dY": dy})["dX"], expected(x, dy))
    (copy,) = executable.last_report.copies
    assert copy.tensor == "X"
    assert reason in str(copy)
    out = change(np.zeros((4, 6), np.float32))
    if out.dtype.isnative:
        executable({"X": x, "dY": dy}, {"dX": out})
        assert same(out, expected(x, dy))
        assert [c.tensor for c in executable.last_report.copies] == ["dX"]


def test_read_only_inputs_are_used_as_they_are(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy = values((4, 6)), values((4, 6), seed=1)
    x.flags.writeable = False
    assert same(executable({"X": x, "dY": dy})["dX"], expected(x, dy))
    assert same(executable.bind({"X": x, "dY": dy})()["dX"], expected(x, dy))
    assert executable.last_report.copies == ()


def test_an_array_with_the_strides_of_the_program_is_used_as_it_lies(memory: Memory) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    program = handmade.add_one((3, 4), (1, 6), "i / 4 + i % 4 * 6")
    executable = load(program, memory)
    array = base.T[:3]
    assert executable({"A": array})["B"].tolist() == (array + 1).tolist()
    assert executable.last_report.copies == ()
    array.flags.writeable = False
    assert executable({"A": array})["B"].tolist() == (array + 1).tolist()
    packed = np.ascontiguousarray(array)
    assert executable({"A": packed})["B"].tolist() == (array + 1).tolist()
    assert "strides" in executable.last_report.copies[0].reason


def test_a_repeated_dimension(memory: Memory) -> None:
    executable = load(handmade.add_one((2, 3), (0, 1), "i % 3"), memory)
    row = np.arange(3, dtype=np.float32)
    array = np.broadcast_to(row, (2, 3))
    assert executable({"A": array})["B"].tolist() == [[1, 2, 3], [1, 2, 3]]
    assert executable.last_report.copies == ()
    swapped = np.broadcast_to(row.astype(">f4"), (2, 3))
    assert executable({"A": swapped})["B"].tolist() == [[1, 2, 3], [1, 2, 3]]
    sliced = np.broadcast_to(np.arange(6, dtype=np.float32)[::2], (2, 3))
    assert executable({"A": sliced})["B"].tolist() == [[1, 3, 5], [1, 3, 5]]
    with pytest.raises(DmlcError, match="stride 0 along dimension 0"):
        executable({"A": np.array(array)})


def test_overlapping_strides_are_only_met_by_the_same_ones(memory: Memory) -> None:
    executable = load(handmade.add_one((3, 2), (1, 1), "i / 2 + i % 2"), memory)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(4, dtype=np.float32), 2)
    assert executable({"A": windows})["B"].tolist() == [[1, 2], [2, 3], [3, 4]]
    with pytest.raises(DmlcError, match=r"overlapping strides \[1, 1\]"):
        executable({"A": np.array(windows)})


def test_an_output_with_strides_leaves_what_lies_between_alone(memory: Memory) -> None:
    program = handmade.add_one((3, 2), None, "i", (4, 1), "i / 2 * 4 + i % 2")
    executable = load(program, memory)
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    made = executable({"A": array})["B"]
    assert made.tolist() == (array + 1).tolist()
    assert made.strides == (16, 4)
    held = np.full((3, 4), -1, np.float32)
    executable({"A": array}, {"B": held[:, :2]})
    assert held[:, :2].tolist() == (array + 1).tolist()
    assert (held[:, 2:] == -1).all()
    columns = np.full((2, 3), -1, np.float32)
    executable({"A": array}, {"B": columns.T})
    assert columns.T.tolist() == (array + 1).tolist()


# Memory that tensors share --------------------------------------------------------------------


def test_an_output_may_take_an_input_over_where_the_program_allows_it(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy = values((4, 6)), values((4, 6), seed=1)
    wanted = expected(x, dy)
    assert executable({"X": x, "dY": dy}, {"dX": dy})["dX"] is dy
    assert same(dy, wanted)
    assert executable.last_report.copies == ()
    again = values((4, 6), seed=1)
    call = executable.bind({"X": x, "dY": again}, {"dX": again})
    assert same(call()["dX"], wanted)


def test_an_input_that_an_output_overwrites_is_copied_first(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x, dy = values((4, 6)), values((4, 6), seed=1)
    wanted = expected(x, dy)
    assert same(executable({"X": x, "dY": dy}, {"dX": x})["dX"], wanted)
    (copy,) = executable.last_report.copies
    assert str(copy) == "X was copied: it overlaps the output dX"

    base = values(25, seed=1)
    wanted = expected(values(24), base[:24])
    executable({"X": values(24), "dY": base[:24]}, {"dX": base[1:]})
    assert same(base[1:], wanted)

    mixed = values(48, seed=1)
    wanted = expected(values(24), mixed[::2])
    executable({"X": values(24), "dY": mixed[::2]}, {"dX": mixed[1::2]})
    assert same(mixed[1::2], wanted)


def test_one_array_may_be_both_inputs(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    x = values((4, 6))
    assert same(executable({"X": x, "dY": x})["dX"], expected(x, x))


def test_several_kernels_with_memory_between_them(memory: Memory) -> None:
    executable = load(handmade.square_then_double(), memory)
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = executable({"A": a})
    assert list(made) == ["B", "C"]
    assert made["B"].tolist() == (2 * a * a).tolist()
    assert made["C"].tolist() == (a * a + a).tolist()
    call = executable.bind({"A": a})
    a += 1
    assert call()["C"].tolist() == (a * a + a).tolist()
    assert executable({"A": a[:0]})["B"].shape == (0, 3)


def test_outputs_must_lie_apart(memory: Memory) -> None:
    executable = load(handmade.square_then_double(), memory)
    a, out = np.ones(4, np.float32), np.empty(7, np.float32)
    with pytest.raises(DmlcError, match="outputs B and C share memory"):
        executable({"A": a}, {"B": out[:4], "C": out[3:]})
    pair = np.empty(8, np.float32)
    executable({"A": a}, {"B": pair[::2], "C": pair[1::2]})
    assert pair.tolist() == [2, 2] * 4


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"X": values(3)}, None, "no array is given for the input dY"),
        ({}, None, "no array is given for the input X, dY"),
        ({"X": [1.0], "dY": values(1)}, None, "the input X is a list, and an array is expected"),
        ({"X": values(3, np.float64), "dY": values(3)}, None, "X takes FLOAT32.*holds FLOAT64"),
        ({"X": values(3).astype(object), "dY": values(3)}, None, "X takes FLOAT32.*holds object"),
        ({"X": values(3).astype(complex), "dY": values(3)}, None, "FLOAT32.*holds complex128"),
        ({"X": np.array(["a"]), "dY": values(1)}, None, "X takes FLOAT32.*holds <U1"),
        ({"X": values(3), "dY": values(4)}, None, r"X has the sizes \[3\], and dY has \[4\]"),
        ({"X": values((2, 3)), "dY": values((3, 2))}, None, r"\[2, 3\].*\[3, 2\].*be equal"),
        ({"X": values(3), "dY": values(3)}, {"dX": np.empty(3)}, "dX takes FLOAT32.*FLOAT64"),
        ({"X": values(3), "dY": values(3)}, {"dX": np.empty(4, "f")}, r"dX has \[4\]"),
        ({"X": values(3), "dY": values(3)}, {"dX": "x.npy"}, "dX takes an array.*'x.npy'"),
        ({"X": values(3), "dY": values(3)}, {"dX": (3.0,)}, r"dX takes an array.*\(3.0,\)"),
        ({"X": values(3), "dY": values(3)}, {"dX": (True,)}, "dX takes an array"),
        ({"X": values(3), "dY": values(3)}, {"dX": (-3,)}, "dX takes an array"),
        (
            {"X": values(3), "dY": values(3)},
            {"dX": np.broadcast_to(np.float32(0), (3,))},
            "dX is read-only",
        ),
        (
            {"X": values(3), "dY": values(3)},
            {"dX": np.lib.stride_tricks.as_strided(np.zeros(1, "f"), (3,), (0,))},
            "elements of the array given for the output dX share memory",
        ),
    ],
)
def test_refused(relu_grad: Executable, inputs: Any, outputs: Any, message: str) -> None:
    with pytest.raises(DmlcError, match=message):
        relu_grad(inputs, outputs)
    with pytest.raises(DmlcError, match=message):
        relu_grad.bind(inputs, outputs)


def test_unknown_names_are_refused_with_the_nearest(relu_grad: Executable) -> None:
    with pytest.raises(DmlcError, match=r"unknown input tensor 'DY'[\s\S]*did you mean 'dY'"):
        relu_grad({"X": values(3), "DY": values(3)})
    with pytest.raises(DmlcError, match="unknown output tensor 'dZ'"):
        relu_grad({"X": values(3), "dY": values(3)}, {"dZ": (3,)})
    with pytest.raises(DmlcError, match="unknown input tensor 'Z'"):
        relu_grad({"X": values(3), "dY": values(3), "Z": values(3)})


def test_fixed_sizes_are_checked() -> None:
    executable = load(handmade.add_one((2, 3), None, "i"))
    array = np.zeros((2, 3), np.float32)
    assert executable({"A": array})["B"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert executable({"A": array}, {"B": (2, 3)})["B"].shape == (2, 3)
    with pytest.raises(DmlcError, match=r"A has the sizes \[3, 2\].*compiled for \[2, 3\]"):
        executable({"A": array.reshape(3, 2)})
    with pytest.raises(DmlcError, match=r"B has the sizes \[2, 3\], and \[6\] are asked for"):
        executable({"A": array}, {"B": (6,)})


def test_a_program_for_another_target_is_refused() -> None:
    program = dataclasses.replace(handmade.relu_grad(), language=HLSL)
    with pytest.raises(UnsupportedError, match=r"compiled for hlsl.*compiled for opencl"):
        opencl.load(program)


def test_limits_of_the_program_and_the_device_are_named() -> None:
    executable = load(handmade.relu_grad(max_count=10))
    executable({"X": values(10), "dY": values(10)})
    with pytest.raises(UnsupportedError, match=r"at most 10 elements.*have 11"):
        executable({"X": values(11), "dY": values(11)})

    small = dataclasses.replace(opencl.find_device(), max_allocation=40, name="small one")
    executable = Executable(handmade.relu_grad(), open_session(small))
    executable({"X": values(10), "dY": values(10)})
    with pytest.raises(UnsupportedError, match=r"44 bytes is too large for small one.*40 bytes"):
        executable({"X": values(11), "dY": values(11)})
    executable = Executable(handmade.square_then_double(), open_session(small))
    with pytest.raises(UnsupportedError, match="too large for small one"):
        executable({"A": values(11)})


def test_a_device_without_float64_refuses_it() -> None:
    program = handmade.relu_grad()
    doubles = tuple(dataclasses.replace(t, dtype=DataType.FLOAT64) for t in program.tensors)
    program = dataclasses.replace(program, tensors=doubles)
    device = dataclasses.replace(opencl.find_device(), float64=False)
    with pytest.raises(UnsupportedError, match=r"FLOAT64, which .* cannot compute"):
        Executable(program, open_session(device))


def test_groups_that_are_too_large_are_refused() -> None:
    program = handmade.relu_grad()
    kernel = program.kernels[0]
    dispatch = dataclasses.replace(kernel.dispatch, group_size=1 << 20)
    kernel = dataclasses.replace(kernel, dispatch=dispatch)
    with pytest.raises(UnsupportedError, match="groups of 1048576 work items"):
        opencl.load(dataclasses.replace(program, kernels=(kernel,)))


def test_a_source_that_does_not_compile_is_shown_at_its_line(capfd: Any) -> None:
    program = handmade.relu_grad()
    source = program.kernels[0].source.replace("dy[i] :", "dz[i] :")
    kernel = dataclasses.replace(program.kernels[0], source=source)
    with pytest.raises(DmlcError, match="does not compile the kernel relu_grad") as caught:
        opencl.load(dataclasses.replace(program, kernels=(kernel,)))
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert "dz" in source.splitlines()[span.line - 1]
    capfd.readouterr()


def test_a_kernel_that_is_not_there_is_the_drivers_error() -> None:
    program = handmade.relu_grad()
    kernel = dataclasses.replace(program.kernels[0], entry_point="relu")
    with pytest.raises(DmlcError, match="cannot make the kernel relu: the OpenCL driver says"):
        opencl.load(dataclasses.replace(program, kernels=(kernel,)))


# Threads and processes ------------------------------------------------------------------------


def test_a_session_keeps_the_latest_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executable runs on without the session's."""
    monkeypatch.setattr(builds, "_KEPT", 2)
    session = driver.Session(opencl.find_device(), driver._state.handles)
    first, *others = (
        dataclasses.replace(kernel, source=f"{kernel.source}\n#define NUMBER {n}\n")
        for n in range(3)
        for kernel in handmade.relu_grad().kernels
    )

    def build(kernel: KernelSource) -> builds.Built:
        (found,) = session.builds.find([kernel], 0)
        return found

    built = build(first)
    assert build(first) is built
    executable = Executable(dataclasses.replace(handmade.relu_grad(), kernels=(first,)), session)
    for kernel in others:
        build(kernel)
    x, dy = values(5), values(5, seed=1)
    assert same(executable({"X": x, "dY": dy})["dX"], expected(x, dy))
    assert build(others[0]) is build(others[0])
    assert build(first) is not built


def test_threads_share_an_executable(memory: Memory) -> None:
    executable = load(handmade.relu_grad(), memory)
    other = load(handmade.square_then_double(), memory)
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(40):
            count = 17 + 1000 * number + turn
            x, dy = values(count, seed=number), values(count, seed=turn)
            if not same(executable({"X": x, "dY": dy})["dX"], expected(x, dy)):
                wrong.append(f"relu_grad {number} {turn}")
            a = np.full(count, number + 1, np.float32)
            if not (other({"A": a})["B"] == 2 * (number + 1) ** 2).all():
                wrong.append(f"square {number} {turn}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_large_launches_use_the_whole_processor() -> None:
    executable = load(handmade.relu_grad())
    count = SMALL_LAUNCH_BYTES // 12 + 1
    x, dy = values(count), values(count, seed=1)
    assert same(executable({"X": x, "dY": dy})["dX"], expected(x, dy))
    assert same(executable.bind({"X": x, "dY": dy})()["dX"], expected(x, dy))


def run_python(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own, from the repository's root."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("POCL_DEVICES", "PYOPENCL_CTX")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=pathlib.Path(__file__).parents[3],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_forked_child_gets_a_clear_error() -> None:
    done = run_python(
        """
import os
import numpy as np
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.source import UnavailableError
from tests.runtime import handmade
executable = opencl.load(handmade.relu_grad())
arrays = {"X": np.ones(3, "f"), "dY": np.ones(3, "f")}
call = executable.bind(arrays)
call()
child = os.fork()
if child == 0:
    for attempt in (lambda: executable(arrays), call, opencl.devices):
        try:
            attempt()
            os._exit(1)
        except UnavailableError as error:
            if "before this process was forked" not in str(error):
                os._exit(2)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert call()["dX"].tolist() == [1, 1, 1]
"""
    )
    assert done.returncode == 0, done.stderr


def test_a_child_forked_before_the_first_use_works() -> None:
    done = run_python(
        """
import os
import numpy as np
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from tests.runtime import handmade
child = os.fork()
arrays = {"X": np.ones(3, "f"), "dY": np.ones(3, "f")}
assert opencl.load(handmade.relu_grad())(arrays)["dX"].tolist() == [1, 1, 1]
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )
    assert done.returncode == 0, done.stderr


def test_a_machine_without_opencl_says_what_to_install() -> None:
    done = run_python(
        """
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.source import UnavailableError
assert opencl.devices() == ()
try:
    opencl.find_device()
except UnavailableError as error:
    print(error)
""",
        OCL_ICD_VENDORS="/nonexistent/",
        OPENCL_VENDOR_PATH="/nonexistent/",
    )
    assert done.returncode == 0, done.stderr
    assert "apt-get install pocl-opencl-icd" in done.stdout


def test_pyopencl_that_cannot_be_imported_is_reported() -> None:
    done = run_python(
        """
import sys
sys.modules["pyopencl"] = None
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.source import UnavailableError
try:
    opencl.devices()
except UnavailableError as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    assert "OpenCL cannot be used" in done.stdout


def test_a_choice_of_pocl_devices_by_the_user_stands() -> None:
    show = "from dmlc.runtime import opencl; print(*(d.name for d in opencl.devices()), sep='\\n')"
    chosen = run_python(show, POCL_DEVICES="basic basic")
    assert chosen.returncode == 0, chosen.stderr
    assert chosen.stdout.count("basic-") in (0, 2)
    left = run_python(show + "; import os; assert 'POCL_DEVICES' not in os.environ")
    assert left.returncode == 0, left.stderr
    assert "basic-" not in left.stdout
