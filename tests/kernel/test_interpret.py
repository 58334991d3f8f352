"""Kernels run in NumPy: the golden ones come out right, and what no device may do is a fault."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest

from dmlc.codegen.trace import FUNCTIONS
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import KernelFault, Memory, run_kernel, run_kernels
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import OPERATIONS, Array, DataType
from dmlc.source import UnsupportedError
from tests import positions
from tests.goldens import CASES, find_wrong, make_inputs, read_case
from tests.kernel.lowering import interpret

FLOAT = k.Type(DataType.FLOAT32)
LANE = k.Position(k.Geometry.LANE)
BUFFERS = (
    k.Buffer("x", DataType.FLOAT32, k.Access.READ),
    k.Buffer("y", DataType.FLOAT32, k.Access.WRITE),
)
SHARED = (k.Array("tile", DataType.FLOAT32, 8, shared=True),)
OWN = (k.Array("own", DataType.FLOAT32, 8),)


@pytest.mark.grid(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("target", "profile", "model"),
    [
        ("opencl", "cpu", None),
        ("opencl", "gpu", None),
        ("hlsl", None, "6.2"),
        ("hlsl", None, "6.0"),
        ("wgsl", None, None),
    ],
)
def test_golden_kernels(case: str, target: str, profile: str | None, model: str | None) -> None:
    function = read_case(case)
    try:
        fused, kernels = make_kernels(function, target, profile, shader_model=model)
    except UnsupportedError:
        # What HLSL or WGSL lacks: `tests/codegen/test_golden.py` holds the words.
        assert target != "opencl"
        return
    if model == "6.0" and (fused, kernels) == make_kernels(function, target, shader_model="6.2"):
        return
    for count in (1, 1001) if function.symbols() else (1,):
        inputs = make_inputs(function, count)
        wanted = evaluate(function, inputs)
        for misaligned in (0, 1):
            got = run_kernels(fused, kernels, inputs, misaligned=misaligned)
            assert find_wrong(case, got, wanted) == []


@pytest.mark.parametrize("name", positions.FUNCTIONS)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_computed_positions_stay_inside(name: str, profile: str) -> None:
    function = positions.read(name)
    inputs = positions.make_inputs(function)
    got = interpret(function, inputs, "opencl", profile)
    assert positions.find_differences(got, evaluate(function, inputs)) == []


def number(value: int) -> k.Literal:
    return k.Literal(k.INDEX, value)


def apply(name: str, *operands: k.Expression) -> k.Operate:
    operation = OPERATIONS[name]
    result = k.BOOL if operation.gives_bool else operands[0].type
    return k.Operate(operation, operands, result)


WRAPPING = apply("mul", LANE, number(2**32 - 1))


def plus(place: k.Expression, step: int) -> k.Expression:
    return apply("add", place, number(step))


def load(index: k.Expression) -> k.Load:
    return k.Load("x", index, FLOAT)


def element(array: str, index: k.Expression) -> k.LoadLocal:
    return k.LoadLocal(array, index, FLOAT)


def run(
    *body: k.Statement,
    items: int = 8,
    arrays: tuple[k.Array, ...] = (),
    buffers: tuple[k.Buffer, ...] = BUFFERS,
    memories: Mapping[str, Memory] | None = None,
) -> Array:
    """What one group leaves in `y`, from 0 to 7 in `x`."""
    kernel = k.Kernel("f", buffers, (), k.Launch(1, 1, items), body, arrays=arrays)
    made = memories or {
        "x": Memory(np.arange(8, dtype=np.float32), filled=True),
        "y": Memory(np.zeros(8, np.float32), filled=False),
    }
    run_kernel(kernel, made)
    return made["y"].values


def test_every_item_stores_its_element() -> None:
    got = run(k.Store("y", LANE, apply("add", load(LANE), load(LANE))))
    np.testing.assert_array_equal(got, 2 * np.arange(8))


def test_items_exchange_what_they_share() -> None:
    reverse = apply("sub", number(7), LANE)
    got = run(
        k.StoreLocal("tile", LANE, load(LANE)),
        k.Barrier(),
        k.Store("y", LANE, element("tile", reverse)),
        arrays=SHARED,
    )
    np.testing.assert_array_equal(got, np.arange(8)[::-1])


def test_positions_wrap_as_on_a_device() -> None:
    # 0 - 1 is the largest position, and comes back when 1 is added.
    before = apply("sub", LANE, number(1))
    got = run(k.Store("y", LANE, load(plus(before, 1))))
    np.testing.assert_array_equal(got, np.arange(8))


def test_a_quotient_by_what_may_be_zero_is_zero_there() -> None:
    got = run(k.Store("y", LANE, load(apply("div", number(7), LANE))))
    np.testing.assert_array_equal(got, [0, 7, 3, 2, 1, 1, 1, 1])


def test_an_arm_that_is_not_taken_is_not_read() -> None:
    inside = apply("lt", LANE, number(7))
    zero = k.Literal(FLOAT, 0.0)
    got = run(k.Store("y", LANE, k.Select(inside, load(plus(LANE, 1)), zero, FLOAT)))
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5, 6, 7, 0])


@pytest.mark.parametrize(
    ("body", "arrays", "message"),
    [
        ((k.Store("y", LANE, load(plus(LANE, 1))),), (), "element 8 of 'x', which has 8"),
        ((k.Store("y", plus(LANE, 1), load(LANE)),), (), "element 8 of 'y', which has 8"),
        ((k.Store("y", number(0), load(LANE)),), (), "'y' is written where another item"),
        ((k.Store("x", LANE, load(LANE)),), (), "'x' is not for writing"),
        (
            (k.Store("y", LANE, k.Load("y", LANE, FLOAT)),),
            (),
            "'y' is not for reading",
        ),
        (
            (k.Store("y", LANE, element("own", LANE)),),
            OWN,
            "'own' is read before it is written",
        ),
        (
            (k.StoreLocal("own", plus(LANE, 1), load(LANE)),),
            OWN,
            "element 8 of 'own', which has 8",
        ),
        (
            (
                k.StoreLocal("tile", LANE, load(LANE)),
                k.Store("y", LANE, element("tile", apply("sub", number(7), LANE))),
            ),
            SHARED,
            "'tile' is read where another item writes it",
        ),
        (
            (k.StoreLocal("tile", number(3), load(LANE)),),
            SHARED,
            "'tile' is written where another item reads or writes it",
        ),
        (
            (
                k.StoreLocal("tile", LANE, load(LANE)),
                k.Barrier(),
                k.Store("y", LANE, element("tile", apply("sub", number(7), LANE))),
                k.StoreLocal("tile", LANE, load(LANE)),
            ),
            SHARED,
            "'tile' is written where another item reads or writes it",
        ),
        (
            (k.If(apply("lt", LANE, number(5)), (k.Barrier(),)),),
            (),
            "only 5 of 8 items of group 0 wait",
        ),
        (
            (k.For(k.Local("i", k.INDEX), number(0), LANE, 1, (k.Barrier(),)),),
            (),
            "only 7 of 8 items of group 0 wait",
        ),
        (
            (k.For(k.Local("i", k.INDEX), number(2**32 - 6), number(2**32 - 1), 4, ()),),
            (),
            "a loop counts past the largest position",
        ),
        (
            # Nothing known of it says that the divisor of item 1 wraps to 0.
            (k.Store("y", LANE, load(apply("div", LANE, apply("add", number(1), WRAPPING)))),),
            (),
            "item 1 of group 0: division by zero in div(lane, add(1, mul(lane, 4294967295)))",
        ),
        (
            (
                k.If(k.Literal(k.BOOL, True), (k.Let(k.Local("a", FLOAT), load(LANE)),)),
                k.Store("y", LANE, k.Local("a", FLOAT)),
            ),
            (),
            "'a' is used where it is not defined",
        ),
        (
            (
                k.Let(k.Local("a", FLOAT), load(LANE)),
                k.Let(k.Local("a", FLOAT), load(LANE)),
            ),
            (),
            "'a' is defined where another of that name is in sight",
        ),
    ],
)
def test_faults(body: tuple[k.Statement, ...], arrays: tuple[k.Array, ...], message: str) -> None:
    with pytest.raises(KernelFault) as caught:
        run(*body, arrays=arrays)
    assert message in str(caught.value)
    assert "kernel 'f'" in str(caught.value)


def test_a_result_over_its_operand() -> None:
    memory = Memory(np.arange(8, dtype=np.float32), filled=True)
    both = {"x": memory, "y": memory}
    run(k.Store("y", LANE, load(LANE)), memories=both)
    with pytest.raises(KernelFault, match="'y' is written where another item reads"):
        run(k.Store("y", LANE, load(apply("sub", number(7), LANE))), memories=both)


def test_what_no_kernel_writes() -> None:
    function = read_case("relu_grad_f32")
    fused, _ = make_kernels(function)
    with pytest.raises(KernelFault, match="has elements that no kernel writes"):
        run_kernels(fused, (), make_inputs(function, 3))


def test_a_launch_lets_go_of_its_values() -> None:
    """Though its closures live on until cycles are collected: there are 40 locals in a sine."""
    x = np.linspace(-9, 9, 50_000, dtype=np.float32)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        FUNCTIONS["sin"].evaluate(x)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 12 * x.nbytes
