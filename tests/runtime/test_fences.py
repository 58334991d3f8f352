"""Stray stores and reads are found, told by tensor, element and kernel, on every runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import dmlc
from dmlc import TensorDesc
from dmlc.pipeline import compile
from dmlc.program import Program, Role
from dmlc.runtime import opencl, vulkan, wgpu
from dmlc.runtime.fences import Fenced, check_stores, fence
from dmlc.runtime.interface import AnyExecutable
from dmlc.runtime.opencl.device import Memory
from dmlc.runtime.opencl.driver import open_session
from dmlc.runtime.opencl.executable import Executable
from dmlc.scalars import Array
from tests.runtime import handmade, handmade_hlsl, handmade_wgsl

A = {"A": np.arange(37, dtype=np.float32)}
XY = {"X": np.arange(70, dtype=np.float32), "dY": np.arange(70, dtype=np.float32)}


def change(program: Program, number: int, old: str, new: str) -> Program:
    """The program with a break in one of its kernels."""
    kernels = list(program.kernels)
    source = kernels[number].source
    assert source.count(old) == 1
    kernels[number] = dataclasses.replace(kernels[number], source=source.replace(old, new))
    return dataclasses.replace(program, kernels=tuple(kernels))


def test_programs_that_do_nothing_wrong_are_left_in_peace() -> None:
    assert check_stores(handmade.relu_grad(), opencl.load, XY, {}) == []
    assert check_stores(handmade.square_then_double(), opencl.load, A, {}) == []
    assert check_stores(handmade.count_up(), opencl.load, {}, {"A": (4, 3)}) == []
    assert check_stores(handmade_hlsl.relu_grad(), vulkan.load, XY, {}) == []
    assert check_stores(handmade_hlsl.square_then_double(), vulkan.load, A, {}) == []
    assert check_stores(handmade_wgsl.relu_grad(), wgpu.load, XY, {}) == []
    gaps = handmade.add_one((3, 4), None, "i", (10, 2), "i / 4 * 10 + i % 4 * 2")
    given = {"A": np.ones((3, 4), np.float32)}
    assert check_stores(gaps, opencl.load, given, {}) == []
    none = {"A": np.ones((0,), np.float32)}
    assert check_stores(handmade.square_then_double(), opencl.load, none, {}) == []


BEHIND = [
    (opencl.load, change(handmade.relu_grad(), 0, "i < end", "i < end + 2")),
    (vulkan.load, change(handmade_hlsl.relu_grad(), 0, "i < n", "i < n + 2")),
    (wgpu.load, change(handmade_wgsl.relu_grad(), 0, "i < arguments.n", "i < arguments.n + 2u")),
]


@pytest.mark.parametrize(("load", "program"), BEHIND, ids=["opencl", "vulkan", "wgpu"])
def test_a_store_behind_the_last_element(
    load: Callable[[Program], AnyExecutable], program: Program
) -> None:
    found = check_stores(program, load, XY, {})
    expected = "the kernel relu_grad stores into dX at element 70 (behind its last element"
    assert any(said.startswith(expected) for said in found)
    assert not any("into X" in said or "into dY" in said for said in found)


@pytest.mark.parametrize(("model", "shares"), [("6.0", True), ("6.2", False)])
def test_what_fills_up_the_last_word(model: str, shares: bool) -> None:
    """Two halves share a word before shader model 6.2: there kernels store all of the last one."""
    given = {n: np.ones(37, np.float16) for n in ("InputTensor", "InputGradientTensor")}
    described = {n: TensorDesc("FLOAT16", (37,)) for n in given}
    function = dmlc.operator("directml.ACTIVATION_RELU_GRAD").bind(described)
    program = compile(function, "hlsl", shader_model=model)
    assert check_stores(program, vulkan.load, given, {}) == []
    found = check_stores(change(program, 0, "if (i < n)", "if (i < n + 1)"), vulkan.load, given, {})
    said = "stores into OutputGradientTensor at element 37 (behind its last element"
    assert any(said in each for each in found) != shares


@pytest.mark.parametrize("memory", list(Memory), ids=lambda m: m.value)
def test_every_way_of_getting_arrays_to_an_opencl_device(memory: Memory) -> None:
    """The default device, treated as one that has another kind of memory."""
    device = dataclasses.replace(opencl.find_device(), memory=memory)

    def load(program: Program) -> AnyExecutable:
        return Executable(program, open_session(device))

    assert check_stores(handmade.square_then_double(), load, A, {}) == []
    gaps = handmade.add_one((3, 4), None, "i", (10, 2), "i / 4 * 10 + i % 4 * 2")
    given = {"A": np.ones((3, 4), np.float32)}
    assert check_stores(gaps, load, given, {}) == []
    found = check_stores(change(gaps, 0, "i % 4 * 2", "i % 4 * 2 + (i == 3)"), load, given, {})
    assert any("into B at element 7 (in a gap between its elements" in said for said in found)
    found = check_stores(BEHIND[0][1], load, XY, {})
    assert any("into dX at element 70 (behind its last element" in said for said in found)


def test_a_store_before_the_first_element() -> None:
    program = change(
        handmade.count_up(), 0, "a[get_global_id(0)] =", "a[-1 - (int)get_global_id(0)] ="
    )
    found = check_stores(program, opencl.load, {}, {"A": (5,)})
    assert any("into A at element -5 (before its first element; 20 bytes" in s for s in found)


@pytest.mark.parametrize(
    ("load", "made"), [(opencl.load, handmade), (vulkan.load, handmade_hlsl)], ids=["cl", "hlsl"]
)
def test_a_store_between_the_elements_of_an_output(
    load: Callable[[Program], AnyExecutable], made: type[handmade]
) -> None:
    program = made.add_one((3, 4), None, "i", (10, 2), "i / 4 * 10 + i % 4 * 2 + i / 11")
    found = check_stores(program, load, {"A": np.ones((3, 4), np.float32)}, {})
    assert any("into B at element 27 (behind its last" in said for said in found)
    program = made.add_one((3, 4), None, "i", (10, 2), "i / 4 * 10 + i % 4 * 2 + (i == 3)")
    found = check_stores(program, load, {"A": np.ones((3, 4), np.float32)}, {})
    assert any("into B at element 7 (in a gap between its elements" in s for s in found)


def test_a_store_into_an_input() -> None:
    program = change(
        handmade.square_then_double(), 1, "b[i] =", "((__global float *)a)[3] = 9; b[i] ="
    )
    found = check_stores(program, opencl.load, A, {})
    assert any("the kernel finish stores into A at element 3 (an input's own" in s for s in found)


def test_a_store_beside_memory_between_kernels_names_the_kernel() -> None:
    for made, load, old in (
        (handmade, opencl.load, "s[i] ="),
        (handmade_hlsl, vulkan.load, "S[i] ="),
    ):
        program = change(made.square_then_double(), 0, old, f"{old[0]}[i + 1] = {old}")
        found = check_stores(program, load, A, {})
        assert any("the kernel square stores into S at element 37 (beh" in s for s in found)


def test_results_that_come_from_outside_all_tensors() -> None:
    for made, load in ((handmade, opencl.load), (handmade_hlsl, vulkan.load)):
        program = made.add_one((3, 4), None, "i + (i == 5) * 30")
        (said,) = check_stores(program, load, {"A": np.ones((3, 4), np.float32)}, {})
        assert said.startswith("B[1, 1] is ")
        assert "by what lies outside all tensors" in said
        assert "(1 of 12 elements)" in said


def test_results_that_nothing_stored() -> None:
    program = change(
        handmade.count_up(),
        0,
        "a[get_global_id(0)] =",
        "if (get_global_id(0) != 2) a[get_global_id(0)] =",
    )
    (said,) = check_stores(program, opencl.load, {}, {"A": (5,)})
    assert said.startswith("A[2] is ")
    assert "of what nothing stored before (1 of 5 elements)" in said


class Careless:
    """A runtime that brings whole memories back to the caller, gaps and all."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._loaded = opencl.load(program)
        self.bind = self._loaded.bind

    def __call__(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        found = self._loaded(inputs, outputs)
        array = found["B"]
        if not array.flags.c_contiguous:
            as_strided(array, (2,), (4,))[1] = 0
        return found


def test_what_a_runtime_stores_into_the_callers_gaps_is_found() -> None:
    program = handmade.add_one((3, 4), None, "i")
    load = cast("Callable[[Program], AnyExecutable]", Careless)
    (said,) = check_stores(program, load, {"A": np.ones((3, 4), np.float32)}, {})
    assert said.startswith("with arrays copied, a run changes B at element 1 (in a gap")


def test_a_fenced_program_has_a_memory_of_its_own_for_each_tensor() -> None:
    program = fence(handmade.square_then_double(), {"n": 10})
    assert {t.role for t in program.tensors} == {Role.OUTPUT}
    assert all(t.extents == (10 + 4096,) for t in program.tensors)
    assert not program.symbols
    assert [k.dispatch.groups({}) for k in program.kernels] == [(10, 1, 1)] * 2


def test_arrays_begin_where_they_are_asked_to() -> None:
    random = np.random.default_rng(1)
    for item in (np.uint8, np.float16, np.float64):
        for misaligned in (0, 1):
            made = Fenced(
                np.dtype(item), (3, 2), (4, 2), random, misaligned * np.dtype(item).itemsize
            )
            start = made.view.ctypes.data
            assert start % 64 == misaligned * made.view.itemsize
            assert made.memory.ctypes.data == start
            made.settle(written=True)
            made.view[...] = 1
            assert made.find_stray() == []
            made.memory.view(np.uint8)[made.view.itemsize] ^= 1
            assert {place // made.view.itemsize for place in made.find_stray()} == {1}
