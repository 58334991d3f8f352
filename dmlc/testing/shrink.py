"""Shrinks a case that fails to the smallest one that still does.

Every step makes the case simpler in one way: smaller along one size, without an optional tensor,
of a lower rank, packed, with simpler attributes, with simpler values. A step is kept where the
operator still permits the call and it still fails. Steps are tried, the boldest first, until none
is kept, or the tries or the time are used up.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

import numpy as np

from dmlc.binding import TensorDesc
from dmlc.scalars import Array
from dmlc.source import DmlcError
from dmlc.testing.case import Call, Case, lay_out

TRIES, SECONDS = 200, 30.0
"""How many steps are tried, and for how long."""

Fails: TypeAlias = Callable[[Case], bool]
_Sizes: TypeAlias = dict[str, tuple[int, ...]]


def shrink(case: Case, fails: Fails, tries: int = TRIES, seconds: float = SECONDS) -> Case:
    """The smallest case found for which `fails` is true, as it is for this one."""
    return _Shrinker(case, fails, tries, time.monotonic() + seconds).run()


class _Shrinker:
    """The smallest case so far, and what may still be tried."""

    def __init__(self, case: Case, fails: Fails, tries: int, end: float) -> None:
        self.case = case
        self.fails = fails
        self.tries = tries
        self.end = end

    def run(self) -> Case:
        steps = (
            _shrink_sizes, _drop_optional, _drop_axes, _pack_strides, _simplify_attributes,
            _simplify_values,
        )  # fmt: skip
        improved = True
        while improved and self.is_open():
            improved = False
            for step in steps:
                while self.try_some(step):
                    improved = True
        return self.case

    def is_open(self) -> bool:
        return self.tries > 0 and time.monotonic() < self.end

    def try_some(self, step: Callable[[Case], Iterator[Case | None]]) -> bool:
        """Takes the first of the cases that one step makes of this one and that fails too."""
        for candidate in step(self.case):
            if not self.is_open():
                return False
            if candidate is None:
                continue
            self.tries -= 1
            if self.fails(candidate):
                self.case = candidate
                return True
        return False


# Calls -----------------------------------------------------------------------------------------


def _call(
    case: Case,
    sizes: Mapping[str, tuple[int, ...]],
    attributes: Mapping[str, object] | None = None,
    strides: bool = True,
) -> Call | None:
    """The call with other sizes, of outputs too where they do not follow; those that are not named
    are left out. None where the operator does not permit it."""
    call = case.call
    given = call.attributes if attributes is None else attributes
    kept: dict[str, TensorDesc] = {}
    for name, desc in call.tensors.items():
        if name in sizes:
            kept[name] = _resize(desc, sizes[name], strides)
    outputs = call.outputs
    changed = {n for n in outputs if n in kept and kept[n].sizes != outputs[n].sizes}
    # What follows from the inputs is what it is; the rest is shrunk beside them.
    inferred = {n: TensorDesc(d.data_type) if n in outputs else d for n, d in kept.items()}
    for tensors in ([inferred] if changed else []) + [kept]:
        try:
            binding = call.operator.resolve(tensors, given)
        except DmlcError:
            continue
        found: dict[str, TensorDesc] = {}
        for name, desc in kept.items():
            bound = binding.tensors.get(name)
            if bound is None or bound.sizes is None:
                break
            at = tuple(size for size in bound.sizes if isinstance(size, int))
            found[name] = _resize(desc, at, strides)
        else:
            return Call(call.operator, found, given)
    return None


def _resize(desc: TensorDesc, sizes: tuple[int, ...], strides: bool) -> TensorDesc:
    """A description with other sizes, and the strides it has where they still serve."""
    kept = desc.strides if strides and len(sizes) == len(desc.sizes or ()) else None
    return TensorDesc(desc.data_type, sizes, kept)


def _sizes(case: Case) -> _Sizes:
    return {
        name: tuple(size for size in desc.sizes or () if isinstance(size, int))
        for name, desc in case.call.tensors.items()
    }


def _with(case: Case, call: Call | None, inputs: Mapping[str, Array]) -> Case | None:
    """The case with another call, and with arrays that fit it."""
    if call is None:
        return None
    given = {n: lay_out(inputs[n], d) for n, d in call.inputs.items()}
    return dataclasses.replace(case, call=call, inputs=given)


def _shrink_sizes(case: Case) -> Iterator[Case | None]:
    """Smaller along every axis that has a size: of all tensors at once, at one axis of all, of one
    tensor alone."""
    sizes = _sizes(case)
    groups: dict[frozenset[tuple[str, int]], int] = {}
    for name, shape in sizes.items():
        for axis, size in enumerate(shape):
            if size < 2:
                continue
            alike = [(n, k) for n, s in sizes.items() for k, e in enumerate(s) if e == size]
            groups.setdefault(frozenset(alike), size)
            groups.setdefault(frozenset(p for p in alike if p[1] == axis), size)
            groups.setdefault(frozenset([(name, axis)]), size)
    # The largest sizes first, then what changes most at once.
    for places, size in sorted(groups.items(), key=lambda g: (-g[1], -len(g[0]), sorted(g[0]))):
        for smaller in dict.fromkeys((1, size // 2, size - 1)):
            changed = {
                n: tuple(smaller if (n, k) in places else e for k, e in enumerate(s))
                for n, s in sizes.items()
            }
            call = _call(case, changed)
            for last in (False, True):
                yield _with(case, call, _cut(case, call, last))


def _cut(case: Case, call: Call | None, last: bool) -> dict[str, Array]:
    """The first elements along each axis, or the last, as many as a call takes."""
    if call is None:
        return {}
    found: dict[str, Array] = {}
    for name, desc in call.inputs.items():
        array = case.inputs[name]
        fits = zip(array.shape, cast("tuple[int, ...]", desc.sizes), strict=True)
        found[name] = array[tuple(slice(n - m, n) if last else slice(m) for n, m in fits)]
    return found


def _drop_optional(case: Case) -> Iterator[Case | None]:
    """Without one of the optional tensors, or the last of an array of them."""
    rows = {t.name: t for t in case.call.operator.definition.newest.tensors}
    for name in reversed(list(case.call.tensors)):
        row = rows[name.partition("[")[0]]
        if not row.optional and not row.array:
            continue
        kept = {n: s for n, s in _sizes(case).items() if n != name}
        yield _with(case, _call(case, kept), case.inputs)


def _drop_axes(case: Case) -> Iterator[Case | None]:
    """Without an axis along which every tensor of the highest rank has one element."""
    sizes = _sizes(case)
    rank = max(map(len, sizes.values()), default=0)
    for axis in range(rank if rank > 1 else 0):
        if any(len(s) == rank and s[axis] != 1 for s in sizes.values()):
            continue
        lower = {n: s[:axis] + s[axis + 1 :] if len(s) == rank else s for n, s in sizes.items()}
        arrays = {n: a.reshape(lower[n]) if n in lower else a for n, a in case.inputs.items()}
        for attributes in _lower_attributes(case, rank, axis):
            yield _with(case, _call(case, lower, attributes), arrays)


def _lower_attributes(case: Case, rank: int, axis: int) -> Iterator[dict[str, object]]:
    """The attributes as they are, and with the lists that have an entry for each axis shorter."""
    given = dict(case.call.attributes)
    yield given
    shorter = dict(given)
    for name, value in given.items():
        if isinstance(value, list | tuple):
            items = list(cast("list[object]", value))
            if len(items) == rank:
                shorter[name] = items[:axis] + items[axis + 1 :]
        elif value == rank and not isinstance(value, bool):
            shorter[name] = rank - 1
    if shorter != given:
        yield shorter


def _pack_strides(case: Case) -> Iterator[Case | None]:
    if any(desc.strides is not None for desc in case.call.tensors.values()):
        yield _with(case, _call(case, _sizes(case), strides=False), case.inputs)


# Attributes ------------------------------------------------------------------------------------


def _simplify_attributes(case: Case) -> Iterator[Case | None]:
    """Each attribute left to its default, or nearer to 0 or 1."""
    given = case.call.attributes
    rows = {a.name: a for a in case.call.operator.definition.attributes}
    for name, value in given.items():
        others = {n: v for n, v in given.items() if n != name}
        choices = [{**given, name: simpler} for simpler in _simpler(value)]
        if rows[name].default is not None:
            choices.insert(0, others)
        for attributes in choices:
            yield _with(case, _call(case, _sizes(case), attributes), case.inputs)


def _simpler(value: object) -> Iterator[object]:
    """Values that are simpler than one: of numbers 0, then 1, then a whole one."""
    if isinstance(value, list | tuple):
        items = list(cast("list[object]", value))
        yield from ([*items[:at], *items[at + 1 :]] for at in range(len(items)))
        for at, item in enumerate(items):
            yield from ([*items[:at], other, *items[at + 1 :]] for other in _simpler(item))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        kind = type(value)
        rounded = [kind(round(value))] if abs(value) < 1e6 else []
        for other in (kind(0), kind(1), *rounded):
            if other == value:
                return
            yield other


# Values ----------------------------------------------------------------------------------------


def _simplify_values(case: Case) -> Iterator[Case | None]:
    """Fewer elements that are neither 0 nor 1: all of a tensor, half of it, one by one."""
    for name, array in case.inputs.items():
        values = np.asarray(array).reshape(-1)
        for simple in _simple_values(values):
            places = np.flatnonzero(~_same(values, simple) & ~_is_simpler(values, simple))
            span = len(places)
            while span > 0:
                for start in range(0, len(places), span):
                    changed = values.copy()
                    chosen = places[start : start + span]
                    changed[chosen] = simple[chosen]
                    made = lay_out(changed.reshape(array.shape), case.call.inputs[name])
                    yield dataclasses.replace(case, inputs={**case.inputs, name: made})
                span //= 2


def _simple_values(values: Array) -> Iterator[Array]:
    """What elements may become: 0, then 1, then whole numbers."""
    yield np.zeros_like(values)
    if values.dtype.kind == "b":
        return
    yield np.ones_like(values)
    if values.dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            yield np.round(values.astype(np.float64)).astype(values.dtype)


def _same(a: Array, b: Array) -> Array:
    return (a == b) | ((a != a) & (b != b))


def _is_simpler(values: Array, simple: Array) -> Array:
    """Where a value is simpler already than what it might become."""
    return (values == 0) & (simple != 0) | (values == 1) & (simple != 1) & (simple != 0)
