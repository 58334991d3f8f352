"""Translation of LaTeX formulas to code: the few forms that element-wise operators have. Formulas
that index tensors, sum over indices or name sizes are left to a person."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import lark

from dmlc.scalars import OPERATIONS

_OPERATORS = {
    "*": "*", "\\cdot": "*", "\\times": "*", "/": "/", "\\div": "/",
    "<": "<", "\\lt": "<", ">": ">", "\\gt": ">", "\\le": "<=", "\\leq": "<=",
    "\\leqslant": "<=", "\\ge": ">=", "\\geq": ">=", "\\geqslant": ">=",
    "\\neq": "!=", "\\ne": "!=", "\\land": "&&", "\\lor": "||",
}  # fmt: skip
_NAMES = {
    "\\varepsilon": "epsilon", "\\diffsrc": "diff_src", "\\diffdst": "diff_dst",
    "\\diffgamma": "diff_gamma", "\\diffbeta": "diff_beta", "\\diffweights": "diff_weights",
    "\\diffbias": "diff_bias", "\\mu": "mean", "\\srcshape": "src_shape", "\\infty": "inf",
}  # fmt: skip
_FUNCTIONS = {word.removeprefix("\\"): o.name for o in OPERATIONS.values() for word in o.pages}
_MOST_CHARACTERS = 4000

_GRAMMAR = r"""
start: NAME _INDEX? ["(" NAME _INDEX? ")"] "=" choice
choice: sum (COMPARISON sum)* -> infix
sum: SIGN? product (SIGN product)* -> infix
product: power{atom} (FACTOR power{atom} | power{factor})*
power{base}: base _INDEX? ["^" group]

?atom: bars | parentheses | braces | plain
?factor: parentheses | braces | plain
?argument: bars | braces | plain
bars: "|" choice "|"
parentheses: "(" choice ")"
braces: "{" choice "}" -> parentheses
?plain: NUMBER | DIGIT | NAME
    | "\\lfloor" choice "\\rfloor" -> floor
    | "\\lceil" choice "\\rceil" -> ceil
    | "\\frac" group group -> quotient
    | "\\sqrt" group -> root
    | "\\sum" _BOUND* product -> total
    | FUNCTION (power{argument} | "(" choice ("," choice)* ")") -> call
    | "\\begin" "{" "cases" "}" case (case | otherwise)+ "\\end" "{" "cases" "}" -> cases
case: choice "&" (_IF | "{" _IF "}")? choice _BREAK?
otherwise: choice "&" (_ELSE | "{" _ELSE "}") _BREAK?
// Of `\sqrt12` and `x^12`, LaTeX takes the first digit.
?group: braces | DIGIT | FIRST | NAME

NAME: /(?!(?:if|otherwise|else)\b)[A-Za-z](?:[A-Za-z0-9]|_(?=[A-Za-z0-9]))*/
    | /\\(?!sum)[A-Za-z]+(?:_[0-9]+)?/
FUNCTION.2: /(?!\\sqrt)\\?(?:%(functions)s)(?![A-Za-z0-9]|_[A-Za-z0-9])/
NUMBER: /[0-9]+(?:\.[0-9]+)?/
DIGIT.2: /[0-9](?![0-9.])/
FIRST: /[0-9]/
SIGN: "+" | "-"
FACTOR.2: /(?:%(factors)s)(?![A-Za-z])/
COMPARISON.2: /(?:%(comparisons)s)(?![A-Za-z])/
// The index of the current element, and the bounds of a sum.
_INDEX: /_\s*(?:\{\s*(?:\\?\w+)?\s*\}|\\?\w+)/
_BOUND: /[_^]\s*(?:\{[^{}]*\}|\\?\w+)/
_IF.2: /(?:if|for|when)(?![A-Za-z0-9])/
_ELSE.2: /(?:otherwise|else)(?![A-Za-z0-9])/
_BREAK: "\\\\"
SPACE: /[\s~]+|\\[ ,;!:]/
    | /\\(?:q?quad|left|right|limits|displaystyle|[bB]ig)(?![A-Za-z])/
    | /\\(?:text|mathrm|mathop|mathit|operatorname)(?![A-Za-z])/
%%ignore SPACE
"""

_PLACE = re.compile(r"\(\s*\\overline\{\s*\w+\s*\}\s*\)")
"""Index of the current element, after a tensor."""
_BINARY = re.compile(r"\\mathbin\{([^{}\\]*)\}")
_UPRIGHT = re.compile(r"\\(?:text|mathrm|operatorname)\{\s*([A-Za-z]\w*)\s*\}")
_END = re.compile(r"(?:[\s~.,;]|\\[ ,;!:])+$")


def read_latex(text: str) -> tuple[str, tuple[str, ...] | None, str] | None:
    """Name that a formula defines, the parameters of `f(x) = ...`, and its value as code; None for
    another form. A sum over an index is one without axes."""
    bare = _UPRIGHT.sub(r" \1 ", _BINARY.sub(r"\1", _PLACE.sub("", text))).replace("\\_", "_")
    parser: Any = _parser()
    try:
        return parser.parse(_END.sub("", bare[:_MOST_CHARACTERS]))
    except lark.UnexpectedInput:
        return None


@functools.cache
def _parser() -> lark.Lark:
    def match_any(*codes: str) -> str:
        return "|".join(
            re.escape(o).replace("/", r"\/") for o, code in _OPERATORS.items() if code in codes
        )

    grammar = _GRAMMAR % {
        "functions": "|".join(_FUNCTIONS),
        "factors": match_any("*", "/"),
        "comparisons": match_any("<", ">", "<=", ">=", "!=", "&&", "||"),
    }
    return lark.Lark(grammar, parser="lalr", transformer=_CodeWriter())


def _apply(function: str) -> Callable[[object, Sequence[str]], str]:
    """Writer of a function's call."""
    return lambda _, parts: f"{function}({parts[0]})"


class _CodeWriter(lark.Transformer[lark.Token, Any]):
    """Writer of the code of each rule's match, from that of its parts."""

    parentheses, bars, floor, ceil = map(_apply, ("", "abs", "floor", "ceil"))
    root, total = map(_apply, ("sqrt", "sum"))

    def NAME(self, token: str) -> str:
        name, _, number = token.partition("_") if token[0] == "\\" else (token, "", "")
        if known := _NAMES.get(name):
            return known
        bare = re.sub(r"_[a-z]$", "", name.removeprefix("\\"))
        return f"{bare}_{number}" if number else bare

    def FUNCTION(self, token: str) -> str:
        return _FUNCTIONS[token.removeprefix("\\")]

    def FACTOR(self, token: str) -> str:
        return _OPERATORS[token]

    COMPARISON = FACTOR

    def start(self, parts: Sequence[str | None]) -> tuple[str, tuple[str, ...] | None, str]:
        target, parameter, value = parts
        return str(target), None if parameter is None else (parameter,), str(value)

    def infix(self, parts: Sequence[str]) -> str:
        return " ".join(parts).removeprefix("+ ")

    def product(self, parts: Sequence[str]) -> str:
        """Factors, with `*` between those that stand side by side."""
        found = parts[0]
        for before, part in itertools.pairwise(parts):
            found += f" {part}" if {before, part} & {"*", "/"} else f" * {part}"
        return found

    def power(self, parts: Sequence[str]) -> str:
        base, exponent = parts
        if base == "e" and exponent:
            return f"exp({exponent})"
        return f"pow({base}, {exponent})" if exponent else base

    def quotient(self, parts: Sequence[str]) -> str:
        return f"({' / '.join(parts)})"

    def call(self, parts: Sequence[str]) -> str:
        return f"{parts[0]}({', '.join(parts[1:])})"

    def cases(self, rows: Sequence[tuple[str, str | None]]) -> str:
        """Choice of the first case that holds, or of the last one."""
        chosen = f"({rows[-1][0]})"
        for value, condition in reversed(rows[:-1]):
            chosen = f"(({condition}) ? ({value}) : {chosen})" if condition else f"({value})"
        return chosen

    def case(self, parts: Sequence[str]) -> tuple[str, str | None]:
        value, condition = (*parts, None)[:2]
        return str(value), condition

    otherwise = case
