"""Reductions of what elements may be: the counterpart of `possible` for `sum` and the rest.

A sum may be added up in any order, and factors that are constant over it may be taken out, as the
documentation says; a minimum, a position or a whole number comes out the same however it is found.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dmlc.scalars import DataType as T
from tests.fuzz.floats import divide, multiply
from tests.fuzz.possible import (
    Array,
    Floats,
    Rules,
    Values,
    Wholes,
    everything,
    finish,
    flush,
    known_floats,
    limits,
)


def fold(
    rules: Rules,
    combiner: str,
    values: Values,
    guard: Wholes | None,
    shape: tuple[int, ...],
    count: int,
    factored: bool = True,
) -> Values:
    """Folds the last `count` axes of `shape`, which the values broadcast to. `factored` says
    whether the terms of a sum may have factors."""
    outer = shape[: len(shape) - count]
    points = math.prod(shape[len(shape) - count :])
    flat = (*outer, points)
    passes = np.broadcast_to(True if guard is None else guard.value, shape).reshape(flat)
    sure = np.broadcast_to(True if guard is None else guard.known, shape).reshape(flat)
    if combiner in ("argmin", "argmax"):
        return _place(rules, combiner, _flatten(values, shape, flat), passes, sure, points)
    if isinstance(values, Wholes):
        made = _flatten(values, shape, flat)
        assert isinstance(made, Wholes)
        return _fold_wholes(combiner, made, passes, sure)
    made = _flatten(values, shape, flat)
    assert isinstance(made, Floats)
    if combiner == "sum":
        return _sum(rules, made, passes, sure, factored)
    if combiner == "product":
        return _product(rules, made, passes, sure)
    return _extreme(rules, combiner, made, passes, sure)


def mean(
    rules: Rules,
    values: Values,
    guard: Wholes | None,
    shape: tuple[int, ...],
    count: int,
    factored: bool = True,
) -> Values:
    """The sum divided by the number of points that the guard lets through."""
    assert isinstance(values, Floats)
    total = fold(rules, "sum", values, guard, shape, count, factored)
    inner = shape[len(shape) - count :]
    outer = shape[: len(shape) - count]
    if guard is None:
        number = known_floats(values.dtype, np.full(outer, float(math.prod(inner))))
    else:
        counted = np.broadcast_to(guard.value, shape).reshape((*outer, math.prod(inner))).sum(-1)
        number = known_floats(values.dtype, counted.astype(np.float64))
        if not guard.known.all():
            return everything(values.dtype, outer)
    assert isinstance(total, Floats)
    return divide(rules, total, number)


def _flatten(v: Values, shape: tuple[int, ...], flat: tuple[int, ...]) -> Values:
    def spread(a: Array) -> Array:
        return np.broadcast_to(a, shape).reshape(flat)

    if isinstance(v, Wholes):
        return Wholes(v.dtype, spread(v.value), spread(v.known))
    low = spread(v.low)
    high = low if v.exact else spread(v.high)
    return Floats(
        v.dtype, low, high, spread(v.nan), spread(np.asarray(v.top)), spread(np.asarray(v.least))
    )


def _fold_wholes(combiner: str, v: Wholes, passes: Array, sure: Array) -> Wholes:
    if v.dtype is T.BOOL:
        decided = combiner == "any"
        value = np.where(passes, v.value, not decided)
        # A point that is left out, or is what decides nothing, need not be known.
        known = (sure & ~passes) | (v.known & (sure | (v.value != decided)))
        decides = (known & sure & passes & (v.value == decided)).any(axis=-1)
        made = value.any(axis=-1) if decided else value.all(axis=-1)
        return Wholes(T.BOOL, np.where(decides, decided, made), decides | known.all(axis=-1))
    known = (sure & (v.known | ~passes)).all(axis=-1)
    least, most = limits(v.dtype)
    neutral = {"sum": 0, "product": 1, "min": most, "max": least}[combiner]
    value = np.where(passes, v.value, v.dtype.dtype.type(neutral))
    with np.errstate(all="ignore"):
        match combiner:
            case "sum":
                made = value.sum(axis=-1, dtype=v.dtype.dtype)
            case "product":
                made = value.prod(axis=-1, dtype=v.dtype.dtype)
            case "min":
                made = value.min(axis=-1, initial=most)
            case _:
                made = value.max(axis=-1, initial=least)
    return Wholes(v.dtype, made.astype(v.dtype.dtype), known)


def _sum(rules: Rules, v: Floats, passes: Array, sure: Array, factored: bool) -> Floats:
    v = flush(rules, v)
    taken = passes | ~sure
    certain = passes & sure
    points = taken.sum(axis=-1)
    low = np.where(certain, v.low, np.where(taken, np.minimum(v.low, 0.0), 0.0))
    high = np.where(certain, v.high, np.where(taken, np.maximum(v.high, 0.0), 0.0))
    finite = np.isfinite(low) & np.isfinite(high)
    size = np.where(finite, np.maximum(np.abs(low), np.abs(high)), 0.0).sum(axis=-1)
    single = v.dtype is T.FLOAT32 and rules.rounds
    unit, most = (2.0**-24, 1e37) if single else (2.0**-53, 1e306)
    tiny = 2.0**-125 if v.dtype is T.FLOAT32 and rules.rounds else 1e-300
    steps = np.minimum(points, 4096) + (12 if factored else 2)
    off = unit * steps * size + np.where(points > 1, tiny * points, 0.0) * (size > 0)
    if not factored:
        off = np.where(points <= 1, 0.0, off)
    total_low = np.where(finite, low, 0.0).sum(axis=-1) - off
    total_high = np.where(finite, high, 0.0).sum(axis=-1) + off
    # It starts from 0, but a factor that leaves it may change the sign of its zero.
    total_low = np.where(total_low == 0, -0.0, total_low)
    total_high = np.where(total_high == 0, 0.0, total_high)
    total_low, total_high = (np.where(points == 0, 0.0, t) for t in (total_low, total_high))
    top = np.where(taken & np.isfinite(v.top), v.top, 0.0).sum(axis=-1)
    least = np.where(taken, v.least, math.inf).min(axis=-1, initial=math.inf)
    wild = (top > most) | (factored & (top / least > most) & (top > 0))
    may_nan = (taken & v.nan).any(axis=-1)
    must_nan = (certain & ~v.some & v.nan).any(axis=-1)
    up, down = (
        (taken & (v.high == math.inf)).any(axis=-1),
        (taken & (v.low == -math.inf)).any(axis=-1),
    )
    must_up = (certain & (v.low == math.inf) & ~v.nan).any(axis=-1)
    must_down = (certain & (v.high == -math.inf) & ~v.nan).any(axis=-1)
    rising = must_up & ~down & ~may_nan
    falling = must_down & ~up & ~may_nan
    loose = (may_nan | up | down) & ~rising & ~falling
    nan_only = (must_nan | (must_up & must_down)) & (not factored)
    wide = (loose | wild) & ~nan_only
    inf = math.inf
    total_low = np.where(wide | falling, -inf, np.where(rising | nan_only, inf, total_low))
    total_high = np.where(wide | rising, inf, np.where(falling | nan_only, -inf, total_high))
    return finish(rules, v.dtype, total_low, total_high, wide | nan_only)


def _product(rules: Rules, v: Floats, passes: Array, sure: Array) -> Floats:
    v = flush(rules, v)
    exact = dataclasses.replace(rules, rounds=False)
    points = v.low.shape[-1]
    outer = v.low.shape[:-1]
    made = known_floats(v.dtype, np.ones(outer))
    with np.errstate(all="ignore"):
        taken = (passes | ~sure) & v.some
        ends = [np.abs(v.low), np.abs(v.high)]
        size = np.maximum(*ends)
        least = np.where(v.low * v.high > 0, np.minimum(*ends), size)
        logs = [np.log2(np.where(taken & (s > 0) & np.isfinite(s), s, 1.0)) for s in (size, least)]
        rise = np.maximum(logs[0], 0).sum(axis=-1)
        fall = np.maximum(-logs[1], 0).sum(axis=-1)
    for at in range(points):
        term = Floats(v.dtype, v.low[..., at], v.high[..., at], v.nan[..., at])
        grown = multiply(exact, made, term)
        keep, known = ~passes[..., at], sure[..., at]
        low = np.where(keep & known, made.low, grown.low)
        high = np.where(keep & known, made.high, grown.high)
        nan = np.where(keep & known, made.nan, grown.nan)
        made = Floats(v.dtype, low, high, nan)
    unsure = (~sure).any(axis=-1)
    most = 120 if v.dtype is T.FLOAT32 else 1000
    infinite = ((passes | ~sure) & (v.nan | ~np.isfinite(v.low) | ~np.isfinite(v.high))).any(
        axis=-1
    )
    wide = unsure | (rise > most) | (fall > most) | infinite
    low = np.where(made.low == 0, -0.0, made.low)
    high = np.where(made.high == 0, 0.0, made.high)
    low, high = np.where(wide, -math.inf, low), np.where(wide, math.inf, high)
    return finish(rules, v.dtype, low, high, wide | made.nan, 2.0 * points + 2)


def _extreme(rules: Rules, combiner: str, v: Floats, passes: Array, sure: Array) -> Floats:
    v = flush(rules, v)
    taken, certain = passes | ~sure, passes & sure
    inf = math.inf
    rises = combiner == "max"
    idle = -inf if rises else inf
    inner, outer = (certain, taken) if rises else (taken, certain)
    # A NaN hides every number, and one that is not certain leaves the numbers to be.
    low, high = np.where(v.some, v.low, idle), np.where(v.some, v.high, idle)
    low, high = np.where(inner, low, idle), np.where(outer, high, idle)
    if rises:
        made_low, made_high = low.max(axis=-1, initial=idle), high.max(axis=-1, initial=idle)
    else:
        made_low, made_high = low.min(axis=-1, initial=idle), high.min(axis=-1, initial=idle)
    made_low = np.where(made_low == 0, -0.0, made_low)
    made_high = np.where(made_high == 0, 0.0, made_high)
    must = (certain & v.nan & ~v.some).any(axis=-1)
    made_low, made_high = np.where(must, inf, made_low), np.where(must, -inf, made_high)
    return finish(rules, v.dtype, made_low, made_high, (taken & v.nan).any(axis=-1))


def _place(
    rules: Rules, combiner: str, v: Values, passes: Array, sure: Array, points: int
) -> Wholes:
    """The number of the first of the most extreme points, a NaN more extreme than any number; 0
    where there is none."""
    if isinstance(v, Floats):
        seen = flush(rules, v)
        single = (seen.low == seen.high) & ~seen.nan
        known = single | (seen.nan & ~seen.some)
        order = np.where(seen.nan, math.inf, seen.high if combiner == "argmax" else -seen.low)
        flags = np.where(seen.nan, 2, 1)
    else:
        known = v.known
        order = v.value.astype(object)
        order = order if combiner == "argmax" else -order
        flags = np.ones(v.value.shape, np.int64)
    known = (sure & (known | ~passes)).all(axis=-1)
    found = np.zeros(passes.shape[:-1], np.int64)
    for at in np.ndindex(found.shape):
        best: tuple[object, ...] | None = None
        for point in range(points):
            if passes[(*at, point)]:
                key = (flags[(*at, point)], order[(*at, point)])
                if best is None or key > best:
                    best, found[at] = key, point
    return Wholes(T.INT64, found, known)
