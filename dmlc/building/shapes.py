"""Data types and sizes of an operator's outputs, as far as its tables and sentences determine them.

Sizes may contain symbols, so nothing is computed: an output has the sizes, or the data type, of an
input that it must share them with. Those that a formula determines are known when the graph is
bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.building.values import Shape, Value
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition, TensorDefinition
from dmlc.scalars import DataType


def infer_output(
    operator: OperatorDefinition, output: TensorDefinition, given: Mapping[str, Value]
) -> tuple[Shape, DataType | None]:
    """Sizes and data type of an output, if they are those of a given value."""
    shape = next(
        (
            given[name].shape
            for name in [*_alike(operator, output, "Sizes"), *_same_shape(operator, output)]
            if name in given and given[name].shape is not None
        ),
        None,
    )
    if shape is None and output.dimensions is not None:
        shape = _from_dimensions(operator, output, given)
    dtypes = [given[n].data_type for n in _alike(operator, output, "DataType") if n in given]
    if not dtypes:
        dtypes = [_permitted_type(operator, output, given)]
    return shape, next((t for t in dtypes if t is not None), None)


def _permitted_type(
    operator: OperatorDefinition, output: TensorDefinition, given: Mapping[str, Value]
) -> DataType | None:
    """Data type that the tables permit for an output, with the binder's preference: one that an
    input has, or else the first. None if an input's type is unknown."""
    known = {name: value.data_type for name, value in given.items()}
    choices: dict[DataType, None] = {}
    for combination in operator.combinations:
        types = combination.types
        if output.name not in types or any(known[n] is None for n in known if n in types):
            continue
        if all(dtype in types[name] for name, dtype in known.items() if name in types):
            choices |= dict.fromkeys(types[output.name])
    if not choices and len(output.dtypes) == 1:
        choices = dict.fromkeys(output.dtypes)
    return next((t for t in (*known.values(), *choices) if t in choices), None)


def _alike(operator: OperatorDefinition, output: TensorDefinition, fact: str) -> list[str]:
    """Tensors that the sentences equate with an output in a fact."""
    found: list[str] = []
    for constraint in operator.constraints:
        if isinstance(constraint, syntax.Sentence) and constraint.kind == "same":
            names = [s.text for s in constraint.subjects]
            if output.name in names and any(o.text == fact for o in constraint.objects):
                found += names
    return found


def _same_shape(operator: OperatorDefinition, output: TensorDefinition) -> list[str]:
    tensors = operator.levels[-1].tensors
    return [
        t.name for t in tensors if t.shape_name is not None and t.shape_name == output.shape_name
    ]


def _from_dimensions(
    operator: OperatorDefinition, output: TensorDefinition, given: Mapping[str, Value]
) -> Shape:
    """Sizes from the table's names: `{ N, C, 1 }`."""
    named: dict[str, int | str] = {}
    for tensor in operator.levels[-1].tensors:
        shape = given[tensor.name].shape if tensor.name in given else None
        if shape is None or tensor.dimensions is None or len(shape) != len(tensor.dimensions):
            continue
        for dimension, size in zip(tensor.dimensions, shape, strict=True):
            if dimension.name is not None:
                named.setdefault(dimension.name, size)
    found: list[int | str] = []
    for dimension in output.dimensions or ():
        size = dimension.size if dimension.name is None else named.get(dimension.name)
        if size is None or dimension.optional:
            return None
        found.append(size)
    return tuple(found)
