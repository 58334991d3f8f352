"""Random formulas over whole tensors: every type, every operation, reductions along axes."""

from __future__ import annotations

import dataclasses
import math

from hypothesis import strategies as st

from dmlc.scalars import OPERATIONS, Operands
from dmlc.scalars import DataType as T
from tests.fuzz.cases import SPECIAL, STYLES, Case, Statement, Tensor
from tests.fuzz.possible import is_float, limits
from tests.fuzz.trees import Apply, Cast, Choose, Fold, Name, Node, Number, walk

WORDS = (T.FLOAT32, T.FLOAT64, T.INT32, T.UINT32, T.INT64, T.UINT64, T.FLOAT16, T.BFLOAT16)
"""What every target holds."""
HALVES = (*WORDS, T.INT16, T.UINT16)
ALL = (*HALVES, T.INT8, T.UINT8, T.BOOL)
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 33)
_NAMES = [n for n, o in OPERATIONS.items() if not o.internal]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is left out, for a while, for being known to be wrong."""

    without: frozenset[str] = frozenset()


def numbers(dtype: T) -> st.SearchStrategy[Number]:
    """Literals of a compute type."""
    if dtype is T.BOOL:
        return st.booleans().map(lambda v: Number(dtype, v))
    if is_float(dtype):
        values = st.one_of(
            st.sampled_from((0.0, 1.0, 2.0, 0.5, -1.0, 3.0)),
            st.sampled_from(SPECIAL),
            st.floats(-100, 100, width=32),
        )
        return values.map(lambda v: Number(dtype, v))
    least, most = limits(dtype)
    least, most = max(least, 1 - 10**18), min(most, 10**18 - 1)
    values = st.one_of(
        st.sampled_from((0, 1, 2, 3, 5)),
        st.integers(max(least, -20), 20),
        st.sampled_from((least, most, most // 2)),
    )
    return values.map(lambda v: Number(dtype, v))


def operations(dtype: T, portable: bool) -> list[tuple[str, T]]:
    """Operations that give a type, and the type of their operands, where that is the same."""
    found: list[tuple[str, T]] = []
    for name in _NAMES:
        operation = OPERATIONS[name]
        if operation.gives_bool and operation.operands is not Operands.BOOL:
            continue
        if not operation.operands.accept(dtype):
            continue
        if portable and dtype is T.FLOAT64 and not _portable(name):
            continue
        found.append((name, dtype))
    if dtype is not T.BOOL:
        found.append(("clamp", dtype))
    if dtype not in (T.BOOL,) and not is_float(dtype):
        found += [(name, dtype) for name in ("floor", "round")]
    return found


def _is_function(name: str) -> bool:
    return name in OPERATIONS and OPERATIONS[name].transcendental


def _portable(name: str) -> bool:
    """Whether every target computes it in FLOAT64."""
    operation = OPERATIONS[name]
    if operation.transcendental:
        return False
    return operation.operands is not Operands.FLOAT and name != "mod"


class Drawing:
    """One batch of formulas over tensors of equal rank."""

    def __init__(self, draw: st.DrawFn, options: Options) -> None:
        self.draw = draw
        self.options = options
        self.types: tuple[T, ...] = ()
        self.compute: tuple[T, ...] = ()
        self.tensors: list[Tensor] = []
        self.own: dict[str, tuple[T, tuple[int, ...]]] = {}
        self.portable = True
        self.open = False
        self.sizes: tuple[int, ...] = ()

    def batch(self) -> Case:
        draw = self.draw
        held = draw(st.sampled_from((WORDS, HALVES, ALL)))
        self.portable = held is not ALL
        self.types = held
        self.compute = tuple(dict.fromkeys((*(t.compute for t in held), T.BOOL)))
        self.open = draw(st.integers(0, 3)) == 0
        rank = 1 if self.open else draw(st.sampled_from((1, 2, 1, 3)))
        lengths = LENGTHS if rank == 1 else (1, 2, 3, 4, 5, 8, 9)
        self.sizes = tuple(draw(st.sampled_from(lengths)) for _ in range(rank))
        if rank == 3:
            self.sizes = tuple(min(n, 5) for n in self.sizes)
        for number in range(draw(st.integers(1, 5))):
            self.tensors.append(self.tensor(f"X{number}"))
        statements: list[Statement] = []
        for number in range(draw(st.integers(2, 12))):
            if draw(st.integers(0, 3)) == 0:
                name = f"t{number}"
                dtype = draw(st.sampled_from(self.compute))
                value = self.value(dtype, draw(st.integers(1, 3)))
                if value.free:
                    value = Cast(dtype, value)
                if self.shape(value) is not None:
                    statements.append(Statement(name, value))
                    self.own[name] = (dtype, self.shape(value) or ())
            stored = draw(st.sampled_from(self.types))
            value = self.value(stored.compute, draw(st.integers(1, 4)))
            statements.append(Statement(f"Z{number}", value, stored))
            if draw(st.integers(0, 3)) == 0:
                self.own[f"Z{number}"] = (stored.compute, self.sizes)
        seed = draw(st.integers(0, 2**16))
        return Case(tuple(self.tensors), tuple(statements), self.sizes, seed, self.open)

    def tensor(self, name: str) -> Tensor:
        draw = self.draw
        sizes = self.sizes
        if not self.open and len(sizes) > 1:
            sizes = tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in sizes)
        order = None
        if len(sizes) > 1 and draw(st.integers(0, 4)) == 0:
            order = tuple(draw(st.permutations(range(len(sizes)))))
        style = draw(st.sampled_from(STYLES))
        return Tensor(name, draw(st.sampled_from(self.types)), sizes, style, order)

    # Shapes

    def shape(self, node: Node) -> tuple[int, ...] | None:
        """What a node's elements are laid out in; None for a single number."""
        if isinstance(node, Name):
            if node.name in self.own:
                return self.own[node.name][1]
            return next(t.sizes for t in self.tensors if t.name == node.name)
        if isinstance(node, Fold):
            inner = self.shape(node.operand) or ()
            return tuple(1 if a in node.axes else n for a, n in enumerate(inner))
        found: tuple[int, ...] | None = None
        for part in node.parts:
            other = self.shape(part)
            if other is not None:
                pair = zip(found, other, strict=True) if found else ()
                found = tuple(b if a == 1 else a for a, b in pair) if found else other
        return found

    # Values

    def value(self, dtype: T, depth: int) -> Node:
        draw = self.draw
        kinds = ["leaf"] if depth == 0 else ["leaf", *["apply"] * 6, "choose", "cast"]
        if depth > 0 and not self.open:
            kinds.append("fold")
        kind = draw(st.sampled_from(kinds))
        if kind == "leaf":
            return self.leaf(dtype)
        if kind == "choose":
            condition = self.value(T.BOOL, depth - 1)
            return Choose(
                dtype, condition, self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            )
        if kind == "cast":
            if dtype is T.FLOAT32 and draw(st.integers(0, 3)) == 0:
                half = draw(st.sampled_from((T.FLOAT16, T.BFLOAT16)))
                source = draw(st.sampled_from(self.compute))
                return Cast(dtype, self.value(source, depth - 1), half)
            source = draw(st.sampled_from([t for t in self.compute if t is not dtype]))
            return Cast(dtype, self.value(source, depth - 1))
        if kind == "fold":
            made = self.fold(dtype, depth)
            if made is not None:
                return made
        return self.application(dtype, depth)

    def leaf(self, dtype: T, plain: bool = False) -> Node:
        draw = self.draw
        names = [t.name for t in self.tensors if t.dtype.compute is dtype]
        names += [name for name, (kind, _) in self.own.items() if kind is dtype]
        if names and draw(st.integers(0, 3)):
            return Name(dtype, draw(st.sampled_from(names)))
        if not names and draw(st.booleans()):
            tensor = draw(st.sampled_from(self.tensors))
            if tensor.dtype.compute is not dtype:
                return Cast(dtype, Name(tensor.dtype.compute, tensor.name))
            return Name(dtype, tensor.name)
        if dtype is T.BOOL and not plain:
            # What is known at compile time decides there, and leaves no type behind.
            return self.comparison(0)
        return draw(numbers(dtype))

    def application(self, dtype: T, depth: int) -> Node:
        draw = self.draw
        if dtype is T.BOOL and draw(st.integers(0, 3)):
            return self.comparison(depth - 1)
        choices = operations(dtype, self.portable)
        if draw(st.integers(0, 7)):
            # Functions are long code, which drivers take long to build.
            choices = [c for c in choices if not _is_function(c[0])]
        name, operand = draw(st.sampled_from(choices))
        count = 3 if name == "clamp" else OPERATIONS[name].arity
        return Apply(dtype, name, tuple(self.value(operand, depth - 1) for _ in range(count)))

    def comparison(self, depth: int) -> Node:
        draw = self.draw
        source = draw(st.sampled_from(self.compute[:-1] if depth == 0 else self.compute))
        names = ["eq", "ne"] if source is T.BOOL else ["eq", "ne", "lt", "le", "gt", "ge"]
        if source is not T.BOOL:
            names += ["isnan", "isinf"]
        name = draw(st.sampled_from(names))
        count = 1 if name.startswith("is") else 2
        return Apply(T.BOOL, name, tuple(self.value(source, depth) for _ in range(count)))

    def fold(self, dtype: T, depth: int) -> Node | None:
        draw = self.draw
        combiners = ["any", "all"] if dtype is T.BOOL else ["sum", "min", "max", "product"]
        if is_float(dtype):
            combiners.append("mean")
        if dtype is not T.BOOL:
            combiners += ["argmin", "argmax"]
        combiner = draw(st.sampled_from(combiners))
        kind = dtype
        if combiner.startswith("arg"):
            kind = draw(st.sampled_from([t for t in self.compute if t is not T.BOOL]))
        operand = self.value(kind, depth - 1)
        if operand.free:
            operand = Cast(kind, operand)
        shape = self.shape(operand)
        if shape is None or not any(isinstance(n, Name) for n in walk(operand)):
            return None
        axes = tuple(a for a in range(len(shape)) if draw(st.booleans()))
        points = math.prod(shape[a] for a in axes)
        if combiner.startswith("arg") and not is_float(dtype) and points > limits(dtype)[1]:
            return None
        return Fold(dtype, combiner, operand, axes)


@st.composite
def formulas(draw: st.DrawFn, options: Options = Options()) -> Case:
    """A batch of formulas."""
    return Drawing(draw, options).batch()
