"""Hypothesis strategies for kernels that keep the verifier's rules. What they do when they run is
left open: positions may be anywhere."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from dmlc.kernel import nodes as k
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, DataType
from tests.strategies import constants

NAMES = ("x", "y", "a.b", "inf", "true", "lane", "group", "add", "cast", "f32", "step", "value#1")
COMPUTED = tuple(dict.fromkeys(dtype.compute for dtype in TENSOR_TYPES))
TEXTS = st.text(max_size=12)


class _Draw:
    """Draws the parts of one kernel, from what is in sight."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        names = draw(st.permutations(NAMES))
        self.names = iter([*names, *(f"v{n}" for n in range(1000))])
        self.bits, self.signed = draw(st.sampled_from([(32, False), (32, True), (64, True)]))
        self.buffers = [self.buffer() for _ in range(draw(st.integers(1, 3)))]
        self.arrays = [self.array() for _ in range(draw(st.integers(0, 2)))]
        self.scalars = [self.scalar() for _ in range(draw(st.integers(0, 2)))]
        self.known: list[k.Local] = []
        self.variables: list[k.Local] = []

    def buffer(self) -> k.Buffer:
        return k.Buffer(
            next(self.names),
            self.draw(st.sampled_from(TENSOR_TYPES)),
            self.draw(st.sampled_from(k.Access)),
            self.draw(st.none() | st.integers(0, 99)),
            self.draw(st.none() | st.integers(0, 99)),
        )

    def array(self) -> k.Array:
        dtype = self.draw(st.sampled_from((*COMPUTED, DataType.INDEX)))
        return k.Array(
            next(self.names), dtype, self.draw(st.integers(1, 9)), self.draw(st.booleans())
        )

    def scalar(self) -> tuple[k.Scalar, int | str]:
        type = k.Type(self.draw(st.sampled_from((DataType.INDEX, DataType.FLOAT32))))
        return k.Scalar(next(self.names), type), self.draw(st.sampled_from((7, "n")))

    def type(self, lanes: int = 1) -> k.Type:
        return k.Type(self.draw(st.sampled_from((*COMPUTED, DataType.INDEX))), lanes)

    # Expressions --------------------------------------------------------------------------

    def literal(self, type: k.Type) -> k.Literal:
        if type.dtype is DataType.INDEX:
            low = -(2 ** (self.bits - 1)) if self.signed else 0
            return k.Literal(type, self.draw(st.integers(low, 2 ** (self.bits - 1) - 1)))
        return k.Literal(type, self.draw(constants(type.dtype)).value)

    def index(self, depth: int = 1) -> k.Expression:
        return self.value(k.INDEX, depth)

    def value(self, type: k.Type, depth: int) -> k.Expression:
        """An expression of a type."""
        choices = ["literal"]
        choices += ["local"] * (2 * any(v.type == type for v in self.known))
        choices += ["scalar"] * any(s.type == type for s, _ in self.scalars)
        choices += ["position"] * (type == k.INDEX)
        if depth > 0:
            choices += ["operate", "choose", "convert", "read"]
            choices += ["vector"] * (2 * (type.lanes > 1))
        match self.draw(st.sampled_from(choices)):
            case "local":
                return self.draw(st.sampled_from([v for v in self.known if v.type == type]))
            case "scalar":
                return self.draw(st.sampled_from([s for s, _ in self.scalars if s.type == type]))
            case "position":
                lead = k.Lead(self.draw(st.sampled_from(self.buffers)).name, 64)
                return self.draw(st.sampled_from([*map(k.Position, k.Geometry), lead]))
            case "operate":
                return self.operate(type, depth - 1)
            case "choose":
                condition = k.BOOL if self.draw(st.booleans()) else k.Type(k.BOOL.dtype, type.lanes)
                parts = [self.value(t, depth - 1) for t in (condition, type, type)]
                return k.Select(parts[0], parts[1], parts[2], type)
            case "convert":
                return k.Convert(self.value(self.type(type.lanes), depth - 1), type)
            case "read":
                return self.read(type, depth - 1)
            case "vector":
                return self.vector(type, depth - 1)
            case _:
                return self.literal(type)

    def operate(self, type: k.Type, depth: int) -> k.Expression:
        of = self.type(type.lanes) if type.dtype is DataType.BOOL else type
        fitting = [
            operation
            for operation in OPERATIONS.values()
            if operation.operands.accept(of.dtype) and operation.result_type(of.dtype) is type.dtype
        ]
        if not fitting:
            return self.literal(type)
        operation = self.draw(st.sampled_from(fitting))
        operands = tuple(self.value(of, depth) for _ in range(operation.arity))
        return k.Operate(operation, operands, type)

    def read(self, type: k.Type, depth: int) -> k.Expression:
        loads = [
            k.Load(b.name, self.index(depth), type)
            for b in self.buffers
            if b.dtype.compute is type.dtype and b.access is not k.Access.WRITE
        ]
        elements = [
            k.LoadLocal(a.name, self.index(depth), type)
            for a in self.arrays
            if a.dtype is type.dtype
        ]
        return self.draw(st.sampled_from([*loads, *elements, self.literal(type)]))

    def vector(self, type: k.Type, depth: int) -> k.Expression:
        half = k.Type(type.dtype, type.lanes // 2)
        lanes = st.integers(0, 2 * type.lanes - 1)
        match self.draw(st.sampled_from(["broadcast", "join", "shuffle", "numbers"])):
            case "broadcast":
                return k.Broadcast(self.value(k.Type(type.dtype), depth), type)
            case "join":
                return k.Join(self.value(half, depth), self.value(half, depth), type)
            case "numbers" if type.dtype in (DataType.INDEX, DataType.INT32):
                values = self.draw(
                    st.lists(st.integers(0, 99), min_size=type.lanes, max_size=type.lanes)
                )
                return k.Numbers(tuple(values), type)
            case _:
                taken = self.draw(st.lists(lanes, min_size=type.lanes, max_size=type.lanes))
                pair = [self.value(type, depth) for _ in range(2)]
                return k.Shuffle(pair[0], pair[1], tuple(taken), type)

    # Statements ---------------------------------------------------------------------------

    def statements(self, depth: int) -> tuple[k.Statement, ...]:
        outside, variables = list(self.known), list(self.variables)
        made = tuple(self.statement(depth) for _ in range(self.draw(st.integers(0, 4))))
        self.known, self.variables = outside, variables
        return made

    def body(self, depth: int, variable: k.Local | None = None) -> tuple[k.Statement, ...]:
        outside = list(self.known)
        self.known += [] if variable is None else [variable]
        made = self.statements(depth)
        self.known = outside
        return made

    def statement(self, depth: int) -> k.Statement:
        choices = ["let", "let", "variable", "store", "put", "prefetch", "assign", "word"]
        choices += ["for", "if"] if depth > 0 else []
        match self.draw(st.sampled_from(choices)):
            case "store" if stored := [b for b in self.buffers if b.access is not k.Access.READ]:
                buffer = self.draw(st.sampled_from(stored))
                value = self.value(k.Type(buffer.dtype.compute, self.lanes()), 2)
                where = self.value(k.BOOL, 1) if self.draw(st.booleans()) else None
                return k.Store(buffer.name, self.index(), value, where)
            case "put" if self.arrays:
                array = self.draw(st.sampled_from(self.arrays))
                value = self.value(k.Type(array.dtype, self.lanes()), 2)
                return k.StoreLocal(array.name, self.index(), value)
            case "prefetch" if read := [b for b in self.buffers if b.access is not k.Access.WRITE]:
                return k.Prefetch(self.draw(st.sampled_from(read)).name, self.index())
            case "assign" if self.variables:
                local = self.draw(st.sampled_from(self.variables))
                return k.Assign(local, self.value(local.type, 2))
            case "word" if halves := self.halves():
                word, buffer = self.draw(st.sampled_from(halves))
                if self.draw(st.booleans()):
                    return k.StoreWord(buffer.name, self.index(), word)
                value = self.value(k.Type(buffer.dtype.compute), 1)
                return k.InsertHalf(word, buffer.name, self.index(0), value)
            case "for":
                variable, ends = k.Local(next(self.names), k.INDEX), (self.index(), self.index())
                backwards = self.draw(st.booleans())
                step = 1 if backwards else self.draw(st.integers(1, 16))
                body = self.body(depth - 1, variable)
                unroll, rolled = self.draw(st.booleans()), self.draw(st.booleans())
                return k.For(variable, *ends, step, body, unroll, backwards, rolled)
            case "if":
                return k.If(self.value(k.BOOL, 2), self.body(depth - 1))
            case "variable":
                local, value = self.define()
                self.variables.append(local)
                return k.Variable(local, value)
            case _:
                return k.Let(*self.define())

    def halves(self) -> list[tuple[k.Local, k.Buffer]]:
        """Variables that words are made in, and the buffers that these fit."""
        return [
            (v, b)
            for v in self.variables
            if v.type == k.Type(DataType.UINT32)
            for b in self.buffers
            if b.dtype.bytes == 2 and b.access is not k.Access.READ
        ]

    def define(self) -> tuple[k.Local, k.Expression]:
        value = self.value(self.type(self.lanes()), 2)
        local = k.Local(next(self.names), value.type)
        self.known.append(local)
        return local, value

    def lanes(self) -> int:
        return self.draw(st.sampled_from((1, 1, 2, 4)))


@st.composite
def kernels(draw: st.DrawFn) -> k.Kernel:
    """Kernels of every statement and expression but barriers, with a word for every field."""
    parts = _Draw(draw)
    launch = k.Launch(
        draw(st.sampled_from((0, "n"))),  # Of these none is known to go outside.
        draw(st.integers(1, 9)),
        draw(st.integers(1, 9)),
        draw(st.none() | st.integers(1, 9)),
    )
    body = parts.statements(2)
    made = k.Kernel(
        draw(st.sampled_from(NAMES)),
        tuple(parts.buffers),
        tuple(parts.scalars),
        launch,
        (*body, k.Barrier()),
        parts.bits,
        tuple(draw(st.lists(TEXTS, max_size=2))),
        draw(TEXTS),
        tuple(parts.arrays),
        draw(st.sampled_from((1.0, 2.5, 1 / 3))),
        parts.signed,
        tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2))),
        tuple(map(tuple, draw(st.lists(st.lists(st.sampled_from(NAMES), max_size=2), max_size=2)))),
    )
    return dataclasses.replace(made, apart=draw(TEXTS))
