"""Loops whose tiles are read a step ahead: the elements of the next tiles come from memory, into
registers, while those of the present ones are used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, guard, index, multiply, operate, subtract_known
from dmlc.kernel.expand import list_steps, replace, start_at_zero
from dmlc.kernel.frame import Frame
from dmlc.kernel.rewrite import (
    NUMBER,
    define,
    drop_unused,
    find_body,
    find_defined,
    map_expressions,
    replace_body,
)
from dmlc.source import InternalError


def pipeline_loop(frame: Frame, loop: k.For) -> list[k.Statement]:
    """A loop of which each step fills tiles, between two barriers, and then uses them, as one that
    reads the next step's meanwhile. Those of the first step are read before it."""
    first, last = (n for n, s in enumerate(loop.body) if isinstance(s, k.Barrier))
    ahead, filled, used = loop.body[:first], loop.body[first + 1 : last], loop.body[last + 1 :]
    filled = tuple(start_at_zero(s) if isinstance(s, k.For) else s for s in filled)
    held = dict[object, str]()
    reads = [*ahead, *_split(frame, filled, held, (), (), puts=False)]
    puts = [*ahead, *_split(frame, filled, held, (), (), puts=True)]
    length, checks = subtract_known(loop.stop, loop.start), list[k.Expression]()
    following: k.Expression = add(loop.variable, index(loop.step))
    if length is not None:
        # The last step reads its own once more.
        most = add(loop.start, index((length - 1) // loop.step * loop.step))
        following = operate("min", following, most)
    else:
        checks.append(operate("lt", following, loop.stop))
    name = frame.let("following", following)
    more = [name, *_copy(frame, reads, {loop.variable.name: name.local})]
    begin = _copy(frame, reads, {loop.variable.name: loop.start})
    begin = guard([] if length else [operate("lt", loop.start, loop.stop)], drop_unused(begin))
    body = (
        k.Barrier(), *drop_unused(puts), k.Barrier(),
        *guard(checks, drop_unused(more)), *drop_unused([*ahead, *used]),
    )  # fmt: skip
    return [*begin, dataclasses.replace(loop, body=body)]


def _split(
    frame: Frame,
    statements: Sequence[k.Statement],
    held: dict[object, str],
    place: tuple[int, ...],
    loops: tuple[k.For, ...],
    *,
    puts: bool,
) -> list[k.Statement]:
    """What fills tiles, up to where it puts something there, which registers get; or what `puts`
    there what these have. Registers are `held` by the places of the statements."""
    made: list[k.Statement] = []
    for number, statement in enumerate(statements):
        here = (*place, number)
        match statement:
            case k.StoreLocal(array=array, index=at, value=value):
                whole, lane = value, 0
                if isinstance(value, k.Extract):
                    # The lanes of a vector lie apart in the tile, and side by side in registers.
                    whole, lane = value.operand, value.lanes[0]
                own, size = index(0), whole.type.lanes
                for loop in reversed(loops):
                    own = add(multiply(loop.variable, size), own)
                    size *= len(list_steps(loop))
                key = whole if isinstance(whole, k.Local) else here
                if puts:
                    read = k.LoadLocal(held[key], add(own, index(lane)), value.type)
                    made.append(k.StoreLocal(array, at, read))
                elif key not in held:
                    name = f"next_{array.partition('_tile')[0]}"
                    held[key] = frame.array(name, whole.type.dtype, size, registers=True)
                    made.append(k.StoreLocal(held[key], own, whole))
            case k.For() | k.If():
                within = (*loops, statement) if isinstance(statement, k.For) else loops
                if within is not loops and not list_steps(within[-1]):
                    raise InternalError("what fills a tile that is read ahead is written out")
                body = _split(frame, find_body(statement), held, here, within, puts=puts)
                made.append(replace_body(statement, body))
            case _:
                made.append(statement)
    return made


def _copy(
    frame: Frame, statements: Sequence[k.Statement], known: Mapping[str, k.Expression]
) -> list[k.Statement]:
    """The statements with others for some locals, and with names of their own."""
    names, made = dict(known), list[k.Statement]()
    for statement in statements:
        changed = map_expressions(statement, lambda e: replace(e, names))
        local = find_defined(changed)
        if local is not None:
            name = frame.names.take(local.name.partition(NUMBER)[0])
            names[local.name] = own = dataclasses.replace(local, name=name)
            changed = define(changed, own)
        made.append(replace_body(changed, _copy(frame, find_body(changed), names)))
    return made
