"""Call as code: in Python, on the command line, and in C++ for Direct3D 12."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from dmlc.interop.cpp_header import header_name
from dmlc.interop.cpp_names import CPP
from dmlc.interop.host_names import Names
from dmlc.program import Program, Role, TensorSpec
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError
from dmlc.testing.case import Call, Case, show_tensor, show_value

_WIDTH = 96
_CPP_NAMES = ("op", "list", "pipelines", "buffers")
"""Names in the C++ functions that buffers must not have."""
_SCALARS = {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}


def write_python(case: Case) -> list[str]:
    """Python session that runs a case, with its results."""
    call = case.call
    lines = ["import numpy as np, dmlc"]
    if any(_is_foreign(desc.data_type.dtype) for desc in call.tensors.values()):
        lines[0] += ", ml_dtypes"
    lines += [f"{_variable(n)} = {_spell_array(a)}" for n, a in case.inputs.items()]
    arguments = [[f'"{call.operator.name}"'], _spell_dict("", _list_inputs(case))]
    if call.attributes:
        given = {name: _spell_value(value) for name, value in call.attributes.items()}
        arguments.append(_spell_dict("attributes=", given))
    if wanted := _list_wanted(call):
        arguments.append(_spell_dict("outputs=", {n: str(s) for n, s in wanted.items()}))
    shown = [f">>> {line}" for line in lines]
    first, *others = _break_call("out = dmlc.run(", arguments)
    shown += [f">>> {first}", *(f"... {line}" for line in others)]
    for name, array in case.reference.items():
        shown += [f'>>> out["{name}"]', *repr(array).splitlines()]
    return shown


def _list_inputs(case: Case) -> Mapping[str, str]:
    return {name: _variable(name) for name in case.inputs}


def _spell_dict(head: str, items: Mapping[str, str]) -> list[str]:
    """Dictionary on one line, or with a line for each entry if long."""
    entries = [f'"{name}": {value}' for name, value in items.items()]
    line = f"{head}{{{', '.join(entries)}}}"
    if len(line) <= _WIDTH - 10:
        return [line]
    return [f"{head}{{", *(f"    {entry}," for entry in entries), "}"]


def _list_wanted(call: Call) -> Mapping[str, tuple[Any, ...]]:
    """Sizes of the outputs, if the inputs alone do not determine the call."""
    try:
        alone = call.operator.bind(dict(call.inputs), call.attributes)
    except DmlcError:
        alone = None
    if alone == call.function:
        return {}
    return {name: desc.sizes or () for name, desc in call.outputs.items()}


def _variable(name: str) -> str:
    return name.replace("[", "_").replace("]", "")


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy has the type from another package."""
    return dtype.type.__module__ == "ml_dtypes"


def _spell_array(array: Array) -> str:
    package = "ml_dtypes" if _is_foreign(array.dtype) else "np"
    kind = "bool_" if array.dtype == np.bool_ else array.dtype.name
    if array.size == 0:
        return f"np.zeros({array.shape}, {package}.{kind})"
    return f"np.array({_spell_items(array.tolist())}, {package}.{kind})"


def _spell_items(items: Any) -> str:
    if not isinstance(items, list):
        text = repr(items)
        text = text if text == "-0.0" else text.removesuffix(".0")
        return _SCALARS.get(text, text)
    return f"[{', '.join(map(_spell_items, cast('list[Any]', items)))}]"


def _spell_value(value: object) -> str:
    if isinstance(value, DataType):
        return f'"{value.name}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spell_value, cast('Sequence[object]', value)))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return _SCALARS[repr(value)]
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _break_call(head: str, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Call on one line, or with a line for each argument. Arguments are lists of lines."""
    line = f"{head}{', '.join(lines[0] for lines in arguments)})"
    if len(line) <= _WIDTH and all(len(lines) == 1 for lines in arguments):
        return [line]
    broken = [f"    {line}" for lines in arguments for line in (*lines[:-1], f"{lines[-1]},")]
    return [head, *broken, ")"]


def write_command(command: str, call: Call, *options: str) -> list[str]:
    """Command of `dmlc` on a call, with the options that describe it, and others."""
    described = call.tensors if _list_wanted(call) else call.inputs
    words = ["dmlc", command, call.operator.name]
    words += [f"--tensor '{name}={show_tensor(desc)}'" for name, desc in described.items()]
    words += [f"--attr '{name}={show_value(value)}'" for name, value in call.attributes.items()]
    lines = [""]
    for word in [*words, *options]:
        if len(lines[-1]) + len(word) > _WIDTH:
            lines[-1] += "\\"
            lines.append("    ")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


def write_cpp(program: Program) -> list[str]:
    """Two functions of C++ around the header of a program: one makes the pipelines, and one records
    the call. Each buffer of the program is a parameter."""
    names = Names(program, CPP)
    slots = [(slot, program.tensor(tensor)) for tensor, slot in names.slots.items()]
    parameters = [slot if slot not in _CPP_NAMES else f"{slot}_buffer" for slot, _ in slots]
    return [
        f'#include "{header_name(program)}"',
        "",
        f"namespace op = dmlc::{names.space};",
        "",
        "// Once for a device. `shaders` holds the DXIL of each kernel.",
        "HRESULT prepare(ID3D12Device* device, const op::Shaders& shaders,",
        "    op::Pipelines& pipelines)",
        "{",
        "    return op::create_pipelines(device, shaders, pipelines);",
        "}",
        "",
        "// For each call. The pipelines and the buffers live until the list has run.",
        "HRESULT record(ID3D12GraphicsCommandList* list, const op::Pipelines& pipelines,",
        ",\n".join(f"    ID3D12Resource* {name}" for name in parameters) + ")",
        "{",
        "    op::Buffers buffers;",
        *(
            f"    buffers[op::slot::{slot}].resource = {name}; // {_describe_buffer(tensor)}"
            for name, (slot, tensor) in zip(parameters, slots, strict=True)
        ),
        "    return op::record(list, pipelines, buffers);",
        "}",
    ]


def _describe_buffer(tensor: TensorSpec) -> str:
    sizes = ", ".join(map(str, tensor.extents))
    said = {Role.SCRATCH: "memory between kernels", Role.CONSTANT: "a table: upload its values"}
    return f"{said.get(tensor.role, tensor.role.value)}: {tensor.dtype.name} [{sizes}]"
