"""What whole-tensor computations are made of, and how they become the bodies of stages.

A `Node` is one computation on every element of a shape. `Builder` makes nodes and holds them to
the rules of types and shapes; `make_body` only reads them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.binding.values import Constant
from dmlc.scalars import OPERATIONS, DataType
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


Value: TypeAlias = Constant | Element
"""What an expression may come to."""


class Form(enum.Enum):
    CONSTANT = "constant"
    LOAD = "load"
    APPLY = "apply"
    SELECT = "select"
    CAST = "cast"
    FOLD = "fold"
    MOVE = "move"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """`payload` is a constant's value, the tensor a load reads, the name of an operation, the
    combiner of a fold."""

    form: Form
    payload: bool | int | float | str
    operands: tuple[int, ...]
    dtype: ValueType
    shape: Shape
    axes: tuple[int, ...] = ()
    """Of a fold: the axes it folds, which stay with size 1. Of a move: for each axis of the
    operand, the axis it becomes, or -1 where an axis of size 1 is dropped."""


_Position: TypeAlias = ir.Index | ir.Constant
_ZERO = ir.Constant(DataType.INDEX, 0)


def make_body(
    nodes: Sequence[Node],
    held: Mapping[int, str],
    root: int,
    domain: tuple[ir.Extent, ...],
    view: tuple[_Position, ...],
) -> ir.Body:
    """The computation of a node at one point of a stage over `domain`; `view` is the position
    along each axis of the node, whose size may also be 1. A node in `held` is read from that
    tensor."""
    emitter = _Emitter(nodes, held, domain)
    result = emitter.run(root, view)
    return ir.Body.make(tuple(emitter.instructions), result)


class _Emitter:
    """Writes each node once per view it is wanted in."""

    def __init__(
        self, nodes: Sequence[Node], held: Mapping[int, str], domain: tuple[ir.Extent, ...]
    ) -> None:
        self.nodes = nodes
        self.held = held
        self.domain = domain
        self.instructions: list[ir.Instruction] = []
        self.positions: dict[_Position, int] = {}
        self.views: list[tuple[_Position, ...]] = []
        self.view_numbers: dict[tuple[_Position, ...], int] = {}

    def run(self, root: int, view: tuple[_Position, ...]) -> int:
        made: dict[tuple[int, int], int] = {}
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
        indices = tuple(
            self.position(index, extent)
            for index, extent in zip(view, node.shape or (), strict=True)
        )
        return self.add(ir.Load(tensor, indices, node.dtype))

    def position(self, index: _Position, extent: ir.Extent) -> int:
        """The number of a position along an axis of some extent; 1 repeats its only element."""
        own = isinstance(index, ir.Index) and not index.reduced and self.domain[index.axis] == 1
        found = _ZERO if extent == 1 and not own else index
        if found not in self.positions:
            self.positions[found] = self.add(found)
        return self.positions[found]

    def add(self, instruction: ir.Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

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
                return self.add(ir.Cast(operands[0], node.dtype))
            case Form.MOVE:
                return operands[0]
            case Form.LOAD | Form.FOLD:
                raise InternalError(f"{node.form.value} {number} is held by no tensor")
