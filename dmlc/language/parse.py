"""Text to syntax tree. The grammar is `grammar/dml.lark`; this gives its rules their nodes, and
its mistakes their words.

One run reports independent mistakes: the section or declaration around a mistake is left out and
the rest is read again. Nothing is resolved here; `check` does that.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import lark

from dmlc.language import syntax
from dmlc.resources import read_resource
from dmlc.source import Diagnostic, DmlcError, Note, Source, Span, nearest

MAX_BYTES = 16 << 20
"""The largest file read."""
MAX_DEPTH = 200
"""The deepest expression: parentheses, calls and operators each add a level."""
MAX_NAME = 128
"""The longest name, in characters."""
MAX_ERRORS = 20
"""How many mistakes one run reports."""

_Node: TypeAlias = Any
"""A node of `syntax`, a token, a list of them, or None for an optional part left out."""


_Tree: TypeAlias = "lark.Tree[lark.Token]"


def _read(text: str, start: str) -> _Tree:
    """lark's tree of a text. Raises `lark.UnexpectedInput`."""
    grammar: Any = _grammar()
    return grammar.parse(text, start=start)


@functools.cache
def _grammar() -> lark.Lark:
    return lark.Lark(
        read_resource("grammar/dml.lark"),
        parser="lalr",
        lexer="contextual",
        start=["start", "expression"],
        propagate_positions=True,
        maybe_placeholders=True,
    )


def read_source(path: Path) -> Source:
    """The text of a file. Raises `DmlcError` where it cannot be read, is no UTF-8 or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DmlcError(f"cannot read '{path}': {error.strerror or error}") from error
    except ValueError as error:
        raise DmlcError(f"cannot read '{str(path)!r}': {error}") from error
    if len(content) > MAX_BYTES:
        raise DmlcError(f"'{path}' is larger than {MAX_BYTES >> 20} MiB")
    try:
        return Source(str(path), content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DmlcError(f"'{path}' is not UTF-8: byte {error.start} cannot be read") from error


def parse(source: Source) -> syntax.File:
    """The syntax tree of a `.dml` text. Raises `DmlcError` with up to 20 mistakes."""
    _refuse_unreadable(source)
    diagnostics: list[Diagnostic] = []
    text = source.text
    first: syntax.File | None = None
    while len(diagnostics) < MAX_ERRORS:
        try:
            tree = _read(text, "start")
        except lark.UnexpectedInput as error:
            diagnostics.append(_describe(error, source))
            remaining = _leave_out(text, diagnostics[-1].span)
            if remaining is None or remaining == text:
                break
            text = remaining
            continue
        builder = _Builder(source, partial=bool(diagnostics))
        made = builder.build(tree)
        diagnostics += builder.diagnostics
        first = made if isinstance(made, syntax.File) else None
        break
    if diagnostics or first is None:
        diagnostics.sort(key=lambda d: d.span.start if d.span else 0)
        raise DmlcError(diagnostics[:MAX_ERRORS])
    return first


def parse_expression(source: Source, start: int, end: int) -> syntax.Expression:
    """An expression inside a larger text (a table's cell). Raises `DmlcError`."""
    text = " " * start + source.text[start:end]
    try:
        tree = _read(text, "expression")
    except lark.UnexpectedInput as error:
        raise DmlcError(_describe(error, Source(source.name, text), source)) from None
    builder = _Builder(source)
    made = builder.build(tree)
    if builder.diagnostics:
        raise DmlcError(builder.diagnostics)
    return cast(syntax.Expression, made)


def _refuse_unreadable(source: Source) -> None:
    """What the lexer should not see at all."""
    if len(source.text) > MAX_BYTES or len(source.text.encode("utf-8", "replace")) > MAX_BYTES:
        raise DmlcError(f"{source.name}: the file is larger than {MAX_BYTES >> 20} MiB")
    found = re.search("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]", source.text)
    if found is not None:
        code = ord(found.group())
        span = Span(source, found.start(), found.end())
        raise DmlcError(f"the character U+{code:04X} cannot stand in a .dml file", span)


# Mistakes --------------------------------------------------------------------------------------

_WORDS = {
    "NAME": "a name",
    "EMPHASISED": "a name",
    "STRING": "a text in double quotes",
    "TABLE_ROW": "a table row '| ... |'",
    "INTEGER": "a whole number",
    "FLOAT": "a number",
    "CONSTANT": "a constant",
    "FUNCTION": "'function'",
    "REQUIRE": "'require'",
    "EXPECT": "'expect'",
    "OUTPUT": "'output'",
    "PACK": "'...'",
    "$END": "the end of the file",
}
_OPERATORS = {
    *("OR", "AND", "EQUALITY", "COMPARISON", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT"),
    *("QMARK", "DOT", "LPAR", "LSQB", "PACK", "ELSE"),
}
_EXPRESSION = {
    *("INTEGER", "FLOAT", "CONSTANT", "STRING", "NAME", "LPAR", "LSQB", "MINUS", "NOT"),
}


def _describe(
    error: lark.UnexpectedInput, source: Source, shown: Source | None = None
) -> Diagnostic:
    """The diagnostic of a parser's error; `shown` is the text to point into, if another."""
    place = shown or source
    start = min(max(error.pos_in_stream or 0, 0), len(source.text))
    # lark's errors are typed loosely: a token, what was expected, or what characters were allowed.
    token = cast("lark.Token | None", getattr(error, "token", None))
    expected = set(cast(Iterable[str], getattr(error, "expected", None) or ()))
    if token is not None and token.type != "$END":
        text = str(token)
        start = token.start_pos if token.start_pos is not None else start
    elif isinstance(error, lark.UnexpectedCharacters):
        text = source.text[start : start + 1]
    else:
        start, text = len(source.text.rstrip()), ""
    span = Span(place, start, start + max(1, min(len(text), 80)) if text else start)
    rest = source.text[start : start + 2]
    if rest == "/*":
        return Diagnostic(
            "this comment is not closed: expected '*/'", Span(place, start, start + 2)
        )
    if rest[:1] == '"' and len(text) <= 1:
        return Diagnostic("this text is not closed: expected '\"'", Span(place, start, start + 1))
    words = _expected_words(expected)
    found = f"'{_short(text)}'" if text else "the end of the file"
    message = f"expected {words}, found {found}" if words else f"unexpected {found}"
    notes: tuple[Note, ...] = ()
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        suggestion = nearest(text, sorted(_keywords(expected)))
        if suggestion is not None:
            notes = (Note(f"did you mean '{suggestion}'?"),)
    elif rest[:1] == "|":
        notes = (Note("a table row runs from a '|' to the last '|' of the same line"),)
    return Diagnostic(message, span, notes)


def _short(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= 40 and line == text else line[:37] + "..."


def _keywords(expected: set[str]) -> Iterator[str]:
    for name in expected:
        spelled = _spelling(name)
        if spelled is not None and spelled.isalpha():
            yield spelled


def _spelling(terminal: str) -> str | None:
    if terminal in _WORDS:
        word = _WORDS[terminal]
        return word.strip("'") if word.startswith("'") else None
    found = [t for t in _grammar().terminals if t.name == terminal]
    return found[0].pattern.value if found and found[0].pattern.type == "str" else None


def _expected_words(expected: set[str]) -> str:
    """What a person would say is expected, most telling first."""
    left = expected - {"COMMENT", "SPACE"}
    words: list[str] = []
    if {"INTEGER", "LPAR"} <= left:
        words.append("an expression")
        left -= _EXPRESSION
    if {"PLUS", "STAR"} <= left:
        words.append("an operator")
        left -= _OPERATORS
    spelled = {_WORDS.get(name) or f"'{_spelling(name) or name.lower()}'" for name in left}
    words += sorted(spelled, key=lambda w: (w.startswith("'"), w))
    if len(words) > 12:
        return ""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_BLOCK = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|(?P<open>\{)|(?P<close>\})|(?P<start>^[ \t]*'
    r"(?:operator|graph|enum|function|import|module|attributes|tensors|types|constraints|compute"
    r"|gradient|example|introduced|forward)\b|^[ \t]*[A-Za-z]\w*(?:[ \t]+\w+)?[ \t]*(?=\{))",
    re.DOTALL | re.MULTILINE,
)


def _leave_out(text: str, span: Span | None) -> str | None:
    """The text with the section or declaration around a mistake blanked; None where there is no
    such part, or where its braces do not match."""
    if span is None:
        return None
    starts: list[tuple[int, int]] = []
    depth = 0
    begin: tuple[int, int] | None = None
    for match in _BLOCK.finditer(text):
        ends = match.group("start") is not None or match.group("close") is not None
        if begin is not None and ends and match.start() > span.start and depth <= begin[1]:
            return _blank(text, begin[0], match.start())
        if match.group("open") is not None:
            depth += 1
        elif match.group("close") is not None:
            depth -= 1
            if begin is not None and match.start() >= span.start and depth == begin[1]:
                return _blank(text, begin[0], match.end())
        elif match.group("start") is not None and match.start() <= span.start:
            starts = [s for s in starts if s[1] < depth]
            starts.append((match.start(), depth))
            begin = starts[-1]
        if match.start() <= span.start and starts:
            starts = [s for s in starts if s[1] <= depth]
            begin = starts[-1] if starts else None
    return _blank(text, begin[0], len(text)) if begin is not None and begin[1] == 0 else None


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


# Nodes -----------------------------------------------------------------------------------------


class _Builder:
    """Makes syntax nodes from lark's tree, bottom up and without recursion."""

    def __init__(self, source: Source, partial: bool = False) -> None:
        self.source = source
        self.partial = partial
        """Whether sections were left out, so that a missing one is no mistake."""
        self.diagnostics: list[Diagnostic] = []
        self.rows: list[tuple[int, int]] = []
        """Where table rows stand: what looks like a comment there is a cell."""
        self.depths: dict[int, int] = {}

    def fail(self, message: str, span: Span, *notes: str) -> None:
        self.diagnostics.append(Diagnostic(message, span, tuple(Note(n) for n in notes)))

    def build(self, tree: lark.Tree[lark.Token] | lark.Token) -> _Node:
        made: dict[int, _Node] = {}
        pending: list[tuple[_Node, bool]] = [(tree, False)]
        while pending:
            node, ready = pending.pop()
            if not isinstance(node, lark.Tree):
                if isinstance(node, lark.Token):
                    made[id(node)] = self.token(node)
                continue
            branch = cast("lark.Tree[lark.Token]", node)
            if not ready:
                pending.append((branch, True))
                pending += [(child, False) for child in reversed(branch.children)]
                continue
            children = [made.get(id(c)) for c in branch.children]
            made[id(branch)] = self.node(branch, children)
        return made[id(tree)]

    def token(self, token: lark.Token) -> _Node:
        if token.type in ("NAME", "EMPHASISED"):
            text = str(token).strip("*`") if token.type == "EMPHASISED" else str(token)
            name = syntax.Name(text, self.span_of(token))
            if len(text) > MAX_NAME:
                self.fail(
                    f"a name has at most {MAX_NAME} characters, this one {len(text)}", name.span
                )
            return name
        return token

    def span_of(self, token: lark.Token) -> Span:
        start = token.start_pos or 0
        return Span(self.source, start, start + len(token))

    def node(self, tree: lark.Tree[lark.Token], children: list[_Node]) -> _Node:
        meta = tree.meta
        if meta.empty:
            span = Span(self.source, 0, 0)
        else:
            span = Span(self.source, meta.start_pos, meta.end_pos)
        if tree.data != "call":
            children = [self.whole(child) for child in children]
        method: Callable[[list[_Node], Span], _Node] = getattr(self, f"make_{tree.data}")
        made = method(children, span)
        if isinstance(made, _EXPRESSIONS):
            self.measure(made, children)
        return made

    def measure(self, made: _Node, children: list[_Node]) -> None:
        """Refuses what is nested too deep, once."""
        depth = 1 + max((self.depth_of(c) for c in children), default=0)
        self.depths[id(made)] = depth
        if depth == MAX_DEPTH + 1:
            self.fail(
                f"this expression is nested deeper than {MAX_DEPTH} levels",
                Span(made.span.source, made.span.start, min(made.span.end, made.span.start + 40)),
                "give parts of it a name",
            )

    def depth_of(self, child: _Node) -> int:
        if isinstance(child, list):
            return max((self.depth_of(c) for c in cast(list[_Node], child)), default=0)
        if isinstance(child, tuple):
            return max((self.depth_of(c) for c in cast(tuple[_Node, ...], child)), default=0)
        if isinstance(child, syntax.Argument):
            return self.depths.get(id(child.value), 0)
        return self.depths.get(id(child), 0)

    # Declarations -------------------------------------------------------------------------

    def make_start(self, children: list[_Node], span: Span) -> syntax.File:
        module, *declarations = children
        return syntax.File(module, tuple(declarations), self.comments(), self.source)

    def comments(self) -> tuple[syntax.Comment, ...]:
        found: list[syntax.Comment] = []
        text, position = self.source.text, 0
        rows = sorted(self.rows)
        starts = [start for start, _ in rows]
        for match in re.finditer(r'"(?:\\.|[^"\\])*"|(//[^\n]*|/\*.*?\*/)', text, re.DOTALL):
            before = bisect.bisect_right(starts, match.start()) - 1
            if match.start() < position or (before >= 0 and match.start() < rows[before][1]):
                continue
            position = match.end()
            if match.group(1) is not None:
                span = Span(self.source, match.start(), match.end())
                found.append(syntax.Comment(match.group(1).rstrip(), span))
        return tuple(found)

    def make_module_name(self, children: list[_Node], span: Span) -> syntax.Name:
        return children[0]

    def make_dotted(self, children: list[_Node], span: Span) -> syntax.Name:
        return syntax.Name(".".join(c.text for c in children), span)

    def make_import_file(self, children: list[_Node], span: Span) -> syntax.Import:
        return syntax.Import(_unquote(children[0]), span)

    def make_enum(self, children: list[_Node], span: Span) -> syntax.Enum:
        name, *members = children
        return syntax.Enum(name, tuple(m for m in members if m is not None), span)

    def make_enum_member(self, children: list[_Node], span: Span) -> syntax.EnumMember:
        name, sign, number = children
        value = self.integer(number)
        return syntax.EnumMember(name, -value if sign is not None else value, span)

    def make_scalar_function(self, children: list[_Node], span: Span) -> syntax.ScalarFunction:
        _, name, *parameters, body = children
        kept = tuple(p for p in parameters if p is not None)
        return syntax.ScalarFunction(name, kept, body, True, span)

    def make_local_function(self, children: list[_Node], span: Span) -> syntax.ScalarFunction:
        name, *parameters, body = children
        kept = tuple(p for p in parameters if p is not None)
        return syntax.ScalarFunction(name, kept, body, False, span)

    def make_operator(self, children: list[_Node], span: Span) -> syntax.Operator:
        name, *sections = children
        found: dict[str, _Node] = {}
        lists: dict[str, list[_Node]] = {"tensors": [], "example": []}
        last = 0
        for kind, value, place in sections:
            order = _SECTIONS.index(kind)
            if kind in found and kind not in lists:
                self.fail(f"section '{kind}' stands twice in operator '{name.text}'", place)
            elif order < last:
                self.fail(
                    f"section '{kind}' must stand before '{_SECTIONS[last]}'",
                    place,
                    f"the order is: {', '.join(_SECTIONS)}",
                )
            last = max(last, order)
            found[kind] = value
            if kind in lists:
                lists[kind].append(value)
        if not lists["tensors"] and not self.partial:
            self.fail(f"operator '{name.text}' has no 'tensors' section", name.span)
        if "compute" not in found and "gradient of" not in found:
            if not self.partial:
                self.fail(f"operator '{name.text}' needs 'compute' or 'gradient of'", name.span)
        elif "compute" in found and "gradient of" in found:
            self.fail(f"operator '{name.text}' has both 'compute' and 'gradient of'", name.span)
        return syntax.Operator(
            name=name,
            doc=found.get("doc string"),
            introduced=found.get("introduced"),
            forward=found.get("forward"),
            attributes=found.get("attributes"),
            tensors=tuple(lists["tensors"]),
            types=found.get("types"),
            constraints=found.get("constraints"),
            compute=found.get("compute"),
            gradient_of=found.get("gradient of"),
            examples=tuple(lists["example"]),
            sections=tuple((kind, place) for kind, _, place in sections),
            span=span,
        )

    def make_doc(self, children: list[_Node], span: Span) -> _Node:
        return "doc string", _unquote(children[0]), span

    def make_introduced(self, children: list[_Node], span: Span) -> _Node:
        return "introduced", children[0], span

    def make_forward(self, children: list[_Node], span: Span) -> _Node:
        return "forward", children[0], span

    def make_attributes(self, children: list[_Node], span: Span) -> _Node:
        return "attributes", children[0], span

    def make_tensors(self, children: list[_Node], span: Span) -> _Node:
        return "tensors", syntax.TensorsSection(children[0], children[1], span), span

    def make_types(self, children: list[_Node], span: Span) -> _Node:
        return "types", children[0], span

    def make_constraints(self, children: list[_Node], span: Span) -> _Node:
        return "constraints", tuple(children), span

    def make_compute(self, children: list[_Node], span: Span) -> _Node:
        return "compute", tuple(children), span

    def make_gradient_of(self, children: list[_Node], span: Span) -> _Node:
        return "gradient of", syntax.GradientOf(children[0], tuple(children[1]), span), span

    def make_example(self, children: list[_Node], span: Span) -> _Node:
        title, *items = children
        return "example", syntax.Example(_unquote(title), tuple(items), span), span

    def make_example_item(self, children: list[_Node], span: Span) -> syntax.ExampleItem:
        expect, name, value = children
        return syntax.ExampleItem(name, value, expect is not None, span)

    def make_table(self, children: list[_Node], span: Span) -> syntax.Table:
        rows = [self.row(token) for token in children]
        kept = [r for r in rows if not _is_rule(r)]
        if not kept:
            self.fail("this table has no header row", span)
            kept = rows
        return syntax.Table(kept[0], tuple(kept[1:]), len(kept) < len(rows), span)

    def row(self, token: lark.Token) -> syntax.Row:
        cells: list[syntax.Cell] = []
        position = (token.start_pos or 0) + 1
        for text in str(token)[1:-1].split("|"):
            trimmed = text.strip()
            start = position + (len(text) - len(text.lstrip()) if trimmed else 0)
            end = start + len(trimmed) if trimmed else position + len(text)
            cells.append(syntax.Cell(trimmed, Span(self.source, start, end)))
            position += len(text) + 1
        span = self.span_of(token)
        self.rows.append((span.start, span.end))
        return syntax.Row(tuple(cells), span)

    # Constraints and statements -----------------------------------------------------------

    def make_names(self, children: list[_Node], span: Span) -> list[syntax.Name]:
        first, *rest = children
        return [*(cast(list[syntax.Name], first) if isinstance(first, list) else [first]), *rest]

    def make_marked(self, children: list[_Node], span: Span) -> syntax.Name:
        return children[0]

    def make_same(self, children: list[_Node], span: Span) -> syntax.Sentence:
        return syntax.Sentence("same", tuple(children[0]), tuple(children[1]), span)

    def make_broadcastable(self, children: list[_Node], span: Span) -> syntax.Sentence:
        return syntax.Sentence("broadcastable", tuple(children[0]), (children[1],), span)

    def make_scalar(self, children: list[_Node], span: Span) -> syntax.Sentence:
        return syntax.Sentence("scalar", tuple(children[0]), (), span)

    def make_require(self, children: list[_Node], span: Span) -> syntax.Require:
        _, condition, message = children
        return syntax.Require(condition, None if message is None else _unquote(message), span)

    def make_assignment(self, children: list[_Node], span: Span) -> syntax.Assignment:
        return syntax.Assignment(children[0], None, children[1], span)

    def make_indexed_assignment(self, children: list[_Node], span: Span) -> syntax.Assignment:
        name, items, value = children
        indices = tuple(self.plain(item) for item in items)
        for index in indices:
            inner = index.operand if isinstance(index, syntax.Pack) else index
            if not isinstance(inner, syntax.Reference):
                self.fail("expected the name of an index variable here", index.span)
        return syntax.Assignment(name, indices, value, span)

    # Graphs -------------------------------------------------------------------------------

    def make_graph(self, children: list[_Node], span: Span) -> syntax.Graph:
        name, *rest = [c for c in children if c is not None]
        return syntax.Graph(
            name,
            tuple(c for c in rest if isinstance(c, syntax.Name)),
            tuple(c for c in rest if isinstance(c, syntax.GraphInput)),
            tuple(c for c in rest if isinstance(c, syntax.GraphStatement)),
            span,
        )

    def make_graph_input(self, children: list[_Node], span: Span) -> syntax.GraphInput:
        return syntax.GraphInput(children[0], children[1], span)

    def make_tensor_type(self, children: list[_Node], span: Span) -> syntax.TensorType:
        dtype, *sizes = children
        return syntax.TensorType(dtype, tuple(s for s in sizes if s is not None), span)

    def make_graph_statement(self, children: list[_Node], span: Span) -> syntax.GraphStatement:
        output, name, value = children
        return syntax.GraphStatement(name, value, output is not None, span)

    # Expressions --------------------------------------------------------------------------

    def integer(self, token: lark.Token) -> int:
        if len(token) > 18:
            self.fail("this number has more than 18 digits", self.span_of(token))
            return 0
        return int(token)

    def make_literal(self, children: list[_Node], span: Span) -> syntax.Literal:
        token = cast(lark.Token, children[0])
        text = str(token)
        value: bool | int | float
        if token.type == "INTEGER":
            value = self.integer(token)
        elif text in ("true", "false"):
            value = text == "true"
        else:
            value = float(text)
        return syntax.Literal(text, value, span)

    def make_string(self, children: list[_Node], span: Span) -> syntax.String:
        return syntax.String(_unquote(children[0]), span)

    def make_reference(self, children: list[_Node], span: Span) -> syntax.Reference:
        return syntax.Reference(children[0].text, span)

    def make_group(self, children: list[_Node], span: Span) -> syntax.Expression:
        return children[0]

    def make_array(self, children: list[_Node], span: Span) -> syntax.Array:
        return syntax.Array(tuple(self.plain(c) for c in children if c is not None), span)

    def make_member(self, children: list[_Node], span: Span) -> syntax.Member:
        return syntax.Member(children[0], children[1], span)

    def make_items(self, children: list[_Node], span: Span) -> list[_Node]:
        return children

    make_arguments = make_items

    def make_item(self, children: list[_Node], span: Span) -> _Node:
        """(expression, whether it is a pack, what follows a colon, span), told apart by use."""
        value, pack, extent = children
        return value, pack is not None, extent, span

    def plain(self, item: _Node) -> syntax.Expression:
        """An item that may be a pack, but has no colon."""
        value, pack, extent, span = item
        if extent is not None:
            self.fail("a ':' has no meaning here", span)
        if not pack:
            return value
        made = syntax.Pack(value, span)
        self.depths[id(made)] = self.depths.get(id(value), 0) + 1
        return made

    def make_index(self, children: list[_Node], span: Span) -> syntax.Expression | _Bindings:
        base, items, condition = children
        if condition is None and all(extent is None for _, _, extent, _ in items):
            return self.index(base, items, None, span)
        bindings: list[syntax.Binding] = []
        for value, pack, extent, place in items:
            if not isinstance(value, syntax.Reference) or extent is None:
                self.fail("expected a binding such as 'k : 3' here", place)
                continue
            name = syntax.Name(value.name, value.span)
            bindings.append(syntax.Binding(name, pack, extent, place))
        if not isinstance(base, syntax.Reference):
            self.fail("expected the name of a reduction before '['", span)
            base = syntax.Reference("sum", span)
        made = _Bindings(base, tuple(bindings), condition, span)
        self.depths[id(made)] = (
            1 + max(self.depth_of(b.extent) for b in bindings) if bindings else 1
        )
        return made

    def index(self, base: _Node, items: list[_Node], otherwise: _Node, span: Span) -> syntax.Index:
        indices = tuple(self.plain(item) for item in items)
        return syntax.Index(base, indices, otherwise, span)

    def make_index_else(self, children: list[_Node], span: Span) -> syntax.Index:
        base, items, otherwise = children
        return self.index(base, items, otherwise, span)

    def make_call(self, children: list[_Node], span: Span) -> syntax.Expression:
        function, items = children
        given: list[_Node] = items or []
        if isinstance(function, _Bindings):
            if len(given) != 1 or given[0][1] or given[0][2] is not None:
                self.fail("a reduction takes one expression in parentheses", span)
                return function.base
            name = syntax.Name(function.base.name, function.base.span)
            return syntax.Reduce(name, function.bindings, function.condition, given[0][0], span)
        return syntax.Call(function, tuple(self.argument(item) for item in given), span)

    def argument(self, item: _Node) -> syntax.Argument:
        value, pack, extent, span = item
        if extent is None:
            return syntax.Argument(None, self.plain(item), span)
        if pack or not isinstance(value, syntax.Reference):
            self.fail("expected the name of an argument before ':'", value.span)
            return syntax.Argument(None, extent, span)
        return syntax.Argument(syntax.Name(value.name, value.span), extent, span)

    def whole(self, node: _Node) -> _Node:
        """An expression; bindings without a body are a mistake."""
        if isinstance(node, _Bindings):
            self.fail("a reduction takes one expression in parentheses after its ']'", node.span)
            return node.base
        return node

    def make_unary(self, children: list[_Node], span: Span) -> syntax.Unary:
        operator, operand = children
        return syntax.Unary(str(operator), operand, span)

    def make_binary(self, children: list[_Node], span: Span) -> syntax.Binary:
        left, operator, right = children
        return syntax.Binary(str(operator), left, right, span)

    def make_ternary(self, children: list[_Node], span: Span) -> syntax.Ternary:
        condition, then, otherwise = children
        return syntax.Ternary(condition, then, otherwise, span)


class _Bindings:
    """`sum[k : 3]` before its body has been read."""

    def __init__(
        self,
        base: syntax.Reference,
        bindings: tuple[syntax.Binding, ...],
        condition: syntax.Expression | None,
        span: Span,
    ) -> None:
        self.base = base
        self.bindings = bindings
        self.condition = condition
        self.span = span


_EXPRESSIONS = (
    syntax.Literal,
    syntax.String,
    syntax.Array,
    syntax.Reference,
    syntax.Member,
    syntax.Index,
    syntax.Call,
    syntax.Reduce,
    syntax.Unary,
    syntax.Binary,
    syntax.Ternary,
)
_SECTIONS = (
    "doc string",
    "introduced",
    "forward",
    "attributes",
    "tensors",
    "types",
    "constraints",
    "compute",
    "gradient of",
    "example",
)
_ESCAPES = {"n": "\n", "t": "\t"}


def _unquote(token: object) -> str:
    """The value of a text in double quotes: `\\"`, `\\\\`, `\\n` and `\\t` are escapes."""
    return re.sub(
        r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(1)), str(token)[1:-1], flags=re.DOTALL
    )


def _is_rule(row: syntax.Row) -> bool:
    return all(re.fullmatch(r":?-+:?", c.text.replace(" ", "")) for c in row.cells)
