"""Which outputs go together where a fold depends on positions, and what their kernels look like."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.render import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.group import lower_group
from dmlc.kernel.schedule import CPU
from dmlc.pipeline import rewrite
from dmlc.transform.fuse import fuse
from tests.kernel.statements import walk

LIMITS = find_dialect("opencl").limits

POOL = """
func @pool(%x: {dtype}[4, {height}, {width}]{more}) -> (%y){pairs} {{
  %{total}: {dtype}[i0 < 4, i1 < {n}, i2 < {n}] = {combiner}[r0 < {window}, r1 < {window}] {{
    v0 = sub(add(mul(i1, {stride}), r0), {pad})
    v1 = sub(add(mul(i2, {stride}), r1), {pad})
    where and(and(ge(v0, 0), lt(v0, {height})), and(ge(v1, 0), lt(v1, {width})))
    %x[i0, v0, v1]
  }}{after}
}}
"""  # fmt: skip


def make_pool(
    size: int,
    window: int,
    stride: int,
    pad: int,
    combiner: str = "max",
    dtype: str = "f32",
    after: str = "",
    more: str = "",
    pairs: str = "",
) -> ir.Function:
    outputs = (size + 2 * pad - window) // stride + 1
    return ir.parse(
        POOL.format(
            dtype=dtype, height=size, width=size, n=outputs, combiner=combiner,
            window=window, stride=stride, pad=pad, total="s" if after else "y", more=more,
            pairs=pairs, after=after,
        )
    )  # fmt: skip


def lower(function: ir.Function) -> k.Kernel:
    fusion = fuse(rewrite(function, CPU.row), CPU.row)
    (kernel,) = (
        kernel
        for group in fusion.groups
        for kernel in lower_group(fusion.function, group, CPU, LIMITS)
    )
    return kernel


def list_rows(kernel: k.Kernel) -> list[tuple[object, object, int]]:
    """Start, end and step of the loops along rows."""
    return [
        (s.start.value, s.stop.value, s.step)
        for s in walk(kernel.body)
        if isinstance(s, k.For)
        and isinstance(s.start, k.Literal)
        and isinstance(s.stop, k.Literal)
        and any(isinstance(inner, k.Variable) for inner in s.body)
    ]


def count_conditions(kernel: k.Kernel, step: int) -> int:
    """The tests in the loop along a row that goes by such steps."""
    (loop,) = (s for s in walk(kernel.body) if isinstance(s, k.For) and s.step == step)
    return sum(isinstance(s, k.If) for s in walk(loop.body))


def test_inside_outputs_go_together() -> None:
    kernel = lower(make_pool(40, 3, 1, 1))
    # One at either edge; the last vector takes some of the one before once more.
    assert list_rows(kernel) == [(0, 1, 1), (1, 39, 8), (39, 40, 1)]
    # Rows above and below are tested for, columns beside are not there.
    assert count_conditions(kernel, 8) == 1


def test_without_padding_every_output_does() -> None:
    kernel = lower(make_pool(42, 3, 1, 0))
    assert list_rows(kernel) == [(0, 40, 8)]


def test_every_second_element_is_shuffled_into_place() -> None:
    kernel = lower(make_pool(80, 2, 2, 0))
    # The loads of the last output would leave the tensor.
    assert list_rows(kernel) == [(0, 39, 8), (39, 40, 1)]
    assert "each computes" in kernel.walk


def test_what_may_lie_in_the_result_is_read_once() -> None:
    after = """
  %y: f32[i0 < 4, i1 < 40, i2 < 40] = add(%s[i0, i1, i2], %z[i0, i1, i2])"""
    for pairs in ("", " in place (%y over %z)"):
        more = ", %z: f32[4, 40, 40]"
        kernel = lower(make_pool(40, 3, 1, 1, after=after, more=more, pairs=pairs))
        assert list_rows(kernel) == [(0, 1, 1), (1, 33, 8), (33, 40, 1)]


@pytest.mark.parametrize(
    ("size", "window", "stride", "pad"),
    [
        (15, 3, 1, 1),  # fewer outputs than two vectors
        (200, 5, 6, 1),  # elements so far apart take too many loads
        (17, 17, 1, 8),  # edges everywhere
    ],
)
def test_what_goes_one_by_one(size: int, window: int, stride: int, pad: int) -> None:
    kernel = lower(make_pool(size, window, stride, pad))
    assert {step for *_, step in list_rows(kernel)} <= {1}
