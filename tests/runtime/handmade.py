"""Programs written by hand, with no part of the compiler: what the runtime is tested with.

They also show that a `Program` is all that the runtime needs.
"""

from __future__ import annotations

from dmlc.codegen.opencl_host import OPENCL_C
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

CHUNK = 4096

F32, F16, BF16, U32 = DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.UINT32

_RELU_GRAD = """
__kernel void relu_grad(__global const {type} *x, __global const {type} *dy,
                        __global {type} *dx, const {count} n)
{{
    const {count} start = get_group_id(0) * ({count}){chunk};
    const {count} end = min(n, start + ({count}){chunk});
    for ({count} i = start; i < end; ++i) {{
        dx[i] = {condition} ? dy[i] : ({type})0;
    }}
}}
"""
# On the raw bits of a 16-bit float: positive, not zero, not NaN.
_CONDITIONS = {
    F32: ("float", "x[i] > 0"),
    F16: ("ushort", "(ushort)(x[i] - 1) < 0x7c00"),
    BF16: ("ushort", "(ushort)(x[i] - 1) < 0x7f80"),
}


def relu_grad(
    dtype: DataType = F32,
    *,
    bits: int = 32,
    in_place: tuple[str, ...] = ("dY",),
    max_count: int = 2**31 - 1,
) -> Program:
    """`dX = X > 0 ? dY : 0` over any packed arrays of one shape."""
    kind, condition = _CONDITIONS[dtype]
    source = _RELU_GRAD.format(
        type=kind, condition=condition, chunk=CHUNK, count="uint" if bits == 32 else "ulong"
    )
    kernel = KernelSource(
        name="relu_grad",
        entry_point="relu_grad",
        source=source,
        buffers=(
            BufferBinding("x", "X", dtype, False, True, 0),
            BufferBinding("dy", "dY", dtype, False, True, 1),
            BufferBinding("dx", "dX", dtype, True, False, 2),
        ),
        scalars=(ScalarBinding("n", "n", bits, 3, 0),),
        dispatch=Dispatch("n", CHUNK, 1),
    )
    tensors = (
        TensorSpec("X", Role.INPUT, dtype, ("n",)),
        TensorSpec("dY", Role.INPUT, dtype, ("n",)),
        TensorSpec("dX", Role.OUTPUT, dtype, ("n",), in_place=in_place),
    )
    return Program("relu_grad", OPENCL_C, "cpu", tensors, (kernel,), max_count)


def add_one(
    extents: tuple[int, ...],
    strides: tuple[int, ...] | None,
    index: str,
    out_strides: tuple[int, ...] | None = None,
    out_index: str = "i",
) -> Program:
    """`B = A + 1` over fixed sizes. `index` and `out_index` give an element's place in memory
    from its number `i` in C order."""
    count = 1
    for extent in extents:
        count *= extent
    kernel = KernelSource(
        name="add_one",
        entry_point="add_one",
        source=f"""
__kernel void add_one(__global const float *a, __global float *b)
{{
    const uint i = get_global_id(0);
    b[{out_index}] = a[{index}] + 1;
}}
""",
        buffers=(
            BufferBinding("a", "A", F32, False, True, 0),
            BufferBinding("b", "B", F32, True, False, 1),
        ),
        scalars=(),
        dispatch=Dispatch(count, 1, 1),
    )
    tensors = (
        TensorSpec("A", Role.INPUT, F32, extents, strides),
        TensorSpec("B", Role.OUTPUT, F32, extents, out_strides),
    )
    return Program("add_one", OPENCL_C, "cpu", tensors, (kernel,), 2**31 - 1)


def square_then_double() -> Program:
    """`S = A * A; B = 2 * S; C = S + A` in two kernels, with S in scratch memory."""
    first = KernelSource(
        name="square",
        entry_point="square",
        source="""
__kernel void square(__global const float *a, __global float *s)
{
    const uint i = get_global_id(0);
    s[i] = a[i] * a[i];
}
""",
        buffers=(
            BufferBinding("a", "A", F32, False, True, 0),
            BufferBinding("s", "S", F32, True, False, 1),
        ),
        scalars=(),
        dispatch=Dispatch("n", 1, 1),
    )
    second = KernelSource(
        name="finish",
        entry_point="finish",
        source="""
__kernel void finish(const uint factor, __global const float *s, __global const float *a,
                     __global float *b, __global float *c)
{
    const uint i = get_global_id(0);
    b[i] = factor * s[i];
    c[i] = s[i] + a[i];
}
""",
        buffers=(
            BufferBinding("s", "S", F32, False, True, 1),
            BufferBinding("a", "A", F32, False, True, 2),
            BufferBinding("b", "B", F32, True, False, 3),
            BufferBinding("c", "C", F32, True, False, 4),
        ),
        scalars=(ScalarBinding("factor", 2, 32, 0, 0),),
        dispatch=Dispatch("n", 1, 1),
        after=(0,),
    )
    tensors = (
        TensorSpec("A", Role.INPUT, F32, ("n",)),
        TensorSpec("S", Role.SCRATCH, F32, ("n",)),
        TensorSpec("B", Role.OUTPUT, F32, ("n",)),
        TensorSpec("C", Role.OUTPUT, F32, ("n",)),
    )
    return Program("square_then_double", OPENCL_C, "cpu", tensors, (first, second), 2**31 - 1)


def count_up() -> Program:
    """`A = 0, 1, 2, ...`: an output and no input."""
    kernel = KernelSource(
        name="count_up",
        entry_point="count_up",
        source="""
__kernel void count_up(__global uint *a)
{
    a[get_global_id(0)] = get_global_id(0);
}
""",
        buffers=(BufferBinding("a", "A", U32, True, False, 0),),
        scalars=(),
        dispatch=Dispatch("n", 1, 1),
    )
    tensors = (TensorSpec("A", Role.OUTPUT, U32, ("n",)),)
    return Program("count_up", OPENCL_C, "cpu", tensors, (kernel,), 1000)
