"""Examples in operators as cases: executable documentation.

An example gives numbers without a data type: it is a case for every type of the operator's first
input that represents all of them and that the operator permits with its attributes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.call_errors import explain_at
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.operator import Description
from dmlc.binding.tensors import show_sizes
from dmlc.ir import Extent
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition
from dmlc.parameters import expect
from dmlc.scalars import Array, DataType, find_data_type
from dmlc.source import DmlcError, Note
from dmlc.testing.case import Call, Case


def read_cases(operator: Operator, example: syntax.Example) -> Iterator[Case]:
    """Cases of an example, one per permitted choice of data types that represents its numbers.
    Raises `DmlcError` at the example, or at the wrong `expect`, if there is none."""
    expect("operator", operator, Operator, "a dmlc.Operator")
    expect("example", example, syntax.Example, "an example of its file")
    found = False
    unheld: DmlcError | None = None
    refused: tuple[dict[str, DataType], DmlcError] | None = None
    numbers = _Numbers.read(operator.definition, example)
    definition = operator.definition
    said = {_row(n): t for n, i in numbers.items.items() if (t := _find_type(i)) is not None}
    for alike, types in itertools.chain(
        _choose_types(definition, said, True), _choose_types(definition, said, False)
    ):
        if found and not alike:
            return
        try:
            case = numbers.bind(operator, types)
        except _UnheldError as error:
            unheld = unheld or error
            continue
        except DmlcError as error:
            # If no type represents the numbers, incompatible types are not the cause.
            refused = refused or ((types, error) if alike or unheld is None else None)
            continue
        found = True
        yield case
    if found:
        return
    if refused is not None:
        raise _place_refusal(operator, numbers, *refused)
    message = f"no data types that '{operator.name}' permits hold the numbers of this example"
    raise unheld or DmlcError(message, example.span)


class _UnheldError(DmlcError):
    """Raised for numbers that a data type does not represent."""


def _choose_types(
    definition: OperatorDefinition, said: Mapping[str, DataType], alike: bool
) -> Iterator[tuple[bool, dict[str, DataType]]]:
    """Data types of the inputs, for every type of the first and every row of `types`: if `alike`,
    the first one's type wherever permitted, else the first permitted type of each. Types stated in
    the example are kept."""
    tensors = definition.newest.tensors
    # An operator that reads nothing goes by its outputs.
    inputs = [t for t in tensors if not t.output] or list(tensors)
    rows = [c.types for c in definition.combinations] or [{}]
    for dtype in inputs[0].dtypes:
        for row in rows:
            if dtype not in row.get(inputs[0].name, (dtype,)):
                continue
            choices = {t.name: row.get(t.name, t.dtypes) for t in inputs}
            known = {n: said[n] for n in choices if n in said}
            if any(dtype not in choices[n] for n, dtype in known.items()):
                continue
            types = {n: dtype if alike and dtype in s else s[0] for n, s in choices.items()}
            types |= {inputs[0].name: dtype} | known
            if types[inputs[0].name] is dtype:
                yield alike, types


@dataclasses.dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers of an example, without data types, and their spans."""

    example: syntax.Example
    attributes: Mapping[str, object]
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    instead: Mapping[str, Array]
    items: Mapping[str, syntax.ExampleItem]

    @staticmethod
    def read(definition: OperatorDefinition, example: syntax.Example) -> _Numbers:
        evaluator = Evaluator(Binding(definition, {}, {}, {}, False))
        attributes: dict[str, object] = {}
        arrays: tuple[dict[str, Array], dict[str, Array]] = {}, {}
        instead: dict[str, Array] = {}
        items: dict[str, syntax.ExampleItem] = {}
        for item in example.items:
            name, value = item.name.text, item.value
            if definition.newest.tensor(name) is not None:
                # As they are: float64 does not hold the largest whole numbers.
                exact = np.array(evaluator.constant(value), np.object_)
                arrays[item.expected][item.tensor] = exact
                items[item.tensor] = item
                if item.instead is not None:
                    others = np.array(evaluator.constant(item.instead), np.object_)
                    instead[item.tensor] = others
                continue
            # A bare word is a member of the attribute's enum.
            word = isinstance(value, syntax.Reference)
            attributes[name] = value.name if word else evaluator.constant(value)
        return _Numbers(example, attributes, *arrays, instead, items)

    def describe(self, types: Mapping[str, DataType]) -> dict[str, Description]:
        """Descriptions for the binding: the data types chosen, and the sizes of all tensors."""
        found: dict[str, Description] = {}
        for name, array in (*self.expected.items(), *self.inputs.items()):
            dtype = _find_type(self.items[name]) or types.get(_row(name))
            found[name] = array.shape if dtype is None else TensorDesc(dtype, array.shape)
        return found

    def bind(self, operator: Operator, types: Mapping[str, DataType]) -> Case:
        """Case with these data types. Raises `DmlcError` for types that do not represent the
        numbers, and for a call that the operator refuses."""
        said = {n: _find_type(item) for n, item in self.items.items()}
        inputs = {n: self.store(n, a, said[n] or types[_row(n)]) for n, a in self.inputs.items()}
        binding = operator.resolve(self.describe(types), self.attributes)
        tensors = {
            name: TensorDesc(binding.dtype(name, None), tensor.sizes, tensor.strides)
            for name, tensor in binding.tensors.items()
        }
        expected, instead = (
            {n: self.keep(n, a, tensors[n].data_type) for n, a in found.items()}
            for found in (self.expected, self.instead)
        )
        within = {n: float(i.within.value) for n, i in self.items.items() if i.within is not None}
        call = Call(operator, tensors, self.attributes)
        try:
            _ = call.function
        except DmlcError:
            # If the constraints permit the call, the operator is at fault, except for output sizes.
            if _find_misshapen(operator, self, types) is not None:
                raise
        title, place = self.example.title, self.example.span
        places = {name: self.items[name].value.span for name in self.expected}
        difference = self.example if isinstance(self.example, syntax.Difference) else None
        return Case(call, inputs, title, expected, within, place, places, difference, instead)

    def keep(self, name: str, values: Array, dtype: DataType) -> Array:
        """Expected values of an output: exact for a floating type, else in its type. Raises as
        `store` does."""
        stored = self.store(name, values, dtype)
        return values.astype(np.float64) if dtype.is_float else stored

    def store(self, name: str, values: Array, dtype: DataType) -> Array:
        """Numbers of a tensor in a data type. Raises `_UnheldError` for whole-number types that do
        not represent them, and for floating types that overflow."""
        stored = _store_floats(values, dtype) if dtype.is_float else _store_whole(values, dtype)
        if stored is None:
            message = f"'{name}' is {dtype.name}, which does not hold these numbers"
            raise _UnheldError(message, self.items[name].value.span)
        return stored


def _store_floats(values: Array, dtype: DataType) -> Array | None:
    """Numbers rounded to a floating type; None on overflow."""
    exact = values.astype(np.float64)
    with np.errstate(all="ignore"):
        stored = exact.astype(dtype.dtype)
        same = stored.astype(np.float64)
    return stored if np.all(np.isfinite(same) | ~np.isfinite(exact)) else None


def _store_whole(values: Array, dtype: DataType) -> Array | None:
    """Numbers in a whole-number type, or in BOOL; None if not representable."""
    numbers: list[int | float] = values.ravel().tolist()
    least, most = (0, 1) if dtype is DataType.BOOL else _find_limits(dtype)
    # Of NaN and the infinities the remainder is NaN.
    if not all(number % 1 == 0 and least <= number <= most for number in numbers):
        return None
    return np.array([int(number) for number in numbers], dtype.dtype).reshape(values.shape)


def _find_limits(dtype: DataType) -> tuple[int, int]:
    """Smallest and largest number of an integer type."""
    limits = np.iinfo(dtype.dtype)
    return int(limits.min), int(limits.max)


def _find_type(item: syntax.ExampleItem) -> DataType | None:
    """Data type that an example states for a tensor."""
    return None if item.dtype is None else find_data_type(item.dtype.text)


def _row(name: str) -> str:
    """Table row of a tensor."""
    return name.partition("[")[0]


def _place_refusal(
    operator: Operator, numbers: _Numbers, types: Mapping[str, DataType], error: DmlcError
) -> DmlcError:
    """Error of an example that cannot be bound, located at the `expect` whose sizes are wrong, at
    the tensor that the binding names, or at the example."""
    given = {item.name.text: item.value.span for item in numbers.example.items}
    misshapen = _find_misshapen(operator, numbers, types)
    if misshapen is None:
        return explain_at(error, operator.definition, numbers.example.span, given)
    name, sizes = misshapen
    place, expected = given[_row(name)], numbers.expected[name].shape
    because = explain_at(error, operator.definition, place, {name: place})
    if sizes is None or sizes == expected:
        return because
    message = f"'{name}' is {show_sizes(sizes)} here, and {show_sizes(expected)} expected"
    notes = [Note(d.message, note.span) for d in because.diagnostics for note in d.notes[:1]]
    return DmlcError(message, place, notes)


def _find_misshapen(
    operator: Operator, numbers: _Numbers, types: Mapping[str, DataType]
) -> tuple[str, tuple[Extent, ...] | None] | None:
    """First output whose expected sizes prevent the binding, and the sizes that follow without
    them, if any."""
    described = numbers.describe(types)
    for name in numbers.expected:
        others = {n: d for n, d in described.items() if n != name}
        with contextlib.suppress(DmlcError):
            operator.bind(others, numbers.attributes)
            binding = operator.resolve(others, numbers.attributes, computed=(name,))
            return name, binding.tensors[name].sizes
    return None
