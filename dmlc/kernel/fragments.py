"""Registers for elements of shared tiles that unrolled loops read again and again.

A work item loads an element of a tile once, before the loops that reuse it, and four neighbours as
one vector. The elements are held in a register array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.index.affine import single
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply
from dmlc.kernel.expand import list_steps, replace, start_at_zero
from dmlc.kernel.rewrite import (
    NUMBER,
    drop_unused,
    find_defined,
    map_body,
    map_expressions,
    walk,
    walk_statements,
)
from dmlc.kernel.sums import Sum, add_up, express, find_remainder
from dmlc.kernel.widen_registers import widen_registers
from dmlc.scalars import DataType

_LANES = 4
_MOST = 64
"""Largest number of a tile's elements that a work item holds at once."""


def hold_fragments(kernel: k.Kernel, lanes: int) -> k.Kernel:
    """Kernel in which unrolled loop nests do not reload an element of a shared array in the next
    step of a loop. With `lanes` above 1, elements are held as vectors."""
    shared = {a.name: a.dtype for a in kernel.arrays if a.shared}
    if not shared or not any(a.registers for a in kernel.arrays):
        return kernel
    puts = [s for s in walk_statements(kernel.body) if isinstance(s, k.StoreLocal)]
    narrow = {
        s.array for s in puts if s.value.type.lanes == 1 and not isinstance(s.value, k.Extract)
    }
    holder = _Holder(shared, narrow, 1 if lanes == 1 else _LANES)
    body = drop_unused(holder.write(kernel.body, {}))
    arrays = (*kernel.arrays, *holder.made)
    if lanes > 1:
        body = widen_registers(body, {a.name for a in arrays if a.registers}, lanes)
        puts = [s for s in walk_statements(body) if isinstance(s, k.StoreLocal)]
        narrow = {s.array for s in puts if s.value.type.lanes != lanes}
        wide = {a.name for a in arrays if a.registers} - narrow
        arrays = tuple(dataclasses.replace(a, lanes=lanes) if a.name in wide else a for a in arrays)
    return dataclasses.replace(kernel, body=tuple(body), arrays=arrays)


class _Holder:
    def __init__(self, shared: Mapping[str, DataType], narrow: set[str], lanes: int) -> None:
        self.shared = shared
        self.narrow = narrow
        """Shared arrays that are stored element by element: reading vectors of them gains nothing
        for a loop alone."""
        self.lanes = lanes
        """Lanes of the held vectors."""
        self.made: list[k.Array] = []

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """Statements with held elements; `around` are the visible index locals as sums."""
        sums, made = dict(around), list[k.Statement]()
        for statement in statements:
            if isinstance(statement, k.Let):
                _note(statement, sums)
            if isinstance(statement, k.For) and list_steps(statement):
                nest = _Nest(self, statement)
                made += nest.write((start_at_zero(statement),), sums, ())
                continue
            made.append(map_body(statement, self.write, sums))
        return made

    def find_lanes(
        self, place: Sum, loops: Sequence[k.For], sums: Mapping[str, Sum]
    ) -> k.For | None:
        """Loop whose steps read the lanes of aligned vectors, if there is one."""
        found = [n for n in loops if place.factor(n.variable) == 1]
        if len(found) != 1:
            return None
        _, others = place.part(lambda term: term == found[0].variable)
        if find_remainder(others, self.lanes, sums) != 0:
            return None
        is_whole = self.lanes > 1 and len(list_steps(found[0])) % self.lanes == 0
        return found[0] if is_whole else None

    def take(self, wanted: str, array: str, size: int) -> k.Array:
        """Register array for `size` elements of a shared one."""
        name = f"{wanted.partition(NUMBER)[0]}_part{NUMBER}h{len(self.made)}"
        self.made.append(k.Array(name, self.shared[array], size, registers=True))
        return self.made[-1]


def _note(let: k.Let, sums: dict[str, Sum]) -> None:
    """Records the sum that an index local is defined as, if it is one."""
    if let.local.type == k.INDEX:
        place = add_up(let.value, sums)
        if place != single(let.value):
            sums[let.local.name] = place


class _Nest:
    """An unrolled loop with the unrolled loops inside it."""

    def __init__(self, holder: _Holder, root: k.For) -> None:
        self._holder = holder
        inside = list(walk_statements((root,)))
        self._own = {local.name for s in inside if (local := find_defined(s)) is not None}
        self._written = {s.array for s in inside if isinstance(s, k.StoreLocal)}
        self._waits = any(isinstance(s, k.Barrier) for s in inside)
        self._is_alone = sum(isinstance(s, k.For) for s in inside) == 1
        self._ahead: dict[str, list[k.Statement]] = {}
        """Loads to insert before a loop, by the name of its variable."""
        self._known: dict[str, k.Expression] = {}
        """Register that replaces each local."""
        self._held: dict[tuple[object, ...], tuple[k.Array, list[tuple[k.For, int]]]] = {}

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum], loops: Sequence[k.For]
    ) -> list[k.Statement]:
        """Statements inside `loops`, with loads inserted before the loops among them."""
        sums, made = dict(around), list[k.Statement]()
        for statement in statements:
            statement = map_expressions(statement, lambda e: replace(e, self._known))
            match statement:
                case k.Let(local=local) if local.type == k.INDEX:
                    _note(statement, sums)
                case k.Let(local=local, value=k.LoadLocal(array=array) as read) if (
                    array in self._holder.shared and read.type.lanes == 1
                ):
                    place = self._find_register(local.name, read, sums, loops)
                    if place is not None:
                        self._known[local.name] = place
                        continue
                case k.For() if list_steps(statement):
                    changed = map_body(statement, self.write, sums, (*loops, statement))
                    made += (*self._ahead.pop(statement.variable.name, ()), changed)
                    continue
                case _:
                    pass
            made.append(map_body(statement, self.write, sums, ()))
        return made

    def _find_register(
        self, wanted: str, read: k.LoadLocal, sums: Mapping[str, Sum], loops: Sequence[k.For]
    ) -> k.Expression | None:
        """Register that holds an element that loops read; None if it is not held."""
        place = add_up(read.index, sums)
        wide = self._holder.find_lanes(place, loops, sums)
        moving = [n.variable in place.terms for n in loops]
        outer = next((n for n, moves in enumerate(moving) if not moves and any(moving[n:])), None)
        if wide is not None and not (self._is_alone and read.array in self._holder.narrow):
            outer = min(loops.index(wide), len(loops) if outer is None else outer)
        if outer is None or self._waits or read.array in self._written:
            return None
        inner = [n for n in loops[outer:] if n.variable in place.terms and n is not wide]
        known = {n.variable for n in loops[:outer]} | {n.variable for n in (*inner, wide) if n}
        parts = [p for term in place.terms for p in walk(term) if isinstance(p, k.Local)]
        if any(p.name in self._own and p not in known for p in parts):
            return None
        steps, size = list[tuple[k.For, int]](), 1
        for loop in reversed([*inner, wide] if wide else inner):
            steps.insert(0, (loop, size))
            size *= len(list_steps(loop))
        if size > _MOST:
            return None
        key = (read.array, loops[outer].variable, place)
        if key not in self._held:
            array = self._holder.take(wanted, read.array, size)
            self._held[key] = array, steps
            ahead = self._ahead.setdefault(loops[outer].variable.name, [])
            ahead += self._fill(array, wanted, read, place, steps, wide)
        array, steps = self._held[key]
        at = add(*(multiply(loop.variable, step) for loop, step in steps))
        return k.LoadLocal(array.name, at, read.type)

    def _fill(
        self, array: k.Array, wanted: str, read: k.LoadLocal, place: Sum,
        steps: Sequence[tuple[k.For, int]], wide: k.For | None,
    ) -> list[k.Statement]:  # fmt: skip
        """Loops that load elements into a register array."""
        number = array.name[array.name.index(NUMBER) :]
        lanes = 1 if wide is None else self._holder.lanes
        turns, renamed = list[tuple[k.For, k.Local, int]](), dict[str, k.Expression]()
        for loop, _ in steps:
            name, step = loop.variable.name, lanes if loop is wide else 1
            own = k.Local(f"{name.partition(NUMBER)[0]}{number}", k.INDEX)
            single = len(list_steps(loop)) == step
            renamed[name] = index(0) if single else own
            turns += [] if single else [(loop, own, step)]
        kind = k.Type(array.dtype, lanes)
        value = k.Local(f"{wanted.partition(NUMBER)[0]}{number}", kind)
        at = replace(express(place), renamed)
        to = replace(add(*(multiply(loop.variable, step) for loop, step in steps)), renamed)
        body: tuple[k.Statement, ...] = (
            k.Let(value, k.LoadLocal(read.array, at, kind)), k.StoreLocal(array.name, to, value),
        )  # fmt: skip
        for loop, own, step in reversed(turns):
            body = (dataclasses.replace(loop, variable=own, step=step, body=body),)
        return list(body)
