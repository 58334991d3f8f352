"""The list of passes over kernels: each is verified where that is asked for, the last in any
case."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel import passes
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.passes import PASSES, Pass, find_sizes, run_passes, set_verify_each
from dmlc.kernel.target import Limits
from dmlc.source import InternalError
from tests.goldens import read_case

LIMITS = find_dialect("opencl").limits
KERNEL = parse_kernel("""kernel f {
  launch ceil(8 / 8) groups of 8, index u32
  buffer InputTensor: f32 read
  buffer OutputGradientTensor: f32 write
  let a#1: f32 = InputTensor[lane]
  store OutputGradientTensor[lane] = a#1
}""")


def break_it(kernel: k.Kernel, _: Limits) -> k.Kernel:
    return dataclasses.replace(kernel, body=kernel.body[1:])


def mend_it(kernel: k.Kernel, _: Limits) -> k.Kernel:
    return dataclasses.replace(kernel, body=())


BREAK, MEND = Pass("break_it", break_it), Pass("mend_it", mend_it)


@pytest.mark.parametrize("each", [True, False])
def test_a_pass_that_breaks_a_kernel_is_named(each: bool) -> None:
    function = read_case("relu_grad_f32")
    before = set_verify_each(each)
    try:
        with pytest.raises(InternalError, match="broken kernel after break_it: 'f': 'a#1' is no"):
            run_passes(KERNEL, function, LIMITS, (*PASSES[:2], BREAK))
        if each:
            with pytest.raises(InternalError, match="broken kernel after break_it: "):
                run_passes(KERNEL, function, LIMITS, (BREAK, MEND))
        else:
            assert run_passes(KERNEL, function, LIMITS, (BREAK, MEND)).body == ()
    finally:
        set_verify_each(before)


def test_what_is_lowered_is_verified_before_the_first_pass() -> None:
    broken = break_it(KERNEL, LIMITS)
    with pytest.raises(InternalError, match="broken kernel after lower: "):
        run_passes(broken, read_case("relu_grad_f32"), LIMITS)


def test_what_a_pass_leaves_as_it_was_is_not_verified_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(passes, "verify_kernel", lambda kernel, step, *_, **__: seen.append(step))
    copy = Pass("copy", lambda kernel, _: dataclasses.replace(kernel))
    before = set_verify_each(True)
    try:
        run_passes(KERNEL, read_case("relu_grad_f32"), LIMITS, (copy, copy, MEND, copy, copy))
    finally:
        set_verify_each(before)
    assert seen == ["lower", "mend_it", "copy"]


def test_all_passes() -> None:
    made = run_passes(KERNEL, read_case("relu_grad_f32"), LIMITS)
    assert [s.local.name for s in made.body if isinstance(s, k.Let)] == ["a"]


def test_sizes_of_buffers() -> None:
    function = read_case("add_sliced_rows")
    names = [*function.tensors()]
    buffers = tuple(k.Buffer(n, function.tensors()[n].dtype, k.Access.READ) for n in names)
    between = k.Buffer("part", buffers[0].dtype, k.Access.READ, 7)
    kernel = dataclasses.replace(KERNEL, buffers=(*buffers, between))
    strided = 1 + 2 * 100 + 1 * 40 + 36
    result = 1 + 2 * 128 + 1 * 64 + 36
    assert find_sizes(function, kernel) == {"a": strided, "b": 222, "sum": result, "part": 7}
    assert find_sizes(read_case("relu_grad_f32"), KERNEL) == {}
