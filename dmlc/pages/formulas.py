"""Translation of formulas that pages write as code.

Pages write an assignment for each output, `f(x) = ...` for an element-wise operator, or a choice of
cases, line by line. Names are the page's: `Input` for InputTensor, `f` for the output.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from dmlc.language import syntax
from dmlc.language.builtins import REDUCTIONS
from dmlc.language.format import format_expression
from dmlc.language.parse import parse_expression
from dmlc.language.walk import functions_called, names_read
from dmlc.pages.draft import Draft
from dmlc.pages.known import find_function
from dmlc.source import DmlcError, Source

MOST_CHARACTERS = 4000
"""Largest formula that is translated, in characters."""

NO_OPERATOR = '"NONE"'
"""Default of an attribute that names an operator to fuse."""
_HEAD = re.compile(
    r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\)|\[[ijkn]\])?\s*([-+*/]?)=(?!=)\s*(.*)", re.DOTALL
)
_FLOAT = re.compile(r"\b(\d+)\.(\d*)[fF]?\b|(?<![\w.])\.(\d+)[fF]?\b")
_POWER = re.compile(r"(\w+|\([^()]*\))\s*(?:\^|\*\*)\s*(\w+|\([^()]*\))")
_THEN = re.compile(r"\bif\s+(.+?)\s+then\s+(.+?)\s+else\s+(.+)")
_ELLIPSIS = re.compile(
    r"\b(sum|max|min|mean)\(([^,()]*\(?[^,()]*)\[0\](\)?), *\.\.\. *, *\2\[[^\[\]]*\]\3\)"
)
_CONDITIONS = {"==", "!=", "<", "<=", ">", ">=", "&&", "||"}
_CONTROL = re.compile(r"(?:for|foreach|if|else|elif|while|endfor|endif|return)\b")
_CASE = re.compile(r"(.*?),?\s*(?:\bif\s+(.*)|\b(?:otherwise|else)\b.*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """Statement `target = value` in the page's terms; with parameters, `f(x) = value`."""

    target: str
    parameters: tuple[str, ...] | None
    value: str
    words: str
    lines: tuple[int, ...]


def read_statement(text: str, lines: Iterable[int]) -> Statement | None:
    """Statement of a text, or None."""
    match = _HEAD.fullmatch(html.unescape(text).strip())
    if match is None or len(text) > MOST_CHARACTERS:
        return None
    value = _read_cases(match[4]) if "\n" in match[4] or "," in match[4] else match[4]
    if match[3]:
        value = f"{match[1]} {match[3]} ({value.rstrip(';., ')})"
    parameters = match[2]
    names = None
    if parameters is not None:
        names = tuple(p.partition("[")[0].strip() for p in parameters.split(","))
    return Statement(match[1], names, value, " ".join(text.split()), tuple(lines))


def split_statements(lines: Sequence[tuple[int, str]]) -> tuple[list[Statement], list[int]] | None:
    """Statements of a block of code, and its lines that are comments and headings; None if a line
    is neither, or states a condition."""
    groups: list[list[tuple[int, str]]] = []
    others: list[int] = []
    shown = False
    for line, text in lines:
        bare, _, comment = text.partition("//")
        bare = bare.strip()
        if _CONTROL.match(bare) or (bare and _CONTROL.match(comment.strip())):
            return None
        if not bare or bare.endswith(":"):
            others += [line] if text.strip() else []
            shown = shown or bare.lower().startswith("example")
        elif shown:
            others.append(line)
        elif _HEAD.match(bare):
            groups.append([(line, bare)])
        elif groups:
            groups[-1].append((line, bare))
        else:
            return None
    found: list[Statement] = []
    for group in groups:
        made = read_statement("\n".join(t for _, t in group), [n for n, _ in group])
        if made is None:
            return None
        found.append(made)
    return (_separate(found), others) if found else None


def _separate(statements: Sequence[Statement]) -> list[Statement]:
    """Statements of a block in single-assignment form: a value of `M` before its last assignment is
    `M_1`. Unchanged if a value is never read, since the assignments are alternatives then."""
    counts = Counter(s.target for s in statements)
    seen: Counter[str] = Counter()
    now: dict[str, str] = {}
    unread: set[str] = set()
    found: list[Statement] = []
    for statement in statements:
        names = set(re.findall(r"[A-Za-z_]\w*", statement.value))
        unread -= names
        value = re.sub(r"\b[A-Za-z_]\w*", lambda m: now.get(m[0], m[0]), statement.value)
        target = statement.target
        if target in unread:
            return list(statements)
        seen[target] += 1
        last = seen[target] == counts[target]
        now[target] = target if last else f"{target}_{seen[target]}"
        unread |= set() if last else {target}
        found.append(dataclasses.replace(statement, target=now[target], value=value))
    return found


def _read_cases(text: str) -> str:
    """Choice of the cases `x, if x >= 0` and `y, otherwise`."""
    cases = [_CASE.fullmatch(line.strip()) for line in text.split("\n")]
    found = [match for match in cases if match is not None]
    if len(found) != len(cases) or len(found) < 2:
        return text
    chosen = f"({found[-1][1]})"
    for match in reversed(found[:-1]):
        if match[2] is None:
            return text
        chosen = f"(({match[2]}) ? ({match[1]}) : {chosen})"
    return chosen


# Names -----------------------------------------------------------------------------------------


class UnknownWord(Exception):
    """Raised for a name in a formula that the description lacks."""


@dataclasses.dataclass(slots=True)
class NameMap:
    """Map from the names in a page's formulas to those of the description."""

    draft: Draft
    parameters: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    locals: set[str] = dataclasses.field(default_factory=set[str])
    elements: frozenset[str] = frozenset()
    """Index variables: `x[i]` is the current element of x."""

    def find(self, name: str) -> str:
        """Name in the description. Raises `UnknownWord`."""
        if name in self.parameters:
            return self.parameters[name]
        if name in self.locals:
            return name
        known = [t.name for t in self.draft.tensors] + [a.name for a in self.draft.attributes]
        for wanted in (name, f"{name}Tensor", name.removesuffix("_value")):
            if wanted in known:
                return wanted
        folded = {k.lower(): k for k in reversed(known)}
        for wanted in (name.lower(), f"{name.lower()}tensor"):
            if wanted in folded:
                return folded[wanted]
        raise UnknownWord(name)

    def begin(self, name: str) -> str | None:
        """Input whose name is a prefix of a name."""
        stems = {t.name.removesuffix("Tensor"): t.name for t in self.draft.tensors if not t.output}
        found = [s for s in stems if s and name.startswith(s)]
        return stems[max(found, key=len)] if found else None


# Expressions -----------------------------------------------------------------------------------


def translate(text: str, names: NameMap, like: str | None = None) -> str | None:
    """Expression of a page in the language, or None. `like` is the tensor that sums without axes
    reduce to."""
    node = parse_code(text)
    if node is None:
        return None
    try:
        return format_expression(_rename(node, names, like))
    except (UnknownWord, RecursionError):
        return None


def parse_code(text: str) -> syntax.Expression | None:
    """Syntax tree of an expression that a page has as code; its names are the page's."""
    text = html.unescape(text).strip().rstrip(";.,").strip()
    text = _ELLIPSIS.sub(r"\1(\2\3)", text)
    text = _FLOAT.sub(_show_number, text)
    text = _POWER.sub(r"pow(\1, \2)", text)
    text = _THEN.sub(r"((\1) ? (\2) : (\3))", text)
    if len(text) > MOST_CHARACTERS:
        return None
    source = Source("<formula>", text)
    try:
        return parse_expression(source, 0, len(text))
    except DmlcError:
        return None


def _show_number(match: re.Match[str]) -> str:
    if match[3] is not None:
        return f"0.{match[3]}"
    return f"{match[1]}.{match[2] or '0'}"


def _rename(node: syntax.Expression, names: NameMap, like: str | None) -> syntax.Expression:
    match node:
        case syntax.Reference():
            return dataclasses.replace(node, name=names.find(node.name))
        case syntax.Member(syntax.Reference(name=name), syntax.Name(text="DimensionCount")):
            if names.draft.tensor(name) is None:
                raise UnknownWord(name)
            return node
        case syntax.Index(syntax.Reference() as base, (syntax.Reference() as index,), None):
            if index.name in names.elements or base.name in names.parameters:
                return _rename(base, names, like)
            raise UnknownWord(base.name)
        case syntax.Call(syntax.Reference() as function, arguments):
            return _rename_call(node, function.name, arguments, names, like)
        case syntax.Literal() | syntax.String():
            return node
        case syntax.Unary() | syntax.Binary() | syntax.Ternary() | syntax.Array():
            return rebuild(node, functools.partial(_rename, names=names, like=like))
        case _:
            raise UnknownWord(type(node).__name__)


def _rename_call(
    node: syntax.Call,
    name: str,
    arguments: tuple[syntax.Argument, ...],
    names: NameMap,
    like: str | None,
) -> syntax.Expression:
    given = tuple(dataclasses.replace(a, value=_rename(a.value, names, like)) for a in arguments)
    fused = names.draft.attribute(name)
    if fused is not None and fused.default == NO_OPERATOR and len(given) == 1:
        # Without an activation, what it would be applied to.
        return given[0].value
    reduced = name.lower() if name.lower() in REDUCTIONS else None
    if reduced is not None and len(given) == 1:
        given = (*given, _reduced_over(node, names.draft, like))
        known: str | None = reduced
    else:
        known = find_function(name)
    if known is None:
        raise UnknownWord(name)
    return syntax.Call(syntax.Reference(known, span=node.span), given, span=node.span)


def _reduced_over(node: syntax.Call, draft: Draft, like: str | None) -> syntax.Argument:
    """Axes of a page's reduction: those that a sentence states, or those of an attribute."""
    if like is not None:
        word, over = "like", like
    else:
        word, over = "axes", "Axes" if draft.attribute("Axes") is not None else "axis"
        if draft.attribute(over) is None:
            raise UnknownWord(over)
    value: syntax.Expression = syntax.Reference(over, span=node.span)
    if over == "axis":
        value = syntax.Array((value,), span=node.span)
    return syntax.Argument(syntax.Name(word, span=node.span), value, span=node.span)


def is_condition(text: str) -> bool:
    """Whether an expression is a comparison, or combines some."""
    node = parse_code(text)
    return isinstance(node, syntax.Binary) and node.operator in _CONDITIONS


def rebuild(
    node: syntax.Expression, change: Callable[[syntax.Expression], syntax.Expression]
) -> syntax.Expression:
    """Node with `change` applied to each of its operands."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value: object = getattr(node, field.name)
        if isinstance(value, tuple):
            changed[field.name] = tuple(change(v) for v in cast("tuple[Any, ...]", value))
        elif isinstance(value, syntax.Node) and not isinstance(value, syntax.Name):
            changed[field.name] = change(cast(syntax.Expression, value))
    return dataclasses.replace(node, **changed)


def make_function(name: str, value: str) -> str | None:
    """Function `function name(...) = value` of all names in the value; None if it calls one that
    the language lacks."""
    node = parse_code(value)
    if node is None:
        return None
    called = functions_called(node)
    if any(find_function(n) is None for n in called):
        return None
    parameters = [n for n in names_read(node) if n not in called]
    if not parameters or name in parameters or find_function(name) is not None:
        return None
    return f"function {name}({', '.join(parameters)}) = {format_expression(node)}"
