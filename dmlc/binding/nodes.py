"""Graph of shared computation nodes, and the arena that makes them.

A node is a scalar operation on every element of a shape, or at the point of the index variables.
Equal nodes are one node, so sharing in the source, and in functions inlined twice, is kept.
`conversions` and `operations` have the rules of types and shapes; `emission` makes stage bodies.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeGuard

from dmlc import ir
from dmlc.binding.values import Constant
from dmlc.scalars import OPERATIONS, DataType, Operation
from dmlc.sizes import Measure, Size
from dmlc.source import DmlcError

_MOST_NODES = 200_000

Shape: TypeAlias = tuple[ir.Extent, ...] | None
"""Extents, or None for a scalar, which broadcasts to every rank."""


class Weak(enum.Enum):
    """Type of a node of constants alone, which adapts to the other operand."""

    INTEGER = "an integer"
    FLOAT = "a number"


ValueType: TypeAlias = DataType | Weak


@dataclasses.dataclass(frozen=True, slots=True)
class IndexVariable:
    """Index variable with values 0 <= i < `extent`. Variables of one level are never nested, so
    that equal ones may be one."""

    level: int
    number: int
    extent: ir.Extent


class Op(enum.Enum):
    CONSTANT = "constant"
    LOAD = "load"
    APPLY = "apply"
    SELECT = "select"
    CAST = "cast"
    FOLD = "fold"
    MOVE = "move"
    INDEX = "index"
    SIZE = "size"
    READ = "read"
    REDUCE = "reduce"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Node of a computation.

    `payload` is a constant's value, the symbol of a size, the tensor of a load or a read, the name
    of an operation, the combiner of a fold or a reduction, or the data type that a cast names; None
    for an implicit conversion.
    """

    form: Op
    payload: bool | int | float | str
    operands: tuple[Node, ...] = dataclasses.field(repr=False)
    dtype: ValueType
    shape: Shape = None
    axes: tuple[int, ...] = ()
    """For a fold: the reduced axes, which stay with size 1. For a move: the result axis of each
    axis of the operand, or -1 for an axis of size 1 that is removed."""
    bound: tuple[IndexVariable, ...] = ()
    """For a reduction: its index variables. Its operands are the value reduced and, optionally, a
    guard."""
    soft: bool = False
    """Whether it adapts to the type of the other operand although it has one: a value computed from
    indices is INDEX or FLOAT32 by itself."""
    free: tuple[IndexVariable, ...] = ()
    """Index variables it depends on, in the order of their levels."""
    placed: bool = False
    """Whether it depends on indices and constants alone."""
    number: int = -1
    """Number of the node within its function; operands have smaller ones."""

    @property
    def takes_type(self) -> bool:
        """Whether it adapts to the type of the other operand."""
        return self.soft or isinstance(self.dtype, Weak)

    @property
    def reduced(self) -> tuple[tuple[int, ir.Extent], ...]:
        """Label and extent of each axis of a fold or a reduction; the axes of a whole tensor keep
        their numbers."""
        shape = self.operands[0].shape or ()
        return (*enumerate(v.extent for v in self.bound), *((a, shape[a]) for a in self.axes))


Value: TypeAlias = "Constant | Node | tuple[Value, ...]"
"""Value of an expression; a tuple is an array, whose entries may be known at run time only."""


def is_constant(value: Value) -> TypeGuard[Constant]:
    """Whether a value, and every entry of an array, is a compile-time constant."""
    if isinstance(value, tuple):
        return all(is_constant(item) for item in value)
    return not isinstance(value, Node)


def shape_of(value: Value) -> Shape:
    return value.shape if isinstance(value, Node) else None


def takes_type(value: Value) -> bool:
    """Whether a value adapts to the type of the other operand."""
    return not isinstance(value, Node) or value.takes_type


def has_gradient(value: Value) -> TypeGuard[Node]:
    """Whether a value may depend on the elements of floating-point tensors."""
    if not isinstance(value, Node) or value.takes_type:
        return False
    return isinstance(value.dtype, DataType) and value.dtype.is_float


class Nodes:
    """Nodes of one function, and the tensors that hold the values of some."""

    def __init__(self) -> None:
        self._made: dict[object, Node] = {}
        self._variables: dict[tuple[int, ir.Extent], IndexVariable] = {}
        self._held: dict[Node, str] = {}
        self._holds = 0
        self.placed: set[str] = set()
        """Tensors whose elements depend on indices alone."""

    def add(self, node: Node) -> Node:
        """Interned node equal to this one, with the properties that follow from its operands: free
        variables and `placed`."""
        # repr tells -0.0 from 0.0 and keeps NaN equal to itself; the type tells 1 from true.
        payload = (type(node.payload), repr(node.payload))
        index = node.free if node.form is Op.INDEX else None
        key = (
            node.form, payload, node.operands, node.dtype, node.shape, node.axes, node.bound,
            node.soft, index,
        )  # fmt: skip
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_NODES:
                raise DmlcError(
                    f"the operator grows beyond {_MOST_NODES} operations once its functions "
                    "are inlined: split it",
                    code="E0003",
                )
            elements = node.form in (Op.LOAD, Op.READ, Op.FOLD)
            known = node.form is Op.READ and node.payload in self.placed
            found = dataclasses.replace(
                node,
                free=index or join_free(node.operands, node.bound),
                placed=(known or not elements) and all(o.placed for o in node.operands),
                number=len(self._made),
            )
            self._made[key] = found
        return found

    def literal(self, value: bool | int | float, dtype: ValueType, shape: Shape = None) -> Node:
        """A constant."""
        return self.add(Node(Op.CONSTANT, value, (), dtype, shape))

    def apply(
        self,
        operation: Operation,
        operands: Iterable[Node],
        dtype: ValueType,
        shape: Shape,
        soft: bool = False,
    ) -> Node:
        """Scalar operation on operands of the right types."""
        soft = soft and dtype in (DataType.INDEX, DataType.FLOAT32)
        return self.add(Node(Op.APPLY, operation.name, tuple(operands), dtype, shape, soft=soft))

    def load(self, tensor: str, dtype: DataType, shape: tuple[ir.Extent, ...]) -> Node:
        """Elements of a tensor, in their compute type."""
        return self.add(Node(Op.LOAD, tensor, (), dtype.compute, shape))

    def element(self, tensor: str, dtype: DataType) -> Node:
        """Only element of a tensor of rank 0, soft in its type."""
        return self.add(Node(Op.READ, tensor, (), dtype, soft=True))

    def size(self, size: Size) -> Node:
        """Size that is known at run time. A size that may be negative is the difference of two that
        are not, since kernels have unsigned sizes."""
        taken, kept = size.part_negative()
        if taken == 0 or size.bounds()[0] >= 0:
            return self._size(size)
        operands = (self._size(kept), self._size(taken))
        return self.apply(OPERATIONS["sub"], operands, DataType.INDEX, None, soft=True)

    def _size(self, size: Measure) -> Node:
        if isinstance(size, int):
            return self.literal(size, DataType.INDEX)
        return self.add(Node(Op.SIZE, str(size), (), DataType.INDEX, soft=True))

    def bind(self, level: int, extent: ir.Extent) -> Node:
        """Index variable of a level and an extent."""
        fresh = IndexVariable(level, len(self._variables), extent)
        variable = self._variables.setdefault((level, extent), fresh)
        return self.add(Node(Op.INDEX, 0, (), DataType.INDEX, soft=True, free=(variable,)))

    # What tensors hold --------------------------------------------------------------------

    def hold(self, value: Node, tensor: str) -> None:
        """Records that a tensor holds a value: with the value's type and its shape. A reduction in
        index notation has the axes of its free variables, or one of size 1 without any."""
        self._held[value] = tensor
        self._holds += 1

    def count_held(self) -> int:
        """Number of times that a tensor was said to hold a value."""
        return self._holds

    def loaded(self, value: Node) -> str | None:
        """Tensor whose elements a value is, without further computation, or None."""
        return str(value.payload) if value.form is Op.LOAD else self._held.get(value)

    def is_open_fold(self, value: Node) -> bool:
        """Whether a value is a fold or a reduction that no tensor holds."""
        return value.form in (Op.FOLD, Op.REDUCE) and value not in self._held

    def list_folds(self, value: Node) -> list[Node]:
        """Folds that a value needs and no tensor holds, in topological order; the value itself is
        the last if it is one."""
        return [n for n in reachable(value, self._held.__contains__) if self.is_open_fold(n)]


def join_free(
    nodes: Iterable[Node], bound: Sequence[IndexVariable] = ()
) -> tuple[IndexVariable, ...]:
    """Free index variables of all nodes, in order, without those in `bound`."""
    free = {v: None for node in nodes for v in node.free if v not in bound}
    return tuple(sorted(free, key=lambda v: (v.level, v.number)))


def reachable(root: Node, stops: Callable[[Node], bool]) -> list[Node]:
    """Node and its transitive operands in topological order, not searched below nodes where
    `stops`."""
    found: dict[Node, None] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            if not stops(node):
                pending.extend(node.operands)
    return sorted(found, key=lambda n: n.number)
