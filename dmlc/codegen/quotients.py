"""How a dialect divides the positions of a kernel, and in which type.

Languages and devices have quotients and remainders of numbers that are not negative alone. What is
decided here is what the generated code does: kernels are spelled by it, and a simulated device that
takes every freedom that a language gives interprets them by it.
"""

from __future__ import annotations

import numpy as np

from dmlc.codegen.dialect import Dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.reaches import Reaches
from dmlc.scalars import DataType
from dmlc.scalars.operation import Entry, Unsupported

SIGNED = {1: DataType.INT8, 2: DataType.INT16, 4: DataType.INT32, 8: DataType.INT64}
UNSIGNED = {1: DataType.UINT8, 2: DataType.UINT16, 4: DataType.UINT32, 8: DataType.UINT64}
QUOTIENTS = ("div", "mod")


class Quotients:
    """Those of one kernel. `reaches` is told of each statement, in order."""

    def __init__(self, dialect: Dialect, kernel: k.Kernel) -> None:
        self._dialect = dialect
        self._kernel = kernel
        self.reaches = Reaches(kernel)
        integers = SIGNED if kernel.index_signed else UNSIGNED
        self.index_integer = integers[kernel.index_bits // 8]
        """The integer that positions are."""

    def find_operation(self, expression: k.Operate) -> tuple[Entry, DataType]:
        """How an operation is written, and on which type. Of positions, what their plain spelling
        has not got, and quotients whose divisor may be 0 or which may be negative, are those of
        integers as wide."""
        name, dtype = expression.operation.name, expression.operands[0].type.dtype
        entry = self._dialect.operations[name, dtype]
        if dtype is not DataType.INDEX:
            return entry, dtype
        divides = name in QUOTIENTS
        safe = not self._kernel.index_signed and self.reaches.find(expression.operands[-1])[0] >= 1
        if isinstance(entry, Unsupported) or (divides and not safe):
            dtype = self.index_integer
            entry = self._dialect.operations[name, dtype]
        return entry, dtype

    def find_counted(self, expression: k.Expression) -> DataType | None:
        """The unsigned type in which a quotient of signed positions, or what is over of one, is
        computed; None where an operand may be negative, or the divisor 0: languages and devices
        have remainders of numbers that are not negative alone. 32 bits are enough for most."""
        if not isinstance(expression, k.Operate) or expression.type.dtype is not DataType.INDEX:
            return None
        if expression.operation.name not in QUOTIENTS or not self._kernel.index_signed:
            return None
        number, divisor = (self.reaches.find(operand) for operand in expression.operands)
        if number[0] < 0 or divisor[0] < 1:
            return None
        is_narrow = max(number[1], divisor[1]) <= np.iinfo(np.uint32).max
        return DataType.UINT32 if is_narrow else UNSIGNED[self.index_integer.bytes]
