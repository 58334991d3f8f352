"""Models for DxDispatch: a proof to run on a Windows machine with a GPU.

DxDispatch, of Microsoft's DirectML repository, runs a JSON model on a Direct3D 12 device. The
model made here holds the generated shaders and, where DirectML has an operator of the same name,
that operator on the same inputs; it writes what each of them gives, for `dmlc compare`. Source of
the format: the DxDispatch guide; `model.schema.json` beside this file says it as a JSON schema.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc
from dmlc.binding.values import Constant, EnumValue
from dmlc.ir import Function
from dmlc.oracle import find_expected
from dmlc.pipeline import compile
from dmlc.program import KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.scalars import Array, DataType
from dmlc.shader_model import dxil_arguments
from dmlc.source import DmlcError, UnsupportedError
from dmlc.testing.bounds import bound_errors

CONSTANT_BUFFER_BYTES = 256
"""Direct3D 12 aligns constant buffer views to this."""
CONSTANT_BUFFER = "Arguments"
"""The constant buffer's name in generated shaders."""

_DIRECTML = "directml."
_ABSENT = frozenset({DataType.BFLOAT16, DataType.BOOL})
"""Types that DirectML's tensors do not have."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileComparison:
    """Two array files to compare, and what `dmlc compare` has to know of them."""

    actual: str
    expected: str
    bounds: tuple[str, ...]
    """The files that say how far each of the two may be off; of what is exact, none."""
    dtype: DataType

    def arguments(self) -> tuple[str, ...]:
        """The arguments of `dmlc compare`."""
        bounds = [part for bound in self.bounds for part in ("--bounds", bound)]
        words = ["--bfloat16"] if self.dtype is DataType.BFLOAT16 else []
        return (self.actual, self.expected, *bounds, *words)


@dataclasses.dataclass(frozen=True, slots=True)
class DispatchModel:
    """A model and the files it names. Paths are relative to the model's folder."""

    content: dict[str, Any]
    files: Mapping[str, bytes]
    """The shaders and the inputs as `.npy`; `expected.NAME.npy` is what the reference gives, and
    `bound.NAME.npy` how far a right result may be from it at each element."""
    comparisons: tuple[FileComparison, ...]
    """What to compare after the model has run."""

    def all_files(self, name: str) -> dict[str, bytes]:
        """Every file to write: the model as `NAME.json`, and what it names."""
        text = json.dumps(self.content, indent=2) + "\n"
        return {f"{name}.json": text.encode(), **self.files}


def make_model(
    subject: Operator | Graph,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    seed: int = 0,
    shader_model: str | None = None,
    dims: Mapping[str, int] | None = None,
    contract: bool = False,
) -> DispatchModel:
    """The model of an operator with these tensors and attributes, or of a graph with these
    symbols, on random inputs.

    Every input needs its sizes. Raises `DmlcError` without them, and whatever binding and
    compiling raise.
    """
    if isinstance(subject, Graph):
        function = subject.bind(tensors, dims)
    else:
        function = subject.bind(tensors, attributes)
    if function.symbols():
        raise DmlcError(
            f"a DxDispatch model needs the sizes of {subject.name}'s tensors",
            notes=["give them: --tensor NAME=FLOAT32[2,3]"],
        )
    program = compile(
        function, "hlsl", root_signature=False, shader_model=shader_model, contract=contract
    )
    inputs = {t.name: _make_input(t, seed + k) for k, t in enumerate(program.inputs)}
    expected, bounds = find_expected(function, inputs), bound_errors(function, inputs)
    files = {
        f"{name}.npy": _encode(_lay_out(program.tensor(name), a)) for name, a in inputs.items()
    }
    files |= {f"{p.name}.hlsl": p.source.encode() for p in program.kernels}
    files |= {
        f"expected.{name}.npy": _encode(_lay_out(program.tensor(name), a))
        for name, a in expected.items()
    }
    files |= {
        f"bound.{name}.npy": _encode(_lay_out(program.tensor(name), a))
        for name, a in bounds.items()
    }
    homes = program.scratch_homes()
    resources: dict[str, Any] = {n: {"initialValues": {"sourcePath": f"{n}.npy"}} for n in inputs}
    for tensor in program.tensors:
        if tensor.role is Role.CONSTANT:
            files[f"{tensor.name}.npy"] = _encode(constant_array(tensor))
            resources[tensor.name] = {"initialValues": {"sourcePath": f"{tensor.name}.npy"}}
        elif tensor.role is not Role.INPUT and homes.get(tensor.name, tensor.name) == tensor.name:
            resources[tensor.name] = _empty(tensor)
    dispatchables: dict[str, Any] = {}
    commands: list[dict[str, Any]] = []
    for kernel in program.kernels:
        dispatchables[kernel.name] = _shader(kernel)
        if kernel.scalars:
            resources[f"{kernel.name}.{CONSTANT_BUFFER}"] = _constants(kernel)
        commands.append(_dispatch(kernel, homes))
    comparisons: list[FileComparison] = []
    for tensor in program.outputs:
        commands.append(_write(tensor.name, f"{tensor.name}.dmlc.npy"))
        bound = f"bound.{tensor.name}.npy"
        comparisons.append(
            FileComparison(
                f"{tensor.name}.dmlc.npy", f"expected.{tensor.name}.npy", (bound,), tensor.dtype
            )
        )
    if isinstance(subject, Operator) and _has_directml(subject, program):
        desc = _operator_desc(subject, function, tensors, attributes)
        short = subject.definition.short_name
        dispatchables["DirectML"] = {"type": f"DML_OPERATOR_{short}", "desc": desc}
        bindings = {t.name: t.name for t in program.inputs}
        for tensor in program.outputs:
            resources[f"{tensor.name}.DirectML"] = _empty(tensor)
            bindings[tensor.name] = f"{tensor.name}.DirectML"
        commands.append({"type": "dispatch", "dispatchable": "DirectML", "bindings": bindings})
        for tensor in program.outputs:
            name = f"{tensor.name}.directml.npy"
            commands.append(_write(f"{tensor.name}.DirectML", name))
            # Each of the two may be off by the bound.
            bound = f"bound.{tensor.name}.npy"
            comparisons.append(
                FileComparison(f"{tensor.name}.dmlc.npy", name, (bound, bound), tensor.dtype)
            )
    content = {"resources": resources, "dispatchables": dispatchables, "commands": commands}
    return DispatchModel(content, files, tuple(comparisons))


# Resources ------------------------------------------------------------------------------------


def _sizes(tensor: TensorSpec) -> tuple[int, ...]:
    return tuple(e for e in tensor.extents if isinstance(e, int))


def _elements(tensor: TensorSpec) -> int:
    """How many elements the tensor's memory spans."""
    return TensorDesc(tensor.dtype, _sizes(tensor), tensor.strides).last_offset + 1


def _make_input(tensor: TensorSpec, seed: int) -> Array:
    """Random values of both signs, with zeros of both signs among those of a float."""
    random = np.random.default_rng(seed)
    sizes = _sizes(tensor)
    if 0 in sizes:
        raise UnsupportedError(f"'{tensor.name}' is empty: there is nothing to dispatch")
    if tensor.dtype is DataType.BOOL:
        return random.random(sizes) < 0.5
    if tensor.dtype.is_float:
        values = random.standard_normal(sizes)
        values = np.where(random.random(sizes) < 0.05, np.copysign(0.0, values), values)
        return values.astype(tensor.dtype.dtype)
    low = -50 if np.iinfo(tensor.dtype.dtype).min else 0
    return random.integers(low, 50, sizes).astype(tensor.dtype.dtype)


def _lay_out(tensor: TensorSpec, array: Array) -> Array:
    """An array as the tensor's memory holds it: itself where packed, else a line of elements."""
    if tensor.strides is None:
        return array
    memory = np.zeros(_elements(tensor), array.dtype)
    steps = [s * array.itemsize for s in tensor.strides]
    np.lib.stride_tricks.as_strided(memory, array.shape, steps)[...] = array
    return memory


def _encode(array: Array) -> bytes:
    buffer = io.BytesIO()
    stored = array.view(np.uint16) if array.dtype == DataType.BFLOAT16.dtype else array
    np.save(buffer, stored, allow_pickle=False)
    return buffer.getvalue()


def _value_type(tensor: TensorSpec) -> str:
    """The type that DxDispatch knows a buffer's elements by."""
    return "UINT16" if tensor.dtype is DataType.BFLOAT16 else tensor.dtype.name


def _empty(tensor: TensorSpec) -> dict[str, Any]:
    values = {"valueCount": max(1, _elements(tensor)), "value": 0}
    return {"initialValuesDataType": _value_type(tensor), "initialValues": values}


def _constants(kernel: KernelSource) -> dict[str, Any]:
    """A constant buffer, filled up to each value's offset."""
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
        "sourcePath": f"{kernel.name}.hlsl",
        "compiler": "dxc",
        "compilerArgs": dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model),
    }


def _dispatch(kernel: KernelSource, homes: Mapping[str, str]) -> dict[str, Any]:
    """A kernel's launch; `homes` are the resources that scratch tensors share."""
    bindings = {b.name: homes.get(b.tensor, b.tensor) for b in kernel.buffers}
    if kernel.scalars:
        bindings[CONSTANT_BUFFER] = f"{kernel.name}.{CONSTANT_BUFFER}"
    return {
        "type": "dispatch",
        "dispatchable": kernel.name,
        "threadGroupCount": list(kernel.dispatch.groups({})),
        "bindings": bindings,
    }


def _write(resource: str, path: str) -> dict[str, Any]:
    return {"type": "writeFile", "resource": resource, "targetPath": path}


def _has_directml(operator: Operator, program: Program) -> bool:
    """Whether DirectML has the operator, with these types."""
    known = operator.name.startswith(_DIRECTML)
    return known and not any(t.dtype in _ABSENT for t in program.tensors)


def _operator_desc(
    operator: Operator,
    function: Function,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
) -> dict[str, Any]:
    """The operator's description in the API's own field names, which the library's tables have."""
    desc: dict[str, Any] = {}
    strides = {r.name: r.strides for r in function.results}
    for definition in operator.definition.levels[-1].tensors:
        name = definition.name
        parameter, stage = function.parameter(name), function.stage(name)
        if parameter is not None:
            desc[name] = _tensor_desc(parameter.dtype, parameter.extents, parameter.strides)
        elif stage is not None and name in strides:
            desc[name] = _tensor_desc(stage.dtype, stage.domain, strides[name])
    for name, value in operator.resolve(tensors, attributes).attributes.items():
        desc[name] = _attribute(value)
    return desc


def _attribute(value: Constant) -> Any:
    """An attribute as the API's JSON has it; enums by their full name."""
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
