"""Hover text of the word at an offset: its kind, type and sizes, the constraints on it, the formula
that defines it, and the comment above that."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from dmlc.binding import Graph, Operator
from dmlc.catalog import operator as find_built_in_operator
from dmlc.catalog import operators
from dmlc.editor.documents import Document
from dmlc.editor.lexical import TokenKind, list_tokens
from dmlc.editor.resolve import Resolved, resolve_word
from dmlc.editor.scopes import Declared, Member, Symbol, What
from dmlc.language import syntax
from dmlc.language.builtins import (
    ARRAY_FACTS,
    ARRAY_FUNCTIONS,
    FACTS,
    FUNCTIONS,
    GRAPH_FUNCTIONS,
    REDUCTIONS,
    SCALAR_FUNCTIONS,
)
from dmlc.language.check_kinds import show_ranks
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.language.format import format_expression, format_file
from dmlc.language.kinds import Form, ValueKind
from dmlc.language.walk import functions_called, names_read
from dmlc.listing import list_subject
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import Span, join_words


@dataclasses.dataclass(frozen=True, slots=True)
class Hover:
    """Hover text of a word, and the word's span."""

    title: str
    facts: tuple[str, ...]
    """Sentences and phrases, one per line."""
    code: tuple[str, ...]
    """Fragments of the language."""
    start: int
    end: int

    def markdown(self) -> str:
        """Text for editors that render Markdown."""
        lines = [f"```dml\n{self.title}\n```", "  \n".join(self.facts)]
        return "\n\n".join([*filter(None, lines), *(f"```dml\n{c}\n```" for c in self.code)])

    def plain(self) -> str:
        """Text for other editors."""
        return "\n\n".join(filter(None, [self.title, "\n".join(self.facts), *self.code]))


def hover(document: Document, offset: int) -> Hover | None:
    """Hover of the word at an offset; None for an unknown word."""
    found = resolve_word(document, offset)
    if found is None:
        return None
    writer = _Describer(document, found)
    title, facts, code = writer.write()
    return Hover(title, tuple(filter(None, facts)), tuple(code), found.start, found.end)


class _Describer:
    """Writer of a symbol's description."""

    def __init__(self, document: Document, found: Resolved) -> None:
        self.document = document
        self.symbol = found.symbol
        self.scope = found.scope

    def write(self) -> tuple[str, list[str], list[str]]:
        """Title, lines of prose, and fragments of code."""
        symbol, about = self.symbol, self.symbol.about
        match about:
            case TensorDefinition() if symbol.what is What.SIZE:
                return symbol.name, [f"size named in the dimensions of {about.name}"], self.rows()
            case TensorDefinition():
                facts = [*describe_tensor(about), *self.comment()]
                return symbol.name, facts, [*self.formula(), *self.constraints()]
            case AttributeDefinition():
                facts = [*describe_attribute(about), *self.comment()]
                return symbol.name, facts, self.constraints()
            case syntax.Operator() | syntax.Graph():
                return symbol.owner, [symbol.what.value], [self.listing(about)]
            case syntax.Enum():
                return f"enum {symbol.name}", self.comment(), [_dedented(about.span)]
            case Member():
                return f"{about.name} = {about.value}", [f"member of {about.enum}"], []
            case syntax.ScalarFunction():
                return _signature(about), ["function", *self.comment()], [_dedented(about.span)]
            case syntax.GraphInput():
                facts = [f"input of graph {symbol.owner}", *self.comment()]
                return f"{symbol.name}: {about.type.span.text}", facts, []
            case syntax.Assignment() | syntax.GraphStatement():
                facts = [self.kind(), *self.comment()]
                return symbol.name, facts, [_dedented(about.span)]
            case DataType():
                kind = f"{about.kind.value}, {8 * about.bytes} bits in memory"
                return symbol.name, [f"data type {about.name} ({about.short}): {kind}"], []
            case _:
                return self.write_other()

    def write_other(self) -> tuple[str, list[str], list[str]]:
        """The same for symbols without a definition or node."""
        symbol = self.symbol
        match symbol.what:
            case What.BUILT_IN:
                return describe_built_in(symbol.name)
            case What.FACT:
                name = f"{symbol.owner}.{symbol.name}".lstrip(".")
                fact = FACTS.get(symbol.name)
                return name, [fact.says if fact else ARRAY_FACTS.get(symbol.name, "")], []
            case What.INDEX:
                over = str(symbol.about or "")
                runs = over if over.startswith("an axis") else f"0 up to {over}"
                return (
                    symbol.name,
                    [f"index variable over {runs}" if over else "index variable"],
                    [],
                )
            case What.FILE:
                path = "" if symbol.span is None else symbol.span.source.name
                return f'import "{symbol.name}"', [path], []
            case _:
                return symbol.name, [symbol.what.value], []

    # What surrounds a symbol --------------------------------------------------------------

    def kind(self) -> str:
        """Kind of a local as inferred by the checker: `local: a tensor of 1 to 8 dimensions`."""
        analysis = self.document.analysis
        if analysis.findings is None and self.document.earlier is not None:
            analysis = self.document.earlier
        names = None if analysis.findings is None else analysis.findings.names
        found = None if names is None else names.get(self.symbol.owner)
        kind = None if found is None else found.locals.get(self.symbol.name)
        said = "" if kind is None else describe_kind(kind)
        about = self.symbol.about
        output = isinstance(about, syntax.GraphStatement) and about.output
        what = "output" if output else "local"
        return f"{what}: {said}" if said else what

    def formula(self) -> list[str]:
        """Statement that defines an output."""
        statement = self.scope.statements.get(self.symbol.name)
        own = self.scope.own.get(self.symbol.name)
        return [_dedented(statement.span)] if statement is not None and own == self.symbol else []

    def rows(self) -> list[str]:
        """Table rows that name a size."""
        name = self.symbol.name
        found: list[str] = []
        for symbol in self.scope.own.values():
            tensor = symbol.about
            if symbol.what is What.TENSOR and isinstance(tensor, TensorDefinition):
                named = {d.name for d in tensor.dimensions or ()} | {tensor.shape_name}
                found += [f"{tensor.name}: {_dimensions(tensor)}"] if name in named else []
        return found

    def constraints(self) -> list[str]:
        """Constraints on a tensor or an attribute, in source form."""
        own = self.scope.own.get(self.symbol.name)
        if own != self.symbol:
            return []
        name = self.symbol.name
        node = next((n for n in self.scope.nodes if isinstance(n, syntax.Operator)), None)
        written = () if node is None else node.constraints or ()
        found = [c.span.text.strip() for c in written if name in _mentioned(c)]
        return ["\n".join(found)] if found else []

    def comment(self) -> list[str]:
        """Comment above or after the symbol's declaration."""
        return comment_of(self.document, self.symbol)

    def listing(self, node: Declared) -> str:
        """Output of `dmlc show` for an operator or a graph."""
        name = self.symbol.owner
        if name in operators() and self.symbol.what is What.OPERATOR:
            definition = find_built_in_operator(name).definition
            if definition.syntax is node:
                return _list_built_in(name)
        findings = self.document.analysis.findings
        if findings is not None and not findings.errors:
            if isinstance(node, syntax.Graph) and name in findings.graphs:
                return list_subject(Graph(findings.graphs[name])).rstrip()
            if name in findings.operators:
                return list_subject(Operator(findings.operators[name])).rstrip()
        # Its comments are left out: they are known of a text without mistakes.
        return format_file(syntax.File(None, (node,), (), node.span.source)).rstrip()


def comment_of(document: Document, symbol: Symbol) -> list[str]:
    """Lines of the comment above or after a symbol's declaration."""
    about, span = symbol.about, symbol.span
    if isinstance(about, syntax.Node):
        span = about.span
    return [] if span is None else list(_comment_at(document, span))


@functools.cache
def _list_built_in(name: str) -> str:
    return list_subject(find_built_in_operator(name)).rstrip()


# Words -----------------------------------------------------------------------------------------


def describe_tensor(tensor: TensorDefinition) -> list[str]:
    """Contents of a tensor's row."""
    kind = f"{'optional ' * tensor.optional}{'output' if tensor.output else 'input'} tensor"
    if tensor.array:
        kind = f"array of {'outputs' if tensor.output else 'inputs'}"
    facts = [f"{kind}, {show_ranks(tensor.ranks)} dimensions"]
    if dimensions := _dimensions(tensor):
        facts.append(f"sizes {dimensions}")
    facts.append(join_words(t.name for t in tensor.dtypes))
    return facts


def _dimensions(tensor: TensorDefinition) -> str:
    """Cell `Dimensions` of a row."""
    if tensor.shape_name is not None:
        return f"{{ {tensor.shape_name}[] }}"
    shown = [str(d.size) if d.name is None else d.name for d in tensor.dimensions or ()]
    optional = [d.optional for d in tensor.dimensions or ()]
    words = [f"[{s}]" if o else s for s, o in zip(shown, optional, strict=True)]
    return f"{{ {', '.join(words)} }}" if words else ""


def describe_attribute(attribute: AttributeDefinition) -> list[str]:
    """Contents of an attribute's row."""
    base = attribute.type.name if attribute.enum is None else attribute.enum.name
    length = "" if attribute.length is None else format_expression(attribute.length)
    facts = [f"attribute, {base}{f'[{length}]' if attribute.is_array else ''}"]
    if attribute.default is not None:
        facts.append(f"default {format_expression(attribute.default)}")
    if attribute.values is not None:
        facts.append(f"values {', '.join(attribute.values)}")
    if attribute.enum is not None:
        facts.append(", ".join(f"{m} = {v}" for m, v in attribute.enum.members.items()))
    return facts


def describe_kind(kind: ValueKind) -> str:
    """Kind of a value as inferred by the checker: `a tensor of 1 to 8 dimensions`; empty if
    unknown."""
    if kind.form is Form.TENSOR:
        return f"a tensor of {show_ranks(kind.ranks)} dimensions" if kind.ranks else "a tensor"
    if kind.form is Form.ARRAY:
        return "an array"
    return "" if kind.is_unknown else kind.describe()


def describe_built_in(name: str) -> tuple[str, list[str], list[str]]:
    """Signature and result of a builtin function."""
    function = GRAPH_FUNCTIONS.get(name)
    facts: list[str] = []
    code = [f"{name}({', '.join(form)})" for form in list_forms(name)]
    if name in REDUCTIONS:
        facts.append("reduction")
        code.append(f"{name}[k : n](e)")
        code += [f"{name}(e...)"] if REDUCTIONS[name].folds else []
    if function is not None and name in OPERATIONS:
        operation = OPERATIONS[name]
        gives = "a boolean" if operation.gives_bool else "a number"
        inexact = ", exact to a few units in the last place" if operation.transcendental else ""
        facts.append(f"scalar function, element by element: gives {gives}{inexact}")
    elif function is not None and name in ARRAY_FUNCTIONS:
        facts.append(f"function of arrays: {function.says}")
    elif function is not None:
        of = "graphs" if name not in FUNCTIONS else "tensors"
        kind = "scalar function" if name in SCALAR_FUNCTIONS else f"function of {of}"
        facts.append(f"{kind}: {function.says}" if function.says else kind)
        facts += function.usage
    return name, facts, ["\n".join(code)]


def list_forms(name: str) -> list[tuple[str, ...]]:
    """Arguments in each form of a call of a builtin function: `x`, `axes: a`."""
    forms: list[tuple[str, ...]] = []
    if name in GRAPH_FUNCTIONS:
        places = enumerate(GRAPH_FUNCTIONS[name].labels)
        forms.append(
            tuple(f"{label}: a" if label else "xyz"[n : n + 1] or "x" for n, label in places)
        )
    if name in REDUCTIONS:
        forms += [("x", "like: T"), ("x", "axes: [0, 2]")]
    return forms


def _dedented(span: Span) -> str:
    """Source text with the indentation of its first line removed from the others."""
    indent = span.source.line_text(span.line)
    width = len(indent) - len(indent.lstrip())
    first, *rest = span.text.split("\n")
    return "\n".join([first, *(line.removeprefix(" " * width) for line in rest)])


def _signature(function: syntax.ScalarFunction) -> str:
    return f"{function.name.text}({', '.join(p.text for p in function.parameters)})"


def _mentioned(constraint: syntax.Constraint) -> set[str]:
    """Names in a constraint."""
    if isinstance(constraint, syntax.Sentence):
        others = () if constraint.kind == "same" else constraint.objects
        return {n.text for n in (*constraint.subjects, *others)}
    return {*names_read(constraint)} - {*functions_called(constraint)}


def _comment_at(document: Document, span: Span) -> Iterator[str]:
    """Lines of the comment above or after a span."""
    own = span.source.text == document.text
    tokens = document.tokens if own else tuple(list_tokens(span.source.text))
    above: list[str] = []
    place = span.source.text.rfind("\n", 0, span.start) + 1
    for token in reversed(tokens):
        if token.end > place:
            continue
        apart = span.source.text[token.end : place].count("\n") > 1
        if token.kind is not TokenKind.COMMENT or apart or not token.first:
            break
        above.insert(0, token.text)
        place = token.start
        place = span.source.text.rfind("\n", 0, place) + 1
    rows = (t.end for t in tokens if t.kind is TokenKind.ROW and t.start <= span.start < t.end)
    end = next(rows, span.end)
    for token in tokens:
        if token.start >= end:
            behind = span.source.text[end : token.start]
            if token.kind is TokenKind.COMMENT and not behind.strip(" \t.,|"):
                above.append(token.text)
            break
    for comment in above:
        yield from _uncommented(comment)


def _uncommented(comment: str) -> Iterator[str]:
    """Lines of a comment without its marks."""
    if comment.startswith("//"):
        yield comment.lstrip("/").strip()
        return
    for line in comment.removeprefix("/*").removesuffix("*/").splitlines():
        if text := line.strip().removeprefix("*").strip():
            yield text
