"""Names for float arithmetic, so that an output language does not reassociate or contract it.

HLSL keeps operations as written only if they make the value of a `precise` local. Float operands of
comparisons, integer conversions and calls may be simplified as if they were real numbers. This pass
puts each such operand in a local, right before the statement that needs it. Loads and literals
stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import NUMBER, list_operands, map_body, map_expressions, map_operands

EXACT = ("abs", "floor", "ceil", "round", "trunc")
"""Operations that round nothing: on loads and locals, they may be anywhere."""


def name_arithmetic(kernel: k.Kernel, precise: Collection[str] | None) -> k.Kernel:
    """Kernel in which float arithmetic only makes values of locals, through the operations
    `precise`. Unchanged if that is None."""
    if precise is None:
        return kernel
    arrays = {a.name for a in kernel.arrays if a.registers}
    return dataclasses.replace(kernel, body=tuple(_Arithmetic(precise, arrays).write(kernel.body)))


def passes_on(expression: k.Expression, precise: Collection[str]) -> bool:
    """Whether an expression's float operands are rounded as written if its own value is."""
    match expression:
        case k.Operate(operation=operation):
            return expression.type.dtype.is_float and operation.name in precise
        case k.Select() | k.Convert():
            return expression.type.dtype.is_float
        case _:
            return False


class _Arithmetic:
    def __init__(self, precise: Collection[str], arrays: Collection[str]) -> None:
        self._precise = precise
        self._arrays = arrays
        """Register arrays, whose elements are like locals."""
        self._count = 0
        self._named: list[k.Statement] = []
        """Locals to define before the current statement."""

    def write(self, statements: Sequence[k.Statement]) -> list[k.Statement]:
        made: list[k.Statement] = []
        for statement in statements:
            self._named = []
            match statement:
                case k.Let(local=local) | k.Variable(local=local) | k.Assign(local=local):
                    keeps = local.type.dtype.is_float
                case k.StoreLocal(array=array, value=value):
                    keeps = array in self._arrays and value.type.dtype.is_float
                case _:
                    keeps = False
            changed = map_expressions(statement, self._rewrite_local if keeps else self._name)
            made += self._named
            made.append(map_body(changed, self.write))
        return made

    def _rewrite_local(self, expression: k.Expression) -> k.Expression:
        """Rewrites the value of a float local."""
        passes = passes_on(expression, self._precise)

        def keep(operand: k.Expression) -> k.Expression:
            is_kept = passes and operand.type.dtype.is_float
            return (self._rewrite_local if is_kept else self._name)(operand)

        return map_operands(expression, keep)

    def _name(self, expression: k.Expression) -> k.Expression:
        """Rewrites an expression at any other place."""
        if not self._computes(expression):
            return map_operands(expression, self._name)
        self._count += 1
        local = k.Local(f"value{NUMBER}precise{self._count}", expression.type)
        self._named.append(k.Let(local, self._rewrite_local(expression)))
        return local

    def _computes(self, expression: k.Expression) -> bool:
        """Whether a value results from float arithmetic that may be simplified."""
        if not passes_on(expression, self._precise):
            return False
        if isinstance(expression, k.Operate) and expression.operation.name not in EXACT:
            return True
        return any(map(self._computes, list_operands(expression)))
