"""Completion: keywords that the grammar accepts at an offset, and the names in scope."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from dmlc import library
from dmlc.editor.documents import Document
from dmlc.editor.hover import describe_attribute, describe_tensor
from dmlc.editor.lexical import (
    TABLES,
    Context,
    Token,
    TokenKind,
    find_context,
    find_word,
)
from dmlc.editor.resolve import (
    dotted_parts,
    find_call,
    find_called,
    find_column,
    find_compared,
    find_forward,
)
from dmlc.editor.scopes import Symbol, What, make_scope
from dmlc.language import attribute_types
from dmlc.language.attribute_types import ATTRIBUTE_TYPES
from dmlc.language.builtins import (
    ARRAY_FACTS,
    FACTS,
    FUNCTIONS,
    GRAPH_FUNCTIONS,
    REDUCTIONS,
    SENTENCE_FACTS,
)
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.language.grammar import Continuation, UnexpectedText, continue_text
from dmlc.language.mistakes import spell_keyword
from dmlc.language.parse import SUFFIX
from dmlc.language.tables import ATTRIBUTE_COLUMNS, KINDS, TENSOR_COLUMNS, plain
from dmlc.scalars import data_type_names, find_data_type

_CONSTANTS = ("true", "false", "inf", "nan")
_COLUMNS = {"attributes": ATTRIBUTE_COLUMNS, "tensors": TENSOR_COLUMNS}


@dataclasses.dataclass(frozen=True, slots=True)
class Completion:
    """Completion that replaces the text from `start` to the requested offset."""

    label: str
    what: What | str
    """Kind; `keyword`, `constant`, `column` and `value` are no symbols."""
    detail: str
    text: str
    start: int


def complete(document: Document, offset: int) -> list[Completion]:
    """Completions at an offset, most likely first. The word that ends there is replaced."""
    word = find_word(document.tokens, offset)
    if word is not None and word.start == offset:
        word = None
    context = find_context(document.text, document.tokens, offset, word)
    start = offset if word is None else word.start
    writer = _Completer(document, context, start)
    found: dict[str, Completion] = {}
    for label, what, detail, *text in writer.list():
        made = Completion(label, what, detail, text[0] if text else label, start)
        found.setdefault(label, made)
    return list(found.values())


_Item = tuple[str, "What | str", str] | tuple[str, "What | str", str, str]
"""Label, kind, detail, and the inserted text if it differs."""


class _Completer:
    """Completions at one offset."""

    def __init__(self, document: Document, context: Context, start: int) -> None:
        self.document = document
        self.context = context
        self.start = start
        self.before = context.before
        self.words = [token.text for token in context.before]
        self.scope = make_scope(document, context)

    def list(self) -> Iterable[_Item]:
        inside = self.context.inside
        if inside is not None:
            match inside.kind:
                case TokenKind.STRING:
                    return self.in_string()
                case TokenKind.ROW:
                    return self.in_row(inside)
                case _:
                    return ()
        if self.words[-1:] == ["."]:
            return self.members()
        operator = self.context.keyword == "operator" and self.context.depth == 1
        if operator and (self.words == ["forward"] or self.words == ["gradient", "of"]):
            return self.operators()
        compared = find_compared(self.document, self.context, self.scope)
        if compared is not None and (values := list(_values(compared))):
            return values
        return (*self.labels(), *self.by_grammar())

    # By the grammar -----------------------------------------------------------------------

    def by_grammar(self) -> Iterator[_Item]:
        """Keywords, and names where the grammar accepts one."""
        found = self.continuation()
        if found is None:
            return
        expected = found.expected
        if "INTEGER" in expected:
            yield from self.expression()
        elif {"NAME", "EMPHASISED"} & expected:
            yield from self.names()
        if "TABLE_ROW" in expected and not any(t.kind is TokenKind.ROW for t in self.before):
            yield from self.headers()
        for phrase in sorted(_phrases(found)):
            yield phrase, "keyword", ""

    def continuation(self) -> Continuation | None:
        """Parser state after the statement up to the offset, or, after an error in it, after an
        equals sign."""
        context = self.context
        opened = _OPENED.get((context.keyword, context.section), "") if context.depth else ""
        begun = context.statement if context.depth else context.declared_at
        if context.depth == 1:
            opened = "graph x() {" if context.keyword == "graph" else "operator x {"
        elif context.section in TABLES and context.depth:
            opened, begun = f"operator x {{ {context.section} {{", self.start
        for text in (opened + self.document.text[begun : self.start], f"{opened} x = "):
            try:
                return continue_text(text, "start")
            except UnexpectedText:
                continue
        return None

    def expression(self) -> Iterator[_Item]:
        """Names that a formula may contain."""
        in_graph = self.context.keyword == "graph"
        for symbol in self.symbols():
            if symbol.what is not What.ENUM and not self.is_later(symbol):
                yield _item(symbol)
        functions = GRAPH_FUNCTIONS if in_graph else FUNCTIONS
        for name in (*REDUCTIONS, *functions):
            yield name, What.BUILT_IN, "reduction" if name in REDUCTIONS else "function"
        for name in _CONSTANTS:
            yield name, "constant", ""
        yield from self.types()
        if in_graph:
            yield from self.operators()

    def symbols(self) -> Iterator[Symbol]:
        """Symbols in scope, nearest first, except operators."""
        yield from self.scope.variables.values()
        yield from self.scope.own.values()
        apart = (What.OPERATOR, What.GRAPH)
        yield from (s for s in self.scope.file.values() if s.what not in apart)

    def is_later(self, symbol: Symbol) -> bool:
        """Whether a local is defined at the offset or later."""
        span = symbol.span
        local = symbol.what is What.LOCAL and span is not None
        own = local and span is not None and span.source.text == self.document.text
        return own and span is not None and span.start >= self.context.statement

    def names(self) -> Iterator[_Item]:
        """Names outside formulas."""
        context, own = self.context, self.scope.own.values()
        forward = find_forward(self.document, context)
        if context.keyword == "function" or context.section == "compute":
            yield from self.of_gradient()
        if forward is not None:
            rows = (What.TENSOR, What.ATTRIBUTE)
            yield from (_item(s) for s in forward.symbols.values() if s.what in rows)
        elif context.keyword == "graph" and self.words[-1:] == [":"]:
            yield from self.types()
        elif context.section == "constraints" and "same" in self.words:
            yield from ((name, What.FACT, "") for name in SENTENCE_FACTS)
        elif context.section in ("constraints", "example", "differs", "gradient", "forward"):
            wanted = {"constraints": (What.TENSOR,)}
            kinds = wanted.get(context.section, (What.TENSOR, What.ATTRIBUTE))
            expected = self.words[-1:] == ["expect"]
            yield from (_item(s) for s in own
                        if s.what in kinds and (_is_output(s) or not expected))  # fmt: skip
        elif context.section == "compute":
            yield from (_item(s) for s in own if _is_output(s))

    def of_gradient(self) -> Iterator[_Item]:
        """Names in `gradient of f with respect to x`, after a function of x."""
        head = self.words[self.words[:1] == ["function"] :]
        if self.words[-2:] == ["gradient", "of"]:
            yield head[0], What.FUNCTION, ""
        elif self.words[-3:] == ["with", "respect", "to"]:
            own = self.scope.variables.values()
            yield from (_item(symbol) for symbol in own if symbol.what is What.PARAMETER)

    def types(self) -> Iterator[_Item]:
        for name in data_type_names():
            dtype = find_data_type(name)
            yield name, What.TYPE, "" if dtype is None else dtype.name

    def operators(self) -> Iterator[_Item]:
        """Operators by name: those of the file and its imports, and of the library."""
        own = [s for s in self.scope.file.values() if s.what is What.OPERATOR]
        for symbol in own:
            yield symbol.name, What.OPERATOR, symbol.owner
        for name in library.names():
            yield name, What.OPERATOR, "library"

    def headers(self) -> Iterator[_Item]:
        """Header of a table."""
        known = _COLUMNS.get(self.context.section)
        if known is not None:
            yield f"| {' | '.join(known)} |", "column", "the header of the table"

    # Dots and calls -----------------------------------------------------------------------

    def members(self) -> Iterator[_Item]:
        """Names after a dot."""
        parts = dotted_parts(self.before)
        if not parts:
            return
        base = ".".join(parts)
        for name in dict.fromkeys(item[0] for item in self.operators()):
            if name.startswith(f"{base}."):
                yield name[len(base) + 1 :], What.OPERATOR, name
        called = find_called(self.document, self.scope, base)
        symbol = self.scope.find(base)
        if called is not None:
            yield from (_item(called.symbols[t.name]) for t in called.outputs)
        elif symbol is not None and symbol.what in (What.TENSOR, What.LOCAL):
            row = symbol.about
            array = isinstance(row, TensorDefinition) and row.array
            yield from ((name, What.FACT, "") for name in (ARRAY_FACTS if array else FACTS))

    def labels(self) -> Iterator[_Item]:
        """Labels of arguments that are not given yet."""
        brackets = self.context.brackets
        if not brackets or self.words[-1:] not in (["("], [","]) or brackets[-1].mark != "(":
            return
        labels = {"like": "reduce to the sizes of a tensor", "axes": "reduce over axes"}
        called = find_call(self.document, self.context)
        if called is not None:
            given = {
                token.text
                for token, after in zip(self.before, self.before[1:], strict=False)
                if token.start > brackets[-1].start and after.text == ":"
            }
            for name in called.rows:
                if name not in given:
                    made = _item(called.symbols[name])
                    yield f"{name}:", made[1], made[2], f"{name}: "
        elif brackets[-1].name in REDUCTIONS and self.words[-1] == ",":
            for name, said in labels.items():
                yield f"{name}:", "keyword", said, f"{name}: "
        elif (builtin := GRAPH_FUNCTIONS.get(brackets[-1].name)) is not None:
            for label in filter(None, builtin.labels):
                yield f"{label}:", "keyword", "", f"{label}: "

    # Texts and tables ---------------------------------------------------------------------

    def in_string(self) -> Iterator[_Item]:
        """Files to import, or values of a string."""
        if self.words == ["import"]:
            own = Path(self.document.name)
            for path in sorted(own.parent.glob(f"*{SUFFIX}")):
                if path.name != own.name:
                    yield path.name, What.FILE, ""
            return
        compared = find_compared(self.document, self.context, self.scope)
        for value in () if compared is None else compared.values or ():
            yield value, "value", ""

    def in_row(self, row: Token) -> Iterator[_Item]:
        """Contents of a cell."""
        section = self.context.section
        title = find_column(self.before, row, self.start)
        if section == "types":
            names = (s for s in self.scope.own.values() if s.what is What.TENSOR)
            yield from map(_item, names) if title is None else self.types()
        elif title is not None:
            yield from self.in_column(row, title)
        else:
            yield from ((name, "column", "") for name in _COLUMNS.get(section, ()))

    def in_column(self, row: Token, title: str) -> Iterator[_Item]:
        match title:
            case "kind":
                yield from ((name.capitalize(), "value", "") for name in KINDS)
            case "supported data types" | "types":
                yield from self.types()
            case "type":
                yield from ((name, What.TYPE, "") for name in ATTRIBUTE_TYPES)
                yield from (_item(s) for s in self.symbols() if s.what is What.ENUM)
            case "default":
                name = plain(row.text.split("|")[1])
                symbol = self.scope.own.get(name)
                if symbol is not None and isinstance(symbol.about, AttributeDefinition):
                    yield from _values(symbol.about)
                yield from (_item(s) for s in self.symbols() if s.what in _IN_DEFAULTS)
                yield from ((name, "constant", "") for name in _CONSTANTS)
            case "dimensions":
                yield from (_item(s) for s in self.symbols() if s.what is What.SIZE)
            case _:
                return


_OPENED = {
    ("operator", "compute"): "operator x { compute {",
    ("operator", "constraints"): "operator x { constraints {",
    ("operator", "example"): 'operator x { example "" {',
    ("operator", "differs"): 'operator x { differs "" {',
    ("operator", "gradient"): "operator x { gradient of x {",
    ("operator", "forward"): "operator x { forward x {",
}
"""Tokens that open the construct around a statement."""
_IN_DEFAULTS = (What.MEMBER, What.TENSOR, What.ATTRIBUTE, What.SIZE)


def _is_output(symbol: Symbol) -> bool:
    return isinstance(symbol.about, TensorDefinition) and symbol.about.output


def _values(attribute: AttributeDefinition) -> Iterator[_Item]:
    """Values of an attribute with few named values."""
    if attribute.enum is not None:
        for name, value in attribute.enum.members.items():
            yield name, What.MEMBER, f"{attribute.enum.name} = {value}"
        return
    what = attribute.type.what
    if what is attribute_types.What.STRING:
        yield from ((f'"{value}"', "value", "") for value in attribute.values or ())
    elif what is attribute_types.What.BOOL:
        yield from ((name, "constant", "") for name in ("true", "false"))
    elif what is attribute_types.What.TYPE:
        yield from ((name, What.TYPE, "") for name in data_type_names())


def _item(symbol: Symbol) -> _Item:
    return symbol.name, symbol.what, describe_briefly(symbol)


def describe_briefly(symbol: Symbol) -> str:
    """Description of a symbol in one line."""
    match symbol.about:
        case TensorDefinition() if symbol.what is What.TENSOR:
            return ", ".join(describe_tensor(symbol.about))
        case AttributeDefinition():
            return describe_attribute(symbol.about)[0]
        case _:
            return symbol.what.value


def _phrases(found: Continuation) -> Iterator[str]:
    """Keywords that the grammar accepts next, each with those that must follow it."""
    for terminal in found.expected:
        words = [spell_keyword(terminal)]
        following = found
        while words[-1]:
            following = following.after(terminal)
            (terminal,) = following.expected if len(following.expected) == 1 else ("",)
            words.append(spell_keyword(terminal))
        if words[0]:
            yield " ".join(words[:-1])
