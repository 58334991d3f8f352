"""The pipeline of passes over kernels, from lowering to printing.

The result is verified; in tests, the result of each pass is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.expand import expand_loops
from dmlc.kernel.fragments import hold_fragments
from dmlc.kernel.hold_vectors import hold_arrays, hold_buffers, part_vectors
from dmlc.kernel.join_elements import join_elements, join_words
from dmlc.kernel.narrow_loops import narrow_loops
from dmlc.kernel.offsets import name_offsets
from dmlc.kernel.place_vectors import place_vectors
from dmlc.kernel.precise import name_arithmetic
from dmlc.kernel.quotients import multiply_exactly
from dmlc.kernel.registers import name_registers
from dmlc.kernel.target import Limits
from dmlc.kernel.tile_places import settle_places
from dmlc.kernel.verify import verify_kernel


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[k.Kernel, Limits], k.Kernel]


PASSES: tuple[Pass, ...] = (
    Pass("settle_places", lambda kernel, _: settle_places(kernel)),
    Pass("hold_fragments", lambda kernel, limits: hold_fragments(kernel, limits.vector_lanes)),
    Pass("expand_loops", lambda kernel, limits: expand_loops(kernel, keeps=limits.unrolls)),
    Pass("narrow_loops", lambda kernel, _: narrow_loops(kernel)),
    Pass("join_words", join_words),
    Pass("join_elements", join_elements),
    Pass("name_registers", lambda kernel, _: name_registers(kernel)),
    Pass("multiply_exactly", lambda kernel, _: multiply_exactly(kernel)),
    Pass("name_arithmetic", lambda kernel, limits: name_arithmetic(kernel, limits.precise)),
    Pass("name_offsets", lambda kernel, _: name_offsets(kernel)),
    Pass("place_vectors", lambda kernel, limits: place_vectors(kernel, limits.whole_lanes)),
    Pass("clean_up", lambda kernel, _: clean_up(kernel)),
    Pass("hold_buffers", hold_buffers),
    Pass("hold_arrays", hold_arrays),
    Pass("part_vectors", part_vectors),
)
_verifies_each = False


def set_verify_each(on: bool) -> bool:
    """Sets whether the result of every pass is verified, or the last one only. Returns the previous
    setting."""
    global _verifies_each
    before, _verifies_each = _verifies_each, on
    return before


def verifies_each() -> bool:
    """Whether the result of every pass is verified."""
    return _verifies_each


def run_passes(
    kernel: k.Kernel, function: ir.Function, limits: Limits, passes: Sequence[Pass] = PASSES
) -> k.Kernel:
    """Kernel of a function after the passes. Raises `InternalError`, naming the pass that broke
    it."""
    sizes = find_sizes(function, kernel)
    step, verified = "lower", None
    for each in passes:
        if _verifies_each and kernel != verified:
            verify_kernel(kernel, step, sizes, is_named=False)
            verified = kernel
        kernel, step = each.run(kernel, limits), each.name
    verify_kernel(kernel, step, sizes)
    return kernel


def find_sizes(function: ir.Function, kernel: k.Kernel) -> dict[str, int]:
    """Number of elements of each buffer of a kernel, if known: up to the tensor's last one."""
    tensors = function.tensors()
    found: dict[str, int] = {}
    for buffer in kernel.buffers:
        end = function.find_end(buffer.name) if buffer.name in tensors else buffer.count
        if isinstance(end, int):
            found[buffer.name] = end
    return found
