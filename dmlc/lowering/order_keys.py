"""Numbers as keys: integers without a sign that come in the order of the numbers.

A float's bits, taken as an integer, rise with what is positive and fall with what is negative. NaN
comes after every number, in both directions. 0 and -0 are equal: their keys are neighbours, which
differ in the last bit alone, and count as one where digits are taken (`take_digit`). Each key is
that of one number, so that sorted keys are sorted numbers; a NaN is the one NaN.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import operate
from dmlc.scalars import DataType, Kind

DIGIT_BITS = 8
"""A digit of a key. Counts of all its values stay in the nearest cache, and as many places as it
has values are written to side by side."""
DIGITS = 1 << DIGIT_BITS

_SIGNED = {4: DataType.INT32, 8: DataType.INT64}
_UNSIGNED = {4: DataType.UINT32, 8: DataType.UINT64}


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """How numbers of a type are keys, in an order."""

    dtype: DataType
    """That of the numbers, as they are computed with."""
    descends: bool

    @property
    def type(self) -> k.Type:
        """That of the keys."""
        return k.Type(_UNSIGNED[max(4, self.dtype.bytes)])

    @property
    def count(self) -> int:
        """The digits of a key."""
        return self.dtype.bytes * 8 // DIGIT_BITS

    @property
    def _mask(self) -> int:
        return (1 << (8 * self.dtype.bytes)) - 1

    @property
    def _sign(self) -> int:
        return 1 << (8 * self.dtype.bytes - 1)

    def make(self, value: k.Expression) -> k.Expression:
        """The key of a number, which is a local."""
        if not self.dtype.is_float:
            return self._turn(self._shift(self._to_bits(value)))
        bits = k.Reinterpret(value, self.type)
        turned = operate("bit_or", self._spread_sign(bits), self._number(self._sign))
        key = operate("add", self._turn(operate("bit_xor", bits, turned)), self._number(1))
        last = self._number(self._mask)
        return k.Select(operate("isnan", value), last, key, self.type)

    def restore(self, key: k.Expression) -> k.Expression:
        """The number whose key that is, which is a local."""
        number = k.Type(self.dtype)
        if not self.dtype.is_float:
            return self._from_bits(self._shift(self._turn(key)))
        bits = self._turn(operate("sub", key, self._number(1)))
        is_less = operate("bit_not", self._spread_sign(bits))
        turned = operate("bit_or", is_less, self._number(self._sign))
        bits = operate("bit_xor", bits, turned)
        is_last = operate("eq", key, self._number(self._mask))
        nan = k.Literal(number, math.nan)
        return k.Select(is_last, nan, k.Reinterpret(bits, number), number)

    def take_digit(self, key: k.Expression, number: int) -> k.Expression:
        """A digit of a key, which is a local, as a position; the last one has the number 0."""
        if number:
            key = operate("shift_right", key, self._number(DIGIT_BITS * number))
        elif self.dtype.is_float:
            zero, other = self._number(self._sign), self._number(self._sign + 1)
            key = k.Select(operate("eq", key, other), zero, key, self.type)
        digit = operate("bit_and", key, self._number(DIGITS - 1))
        return k.Convert(digit, k.INDEX)

    def _number(self, value: int) -> k.Literal:
        return k.Literal(self.type, value)

    def _spread_sign(self, bits: k.Expression) -> k.Expression:
        """All bits of what has the first one set, and none of others. A choice between two would be
        a branch, which half of the numbers take."""
        signed = k.Type(_SIGNED[self.dtype.bytes])
        last = k.Literal(signed, 8 * self.dtype.bytes - 1)
        return k.Reinterpret(operate("shift_right", k.Reinterpret(bits, signed), last), self.type)

    def _flip(self, key: k.Expression) -> k.Expression:
        return operate("bit_xor", key, self._number(self._sign))

    def _turn(self, key: k.Expression) -> k.Expression:
        """A key in the other direction, where numbers descend."""
        return operate("bit_xor", key, self._number(self._mask)) if self.descends else key

    def _shift(self, bits: k.Expression) -> k.Expression:
        """The bits of an integer with the sign turned, where it has one: and back."""
        return self._flip(bits) if self.dtype.kind is Kind.SIGNED else bits

    def _to_bits(self, value: k.Expression) -> k.Expression:
        if self.dtype.bytes >= 4:
            return value if value.type == self.type else k.Reinterpret(value, self.type)
        if self.dtype.kind is not Kind.SIGNED:
            return k.Convert(value, self.type)
        wide = k.Reinterpret(k.Convert(value, k.Type(_SIGNED[4])), self.type)
        return operate("bit_and", wide, self._number(self._mask))

    def _from_bits(self, bits: k.Expression) -> k.Expression:
        number = k.Type(self.dtype)
        if self.dtype.bytes >= 4:
            return bits if bits.type == number else k.Reinterpret(bits, number)
        if self.dtype.kind is not Kind.SIGNED:
            return k.Convert(bits, number)
        # What the sign turned leaves is the number, less the least one.
        least = k.Literal(k.Type(_SIGNED[4]), -self._sign)
        wide = k.Reinterpret(self._flip(bits), k.Type(_SIGNED[4]))
        return k.Convert(operate("add", wide, least), number)
