"""Constraints from code that computes the sizes of an output.

The code is C: assignments of sizes and of temporaries, and loops over dimensions, which become
arithmetic on arrays. Sizes are whole numbers with truncating division.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from dmlc.language import syntax
from dmlc.language.format import format_expression
from dmlc.pages.draft import Clause, Draft
from dmlc.pages.formulas import UnknownWord, parse_code, rebuild

_LOOP = re.compile(
    r"for\s*\(\s*\w+\s+(\w+)\s*=\s*0\s*;\s*\1\s*<\s*(\w+)\s*;\s*(?:\+\+\1|\1\+\+)\s*\)"
)
_HELPER = re.compile(r"(?:const\s+)?(?:UINT|INT|int|uint32_t|size_t|auto)\s+(\w+)\s*=\s*(.+);")
_SIZE = re.compile(r"(\w+\.Sizes\[[^\[\]]+\])\s*=\s*(.+);")
_ASSERTED = re.compile(r"assert\s*\(\s*(.+?)\s*==\s*(.+?)\s*\)\s*;")


@dataclasses.dataclass(slots=True)
class _ForStatement:
    """Statement `for (i = 0; i < bound; ++i)`."""

    variable: str
    bound: str


def read_extents(lines: Sequence[tuple[int, str]], draft: Draft) -> list[Clause] | None:
    """Constraints that some code states; None if any of it has another form."""
    reader = _SizeCodeReader(draft)
    try:
        for line, text in lines:
            reader.read(line, re.sub(r"//.*", "", text).strip())
    except UnknownWord:
        return None
    return reader.clauses or None


class _SizeCodeReader:
    """Reader of statements."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.loop: _ForStatement | None = None
        self.helpers: dict[str, syntax.Expression] = {}
        self.clauses: list[Clause] = []

    def read(self, line: int, text: str) -> None:
        code = text.replace("->", ".")
        loop, helper = _LOOP.match(code), _HELPER.fullmatch(code)
        said = _SIZE.fullmatch(code) or _ASSERTED.fullmatch(code)
        if loop is not None and self.loop is None:
            self.loop = _ForStatement(loop[1], self.name(loop[2]))
        elif helper is not None:
            self.helpers[helper[1]] = self.parse(helper[2])
        elif said is not None:
            left, right = (format_expression(self.parse(said[n])) for n in (1, 2))
            condition = f"{left} == {right}"
            if self.loop is not None:
                condition = f"all({condition})"
            self.clauses.append(Clause(f"require {condition}", text, (line,)))
        elif code == "}" and self.loop is not None:
            self.loop = None
        elif code not in ("", "{"):
            raise UnknownWord(text)

    def parse(self, text: str) -> syntax.Expression:
        node = parse_code(text)
        if node is None:
            raise UnknownWord(text)
        return self.rename(node)

    def name(self, name: str) -> str:
        """Attribute of a name, which the code may write in the plural or the singular."""
        for wanted in (name, name.removesuffix("s"), f"{name}s"):
            if self.draft.attribute(wanted) is not None:
                if wanted != name:
                    self.draft.note(f"The page's code writes {name} for {wanted}.")
                return wanted
        raise UnknownWord(name)

    def rename(self, node: syntax.Expression) -> syntax.Expression:
        match node:
            case syntax.Reference():
                if node.name in self.helpers:
                    return self.helpers[node.name]
                if self.loop is not None and node.name == self.loop.variable:
                    return self.walk(node, "0")
                return dataclasses.replace(node, name=self.name(node.name))
            case syntax.Member(syntax.Reference() as base, member):
                known = member.text in ("Sizes", "DimensionCount")
                if not known or self.draft.tensor(base.name) is None:
                    raise UnknownWord(base.name)
                return node
            case syntax.Index(base, (index,), None):
                return self.rename_entry(node, base, index)
            case syntax.Binary("/"):
                quotient = rebuild(node, self.rename)
                name = syntax.Reference("floor", span=node.span)
                given = (syntax.Argument(None, quotient, span=node.span),)
                return syntax.Call(name, given, span=node.span)
            case syntax.Binary() | syntax.Unary() | syntax.Ternary():
                return rebuild(node, self.rename)
            case syntax.Literal():
                return node
            case _:
                raise UnknownWord(type(node).__name__)

    def rename_entry(
        self, node: syntax.Index, base: syntax.Expression, index: syntax.Expression
    ) -> syntax.Expression:
        """Array for `Strides[i]`: its entries are combined elementwise with those of the loop's
        other arrays."""
        array = self.rename(base)
        loop = self.loop
        match index:
            case syntax.Literal():
                return syntax.Index(array, (index,), None, span=node.span)
            case syntax.Reference(name) if loop is not None and name == loop.variable:
                attribute = None
                if isinstance(array, syntax.Reference):
                    attribute = self.draft.attribute(array.name)
                if attribute is not None and attribute.type.endswith(f"[{loop.bound}]"):
                    return array
                return syntax.Index(array, (self.walk(index, "0"),), None, span=node.span)
            case syntax.Binary("+", syntax.Reference(name), syntax.Literal(first)) if (
                loop is not None and name == loop.variable
            ):
                return syntax.Index(array, (self.walk(index, first),), None, span=node.span)
            case _:
                raise UnknownWord(format_expression(index))

    def walk(self, node: syntax.Expression, first: str) -> syntax.Expression:
        """Range of the loop's variable: `range(2, 2 + DimensionCount)`."""
        bound = "" if self.loop is None else self.loop.bound
        end = bound if first == "0" else f"{first} + {bound}"
        made = parse_code(f"range({first}, {end})")
        return node if made is None else made
