"""Runs the examples that stand in operators: executable documentation.

An example gives numbers, and no data type: it runs with every type of the operator's first input
that holds all of them and that the operator permits with its attributes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from dmlc.api import run
from dmlc.binding import Operator, TensorDesc, ir_name
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.operator import Description
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition
from dmlc.parameters import expect, expect_text
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.bounds import bound_errors
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


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """An example as arrays: its inputs stored in their data types, what it expects in float64."""

    title: str
    data_type: DataType
    attributes: dict[str, object]
    inputs: dict[str, Array]
    expected: dict[str, Array]
    output_types: dict[str, DataType] = dataclasses.field(default_factory=dict[str, DataType])
    """The data types of outputs, where no input decides them."""

    def descriptions(self) -> dict[str, Description]:
        """What binding is told: the types of the inputs, and the sizes of all."""
        given: dict[str, Description] = {}
        for name, array in self.expected.items():
            dtype = self.output_types.get(name)
            given[name] = array.shape if dtype is None else TensorDesc(dtype, array.shape)
        for name, array in self.inputs.items():
            given[name] = TensorDesc(data_type_of(array.dtype) or self.data_type, array.shape)
        return given


def run_examples(operator: Operator, device: str = "opencl") -> Iterator[ExampleRun]:
    """Every example of an operator with every choice of data types that holds its numbers and
    that the operator permits and the device has.

    Raises `DmlcError` where an example cannot be run with any data types.
    """
    expect("operator", operator, Operator, "a dmlc.Operator")
    expect_text("device", device, "the name of a device")
    for example in operator.definition.examples:
        refused: DmlcError | None = None
        ran = False
        for case in read_cases(operator.definition, example):
            try:
                binding = operator.resolve(case.descriptions(), case.attributes)
            except DmlcError as error:
                refused = refused or error
                continue
            try:
                found = _run_case(operator, case, binding, device)
            except UnsupportedError as error:
                refused = refused or error
                continue
            ran = True
            yield found
        if not ran and refused is not None:
            raise refused


def read_cases(definition: OperatorDefinition, example: syntax.Example) -> Iterator[Case]:
    """An example with every choice of data types that holds its numbers."""
    expect("definition", definition, OperatorDefinition, "an operator's definition")
    expect("example", example, syntax.Example, "an example of its file")
    for types in _choose_types(definition):
        case = _read_example(definition, example, types)
        if case is not None:
            yield case


def _choose_types(definition: OperatorDefinition) -> Iterator[dict[str, DataType]]:
    """The data types of the inputs, for every type of the first and every row of `types`."""
    tensors = definition.levels[-1].tensors
    # An operator that reads nothing goes by its outputs.
    inputs = [t for t in tensors if not t.output] or list(tensors)
    rows = [c.types for c in definition.combinations] or [{}]
    for dtype in inputs[0].dtypes:
        for row in rows:
            if dtype not in row.get(inputs[0].name, (dtype,)):
                continue
            choices = {t.name: row.get(t.name, t.dtypes) for t in inputs}
            yield {n: dtype if dtype in some else some[0] for n, some in choices.items()}


def _read_example(
    definition: OperatorDefinition, example: syntax.Example, types: dict[str, DataType]
) -> Case | None:
    """None where a data type does not hold the example's numbers."""
    evaluator = Evaluator(Binding(definition, {}, {}, {}, False))
    case = Case(example.title, next(iter(types.values())), {}, {}, {})
    for item in example.items:
        name, value = item.name.text, item.value
        if definition.levels[-1].tensor(name) is None:
            # A bare word is a member of the attribute's enum.
            word = isinstance(value, syntax.Reference)
            case.attributes[name] = value.name if word else evaluator.constant(value)
            continue
        exact = np.array(evaluator.constant(value), np.float64)
        if item.expected:
            case.expected[item.tensor] = exact
            if name in types:
                case.output_types[item.tensor] = types[name]
            continue
        stored = _store(exact, types[name])
        if stored is None:
            return None
        case.inputs[item.tensor] = stored
    return case


def _run_case(operator: Operator, case: Case, binding: Binding, device: str) -> ExampleRun:
    function = operator.bind(case.descriptions(), case.attributes)
    wanted: dict[str, Array | tuple[int, ...]] = {}
    for name, array in case.expected.items():
        dtype = case.output_types.get(name)
        wanted[name] = array.shape if dtype is None else np.empty(array.shape, dtype.dtype)
    allowed = bound_errors(function, {ir_name(n): a for n, a in case.inputs.items()})
    results = run(operator, case.inputs, case.attributes, outputs=wanted, device=device)
    verdicts: dict[str, Verdict] = {}
    for name, exact in case.expected.items():
        stored = _store(exact, binding.dtype(name, None))
        if stored is None:
            raise DmlcError(f"example \"{case.title}\": '{name}' cannot hold what it expects")
        verdicts[name] = Verdict.of(results[name], stored, allowed[ir_name(name)])
    return ExampleRun(case.title, case.data_type, verdicts)


def _store(values: Array, dtype: DataType) -> Array | None:
    """The values in a data type, or None where a whole-number type does not hold them."""
    if not dtype.is_integer:
        return values.astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    whole = np.isfinite(values) & (values == np.trunc(values))
    if not np.all(whole & (limits.min <= values) & (values <= limits.max)):
        return None
    return values.astype(dtype.dtype)
