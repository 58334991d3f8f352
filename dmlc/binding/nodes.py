"""What computations are made of, and how they become the bodies of stages.

A `Node` is one computation, on every element of a shape or at one place that index variables
name. `Builder` makes nodes and holds them to the rules of types and shapes; `emit_body` only reads
them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.binding.values import Constant
from dmlc.scalars import OPERATIONS, ROUNDINGS, DataType, find_data_type
from dmlc.source import InternalError

Shape: TypeAlias = tuple[ir.Extent, ...] | None
"""Extents, or None for a scalar, which broadcasts to every rank."""


class Weak(enum.Enum):
    """The type of a node that has not met a tensor yet."""

    INTEGER = "an integer"
    FLOAT = "a number"


ValueType: TypeAlias = DataType | Weak


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """A node of a `Builder`, by number."""

    node: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """An array some of whose entries are known at run time only: index variables, and what is
    computed from them. An array of constants is a plain tuple."""

    items: tuple[Value, ...]


Value: TypeAlias = Constant | Element | Pack
"""What an expression may come to."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """An index variable: it runs from 0 to below `extent`. Variables of one level are never bound
    one inside the other, so that equal ones may be one."""

    level: int
    extent: int


class Form(enum.Enum):
    CONSTANT = "constant"
    LOAD = "load"
    APPLY = "apply"
    SELECT = "select"
    CAST = "cast"
    FOLD = "fold"
    MOVE = "move"
    INDEX = "index"
    READ = "read"
    REDUCE = "reduce"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """`payload` is a constant's value, the tensor a load or a read reads, the name of an
    operation, the combiner of a fold or a reduction, the number of an index variable, the data type
    that a cast names; nothing where a conversion is not written."""

    form: Form
    payload: bool | int | float | str
    operands: tuple[int, ...]
    dtype: ValueType
    shape: Shape
    axes: tuple[int, ...] = ()
    """Of a fold: the axes it folds, which stay with size 1. Of a move: for each axis of the
    operand, the axis it becomes, or -1 where an axis of size 1 is dropped. Of a reduction: the
    index variables it binds; its operands are what it reduces and, where there is one, a guard."""
    soft: bool = False
    """Whether it takes the type of what it meets, though it has one: what is computed from
    positions is INDEX or FLOAT32 by itself."""
    free: tuple[int, ...] = ()
    """The index variables it depends on, in the order of their levels."""
    placed: bool = False
    """Whether it depends on positions and constants alone."""


_Position: TypeAlias = ir.Index | ir.Constant
_ZERO = ir.Constant(DataType.INDEX, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Emission:
    """The instructions of a body, not in canonical form yet, and where each read stands."""

    instructions: tuple[ir.Instruction, ...]
    result: int
    guard: int | None
    reads: tuple[tuple[int, int], ...]
    """(instruction, node) pairs."""

    def body(self) -> ir.Body:
        return ir.Body.make(self.instructions, self.result, self.guard)


def emit_body(
    nodes: Sequence[Node],
    held: Mapping[int, str],
    roots: Sequence[int],
    domain: tuple[ir.Extent, ...],
    view: tuple[_Position, ...] = (),
    places: Mapping[int, ir.Index] | None = None,
) -> Emission:
    """The computation of a node, `roots[0]`, at one point of a stage over `domain`, and of its
    guard where there is a second root. `view` is the position along each axis of the node, whose
    size may also be 1; `places` is the position of each index variable. A node in `held` is read
    from that tensor."""
    emitter = _Emitter(nodes, held, domain, {} if places is None else places)
    made = [emitter.run(root, view) for root in roots]
    guard = made[1] if len(made) > 1 else None
    return Emission(tuple(emitter.instructions), made[0], guard, tuple(emitter.reads))


class _Emitter:
    """Writes each node once per view it is wanted in."""

    def __init__(
        self,
        nodes: Sequence[Node],
        held: Mapping[int, str],
        domain: tuple[ir.Extent, ...],
        places: Mapping[int, ir.Index],
    ) -> None:
        self.nodes = nodes
        self.held = held
        self.domain = domain
        self.places = places
        self.instructions: list[ir.Instruction] = []
        self.reads: list[tuple[int, int]] = []
        self.positions: dict[_Position, int] = {}
        self.views: list[tuple[_Position, ...]] = []
        self.view_numbers: dict[tuple[_Position, ...], int] = {}
        self.made: dict[tuple[int, int], int] = {}

    def run(self, root: int, view: tuple[_Position, ...]) -> int:
        made = self.made
        start = (root, self.number_view(view))
        pending = [start]
        while pending:
            key = pending[-1]
            if key in made:
                pending.pop()
                continue
            number, at = key
            node = self.nodes[number]
            tensor = str(node.payload) if node.form is Form.LOAD else self.held.get(number)
            if tensor is not None:
                made[key] = self.load(tensor, node, self.views[at])
                continue
            inner = self.number_view(self.move(node, at)) if node.form is Form.MOVE else at
            wanted = [(operand, inner) for operand in node.operands]
            missing = [w for w in wanted if w not in made]
            if missing:
                pending.extend(reversed(missing))
                continue
            made[key] = self.emit(number, tuple(made[w] for w in wanted))
        return made[start]

    def number_view(self, view: tuple[_Position, ...]) -> int:
        if view not in self.view_numbers:
            self.view_numbers[view] = len(self.views)
            self.views.append(view)
        return self.view_numbers[view]

    def move(self, node: Node, at: int) -> tuple[_Position, ...]:
        """The positions along the axes of what a move moves."""
        return tuple(self.views[at][axis] if axis >= 0 else _ZERO for axis in node.axes)

    def load(self, tensor: str, node: Node, view: tuple[_Position, ...]) -> int:
        if isinstance(node.dtype, Weak):
            raise InternalError(f"tensor {tensor} has no type when a stage reads it")
        if node.form is Form.REDUCE:
            # Its stage runs over the variables it depends on, and has one place where it has none.
            own = [self.places[variable] for variable in node.free] or [_ZERO]
            indices = tuple(self.leaf(index) for index in own)
        else:
            indices = tuple(
                self.position(index, extent)
                for index, extent in zip(view, node.shape or (), strict=True)
            )
        return self.add(ir.Load(tensor, indices, node.dtype))

    def position(self, index: _Position, extent: ir.Extent) -> int:
        """The number of a position along an axis of some extent; 1 repeats its only element."""
        own = isinstance(index, ir.Index) and not index.reduced and self.domain[index.axis] == 1
        return self.leaf(_ZERO if extent == 1 and not own else index)

    def leaf(self, position: _Position) -> int:
        if position not in self.positions:
            self.positions[position] = self.add(position)
        return self.positions[position]

    def add(self, instruction: ir.Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def cast(self, node: Node, operand: int) -> int:
        """A conversion to a compute type, and the rounding to a 16-bit type that is named."""
        if self.nodes[node.operands[0]].dtype is not node.dtype and isinstance(
            node.dtype, DataType
        ):
            operand = self.add(ir.Cast(operand, node.dtype))
        named = find_data_type(str(node.payload))
        rounding = None if named is None else ROUNDINGS.get(named)
        if rounding is None:
            return operand
        return self.add(ir.Apply(rounding, (operand,), DataType.FLOAT32))

    def emit(self, number: int, operands: tuple[int, ...]) -> int:
        node = self.nodes[number]
        if isinstance(node.dtype, Weak):
            raise InternalError(f"node {number} has no type when a stage is made of it")
        match node.form:
            case Form.CONSTANT:
                if isinstance(node.payload, str):
                    raise InternalError(f"constant {number} is a string")
                return self.add(ir.Constant(node.dtype, node.payload))
            case Form.APPLY:
                return self.add(ir.Apply(OPERATIONS[str(node.payload)], operands, node.dtype))
            case Form.SELECT:
                return self.add(ir.Select(operands[0], operands[1], operands[2], node.dtype))
            case Form.CAST:
                return self.cast(node, operands[0])
            case Form.MOVE:
                return operands[0]
            case Form.INDEX:
                return self.leaf(self.places[int(node.payload)])
            case Form.READ:
                made = self.add(ir.Load(str(node.payload), operands, node.dtype))
                self.reads.append((made, number))
                return made
            case Form.LOAD | Form.FOLD | Form.REDUCE:
                raise InternalError(f"{node.form.value} {number} is held by no tensor")
