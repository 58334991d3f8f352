"""Indices of kernels for open sizes near 2**31 elements: what the runtime takes wraps nowhere.

Single work items are followed with integers of any width: the first, the last, and idle ones of the
last row of groups. No kernel runs, and no memory is taken: arrays of such sizes repeat one element.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.kernel.rewrite import list_expressions, list_operands
from dmlc.pipeline import compile_kernels
from dmlc.program import Program
from dmlc.runtime.arrays import bind_symbols
from dmlc.sizes import evaluate_size
from dmlc.source import UnsupportedError
from tests.corpus.state import KINDS

FUNCTIONS = {
    "padded": """func @f(%X: f32[n, m]) -> (%Y) {
        %Y: f32[i0 < n, i1 < m] = select(ge(i0, 1), %X[max(sub(i0, 1), 0), i1], 0.0) }""",
    "transposed": """func @f(%X: f32[n, m]) -> (%Y) {
        %Y: f32[i0 < m, i1 < n] = %X[max(sub(i1, 1), 0), i0] }""",
    "rows summed": """func @f(%X: f32[n, m]) -> (%Y) {
        %Y: f32[i0 < n] = sum[r0 < m where ge(sub(r0, i0), 0)] %X[i0, r0] }""",
    "columns summed": """func @f(%X: f32[n, m]) -> (%Y) {
        %Y: f32[i0 < m] = sum[r0 < n] %X[max(sub(r0, 1), 0), i0] }""",
    "product": """func @f(%X: f32[n, 33], %W: f32[33, m]) -> (%Y) {
        %Y: f32[i0 < n, i1 < m] = sum[r0 < 33] mul(%X[max(sub(i0, 1), 0), r0], %W[r0, i1]) }""",
    "convolution": """func @f(%X: f32[1, 3, n, m], %W: f32[7, 3, 3, 3]) -> (%Y) {
        %Y: f32[i0 < 1, i1 < 7, i2 < n, i3 < m] = sum[r0 < 3, r1 < 3, r2 < 3]
            mul(%X[i0, r0, max(sub(add(i2, r1), 3), 0), max(sub(add(i3, r2), 3), 0)],
                %W[i1, r0, r1, r2]) }""",
}
SIDES = (1, 2, 8, 33, 257, 1025, 46339)
COMPARED: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
COMPUTED: dict[str, Callable[..., int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "div": operator.floordiv, "mod": operator.mod, "min": min, "max": max,
}  # fmt: skip


class WorkItem:
    """One work item of a kernel with these scalars. A value that depends on memory is None: both
    ways are taken where it is a condition."""

    def __init__(self, kernel: k.Kernel, scalars: Mapping[str, int], group: int, lane: int) -> None:
        self._kernel = kernel
        self._known: dict[str, int | bool | None] = dict(scalars)
        self._geometry = {
            k.Geometry.GROUP: group,
            k.Geometry.LANE: lane,
            k.Geometry.SUBGROUP: lane // (kernel.launch.subgroup or 1),
        }
        self.wrapped: list[str] = []
        self._run(kernel.body)

    def _run(self, body: Sequence[k.Statement]) -> None:
        for statement in body:
            match statement:
                case k.Let(local=local, value=value):
                    self._known[local.name] = self._find(value)
                case k.If(condition=condition, then=inner):
                    if self._find(condition) is not False:
                        self._run(inner)
                case k.For(start=start, stop=stop, step=step, variable=variable, body=inner):
                    first, end = self._find(start), self._find(stop)
                    if first is None or end is None:
                        turns: Sequence[int | None] = [None]
                    else:
                        # The counter is compared once more after the last turn.
                        counts = range(first, end, step)
                        if counts:
                            self._check(stop, counts[-1] + step, is_compared=True)
                        turns = [counts[0], counts[-1]] if counts else []
                    for turn in dict.fromkeys(turns):
                        self._known[variable.name] = turn
                        self._run(inner)
                case _:
                    for expression in list_expressions(statement):
                        self._find(expression)
                    if isinstance(statement, k.Variable):
                        self._known[statement.local.name] = None

    def _check(self, expression: k.Expression, value: int, *, is_compared: bool) -> None:
        low, high = self._kernel.index_limits
        if (is_compared or self._kernel.index_signed) and not low <= value <= high:
            self.wrapped.append(f"{print_expression(expression)} is {value}")

    def _find(self, expression: k.Expression) -> int | bool | None:
        match expression:
            case k.Literal(value=value) if expression.type in (k.INDEX, k.BOOL):
                return value if isinstance(value, bool) else int(value)
            case k.Local(name=name) | k.Scalar(name=name):
                return self._known.get(name)
            case k.Position(geometry=geometry):
                return self._geometry[geometry]
            case k.Select(condition=condition, then=then, otherwise=otherwise):
                holds = self._find(condition)
                arms = [self._find(arm) for arm, way in ((then, True), (otherwise, False))
                        if holds in (way, None)]  # fmt: skip
                return arms[0] if len(arms) == 1 else None
            case k.Operate(operation=operation, operands=operands):
                return self._operate(expression, operation.name, operands)
            case _:
                for operand in list_operands(expression):
                    self._find(operand)
                return None

    def _operate(
        self, expression: k.Expression, name: str, operands: Sequence[k.Expression]
    ) -> int | bool | None:
        first = self._find(operands[0])
        if name in ("and", "or"):
            # The second operand is evaluated where the first leaves the result open.
            return first if first is (name == "or") else self._find(operands[1])
        values = [first, *map(self._find, operands[1:])]
        if any(operand.type != k.INDEX for operand in operands) or None in values:
            return None
        if name in COMPARED:
            for operand, value in zip(operands, values, strict=True):
                self._check(operand, value or 0, is_compared=True)
            return COMPARED[name](*values)  # type: ignore[arg-type]
        if name not in COMPUTED or (name in ("div", "mod") and values[1] == 0):
            return None
        found = COMPUTED[name](*values)
        self._check(expression, found, is_compared=False)
        return found


def list_items(kernel: k.Kernel, sizes: Mapping[str, int]) -> Iterator[WorkItem]:
    """Some work items of a launch: at both ends, at the end of those with work, and others."""
    launch, random_ = kernel.launch, random.Random(1)
    count = evaluate_size(launch.count, sizes)
    groups, working = launch.count_groups(count), -(-count // launch.per_group)
    if not groups:
        return
    scalars = {scalar.name: evaluate_size(value, sizes) for scalar, value in kernel.scalars}
    drawn = (random_.randrange(low, groups) for low in (0, working - 1) for _ in range(3))
    for group in {0, working - 1, min(working, groups - 1), groups - 1, *drawn}:
        for lane in {0, launch.group_size - 1, random_.randrange(launch.group_size)}:
            yield WorkItem(kernel, scalars, group, lane)


def bind(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """The runtime's sizes for arrays of these."""
    inputs = {
        spec.name: np.broadcast_to(np.float32(0), [evaluate_size(e, sizes) for e in spec.extents])
        for spec in program.inputs
    }
    return bind_symbols(program, inputs, {})[0]


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_index_of_a_work_item_wraps(name: str, kind: str) -> None:
    target, profile, model = KINDS[kind]
    function = ir.parse(FUNCTIONS[name])
    program, _, kernels = compile_kernels(function, target, profile, shader_model=model)
    most = program.max_count // (7 if name == "convolution" else 33 if name == "product" else 1)
    taken = 0
    for side in SIDES:
        for sizes in ({"n": side, "m": most // side}, {"n": most // side, "m": side}):
            taken += bind(program, sizes) == sizes
            for kernel in kernels:
                assert [w for item in list_items(kernel, sizes) for w in item.wrapped] == []
    assert taken == 2 * len(SIDES)


def test_an_index_that_wraps_is_found() -> None:
    target, profile, model = KINDS["hlsl-gpu"]
    function = ir.parse(FUNCTIONS["padded"])
    program, _, (kernel,) = compile_kernels(function, target, profile, shader_model=model)
    assert kernel.index_signed
    sizes = {"n": 35, "m": (2**31 - 1) // 35}
    assert any(item.wrapped for item in list_items(kernel, sizes))
    with pytest.raises(UnsupportedError, match="tensors of at most"):
        bind(program, sizes)


def test_only_kernels_that_run_limit_sizes() -> None:
    """A version for outputs of few elements takes many work items for each."""
    text = """func @f(%X: f32[n, 8192], %W: f32[8192, m]) -> (%Y) {
        %Y: f32[i0 < n, i1 < m] = sum[r0 < 8192] mul(%X[i0, r0], %W[r0, i1]) }"""
    program, *_ = compile_kernels(ir.parse(text), "hlsl")
    sizes = {"n": 46000, "m": 46000}
    scalars = (evaluate_size(s.value, sizes) for each in program.kernels for s in each.scalars)
    assert max(scalars) > program.max_count
    assert bind(program, sizes) == sizes
