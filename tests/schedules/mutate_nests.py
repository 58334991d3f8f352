"""Mutations of a nest, each at one place, as errors in a rule, a primitive or a script cause them.
A check that a mutant passes is too weak."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Fill,
    Into,
    Kind,
    Loop,
    Multiply,
    Nest,
    Numbers,
    Once,
    Pack,
    Permute,
    Point,
    Reduce,
    Rescale,
    Stage,
    Tile,
    Turns,
    Where,
    list_buffers,
    list_dims,
    walk,
)
from dmlc.loops.permute import Patterns
from dmlc.loops.phases import Phase
from dmlc.loops.vectorize import Joint, Vectorization
from dmlc.matrices import INSTRUCTIONS

Change: TypeAlias = Callable[[Any], Iterator[Any]]
"""Replacements of a value; for a node, possibly several nodes."""
Mutation: TypeAlias = Callable[[Nest], Iterator[Nest]]


def list_mutants(nest: Nest, kind: str) -> Iterator[Nest]:
    """Mutants of a nest by one kind of mutation, one for each place where it applies."""
    return KINDS[kind](nest)


# Nests, of which one value is changed -----------------------------------------------------------


def _vary(value: Any, kind: type, change: Change) -> Iterator[Any]:
    """Copies of a value with one instance of a class changed, for each instance in it."""
    if isinstance(value, kind):
        yield from change(value)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        for at, item in enumerate(items):
            for made in _vary(item, kind, change):
                several = isinstance(made, tuple) and not isinstance(item, tuple)
                yield (*items[:at], *(made if several else (made,)), *items[at + 1 :])
    elif dataclasses.is_dataclass(value) and not isinstance(value, Phase | Dim | Buffer | type):
        for field in dataclasses.fields(value):
            for made in _vary(getattr(value, field.name), kind, change):
                yield dataclasses.replace(value, **{field.name: made})


def _nodes(kind: type, change: Callable[[Any], Any]) -> Mutation:
    """Changes each value of a class for which `change` gives a replacement, or a list of them."""

    def each(value: Any) -> Iterator[Any]:
        made = change(value)
        given = cast("list[Any]", made) if isinstance(made, list) else [made]
        yield from (new for new in given if new is not None and new != value)

    return lambda nest: (
        dataclasses.replace(nest, body=body) for body in _vary(nest.body, kind, each)
    )


def _field(kind: type, name: str, change: Callable[[Any], Any]) -> Mutation:
    """Changes a field of each value of a class, unless `change` gives None."""

    def each(value: Any) -> Any:
        new = change(getattr(value, name))
        return None if new is None else dataclasses.replace(value, **{name: new})

    return _nodes(kind, each)


def _loops(of: Kind, **changes: Any) -> Mutation:
    """Changes fields of each loop of a kind."""
    return _nodes(Loop, lambda n: dataclasses.replace(n, **changes) if n.kind is of else None)


def _lose(kind: type, name: str) -> Mutation:
    """Inverts a flag, or empties a field."""
    return _field(kind, name, lambda v: not v if isinstance(v, bool) else type(v)() if v else None)


def _substitute(value: Any, old: Any, new: Any) -> Any:
    """Value with one object replaced by another; unchanged parts stay the same objects."""
    if isinstance(value, type(old)) and value == old:
        return new
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        made = tuple(_substitute(item, old, new) for item in items)
        return made if any(a is not b for a, b in zip(made, items, strict=True)) else items
    if not dataclasses.is_dataclass(value) or isinstance(value, Phase | type):
        return value
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    changed = {name: _substitute(own, old, new) for name, own in fields.items()}
    changed = {name: own for name, own in changed.items() if own is not fields[name]}
    return dataclasses.replace(value, **changed) if changed else value


def _everywhere(
    listing: Callable[[Nest], Any], name: str, change: Callable[[Any], Any]
) -> Mutation:
    """Changes a field of a dimension or of a buffer, wherever it is referenced."""

    def mutate(nest: Nest) -> Iterator[Nest]:
        for old in listing(nest):
            new = change(getattr(old, name))
            if new is not None and new != getattr(old, name):
                yield _substitute(nest, old, dataclasses.replace(old, **{name: new}))

    return mutate


def _clear(listing: Callable[[Nest], Any], name: str) -> Mutation:
    """Sets such a field to None where it may be."""

    def mutate(nest: Nest) -> Iterator[Nest]:
        for old in listing(nest):
            if getattr(old, name) is not None:
                yield _substitute(nest, old, dataclasses.replace(old, **{name: None}))

    return mutate


def _nest(name: str, change: Callable[[Any], Any]) -> Mutation:
    """Changes a field of the nest itself."""

    def mutate(nest: Nest) -> Iterator[Nest]:
        new = change(getattr(nest, name))
        if new is not None and new != getattr(nest, name):
            yield dataclasses.replace(nest, **{name: new})

    return mutate


def _swap_siblings(nest: Nest) -> Iterator[Nest]:
    def swap(nodes: tuple[Any, ...]) -> Iterator[Any]:
        for at in range(len(nodes) - 1):
            if isinstance(nodes[at], Loop | Reduce | Point | Stage):
                yield (*nodes[:at], nodes[at + 1], nodes[at], *nodes[at + 2 :])

    for body in swap(nest.body):
        yield dataclasses.replace(nest, body=body)

    def inside(node: Loop | Reduce) -> list[Loop | Reduce]:
        return [dataclasses.replace(node, body=body) for body in swap(node.body)]

    for kind in (Loop, Reduce):
        yield from _nodes(kind, inside)(nest)


def _other_dims(nest: Nest) -> Iterator[Nest]:
    dims = list(dict.fromkeys(n.dim for n in walk(nest.body) if isinstance(n, Loop)))
    for dim in dims:
        yield from _nodes(
            Loop, lambda n, dim=dim: dataclasses.replace(n, dim=dim) if n.dim is not dim else None
        )(nest)


def _other_axes(nest: Nest) -> Iterator[Nest]:
    for name, _ in nest.lanes:
        yield from _nodes(
            Loop,
            lambda n, name=name: dataclasses.replace(n, name=name)
            if n.kind is Kind.LANE and n.wanted != name else None,
        )(nest)  # fmt: skip


def _turn_pattern(value: Mapping[Any, Any]) -> Any:
    for key, pattern in value.items():
        if len(set(pattern)) > 1:
            return {**value, key: (*pattern[1:], pattern[0])}
    return None


def _one_on(value: int) -> int:
    return value + 1


def _one_back(value: int) -> int | None:
    return value - 1 if value > 1 else None


def _half(value: int) -> int | None:
    return value // 2 if value > 1 else None


def _twice(value: int) -> int | None:
    return 2 * value or None


def _drop(value: Any) -> Any:
    return value.body or None


KINDS: Mapping[str, Mutation] = {
    # Loops
    "a step is one longer": _field(Loop, "step", _one_on),
    "a step is doubled": _field(Loop, "step", _twice),
    "a step is halved": _field(Loop, "step", _half),
    "an extent is one more": _field(Loop, "extent", lambda n: n + 1 if n else None),
    "an extent is one less": _field(Loop, "extent", _one_back),
    "an extent is halved": _field(Loop, "extent", _half),
    "a loop is missing": _nodes(Loop, _drop),
    "a loop stands twice": _nodes(Loop, lambda n: dataclasses.replace(n, body=(n,))),
    "a loop walks another dimension": _other_dims,
    "a sum is taken backwards": _nodes(
        Reduce, lambda n: next((dataclasses.replace(n, body=body) for body in _vary(
            n.body, Loop, lambda loop: iter([dataclasses.replace(loop, backwards=True)])
        )), None) if n.serial else None,
    ),
    "work items go one after the other": _loops(Kind.LANE, kind=Kind.LOOP),
    "work items take a serial loop": _loops(Kind.LOOP, kind=Kind.LANE, extent=2),
    "work groups take a loop inside": _loops(Kind.LOOP, kind=Kind.GROUP),
    "vectors go point by point": _loops(Kind.VECTOR, kind=Kind.LOOP),
    "points go in vectors": _nodes(Loop, lambda n: dataclasses.replace(
        n, kind=Kind.VECTOR, step=4) if n.kind is Kind.LOOP and n.step == 1 else None),
    "a loop is written out once": _loops(Kind.LOOP, kind=Kind.UNROLL, extent=1),
    "a part starts one late": _field(Loop, "part", lambda p: (p[0] + 1, p[1]) if p else None),
    "a part ends one early": _field(Loop, "part", lambda p: (p[0], p[1] - 1) if p else None),
    "a part is forgotten": _nodes(
        Loop, lambda n: dataclasses.replace(n, part=None) if n.part else None),
    "points beyond the end count": _lose(Loop, "clamps"),
    "an output stands still": _field(Loop, "output", lambda n: 0 if n else None),
    "outputs lie twice as far apart": _field(Loop, "output", _twice),
    "a rest is no part of a step": _field(Loop, "rest", lambda r: (3,) if r else None),
    "a stretch of vectors ends one late": _field(Vectorization, "last", _one_on),
    "a read takes other lanes": _field(Joint, "patterns", _turn_pattern),
    "a position takes other lanes": _field(Joint, "slants", _turn_pattern),
    "a condition of some lanes is forgotten": _field(
        Joint, "masks", lambda m: frozenset[int]() if m else None),
    "work items stand along another axis": _other_axes,
    # The nest
    "work items are halved": _nest(
        "lanes", lambda axes: tuple((name, _half(n) or 1) for name, n in axes)),
    "an axis of work items is missing": _nest("lanes", lambda axes: axes[1:] if axes else None),
    "a phase has the dimensions of another": _nest("dims", lambda dims: (*dims[1:], dims[0])),
    "dimensions of a phase change places": _nest(
        "dims", lambda dims: tuple(own[::-1] for own in dims)),
    "a buffer is not kept": _nest("buffers", lambda buffers: buffers[1:] if buffers else None),
    "a block of outputs is forgotten": lambda nest: iter(
        [dataclasses.replace(nest, block=None)] if nest.block else []),
    "neighbours change places": _swap_siblings,
    # Points
    "a point is missing": _nodes(Point, lambda _: ()),
    "a point is computed twice": _nodes(Point, lambda n: (n, n)),
    "a point is of another phase": _field(Point, "phase", lambda n: n - 1 if n else 1),
    "what a point makes is not kept": _lose(Point, "into"),
    "what a point makes has another name": _field(Point, "name", lambda n: n + "_" if n else None),
    # Reductions
    "a reduction is missing": _nodes(Reduce, _drop),
    "a reduction is of another phase": _field(Reduce, "phase", lambda n: n - 1 if n else 1),
    "a reduction resumes, or not, the other way": _lose(Reduce, "resumes"),
    "accumulators are in no array": _field(Reduce, "array", lambda v: False if v else None),
    "a reduction is begun and not ended": _field(Reduce, "ends", lambda v: False if v else None),
    "tiles are not joined": _lose(Reduce, "joins"),
    "a tile has a row less": _field(Tile, "rows", _one_back),
    "a tile has a column less": _field(Tile, "columns", _one_back),
    "rows of a tile overlap": _field(Tile, "pitch", _one_back),
    "a tile has other lanes": _field(Tile, "lanes", _twice),
    # Buffers
    "a footprint starts one on": _field(Into, "offset", _one_on),
    "a footprint is spread": _field(Into, "step", _one_on),
    "lanes of a footprint lie further apart": _field(Into, "lane", _one_on),
    "a tile is put down turned": _field(
        Into, "tile", lambda t: tuple((d, s) for (d, _), (_, s) in zip(t, t[::-1], strict=True))),
    "neighbours in a tile lie one further apart": _field(
        Into, "tile", lambda t: ((t[0][0], t[0][1] + 1), *t[1:]) if t else None),
    "a buffer is half as large": _everywhere(list_buffers, "size", _half),
    "rows of a buffer overlap": _everywhere(list_buffers, "pitch", _one_back),
    "a row starts one on": _everywhere(list_buffers, "front", lambda n: n + 1 if n else None),
    "a buffer is shared no more": _everywhere(
        list_buffers, "shared", lambda v: False if v else None),
    "a buffer has no rows": _clear(list_buffers, "rows"),
    "a buffer is filled from one on": _field(Fill, "first", _one_on),
    "a buffer is filled up to one less": _field(Fill, "last", _one_back),
    "a buffer is filled too far": _field(Fill, "last", _one_on),
    "a barrier is dropped": _field(Stage, "repeats", lambda v: False if v else None),
    "what is staged is not waited for": _nodes(Stage, _drop),
    "a staged point has no conditions": _lose(Stage, "conditions"),
    "what a tile leaves of its buffer stays": _field(
        Stage, "is_whole", lambda v: None if v else True),
    # Others
    "lanes of a pack are halved": _field(Pack, "lanes", _half),
    "lanes of a pack are doubled": _field(Pack, "lanes", _twice),
    "a pack is missing": _nodes(Pack, _drop),
    "a pack leaves out a buffer": _field(Pack, "buffers", lambda names: names[1:]),
    "outcomes are numbers where one is none": _nodes(
        Numbers, lambda n: dataclasses.replace(n, body=n.others, others=n.body)),
    "outcomes are not tested": _nodes(Numbers, _drop),
    "patterns go on by one more": _field(Patterns, "step", _one_on),
    "a vector is permuted otherwise": _field(Patterns, "named", _turn_pattern),
    "vectors are not permuted": _nodes(Permute, _drop),
    "turns start one late": _field(Turns, "first", _one_on),
    "turns end one late": _field(Turns, "last", _one_on),
    "cases change places": _field(Turns, "cases", lambda c: c[::-1]),
    "others have no case": _lose(Turns, "others"),
    "what is done once is done at each point": _nodes(Once, _drop),
    "sums are not rescaled": _nodes(Rescale, _drop),
    "a sum is not rescaled": _field(Rescale, "sums", lambda sums: sums[1:]),
    "another maximum rescales": _field(Rescale, "phase", lambda n: n - 1 if n else 1),
    "a maximum grows twice": _nodes(Rescale, lambda n: (*n.body, n)),
    "what has nothing to add is not left out": _nodes(Where, _drop),
    "another value says what is left out": _field(Where, "phase", lambda n: n - 1 if n else 1),
    # Matrices
    "a product is of another phase": _field(Multiply, "phase", lambda n: n - 1 if n else 1),
    "matrices do not multiply": _nodes(Multiply, _drop),
    "matrices are of another instruction": _field(
        Multiply, "instruction", lambda row: next(r for r in INSTRUCTIONS if r.shape != row.shape)),
    "a subgroup has a row of matrices more": _field(Multiply, "each", lambda n: (n[0] + 1, n[1])),
    "a subgroup has a matrix less in each row": _field(
        Multiply, "each", lambda n: (n[0], n[1] - 1)),
    # Dimensions
    "a dimension is one longer": _everywhere(
        list_dims, "size", lambda n: n + 1 if isinstance(n, int) else None),
    "a dimension is one shorter": _everywhere(
        list_dims, "size", lambda n: n - 1 if isinstance(n, int) and n > 1 else None),
    "steps of a part are doubled": _everywhere(
        list_dims, "parts", lambda p: tuple((d, 2 * s) for d, s in p)),
    "a tile is no part of a dimension": _clear(list_dims, "within"),
    "a piece is of a longer dimension": _everywhere(
        list_dims, "piece", lambda p: (p[0], p[1] + 1) if p and isinstance(p[1], int) else None),
}  # fmt: skip
"""Mutations by the name of the error they make."""
