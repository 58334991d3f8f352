"""Which kernels are built together, and what a driver is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.program import KernelSource
from dmlc.runtime import opencl
from dmlc.runtime.opencl import builds, driver
from dmlc.runtime.opencl.executable import Executable
from dmlc.source import DmlcError
from tests.runtime.test_renaming import INPUTS, make_sums


@pytest.fixture(name="given")
def fixture_given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that a driver is given, as they are."""
    plain, given = builds.Builds.compile, list[str]()

    def compile_source(own: builds.Builds, source: str, options: Sequence[str], unit: int) -> Any:
        given.append(source)
        return plain(own, source, options, unit)

    monkeypatch.setattr(builds.Builds, "compile", compile_source)
    return given


def open_session() -> driver.Session:
    return driver.Session(opencl.find_device(), driver._state.handles)


def source_of(name: str, body: str, before: str = "") -> KernelSource:
    """A kernel that adds to the first element of a buffer."""
    (kernel, *_) = make_sums().kernels
    source = f"{before}\n\n__kernel void {name}(__global float *x)\n{{\n    {body}\n}}\n"
    return dataclasses.replace(kernel, name=name, entry_point=name, source=source)


def test_a_program_is_one_module_with_equal_kernels_once(given: list[str]) -> None:
    session, program = open_session(), make_sums()
    executable = Executable(program, session)
    (source,) = given
    assert source.count("__kernel void") == 2
    assert source.count("#pragma OPENCL FP_CONTRACT OFF") == 1
    names = list(INPUTS)
    inputs = {n: np.full((4, INPUTS[n]), k + 1, np.float32) for k, n in enumerate(names)}
    found = executable(inputs)
    for number, name in enumerate(names, 1):
        assert np.array_equal(found[f"{name}_sum"], np.full((4, 1), number * INPUTS[name]))
    Executable(program, session)
    assert len(given) == 1


def test_macros_and_pragmas_are_of_their_own_module(given: list[str]) -> None:
    plain = source_of("plain", "x[0] += sqrt(x[1]);")
    other = source_of("other", "x[0] += N;", "#define sqrt(x) 0\n#define N 1")
    third = source_of("third", "x[0] += 3 * N;", "#define N 2")
    again = source_of("again", "x[0] += 2;")
    open_session().builds.find([plain, other, third, again], 0)
    assert sorted(source.count("__kernel") for source in given) == [1, 1, 2]


def test_kernels_of_one_name_are_apart(given: list[str]) -> None:
    first, second = source_of("same", "x[0] += 1;"), source_of("same", "x[0] += 2;")
    one, other = open_session().builds.find([first, second], 0)
    assert len(given) == 2
    assert one.module is not other.module


def test_functions_of_one_name_are_built_apart(given: list[str]) -> None:
    """What a driver refuses together is built one by one."""
    functions = [f"static float f(float x)\n{{\n    return {k};\n}}" for k in range(2)]
    kernels = [source_of(f"k{n}", "x[0] = f(x[0]);", f) for n, f in enumerate(functions)]
    open_session().builds.find(kernels, 0)
    assert [source.count("__kernel") for source in given] == [2, 1, 1]


def test_a_mistake_is_told_of_the_kernel_that_has_it(given: list[str]) -> None:
    right, wrong = source_of("right", "x[0] += 1;"), source_of("wrong", "x[0] = unknown;")
    with pytest.raises(DmlcError, match="does not compile the kernel wrong") as caught:
        open_session().builds.find([right, wrong], 0)
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert span.source.text == wrong.source
    assert span.line == 5
    assert len(given) == 3


def test_what_several_have_stands_once() -> None:
    helper = "// Twice.\nstatic int f(int x)\n{\n    x += x;\n\n    return x;\n}"
    kernels = [f"#pragma A\n\n{helper}\n\n__kernel void k{n}()\n{{\n}}\n" for n in range(2)]
    joined = builds.join_sources(kernels)
    assert joined.count(helper) == joined.count("#pragma A") == 1
    assert joined.endswith("__kernel void k0()\n{\n}\n\n__kernel void k1()\n{\n}\n")


def test_versions_are_built_that_run(given: list[str]) -> None:
    described = {"InputTensor": dmlc.TensorDesc("FLOAT32", ("N",))}
    attributes = {"Function": "SUM", "Axes": [0]}
    function = dmlc.operator("directml.REDUCE").bind(described, attributes)
    program = dmlc.compile(function, profile="cpu")
    executable = Executable(program, open_session())
    assert not given
    few, many = np.ones(100, np.float32), np.ones(1 << 17, np.float32)
    for array, modules in ((few, 1), (few, 1), (many, 2), (few, 2)):
        assert executable([array])["OutputTensor"] == array.size
        assert len(set(given)) == modules
    built = sum(source.count("__kernel void") for source in set(given))
    assert built == len(program.kernels)
