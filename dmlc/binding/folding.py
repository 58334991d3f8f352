"""Reductions of whole tensors as nodes, and the stages that hold them.

`Folding` adds to `Builder` what `sum(x, like: T)` and `squeeze(x, axes: A)` make, and the bodies
of the stages that hold values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.builder import Builder, type_name
from dmlc.binding.nodes import Element, Emission, Form, Node, ValueType, Weak, emit_body
from dmlc.language.builtins import REDUCTIONS
from dmlc.scalars import OPERATIONS, DataType, find_data_type
from dmlc.source import DmlcError, InternalError, Span


class Folding(Builder):
    """Nodes of whole tensors and their reductions."""

    # Folds --------------------------------------------------------------------------------

    def fold(self, combiner: str, value: Element, axes: Sequence[int], span: Span) -> Element:
        """A reduction over some axes of a value that has a shape; they stay, with size 1.

        `combiner` is one of the language's: `mean` divides the sum by the number of values in
        their own type; `argmin` and `argmax` give a weak integer, which takes the type of what it
        meets. An axis of one element folds to that element.
        """
        shape = self.shape(value)
        if shape is None:
            raise InternalError("a fold of a value without a shape")
        self._check_folded(combiner, value, span)
        folded = tuple(a for a in axes if shape[a] != 1)
        positional = combiner in ir.POSITIONAL_COMBINERS
        if not folded:
            return self._literal(0, Weak.INTEGER, shape) if positional else value
        if combiner == "mean":
            total = self.fold("sum", value, folded, span)
            count = math.prod(e for a in folded if isinstance(e := shape[a], int))
            return self.apply(OPERATIONS["div"], [total, float(count)], [span, span], span)
        rest = tuple(1 if a in folded else e for a, e in enumerate(shape))
        dtype: ValueType = self.dtype(value)
        if positional:
            if isinstance(dtype, Weak):
                settled = DataType.INT32 if dtype is Weak.INTEGER else DataType.FLOAT32
                value = self.adapt(value, settled, span)
            dtype = Weak.INTEGER
        return self._add(Node(Form.FOLD, combiner, (value.node,), dtype, rest, folded))

    def _check_folded(self, combiner: str, value: Element, span: Span) -> None:
        found = self.dtype(value)
        if REDUCTIONS[combiner].booleans:
            if found is not DataType.BOOL:
                raise DmlcError(
                    f"'{combiner}' folds booleans, but this is {type_name(found)}: compare it "
                    "first, as in 'x != 0'",
                    span,
                )
        elif found is DataType.BOOL:
            raise DmlcError(
                f"'{combiner}' folds numbers, but this is BOOL: write cast(..., INT32)", span
            )
        elif combiner == "mean" and isinstance(found, DataType) and not _divides(found):
            raise DmlcError(
                f"'mean' folds floating-point numbers, but this is {found.name}: write "
                "cast(..., FLOAT32)",
                span,
            )

    # Stages -------------------------------------------------------------------------------

    def find_fold(self, value: Element) -> Node | None:
        """The fold or reduction that a value is, where no tensor holds it yet."""
        node = self.nodes[value.node]
        folds = node.form in (Form.FOLD, Form.REDUCE)
        return node if folds and value.node not in self._held else None

    def list_folds(self, value: Element) -> list[Element]:
        """The folds that a value needs and no tensor holds yet, each after those it needs; the
        value itself is the last where it is one."""
        found = self._reachable(value.node, held=True)
        return [Element(n) for n in found if self.find_fold(Element(n)) is not None]

    def hold(self, value: Element, tensor: str) -> None:
        """Notes that a tensor holds a value from here on: it has the value's own type, and its
        shape or, for a reduction in index notation, its `fold_domain`."""
        self._held[value.node] = tensor

    def emit_value(
        self, root: Element, domain: tuple[ir.Extent, ...], variables: Sequence[int] = ()
    ) -> Emission:
        """The computation of one element of `domain`; every shape in it broadcasts to that.
        `variables` are the index variables along its axes, if it is defined by index."""
        return self.emit_values([root], domain, variables)

    def emit_values(
        self, roots: Sequence[Element], domain: tuple[ir.Extent, ...], variables: Sequence[int]
    ) -> Emission:
        """The same under a guard, the second of the roots if there are two."""
        view = tuple(ir.Index(axis) for axis in range(len(domain)))
        places = {v: ir.Index(axis) for axis, v in enumerate(variables)}
        numbers = [root.node for root in roots]
        return emit_body(self.nodes, self._held, numbers, domain, view, places)

    def emit_fold(self, fold: Node, variables: Sequence[int]) -> Emission:
        """The computation of what a fold folds, at a point of its domain and its axes; that of its
        guard too. `variables` are the index variables along the axes of its stage."""
        if fold.form is Form.FOLD:
            domain = fold.shape or ()
            view = tuple(ir.Index(a, reduced=a in fold.axes) for a in range(len(domain)))
            return emit_body(self.nodes, self._held, fold.operands, domain, view)
        domain = tuple(self.variables[v].extent for v in variables) or (1,)
        places = {v: ir.Index(axis) for axis, v in enumerate(variables)}
        places |= {v: ir.Index(label, reduced=True) for label, v in enumerate(fold.axes)}
        return emit_body(self.nodes, self._held, fold.operands, domain, (), places)

    def fold_domain(self, fold: Node) -> tuple[ir.Extent, ...]:
        """The domain of a stage that holds a fold and nothing else."""
        if fold.form is Form.FOLD:
            return fold.shape or ()
        return tuple(self.variables[v].extent for v in fold.free) or (1,)

    def reduction(self, fold: Node) -> ir.Reduction:
        """A fold as the IR has it: axes of a whole tensor keep their numbers as labels."""
        if fold.form is Form.REDUCE:
            extents = [self.variables[v].extent for v in fold.axes]
            return ir.Reduction(str(fold.payload), tuple(enumerate(extents)))
        shape = self.nodes[fold.operands[0]].shape or ()
        return ir.Reduction(str(fold.payload), tuple((a, shape[a]) for a in fold.axes))

    def list_types(self, value: Element, types: Mapping[str, DataType]) -> list[DataType]:
        """The types that a value is computed from: those that casts name, and those of the tensors
        whose elements are read, which `types` has. What only decides between values, or is
        compared, is left out."""
        found: dict[DataType, None] = {}
        seen: set[int] = set()
        pending = [value.node]
        while pending:
            number = pending.pop()
            node = self.nodes[number]
            if number in seen or node.dtype is DataType.BOOL:
                continue
            seen.add(number)
            named = find_data_type(str(node.payload)) if node.form is Form.CAST else None
            if node.form in (Form.LOAD, Form.READ):
                named = types[str(node.payload)]
            if named is not None:
                found[named] = None
                continue
            pending.extend(reversed(node.operands))
        return list(found)

    # Axes ---------------------------------------------------------------------------------

    def move(self, value: Element, axes: Sequence[int], rank: int) -> Element:
        """The value with other axes: each of its own becomes the one of `rank` axes that `axes`
        says, or is dropped where that is -1, being of size 1. Further axes have size 1."""
        shape = self.shape(value)
        if shape is None:
            raise InternalError("a move of a value without a shape")
        made: list[ir.Extent] = [1] * rank
        for extent, axis in zip(shape, axes, strict=True):
            if axis >= 0:
                made[axis] = extent
        return self._add(
            Node(Form.MOVE, "move", (value.node,), self.dtype(value), tuple(made), tuple(axes))
        )


def _divides(dtype: DataType) -> bool:
    """Whether values of a type can be averaged in it, or take a type they can be averaged in."""
    return dtype.is_float or dtype is DataType.INDEX
