"""Lowers a group of element-wise stages to one kernel, shaped by a device profile.

Packed tensors of any shape share one kernel, which is told their element count when it runs;
where operands are strided or broadcast, their sizes are constants in the kernel. What the stages
compute is `element`'s to say, how far dimensions merge `collapse`'s, and how they are walked
`cpu`'s or `gpu`'s.
"""

from __future__ import annotations

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder
from dmlc.kernel.collapse import Walk, collapse
from dmlc.kernel.cpu import lower_nest, lower_run
from dmlc.kernel.element import Elements, Read, collect_elements
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.gpu import lower_flat
from dmlc.kernel.schedule import RUN_TIME_COUNT, Limits, Profile
from dmlc.source import UnsupportedError


def lower(
    function: ir.Function, stages: tuple[str, ...], profile: Profile, limits: Limits
) -> k.Kernel:
    """The kernel that computes element-wise stages over one domain.

    Raises `UnsupportedError` where the stages are not element-wise or pass a limit of the target.
    """
    elements = collect_elements(function, stages)
    walk = collapse(elements)
    buffers = _list_buffers(function, elements)
    count = walk.count if isinstance(walk.count, int) else 0
    offset = _largest_offset(walk)
    reached = max(count, offset + 1)
    check_limits(function, reached, len(buffers), limits)
    builder = Builder(elements, walk, profile, limits, buffers)
    if profile.lanes == 1:
        shape = lower_flat(builder)
    elif walk.packed:
        shape = lower_run(builder)
    else:
        shape = lower_nest(builder)
    return k.Kernel(
        function.name,
        buffers,
        builder.scalars,
        shape.launch,
        tuple(shape.body),
        find_index_bits(max(count, offset), limits),
        tuple(describe_stage(function, name) for name in stages),
        shape.walk,
    )


ACCESS = {
    (True, False): k.Access.READ,
    (False, True): k.Access.WRITE,
    (True, True): k.Access.READ_WRITE,
}
"""By whether a buffer is read and whether it is written."""


def _list_buffers(function: ir.Function, elements: Elements) -> tuple[k.Buffer, ...]:
    """The tensors a kernel touches, in the function's order."""
    read = {v.view.tensor for v in elements.values if isinstance(v, Read)}
    written = {view.tensor for view, _ in elements.results}
    return tuple(
        k.Buffer(name, tensor.dtype, ACCESS[name in read, name in written])
        for name, tensor in function.tensors().items()
        if name in read or name in written
    )


def find_index_bits(largest: int, limits: Limits) -> int:
    """The width of index arithmetic that comes to `largest`."""
    return limits.index_bits if largest > RUN_TIME_COUNT else 32


def _largest_offset(walk: Walk) -> int:
    """The largest element offset of any view, sizes permitting."""
    sizes = [e for e in walk.sizes if isinstance(e, int)]
    if len(sizes) != len(walk.sizes):
        return 0
    return max(
        view.offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        for view, steps in walk.strides.items()
    )


def check_limits(function: ir.Function, reached: int, buffers: int, limits: Limits) -> None:
    """Raises `UnsupportedError` where a kernel has more buffers than the target allows, or reaches
    further into one: `reached` elements."""
    if buffers > limits.buffers:
        raise UnsupportedError(
            f"'{function.name}' needs {buffers} buffers in one kernel, and target "
            f"'{limits.target}' allows {limits.buffers} ({limits.buffers_reason}); "
            "compute it in several operators",
            function.span,
        )
    if reached > limits.elements:
        raise UnsupportedError(
            f"'{function.name}' reaches element {reached:,} of a tensor, and target "
            f"'{limits.target}' allows {limits.elements:,} ({limits.elements_reason}); "
            "split the tensors",
            function.span,
        )
