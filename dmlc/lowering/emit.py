"""Emission of a list of values as statements, scope by scope.

A kernel's body is a nest of scopes: the kernel itself, then one per loop. A value belongs to the
innermost scope that one of its reads depends on, so that loop-invariant values are computed before
the loop. A value that is used once is written inline; loads, results, and values used again get a
name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, multiply, operate, size, widen
from dmlc.kernel.frame import Near
from dmlc.kernel.names import Names, local_name
from dmlc.kernel.rows import step_number
from dmlc.loops.element import Elements, Gather, Place, Read, Value, View, operands
from dmlc.loops.vectorize import Joint
from dmlc.lowering.shuffles import spread_load
from dmlc.scalars import LARGEST_INDEX, DataType
from dmlc.sizes import parse_size

_LONGEST_EXPRESSION = 6
"""Largest number of operations in one expression; longer ones are split into named values."""

_NAMES = {DataType.INDEX: "position", DataType.BOOL: "holds"}
"""Names of values that are no tensor's, by type."""


Position = Callable[[View], k.Expression]
"""Offset of a view's element in its buffer, at the current point."""


class Emitter:
    """Writer of the statements of one kernel's values.

    `levels` gives each value's scope: 0 if it is invariant in the whole kernel. `wide` says whether
    a view varies along a vector, as vectorized scopes may contain invariant views. Values in
    `apart` are never written. An index is that of the first lane; in other uses, it is expanded to
    consecutive lanes, or to those of `joint` if reads of the lanes are not contiguous.
    """

    def __init__(
        self,
        elements: Elements,
        names: Names,
        levels: Sequence[int],
        local: Mapping[str, Near],
        wide: Callable[[View], bool],
        apart: Container[int],
        joint: Joint | None,
    ) -> None:
        self._elements = elements
        self._wide = wide
        self._near = local
        self.joint = joint
        self._levels = levels
        self._own: dict[int, list[int]] = {}
        """Values of each scope."""
        self._outer: dict[int, k.Expression] = {}
        self._uses = [0] * len(elements.values)
        self._used_below = [False] * len(elements.values)
        self._operands = [operands(value) for value in elements.values]
        for number, value in enumerate(elements.values):
            if isinstance(value, ir.Constant):
                self._outer[number] = _literal(value)
                continue
            if isinstance(value, ir.Symbol):
                self._outer[number] = size(parse_size(value.name))
                continue
            if isinstance(value, ir.Step):
                self._outer[number] = step_number()
                continue
            if number in apart:
                continue
            self._own.setdefault(levels[number], []).append(number)
            for operand in self._operands[number]:
                self._uses[operand] += 1
                if levels[operand] < levels[number]:
                    self._used_below[operand] = True
        self._results: dict[int, str] = {}
        for view, result in elements.results:
            self._uses[result] += 1
            self._results.setdefault(result, view.tensor)
        for root in elements.roots()[len(elements.results) :]:
            self._uses[root] += 1
        self._namer = names
        self._known: dict[int, k.Expression] = {}
        self._written: set[int] = set()

    def level(self, number: int) -> int:
        """Scope of a value."""
        return self._levels[number]

    def list_settled(self, level: int) -> set[View]:
        """Views whose reads at computed indices all belong to scopes up to `level`."""
        gathers = [
            (value.view, self._levels[number] <= level)
            for number, value in enumerate(self._elements.values)
            if isinstance(value, Gather)
        ]
        return {v for v, done in gathers if done} - {v for v, done in gathers if not done}

    def lets(
        self,
        level: int,
        position: Position,
        lanes: int = 1,
        *,
        around: bool = False,
        only: Container[int] | None = None,
        rest: bool = False,
    ) -> list[k.Statement]:
        """Named locals of a scope; those of the enclosing scopes must have been written.

        With `lanes`, reads are vectors: this is for the innermost scope, which may be written
        several times, and the one `around` it.
        """
        statements: list[k.Statement] = []
        # A vectorized scope is written several times, and does not share its values.
        known = self._outer if lanes == 1 or around else dict(self._outer)
        sizes: dict[int, int] = {}
        own = self._own.get(level, [])
        for number in own:
            if number in self._written or (only is not None and number not in only):
                continue
            value = self._elements.values[number]
            joint = self.joint if lanes > 1 else None
            width = 1 if joint is not None and number in joint.fixed else lanes
            made = self._express(number, known, position, width)
            if joint is not None and number in joint.patterns and isinstance(made, k.Load):
                steps, made = spread_load(joint.patterns[number], made, self._let)
                statements += steps
            size = 1 + sum([sizes.get(o, 0) for o in self._operands[number]])
            if isinstance(made, k.Local):
                size = 0
            elif self._is_named(number, value) or size > _LONGEST_EXPRESSION:
                local = k.Local(self._name(number, value), made.type)
                statements.append(k.Let(local, made))
                made, size = local, 0
            known[number] = made
            sizes[number] = size
        self._known = known
        if only is not None or rest:
            self._written.update(n for n in own if n in known)
        return statements

    def forget(self, level: int) -> None:
        """Makes a scope that was written in parts writable again."""
        for number in self._own.get(level, []):
            if number in self._written:
                self._written.remove(number)
                self._outer.pop(number, None)

    def value(self, number: int, lanes: int = 1) -> k.Expression:
        """Value from the scope written last."""
        return widen(self._known[number], lanes)

    def list_results(self) -> tuple[int, ...]:
        """Values of the results."""
        return tuple(number for _, number in self._elements.results)

    def stores(
        self, position: Position, lanes: int, streaming: dict[str, k.Expression]
    ) -> list[k.Store]:
        """Stores of the results, from the scope written last."""
        statements: list[k.Store] = []
        for view, number in self._elements.results:
            value = widen(self._known[number], lanes)
            when = streaming.get(view.tensor) if lanes > 1 else None
            statements.append(k.Store(view.tensor, position(view), value, when))
        return statements

    def _let(self, name: str, value: k.Expression) -> k.Let:
        return k.Let(k.Local(self._namer.take(name), value.type), value)

    def _is_named(self, number: int, value: Value) -> bool:
        return (
            isinstance(value, Read | Gather)
            or (isinstance(value, ir.Apply) and value.operation.name == "fma")
            or number in self._results
            or self._uses[number] > 1
            or self._used_below[number]
        )

    def _name(self, number: int, value: Value) -> str:
        """Unique name for one occurrence of a value."""
        if isinstance(value, Read | Gather):
            wanted = local_name(value.view.tensor)
        elif number in self._results:
            wanted = local_name(self._results[number])
        else:
            wanted = _NAMES.get(value.dtype, "value")
        return self._namer.take(wanted)

    def _express(
        self, number: int, known: dict[int, k.Expression], position: Position, lanes: int
    ) -> k.Expression:
        value = self._elements.values[number]
        match value:
            case Place():
                place = position(value.view)
                if lanes > 1 and self.joint is None and self._wide(value.view):
                    place = _number(place, lanes)
                return (
                    place
                    if place.type.dtype is value.dtype
                    else k.Convert(place, k.Type(value.dtype, place.type.lanes))
                )
            case Read() | Gather():
                terms = value.terms if isinstance(value, Gather) else ()
                moved = [multiply(known[number], step) for number, step in terms]
                place = add(*moved, position(value.view))
                lanes = lanes if self._wide(value.view) else 1
                if value.view.local:
                    return self._near[value.view.tensor](place, lanes)
                return k.Load(value.view.tensor, place, k.Type(value.dtype, lanes))
            case ir.Apply():
                made = self._expand_operands(number, known, lanes)
                width = max([o.type.lanes for o in made])
                if width > 1:
                    made = tuple(widen(o, width) for o in made)
                return k.Operate(value.operation, made, k.Type(value.dtype, width))
            case ir.Select():
                parts = self._expand_operands(number, known, lanes)
                width = max(p.type.lanes for p in parts)
                then, otherwise = (widen(p, width) for p in parts[1:])
                return k.Select(parts[0], then, otherwise, k.Type(value.dtype, width))
            case ir.Cast():
                (operand,) = self._expand_operands(number, known, lanes)
                if operand.type.dtype is value.dtype:
                    return operand
                if (operand.type.dtype, value.dtype) == (DataType.UINT64, DataType.INDEX):
                    # An index saturates, while conversions of output languages wrap.
                    most = k.Literal(k.Type(DataType.UINT64), LARGEST_INDEX)
                    bounded = (operand, widen(most, operand.type.lanes))
                    operand = operate("min", *bounded)
                return k.Convert(operand, k.Type(value.dtype, operand.type.lanes))
            case ir.Constant():
                return _literal(value)
            case ir.Symbol():
                return size(parse_size(value.name))
            case ir.Step():
                return step_number()

    def _expand_operands(
        self, number: int, known: Mapping[int, k.Expression], lanes: int
    ) -> tuple[k.Expression, ...]:
        """Operands of a value. For other values than indices, an index operand is expanded to its
        lanes."""
        numbers = self._operands[number]
        found = [known[o] for o in numbers]
        if lanes == 1:
            return tuple(found)
        is_position = self._elements.values[number].dtype is DataType.INDEX
        if is_position and all(f.type.lanes == 1 for f in found):
            return tuple(found)
        for place, operand in enumerate(numbers):
            slant = None if self.joint is None else self.joint.slants.get(operand)
            if slant is not None and found[place].type.lanes == 1:
                whole = k.Type(found[place].type.dtype, lanes)
                given = (widen(found[place], lanes), k.Numbers(slant, whole))
                found[place] = operate("add", *given)
        return tuple(found)


def _literal(constant: ir.Constant) -> k.Literal:
    return k.Literal(k.Type(constant.dtype), constant.value)


def _number(first: k.Expression, lanes: int) -> k.Expression:
    """Vector of consecutive indices from `first` on."""
    whole = k.Type(DataType.INDEX, lanes)
    numbers = k.Numbers(tuple(range(lanes)), whole)
    return operate("add", widen(first, lanes), numbers)


def find_levels(elements: Elements, depth: Callable[[View], int], guarded: int = 0) -> list[int]:
    """Scope of each value, where `depth` gives the scope in which a view varies, and `guarded` the
    outermost one for reads protected by a reduction's guard."""
    levels: list[int] = []
    for value in elements.values:
        level = max((levels[o] for o in operands(value)), default=0)
        if isinstance(value, Read | Place):
            level = depth(value.view)
        elif isinstance(value, Gather):
            level = max(level, depth(value.view), guarded if value.guarded else 0)
        levels.append(level)
    return levels
