"""WGSL programs written by hand, with no part of the compiler: what the WebGPU host is tested
with."""

from __future__ import annotations

from dmlc.codegen.wgsl_host import WGSL_LANGUAGE
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

F32, F16 = DataType.FLOAT32, DataType.FLOAT16

GROUP = 64

_RELU_GRAD = """
{enable}
@group(0) @binding(0) var<storage, read> X: array<{type}>;
@group(0) @binding(1) var<storage, read> dY: array<{type}>;
@group(0) @binding(2) var<storage, read_write> dX: array<{type}>;
struct Arguments {{ n: u32 }}
@group(0) @binding(3) var<uniform> arguments: Arguments;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let i = (group.y * 65535 + group.x) * 64 + lane;
    if (i < arguments.n) {{
        dX[i] = select(0, dY[i], X[i] > 0);
    }}
}}
"""


def relu_grad(dtype: DataType = F32, *, elementwise: bool = True) -> Program:
    """`dX = X > 0 ? dY : 0` over any packed arrays of one shape."""
    source = _RELU_GRAD.format(
        type="f16" if dtype is F16 else "f32", enable="enable f16;" if dtype is F16 else ""
    )
    kernel = KernelSource(
        "relu_grad",
        "main",
        source,
        (
            BufferBinding("X", "X", dtype, False, True, 0),
            BufferBinding("dY", "dY", dtype, False, True, 1),
            BufferBinding("dX", "dX", dtype, True, False, 2),
        ),
        (ScalarBinding("n", "n", 32, 3, 0),),
        Dispatch("n", GROUP, GROUP, 65535),
    )
    tensors = (
        TensorSpec("X", Role.INPUT, dtype, ("n",)),
        TensorSpec("dY", Role.INPUT, dtype, ("n",)),
        TensorSpec("dX", Role.OUTPUT, dtype, ("n",)),
    )
    return Program(
        "relu_grad", WGSL_LANGUAGE, "gpu", tensors, (kernel,), 2**31 - 1, elementwise=elementwise
    )
