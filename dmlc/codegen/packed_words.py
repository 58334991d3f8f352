"""Types that a language lacks: their arithmetic and their packed storage.

A value is held in a signed or an unsigned integer of 32 bits, always in its own range: a result
that may leave the range is wrapped at once. Buffers hold several elements per word of 32 bits. Four
neighbours are read and stored as whole words. A store of one element changes its bits alone: other
threads may store to the rest of the word at the same time, in either order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import numpy as np

from dmlc.scalars import DataType, Kind
from dmlc.scalars.operation import Entry, Spelling, Unsupported

BYTES = (DataType.INT8, DataType.UINT8, DataType.BOOL)
"""Types of 8 bits."""

_LEAVING = MappingProxyType(
    {
        Kind.SIGNED: ("add", "sub", "mul", "div", "neg", "abs", "shift_left"),
        Kind.UNSIGNED: ("add", "sub", "mul", "neg", "bit_not", "shift_left"),
    }
)
"""Operations whose results may leave a type's range."""


def find_carrier(dtype: DataType, held: Collection[DataType]) -> DataType:
    """Type that a value is computed in, if those in `held` are lacking."""
    if dtype not in held or not dtype.is_integer:
        return dtype
    return DataType.INT32 if dtype.kind is Kind.SIGNED else DataType.UINT32


@dataclasses.dataclass(frozen=True, slots=True)
class PackedWords:
    """Packed words in the syntax of a language."""

    extend: str
    """Sign extension: the number in the lowest bits of the signed integer `{x}`, without the `{n}`
    upper ones."""
    mask: str
    """Mask of an element's bits, with zeros above."""
    bits: Mapping[Kind, str]
    """Bits of an element; those above are arbitrary if it is signed."""
    store: str
    """Store of an element to its word `{e}`, at the bit `{h}`: its `{bits}` and its `{mask}`."""
    convert: str
    """Name of the helper that converts a float to an integer type."""

    def spell(
        self, name: str, dtype: DataType, spell: Callable[[str, DataType, int], Entry]
    ) -> Entry:
        """Operation of a type that is held in a wider one; `spell` spells the wider one's operation
        on values of this many bits."""
        entry = spell(name, find_carrier(dtype, (dtype,)), 8 * dtype.bytes)
        return self._wrap(entry, dtype) if name in _LEAVING[dtype.kind] else entry

    def convert_held(
        self,
        source: DataType,
        target: DataType,
        held: Collection[DataType],
        convert: Callable[[DataType, DataType], Entry],
    ) -> Entry:
        """Conversion of held types; `convert` spells that of their carriers."""
        if target not in held or not target.is_integer:
            return convert(find_carrier(source, held), target)
        if source.is_float:
            return Spelling("{H}({a})", helper=self.convert.format(R=target.name.lower()))
        entry = convert(find_carrier(source, held), find_carrier(target, held))
        return entry if _fits(source, target) else self._wrap(entry, target)

    def make_stores(self, held: Collection[DataType]) -> dict[DataType, Spelling]:
        """Stores of elements of packed types."""
        return {dtype: self._spell_store(dtype) for dtype in held}

    def _wrap(self, entry: Entry, dtype: DataType) -> Entry:
        """Entry whose result is wrapped to a type's range."""
        if isinstance(entry, Unsupported):
            return entry

        def wrap(text: str | None) -> str | None:
            if text is None:
                return None
            inner = f"({text})" if entry.compound else text
            bits = 8 * dtype.bytes
            if dtype.kind is Kind.SIGNED:
                return self.extend.replace("{x}", inner).replace("{n}", str(32 - bits))
            return f"{inner} & {(1 << bits) - 1:#x}{self.mask}"

        text = wrap(entry.text) or ""
        vector, within = wrap(entry.vector), wrap(entry.within)
        return dataclasses.replace(entry, text=text, compound=True, vector=vector, within=within)

    def _spell_store(self, dtype: DataType) -> Spelling:
        mask = f"{(1 << 8 * dtype.bytes) - 1:#x}"
        bits = self.bits[dtype.kind].replace("{mask}", mask)
        one = self.store.replace("{mask}", mask).replace("{bits}", bits)
        helper = f"{dtype.name.lower()}_bits" if dtype.kind is Kind.FLOAT else None
        return Spelling(one, vector="{e} = {a};", helper=helper)


def _fits(source: DataType, target: DataType) -> bool:
    """Whether an integer type has all values of another."""
    if source is DataType.BOOL:
        return True
    inner, outer = np.iinfo(source.dtype), np.iinfo(target.dtype)
    return outer.min <= inner.min and inner.max <= outer.max


def make_loads(held: Collection[DataType]) -> dict[DataType, Spelling]:
    """Loads of elements of packed types."""
    return {dtype: _spell_load(dtype) for dtype in held}


def _spell_load(dtype: DataType) -> Spelling:
    key = dtype.name.lower()
    return Spelling(
        "{H}({e}, {h})",
        helper=f"{key}_at",
        vector="{H}({e})",
        vector_helper=f"unpack_{key}",
    )


def make_packs(held: Collection[DataType]) -> dict[DataType, Spelling]:
    """Words that four neighbours of packed types are stored as."""
    return {dtype: Spelling("{H}({a})", helper=f"pack_{dtype.name.lower()}") for dtype in held}
