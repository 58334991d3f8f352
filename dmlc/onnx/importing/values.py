"""Values of a model during import: their elements if known, and their dependence on inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx

from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.building.tensors import flatten
from dmlc.ir.naming import take_name
from dmlc.onnx.importing.budget import Budget
from dmlc.onnx.importing.names import read_tensor, spell_name
from dmlc.onnx.importing.nodes import OpenSizeError, UnknownValueError, Value, dtype_of
from dmlc.scalars import Array, DataType
from dmlc.sizes import Measure, list_measured
from dmlc.source import UnsupportedError, list_names

LARGEST_TABLE = 1024
"""The most elements of a constant that the kernels hold. A larger one becomes a parameter."""


_MOST_SIZES = 32
"""The most sizes that are left open in one tensor of numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """Output of a node that is not supported."""


MISSING = Missing()


class Values:
    """Tensors of a function under construction, and known arrays that may become tensors."""

    def __init__(self, builder: FunctionBuilder, budget: Budget) -> None:
        self.builder = builder
        self.budget = budget
        self.weights: dict[str, Array] = {}
        """The constants that are parameters, by name."""
        self.taken: dict[str, None] = {}
        """The names of parameters and results."""
        self._names: dict[int, tuple[Array, str]] = {}
        self._origins: dict[str, tuple[str, ...]] = {}
        self._data: set[str] = set()
        """The inputs that nobody fixes: floats along two axes or more."""
        self._symbols: dict[str, tuple[str, ...]] = {}
        self._placed: dict[int, tuple[Array, Tensor]] = {}

    def read_initializer(self, initializer: onnx.TensorProto, prefix: str = "") -> Array:
        """Constant of a model, noted under its name."""
        array = read_tensor(initializer, f"the constant '{initializer.name}'")
        self.budget.allow(array.nbytes)
        self.name_array(array, prefix + spell_name(initializer.name))
        return array

    def name_array(self, array: Array, name: str) -> None:
        """Notes the name of an array, in case that it becomes a tensor."""
        self._names.setdefault(id(array), (array, name))

    def name_origins(self, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Notes the model's inputs on which a tensor depends."""
        self._origins.setdefault(tensor.name, names)

    def name_input(self, tensor: Tensor, name: str) -> None:
        """Notes that a tensor is an input of the model."""
        self.name_origins(tensor, (name,))
        if tensor.rank > 1 and tensor.dtype.is_float:
            self._data.add(name)

    def derive(self, tensor: Tensor, values: Sequence[object]) -> None:
        """Notes the values on which a tensor depends."""
        self.name_origins(tensor, self.merge_origins(values))
        self._symbols.setdefault(tensor.name, self._merge_symbols(values))

    def _merge_symbols(self, values: Sequence[object]) -> tuple[str, ...]:
        """Symbols of the open sizes in some values."""
        found: list[str] = []
        for value in values:
            if isinstance(value, Tensor):
                found += self._symbols.get(value.name, ())
            elif isinstance(value, np.ndarray):
                found += _list_symbols(cast("Array", value))
        return tuple(dict.fromkeys(found))

    def trace(self, tensor: Tensor) -> tuple[str, ...]:
        """Inputs of the model on which a tensor depends."""
        return self._origins.get(tensor.name, ())

    def merge_origins(self, values: Sequence[object]) -> tuple[str, ...]:
        """Inputs of the model on which any tensor among some values depends."""
        names = [n for v in values if isinstance(v, Tensor) for n in self.trace(v)]
        return tuple(dict.fromkeys(names))

    def know(self, value: Value | None, what: str) -> Array:
        """Value that must be known. Raises `UnknownValueError`, or `OpenSizeError` if only open
        sizes are unknown."""
        if isinstance(value, np.ndarray):
            return value
        names = () if value is None else self.trace(value)
        symbols = () if value is None else self._merge_symbols([value])
        need = f"{what} must be known when the model is imported"
        if symbols and not names:
            raise OpenSizeError(f"{need}, and depends on {list_names(symbols)}, left open", symbols)
        data = [name for name in names if name in self._data]
        if data:
            plural = "s" * (len(data) > 1)
            message = f"{need}, and follows from the data of the input{plural} {list_names(data)}"
            raise UnsupportedError(message)
        if names:
            need += (
                f", and is made of the input{'s' * (len(names) > 1)} {list_names(names)}: give the "
                f"value, as in constants={{'{names[0]}': array}}"
            )
        raise UnknownValueError(need, names)

    def tensor(self, value: Value, name: str = "constant") -> Tensor:
        """Value as a tensor of the function."""
        return value if isinstance(value, Tensor) else self.place(value, name)

    def place(self, array: Array, name: str) -> Tensor:
        """Array as a tensor: a constant, a table, or a parameter."""
        found = self._placed.get(id(array))
        if found is None:
            _, own = self._names.get(id(array), (array, spell_name(name)))
            found = array, self._make_tensor(array, dtype_of(array), own)
            self._placed[id(array)] = found
            self._origins[found[1].name] = ()
        return found[1]

    def narrow(self, sizes: Value, name: str) -> Tensor:
        """Open sizes as a tensor of INT32."""
        wide = self.tensor(sizes, name)
        made = self.builder.compute(
            f"{spell_name(name)}_narrow", wide.extents,
            lambda at: at.read(wide, *at.indices).cast(DataType.INT32), DataType.INT32,
        )  # fmt: skip
        self.derive(made, [wide])
        return made

    def _make_tensor(self, array: Array, dtype: DataType, name: str) -> Tensor:
        compute, builder = dtype.compute, self.builder
        if array.dtype == np.dtype(object):
            return self._make_sizes(array, name)
        if any(array.strides):
            self.budget.hold(array.nbytes)
        if _is_uniform(array):
            value: Any = _first(array).item() if array.size else 0
            return builder.compute(name, array.shape, lambda at: at.constant(value, compute), dtype)
        if array.size > LARGEST_TABLE:
            own = take_name(name, self.taken)
            while builder.has_name(own):
                own = take_name(name, self.taken)
            self.weights[own] = np.ascontiguousarray(array)
            return builder.parameter(own, dtype, array.shape)
        table = builder.table(name, array)
        if table.dtype is dtype:
            return table
        return builder.compute(
            f"{name}_{dtype.short}", array.shape, lambda at: at.read(table, *at.indices), dtype
        )

    def _make_sizes(self, array: Array, name: str) -> Tensor:
        """Open sizes as elements of a tensor."""
        sizes: list[Measure] = list(array.ravel())
        if len(sizes) > _MOST_SIZES:
            raise UnsupportedError(f"{len(sizes)} sizes that are left open, used as numbers")

        def element(at: Point) -> Scalar:
            place = flatten(at, at.indices, array.shape)
            found = at.measure(sizes[-1])
            for number, size in reversed(list(enumerate(sizes[:-1]))):
                found = place.equals(number).select(at.measure(size), found)
            return found.cast(DataType.INT64)

        made = self.builder.compute(name, array.shape, element)
        self._symbols[made.name] = self._merge_symbols([array])
        return made


def _list_symbols(array: Array) -> list[str]:
    """Symbols of the open sizes in an array."""
    sizes: list[Measure] = array.ravel().tolist() if array.dtype == np.dtype(object) else []
    return [symbol for size in sizes for symbol in list_measured(size)]


def _is_uniform(array: Array) -> bool:
    """Whether all elements have the same bits."""
    if array.size < 2 or not any(array.strides):
        return True
    return array.tobytes() == _first(array).tobytes() * array.size


def _first(array: Array) -> Array:
    """Array of the first element. A broadcast array takes no memory, but would if it were
    reshaped."""
    return array[(slice(0, 1),) * array.ndim]
