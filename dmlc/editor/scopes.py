"""Scopes: the symbols visible at an offset, and the span of each declaration.

Symbols come from syntax trees, so that a text with errors has them too: from the tree of its valid
parts, from the open declaration up to the offset, and from the text when it was last valid.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from dmlc import library
from dmlc.editor.documents import Document
from dmlc.editor.lexical import Context, Token, TokenKind, statement_tokens
from dmlc.language import syntax
from dmlc.language.builtins import REDUCTIONS
from dmlc.language.definitions import (
    AttributeDefinition,
    EnumDefinition,
    OperatorDefinition,
    TensorDefinition,
    qualify,
)
from dmlc.language.parse import read_text
from dmlc.language.tables import read_attributes, read_tensors
from dmlc.source import DmlcError, Source, Span


class What(enum.Enum):
    """Kind of a symbol, in the words shown."""

    OPERATOR = "operator"
    GRAPH = "graph"
    ENUM = "enum"
    MEMBER = "enum member"
    FUNCTION = "function"
    PARAMETER = "parameter"
    TENSOR = "tensor"
    ATTRIBUTE = "attribute"
    SIZE = "size"
    LOCAL = "local"
    INDEX = "index"
    INPUT = "input"
    SYMBOL = "symbol"
    FACT = "fact"
    BUILT_IN = "built-in function"
    TYPE = "data type"
    FILE = "file"


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """Member of an enum, and its value."""

    enum: str
    name: str
    value: int


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """Name with a meaning. `about` is its definition, or its node of the tree."""

    what: What
    name: str
    span: Span | None
    """Span of its declaration; None for builtins."""
    about: object = None
    owner: str = ""
    """Qualified name of the operator or graph that owns it."""


Symbols: TypeAlias = dict[str, Symbol]
Declared: TypeAlias = syntax.Operator | syntax.Graph


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Symbols visible at an offset, inner scopes first."""

    variables: Symbols
    """Indices and parameters of the statement."""
    own: Symbols
    """Symbols of the operator or graph."""
    file: Symbols
    """Symbols of the file and its imports."""
    nodes: tuple[Declared, ...]
    """Enclosing operator or graph, best known version first."""
    statements: Mapping[str, syntax.Statement | syntax.GraphStatement]
    """Statements that define locals and outputs."""

    def find(self, name: str) -> Symbol | None:
        """Symbol of a bare name."""
        return self.variables.get(name) or self.own.get(name) or self.file.get(name)

    def __iter__(self) -> Iterator[Symbol]:
        return iter((self.file | self.own | self.variables).values())


def make_scope(document: Document, context: Context) -> Scope:
    """Scope of an offset."""
    file = document.analysis.file
    read = file is not None and _find_declared(file, context) is not None
    # An unparsable text is known up to the statement.
    key = (context.keyword, context.name, context.declared_at, None if read else context.statement)
    if key not in document.known:
        document.known[key] = _make_declared_scope(document, context)
    found: Scope = document.known[key]
    return dataclasses.replace(found, variables=_find_variables(document, context))


def _make_declared_scope(document: Document, context: Context) -> Scope:
    """Scope of the declaration around an offset, without the statement's own names."""
    files = _list_files(document)
    file = _file_symbols(files)
    nodes = tuple(_find_nodes(document, context))
    module = next((f.module.text for f in files if f.module is not None), None)
    own: Symbols = {}
    statements: dict[str, syntax.Statement | syntax.GraphStatement] = {}
    for node in nodes:
        owner = qualify(module, node.name.text)
        body = node.statements if isinstance(node, syntax.Graph) else node.compute or ()
        for statement in body:
            statements.setdefault(statement.name.text, statement)
        symbols = (
            _graph_symbols(node, owner)
            if isinstance(node, syntax.Graph)
            else operator_symbols(node, list_enums(files), owner)
        )
        own = symbols | own
    return Scope({}, own, file, nodes, statements)


# Files -----------------------------------------------------------------------------------------


def _list_files(document: Document) -> list[syntax.File]:
    """Syntax trees of a document and its imports, then those of its last valid version."""
    earlier = document.earlier
    return [*document.analysis.files, *(() if earlier is None else earlier.files)]


def list_enums(files: Iterable[syntax.File]) -> dict[str, EnumDefinition]:
    """Enums that files declare."""
    found: dict[str, EnumDefinition] = {}
    for node in (d for file in files for d in file.declarations):
        if isinstance(node, syntax.Enum):
            members = {m.name.text: m.value for m in node.members}
            found.setdefault(
                node.name.text, EnumDefinition(node.name.text, members, node.name.span)
            )
    return found


def _file_symbols(files: Iterable[syntax.File]) -> Symbols:
    """Declarations of files. Operators and graphs also have names qualified by their modules."""
    found: Symbols = {}
    for file in files:
        module = None if file.module is None else file.module.text
        for node in file.declarations:
            for symbol in _declared(node, module):
                found.setdefault(symbol.name, symbol)
    return found


def _declared(node: syntax.Declaration, module: str | None) -> Iterator[Symbol]:
    match node:
        case syntax.Import():
            return
        case syntax.Enum():
            yield Symbol(What.ENUM, node.name.text, node.name.span, node)
            for member in node.members:
                about = Member(node.name.text, member.name.text, member.value)
                yield Symbol(What.MEMBER, member.name.text, member.name.span, about)
        case syntax.ScalarFunction():
            yield Symbol(What.FUNCTION, node.name.text, node.name.span, node)
        case syntax.Operator() | syntax.Graph():
            what = What.OPERATOR if isinstance(node, syntax.Operator) else What.GRAPH
            for name in dict.fromkeys((node.name.text, qualify(module, node.name.text))):
                yield Symbol(what, name, node.name.span, node, qualify(module, node.name.text))


# Operators and graphs --------------------------------------------------------------------------


def _find_nodes(document: Document, context: Context) -> Iterator[Declared]:
    """Operator or graph around an offset: from the current text, from it up to the current
    statement, and from its last valid version."""
    if context.keyword not in ("operator", "graph"):
        return
    file = document.analysis.file
    found = None if file is None else _find_declared(file, context)
    if found is None:
        opened = _read_opened(document, context)
        found = None if opened is None else _find_declared(opened, context)
    if found is not None:
        yield found
    earlier = document.earlier
    before = None if earlier is None or earlier.file is None else earlier.file
    if before is not None and (old := _find_declared(before, context)) is not None:
        yield old


def _find_declared(file: syntax.File, context: Context) -> Declared | None:
    kind = syntax.Operator if context.keyword == "operator" else syntax.Graph
    named = [d for d in file.declarations if isinstance(d, kind) and d.name.text == context.name]
    return min(named, key=lambda d: abs(d.span.start - context.declared_at), default=None)


def _read_opened(document: Document, context: Context) -> syntax.File | None:
    """Declaration around an offset, closed before the current statement."""
    text = document.text
    start, end = context.declared_at, max(context.declared_at, context.statement)
    blank = re.sub(r"[^\n]", " ", text[:start])
    source = Source(document.name, f"{blank}{text[start:end]}\n{'}' * context.depth}")
    return read_text(source).file


def operator_symbols(
    node: syntax.Operator, enums: Mapping[str, EnumDefinition], owner: str
) -> Symbols:
    """Rows of an operator's tables, names in their `Dimensions`, and definitions of its statements.
    A tensor of several feature levels is that of the last table."""
    found: Symbols = {}
    for tensor in (t for s in node.tensors for t in read_tensors(s.table, [])):
        found[tensor.name] = Symbol(What.TENSOR, tensor.name, tensor.span, tensor, owner)
        named = [d.name for d in tensor.dimensions or () if d.name is not None]
        for name in (*named, *((tensor.shape_name,) if tensor.shape_name is not None else ())):
            found.setdefault(name, Symbol(What.SIZE, name, tensor.span, tensor, owner))
    for attribute in _read_attributes(node, enums):
        made = Symbol(What.ATTRIBUTE, attribute.name, attribute.span, attribute, owner)
        found.setdefault(attribute.name, made)
    for statement in node.compute or ():
        name = statement.name
        what = What.FUNCTION if isinstance(statement, syntax.ScalarFunction) else What.LOCAL
        found.setdefault(name.text, Symbol(what, name.text, name.span, statement, owner))
    return found


def _read_attributes(
    node: syntax.Operator, enums: Mapping[str, EnumDefinition]
) -> list[AttributeDefinition]:
    return [] if node.attributes is None else read_attributes(node.attributes, enums, [])


def _graph_symbols(node: syntax.Graph, owner: str) -> Symbols:
    found: Symbols = {}
    for symbol in node.symbols:
        found[symbol.text] = Symbol(What.SYMBOL, symbol.text, symbol.span, node, owner)
    for given in node.inputs:
        name = given.name
        found.setdefault(name.text, Symbol(What.INPUT, name.text, name.span, given, owner))
    for statement in node.statements:
        for name in statement.names:
            made = Symbol(What.LOCAL, name.text, name.span, statement, owner)
            found.setdefault(name.text, made)
    return found


# Operators by name -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class FoundOperator:
    """Operator that a name denotes, and its rows."""

    name: str
    node: syntax.Operator
    symbols: Symbols
    enums: Mapping[str, EnumDefinition]

    @property
    def rows(self) -> dict[str, TensorDefinition | AttributeDefinition]:
        """Tensors and attributes, by name."""
        kinds = (TensorDefinition, AttributeDefinition)
        return {
            name: symbol.about
            for name, symbol in self.symbols.items()
            if isinstance(symbol.about, kinds) and symbol.what is not What.SIZE
        }

    @property
    def outputs(self) -> list[TensorDefinition]:
        rows = self.rows.values()
        return [row for row in rows if isinstance(row, TensorDefinition) and row.output]


def find_operator(document: Document, name: str) -> FoundOperator | None:
    """Operator that a name denotes in a document: of the file, an import, or the library."""
    key = ("operator", name)
    if key not in document.known:
        document.known[key] = _find_operator(document, name)
    found: FoundOperator | None = document.known[key]
    return found


def _find_operator(document: Document, name: str) -> FoundOperator | None:
    files = _list_files(document)
    own = _file_symbols(files).get(name)
    if own is not None and isinstance(own.about, syntax.Operator):
        enums = list_enums(files)
        symbols = operator_symbols(own.about, enums, own.owner)
        return FoundOperator(own.owner, own.about, symbols, enums)
    module = next((f.module.text for f in files if f.module is not None), None)
    found = _find_in_library(name) or _find_in_library(qualify(module, name))
    if found is None:
        return None
    symbols = operator_symbols(found.syntax, found.enums, found.name)
    return FoundOperator(found.name, found.syntax, symbols, found.enums)


def _find_in_library(name: str) -> OperatorDefinition | None:
    """Operator of the library; None also if its file has errors, as during its development."""
    try:
        return library.BUILT_IN.find(name)
    except DmlcError:
        return None


# Indices and parameters ------------------------------------------------------------------------


def _find_variables(document: Document, context: Context) -> Symbols:
    """Indices and parameters that the statement around an offset declares."""
    tokens = statement_tokens(document.tokens, context)
    found: Symbols = {}
    ends = "where" if tokens and tokens[0].text == "differs" else "="
    end = next((n for n, token in enumerate(tokens) if token.text == ends), 0)
    opened: list[int] = []
    for number, token in enumerate(tokens):
        if token.text in ("(", "["):
            opened.append(number)
        elif token.text in (")", "]") and opened:
            opened.pop()
        if token.kind is not TokenKind.WORD or token.text in found or not opened:
            continue
        if tokens[number - 1].text not in ("[", "(", ","):
            continue
        opening = opened[-1]
        after = number + 1
        after += after < len(tokens) and tokens[after].text == "..."
        follows = tokens[after].text if after < len(tokens) else ""
        what = _declares(tokens, opening, number < end, follows)
        if what is not None:
            span = Span(document.analysis.source, token.start, token.end)
            about = _extent(document.text, tokens, after, opening)
            found[token.text] = Symbol(what, token.text, span, about)
    return found


def _declares(tokens: Sequence[Token], opening: int, in_head: bool, follows: str) -> What | None:
    """Kind of symbol that a name after an open bracket declares, if it does."""
    if opening < 1 or tokens[opening - 1].kind is not TokenKind.WORD:
        return None
    name, mark = tokens[opening - 1].text, tokens[opening].text
    if in_head:
        first = opening - 1 - (tokens[0].text in ("function", "output", "expect"))
        if first == 0 or (tokens[0].text, tokens[opening - 2].text) == ("differs", "in"):
            return What.INDEX if mark == "[" else What.PARAMETER
        return None
    return What.INDEX if mark == "[" and name in REDUCTIONS and follows == ":" else None


def _extent(text: str, tokens: Sequence[Token], colon: int, opening: int) -> str:
    """Extent of an index in source form; without one, the tensor whose axes it indexes."""
    if colon >= len(tokens) or tokens[colon].text != ":":
        return f"an axis of {tokens[opening - 1].text}"
    depth = 0
    for number in range(colon + 1, len(tokens)):
        word = tokens[number].text
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if depth < 0 or (depth == 0 and word in (",", "where")):
            return " ".join(text[tokens[colon].end : tokens[number].start].split())
    return ""
