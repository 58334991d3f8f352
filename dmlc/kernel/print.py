"""The kernel IR as text, for people: what was decided before any output language had a say."""

from __future__ import annotations

from collections.abc import Iterable

from dmlc.kernel import nodes as k
from dmlc.scalars import DataType


def print_kernel(kernel: k.Kernel) -> str:
    """The text of a kernel; it ends without a line break."""
    buffers = [f"{b.name}: {b.dtype.short} {b.access.value}" for b in kernel.buffers]
    scalars = [f"{s.name}: {_type(s.type)} = {value}" for s, value in kernel.scalars]
    launch = kernel.launch
    lines = [f"// {line}" for line in kernel.summary]
    lines += [
        f"kernel {kernel.name}({', '.join([*buffers, *scalars])})",
        f"  launch ceil({launch.count} / {launch.per_group}) groups of {launch.group_size}, "
        f"index of {kernel.index_bits} bits {{",
        *(f"  {_array(array)}" for array in kernel.arrays),
        *_statements(kernel.body, "  "),
        "}",
    ]
    return "\n".join(lines)


def print_expression(node: k.Expression) -> str:
    """The text of an expression, on one line."""
    return _expression(node)


def _type(type: k.Type) -> str:
    return type.dtype.short if type.lanes == 1 else f"{type.dtype.short}x{type.lanes}"


def _array(array: k.Array) -> str:
    kind = "shared array" if array.shared else "array"
    return f"{kind} {array.name}: {array.dtype.short}[{array.size}]"


def _statements(statements: Iterable[k.Statement], indent: str) -> list[str]:
    lines: list[str] = []
    for statement in statements:
        match statement:
            case k.Let():
                local = statement.local
                value = _expression(statement.value)
                lines.append(f"{indent}let {local.name}: {_type(local.type)} = {value}")
            case k.Variable():
                local = statement.local
                value = _expression(statement.value)
                lines.append(f"{indent}var {local.name}: {_type(local.type)} = {value}")
            case k.Assign():
                value = _expression(statement.value)
                lines.append(f"{indent}set {statement.local.name} = {value}")
            case k.Put():
                place = f"{statement.array}[{_expression(statement.index)}]"
                lines.append(f"{indent}put {place} = {_expression(statement.value)}")
            case k.Barrier():
                lines.append(f"{indent}barrier")
            case k.Halve():
                head = f"halve {statement.variable.name} from {statement.start}"
                lines += [f"{indent}{head} {{", *_statements(statement.body, indent + "  ")]
                lines.append(f"{indent}}}")
            case k.For():
                start, stop = _expression(statement.start), _expression(statement.stop)
                unroll = " unroll" if statement.unroll else ""
                unroll += " backwards" if statement.backwards else ""
                head = f"for {statement.variable.name} in {start} .. {stop} by {statement.step}"
                lines += [f"{indent}{head}{unroll} {{", *_statements(statement.body, indent + "  ")]
                lines.append(f"{indent}}}")
            case k.If():
                lines.append(f"{indent}if {_expression(statement.condition)} {{")
                lines += [*_statements(statement.then, indent + "  "), f"{indent}}}"]
            case k.Store():
                place = f"{statement.buffer}[{_expression(statement.index)}]"
                stream = ""
                if statement.streaming is not None:
                    stream = f" streaming where {_expression(statement.streaming)}"
                lines.append(f"{indent}store {place} = {_expression(statement.value)}{stream}")
            case k.Prefetch():
                lines.append(f"{indent}prefetch {statement.buffer}[{_expression(statement.index)}]")
            case k.PutHalf(word=word):
                half, value = _expression(statement.half), _expression(statement.value)
                lines.append(f"{indent}put {word.name}[{half}] = {value}:{statement.buffer}")
            case k.StoreWord(word=word):
                place = f"{statement.buffer}[{_expression(statement.index)}]"
                lines.append(f"{indent}store word {place} = {word.name}")
    return lines


def _expression(node: k.Expression) -> str:
    match node:
        case k.Literal():
            value = str(node.value).lower() if node.type.dtype is DataType.BOOL else node.value
            return f"{value}"
        case k.Local() | k.Scalar():
            return node.name
        case k.Position():
            return node.geometry.value
        case k.Load():
            return f"{node.buffer}[{_expression(node.index)}]:{_type(node.type)}"
        case k.Operate():
            given = ", ".join(_expression(o) for o in node.operands)
            return f"{node.operation.name}({given})"
        case k.Choose():
            parts = (node.condition, node.then, node.otherwise)
            return f"select({', '.join(_expression(p) for p in parts)})"
        case k.Convert():
            return f"cast({_expression(node.operand)}, {_type(node.type)})"
        case k.Reinterpret():
            return f"bits({_expression(node.operand)}, {_type(node.type)})"
        case k.Broadcast():
            return f"broadcast({_expression(node.operand)}, {_type(node.type)})"
        case k.Element():
            return f"{node.array}[{_expression(node.index)}]:{_type(node.type)}"
        case k.Join():
            return f"join({_expression(node.low)}, {_expression(node.high)})"
        case k.Shuffle():
            lanes = ", ".join(map(str, node.lanes))
            return f"shuffle({_expression(node.first)}, {_expression(node.second)}; {lanes})"
        case k.Numbers():
            return f"{_type(node.type)}({', '.join(map(str, node.values))})"
        case k.Lead():
            return f"lead({node.buffer}, {node.bytes})"
