"""Records of operations that affect differentiation, and no kernel. Each returns its first operand.
Functions of the tensor IR contain them until `transform.simplify` removes them, before lowering and
export."""

from __future__ import annotations

from dmlc.scalars.operation import (
    SMOOTH,
    Derivative,
    Error,
    Keeps,
    Operands,
    Record,
    Registry,
    Share,
)
from dmlc.scalars.types import Array

REGISTRY = Registry()


def _give_first(value: Array, *_: Array) -> Array:
    return value


def _mark(
    name: str,
    arity: int,
    *,
    internal: bool,
    meaning: str,
    derivative: Derivative | None,
) -> None:
    REGISTRY.add(Record(
        name, arity, Operands.FLOAT, _give_first,
        boolean=False, symbol=None, narrows=None, internal=internal, meaning=meaning, edges={},
        derivative=derivative, kinks=SMOOTH, cost=0, error=Error.NONE, range=None,
        never_negative=Keeps.NEVER, whole=Keeps.NEVER, limits=(), formula=None,
        float32=None, float64=None, infix=None, hlsl=None, opencl=None, wgsl=None, onnx=None,
        cgc=(),
        mlir=("", "", ""), torch=None, pages=(),
    ))  # fmt: skip


_mark(
    "stop_gradient", 1, internal=False,
    meaning="x, with the derivative 0", derivative=None,
)  # fmt: skip
# The slope is a formula like any other: a second derivative is the derivative of the slope.
_mark(
    "with_gradient", 3, internal=True,
    meaning="value, which moves with x by the slope besides",
    derivative=lambda p: (Share(0, p.d), Share(1, p.d * p.operands[2])),
)  # fmt: skip
