"""ReLU gradient in HLSL as a tutorial would write it: one thread per element, nothing else."""

from __future__ import annotations

from dmlc.codegen.hlsl_host import HLSL
from dmlc.program import (
    BufferBinding,
    Dispatch,
    KernelSource,
    Program,
    Role,
    ScalarBinding,
    TensorSpec,
)
from dmlc.scalars import DataType

_ROW = 65535
_GROUP = 256

_SOURCE = """\
StructuredBuffer<{type}> X : register(t0);
StructuredBuffer<{type}> dY : register(t1);
RWStructuredBuffer<{type}> dX : register(u0);

cbuffer Arguments : register(b0) {{ uint n; }};

[numthreads({group}, 1, 1)]
void main(uint3 group_id : SV_GroupID, uint lane : SV_GroupIndex)
{{
    uint i = (group_id.y * {row} + group_id.x) * {group} + lane;
    if (i < n)
        dX[i] = X[i] > 0 ? dY[i] : ({type})0;
}}
"""

_TYPES = {DataType.FLOAT32: "float", DataType.FLOAT16: "float16_t"}


def make_naive(dtype: DataType) -> Program:
    """The program for packed `InputTensor`, `InputGradientTensor` and `OutputGradientTensor`."""
    names = {"X": "InputTensor", "dY": "InputGradientTensor", "dX": "OutputGradientTensor"}
    roles = {"X": Role.INPUT, "dY": Role.INPUT, "dX": Role.OUTPUT}
    slots = {"X": 0, "dY": 1, "dX": 0}
    buffers = tuple(
        BufferBinding(
            name, names[name], dtype, role is Role.OUTPUT, role is Role.INPUT, slots[name],
            dtype.bytes,
        )
        for name, role in roles.items()
    )  # fmt: skip
    kernel = KernelSource(
        "naive",
        "main",
        _SOURCE.format(type=_TYPES[dtype], row=_ROW, group=_GROUP),
        buffers,
        (ScalarBinding("n", "n", 32, 3, 0),),
        Dispatch("n", _GROUP, _GROUP, _ROW),
        shader_model="6.2",
    )
    tensors = tuple(TensorSpec(names[name], role, dtype, ("n",)) for name, role in roles.items())
    return Program("naive", HLSL, "gpu", tensors, (kernel,), 2**31 - 1, elementwise=True)
