"""Runs the examples that stand in operators: executable documentation.

An example gives numbers, and no data type: it runs with every type of the operator's first input
that holds all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from dmlc.api import run
from dmlc.binding import Operator, TensorDesc
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.language import syntax
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.testing.compare import compare, find_tolerance
from dmlc.testing.verify import Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class ExampleRun:
    """One example with one data type, and how near each expected output came."""

    title: str
    data_type: DataType
    verdicts: dict[str, Verdict]

    @property
    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts.values())


def run_examples(operator: Operator, device: str = "opencl") -> Iterator[ExampleRun]:
    """Every example of an operator with every data type that holds its numbers.

    Raises `DmlcError` where an example cannot be run.
    """
    tensors = operator.definition.levels[-1].tensors
    types = next(t.dtypes for t in tensors if not t.output)
    for example in operator.definition.examples:
        for dtype in types:
            done = _run_example(operator, example, dtype, device)
            if done is not None:
                yield done


def _run_example(
    operator: Operator, example: syntax.Example, dtype: DataType, device: str
) -> ExampleRun | None:
    """None where the data type does not hold the example's numbers."""
    definition = operator.definition
    evaluator = Evaluator(Binding(definition, {}, {}, {}, False))
    arrays: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    attributes: dict[str, object] = {}
    for item in example.items:
        name, value = item.name.text, item.value
        tensor = definition.levels[-1].tensor(name)
        if tensor is None:
            # A bare word is a member of the attribute's enum.
            word = isinstance(value, syntax.Reference)
            attributes[name] = value.name if word else evaluator.constant(value)
            continue
        exact = np.array(evaluator.constant(value), np.float64)
        stored_as = dtype if dtype in tensor.dtypes else tensor.dtypes[0]
        array = _store(exact, stored_as)
        if array is None:
            return None
        (expected if item.expected else arrays)[name] = array
    given = {
        n: TensorDesc(data_type_of(a.dtype) or dtype, a.shape)
        for n, a in {**arrays, **expected}.items()
    }
    function = operator.bind(given, attributes)
    results = run(operator, arrays, attributes, device=device)
    verdicts: dict[str, Verdict] = {}
    for name, array in expected.items():
        tolerance = find_tolerance(function, name)
        verdicts[name] = Verdict(compare(results[name], array, tolerance), tolerance)
    return ExampleRun(example.title, dtype, verdicts)


def _store(values: Array, dtype: DataType) -> Array | None:
    """The values in a data type, or None where a whole-number type does not hold them."""
    if not dtype.is_integer:
        return values.astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    whole = np.isfinite(values) & (values == np.trunc(values))
    if not np.all(whole & (limits.min <= values) & (values <= limits.max)):
        return None
    return values.astype(dtype.dtype)
