"""Formulas over the sizes, strides and attributes of a call: arguments of a foreign kernel, its
number of groups, and the calls it takes.

They are written as in Python, over whole and real numbers: `ceil(X.size / 64)`, `X.sizes[-1]`,
`X.strides[0]`, `X.rank`, `Alpha`, `TransA == NONE`, `present(C)`. `/` is exact division. Names are
those of tensors, of attributes, and of arguments bound already.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator as python
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, cast

from dmlc.binding.values import EnumValue
from dmlc.ir import packed_strides
from dmlc.source import DmlcError, check_known
from dmlc.testing.case import Call

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: python.add, ast.Sub: python.sub, ast.Mult: python.mul,
    ast.Mod: python.mod, ast.FloorDiv: lambda one, other: one // other,
}  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: python.eq, ast.NotEq: python.ne, ast.Lt: python.lt, ast.LtE: python.le,
    ast.Gt: python.gt, ast.GtE: python.ge,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceil": math.ceil, "floor": math.floor, "min": min, "max": max,
}  # fmt: skip
_PARTS = ("size", "sizes", "strides", "rank")
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.BinOp,
    ast.UnaryOp, ast.USub, ast.Not, ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.IfExp, ast.Call,
    ast.Tuple, ast.Div, *_BINARY, *_COMPARED,
)  # fmt: skip


class OutsideError(Exception):
    """Raised for a call on which a formula has no value: a tensor or a dimension is missing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """Parsed formula."""

    text: str
    node: ast.expr

    @property
    def names(self) -> set[str]:
        """Names that it reads."""
        return {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name)}

    @property
    def strided(self) -> set[str]:
        """Tensors whose strides it reads."""
        return {
            root
            for n in ast.walk(self.node)
            if isinstance(n, ast.Attribute) and n.attr == "strides" and (root := _root(n.value))
        }

    @property
    def fixed(self) -> dict[str, Any]:
        """Values that it fixes by equations, if it is a conjunction."""
        found: dict[str, Any] = {}
        for part in _list_parts(self.node):
            match part:
                case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[value]):
                    if isinstance(value, ast.Name):
                        found[name] = value.id
                    elif _is_plain(value):
                        found[name] = ast.literal_eval(value)
                case _:
                    continue
        return found

    def check(self, what: str, known: Collection[str]) -> None:
        """Raises `DmlcError` for an unknown name."""
        given = sorted(self.names - {*_FUNCTIONS, "present"})
        check_known(f"name in {what}", sorted(known), *given)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Value for a call. Raises `OutsideError` if it has none."""
        try:
            return _evaluate(self.node, values)
        except (IndexError, ZeroDivisionError, TypeError, OverflowError) as error:
            raise OutsideError(f"{self.text} has no value: {error}") from None


def read_formula(text: str, what: str) -> Formula:
    """Formula of a text. Raises `DmlcError` for a syntax error; `what` names the text's origin."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise DmlcError(f"{what}: '{text}' is no formula: {error.msg}", None, _NOTES) from None
    return _check(text.strip(), node, what)


def read_named(text: str, what: str) -> dict[str, Formula]:
    """Formulas by name, such as `X = InputTensor, n = InputTensor.size`."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
        raise DmlcError(
            f"{what}: '{text}' is no list of NAME=FORMULA",
            notes=['write it so: "X=InputTensor, n=InputTensor.size"'],
        )
    return {str(k.arg): _check(ast.unparse(k.value), k.value, what) for k in call.keywords}


_NOTES = (
    "formulas are as in Python, over names of tensors (X.size, X.sizes[0], X.strides[0], X.rank), "
    "of attributes and of arguments, with ceil, floor, min, max and present",
)


def _check(text: str, node: ast.expr, what: str) -> Formula:
    for part in ast.walk(node):
        wrong = not isinstance(part, _NODES)
        if isinstance(part, ast.Attribute):
            wrong = part.attr not in _PARTS
        elif isinstance(part, ast.Call):
            name = part.func.id if isinstance(part.func, ast.Name) else ""
            wrong = name not in (*_FUNCTIONS, "present") or bool(part.keywords)
        if wrong and isinstance(part, ast.expr | ast.operator):
            shown = ast.unparse(part) if isinstance(part, ast.expr) else type(part).__name__
            raise DmlcError(f"{what}: '{shown}' is no part of a formula", None, _NOTES)
    return Formula(text, node)


def _list_parts(node: ast.expr) -> Iterator[ast.expr]:
    """Operands of `and`."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from _list_parts(part)
    else:
        yield node


def _is_plain(node: ast.expr) -> bool:
    """Whether a formula is a literal, or a list of literals."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_plain, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Tensor as seen by formulas."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def rank(self) -> int:
        return len(self.sizes)


def list_values(call: Call) -> dict[str, Any]:
    """Values of the names that formulas may use for a call. Absent tensors are None, and members of
    enums texts."""
    definition, binding = call.operator.definition, call.binding
    found: dict[str, Any] = dict(_list_members(call))
    for row in definition.newest.tensors:
        found[row.name] = [] if row.array else None
    for name, desc in call.tensors.items():
        strides = desc.strides or packed_strides(desc.shape)
        shape, row = Shape(name, desc.shape, strides), name.partition("[")[0]
        if row == name:
            found[name] = shape
        else:
            found[row].append(shape)
    for name, value in binding.attributes.items():
        found[name] = _plain(value)
    return found


def list_names(call_operator: Any) -> set[str]:
    """Names that formulas may use for an operator."""
    definition = call_operator.definition
    attributes = {a.name for a in definition.attributes}
    members = {m for a in definition.attributes if a.enum is not None for m in a.enum.members}
    return {t.name for t in definition.newest.tensors} | attributes | members


def _list_members(call: Call) -> Iterator[tuple[str, str]]:
    for attribute in call.operator.definition.attributes:
        if attribute.enum is not None:
            yield from ((member, member) for member in attribute.enum.members)


def _plain(value: object) -> Any:
    if isinstance(value, EnumValue):
        return value.member
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in cast("tuple[object, ...]", value))
    return value


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.Tuple():
            return tuple(_evaluate(item, values) for item in node.elts)
        case ast.Attribute():
            owner = _evaluate(node.value, values)
            if owner is None:
                raise OutsideError(f"{ast.unparse(node.value)} takes no part")
            return getattr(owner, node.attr)
        case ast.Subscript():
            return _evaluate(node.value, values)[_evaluate(node.slice, values)]
        case ast.BinOp():
            one, other = _evaluate(node.left, values), _evaluate(node.right, values)
            if isinstance(node.op, ast.Div):
                return _divide(one, other)
            return _BINARY[type(node.op)](one, other)
        case ast.UnaryOp():
            found = _evaluate(node.operand, values)
            return not found if isinstance(node.op, ast.Not) else -found
        case ast.BoolOp():
            parts = (_evaluate(part, values) for part in node.values)
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.Compare():
            sides = [_evaluate(side, values) for side in (node.left, *node.comparators)]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            return all(_COMPARED[type(sign)](one, other) for one, sign, other in pairs)
        case ast.IfExp():
            chosen = node.body if _evaluate(node.test, values) else node.orelse
            return _evaluate(chosen, values)
        case ast.Call(func=ast.Name(id="present"), args=[argument]):
            return bool(_evaluate(argument, values))
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*(_evaluate(a, values) for a in node.args))
        case _:
            raise OutsideError(f"{ast.unparse(node)} is no part of a formula")


def _divide(one: Any, other: Any) -> Any:
    if isinstance(one, float) or isinstance(other, float):
        return one / other
    found = Fraction(one) / Fraction(other)
    return found.numerator if found.denominator == 1 else found
