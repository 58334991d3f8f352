"""Evaluation of index notation: indexed reads, reductions over index variables, `...`.

This module resolves the tensor read, the indices that a pack expands to, and the extents of index
variables.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc.binding.guards import hold_inside, list_conditions
from dmlc.binding.nodes import Node, Value
from dmlc.binding.reads import ReadSite
from dmlc.binding.recurrences import Recurrent
from dmlc.binding.scope import EmptyPack, Evaluating, Expansion, Scope
from dmlc.binding.values import (
    EnumValue,
    OpenSize,
    describe,
    expect_extent,
    show,
    span_text,
    whole_number,
)
from dmlc.ir import Extent
from dmlc.language import syntax
from dmlc.language.arrays import find_entry
from dmlc.language.walk import Step
from dmlc.scalars import DataType
from dmlc.sizes import measure
from dmlc.source import DmlcError, Note, Span, UnsupportedError, counted

_MOST_EXTENT = 2**31 - 1


class IndexNotation:
    """Evaluator of index notation; `on` evaluates the other expressions."""

    def __init__(self, on: Evaluating) -> None:
        self._on = on

    # Packs --------------------------------------------------------------------------------

    def expand(self, pack: syntax.Pack, scope: Scope, decided: bool = True) -> Step[list[Value]]:
        """Entries that `e...` expands to; `decided` as in `visit`."""
        expansion = Expansion(pack.span)
        inner = dataclasses.replace(scope, expansion=expansion)
        found: list[Value] = []
        while expansion.axis == 0 or expansion.axis < (expansion.length or 0):
            try:
                value: Value = yield self._on.visit(pack.operand, inner, decided=decided)
            except EmptyPack:
                break
            if expansion.length is None:
                raise DmlcError(
                    "'...' expands a pack, and there is none in this expression",
                    pack.span,
                    code="E0406",
                )
            found.append(value)
            expansion.axis += 1
        return found

    def entry_name(self, expression: syntax.Index, scope: Scope) -> Step[str]:
        """Name of the tensor `InputTensors[0]`."""
        array = expression.base.span.text
        position: Value = yield self._on.visit(expression.indices[0], scope)
        count = len(self._on.binding.members(array))
        number = whole_number(position)
        if number is None:
            raise DmlcError(
                "which tensor of an array it is must be known at compile time",
                expression.span,
                code="E0305",
            )
        entry = find_entry(number, count)
        if entry is None:
            raise DmlcError(
                f"'{array}' has {count} tensors, and this is number {number}",
                expression.span,
                code="E0411",
            )
        return f"{array}[{entry}]"

    # Reads and entries --------------------------------------------------------------------

    def read(self, expression: syntax.Index, scope: Scope) -> Step[Value]:
        if self._on.names_tensors(expression.base):
            name: str = yield self.entry_name(expression, scope)
            return self._on.tensor(name, expression.span)
        recurrent = self._find_recurrent(expression.base, scope)
        if recurrent is not None:
            return (yield self._read_step(expression, recurrent, scope))
        base: Value = yield self._on.visit(expression.base, scope.outside())
        if isinstance(base, Node):
            return (yield self._read_element(expression, base, scope))
        if expression.otherwise is not None:
            raise DmlcError(
                "'else' belongs to a read of a tensor, and "
                f"{span_text(expression.base.span)} is none",
                expression.span,
                code="E0410",
            )
        if any(isinstance(i, syntax.Pack) for i in expression.indices):
            raise DmlcError("an array takes one index", expression.span, code="E0401")
        for place in expression.indices:
            position: Value = yield self._on.visit(place, scope)
            if isinstance(position, Node):
                base = self._choose(expression, base, position, scope, place.span)
            else:
                base = self._pick(expression, base, position, place.span)
        return scope.entry(base, expression.span)

    def _pick(self, expression: syntax.Index, array: Value, position: Value, span: Span) -> Value:
        """Entry of an array at a constant index; an array of indices selects an array."""
        if not isinstance(array, tuple):
            what = "one value" if isinstance(array, Node) else describe(array)
            message = f"{span_text(expression.base.span)} is {what} and cannot be indexed"
            raise DmlcError(message, expression.span, code="E0401")
        if isinstance(position, tuple):
            return tuple(self._pick(expression, array, p, span) for p in position)
        if isinstance(position, bool) or not isinstance(position, int):
            raise DmlcError("an array's index must be a compile-time integer", span, code="E0305")
        entry = find_entry(position, len(array))
        if entry is None:
            raise DmlcError(
                f"index {position} is out of bounds: {span_text(expression.base.span)} has "
                f"{counted(len(array), 'value')}",
                span,
                code="E0403",
            )
        return array[entry]

    def _choose(
        self, expression: syntax.Index, array: Value, position: Node, scope: Scope, span: Span
    ) -> Value:
        """Entry of an array of numbers at a computed index: a binary search of choices, which
        passes turn into a table if it is long."""
        text = span_text(expression.base.span)
        if not isinstance(array, tuple) or any(isinstance(v, EnumValue | str) for v in array):
            raise DmlcError(
                f"{text} is no array of numbers to be read at a position", span, code="E0303"
            )
        if any(isinstance(value, tuple) for value in array):
            message = f"{text} is an array of arrays, which take a compile-time integer"
            raise DmlcError(message, span, code="E0305")
        builder, checks = self._on.built(), self._on.binding.checks
        whole = builder.positions.of(position, span)
        held, (low, high) = hold_inside(
            builder.positions, whole, len(array), scope.guards, scope.conditions, checks
        )
        if low > high:
            return 0  # There is no such place, and what stands for it is not used.
        if low < 0 or high >= len(array):
            where = f"{low} to {high}"
            where = "not known at compile time" if math.isinf(high - low) else where
            raise DmlcError(
                f"{span_text(expression.span)} may leave its array, which has "
                f"{counted(len(array), 'value')}: the position is {where}",
                span,
                code="E0403",
            )

        def between(start: int, end: int) -> Value:
            if end - start == 1:
                return array[start]
            middle = (start + end) // 2
            condition = builder.positions.apply("lt", held, builder.positions.number(middle))
            parts = (condition, between(start, middle), between(middle, end))
            return builder.operations.select(parts, expression.span)

        return between(int(low), int(high) + 1)

    def _read_element(self, expression: syntax.Index, base: Node, scope: Scope) -> Step[Value]:
        """Element of a tensor, or of a computation on whole tensors."""
        builder = self._on.built()
        shape = base.shape
        if shape is None:
            message = f"{span_text(expression.base.span)} is one value and has no index"
            raise DmlcError(message, expression.span, code="E0401")
        if self._on.binding.symbolic:
            raise self._on.needs_sizes("index notation", expression.span)
        positions, spans = yield self._find_positions(expression, shape, scope)
        otherwise: Value | None = None
        if expression.otherwise is not None:
            otherwise = yield self._on.visit(expression.otherwise, scope)
        tensor, dtype = self.hold(base, expression.base.span)
        whole = [builder.positions.of(p, s) for p, s in zip(positions, spans, strict=True)]
        site = ReadSite(expression.span, tuple(spans), scope.notes())
        return self._read_at(tensor, dtype, shape, whole, otherwise, site, scope)

    def _find_recurrent(self, base: syntax.Expression, scope: Scope) -> Recurrent | None:
        """Recurrence that a name belongs to, inside that recurrence."""
        if not isinstance(base, syntax.Reference) or base.name in scope.parameters:
            return None
        return self._on.recurrent.get(base.name)

    def _read_step(
        self, expression: syntax.Index, recurrent: Recurrent, scope: Scope
    ) -> Step[Value]:
        """Element that a recurrence defines, of the current step or of the one before."""
        builder, extents = self._on.built(), recurrent.extents
        positions, spans = yield self._find_positions(expression, extents, scope)
        otherwise: Value | None = None
        if expression.otherwise is not None:
            otherwise = yield self._on.visit(expression.otherwise, scope)
        whole = [builder.positions.of(p, s) for p, s in zip(positions, spans, strict=True)]
        offset = recurrent.find_offset(builder, whole[0], spans[0])
        course = recurrent.course
        end = measure(course.steps) - 1 if offset > 0 else 0
        last = builder.positions.size(end)
        follows = builder.positions.apply("lt" if offset > 0 else "gt", course.time, last)
        if recurrent.dtype is None:
            truth = recurrent.truth if otherwise is None else _is_boolean(otherwise)
            found: Value = builder.conversions.weak(False if truth else 0, expression.span)
            if otherwise is None:
                return found
            return builder.operations.select((follows, found, otherwise), expression.span)
        whole[0] = course.time
        site = ReadSite(expression.span, tuple(spans), scope.notes())
        tensor = recurrent.before if offset else recurrent.stage
        found = self._read_at(tensor, recurrent.dtype, extents, whole, otherwise, site, scope)
        if not offset or otherwise is None:
            return found
        return builder.operations.select((follows, found, otherwise), expression.span)

    def _find_positions(
        self, expression: syntax.Index, sizes: Sequence[Extent], scope: Scope
    ) -> Step[tuple[list[Value], list[Span]]]:
        """Index along each axis of a tensor of these sizes, and the span of each."""
        positions: list[Value] = []
        spans: list[Span] = []
        for index in expression.indices:
            if isinstance(index, syntax.Pack):
                several: list[Value] = yield self.expand(index, scope)
                positions += several
                spans += [index.span] * len(several)
                continue
            value: Value = yield self._on.visit(index, scope)
            if isinstance(value, tuple):
                raise DmlcError(
                    f"{span_text(index.span)} is an array of {len(value)} values: write "
                    f"'{index.span.text}...' to give a position for each",
                    index.span,
                    code="E0406",
                )
            positions.append(value)
            spans.append(index.span)
        if len(positions) != len(sizes):
            raise DmlcError(
                f"{span_text(expression.base.span)} has {len(sizes)} dimensions, but is read at "
                f"{counted(len(positions), 'position')}",
                expression.span,
                code="E0401",
            )
        return positions, spans

    def _read_at(
        self,
        tensor: str,
        dtype: DataType,
        sizes: Sequence[Extent],
        whole: Sequence[Node],
        otherwise: Value | None,
        site: ReadSite,
        scope: Scope,
    ) -> Value:
        """Element of a tensor of these sizes at whole-number indices, or `otherwise` out of
        bounds."""
        builder = self._on.built()
        if otherwise is not None:
            return builder.reads.read_or(tensor, dtype, sizes, whole, otherwise, site)
        checks = self._on.binding.checks
        held = [
            hold_inside(builder.positions, position, size, scope.guards, scope.conditions, checks)
            for position, size in zip(whole, sizes, strict=True)
        ]
        reach = tuple(found for _, found in held)
        if any(low > high for (low, high), size in zip(reach, sizes, strict=True) if size == 0):
            # The tensor has no elements, so nothing is read and the value is not used.
            unused = False if dtype is DataType.BOOL else 0
            return builder.conversions.adapt(unused, dtype.compute, site.span)
        site = dataclasses.replace(site, reach=reach)
        return builder.reads.read(tensor, dtype, [position for position, _ in held], site)

    def hold(self, value: Node, span: Span) -> tuple[str, DataType]:
        """Tensor that holds a value with a shape, and its type."""
        builder = self._on.built()
        if builder.nodes.loaded(value) is None:
            if self._on.materialize is None:
                raise DmlcError(f"{span_text(span)} cannot be indexed here", span, code="E0303")
            value = self._on.materialize(value, span)
        dtype = value.dtype
        tensor = builder.nodes.loaded(value)
        if tensor is None or not isinstance(dtype, DataType):
            raise DmlcError(
                f"{span_text(span)} has no type: cast it, as in cast(x, FLOAT32)",
                span,
                code="E0302",
            )
        return tensor, dtype

    # Reductions ---------------------------------------------------------------------------

    def bind(
        self, binding: syntax.Binding, scope: Scope, depth: int, own: Sequence[Extent] = ()
    ) -> Step[tuple[list[Node], Value]]:
        """Index variables of a binding, and the value of its name. Their extents are those stated,
        or else `own`."""
        extents = own
        if binding.extent is not None:
            around = scope.outside() if binding.pack else scope
            value: Value = yield self._on.visit(binding.extent, around)
            extents = self._read_extents(value, binding, binding.extent.span)
        nodes = self._on.built().nodes
        variables = [nodes.bind(depth + k, extent) for k, extent in enumerate(extents)]
        return variables, tuple(variables) if binding.pack else variables[0]

    def _read_extents(self, value: Value, binding: syntax.Binding, span: Span) -> list[Extent]:
        """Extents of an index variable, or of a pack of them. Raises `DmlcError`."""
        name, items = binding.variable.text, value if isinstance(value, tuple) else (value,)
        if binding.pack and not isinstance(value, tuple):
            raise DmlcError(
                f"'{name}...' needs one extent per axis, and this is one value", span, code="E0407"
            )
        if isinstance(value, tuple) and not binding.pack:
            raise DmlcError(
                f"'{name}' runs over an array of sizes: write '{name}... : {span.text}'",
                span,
                code="E0407",
            )
        found: list[Extent] = []
        for item in items:
            if isinstance(item, OpenSize):
                found.append(expect_extent(item, f"the extent of '{name}'", span))
                continue
            if isinstance(item, Node):
                raise DmlcError(
                    f"the extent of '{name}' must be known at compile time: leave points out with "
                    "'where' instead",
                    span,
                    code="E0407",
                )
            whole = whole_number(item)
            if whole is not None and whole > _MOST_EXTENT:
                raise UnsupportedError(
                    f"'{name}' runs over {whole} places, and {_MOST_EXTENT} are the most",
                    span,
                    code="E0407",
                )
            if whole is None or whole < 0:
                shown = "an array" if isinstance(item, tuple) else show(item)
                raise DmlcError(
                    f"an extent is a whole number of 0 or more, not {shown}", span, code="E0407"
                )
            found.append(whole)
        return found

    def reduce(self, expression: syntax.Reduce, scope: Scope) -> Step[Value]:
        """`sum[k : 3, l... : Sizes where c](e)`."""
        if self._on.builder is None:
            raise DmlcError(
                "a reduction over index variables cannot stand here", expression.span, code="E0414"
            )
        variables: list[Node] = []
        names: dict[str, Value] = {}
        for binding in expression.bindings:
            bound: list[Node]
            bound, names[binding.variable.text] = yield self.bind(
                binding, scope, scope.depth + len(variables)
            )
            variables += bound
        inner = dataclasses.replace(
            scope,
            parameters={**scope.parameters, **names},
            depth=scope.depth + len(variables),
            # It has a stage of its own, so that guards around it exclude none of its points.
            conditions=(*scope.conditions, *scope.guards),
            guards=(),
        )
        condition: Value = True
        if expression.condition is not None:
            condition = yield self._on.visit(expression.condition, inner)
            self._check_condition(condition, expression.condition.span)
            guards = list_conditions(self._on.builder.positions, condition, True)
            inner = dataclasses.replace(inner, guards=guards)
        value: Value = yield self._on.visit(expression.body, inner)
        if isinstance(value, tuple):
            raise DmlcError(
                f"'{expression.combiner.text}' folds one value for each point, and this is an "
                f"array of {len(value)}",
                expression.body.span,
                code="E0303",
            )
        return self._on.builder.folds.reduce(
            expression.combiner.text, variables, value, condition, expression.body.span
        )

    def _check_condition(self, condition: Value, span: Span) -> None:
        if isinstance(condition, bool):
            return
        if isinstance(condition, Node):
            if condition.shape is not None:
                raise DmlcError(
                    "the condition after 'where' is of one point: index it", span, code="E0303"
                )
            if condition.dtype is DataType.BOOL:
                return
        what = "a number" if isinstance(condition, Node) else "no boolean"
        notes: list[Note | str] = []
        if isinstance(condition, tuple):
            notes = [f"write 'all(({span.text})...)'"]
        raise DmlcError(
            f"the condition after 'where' must be a boolean, but this is {what}",
            span,
            notes,
            code="E0301",
        )


def _is_boolean(value: Value) -> bool:
    return value.dtype is DataType.BOOL if isinstance(value, Node) else isinstance(value, bool)
