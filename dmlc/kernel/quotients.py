"""Replaces division by powers of two by multiplication.

Devices may round a quotient wrongly, and never a product; the result is then the same on all of
them. Both operations round the same number, so that nothing else changes.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import find_repeated, operate
from dmlc.kernel.rewrite import map_all, map_operands
from dmlc.scalars import DataType

_DIVIDES = ("div", "div_nearest")
_MOST = {DataType.FLOAT32: 126, DataType.FLOAT64: 1022}
"""The exponents, of either sign, of the powers whose reciprocals are no denormals."""


def multiply_exactly(kernel: k.Kernel) -> k.Kernel:
    """Kernel that multiplies by the reciprocals of powers of two."""
    return dataclasses.replace(kernel, body=map_all(kernel.body, _change))


def _change(expression: k.Expression) -> k.Expression:
    changed = map_operands(expression, _change)
    if not isinstance(changed, k.Operate) or changed.operation.name not in _DIVIDES:
        return changed
    number, divisor = changed.operands
    literal = find_repeated(divisor)
    if not isinstance(literal, k.Literal) or literal.type.dtype not in _MOST:
        return changed
    digits, exponent = math.frexp(literal.value)
    if abs(digits) != 0.5 or abs(exponent - 1) > _MOST[literal.type.dtype]:
        return changed
    inverse = k.Literal(literal.type, 1 / literal.value)
    repeated = divisor is not literal
    return operate("mul", number, k.Broadcast(inverse, divisor.type) if repeated else inverse)
