"""Runs kernels in NumPy, all work items of all groups in step, and faults what no device may do.

What a kernel means is defined here: each statement is done by every work item that comes to it
before the next one is. A fault is a read or a write outside a buffer or an array, a read of what
nobody has written, a barrier that only some items of a group meet, and a race: an element that
one item writes and another reads or writes, with no barrier between. A wrong schedule so shows
without a driver and without a device.

Scalars are arrays with one entry for each work item, vectors have a second axis of lanes. Values
have the types that devices compute in, so that integers and positions wrap as they do there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.print import print_expression
from dmlc.scalars import Array, DataType, convert
from dmlc.source import InternalError

_NOBODY, _SEVERAL = -1, -2
"""In place of the number of the work item that wrote or read an element."""

_Items = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


class KernelFault(InternalError):
    """A kernel did what no device may do: a bug in what made it."""


class Memory:
    """A buffer's elements, and who wrote and read each since the launch began.

    Two buffers of a kernel may be one `Memory`, where a result is stored over an operand.
    """

    def __init__(self, values: Array, *, filled: bool, misaligned: int = 0) -> None:
        """`values` is flat, in the type as stored; `filled` says whether it may be read before it
        is written. Its first element stands `misaligned` elements after an aligned address."""
        self.values = values
        self.filled: _Mask = np.full(values.shape, filled)
        self.misaligned = misaligned
        self.forget()

    def forget(self) -> None:
        """Between two launches, every item sees what all have written."""
        self.users = _Users(self.values.size)


class _Users:
    """Who wrote and who read each element since all were last in step."""

    def __init__(self, size: int) -> None:
        self.writer: _Items = np.full(size, _NOBODY)
        self.reader: _Items = np.full(size, _NOBODY)

    def read(self, places: _Items, items: _Items) -> _Mask:
        """Notes reads by `items`; true where another wrote the element."""
        writer = self.writer[places]
        before = self.reader[places]
        mine = (before == _NOBODY) | (before == items)
        self.reader[places] = np.where(mine, items, _SEVERAL)
        # Of several that read an element in one statement, the last is left.
        shared = self.reader[places] != items
        self.reader[places[shared]] = _SEVERAL
        return (writer != _NOBODY) & (writer != items)

    def write(self, places: _Items, items: _Items) -> _Mask:
        """Notes writes by `items`; true where another wrote or read the element."""
        writer, reader = self.writer[places], self.reader[places]
        self.writer[places] = items
        beside = self.writer[places] != items
        others = (writer != _NOBODY) & (writer != items)
        return others | ((reader != _NOBODY) & (reader != items)) | beside


@dataclasses.dataclass(slots=True)
class _Array:
    """An array of every work item, or of every group: one row each."""

    array: k.Array
    values: Array
    filled: _Mask
    users: _Users


def run_kernel(
    kernel: k.Kernel, memories: Mapping[str, Memory], sizes: Mapping[str, int] | None = None
) -> None:
    """Runs one launch of a kernel on its buffers' memory; `sizes` has the run-time sizes.

    Raises `KernelFault` for what no device may do, naming kernel, statement and work item.
    """
    for memory in {id(m): m for m in memories.values()}.values():
        memory.forget()
    with np.errstate(all="ignore"):
        _Launch(kernel, memories, sizes or {}).run()


def evaluate_function(function: k.Function, given: Sequence[Array]) -> Array:
    """What a function gives for each of the values of its parameters."""
    values = np.broadcast_arrays(*given)
    count = values[0].size
    kernel = dataclasses.replace(function.as_kernel(), scalars=(), launch=k.Launch(count, 1, 1))
    known = {p.name: v.ravel() for p, v in zip(function.parameters, values, strict=True)}
    with np.errstate(all="ignore"):
        made = _Launch(kernel, {}, {}, known).run()["result"]
    return np.broadcast_to(made, count).reshape(values[0].shape)


class _Launch:
    """All work items of a launch, and what each has at hand."""

    def __init__(
        self,
        kernel: k.Kernel,
        memories: Mapping[str, Memory],
        sizes: Mapping[str, int],
        known: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        self._kernel = kernel
        self._buffers = {b.name: b for b in kernel.buffers}
        self._memories = memories
        signed = "i" if kernel.index_signed else "u"
        self._index: np.dtype[Any] = np.dtype(f"{signed}{kernel.index_bits // 8}")
        launch = kernel.launch
        count = sizes[launch.count] if isinstance(launch.count, str) else launch.count
        groups = -(-count // launch.per_group)
        if launch.row is not None and groups > launch.row:
            groups = -(-groups // launch.row) * launch.row
        self._size = launch.group_size
        self._items: _Items = np.arange(groups * self._size, dtype=np.int64)
        self._groups = groups
        self._known = dict(known)
        for scalar, value in kernel.scalars:
            number = sizes[value] if isinstance(value, str) else value
            self._known[scalar.name] = np.array([number], self._index)
        self._arrays = {a.name: self._make_array(a) for a in kernel.arrays}
        self._statement: k.Statement | None = None

    def _make_array(self, array: k.Array) -> _Array:
        rows = self._groups if array.shared else self._items.size
        count = rows * array.size
        values = np.zeros(count, self._dtype(array.dtype))
        return _Array(array, values, np.zeros(count, np.bool_), _Users(count))

    def _dtype(self, dtype: DataType) -> np.dtype[Any]:
        """What values of a type are computed in."""
        return self._index if dtype is DataType.INDEX else dtype.compute.dtype

    def run(self) -> Mapping[str, Array]:
        """The values of the locals that the body itself defines, and of those known before."""
        if self._items.size:
            self._run_statements(self._kernel.body, np.ones(self._items.size, np.bool_))
        return self._known

    # Statements ---------------------------------------------------------------------------

    @contextmanager
    def _scope(self) -> Generator[None]:
        """What is named inside is out of sight after it; what is assigned stays."""
        outside = tuple(self._known)
        yield
        self._known = {name: self._known[name] for name in outside}

    def _define(self, local: k.Local, value: Array) -> None:
        if local.name in self._known:
            self._fail(f"'{local.name}' is defined where another of that name is in sight")
        self._known[local.name] = value

    def _run_statements(self, statements: Sequence[k.Statement], active: _Mask) -> None:
        for statement in statements:
            self._statement = statement
            self._run_statement(statement, active)

    def _run_statement(self, statement: k.Statement, active: _Mask) -> None:
        match statement:
            case k.Let(local=local, value=value) | k.Variable(local=local, value=value):
                self._define(local, self._evaluate_as(value, local.type, active))
            case k.Assign(local=local, value=value):
                before = self._find(local)
                after = self._evaluate_as(value, local.type, active)
                chosen = active if local.type.lanes == 1 else active[:, None]
                self._known[local.name] = np.where(chosen, after, before)
            case k.Put(array=array, index=index, value=value):
                self._put(array, index, value, active)
            case k.Store(buffer=buffer, index=index, value=value):
                made = self._evaluate(value, active)
                places = self._place(buffer, index, value.type.lanes, active)
                self._store(buffer, places, made, active)
            case k.StoreWord():
                self._store_word(statement, active)
            case k.PutHalf():
                self._put_half(statement, active)
            case k.If(condition=condition, then=then):
                inside = active & self._evaluate(condition, active)
                if inside.any():
                    with self._scope():
                        self._run_statements(then, inside)
            case k.For():
                self._run_loop(statement, active)
            case k.Halve(variable=variable, start=start, body=body):
                number = start
                while number > 0:
                    with self._scope():
                        self._define(variable, np.array([number], self._index))
                        self._run_statements(body, active)
                    number //= 2
            case k.Barrier():
                self._wait(active)
            case k.Prefetch():
                pass  # A hint: it may point anywhere.

    def _run_loop(self, loop: k.For, active: _Mask) -> None:
        first = loop.stop if loop.backwards else loop.start
        place = np.broadcast_to(self._evaluate(first, active), active.shape)
        inside = active
        while True:
            self._statement = loop
            if loop.backwards:
                inside = inside & (place > self._evaluate(loop.start, inside))
                place = place - self._index.type(1)
            else:
                inside = inside & (place < self._evaluate(loop.stop, inside))
            if not inside.any():
                return
            with self._scope():
                self._define(loop.variable, place)
                self._run_statements(loop.body, inside)
            if not loop.backwards:
                place = place + self._index.type(loop.step)

    def _wait(self, active: _Mask) -> None:
        """A barrier: all items of a group are at it, or none."""
        here = active.reshape(self._groups, self._size)
        if (here.any(axis=1) != here.all(axis=1)).any():
            group = int(np.flatnonzero(here.any(axis=1) != here.all(axis=1))[0])
            self._fail(f"only {int(here[group].sum())} of {self._size} items of group {group} wait")
        for array in self._arrays.values():
            if array.array.shared:
                rows = np.flatnonzero(here.any(axis=1))
                for noted in (array.users.writer, array.users.reader):
                    noted.reshape(self._groups, -1)[rows] = _NOBODY

    # Memory -------------------------------------------------------------------------------

    def _place(self, buffer: str, index: k.Expression, lanes: int, active: _Mask) -> _Items:
        """The elements `index .. index + lanes` of each active item: one row of lanes each."""
        memory = self._memories[buffer]
        return self._count_lanes(buffer, index, lanes, active, memory.values.size)

    def _count_lanes(
        self, name: str, index: k.Expression, lanes: int, active: _Mask, size: int
    ) -> _Items:
        found = np.broadcast_to(self._evaluate(index, active), active.shape)[active]
        first = found.astype(np.int64)
        places = first[:, None] + np.arange(lanes)
        outside = (places < 0) | (places >= size)
        if outside.any():
            place = places[outside][0]
            self._fail(f"element {place} of '{name}', which has {size}", _any_lane(outside), active)
        return places

    def _users_of(self, active: _Mask, lanes: int) -> _Items:
        return np.repeat(self._items[active], lanes)

    def _load(self, load: k.Load, active: _Mask) -> Array:
        buffer, memory = self._buffers[load.buffer], self._memories[load.buffer]
        if buffer.access is k.Access.WRITE:
            self._fail(f"'{load.buffer}' is not for reading")
        lanes = load.type.lanes
        places = self._place(load.buffer, load.index, lanes, active)
        if not memory.filled[places].all():
            missing = _any_lane(~memory.filled[places])
            self._fail(f"'{load.buffer}' is read before it is written", missing, active)
        raced = memory.users.read(places.ravel(), self._users_of(active, lanes))
        if raced.any():
            bad = _any_lane(raced.reshape(places.shape))
            self._fail(f"'{load.buffer}' is read where another item writes it", bad, active)
        return self._spread(convert(memory.values[places], load.type.dtype), active, lanes)

    def _spread(self, values: Array, active: _Mask, lanes: int) -> Array:
        """Values of the active items, among zeros for the others."""
        whole = np.zeros((active.size, lanes), values.dtype)
        whole[active] = values
        return whole[:, 0] if lanes == 1 else whole

    def _store(self, buffer: str, places: _Items, made: Array, active: _Mask) -> None:
        memory = self._memories[buffer]
        if self._buffers[buffer].access is k.Access.READ:
            self._fail(f"'{buffer}' is not for writing")
        lanes = places.shape[1]
        raced = memory.users.write(places.ravel(), self._users_of(active, lanes))
        if raced.any():
            bad = _any_lane(raced.reshape(places.shape))
            self._fail(f"'{buffer}' is written where another item reads or writes it", bad, active)
        made = np.broadcast_to(made.reshape(made.shape[0], -1), (active.size, lanes))[active]
        memory.values[places] = convert(made, self._buffers[buffer].dtype)
        memory.filled[places] = True

    def _put_half(self, put: k.PutHalf, active: _Mask) -> None:
        value = self._evaluate(put.value, active)
        stored = convert(value, self._buffers[put.buffer].dtype).view(np.uint16)
        half = self._evaluate(put.half, active).astype(np.uint32)
        before = self._find(put.word)
        after = before | (stored.astype(np.uint32) << (half * np.uint32(16)))
        self._known[put.word.name] = np.where(active, after, before)

    def _store_word(self, store: k.StoreWord, active: _Mask) -> None:
        """Two neighbours of 16 bits; the second may lie past the end, where a buffer has room for
        whole words."""
        buffer, memory = self._buffers[store.buffer], self._memories[store.buffer]
        word = np.broadcast_to(self._find(store.word), active.shape)
        index = np.broadcast_to(self._evaluate(store.index, active), active.shape).astype(np.int64)
        for half in (0, 1):
            place = index * 2 + half
            held = active if half == 0 else active & (place < memory.values.size)
            if (place[held] >= memory.values.size).any() or (place[held] < 0).any():
                self._fail(f"a word outside '{store.buffer}'")
            bits = ((word >> np.uint32(16 * half)) & np.uint32(0xFFFF)).astype(np.uint16)
            self._store(store.buffer, place[held][:, None], bits.view(buffer.dtype.dtype), held)

    def _put(self, name: str, index: k.Expression, value: k.Expression, active: _Mask) -> None:
        array, lanes = self._arrays[name], value.type.lanes
        made = self._evaluate(value, active)
        places = self._find_elements(array, index, lanes, active)
        if array.array.shared:
            raced = array.users.write(places.ravel(), self._users_of(active, lanes))
            if raced.any():
                bad = _any_lane(raced.reshape(places.shape))
                self._fail(f"'{name}' is written where another item uses it", bad, active)
        made = np.broadcast_to(made.reshape(made.shape[0], -1), (active.size, lanes))[active]
        array.values[places] = made
        array.filled[places] = True

    def _find_elements(
        self, array: _Array, index: k.Expression, lanes: int, active: _Mask
    ) -> _Items:
        size = array.array.size
        places = self._count_lanes(array.array.name, index, lanes, active, size)
        rows = self._items[active]
        rows = rows // self._size if array.array.shared else rows
        return places + rows[:, None] * size

    def _load_element(self, element: k.Element, active: _Mask) -> Array:
        array, lanes = self._arrays[element.array], element.type.lanes
        places = self._find_elements(array, element.index, lanes, active)
        if not array.filled[places].all():
            missing = _any_lane(~array.filled[places])
            self._fail(f"'{element.array}' is read before it is written", missing, active)
        if array.array.shared:
            raced = array.users.read(places.ravel(), self._users_of(active, lanes))
            if raced.any():
                bad = _any_lane(raced.reshape(places.shape))
                self._fail(f"'{element.array}' is read where another writes it", bad, active)
        return self._spread(array.values[places], active, lanes)

    # Expressions --------------------------------------------------------------------------

    def _find(self, local: k.Local) -> Array:
        if local.name not in self._known:
            self._fail(f"'{local.name}' is used where it is not defined")
        return self._known[local.name]

    def _evaluate_as(self, value: k.Expression, type: k.Type, active: _Mask) -> Array:
        if value.type != type:
            self._fail(f"{value.type} is given to a local of {type}")
        return self._evaluate(value, active)

    def _evaluate(self, node: k.Expression, active: _Mask) -> Array:
        """The values of an expression: right for the active items, anything for the others. One
        entry may stand for all items."""
        lanes = node.type.lanes
        match node:
            case k.Literal():
                made = np.array([node.value], self._dtype(node.type.dtype))
                return made if lanes == 1 else np.repeat(made[:, None], lanes, axis=1)
            case k.Local():
                return self._find(node)
            case k.Scalar():
                return self._known[node.name]
            case k.Position():
                group = node.geometry is k.Geometry.GROUP
                found = self._items // self._size if group else self._items % self._size
                return found.astype(self._index)
            case k.Load():
                return self._load(node, active)
            case k.Element():
                return self._load_element(node, active)
            case k.Operate():
                return self._operate(node, active)
            case k.Choose():
                return self._choose(node, active)
            case k.Convert():
                return self._convert(node, active)
            case k.Reinterpret(operand=operand):
                return self._evaluate(operand, active).view(self._dtype(node.type.dtype))
            case k.Broadcast():
                return np.repeat(self._evaluate(node.operand, active)[:, None], lanes, axis=1)
            case k.Numbers(values=values):
                return np.array([values], np.int64).astype(self._dtype(node.type.dtype))
            case k.Lead(buffer=buffer, bytes=size):
                element = self._buffers[buffer].dtype.bytes
                lead = -self._memories[buffer].misaligned * element % size // element
                return np.array([lead], self._index)
            case k.Join():
                halves = [self._evaluate(h, active) for h in (node.low, node.high)]
                rows = max(h.shape[0] for h in halves)
                wide = [np.broadcast_to(h, (rows, h.shape[1])) for h in halves]
                return np.concatenate(wide, axis=1)
            case k.Shuffle():
                pair = [self._evaluate(v, active) for v in (node.first, node.second)]
                rows = max(v.shape[0] for v in pair)
                wide = [np.broadcast_to(v, (rows, v.shape[1])) for v in pair]
                return np.concatenate(wide, axis=1)[:, list(node.lanes)]

    def _operate(self, node: k.Operate, active: _Mask) -> Array:
        types = {o.type for o in node.operands}
        if len(types) != 1:
            self._fail(f"operands of several types in {print_expression(node)}")
        name = node.operation.name
        first = self._evaluate(node.operands[0], active)
        if name in ("and", "or") and node.type.lanes == 1:
            # The second operand is computed where the first does not decide.
            undecided = active & (first if name == "and" else ~first)
            if not undecided.any():
                return first
            return node.operation.evaluate(first, self._evaluate(node.operands[1], undecided))
        rest = [self._evaluate(o, active) for o in node.operands[1:]]
        made = np.asarray(node.operation.evaluate(first, *rest))
        return made.astype(self._dtype(node.type.dtype), copy=False)

    def _choose(self, node: k.Choose, active: _Mask) -> Array:
        condition = self._evaluate(node.condition, active)
        if node.condition.type.lanes > 1:
            arms = [self._evaluate(arm, active) for arm in (node.then, node.otherwise)]
            return np.where(condition, *arms)
        chosen = np.broadcast_to(condition, active.shape)
        then = self._evaluate(node.then, active & chosen)
        otherwise = self._evaluate(node.otherwise, active & ~chosen)
        return np.where(chosen if node.type.lanes == 1 else chosen[:, None], then, otherwise)

    def _convert(self, node: k.Convert, active: _Mask) -> Array:
        """A position is the integer of its width under another name."""
        values, target = self._evaluate(node.operand, active), node.type.dtype
        if target is DataType.INDEX:
            integer = next(t for t in DataType if t.dtype == self._index and t.is_integer)
            return convert(values, integer)
        return convert(values, target).astype(target.compute.dtype, copy=False)

    # Faults -------------------------------------------------------------------------------

    def _fail(self, what: str, bad: _Mask | None = None, active: _Mask | None = None) -> None:
        """Raises `KernelFault`; `bad` says which of the active items are at fault."""
        who = ""
        if bad is not None and active is not None:
            item = int(self._items[active][bad][0])
            who = f", item {item % self._size} of group {item // self._size}"
        raise KernelFault(f"kernel '{self._kernel.name}'{who}: {what}\n  in {self._statement}")


def _any_lane(lanes: _Mask) -> _Mask:
    """The items of which any lane is true."""
    return np.asarray(np.any(lanes, axis=1))


# Programs ------------------------------------------------------------------------------------


def run_kernels(
    function: ir.Function,
    kernels: Sequence[k.Kernel],
    inputs: Mapping[str, Array],
    *,
    misaligned: int = 0,
) -> dict[str, Array]:
    """The results of a function by name, packed, from its kernels in execution order.

    `inputs` has an array of each parameter's type and sizes, as `reference.evaluate` takes them.
    Every buffer starts `misaligned` elements after an aligned address. Raises `KernelFault`.
    """
    sizes: dict[str, int] = {}
    shape: tuple[int, ...] = ()
    memories: dict[str, Memory] = {}
    for parameter in function.parameters:
        given = np.asarray(inputs[parameter.name])
        for extent in parameter.extents:
            if isinstance(extent, str):
                sizes[extent], shape = given.size, given.shape
        values = given.ravel() if sizes else given
        extents = [sizes[e] if isinstance(e, str) else e for e in parameter.extents]
        memory = _lay_out(extents, parameter.strides, parameter.dtype, filled=True)
        memory.misaligned = misaligned
        _view(memory, extents, parameter.strides)[...] = values.reshape(extents)
        memories[parameter.name] = memory
    for table in function.tables:
        values = np.array(table.values, table.dtype.dtype)
        memories[table.name] = Memory(values, filled=True, misaligned=misaligned)
    strides = {r.name: r.strides for r in function.results}
    for stage in function.stages:
        extents = [sizes[e] if isinstance(e, str) else e for e in stage.domain]
        memory = _lay_out(extents, strides.get(stage.name), stage.dtype, filled=False)
        memory.misaligned = misaligned
        memories[stage.name] = memory
    for kernel in kernels:
        for buffer in kernel.buffers:
            if buffer.count is not None and buffer.name not in memories:
                values = np.zeros(buffer.count, buffer.dtype.dtype)
                memories[buffer.name] = Memory(values, filled=False, misaligned=misaligned)
        run_kernel(kernel, {b.name: memories[b.name] for b in kernel.buffers}, sizes)
    found: dict[str, Array] = {}
    for result in function.results:
        stage = function.stage(result.name)
        assert stage is not None
        extents = [sizes[e] if isinstance(e, str) else e for e in stage.domain]
        memory = memories[result.name]
        if not _view_of(memory.filled, extents, result.strides).all():
            raise KernelFault(f"'{result.name}' has elements that no kernel writes")
        values = _view(memory, extents, result.strides).copy()
        found[result.name] = values.reshape(shape) if sizes and shape else values
    return found


def _lay_out(
    extents: Sequence[int], strides: Sequence[int] | None, dtype: DataType, *, filled: bool
) -> Memory:
    """Memory that holds a tensor from its first to its last element."""
    if math.prod(extents) == 0:
        return Memory(np.zeros(0, dtype.dtype), filled=filled)
    steps = ir.packed_strides(tuple(extents)) if strides is None else strides
    last = sum((e - 1) * s for e, s in zip(extents, steps, strict=True))
    return Memory(np.zeros(last + 1, dtype.dtype), filled=filled)


def _view(memory: Memory, extents: Sequence[int], strides: Sequence[int] | None) -> Array:
    return _view_of(memory.values, extents, strides)


def _view_of(flat: Array, extents: Sequence[int], strides: Sequence[int] | None) -> Array:
    """The elements of a tensor in flat memory."""
    if strides is None:
        return flat.reshape(tuple(extents))
    steps = [s * flat.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat, tuple(extents), steps)
