"""Division of indices: the operation, and the type, that a dialect uses.

Languages and devices define quotients and remainders of nonnegative numbers only. The decision made
here is that of the generated code: kernels are spelled by it, and a simulated device that takes
every freedom of the language interprets them by it.
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
    """Quotients and remainders of one kernel. `reaches` must see each statement, in order."""

    def __init__(self, dialect: Dialect, kernel: k.Kernel, reaches: Reaches) -> None:
        self._dialect = dialect
        self._kernel = kernel
        self.reaches = reaches
        integers = SIGNED if kernel.index_signed else UNSIGNED
        self.index_integer = integers[kernel.index_bits // 8]
        """Integer type of indices."""

    def find_operation(self, expression: k.Operate) -> tuple[Entry, DataType]:
        """Entry of an operation, and its operand type. Operations on indices that the dialect
        lacks, and quotients whose divisor may be 0 or whose operands may be negative, are those of
        integers of the same width."""
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
        """Unsigned type, mostly of 32 bits, of a quotient or remainder of signed indices; None if
        an operand may be negative, or the divisor 0."""
        if not isinstance(expression, k.Operate) or expression.type.dtype is not DataType.INDEX:
            return None
        if expression.operation.name not in QUOTIENTS or not self._kernel.index_signed:
            return None
        number, divisor = (self.reaches.find(operand) for operand in expression.operands)
        if number[0] < 0 or divisor[0] < 1:
            return None
        is_narrow = max(number[1], divisor[1]) <= np.iinfo(np.uint32).max
        return DataType.UINT32 if is_narrow else UNSIGNED[self.index_integer.bytes]
