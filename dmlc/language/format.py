"""Formatter: canonical text of a file, with aligned tables, comments, and parentheses only where
needed.

Formatting is idempotent and keeps the meaning: operands keep their order and grouping, literals
their spelling.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from dmlc.language import syntax
from dmlc.language.layout import Break, Document, Group, Indent, lay_out
from dmlc.language.parse import parse
from dmlc.source import InternalError, Source, Span

WIDTH = 100
_INDENT = 4
_MARKS = ("output ", "expect ", "function ")
_ALIGN_WITHIN = 8
"""Largest difference in length of names in neighbouring lines whose `=` are aligned."""


def format_file(file: syntax.File) -> str:
    """The text of a file, ending in a line break (empty for an empty file)."""
    return _Printer(file).print()


def format_declaration(node: syntax.Declaration) -> str:
    """Text of one declaration, without the comments around it in its file."""
    whole = parse(node.span.source)
    inside = [c for c in whole.comments if node.span.start <= c.span.start < node.span.end]
    return format_file(syntax.File(None, (node,), tuple(inside), node.span.source))


def format_enum(name: str, members: Mapping[str, int]) -> str:
    """The text of an enum."""
    listed = ", ".join(f"{member} = {value}" for member, value in members.items())
    return format_file(parse(Source("<enum>", f"enum {name} {{ {listed} }}")))


def format_scalar_function(node: syntax.ScalarFunction) -> str:
    """The text of a function of a file, and of its gradients, without comments."""
    return format_file(syntax.File(None, (node,), (), node.span.source))


# Expressions -----------------------------------------------------------------------------------

_LEVELS = {
    "?": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "<": 5, "<=": 5, ">": 5, ">=": 5,
    "+": 6, "-": 6, "*": 7, "/": 7, "%": 7,
}  # fmt: skip
_UNARY, _POSTFIX = 8, 9


def format_expression(expression: syntax.Expression) -> str:
    """An expression on one line."""
    return _on_one_line(_document(expression))


def format_concerned(node: syntax.Difference) -> str:
    """Scope of a section `differs`, on one line: `in Y[i...] where X[i...] == 0`."""
    return " ".join(map(_on_one_line, _concerned(node)))


def _concerned(node: syntax.Difference) -> list[Document]:
    parts: list[Document] = []
    if node.tensor is not None:
        parts.append(f"in {_indexed(node.tensor, node.indices)}")
    if node.condition is not None:
        parts.append(Group(("where ", _document(node.condition))))
    return parts


def _on_one_line(document: Document) -> str:
    return lay_out(document, 1 << 30, 0, 0)


def _level(node: syntax.Expression) -> int:
    match node:
        case syntax.Ternary():
            return _LEVELS["?"]
        case syntax.Binary():
            return _LEVELS[node.operator]
        case syntax.Unary():
            return _UNARY
        case _:
            return _POSTFIX


def _document(node: syntax.Expression, least: int = 0) -> Document:
    """Document of an expression, in parentheses if its precedence is below `least`."""
    made = _bare_document(node)
    if _level(node) < least:
        return Group(("(", Indent((Break(""), made)), Break(""), ")"))
    return made


def _bare_document(node: syntax.Expression) -> Document:
    match node:
        case syntax.Literal():
            return node.text
        case syntax.String():
            return quote(node.value).replace("\n", "\\n")
        case syntax.Reference():
            return node.name
        case syntax.Array():
            return _list("[", [_document(i) for i in node.items], "]")
        case syntax.Member():
            # `(1).x`: without parentheses it would look like the number `1.`.
            number = isinstance(node.base, syntax.Literal) and node.base.text[0].isdigit()
            base = Group(("(", _document(node.base), ")")) if number else _base(node.base)
            return Group((base, ".", node.member.text))
        case syntax.Index():
            made = Group((_base(node.base), _list("[", [_document(i) for i in node.indices], "]")))
            if node.otherwise is None:
                return made
            return Group((made, " else ", _fallback(node.otherwise)))
        case syntax.Call():
            given = [_argument(a) for a in node.arguments]
            return Group((_base(node.function), _list("(", given, ")")))
        case syntax.Reduce():
            return _reduce(node)
        case syntax.Unary():
            return Group((node.operator, _document(node.operand, _UNARY)))
        case syntax.Binary():
            return _chain(node)
        case syntax.Ternary():
            return _ternary(node)
        case syntax.Pack():
            return Group((_document(node.operand), "..."))


def _base(node: syntax.Expression) -> Document:
    """Document of the operand of `.`, `[` or `(`."""
    if isinstance(node, syntax.Index) and node.otherwise is not None:
        return Group(("(", _document(node), ")"))
    return _document(node, _POSTFIX)


def _fallback(node: syntax.Expression) -> Document:
    """Document of the operand of `else`: a postfix expression, or minus one."""
    if isinstance(node, syntax.Unary) and node.operator == "-":
        return Group(("-", _fallback(node.operand)))
    return _document(node, _POSTFIX)


def _argument(argument: syntax.Argument) -> Document:
    value = _document(argument.value)
    return value if argument.name is None else Group((f"{argument.name.text}: ", value))


def _binding(binding: syntax.Binding) -> Document:
    if binding.extent is None:
        return binding.text
    return Group((f"{binding.text} : ", _document(binding.extent)))


def _reduce(node: syntax.Reduce) -> Document:
    bindings: list[Document] = []
    for number, binding in enumerate(node.bindings):
        parts = [_binding(binding)]
        if number == len(node.bindings) - 1 and node.condition is not None:
            parts += [" where ", _document(node.condition)]
        bindings.append(Group(tuple(parts)))
    body = Group(("(", Indent((Break(""), _document(node.body))), Break(""), ")"))
    return Group((node.combiner.text, _list("[", bindings, "]"), body))


def _list(opening: str, items: Sequence[Document], closing: str) -> Document:
    if not items:
        return opening + closing
    inside: list[Document] = [Break("")]
    for number, item in enumerate(items):
        inside += [item] if number == 0 else [",", Break(), item]
    return Group((opening, Indent(tuple(inside)), closing))


def _chain(node: syntax.Binary) -> Document:
    """Document of a chain of left-associative operators of one precedence."""
    level = _LEVELS[node.operator]
    steps: list[tuple[str, syntax.Expression]] = []
    first: syntax.Expression = node
    while isinstance(first, syntax.Binary) and _LEVELS[first.operator] == level:
        steps.append((first.operator, first.right))
        first = first.left
    parts: list[Document] = []
    for operator, right in reversed(steps):
        parts += [Break(), f"{operator} ", _document(right, level + 1)]
    return Group((_document(first, level), Indent(tuple(parts))))


def _ternary(node: syntax.Ternary) -> Document:
    """Document of `a ? b : c ? d : e`, with one choice per line if it exceeds one line."""
    parts: list[Document] = []
    last: syntax.Expression = node
    while isinstance(last, syntax.Ternary):
        condition = _document(last.condition, _LEVELS["?"] + 1)
        then = _document(last.then, _LEVELS["?"] + 1)
        parts += [condition, " ? ", then, Break(), ": "]
        last = last.otherwise
    return Group((Indent((*parts, _document(last, _LEVELS["?"]))),))


def _gradient(node: syntax.Gradient) -> Document:
    """`gradient of y with respect to x, w from dy`"""
    parts: list[Document] = ["gradient of ", *_listed(node.of)]
    parts += [Break(), "with respect to ", *_listed(node.wrt)]
    if node.given:
        parts += [Break(), "from ", *_listed(node.given)]
    return Group((Indent(tuple(parts)),))


def _listed(nodes: Sequence[syntax.Expression]) -> list[Document]:
    """Expressions with a comma after each but the last."""
    return [part for node in nodes for part in (", ", _document(node))][1:]


def quote(text: str) -> str:
    """A text in double quotes, as the language reads it back."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# Sentences and cells ---------------------------------------------------------------------------


def join_names(names: Iterable[str]) -> str:
    """`A`, `A and B`, or `A, B, and C`."""
    *rest, last = names
    if not rest:
        return last
    return f"{', '.join(rest)}{',' if len(rest) > 1 else ''} and {last}"


def format_sentence(sentence: syntax.Sentence) -> str:
    """A constraint sentence, with its full stop."""
    subjects = join_names(n.text for n in sentence.subjects)
    match sentence.kind:
        case "same":
            return f"{subjects} must have the same {join_names(n.text for n in sentence.objects)}."
        case "broadcastable":
            return f"{subjects} must be broadcastable to {sentence.objects[0].text}."
        case _:
            return f"{subjects} must be a scalar."


def format_table(table: syntax.Table) -> list[str]:
    """The lines of a table, its columns aligned."""
    rows = [[c.text for c in row.cells] for row in (table.header, *table.rows)]
    columns = max(len(row) for row in rows)
    widths = [
        max([len(row[c]) for row in rows if c < len(row)] + [3 if table.ruled else 0])
        for c in range(columns)
    ]
    lines = [
        "| " + " | ".join(cell.ljust(widths[c]) for c, cell in enumerate(row)) + " |"
        for row in rows
    ]
    if table.ruled:
        width = len(table.header.cells)
        lines.insert(1, "| " + " | ".join("-" * widths[c] for c in range(width)) + " |")
    return lines


# Files -----------------------------------------------------------------------------------------


class _Printer:
    """Printer of lines with indentation and comments."""

    def __init__(self, file: syntax.File) -> None:
        self.file = file
        self.lines: list[str] = []
        self.level = 0
        self.comments = sorted(file.comments, key=lambda c: c.span.start)
        self.comment_starts = [c.span.start for c in self.comments]
        self.next = 0
        self.last_line = 0
        """Last source line of the text printed last."""

    def print(self) -> str:
        file = self.file
        if file.module is not None:
            self.item(f"module {file.module.text}", file.module.span)
        for declaration in file.declarations:
            self.declaration(declaration)
        self.own_line_comments(None)
        return "".join(f"{line}\n" for line in self.lines)

    # Lines and comments -------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(" " * (_INDENT * self.level) + text if text else "")

    def gap(self, span: Span, forced: bool = False) -> None:
        """Prints an empty line if the source has one before `span`."""
        opened = not self.lines or self.lines[-1].endswith("{")
        if not opened and self.lines[-1] and (forced or span.line > self.last_line + 1):
            self.line("")

    def own_line_comments(self, before: Span | None, forced: bool = False) -> bool:
        """Prints the comments before `before`, or all that are left."""
        printed = False
        while self.next < len(self.comments):
            comment = self.comments[self.next]
            if before is not None and comment.span.start >= before.start:
                break
            self.next += 1
            self.gap(comment.span, forced and not printed)
            self.lines += (" " * (_INDENT * self.level) + comment.text).split("\n")
            self.last_line = _end_line(comment.span)
            printed = True
        return printed

    def item(self, text: str, span: Span, forced: bool = False) -> None:
        """Prints lines of one span, with the comments before, within and after it."""
        within = Span(span.source, span.end, span.end)
        printed = self.own_line_comments(within, forced)
        self.gap(span, forced and not printed)
        self.lines += (" " * (_INDENT * self.level) + text).split("\n")
        self.last_line = _end_line(span)
        self.trailing_comment(span)

    def trailing_comment(self, span: Span) -> None:
        """Prints the comment after a span on its last source line."""
        if self.next == len(self.comments):
            return
        comment = self.comments[self.next]
        if self.trails(comment, span):
            self.lines[-1] += f"  {comment.text}"
            self.next += 1

    def trails(self, comment: syntax.Comment, span: Span) -> bool:
        """Whether a comment follows a span on the same line."""
        between = span.source.text[span.end : comment.span.start]
        if comment.span.start < span.end or "\n" in between or "\n" in comment.text:
            return False
        return _ends_line(comment) and not between.strip(" \t\r.,;)")

    def open(self, text: str, span: Span, forced: bool = False) -> None:
        """Prints a line that ends in an opening brace."""
        start = Span(span.source, span.start, span.start)
        printed = self.own_line_comments(start, forced)
        self.gap(start, forced and not printed)
        self.line(text)
        self.last_line = start.line
        self.level += 1
        if self.next < len(self.comments):
            comment = self.comments[self.next]
            between = span.source.text[span.start : comment.span.start]
            one_line = "\n" not in between and "\n" not in comment.text
            if one_line and between.rstrip().endswith("{") and _ends_line(comment):
                self.lines[-1] += f"  {comment.text}"
                self.next += 1

    def close(self, span: Span) -> None:
        self.own_line_comments(Span(span.source, span.end, span.end))
        self.level -= 1
        self.line("}")
        self.last_line = _end_line(span)
        self.trailing_comment(span)

    # Declarations -------------------------------------------------------------------------

    def declaration(self, node: syntax.Declaration) -> None:
        match node:
            case syntax.Import():
                self.item(f"import {quote(node.path)}", node.span)
            case syntax.Enum():
                self.enum(node)
            case syntax.ScalarFunction():
                self.equation(_head(node), node)
            case syntax.Operator():
                self.operator(node)
            case syntax.Graph():
                self.graph(node)

    def enum(self, node: syntax.Enum) -> None:
        members = [f"{m.name.text} = {m.value}" for m in node.members]
        flat = f"enum {node.name.text} {{ {', '.join(members)} }}"
        if len(flat) <= WIDTH:
            self.item(flat if members else f"enum {node.name.text} {{}}", node.span)
            return
        self.open(f"enum {node.name.text} {{", node.span)
        for number, (text, member) in enumerate(zip(members, node.members, strict=True)):
            self.item(text + ("," if number < len(members) - 1 else ""), member.span)
        self.close(node.span)

    def statement_text(
        self,
        head: str,
        value: syntax.Expression | syntax.Gradient,
        instead: syntax.Expression | None = None,
    ) -> str:
        indent = _INDENT * self.level
        made = _gradient(value) if isinstance(value, syntax.Gradient) else _document(value)
        if instead is not None:
            made = Group((made, Indent((Break(), "instead of ", _document(instead)))))
        return head + lay_out(made, WIDTH, indent + len(head), indent)

    def operator(self, node: syntax.Operator) -> None:
        self.open(f"operator {node.name.text} {{", node.span, forced=True)
        tensors, examples = iter(node.tensors), iter(node.examples)
        differences = iter(node.differences)
        tables = {"attributes": node.attributes, "types": node.types}
        for kind, span in node.sections:
            table, forward, gradient = tables.get(kind), node.forward, node.gradient_of
            match kind:
                case "doc string":
                    self.item(quote(node.doc or ""), span)
                case "tensors":
                    section = next(tensors)
                    level = "" if section.level is None else f" {section.level.text}"
                    self.table(f"tensors{level} {{", section.table, span)
                case "example":
                    example = next(examples)
                    self.example(f"example {quote(example.title)} {{", example, span)
                case "differs":
                    difference = next(differences)
                    self.example(self.difference_text(difference), difference, span)
                case "constraints":
                    self.open("constraints {", span)
                    for constraint in node.constraints or ():
                        self.constraint(constraint)
                    self.close(span)
                case "compute":
                    statements = node.compute or ()
                    self.open("compute {", span)
                    self.equations([_head(statement) for statement in statements], statements)
                    self.close(span)
                case "gradient of" if gradient is not None:
                    self.gradient_of(gradient, span)
                case "forward" if forward is not None:
                    head = f"forward {forward.operator.text}"
                    self.gradient_lines(head, forward.lines or None, span)
                case "introduced" if node.introduced is not None:
                    self.item(f"introduced {node.introduced.text}", span)
                case _ if table is not None:
                    self.table(f"{kind} {{", table, span)
                case _:
                    raise InternalError(f"operator {node.name.text} has no section {kind!r}")
        self.close(node.span)

    def gradient_of(self, node: syntax.GradientOf, span: Span) -> None:
        head = f"gradient of {node.operator.text}"
        if node.lines is None:
            head += f" with respect to {join_names(n.text for n in node.tensors)}"
        self.gradient_lines(head, node.lines, span)

    def gradient_lines(
        self, head: str, lines: Sequence[syntax.GradientLine] | None, span: Span
    ) -> None:
        """Prints the lines of `gradient of` or `forward` in braces; nothing without braces."""
        if lines is None:
            self.item(head, span)
            return
        self.open(f"{head} {{", span)
        padded = self.align([n.name.text for n in lines], [n.span for n in lines])
        for line, name in zip(lines, padded, strict=True):
            self.item(f"{name} = {'gradient of ' * line.gradient}{line.of.text}", line.span)
        self.close(span)

    def table(self, head: str, table: syntax.Table, span: Span) -> None:
        self.open(head, span)
        rows = [table.header, *table.rows]
        for number, text in enumerate(format_table(table)):
            rule = table.ruled and number == 1
            row = rows[number - (table.ruled and number > 0)]
            if rule:
                self.line(text)
                self.last_line += 1
            else:
                self.item(text, row.span)
        self.close(span)

    def constraint(self, node: syntax.Constraint) -> None:
        if isinstance(node, syntax.Sentence):
            self.item(format_sentence(node), node.span)
            return
        message = "" if node.message is None else f", {quote(node.message)}"
        self.item(self.statement_text("require ", node.condition) + message, node.span)

    def difference_text(self, node: syntax.Difference) -> str:
        """First line of a section `differs`, split at its parts if too long."""
        indent = _INDENT * self.level
        parts: list[Document] = []
        for part in _concerned(node):
            parts += [Break(), part]
        made = Group((f"differs {quote(node.title)}", Indent(tuple(parts)), " {"))
        return lay_out(made, WIDTH, indent, indent)

    def example(self, head: str, node: syntax.Example, span: Span) -> None:
        self.open(head, span)
        types = ["" if i.dtype is None else f": {i.dtype.text}" for i in node.items]
        marked = [
            ("expect " if i.expected else "") + i.tensor + dtype
            for i, dtype in zip(node.items, types, strict=True)
        ]
        self.equations(marked, node.items)
        self.close(span)

    def equations(
        self,
        heads: Sequence[str],
        nodes: Sequence[syntax.Statement | syntax.ExampleItem | syntax.GraphStatement],
    ) -> None:
        """Prints lines of the form `head = value`."""
        padded: list[str] = []
        for number, node in enumerate(nodes, 1):
            ends = isinstance(node, syntax.ScalarFunction) and node.gradients
            if ends or number == len(nodes):
                run = slice(len(padded), number)
                padded += self.align(heads[run], [each.span for each in nodes[run]])
        for node, head in zip(nodes, padded, strict=True):
            self.equation(head, node)

    def equation(
        self, head: str, node: syntax.Statement | syntax.ExampleItem | syntax.GraphStatement
    ) -> None:
        """Prints `head = value`, and the lines that belong to it."""
        if not isinstance(node, syntax.ScalarFunction):
            instead = node.instead if isinstance(node, syntax.ExampleItem) else None
            within = node.within if isinstance(node, syntax.ExampleItem) else None
            behind = "" if within is None else f" within {within.text}"
            self.item(self.statement_text(f"{head} = ", node.value, instead) + behind, node.span)
            return
        span = node.span
        if node.gradients:
            span = Span(span.source, span.start, node.body.span.end)
        self.item(self.statement_text(f"{head} = ", node.body), span)
        self.level += 1
        for gradient in node.gradients:
            text = self.statement_text(_gradient_head(gradient), gradient.value)
            self.item(text, gradient.span)
        self.level -= 1

    def align(self, heads: Sequence[str], spans: Sequence[Span]) -> list[str]:
        """Left-hand sides padded so that neighbours of similar length have aligned `=`; those with
        a keyword (`output`, `expect`) are aligned among themselves."""
        padded: list[str] = []
        run: list[str] = []
        least = most = 0
        for number, head in enumerate(heads):
            apart = number > 0 and self.are_apart(spans[number - 1], spans[number])
            marked = bool(run) and head.startswith(_MARKS) != run[-1].startswith(_MARKS)
            least, most = min(least, len(head)), max(most, len(head))
            if not run or apart or marked or most - least > _ALIGN_WITHIN:
                width = max((len(h) for h in run), default=0)
                padded += [h.ljust(width) for h in run]
                run, least, most = [], len(head), len(head)
            run.append(head)
        return padded + [h.ljust(most) for h in run]

    def are_apart(self, first: Span, second: Span) -> bool:
        """Whether an empty line or a comment separates two items."""
        if second.line > _end_line(first) + 1:
            return True
        number = bisect.bisect_left(self.comment_starts, first.end)
        if number < len(self.comments) and self.trails(self.comments[number], first):
            number += 1
        return number < len(self.comments) and self.comment_starts[number] < second.end

    def graph(self, node: syntax.Graph) -> None:
        symbols = f"[{', '.join(s.text for s in node.symbols)}]" if node.symbols else ""
        inputs = [
            f"{i.name.text}: {i.type.dtype.text}"
            f"[{', '.join(format_expression(s) for s in i.type.sizes)}]"
            for i in node.inputs
        ]
        flat = f"graph {node.name.text}{symbols}({', '.join(inputs)}) {{"
        if len(flat) <= WIDTH:
            self.open(flat, node.span, forced=True)
        else:
            self.open(f"graph {node.name.text}{symbols}(", node.span, forced=True)
            for number, (text, made) in enumerate(zip(inputs, node.inputs, strict=True)):
                self.item(text + ("," if number < len(inputs) - 1 else ""), made.span)
            self.level -= 1
            self.line(") {")
            self.level += 1
        heads = [
            ("output " if s.output else "") + ", ".join(n.text for n in s.names)
            for s in node.statements
        ]
        self.equations(heads, node.statements)
        self.close(node.span)


def _ends_line(comment: syntax.Comment) -> bool:
    """Whether nothing follows a comment on its last line."""
    return not comment.span.source.text[comment.span.end :].split("\n", 1)[0].strip()


def _end_line(span: Span) -> int:
    """Last source line of a span."""
    return span.source.locate(max(span.start, span.end - 1))[0]


def _indexed(name: syntax.Name, indices: Sequence[syntax.Binding] | None) -> str:
    if indices is None:
        return name.text
    return f"{name.text}[{', '.join(_on_one_line(_binding(b)) for b in indices)}]"


def _gradient_head(node: syntax.FunctionGradient) -> str:
    return f"gradient of {node.function.text} with respect to {node.parameter.text} = "


def _head(node: syntax.Statement) -> str:
    if isinstance(node, syntax.Assignment):
        return _indexed(node.name, node.indices)
    keyword = "function " if node.keyword else ""
    return f"{keyword}{node.name.text}({', '.join(p.text for p in node.parameters)})"
