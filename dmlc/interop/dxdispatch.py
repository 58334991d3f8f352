"""Models for DxDispatch: a proof to run on a Windows machine with a GPU.

DxDispatch, of Microsoft's DirectML repository, runs a JSON model on a Direct3D 12 device. The model
made here has the generated shaders and, if DirectML has an operator of the same name, that operator
on the same inputs. It writes the results of both, for `dmlc compare`.

Source of the format: the DxDispatch guide; `model.schema.json` beside this file states it as a JSON
schema."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlc import library
from dmlc.binding.values import Constant, EnumValue
from dmlc.codegen.names import make_comment
from dmlc.files import name_file
from dmlc.interop.proof import Proof, buffer_bytes, count_elements, place, unwritten
from dmlc.ir import Function, fixed_strides
from dmlc.pipeline import compile
from dmlc.processes import spell_command
from dmlc.program import KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.runtime.hlsl import compile_kernel
from dmlc.scalars import Array, DataType
from dmlc.shader_model import dxil_arguments
from dmlc.source import UnavailableError, counted

CONSTANT_BUFFER_BYTES = 256
"""Direct3D 12 aligns constant buffer views to this."""
CONSTANT_BUFFER = "Arguments"
"""The constant buffer's name in generated shaders."""

_DIRECTML = "directml."
_NO_OPERATOR = "NONE"
_PARAMETERS = "Parameters"
"""What stands behind the name of an attribute that names an operator, in the name of the attribute
with the parameters of that operator, in the order of its own table."""
_SIZE_2D = ("Width", "Height")
_STRUCTURES = {"ScaleSize": _SIZE_2D, "PooledSize": _SIZE_2D, "ScaleBias": ("Scale", "Bias")}
"""The attributes that are structures in the API, and their fields."""
_ABSENT = frozenset({DataType.BFLOAT16, DataType.BOOL})
"""Types that DirectML's tensors do not have."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileComparison:
    """Two array files to compare, and the options of `dmlc compare` for them."""

    actual: str
    expected: str
    bounds: tuple[str, ...]
    """The files that say how far each of the two may be off; of what is exact, none."""
    dtype: DataType
    elements: int | None = None
    """How many elements count, where DxDispatch writes more: buffers hold whole structures."""

    def arguments(self) -> tuple[str, ...]:
        """Arguments of `dmlc compare`."""
        bounds = [part for bound in self.bounds for part in ("--bounds", bound)]
        words = ["--bfloat16"] if self.dtype is DataType.BFLOAT16 else []
        count = [] if self.elements is None else ["--elements", str(self.elements)]
        return (self.actual, self.expected, *bounds, *words, *count)


@dataclasses.dataclass(frozen=True, slots=True)
class DispatchModel:
    """Model with the files that it names, by paths relative to the model's folder."""

    name: str
    content: dict[str, Any]
    files: Mapping[str, bytes]
    """The shaders and the inputs as `.npy`; `expected.NAME.npy` is what the reference gives, and
    `bound.NAME.npy` how far a right result may be from it at each element."""
    comparisons: tuple[FileComparison, ...]
    """What to compare after the model has run."""
    left_out: tuple[str, ...] = ()
    """What is left out of the comparisons with DirectML, a line each."""

    def list_commands(self) -> list[str]:
        """Commands to run in the model's folder on the target machine."""
        model = spell_command("dxdispatch.exe", name_file(self.name, ".json"), platform="win32")
        compare = (
            spell_command("dmlc", "compare", *c.arguments(), platform="win32")
            for c in self.comparisons
        )
        return [model, *compare]

    def all_files(self) -> dict[str, bytes]:
        """All files to write: the model, the files that it names, and a README with the
        commands."""
        text = json.dumps(self.content, indent=2) + "\n"
        commands = "".join(f"    {command}\n" for command in self.list_commands())
        readme = (
            f"{self.name}: a model for DxDispatch, of Microsoft's DirectML repository.\n"
            f"On Windows, in this folder:\n\n{commands}\n"
            "Each comparison says how near the results are, and leaves with 1 where one of them is "
            "too far off.\n"
        )
        if self.left_out:
            lines = "".join(f"    {line}\n" for line in self.left_out)
            readme += (
                f"\nDirectML is known to give something else here, which is left out of the "
                f"comparison with it:\n\n{lines}"
            )
        return {
            name_file(self.name, ".json"): text.encode(),
            "README.txt": readme.encode(),
            **self.files,
        }


def make_model(proof: Proof, shader_model: str | None = None) -> DispatchModel:
    """Model of a proof. Raises `DmlcError` if HLSL cannot express it."""
    function = proof.function
    program = compile(function, "hlsl", root_signature=False, shader_model=shader_model)
    program.refuse_repeats("a model dispatches each kernel once")
    files = {name_file(p.name, ".hlsl"): p.source.encode() for p in program.kernels}
    files |= {
        name_file(name, ".npy"): _encode(
            place(program.tensor(name), array, np.zeros(1, array.dtype))
        )
        for name, array in proof.inputs.items()
    }
    for name, array in proof.expected.items():
        tensor = program.tensor(name)
        files[f"expected.{name}.npy"] = _encode(place(tensor, array, unwritten(tensor.dtype)))
        files[_bound_file(name)] = _encode(place(tensor, proof.allowed[name], np.zeros(1)))
    files |= {name_file(t.name, ".npy"): _encode(constant_array(t)) for t in program.constants}
    homes = program.scratch_homes()
    sizes = _find_sizes(program, homes)
    resources: dict[str, Any] = {}
    for name, size in sizes.items():
        tensor = program.tensor(name)
        if tensor.role in (Role.INPUT, Role.CONSTANT):
            values = {"sourcePath": name_file(name, ".npy")}
            resources[name] = {"initialValues": values, "sizeInBytes": size}
        else:
            resources[name] = _empty(tensor, size)
    dispatchables: dict[str, Any] = {}
    commands: list[dict[str, Any]] = []
    for kernel in program.kernels:
        dispatchables[kernel.name] = _shader(kernel)
        if kernel.scalars:
            resources[f"{kernel.name}.{CONSTANT_BUFFER}"] = _constants(kernel)
        commands.append(_dispatch(kernel, homes, sizes))
    comparisons: list[FileComparison] = []
    left_out: tuple[str, ...] = ()
    for tensor in program.outputs:
        found, bound = name_file(tensor.name, ".dmlc.npy"), _bound_file(tensor.name)
        commands.append(_write(tensor.name, found))
        expected = f"expected.{tensor.name}.npy"
        elements = _count_filled(tensor, sizes[tensor.name])
        comparisons.append(FileComparison(found, expected, (bound,), tensor.dtype, elements))
    operator = proof.operator
    if operator is not None and _has_directml(operator.name, program):
        names = _name_fields(proof)
        desc = {field: _describe(function, found) for field, found in names.items()}
        desc |= _describe_attributes(proof.attributes)
        kind = f"DML_OPERATOR_{operator.definition.short_name}"
        dispatchables["DirectML"] = {"type": kind, "desc": desc}
        own = {tensor.name: f"{tensor.name}.DirectML" for tensor in program.outputs}
        for tensor in program.outputs:
            resources[own[tensor.name]] = _empty(tensor, sizes[tensor.name])
        bindings = {
            field: own.get(found, found)
            if isinstance(found, str)
            else [own.get(name, name) for name in found]
            for field, found in names.items()
        }
        commands.append({"type": "dispatch", "dispatchable": "DirectML", "bindings": bindings})
        for tensor in program.outputs:
            written = name_file(tensor.name, ".directml.npy")
            commands.append(_write(own[tensor.name], written))
            # Each of the two may be off by the bound.
            bounds = [_bound_file(tensor.name)] * 2
            apart = _find_apart(proof, tensor)
            if apart is not None:
                bounds.append(f"differs.{tensor.name}.npy")
                files[bounds[-1]] = _encode(place(tensor, apart, np.zeros(1)))
            found = name_file(tensor.name, ".dmlc.npy")
            elements = _count_filled(tensor, sizes[tensor.name])
            comparisons.append(
                FileComparison(found, written, tuple(bounds), tensor.dtype, elements)
            )
        left_out = _list_left_out(proof)
    content = {"resources": resources, "dispatchables": dispatchables, "commands": commands}
    return DispatchModel(program.name, content, files, tuple(comparisons), left_out)


def _find_apart(proof: Proof, tensor: TensorSpec) -> Array | None:
    """Further tolerance of each element for DirectML: infinite for elements that a section
    `differs` of the operator names; None if there are none."""
    found = [named[tensor.name] for named in proof.concerned.values() if tensor.name in named]
    return np.where(np.any(found, axis=0), np.inf, 0.0) if found else None


def _list_left_out(proof: Proof) -> tuple[str, ...]:
    """Number of elements that each section `differs` names, in words."""
    return tuple(
        f"{name}: {int(elements.sum())} of {counted(elements.size, 'element')}: {title}"
        for title, named in ((make_comment(t), n) for t, n in proof.concerned.items())
        for name, elements in named.items()
    )


def _count_filled(tensor: TensorSpec, size: int) -> int | None:
    """Number of elements that a tensor's memory spans; None if they fill its buffer."""
    count = count_elements(tensor)
    return None if count * tensor.dtype.bytes == size else count


def _bound_file(name: str) -> str:
    return f"bound.{name}.npy"


# Resources ------------------------------------------------------------------------------------


def _encode(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, _store(array), allow_pickle=False)
    return buffer.getvalue()


def _store(array: Array) -> Array:
    """Elements in a type of DxDispatch: bfloat16 as words, booleans as bytes."""
    if array.dtype == DataType.BOOL.dtype:
        return array.view(np.uint8)
    return array.view(np.uint16) if array.dtype == DataType.BFLOAT16.dtype else array


def _value_type(tensor: TensorSpec) -> str:
    """DxDispatch's type of a buffer's elements."""
    return {DataType.BFLOAT16: "UINT16", DataType.BOOL: "UINT8"}.get(
        tensor.dtype, tensor.dtype.name
    )


def _find_sizes(program: Program, homes: Mapping[str, str]) -> dict[str, int]:
    """Bytes of each buffer. `homes` maps scratch tensors to the tensors whose buffers they
    share."""
    sizes: dict[str, int] = {}
    for tensor in program.tensors:
        home = homes.get(tensor.name, tensor.name)
        sizes[home] = max(buffer_bytes(tensor, program), sizes.get(home, 0))
    return sizes


def _empty(tensor: TensorSpec, size: int) -> dict[str, Any]:
    fill = unwritten(tensor.dtype)
    value = _store(fill)[0].item()
    return {
        "initialValuesDataType": _value_type(tensor),
        # JSON has no number for NaN.
        "initialValues": {
            "valueCount": size // tensor.dtype.bytes,
            "value": "nan" if value != value else value,
        },
    }


def _constants(kernel: KernelSource) -> dict[str, Any]:
    """Constant buffer, padded to each value's offset."""
    values: list[dict[str, Any]] = []
    end = 0
    for scalar in sorted(kernel.scalars, key=lambda s: s.offset):
        while end < scalar.offset:
            values.append({"name": "padding", "type": "UINT32", "value": 0})
            end += 4
        values.append({"name": scalar.name, "type": f"UINT{scalar.bits}", "value": scalar.value})
        end += scalar.bits // 8
    return {
        "initialValuesDataType": "UNKNOWN",
        "initialValues": values,
        "sizeInBytes": CONSTANT_BUFFER_BYTES,
    }


# Dispatchables and commands -------------------------------------------------------------------


def _shader(kernel: KernelSource) -> dict[str, Any]:
    return {
        "type": "hlsl",
        "sourcePath": name_file(kernel.name, ".hlsl"),
        "compiler": "dxc",
        "compilerArgs": dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model),
    }


def _dispatch(
    kernel: KernelSource, homes: Mapping[str, str], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Launch of a kernel, with the view of each buffer. By default DxDispatch would make one
    structure per element in the buffer: too many if a structure has several elements, and too few
    if the last structure is not full."""
    bindings: dict[str, Any] = {}
    used = _find_used(kernel)
    for buffer in kernel.buffers:
        if buffer.name not in used:
            continue
        home = homes.get(buffer.tensor, buffer.tensor)
        count = sizes[home] // buffer.structure_bytes
        bindings[buffer.name] = {"name": home, "elementCount": count}
    if CONSTANT_BUFFER in used:
        bindings[CONSTANT_BUFFER] = f"{kernel.name}.{CONSTANT_BUFFER}"
    return {
        "type": "dispatch",
        "dispatchable": kernel.name,
        "threadGroupCount": list(kernel.dispatch.groups({})),
        "bindings": bindings,
    }


def _find_used(kernel: KernelSource) -> set[str]:
    """Buffers that remain in the compiled kernel; DxDispatch refuses to bind others. Without the
    compiler, all of them."""
    try:
        return {found.name for found in compile_kernel(kernel).reflection.resources}
    except UnavailableError:
        constants = {CONSTANT_BUFFER} if kernel.scalars else set[str]()
        return {buffer.name for buffer in kernel.buffers} | constants


def _write(resource: str, path: str) -> dict[str, Any]:
    return {"type": "writeFile", "resource": resource, "targetPath": path}


def _has_directml(name: str, program: Program) -> bool:
    """Whether DirectML has the operator with these types."""
    known = name.startswith(_DIRECTML)
    return known and not any(t.dtype in _ABSENT for t in program.tensors)


def _name_fields(proof: Proof) -> dict[str, str | list[str]]:
    """Tensors of the function by their field in DirectML's operator description, whose names the
    library's tables have; of an array of tensors, the tensors in order."""
    function = proof.function
    known = [p.name for p in function.parameters] + [r.name for r in function.results]
    fields: dict[str, str | list[str]] = {}
    rows = () if proof.operator is None else proof.operator.definition.newest.tensors
    for row in rows:
        entries = [n for n in known if n.rpartition("_")[0] == row.name and row.array]
        if entries:
            fields[row.name] = sorted(entries, key=lambda n: int(n.rpartition("_")[2]))
        elif row.name in known:
            fields[row.name] = row.name
    return fields


def _describe(function: Function, found: str | Sequence[str]) -> Any:
    if not isinstance(found, str):
        return [_describe(function, name) for name in found]
    parameter, stage = function.parameter(found), function.stage(found)
    if parameter is not None:
        return _tensor_desc(parameter.dtype, parameter.extents, fixed_strides(parameter))
    result = function.result(found)
    strides = None if result is None else fixed_strides(result)
    return None if stage is None else _tensor_desc(stage.dtype, stage.extents, strides)


def _describe_attributes(attributes: Mapping[str, Constant]) -> dict[str, Any]:
    """Attributes as fields of the description. An attribute that names an operator is itself a
    description, left out if absent; some attributes of two numbers are structures."""
    fields: dict[str, Any] = {}
    for name, value in attributes.items():
        if isinstance(value, str):
            if value != _NO_OPERATOR:
                parameters = attributes.get(name + _PARAMETERS)
                fields[name] = _describe_operator(value, parameters)
        elif isinstance(attributes.get(name.removesuffix(_PARAMETERS)), str):
            continue  # It is in the description of that operator.
        elif name in _STRUCTURES and isinstance(value, tuple):
            fields[name] = dict(zip(_STRUCTURES[name], value, strict=True))
        else:
            fields[name] = _attribute(value)
    return fields


def _describe_operator(name: str, parameters: Constant | None) -> dict[str, Any]:
    """Description of an operator that an attribute names, with its own attributes if it has any."""
    described: dict[str, Any] = {"Type": f"DML_OPERATOR_{name}"}
    if isinstance(parameters, tuple) and parameters:
        qualified = _DIRECTML + name
        own = library.find(qualified).operators[qualified].attributes
        pairs = zip(own, parameters, strict=True)
        described["Desc"] = {a.name: _attribute(value) for a, value in pairs}
    return described


def _attribute(value: Constant) -> Any:
    """Attribute in the API's JSON; enums by their full name."""
    match value:
        case EnumValue():
            return f"{value.enum.name}_{value.member}"
        case tuple():
            return [_attribute(item) for item in value]
        case DataType():
            return value.name
        case _:
            return value


def _tensor_desc(
    dtype: DataType, extents: tuple[int | str, ...], strides: tuple[int, ...] | None
) -> dict[str, Any]:
    made: dict[str, Any] = {"DataType": dtype.name, "Sizes": list(extents)}
    if strides is not None:
        made["Strides"] = list(strides)
    return made
