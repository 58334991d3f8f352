"""Loops that fill shared tiles: hoisting of common index terms, and software pipelining. The
elements of the next step's tiles are loaded into registers while those of the current step are
used."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from dmlc.index.affine import Affine
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, guard, index, multiply, operate, subtract_known
from dmlc.kernel.expand import copy_statements, list_steps, start_at_zero
from dmlc.kernel.frame import Frame
from dmlc.kernel.rewrite import (
    drop_unused,
    find_body,
    find_defined,
    map_body,
    map_expressions,
    map_operands,
    replace_body,
    walk,
    walk_parts,
    walk_statements,
)
from dmlc.kernel.sums import Sum, add_up, express
from dmlc.loops.phases import VECTOR
from dmlc.source import InternalError


def pipeline_loop(frame: Frame, loop: k.For, *, again: bool) -> list[k.Statement]:
    """Pipelined form of a loop whose steps fill tiles between two barriers and then use them: it
    loads the next step's elements meanwhile, and stores them to a second copy of the tiles, with
    one barrier per step. The first step's tiles are filled before the loop; if the loop is executed
    `again`, that waits for other items that may still use them."""
    first, last = (n for n, s in enumerate(loop.body) if isinstance(s, k.Barrier))
    ahead, filled, used = loop.body[:first], loop.body[first + 1 : last], loop.body[last + 1 :]
    filled = tuple(map(start_at_zero, filled))
    held = dict[object, str]()
    reads, puts = (_split(frame, filled, held, (), (), puts=puts) for puts in (False, True))
    shared = {a.name: a.size for a in frame.arrays if a.shared}
    stored = (s.array for s in walk_statements(filled) if isinstance(s, k.StoreLocal))
    sizes = {name: shared[name] for name in stored if name in shared}
    frame.arrays[:] = [
        dataclasses.replace(a, size=2 * a.size) if a.name in sizes else a for a in frame.arrays
    ]
    step, length = frame.variable("step"), subtract_known(loop.stop, loop.start)
    following: k.Expression = add(step, index(1))
    if length is None:
        rest = operate("sub", add(loop.stop, index(loop.step - 1)), loop.start)
        count = operate("div", operate("max", rest, index(0)), index(loop.step))
    else:
        count = index(-(-length // loop.step))
        # The last step loads its own elements again.
        following = operate("min", following, add(count, index(-1)))
    # Copies are numbered in vectors, so that both tiles have one offset, known in advance.
    unit = math.gcd(*sizes.values()) // VECTOR or 1
    turn = frame.let("turn", multiply(operate("mod", step, index(2)), unit))
    # Most accesses are loads, whose offsets thus need no subtraction.
    other = frame.let("other", operate("sub", index(unit), turn.local))
    further = frame.let("next", following)
    moving = dict.fromkeys((step.name, turn.local.name, further.local.name, other.local.name), 1)

    copies = [
        {name: multiply(copy, size // unit) for name, size in sizes.items()}
        for copy in (index(0), turn.local, other.local)
    ]
    named = _Named(frame, moving)

    def write(part: Sequence[k.Statement], number: k.Expression, copy: int) -> list[k.Statement]:
        known = {loop.variable.name: add(loop.start, multiply(number, loop.step))}
        own = copy_statements(drop_unused([*ahead, *part]), known, frame.rename)
        made = named.write(own, copies[copy], {})
        return guard(
            [] if length or copy == 1 else [operate("lt", number, count)], drop_unused(made)
        )

    body = (
        k.Barrier(), turn, other, further, *write(reads, further.local, 2),
        *write(used, step, 1), *write(puts, further.local, 2),
    )  # fmt: skip
    whole = k.For(step, index(0), count, 1, body)
    begin = write(filled, index(0), 0)
    return [*[k.Barrier()] * again, *named.made, *begin, whole]


def fill_tiles(frame: Frame, loop: k.For) -> list[k.Statement]:
    """Loop whose steps fill tiles from memory between two barriers and then use them, with all
    loads before the stores to the tiles, and with loop-invariant index terms hoisted. Other loops
    are returned unchanged: those that only use tiles need all registers for that."""
    body, barriers = loop.body, [n for n, s in enumerate(loop.body) if isinstance(s, k.Barrier)]
    inside = list(walk_statements(body[barriers[0] : barriers[-1]])) if barriers else []
    waits = sum(isinstance(s, k.Barrier) for s in walk_statements(body))
    is_read = not any(isinstance(part, k.LoadLocal) for part in walk_parts(*inside))
    if len(barriers) != 2 or waits != 2 or not is_read:
        return [loop]
    first, last = barriers
    ahead, filled, used = body[:first], body[first + 1 : last], body[last:]
    loops = [list_steps(s) for s in inside if isinstance(s, k.For)]
    if loops and all(loops):
        filled = list(map(start_at_zero, filled))
        held = dict[object, str]()
        taken, put = (_split(frame, filled, held, (), (), puts=n) for n in (False, True))
        put = copy_statements(drop_unused([*ahead, *put]), {}, frame.rename)
        body = (*ahead, *drop_unused(taken), body[first], *put, *used)
    start = loop.start.value if isinstance(loop.start, k.Literal) else 1
    named = _Named(frame, {loop.variable.name: math.gcd(int(start), loop.step)})
    shared = {a.name: index(0) for a in frame.arrays if a.shared}
    made = tuple(drop_unused(named.write(body, shared, {})))
    return [*named.made, dataclasses.replace(loop, body=made)]


class _Named:
    """Names for loop-invariant index terms."""

    def __init__(self, frame: Frame, moving: Mapping[str, int]) -> None:
        self._frame = frame
        self._moving = moving
        """Locals that vary with the step, each with a number that divides all its values."""
        self._known: dict[k.Expression, k.Local] = {}
        self.made: list[k.Statement] = []
        """Statements before the loop."""

    def write(
        self, statements: Sequence[k.Statement], copies: Mapping[str, k.Expression],
        around: Mapping[str, Sum], inside: Collection[str] = (),
    ) -> list[k.Statement]:  # fmt: skip
        """Statements that use one of the `copies` of some arrays, given its offset. Locals defined
        `inside` the loop cannot be used before it, unless they are known as sums."""
        sums, made = dict(around), list[k.Statement]()
        defined = [local.name for s in statements if (local := find_defined(s)) is not None]
        inside = {*inside, *defined}

        def place(at: k.Expression, lanes: int) -> k.Expression:
            return self._order(add_up(at, sums), at, lanes, inside)

        def change(expression: k.Expression) -> k.Expression:
            one = map_operands(expression, change)
            if isinstance(one, k.LoadLocal) and one.array in copies:
                return dataclasses.replace(one, index=place(add(one.index, copies[one.array]), 1))
            if isinstance(one, k.Load):
                return dataclasses.replace(one, index=place(one.index, one.type.lanes))
            if isinstance(one, k.Operate) and one.operation.name in ("div", "mod"):
                return self._name_quotient(one, sums, inside)
            return one

        for statement in statements:
            changed = map_expressions(statement, change)
            if isinstance(changed, k.Let) and changed.local.type == k.INDEX:
                sums[changed.local.name] = add_up(changed.value, sums)
            if isinstance(changed, k.StoreLocal) and changed.array in copies:
                at = place(add(changed.index, copies[changed.array]), changed.value.type.lanes)
                changed = dataclasses.replace(changed, index=at)
            if isinstance(changed, k.LoadMatrix) and changed.array in copies:
                at = place(add(changed.index, copies[changed.array]), VECTOR)
                changed = dataclasses.replace(changed, index=at)
            made.append(map_body(changed, self.write, copies, sums, inside))
        return made

    def _order(
        self, place: Sum, at: k.Expression, lanes: int, inside: Collection[str]
    ) -> k.Expression:
        moving = {*inside, *self._moving}
        others, fixed = place.part(lambda term: any(
            isinstance(part, k.Local) and part.name in moving for part in walk(term)
        ))  # fmt: skip
        fixed = Affine(0, fixed.factors)
        base = express(fixed)
        if not others.factors or not isinstance(base, k.Operate):
            return at
        # Vectors are aligned, and so must be their common base.
        steps = [step * self._find_unit(term) for term, step in others.factors]
        even = min(step for _, step in fixed.factors) > 0
        even = even and not any(step % lanes for step in (place.constant, *steps))
        width = lanes if even else 1
        whole = base if width == 1 else operate("div", base, index(width))
        base = multiply(self._take(whole), width)
        return add(add(base, index(place.constant)), express(others))

    def _name_quotient(
        self, quotient: k.Operate, sums: Mapping[str, Sum], inside: Collection[str]
    ) -> k.Expression:
        """Name for a loop-invariant quotient or remainder; other quotients unchanged."""
        left, right = quotient.operands
        if quotient.type != k.INDEX or not isinstance(right, k.Literal):
            return quotient
        whole = operate(quotient.operation.name, express(add_up(left, sums)), right)
        names = {part.name for part in walk(whole) if isinstance(part, k.Local)}
        if not names or names.intersection((*inside, *self._moving)):
            return quotient
        return self._take(whole)

    def _take(self, whole: k.Expression) -> k.Local:
        """Name of a loop-invariant index."""
        if whole not in self._known:
            let = self._frame.let("place", whole)
            self.made.append(let)
            self._known[whole] = let.local
        return self._known[whole]

    def _find_unit(self, term: k.Expression) -> int:
        return self._moving.get(term.name, 1) if isinstance(term, k.Local) else 1


def _split(
    frame: Frame,
    statements: Sequence[k.Statement],
    held: dict[object, str],
    place: tuple[int, ...],
    loops: tuple[k.For, ...],
    *,
    puts: bool,
) -> list[k.Statement]:
    """Loads of the statements that fill tiles, into registers; or with `puts`, the stores of these
    to the tiles. `held` has the registers, by the statements' locations."""
    made: list[k.Statement] = []
    for number, statement in enumerate(statements):
        here = (*place, number)
        match statement:
            case k.StoreLocal(array=array, index=at, value=value):
                whole, lane = value, 0
                if isinstance(value, k.Extract):
                    # A vector's lanes are apart in the tile, and contiguous in registers.
                    whole, lane = value.operand, value.lanes[0]
                own, size = index(0), whole.type.lanes
                for loop in reversed(loops):
                    own = add(multiply(loop.variable, size), own)
                    size *= len(list_steps(loop))
                key = whole if isinstance(whole, k.Local) else here
                if puts:
                    read = k.LoadLocal(held[key], add(own, index(lane)), value.type)
                    made.append(k.StoreLocal(array, at, read))
                elif key not in held:
                    name = f"next_{array.partition('_tile')[0]}"
                    held[key] = frame.array(name, whole.type.dtype, size, registers=True)
                    made.append(k.StoreLocal(held[key], own, whole))
            case k.For() | k.If():
                within = (*loops, statement) if isinstance(statement, k.For) else loops
                if within is not loops and not list_steps(within[-1]):
                    raise InternalError("what fills a tile that is read ahead is written out")
                body = _split(frame, find_body(statement), held, here, within, puts=puts)
                made.append(replace_body(statement, body))
            case _:
                made.append(statement)
    return made
