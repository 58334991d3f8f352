"""Random index notation: reads at computed positions, guards, windows, strides, diagonals,
gathers, names of one's own read by index, and every reduction, nested."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import strategies as st

from dmlc.scalars import OPERATIONS
from dmlc.scalars import DataType as T
from tests.fuzz.cases import STYLES, Case, Statement, Tensor
from tests.fuzz.evaluate import Evaluation
from tests.fuzz.formulas import ALL, HALVES, WORDS, numbers, operations
from tests.fuzz.possible import PLACES, Wholes, is_float, limits
from tests.fuzz.trees import (
    Apply,
    Cast,
    Choose,
    Node,
    Number,
    Read,
    Reduce,
    Variable,
    walk,
)

SIZES = (1, 2, 3, 4, 5, 7, 8, 9)
MOST_POINTS = 6000
POSITIONS = (T.INT32, T.UINT32, T.INT64, T.UINT64)
FLAT = ("add", "sub", "mul", "min", "max", "neg", "abs", "sqrt", "sign")


@dataclasses.dataclass(frozen=True)
class Scope:
    """The index variables at hand, and what the `where` around says of positions."""

    over: tuple[tuple[str, int], ...]
    guard: Node | None = None
    reductions: int = 0

    @property
    def points(self) -> int:
        return math.prod(extent for _, extent in self.over)


def index_number(value: int) -> Number:
    return Number(T.INDEX, value)


def place(name: str, *operands: Node) -> Apply:
    """An operation on positions."""
    return Apply(T.INDEX, name, operands, soft=True)


def fraction(name: str, *operands: Node) -> Apply:
    return Apply(T.FLOAT32, name, operands, soft=True)


def _variables(node: Node) -> set[str]:
    return {n.name for n in walk(node) if isinstance(n, Variable)}


def _conjuncts(guard: Node | None) -> list[Node]:
    """The conditions that a guard joins by `&&`."""
    if isinstance(guard, Apply) and guard.name == "and":
        return [c for o in guard.operands for c in _conjuncts(o)]
    return [] if guard is None else [guard]


class Drawing:
    """One operator in index notation."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.held: dict[str, tuple[T, tuple[int, ...]]] = {}
        self.count = 0
        self.types: tuple[T, ...] = ()
        self.compute: tuple[T, ...] = ()
        self.portable = True

    def one_in(self, count: int) -> bool:
        return self.draw(st.integers(0, count - 1)) == count - 1

    def size(self) -> int:
        return 0 if self.one_in(60) else self.draw(st.sampled_from(SIZES))

    def batch(self) -> Case:
        draw = self.draw
        held = draw(st.sampled_from((WORDS, HALVES, ALL)))
        self.portable = held is not ALL
        few = draw(st.lists(st.sampled_from(held), min_size=1, max_size=2, unique=True))
        self.types = tuple(few) if draw(st.booleans()) else (T.FLOAT32, *few)
        self.compute = tuple(dict.fromkeys(t.compute for t in self.types if t is not T.BOOL))
        self.compute = self.compute or (T.FLOAT32,)
        tensors: list[Tensor] = []
        for number in range(draw(st.integers(1, 3))):
            sizes = tuple(self.size() for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3)))))
            dtype = draw(st.sampled_from(self.types))
            order = None
            if len(sizes) > 1 and self.one_in(5):
                order = tuple(draw(st.permutations(range(len(sizes)))))
            style = draw(st.sampled_from(STYLES))
            tensors.append(Tensor(f"X{number}", dtype, sizes, style, order))
        for number in range(draw(st.integers(0, 2))):
            sizes = tuple(self.size() for _ in range(draw(st.sampled_from((1, 1, 2)))))
            dtype = draw(st.sampled_from([t for t in held if t in POSITIONS]))
            style = draw(st.sampled_from(("special", "small")))
            tensors.append(Tensor(f"J{number}", dtype, sizes, style, None, 8))
        for tensor in tensors:
            self.held[tensor.name] = (tensor.dtype, tensor.sizes)
        statements: list[Statement] = []
        for number in range(draw(st.integers(2, 6))):
            if self.one_in(8):
                statements.append(self.statement(f"b{number}", T.BOOL, None))
                sizes = tuple(n for _, n in statements[-1].indices or ())
                self.held[f"b{number}"] = (T.BOOL, sizes)
            if self.one_in(3):
                dtype = draw(st.sampled_from(self.compute))
                statements.append(self.statement(f"t{number}", dtype, None))
                sizes = tuple(n for _, n in statements[-1].indices or ())
                self.held[f"t{number}"] = (dtype, sizes)
            stored = draw(
                st.sampled_from([t for t in self.types if t is not T.BOOL] or [T.FLOAT32])
            )
            statements.append(self.statement(f"Z{number}", stored.compute, stored))
            if self.one_in(3):
                sizes = tuple(n for _, n in statements[-1].indices or ())
                self.held[f"Z{number}"] = (stored.compute, sizes)
        return Case(tuple(tensors), tuple(statements), (), draw(st.integers(0, 2**16)))

    def statement(self, name: str, dtype: T, stored: T | None) -> Statement:
        draw = self.draw
        rank = draw(st.sampled_from((1, 1, 2, 2, 3)))
        most = (20, 9, 5)[rank - 1]
        indices: list[tuple[str, int]] = []
        for axis in range(rank):
            extent = min(self.size(), most)
            if rank == 1 and self.one_in(3):
                extent = draw(st.sampled_from((15, 16, 17, 20, 33)))
            indices.append(("ijh"[axis], extent))
        scope = Scope(tuple(indices))
        if dtype is T.BOOL:
            return Statement(name, self.condition(scope, 2), stored, tuple(indices))
        value = self.value(scope, dtype, draw(st.integers(1, 3)))
        if stored is None and value.free:
            value = Cast(dtype, value)
        return Statement(name, value, stored, tuple(indices))

    # Positions

    def position(self, scope: Scope, depth: int) -> Node:
        """A whole number made of index variables."""
        draw = self.draw
        names = [Variable(T.INDEX, name) for name, _ in scope.over]
        if depth == 0 or self.one_in(3):
            # The innermost variables more often than the others.
            if names and not self.one_in(8):
                return names[-1 - min(draw(st.integers(0, 2)), len(names) - 1)]
            return index_number(draw(st.integers(0, 5)))
        a = self.position(scope, depth - 1)
        number = index_number(draw(st.integers(1, 4)))
        match draw(st.integers(0, 11)):
            case 0 | 1:
                return place("add", a, self.position(scope, depth - 1))
            case 2:
                return place("sub", a, self.position(scope, depth - 1))
            case 3:
                return place("mul", a, number)
            case 4:
                return place("add", a, number)
            case 5:
                return place("sub", number, a) if self.one_in(2) else place("sub", a, number)
            case 6:
                return place("mod", a, number)
            case 7:
                name = draw(st.sampled_from(("floor", "ceil", "trunc")))
                return place(name, fraction("div", a, number))
            case 8:
                name = draw(st.sampled_from(("min", "max")))
                return place(name, a, self.position(scope, depth - 1))
            case 9:
                return place("abs", a) if self.one_in(2) else place("neg", a)
            case 10:
                return Choose(T.INDEX, self.placed_condition(scope, depth - 1), a,
                              self.position(scope, depth - 1), soft=True)  # fmt: skip
            case _:
                return place("mul", a, self.position(scope, depth - 1))

    def fractional(self, scope: Scope, depth: int) -> Node:
        """A fraction made of index variables, as resampling has it."""
        draw = self.draw
        a = self.position(scope, depth)
        scale = Number(T.FLOAT32, draw(st.sampled_from((0.5, 0.4, 1.5, 2.5, 0.1, 3.0, 0.3333))))
        shift = Number(T.FLOAT32, draw(st.sampled_from((0.5, 0.25, -0.5, 0.1))))
        match draw(st.integers(0, 3)):
            case 0:
                return fraction("mul", a, scale)
            case 1:
                return fraction("div", fraction("add", a, shift), scale)
            case 2:
                return fraction("sub", fraction("div", fraction("add", a, shift), scale), shift)
            case _:
                return fraction("div", a, index_number(draw(st.integers(2, 5))))

    def placed_condition(self, scope: Scope, depth: int) -> Node:
        draw = self.draw
        name = draw(st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")))
        sides = self.position(scope, depth), self.position(scope, depth)
        if self.one_in(4):
            halves = [fraction("div", side, index_number(2)) for side in sides]
            sides = place("floor", halves[0]), place("ceil", halves[1])
        made = Apply(T.BOOL, name, sides)
        if depth > 0 and self.one_in(3):
            name = draw(st.sampled_from(("and", "or", "and")))
            return Apply(T.BOOL, name, (made, self.placed_condition(scope, depth - 1)))
        return Apply(T.BOOL, "not", (made,)) if self.one_in(8) else made

    def reach(self, node: Node, scope: Scope) -> tuple[int, int]:
        """The least and the greatest it comes to, where those conditions of the guard hold that
        say something of its variables."""
        wanted = _variables(node)
        conditions: list[Node] = []
        left = _conjuncts(scope.guard)
        while found := [c for c in left if _variables(c) & wanted]:
            conditions += found
            left = [c for c in left if c not in found]
            for condition in found:
                wanted |= _variables(condition)
        over = tuple(v for v in scope.over if v[0] in wanted)
        if 0 in (extent for _, extent in over):
            return 0, -1
        run = Evaluation({}, PLACES)
        made = run.take(node, T.INDEX, over)
        assert isinstance(made, Wholes)
        values, passes = made.value, np.asarray(True)
        for condition in conditions:
            holds = run.take(condition, None, over)
            assert isinstance(holds, Wholes)
            passes = passes & holds.value
        values, passes = np.broadcast_arrays(values, passes)
        values = values[passes]
        return (int(values.min()), int(values.max())) if values.size else (0, -1)

    def read(self, scope: Scope, name: str, depth: int) -> Read:
        """An element, at positions that are inside by construction, or with an `else`."""
        draw = self.draw
        dtype, sizes = self.held[name]
        free = 0 in sizes
        positions: list[Node] = []
        for size in sizes:
            kind = draw(st.integers(0, 9))
            if kind == 0 and depth > 0:
                made = self.gathered(scope)
                if made is not None:
                    if not self.one_in(3) and size:
                        made = self.clamped(made, size)
                    else:
                        free = True
                    positions.append(made)
                    continue
            if kind == 1:
                rounding = draw(st.sampled_from(("floor", "ceil", "round", "trunc")))
                made = fraction(rounding, self.fractional(scope, 1))
            else:
                made = self.position(scope, draw(st.integers(0, 2)))
            low, high = self.reach(made, scope)
            if size and (low < 0 or high >= size):
                match draw(st.integers(0, 3)):
                    case 0 | 1:
                        made = self.clamped(made, size)
                    case 2 if made.dtype is T.INDEX:
                        made = place(
                            "mod", made if low >= 0 else place("abs", made), index_number(size)
                        )
                    case _:
                        free = True
            positions.append(made)
        otherwise: Node | None = None
        if free:
            otherwise = draw(numbers(dtype.compute))
            if depth > 1 and dtype is not T.BOOL and self.one_in(5):
                otherwise = self.value(scope, dtype.compute, 0)
        return Read(dtype.compute, name, tuple(positions), otherwise)

    def clamped(self, position: Node, size: int) -> Node:
        kind = position.dtype
        if not position.free:
            low, high = Number(kind, 0), Number(kind, size - 1)
        elif is_float(kind):
            low, high = Number(kind, 0.0), Number(kind, float(size - 1))
        else:
            low, high = index_number(0), index_number(size - 1)
        return Apply(kind, "clamp", (position, low, high), soft=position.free)

    def gathered(self, scope: Scope) -> Node | None:
        """A position that a tensor holds."""
        names = [n for n, (t, sizes) in self.held.items() if t in POSITIONS and 0 not in sizes]
        if not names:
            return None
        made: Node = self.read(scope, self.draw(st.sampled_from(names)), 0)
        if self.one_in(4):
            number = Number(made.dtype, self.draw(st.integers(1, 3)))
            made = Apply(made.dtype, self.draw(st.sampled_from(("add", "mul"))), (made, number))
        return made

    # Values

    def value(self, scope: Scope, dtype: T, depth: int) -> Node:
        draw = self.draw
        kinds = ["read"] * 2
        if depth > 0:
            kinds += ["apply"] * 4 + ["choose", "cast"]
            if scope.reductions < 2 and scope.points <= MOST_POINTS // 2:
                kinds += ["reduce"] * (4 if scope.reductions == 0 else 2)
        match draw(st.sampled_from(kinds)):
            case "apply":
                return self.application(scope, dtype, depth)
            case "choose":
                return self.choice(scope, dtype, depth)
            case "cast":
                source = draw(st.sampled_from(self.compute))
                if source is not dtype:
                    return Cast(dtype, self.value(scope, source, depth - 1))
            case "reduce":
                return self.reduction(scope, dtype, depth)
            case _:
                pass
        return self.leaf(scope, dtype, depth)

    def choice(self, scope: Scope, dtype: T, depth: int) -> Node:
        """A choice: a condition on positions keeps the reads of its side inside, and so does one
        that compares a position out of a tensor with the tensor's size."""
        draw = self.draw
        otherwise = self.value(scope, dtype, depth - 1)
        names = [
            n for n, (t, sizes) in self.held.items()
            if t.compute is dtype and len(sizes) == 1 and 0 not in sizes
        ]  # fmt: skip
        places = [n for n, (t, sizes) in self.held.items() if t in POSITIONS and 0 not in sizes]
        if names and places and self.one_in(4):
            name, place_name = draw(st.sampled_from(names)), draw(st.sampled_from(places))
            found = self.read(scope, place_name, 0)
            (size,) = self.held[name][1]
            bounds = Number(found.dtype, 0), Number(found.dtype, size)
            above, below = (
                Apply(T.BOOL, n, (found, b)) for n, b in zip(("ge", "lt"), bounds, strict=True)
            )
            inside = Apply(T.BOOL, "and", (above, below))
            return Choose(dtype, inside, Read(dtype, name, (found,)), otherwise)
        if self.one_in(2):
            condition = self.placed_condition(scope, 1)
            guard = condition
            if scope.guard is not None:
                guard = Apply(T.BOOL, "and", (scope.guard, condition))
            guarded = dataclasses.replace(scope, guard=guard)
            return Choose(dtype, condition, self.value(guarded, dtype, depth - 1), otherwise)
        condition = self.condition(scope, depth - 1)
        return Choose(dtype, condition, self.value(scope, dtype, depth - 1), otherwise)

    def leaf(self, scope: Scope, dtype: T, depth: int) -> Node:
        draw = self.draw
        names = [n for n, (t, _) in self.held.items() if t.compute is dtype]
        others = [n for n, (t, _) in self.held.items() if t.compute is not dtype]
        kind = draw(st.integers(0, 9))
        if names and kind < 6:
            return self.read(scope, draw(st.sampled_from(names)), depth)
        if others and (kind < 3 or (kind < 6 and not names)):
            return Cast(dtype, self.read(scope, draw(st.sampled_from(others)), depth))
        if kind < 8 and scope.over:
            made = self.position(scope, 1)
            if is_float(dtype) and self.one_in(3):
                made = self.fractional(scope, 1)
            if not any(isinstance(n, Variable) for n in walk(made)):
                return draw(numbers(dtype))
            if self.one_in(3):
                return Cast(dtype, made)
            return made
        return draw(numbers(dtype))

    def application(self, scope: Scope, dtype: T, depth: int) -> Node:
        draw = self.draw
        choices = operations(dtype, self.portable)
        if not self.one_in(3):
            choices = [c for c in choices if c[0] in FLAT]
        name, operand = draw(st.sampled_from(choices))
        count = 3 if name == "clamp" else OPERATIONS[name].arity
        given = [self.value(scope, operand, depth - 1) for _ in range(count)]
        if all(g.free for g in given):
            # One of them has to say the type.
            given[0] = given[0] if isinstance(given[0], Number) else Cast(dtype, given[0])
        return Apply(dtype, name, tuple(given))

    def condition(self, scope: Scope, depth: int) -> Node:
        draw = self.draw
        if self.one_in(2):
            return self.placed_condition(scope, min(depth, 1))
        flags = [n for n, (t, _) in self.held.items() if t is T.BOOL]
        if flags and self.one_in(2):
            return self.read(scope, draw(st.sampled_from(flags)), 0)
        source = draw(st.sampled_from(self.compute))
        name = draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge")))
        sides = [self.value(scope, source, max(depth, 0)) for _ in range(2)]
        if all(s.free for s in sides):
            sides[0] = Cast(source, sides[0])
        made = Apply(T.BOOL, name, tuple(sides))
        if depth > 0 and self.one_in(3):
            joined = draw(st.sampled_from(("and", "or")))
            return Apply(T.BOOL, joined, (made, self.placed_condition(scope, 0)))
        return made

    def reduction(self, scope: Scope, dtype: T, depth: int) -> Node:
        draw = self.draw
        variables: list[tuple[str, int]] = []
        points = scope.points
        for _ in range(draw(st.sampled_from((1, 1, 2)))):
            extent = draw(st.sampled_from((1, 2, 3, 4, 5, 9, 17)))
            extent = 0 if self.one_in(40) else extent
            if points * extent > MOST_POINTS:
                extent = 2
            points *= max(extent, 1)
            self.count += 1
            variables.append((f"k{self.count}", extent))
        inner = Scope((*scope.over, *variables), None, scope.reductions + 1)
        condition: Node | None = None
        if self.one_in(2):
            guard = self.placed_condition(inner, 1)
            condition, inner = guard, dataclasses.replace(inner, guard=guard)
            if self.one_in(4):
                plain = dataclasses.replace(inner, guard=None)
                other = self.condition(plain, 0)
                condition = Apply(T.BOOL, "and", (guard, other))
        names = ["sum", "sum", "sum", "min", "max", "product"]
        if is_float(dtype):
            names.append("mean")
        names += ["argmin", "argmax"]
        combiner = draw(st.sampled_from(names))
        if combiner.startswith("arg"):
            kind = draw(st.sampled_from(self.compute))
            count = math.prod(extent for _, extent in variables)
            if not is_float(dtype) and count - 1 > limits(dtype)[1]:
                combiner, kind = "max", dtype
        else:
            kind = dtype
        body = self.value(inner, kind, depth - 1)
        if combiner == "sum" and self.one_in(3):
            weight = self.weight(inner, kind)
            body = Apply(kind, "mul", (body if not body.free else Cast(kind, body), weight))
        if body.free:
            body = Cast(kind, body)
        return Reduce(dtype, combiner, tuple(variables), condition, body)

    def weight(self, scope: Scope, dtype: T) -> Node:
        """A factor that depends on positions alone."""
        if is_float(dtype) and self.one_in(2):
            apart = fraction("sub", self.fractional(scope, 1), self.position(scope, 0))
            hat = fraction("sub", Number(T.FLOAT32, 1.0), fraction("abs", apart))
            return fraction("max", Number(T.FLOAT32, 0.0), hat)
        one, zero = (Number(dtype, float(n) if is_float(dtype) else n) for n in (1, 0))
        return Choose(dtype, self.placed_condition(scope, 1), one, zero)


@st.composite
def indexed(draw: st.DrawFn) -> Case:
    """An operator in index notation."""
    return Drawing(draw).batch()
