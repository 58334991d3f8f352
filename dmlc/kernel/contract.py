"""Sums of products in one instruction: what is added to a sum of FLOAT32 is multiplied and added at
once, and rounded once.

That is nearer to the exact sum than a product that is rounded first, and takes half the
instructions. Products that do not enter a sum are rounded as they are written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import find_body, replace_body
from dmlc.scalars import MULTIPLY_ADD, DataType


def contract_sums(kernel: k.Kernel) -> k.Kernel:
    """The kernel, where a product that is added to a local, or to an element of an array, is
    multiplied and added in one operation."""
    return dataclasses.replace(kernel, body=tuple(_contract(kernel.body)))


def _contract(statements: Sequence[k.Statement]) -> list[k.Statement]:
    made: list[k.Statement] = []
    for statement in statements:
        body = find_body(statement)
        if body:
            statement = replace_body(statement, _contract(body))
        match statement:
            case k.Assign(local=local, value=value):
                made.append(k.Assign(local, _join(local, value)))
            case k.StoreLocal(array=array, index=index, value=value):
                sum = k.LoadLocal(array, index, value.type)
                made.append(k.StoreLocal(array, index, _join(sum, value)))
            case _:
                made.append(statement)
    return made


def _join(sum: k.Expression, value: k.Expression) -> k.Expression:
    """A value, where it is a sum and what is added to it is a product, as one operation."""
    if not isinstance(value, k.Operate) or value.type.dtype is not DataType.FLOAT32:
        return value
    first, *rest = value.operands
    product = rest[0] if value.operation.name == "add" and first == sum else None
    if not isinstance(product, k.Operate) or product.operation.name != "mul":
        return value
    return k.Operate(MULTIPLY_ADD, (*product.operands, sum), value.type)
