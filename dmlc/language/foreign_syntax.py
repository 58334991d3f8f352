"""What people who come from other languages write, where the grammar refuses it: `x ** 2`, `a and
b`, `a if c else b`. Each gets a message of its own that says how it is written here.

A rule looks at the line up to the place where the grammar stopped, and at what stands there: mostly
the grammar stops a word or two behind what is foreign, because that could have been a name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from dmlc.language.foreign_words import find_type
from dmlc.scalars import find_data_type

_OPERAND = r"[\w.]+(?:\([^()]*\)|\[[^\[\]]*\])*|\((?:[^()]|\([^()]*\))*\)"
"""A simple operand: a name, a number, a call, an element, or something in parentheses."""
_MOST = 400
"""How much of a line is looked at, at either side: what a person types is shorter."""
_LEFT = re.compile(rf"({_OPERAND})\s*$")
_RIGHT = re.compile(rf"\s*(-?(?:{_OPERAND}))")


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Where the grammar stopped."""

    text: str
    start: int
    expected: frozenset[str]

    @property
    def before(self) -> str:
        """The line up to there; the end of it where it is long."""
        first = self.text.rfind("\n", 0, self.start) + 1
        return self.text[max(first, self.start - _MOST) : self.start]

    @property
    def after(self) -> str:
        """The line from there on; the start of it where it is long."""
        return self.text[self.start : self.start + _MOST].partition("\n")[0]

    @property
    def in_expression(self) -> bool:
        """Whether an operator could stand here."""
        return "STAR" in self.expected


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What is foreign: its place in the text, what is wrong, and the cure."""

    start: int
    end: int
    message: str
    cure: str


def find_foreign(text: str, start: int, expected: frozenset[str]) -> Found | None:
    """What is foreign where the grammar stopped; None where nothing known is."""
    refusal = Refusal(text, start, expected)
    return next((found for rule in _RULES for found in rule(refusal)), None)


def _operands(at: Refusal, start: int, end: int, left: str, right: str) -> tuple[str, str]:
    """What stands at both sides of an operator, or names for it where that is not simple."""
    one = _LEFT.search(at.text[max(0, start - 80) : start])
    two = _RIGHT.match(at.text, end)
    return (_bare(one[1]) if one else left, _bare(two[1]) if two else right)


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
    a, b = _operands(at, start, end, "a", "b")
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
    return Found(start, end, f"'{spelt}' is no operator of the language", cures[spelt])


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
        cure = "a choice is 'condition ? a : b'"
        if whole is not None:
            cure = f"write {whole['c']} ? {whole['a']} : {whole['b']}"
        yield Found(
            offset + choice.start(1),
            offset + choice.end(1),
            "'if' does not stand in an expression",
            cure,
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
        )
    negated = re.search(r"(?:=|[(,?:&|])\s*(not)\s+(?=[\w(!])|\b(not)\s+$", before)
    if negated is not None:
        place = offset + negated.start(negated.lastindex or 0)
        yield Found(place, place + 3, "'not' is no operator of the language", "write '!'")


def _find_equals(at: Refusal) -> Iterator[Found]:
    """`axis=1` in a call, `x = 0` as a comparison, `y == x` and `y += x` as definitions."""
    before, after = at.before, at.after
    definition = re.fullmatch(r"\s*(?:output\s+)?(\w+)(?:\[[^\]]*\])?\s*=", before)
    if after.startswith("=") and definition is not None:
        yield Found(at.start - 1, at.start + 1, "'==' compares", "a definition has one '='")
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
        yield Found(at.start, at.start + 1, "'=' defines a name", "two values are compared by '=='")
        return
    value = re.match(r"=\s*([^,)]*)", after)
    shown = value[1].strip() if value is not None else "..."
    cure = f"write {label[1]}: {shown}"
    if label[1] in ("axis", "dim", "axes"):
        cure = f"write axes: [{shown.strip('()[]')}]"
    yield Found(at.start, at.start + 1, "an argument is named by ':'", cure)


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
"""The words that statements of other languages start with."""


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
    message = f"'{found[1]}' starts no statement of the language"
    if inner is not None:
        message = "functions have names"
    yield Found(start, start + len(found[1]), message, _STARTS[found[1]])


def _find_mark(at: Refusal) -> Iterator[Found]:
    """`#`, `;`, `'`, `//` as a division, `2x`, `1.0f`, a slice."""
    sign = at.after[:1]
    if sign == "#":
        yield Found(at.start, at.start + 1, "'#' starts no comment", "a comment starts with '//'")
    elif sign == ";":
        yield Found(at.start, at.start + 1, "';' ends no statement", "leave it out")
    elif sign == "'":
        quoted = re.match(r"'([^']*)'?", at.after)
        text = "" if quoted is None else quoted[1]
        cure = "infinity is inf" if text in ("inf", "-inf") else f'write "{text}"'
        end = at.start + len(text) + 1
        yield Found(at.start, end, "a text stands in double quotes", cure)
    counted = re.match(r"in\s+([^\])]+)", at.after)
    if counted is not None and at.before.count("[") > at.before.count("]"):
        cure = f"what an index runs over stands behind ':', as in k : {counted[1].strip()}"
        yield Found(at.start, at.start + 2, "'in' is no operator of the language", cure)
    product = re.match(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z_]\w*)", at.after)
    if product is not None and "INTEGER" in at.expected:
        number, name = product.groups()
        cure = f"a product is {number} * {name}"
        if name.lower() in ("f", "h", "u", "l", "ul", "lf"):
            cure = f"a number takes the type of what it meets: write {number}"
        yield Found(at.start, at.start + product.end(), f"'{product[0]}' is no number", cure)
    sliced = sign == ":" or (sign == "]" and at.before.rstrip().endswith(":"))
    if sliced and at.before.count("[") > at.before.count("]"):
        cure = "an index stands for each axis, as in x[i, j], and a pack for several: x[i, j...]"
        place = at.start if sign == ":" else at.start - 1
        yield Found(place, place + 1, "an index is no slice", cure)


def _find_division(at: Refusal) -> Iterator[Found]:
    """`i // 2` within brackets: the rest of the line was a comment."""
    before = at.text[max(0, at.start - _MOST) : at.start]
    lines = before[max(0, before.rstrip().rfind("\n")) :]
    found = re.search(rf"({_OPERAND})\s*(//)\s*(\w+)", lines)
    if found is None:
        return
    head = lines[: found.start(2)]
    if head.count("(") + head.count("[") > head.count(")") + head.count("]"):
        start = at.start - len(lines) + found.start(2)
        cure = f"whole numbers are divided by floor({found[1]} / {found[3]})"
        yield Found(start, start + 2, "'//' starts a comment", cure)


def _find_type(at: Refusal) -> Iterator[Found]:
    """The type of a graph's input without brackets, or with a prefix."""
    name = re.search(r":\s*(\w+)\s*$", at.before)
    if at.expected - {"COMMENT", "SPACE"} != frozenset({"LSQB"}) or name is None:
        return
    inner = re.match(r"\(([^()]*)\)", at.after)
    prefixed = re.match(r"\.(\w+)(\[[^\]]*\])?", at.after)
    if prefixed is not None:
        known = find_data_type(prefixed[1])
        dtype = find_type(prefixed[1]) if known is None else known.name
        cure = f"write {dtype or 'FLOAT32'}{prefixed[2] or '[N]'}"
        yield Found(at.start, at.start + 1, "data types have no prefix", cure)
    else:
        sizes = inner[1] if inner is not None else "N"
        yield Found(at.start, at.start + 1, "a type says its sizes", f"write {name[1]}[{sizes}]")


_RULES: tuple[Callable[[Refusal], Iterator[Found]], ...] = (
    _find_division,
    _find_operator,
    _find_equals,
    _find_mark,
    _find_type,
    _find_statement,
    _find_word,
)
