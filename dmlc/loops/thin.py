"""Reductions whose guard passes every n-th point, such as the data gradient of a strided
convolution: the other points are removed from the loop, instead of being tested."""

from __future__ import annotations

import dataclasses
import math

from dmlc import ir
from dmlc.index.affine import Affine, combine
from dmlc.loops.element import (
    Gather,
    Place,
    Read,
    Value,
    View,
    list_conditions,
    prune,
    renumber,
)
from dmlc.loops.legality import demand_serial, is_alone
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive, replace_node
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import known


@dataclasses.dataclass(frozen=True, slots=True)
class Sparse:
    """An inner axis of which a guard passes every `number`-th point. The first is
    `(factor * p + shift) % number`, where `p` is the index along `output`."""

    axis: int
    number: int
    output: int
    factor: int
    shift: int
    condition: int
    """Condition that excludes the other points: a sum of indices is no multiple of `number`."""
    dividend: Affine[int]
    """That sum, of axes."""


def find_sparse(phase: Phase, *, even: bool = True) -> Sparse | None:
    """First such axis of a phase. With `even`, the size of `output` must be a multiple, so that
    outputs can be split alike."""
    found = list_sparse(phase)
    return next((s for s in found if not (even and phase.space.sizes[s.output] % s.number)), None)


def list_sparse(phase: Phase) -> list[Sparse]:
    """All such axes."""
    reductions = phase.elements.reductions
    guards = {reduction.guard for reduction in reductions}
    if (
        len(guards) != 1
        or None in guards
        or phase.is_open
        or any(r.place is not None for r in reductions)
    ):
        return []
    found = (_read_condition(phase, number) for number in list_conditions(phase.elements))
    return [each for each in found if each is not None]


def _read_condition(phase: Phase, number: int) -> Sparse | None:
    values, space = phase.elements.values, phase.space
    match values[number]:
        case ir.Apply(operation=compare, operands=(rest, zero)) if compare.name == "eq":
            rest, zero = values[rest], values[zero]
        case _:
            return None
    if not isinstance(zero, ir.Constant) or zero.value != 0 or not isinstance(rest, ir.Apply):
        return None
    if rest.operation.name != "mod" or rest.dtype is not DataType.INDEX:
        return None
    by, line = values[rest.operands[1]], _find_line(phase, rest.operands[0])
    if not isinstance(by, ir.Constant) or line is None:
        return None
    steps, period = dict(line.factors), int(by.value)
    uneven = [axis for axis in sorted(steps) if period > 1 and steps[axis] % period]
    inner = [axis for axis in uneven if axis in space.inner and axis not in space.pieces]
    if len(uneven) != 2 or len(inner) != 1 or math.gcd(steps[inner[0]], period) != 1:
        return None
    (axis,), (output,) = inner, [each for each in uneven if each not in inner]
    if output not in space.parallel or space.sizes[axis] < 2:
        return None
    turn = -pow(steps[axis], -1, period)
    factor, shift = turn * steps[output] % period, turn * line.constant % period
    return Sparse(axis, period, output, factor, shift, number, line)


def _find_line(phase: Phase, number: int) -> Affine[int] | None:
    """Affine form of an index over the axes; None if it has none."""
    match phase.elements.values[number]:
        case Place(view=view, dtype=DataType.INDEX):
            steps = enumerate(known(view.strides))
            return Affine(view.offset, tuple((axis, step) for axis, step in steps if step))
        case ir.Constant(value=value):
            return Affine(int(value))
        case ir.Apply(operation=operation, operands=operands):
            lines = [_find_line(phase, operand) for operand in operands]
            found = [line for line in lines if line is not None]
            return combine(operation.name, found) if found == lines else None
        case _:
            return None


def _is_quotient(phase: Phase, number: int, sparse: Sparse) -> bool:
    """Whether a value is the quotient of the sum that the guard tests, rounded towards zero or
    down. Both are exact for points that pass."""
    values, whole = phase.elements.values, sparse.dividend

    def read(value: int) -> Affine[int] | None:
        return _find_line(phase, value)

    match values[number]:
        case ir.Apply(operation=quotient, operands=(dividend, by)) if quotient.name == "div":
            if read(by) != Affine(sparse.number):
                return False
        case _:
            return False
    match values[dividend]:
        case ir.Select(condition=condition, then=below, otherwise=same):
            tested = values[condition]
            down = read(below) == whole.plus(Affine(1 - sparse.number))
            return down and read(same) == whole and _is_negative(phase, tested, whole)
        case _:
            return read(dividend) == whole


def _is_negative(phase: Phase, value: Value, line: Affine[int]) -> bool:
    """Whether a value is the condition that a sum of axes is negative."""
    match value:
        case ir.Apply(operation=compare, operands=(left, right)) if compare.name == "lt":
            return _find_line(phase, left) == line and _find_line(phase, right) == Affine(0)
        case _:
            return False


def thin_points(phase: Phase, sparse: Sparse) -> Phase:
    """Phase whose inner axis has only the points that pass the guard."""
    space, size = phase.space, phase.space.sizes[sparse.axis]
    values: list[Value] = []

    def add(name: str, *given: int) -> int:
        values.append(ir.Apply(OPERATIONS[name], given, DataType.INDEX))
        return len(values) - 1

    def constant(number: int) -> int:
        values.append(ir.Constant(DataType.INDEX, number))
        return len(values) - 1

    def stand(axis: int, step: int) -> int:
        steps = tuple(step * (each == axis) for each in range(len(space.sizes)))
        view = View(f"thin#{axis}", DataType.INDEX, steps)
        values.append(Place(view, DataType.INDEX))
        return len(values) - 1

    extents = list(space.extents)
    extents[sparse.axis] = -(-size // sparse.number)
    whole = phase.elements.over(
        dataclasses.replace(space, extents=tuple(extents)),
        lambda steps: (
            step * (sparse.number if axis == sparse.axis else 1) for axis, step in enumerate(steps)
        ),
    )
    period = constant(sparse.number)
    rest = add("mod", stand(sparse.output, 1), period)
    first = add("add", add("mul", rest, constant(sparse.factor)), constant(sparse.shift))
    first = add("mod", first, period)
    point = add("add", stand(sparse.axis, sparse.number), first)
    end = constant(size)

    def add_times(total: int, term: int, times: int) -> int:
        scaled = term if abs(times) == 1 else add("mul", term, constant(abs(times)))
        return add("add" if times > 0 else "sub", total, scaled)

    def divide() -> int:
        """Quotient of the guard's sum, for points that pass: of each axis, and of what the axes
        leave over."""
        left = constant(sparse.dividend.constant)
        for axis, term in ((sparse.output, rest), (sparse.axis, first)):
            left = add_times(left, term, sparse.dividend.factor(axis))
        total = add("div", left, period)
        for axis, step in sparse.dividend.factors:
            if axis == sparse.output:
                total = add_times(total, add("div", stand(axis, 1), period), step)
            else:
                even = step if axis == sparse.axis else step // sparse.number
                total = add_times(total, stand(axis, 1), even)
        return total

    numbers: dict[int, int] = {}
    for number, value in enumerate(whole.values):
        step = 0
        if isinstance(value, Read | Gather | Place):
            step = known(value.view.strides)[sparse.axis] // sparse.number
        match value:
            case _ if number == sparse.condition:
                values.append(ir.Apply(OPERATIONS["lt"], (point, end), DataType.BOOL))
            case ir.Apply() if _is_quotient(phase, number, sparse):
                divide()
            case Place() if step:
                values.append(value)
                at = len(values) - 1
                add("add", at, add("mul", first, constant(step)))
            case Read() if step:
                values.append(Gather(value.view, value.dtype, ((first, step),), guarded=True))
            case Gather() if step:
                terms = (*((numbers[n], by) for n, by in value.terms), (first, step))
                values.append(dataclasses.replace(value, terms=terms, guarded=True))
            case _:
                values.append(renumber(value, numbers))
        numbers[number] = len(values) - 1
    results = tuple((view, numbers[root]) for view, root in whole.results)
    reductions = tuple(each.renumbered(numbers) for each in whole.reductions)
    made = dataclasses.replace(whole, values=tuple(values), results=results, reductions=reductions)
    return with_elements(phase, prune(made))


@primitive(Argument.NUMBER)
def thin(on: On, number: int) -> Nest:
    """Restricts a loop over reduced points, of which a guard passes every `number`-th, to these
    points. The first of them depends on the output. No sum changes its order.

    `for k in 0..n: if (i + k) % number == 0: s += f(k) -> for t in 0..n / number: k = t * number +
    first(i): if k < n: s += f(k)`
    """
    loop, nest = demand_serial(on.loop, "thinned"), on.nest
    dim = loop.dim
    demand(dim.is_plain and is_alone(nest, loop), "a whole dimension is thinned")
    owners = [n for n, own in enumerate(nest.dims) if dim in own]
    demand(len(owners) == 1, "only points are thinned that are reduced once")
    (owner,) = owners
    axis, found = nest.dims[owner].index(dim), list_sparse(nest.phases[owner])
    sparse = next((each for each in found if (each.axis, each.number) == (axis, number)), None)
    if sparse is None:
        raise ScheduleError(f"no guard lets one point in {number} through first")
    phase = thin_points(nest.phases[owner], sparse)
    made = dataclasses.replace(dim, size=phase.space.sizes[axis])
    nest = replace_node(nest, loop, dataclasses.replace(loop, dim=made))
    own = tuple(made if each is dim else each for each in nest.dims[owner])
    return nest.with_phase(owner, phase, own)
