"""Runs the shaders of exported files on a Vulkan device, from what the files say alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import dmlc
from dmlc import TensorDesc
from dmlc.codegen.hlsl_host import HLSL
from dmlc.interop.proof import Proof, find_example, prove
from dmlc.program import (
    BufferBinding,
    Dispatch,
    KernelSource,
    Program,
    Role,
    ScalarBinding,
    TensorSpec,
)
from dmlc.runtime import vulkan
from dmlc.runtime.dxc import Reflection, compile_dxil, reflect
from dmlc.scalars import Array, DataType
from tests.library.run import list_unlike

OF_BYTES = ("directml.DYNAMIC_QUANTIZE_LINEAR", "directml.ELEMENT_WISE_IF")
"""Operators that have tensors of 8 bits always, which HLSL's buffers do not hold."""
OPERATORS = tuple(name for name in list_unlike() if name not in OF_BYTES)


def describe(
    *sizes: int, dtype: str = "FLOAT32", strides: tuple[int, ...] | None = None
) -> TensorDesc:
    return TensorDesc(dtype, sizes, strides)


def example(name: str) -> Proof:
    return find_example(dmlc.operator(name))


def parse(text: str, tensors: Mapping[str, TensorDesc], **attributes: object) -> Proof:
    """The proof of the one operator in a text."""
    return prove(next(iter(dmlc.parse(text).operators.values())), tensors, attributes)


def dispatch(
    source: str,
    arguments: Sequence[str],
    bound: Mapping[str, Array],
    constants: Array | None,
    groups: Sequence[int],
) -> Reflection:
    """Runs a shader over buffers, each by its name in the source, as lines of elements."""
    entry = arguments[arguments.index("-E") + 1]
    model = arguments[arguments.index("-T") + 1].removeprefix("cs_").replace("_", ".")
    reflection = reflect(compile_dxil(source, entry, shader_model=model).code)
    program = _make_program(source, entry, model, reflection, bound, constants, groups)
    outputs = {t.name: bound[t.name] for t in program.outputs}
    vulkan.load(program)({t.name: bound[t.name] for t in program.inputs}, outputs)
    return reflection


def _make_program(
    source: str,
    entry: str,
    model: str,
    reflection: Reflection,
    bound: Mapping[str, Array],
    constants: Array | None,
    groups: Sequence[int],
) -> Program:
    """A program around a shader, as DXC's reflection and the buffers describe it."""
    tensors: list[TensorSpec] = []
    buffers: list[BufferBinding] = []
    scalars: list[ScalarBinding] = []
    for resource in reflection.resources:
        kind = resource.kind.register_class
        if kind == "b":
            assert constants is not None
            scalars = [
                ScalarBinding(c.name, _read_scalar(constants, c.offset, c.size), 8 * c.size, 0,
                              c.offset)
                for c in reflection.constants
            ]  # fmt: skip
            continue
        array = bound[resource.name]
        dtype = next(t for t in DataType if t.dtype == array.dtype)
        written = kind == "u"
        role = Role.OUTPUT if written else Role.INPUT
        # With strides, what memory holds before the launch is seen.
        tensors.append(
            TensorSpec(resource.name, role, dtype, array.shape, (1,) if written else None)
        )
        buffers.append(
            BufferBinding(
                resource.name,
                resource.name,
                dtype,
                written,
                not written,
                resource.slot,
                resource.stride,
            )
        )
    assert list(groups[1:]) == [1, 1]
    launch = Dispatch(groups[0], 1, reflection.group_size[0], None)
    kernel = KernelSource(
        "replayed", entry, source, tuple(buffers), tuple(scalars), launch, shader_model=model
    )
    return Program("replayed", HLSL, "gpu", tuple(tensors), (kernel,), 1 << 31)


def _read_scalar(constants: Array, offset: int, size: int) -> int:
    return int(constants[offset : offset + size].view(f"u{size}")[0])


def spoil(values: Array, place: int, expected: Array, bounds: Array, dtype: DataType) -> Array:
    """A line of elements of which one is ten bounds off, upwards at even places and else downwards;
    where none is allowed, a step. A BOOL becomes the other one; NaN and infinities become 0,
    whatever their bounds."""
    found = values.copy().view(dtype.dtype).reshape(-1)
    wanted = expected.reshape(-1).view(dtype.dtype)[place]
    sign = -1 if place % 2 else 1
    if dtype.is_float and not np.isfinite(wanted.astype(np.float64)):
        found[place] = 0
    elif bounds[place] > 0:
        found[place] = wanted.astype(np.float64) + sign * 10 * bounds[place]
    elif dtype.is_float:
        found[place] = np.nextafter(wanted, dtype.dtype.type(sign * np.inf))
    else:
        found[place] = not wanted if dtype is DataType.BOOL else wanted + 1
    return found.view(values.dtype).reshape(values.shape)
