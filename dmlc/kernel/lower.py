"""Lowers a group of element-wise stages to one kernel, shaped by a device profile.

Packed tensors of any shape share one kernel, which is told their element count when it runs;
where operands are strided or broadcast, their sizes are constants in the kernel. What the stages
compute is `element`'s to say, how far dimensions merge `collapse`'s, and how they are walked
`cpu`'s or `gpu`'s.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc import ir
from dmlc.ir.ranges import Interval
from dmlc.kernel import nodes as k
from dmlc.kernel import schedule_cpu, schedule_gpu
from dmlc.kernel.collapse import Walk, collapse
from dmlc.kernel.element import Elements, Gather, Read, collect_elements, tensor_strides
from dmlc.kernel.emit import Names
from dmlc.kernel.footprint import measure_footprint
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.lowering import lower_nest
from dmlc.kernel.nest import Kind, Loop, Nest
from dmlc.kernel.nest import walk as walk_nest
from dmlc.kernel.phases import Phase
from dmlc.kernel.precise import name_arithmetic
from dmlc.kernel.schedule import RUN_TIME_COUNT, Limits, Profile
from dmlc.kernel.space import Space
from dmlc.kernel.streaming import Streaming
from dmlc.kernel.tidy import tidy
from dmlc.source import UnsupportedError


def lower(
    function: ir.Function,
    stages: tuple[str, ...],
    profile: Profile,
    limits: Limits,
    near: tuple[str, ...] = (),
) -> k.Kernel:
    """The kernel that computes element-wise stages over one domain; those `near` are for the
    others alone, and have no memory.

    Raises `UnsupportedError` where the stages are reductions or pass a limit of the target.
    """
    elements = collect_elements(function, stages, near)
    walk = collapse(elements)
    buffers = _list_buffers(function, elements, walk)
    count = walk.count if isinstance(walk.count, int) else 0
    offset = max(_largest_offset(walk), find_gathered(function, elements) - 1)
    reached = max(count, offset + 1)
    check_limits(function, reached, len(buffers), limits)
    index = find_index(max(count, offset), elements.reach, limits)
    phase = Phase(elements, Space(walk, tuple(range(len(walk.sizes)))))
    names = Names(b.name for b in buffers)
    scalars: tuple[tuple[k.Scalar, int | str], ...] = ()
    if walk.packed:
        scalars = ((k.Scalar(names.take("n")), walk.count),)
    given = scalars[0][0] if scalars else None
    if profile.lanes == 1:
        paired = _list_paired(phase, limits)
        nest = schedule_gpu.choose_flat(phase, given, paired, profile)
    elif given is not None:
        nest = schedule_cpu.choose_run(phase, given, profile)
    else:
        large = Streaming(buffers, profile.streaming_bytes).is_large()
        nest = schedule_cpu.choose_rows(function, phase, profile, large=large)
    launch, body, arrays = shape_nest(nest, names, profile, limits, buffers)
    if scalars:
        launch = dataclasses.replace(launch, count=walk.count)
    made = k.Kernel(
        function.name,
        buffers,
        scalars,
        launch,
        body,
        index.bits,
        tuple(describe_stage(function, name) for name in stages),
        nest.words,
        arrays,
        index_signed=index.signed,
        stages=stages,
        passes=(stages,),
    )
    return tidy(name_arithmetic(made, limits.precise))


def _list_paired(phase: Phase, limits: Limits) -> list[str]:
    """The results that are stored two to a word. Raises `UnsupportedError` where one has gaps
    between its elements: half a word cannot be stored."""
    paired = [view for view, _ in phase.elements.results if view.dtype in limits.word_types]
    walk = phase.space.walk
    for view in paired:
        if not walk.packed and walk.strides[view] != ir.packed_strides(phase.space.sizes):
            raise UnsupportedError(
                f"'{view.tensor}' is {view.dtype.name} with strides, and without 16-bit types "
                "kernels store two elements at a time",
                notes=["store it packed, or compile for shader model 6.2"],
            )
    return [view.tensor for view in paired]


def shape_nest(
    nest: Nest,
    names: Names,
    profile: Profile,
    limits: Limits,
    buffers: tuple[k.Buffer, ...],
) -> tuple[k.Launch, tuple[k.Statement, ...], tuple[k.Array, ...]]:
    """How a nest is launched, with its statements and arrays."""
    (groups,) = (n for n in walk_nest(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP)
    count = groups.dim.size if isinstance(groups.dim.size, int) else None
    many = limits.row is not None and (count is None or -(-count // groups.step) > limits.row)
    row = limits.row if many and nest.lanes else None
    size = math.prod(extent for _, extent in nest.lanes)
    per_group = groups.step * math.prod(step for _, step in groups.dim.parts[:1] if nest.lanes)
    count = groups.dim.size if isinstance(groups.dim.size, int) else 0
    if nest.lanes and len(groups.dim.parts) == 1 and isinstance(groups.dim.parts[0][0].size, int):
        count = groups.dim.parts[0][0].size
    streaming = Streaming(buffers, profile.streaming_bytes)
    body, arrays = lower_nest(nest, names, profile.lanes, streaming, row)
    return k.Launch(count, per_group, size, row), tuple(body), arrays


ACCESS = {
    (True, False): k.Access.READ,
    (False, True): k.Access.WRITE,
    (True, True): k.Access.READ_WRITE,
}
"""By whether a buffer is read and whether it is written."""


def _list_buffers(function: ir.Function, elements: Elements, walk: Walk) -> tuple[k.Buffer, ...]:
    """The tensors a kernel touches, in the function's order."""
    touched = measure_footprint(function, [(elements, walk)])
    read = {v.view.tensor for v in elements.values if isinstance(v, Read | Gather)}
    written = {view.tensor for view, _ in elements.results}
    tensors = function.tensors()
    return tuple(
        k.Buffer(
            name, tensors[name].dtype, ACCESS[name in read, name in written], None, touched[name]
        )
        for name in function.sort_tensors(read | written)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class IndexType:
    """The integers that positions are computed in."""

    bits: int
    signed: bool


def find_index(largest: int, reach: Interval, limits: Limits) -> IndexType:
    """The narrowest type for index arithmetic that comes to `largest`, and for positions in it
    that go as far as `reach`."""
    low, high = reach
    if low >= -RUN_TIME_COUNT - 1 and max(high, largest) <= RUN_TIME_COUNT:
        return IndexType(32, low < 0)
    if low >= 0 and high <= RUN_TIME_COUNT:
        return IndexType(limits.index_bits, signed=False)
    if not limits.has_wide_positions:
        raise UnsupportedError(
            f"positions go beyond 32 bits, and target '{limits.target}' has no wider integers",
            notes=["clamp them, or compare them with the sizes of what is read"],
        )
    return IndexType(64, signed=True)


def find_gathered(function: ir.Function, elements: Elements) -> int:
    """The most elements that lie before the end of a tensor read at computed positions."""
    tensors = function.tensors()
    reached = [0]
    for value in elements.values:
        if isinstance(value, Gather):
            tensor = tensors[value.view.tensor]
            extents = tensor.domain if isinstance(tensor, ir.Stage) else tensor.extents
            sizes = [e for e in extents if isinstance(e, int)]
            strides = tensor_strides(function, value.view.tensor)
            steps = zip(sizes, strides, strict=False)
            reached.append(1 + sum(max(size - 1, 0) * step for size, step in steps))
    return max(reached)


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
