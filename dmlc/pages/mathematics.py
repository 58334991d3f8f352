"""Translation of LaTeX formulas to code: the few forms that element-wise operators have. Formulas
that index tensors, sum over indices or name sizes are left to a person."""

from __future__ import annotations

import re

from dmlc.scalars import OPERATIONS

_TOKEN = re.compile(
    r"\s+|(?P<number>\d+(?:\.\d+)?)|(?P<command>\\(?:[A-Za-z]+|.))|(?P<word>[A-Za-z](?:[A-Za-z0-9]|_(?=[A-Za-z0-9]))*)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_SPACES = {"\\ ", "\\,", "\\;", "\\!", "\\:", "\\quad", "\\qquad", "\\left", "\\right", "\\limits",
           "\\displaystyle", "\\text", "\\mathrm", "\\mathop", "\\operatorname", "~", "\\big",
           "\\Big", "\\mathit"}  # fmt: skip
_OPERATORS = {
    "\\cdot": "*", "\\times": "*", "\\ge": ">=", "\\geq": ">=", "\\geqslant": ">=",
    "\\le": "<=", "\\leq": "<=", "\\leqslant": "<=", "\\lt": "<", "\\gt": ">", "\\div": "/",
    "\\land": "&&", "\\lor": "||", "\\neq": "!=", "\\ne": "!=",
}  # fmt: skip
_NAMES = {
    "\\varepsilon": "epsilon", "\\diffsrc": "diff_src", "\\diffdst": "diff_dst",
    "\\diffgamma": "diff_gamma", "\\diffbeta": "diff_beta", "\\diffweights": "diff_weights",
    "\\diffbias": "diff_bias", "\\mu": "mean", "\\srcshape": "src_shape", "\\infty": "inf",
}  # fmt: skip
_WORDS = {word: o.name for o in OPERATIONS.values() for word in o.pages}
"""Function of a word or a command."""
_COMMANDS = {word for word in _WORDS if word.startswith("\\")}
_STARTS = {"{", "(", "|", "\\frac", "\\sqrt", "\\begin", "\\sum", "\\lfloor", "\\lceil"}
_GREEK = {"alpha", "beta", "gamma", "delta", "epsilon", "lambda", "sigma", "theta"}
_DEEPEST = 60


class NoFormula(Exception):
    """Raised for a formula of an unknown form."""


_PLACE = re.compile(r"\(\s*\\overline\{\s*\w+\s*\}\s*\)")
"""Index of the current element, after a tensor."""
_BINARY = re.compile(r"\\mathbin\{([^{}\\]*)\}")
_UPRIGHT = re.compile(r"\\(?:text|mathrm|operatorname)\{\s*([A-Za-z]\w*)\s*\}")


def read_latex(text: str) -> tuple[str, tuple[str, ...] | None, str] | None:
    """Name that a formula defines, the parameters of `f(x) = ...`, and its value as code; None for
    another form. A sum over an index is one without axes."""
    try:
        bare = _UPRIGHT.sub(r" \1 ", _BINARY.sub(r"\1", _PLACE.sub("", text)))
        reader = _Reader(bare.replace("\\_", "_"))
        target = reader.name()
        reader.skip_subscript()
        parameters = reader.arguments()
        reader.expect("=")
        value = reader.choice(0)
        reader.expect("")
    except NoFormula:
        return None
    return target, parameters, value


class _Reader:
    """Recursive-descent parser of tokens."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        for match in _TOKEN.finditer(text[:4000]):
            token = match[0]
            if not token.isspace() and token not in _SPACES:
                self.tokens.append(token)
        while self.tokens and self.tokens[-1] in (".", ",", ";"):
            self.tokens.pop()
        self.position = 0

    def see(self, *tokens: str) -> bool:
        """Whether one of some tokens comes next."""
        return self.next in tokens

    @property
    def next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.position += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise NoFormula

    def name(self) -> str:
        token = self.take()
        if token in _NAMES:
            return _NAMES[token]
        name = re.sub(r"_[a-z]$", "", token.removeprefix("\\"))
        if not re.fullmatch(r"[A-Za-z]\w*", name) or token in _COMMANDS:
            raise NoFormula
        following = self.tokens[self.position : self.position + 2]
        if len(following) == 2 and following[0] == "_" and following[1].isdigit():
            # `src_0` is a name.
            self.position += 2
            return f"{name}_{following[1]}"
        return name

    def skip_subscript(self) -> None:
        """Skips the index of the current element: `x_i`, `x_{i}`, `x_{}`."""
        if self.next != "_":
            return
        self.take()
        if self.take() != "{":
            return
        if not self.see("}"):
            self.take()
        self.expect("}")

    def arguments(self) -> tuple[str, ...] | None:
        """Parameters of an element-wise function, `f(x)`. Several are an element's index."""
        if not self.see("("):
            return None
        self.take()
        name = self.name()
        self.skip_subscript()
        self.expect(")")
        return (name,)

    def skip_bounds(self) -> None:
        """Skips the bounds of a sum: `_{j=1}^{C}`."""
        while self.see("_", "^"):
            self.take()
            if self.take() == "{":
                while not self.see("}", ""):
                    self.take()
                self.expect("}")

    def choice(self, depth: int) -> str:
        """Expression with comparisons."""
        found = self.sum(depth)
        while self.next in ("<", ">", "==") or _OPERATORS.get(self.next, "")[:1] in (*"<>&|!",):
            token = self.take()
            found = f"{found} {_OPERATORS.get(token, token)} {self.sum(depth)}"
        return found

    def sum(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise NoFormula
        sign = self.take() if self.next in ("-", "+") else ""
        found = f"{sign.strip('+')}{self.product(depth)}"
        while self.next in ("+", "-"):
            token = self.take()
            found = f"{found} {token} {self.product(depth)}"
        return found

    def product(self, depth: int) -> str:
        found = self.power(depth)
        while True:
            if self.next in ("*", "/") or _OPERATORS.get(self.next) in ("*", "/"):
                token = self.take()
                operator = _OPERATORS.get(token, token)
                found = f"{found} {operator} {self.power(depth)}"
            elif self.starts():
                found = f"{found} * {self.power(depth)}"
            else:
                return found

    def starts(self) -> bool:
        """Whether a factor follows without an operator."""
        token = self.next
        if token == "|":
            return False
        known = token in _STARTS or token in _COMMANDS or token in _NAMES
        plain = re.fullmatch(r"\d.*|[A-Za-z].*", token) is not None
        named = token.startswith("\\") and token[1:].isalpha() and token not in _OPERATORS
        return known or (plain and token not in ("if", "otherwise", "else")) or (
            named and token not in ("\\end", "\\rfloor", "\\rceil", "\\\\")
        )  # fmt: skip

    def power(self, depth: int) -> str:
        if self.next == "e" and self.tokens[self.position + 1 : self.position + 2] == ["^"]:
            self.position += 2
            return f"exp({self.group(depth)})"
        base = self.atom(depth)
        self.skip_subscript()
        if self.next == "^":
            self.take()
            return f"pow({base}, {self.group(depth)})"
        return base

    def group(self, depth: int) -> str:
        """Text in braces, or one token."""
        if depth > _DEEPEST:
            raise NoFormula
        if self.next == "{":
            self.take()
            found = self.choice(depth + 1)
            self.expect("}")
            return f"({found})"
        token = self.take()
        if token in _NAMES or (token[:1] == "\\" and token[1:] in _GREEK):
            self.position -= 1
            return self.name()
        if re.fullmatch(r"\d", token[:1]) and len(token) > 1:
            # Of `\sqrt12` and `x^12`, LaTeX takes the first digit.
            self.position -= 1
            self.tokens[self.position] = token[1:]
            return token[0]
        if not re.fullmatch(r"\d|[A-Za-z]\w*", token):
            raise NoFormula
        return token

    def atom(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise NoFormula
        token = self.next
        if re.fullmatch(r"\d.*", token):
            return self.take()
        if token in ("(", "{"):
            self.take()
            found = self.choice(depth + 1)
            self.expect(")" if token == "(" else "}")
            return f"({found})"
        if token == "|":
            self.take()
            found = self.choice(depth + 1)
            self.expect("|")
            return f"abs({found})"
        if token in ("\\lfloor", "\\lceil"):
            self.take()
            found = self.choice(depth + 1)
            self.expect(f"\\r{token[2:]}")
            return f"{token[2:]}({found})"
        if token == "\\frac":
            self.take()
            above = self.group(depth + 1)
            return f"({above} / {self.group(depth + 1)})"
        if token == "\\sqrt":
            self.take()
            return f"sqrt({self.group(depth + 1)})"
        if token == "\\begin":
            return self.cases(depth)
        if token == "\\sum":
            self.take()
            self.skip_bounds()
            return f"sum({self.product(depth + 1)})"
        return self.call_or_name(depth)

    def call_or_name(self, depth: int) -> str:
        token = self.take()
        name = _WORDS.get(token) or _WORDS.get(token.removeprefix("\\"))
        if name is not None:
            if self.next != "(":
                return f"{name}({self.power(depth + 1)})"
            self.take()
            given = [self.choice(depth + 1)]
            while self.see(","):
                self.take()
                given.append(self.choice(depth + 1))
            self.expect(")")
            return f"{name}({', '.join(given)})"
        self.position -= 1
        return self.name()

    def cases(self, depth: int) -> str:
        """`\\begin{cases} a & if c \\\\ b & otherwise \\end{cases}`"""
        self.take()
        self.expect("{")
        kind = self.take()
        self.expect("}")
        if kind != "cases":
            raise NoFormula
        rows: list[tuple[str, str | None]] = []
        while self.next != "\\end":
            value = self.choice(depth + 1)
            self.expect("&")
            rows.append((value, self.condition(depth + 1)))
            if self.next == "\\\\":
                self.take()
        for token in ("\\end", "{", "cases", "}"):
            self.expect(token)
        if len(rows) < 2:
            raise NoFormula
        chosen = f"({rows[-1][0]})"
        for value, condition in reversed(rows[:-1]):
            if condition is None:
                raise NoFormula
            chosen = f"(({condition}) ? ({value}) : {chosen})"
        return chosen

    def condition(self, depth: int) -> str | None:
        """Condition after the `&` of a case: `if c`, `otherwise`."""
        braces = 0
        while self.next in ("{", "}", "if", "otherwise", "else", "for", "when"):
            token = self.take()
            if token in ("otherwise", "else"):
                while self.next == "}" and braces:
                    self.take()
                    braces -= 1
                return None
            braces += (token == "{") - (token == "}")
        return self.choice(depth)
