"""Emission of stage bodies from nodes.

A node that a tensor already holds becomes a load. The types and shapes of nodes are final here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.binding.nodes import IndexVariable, Node, Op, Weak
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import ROUNDINGS, DataType, find_data_type
from dmlc.source import InternalError

_Position: TypeAlias = ir.Index | ir.Constant | ir.Symbol
_View: TypeAlias = tuple[_Position, ...]
_ZERO = ir.Constant(DataType.INDEX, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Emission:
    """Instructions of a body, not yet in canonical form, and the node of each read."""

    instructions: tuple[ir.Instruction, ...]
    result: int
    guard: int | None
    reads: tuple[tuple[int, Node], ...]
    """(instruction, node) pairs."""

    def body(self) -> ir.Body:
        return ir.Body.make(self.instructions, self.result, self.guard)


_Loaded: TypeAlias = Callable[[Node], str | None]
"""Name of the tensor that holds a node's elements, or None."""


def emit(
    loaded: _Loaded,
    roots: Sequence[Node],
    domain: tuple[ir.Extent, ...],
    variables: Sequence[IndexVariable] = (),
    bound: Sequence[IndexVariable] = (),
    folded: Sequence[int] = (),
) -> Emission:
    """Body that computes a value at one point of `domain`, and then its guard if that is a second
    root. Every shape in them must broadcast to `domain`.

    `variables` are the index variables along the axes of the domain if the stage is defined by
    index, and `bound` those of its reduction. A stage of whole tensors reduces the axes `folded`.
    """
    view = tuple(ir.Index(axis, reduced=axis in folded) for axis in range(len(domain)))
    places = {v: ir.Index(axis) for axis, v in enumerate(variables)}
    places |= {v: ir.Index(label, reduced=True) for label, v in enumerate(bound)}
    emitter = _BodyEmitter(loaded, domain, places)
    made = [emitter.run(root, view) for root in roots]
    guard = made[1] if len(made) > 1 else None
    return Emission(tuple(emitter.instructions), made[0], guard, tuple(emitter.reads))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Instruction of each node that is already emitted for one view."""

    view: _View
    made: dict[Node, int]


class _BodyEmitter:
    """Emitter of nodes, each once per view. A view is the index along each axis of the node; an
    axis of size 1 broadcasts. `places` maps index variables to indices."""

    def __init__(
        self,
        loaded: _Loaded,
        domain: tuple[ir.Extent, ...],
        places: Mapping[IndexVariable, ir.Index],
    ) -> None:
        self.loaded = loaded
        self.domain = domain
        self.places = places
        self.instructions: list[ir.Instruction] = []
        self.reads: list[tuple[int, Node]] = []
        self.positions: dict[_Position, int] = {}
        self.views: dict[_View, _Seen] = {}

    def run(self, root: Node, view: _View) -> int:
        start = self.seen(view)
        pending = [(root, start)]
        while pending:
            node, at = pending[-1]
            if node in at.made:
                pending.pop()
                continue
            tensor = self.loaded(node)
            if tensor is not None:
                at.made[node] = self.load(tensor, node, at.view)
                continue
            inner = at
            if node.form is Op.MOVE:
                inner = self.seen(tuple(at.view[a] if a >= 0 else _ZERO for a in node.axes))
            missing = [(o, inner) for o in node.operands if o not in inner.made]
            if missing:
                pending.extend(reversed(missing))
                continue
            at.made[node] = self.write(node, tuple(inner.made[o] for o in node.operands))
        return start.made[root]

    def seen(self, view: _View) -> _Seen:
        return self.views.setdefault(view, _Seen(view, {}))

    def load(self, tensor: str, node: Node, view: _View) -> int:
        if isinstance(node.dtype, Weak):
            raise InternalError(f"tensor {tensor} has no type when a stage reads it")
        if node.form is Op.REDUCE:
            # The domain of its stage is its free variables, or one point without any.
            own = [self.places[variable] for variable in node.free] or [_ZERO]
            indices = tuple(self.leaf(index) for index in own)
        else:
            indices = tuple(
                self.position(index, extent)
                for index, extent in zip(view, node.shape or (), strict=True)
            )
        return self.add(ir.Load(tensor, indices, node.dtype))

    def position(self, index: _Position, extent: ir.Extent) -> int:
        """Instruction of the index along an axis; an axis of extent 1 is read at 0."""
        own = isinstance(index, ir.Index) and not index.reduced and self.domain[index.axis] == 1
        return self.leaf(_ZERO if extent == 1 and not own else index)

    def leaf(self, position: _Position) -> int:
        if position not in self.positions:
            self.positions[position] = self.add(position)
        return self.positions[position]

    def add(self, instruction: ir.Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def cast(self, node: Node, dtype: DataType, operand: int) -> int:
        """Emits a conversion to a compute type, and the rounding to a 16-bit type that a cast
        names."""
        if node.operands[0].dtype is not dtype:
            operand = self.add(ir.Cast(operand, dtype))
        named = find_data_type(str(node.payload))
        rounding = None if named is None else ROUNDINGS.get(named)
        if rounding is None:
            return operand
        return self.add(ir.Apply(rounding, (operand,), DataType.FLOAT32))

    def write(self, node: Node, operands: tuple[int, ...]) -> int:
        if isinstance(node.dtype, Weak):
            raise InternalError(f"node {node.number} has no type when a stage is made of it")
        match node.form:
            case Op.CONSTANT if not isinstance(node.payload, str):
                return self.add(ir.Constant(node.dtype, node.payload))
            case Op.APPLY:
                return self.add(ir.Apply(IR_OPERATIONS[str(node.payload)], operands, node.dtype))
            case Op.SELECT:
                return self.add(ir.Select(operands[0], operands[1], operands[2], node.dtype))
            case Op.CAST:
                return self.cast(node, node.dtype, operands[0])
            case Op.MOVE:
                return operands[0]
            case Op.SIZE:
                return self.leaf(ir.Symbol(str(node.payload)))
            case Op.INDEX:
                return self.leaf(self.places[node.free[0]])
            case Op.READ:
                made = self.add(ir.Load(str(node.payload), operands, node.dtype))
                self.reads.append((made, node))
                return made
            case _:
                raise InternalError(f"{node.form.value} {node.number} is held by no tensor")
