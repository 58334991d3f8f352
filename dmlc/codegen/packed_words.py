"""Types that a language has no name for: how their values are computed with and kept in memory.

A value stands in a signed or an unsigned integer of 32 bits, always as the number that it is: a
result that may leave the type's range is brought back at once. Buffers hold several elements to a
word of 32 bits. Whole words are read and stored where four neighbours are. A store of one element
changes its bits alone: those of others in the word may be stored by other threads at the same time,
in either order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import numpy as np

from dmlc.scalars import DataType, Kind
from dmlc.scalars.operation import Entry, Spelling, Unsupported

BYTES = (DataType.INT8, DataType.UINT8, DataType.BOOL)
"""The types of 8 bits."""

_LEAVING = MappingProxyType(
    {
        Kind.SIGNED: ("add", "sub", "mul", "div", "neg", "abs", "shift_left"),
        Kind.UNSIGNED: ("add", "sub", "mul", "neg", "bit_not", "shift_left"),
    }
)
"""The operations whose results may lie outside a type."""


def find_carrier(dtype: DataType, held: Collection[DataType]) -> DataType:
    """The type that a value is computed in, where those `held` have no name."""
    if dtype not in held or not dtype.is_integer:
        return dtype
    return DataType.INT32 if dtype.kind is Kind.SIGNED else DataType.UINT32


@dataclasses.dataclass(frozen=True, slots=True)
class PackedWords:
    """How a language writes them."""

    extend: str
    """The number `{x}` that the lowest bits of a signed integer are, where `{n}` are left out."""
    mask: str
    """Bits of an integer, of which those above a value are 0."""
    bits: Mapping[Kind, str]
    """The bits of an element, of which those above may be any where it is signed."""
    store: str
    """An element stored in its word `{e}`, at the bit `{h}`: its `{bits}` and its `{mask}`."""
    convert: str
    """The name of the helper that makes an integer type of a float."""

    def spell(
        self, name: str, dtype: DataType, spell: Callable[[str, DataType, int], Entry]
    ) -> Entry:
        """An operation of a type that is held in a wider one, from how `spell` writes that one's,
        where values have so many bits."""
        entry = spell(name, find_carrier(dtype, (dtype,)), 8 * dtype.bytes)
        return self._wrap(entry, dtype) if name in _LEAVING[dtype.kind] else entry

    def convert_held(
        self,
        source: DataType,
        target: DataType,
        held: Collection[DataType],
        convert: Callable[[DataType, DataType], Entry],
    ) -> Entry:
        """A conversion, from how `convert` writes that of the types which values are computed
        in."""
        if target not in held or not target.is_integer:
            return convert(find_carrier(source, held), target)
        if source.is_float:
            return Spelling("{H}({a})", helper=self.convert.format(R=target.name.lower()))
        entry = convert(find_carrier(source, held), find_carrier(target, held))
        return entry if _fits(source, target) else self._wrap(entry, target)

    def make_stores(self, held: Collection[DataType]) -> dict[DataType, Spelling]:
        """How elements of types are stored that several of are held to a word."""
        return {dtype: self._spell_store(dtype) for dtype in held}

    def _wrap(self, entry: Entry, dtype: DataType) -> Entry:
        """The same, brought back into a type's range."""
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
    """How elements of types are read that several of are held to a word."""
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
    """The words that four neighbours are stored as."""
    return {dtype: Spelling("{H}({a})", helper=f"pack_{dtype.name.lower()}") for dtype in held}
