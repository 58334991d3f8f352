"""Kernels that are equal but for their names, and those that only look so."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

from dmlc.building import GraphBuilder
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.runtime.renaming import find_equal, rename
from tests.runtime import handmade

INPUTS = {"a": 512, "max": 512, "isnan": 512, "longer": 768}
"""The lengths of rows by the name of what has them. Two are called as functions are."""


def make_sums(names: Iterable[str] = INPUTS, target: str = "opencl") -> Program:
    """The sum of each row of some of these inputs."""
    g = GraphBuilder("sums")
    for name in names:
        g.output(f"{name}_sum", g.sum(g.input(name, "FLOAT32", [4, INPUTS[name]]), axes=[1]))
    return compile(g.build(), target)


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_kernels_that_differ_in_names_are_equal(target: str) -> None:
    kernels = [kernel for name in INPUTS for kernel in make_sums([name], target).kernels]
    assert len({k.source for k in kernels}) == 4
    assert find_equal(kernels) == [0, 0, 0, 3]


def test_what_is_bound_otherwise_is_not_equal() -> None:
    first, *others = handmade.relu_grad().kernels * 4
    read, *rest = first.buffers
    bound = dataclasses.replace(first, buffers=(dataclasses.replace(read, slot=7), *rest))
    launch = dataclasses.replace(first.dispatch, group_size=64)
    grouped = dataclasses.replace(first, dispatch=launch)
    kept = dataclasses.replace(first, float_controls=(32,))
    assert others[0] is first
    assert find_equal([first, bound, grouped, kept, first]) == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("float a = sqrt(x);", "float a = exp(x);"),
        ("float a = INFINITY;", "float a = NAN;"),
        ("float a = x; float b = a + x;", "float a = x; float b = x + x;"),
        ("float a = x; y = - -a;", "float a = x; y = --a;"),
        ("float2 y; float a = v.x;", "float2 x; float a = v.x;"),
        ("#define N 4\nfloat a = N;", "#define N 5\nfloat a = N;"),
        ("#define N a\nfloat a = N;", "#define N b\nfloat b = N;"),
        ("float a = 1e-5f;", "float a = 1e+5f;"),
    ],
)
def test_texts_that_are_not_renamed_alike(one: str, other: str) -> None:
    assert rename(one, ["f"]) != rename(other, ["f"])


def test_texts_that_are_renamed_alike() -> None:
    one = "void f(const float *in) { /* of in */ float in_value = in[0]; }"
    other = "void g(const float *x) {\n  // of x\n  float value = x[0];\n}"
    assert rename(one, ["f", "in"]) == rename(other, ["g", "x"])
