"""The primitive that computes products by matrix instructions: the subgroups of a work group share
the outputs of a tile, and each has some accumulator matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dmlc.kernel.target import Limits
from dmlc.loops.element import Gather, Read
from dmlc.loops.legality import MOST_ITEMS, covers, demand_free, find_path
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
    walk,
)
from dmlc.loops.phases import Phase
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive
from dmlc.loops.tiling import count_points, list_names, measure_shared
from dmlc.matrices import Instruction, find_instruction
from dmlc.source import InternalError

ITEMS = "item"
"""Axis of the work items that share a product."""
PAD = 4
"""Elements of padding of the outputs' rows in shared memory, if a script gives none."""


@primitive(Argument.WORD, Argument.NUMBER, Argument.NUMBER, Argument.NUMBER, optional=1)
def tensorize(on: On, instruction: str, rows: int, columns: int, pad: int = PAD) -> Nest:
    """Computes the products of a tile by a matrix instruction. Each subgroup has `rows` times
    `columns` accumulator matrices. The loop is the one over the rows of the tile, the loop inside
    it is over the columns, and the reduction inside that has a tile of points as its innermost
    loop. Accumulators are stored to shared memory in strips, in which each subgroup has one matrix,
    and derived values read them there; rows of a strip are padded by `pad` elements, 4 by default.
    Both factors are FLOAT16 as loaded, and must be staged afterwards. Changes the order of sums,
    and their rounding, which is the device's.

    `for i in row: for j in column: s = sum(k: a[i, k] * b[k, j]); g(s) -> s[..] += a[..] @
    b[..]`, and then `for strip: t = s[strip]; for i in strip_row: for j in strip_column: g(t[i,
    j])`
    """
    nest, loop = on.nest, on.loop
    row = find_row(on.limits, instruction)
    reduce, inner = _find_reduction(nest, loop)
    column = loop.body[0]
    if not isinstance(column, Loop):
        raise ScheduleError("the rows of a tile have one loop over its columns")
    _check_factors(nest, reduce, row, (loop.dim, column.dim))
    *outer, points = inner
    shape, after = row.shape, column.body[1:]
    sides = count_points(loop.dim), count_points(column.dim)
    demand(rows > 0 and columns > 0, "a subgroup has one matrix of sums at least")
    items = sides[0] // (rows * shape.m) * (sides[1] // (columns * shape.n)) * row.subgroup
    demand(items <= MOST_ITEMS, "a group has so many work items at most")
    demand_free(nest, ITEMS)
    (accumulator,) = nest.phases[reduce.phase].accumulators
    name = accumulator.name.partition("#")[0]
    strips = sides[0] // rows, sides[1] // columns
    buffer = Buffer(
        f"{name}#sums", accumulator.dtype, strips[0] * (strips[1] + pad), column.dim,
        f"{name}_tile", linear=True, shared=True,
    )  # fmt: skip
    held = measure_shared((*nest.buffers, buffer))
    demand(held <= on.limits.shared_bytes, "tiles take more memory than a group has")
    body: Node = Point(reduce.phase)
    for dim in (points.dim, column.dim, loop.dim):
        body = Loop(dim, Kind.LOOP, 1, (body,), dim.name)
    body = Multiply(reduce.phase, (body,), row, (rows, columns))
    for around in reversed(outer):
        body = dataclasses.replace(around, body=(body,))
    product = dataclasses.replace(reduce, body=(body,), serial=False, ends=False)
    walked = [Dim(f"strip_{side.name}", size, within=side.dim.within)
              for side, size in zip((loop, column), strips, strict=True)]  # fmt: skip
    taken = {*list_names(nest), *(f"{side.name}_strip" for side in (loop, column))}
    demand(not taken & {dim.name for dim in walked}, "there are strips")
    places = dict(zip(walked, (strips[1] + pad, 1), strict=True))
    derived: tuple[Node, ...] = after
    for dim in reversed(walked):
        derived = (Loop(dim, Kind.LOOP, 1, derived, dim.name),)
    into = Into(buffer, walked[1], tile=tuple(places.items()))
    derived = (Reduce(reduce.phase, (), into=into), *derived)
    for side, size, count in ((column, strips[1], columns), (loop, strips[0], rows)):
        whole = side.dim.within
        if whole is None:
            raise InternalError("the side of a product is no tile")
        derived = (Loop(whole, Kind.LOOP, size, derived, f"{side.name}_strip", extent=count),)
    stages = {stage for stage, _ in accumulator.stages}
    stages.update(map(accumulator.slot_name, range(len(accumulator.slots))))
    plain = after[0].body if isinstance(after[0], Numbers) else after
    for number in {n.phase for node in plain for n in walk((node,)) if isinstance(n, Point)}:
        phase, dims = nest.phases[number], nest.dims[number]
        nest = nest.with_phase(number, *_read_sums(phase, dims, stages, buffer.name, places))
    (group,) = nest.body
    if not isinstance(group, Loop):
        raise InternalError("a product has work groups")
    return dataclasses.replace(
        nest,
        body=(dataclasses.replace(group, body=(product, *derived)),),
        lanes=((ITEMS, items),),
        buffers=(*nest.buffers, buffer),
    )


def find_row(limits: Limits, name: str) -> Instruction:
    """Instruction of that name. Raises an error if the target does not have it."""
    row = find_instruction(name)
    demand(limits.instruction is not None, f"target '{limits.target}' is not asked for any")
    demand(limits.instruction == row, f"target '{limits.target}' is asked for another one")
    return row


def _find_reduction(nest: Nest, loop: Loop) -> tuple[Reduce, list[Loop]]:
    """Reduction of a tiled product, and the loops over its points, outermost first."""
    match nest.body:
        case (Loop(kind=Kind.GROUP, body=(only,)),) if only is loop and not nest.lanes:
            pass
        case _:
            raise ScheduleError("the tile is all that a work group has")
    tiles = [loop, *(n for n in loop.body if isinstance(n, Loop))]
    whole = all(n.dim.within is not None and n.step == 1 and n.kind is Kind.LOOP for n in tiles)
    demand(whole and len(loop.body) == 1 and len(tiles) == 2, "rows and columns are tiles, by ones")
    match tiles[1].body:
        case (
            Reduce(array=False, resumes=False, ends=True, into=None, tile=None) as reduce,
            *after,
        ) if after:
            pass
        case _:
            raise ScheduleError("there is no loop of a reduction and what derives from it")
    match after:
        case [Numbers(body=body)]:
            after = [*body]
        case _:
            pass
    plain = all(isinstance(n, Point) and not n.into and not n.name for n in after)
    demand(plain, "what derives from the sums is stored point by point")
    nodes, loops = reduce.body, list[Loop]()
    while len(nodes) == 1 and isinstance(nodes[0], Loop):
        loops.append(nodes[0])
        nodes = nodes[0].body
    fits = all(n.kind is Kind.LOOP and not n.interleaved for n in loops)
    fits = fits and nodes == (Point(reduce.phase),) and len(loops) > 1
    fits = fits and sum(n.dim is loops[-1].dim for n in loops) == 1
    fits = fits and loops[-1].dim.within is not None and loops[-1].step == 1
    demand(fits, "its innermost loop walks a whole tile of points, in a loop over these")
    return reduce, loops


def _check_factors(nest: Nest, reduce: Reduce, row: Instruction, sides: Sequence[Dim]) -> None:
    """Refuses reductions other than sums of products of loaded values, one of which varies with the
    tile's rows, and the other with its columns."""
    phase, shape = nest.phases[reduce.phase], row.shape
    elements = phase.elements
    plain = len(elements.reductions) == 1 and not elements.results
    demand(plain and elements.reductions[0].combiner == "sum", "only sums are tensorized")
    (reduction,) = elements.reductions
    is_product = len(reduction.values) == 2
    demand(is_product and reduction.dtype is shape.sum.compute, f"sums are of {shape.sum.name}")
    for number in reduction.values:
        value = elements.values[number]
        is_read = isinstance(value, Read | Gather) and value.view.dtype is shape.factors
        demand(is_read, f"the factors are {shape.factors.name} as they lie in memory")
    of_sides = [[phase.find_moving(axis) for axis, dim in enumerate(nest.dims[reduce.phase])
                 if covers(side.whole, dim)] for side in sides]  # fmt: skip
    moved = [[any(moving[n] for moving in of_side) for of_side in of_sides]
             for n in reduction.values]  # fmt: skip
    apart = moved in ([[True, False], [False, True]], [[False, True], [True, False]])
    demand(apart, "one factor is of the rows of the tile, and the other of its columns")


def _read_sums(
    phase: Phase,
    dims: tuple[Dim, ...],
    stages: Collection[str],
    name: str,
    places: Mapping[Dim, int],
) -> tuple[Phase, tuple[Dim, ...]]:
    """Phase that reads a reduction's results from shared memory, and the dimensions of its axes:
    those of the tile come last."""
    elements, count = phase.elements, len(dims)
    new = [dim for dim in places if dim not in dims]
    dims = (*dims, *new)
    steps = tuple(places.get(dim, 0) for dim in dims)
    elements = elements.extend(map(count_points, new), range(count, len(dims)))
    values = tuple(
        dataclasses.replace(v, view=dataclasses.replace(v.view, tensor=name, strides=steps))
        if isinstance(v, Read) and v.view.local and v.view.tensor in stages
        else v
        for v in elements.values
    )
    elements = dataclasses.replace(elements, values=values)
    return dataclasses.replace(phase, elements=elements), dims


def check_products(nest: Nest) -> None:
    """Refuses a nest in which the structure of a matrix product was changed."""
    wrong = find_wrong(nest)
    demand(not wrong, wrong)


def find_wrong(nest: Nest) -> str:
    """Violation of the structure of a nest's matrix products; empty if there is none."""
    nodes = list(walk(nest.body))
    products = [n for n in nodes if isinstance(n, Multiply)]
    sums = [n for n in nodes if isinstance(n, Reduce) and n.into is not None and n.into.tile]
    if len(products) != len(sums) or len(products) > 1:
        return "sums in a shared tile are not those of one product of matrices"
    return _find_wrong(nest, products[0], sums[0]) if products else ""


def _find_wrong(nest: Nest, node: Multiply, ends: Reduce) -> str:
    """The same for one product, whose accumulators `ends` stores."""
    loops = [n for n in walk(node.body) if isinstance(n, Loop)]
    plain = all(n.kind is Kind.LOOP and n.step == 1 and not n.extent for n in loops)
    tiles = [n.dim for n in loops if n.dim.within is not None]
    points = [n for n in walk(node.body) if not isinstance(n, Loop)]
    if not plain or len(tiles) != 3 or points != [Point(node.phase)]:
        return "what matrices multiply stays as it is"
    group, *around = find_path(nest.body, node)[:-1]
    match around:
        case [Reduce(phase=node.phase, ends=False, into=None, tile=None), *inner]:
            pass
        case _:
            return "the sums of matrices are begun by a reduction of a group"
    if not all(isinstance(n, Loop) and n.kind is Kind.LOOP for n in inner):
        return "all work items make a product together"
    row, each = node.instruction, node.each
    sides = [tile.size if isinstance(tile.size, int) else 0 for tile in tiles]
    parts = (max(each[0], 1) * row.shape.m, max(each[1], 1) * row.shape.n, row.shape.k)
    if any(not side or side % part for side, part in zip(sides, parts, strict=True)):
        return (f"the tile is no whole number of {parts[0]} by {parts[1]} outputs, and "
                f"{parts[2]} points")  # fmt: skip
    subgroups = sides[0] // parts[0] * (sides[1] // parts[1])
    if nest.lanes != ((ITEMS, subgroups * row.subgroup),):
        return "the work items of a group are not those of its subgroups"
    strips = find_path(nest.body, ends)[1:-1]
    wanted = [(tile.within, side // count, count)
              for tile, side, count in zip(tiles, sides, each, strict=False)]  # fmt: skip
    walked = [n for n in strips if isinstance(n, Loop) and n.kind is Kind.LOOP and not n.backwards]
    fits = ends.into is not None and ends.into.buffer.shared and ends.phase == node.phase
    fits = fits and [(n.dim, n.step, n.extent) for n in walked] == wanted and walked == strips
    own = [] if ends.into is None else [(dim.within, dim.size) for dim, _ in ends.into.tile]
    fits = fits and own == [(dim, step) for dim, step, _ in wanted] and isinstance(group, Loop)
    return "" if fits else "the sums of matrices end up in no strips of their tile"


def check_staged(nest: Nest, limits: Limits) -> None:
    """Refuses a matrix product whose factors are not staged, or whose instruction the target does
    not have."""
    for node in walk(nest.body):
        if isinstance(node, Multiply):
            find_row(limits, node.instruction.name)
            (reduction,) = nest.phases[node.phase].elements.reductions
            reads = [nest.phases[node.phase].elements.values[n] for n in reduction.values]
            staged = all(isinstance(v, Read) and v.view.local for v in reads)
            plain = staged and reduction.guard is None
            demand(plain, "the factors of matrices are staged, each in a tile")
            stages = [n for n in walk(nest.body) if isinstance(n, Stage)]
            demand(len(stages) == 1 and stages[0].body != (), "tiles are filled in one place")
