"""`Operator`: a checked operator, and its binding to concrete tensors and attributes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np

from dmlc import ir
from dmlc.binding.attributes import MOST_ENTRIES
from dmlc.binding.call_errors import raise_mistakes
from dmlc.binding.facts import Binding
from dmlc.binding.gradient import lower
from dmlc.binding.resolve import begin, resolve
from dmlc.binding.tables import (
    AttributeRow,
    TensorRow,
    list_attributes,
    list_tensors,
    list_types,
)
from dmlc.binding.tensors import Described, TensorDesc, as_open_size, read_open_sizes
from dmlc.language.definitions import (
    GradientDefinition,
    OperatorDefinition,
    TensorDefinition,
    TensorLevel,
    level_number,
    mistake,
)
from dmlc.language.format import format_declaration, format_enum, format_scalar_function
from dmlc.language.walk import list_called
from dmlc.parameters import (
    expect,
    expect_integer,
    expect_items,
    expect_mapping,
    expect_text,
    wrong_kind,
)
from dmlc.scalars import DataType
from dmlc.sizes import find_symbols
from dmlc.source import Diagnostic, DmlcError, list_names, unknown_name

_ENTRY = re.compile(r"([A-Za-z_]\w*?)(?:\[(\d{1,9})\]|_(\d{1,9}))", re.ASCII)
"""Entry of an array of tensors in a caller's spelling."""

Description: TypeAlias = TensorDesc | Sequence[ir.Extent]
"""Caller's description of a tensor; sizes alone leave the data type to inference."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the language, ready to be bound."""

    definition: OperatorDefinition

    def __post_init__(self) -> None:
        notes = ["dmlc.parse and dmlc.load give operators"]
        expect("definition", self.definition, OperatorDefinition, "a checked definition", notes)

    @property
    def name(self) -> str:
        """The qualified name: `directml.ACTIVATION_RELU_GRAD`."""
        return self.definition.name

    @property
    def doc(self) -> str | None:
        return self.definition.doc

    @property
    def tensors(self) -> Mapping[str, TensorRow]:
        """The rows of its table of tensors, by name and in order; of the newest feature level."""
        return list_tensors(self.definition)

    @property
    def attributes(self) -> Mapping[str, AttributeRow]:
        """The rows of its table of attributes, by name and in order."""
        return list_attributes(self.definition)

    @property
    def types(self) -> tuple[Mapping[str, tuple[DataType, ...]], ...]:
        """Which data types go together: each row permits some for the tensors that it names. Empty
        where the table of tensors says all."""
        return list_types(self.definition)

    def __repr__(self) -> str:
        rows = self.definition.newest.tensors
        given, found = (
            list_names([t.name for t in rows if t.output == output], most=6)
            for output in (False, True)
        )
        return f"<operator {self.name}: {given} -> {found}>"

    def __str__(self) -> str:
        """The operator in the language, with the enums that its attributes are of, and the
        functions that these call."""
        attributes = self.definition.attributes
        enums = {a.enum.name: a.enum for a in attributes if a.enum is not None}
        shown = [format_enum(enum.name, enum.members) for enum in enums.values()]
        said = [e for a in attributes for e in (a.length, a.default) if e is not None]
        called = list_called(said, self.definition.functions)
        shown += [format_scalar_function(f) for f in called]
        return "\n".join([*shown, format_declaration(self.definition.syntax)])

    def bind(
        self,
        tensors: Mapping[str, Description | Sequence[Description]] | None = None,
        attributes: Mapping[str, object] | None = None,
        *,
        level: str | None = None,
    ) -> ir.Function:
        """The operator for these tensors and attributes, as a verified function.

        `tensors` describes tensors by name, by sizes alone where the data type is to be worked
        out. A name in place of a size leaves that open: the function serves all sizes of 1 or more,
        and sizes of one name are the same. Outputs may be left out, or leave their sizes out, where
        the constraints or the formula decide them; an optional output that is left out is not
        computed, but where all are optional and all are left out, all are; of a gradient, say
        which. Where no tensor has sizes the function is made for any number of elements: each of
        its tensors is a run of `n`. An array of tensors is a list of descriptions, or given entry
        by entry, as `InputTensors[0]`; the function calls that `InputTensors_0`.
        `attributes` gives enums by name or value, numbers, booleans, strings and lists.
        `level` is a feature level; the newest by default.

        Raises `DmlcError` with every independent mistake, and `UnsupportedError` for what this
        version cannot bind.
        """
        binding = self.resolve(tensors, attributes, level=level)
        _check_open(binding)
        function = lower(binding)
        ir.verify(function, "bind")
        return function

    def resolve(
        self,
        tensors: Mapping[str, Description | Sequence[Description]] | None = None,
        attributes: Mapping[str, object] | None = None,
        *,
        level: str | None = None,
        computed: Sequence[str] = (),
    ) -> Binding:
        """Binding that `bind` lowers: every tensor's type and sizes and every attribute's value,
        inferred and checked against the constraints. Optional outputs in `computed` are present
        without a description. Raises as `bind` does."""
        table = _find_level(self.definition, level)
        diagnostics: list[Diagnostic] = []
        given, table = expand_arrays(table, tensors, diagnostics, self.definition.gradient)
        values = read_attributes(attributes)
        return resolve(self.definition, table, given, values, computed, diagnostics, level)


def read_call(
    definition: OperatorDefinition,
    tensors: Mapping[str, Description | Sequence[Description]],
    attributes: Mapping[str, object],
) -> Binding:
    """Unchecked binding of a call, which `Operator.resolve` completes. Raises `DmlcError` for what
    the tables alone refuse."""
    diagnostics: list[Diagnostic] = []
    given, table = expand_arrays(definition.newest, tensors, diagnostics, definition.gradient)
    return begin(definition, table, given, read_attributes(attributes), (), diagnostics)


def expand_arrays(
    table: TensorLevel,
    given: object,
    diagnostics: list[Diagnostic],
    gradient: GradientDefinition | None = None,
) -> tuple[dict[str, Described], TensorLevel]:
    """Descriptions given, and the table, with each array of tensors replaced by its entries. An
    array is given as a list, or entry by entry: `InputTensors[0]`, `InputTensors_0`. An array of
    gradients of another array may be omitted."""
    arrays = {t.name: t for t in table.tensors if t.array}
    named = {t.name for t in table.tensors}
    found: dict[str, Described] = {}
    for name, value in read_descriptions(given).items():
        if name in arrays and isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            described = {f"{name}[{number}]": item for number, item in enumerate(items)}
            found.update({n: read_description(n, item) for n, item in described.items()})
            continue
        entry = _ENTRY.fullmatch(name)
        known = entry is not None and name not in named and entry[1] in arrays
        spelt = f"{entry[1]}[{int(entry[2] or entry[3])}]" if entry is not None and known else name
        found[spelt] = read_description(name, value)
    rows: list[TensorDefinition] = []
    values = {} if gradient is None else {
        row: gradient.values.get(name) for name, row in gradient.gradients.items()
    }  # fmt: skip
    for tensor in table.tensors:
        if not tensor.array:
            rows.append(tensor)
            continue
        numbers = _list_numbers(found, tensor.name)
        if not numbers and tensor.output:
            numbers = _list_numbers(found, values.get(tensor.name))
        count = max(numbers, default=-1) + 1
        if count > MOST_ENTRIES:
            raise DmlcError(
                f"'{tensor.name}' has {count} tensors; {MOST_ENTRIES} at most", code="E0806"
            )
        if not numbers:
            kind = "output" if tensor.output else "input"
            what = f"array of {kind}s '{tensor.name}' is not given"
            diagnostics.append(
                mistake(tensor, f"{what}: describe '{tensor.name}[0]' and so on", code="E0805")
            )
        rows += [tensor.entry(number) for number in range(count)]
    return found, TensorLevel(table.level, tuple(rows))


def _list_numbers(found: Iterable[str], array: str | None) -> list[int]:
    """Numbers of the entries of an array that are given."""
    entries = (_ENTRY.fullmatch(name) for name in found)
    return [int(e[2]) for e in entries if e is not None and e[1] == array and e[2]]


def read_descriptions(given: object) -> dict[str, object]:
    """The `tensors` of a caller; None entries are left out. Raises `ArgumentError`."""
    if given is None:
        return {}
    expected = "a mapping of tensors' names to descriptions"
    found = expect_mapping("tensors", given, expected)
    return {name: value for name, value in found.items() if value is not None}


def read_description(name: str, given: object) -> Described:
    """A description, or sizes. Raises `DmlcError`."""
    if isinstance(given, TensorDesc):
        return Described(given.data_type, given.sizes, given.stored_strides)
    parameter = f"tensors['{name}']"
    expected = "a TensorDesc, or sizes such as (2, 3)"
    if isinstance(given, np.ndarray):
        # An array of whole numbers might be meant as sizes or as itself.
        note = "describe an array x as TensorDesc(x.dtype, x.shape), or run the operator on it"
        raise wrong_kind(parameter, expected, cast("object", given), [note])
    sizes = expect_items(parameter, given, expected)
    whole = [
        size if as_open_size(size) else expect_integer(f"each size of {parameter}", size)
        for size in sizes
    ]
    return Described(sizes=read_open_sizes(whole, name))


def read_attributes(given: object) -> Mapping[str, object]:
    """The `attributes` of a caller. Raises `ArgumentError`."""
    if given is None:
        return {}
    return expect_mapping("attributes", given, "a mapping of attributes' names to values")


def _find_level(definition: OperatorDefinition, level: str | None) -> TensorLevel:
    """Tensor table of a feature level: the newest not above the one asked for."""
    newest = definition.newest
    if level is None:
        return newest
    expect_text("level", level, "the name of a feature level")
    known = [t.level for t in definition.levels if t.level is not None]
    if level in known:
        return next(t for t in definition.levels if t.level == level)
    asked = level_number(level)
    if asked is None:
        raise DmlcError(unknown_name("feature level", level, known, code="E0808"))
    introduced = level_number(definition.introduced)
    older = [
        t
        for t in definition.levels
        if (level_number(t.level or definition.introduced) or asked) <= asked
    ]
    if not older or (introduced is not None and introduced > asked):
        first = definition.introduced or definition.levels[0].level
        raise DmlcError(
            f"'{definition.name}' is not in {level}: it was introduced in {first}", code="E0808"
        )
    return older[-1]


def _check_open(binding: Binding) -> None:
    """Raises `DmlcError` for open sizes that no input has, since no argument would determine
    them."""
    diagnostics: list[Diagnostic] = []
    tensors = binding.tensors.values()
    given = {e for t in tensors if not t.definition.output for e in t.sizes or ()}
    for tensor in tensors:
        for axis, size in enumerate(tensor.sizes or ()):
            for symbol in find_symbols([size]):
                if symbol in given:
                    continue
                role = "output" if tensor.definition.output else "input"
                by_itself = "" if symbol == size else " by itself"
                message = (
                    f"the size '{symbol}' of {role} '{tensor.name}', along axis {axis}, is left "
                    f"open, and no input has it{by_itself}: give it a number, or the name of an "
                    "input's size"
                )
                diagnostics.append(mistake(tensor.definition, message, code="E0809"))
    raise_mistakes(diagnostics)
