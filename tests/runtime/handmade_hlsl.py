"""HLSL programs written by hand, with no part of the compiler: what the Vulkan host is tested
with."""

from __future__ import annotations

import dataclasses

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

GROUP = 64
ROW = 65535

F32, F16, BF16, U32 = DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.UINT32

_HEAD = """
uint position(uint3 group, uint lane)
{
    return (group.y * 65535 + group.x) * 64 + lane;
}
"""
_MAIN = """
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex)
{
    const uint i = position(group, lane);
"""
_CONDITIONS = {
    F32: ("float", "X[i] > 0.0f"),
    F16: ("float16_t", "X[i] > (float16_t)0"),
    BF16: ("uint16_t", "(uint)X[i] - 1 < 0x7f80"),
}


def make_kernel(
    name: str,
    declarations: str,
    body: str,
    buffers: tuple[BufferBinding, ...],
    scalars: tuple[ScalarBinding, ...],
    count: int | str,
    after: tuple[int, ...] = (),
    row: int | None = ROW,
) -> KernelSource:
    source = f"{declarations}{_HEAD}{_MAIN}{body}}}\n"
    bound = tuple(
        dataclasses.replace(b, structure_bytes=b.structure_bytes or b.dtype.bytes) for b in buffers
    )
    dispatch = Dispatch(count, GROUP, GROUP, row)
    return KernelSource(name, "main", source, bound, scalars, dispatch, after, "6.2")


def relu_grad(dtype: DataType = F32, *, elementwise: bool = True, row: int | None = ROW) -> Program:
    """`dX = X > 0 ? dY : 0` over any packed arrays of one shape."""
    kind, condition = _CONDITIONS[dtype]
    kernel = make_kernel(
        "relu_grad",
        f"""
StructuredBuffer<{kind}> X : register(t0);
StructuredBuffer<{kind}> dY : register(t1);
RWStructuredBuffer<{kind}> dX : register(u0);
cbuffer Arguments : register(b0) {{ uint n; }};
""",
        f"""
    if (i < n) {{
        const bool passes = {condition};
        dX[i] = passes ? dY[i] : ({kind})0;
    }}
""",
        (
            BufferBinding("X", "X", dtype, False, True, 0),
            BufferBinding("dY", "dY", dtype, False, True, 1),
            BufferBinding("dX", "dX", dtype, True, False, 0),
        ),
        (ScalarBinding("n", "n", 32, 3, 0),),
        "n",
        row=row,
    )
    tensors = (
        TensorSpec("X", Role.INPUT, dtype, ("n",)),
        TensorSpec("dY", Role.INPUT, dtype, ("n",)),
        TensorSpec("dX", Role.OUTPUT, dtype, ("n",)),
    )
    return Program("relu_grad", HLSL, "gpu", tensors, (kernel,), 2**31 - 1, elementwise)


def add_one(
    extents: tuple[int, ...],
    strides: tuple[int, ...] | None,
    index: str,
    out_strides: tuple[int, ...] | None = None,
    out_index: str = "i",
    row: int | None = ROW,
) -> Program:
    """`B = A + 1` over fixed sizes. `index` and `out_index` give an element's place in memory
    from its number `i` in C order."""
    count = 1
    for extent in extents:
        count *= extent
    kernel = make_kernel(
        "add_one",
        """
StructuredBuffer<float> A : register(t0);
RWStructuredBuffer<float> B : register(u0);
""",
        f"""
    if (i < {count}) {{
        B[{out_index}] = A[{index}] + 1.0f;
    }}
""",
        (
            BufferBinding("A", "A", F32, False, True, 0),
            BufferBinding("B", "B", F32, True, False, 0),
        ),
        (),
        count,
        row=row,
    )
    tensors = (
        TensorSpec("A", Role.INPUT, F32, extents, strides),
        TensorSpec("B", Role.OUTPUT, F32, extents, out_strides),
    )
    return Program("add_one", HLSL, "gpu", tensors, (kernel,), 2**31 - 1)


def square_then_double() -> Program:
    """`S = A * A; B = factor * S; C = S + A` in two kernels, with S in scratch memory."""
    first = make_kernel(
        "square",
        """
StructuredBuffer<float> A : register(t0);
RWStructuredBuffer<float> S : register(u0);
cbuffer Arguments : register(b0) { uint n; };
""",
        """
    if (i < n) {
        S[i] = A[i] * A[i];
    }
""",
        (
            BufferBinding("A", "A", F32, False, True, 0),
            BufferBinding("S", "S", F32, True, False, 0),
        ),
        (ScalarBinding("n", "n", 32, 2, 0),),
        "n",
    )
    # It reads element n - 1 - i, which another work group of the first kernel stored.
    second = make_kernel(
        "finish",
        """
StructuredBuffer<float> S : register(t0);
StructuredBuffer<float> A : register(t1);
RWStructuredBuffer<float> B : register(u0);
RWStructuredBuffer<float> C : register(u1);
cbuffer Arguments : register(b0) { uint64_t factor; uint n; };
""",
        """
    if (i < n) {
        B[i] = (float)factor * S[n - 1 - i];
        C[i] = S[i] + A[i];
    }
""",
        (
            BufferBinding("S", "S", F32, False, True, 0),
            BufferBinding("A", "A", F32, False, True, 1),
            BufferBinding("B", "B", F32, True, False, 0),
            BufferBinding("C", "C", F32, True, False, 1),
        ),
        (ScalarBinding("factor", 2, 64, 4, 0), ScalarBinding("n", "n", 32, 5, 8)),
        "n",
        after=(0,),
    )
    tensors = (
        TensorSpec("A", Role.INPUT, F32, ("n",)),
        TensorSpec("S", Role.SCRATCH, F32, ("n",)),
        TensorSpec("B", Role.OUTPUT, F32, ("n",)),
        TensorSpec("C", Role.OUTPUT, F32, ("n",)),
    )
    return Program("square_then_double", HLSL, "gpu", tensors, (first, second), 2**31 - 1)


def count_up() -> Program:
    """`A = 0, 1, 2, ...`: an output and no input."""
    kernel = make_kernel(
        "count_up",
        """
RWStructuredBuffer<uint> A : register(u0);
cbuffer Arguments : register(b0) { uint n; };
""",
        """
    if (i < n) {
        A[i] = i;
    }
""",
        (BufferBinding("A", "A", U32, True, False, 0),),
        (ScalarBinding("n", "n", 32, 1, 0),),
        "n",
    )
    tensors = (TensorSpec("A", Role.OUTPUT, U32, ("n",)),)
    return Program("count_up", HLSL, "gpu", tensors, (kernel,), 1000)


def sum_of(inputs: int) -> Program:
    """`Y = X0 + X1 + ...` of so many inputs, each a buffer of its own."""
    names = [f"X{k}" for k in range(inputs)]
    kernel = make_kernel(
        "sum_of",
        "".join(
            f"StructuredBuffer<float> {name} : register(t{k});\n" for k, name in enumerate(names)
        )
        + """RWStructuredBuffer<float> Y : register(u0);
cbuffer Arguments : register(b0) { uint n; };
""",
        f"""
    if (i < n) {{
        Y[i] = {" + ".join(f"{name}[i]" for name in names)};
    }}
""",
        (
            *(BufferBinding(name, name, F32, False, True, k) for k, name in enumerate(names)),
            BufferBinding("Y", "Y", F32, True, False, 0),
        ),
        (ScalarBinding("n", "n", 32, inputs + 1, 0),),
        "n",
    )
    tensors = (
        *(TensorSpec(name, Role.INPUT, F32, ("n",)) for name in names),
        TensorSpec("Y", Role.OUTPUT, F32, ("n",)),
    )
    return Program("sum_of", HLSL, "gpu", tensors, (kernel,), 2**31 - 1, elementwise=True)
