"""Unrolling of loops for GPUs: all loads of the unrolled steps come before their arithmetic.

A work item then waits for memory once, and not once for each step. To do the same, a GPU compiler
would have to prove that no step loads what an earlier one stores.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Container, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply
from dmlc.kernel.rewrite import (
    NUMBER,
    define,
    find_defined,
    inline_single,
    map_body,
    map_expressions,
    map_operands,
    substitute,
    walk,
    walk_parts,
    walk_statements,
)
from dmlc.kernel.sums import add_up
from dmlc.scalars import DataType

_MOST_STEPS = 32
"""Largest number of steps to unroll."""

_MOST_READS = 24
"""Largest number of values to load ahead, as each takes a register."""


def expand_loops(kernel: k.Kernel, *, keeps: bool = False) -> k.Kernel:
    """Kernel with its `unroll` loops unrolled if they only compute, load and store. If groups have
    one work item, only loops over register arrays are. With `keeps`, loops that a compiler can
    unroll are left to it."""
    registers = {a.name for a in kernel.arrays if a.registers}
    is_alone = kernel.launch.group_size == 1
    if is_alone and not registers:
        return kernel
    stored = {b.name for b in kernel.buffers if b.access is not k.Access.READ}
    expander = _Expander(stored, registers, is_alone=is_alone, keeps=keeps and not is_alone)
    body = expander.expand(kernel.body)
    if keeps and registers and not is_alone:
        body = inline_single(body)
    return dataclasses.replace(kernel, body=tuple(body))


class _Expander:
    def __init__(
        self, stored: set[str], registers: set[str], *, is_alone: bool, keeps: bool
    ) -> None:
        self._stored = stored
        """Buffers that the kernel stores to."""
        self._registers = registers
        self._is_alone = is_alone
        self._keeps = keeps
        self._numbers = itertools.count()

    def expand(self, statements: Sequence[k.Statement]) -> list[k.Statement]:
        made: list[k.Statement] = []
        for statement in statements:
            steps = list_steps(statement) if isinstance(statement, k.For) else []
            if isinstance(statement, k.For) and len(steps) == 1:
                made += self.expand(self._copy_step(statement, steps[0]))
                continue
            if isinstance(statement, k.For) and steps and self._stays(statement):
                made.append(start_at_zero(statement))
                continue
            statement = map_body(statement, self.expand)
            if isinstance(statement, k.For):
                made += self._write_out(statement)
            else:
                made.append(statement)
        return _read_before_waiting(made, self._stored)

    def _write_out(self, loop: k.For) -> list[k.Statement]:
        """Unrolled steps of a loop; the loop itself if it stays."""
        steps = list_steps(loop)
        if not steps:
            return [loop]
        is_bound = self._is_bound(loop)
        straight = all(isinstance(s, _STRAIGHT) for s in loop.body)
        reads = sum(isinstance(s, k.Let) for s in loop.body) * len(steps)
        if is_bound and (not straight or reads > _MOST_READS):
            return [made for step in steps for made in self._copy_step(loop, step)]
        if is_bound or (straight and len(steps) <= _MOST_STEPS and not self._is_alone):
            return self._read_first(loop, steps)
        return [loop]

    def _is_bound(self, loop: k.For) -> bool:
        """Whether a loop must be unrolled, as it indexes register arrays."""
        arrays = list_arrays(loop.body) if list_steps(loop) else ()
        return not self._registers.isdisjoint(arrays)

    def _stays(self, loop: k.For) -> bool:
        """Whether a loop is left for the compiler to unroll."""
        keeps = self._keeps or not (self._is_bound(loop) or self._is_alone)
        return keeps and is_near(loop, self._registers)

    def _copy_step(self, loop: k.For, step: k.Expression) -> list[k.Statement]:
        """Copy of a loop's body for one step."""
        return copy_statements(loop.body, {loop.variable.name: step}, self._rename)

    def _rename(self, local: k.Local) -> k.Local:
        name = local.name.partition(NUMBER)[0]
        return k.Local(f"{name}{NUMBER}x{next(self._numbers)}", local.type)

    def _read_first(self, loop: k.For, steps: Sequence[k.Expression]) -> list[k.Statement]:
        """Steps of a loop, reordered: the loads of all steps, each element once, then the rest."""
        written = {s.array for s in loop.body if isinstance(s, k.StoreLocal)}
        reads: list[k.Statement] = []
        rest: list[k.Statement] = []
        before: dict[k.Expression, k.Local] = {}
        assigned = {s.local.name for s in loop.body if isinstance(s, k.Assign)}
        for step in steps:
            known: dict[str, k.Expression] = {loop.variable.name: step}
            late = set(assigned)
            for statement in loop.body:
                made = map_expressions(statement, lambda e, known=known: replace(e, known))
                if not isinstance(made, k.Let):
                    rest.append(made)
                    continue
                if isinstance(made.value, k.Local | k.Literal):
                    known[made.local.name] = made.value
                    continue
                loads = any(isinstance(p, k.Load | k.LoadLocal) for p in walk(made.value))
                early = loads or made.local.type.dtype is DataType.INDEX
                is_early = early and not _waits(made.value, late, self._stored, written)
                if is_early and made.value in before:
                    known[made.local.name] = before[made.value]
                    continue
                local = known[made.local.name] = self._rename(made.local)
                if is_early:
                    before[made.value] = local
                else:
                    late.add(local.name)
                (reads if is_early else rest).append(k.Let(local, made.value))
        return [*reads, *rest]


_STRAIGHT = k.Let | k.Store | k.StoreLocal | k.Assign


def list_steps(loop: k.For) -> list[k.Expression]:
    """Values of a loop's variable at each step; empty if the loop is not to be unrolled."""
    if not loop.unroll:
        return []
    start, length = loop.start, add_up(loop.stop, {}).plus(add_up(loop.start, {}), -1)
    if length.factors:
        return []
    return [
        index(int(start.value) + gone) if isinstance(start, k.Literal) else add(start, index(gone))
        for gone in range(0, length.constant, loop.step)
    ]


def copy_statements(
    statements: Sequence[k.Statement],
    values: Mapping[str, k.Expression],
    rename: Callable[[k.Local], k.Local],
) -> list[k.Statement]:
    """Copy of statements with `values` in place of some locals, and new locals for those that they
    define, except for what only names a literal, or another local that is not assigned."""
    known, made = dict(values), list[k.Statement]()
    assigned = {s.local for s in walk_statements(statements) if isinstance(s, k.Assign)}
    for statement in statements:
        changed = map_expressions(statement, lambda e: replace(e, known))
        if (
            isinstance(changed, k.Let)
            and isinstance(changed.value, k.Local | k.Literal)
            and assigned.isdisjoint(walk_parts(statement))
        ):
            known[changed.local.name] = changed.value
            continue
        local = find_defined(changed)
        if local is not None:
            renamed = known[local.name] = rename(local)
            changed = define(changed, renamed)
        made.append(map_body(changed, copy_statements, known, rename))
    return made


def start_at_zero(statement: k.Statement) -> k.Statement:
    """Statement in which unrolled loops count their steps from 0."""
    made = map_body(statement, lambda body: list(map(start_at_zero, body)))
    steps = list_steps(made) if isinstance(made, k.For) else []
    if not isinstance(made, k.For) or not steps or (made.start == index(0) and made.step == 1):
        return made
    place = add(made.start, multiply(made.variable, made.step))
    body = tuple(substitute(s, made.variable, place) for s in made.body)
    return dataclasses.replace(made, start=index(0), stop=index(len(steps)), step=1, body=body)


def is_near(loop: k.For, registers: Container[str]) -> bool:
    """Whether compilers are asked to unroll a loop: it indexes registers, or other arrays without
    loads or stores of buffers."""
    if not loop.unroll:
        return False
    arrays, inside = list_arrays(loop.body), list(walk_statements(loop.body))
    if any(name in registers for name in arrays):
        return True
    waits = any(isinstance(s, k.Store | k.For) for s in inside)
    return bool(arrays) and not (waits or any(isinstance(p, k.Load) for p in walk_parts(*inside)))


def list_arrays(statements: Sequence[k.Statement]) -> list[str]:
    """Arrays that statements load and store, with repetition."""
    found: list[str] = []
    for statement in walk_statements(statements):
        if isinstance(statement, k.StoreLocal):
            found.append(statement.array)
        found += [p.array for p in walk_parts(statement) if isinstance(p, k.LoadLocal)]
    return found


def _read_before_waiting(statements: Sequence[k.Statement], stored: set[str]) -> list[k.Statement]:
    """Statements with loads of unchanged memory moved before the preceding barrier."""
    made: list[k.Statement] = []
    barrier: int | None = None
    late: set[str] = set()
    for statement in statements:
        if isinstance(statement, k.Barrier):
            barrier, late = len(made), set()
        elif barrier is not None and isinstance(statement, k.Let):
            if not _waits(statement.value, late, stored):
                made.insert(barrier, statement)
                barrier += 1
                continue
            late.add(statement.local.name)
        elif not isinstance(statement, k.StoreLocal):
            barrier = None
        made.append(statement)
    return made


def _waits(
    value: k.Expression,
    late: Container[str],
    stored: Container[str],
    written: Container[str] | None = None,
) -> bool:
    """Whether a value depends on locals in `late`, on buffers in `stored`, or on elements of arrays
    in `written` (of any array if None)."""
    return any(
        (isinstance(p, k.Local) and p.name in late)
        or (isinstance(p, k.Load) and p.buffer in stored)
        or (isinstance(p, k.LoadLocal) and (written is None or p.array in written))
        for p in walk(value)
    )


def replace(expression: k.Expression, known: Mapping[str, k.Expression]) -> k.Expression:
    """Expression with some locals replaced; sums and products of indices are simplified."""
    if isinstance(expression, k.Local):
        return known.get(expression.name, expression)
    made = map_operands(expression, lambda e: replace(e, known))
    match made:
        case k.Operate(operands=(left, k.Literal(value=number)), type=k.INDEX) if (
            made.operation.name == "mul"
        ):
            return multiply(left, int(number))
        case k.Operate(operands=(left, right), type=k.INDEX) if made.operation.name == "add":
            match left, right:
                case k.Literal(value=number), k.Literal(value=more):
                    return index(int(number) + int(more))
                case k.Operate(operands=(first, k.Literal(value=number))), k.Literal(
                    value=more
                ) if left.operation.name == "add":
                    return add(first, index(int(number) + int(more)))
                case _:
                    return add(left, right)
        case _:
            return made
