"""No operator of the library does in memory what it may not; and one that did would be found."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dmlc import api
from dmlc.binding import TensorDesc
from dmlc.catalog import operator
from dmlc.ir import parse
from dmlc.kernel.nodes import Kernel
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.pipeline import USUAL, Steps
from dmlc.runtime import opencl
from dmlc.runtime.vulkan import context
from dmlc.scalars import DataType
from dmlc.source import UnavailableError, UnsupportedError
from dmlc.testing.case import Call, Case, lay_out
from dmlc.testing.examples import read_cases
from dmlc.testing.memory import INTERPRETER, check_memory, check_run, name_tool
from tests.ir.test_loops import RECURRENT
from tests.library.run import list_unlike

FLOAT32 = DataType.FLOAT32


def find_case(name: str) -> Case:
    """The first example of an operator in FLOAT32, or in what it has."""
    found = operator(name)
    first: list[Case] = []
    for example in found.definition.examples:
        for case in read_cases(found, example):
            if next(iter(case.call.tensors.values())).data_type is FLOAT32:
                return case
            first.append(case)
    return first[0]


@pytest.mark.grid(2)
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("name", list_unlike())
def test_the_library(name: str, device: str) -> None:
    assert check_memory(find_case(name), device) == []


RELU_GRAD = "directml.ACTIVATION_RELU_GRAD"
SOFTMAX = "directml.ACTIVATION_SOFTMAX1"
X = np.linspace(-3, 3, 1003, dtype=np.float32)
GIVEN = {"InputTensor": X, "InputGradientTensor": X}


@pytest.mark.parametrize("device", ["opencl", "vulkan", "wgpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_whole_vectors_and_what_is_left_of_them(device: str, dtype: type[np.generic]) -> None:
    given = {name: array.astype(dtype) for name, array in GIVEN.items()}
    assert check_run(RELU_GRAD, given, device=device) == []
    rows = {"InputTensor": X[:999].reshape(3, 333).astype(dtype)}
    assert check_run(SOFTMAX, rows, {"Axes": [1]}, device=device) == []


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_inputs_that_strides_of_0_repeat(device: str) -> None:
    """As a whole, and each of its rows, which lie apart."""
    relu = operator("directml.ACTIVATION_RELU")
    values = np.broadcast_to(X[:30:2, None], (4, 15, 3))
    desc = TensorDesc("FLOAT32", (4, 15, 3), (0, 2, 0))
    call = Call(relu, {"InputTensor": desc, "OutputTensor": TensorDesc("FLOAT32", (4, 15, 3))}, {})
    case = Case(call, {"InputTensor": lay_out(values, desc)}, "strides of 0")
    assert check_memory(case, device) == []


def break_kernels(old: str, new: str) -> Steps:
    """The usual steps, with every kernel broken, where it has a text: what is compiled from it, and
    what is interpreted."""

    def lower(*given: Any) -> tuple[Kernel, ...]:
        kernels = USUAL.lower(*given)
        return tuple(parse_kernel(print_kernel(kernel).replace(old, new)) for kernel in kernels)

    return dataclasses.replace(USUAL, lower=lower)


@pytest.fixture(params=["own", "interpreter"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What watches OpenCL: the tool of this machine, and what stands in where there is none."""
    if request.param == "interpreter":
        monkeypatch.setattr(opencl, "find_oclgrind", lambda: None)
        assert name_tool("opencl") == INTERPRETER
    return name_tool("opencl")


def test_a_store_behind_an_output_is_told_by_both_means() -> None:
    """The function for the sizes alone is broken: what ran serves all sizes, and is right."""
    steps = break_kernels("lt(i, n)", "lt(i, add(n, 1))")
    found = check_run(RELU_GRAD, GIVEN, device="vulkan", steps=steps)
    stray = "gpu: the kernel ACTIVATION_RELU_GRAD stores into OutputGradientTensor at element 1003"
    assert any(said.startswith(stray) for said in found)
    watched = "gpu: the kernel ACTIVATION_RELU_GRAD: "
    assert any(said.startswith(watched) and "out of bounds" in said for said in found)


def test_a_read_behind_an_input_is_found(tool: str) -> None:
    # Of few elements all may be the same by chance, whatever lies behind the input.
    steps = break_kernels("= InputTensor[i]", "= InputTensor[add(i, 40)]")
    found = check_run(RELU_GRAD, GIVEN, device="opencl", steps=steps)
    assert any("by what lies outside all tensors" in said for said in found)
    said = {
        "Oclgrind": "(InputTensor): Invalid read of size 4 at global memory",
        INTERPRETER: "element 1003 of 'InputTensor', which has 1003",
    }
    assert any(said[tool] in each for each in found)


def test_a_missing_barrier_is_found(tool: str) -> None:
    rows = {"InputTensor": np.ones((2, 3000), np.float32)}
    steps = break_kernels("  barrier\n", "")
    found = check_run(SOFTMAX, rows, {"Axes": [1]}, steps=steps)
    said = {"Oclgrind": "data race at local memory", INTERPRETER: "where another item writes it"}
    assert any(said[tool] in each for each in found)


def test_nothing_is_said_of_what_is_right(tool: str) -> None:
    """Of sizes that no input says, of kernels for all sizes, and of a loop."""
    values = {"ValueDataType": "FLOAT32", "Value": 2.0}
    filled = np.empty((3, 5), np.float32)
    assert check_run("directml.FILL_VALUE_CONSTANT", {}, values, {"OutputTensor": filled}) == []
    assert check_run(RELU_GRAD, GIVEN) == []
    loop = parse(RECURRENT.replace("f64", "f32"))
    x = X[:12].reshape(4, 3)
    assert check_run(loop, {"X": x, "R": np.ascontiguousarray(X[:9].reshape(3, 3))}) == []


def test_devices_without_a_tool_have_the_interpreter() -> None:
    steps = break_kernels("lt(i, n)", "lt(i, add(n, 1))")
    assert name_tool("wgpu") == INTERPRETER
    found = check_run(RELU_GRAD, GIVEN, device="wgpu", steps=steps)
    assert any("element 1003 of 'InputTensor', which has 1003" in said for said in found)


def test_what_cannot_be_checked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="the reference has no kernels"):
        check_run(RELU_GRAD, GIVEN, device="reference")
    monkeypatch.setattr(context, "VALIDATION_LAYER", "VK_LAYER_missing")
    monkeypatch.setattr(context._process, "instances", {})  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(context._process, "contexts", {})  # pyright: ignore[reportPrivateUsage]
    before = context.set_validation(context.Validation.NONE)
    try:
        with pytest.raises(UnavailableError, match="validation layer is not installed") as caught:
            check_run(RELU_GRAD, GIVEN, device="vulkan")
    finally:
        context.set_validation(before)
    assert "apt-get install vulkan-validationlayers" in str(caught.value)


def test_what_is_checked_is_what_runs() -> None:
    plan = api.plan_run(RELU_GRAD, GIVEN)
    assert plan.executable is not None
    assert plan.executable.program.symbols == ("n",)
    assert plan.function.symbols() == ()
    swapped = {n: a.reshape(17, 59).T for n, a in GIVEN.items()}
    assert check_run(RELU_GRAD, swapped) == []
