"""Estimates of a kernel's dynamic steps and memory traffic, without running it.

A sample of groups, spread over the launch, represents all of them; the last one represents itself
only. Indices are evaluated for every lane of these groups. Of a loop with many iterations, the
middle one represents all. Values that depend on elements of tensors are unknown, except those of
the function's tables: such a condition counts as true, and such a loop bound makes the count
unknown. Elements may be assumed: such a loop then has iterations, and its count stays unknown.

A *step* is a load, or an iteration of a loop without loads. Traffic of the L2 cache is counted in
*sectors* of 32 bytes: a group requests a sector once in an iteration, and not again in the next
one, as its L1 cache still holds it. Stores of a wave go through to L2 each time. A wave requests
*lines* of 128 bytes from its L1 cache, each once per access.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc import ir
from dmlc.ir.index import list_arrays
from dmlc.kernel import nodes as k
from dmlc.kernel.counts import RARE, Access, Body, Loop, Rarity, Steps, list_accesses, merge_bodies
from dmlc.kernel.rewrite import list_expressions, list_operands
from dmlc.scalars import Array, DataType

SECTOR = 32
"""Bytes that a cache moves at least."""
LINE = 128
"""Bytes that a cache looks up at once."""
WAVE = 32
"""Lanes that run together."""

_WIDEST = 16
"""Bytes that a lane loads or stores at once, at most."""
_GROUPS = 5
_MOST_LANES = 4096
_MOST_TURNS = 40
_PLACE_BITS = 50
"""Bits of the numbers of sectors and lines; addresses a petabyte apart are taken for equal."""
_Value: TypeAlias = Array | None
"""Value of each lane, or of all; None if unknown."""


def count_steps(
    kernel: k.Kernel,
    tables: Sequence[ir.Table] = (),
    assumed: Mapping[str, Array] = MappingProxyType({}),
    *,
    traffic: bool = True,
) -> Steps | None:
    """Steps of a launch; None if its size is known at run time only. `assumed` are elements of
    tensors, by name, in place of those that are unknown. Without `traffic`, which takes most of the
    time, sectors and lines are not counted, and are 0."""
    launch = kernel.launch
    if isinstance(launch.count, str):
        return None
    working, groups = -(-launch.count // launch.per_group), launch.count_groups(launch.count)
    if groups == 0:
        return Steps(0, 0, launch.group_size, Body(), 0, 0, 0, 0)
    read = {b.name for b in kernel.buffers if b.access is k.Access.READ}
    taken = {name: array for name, array in assumed.items() if name in read}
    known = list_arrays(tables) | taken
    return _Sample(kernel, groups, working, known, is_known=not taken, traffic=traffic).run()


@dataclasses.dataclass(frozen=True, slots=True)
class _Turns:
    """Iterations of a loop."""

    turns: Array
    """Number of iterations of each lane."""
    first: _Value
    """The loop's variable in the first iteration."""
    step: int
    """Increment of the variable."""
    fixed: int | None

    def find_place(self, turn: Array) -> _Value:
        """The loop's variable in an iteration."""
        return None if self.first is None else self.first + self.step * turn


@dataclasses.dataclass(frozen=True, slots=True)
class _Crowd:
    """Lanes that execute a statement, each a number of times."""

    who: Array
    times: Array
    average: float
    """Average number of times over all lanes of the launch."""
    weights: Array
    """Number of times of each wave, times the fraction of all waves that it represents."""
    groups: Array
    waves: Array
    """Numbers of the groups and waves of the lanes in `who`, shifted as in `_Sample`."""
    is_whole: bool
    """Whether all lanes are in `who`."""

    def take(self, values: Array) -> Array:
        """Values of the lanes in `who`."""
        return values if self.is_whole else values[self.who]


class _Sample:
    """Lanes of the sampled groups, with the values of visible names."""

    def __init__(
        self,
        kernel: k.Kernel,
        groups: int,
        working: int,
        tables: Mapping[str, Array],
        *,
        is_known: bool,
        traffic: bool,
    ) -> None:
        self._groups, self._working, self._size = groups, working, kernel.launch.group_size
        count = max(1, min(_GROUPS, working, _MOST_LANES // self._size))
        chosen = _sort_distinct(np.linspace(0, working - 1, count).astype(np.int64))
        self._position = {
            k.Geometry.GROUP: np.repeat(chosen, self._size),
            k.Geometry.LANE: np.tile(np.arange(self._size, dtype=np.int64), len(chosen)),
        }
        lanes = self._position[k.Geometry.LANE]
        self._position[k.Geometry.SUBGROUP] = lanes // (kernel.launch.subgroup or 1)
        self._lanes = len(chosen) * self._size
        # The last group often differs from all others, and has little weight.
        shares = np.full(len(chosen), (1 - 1 / working) / max(1, len(chosen) - 1))
        shares[-1] = 1 - shares[:-1].sum()
        self._shares = np.repeat(shares / self._size, self._size)
        """Fraction of all lanes that each lane represents."""
        self._wave_shares = self._shares.reshape(-1, math.gcd(self._size, WAVE)).sum(axis=1)
        self._width = math.gcd(self._size, WAVE)
        numbers = np.arange(self._lanes)
        self._group, self._wave = (
            numbers // count << _PLACE_BITS for count in (self._size, self._width)
        )
        """Number of each lane's group, and of its wave, shifted to precede a sector or line."""
        self._reading: dict[int, bool] = {}
        """Whether an expression reads memory, by its identity."""
        self._hidden: dict[int, bool] = {}
        """Whether an expression depends on elements of tensors, by its identity."""
        self._buffers = {b.name: b.dtype.bytes for b in kernel.buffers}
        self._shared = {a.name for a in kernel.arrays if a.shared}
        self._tables = tables
        self._values: dict[str, _Value] = {
            s.name: np.array([n]) if isinstance(n, int) else None for s, n in kernel.scalars
        }
        self._kernel = kernel
        self._is_known = is_known
        self._traffic = traffic
        self._touched: dict[str, list[Array]] = {}
        """By buffer, the sectors accessed in the current iteration, with their groups' numbers."""
        self._is_second = False
        """Whether this is the second iteration that represents a loop, for its sectors alone."""
        self._sectors = 0.0
        """Sectors requested by a group, on average."""
        self._budget = _MOST_TURNS
        """Number of iterations that may be evaluated one by one, nested loops included."""
        self._inside = np.ones(self._lanes, np.bool_)
        """Lanes that execute the enclosing body, whatever the conditions in it."""
        self._crowd: _Crowd | None = None
        """The lanes of the last access: most accesses of a body have the same."""

    def run(self) -> Steps:
        who = np.ones(self._lanes, np.bool_)
        with np.errstate(all="ignore"):
            body, steps = self._count(self._kernel.body, who, np.ones(self._lanes))
        self._sectors += sum(map(self._weigh_sectors, self._pop_touched().values()))
        waves = self._working * self._size / self._width
        longest, total = float(steps.max()), self._average(steps) * self._working * self._size
        return Steps(
            self._groups,
            self._working,
            self._size,
            body,
            longest if self._is_known else None,
            total if self._is_known else None,
            self._sectors * SECTOR * self._working
            + waves * SECTOR * sum(access.stored for access in list_accesses(body)),
            waves * LINE * sum(access.lines for access in list_accesses(body)),
        )

    def _average(self, values: Array) -> float:
        """Average over all lanes of the launch."""
        return float((values * self._shares).sum())

    def _weigh_sectors(self, sectors: Array) -> float:
        """Average number of the given sectors per group."""
        return float(self._shares[:: self._size][sectors >> _PLACE_BITS].sum() * self._size)

    def _pop_touched(self) -> dict[str, Array]:
        """Distinct sectors of the current iteration; resets them."""
        found = {name: _sort_distinct(np.concatenate(s)) for name, s in self._touched.items()}
        self._touched = {}
        return found

    # Statements ---------------------------------------------------------------------------

    def _count(
        self, statements: Sequence[k.Statement], who: Array, times: Array
    ) -> tuple[Body, Array]:
        """Body of statements that the lanes of `who` execute `times` times, and the steps of each
        lane in one execution."""
        found = _Found()
        steps = np.zeros(self._lanes)
        for statement in statements:
            for expression in list_expressions(statement):
                self._look(expression, who, times, found, steps)
            match statement:
                case k.Let(local=local, value=value) | k.Variable(local=local, value=value):
                    self._values[local.name] = self._evaluate(value)
                case k.Assign(local=local, value=value):
                    after, before = self._evaluate(value), self._values.get(local.name)
                    if after is None or before is None:
                        after = None
                    elif not who.all():
                        after = np.where(who, after, before)
                    self._values[local.name] = after
                case k.StoreLocal(array=array):
                    found.shared += array in self._shared
                case k.LoadMatrix(array=array) | k.StoreMatrix(array=array):
                    found.shared += array in self._shared
                case k.Barrier():
                    found.barriers += 1
                case k.Store(buffer=buffer, index=index, value=value):
                    size = self._buffers[buffer] * value.type.lanes
                    self._access(buffer, index, size, True, who, times, found)
                case k.StoreWord(buffer=buffer, index=index):
                    self._access(buffer, index, 4, True, who, times, found, 4)
                case k.If(condition=condition, then=then, rare=rare):
                    holds = np.zeros_like(who) if rare else self._evaluate(condition)
                    inside = who if holds is None else who & holds.astype(np.bool_)
                    body, inner = self._count(then, inside, times)
                    found.add(body, self._average_waves(inside, inside))
                    steps += np.where(inside, inner, 0)
                case k.For() if not self._is_second:
                    loop, inner = self._count_loop(statement, who, times)
                    found.loops.append(loop)
                    steps += inner
                case _:
                    pass
        return found.body(), steps

    def _count_loop(self, loop: k.For, who: Array, times: Array) -> tuple[Loop, Array]:
        """A loop, and the steps of each lane in one execution of it."""
        run = self._read_turns(loop)
        outside, around, budget = self._inside, self._touched, self._budget
        most = int(run.turns[who].max()) if who.any() else 0
        if most <= budget:
            self._budget //= max(1, most)
            body, steps = self._count_turns(loop, run, range(max(1, most)), who, times)
        else:
            body, steps = self._count_middle(loop, run, who, times)
        self._inside, self._touched, self._budget = outside, around, budget
        average = self._average_waves(run.turns, who)
        return Loop(average, run.fixed, loop.unroll, body), steps

    def _read_turns(self, loop: k.For) -> _Turns:
        start, stop = self._evaluate(loop.start), self._evaluate(loop.stop)
        if start is None or stop is None:
            self._is_known = False
            return _Turns(np.ones(self._lanes, np.int64), start, loop.step, None)
        turns = np.broadcast_to(-(-np.maximum(stop - start, 0) // loop.step), self._lanes)
        is_written = isinstance(loop.start, k.Literal) and isinstance(loop.stop, k.Literal)
        first, step = (stop - 1, -1) if loop.backwards else (start, loop.step)
        return _Turns(turns, first, step, int(turns[0]) if is_written else None)

    def _count_turns(
        self, loop: k.For, run: _Turns, turns: range, who: Array, times: Array
    ) -> tuple[Body, Array]:
        """Body of a loop, with all iterations evaluated."""
        steps = np.zeros(self._lanes)
        bodies: list[tuple[Body, float]] = []
        often = self._average(times)
        before: Mapping[str, Array] = {}
        least = int(run.turns.min())
        for turn in turns:
            # The same array has the same crowd.
            self._inside = who if turn < least else who & (run.turns > turn)
            self._touched = {}
            self._values[loop.variable.name] = run.find_place(np.array([turn]))
            body, own = self._count(loop.body, self._inside, times)
            bodies.append((body, self._average(self._inside)))
            steps += np.where(self._inside, np.maximum(own, 1), 0)
            touched = self._pop_touched()
            self._sectors += often * self._count_fresh(touched, before)
            before = touched
        return merge_bodies(bodies), steps

    def _count_middle(
        self, loop: k.For, run: _Turns, who: Array, times: Array
    ) -> tuple[Body, Array]:
        """Body of a loop, represented by its middle iteration."""
        middle = np.maximum(run.turns - 1, 0) // 2
        self._inside, self._touched = who & (run.turns > 0), {}
        self._values[loop.variable.name] = run.find_place(middle)
        body, own = self._count(loop.body, self._inside, times * run.turns)
        first, often = self._pop_touched(), self._average(times)
        self._sectors += often * self._count_fresh(first, {})
        further = who & (run.turns > 1)
        if first and further.any():
            self._is_second = True
            self._values[loop.variable.name] = run.find_place(middle + 1)
            self._count(loop.body, further, times)
            self._is_second = False
            fresh = self._count_fresh(self._pop_touched(), first)
            self._sectors += often * fresh * float((run.turns - 1)[further].mean())
        return body, run.turns * np.maximum(own, 1)

    def _count_fresh(self, touched: Mapping[str, Array], before: Mapping[str, Array]) -> float:
        """Sectors of a group in an iteration that were not accessed in the previous one."""
        nothing = np.zeros(0, np.int64)
        return sum(
            self._weigh_sectors(_subtract(sectors, before.get(name, nothing)))
            for name, sectors in touched.items()
        )

    def _average_waves(self, turns: Array, who: Array) -> float:
        """Largest number of iterations among a wave's lanes in `who`, averaged over the waves that
        execute the enclosing body."""
        waves = np.where(who, turns, 0).reshape(-1, self._width).max(axis=1)
        shares = np.where(self._inside, self._shares, 0).reshape(-1, self._width).sum(axis=1)
        return float((waves * shares).sum() / shares.sum()) if shares.any() else 0.0

    # Expressions --------------------------------------------------------------------------

    def _look(
        self, node: k.Expression, who: Array, times: Array, found: _Found, steps: Array
    ) -> None:
        """Records the loads in an expression, and adds them to each lane's steps."""
        if not self._reads(node):
            return
        if isinstance(node, k.Select):
            self._look(node.condition, who, times, found, steps)
            holds = self._evaluate(node.condition)
            chosen = None if holds is None else holds.astype(np.bool_)
            for part in (node.then, node.otherwise):
                inside = who
                if chosen is not None:
                    inside = who & (chosen if part is node.then else ~chosen)
                self._look(part, inside, times, found, steps)
            return
        for operand in list_operands(node):
            self._look(operand, who, times, found, steps)
        if isinstance(node, k.Load):
            size = self._buffers[node.buffer] * node.type.lanes
            self._access(node.buffer, node.index, size, False, who, times, found)
            steps += who
        elif isinstance(node, k.LoadLocal):
            found.shared += node.array in self._shared

    def _reads(self, node: k.Expression) -> bool:
        """Whether an expression has loads. Cached, as most are evaluated in every iteration."""
        known = self._reading.get(id(node))
        if known is None:
            reads = isinstance(node, k.Load | k.LoadLocal)
            known = reads or any(map(self._reads, list_operands(node)))
            self._reading[id(node)] = known
        return known

    def _access(
        self,
        buffer: str,
        index: k.Expression,
        size: int,
        written: bool,
        who: Array,
        times: Array,
        found: _Found,
        unit: int = 0,
    ) -> None:
        """Records a load or a store."""
        crowd = self._gather(who, times)
        elements, stored = size // self._buffers[buffer], 0.0
        if not self._traffic:
            found.accesses.append(Access(buffer, size, elements, written, crowd.average, 0))
            return
        place = self._evaluate(index)
        if place is None:
            # Unknown offset: as if every lane had its own sectors.
            place = np.arange(self._lanes) * (SECTOR // self._buffers[buffer])
        begin = crowd.take(np.broadcast_to(place, self._lanes)) * (unit or self._buffers[buffer])
        for further in range(0, size, SECTOR):
            if written:
                stored += self._count_lines(begin + further, crowd, SECTOR)
                continue
            sectors = crowd.groups + _cut(begin // SECTOR + further // SECTOR)
            self._touched.setdefault(buffer, []).append(sectors)
        run = found.find_run(buffer, begin, size, written)
        lines = 0.0 if run else self._count_lines(begin, crowd)
        found.accesses.append(Access(buffer, size, elements, written, crowd.average, lines, stored))

    def _gather(self, who: Array, times: Array) -> _Crowd:
        """Lanes of `who`, that execute a statement `times` times."""
        last = self._crowd
        if last is not None and last.who is who and last.times is times:
            return last
        often, is_whole = np.where(who, times, 0), bool(who.all())
        groups, waves = (n if is_whole else n[who] for n in (self._group, self._wave))
        weights = often.reshape(-1, self._width).max(axis=1) * self._wave_shares
        crowd = _Crowd(who, times, self._average(often), weights, groups, waves, is_whole)
        self._crowd = crowd
        return crowd

    def _count_lines(self, begin: Array, crowd: _Crowd, length: int = LINE) -> float:
        """Lines, or sectors of `length` bytes, that waves request if lanes access the bytes
        `begin`."""
        lines = _sort_distinct(crowd.waves + _cut(begin // length))
        return float(crowd.weights[lines >> _PLACE_BITS].sum())

    def _is_hidden(self, node: k.Expression) -> bool:
        """Whether an expression depends on elements of tensors, whatever is known of locals."""
        known = self._hidden.get(id(node))
        if known is None:
            is_read = isinstance(node, k.Load) and node.buffer not in self._tables
            is_held = isinstance(node, k.LoadLocal)
            known = is_read or is_held or any(map(self._is_hidden, list_operands(node)))
            self._hidden[id(node)] = known
        return known

    def _evaluate(self, node: k.Expression) -> _Value:
        """Integer or condition of every lane; None if unknown."""
        dtype = node.type.dtype
        if node.type.lanes > 1 or not (dtype.is_integer or dtype in _COUNTED):
            return None
        match node:
            case k.Literal(value=value):
                return np.array([value], np.int64) if value <= _LARGEST else None
            case k.Position(geometry=geometry):
                return self._position[geometry]
            case k.Local(name=name) | k.Scalar(name=name):
                return self._values.get(name)
            case k.Lead():
                return np.array([0], np.int64)
            case k.Load(buffer=buffer, index=index):
                table = self._tables.get(buffer)
                place = None if table is None else self._evaluate(index)
                if table is None or place is None:
                    return None
                return table.ravel()[np.clip(place, 0, table.size - 1)].astype(np.int64)
            case k.Convert(operand=operand):
                return self._evaluate(operand)
            case k.Operate(operation=operation, operands=operands):
                known: list[Array] = []
                for operand in () if self._is_hidden(node) else operands:
                    value = self._evaluate(operand)
                    if value is None:
                        return None
                    known.append(value)
                if not known:
                    return None
                if operands[0].type.dtype is DataType.BOOL:
                    known = [v.astype(np.bool_) for v in known]
                return np.asarray(operation.evaluate(*known))
            case k.Select():
                holds = self._evaluate(node.condition)
                then, otherwise = self._evaluate(node.then), self._evaluate(node.otherwise)
                if holds is None or then is None or otherwise is None:
                    return None
                return np.where(holds.astype(np.bool_), then, otherwise)
            case _:
                return None


_COUNTED = (DataType.INDEX, DataType.BOOL)
_LARGEST = np.iinfo(np.int64).max
"""Largest literal that is evaluated."""


@dataclasses.dataclass(slots=True)
class _Run:
    """Contiguous bytes that each lane loads or stores."""

    end: Array
    bytes: int


@dataclasses.dataclass(slots=True)
class _Found:
    """Accumulator of a body's contents, in order."""

    accesses: list[Access] = dataclasses.field(default_factory=list[Access])
    barriers: int = 0
    shared: int = 0
    loops: list[Loop] = dataclasses.field(default_factory=list[Loop])
    rarities: list[Rarity] = dataclasses.field(default_factory=list[Rarity])
    runs: dict[tuple[str, bool], list[_Run]] = dataclasses.field(
        default_factory=dict[tuple[str, bool], "list[_Run]"]
    )

    def find_run(self, buffer: str, begin: Array, size: int, written: bool) -> bool:
        """Whether every lane continues at the end of a previous access; compilers then merge the
        two."""
        runs = self.runs.setdefault((buffer, written), [])
        for run in runs:
            # The first element rules out most.
            may_go_on = run.bytes + size <= _WIDEST and (run.end[:1] == begin[:1]).all()
            if may_go_on and np.array_equal(run.end, begin):
                run.end, run.bytes = begin + size, run.bytes + size
                return True
        runs.append(_Run(begin + size, size))
        return False

    def add(self, body: Body, often: float) -> None:
        """Adds the content of a conditional that a fraction `often` of the waves executes."""
        self.accesses += body.accesses
        self.barriers += body.barriers
        self.shared += body.shared
        self.loops += body.loops
        if often > RARE:
            self.rarities += body.rarities
            return
        stored = sum(access.bytes for access in body.accesses if access.written)
        whole = sum(access.bytes for access in body.accesses)
        self.rarities.append(Rarity(often, whole - stored, stored))

    def body(self) -> Body:
        return Body(
            tuple(self.accesses),
            self.barriers,
            self.shared,
            tuple(self.loops),
            tuple(self.rarities),
        )


# NumPy's set functions import its masked arrays, which takes longer than everything else here.


def _sort_distinct(numbers: Array) -> Array:
    """Distinct numbers, ascending."""
    ordered = np.sort(numbers)
    is_first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def _subtract(numbers: Array, others: Array) -> Array:
    """Numbers without `others`; both ascending and distinct."""
    if not others.size:
        return numbers
    place = np.minimum(np.searchsorted(others, numbers), others.size - 1)
    return numbers[others[place] != numbers]


def _cut(places: Array) -> Array:
    return places & ((1 << _PLACE_BITS) - 1)
