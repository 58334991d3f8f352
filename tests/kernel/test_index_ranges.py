"""Indices of tensors with nearly 2**31 elements do not wrap where that matters: signed ones
nowhere, and unsigned ones not in comparisons, which guard what wraps elsewhere.

The ranges of the kernels' indices are computed. No kernel runs, and no memory is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import pytest

from dmlc import ir
from dmlc.codegen.render import find_most
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import bind_sizes, index, operate
from dmlc.kernel.print import print_expression
from dmlc.kernel.reaches import Reaches
from dmlc.kernel.rewrite import list_expressions, list_operands
from dmlc.pipeline import compile_kernels, make_kernels
from dmlc.scalars import DataType
from dmlc.sizes import LARGEST
from dmlc.source import UnsupportedError
from tests.corpus.state import KINDS

MOST = 2**31
COMPARED = {"lt": ("min", -1), "le": ("min", 0), "gt": ("max", 1), "ge": ("max", 0)}
"""What a comparison says of its left side: a limit, and the limit's distance from the right."""
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

FUNCTIONS = {
    "copied": f"func @f(%X: f32[{MOST - 1}]) -> (%Y) {{ %Y: f32[i0 < {MOST - 1}] = neg(%X[i0]) }}",
    "halves": f"func @f(%X: f16[{MOST - 1}]) -> (%Y) {{ %Y: f16[i0 < {MOST - 1}] = neg(%X[i0]) }}",
    "transposed": f"""func @f(%X: f32[{MOST // 33}, 33]) -> (%Y) {{
        %Y: f32[i0 < 33, i1 < {MOST // 33}] = neg(%X[i1, i0]) }}""",
    "strided": """func @f(%X: f32[2, 500]{2147483000, 1}) -> (%Y) {
        %Y: f32[i0 < 2, i1 < 500] = neg(%X[i0, i1]) }""",
    "padded": f"""func @f(%X: f32[33, {MOST // 35}]) -> (%Y) {{
        %Y: f32[i0 < 35, i1 < {MOST // 35}] =
            select(and(ge(i0, 1), le(i0, 33)), %X[min(max(sub(i0, 1), 0), 32), i1], 0.0) }}""",
    "window of a strided tensor": """func @f(%X: f32[2, 500]{1073741820, 1}) -> (%Y) {
        %Y: f32[i0 < 2, i1 < 500] = sum[r0 < 3 where and(
            ge(add(i1, r0), 1), le(add(i1, r0), 500))] %X[i0, sub(add(i1, r0), 1)] }""",
    "rows summed": f"""func @f(%X: f32[{MOST // 4097}, 4097]) -> (%Y) {{
        %Y: f32[i0 < {MOST // 4097}] = sum[r0 < 4097] %X[i0, r0] }}""",
    "columns summed": f"""func @f(%X: f32[4097, {MOST // 4097}]) -> (%Y) {{
        %Y: f32[i0 < {MOST // 4097}] = sum[r0 < 4097] %X[r0, i0] }}""",
    "all summed": f"""func @f(%X: f32[{MOST - 1}]) -> (%Y) {{
        %Y: f32[] = sum[r0 < {MOST - 1}] %X[r0] }}""",
    "product": """func @f(%A: f32[46340, 33], %B: f32[33, 46340]) -> (%Y) {
        %Y: f32[i0 < 46340, i1 < 46340] = sum[r0 < 33] mul(%A[i0, r0], %B[r0, i1]) }""",
    "convolution": """func @f(%X: f32[1, 3, 16384, 16384], %W: f32[7, 3, 3, 3]) -> (%Y) {
        %Y: f32[i0 < 1, i1 < 7, i2 < 16384, i3 < 16384] = sum[r0 < 3, r1 < 3, r2 < 3 where and(
            and(ge(add(i2, r1), 1), le(add(i2, r1), 16384)),
            and(ge(add(i3, r2), 1), le(add(i3, r2), 16384)))]
            mul(%X[i0, r0, sub(add(i2, r1), 1), sub(add(i3, r2), 1)], %W[i1, r0, r1, r2]) }""",
}  # fmt: skip
OPEN = "func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = %X[max(sub(i0, 1), 0)] }"


def find_wrapped(kernel: k.Kernel) -> list[str]:
    """Indices of a kernel that may wrap: all if they are signed, and else those that are compared.
    What is known of a local under a guard is taken into account."""
    return list(dict.fromkeys(_find_wrapped(kernel, kernel.body, Reaches(kernel))))


def _find_wrapped(kernel: k.Kernel, body: Sequence[k.Statement], reaches: Reaches) -> Iterator[str]:
    for statement in body:
        for expression in list_expressions(statement):
            yield from _find_in(kernel, expression, reaches, is_compared=False)
        match statement:
            case k.Let(local=local, value=value):
                reaches.note(local, value)
            case k.Variable(local=local):
                reaches.note(local)
            case k.For(stop=stop, step=step, body=inner):
                after = operate("add", stop, index(step - 1))
                yield from _find_in(kernel, after, reaches, is_compared=True)
                inside = reaches.copy()
                inside.note_turns(statement)
                yield from _find_wrapped(kernel, inner, inside)
            case k.If(condition=condition, then=inner):
                inside = reaches.copy()
                _narrow(condition, inside)
                yield from _find_wrapped(kernel, inner, inside)
            case _:
                pass


def _find_in(
    kernel: k.Kernel, expression: k.Expression, reaches: Reaches, *, is_compared: bool
) -> Iterator[str]:
    compares = isinstance(expression, k.Operate) and expression.operation.name in COMPARED
    for operand in list_operands(expression):
        yield from _find_in(kernel, operand, reaches, is_compared=is_compared or compares)
    if expression.type.dtype is DataType.INDEX and (kernel.index_signed or is_compared):
        (low, high), (least, most) = reaches.find(expression), kernel.index_limits
        # Interval arithmetic alone underrates differences of unsigned indices.
        if most < high < math.inf or (kernel.index_signed and -math.inf < low < least):
            yield f"{print_expression(expression)} is in {low}..{high}"


def _narrow(condition: k.Expression, reaches: Reaches) -> None:
    """Takes what a condition says of locals into account."""
    if not isinstance(condition, k.Operate):
        return
    name = condition.operation.name
    if name == "and":
        for operand in condition.operands:
            _narrow(operand, reaches)
    if name in COMPARED:
        left, right = condition.operands
        for one, other, way in ((left, right, name), (right, left, TURNED[name])):
            if isinstance(one, k.Local):
                choose, step = COMPARED[way]
                reaches.note(one, operate(choose, one, operate("add", other, index(step))))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_index_wraps_where_it_matters(name: str, kind: str) -> None:
    target, profile, model = KINDS[kind]
    try:
        _, kernels = make_kernels(ir.parse(FUNCTIONS[name]), target, profile, shader_model=model)
    except UnsupportedError as error:
        said = str(error)
        assert (target, "no wider integers" in said) == ("wgsl", True)
        return
    assert [wrapped for kernel in kernels for wrapped in find_wrapped(kernel)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_index_wraps_for_the_most_elements_at_run_time(kind: str) -> None:
    target, profile, model = KINDS[kind]
    program, _, (kernel,) = compile_kernels(ir.parse(OPEN), target, profile, shader_model=model)
    assert program.max_count == LARGEST
    assert kernel.index_signed
    assert find_wrapped(bind_sizes(kernel, {"n": LARGEST})) == []


def test_a_last_row_that_would_wrap_makes_the_most_elements_fewer() -> None:
    group, lane = (k.Position(each) for each in (k.Geometry.GROUP, k.Geometry.LANE))
    element = k.Let(k.Local("i", k.INDEX), operate("add", operate("mul", group, index(1280)), lane))
    kernel = k.Kernel("f", (), (), k.Launch("n", 1280, 1280, 65535), (element,), index_signed=True)
    most = find_most([kernel], LARGEST)
    assert most == 25 * 65535 * 1280
    assert find_wrapped(bind_sizes(kernel, {"n": most})) == []
    assert find_wrapped(bind_sizes(kernel, {"n": most + 1}))
    assert find_most([dataclasses.replace(kernel, index_signed=False)], LARGEST) == LARGEST


def test_a_guard_on_a_wrapped_index_is_found() -> None:
    _, (kernel,) = make_kernels(ir.parse(FUNCTIONS["padded"]), "hlsl")
    assert (kernel.index_bits, kernel.index_signed) == (64, True)
    narrow = dataclasses.replace(kernel, index_bits=32)
    assert any("2147514623" in wrapped for wrapped in find_wrapped(narrow))
