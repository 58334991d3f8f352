"""The passes over kernels, from what a lowering writes to what output languages print.

Passes stand in one list, and one function runs them. The verifier looks at what comes out; in
tests, at what each pass makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.expand import expand_loops
from dmlc.kernel.fragments import hold_fragments
from dmlc.kernel.join_elements import join_elements
from dmlc.kernel.join_words import join_words
from dmlc.kernel.narrow_loops import narrow_loops
from dmlc.kernel.offsets import name_offsets
from dmlc.kernel.place_vectors import place_vectors
from dmlc.kernel.precise import name_arithmetic
from dmlc.kernel.quotients import multiply_exactly
from dmlc.kernel.registers import name_registers
from dmlc.kernel.rewrite import find_body, replace_body, walk_parts, walk_statements
from dmlc.kernel.sums import Sum, add_up, count_turns
from dmlc.kernel.target import Limits
from dmlc.kernel.verify import verify_kernel


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[k.Kernel, Limits], k.Kernel]


PASSES: tuple[Pass, ...] = (
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
    Pass(
        "hold_vectors",
        lambda kernel, limits: hold_vectors(kernel, limits.whole_lanes, bool(limits.vector_lanes)),
    ),
)
_verifies_each = False


def set_verify_each(on: bool) -> bool:
    """Whether the verifier looks at what each pass makes, or at the last one's kernel alone.
    Gives what was set before."""
    global _verifies_each
    before, _verifies_each = _verifies_each, on
    return before


def verifies_each() -> bool:
    """Whether the verifier looks at what each step makes."""
    return _verifies_each


def run_passes(
    kernel: k.Kernel, function: ir.Function, limits: Limits, passes: Sequence[Pass] = PASSES
) -> k.Kernel:
    """A kernel of a function as the passes leave it. Raises `InternalError`, naming the pass, where
    one breaks it."""
    sizes = find_sizes(function, kernel)
    step, verified = "lower", None
    for each in passes:
        if _verifies_each and kernel != verified:
            verify_kernel(kernel, step, sizes, is_named=False)
            verified = kernel
        kernel, step = each.run(kernel, limits), each.name
    verify_kernel(kernel, step, sizes)
    return kernel


def hold_vectors(kernel: k.Kernel, lanes: int, in_arrays: bool = True) -> k.Kernel:
    """The same kernel, whose buffers are made of vectors where some of what it reads or stores is
    one (elsewhere than `in_arrays`, if all of them have as many lanes and begin at a multiple of
    these), and so are shared arrays of which all that is read is one, which begins where those do,
    and all that is put there is of one, where vectors lie so `in_arrays`. As it is, where vectors
    have no fixed number of lanes; where memory has no vectors, their lanes are put one by one."""
    if lanes == 1:
        return dataclasses.replace(kernel, body=tuple(_part_vectors(kernel.body, set())))
    if lanes == 0:
        return kernel

    wide: dict[str, int] = {}
    narrow, read, parted, uneven = set[str](), set[str](), set[str](), set[str]()
    anywhere = set[str]()
    matrices = {m.name: m for m in kernel.matrices}
    sums: dict[str, Sum] = {}

    def begins_evenly(place: k.Expression, lanes: int) -> bool:
        found = add_up(place, sums)
        return not any(step % lanes for step in (found.number, *found.terms.values()))

    def widen(buffer: str, place: k.Expression, own: int) -> None:
        whole = max(lanes, own)
        if not in_arrays and (
            wide.get(buffer, whole) != whole or own < lanes or not begins_evenly(place, own)
        ):
            anywhere.add(buffer)
        wide[buffer] = whole

    for statement in walk_statements(kernel.body):
        sums.update(count_turns(statement, sums))
        if isinstance(statement, k.Let) and statement.local.type == k.INDEX:
            sums[statement.local.name] = add_up(statement.value, sums)
        if isinstance(statement, k.Store) and statement.value.type.lanes > 1:
            widen(statement.buffer, statement.index, statement.value.type.lanes)
        if isinstance(statement, k.StoreLocal) and statement.value.type.lanes == 1:
            # The lanes of a vector may lie in several vectors.
            of_vector = isinstance(statement.value, k.Extract)
            (parted if of_vector else narrow).add(statement.array)
        if isinstance(statement, k.LoadMatrix | k.StoreMatrix):
            # Its rows begin where vectors do, unless these are longer.
            is_even = matrices[statement.matrix].align(statement) % lanes == 0
            (read if is_even else narrow).add(statement.array)
        for part in walk_parts(statement):
            if isinstance(part, k.Load) and part.type.lanes > 1:
                widen(part.buffer, part.index, part.type.lanes)
            if isinstance(part, k.LoadLocal):
                (narrow if part.type.lanes == 1 else read).add(part.array)
                if not begins_evenly(part.index, lanes):
                    uneven.add(part.array)
    narrow |= parted & uneven
    buffers = tuple(
        dataclasses.replace(b, lanes=wide[b.name]) if b.name in wide.keys() - anywhere else b
        for b in kernel.buffers
    )
    read = read - narrow if in_arrays else set[str]()
    arrays = tuple(
        dataclasses.replace(a, lanes=lanes) if a.shared and a.name in read else a
        for a in kernel.arrays
    )
    whole = {a.name for a in arrays if a.lanes > 1}
    body = tuple(_part_vectors(kernel.body, whole)) if in_arrays else kernel.body
    return dataclasses.replace(kernel, body=body, buffers=buffers, arrays=arrays)


def _part_vectors(statements: Sequence[k.Statement], whole: set[str]) -> list[k.Statement]:
    """The statements, where the lanes of a vector are put one by one into an array that is not made
    of vectors."""
    made: list[k.Statement] = []
    for statement in statements:
        body = find_body(statement)
        if body:
            statement = replace_body(statement, _part_vectors(body, whole))
        match statement:
            case k.StoreLocal(array=array, value=value) if (
                array not in whole and value.type.lanes > 1
            ):
                for lane in range(value.type.lanes):
                    part = k.Extract(value, (lane,), k.Type(value.type.dtype))
                    made.append(k.StoreLocal(array, add(statement.index, index(lane)), part))
            case _:
                made.append(statement)
    return made


def find_sizes(function: ir.Function, kernel: k.Kernel) -> dict[str, int]:
    """The number of elements of each buffer of a kernel, where it is known: up to the last that
    the tensor has."""
    tensors = function.tensors()
    found: dict[str, int] = {}
    for buffer in kernel.buffers:
        end = function.find_end(buffer.name) if buffer.name in tensors else buffer.count
        if isinstance(end, int):
            found[buffer.name] = end
    return found
