"""Equal groups of a program: one is lowered for all, and each kernel is what it is alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dmlc import UnsupportedError, ir, pipeline
from dmlc.alike import Alike
from dmlc.building import GraphBuilder
from dmlc.building.values import Value
from dmlc.ir import Function
from dmlc.kernel.nodes import Kernel

Make = Callable[[Sequence[str]], Function]


def write(tensors: Sequence[str], sizes: str, stages: str, chained: bool = True) -> Function:
    """Function with stages for each of some tensors, `$`, which is a parameter of these sizes; `@`
    is what the stages before give, or `first`."""
    given = [f"%{name}: f32[{sizes}]" for name in tensors]
    results = [f"%{name}_out" for name in tensors]
    lines: list[str] = []
    before = "first"
    for name in tensors:
        lines.append(stages.replace("$", name).replace("@", before))
        before = f"{name}_out" if chained else before
    head = f"func @repeated(%first: f32[{sizes}], {', '.join(given)}) -> ({', '.join(results)})"
    return ir.parse("\n".join([f"{head} {{", *lines, "}"]))


def make_sums(tensors: Sequence[str]) -> Function:
    return write(tensors, "64, 64", "%$_out: f32[i0 < 64] = sum[r0 < 64] exp(%$[i0, r0])", False)


def make_products(tensors: Sequence[str]) -> Function:
    stages = """%$_sum: f32[i0 < 64, i1 < 64] = sum[r0 < 64] mul(%@[i0, r0], %$[r0, i1])
    %$_out: f32[i0 < 64, i1 < 64] = tanh(add(%$_sum[i0, i1], %first[0, i1]))"""
    return write(tensors, "64, 64", stages)


def make_windows(tensors: Sequence[str]) -> Function:
    stages = """%$_sum: f32[i0 < 40, i1 < 40] = sum[r0 < 3, r1 < 3 where
        and(and(ge(sub(add(i0, r0), 1), 0), lt(sub(add(i0, r0), 1), 40)),
            and(ge(sub(add(i1, r1), 1), 0), lt(sub(add(i1, r1), 1), 40)))]
        mul(%@[sub(add(i0, r0), 1), sub(add(i1, r1), 1)], %$[r0, r1])
    %$_out: f32[i0 < 40, i1 < 40] = max(%$_sum[i0, i1], 0.0)"""
    return write(tensors, "40, 40", stages)


def make_scans(tensors: Sequence[str]) -> Function:
    """Running sums along rows: kernels that come from text."""
    g = GraphBuilder("repeated")
    for each in tensors:
        given = g.input(each, "FLOAT32", [8, 600])
        made = g.directml.CUMULATIVE_SUMMATION(
            InputTensor=given, Axis=1, AxisDirection="INCREASING", HasExclusiveSum=False
        )
        assert isinstance(made, Value)
        g.output(f"{each}_total", made)
    return g.build().bind()


NAMES = {
    "plain": ["FirstInputTensor", "SecondInputTensor", "model_3_weights"],
    "of the compiler": ["n", "output", "a", "a_value"],
    "alike": ["Ab", "ab", "x", "x_2"],
}


def make_kernels(function: Function, target: str, profile: str) -> tuple[Kernel, ...]:
    return pipeline.make_kernels(function, target, profile)[1]


class _Apart(Alike):
    def __init__(self, function: Function, groups: Sequence[Any], *rest: Any) -> None:
        super().__init__(function, (), *rest)


def count_lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the names of functions whose groups are lowered."""
    lowered: list[str] = []
    lower = pipeline.lower_versions

    def note(function: Function, group: Any, *rest: Any) -> tuple[Kernel, ...]:
        lowered.append(group.stages[0])
        return lower(function, group, *rest)

    monkeypatch.setattr(pipeline, "lower_versions", note)
    return lowered


@pytest.mark.parametrize(("target", "profile"), [("opencl", "cpu"), ("hlsl", "gpu")])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("make", [make_sums, make_products, make_windows, make_scans])
def test_kernels_are_those_that_groups_have_alone(
    make: Make, names: Sequence[str], target: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = make(names)
    found = make_kernels(function, target, profile)
    monkeypatch.setattr(pipeline, "Alike", _Apart)
    assert found == make_kernels(function, target, profile)


@pytest.mark.parametrize("make", [make_sums, make_products, make_windows, make_scans])
def test_equal_groups_are_lowered_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = count_lowered(monkeypatch)
    function = make([f"weights_{letter}" for letter in "abcdef"])
    groups = pipeline.find_fusion(function, "opencl", "cpu").groups
    make_kernels(function, "opencl", "cpu")
    assert len(groups) >= 6
    assert len(lowered) <= len(groups) // 2


def make_gathers(weights: Sequence[float], positions: Sequence[int]) -> Function:
    """Weighted sums of gathered elements, with a weight and the first position of each."""
    given = ", ".join(f"%x{n}: f32[64, 96]" for n, _ in enumerate(weights))
    results = ", ".join(f"%y{n}" for n, _ in enumerate(weights))
    lines = [f"func @f({given}) -> ({results}) {{"]
    for n, (weight, position) in enumerate(zip(weights, positions, strict=True)):
        lines += [
            f"table %w{n}: f32[40] = {{{', '.join([str(weight)] * 40)}}}",
            f"table %p{n}: s32[40] = {{{', '.join([str(position)] * 40)}}}",
        ]
    for n, _ in enumerate(weights):
        lines.append(
            f"%y{n}: f32[i0 < 64] = sum[r0 < 40] mul(%x{n}[i0, cast(%p{n}[r0], index)], %w{n}[r0])"
        )
    return ir.parse("\n".join([*lines, "}"]))


def test_weights_may_differ_and_positions_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = count_lowered(monkeypatch)
    for positions, kinds in (((3, 3, 3), 1), ((3, 3, 7), 2), ((1, 2, 3), 3)):
        lowered.clear()
        function = make_gathers((0.5, 1.5, 2.5), positions)
        assert len(pipeline.find_fusion(function, "opencl", "cpu").groups) == 3
        make_kernels(function, "opencl", "cpu")
        assert len(lowered) == kinds


def test_open_sizes_are_lowered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = count_lowered(monkeypatch)
    g = GraphBuilder("open")
    (size,) = g.symbols("N")
    for each in "abc":
        g.output(f"{each}_sum", g.sum(g.input(each, "FLOAT32", [64, size]), axes=[1]))
    function = g.build().bind()
    make_kernels(function, "opencl", "cpu")
    assert set(lowered) == {"a_sum", "b_sum", "c_sum"}


def test_a_message_has_the_names_of_the_group() -> None:
    stages = "%$_out: f16[i0 < 64] = sum[r0 < 64] %$[i0, r0]"
    function = write("ab", "64, 64", stages, False)
    with pytest.raises(UnsupportedError, match="'a_out' is FLOAT16 and computed from a reduction"):
        pipeline.make_kernels(function, "hlsl", shader_model="6.0")
