"""`dmlc.gradient`: the gradient of an operator or a graph, as an operator or graph of its own. It
is generated as text of the language, with `gradient of` in it, and prints as that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dmlc import ir
from dmlc.binding import Graph, Operator
from dmlc.binding.constraints import show_dimensions
from dmlc.building.values import NOWHERE, check_name
from dmlc.catalog import operator as find_operator
from dmlc.language import syntax
from dmlc.language.check_gradient import check_gradients
from dmlc.language.check_operator import check_operator
from dmlc.language.definitions import (
    AttributeDefinition,
    OperatorDefinition,
    TensorDefinition,
)
from dmlc.language.format import format_file, join_names, quote
from dmlc.language.kinds import SymbolTable
from dmlc.language.parse import parse, parse_expression
from dmlc.language.walk import names_read
from dmlc.parameters import expect_items, expect_mapping, expect_text, wrong_kind
from dmlc.scalars import TENSOR_TYPES, DataType
from dmlc.sizes import Measure, measure, part_quotient
from dmlc.source import Diagnostic, DmlcError, InternalError, Note, Source, check_known, find_named


def gradient(
    subject: str | Operator | Graph,
    wrt: Sequence[str],
    names: Mapping[str, str] | None = None,
) -> Operator | Graph:
    """Gradient of an operator or a graph with respect to some of its inputs; of a graph also with
    respect to named values in it.

    Its inputs are those of the operator or graph, and the gradient of each output Y as `d_Y`, with
    Y's sizes; its outputs are the gradients `d_X` of each X of `wrt`, with X's sizes. An optional
    input in `wrt` becomes required. `names` gives other names: `{"Y": "dY", "X": "dX"}`. `str` of
    the result is its text in the language. Raises `DmlcError`.
    """
    found = _find(subject)
    listed = expect_items("wrt", wrt, "a list of inputs' names")
    wanted = [expect_text("each of wrt", name) for name in listed]
    if not wanted:
        raise DmlcError("wrt names no input: say which to differentiate by")
    expected = "a mapping of tensors' names to names"
    stated = expect_mapping("names", {} if names is None else names, expected)
    spelt = {name: check_name(expect_text(f"names['{name}']", n)) for name, n in stated.items()}
    if isinstance(found, Operator):
        return _of_operator(found, dict.fromkeys(wanted), spelt)
    return _of_graph(found, dict.fromkeys(wanted), spelt)


def _find(subject: object) -> Operator | Graph:
    found = find_operator(subject) if isinstance(subject, str) else subject
    if isinstance(found, Operator | Graph):
        return found
    raise wrong_kind("subject", "an operator, its name, or a graph", found)


def _spell(
    of: Iterable[str], spelt: Mapping[str, str], taken: Iterable[str], whose: str
) -> dict[str, str]:
    """Name of each gradient."""
    known = list(of)
    check_known(f"tensor with a gradient in {whose}", known, *spelt)
    found: dict[str, str] = {}
    used = dict.fromkeys(taken)
    for name in known:
        own = spelt.get(name, f"d_{name}")
        if own in used:
            cure = f"say another for that of '{name}': names={{'{name}': ...}}"
            raise DmlcError(f"the name '{own}' is taken in {whose}", notes=[cure])
        used[own] = None
        found[name] = own
    return found


def _name(text: str) -> syntax.Name:
    return syntax.Name(text, span=NOWHERE)


def _read(declaration: syntax.Declaration, of: str) -> syntax.Declaration:
    """Declaration with spans in a text of its own."""
    text = format_file(syntax.File(None, (declaration,), (), NOWHERE.source))
    (made,) = parse(Source(f"<gradient of {of}>", text)).declarations
    return made


# Operators -------------------------------------------------------------------------------------


def _of_operator(subject: Operator, wanted: Iterable[str], spelt: Mapping[str, str]) -> Operator:
    forward = subject.definition
    inputs = {t.name: t for t in forward.newest.inputs}
    for name in wanted:
        tensor = find_named(f"input of {forward.name}", name, inputs)
        if not tensor.holds_floats:
            message = f"'{name}' of {forward.name} has no gradient: it holds no floats"
            raise DmlcError(message, tensor.span)
    outputs = [t for t in forward.newest.outputs if t.holds_floats]
    if not outputs:
        raise DmlcError(f"{forward.name} gives no floats, and has no gradient")
    attributes = [a for a in forward.attributes if not _reads_outputs(a, forward)]
    taken = (*inputs, *(a.name for a in attributes))
    names = _spell([*(t.name for t in outputs), *wanted], spelt, taken, f"'{forward.name}'")
    # Inputs to differentiate by are required.
    optional = {name for name, t in inputs.items() if t.optional}.difference(wanted)
    rows = [_row(name, t, optional=name in optional) for name, t in inputs.items()]
    alone = len(outputs) == 1 and not outputs[0].optional
    rows += [_row(names[t.name], t, output=False, optional=not alone) for t in outputs]
    rows += [_row(names[name], inputs[name], output=True, optional=False) for name in wanted]
    short = forward.short_name
    named = f"{short}_{'GRADIENT' if short.isupper() else 'gradient'}"
    said = f"The gradient of {forward.name} with respect to {join_names(wanted)}."
    lines = [f"operator {named} {{", quote(said)]
    if attributes:
        lines += _write_table("attributes", _list_attributes(forward, attributes))
    lines += _write_table("tensors", _list_tensors(rows))
    lines += [f"gradient of {forward.name} {{"]
    lines += [f"{own} = gradient of {name}" for name, own in names.items()]
    (declared,) = parse(Source(named, "\n".join([*lines, "}", "}"]))).declarations
    read = _read(declared, forward.name)
    if not isinstance(read, syntax.Operator):
        raise InternalError("an operator reads back as one")
    diagnostics: list[Diagnostic] = []
    environment = SymbolTable(forward.enums, forward.functions, {})
    made = check_operator(read, None, environment, diagnostics)
    completed = check_gradients([made], lambda _: forward, diagnostics, [])
    if diagnostics:
        raise DmlcError(diagnostics)
    return Operator(completed[made.name])


def _floats(tensor: TensorDefinition) -> tuple[DataType, ...]:
    return tuple(t for t in tensor.dtypes if t.is_float)


def _reads_outputs(attribute: AttributeDefinition, forward: OperatorDefinition) -> bool:
    """Whether a default reads an output, which the gradient lacks: the forward operator evaluates
    it."""
    expressions = [e for e in (attribute.default, attribute.length) if e is not None]
    outputs = [t.name for t in forward.newest.outputs]
    return any(name in outputs for name in names_read(*expressions))


def _row(
    name: str, tensor: TensorDefinition, *, output: bool | None = None, optional: bool
) -> list[str]:
    """Cells of a tensor's row, or, with `output`, of its gradient's."""
    kind = "output" if output else "input"
    if tensor.array:
        kind = f"array of {kind}s"
    elif optional:
        kind = f"optional {kind}"
    dtypes = tensor.dtypes if output is None else _floats(tensor)
    ranks = tensor.ranks
    shown = ", ".join(map(str, ranks))
    if len(ranks) > 1 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        shown = f"{ranks[0]} to {ranks[-1]}"
    types = "" if dtypes == TENSOR_TYPES else ", ".join(t.name for t in dtypes)
    return [name, kind.capitalize(), _dimensions(tensor), shown, types]


def _dimensions(tensor: TensorDefinition) -> str:
    if tensor.shape_name is not None:
        return f"{{ {tensor.shape_name}[] }}"
    return "" if tensor.dimensions is None else show_dimensions(tensor.dimensions)


def _list_tensors(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Table of tensors, without columns that are empty."""
    header = ("Tensor", "Kind", "Dimensions", "Supported dimension counts", "Supported data types")
    filled = [n for n in range(len(header)) if n < 2 or any(row[n] for row in rows)]
    return [[row[n] for n in filled] for row in (header, *rows)]


def _list_attributes(
    forward: OperatorDefinition, attributes: Sequence[AttributeDefinition]
) -> list[list[str]]:
    """Table of some attributes of the forward operator."""
    table = forward.syntax.attributes
    if table is None:
        return []
    spans = [a.span for a in attributes]
    rows = [row for row in table.rows if any(cell.span in spans for cell in row.cells)]
    return [[cell.text for cell in row.cells] for row in (table.header, *rows)]


def _write_table(section: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a section with a table, of which the first row is the header."""
    ruled = [*rows[:1], ["---"] * len(rows[0]), *rows[1:]]
    return [f"{section} {{", *(f"| {' | '.join(row)} |" for row in ruled), "}"]


# Graphs ----------------------------------------------------------------------------------------


def _of_graph(subject: Graph, wanted: Iterable[str], spelt: Mapping[str, str]) -> Graph:
    graph = subject.definition.syntax
    named = [n.text for s in graph.statements for n in s.names]
    check_known(f"tensor of graph '{subject.name}'", (*subject.inputs, *named), *wanted)
    function = _bind_open(subject)
    outputs = [s for s in map(function.stage, subject.outputs) if s is not None]
    outputs = [s for s in outputs if s.dtype.is_float]
    if not outputs:
        raise DmlcError(f"graph '{subject.name}' gives no floats, and has no gradient")
    of = [s.name for s in outputs]
    both = [name for name in wanted if name in of]
    if both:
        message = f"'{both[0]}' is an output of graph '{subject.name}': its gradient is given"
        raise DmlcError(message)
    taken = (*subject.symbols, *subject.inputs, *named)
    names = _spell([*of, *wanted], spelt, taken, f"graph '{subject.name}'")
    given = [syntax.GraphInput(_name(names[s.name]), _type(s), span=NOWHERE) for s in outputs]
    derived = syntax.Gradient(
        tuple(_reference(name) for name in of),
        tuple(_reference(name) for name in wanted),
        tuple(_reference(names[name]) for name in of),
        span=NOWHERE,
    )
    results = tuple(_name(names[name]) for name in wanted)
    made = dataclasses.replace(
        graph,
        name=_name(f"{graph.name.text}_gradient"),
        inputs=(*graph.inputs, *given),
        statements=(
            *(dataclasses.replace(s, output=False) for s in graph.statements),
            syntax.GraphStatement(results, derived, True, span=NOWHERE),
        ),
    )
    read = _read(made, subject.name)
    if not isinstance(read, syntax.Graph):
        raise InternalError("a graph reads back as one")
    definition = subject.definition
    return Graph(dataclasses.replace(definition, name=made.name.text, syntax=read))


def _bind_open(subject: Graph) -> ir.Function:
    """Graph bound with open symbols, for the types and sizes of its outputs."""
    try:
        return subject.bind()
    except DmlcError as error:
        note = Note(
            "the gradients that are given have the types and sizes of the outputs, and those have "
            "to follow from the symbols; a gradient can also be written in the graph itself, as in "
            "'output dx = gradient of loss with respect to x'"
        )
        first, *rest = error.diagnostics
        made = dataclasses.replace(first, notes=(*first.notes, note))
        raise type(error)([made, *rest]) from None


def _reference(name: str) -> syntax.Reference:
    return syntax.Reference(name, span=NOWHERE)


def _type(stage: ir.Stage) -> syntax.TensorType:
    sizes = tuple(map(_read_size, stage.extents))
    return syntax.TensorType(_name(stage.dtype.name), sizes, span=NOWHERE)


def _read_size(extent: ir.Extent) -> syntax.Expression:
    text = _write_size(measure(extent))
    return parse_expression(Source("<size>", text), 0, len(text))


def _write_size(size: Measure) -> str:
    """Size in the language, whose quotients are rounded by a function."""

    def write(symbol: str) -> str:
        quotient = part_quotient(symbol)
        if quotient is None:
            return symbol
        return f"floor(({_write_size(quotient[0])}) / {quotient[1]})"

    return str(size) if isinstance(size, int) else size.spell(write)
