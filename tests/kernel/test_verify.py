"""The verifier of kernels: each rule, broken, is named; what keeps them all passes."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.kernel import nodes as k
from dmlc.kernel.verify import verify_kernel
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import InternalError

FLOAT, WIDE = k.Type(DataType.FLOAT32), k.Type(DataType.FLOAT32, 4)
WORD = k.Type(DataType.UINT32)
LANE, GROUP = k.Position(k.Geometry.LANE), k.Position(k.Geometry.GROUP)
ZERO, ONE = k.Literal(FLOAT, 0.0), k.Literal(k.INDEX, 1)
VALUE, PLACE = k.Local("value", FLOAT), k.Local("i", k.INDEX)
KERNEL = k.Kernel(
    "f",
    (
        k.Buffer("x", DataType.FLOAT32, k.Access.READ),
        k.Buffer("y", DataType.FLOAT32, k.Access.WRITE),
        k.Buffer("z", DataType.INT32, k.Access.READ_WRITE),
        k.Buffer("h", DataType.FLOAT16, k.Access.WRITE),
    ),
    ((k.Scalar("n"), "n"),),
    k.Launch("n", 8, 8),
    (),
    arrays=(
        k.Array("own", DataType.FLOAT32, 8),
        k.Array("tile", DataType.FLOAT32, 8, shared=True),
    ),
)


def load(index: k.Expression, type: k.Type = FLOAT) -> k.Load:
    return k.Load("x", index, type)


def apply(name: str, type: k.Type, *operands: k.Expression) -> k.Operate:
    return k.Operate(OPERATIONS[name], operands, type)


def below(index: k.Expression) -> k.Operate:
    return apply("lt", k.BOOL, index, ONE)


def loop(stop: k.Expression, *body: k.Statement, step: int = 1, backwards: bool = False) -> k.For:
    return k.For(PLACE, k.Literal(k.INDEX, 0), stop, step, body, backwards=backwards)


def test_what_keeps_the_rules_passes() -> None:
    total = k.Local("total", FLOAT)
    body = (
        k.Variable(total, ZERO),
        loop(
            k.Scalar("n"),
            k.Let(VALUE, load(PLACE)),
            k.Assign(total, apply("add", FLOAT, total, VALUE)),
            k.StoreLocal("tile", LANE, total),
            k.Barrier(),
        ),
        k.If(below(GROUP), (k.Barrier(),)),
        k.If(below(LANE), (k.Store("y", GROUP, k.LoadLocal("tile", ONE, FLOAT)),)),
    )
    verify_kernel(dataclasses.replace(KERNEL, body=body), "test")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((k.Store("y", LANE, VALUE),), "'value' is no f32 in sight"),
        ((k.If(below(LANE), (k.Let(VALUE, ZERO),)), k.Store("y", LANE, VALUE)), "is no f32"),
        ((k.Let(VALUE, ZERO), k.Let(VALUE, ZERO)), "another of that name is in sight"),
        ((k.Let(k.Local("x", FLOAT), ZERO),), "another of that name is in sight"),
        ((k.Let(VALUE, ONE),), "index stands where f32 must"),
        ((k.Let(VALUE, ZERO), k.Assign(VALUE, ZERO)), "is assigned, and is no variable"),
        ((k.Store("x", LANE, ZERO),), "'x' is not for writing"),
        ((k.Let(VALUE, k.Load("y", LANE, FLOAT)),), "'y' is not for reading"),
        ((k.Store("w", LANE, ZERO),), "there is no buffer 'w'"),
        ((k.StoreLocal("w", LANE, ZERO),), "there is no array 'w'"),
        ((k.Store("z", LANE, ZERO),), "f32 stands where s32 must"),
        ((k.Store("y", ZERO, ZERO),), "f32 stands where index must"),
        ((k.Let(VALUE, k.Load("z", LANE, FLOAT)),), "a value of s32 calls itself f32"),
        ((k.Let(VALUE, apply("add", FLOAT, ZERO, ONE)),), "index stands where f32 must"),
        ((k.Let(VALUE, apply("add", FLOAT, ZERO)),), "add of 1 f32"),
        ((k.Let(VALUE, apply("lt", FLOAT, ZERO, ZERO)),), "a value of boolean calls itself f32"),
        ((k.Let(VALUE, k.Select(ONE, ZERO, ZERO, FLOAT)),), "a choice between f32 by index"),
        ((k.Let(VALUE, k.Scalar("m", FLOAT)),), "the kernel is given no f32 'm'"),
        ((k.Let(PLACE, k.Literal(k.INDEX, -1)),), "-1 is no index"),
        ((k.Let(VALUE, k.Literal(FLOAT, 0.1)),), "0.1 is no f32"),
        ((k.Let(k.Local("wide", WIDE), k.Broadcast(load(LANE, WIDE), WIDE)),), "f32x4 stands"),
        (
            (
                k.Let(k.Local("a", WIDE), load(LANE, WIDE)),
                k.Let(
                    k.Local("b", WIDE),
                    k.Shuffle(k.Local("a", WIDE), k.Local("a", WIDE), (0, 2, 4, 8), WIDE),
                ),
            ),
            "a shuffle of lanes (0, 2, 4, 8) of two f32x4",
        ),
        ((k.If(ONE, ()),), "index stands where boolean must"),
        ((loop(LANE, k.Barrier()),), "a barrier stands where items of a group go different"),
        ((k.If(below(LANE), (k.Barrier(),)),), "a barrier stands where items of a group"),
        (
            (
                k.Variable(PLACE, ONE),
                k.If(below(LANE), (k.Assign(PLACE, k.Literal(k.INDEX, 0)),)),
                k.If(below(PLACE), (k.Barrier(),)),
            ),
            "a barrier stands where items of a group",
        ),
        (
            (
                k.Let(k.Local("own0", FLOAT), k.LoadLocal("own", ONE, FLOAT)),
                k.If(apply("lt", k.BOOL, k.Local("own0", FLOAT), ZERO), (k.Barrier(),)),
            ),
            "a barrier stands where items of a group",
        ),
        ((loop(ONE, step=0),), "a loop steps by 0"),
        ((loop(ONE, step=2, backwards=True),), "a loop steps by 2"),
        ((k.StoreWord("y", LANE, k.Local("word", WORD)),), "'word' is no u32 in sight"),
        (
            (
                k.Variable(k.Local("word", WORD), k.Literal(WORD, 0)),
                k.StoreWord("y", LANE, k.Local("word", WORD)),
            ),
            "'y' does not hold two elements to a word",
        ),
    ],
)
def test_rules(body: tuple[k.Statement, ...], message: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_kernel(dataclasses.replace(KERNEL, body=body), "test")
    assert str(caught.value).startswith("broken kernel after test: 'f': ")
    assert message in str(caught.value)


def test_names_of_buffers_and_arrays() -> None:
    twice = dataclasses.replace(KERNEL, arrays=(k.Array("x", DataType.FLOAT32, 8),))
    with pytest.raises(InternalError, match="have one name"):
        verify_kernel(twice, "test")
    empty = dataclasses.replace(KERNEL, arrays=(k.Array("own", DataType.FLOAT32, 0),))
    with pytest.raises(InternalError, match="array 'own' has 0 elements"):
        verify_kernel(empty, "test")


def test_scopes_may_have_one_name_for_what_differs_between_items_and_what_does_not() -> None:
    differs = k.If(below(LANE), (k.Let(PLACE, LANE), k.Let(VALUE, load(PLACE))))
    alike = k.If(below(GROUP), (k.Let(PLACE, GROUP), k.If(below(PLACE), (k.Barrier(),))))
    for body in ((differs, alike), (alike, differs)):
        verify_kernel(dataclasses.replace(KERNEL, body=body), "test")
    turned = k.If(below(GROUP), (k.Let(PLACE, LANE), k.If(below(PLACE), (k.Barrier(),))))
    with pytest.raises(InternalError, match="a barrier stands where items of a group"):
        verify_kernel(dataclasses.replace(KERNEL, body=(alike, turned)), "test")
