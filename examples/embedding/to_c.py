"""A code generator over `dmlc.ir` alone, for a language of one's own: here it is plain C.

`emit(function)` gives one C function of the parameters, the results and the run-time sizes. A stage
is a nest of loops over its extents; a body is flat, so that each of its values is one `const`; and
an operation is a macro of `support.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc import ir

TYPES = {t: f"{t.name.lower()}_t" for t in ir.DataType if t.is_integer}
TYPES |= {ir.DataType.FLOAT32: "float", ir.DataType.FLOAT64: "double"}
TYPES |= {ir.DataType.BOOL: "bool", ir.DataType.INDEX: "int64_t"}


def emit(function: ir.Function) -> str:
    for tensor in function.tensors().values():
        if tensor.dtype not in TYPES:
            raise ValueError(f"%{tensor.name} holds {tensor.dtype.name}, which C has no type for")
    results = [s for s in function.stages if function.result(s.name)]
    scratch = [s for s in function.stages if not function.result(s.name)]
    given = [f"const {TYPES[p.dtype]} *restrict {named(p.name)}" for p in function.parameters]
    given += [f"{TYPES[s.dtype]} *restrict {named(s.name)}" for s in results]
    given += [f"int64_t {symbol}" for symbol in function.symbols()]
    lines = ['#include "support.h"', f"void {function.name}({', '.join(given)}) {{"]
    for t in function.tables:
        values = ", ".join(map(literal, t.constants()))
        lines.append(f"static const {TYPES[t.dtype]} {named(t.name)}[] = {{{values}}};")
    for s in scratch:
        size = " * ".join([f"sizeof({TYPES[s.dtype]})", *(f"({e})" for e in s.extents)])
        lines.append(f"{TYPES[s.dtype]} *{named(s.name)} = malloc({size});")
    stages = [line for s in function.stages for line in emit_stage(function, s)]
    return "\n".join([*lines, *stages, *(f"free({named(s.name)});" for s in scratch), "}", ""])


def emit_stage(function: ir.Function, stage: ir.Stage) -> list[str]:
    body, reduction, outer = stage.body, stage.reduction, len(stage.extents)
    loops = [f"for (int64_t {i.name} = 0; {i.name} < {stage.extent(i)}; {i.name}++) {{"
             for i in stage.indices]  # fmt: skip
    values = [f"const {TYPES[ir.value_type(each)]} v{n} = {spell(function, body, each)};"
              for n, each in enumerate(body.instructions)]  # fmt: skip
    target = place(function, stage.name, [i.name for i in stage.indices[:outer]])
    if reduction is None:
        return [*loops, *values, f"{target} = v{body.result};", "}" * outer]
    if reduction.is_positional:
        raise ValueError(f"%{stage.name} is an {reduction.combiner}, which is left as an exercise")
    combine = reduction.record.operation
    start = literal(ir.Constant(body.dtype, ir.combiner_identity(reduction.combiner, body.dtype)))
    guard = [] if body.guard is None else [f"if (!v{body.guard}) continue;"]
    first = 0 if body.guard is None else body.guard + 1  # A guard's values stand before all others.
    step = f"total = op_{combine.name}({TYPES[body.dtype]}, total, v{body.result});"
    return [*loops[:outer], f"{TYPES[body.dtype]} total = {start};", *loops[outer:],
            *values[:first], *guard, *values[first:], step, "}" * (len(loops) - outer),
            f"{target} = total;", "}" * outer]  # fmt: skip


def spell(function: ir.Function, body: ir.Body, value: ir.Instruction) -> str:
    given = [f"v{operand}" for operand in ir.operands(value)]
    types = [ir.value_type(body.instructions[operand]) for operand in ir.operands(value)]
    match value:
        case ir.Constant():
            return literal(value)
        case ir.Index() | ir.Symbol():
            return value.name
        case ir.Load(tensor):
            return place(function, tensor, given)
        case ir.Select():
            return f"{given[0]} ? {given[1]} : {given[2]}"
        case ir.Apply(operation):
            return f"op_{operation.name}({', '.join([TYPES[types[0]], *given])})"
        case ir.Cast(_, dtype) if types[0].is_float and ir.Operands.INTEGER.accept(dtype):
            least, most = (ir.combiner_identity(c, dtype) for c in ("max", "min"))
            ends = [literal(ir.Constant(dtype, end)) for end in (least, most)]
            return f"op_truncate({', '.join([TYPES[dtype], *ends, *given])})"
        case ir.Cast(_, dtype):
            return f"op_cast({TYPES[dtype]}, {given[0]})"


def place(function: ir.Function, tensor: str, at: Sequence[str]) -> str:
    steps = [f"{i} * ({step})" for i, step in zip(at, function.strides(tensor), strict=True)]
    return f"{named(tensor)}[{' + '.join(steps) or 0}]"


def literal(constant: ir.Constant) -> str:
    value, dtype = constant.value, TYPES[constant.dtype]
    if isinstance(value, float):
        special = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
        return f"({dtype}){special.get(str(value)) or value.hex()}"
    return f"({dtype}){int(value) & 2**64 - 1}u"


def named(tensor: str) -> str:
    """A name that is neither a word of C nor one of a value, a loop or a size."""
    return "t_" + tensor.replace(".", "__")
