"""Node of an ONNX model as rules see it: its inputs, attributes and outputs.

A value of a model is a tensor of the function under construction, or an array that is known during
import, whose elements may be open sizes (`Size`). A rule asks a node for either kind. `load` knows
the rules and the values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from dmlc.building.functions import FunctionBuilder, Tensor
from dmlc.building.tensors import normalize_axes
from dmlc.ir import Extent
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.sizes import Measure, Size, as_extent, measure
from dmlc.source import Diagnostic, DmlcError, UnsupportedError

Value: TypeAlias = Tensor | Array
"""What a name of a model stands for."""

Output: TypeAlias = Value | Sequence[Value | None]
"""What a rule gives: the first output, or all of them, None for those that are not asked for."""


class UnknownValueError(UnsupportedError):
    """Value that must be known during import and is not. `names` are the inputs of the model on
    which it depends; it is known if these are given as constants."""

    def __init__(self, message: str | Diagnostic, names: tuple[str, ...]) -> None:
        super().__init__([message] if isinstance(message, Diagnostic) else message)
        self.names = names


class OpenSizeError(UnsupportedError):
    """Open size that must be a number. `symbols` are those on which it depends; it is known if
    these are given."""

    def __init__(self, message: str | Diagnostic, symbols: tuple[str, ...]) -> None:
        super().__init__([message] if isinstance(message, Diagnostic) else message)
        self.symbols = symbols


def need_number(size: Extent | Measure, what: str) -> int:
    """Size as a number. Raises `OpenSizeError` if it is open; `what` is a clause that names it."""
    found = measure(size) if isinstance(size, str) else size
    if isinstance(found, Size):
        raise OpenSizeError(f"{what} is {found}, which is left open", found.symbols)
    return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Node in a model, with the version of its operator set."""

    builder: FunctionBuilder
    op_type: str
    version: int
    inputs: tuple[Value | None, ...]
    outputs: tuple[str, ...]
    """The names that its outputs have in the function; empty for those that are not asked for."""
    attributes: Mapping[str, object]
    """Values of its attributes; ONNX's defaults of its version for those that it leaves out."""
    place: Callable[[Array, str], Tensor]
    """Makes an array a tensor of the function, under a name."""
    know: Callable[[Value, str], Array]
    """A value that has to be known; the text says what it is. Raises `UnknownValueError`."""
    hold: Callable[[int], None]
    """Counts bytes of constants that a rule is about to compute. Raises `DmlcError` where they are
    too many."""

    # Inputs -----------------------------------------------------------------------------------

    def has(self, number: int) -> bool:
        """Whether an optional input is present."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def value(self, number: int) -> Value:
        """Input, known or not."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if found is None:
            raise DmlcError(f"it has no input {number}")
        return found

    def tensor(self, number: int) -> Tensor:
        """Input as a tensor of the function."""
        found = self.value(number)
        if isinstance(found, Tensor):
            return found
        return self.place(found, f"{self.name}_input{number}")

    def optional(self, number: int) -> Tensor | None:
        return self.tensor(number) if self.has(number) else None

    def tensors(self) -> list[Tensor]:
        """All inputs, as tensors."""
        return [self.tensor(number) for number in range(len(self.inputs))]

    def array(self, number: int) -> Array:
        """Input that must be known. Raises `UnknownValueError`."""
        return self.know(self.value(number), f"its input {number}")

    def measures(self, number: int) -> list[Measure]:
        """Input that must be known, as sizes, of which some may be open."""
        return [v if isinstance(v, Size) else int(v) for v in self.array(number).ravel()]

    def numbers(self, number: int) -> list[int]:
        """Input that must be known, as integers."""
        return [need_number(size, f"a number in its input {number}") for size in
                self.measures(number)]  # fmt: skip

    # Attributes, each with the value that one without a default has where a node leaves it out ---

    def integer(self, name: str, default: int = 0) -> int:
        return int(cast("int", self.attributes.get(name, default)))

    def axis(self, rank: int) -> int:
        """Attribute `axis`, normalized for a rank."""
        (found,) = normalize_axes([self.integer("axis")], rank)
        return found

    def number(self, name: str, default: float = 0.0) -> float:
        return float(cast("float", self.attributes.get(name, default)))

    def text(self, name: str, default: str = "") -> str:
        return str(self.attributes.get(name, default))

    def integers(self, name: str) -> list[int] | None:
        found = cast("Sequence[int] | None", self.attributes.get(name))
        return None if found is None else [int(value) for value in found]

    def floats(self, name: str) -> list[float]:
        return [float(value) for value in cast("Sequence[float]", self.attributes.get(name, ()))]

    def texts(self, name: str) -> list[str]:
        return [str(value) for value in cast("Sequence[str]", self.attributes.get(name, ()))]

    def setting(self, name: str, number: int) -> list[int] | None:
        """Integers that are an attribute in older versions and an input in newer ones."""
        return self.numbers(number) if self.has(number) else self.integers(name)

    def sizes(self, name: str, number: int) -> Sequence[Measure]:
        """Sizes of an attribute or an input, which may be open; empty if it has none."""
        return self.measures(number) if self.has(number) else self.integers(name) or []

    # Outputs ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the first output."""
        return next((name for name in self.outputs if name), self.op_type)

    def wants(self, number: int) -> bool:
        """Whether an optional output is used."""
        return number < len(self.outputs) and self.outputs[number] != ""

    def fixed(self, tensor: Tensor, rank: int | None = None) -> list[int]:
        """Sizes of a tensor, which must be known. Raises `DmlcError` if it is not of this
        `rank`."""
        if rank is not None and tensor.rank != rank:
            raise DmlcError(f"{tensor.name} has {tensor.rank} axes, and not {rank}")
        return [need_number(extent, f"a size of {tensor.name}") for extent in tensor.extents]


Rule: TypeAlias = Callable[[Node], Output]
"""How an operator of ONNX becomes tensors of a function."""


def dtype_of(value: Value) -> DataType:
    """Data type of a value. Raises `UnsupportedError` if no tensor can have it."""
    if isinstance(value, Tensor):
        return value.dtype
    if is_sizes(value):
        return DataType.INT64
    found = data_type_of(value.dtype)
    if found is None:
        raise UnsupportedError(f"no tensor can hold {value.dtype}")
    return found


def is_sizes(value: object) -> bool:
    """Whether a value is an array of open sizes."""
    return isinstance(value, np.ndarray) and cast("Array", value).dtype == np.dtype(object)


def extents_of(value: Value) -> tuple[Extent, ...]:
    return value.extents if isinstance(value, Tensor) else value.shape


def hold_sizes(extents: Sequence[Extent], sizes: Sequence[Measure]) -> Array:
    """Sizes as a value: INT64, or objects if some are open. Raises `UnsupportedError` if one
    exceeds INT64."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    if max(numbers, default=0) > np.iinfo(np.int64).max:
        raise UnsupportedError(f"a size of {max(numbers):,} is more than INT64 holds")
    if len(numbers) == len(extents):
        return np.array(numbers, np.int64)
    held: Any = np.empty(len(sizes), object)
    held[:] = list(sizes)
    return held


def as_extents(measures: Sequence[Measure]) -> list[Extent]:
    return [as_extent(measure) for measure in measures]
