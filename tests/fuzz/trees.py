"""Typed expression trees of the operator language, and their text.

A tree is what a strategy draws: it knows the type of every part, which the language infers. Its
text has no more parentheses than the language asks for, so that precedence is tested too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from dmlc.scalars import DataType as T

_SYMBOLS = {
    "or": ("||", 2), "and": ("&&", 3), "eq": ("==", 4), "ne": ("!=", 4), "lt": ("<", 5),
    "le": ("<=", 5), "gt": (">", 5), "ge": (">=", 5), "add": ("+", 6), "sub": ("-", 6),
    "mul": ("*", 7), "div": ("/", 7), "mod": ("%", 7),
}  # fmt: skip
_CHOICE, _UNARY, _ATOM = 1, 8, 9
_PREFIXES = {"neg": "-", "not": "!"}


@dataclasses.dataclass(frozen=True)
class Node:
    """A part of a formula; `dtype` is the type it is computed in."""

    dtype: T

    @property
    def free(self) -> bool:
        """Whether it takes the type of what it meets, as a number does."""
        return False

    @property
    def parts(self) -> tuple[Node, ...]:
        return ()

    @property
    def placed(self) -> bool:
        """Whether it depends on positions and numbers alone."""
        return all(p.placed for p in self.parts)


@dataclasses.dataclass(frozen=True)
class Name(Node):
    """A whole tensor, or a name of one's own."""

    name: str

    @property
    def placed(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Number(Node):
    value: float | int | bool

    @property
    def free(self) -> bool:
        return self.dtype is not T.BOOL


@dataclasses.dataclass(frozen=True)
class Variable(Node):
    """An index variable."""

    name: str

    @property
    def free(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Apply(Node):
    """An operation. What is made of positions alone stays `soft`, to take another type."""

    name: str
    operands: tuple[Node, ...]
    soft: bool = False

    @property
    def free(self) -> bool:
        return self.soft

    @property
    def parts(self) -> tuple[Node, ...]:
        return self.operands


@dataclasses.dataclass(frozen=True)
class Cast(Node):
    """A conversion; to a type of 16 bits, it rounds to what that type holds."""

    operand: Node
    half: T | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclasses.dataclass(frozen=True)
class Choose(Node):
    condition: Node
    then: Node
    otherwise: Node
    soft: bool = False

    @property
    def free(self) -> bool:
        return self.soft

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.condition, self.then, self.otherwise)


@dataclasses.dataclass(frozen=True)
class Fold(Node):
    """A reduction of a whole tensor over some axes; `argmin` and `argmax` take a type."""

    combiner: str
    operand: Node
    axes: tuple[int, ...]
    like: str | None = None

    @property
    def free(self) -> bool:
        return self.combiner.startswith("arg")

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.operand,)

    @property
    def placed(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Read(Node):
    """An element of a tensor."""

    name: str
    positions: tuple[Node, ...]
    otherwise: Node | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        return self.positions + (() if self.otherwise is None else (self.otherwise,))

    @property
    def placed(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class Reduce(Node):
    """A reduction over index variables."""

    combiner: str
    variables: tuple[tuple[str, int], ...]
    condition: Node | None
    body: Node
    soft: bool = False

    @property
    def free(self) -> bool:
        return self.soft or self.combiner.startswith("arg")

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.body,) if self.condition is None else (self.condition, self.body)

    @property
    def placed(self) -> bool:
        return False


def walk(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from walk(part)


# Text --------------------------------------------------------------------------------------


def show(node: Node) -> str:
    return _show(node)[0]


def show_number(value: float | int | bool) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def _within(node: Node, least: int) -> str:
    text, level = _show(node)
    return text if level >= least else f"({text})"


def _typed(node: Node) -> Node:
    """A number that nothing gives a type, with one."""
    return Cast(node.dtype, node) if node.free else node


def _settle(operands: tuple[Node, ...], dtype: T) -> tuple[Node, ...]:
    """Operands of which one has the type, unless they are positions."""
    if dtype is T.INDEX or not all(o.free for o in operands):
        return operands
    return (Cast(dtype, operands[0]), *operands[1:])


def _show(node: Node) -> tuple[str, int]:
    match node:
        case Name() | Variable():
            return node.name, _ATOM
        case Number():
            text = show_number(node.value)
            return text, _UNARY if text.startswith("-") else _ATOM
        case Cast():
            operand = node.operand
            bare = operand.dtype in (T.INDEX, node.dtype) or not isinstance(operand, Number)
            if operand.free and isinstance(operand, Fold | Reduce):
                bare = True
            text = show(operand if bare else _typed(operand))
            return f"cast({text}, {(node.half or node.dtype).name})", _ATOM
        case Choose():
            then, otherwise = node.then, node.otherwise
            if not node.soft:
                then, otherwise = _settle((then, otherwise), node.dtype)
            condition = _within(node.condition, _CHOICE + 1)
            return f"{condition} ? {_within(then, _CHOICE + 1)} : {show(otherwise)}", _CHOICE
        case Apply():
            return _show_apply(node)
        case Fold():
            of = f"like: {node.like}" if node.like else f"axes: [{', '.join(map(str, node.axes))}]"
            return f"{node.combiner}({show(node.operand)}, {of})", _ATOM
        case Read():
            text = f"{node.name}[{', '.join(show(p) for p in node.positions)}]"
            if node.otherwise is None:
                return text, _ATOM
            return f"({text} else {_within(node.otherwise, _ATOM)})", _ATOM
        case Reduce():
            over = ", ".join(f"{name} : {extent}" for name, extent in node.variables)
            where = "" if node.condition is None else f" where {show(node.condition)}"
            return f"{node.combiner}[{over}{where}]({show(node.body)})", _ATOM
    raise TypeError(node)


def _show_apply(node: Apply) -> tuple[str, int]:
    operands = node.operands
    if not node.soft and operands[0].dtype is not T.BOOL:
        operands = _settle(operands, operands[0].dtype)
    if node.name in _PREFIXES:
        return f"{_PREFIXES[node.name]}{_within(operands[0], _UNARY + 1)}", _UNARY
    if node.name not in _SYMBOLS:
        return f"{node.name}({', '.join(show(o) for o in operands)})", _ATOM
    symbol, level = _SYMBOLS[node.name]
    chains = level not in (4, 5)
    left = _within(operands[0], level if chains else level + 1)
    return f"{left} {symbol} {_within(operands[1], level + 1)}", level
