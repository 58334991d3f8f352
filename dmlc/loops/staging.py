"""The primitive that stages values: work items of a group store a value to shared memory before
they read it.

The tile of the value is inferred (bounds inference): the points that the loops inside iterate over,
as far as the value varies with them. A block of loops fills it, which further calls split, bind and
unroll.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from dmlc import ir
from dmlc.kernel.target import Limits
from dmlc.loops.contraction import is_plain
from dmlc.loops.element import (
    Elements,
    Gather,
    Read,
    Value,
    View,
    list_conditions,
    list_needed,
    prune,
)
from dmlc.loops.element import renumber as renumber_value
from dmlc.loops.legality import covers, find_path
from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Into,
    Kind,
    Loop,
    Multiply,
    Nest,
    Node,
    Numbers,
    Point,
    Reduce,
    Stage,
    find_shared,
    list_loops,
    walk,
)
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive, replace_node
from dmlc.loops.tiling import count_points, list_names, measure_shared
from dmlc.scalars import OPERATIONS, DataType

MOST_AHEAD = 64
"""Largest number of elements that a work item loads ahead, as each takes a register."""
FACTORS = ("left", "right")
"""Names of the operands of a summed product."""


@primitive(Argument.WORD, Argument.WORD, Argument.WORD, Argument.NUMBER, optional=1)
def stage(on: On, value: str, memory: str, beside: str, pad: int = 0) -> Nest:
    """Stages a value in shared memory (`memory`) for each step of a loop: the tile that the loops
    inside need. The value is what is loaded of a tensor of that name, the `left` or `right` operand
    of the summed products, or `%3`, the value of that number. Elements of the tile are contiguous
    along `beside`, and its rows are padded by `pad` elements. One work item fills the tile, until
    further calls distribute the loops that do.

    `for k in 0..n by 16: s += f(a[i, k]) -> for k in 0..n by 16: t[..] = a[..]; s += f(t[i, k])`
    """
    nest, loop = on.nest, on.loop
    demand(memory == "shared", "values are put into shared memory")
    number = _find_user(loop)
    phase, dims = nest.phases[number], nest.dims[number]
    root, name = _find_value(phase, value), on.name or value.replace("%", "value")
    footprint, settled = _infer_footprint(nest, loop, number, root)
    sides = {each.name: each for each in footprint}
    demand(beside in sides, f"it lies along {' and '.join(sides)}")
    places, size = dict[Dim, int](), 1
    for each in (sides[beside], *(t for t in footprint if t.name != beside)):
        places[each] = size
        size *= count_points(each) + (pad if size == 1 else 0)
    demand(all(b.name != f"{name}#tile" for b in nest.buffers), f"there is a tile '{name}'")
    own = [axis for axis, dim in enumerate(dims) if dim.within is None]
    conditions = _list_own(phase, dims, footprint, settled)
    # Axes of tiles come last.
    made = stage_value(phase.elements.select(own), root, conditions, f"{name}#tile")
    ((view, _),) = made.elements.results
    wanted = f"{name.partition('.')[0]}_tile"
    products = [n for n in walk(loop.body) if isinstance(n, Multiply)]
    dtype = products[0].instruction.shape.factors if products else view.dtype
    buffer = Buffer(view.tensor, dtype, size, sides[beside], wanted, linear=True, shared=True)
    _demand_room(nest, (buffer,), on.limits)
    tiles = {t: Dim(f"{name}_{t.wanted}", t.size, within=t.within) for t in footprint}
    summed = {dims[axis] for axis in phase.space.inner if phase.accumulators}
    into = Into(
        buffer, tiles[sides[beside]], tile=tuple((tiles[t], step) for t, step in places.items()),
        loose=tuple(own for t, own in tiles.items() if not _is_made_of(t, summed)),
    )  # fmt: skip
    fill: Node = Point(len(nest.phases), (into,))
    for dim in reversed(tiles.values()):
        demand(dim.name not in list_names(nest), f"there is a dimension '{dim.name}'")
        fill = Loop(dim, Kind.LOOP, 1, (fill,), dim.name)
    steps = {each: places[each] for each in footprint}
    changed, axes = _read_tile(nest, number, root, view, steps, settled)
    filled = Stage((buffer,), (fill,), repeats=loop.kind is not Kind.GROUP)
    match loop.body:
        case (Stage() as others, *rest):
            buffers, body = (*others.buffers, buffer), (*others.body, fill)
            filled = dataclasses.replace(others, buffers=buffers, body=body)
        case rest:
            pass
    nest = on.replace(dataclasses.replace(loop, body=(filled, *rest)))
    nest = nest.with_phase(number, changed, axes)
    nest = nest.with_phase(len(nest.phases), made, tuple(dims[a] for a in own))
    return dataclasses.replace(nest, buffers=(*nest.buffers, buffer))


def _is_made_of(tile: Dim, dims: Collection[Dim]) -> bool:
    """Whether a tile belongs to one of some dimensions, or to one merged from such."""
    whole = tile.within or tile
    return whole in dims or any(part in dims for part, _ in whole.parts)


@primitive()
def pipeline(on: On) -> Nest:
    """Software-pipelines a loop whose steps fill shared memory: the next step's elements are loaded
    into registers before the current ones are used, and stored to a second copy of the tile
    afterwards. Work items compute while memory is read, and synchronize once per step.

    `for k in 0..n by 16: t = a[k]; s += f(t) -> t[0] = a[0]`, and then `for k in 0..n by 16: r =
    a[k + 16]; s += f(t[k / 16 % 2]); t[(k / 16 + 1) % 2] = r`
    """
    loop = on.loop
    match loop.body:
        case (Stage(ahead=False) as filled, *_) if any(b.shared for b in filled.buffers):
            demand(filled.repeats, "there is no step before")
            _demand_room(on.nest, filled.buffers, on.limits)
            return replace_node(on.nest, filled, dataclasses.replace(filled, ahead=True))
        case _:
            raise ScheduleError("no tiles are filled there, a step behind")


def _demand_room(nest: Nest, more: Sequence[Buffer], limits: Limits) -> None:
    """Refuses buffers that exceed a group's shared memory. Pipelined ones count twice."""
    stages = (n for n in walk(nest.body) if isinstance(n, Stage) and n.ahead)
    buffers = (*nest.buffers, *(b for n in stages for b in n.buffers), *more)
    held = measure_shared(buffers)
    demand(held <= limits.shared_bytes, "tiles take more memory than a group has")


def _check_ahead(loop: Loop, filled: Stage) -> None:
    """Refuses pipelined tiles that would not be loaded into registers, or take too many."""
    plain = loop.kind is Kind.LOOP and not loop.extent and not loop.backwards
    demand(plain and not loop.interleaved, "steps that one work item takes in order look ahead")
    pieces = any(part.piece for part, _ in loop.dim.parts[1:])
    demand(loop.dim.within is None and not pieces, "some of its steps may not be there")
    demand(not any(isinstance(n, Stage) for n in walk(loop.body) if n is not filled),
           "tiles inside a loop that looks ahead are filled a step behind")  # fmt: skip
    loops = [n for n in walk(filled.body) if isinstance(n, Loop) and n.kind is not Kind.LANE]
    written_out = all(n.extent and n.kind in (Kind.UNROLL, Kind.VECTOR) for n in loops)
    demand(written_out, "what is read ahead is read by loops that are written out")
    counts = {n: n.step if n.kind is Kind.VECTOR else n.extent for n in loops}
    held = sum(math.prod(counts[n] for n in find_path(filled.body, point) if n in counts)
               for point in walk(filled.body) if isinstance(point, Point))  # fmt: skip
    demand(held <= MOST_AHEAD, f"{held} elements are read ahead, of {MOST_AHEAD} at most")


def _infer_footprint(
    nest: Nest, loop: Loop, number: int, root: int
) -> tuple[tuple[Dim, ...], set[Dim]]:
    """Tiles of which a step of a loop needs more than one point of a value, outermost first; and
    the dimensions fixed there. Refuses a value that varies along other ranges than tiles."""
    phase, dims = nest.phases[number], nest.dims[number]
    (point,) = [n for n in walk((loop,), filled=False) if isinstance(n, Point)]
    loops = [n for n in find_path(nest.body, point) if isinstance(n, Loop)]
    place = next(i for i, n in enumerate(loops) if n is loop) + 1
    around, inner = loops[:place], loops[place:]
    several = [n.dim for n in around if n.kind is Kind.LANE] + [n.dim for n in inner]
    tiles = dict.fromkeys(n.dim for n in loops if n.dim.within is not None and n.dim in several)
    taken, settled = set[Dim](), set[Dim]()
    for axis, dim in enumerate(dims):
        found = [t for t in tiles if t.within is not None and covers(t.within, dim)]
        if dim.within is not None:
            continue
        if not found and not any(covers(n.dim, dim) for n in inner):
            settled.add(dim)
        moves = phase.find_moving(axis)[root]
        demand(not moves or bool(found) or dim in settled,
               f"what it goes over along '{dim.name}' is no tile")  # fmt: skip
        # The tile is filled beyond the last reduced point, with 0.
        if moves or axis in phase.space.inner:
            taken.update(found)
    demand(bool(taken), "nothing that the loops below go over moves it")
    for each in taken:
        moved = any(each.within is not None and covers(n.dim, each.within) for n in inner)
        demand(not moved, f"where '{each.name}' starts is not known yet")
    return tuple(tile for tile in tiles if tile in taken), settled


def _find_user(loop: Loop) -> int:
    """The only phase inside a loop that may read the staged value."""
    points = [n for n in walk(loop.body, filled=False) if isinstance(n, Point)]
    demand(len(points) == 1 and not points[0].into, "one phase reads what is staged")
    return points[0].phase


def _find_value(phase: Phase, name: str) -> int:
    """Number of a value by its name, if it can be computed anywhere."""
    elements, found = phase.elements, list[int]()
    if name.startswith("%") and name[1:].isdecimal():
        found = [number for number in range(len(elements.values)) if name == f"%{number}"]
    if name in FACTORS and len(elements.reductions) == 1:
        factors = elements.reductions[0].values
        found = [factors[FACTORS.index(name)]] if len(factors) == 2 else []
    if not found:
        reads = enumerate(elements.values)
        found = [n for n, v in reads if isinstance(v, Read | Gather) and v.view.tensor == name]
    guards = [f.guard for f in elements.reductions if f.guard is not None]
    tested = {v for guard in guards for v in list_needed(elements, guard)}
    clear = name in FACTORS or tested.isdisjoint(found)
    demand(clear, f"'{name}' says which points take part")
    demand(len(found) == 1, f"not one value is called '{name}'")
    dtype = elements.values[found[0]].dtype
    stageable = dtype in STAGED and is_plain(elements, found[0], dtype)
    demand(stageable and not phase.has_several_guards, f"'{name}' cannot be computed elsewhere")
    return found[0]


STAGED = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""Types that tiles can hold."""


def check_items(nest: Nest) -> None:
    """Refuses a nest in which jammed outputs share accumulators, or not all work items of a group
    fill a tile together, or items need different tiles."""
    for loop in walk(nest.body):
        if isinstance(loop, Reduce) and loop.tile is not None and not loop.joins:
            inner = [n for n in walk(loop.body, filled=False) if isinstance(n, Loop)]
            own = all(n.kind in (Kind.LOOP, Kind.UNROLL) for n in inner)
            demand(own, "outputs that are jammed have sums of their own")
        if isinstance(loop, Numbers):
            inner = [n for n in walk((loop,)) if isinstance(n, Reduce)]
            demand(not any(map(find_shared, inner)), "what is rare is not shared")
        if isinstance(loop, Loop) and any(isinstance(n, Stage) for n in loop.body):
            lanes = _demand_meeting(nest, loop)
            (found,) = [n for n in loop.body if isinstance(n, Stage)]
            if found.ahead:
                _check_ahead(loop, found)
            for point in (n for n in walk(found.body) if isinstance(n, Point)):
                phase, dims = nest.phases[point.phase], nest.dims[point.phase]
                ((_, root),) = phase.elements.results
                tiles = [dim for into in point.into for dim, _ in into.tile]
                for axis, dim in enumerate(dims):
                    own = phase.find_moving(axis)[root] and any(covers(n, dim) for n in lanes)
                    held = any(t.within is not None and covers(t.within, dim) for t in tiles)
                    demand(held or not own, "work items need different tiles")


def _demand_meeting(nest: Nest, loop: Loop) -> list[Dim]:
    """Refuses a loop that not all work items of a group reach equally often. Returns the dimensions
    distributed over them."""
    path = find_path(nest.body, loop)
    demand(all(isinstance(n, Loop | Reduce) for n in path), "not all work items come there")
    reduced, lanes = False, list[Dim]()
    for node in path:
        if not isinstance(node, Loop):
            reduced = True
            continue
        own = node.dim.within or node.dim
        if node.kind is Kind.LANE:
            demand(not reduced, "work items reduce different points")
            lanes.append(own)
        if node.kind is Kind.LOOP and not node.extent and not node.interleaved:
            alone = not any(covers(lane, own) or covers(own, lane) for lane in lanes)
            demand(alone, "work items take different numbers of steps")
        elif node.kind is not Kind.GROUP:
            finer = node.dim.within is not None and bool(list_loops(node.body, node.dim))
            demand(finer, "work items have points of their own")
    return lanes


def _list_own(
    phase: Phase, dims: Sequence[Dim], footprint: Collection[Dim], settled: Collection[Dim]
) -> list[int]:
    """Conditions of the guard that exclude points of a value with this footprint and do not vary
    otherwise, except with fixed dimensions. Refuses those that other outputs affect as well."""
    if not any(f.guard is not None for f in phase.elements.reductions):
        return []
    axes = [axis for axis, dim in enumerate(dims) if dim.within is None]
    mine = {a for a in axes if any(covers(t.within or t, dims[a]) for t in footprint)}
    found: list[int] = []
    for condition in list_conditions(phase.elements):
        moves = [a for a in axes if phase.find_moving(a)[condition]]
        others = [a for a in moves if a not in mine and dims[a] not in settled]
        both = others and mine.intersection(moves, phase.space.parallel)
        demand(not both, "a condition moves several factors")
        found += [] if others else [condition]
    return found


def _read_tile(
    nest: Nest,
    number: int,
    root: int,
    view: View,
    places: Mapping[Dim, int],
    settled: Collection[Dim],
) -> tuple[Phase, tuple[Dim, ...]]:
    """Phase that reads a value from its tile, and the dimensions of its axes: those of tiles come
    last."""
    phase, dims = nest.phases[number], nest.dims[number]
    outputs = [dims[axis] for axis in phase.space.parallel]
    new = [t for t in places if t not in dims]
    axes = range(len(dims), len(dims) + len(new))
    dims = (*dims, *new)
    ends = [a for a in axes if any(covers(dims[a].within or dims[a], dim) for dim in outputs)]
    steps = tuple(places.get(dim, 0) for dim in dims)
    read = Read(dataclasses.replace(view, strides=steps), view.dtype)
    elements = phase.elements.extend(map(count_points, new), ends)
    elements = _replace_value(elements, root, read)
    made = with_elements(phase, elements)
    if _reads_tiles(nest, number, made, dims, settled):
        (reduction,) = elements.reductions
        free = dataclasses.replace(reduction, guard=None)
        elements = prune(dataclasses.replace(elements, reductions=(free,)))
        loops = [n.dim for n in walk(nest.body) if isinstance(n, Loop)]
        kept = [axis for axis, dim in enumerate(dims) if dim.within is not None]
        kept.sort(key=lambda axis: loops.index(dims[axis]))
        made = with_elements(made, elements.select(kept))
        return made, tuple(dims[axis] for axis in kept)
    return made, dims


def _replace_value(elements: Elements, root: int, read: Read) -> Elements:
    """Work with a read in place of a value; or in place of a factor of the sum."""
    values = list(elements.values)
    if len(elements.reductions) == 1:
        (reduction,) = elements.reductions
        if len(reduction.values) == 2 and root in reduction.values:
            factors = tuple(len(values) if n == root else n for n in reduction.values)
            values.append(read)
            reduction = dataclasses.replace(reduction, values=factors)
            return prune(
                dataclasses.replace(elements, values=tuple(values), reductions=(reduction,))
            )
    values[root] = read
    return prune(dataclasses.replace(elements, values=tuple(values)))


def renumber(elements: Elements, root: int) -> dict[int, int]:
    """New numbers of the remaining values after a value was replaced by a read."""
    needed = list_needed(elements, *elements.roots(), given=root)
    return {old: new for new, old in enumerate(sorted(needed))}


def _reads_tiles(
    nest: Nest, number: int, phase: Phase, dims: Sequence[Dim], settled: Collection[Dim]
) -> bool:
    """Whether everything that a sum adds comes from tiles, which are 0 out of bounds and where a
    condition is false: then it may include all points of the tiles."""
    elements, space = phase.elements, phase.space
    if len(elements.reductions) != 1 or elements.reductions[0].combiner != "sum":
        return False
    (reduction,) = elements.reductions
    reads = [elements.values[n] for n in reduction.values]
    views = [v.view for v in reads if isinstance(v, Read) and v.view.local]
    if len(views) < len(reads) or elements.results:
        return False
    own = [[d for d, s in zip(dims, v.strides, strict=True) if s] for v in views]
    points = {dims[axis] for axis in space.inner if dims[axis] not in settled}
    tiles = {dim for dim in points if dim.within is not None}
    covered = all(any(covers(t.within or t, dim) for t in tiles) for dim in points - tiles)
    if not covered or not all(tiles <= set(each) for each in own):
        return False
    if reduction.guard is None:
        return True
    conditions = [set(_list_own(phase, dims, each, settled)) for each in own]
    if set[int]().union(*conditions) != set(list_conditions(elements)):
        return False
    checked = any(isinstance(n, Numbers) and n.phase == number for n in walk(nest.body))
    apart = reduction.dtype.is_float and any(each != conditions[0] for each in conditions)
    demand(checked or not apart, "a factor is 0 where the other may be no number: recheck it first")
    return True


def stage_value(elements: Elements, root: int, conditions: Sequence[int], name: str) -> Phase:
    """Phase that computes a value of some work, over all axes, for a buffer of that name: 0 where
    one of the conditions is false."""
    values: list[Value] = []
    numbers: dict[int, int] = {}
    holds: int | None = None
    bounded: dict[int, int] = {}

    def add(value: Value) -> int:
        values.append(value)
        return len(values) - 1

    def copy(root: int) -> int:
        for number in sorted(list_needed(elements, root)):
            if number in numbers:
                continue
            value = elements.values[number]
            if isinstance(value, Gather):
                terms = tuple((protect(n, value.guarded), step) for n, step in value.terms)
                value = dataclasses.replace(value, terms=terms)
            else:
                value = renumber_value(value, numbers)
            numbers[number] = add(value)
        return numbers[root]

    def protect(number: int, guarded: bool) -> int:
        """An index, or 0 where it may be out of bounds."""
        own = numbers[number]
        if not guarded or holds is None:
            return own
        if own not in bounded:
            zero = add(ir.Constant(DataType.INDEX, 0))
            bounded[own] = add(ir.Select(holds, own, zero, DataType.INDEX))
        return bounded[own]

    for condition in conditions:
        own = copy(condition)
        joined = None if holds is None else (holds, own)
        holds = own if joined is None else add(ir.Apply(OPERATIONS["and"], joined, DataType.BOOL))
    dtype = elements.values[root].dtype
    made = copy(root)
    if holds is not None:
        zero = add(ir.Constant(dtype, 0.0 if dtype.is_float else 0))
        made = add(ir.Select(holds, made, zero, dtype))
    view = View(name, dtype, (0,) * len(elements.space.extents), local=True)
    return Phase(Elements(elements.space, tuple(values), ((view, made),), (), elements.reach))
