"""Dynamic sizes as values of a function: `tensor.dim`, and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.ir import Extent, Function, Parameter
from dmlc.mlir.region import Region, Value
from dmlc.mlir.spelling import spell_tensor
from dmlc.scalars import DataType
from dmlc.sizes import Size, measure, part_condition, part_quotient

_PREDICATES: Mapping[str, str] = {
    "==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge",
}  # fmt: skip


class Sizes:
    """Sizes of a function, each computed once, at its first use."""

    def __init__(self, function: Function, region: Region) -> None:
        self._region = region
        self._known: dict[str, Value] = {}
        symbols = function.symbols()
        for parameter in function.parameters:
            for axis, extent in enumerate(parameter.extents):
                if extent in symbols and extent not in self._known:
                    self._known[str(extent)] = self._measure(parameter, axis, str(extent))
        for check in function.checks:
            self._assert(function.name, check)

    def _measure(self, parameter: Parameter, axis: int, symbol: str) -> Value:
        """Value of a symbol: the size of an axis."""
        kind = spell_tensor(parameter.dtype, parameter.extents)
        at = self._region.constant(axis, DataType.INDEX)
        text = f"tensor.dim %{parameter.name}, {at} : {kind}"
        return Value(self._region.define(text, self._region.names.take(symbol)), DataType.INDEX)

    def value(self, extent: Extent | Size) -> Value:
        """Size as an index."""
        size = extent if isinstance(extent, Size) else measure(extent)
        if not isinstance(size, Size):
            return self._region.constant(size, DataType.INDEX)
        text = str(size)
        if text not in self._known:
            self._known[text] = self._sum(size)
        return self._known[text]

    def list_open(self, extents: tuple[Extent, ...]) -> str:
        """Values of the dynamic sizes of a tensor type."""
        return ", ".join(str(self.value(e)) for e in extents if isinstance(e, str))

    def _sum(self, size: Size) -> Value:
        total: Value | None = None
        for symbols, number in size.sort_terms():
            product: Value | None = None
            for symbol in symbols:
                factor = self._factor(symbol)
                product = factor if product is None else self._apply("muli", product, factor)
            if product is None:
                product = self.value(number)
            elif number != 1:
                product = self._apply("muli", product, self.value(number))
            total = product if total is None else self._apply("addi", total, product)
        return self.value(0) if total is None else total

    def _factor(self, symbol: str) -> Value:
        quotient = None if symbol in self._known else part_quotient(symbol)
        if quotient is None:
            return self._known[symbol]
        if symbol not in self._known:
            divided, by = quotient
            # The dividend has no negative part.
            made = self._apply("divui", self.value(divided), self.value(by))
            self._known[symbol] = made
        return self._known[symbol]

    def _apply(self, operation: str, left: Value, right: Value) -> Value:
        return self._region.apply(f"arith.{operation}", left, right)

    def _assert(self, name: str, check: str) -> None:
        left, relation, right = part_condition(check)
        compared = (self.value(measure(left)), self.value(measure(right)))
        holds = self._region.compare(_PREDICATES[relation], *compared)
        self._region.lines.append(f'cf.assert {holds}, "{name} is for sizes where {check}"')
