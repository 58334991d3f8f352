"""Signature help for the call around an offset: a function of the file or of the language, a
reduction, or an operator in a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.editor.documents import Document
from dmlc.editor.hover import (
    comment_of,
    describe_attribute,
    describe_built_in,
    describe_tensor,
    list_forms,
)
from dmlc.editor.lexical import Bracket, Token, find_context
from dmlc.editor.scopes import Symbol, find_operator, make_scope
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.language.format import format_expression


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a signature."""

    label: str
    """Label in the signature's text."""
    says: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a call: `hat(x)`."""

    name: str
    parameters: tuple[Parameter, ...]
    says: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}({', '.join(p.label for p in self.parameters)})"


@dataclasses.dataclass(frozen=True, slots=True)
class Help:
    """Signatures of the call around an offset, and the active parameter."""

    signatures: tuple[Signature, ...]
    active: int | None
    """Index of the active parameter in each signature; None if there is none."""


def find_signature(document: Document, offset: int) -> Help | None:
    """Signature help for the innermost call around an offset; None for an unknown one."""
    context = find_context(document.text, document.tokens, offset)
    if context.inside is not None:
        return None
    for bracket in reversed(context.brackets):
        if bracket.mark == "(" and bracket.name:
            given = _list_given(context.before, bracket)
            if context.keyword == "graph":
                found = _of_operator(document, bracket.name, given)
                if found is not None:
                    return found
            own = make_scope(document, context).find(bracket.name)
            return _of_function(document, own, given) or _of_language(bracket.name, given)
    return None


def _list_given(before: Sequence[Token], bracket: Bracket) -> list[tuple[str, ...]]:
    """First words of each argument up to the offset, the last of which is incomplete."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in before:
        if token.start <= bracket.start:
            continue
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(token.text)
    return [tuple(words[:2]) for words in found]


def _of_function(
    document: Document, symbol: Symbol | None, given: Sequence[tuple[str, ...]]
) -> Help | None:
    """Function of the file, by position."""
    if symbol is None or not isinstance(symbol.about, syntax.ScalarFunction):
        return None
    parameters = tuple(Parameter(name.text) for name in symbol.about.parameters)
    says = "\n".join(comment_of(document, symbol))
    return Help((Signature(symbol.name, parameters, says),), _at(len(given) - 1, parameters))


def _of_language(name: str, given: Sequence[tuple[str, ...]]) -> Help | None:
    """Function of the language, or a reduction, by position or by label."""
    forms = list_forms(name)
    if not forms:
        return None
    _, facts, _ = describe_built_in(name)
    signatures = [Signature(name, tuple(map(Parameter, form)), "\n".join(facts)) for form in forms]
    label = given[-1][0] if given[-1][1:] == (":",) else ""
    # The forms that have the label come first.
    signatures.sort(key=lambda s: label not in {p.label.partition(":")[0] for p in s.parameters})
    return Help(tuple(signatures), _at(len(given) - 1, signatures[0].parameters))


def _of_operator(document: Document, name: str, given: Sequence[tuple[str, ...]]) -> Help | None:
    """Operator of the file, an import or the library, whose arguments have labels."""
    operator = find_operator(document, name)
    if operator is None:
        return None
    rows = [r for r in operator.rows.values() if isinstance(r, AttributeDefinition) or not r.output]
    rows.sort(key=lambda row: isinstance(row, AttributeDefinition))
    parameters = tuple(Parameter(_show(row), "\n".join(_describe(row))) for row in rows)
    signature = Signature(name, parameters, operator.node.doc or "")
    labels = {words[0] for words in given if words[1:] == (":",)}
    if given[-1][1:] == (":",):
        wanted = [n for n, row in enumerate(rows) if row.name == given[-1][0]]
    else:
        wanted = [n for n, row in enumerate(rows) if row.name not in labels]
    return Help((signature,), wanted[0] if wanted else None)


def _show(row: TensorDefinition | AttributeDefinition) -> str:
    """Row in a signature: optional ones have an equals sign or a question mark."""
    if isinstance(row, TensorDefinition):
        return f"{row.name}{'?' if row.optional else ''}"
    default = "" if row.default is None else f" = {format_expression(row.default)}"
    return f"{row.name}: {row.base if row.enum is None else row.enum.name}{default}"


def _describe(row: TensorDefinition | AttributeDefinition) -> list[str]:
    return describe_tensor(row) if isinstance(row, TensorDefinition) else describe_attribute(row)


def _at(place: int, parameters: Sequence[Parameter]) -> int | None:
    return place if place < len(parameters) else None
