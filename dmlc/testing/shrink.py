"""Shrinks a failing case to the smallest one that still fails.

Every step simplifies the case in one way: one size smaller, an optional tensor removed, a lower
rank, packed, simpler attributes, simpler values. A step is kept if the operator still permits the
call and it still fails. The largest steps are tried first, until none succeeds, or the tries or the
time are used up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

import numpy as np

from dmlc.scalars import Array
from dmlc.testing.case import Call, Case, lay_out

_SHORT = 8
"""Length of an axis above which not every element is dropped alone."""
_WHOLE = 1e6
"""Magnitude above which numbers are not rounded."""
TRIES, SECONDS = 200, 30.0
"""Limits on the tries, in number and seconds."""

Fails: TypeAlias = Callable[[Case], bool]
_Sizes: TypeAlias = dict[str, tuple[int, ...]]


def shrink(case: Case, fails: Fails, tries: int = TRIES, seconds: float = SECONDS) -> Case:
    """Smallest case found on which `fails` is true, as it is on this one."""
    return _Shrinker(case, fails, tries, time.monotonic() + seconds).run()


class _Shrinker:
    """Smallest case so far, and the search state."""

    def __init__(self, case: Case, fails: Fails, tries: int, end: float) -> None:
        self.case = case
        self.fails = fails
        self.tries = tries
        self.end = end
        self.seen: set[bytes] = set()
        """Cases already tried."""

    def run(self) -> Case:
        steps = (
            _shrink_sizes, _drop_optional, _drop_axes, _pack_strides, _simplify_attributes,
        )  # fmt: skip
        improved = True
        while improved and self.is_open():
            improved = False
            for step in steps:
                while self.try_some(step):
                    improved = True
            improved = self.simplify_values() or improved
        return self.case

    def is_open(self) -> bool:
        return self.tries > 0 and time.monotonic() < self.end

    def try_some(self, step: Callable[[Case], Iterator[Case | None]]) -> bool:
        """Takes the first case of one step that still fails."""
        for candidate in step(self.case):
            if not self.is_open():
                return False
            if candidate is not None and self.try_one(candidate):
                return True
        return False

    def try_one(self, candidate: Case) -> bool:
        """Takes a case if it still fails."""
        text = str(candidate.call)
        data = b"".join(np.ascontiguousarray(a).tobytes() for a in candidate.inputs.values())
        looks = hashlib.sha256(text.encode() + data).digest()
        if looks in self.seen:
            return False
        self.seen.add(looks)
        self.tries -= 1
        if not self.fails(candidate):
            return False
        self.case = candidate
        return True

    def simplify_values(self) -> bool:
        """Sets as many elements as possible to 0, or 1, or whole numbers: all of a tensor at once,
        then half of them, and so on down to one by one."""
        improved = False
        for name in self.case.inputs:
            for simplify in (np.zeros_like, np.ones_like, _round):
                values = np.asarray(self.case.inputs[name]).reshape(-1)
                simple = simplify(values)
                places = np.flatnonzero(_is_simpler(simple, values))
                span = len(places)
                while span > 0:
                    for start in range(0, len(places), span):
                        chosen = places[start : start + span]
                        improved = self.set_values(name, chosen, simple) or improved
                    span //= 2
        return improved

    def set_values(self, name: str, places: Array, simple: Array) -> bool:
        """Sets some elements to simpler values, if the case still fails."""
        array = self.case.inputs[name]
        changed = np.array(array).reshape(-1)
        if not self.is_open() or not np.any(_is_simpler(simple, changed)[places]):
            return False
        changed[places] = simple[places]
        made = lay_out(changed.reshape(array.shape), self.case.call.tensors[name])
        inputs = {**self.case.inputs, name: made}
        return self.try_one(dataclasses.replace(self.case, inputs=inputs))


# Calls -----------------------------------------------------------------------------------------


def _with(case: Case, call: Call | None, inputs: Mapping[str, Array]) -> Case | None:
    """Case with another call, and with arrays that fit it."""
    if call is None:
        return None
    given = {n: lay_out(inputs[n], d) for n, d in call.inputs.items()}
    return dataclasses.replace(case, call=call, inputs=given)


def _shrink_sizes(case: Case) -> Iterator[Case | None]:
    """Cases with smaller sizes: of all tensors at once, of one axis of all, of one tensor alone;
    last, 1 along an axis of all tensors, whose sizes may depend on each other."""
    sizes = case.call.sizes
    groups: dict[frozenset[tuple[str, int]], int] = {}
    for name, shape in sizes.items():
        for axis, size in enumerate(shape):
            if size < 2:
                continue
            alike = [(n, k) for n, s in sizes.items() for k, e in enumerate(s) if e == size]
            groups.setdefault(frozenset(alike), size)
            groups.setdefault(frozenset(p for p in alike if p[1] == axis), size)
            groups.setdefault(frozenset([(name, axis)]), size)
    # The largest sizes first, then the largest changes.
    for places, size in sorted(groups.items(), key=lambda g: (-g[1], -len(g[0]), sorted(g[0]))):
        for smaller in dict.fromkeys((1, size // 2, size - 1)):
            changed = {
                n: tuple(smaller if (n, k) in places else e for k, e in enumerate(s))
                for n, s in sizes.items()
            }
            call = case.call.resize(changed)
            starts = range(size) if smaller == size - 1 and size <= _SHORT else (0, size - smaller)
            for at in starts if call is not None else ():
                yield _with(case, call, _select_elements(case, call, at))
    for axis in range(max(map(len, sizes.values()), default=0)):
        single = {n: tuple(min(e, 1) if k == axis else e for k, e in enumerate(s))
                  for n, s in sizes.items()}  # fmt: skip
        call = case.call.resize(single) if single != sizes else None
        if call is not None:
            yield _with(case, call, _select_elements(case, call, 0))


def _select_elements(case: Case, call: Call | None, at: int) -> dict[str, Array]:
    """Elements that a smaller call takes along each axis, starting at `at` and wrapping around."""
    if call is None:
        return {}
    found: dict[str, Array] = {}
    for name, desc in call.inputs.items():
        array = case.inputs[name]
        for axis, size in enumerate(cast("tuple[int, ...]", desc.sizes)):
            chosen = np.sort((np.arange(size) + at) % max(array.shape[axis], 1))
            array = array.take(chosen, axis) if size < array.shape[axis] else array
        found[name] = array
    return found


def _drop_optional(case: Case) -> Iterator[Case | None]:
    """Cases without one of the optional tensors, or the last of an array of them."""
    rows = {t.name: t for t in case.call.operator.definition.newest.tensors}
    for name in reversed(list(case.call.tensors)):
        row = rows[name.partition("[")[0]]
        if not row.optional and not row.array:
            continue
        kept = {n: s for n, s in case.call.sizes.items() if n != name}
        yield _with(case, case.call.resize(kept), case.inputs)


def _drop_axes(case: Case) -> Iterator[Case | None]:
    """Cases without an axis along which every tensor of the highest rank has one element."""
    sizes = case.call.sizes
    rank = max(map(len, sizes.values()), default=0)
    for axis in range(rank if rank > 1 else 0):
        if any(len(s) == rank and s[axis] != 1 for s in sizes.values()):
            continue
        lower = {n: s[:axis] + s[axis + 1 :] if len(s) == rank else s for n, s in sizes.items()}
        arrays = {n: a.reshape(lower[n]) if n in lower else a for n, a in case.inputs.items()}
        for attributes in _lower_attributes(case, rank, axis):
            yield _with(case, case.call.resize(lower, attributes, dropped=axis), arrays)


def _lower_attributes(case: Case, rank: int, axis: int) -> Iterator[dict[str, object]]:
    """Attributes unchanged, and with shorter lists where they have an entry per axis."""
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
        yield _with(case, case.call.resize(case.call.sizes, strides=False), case.inputs)


# Attributes ------------------------------------------------------------------------------------


def _simplify_attributes(case: Case) -> Iterator[Case | None]:
    """Cases with one attribute at its default, or closer to 0 or 1."""
    given = case.call.attributes
    rows = {a.name: a for a in case.call.operator.definition.attributes}
    for name, value in given.items():
        others = {n: v for n, v in given.items() if n != name}
        choices = [{**given, name: simpler} for simpler in _simpler(value)]
        if rows[name].default is not None:
            choices.insert(0, others)
        for attributes in choices:
            yield _with(case, case.call.resize(case.call.sizes, attributes), case.inputs)


def _simpler(value: object) -> Iterator[object]:
    """Simpler values: for numbers 0, then 1, then a whole number."""
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


def _round(values: Array) -> Array:
    """Nearest whole numbers, for types with fractions and values that are not too large."""
    if values.dtype.kind in "biu":
        return values
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        return np.where(np.abs(wide) < _WHOLE, np.round(wide), wide).astype(values.dtype)


def _is_simpler(simple: Array, values: Array) -> Array:
    """Whether each element is simpler than another: 0 is the simplest, then 1, then whole
    numbers."""
    return _rank(simple) < _rank(values)


def _rank(values: Array) -> Array:
    whole = _round(values) == values
    return np.select([values == 0, values == 1, whole], [0, 1, 2], 3)
