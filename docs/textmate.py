"""Syntax highlighting for editors: a TextMate grammar.

`python docs/build.py` writes it to `grammar/dmlc.tmLanguage.json`. A word that may be a name too is
a keyword where the language's grammar has it so, recognised by its neighbours on the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from dmlc.language.builtins import ARRAY_FACTS, FACTS, GRAPH_FUNCTIONS, REDUCTIONS
from dmlc.language.tables import KINDS
from dmlc.scalars import data_type_names

Rule: TypeAlias = dict[str, object]
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SPACE = r"[ \t]"


def write_textmate() -> str:
    """Text of the TextMate grammar."""
    return json.dumps(make_textmate(), indent=2) + "\n"


def make_textmate() -> Rule:
    """Grammar in the form that TextMate, VS Code and others read."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "dmlc",
        "scopeName": "source.dml",
        "fileTypes": ["dml"],
        "patterns": _includes("comments", "rows", "strings", "keywords", "words", "marks"),
        "repository": {
            "comments": _rules(*_comments()),
            "rows": _rules(*_rows()),
            "strings": _rules(_string()),
            "keywords": _rules(*_keywords()),
            "words": _rules(*_words()),
            "marks": _rules(*_marks()),
        },
    }


def _includes(*names: str) -> list[Rule]:
    return [{"include": f"#{name}"} for name in names]


def _rules(*rules: Rule) -> Rule:
    return {"patterns": list(rules)}


def _match(pattern: str, scope: str | None = None, **captures: str) -> Rule:
    """Rule for one line; `captures` are `_1=...`, a scope for each group."""
    rule: Rule = {} if scope is None else {"name": scope}
    rule["match"] = pattern
    if captures:
        rule["captures"] = _captures(captures)
    return rule


def _captures(captures: Mapping[str, str]) -> Rule:
    return {group.lstrip("_"): {"name": scope} for group, scope in captures.items()}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def _comments() -> list[Rule]:
    return [
        _match(r"//.*$", "comment.line.double-slash.dml"),
        {"name": "comment.block.dml", "begin": r"/\*", "end": r"\*/"},
    ]


def _string() -> Rule:
    escape = _match(r"\\.", "constant.character.escape.dml")
    return {
        "name": "string.quoted.double.dml",
        "begin": '"',
        "end": '"',
        "patterns": [escape],
    }


def _rows() -> list[Rule]:
    """Rules for table rows, from their first `|` to their last."""
    kinds = _any_of(kind.capitalize() for kind in KINDS)
    cells = [
        _match(r"\|", "punctuation.separator.table.dml"),
        _match(r":?-{2,}:?", "punctuation.definition.table.dml"),
        _match(rf"(?<=\|){_SPACE}*({kinds}){_SPACE}*(?=\|)", _1="storage.modifier.dml"),
        *_includes("words", "marks"),
    ]
    # An expression has `||`, and no single `|`.
    return [
        {
            "begin": r"(?<!\|)(?=\|(?!\|)[^\n]*\|)",
            "end": r"(?<=\|)(?![^\n]*\|)|$",
            "name": "meta.table.dml",
            "patterns": cells,
        }
    ]


def _keywords() -> list[Rule]:
    keyword, control = "keyword.other.dml", "keyword.control.dml"
    declared, dotted = "storage.type.dml", rf"{NAME}(?:\.{NAME})*"
    behind = rf"{_SPACE}+"
    return [
        _match(rf"\b(operator|graph|enum){behind}({NAME})", _1=declared, _2="entity.name.type.dml"),
        _match(rf"\b(module){behind}({dotted})", _1=declared, _2="entity.name.namespace.dml"),
        _match(rf"\b(function){behind}({NAME})", _1=declared, _2="entity.name.function.dml"),
        _match(r'\bimport\b(?=\s*")', "keyword.control.import.dml"),
        _match(r"\b(?:attributes|types|constraints|compute)\b(?=\s*\{)", keyword),
        _match(rf"\b(tensors)(?:{behind}({NAME}))?(?=\s*\{{)", _1=keyword, _2="constant.other.dml"),
        _match(r'\b(?:example|differs)\b(?=\s*")', keyword),
        _match(rf'(?<="\s)in(?={behind}[A-Za-z_])', keyword),
        _match(rf"\binstead{behind}of\b", keyword),
        _match(rf"\b(introduced){behind}({NAME})", _1=keyword, _2="constant.other.dml"),
        _match(rf"\b(forward){behind}({dotted})", _1=keyword, _2="entity.name.type.dml"),
        _match(rf"\bgradient{behind}of\b(?=\s*[^=,/\s])", keyword),
        _match(rf"\bwith{behind}respect{behind}to\b", keyword),
        _match(rf"\bfrom(?={behind}[A-Za-z_])", keyword),
        _match(
            rf"\bmust{behind}(?:have{behind}the{behind}same|be{behind}a{behind}scalar"
            rf"|be{behind}broadcastable{behind}to)\b",
            keyword,
        ),
        _match(rf"\band(?={behind}[A-Za-z_*`])", keyword),
        _match(r"\brequire\b(?!\s*(?:,|and\b|must\b|=(?!=)))", keyword),
        _match(rf"\b(?:expect|output)(?={behind}[A-Za-z_])", keyword),
        _match(rf"\bwithin(?={behind}[0-9])", keyword),
        _match(r"\b(?:where|else)\b(?!\s*=(?!=))", control),
    ]


def _words() -> list[Rule]:
    functions = _any_of(name for name in GRAPH_FUNCTIONS if name not in REDUCTIONS)
    reductions, types = _any_of(REDUCTIONS), _any_of(data_type_names())
    facts = _any_of((*FACTS, *ARRAY_FACTS))
    return [
        _match(rf"\b(?:{types})\b(?!\s*\()", "support.type.dml"),
        _match(r"\b(?:inf|nan|true|false)\b", "constant.language.dml"),
        _match(rf"\b(?:{functions})\b(?=\s*\()", "support.function.dml"),
        _match(rf"\b(?:{reductions})\b(?=\s*\(|\[[^\]]*:)", "support.function.dml"),
        _match(rf"(?<=\.)(?:{facts})\b", "support.variable.property.dml"),
        _match(rf"\b{NAME}\b(?={_SPACE}*\([^()]*\){_SPACE}*=(?!=))", "entity.name.function.dml"),
        _match(rf"\b{NAME}(?=:)", "variable.parameter.dml"),
        _match(
            r"\b(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+)\b",
            "constant.numeric.dml",
        ),
        _match(
            rf"\*{{1,3}}{NAME}\*{{1,3}}(?=\s*[,.}}]|\s+(?:and|must)\b|\s*$)", "markup.italic.dml"
        ),
        _match(rf"`{NAME}`", "markup.raw.dml"),
        _match(NAME, "variable.other.dml"),
    ]


def _marks() -> list[Rule]:
    return [
        _match(r"\.\.\.", "keyword.operator.pack.dml"),
        _match(r"==|!=|<=|>=|<|>", "keyword.operator.comparison.dml"),
        _match(r"&&|\|\||!", "keyword.operator.logical.dml"),
        _match(r"[+\-*/%]", "keyword.operator.arithmetic.dml"),
        _match(r"=", "keyword.operator.assignment.dml"),
        _match(r"\?|:", "keyword.operator.dml"),
        _match(r"[{}\[\]()]", "punctuation.section.dml"),
        _match(r"[,.]", "punctuation.separator.dml"),
    ]
