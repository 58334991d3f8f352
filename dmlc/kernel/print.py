"""Printer of the kernel IR's text form, which is independent of the output language. `parse` reads
it back to an equal kernel.

One line per declaration and per statement. A name has its type where it is defined; a load has one
if it is a vector. A literal without a type is an `f32` if it has a point or an exponent, and an
`index` otherwise. A local named like a literal or a keyword has a `%` before it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmlc.ir.print import number_text
from dmlc.ir.scan import LITERALS
from dmlc.kernel import nodes as k
from dmlc.parameters import expect
from dmlc.scalars import DataType

RESERVED = (*LITERALS, *(geometry.value for geometry in k.Geometry))
"""Words that are values by themselves."""
_FORMS: Mapping[type[k.Statement], str] = {
    k.Let: "let {local:defined} = {value}",
    k.Variable: "var {local:defined} = {value}",
    k.Assign: "set {local:local} = {value}",
    k.StoreLocal: "store_local {array:array}[{index}] = {value}",
    k.Barrier: "barrier{memory:flag}",
    k.For: "for {variable:variable} in {start} .. {stop}{step:step}{unroll:flag}{rolled:flag}"
    "{backwards:flag}",
    k.If: "if {condition}{rare:flag}",
    k.Store: "store {buffer:buffer}[{index}] = {value}{streaming:streaming}",
    k.Prefetch: "prefetch {buffer:buffer}[{index}]",
    k.InsertHalf: "insert_half {word:local}[{half}] = {value} as {buffer:buffer}",
    k.StoreWord: "store_word {buffer:buffer}[{index}] = {word:local}",
    k.FillMatrix: "fill_matrix {matrix:matrix} = {value}",
    k.LoadMatrix: "load_matrix {matrix:matrix} = {array:memory}[{index}] stride {stride:stride}"
    "{transposed:flag}",
    k.StoreMatrix: "store_matrix {array:memory}[{index}] stride {stride:stride} = {matrix:matrix}",
    k.MultiplyMatrices: "multiply_matrices {sum:matrix} = {left:matrix}, {right:matrix}",
}
"""Syntax of each statement: a keyword, and fields between separators. A field is an expression,
unless its kind follows a colon."""


def _part(form: str) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """Keyword of a statement's pattern, and its fields: separator before each, name and kind."""
    word = form.split(" ")[0].split("{")[0]
    parts = string.Formatter().parse(form.removeprefix(word))
    return word, tuple((mark, name or "", kind or "") for mark, name, kind, _ in parts)


FORMS = {kind: _part(form) for kind, form in _FORMS.items()}
CONVERSIONS = {"cast": k.Convert, "bits": k.Reinterpret, "broadcast": k.Broadcast}
"""Calls that convert a value to another type."""


def print_kernel(kernel: k.Kernel) -> str:
    """Text of a kernel, without a final line break."""
    launch = expect("kernel", kernel, k.Kernel, "a kernel.nodes.Kernel").launch
    groups = f"ceil({_count(launch.count)} / {launch.per_group}) groups of {launch.group_size}"
    rows = f" in subgroups of {launch.subgroup}" if launch.subgroup else ""
    rows += "" if launch.row is None else f" in rows of {launch.row}"
    lines = [
        *(f"summary {_quote(line)}" for line in kernel.summary),
        *([f"walk {_quote(kernel.walk)}"] if kernel.walk else []),
        *(f"schedule {_quote(line)}" for line in kernel.schedule),
        *([f"title {_quote(kernel.title)}"] if kernel.title else []),
        *([f"row {_quote(kernel.row)}"] if kernel.row else []),
        *(f"script {_quote(line)}" for line in kernel.script),
        *(f"cut {_quote(line)}" for line in kernel.cut),
        *([f"apart {_quote(kernel.apart)}"] if kernel.apart else []),
        *([f"effort {kernel.effort!r}"] if kernel.effort != 1 else []),
        *([f"steps {_count(kernel.steps)}"] if kernel.steps else []),
        *([f"stages ({', '.join(kernel.stages)})"] if kernel.stages else []),
        *(f"pass ({', '.join(stages)})" for stages in kernel.passes),
        f"launch {groups}{rows}, index {'s' if kernel.index_signed else 'u'}{kernel.index_bits}",
        *map(_buffer, kernel.buffers),
        *(f"scalar {_name(s.name)}: {show_type(s.type)} = {value}" for s, value in kernel.scalars),
        *map(_array, kernel.arrays),
        *map(_matrix, kernel.matrices),
    ]
    return "\n".join(
        [
            f"kernel {kernel.name} {{",
            *(f"  {line}" for line in lines),
            *_statements(kernel.body, "  "),
            "}",
        ]
    )


def show_type(type: k.Type) -> str:
    """Text of a type: `f32`, or `f32x16` for a vector."""
    return type.dtype.short if type.lanes == 1 else f"{type.dtype.short}x{type.lanes}"


def print_statement(statement: k.Statement) -> str:
    """First line of a statement's text, without its body."""
    word, fields = FORMS[type(statement)]
    parts = (mark + _show(name, kind, statement) for mark, name, kind in fields)
    return word + "".join(parts)


def _show(name: str, kind: str, statement: k.Statement) -> str:
    """Text of a statement's field."""
    value: Any = getattr(statement, name, "")
    match kind if name else "nothing":
        case "":
            return print_expression(value)
        case "defined":
            return f"{_name(value.name)}: {show_type(value.type)}"
        case "local" | "variable":
            return _name(value.name)
        case "flag":
            return f" {name}" * value
        case "step":
            return "" if value == 1 else f" step {value}"
        case "streaming":
            return "" if value is None else f" streaming where {print_expression(value)}"
        case _:
            return str(value)


def print_expression(node: k.Expression) -> str:
    """Text of an expression, on one line."""
    match node:
        case k.Literal(type=type, value=value):
            plain = type in (k.BOOL, k.INDEX, k.Type(DataType.FLOAT32))
            text = number_text(type.dtype, value)
            return text if plain else f"{text}:{show_type(type)}"
        case k.Local(name=name) | k.Scalar(name=name):
            return _name(name)
        case k.Position(geometry=geometry):
            return geometry.value
        case k.Load(buffer=name, index=index) | k.LoadLocal(array=name, index=index):
            vector = "" if node.type.lanes == 1 else f":{show_type(node.type)}"
            return f"{_place(name, index)}{vector}"
        case k.Operate(operation=operation, operands=operands):
            return _call(operation.name, *map(print_expression, operands))
        case k.Select():
            parts = (node.condition, node.then, node.otherwise)
            return _call("select", *map(print_expression, parts))
        case k.Convert() | k.Reinterpret() | k.Broadcast():
            word = next(word for word, kind in CONVERSIONS.items() if kind is node.__class__)
            return _call(word, print_expression(node.operand), show_type(node.type))
        case k.Join(low=low, high=high):
            return _call("join", print_expression(low), print_expression(high))
        case k.Extract(operand=operand, lanes=lanes):
            return _call("extract", print_expression(operand), _numbers(lanes))
        case k.Shuffle(first=first, second=second, lanes=lanes):
            given = (print_expression(first), print_expression(second), _numbers(lanes))
            return _call("shuffle", *given)
        case k.Numbers(values=values):
            return _call(show_type(node.type), *map(str, values))
        case k.Lead(buffer=buffer, bytes=size):
            return _call("lead", buffer, str(size))


def _numbers(lanes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, lanes))}]"


def _count(count: int | str) -> str:
    """Text of a size: a number, a symbol, or a quoted size expression."""
    return f'"{count}"' if isinstance(count, str) and not count.isidentifier() else f"{count}"


def _buffer(buffer: k.Buffer) -> str:
    count = "" if buffer.count is None else f"[{_count(buffer.count)}]"
    touched = "" if buffer.bytes is None else f", {buffer.bytes} bytes"
    element = show_type(k.Type(buffer.dtype, buffer.lanes))
    return f"buffer {buffer.name}: {element}{count} {buffer.access.value}{touched}"


def _array(array: k.Array) -> str:
    kind = "shared " if array.shared else "registers " if array.registers else ""
    return f"{kind}array {array.name}: {show_type(k.Type(array.dtype, array.lanes))}[{array.size}]"


def _matrix(matrix: k.Matrix) -> str:
    size = f"{matrix.rows}, {matrix.columns}"
    return f"matrix {matrix.name}: {matrix.dtype.short}[{size}] {matrix.use.value}"


def _statements(statements: Iterable[k.Statement], indent: str) -> list[str]:
    lines: list[str] = []
    for statement in statements:
        line = f"{indent}{print_statement(statement)}"
        match statement:
            case k.For(body=body) | k.If(then=body):
                lines += [f"{line} {{", *_statements(body, f"{indent}  "), f"{indent}}}"]
            case _:
                lines.append(line)
    return lines


def _name(name: str) -> str:
    return f"%{name}" if name in RESERVED else name


def _place(name: str, index: k.Expression) -> str:
    return f"{name}[{print_expression(index)}]"


def _call(name: str, *given: str) -> str:
    return f"{name}({', '.join(given)})"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
