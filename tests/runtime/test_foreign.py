"""Arrays of other libraries: in and out over the same memory, and what is refused."""

from __future__ import annotations

import array
import gc
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dmlc
from dmlc.runtime.foreign import Library, as_array, find_library, like
from tests.foreign import (
    FrozenTensor,
    PatchedTensor,
    PlainTensor,
    Tensor,
    on_line,
)

Array = npt.NDArray[Any]
NAME = "directml.ACTIVATION_RELU_GRAD"
X, DY, DX = "InputTensor", "InputGradientTensor", "OutputGradientTensor"
DEVICES = ("opencl", "vulkan", "wgpu", "reference")
LOADED = DEVICES[:-1]
TARGETS = {"opencl": "opencl", "vulkan": "hlsl", "wgpu": "wgsl"}


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def wanted(x: Array, dy: Array) -> Array:
    return np.where(x > 0, dy, np.float32(0))


def load(device: str) -> Any:
    return dmlc.load_program(dmlc.compile(NAME, TARGETS[device]), device)


# In and out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [Tensor, FrozenTensor])
def test_results_are_of_the_kind_of_the_inputs(device: str, kind: type[Tensor]) -> None:
    x, dy = values(4, 6), values(4, 6, seed=1)
    found = dmlc.run(NAME, {X: kind(x), DY: kind(dy)}, device=device)
    assert type(found[DX]) is kind
    assert device == "reference" or not getattr(found[DX], "copied", False)
    np.testing.assert_array_equal(found[DX].array, wanted(x, dy), strict=True)
    assert found.report.copies == ()
    assert type(dmlc.run(NAME, [x, dy], device=device)[DX]) is np.ndarray


@pytest.mark.parametrize("device", LOADED)
@pytest.mark.parametrize("kind", [Tensor, FrozenTensor])
def test_executables_take_and_give_them(device: str, kind: type[Tensor]) -> None:
    executable = load(device)
    x, dy = values(4, 6), values(4, 6, seed=1)
    for inputs in ({X: kind(x), DY: kind(dy)}, [kind(x), dy]):
        found = executable(inputs)[DX]
        assert type(found) is kind
        np.testing.assert_array_equal(found.array, wanted(x, dy))
        assert executable.last_report.copies == ()
        # The memory of results is as libraries want it, and neither has to copy it.
        assert not getattr(found, "copied", False)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: a[::2, 1:],
        lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (0, a.itemsize)),
        lambda a: a[:0],
    ],
    ids=["packed", "transposed", "gaps", "expanded", "none"],
)
def test_layouts(device: str, change: Callable[[Array], Array]) -> None:
    x, dy = change(values(4, 6)), change(values(4, 6, seed=1))
    out = change(np.zeros((4, 6), np.float32)) if change(values(4, 6)).strides[0] else None
    outputs = None if out is None else {DX: Tensor(out)}
    found = dmlc.run(NAME, {X: Tensor(x), DY: Tensor(dy)}, outputs=outputs, device=device)
    np.testing.assert_array_equal(found[DX].array, wanted(x, dy))
    if outputs is not None:
        assert found[DX] is outputs[DX]
    if device == "opencl":
        assert found.report.copies == ()


@pytest.mark.parametrize("device", DEVICES)
def test_single_numbers(device: str) -> None:
    out = Tensor(np.zeros((), np.float32))
    inputs = {X: Tensor(np.array(2, np.float32)), DY: np.float32(7)}
    assert dmlc.run(NAME, inputs, device=device)[DX].array.shape == ()
    assert dmlc.run(NAME, inputs, outputs={DX: out}, device=device)[DX] is out
    assert out.array == 7
    with pytest.raises(dmlc.DmlcError, match=f"the array given for the output {DX} is read-only"):
        dmlc.run(NAME, inputs, outputs={DX: np.float32(7)}, device=device)


@pytest.mark.parametrize("device", LOADED)
def test_bound_calls_work_on_the_memory_of_others(device: str) -> None:
    x, dy, out = values(100), values(100, seed=1), np.zeros(100, np.float32)
    call = load(device).bind({X: Tensor(x), DY: Tensor(dy)}, {DX: Tensor(out)})
    x *= -1
    assert type(call()[DX]) is Tensor
    np.testing.assert_array_equal(out, wanted(x, dy))
    call = load(device).bind({X: Tensor(x), DY: Tensor(dy)})
    first = call()[DX]
    np.testing.assert_array_equal(first.array, wanted(x, dy))
    x *= -1
    assert call()[DX] is first
    np.testing.assert_array_equal(first.array, wanted(x, dy))
    assert call.report.copies == ()


@pytest.mark.parametrize("device", LOADED)
def test_bound_calls_leave_alone_what_never_changes(device: str) -> None:
    x, dy = values(100), values(100, seed=1)
    call = load(device).bind({X: Tensor(x), DY: FrozenTensor(dy)})
    assert type(call()[DX]) is Tensor
    call = load(device).bind({X: x, DY: FrozenTensor(dy)})
    before, first = wanted(x, dy), call()[DX]
    x *= -1
    second = call()[DX]
    np.testing.assert_array_equal(first.array, before)
    np.testing.assert_array_equal(second.array, wanted(x, dy))
    (copy,) = call.report.copies
    assert str(copy) == f"{DX} was copied: frozen has no arrays that change with every run"


def test_memory_is_shared_and_not_copied() -> None:
    x = values(4, 6)
    for given in (Tensor(x), FrozenTensor(x), PlainTensor(x), memoryview(x), x):
        found = as_array("X", given)
        assert found.ctypes.data == x.ctypes.data
        assert found.flags.writeable is (type(given) is not FrozenTensor)
    for given in (Tensor(x), PlainTensor(x), memoryview(x), x):
        as_array("X", given, "output")[1, 2] = 5
        assert x[1, 2] == 5
        x[1, 2] = 6
    lined = on_line(x)
    for kind in (Tensor, FrozenTensor):
        made = like("X", lined, kind(x))
        assert type(made) is kind
        assert made.address == lined.ctypes.data
    assert like("X", x, x) is x
    assert like("X", x, memoryview(x)) is x


def test_what_has_to_be_copied_is_said() -> None:
    x, dy = values(4, 6), values(4, 6, seed=1)
    found = dmlc.run(NAME, {X: PlainTensor(x[:, ::-1]), DY: memoryview(dy.astype(">f4"))})
    np.testing.assert_array_equal(found[DX], wanted(x[:, ::-1], dy))
    assert [str(c) for c in found.report.copies] == [
        f"{X} was copied: it is not packed in C order",
        f"{DY} was copied: its bytes are in the other order",
    ]
    both = values(30)
    expected = wanted(both[:20], both[:20])
    inputs = {X: Tensor(both[:20]), DY: Tensor(both[:20].copy())}
    found = dmlc.run(NAME, inputs, outputs={DX: Tensor(both[10:])})
    (copy,) = found.report.copies
    assert str(copy) == f"{X} was copied: it overlaps the output {DX}"
    np.testing.assert_array_equal(both[10:], expected)


@pytest.mark.parametrize("device", ["opencl", "vulkan", "reference"])
def test_bfloat16(device: str) -> None:
    x, dy = values(40).astype(ml_dtypes.bfloat16), values(40, seed=1).astype(ml_dtypes.bfloat16)
    as_bfloat = [PatchedTensor(a.view(np.uint16), code=4) for a in (x, dy)]
    expected = np.where(x > 0, dy, ml_dtypes.bfloat16(0))
    found = dmlc.run("onednn.ReLUBackward", as_bfloat, device=device)["diff_src"]
    assert type(found) is Tensor
    np.testing.assert_array_equal(found.array, expected, strict=True)


# Buffers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_buffers(device: str) -> None:
    x, dy = array.array("f", [-1, 2, 3]), memoryview(np.float32([4, 5, 6]))
    found = dmlc.run(NAME, [x, dy], device=device)[DX]
    assert type(found) is np.ndarray
    assert found.tolist() == [0, 5, 6]
    out = array.array("f", [7, 7, 7])
    assert dmlc.run(NAME, [x, dy], outputs={DX: out}, device=device)[DX] is out
    assert out.tolist() == [0, 5, 6]


def test_bytes_are_read_and_not_written() -> None:
    function = dmlc.ir.parse(
        "func @twice(%A: u8[4]) -> (%B) {\n  %B: u8[i0 < 4] = add(%A[i0], %A[i0])\n}"
    )
    out = bytearray(4)
    assert dmlc.run(function, [b"\1\2\3\4"], outputs={"B": out})["B"] is out
    assert out == b"\2\4\6\x08"
    with pytest.raises(dmlc.DmlcError, match="the array given for the output B is read-only"):
        dmlc.run(function, [b"\1\2\3\4"], outputs={"B": bytes(4)})


# Kinds ----------------------------------------------------------------------------------------


def test_the_first_array_of_a_library_decides() -> None:
    x, dy = values(4), values(4, seed=1)
    ample, frozen = Tensor(x), FrozenTensor(dy)
    assert type(dmlc.run(NAME, {X: x, DY: frozen})[DX]) is FrozenTensor
    assert type(dmlc.run(NAME, {X: ample, DY: frozen})[DX]) is Tensor
    assert type(dmlc.run(NAME, {DY: frozen, X: ample})[DX]) is FrozenTensor
    assert type(dmlc.run(NAME, {X: memoryview(x), DY: PlainTensor(dy)})[DX]) is np.ndarray
    out = np.zeros(4, np.float32)
    assert dmlc.run(NAME, {X: ample, DY: dy}, outputs={DX: out})[DX] is out


def test_arrays_to_write_into_decide_where_no_input_does() -> None:
    function = dmlc.ir.parse(
        "func @two(%A: f32[4]) -> (%B, %C) {\n"
        "  %B: f32[i0 < 4] = neg(%A[i0])\n  %C: f32[i0 < 4] = add(%A[i0], 1.0)\n}"
    )
    out = Tensor(np.zeros(4, np.float32))
    found = dmlc.run(function, [values(4)], outputs={"B": out})
    assert found["B"] is out
    assert type(found["C"]) is Tensor


def test_the_package_of_a_class_is_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("packaged")
    package.__dict__["from_dlpack"] = lambda given: ("packaged", given)
    monkeypatch.setitem(sys.modules, "packaged", package)
    base = type("Base", (), {"__module__": "packaged.deep.inside"})
    derived = type("Derived", (base,), {"__module__": "elsewhere"})
    assert find_library(derived()) == Library(package)
    assert find_library(PlainTensor(values(1))) is None
    assert find_library(np.float32(1)) is None
    assert find_library(array.array("f")) is None


def test_what_says_that_it_is_numpys_gives_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "library", np)
    assert find_library(Tensor(values(1))) is None


def test_a_library_that_changes_the_type_is_refused() -> None:
    function = dmlc.ir.parse(
        "func @wide(%A: f32[4]) -> (%B) {\n  %B: f64[i0 < 4] = cast(%A[i0], f64)\n}"
    )
    message = r"B holds float64, and frozen makes float32 of it\n.*give NumPy arrays to get NumPy"
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(function, [FrozenTensor(values(4))])


def test_a_library_that_takes_no_result_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(given: object) -> object:
        raise RuntimeError("only Tuesdays\nand so on")

    monkeypatch.setattr(Tensor.library, "from_dlpack", refuse)
    with pytest.raises(dmlc.DmlcError, match=f"the result {DX} does not go to ample: only Tuesday"):
        dmlc.run(NAME, [Tensor(values(4)), values(4)])


# Lifetime -------------------------------------------------------------------------------------


class Owner(np.ndarray[Any, Any]):
    """Memory that can be watched."""


def test_memory_lives_as_long_as_it_is_used() -> None:
    for kind in (Tensor, PlainTensor):
        owner = values(100).view(Owner)
        watch = weakref.ref(owner)
        call = load("opencl").bind({X: kind(owner[:]), DY: values(100)})
        del owner
        gc.collect()
        assert watch() is not None
        call()
        del call
        gc.collect()
        assert watch() is None


def test_memory_is_given_back_where_it_is_refused() -> None:
    owner = values(100).view(Owner)
    watch = weakref.ref(owner)
    with pytest.raises(dmlc.DmlcError, match="holds float8"):
        as_array("X", PatchedTensor(owner[:], code=10, bits=8))
    found = as_array("X", PatchedTensor(owner[:], code=4, bits=16), "output")
    assert found.dtype == ml_dtypes.bfloat16
    del owner
    gc.collect()
    assert watch() is not None
    del found
    gc.collect()
    assert watch() is None


# What is refused ------------------------------------------------------------------------------


class Closed(Tensor):
    """An array whose library does not share it."""

    def __dlpack__(self, **options: Any) -> object:
        raise ValueError("not today\nnor tomorrow")


class Elsewhere(Closed):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 3


class Nowhere(Closed):
    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("it is nowhere")


class Negated(Tensor):
    def is_neg(self) -> bool:
        return True


class Misdescribed:
    __array_interface__ = ("typestr", "<f4")


def numbers(**patch: Any) -> PatchedTensor:
    return PatchedTensor(values(4), **patch)


@pytest.mark.parametrize("device", ["opencl", "reference"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (numbers(device=(2, 1)), f"input {X} is in the memory of CUDA device 1, and .* the host"),
        (numbers(device=(2, 1)), r"copy it to the host first, as tensor.cpu\(\) does in PyTorch"),
        (numbers(device=(10, 0)), "in the memory of ROCm device 0"),
        (numbers(device=(99, 0)), "in the memory of DLPack type 99 device 0"),
        (Elsewhere(values(4)), "in the memory of CUDA device 3"),
        (Closed(values(4)), rf"{X} is a tests\..*\.Closed whose memory .* shared: not today"),
        (Nowhere(values(4)), "memory cannot be shared: not today\n.*nor tomorrow"),
        (Negated(values(4)), r"its values are negated when read: resolve_neg\(\)"),
        (numbers(code=5, bits=64), f"given for {X} holds complex64, which no tensor can hold"),
        (numbers(code=10, bits=8), "holds float8, which no tensor can hold"),
        (numbers(code=77, bits=8), "holds DLPack type 77 of 8 bits, which no tensor can hold"),
        (memoryview(np.array(["a", "b"])), "holds <U1, which no tensor can hold"),
        (PlainTensor(np.zeros(4, complex)), "holds complex128, which no tensor can hold"),
        (Misdescribed(), "Misdescribed whose memory cannot be shared"),
        (Tensor, f"the input {X} is the type Tensor, and an array is expected"),
        (dmlc.TensorDesc("f32", (4,)), f"the input {X} is a TensorDesc, and an array is expected"),
        ("text", f"the input {X} is 'text', and an array is expected"),
        (5, f"the input {X} is 5, and an array is expected"),
        ([1.0], r"is a list, and an array is expected \[E0903\]\n.*numpy.asarray\(values"),
    ],
)
def test_inputs_that_cannot_be_taken(device: str, given: Any, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, {X: given, DY: values(4)}, device=device)


def test_what_is_no_array_is_a_type_error() -> None:
    for inputs in ({X: 5, DY: values(4)}, [values(4), "text"], Tensor(values(4))):
        with pytest.raises(TypeError):
            dmlc.run(NAME, inputs)
        with pytest.raises(TypeError):
            load("opencl")(inputs)
    with pytest.raises(dmlc.UnsupportedError):
        load("opencl").bind([values(4), numbers(device=(2, 0))])


def read_only(found: Array) -> Array:
    found.flags.writeable = False
    return found


@pytest.mark.parametrize("device", ["opencl", "reference"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FrozenTensor(values(4)), f"the array given for the output {DX} is read-only"),
        (Tensor(read_only(values(4))), f"the array given for the output {DX} is read-only"),
        (PlainTensor(read_only(values(4))), "is read-only"),
        (np.float32(3), "sizes|Sizes|read-only"),
        (numbers(device=(2, 0)), f"the output {DX} is in the memory of CUDA device 0"),
        (Negated(values(4)), f"output {DX} is a .*Negated whose memory cannot be shared"),
        (Tensor(np.broadcast_to(np.float32(0), 4)), "read-only|overlap"),
        (Tensor(values(5)), r"has the sizes \[5\]|Sizes"),
        (np.ma.zeros(4, "f4"), f"the output {DX} is a masked array"),
        ("text", f"the output {DX} takes an array to write into or a tuple of sizes, and 'text'"),
    ],
)
def test_outputs_that_cannot_be_written(device: str, given: Any, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.run(NAME, [values(4), values(4)], outputs={DX: given}, device=device)


def test_a_copy_in_place_of_an_output_is_refused() -> None:
    class Copied(Tensor):
        def __dlpack__(
            self, *, max_version: tuple[int, int], copy: bool | None = None, **options: Any
        ) -> object:
            if copy is False:
                raise BufferError("it cannot be shared")
            return self.array.__dlpack__(max_version=max_version, copy=True)

    with pytest.raises(dmlc.DmlcError, match=f"the output {DX} shares a copy of its memory"):
        dmlc.run(NAME, [values(4), values(4)], outputs={DX: Copied(values(4))})
    assert type(dmlc.run(NAME, [Copied(values(4)), values(4)])[DX]) is Tensor
