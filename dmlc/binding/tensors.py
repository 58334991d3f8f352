"""`TensorDesc`: a caller's description of a tensor, like DirectML's tensor description."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy.typing as npt

from dmlc.ir import Extent, packed_strides
from dmlc.parameters import expect_integer, expect_items
from dmlc.scalars import DataType, as_data_type
from dmlc.sizes import find_symbols, known, list_symbols, parse_size
from dmlc.source import DmlcError, Span

MAXIMUM_RANK = 8
LARGEST_SIZE = 2**63 - 1
"""Largest size, stride, number of elements and span of a tensor."""


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class TensorDesc:
    """Data type, sizes and strides of a tensor.

    `data_type` is a `DataType`, a name such as `"FLOAT32"` or `"f32"`, or NumPy's type or dtype.
    `sizes` has 1 to 8 dimensions of 0 or more elements; a name such as `"N"` leaves one open until
    kernels run, for 1 element or more, and so does what is made of names, such as `"N + 2"`; None
    leaves all of them open.
    `strides` are in elements, 0 or more, one per dimension; None means packed, last dimension
    fastest. A stride of 0 repeats the same element. Raises `DmlcError` for anything else.
    """

    data_type: DataType
    sizes: tuple[Extent, ...] | None
    strides: tuple[int, ...] | None

    def __init__(
        self,
        data_type: DataType | str | npt.DTypeLike,
        sizes: Sequence[Extent] | None = None,
        strides: Sequence[int] | None = None,
    ) -> None:
        object.__setattr__(self, "data_type", as_data_type("data_type", data_type))
        object.__setattr__(self, "sizes", None if sizes is None else read_open_sizes(sizes))
        object.__setattr__(self, "strides", None)
        if strides is not None:
            object.__setattr__(self, "strides", _as_strides(strides, self.sizes))
        if self.sizes is not None and not self.symbols and self.last_offset >= LARGEST_SIZE:
            raise DmlcError(
                f"a tensor of sizes {show_sizes(self.sizes)} and strides "
                f"{show_sizes(self.strides or ())} reaches over {self.last_offset + 1} elements, "
                f"and {LARGEST_SIZE} is the most",
                code="E0806",
            )

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the open sizes."""
        return find_symbols(self.sizes or ())

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of a tensor without open ones; empty if none are given."""
        return known(self.sizes or ())

    @property
    def last_offset(self) -> int:
        """Offset of the last element in elements; -1 for an empty tensor."""
        if self.sizes is None:
            raise DmlcError(
                "a tensor description without sizes has no extent in memory", code="E0806"
            )
        sizes = tuple(e for e in self.sizes if isinstance(e, int))
        if len(sizes) < len(self.sizes):
            names = ", ".join(self.symbols)
            raise DmlcError(
                f"a tensor has no extent in memory before its size {names} is known", code="E0809"
            )
        if 0 in sizes:
            return -1
        strides = self.strides or packed_strides(sizes)
        return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))

    @property
    def total_bytes(self) -> int:
        """Bytes of a buffer for the tensor, rounded up to a multiple of 4."""
        return -(-(self.last_offset + 1) * self.data_type.bytes // 4) * 4

    @property
    def stored_strides(self) -> tuple[int, ...] | None:
        """Strides, or None if they are those of a packed tensor."""
        if self.strides is None or self.sizes is None or 0 in self.sizes:
            return None
        sizes = self.shape
        same = all(
            size == 1 or given == usual
            for size, given, usual in zip(sizes, self.strides, packed_strides(sizes), strict=True)
        )
        return None if same else self.strides

    def __str__(self) -> str:
        shape = "[...]" if self.sizes is None else show_sizes(self.sizes)
        strides = self.strides
        layout = "" if strides is None else "{" + ", ".join(map(str, strides)) + "}"
        return f"{self.data_type.name}{shape}{layout}"


@dataclasses.dataclass(frozen=True, slots=True)
class Described:
    """Caller's description of a tensor; None for unknown fields, and for packed strides."""

    dtype: DataType | None = None
    sizes: tuple[Extent, ...] | None = None
    strides: tuple[int, ...] | None = None


def show_sizes(sizes: Sequence[int | str]) -> str:
    """Sizes as messages spell them: `[2, 3]`."""
    return f"[{', '.join(map(str, sizes))}]"


def _as_integers(what: str, given: object, whose: str = "") -> tuple[int, ...]:
    items = expect_items(f"{whose}{what}", given, "a list of whole numbers")
    made = [expect_integer(f"{whose}each of {what}", value) for value in items]
    for axis, value in enumerate(made):
        along = f"along axis {axis} it is {value}"
        if value < 0:
            raise DmlcError(f"{whose}{what} must not be negative, but {along}", code="E0806")
        if value > LARGEST_SIZE:
            raise DmlcError(f"{whose}{what} are at most {LARGEST_SIZE}, but {along}", code="E0806")
    return tuple(made)


def read_sizes(given: object, name: str | None = None) -> tuple[int, ...]:
    """Sizes a tensor may have: 1 to 8, each 0 or more, `LARGEST_SIZE` elements together at most.
    `name` is the tensor's, for messages. Raises `DmlcError`."""
    whose = "" if name is None else f"tensor '{name}': "
    sizes = _as_integers("sizes", given, whose)
    if not 1 <= len(sizes) <= MAXIMUM_RANK:
        raise DmlcError(
            f"{whose}a tensor has 1 to {MAXIMUM_RANK} dimensions, but sizes has {len(sizes)}",
            code="E0409",
        )
    excess = find_excess(sizes)
    if excess is not None:
        raise DmlcError(f"{whose}{excess}", code="E0409")
    return sizes


def read_open_sizes(given: object, name: str | None = None) -> tuple[Extent, ...]:
    """The same, where names may stand for sizes that are left open. Raises `DmlcError`."""
    whose = "" if name is None else f"tensor '{name}': "
    items = expect_items(f"{whose}sizes", given, "a list of whole numbers, or names of open sizes")
    read = {axis: as_open_size(item) for axis, item in enumerate(items)}
    symbols = {axis: size for axis, size in read.items() if size is not None}
    # An open size counts as 1.
    known = read_sizes([1 if axis in symbols else item for axis, item in enumerate(items)], name)
    return tuple(symbols.get(axis, size) for axis, size in enumerate(known))


def as_open_size(size: object) -> str | None:
    """Open size, such as `N` or `N + 2`, as an extent; None for others."""
    if not isinstance(size, str) or max(map(len, list_symbols(size)), default=0) > _LONGEST_NAME:
        return None
    try:
        found = parse_size(size)
    except DmlcError:
        return None
    return None if isinstance(found, int) else str(found)


_LONGEST_NAME = 64


def find_excess(sizes: Sequence[int | str]) -> str | None:
    """Message about sizes that exceed the largest number of elements; None for others. An empty
    axis does not make up for large ones: no array has such sizes."""
    count = math.prod(max(size, 1) for size in sizes if isinstance(size, int))
    if count <= LARGEST_SIZE:
        return None
    return f"sizes {show_sizes(sizes)} are {count} elements, and {LARGEST_SIZE} is the most"


def refuse_excess(what: str, sizes: Sequence[int | str], span: Span | None) -> None:
    """Raises `DmlcError` for sizes that exceed the largest number of elements."""
    excess = find_excess(sizes)
    if excess is not None:
        raise DmlcError(f"{what} is too large: {excess}", span, code="E0409")


def _as_strides(given: object, sizes: tuple[Extent, ...] | None) -> tuple[int, ...]:
    strides = _as_integers("strides", given)
    if sizes is None:
        raise DmlcError("strides need sizes: give both, or neither", code="E0806")
    left_open = next((e for e in sizes if isinstance(e, str)), None)
    if left_open is not None:
        raise DmlcError(
            f"a tensor with strides has sizes that are numbers, and '{left_open}' is left open",
            code="E0809",
        )
    if len(strides) != len(sizes):
        raise DmlcError(
            f"{len(sizes)} sizes need {len(sizes)} strides, but there are {len(strides)}",
            code="E0806",
        )
    return strides
