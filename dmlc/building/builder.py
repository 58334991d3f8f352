"""`GraphBuilder`: a graph made in Python, call by call.

It makes the language's text: `str(builder)` prints it, and `build` checks it as a file is checked,
so both have one meaning and the same diagnostics.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from dmlc.binding import Graph, Module, Operator, TensorDesc
from dmlc.binding.attributes import convert_enum
from dmlc.binding.tensors import Described
from dmlc.building.shapes import infer_call
from dmlc.building.statements import list_statements
from dmlc.building.values import (
    NOWHERE,
    Derivation,
    Make,
    Outputs,
    Role,
    Value,
    apply,
    as_value,
    call_expression,
    check_name,
    choose,
    literal,
)
from dmlc.catalog import operator as find_operator
from dmlc.catalog import operators, parse
from dmlc.ir.naming import take_name
from dmlc.language import syntax
from dmlc.language.attribute_types import What
from dmlc.language.builtins import REDUCTIONS, SCALAR_FUNCTIONS
from dmlc.language.definitions import (
    AttributeDefinition,
    OperatorDefinition,
    TensorDefinition,
)
from dmlc.language.format import format_expression, format_file
from dmlc.parameters import (
    expect,
    expect_folders,
    expect_integer,
    expect_items,
    expect_text,
)
from dmlc.scalars import DataType, as_data_type, find_data_type, is_positional
from dmlc.source import DmlcError, list_names, unknown_name

Size: TypeAlias = int | str | Value
"""Size: a number, the name of a symbol, or an expression of symbols."""
OutputType: TypeAlias = TensorDesc | tuple[DataType | str, Sequence[Size]]
"""Type and sizes of an output: a description, or `("FLOAT32", ["N", 64])`."""


class Family:
    """The built-in operators of one module, as functions: `graph.directml.ACTIVATION_RELU`."""

    def __init__(self, builder: GraphBuilder, module: str) -> None:
        self._builder = builder
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Value | Outputs]:
        if name.startswith("__"):
            raise AttributeError(name)
        return functools.partial(self._builder.call, f"{self._module}.{name}")

    def __dir__(self) -> list[str]:
        return [n.partition(".")[2] for n in operators() if n.startswith(f"{self._module}.")]


class GraphBuilder:
    """Graph under construction.

    Inputs and symbols are declared, operators called and values combined; `output` declares the
    results. A value that is read once is inlined where it is read; one that is read more than once,
    or named by `name`, is a tensor of its own, rounded to its data type.

    `graph.directml.X(...)` calls a built-in operator, and `graph.exp(x)` a function of the
    language; `sum`, `product`, `min`, `max`, `any`, `all` and `mean` also reduce, with `axes=` or
    `like=`. Methods raise `DmlcError` for errors in one call; `build` for all others.
    """

    def __init__(self, name: str, import_folders: Sequence[str | os.PathLike[str]] = ()) -> None:
        self._name = check_name(name)
        self._folders = expect_folders("import_folders", import_folders)
        self._taken: dict[str, None] = {}
        self._symbols: dict[str, Value] = {}
        self._inputs: list[syntax.GraphInput] = []
        self._record: list[Value] = []
        self._names: dict[int, str] = {}
        """Names given to values, by their `id`."""
        self._outputs: list[tuple[str, Value]] = []
        self._imports: dict[str, None] = {}

    def __repr__(self) -> str:
        given = list_names([i.name.text for i in self._inputs])
        found = list_names([name for name, _ in self._outputs])
        return f"<graph {self._name} in the making: {given} -> {found}>"

    # Declarations -------------------------------------------------------------------------

    def symbols(self, names: str) -> tuple[Value, ...]:
        """Symbols by name, separated by spaces or commas: `N, C = graph.symbols("N C")`. They are
        sizes, and numbers in expressions. A symbol used only in sizes needs no declaration."""
        expect_text("names", names, "a text of names")
        return tuple(self._symbol(name) for name in names.replace(",", " ").split())

    def input(self, name: str, data_type: DataType | str, sizes: Sequence[Size]) -> Value:
        """Input tensor of the graph, with sizes as numbers, symbols or expressions."""
        declared, shape = self._type(data_type, sizes)
        self._take(name)
        self._inputs.append(syntax.GraphInput(_name(name), declared, span=NOWHERE))
        reference = syntax.Reference(name, span=NOWHERE)
        dtype = find_data_type(declared.dtype.text)
        return Value(self._record, Role.LEAF, lambda _: reference, (), shape, dtype)

    def output(self, name: str, value: Value) -> None:
        """Makes a value an output of the graph."""
        result = as_value(value, self._record)
        self._take(name)
        self._outputs.append((name, result))

    def name(self, name: str, value: Value) -> Value:
        """Names a value, and so its statement, its stage and its kernel. Returns the value."""
        if as_value(value, self._record).shape == ():
            raise DmlcError("a number takes no name: tensors do")
        self._take(name)
        self._names[id(value)] = name
        return value

    # Calls --------------------------------------------------------------------------------

    def call(
        self, operator: str | Operator, /, *, name: str | None = None, **arguments: object
    ) -> Value | Outputs:
        """Calls an operator by its tensors and attributes: a built-in one by name, or one of your
        own file, which the graph then imports. `name` names the call.

        An array of tensors is a list. An output whose sizes do not follow from the inputs is
        stated: `OutputTensor=("FLOAT32", ["N", 64])`. Returns the output, or `Outputs` if the
        operator has several.
        """
        found = find_operator(operator) if isinstance(operator, str) else operator
        expect("operator", found, Operator, "a dmlc.Operator or the name of one")
        definition = found.definition
        self._import(found)
        operands: list[Value] = []
        given: dict[str, Described | Sequence[Described]] = {}
        attributes: dict[str, object] = {}
        labels: list[tuple[str, Callable[[Sequence[syntax.Expression]], syntax.Expression]]] = []
        for label, argument in arguments.items():
            tensor = definition.newest.tensor(label)
            attribute = definition.attribute(label)
            start = len(operands)
            if tensor is not None and tensor.output:
                stated, given[label] = self._stated(tensor, argument)
                labels.append((label, functools.partial(_fixed, stated)))
            elif tensor is not None and tensor.array:
                listed = isinstance(argument, list | tuple)
                items = cast("Sequence[object]", argument) if listed else (argument,)
                operands += [as_value(item, self._record) for item in items]
                given[label] = [Described(v.data_type, v.shape) for v in operands[start:]]
                labels.append((label, functools.partial(_listed, start, len(operands))))
            elif tensor is not None:
                operands.append(as_value(argument, self._record))
                given[label] = Described(operands[start].data_type, operands[start].shape)
                labels.append((label, functools.partial(_single, start)))
            elif attribute is not None:
                written, attributes[label] = self._attribute(attribute, argument), argument
                labels.append((label, functools.partial(_fixed, written)))
            else:
                names = [t.name for t in definition.newest.tensors]
                names += [a.name for a in definition.attributes]
                raise DmlcError(unknown_name(f"argument of {definition.name}", label, names))

        def make(parts: Sequence[syntax.Expression]) -> syntax.Expression:
            written = {label: write(parts) for label, write in labels}
            return call_expression(definition.name, (), **written)

        tensors = infer_call(definition, given, attributes)
        outputs = definition.newest.outputs
        alone = len(outputs) == 1 and not outputs[0].array
        known = tensors.get(outputs[0].name, Described()) if alone else Described()
        called = Value(self._record, Role.CALL, make, operands, known.sizes, known.dtype)
        self._label(called, name, definition)
        return called if alone else self._outputs_of(definition, called, tensors, given)

    def where(self, condition: object, then: object, otherwise: object) -> Value:
        """Choice `condition ? then : otherwise`, element by element."""
        return choose(condition, then, otherwise)

    def cast(self, value: Value, data_type: DataType | str) -> Value:
        """Value converted to a data type."""
        expect("value", value, Value, "a value of the graph")
        dtype = as_data_type("data_type", data_type)
        target = syntax.Reference(dtype.name, span=NOWHERE)
        return Value(
            self._record,
            Role.EXPRESSION,
            lambda e: call_expression("cast", [e[0], target]),
            [as_value(value, self._record)],
            value.shape,
            dtype,
        )

    def reduce(
        self,
        combiner: str,
        value: Value,
        *,
        axes: Sequence[int] | None = None,
        like: Value | None = None,
    ) -> Value:
        """Reduction over axes, which stay with size 1: the axes listed, or those along which `like`
        has size 1."""
        expect_text("combiner", combiner, "the name of a reduction")
        if combiner not in REDUCTIONS:
            raise DmlcError(unknown_name("reduction", combiner, REDUCTIONS))
        if (axes is None) == (like is None):
            raise DmlcError(f"'{combiner}' takes either axes= or like=")
        operand = as_value(value, self._record)
        dtype = DataType.INT32 if is_positional(combiner) else operand.data_type
        if like is not None:
            other = self._named(like, "like")
            return Value(
                self._record,
                Role.EXPRESSION,
                lambda e: call_expression(combiner, [e[0]], like=e[1]),
                [operand, other],
                other.shape,
                dtype,
            )
        folded = [
            expect_integer("each of axes", axis)
            for axis in expect_items("axes", axes, "a list of axes")
        ]
        listed = syntax.Array(tuple(literal(a) for a in folded), span=NOWHERE)
        return Value(
            self._record,
            Role.EXPRESSION,
            lambda e: call_expression(combiner, [e[0]], axes=listed),
            [operand],
            _fold_shape(operand, folded),
            dtype,
        )

    def gradient(
        self,
        of: Value | Sequence[Value],
        wrt: Value | Sequence[Value],
        *,
        given: Value | Sequence[Value] | None = None,
    ) -> Value | tuple[Value, ...]:
        """Gradient with respect to one value, or to each of several. A single value has the
        gradient 1 unless `given`; several without `given` are differentiated as their sum."""
        sources = self._values("of", of)
        targets = self._values("wrt", wrt)
        seeds = [] if given is None else self._values("given", given)
        if len(seeds) not in (0, len(sources)):
            raise DmlcError(f"'of' has {len(sources)} values and 'given' {len(seeds)}")
        # Only names may stand there.
        by = [self._named(value, "by") for value in targets]
        seeds = [self._named(value, "given") for value in seeds]
        made = Derivation(self._record, sources, by, seeds)
        return made.parts[0] if isinstance(wrt, Value) else made.parts

    def __getattr__(self, name: str) -> Callable[..., Value]:
        """Functions of the language: `graph.exp`."""
        if name in REDUCTIONS:
            return functools.partial(self._reduce_or_call, name)
        if name in SCALAR_FUNCTIONS:
            return functools.partial(self._call_function, name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise DmlcError(unknown_name("function", name, [*SCALAR_FUNCTIONS, *REDUCTIONS]))

    @property
    def directml(self) -> Family:
        """Operators of DirectML."""
        return Family(self, "directml")

    @property
    def onednn(self) -> Family:
        """Operators of oneDNN's graph API."""
        return Family(self, "onednn")

    @property
    def training(self) -> Family:
        """Operators of training that both lack."""
        return Family(self, "training")

    # Results ------------------------------------------------------------------------------

    def build(self) -> Graph:
        """Checked graph. Raises `DmlcError` with every error, at spans in the graph's text."""
        return self.module().graphs[self._name]

    def module(self) -> Module:
        """Module that holds only the graph; its `diagnostics` are warnings."""
        # Whoever gave an operator of a file has loaded that, and what it imports.
        folders = [*self._folders, *(Path(path).parent for path in self._imports)]
        return parse(str(self), f"<graph {self._name}>", folders)

    def __str__(self) -> str:
        """Text of the graph in the language."""
        return format_file(syntax.File(None, self.declarations(), (), NOWHERE.source))

    def declarations(self) -> tuple[syntax.Declaration, ...]:
        """Syntax of the graph, and of the imports it needs."""
        statements = list_statements(self._record, self._names, self._outputs, self._taken)
        graph = syntax.Graph(
            _name(self._name),
            tuple(_name(s) for s in self._symbols),
            tuple(self._inputs),
            tuple(statements),
            span=NOWHERE,
        )
        return (*(syntax.Import(path, span=NOWHERE) for path in self._imports), graph)

    # Parts --------------------------------------------------------------------------------

    def _take(self, name: str) -> None:
        if check_name(name) in self._taken:
            raise DmlcError(f"the name '{name}' is taken in this graph")
        self._taken[name] = None

    def _symbol(self, name: str) -> Value:
        if name not in self._symbols:
            self._take(name)
            reference = syntax.Reference(name, span=NOWHERE)
            self._symbols[name] = Value(self._record, Role.LEAF, lambda _: reference, (), ())
        return self._symbols[name]

    def _values(self, what: str, given: Value | Sequence[Value]) -> list[Value]:
        """Tensors of the graph; a single one counts as a list."""
        expected = "a value of the graph, or a list of them"
        items = [given] if isinstance(given, Value) else expect_items(what, given, expected)
        found = [as_value(item, self._record) for item in items]
        if not found or any(value.shape == () for value in found):
            raise DmlcError(f"'{what}' takes tensors of the graph")
        return found

    def _named(self, given: Value, stem: str) -> Value:
        """Value with a statement of its own, for places where only a name may stand."""
        value = as_value(given, self._record)
        if value.role in (Role.EXPRESSION, Role.OUTPUT) and id(value) not in self._names:
            self._names[id(value)] = take_name(stem, self._taken)
        return value

    def _type(
        self, data_type: DataType | str, sizes: Sequence[Size]
    ) -> tuple[syntax.TensorType, tuple[int | str, ...]]:
        given = expect_items("sizes", sizes, "a list of numbers, names and symbols")
        values = [self._symbol(s) if isinstance(s, str) else s for s in given]
        for size in values:
            if isinstance(size, Value) and size.shape != ():
                raise DmlcError("a size is a number or an expression of symbols, not a tensor")
        written = [write(as_value(size, self._record)) for size in values]
        dtype = _name(as_data_type("data_type", data_type).name)
        shape = tuple(
            e.value if isinstance(e, syntax.Literal) and isinstance(e.value, int)
            else format_expression(e)
            for e in written
        )  # fmt: skip
        return syntax.TensorType(dtype, tuple(written), span=NOWHERE), shape

    def _stated(
        self, tensor: TensorDefinition, given: object
    ) -> tuple[syntax.Expression, Described | Sequence[Described]]:
        """Type and sizes stated for an output, or for each output of an array."""
        if tensor.array:
            if not isinstance(given, list):
                raise DmlcError(f"'{tensor.name}' takes a list of types with sizes")
            items = cast("list[OutputType]", given)
            pairs = [self._stated_one(tensor, item) for item in items]
            written = tuple(expression for expression, _ in pairs)
            return syntax.Array(written, span=NOWHERE), [known for _, known in pairs]
        return self._stated_one(tensor, given)

    def _stated_one(
        self, tensor: TensorDefinition, given: object
    ) -> tuple[syntax.Expression, Described]:
        if isinstance(given, TensorDesc) and given.sizes is not None:
            data_type, sizes = given.data_type, cast("Sequence[Size]", given.sizes)
        elif isinstance(given, tuple) and len(cast("tuple[object, ...]", given)) == 2:
            data_type, sizes = cast("tuple[DataType | str, Sequence[Size]]", given)
        else:
            raise DmlcError(
                f"'{tensor.name}' is an output: state its type and sizes, as in "
                f"{tensor.name}=('FLOAT32', ['N', 64])"
            )
        declared, shape = self._type(data_type, sizes)
        base = syntax.Reference(declared.dtype.text, span=NOWHERE)
        known = Described(find_data_type(declared.dtype.text), shape)
        return syntax.Index(base, declared.sizes, None, span=NOWHERE), known

    def _attribute(self, attribute: AttributeDefinition, given: object) -> syntax.Expression:
        if isinstance(given, np.ndarray | np.generic):
            given = cast("object", given.tolist())
        if isinstance(given, list | tuple):
            items = cast("Sequence[object]", given)
            return syntax.Array(tuple(self._attribute(attribute, g) for g in items), span=NOWHERE)
        if isinstance(given, Value):
            if given.shape != ():
                raise DmlcError(f"'{attribute.name}' is an attribute and takes no tensor")
            return write(given)
        if attribute.type.what is What.TYPE:
            dtype = as_data_type(f"attribute '{attribute.name}'", given)
            return syntax.Reference(dtype.name, span=NOWHERE)
        if attribute.enum is not None:
            return syntax.Reference(convert_enum(attribute, given).member, span=NOWHERE)
        if isinstance(given, str):
            return syntax.String(given, span=NOWHERE)
        return literal(given)

    def _label(self, value: Value, name: str | None, definition: OperatorDefinition) -> None:
        if name is not None:
            self.name(name, value)
            return
        value.stem = definition.short_name.lower()

    def _outputs_of(
        self,
        definition: OperatorDefinition,
        called: Value,
        tensors: Mapping[str, Described],
        stated: Mapping[str, Described | Sequence[Described]],
    ) -> Outputs:
        def part(name: str, make: Make) -> Value:
            known = tensors.get(name, Described())
            return Value(self._record, Role.OUTPUT, make, [called], known.sizes, known.dtype)

        found: dict[str, Value | tuple[Value, ...]] = {}
        for output in definition.newest.outputs:
            row, entries = output.name, stated.get(output.name)
            if not output.array:
                found[row] = part(row, functools.partial(_member, row))
                continue
            count = len(entries) if isinstance(entries, Sequence) else 0
            found[row] = tuple(
                part(f"{row}[{k}]", functools.partial(_entry, row, k)) for k in range(count)
            )
        return Outputs(definition.name, found)

    def _import(self, found: Operator) -> None:
        """Imports the file of an operator that is not built in."""
        if found.name in operators():
            return
        source = found.definition.syntax.span.source
        if not source.name.endswith(".dml"):
            raise DmlcError(
                f"operator '{found.name}' stands in no file, so no graph can import it",
                notes=["write it to a .dml file, and load that"],
            )
        self._imports[source.name] = None

    def _reduce_or_call(
        self,
        name: str,
        *given: Value,
        axes: Sequence[int] | None = None,
        like: Value | None = None,
    ) -> Value:
        if len(given) == 1:
            return self.reduce(name, given[0], axes=axes, like=like)
        return self._call_function(name, *given)

    def _call_function(self, name: str, *given: object) -> Value:
        function = SCALAR_FUNCTIONS.get(name)
        count = None if function is None else len(function.parameters)
        if count != len(given):
            takes = "one tensor" if count is None else f"{count} argument" + "s" * (count > 1)
            raise DmlcError(f"'{name}' takes {takes}, but is given {len(given)}")
        return apply(name, *given)


def write(value: Value) -> syntax.Expression:
    """Syntax of a number or an expression of symbols."""
    return value.make([write(o) for o in value.operands])


def _single(position: int, parts: Sequence[syntax.Expression]) -> syntax.Expression:
    return parts[position]


def _listed(start: int, end: int, parts: Sequence[syntax.Expression]) -> syntax.Expression:
    return syntax.Array(tuple(parts[start:end]), span=NOWHERE)


def _fixed(written: syntax.Expression, parts: Sequence[syntax.Expression]) -> syntax.Expression:
    return written


def _member(name: str, parts: Sequence[syntax.Expression]) -> syntax.Expression:
    return syntax.Member(parts[0], _name(name), span=NOWHERE)


def _entry(name: str, number: int, parts: Sequence[syntax.Expression]) -> syntax.Expression:
    return syntax.Index(_member(name, parts), (literal(number),), None, span=NOWHERE)


def _fold_shape(operand: Value, axes: Sequence[int]) -> tuple[int | str, ...] | None:
    if operand.shape is None:
        return None
    rank = len(operand.shape)
    folded = [a + rank if a < 0 else a for a in axes]
    return tuple(1 if a in folded else size for a, size in enumerate(operand.shape))


def _name(text: str) -> syntax.Name:
    return syntax.Name(text, span=NOWHERE)
