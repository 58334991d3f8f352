"""Reference interpreter of kernels in NumPy, all work items in lockstep, which detects faults.

It defines the meaning of a kernel: each statement is executed by every work item that reaches it
before the next one is. A fault is an access out of bounds, a read of undefined memory, a quotient
of indices by a divisor that is 0 although its range says otherwise, a barrier that only some items
of a group reach, or a race: an element that one item writes and another accesses without a barrier
between. A wrong schedule is thus found without a driver and a device.

A kernel is first compiled to closures, one for each statement and expression. They take the active
items: a mask, or None for all. Scalars are arrays with one entry per work item, or one entry for
all; vectors have a second axis of lanes. Values have the types that devices compute in, so that
integers and indices wrap as they do there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from dmlc import ir
from dmlc.ir.specialize import evaluate_strides
from dmlc.kernel import nodes as k
from dmlc.kernel.matrices import Matrices
from dmlc.kernel.memory import Cells, Memory, Who, WorkItems, beside, lay_out, view_of
from dmlc.kernel.print import print_expression, print_statement
from dmlc.kernel.reaches import Reaches
from dmlc.kernel.rewrite import walk
from dmlc.kernel.rows import STEP
from dmlc.scalars import Array, DataType, convert
from dmlc.sizes import Shapes, evaluate_size
from dmlc.source import InternalError

__all__ = ["KernelFault", "Launch", "MakeLaunch", "Memory", "run_kernel", "run_kernels"]

_Value: TypeAlias = Callable[[Who], Array]
_Step: TypeAlias = Callable[[Who], None]

MakeLaunch: TypeAlias = (
    "Callable[[k.Kernel, Mapping[str, Memory], Mapping[str, int], Mapping[str, Array]], Launch]"
)
"""Makes the launch of a kernel on memories, where sizes and some locals are known."""


class KernelFault(InternalError):
    """Fault of a kernel, such as a race: a bug of the compiler."""


def run_kernel(
    kernel: k.Kernel,
    memories: Mapping[str, Memory],
    sizes: Mapping[str, int] | None = None,
    make: MakeLaunch | None = None,
) -> None:
    """Runs one launch of a kernel on its buffers' memory; `sizes` are the run-time sizes. `make`
    constructs the launch, for simulated devices.

    Raises `KernelFault`, naming kernel, statement and work item.
    """
    for memory in {id(m): m for m in memories.values()}.values():
        # All stores are visible to later launches.
        memory.users.forget()
    with np.errstate(all="ignore"):
        (make or Launch)(kernel, memories, sizes or {}, {}).run()


def evaluate_function(function: k.Function, given: Sequence[Array]) -> Array:
    """Results of a function for arrays of its parameters' values."""
    return evaluate_kernel(function.as_kernel(), given)


def evaluate_kernel(
    kernel: k.Kernel, given: Sequence[Array], make: MakeLaunch | None = None
) -> Array:
    """Last local that a kernel without buffers defines, for arrays of its scalars' values; `make`
    as in `run_kernel`."""
    values = np.broadcast_arrays(*given)
    count = values[0].size
    known = {s.name: v.ravel() for (s, _), v in zip(kernel.scalars, values, strict=True)}
    kernel = dataclasses.replace(kernel, scalars=(), launch=k.Launch(count, 1, 1))
    with np.errstate(all="ignore"):
        made = (make or Launch)(kernel, {}, {}, known).run()
    return np.broadcast_to(made, count).reshape(values[0].shape)


class Launch:
    """One launch of a kernel: its closures, and the locals and arrays of its work items.

    Where languages leave a choice to devices, it follows the semantics; a simulated device has a
    subclass that chooses otherwise.
    """

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
        groups = launch.count_groups(evaluate_size(launch.count, sizes))
        self._items = WorkItems(groups, launch.group_size)
        self._reaches = Reaches(kernel)
        self._frame: list[Array] = []
        """The values of all names, by slot."""
        self._slots: dict[str, int] = {}
        """The slots of the names in sight."""
        self._variables: set[str] = set()
        self._statement: k.Statement | None = None
        """Current statement."""
        for name, values in known.items():
            self._frame[self._take(name)] = values
        for scalar, value in kernel.scalars:
            number = evaluate_size(value, sizes)
            self._frame[self._take(scalar.name)] = np.array([number], self._dtype(scalar.type))
        self._cells = {b.name: self._make_buffer(b) for b in kernel.buffers}
        self._cells |= {a.name: self._make_array(a) for a in kernel.arrays}
        self._shared = [self._cells[a.name] for a in kernel.arrays if a.shared]
        self._matrices = Matrices(kernel, self._items, self._cells, self._fail)

    def _make_cells(self, held: k.Buffer | k.Array, memory: Memory, of: type[Cells]) -> Cells:
        """Accessor of a buffer's or an array's elements."""
        cells = of(held.name, memory, self._items, self._fail)
        if held.dtype.compute is not held.dtype:
            cells.stored, cells.compute = held.dtype, held.dtype.compute
        cells.vector = held.lanes
        return cells

    def _make_buffer(self, buffer: k.Buffer) -> Cells:
        memory = self._memories[buffer.name]
        cells = self._make_cells(buffer, memory, Cells)
        written = [b.name for b in self._kernel.buffers if b.access is not k.Access.READ]
        is_read_only = all(self._memories[name] is not memory for name in written)
        cells.is_still = is_read_only and bool(memory.filled.all())
        return cells

    def _make_array(self, array: k.Array) -> Cells:
        items = self._items
        rows = items.all // items.group_size if array.shared else items.all
        dtype = self._index if array.dtype is DataType.INDEX else array.dtype.dtype
        values = np.zeros(array.size * (items.groups if array.shared else items.all.size), dtype)
        cells = self._make_cells(array, Memory(values, filled=False), Cells)
        cells.size, cells.rows = array.size, rows * array.size
        cells.is_shared = array.shared and items.group_size > 1
        return cells

    def _dtype(self, type: k.Type) -> np.dtype[Any]:
        """NumPy type that values of a type are computed in."""
        return self._index if type.dtype is DataType.INDEX else type.dtype.compute.dtype

    def run(self) -> Array:
        """Runs the kernel, and returns the value of its last local."""
        if self._items.all.size:
            self._run_items(self._make_body(self._kernel.body))
        made = self._frame[-1] if self._frame else np.zeros(0)
        # Its closures refer to each other, and so live on for a while.
        self._frame.clear()
        return made

    def _run_items(self, body: _Step) -> None:
        """Runs the kernel's body for all work items."""
        body(None)

    def _fail(self, what: str, bad: Array | None = None, who: Who = None) -> NoReturn:
        """Raises `KernelFault`; `bad` marks the faulty ones of the items `who`, or of their
        lanes."""
        at = ""
        if bad is not None:
            first = int(np.flatnonzero(bad.reshape(bad.shape[0], -1).any(axis=1))[0])
            group, item = divmod(int(self._items.find(who)[first]), self._items.group_size)
            at = f", item {item} of group {group}"
        line = "" if self._statement is None else f"\n  in {print_statement(self._statement)}"
        raise KernelFault(f"kernel '{self._kernel.name}'{at}: {what}{line}")

    # Names --------------------------------------------------------------------------------

    def _take(self, name: str) -> int:
        """Slot of a name that becomes visible."""
        if name in self._slots:
            self._fail(f"'{name}' is defined where another of that name is in sight")
        self._slots[name] = len(self._frame)
        self._frame.append(np.zeros(0))
        return self._slots[name]

    def _find(self, name: str) -> int:
        if name not in self._slots:
            self._fail(f"'{name}' is used where it is not defined")
        return self._slots[name]

    # Statements ---------------------------------------------------------------------------

    def _make_body(self, statements: Sequence[k.Statement]) -> _Step:
        """Closure of a block of statements, whose names are not visible after it."""
        outside = dict(self._slots)
        steps: list[tuple[k.Statement, _Step]] = []
        for statement in statements:
            self._statement = statement
            step = self._make_step(statement)
            if step is not None:
                steps.append((statement, step))
        self._slots = outside

        def run(who: Who) -> None:
            for statement, step in steps:
                self._statement = statement
                step(who)

        return run

    def _make_step(self, statement: k.Statement) -> _Step | None:
        match statement:
            case k.Let(local=local, value=value) | k.Variable(local=local, value=value):
                changes = isinstance(statement, k.Variable)
                (self._variables.add if changes else self._variables.discard)(local.name)
                step = self._make_definition(local, value)
                self._reaches.note(local, None if changes else value)
                return step
            case k.Assign():
                return self._make_assignment(statement)
            case k.StoreLocal(array=name, index=index, value=value):
                return self._make_write(name, index, value)
            case k.Store(buffer=name, index=index, value=value):
                if self._buffers[name].access is k.Access.READ:
                    self._fail(f"'{name}' is not for writing")
                return self._make_write(name, index, value)
            case k.StoreWord():
                return self._make_store_word(statement)
            case k.InsertHalf():
                return self._make_put_half(statement)
            case k.If():
                return self._make_branch(statement)
            case k.For():
                return self._make_loop(statement)
            case k.Barrier(memory=memory):
                return self._wait_for_memory if memory else self._wait
            case k.Prefetch():
                return None  # A hint: it may point anywhere.
            case k.FillMatrix() | k.LoadMatrix() | k.StoreMatrix() | k.MultiplyMatrices():
                return self._matrices.make_step(statement, self._make)

    def _make_definition(self, local: k.Local, value: k.Expression) -> _Step:
        made = self._make_as(value, local.type)
        frame, slot = self._frame, self._take(local.name)

        def run(who: Who) -> None:
            frame[slot] = made(who)

        return run

    def _make_assignment(self, assign: k.Assign) -> _Step:
        made, frame = self._make_as(assign.value, assign.local.type), self._frame
        slot, is_scalar = self._find(assign.local.name), assign.local.type.lanes == 1

        def run(who: Who) -> None:
            after = made(who)
            if who is not None:
                after = np.where(who if is_scalar else who[:, None], after, frame[slot])
            frame[slot] = after

        return run

    def _make_branch(self, branch: k.If) -> _Step:
        condition, body = self._make(branch.condition), self._make_body(branch.then)

        def run(who: Who) -> None:
            inside = self._items.narrow(who, condition(who))
            if inside is not self._items.nobody:
                body(inside)

        return run

    def _make_loop(self, loop: k.For) -> _Step:
        self._reaches.note_turns(loop)
        first, last = (loop.stop, loop.start) if loop.backwards else (loop.start, loop.stop)
        begin, end = self._make(first), self._make(last)
        is_fixed = self._is_fixed(last)
        name = loop.variable.name
        self._variables.discard(name)
        slot, body = self._take(name), self._make_body(loop.body)
        del self._slots[name]
        frame, step, backwards = self._frame, self._index.type(loop.step), loop.backwards
        most = int(np.iinfo(self._index).max) - loop.step

        def run(who: Who) -> None:
            place, limit, inside = begin(who), end(who), who
            is_far = not backwards and (not is_fixed or limit.max() > most)
            while True:
                if not is_fixed:
                    limit = end(inside)
                inside = self._items.narrow(inside, place > limit if backwards else place < limit)
                if inside is self._items.nobody:
                    return
                if backwards:
                    place = place - step
                frame[slot] = place
                body(inside)
                self._statement = loop
                if not backwards:
                    if is_far and self._items.among(place, inside).max() > most:
                        self._fail("a loop counts past the largest position")
                    place = place + step

        return run

    def _is_fixed(self, expression: k.Expression) -> bool:
        """Whether an expression has the same value in every iteration of a loop."""
        return not any(
            isinstance(part, k.Load | k.LoadLocal)
            or (isinstance(part, k.Local) and part.name in self._variables)
            for part in walk(expression)
        )

    def _wait(self, who: Who) -> None:
        """A barrier, which all items of a group must reach, or none."""
        groups: Array | None = None
        if who is not None:
            here = np.asarray(who).reshape(self._items.groups, -1)
            groups, complete = np.any(here, axis=1), np.all(here, axis=1)
            if (groups != complete).any():
                group = int(np.flatnonzero(groups != complete)[0])
                of = f"of {self._items.group_size} items of group {group}"
                self._fail(f"only {int(here[group].sum())} {of} wait")
        for cells in self._shared:
            cells.forget(groups)

    def _wait_for_memory(self, who: Who) -> None:
        """A barrier of the only group that also makes its buffer stores visible."""
        self._wait(who)
        for buffer in self._kernel.buffers:
            self._cells[buffer.name].forget()

    def _make_write(self, name: str, index: k.Expression, value: k.Expression) -> _Step:
        made, place = self._make(value), self._make(index)
        cells, lanes = self._cells[name], value.type.lanes

        def run(who: Who) -> None:
            values = made(who)
            cells.write(place(who), values, lanes, who)

        return run

    def _make_put_half(self, put: k.InsertHalf) -> _Step:
        made, half = self._make(put.value), self._make(put.half)
        frame, slot, dtype = self._frame, self._find(put.word.name), self._buffers[put.buffer].dtype

        def run(who: Who) -> None:
            stored = convert(made(who), dtype).view(np.uint16).astype(np.uint32)
            before = frame[slot]
            after = before | (stored << (half(who).astype(np.uint32) * np.uint32(16)))
            frame[slot] = after if who is None else np.where(who, after, before)

        return run

    def _make_store_word(self, store: k.StoreWord) -> _Step:
        """Stores a word of two 16-bit elements; the second may be past the end, as buffers are
        padded to whole words."""
        cells, dtype = self._cells[store.buffer], self._buffers[store.buffer].dtype
        index, frame, slot = self._make(store.index), self._frame, self._find(store.word.name)

        def run(who: Who) -> None:
            first = index(who).astype(np.int64) * 2
            for number in (0, 1):
                held = who
                if number == 1:
                    held = self._items.narrow(who, first + 1 < cells.size)
                if held is not self._items.nobody:
                    bits = (frame[slot] >> np.uint32(16 * number)) & np.uint32(0xFFFF)
                    halves = convert(bits.astype(np.uint16).view(dtype.dtype), dtype.compute)
                    cells.write(first + number, halves, 1, held)

        return run

    # Expressions --------------------------------------------------------------------------

    def _make_as(self, value: k.Expression, type: k.Type) -> _Value:
        if value.type != type:
            self._fail(f"{value.type} is given to a local of {type}")
        return self._make(value)

    def _make(self, node: k.Expression) -> _Value:
        """Closure of an expression. Its values are undefined for inactive items."""
        lanes = node.type.lanes
        match node:
            case k.Literal():
                made = np.full((1, lanes) if lanes > 1 else 1, node.value, self._dtype(node.type))
                return lambda _: made
            case k.Numbers(values=values):
                made = np.array([values], np.int64).astype(self._dtype(node.type))
                return lambda _: made
            case k.Position(geometry=geometry):
                part = (geometry is k.Geometry.SUBGROUP and self._kernel.launch.subgroup) or 1
                size = None if geometry is k.Geometry.GROUP else part
                made = self._items.locate(size).astype(self._index)
                return lambda _: made
            case k.Lead(buffer=buffer, bytes=size):
                element = self._buffers[buffer].dtype.bytes
                lead = -self._memories[buffer].misaligned * element % size // element
                made = np.array([lead], self._index)
                return lambda _: made
            case k.Local(name=name) | k.Scalar(name=name):
                frame, slot = self._frame, self._find(name)
                return lambda _: frame[slot]
            case k.Load(buffer=name, index=index) | k.LoadLocal(array=name, index=index):
                if isinstance(node, k.Load) and self._buffers[name].access is k.Access.WRITE:
                    self._fail(f"'{name}' is not for reading")
                cells, place = self._cells[name], self._make(index)
                return lambda who: cells.read(place(who), lanes, who)
            case k.Operate():
                return self._make_operation(node)
            case k.Select():
                return self._make_choice(node)
            case k.Convert():
                return self._make_conversion(node)
            case k.Reinterpret():
                operand, dtype = self._make(node.operand), self._dtype(node.type)
                return lambda who: operand(who).view(dtype)
            case k.Broadcast():
                operand = self._make(node.operand)
                return lambda who: operand(who).repeat(lanes).reshape(-1, lanes)
            case k.Join():
                low, high, half = self._make(node.low), self._make(node.high), lanes // 2
                return lambda who: beside(low(who).reshape(-1, half), high(who).reshape(-1, half))
            case k.Extract():
                operand, chosen = self._make(node.operand), list(node.lanes)
                if lanes == 1:
                    return lambda who: operand(who)[:, chosen[0]]
                return lambda who: operand(who)[:, chosen]
            case k.Shuffle():
                first, second = self._make(node.first), self._make(node.second)
                taken = list(node.lanes)
                return lambda who: beside(first(who), second(who))[:, taken]

    def _make_operation(self, node: k.Operate) -> _Value:
        if any(operand.type != node.operands[0].type for operand in node.operands):
            self._fail(f"operands of several types in {print_expression(node)}")
        evaluate, dtype = self._find_evaluation(node), self._dtype(node.type)
        operands = [self._make(operand) for operand in node.operands]
        name, is_exact = node.operation.name, isinstance(evaluate, np.ufunc)
        if self._is_plain(node) and not isinstance(node.operands[1], k.Literal):
            operands[1] = self._make_divisor(operands[1], node)
        if name in ("and", "or") and node.type.lanes == 1:
            first, second = operands

            def run(who: Who) -> Array:
                # The second operand is evaluated only where the first does not decide.
                found = first(who)
                undecided = self._items.narrow(who, found if name == "and" else ~found)
                is_known = undecided is self._items.nobody
                return found if is_known else evaluate(found, second(undecided))

            return run
        if is_exact and len(operands) == 2:
            left, right = operands
            return lambda who: evaluate(left(who), right(who))
        return lambda who: evaluate(*[o(who) for o in operands]).astype(dtype, copy=False)

    def _is_plain(self, node: k.Operate) -> bool:
        """Whether an operation divides indices as devices do, which do not define a quotient by 0:
        by a divisor that is positive in all that is known of it."""
        if node.operation.name not in _COUNTED or node.type.dtype is not DataType.INDEX:
            return False
        return self._reaches.find(node.operands[1])[0] >= 1

    def _make_divisor(self, made: _Value, node: k.Operate) -> _Value:
        def run(who: Who) -> Array:
            divisor = made(who)
            is_zero = self._items.among(divisor, who) == 0
            if is_zero.any():
                self._fail(f"division by zero in {print_expression(node)}", is_zero, who)
            return divisor

        return run

    def _find_evaluation(self, node: k.Operate) -> Callable[..., Array]:
        """NumPy function of an operation."""
        is_plain = self._index.kind == "u" and self._is_plain(node)
        return _COUNTED[node.operation.name] if is_plain else node.operation.evaluate

    def _make_choice(self, node: k.Select) -> _Value:
        condition, then = self._make(node.condition), self._make(node.then)
        otherwise, is_wide = self._make(node.otherwise), node.type.lanes > 1
        if node.condition.type.lanes > 1:
            return lambda who: np.where(condition(who), then(who), otherwise(who))

        def run(who: Who) -> Array:
            chosen = condition(who)
            some = self._items.narrow(who, chosen)
            if some is self._items.nobody:
                return otherwise(who)
            others = self._items.narrow(who, ~chosen)
            if others is self._items.nobody:
                return then(who)
            return np.where(chosen[:, None] if is_wide else chosen, then(some), otherwise(others))

        return run

    def _make_conversion(self, node: k.Convert) -> _Value:
        """Closure of a conversion. An index is an integer of the same width."""
        operand, target, dtype = self._make(node.operand), node.type.dtype, self._dtype(node.type)
        if target is DataType.INDEX:
            target = next(t for t in DataType if t.dtype == self._index and t.is_integer)
        make = self._find_conversion(node, target)
        return lambda who: make(operand(who)).astype(dtype, copy=False)

    def _find_conversion(self, node: k.Convert, target: DataType) -> Callable[[Array], Array]:
        """NumPy function that converts values to a type."""
        return lambda values: convert(values, target)


_COUNTED: Mapping[str, Callable[..., Array]] = {"div": np.floor_divide, "mod": np.remainder}
"""Quotients of unsigned integers by positive divisors."""


# Programs ------------------------------------------------------------------------------------


def run_kernels(
    function: ir.Function,
    kernels: Sequence[k.Kernel],
    inputs: Mapping[str, Array],
    *,
    misaligned: int = 0,
    sizes: Mapping[str, int] | None = None,
    order: Iterable[tuple[int, Mapping[str, int]]] | None = None,
) -> dict[str, Array]:
    """Results of a function by name, packed, from its kernels in execution order.

    `inputs` has an array of each parameter's type and sizes, as `reference.evaluate` takes them.
    Every buffer starts `misaligned` elements after an aligned address. `sizes` are the symbols'
    sizes that inputs do not determine. `order` is that of `Program.order`: kernel numbers, each
    with the values of its scalars other than sizes; by default each kernel runs once. Raises
    `KernelFault`.
    """
    known = Shapes()
    shape: tuple[int, ...] | None = None
    """That of the inputs whose elements a symbol counts."""
    counted = function.run_symbol()
    memories: dict[str, Memory] = {}
    inputs_of: dict[str, Array] = {}
    for parameter in function.parameters:
        values = np.asarray(inputs[parameter.name])
        if counted in parameter.extents:
            shape, values = values.shape, values.ravel()
        wrong = known.match(parameter.name, parameter.extents, values.shape)
        if wrong is not None and values.size:
            raise KernelFault(wrong)
        inputs_of[parameter.name] = values
    if sizes is None:
        sizes = known.sizes if counted is None else {counted: math.prod(shape or ())}
    for parameter in function.parameters:
        values = inputs_of[parameter.name]
        extents = [evaluate_size(e, sizes) for e in parameter.extents]
        strides = evaluate_strides(parameter, sizes)
        memory = lay_out(extents, strides, parameter.dtype, filled=True)
        memory.misaligned = misaligned
        view_of(memory.values, extents, strides)[...] = values.reshape(extents)
        memories[parameter.name] = memory
    for table in function.tables:
        values = np.array(table.values, table.dtype.dtype)
        memories[table.name] = Memory(values, filled=True, misaligned=misaligned)
    layouts = {r.name: evaluate_strides(r, sizes) for r in function.results}
    # The first step of a loop loads the previous step's slice, and does not use it.
    stepping = (each for each in kernels if each.steps or STEP in dict(each.scalars).values())
    looped = {buffer.name for kernel in stepping for buffer in kernel.buffers}
    for stage in function.stages:
        extents = [evaluate_size(e, sizes) for e in stage.extents]
        filled = stage.name in looped
        memory = lay_out(extents, layouts.get(stage.name), stage.dtype, filled=filled)
        memory.misaligned = misaligned
        memories[stage.name] = memory
    once = ((number, dict[str, int]()) for number in range(len(kernels)))
    for number, scalars in once if order is None else order:
        kernel = kernels[number]
        for buffer in kernel.buffers:
            if buffer.count is not None and buffer.name not in memories:
                values = np.zeros(evaluate_size(buffer.count, sizes), buffer.dtype.dtype)
                memories[buffer.name] = Memory(values, filled=False, misaligned=misaligned)
        run_kernel(kernel, {b.name: memories[b.name] for b in kernel.buffers}, {**sizes, **scalars})
    found: dict[str, Array] = {}
    for result in function.results:
        stage = function.stage(result.name)
        assert stage is not None
        extents = [evaluate_size(e, sizes) for e in stage.extents]
        memory = memories[result.name]
        strides = layouts[result.name]
        if not view_of(memory.filled, extents, strides).all():
            raise KernelFault(f"'{result.name}' has elements that no kernel writes")
        values = view_of(memory.values, extents, strides).copy()
        is_run = shape is not None and counted in stage.extents
        found[result.name] = values.reshape(shape) if is_run else values
    return found
