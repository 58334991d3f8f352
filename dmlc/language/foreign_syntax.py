"""Messages about syntax of other languages that the grammar refuses: `x ** 2`, `a and b`, `a if c
else b`. Each says how it is written here.

A rule matches the line before the point of refusal and the text after it: the parser mostly stops a
word or two behind the foreign construct, which could have been a name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from dmlc.language.foreign_words import find_type
from dmlc.scalars import find_data_type

_OPERAND = r"[\w.]+(?:\([^()]*\)|\[[^\[\]]*\])*|\((?:[^()]|\([^()]*\))*\)"
"""Simple operand: a name, a number, a call, an element, or an expression in parentheses."""
_MOST = 400
"""Number of characters examined on either side."""
_LEFT = re.compile(rf"({_OPERAND})\s*$")
_RIGHT = re.compile(rf"\s*(-?(?:{_OPERAND}))")


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Point where the grammar refused the text."""

    text: str
    start: int
    expected: frozenset[str]

    @property
    def before(self) -> str:
        """Line before it, cut to its end."""
        first = self.text.rfind("\n", 0, self.start) + 1
        return self.text[max(first, self.start - _MOST) : self.start]

    @property
    def after(self) -> str:
        """Line after it, cut to its start."""
        return self.text[self.start : self.start + _MOST].partition("\n")[0]

    @property
    def in_expression(self) -> bool:
        """Whether the grammar accepts an operator here."""
        return "STAR" in self.expected


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Foreign construct: its span, the message, and the cure."""

    start: int
    end: int
    message: str
    cure: str
    edit: tuple[int, int, str] | None = None
    """Span and text of the correction, if it is unambiguous."""


def find_foreign(text: str, start: int, expected: frozenset[str]) -> Found | None:
    """Foreign construct at a refusal, or None."""
    refusal = Refusal(text, start, expected)
    return next((found for rule in _RULES for found in rule(refusal)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Operands:
    """Operands of an operator; `a` and `b` stand for operands that are not simple."""

    left: str
    right: str
    start: int
    """Offset of the first operand, or of the operator if an operand is not simple."""
    end: int

    @staticmethod
    def find(at: Refusal, start: int, end: int) -> _Operands:
        begin = max(0, start - 80)
        one, two = _LEFT.search(at.text[begin:start]), _RIGHT.match(at.text, end)
        left, right = _bare(one[1]) if one else "a", _bare(two[1]) if two else "b"
        if one is None or two is None:
            return _Operands(left, right, start, end)
        return _Operands(left, right, begin + one.start(1), two.end(1))


def _bare(operand: str) -> str:
    """An operand without parentheses around all of it."""
    return operand[1:-1] if re.fullmatch(r"\([^()]*\)", operand) else operand


def _find_operator(at: Refusal) -> Iterator[Found]:
    """`**`, `^`, `@`, `&`, `|`, `<>`."""
    for spelt, start in (("**", at.start - 1), ("<>", at.start - 1), ("=>", at.start - 1)):
        if start >= 0 and at.text.startswith(spelt, start):
            yield _describe_operator(at, spelt, start)
    sign = at.after[:1]
    if sign in ("^", "@", "&", "|", "~") and (at.in_expression or sign == "~"):
        yield _describe_operator(at, sign, at.start)


def _describe_operator(at: Refusal, spelt: str, start: int) -> Found:
    end = start + len(spelt)
    found = _Operands.find(at, start, end)
    a, b = found.left, found.right
    cures = {
        "**": f"a power is pow({a}, {b})",
        "^": f"a power is pow({a}, {b}), and 'exclusive or' of bits bit_xor({a}, {b})",
        "@": "a product of matrices is Y[i, j] = sum[k : K] (A[i, k] * B[k, j]); a graph can call "
        "onednn.MatMul(src: A, weights: B)",
        "&": "between conditions write '&&'; of bits it is bit_and(a, b)",
        "|": "between conditions write '||'; of bits it is bit_or(a, b)",
        "~": f"of bits it is bit_not({b}); a condition is negated by '!'",
        "<>": "write '!='",
        "=>": "write '>='",
    }
    words = {"&": "&&", "|": "||", "<>": "!=", "=>": ">="}
    edit = (start, end, words[spelt]) if spelt in words else None
    if spelt == "**" and found.start < start:
        edit = (found.start, found.end, f"pow({a}, {b})")
    return Found(start, end, f"'{spelt}' is no operator of the language", cures[spelt], edit)


_CHOICE = re.compile(r"=\s*(?P<a>[^=]+?)\s+if\s+(?P<c>.+?)\s+else\s+(?P<b>[^,;]+?)\s*[})]*$")
_SENTENCE = re.compile(r"\bmust\b")


def _find_word(at: Refusal) -> Iterator[Found]:
    """`and`, `or`, `not`, and `a if c else b`."""
    before, line = at.before, at.before + at.after
    offset = at.start - len(before)
    if _SENTENCE.search(line):
        return
    choice = re.search(r"(?<=[\w)\]])\s+(if)\s", line)
    if choice is not None and offset + choice.start(1) <= at.start:
        whole = _CHOICE.search(line.partition("//")[0])
        cure, edit = "a choice is 'condition ? a : b'", None
        if whole is not None:
            right = f"{whole['c']} ? {whole['a']} : {whole['b']}"
            cure = f"write {right}"
            edit = (offset + whole.start("a"), offset + whole.end("b"), right)
        yield Found(
            offset + choice.start(1),
            offset + choice.end(1),
            "'if' does not stand in an expression",
            cure,
            edit,
        )
    expression = "=" in before or "require" in before or "(" in before
    words = {"and": "&&", "or": "||"}
    found = re.match(r"(and|or)\b", at.after)
    place = at.start
    if found is None:
        for found in re.finditer(r"(?<=[\w)\]])\s+(and|or)\s+", before):
            place = offset + found.start(1)
    if found is not None and expression:
        word = found[1]
        yield Found(
            place,
            place + len(word),
            f"'{word}' is no operator of the language",
            f"between conditions write '{words[word]}'",
            (place, place + len(word), words[word]),
        )
    negated = re.search(r"(?:=|[(,?:&|])\s*(not)\s+(?=[\w(!])|\b(not)\s+$", before)
    if negated is not None:
        place = offset + negated.start(negated.lastindex or 0)
        message = "'not' is no operator of the language"
        spaced = re.compile(r"not\s*").match(at.text, place)
        end = place + 3 if spaced is None else spaced.end()
        yield Found(place, place + 3, message, "write '!'", (place, end, "!"))


def _find_equals(at: Refusal) -> Iterator[Found]:
    """`axis=1` in a call, `x = 0` as a comparison, `y == x` and `y += x` as definitions."""
    before, after = at.before, at.after
    definition = re.fullmatch(r"\s*(?:output\s+)?(\w+)(?:\[[^\]]*\])?\s*=", before)
    if after.startswith("=") and definition is not None:
        place, cure = at.start - 1, "a definition has one '='"
        yield Found(place, at.start + 1, "'==' compares", cure, (place, at.start + 1, "="))
    changed = re.match(r"([-+*/])=", after)
    name = re.fullmatch(r"\s*(?:output\s+)?(\w+)\s*", before)
    if changed is not None and name is not None:
        yield Found(
            at.start,
            at.start + 2,
            "a name is assigned once",
            f"give the new value a name of its own, as in t = {name[1]} {changed[1]} ...",
        )
    if not after.startswith("=") or not at.in_expression:
        return
    label = re.search(r"[(,]\s*(\w+)\s*$", before)
    if label is None:
        cure, edit = "two values are compared by '=='", (at.start, at.start + 1, "==")
        yield Found(at.start, at.start + 1, "'=' defines a name", cure, edit)
        return
    value = re.match(r"=\s*([^,)]*)", after)
    shown = value[1].strip() if value is not None else "..."
    right = f"{label[1]}: {shown}"
    if label[1] in ("axis", "dim", "axes"):
        right = f"axes: [{shown.strip('()[]')}]"
    named = at.start - len(before) + label.start(1)
    edit = None if value is None else (named, at.start + len(value[0].rstrip()), right)
    yield Found(at.start, at.start + 1, "an argument is named by ':'", f"write {right}", edit)


_STARTS = {
    "return": "assign the result to an output: Y = ...",
    **dict.fromkeys(("let", "var", "const", "auto", "val", "mut"), "leave the word out: t = ..."),
    **dict.fromkeys(("float", "int", "double", "half", "float4"), "leave the type out: t = ..."),
    **dict.fromkeys(
        ("for", "while"),
        "a definition by index goes over all elements, Y[i] = ..., and a reduction over an index "
        "is sum[k : n] (...)",
    ),
    **dict.fromkeys(("if", "elif", "else", "switch"), "a choice is 'Y = condition ? a : b'"),
    **dict.fromkeys(
        ("def", "fn", "func", "void", "kernel", "lambda"), "write function f(x) = expression"
    ),
}
"""First words of statements in other languages."""


def _find_statement(at: Refusal) -> Iterator[Found]:
    """`return x`, `let t = ...`, `for ...`, `def f(x)`."""
    offset = at.start - len(at.before)
    line = at.before + at.after
    found = re.match(r"\s*(?:\w+\s*\{\s*)?(\w+)\b", line)
    inner = re.search(r"(?<![\w.])(lambda)\s", at.before)
    found = inner if inner is not None else found
    if found is None or found[1] not in _STARTS or offset + found.start(1) > at.start:
        return
    if re.match(r"\s*=", line[found.end(1) :]):
        return
    start = offset + found.start(1)
    message, cure = f"'{found[1]}' starts no statement of the language", _STARTS[found[1]]
    if inner is not None:
        message = "functions have names"
    defined = re.match(r"\s+(?=\w+\s*=)", line[found.end(1) :])
    left_out = defined is not None and cure.startswith("leave")
    edit = (start, offset + found.end(1) + len(defined[0]), "") if left_out and defined else None
    yield Found(start, start + len(found[1]), message, cure, edit)


def _find_mark(at: Refusal) -> Iterator[Found]:
    """`#`, `;`, `'`, `//` as a division, `2x`, `1.0f`, a slice."""
    sign = at.after[:1]
    if sign == "#":
        cure, edit = "a comment starts with '//'", (at.start, at.start + 1, "//")
        yield Found(at.start, at.start + 1, "'#' starts no comment", cure, edit)
    elif sign == ";":
        edit = (at.start, at.start + 1, "")
        yield Found(at.start, at.start + 1, "';' ends no statement", "leave it out", edit)
    elif sign == "'":
        quoted = re.match(r"'([^']*)'?", at.after)
        text = "" if quoted is None else quoted[1]
        infinite = text in ("inf", "-inf")
        cure = "infinity is inf" if infinite else f'write "{text}"'
        end = at.start + len(text) + 1
        edit = None
        if quoted is not None and quoted[0].endswith("'") and text:
            edit = (at.start, at.start + quoted.end(), text if infinite else f'"{text}"')
        yield Found(at.start, end, "a text stands in double quotes", cure, edit)
    counted = re.match(r"in\s+([^\])]+)", at.after)
    if counted is not None and at.before.count("[") > at.before.count("]"):
        cure = f"what an index runs over stands behind ':', as in k : {counted[1].strip()}"
        edit = (at.start, at.start + 2, ":")
        yield Found(at.start, at.start + 2, "'in' is no operator of the language", cure, edit)
    product = re.match(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z_]\w*)", at.after)
    if product is not None and "INTEGER" in at.expected:
        number, name = product.groups()
        right = f"{number} * {name}"
        cure = f"a product is {right}"
        if name.lower() in ("f", "h", "u", "l", "ul", "lf"):
            right, cure = number, f"a number takes the type of what it meets: write {number}"
        end = at.start + product.end()
        edit = (at.start, end, right)
        yield Found(at.start, end, f"'{product[0]}' is no number", cure, edit)
    sliced = sign == ":" or (sign == "]" and at.before.rstrip().endswith(":"))
    if sliced and at.before.count("[") > at.before.count("]"):
        cure = "an index stands for each axis, as in x[i, j], and a pack for several: x[i, j...]"
        place = at.start if sign == ":" else at.start - 1
        yield Found(place, place + 1, "an index is no slice", cure)


def _find_division(at: Refusal) -> Iterator[Found]:
    """Division `i // 2` in brackets, where the rest of the line was a comment."""
    before = at.text[max(0, at.start - _MOST) : at.start]
    lines = before[max(0, before.rstrip().rfind("\n")) :]
    found = re.search(rf"({_OPERAND})\s*(//)\s*(\w+)", lines)
    if found is None:
        return
    head = lines[: found.start(2)]
    if head.count("(") + head.count("[") > head.count(")") + head.count("]"):
        start = at.start - len(lines) + found.start(2)
        right = f"floor({found[1]} / {found[3]})"
        cure, begin = f"whole numbers are divided by {right}", at.start - len(lines)
        edit = (begin + found.start(1), begin + found.end(3), right)
        yield Found(start, start + 2, "'//' starts a comment", cure, edit)


def _find_type(at: Refusal) -> Iterator[Found]:
    """Type of a graph's input without brackets, or with a prefix."""
    name = re.search(r":\s*(\w+)\s*$", at.before)
    if at.expected - {"COMMENT", "SPACE"} != frozenset({"LSQB"}) or name is None:
        return
    inner = re.match(r"\(([^()]*)\)", at.after)
    prefixed = re.match(r"\.(\w+)(\[[^\]]*\])?", at.after)
    if prefixed is not None:
        known = find_data_type(prefixed[1])
        dtype = find_type(prefixed[1]) if known is None else known.name
        right = f"{dtype or 'FLOAT32'}{prefixed[2] or '[N]'}"
        named = at.start - len(at.before) + name.start(1)
        edit = (named, at.start + prefixed.end(), right)
        yield Found(at.start, at.start + 1, "data types have no prefix", f"write {right}", edit)
    else:
        sizes = inner[1] if inner is not None else "N"
        edit = (at.start, at.start + (0 if inner is None else inner.end()), f"[{sizes}]")
        cure = f"write {name[1]}[{sizes}]"
        yield Found(at.start, at.start + 1, "a type says its sizes", cure, edit)


_RULES: tuple[Callable[[Refusal], Iterator[Found]], ...] = (
    _find_division,
    _find_operator,
    _find_equals,
    _find_mark,
    _find_type,
    _find_statement,
    _find_word,
)
