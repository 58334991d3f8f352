"""Subjects of registration: operators, graphs and functions behind one interface.

A `Subject` names its inputs and outputs, infers the types and sizes of its results, and gives the
function for actual tensors. Sizes that are symbolic while PyTorch traces (`SymInt`) are names in
dmlc, and are converted back to the expressions computed from them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from dmlc import ir
from dmlc.binding import Graph, Operator, TensorDesc
from dmlc.binding.infer import same_rows
from dmlc.binding.operator import Description
from dmlc.building import gradient
from dmlc.ir.specialize import specialize
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition, TensorDefinition
from dmlc.scalars import DataType
from dmlc.sizes import evaluate_size, holds
from dmlc.source import DmlcError, UnsupportedError, check_known
from dmlc.transform.differentiate import differentiate

Sizes: TypeAlias = tuple[int, ...]
"""Numbers, or PyTorch's sizes that are held open, which reckon as numbers do."""
Shaped: TypeAlias = tuple[DataType, Sizes]
Settings: TypeAlias = Mapping[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Input or output."""

    name: str
    optional: bool = False
    array: bool = False
    """Of an input: whether it is a list of tensors."""
    floats: bool = True
    """Whether it may hold floating-point numbers, and so have a gradient."""
    sizes: bool = False
    """Of an output: whether a call may say its sizes, which no other tensor's have to be."""
    types: bool = False
    """Of an output: whether a call may say its data type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Keyword argument of a call; `type` is PyTorch's."""

    name: str
    type: str
    optional: bool = False


class Subject(Protocol):
    """Operator, graph or function."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[Row, ...]: ...
    @property
    def outputs(self) -> tuple[Row, ...]:
        """Outputs, in order."""
        ...

    @property
    def settings(self) -> tuple[Setting, ...]: ...
    @property
    def lifts(self) -> bool:
        """Whether a single number is accepted as a tensor of one element."""
        ...

    def infer(
        self, tensors: Mapping[str, Shaped], settings: Settings, asked: Mapping[str, Asked]
    ) -> tuple[Shaped, ...]:
        """Types and sizes of the outputs. Raises `DmlcError`."""
        ...

    def bind(
        self, tensors: Mapping[str, TensorDesc], settings: Settings, outputs: Sequence[TensorDesc]
    ) -> ir.Function:
        """Function for tensors. Raises `DmlcError`."""
        ...

    def bind_elements(
        self, types: Mapping[str, DataType], settings: Settings, outputs: Sequence[DataType]
    ) -> ir.Function | None:
        """Function for tensors of any one size; None if sizes matter."""
        ...

    def differentiate(self, wanted: Mapping[str, int | None], given: Sequence[str]) -> Subject:
        """Gradient, whose inputs are the gradients of outputs, as `d_Y`, and whose outputs are
        those of inputs, as `d_X`. `wanted` gives the number of tensors of each array. Raises
        `DmlcError`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Type and sizes of an output that a call states."""

    dtype: DataType | None = None
    sizes: Sizes | None = None


class Names:
    """Names of symbolic sizes: one for each distinct expression."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def spell(self, sizes: Sizes) -> tuple[ir.Extent, ...]:
        return tuple(s if type(s) is int else self._name(s) for s in sizes)

    def _name(self, size: int) -> str:
        name = self._names.setdefault(str(size), f"D{len(self._names)}")
        self.values[name] = size
        return name

    def read(self, sizes: Sequence[ir.Extent]) -> Sizes:
        return tuple(evaluate_size(size, self.values) for size in sizes)


# Operators --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorSubject:
    operator: Operator
    computed: tuple[str, ...] = ()
    """The optional outputs that are computed."""
    entries: tuple[tuple[str, int], ...] = ()
    """Of each array of outputs, how many tensors it has."""
    lifts = True

    def __post_init__(self) -> None:
        rows = {t.name: t for t in self.operator.definition.newest.outputs}
        optional = [name for name, row in rows.items() if row.optional]
        check_known(f"optional output of {self.operator.name}", optional, *self.computed)
        counts = dict(self.entries)
        for name, row in rows.items():
            if row.array and name not in counts:
                raise UnsupportedError(
                    f"'{name}' of {self.operator.name} is an array of outputs, and an operator of "
                    "PyTorch gives a fixed number of tensors",
                    notes=[f"say how many: entries={{'{name}': 2}}"],
                )

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def inputs(self) -> tuple[Row, ...]:
        rows = self.operator.definition.newest.inputs
        return tuple(Row(t.name, t.optional, t.array, t.holds_floats) for t in rows)

    @property
    def outputs(self) -> tuple[Row, ...]:
        definition = self.operator.definition
        counts = dict(self.entries)
        found: list[Row] = []
        for tensor in definition.newest.outputs:
            if tensor.optional and tensor.name not in self.computed:
                continue
            sizes = not _is_tied(definition, tensor, "Sizes")
            tied = _is_tied(definition, tensor, "DataType") or _is_listed(definition, tensor)
            types = len(tensor.dtypes) > 1 and not tied
            row = Row(tensor.name, False, False, tensor.holds_floats, sizes, types)
            count = counts.get(tensor.name, 0) if tensor.array else 0
            entries = [f"{tensor.name}[{n}]" for n in range(count)] if tensor.array else [row.name]
            found += [dataclasses.replace(row, name=name) for name in entries]
        return tuple(found)

    @property
    def settings(self) -> tuple[Setting, ...]:
        optional = {n: a.optional for n, a in self.operator.attributes.items()}
        found: list[Setting] = []
        for attribute in self.operator.definition.attributes:
            kind = attribute.type.torch + ("[]" if attribute.is_array else "")
            found.append(Setting(attribute.name, kind, optional[attribute.name]))
        return tuple(found)

    def infer(
        self, tensors: Mapping[str, Shaped], settings: Settings, asked: Mapping[str, Asked]
    ) -> tuple[Shaped, ...]:
        names = Names()
        described: dict[str, Description] = {
            n: TensorDesc(dtype, names.spell(sizes)) for n, (dtype, sizes) in tensors.items()
        }
        for name, of in asked.items():
            sizes = None if of.sizes is None else names.spell(of.sizes)
            if of.dtype is not None:
                described[name] = TensorDesc(of.dtype, sizes)
            elif sizes is not None:
                described[name] = sizes
        computed = [row.name for row in self.outputs]
        binding = self.operator.resolve(described, settings, computed=computed)
        if not all(holds(check, names.values) for check in binding.checks):
            raise UnsupportedError(f"{self.name} is resolved for other sizes")
        found: list[Shaped] = []
        for row in self.outputs:
            tensor = binding.tensors.get(row.name)
            if tensor is None or tensor.dtype is None or tensor.sizes is None:
                raise DmlcError(f"nothing says what the output '{row.name}' of {self.name} is")
            found.append((tensor.dtype, names.read(tensor.sizes)))
        return tuple(found)

    def bind(
        self, tensors: Mapping[str, TensorDesc], settings: Settings, outputs: Sequence[TensorDesc]
    ) -> ir.Function:
        stored = {row.name: desc for row, desc in zip(self.outputs, outputs, strict=True)}
        return self.operator.bind({**tensors, **stored}, settings)

    def bind_elements(
        self, types: Mapping[str, DataType], settings: Settings, outputs: Sequence[DataType]
    ) -> ir.Function | None:
        stored = {row.name: dtype for row, dtype in zip(self.outputs, outputs, strict=True)}
        described = {name: TensorDesc(dtype) for name, dtype in {**types, **stored}.items()}
        try:
            return self.operator.bind(described, settings)
        except DmlcError:
            # Bound to sizes it is fine, so it needs them.
            return None

    def differentiate(self, wanted: Mapping[str, int | None], given: Sequence[str]) -> Subject:
        made = gradient(self.operator, list(wanted))
        if not isinstance(made, Operator):
            raise TypeError("the gradient of an operator is one")
        rows = {t.name: t for t in made.definition.newest.outputs}
        optional = tuple(name for name, row in rows.items() if row.optional)
        entries = tuple((f"d_{n}", count) for n, count in wanted.items() if count is not None)
        return OperatorSubject(made, optional, entries)


def _is_tied(operator: OperatorDefinition, output: TensorDefinition, fact: str) -> bool:
    """Whether an output must share its sizes, or its data type, with an input that is always
    present."""
    inputs = [t for t in operator.newest.inputs if not t.optional and not t.array]
    reached = {output.name}
    groups = same_rows(operator, fact)
    if operator.gradient is not None:
        forward = operator.gradient.forward.newest.tensors
        groups = [*groups, *(list(operator.gradient.rows(t.name)) for t in forward)]
    while True:
        more = {name for group in groups if reached & set(group) for name in group} - reached
        if not more:
            break
        reached |= more
    shape = output.shape_name if fact == "Sizes" else None
    return any(t.name in reached or (shape and t.shape_name == shape) for t in inputs)


def _is_listed(operator: OperatorDefinition, output: TensorDefinition) -> bool:
    """Whether the table of types determines an output's type from those of the inputs."""
    inputs = [t.name for t in operator.newest.inputs if not t.optional]
    found: dict[object, tuple[DataType, ...]] = {}
    for row in operator.combinations:
        types = row.types.get(output.name, ())
        if len(types) != 1 or found.setdefault(tuple(map(row.types.get, inputs)), types) != types:
            return False
    return bool(found)


# Functions and graphs ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionSubject:
    function: ir.Function
    settings: tuple[Setting, ...] = ()
    lifts = False

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def inputs(self) -> tuple[Row, ...]:
        return tuple(Row(p.name, floats=p.dtype.is_float) for p in self.function.parameters)

    @property
    def outputs(self) -> tuple[Row, ...]:
        return tuple(Row(n, floats=d.is_float) for n, (d, _) in _results(self.function).items())

    def infer(
        self, tensors: Mapping[str, Shaped], settings: Settings, asked: Mapping[str, Asked]
    ) -> tuple[Shaped, ...]:
        values = solve(self.function, tensors)
        return tuple(
            (dtype, tuple(evaluate_size(extent, values) for extent in extents))
            for dtype, extents in _results(self.function).values()
        )

    def bind(
        self, tensors: Mapping[str, TensorDesc], settings: Settings, outputs: Sequence[TensorDesc]
    ) -> ir.Function:
        """Function with the strides of these tensors, on which its values do not depend."""
        given = self.function.parameters, self.function.results
        taken = tuple(
            dataclasses.replace(p, strides=tensors[p.name].stored_strides) for p in given[0]
        )
        stored = tuple(
            dataclasses.replace(r, strides=desc.stored_strides)
            for r, desc in zip(given[1], outputs, strict=True)
        )
        if (taken, stored) == given:
            return self.function
        shaped = {n: (d.data_type, tuple(map(int, d.sizes or ()))) for n, d in tensors.items()}
        fixed = specialize(self.function, solve(self.function, shaped))
        extents = {p.name: p.extents for p in fixed.parameters}
        parameters = tuple(dataclasses.replace(p, extents=extents[p.name]) for p in taken)
        made = dataclasses.replace(fixed, parameters=parameters, results=stored)
        ir.verify(made, "bind")
        return made

    def bind_elements(
        self, types: Mapping[str, DataType], settings: Settings, outputs: Sequence[DataType]
    ) -> ir.Function | None:
        return None

    def differentiate(self, wanted: Mapping[str, int | None], given: Sequence[str]) -> Subject:
        made = differentiate(
            self.function, list(wanted), {n: f"d_{n}" for n in given}, {n: f"d_{n}" for n in wanted}
        ).function
        return FunctionSubject(dataclasses.replace(made, name=f"{self.name}_gradient"))


@dataclasses.dataclass(frozen=True, slots=True)
class GraphSubject:
    graph: Graph
    open: FunctionSubject
    """The graph with its symbols open."""
    lifts = False

    @staticmethod
    def of(graph: Graph) -> GraphSubject:
        return GraphSubject(graph, FunctionSubject(graph.bind()))

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def inputs(self) -> tuple[Row, ...]:
        return self.open.inputs

    @property
    def outputs(self) -> tuple[Row, ...]:
        return self.open.outputs

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Symbols that are no input's size."""
        said = {
            size.name
            for declared in self.graph.definition.syntax.inputs
            for size in declared.type.sizes
            if isinstance(size, syntax.Reference)
        }
        return tuple(Setting(s, "int") for s in self.graph.symbols if s not in said)

    def infer(
        self, tensors: Mapping[str, Shaped], settings: Settings, asked: Mapping[str, Asked]
    ) -> tuple[Shaped, ...]:
        if not self.settings:
            return self.open.infer(tensors, {}, {})
        described = {n: TensorDesc(dtype, sizes) for n, (dtype, sizes) in tensors.items()}
        return FunctionSubject(self._bind(described, settings)).infer(tensors, {}, {})

    def bind(
        self, tensors: Mapping[str, TensorDesc], settings: Settings, outputs: Sequence[TensorDesc]
    ) -> ir.Function:
        stored = {row.name: desc for row, desc in zip(self.outputs, outputs, strict=True)}
        return self._bind({**tensors, **stored}, settings)

    def _bind(self, described: Mapping[str, TensorDesc], settings: Settings) -> ir.Function:
        return self.graph.bind(described, {n: v for n, v in settings.items() if isinstance(v, int)})

    def bind_elements(
        self, types: Mapping[str, DataType], settings: Settings, outputs: Sequence[DataType]
    ) -> ir.Function | None:
        return None

    def differentiate(self, wanted: Mapping[str, int | None], given: Sequence[str]) -> Subject:
        made = gradient(self.graph, list(wanted))
        if not isinstance(made, Graph):
            raise TypeError("the gradient of a graph is one")
        return GraphSubject.of(made)


def _results(function: ir.Function) -> dict[str, tuple[DataType, tuple[ir.Extent, ...]]]:
    stages = {stage.name: stage for stage in function.stages}
    found = [(r.name, stages[r.name]) for r in function.results]
    return {name: (stage.dtype, stage.extents) for name, stage in found}


def solve(function: ir.Function, tensors: Mapping[str, Shaped]) -> dict[str, int]:
    """The symbols of a function, of the sizes of its parameters. Raises `DmlcError` for tensors
    that do not fit."""
    values: dict[str, int] = {}
    for parameter in function.parameters:
        dtype, sizes = tensors[parameter.name]
        if dtype is not parameter.dtype or len(sizes) != len(parameter.extents):
            raise _unfit(function, parameter, tensors)
        for extent, size in zip(parameter.extents, sizes, strict=True):
            if isinstance(extent, str) and extent.isidentifier():
                values.setdefault(extent, size)
    for parameter in function.parameters:
        for extent, size in zip(parameter.extents, tensors[parameter.name][1], strict=True):
            if evaluate_size(extent, values) != size:
                raise _unfit(function, parameter, tensors)
    for check in function.checks:
        if not holds(check, values):
            raise DmlcError(f"{function.name} was made for sizes where {check}")
    return values


def _unfit(
    function: ir.Function, parameter: ir.Parameter, tensors: Mapping[str, Shaped]
) -> DmlcError:
    dtype, sizes = tensors[parameter.name]
    wanted = f"{parameter.dtype.name}[{', '.join(map(str, parameter.extents))}]"
    given = f"{dtype.name}[{', '.join(map(str, sizes))}]"
    return DmlcError(f"'{parameter.name}' of {function.name} is {wanted}, and {given} is given")


def default_name(subject: Subject) -> str:
    """Name such as `directml_MAX_POOLING2_OutputIndicesTensor`, with the optional outputs that the
    operator returns."""
    parts = [subject.name]
    if isinstance(subject, OperatorSubject):
        parts += subject.computed
        parts += [str(count) for _, count in subject.entries]
    return re.sub(r"\W", "_", "_".join(parts))


def freeze(settings: Settings) -> tuple[object, ...]:
    """Keyword arguments of a call, as part of a key."""
    return tuple(
        [
            (n, tuple(cast("list[Any]", v)) if isinstance(v, list) else v)
            for n, v in settings.items()
        ]
    )
