"""Conversion of the parse tree to syntax nodes with spans.

Refuses what the grammar does not rule out: sections out of order, bindings without a body, numbers
and names that are too long. Nothing is resolved here; `check` does that.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast, get_args

from dmlc.language import syntax
from dmlc.language.grammar import Token, Tree, is_tree
from dmlc.language.kinds import Reporter
from dmlc.language.limits import LARGEST_INTEGER, MAX_DEPTH, MAX_NAME, TOO_DEEP, TOO_DEEP_CURE
from dmlc.source import Source, Span

_Node: TypeAlias = Any
"""Node of `syntax`, a token, a list of them, or None for an omitted optional part."""


class Builder(Reporter):
    """Converter of lark's tree to syntax nodes, bottom up and without recursion."""

    def __init__(self, source: Source, offset: int = 0, partial: bool = False) -> None:
        super().__init__([])
        self.source = source
        self.offset = offset
        """Offset of the tree's text in the source."""
        self.partial = partial
        """Whether sections were left out, so that a missing one is no error."""
        self.rows: list[tuple[int, int]] = []
        """Spans of table rows: text in them that looks like a comment is a cell."""
        self.depths: dict[int, int] = {}
        self.bound = False
        """Whether there are bindings without a reduction so far; only a call may have them."""

    def build(self, tree: Tree) -> _Node:
        """The node of a tree."""
        trees = [tree]
        for parent in trees:
            trees += filter(is_tree, parent.children)
        made: dict[int, _Node] = {}
        for node in reversed(trees):
            children = [
                made.pop(id(c)) if id(c) in made else None if c is None else self.token(c)
                for c in cast("list[_Node]", node.children)
            ]
            made[id(node)] = self.node(node, children)
        return made[id(tree)]

    def token(self, token: Token) -> _Node:
        if token.type in ("NAME", "EMPHASISED"):
            text = str(token).strip("*`") if token.type == "EMPHASISED" else str(token)
            name = syntax.Name(text, span=self.span_of(token))
            if len(text) > MAX_NAME:
                self.fail(
                    f"a name has at most {MAX_NAME} characters, this one {len(text)}",
                    name.span,
                    code="E0003",
                )
            return name
        return token

    def span_of(self, token: Token) -> Span:
        start = self.offset + (token.start_pos or 0)
        return Span(self.source, start, start + len(token))

    def node(self, tree: Tree, children: list[_Node]) -> _Node:
        meta = tree.meta
        if meta.empty:
            span = Span(self.source, self.offset, self.offset)
        else:
            start, end = self.offset + meta.start_pos, self.offset + meta.end_pos
            span = Span(self.source, start, end)
        if self.bound and tree.data != "call":
            children = [self.whole(child) for child in children]
        make: Callable[[list[_Node], Span], _Node]
        make = _MAKERS.get(tree.data) or getattr(self, f"make_{tree.data}")
        made = make(children, span)
        if isinstance(made, _EXPRESSIONS):
            self.measure(made, children)
        return made

    def measure(self, made: _Node, children: list[_Node]) -> None:
        """Raises `DmlcError` once for an expression that is nested too deep."""
        depth = 1 + max((self.depth_of(c) for c in children), default=0)
        self.depths[id(made)] = depth
        if depth == MAX_DEPTH + 1:
            self.fail(
                TOO_DEEP,
                Span(made.span.source, made.span.start, min(made.span.end, made.span.start + 40)),
                TOO_DEEP_CURE,
                code="E0003",
            )

    def depth_of(self, child: _Node) -> int:
        if isinstance(child, list):
            return max((self.depth_of(c) for c in cast(list[_Node], child)), default=0)
        if isinstance(child, tuple):
            return max((self.depth_of(c) for c in cast(tuple[_Node, ...], child)), default=0)
        if isinstance(child, _Bindings):
            return child.depth
        if isinstance(child, syntax.Argument):
            return self.depths.get(id(child.value), 0)
        return self.depths.get(id(child), 0)

    # Declarations -------------------------------------------------------------------------

    def make_start(self, children: list[_Node], span: Span) -> syntax.File:
        module, *declarations = children
        # A text with mistakes is not kept, and its comments may have no end.
        comments = () if self.partial else self.comments()
        return syntax.File(module, tuple(declarations), comments, self.source)

    def comments(self) -> tuple[syntax.Comment, ...]:
        kept: list[str] = []
        position = 0
        for start, end in sorted(self.rows):
            kept += [self.source.text[position:start], "." * (end - start)]
            position = end
        text = "".join([*kept, self.source.text[position:]])
        found: list[syntax.Comment] = []
        for match in re.finditer(_TEXT_OR_COMMENT, text, re.DOTALL):
            if match.group("comment") is not None:
                span = Span(self.source, match.start(), match.end())
                found.append(syntax.Comment(match.group().rstrip(), span=span))
        return tuple(found)

    def make_enum_member(self, children: list[_Node], span: Span) -> syntax.EnumMember:
        name, sign, number = children
        value = self.integer(number)
        return syntax.EnumMember(name, -value if sign is not None else value, span=span)

    def make_operator(self, children: list[_Node], span: Span) -> syntax.Operator:
        name, *sections = children
        found: dict[str, _Node] = {}
        lists: dict[str, list[_Node]] = {"tensors": [], "example": [], "differs": []}
        last = 0
        for kind, value, place in sections:
            order = _SECTIONS.index(kind)
            if kind in found and kind not in lists:
                self.fail(
                    f"section '{kind}' stands twice in operator '{name.text}'", place, code="E0105"
                )
            elif order < last:
                message = f"section '{kind}' must stand before '{_SECTIONS[last]}'"
                self.fail(message, place, f"the order is: {', '.join(_SECTIONS)}", code="E0105")
            last = max(last, order)
            found[kind] = value
            if kind in lists:
                lists[kind].append(value)
        if not lists["tensors"] and not self.partial:
            self.fail(f"operator '{name.text}' has no 'tensors' section", name.span, code="E0105")
        if "compute" in found and "gradient of" in found:
            self.fail(
                f"operator '{name.text}' has both 'compute' and 'gradient of'",
                name.span,
                code="E0105",
            )
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
            differences=tuple(lists["differs"]),
            sections=tuple((kind, place) for kind, _, place in sections),
            span=span,
        )

    def make_example_item(self, children: list[_Node], span: Span) -> syntax.ExampleItem:
        expect, name, number, dtype, value, _, instead, _, within = children
        entry = None if number is None else self.integer(number)
        return syntax.ExampleItem(
            name, value, expect is not None, entry, within, dtype, instead, span=span
        )

    def make_differs(self, children: list[_Node], span: Span) -> _Node:
        title, tensor, items, condition, *given = children
        indices = None if items is None else tuple(self.binding(item) for item in items)
        made = syntax.Difference(
            _unquote(title), tuple(given), tensor, indices, condition, span=span
        )
        return "differs", made, span

    def make_table(self, children: list[_Node], span: Span) -> syntax.Table:
        rows = [self.row(token) for token in children]
        kept = [r for r in rows if not _is_rule(r)]
        if not kept:
            self.fail("this table has no header row", span, code="E0106")
            kept = rows
        return syntax.Table(kept[0], tuple(kept[1:]), len(kept) < len(rows), span=span)

    def row(self, token: Token) -> syntax.TableRow:
        cells: list[syntax.Cell] = []
        position = self.span_of(token).start + 1
        for text in str(token)[1:-1].split("|"):
            trimmed = text.strip()
            start = position + (len(text) - len(text.lstrip()) if trimmed else 0)
            end = start + len(trimmed) if trimmed else position + len(text)
            cells.append(syntax.Cell(trimmed, span=Span(self.source, start, end)))
            position += len(text) + 1
        span = self.span_of(token)
        self.rows.append((span.start, span.end))
        return syntax.TableRow(tuple(cells), span=span)

    def make_graph_statement(self, children: list[_Node], span: Span) -> syntax.GraphStatement:
        output, names, value = children
        if len(names) > 1 and not isinstance(value, syntax.Gradient):
            self.fail(
                f"'{names[0].text}' and '{names[1].text}' are two names for one value",
                names[0].span.to(names[-1].span),
                "several stand before '= gradient of ...', one for each tensor after "
                "'with respect to'",
                code="E0104",
            )
        return syntax.GraphStatement(tuple(names), value, output is not None, span=span)

    # Constraints and statements -----------------------------------------------------------

    def make_names(self, children: list[_Node], span: Span) -> list[syntax.Name]:
        first, *rest = children
        return [*(cast(list[syntax.Name], first) if isinstance(first, list) else [first]), *rest]

    def make_marked(self, children: list[_Node], span: Span) -> syntax.Name:
        """Name in a sentence; the marks of an emphasised one, `_Name_`, are dropped as in a
        cell."""
        name = cast(syntax.Name, children[0])
        marked = re.fullmatch(r"(_+)([A-Za-z0-9](?:\w*[A-Za-z0-9])?)\1", name.text, re.ASCII)
        return name if marked is None else syntax.Name(marked.group(2), span=name.span)

    def make_indexed_assignment(self, children: list[_Node], span: Span) -> syntax.Assignment:
        name, items, value = children
        bindings = tuple(self.binding(item) for item in items)
        return syntax.Assignment(name, bindings, value, span=span)

    def binding(self, item: _Node, in_reduction: bool = False) -> syntax.Binding:
        variable, pack, extent, place = item
        if not isinstance(variable, syntax.Reference) or (in_reduction and extent is None):
            wanted = "a binding such as 'k : 3'"
            if not in_reduction:
                wanted = "the name of an index variable"
            self.fail(f"expected {wanted} here", place, code="E0104")
        name = syntax.Name(getattr(variable, "name", ""), span=variable.span)
        return syntax.Binding(name, pack, extent, span=place)

    # Expressions --------------------------------------------------------------------------

    def integer(self, token: Token) -> int:
        digits = token.lstrip("0")
        # Digits are counted first: to read very many takes time.
        if len(digits) > 20 or int(digits or "0") > LARGEST_INTEGER:
            self.fail(
                "this number is larger than any integer type holds: the largest is "
                f"{LARGEST_INTEGER}, of UINT64",
                self.span_of(token),
                "write it with a point, as in 1e20, where a fraction may stand",
                code="E0103",
            )
            return 0
        return int(digits or "0")

    def make_literal(self, children: list[_Node], span: Span) -> syntax.Literal:
        token = cast(Token, children[0])
        text = str(token)
        value: bool | int | float
        if token.type == "INTEGER":
            value = self.integer(token)
        elif text in ("true", "false"):
            value = text == "true"
        else:
            value = float(text)
            if math.isinf(value) and text != "inf":
                self.fail(
                    "this number is larger than any float64",
                    span,
                    "infinity is 'inf'",
                    code="E0103",
                )
        return syntax.Literal(text, value, span=span)

    def make_array(self, children: list[_Node], span: Span) -> syntax.Array:
        items: list[_Node] = children[0] if children else []
        return syntax.Array(tuple(self.plain(item) for item in items), span=span)

    def make_item(self, children: list[_Node], span: Span) -> _Node:
        """Tuple (expression, whether it is a pack, value after a colon, span), interpreted by its
        user."""
        value, pack, extent = children
        return value, pack is not None, extent, span

    def plain(self, item: _Node) -> syntax.Expression:
        """Expression or pack of an item without a colon."""
        value, pack, extent, span = item
        if extent is not None:
            self.fail("a ':' has no meaning here", span, code="E0104")
        if not pack:
            return value
        made = syntax.Pack(value, span=span)
        self.depths[id(made)] = self.depths.get(id(value), 0) + 1
        return made

    def make_index(self, children: list[_Node], span: Span) -> syntax.Expression | _Bindings:
        base, items, condition = children
        if condition is None and all(extent is None for _, _, extent, _ in items):
            return self.index(base, items, None, span)
        self.bound = True
        bindings = tuple(self.binding(item, True) for item in items)
        if not isinstance(base, syntax.Reference):
            self.fail("expected the name of a reduction before '['", span, code="E0104")
            base = syntax.Reference("sum", span=span)
        inside = [*(b.extent for b in bindings), condition]
        depth = 1 + max(self.depth_of(part) for part in inside)
        return _Bindings(base, bindings, condition, depth, span)

    def index(self, base: _Node, items: list[_Node], otherwise: _Node, span: Span) -> syntax.Index:
        indices = tuple(self.plain(item) for item in items)
        return syntax.Index(base, indices, otherwise, span=span)

    def make_index_else(self, children: list[_Node], span: Span) -> syntax.Index:
        base, items, otherwise = children
        return self.index(base, items, otherwise, span)

    def make_call(self, children: list[_Node], span: Span) -> syntax.Expression:
        function, items = children
        given: list[_Node] = items or []
        if isinstance(function, _Bindings):
            if len(given) != 1 or given[0][1] or given[0][2] is not None:
                self.fail("a reduction takes one expression in parentheses", span, code="E0104")
                return function.base
            name = syntax.Name(function.base.name, span=function.base.span)
            bindings, condition = function.bindings, function.condition
            return syntax.Reduce(name, bindings, condition, given[0][0], span=span)
        return syntax.Call(function, tuple(self.argument(item) for item in given), span=span)

    def argument(self, item: _Node) -> syntax.Argument:
        value, pack, extent, span = item
        if extent is None:
            return syntax.Argument(None, self.plain(item), span=span)
        if pack or not isinstance(value, syntax.Reference):
            self.fail("expected the name of an argument before ':'", value.span, code="E0104")
            return syntax.Argument(None, extent, span=span)
        return syntax.Argument(syntax.Name(value.name, span=value.span), extent, span=span)

    def whole(self, node: _Node) -> _Node:
        """Expression; bindings without a body are an error."""
        if isinstance(node, _Bindings):
            self.fail(
                "a reduction takes one expression in parentheses after its ']'",
                node.span,
                code="E0104",
            )
            return node.base
        return node


@dataclasses.dataclass(frozen=True, slots=True)
class _Bindings:
    """Bindings `sum[k : 3]` before their body."""

    base: syntax.Reference
    bindings: tuple[syntax.Binding, ...]
    condition: syntax.Expression | None
    depth: int
    span: Span


_EXPRESSIONS = get_args(syntax.Expression)
_SECTIONS = (
    "doc string", "introduced", "forward", "attributes", "tensors", "types", "constraints",
    "compute", "gradient of", "example", "differs",
)  # fmt: skip
_TEXT_OR_COMMENT = r'"[^"\\]*+(?:\\.[^"\\]*+)*"|(?P<comment>//[^\n]*|/\*.*?\*/)'
_ESCAPES = {"n": "\n", "t": "\t"}


def _unquote(token: object) -> str:
    """The value of a text in double quotes: `\\"`, `\\\\`, `\\n` and `\\t` are escapes."""
    return re.sub(
        r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(1)), str(token)[1:-1], flags=re.DOTALL
    )


def _is_rule(row: syntax.TableRow) -> bool:
    return all(re.fullmatch(r":?-+:?", c.text.replace(" ", "")) for c in row.cells)


# What needs nothing but its parts --------------------------------------------------------------


def _section(kind: str) -> Callable[[list[_Node], Span], _Node]:
    return lambda parts, span: (kind, parts[0], span)


def _whole(node: Callable[..., _Node]) -> Callable[[list[_Node], Span], _Node]:
    """Constructor of a node whose fields are the children."""
    return lambda parts, span: node(*parts, span=span)


_MAKERS: Mapping[str, Callable[[list[_Node], Span], _Node]] = {
    **dict.fromkeys(("module_name", "group"), lambda parts, span: parts[0]),
    **dict.fromkeys(
        ("items", "parameters", "symbols", "graph_inputs", "targets", "expressions",
         "tensors_read"),
        lambda parts, span: parts,
    ),
    **{kind: _section(kind) for kind in ("introduced", "attributes", "types")},
    "dotted": lambda parts, span: syntax.Name(".".join(p.text for p in parts), span=span),
    "import_file": lambda parts, span: syntax.Import(_unquote(parts[0]), span=span),
    "enum": lambda parts, span: syntax.Enum(parts[0], tuple(parts[1:]), span=span),
    "scalar_function": lambda parts, span: syntax.ScalarFunction(
        parts[1], tuple(parts[2]), parts[3], True, tuple(parts[4:]), span=span
    ),
    "function_gradient": lambda parts, span: syntax.FunctionGradient(
        parts[1], parts[3], parts[4], span=span
    ),
    "local_function": lambda parts, span: syntax.ScalarFunction(
        parts[0], tuple(parts[1]), parts[2], False, tuple(parts[3:]), span=span
    ),
    "doc": lambda parts, span: ("doc string", _unquote(parts[0]), span),
    "tensors": lambda parts, span: (
        "tensors", syntax.TensorsSection(parts[0], parts[1], span=span), span,
    ),
    "constraints": lambda parts, span: ("constraints", tuple(parts), span),
    "compute": lambda parts, span: ("compute", tuple(parts), span),
    "forward": lambda parts, span: (
        "forward", syntax.Forward(parts[0], tuple(parts[1:]), span=span), span,
    ),
    "gradient_by_names": lambda parts, span: (
        "gradient of", syntax.GradientOf(parts[0], tuple(parts[1]), None, span=span), span,
    ),
    "gradient_by_lines": lambda parts, span: (
        "gradient of", syntax.GradientOf(parts[0], (), tuple(parts[1:]), span=span), span,
    ),
    "gradient_line": lambda parts, span: syntax.GradientLine(
        parts[0], parts[2], parts[1] is not None, span=span
    ),
    "example": lambda parts, span: (
        "example", syntax.Example(_unquote(parts[0]), tuple(parts[1:]), span=span), span,
    ),
    "same": lambda parts, span: syntax.Sentence(
        "same", tuple(parts[0]), tuple(parts[1]), span=span
    ),
    "broadcastable": lambda parts, span: syntax.Sentence(
        "broadcastable", tuple(parts[0]), (parts[1],), span=span
    ),
    "scalar": lambda parts, span: syntax.Sentence("scalar", tuple(parts[0]), (), span=span),
    "require": lambda parts, span: syntax.Require(
        parts[1], None if parts[2] is None else _unquote(parts[2]), span=span
    ),
    "assignment": lambda parts, span: syntax.Assignment(parts[0], None, parts[1], span=span),
    "graph": lambda parts, span: syntax.Graph(
        parts[0], tuple(parts[1]), tuple(parts[2]), tuple(parts[3:]), span=span
    ),
    "graph_input": _whole(syntax.GraphInput),
    "tensor_type": lambda parts, span: syntax.TensorType(parts[0], tuple(parts[1:]), span=span),
    "gradient": lambda parts, span: syntax.Gradient(
        tuple(parts[1]), tuple(parts[3]), tuple(parts[5] or ()), span=span
    ),
    "string": lambda parts, span: syntax.String(_unquote(parts[0]), span=span),
    "reference": lambda parts, span: syntax.Reference(parts[0].text, span=span),
    "member": _whole(syntax.Member),
    "unary": lambda parts, span: syntax.Unary(str(parts[0]), parts[1], span=span),
    "binary": lambda parts, span: syntax.Binary(str(parts[1]), parts[0], parts[2], span=span),
    "ternary": _whole(syntax.Ternary),
}  # fmt: skip
