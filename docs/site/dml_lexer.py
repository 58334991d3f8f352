"""The operator language for Pygments, which colours the listings of the site."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

__all__ = ["DmlLexer"]

SECTIONS = (
    "attributes", "compute", "constraints", "enum", "example", "expect", "forward", "function",
    "gradient of", "graph", "import", "introduced", "module", "operator", "output", "require",
    "tensors", "types", "where", "with respect to", "within",
)  # fmt: skip
SENTENCES = ("must have the same", "must be broadcastable to", "must be a scalar", "and")


class DmlLexer(RegexLexer):
    """Colours by words alone: what a name stands for is for the checker to say."""

    name = "The operator language"
    aliases = ("dml",)
    filenames = ("*.dml",)
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"//[^\n]*", Comment.Single),
            (r"/\*[\s\S]*?\*/", Comment.Multiline),
            (r'"[^"\\]*(?:\\.[^"\\]*)*"', String),
            (r"(operator|graph|enum|module|function)(\s+)([\w.]+)",
             bygroups(Keyword.Declaration, Text, Name.Class)),
            (r"\|[^\n]*\|", Name.Attribute),
            (words(SECTIONS, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(SENTENCES, prefix=r"\b", suffix=r"\b"), Keyword.Pseudo),
            (r"\b(inf|nan|true|false|else)\b", Keyword.Constant),
            (r"\d+(\.\d+)?([eE][+-]?\d+)?", Number),
            (r"([A-Za-z_]\w*)(?=\s*[\[(])", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"\.\.\.|[-+*/%!<>=?:&|]+", Operator),
            (r"[\[\](){},.]", Punctuation),
            (r"\s+", Text),
            (r".", Text),
        ],
    }  # fmt: skip
