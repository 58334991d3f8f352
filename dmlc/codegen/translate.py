"""The functions of `float32` as HLSL: the same text, line for line, in another spelling.

It knows exactly the language that `float32` is written in, and refuses anything else. Floats are
declared `precise`, so that no compiler contracts or re-associates them; arithmetic that would not
make the value of one, such as an argument's or what is compared, gets a local of its own. What a
function returns together comes back through `out` parameters.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dmlc.codegen import float32
from dmlc.source import InternalError

PREFIX = "portable_"
"""Stands before each function's name in HLSL, where `exp` and `log` are taken."""

_PRIMITIVES: Mapping[str, tuple[str, str]] = {
    # name: (HLSL, type of the result)
    "bits": ("asuint({})", "uint"),
    "from_bits": ("asfloat({})", "float"),
    "signed": ("asint({})", "int"),
    "unsigned": ("asuint({})", "uint"),
    "to_int": ("int({})", "int"),
    "to_uint": ("uint({})", "uint"),
    "to_float": ("float({})", "float"),
    "round_even": ("round({})", "float"),
    "sqrt": ("sqrt({})", "float"),
    "absolute": ("abs({})", "float"),
    "isnan": ("isnan({})", "bool"),
    "isinf": ("isinf({})", "bool"),
}
_TYPES = {"Float": "float", "Int": "int", "Uint": "uint", "Bool": "bool"}
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
}  # fmt: skip
_LOGICAL = {"&": "&&", "|": "||"}
_SPELLED = {"half": "half_"}
"""Names that HLSL keeps for itself."""

Number = int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Portable:
    """One function or table in HLSL, and the names of those it needs."""

    name: str
    text: str
    needs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    """A translated expression. Literals take the type of what they meet: `number`."""

    text: str
    type: str
    number: Number = 0
    computed: bool = False
    """Of a float: whether arithmetic stands in the text."""


@functools.cache
def translate() -> Mapping[str, Portable]:
    """Every function and table of `float32`, by its name in HLSL, in order of definition."""
    module = ast.parse(inspect.getsource(float32))
    definitions = [
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name not in (*_PRIMITIVES, "select")
    ]
    signatures = {d.name: _signature(d) for d in definitions}
    words = [int(word) for word in float32.TWO_OVER_PI]
    made = [_translate_table("TWO_OVER_PI", words)]
    made += [_Translator(d, signatures).translate() for d in definitions]
    return MappingProxyType({portable.name: portable for portable in made})


def float_literal(value: float) -> str:
    """A float32 literal that reads back equal."""
    if not math.isfinite(value):
        (word,) = struct.unpack("<I", struct.pack("<f", value))
        return f"asfloat({word:#010x})"
    text = str(np.float32(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _translate_table(name: str, words: Sequence[int]) -> Portable:
    values = [f"{word:#010x}" for word in words]
    rows = [", ".join(values[i : i + 4]) for i in range(0, len(values), 4)]
    body = ",\n    ".join(rows)
    text = f"static const uint {PREFIX}{name}[{len(values)}] = {{\n    {body}\n}};"
    return Portable(PREFIX + name, text, ())


def _signature(function: ast.FunctionDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types of the parameters and of the results."""
    parameters = tuple(_type(a.annotation) for a in function.args.args)
    if isinstance(function.returns, ast.Subscript) and isinstance(
        function.returns.slice, ast.Tuple
    ):
        return parameters, tuple(_type(e) for e in function.returns.slice.elts)
    return parameters, (_type(function.returns),)


def _type(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Name) and annotation.id in _TYPES:
        return _TYPES[annotation.id]
    raise InternalError("float32: a parameter or result has no type")


def _bare(text: str) -> str:
    """Without the parentheses that enclose all of it."""
    depth = 0
    for place, character in enumerate(text if text.startswith("(") else ""):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text


def _declared(type: str) -> str:
    return "precise float" if type == "float" else type


class _Translator:
    """Translates one function."""

    def __init__(
        self,
        function: ast.FunctionDef,
        signatures: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> None:
        self.function = function
        self.signatures = signatures
        self.parameters, self.results = signatures[function.name]
        self.types: dict[str, str] = {}
        self.needs: dict[str, None] = {}
        self.lines: list[str] = []
        self.taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
        self.taken.update(a.arg for a in function.args.args)

    def refuse(self, node: ast.AST, why: str) -> InternalError:
        return InternalError(f"float32.{self.function.name}: {why}: {ast.unparse(node)}")

    def translate(self) -> Portable:
        names = [a.arg for a in self.function.args.args]
        self.types.update(zip(names, self.parameters, strict=True))
        for statement in self.function.body:
            self.statement(statement)
        given = [f"const {t} {_spelled(n)}" for n, t in zip(names, self.parameters, strict=True)]
        returned = self.results[0]
        if len(self.results) > 1:
            given += [f"out {t} {_result(number)}" for number, t in enumerate(self.results)]
            returned = "void"
        name = PREFIX + self.function.name
        doc = ast.get_docstring(self.function)
        lines = [f"// {line.strip()}".rstrip() for line in doc.splitlines()] if doc else []
        lines += [f"{returned} {name}({', '.join(given)})", "{"]
        lines += [f"    {line}" for line in self.lines]
        return Portable(name, "\n".join([*lines, "}"]), tuple(self.needs))

    # Statements ---------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made = self.expression(value)
                kind = self.common(value, made)
                self.assign(name, _bare(self.spelled(made, kind)), kind)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                self.unpack(targets, call)
            case ast.Return(value=ast.Tuple(elts=items)) if len(items) == len(self.results):
                # Into locals first: `precise` does not reach an out parameter.
                for number, (item, kind) in enumerate(zip(items, self.results, strict=True)):
                    value = self.expression(item)
                    if not isinstance(item, ast.Name):
                        text = _bare(self.spelled(value, kind))
                        self.lines.append(f"{_declared(kind)} result{number} = {text};")
                        value = _Value(f"result{number}", kind)
                    self.lines.append(f"{_result(number)} = {self.spelled(value, kind)};")
            case ast.Return(value=ast.expr() as value) if len(self.results) == 1:
                text = _bare(self.spelled(self.expression(value), self.results[0]))
                if self.results[0] == "float":
                    self.lines.append(f"precise float result = {text};")
                    text = "result"
                self.lines.append(f"return {text};")
            case _:
                raise self.refuse(node, "not in the language of this module")

    def assign(self, name: str, text: str, kind: str) -> None:
        if name not in self.types:
            self.types[name] = kind
            self.lines.append(f"{_declared(kind)} {_spelled(name)} = {text};")
        elif self.types[name] == kind:
            self.lines.append(f"{_spelled(name)} = {text};")
        else:
            raise InternalError(f"float32.{self.function.name}: {name} changes its type")

    def unpack(self, targets: list[ast.expr], call: ast.Call) -> None:
        """`a, b = f(x)`."""
        if not isinstance(call.func, ast.Name) or call.func.id not in self.signatures:
            raise self.refuse(call, "not a function of this module")
        parameters, results = self.signatures[call.func.id]
        self.needs[PREFIX + call.func.id] = None
        given = [
            _bare(self.spelled(self.named(self.expression(a)), t))
            for a, t in zip(call.args, parameters, strict=True)
        ]
        for target, kind in zip(targets, results, strict=True):
            if not isinstance(target, ast.Name):
                raise self.refuse(target, "not a name")
            if target.id not in self.types:
                self.types[target.id] = kind
                self.lines.append(f"{_declared(kind)} {_spelled(target.id)};")
            given.append(_spelled(target.id))
        self.lines.append(f"{PREFIX}{call.func.id}({', '.join(given)});")

    # Expressions --------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return _Value("", "number", number)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.expression(operand)
                if value.type == "number":
                    return _Value("", "number", -value.number)
                return _Value(f"(-{value.text})", value.type, computed=value.type == "float")
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                value = self.expression(operand)
                mark = "!" if value.type == "bool" else "~"
                return _Value(f"({mark}{value.text})", value.type)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                a, b = self.expression(left), self.expression(right)
                return self.infix(node, a, b, _OPERATORS[type(operator)])
            case ast.Compare(left=left, ops=[compared], comparators=[right]) if (
                type(compared) in _COMPARISONS
            ):
                a, b = self.named(self.expression(left)), self.named(self.expression(right))
                made = self.infix(node, a, b, _COMPARISONS[type(compared)])
                return _Value(made.text, "bool")
            case ast.Subscript(value=table, slice=place):
                index = _bare(self.spelled(self.expression(place), "uint"))
                return _Value(f"{self.expression(table).text}[{index}]", "uint")
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self.call(node, name, [self.expression(a) for a in arguments])
            case _:
                raise self.refuse(node, "not in the language of this module")

    def name(self, node: ast.expr, name: str) -> _Value:
        if name in self.types:
            return _Value(_spelled(name), self.types[name])
        value: Any = getattr(float32, name)
        if isinstance(value, np.ndarray):
            self.needs[PREFIX + name] = None
            return _Value(PREFIX + name, "table")
        if not isinstance(value, int | float):
            raise self.refuse(node, "no constant")
        return _Value("", "number", value)

    def infix(self, node: ast.expr, a: _Value, b: _Value, symbol: str) -> _Value:
        if symbol in ("<<", ">>"):
            distance = str(b.number) if b.type == "number" else b.text
            return _Value(f"({a.text} {symbol} {distance})", a.type)
        kind = self.common(node, a, b)
        if kind == "bool":
            symbol = _LOGICAL.get(symbol, symbol)
        text = f"({self.spelled(a, kind)} {symbol} {self.spelled(b, kind)})"
        return _Value(text, kind, computed=kind == "float")

    def call(self, node: ast.expr, name: str, given: list[_Value]) -> _Value:
        if name == "select":
            condition, then, otherwise = given
            kind = self.common(node, then, otherwise)
            branches = f"{self.spelled(then, kind)} : {self.spelled(otherwise, kind)}"
            computed = then.computed or otherwise.computed
            return _Value(f"({condition.text} ? {branches})", kind, computed=computed)
        if name in _PRIMITIVES:
            pattern, kind = _PRIMITIVES[name]
            (argument,) = given
            if kind != "float":
                argument = self.named(argument)
            computed = name == "sqrt" or argument.computed
            return _Value(pattern.format(_bare(argument.text)), kind, computed=computed)
        if name not in self.signatures:
            raise self.refuse(node, "not a function of this module")
        parameters, results = self.signatures[name]
        self.needs[PREFIX + name] = None
        named = map(self.named, given)
        texts = [_bare(self.spelled(v, t)) for v, t in zip(named, parameters, strict=True)]
        return _Value(f"{PREFIX}{name}({', '.join(texts)})", results[0])

    def named(self, value: _Value) -> _Value:
        """A value where `precise` would not reach it: arithmetic becomes a local first."""
        if not value.computed:
            return value
        name = "value"
        while name in self.taken:
            name = f"value_{int(name[6:] or 0) + 1}"
        self.taken.add(name)
        self.assign(name, _bare(value.text), "float")
        return _Value(name, "float")

    def common(self, node: ast.expr, *values: _Value) -> str:
        """The one type of some operands."""
        kinds = list(dict.fromkeys(v.type for v in values if v.type != "number"))
        if len(kinds) > 1:
            raise self.refuse(node, "mixed types")
        if kinds:
            return kinds[0]
        return "float" if any(isinstance(v.number, float) for v in values) else "int"

    def spelled(self, value: _Value, kind: str) -> str:
        """A value where one of type `kind` must stand."""
        if value.type != "number":
            if value.type != kind:
                raise InternalError(f"float32.{self.function.name}: {value.text} is no {kind}")
            return value.text
        if kind == "float":
            return float_literal(float(value.number))
        number = int(value.number)
        if kind == "uint":
            return f"{number:#x}u" if number > 255 else f"{number}u"
        return str(number)


def _spelled(name: str) -> str:
    return _SPELLED.get(name, name)


def _result(number: int) -> str:
    return f"out{number}"
