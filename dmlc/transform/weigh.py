"""Sums index-only weights before multiplying them with data.

    sum[o, k where c(i, o, k)](x[o] * w(o, k))  ->  sum[o where v[i, o] != 0](x[o] * v[i, o]),
                                                    v[i, o] = sum[k where c(i, o, k)](w(o, k))

No tensor is loaded along `k`: only index-only values depend on it. A gradient has such a sum if
several taps of a window read one element, as at an edge where indices are clamped. The weights are
known at compile time, and terms with weight 0 are excluded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dmlc.ir import Constant, Index, Reduction, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import (
    MOST_POINTS,
    count_points,
    find_dependencies,
    find_index_only,
    list_conjuncts,
    order_indices,
)
from dmlc.transform.factor import list_factors


@dataclasses.dataclass(frozen=True, slots=True)
class _Weights:
    """Factors and conditions of a sum that depend on some of its axes and are index-only; and the
    other indices that they depend on."""

    axes: tuple[Index, ...]
    places: tuple[Index, ...]
    factors: tuple[int, ...]
    conditions: tuple[int, ...]


def sum_weights(stage: Stage, take_name: Callable[[], str]) -> tuple[Stage, ...]:
    """Stages of summed weights, and the stage that reads them; the stage alone if it has none.
    `take_name` names new stages."""
    found = tuple(_find_weights(stage))
    if not found:
        return (stage,)
    made = [_make_weights(stage, weights, take_name()) for weights in found]
    return (*made, _weigh(stage, found, made))


def _find_weights(stage: Stage) -> Iterator[_Weights]:
    body = stage.body
    if stage.combiner != "sum" or not body.dtype.is_float:
        return
    known, dependencies = find_index_only(body), find_dependencies(body)
    factors, conditions = list_factors(body), list_conjuncts(body)

    def reached(axes: set[Index]) -> list[int]:
        return [v for v in (*factors, *conditions) if axes & set(dependencies[v])]

    own = {index: reached({index}) for index in stage.indices if index.reduced}
    left = [i for i, parts in own.items() if parts and all(known[v] for v in parts)]
    while left:
        axes = {left[0]}
        while more := {i for v in reached(axes) for i in dependencies[v] if i in left} - axes:
            axes |= more
        left = [index for index in left if index not in axes]
        indices = order_indices(i for v in reached(axes) for i in dependencies[v])
        if count_points(stage, indices) <= MOST_POINTS:
            parts = set(reached(axes))
            yield _Weights(
                tuple(i for i in indices if i in axes),
                tuple(i for i in indices if i not in axes),
                tuple(f for f in factors if f in parts),
                tuple(c for c in conditions if c in parts),
            )


def _make_weights(stage: Stage, weights: _Weights, name: str) -> Stage:
    builder = BodyBuilder()
    moved = {index: Index(n) for n, index in enumerate(weights.places)}
    moved |= {index: Index(n, reduced=True) for n, index in enumerate(weights.axes)}
    numbers = builder.copy(
        stage.body, places={index: builder.add(own) for index, own in moved.items()}
    )
    factors = [numbers[f] for f in weights.factors]
    factors = factors or [builder.add(Constant(stage.body.dtype, 1.0))]
    guard = builder.join(numbers[c] for c in weights.conditions)
    body = builder.make(builder.fold("mul", factors), guard)
    domain, axes = (
        [e for e in map(stage.extent, indices) if e is not None]
        for indices in (weights.places, weights.axes)
    )
    return Stage(
        name, body.dtype, tuple(domain), body, Reduction("sum", tuple(enumerate(axes))), stage.span
    )


def _weigh(stage: Stage, found: Sequence[_Weights], made: Sequence[Stage]) -> Stage:
    """Stage that uses weights summed beforehand."""
    body, builder = stage.body, BodyBuilder()
    numbers = builder.copy(body)
    gone = {v for weights in found for v in (*weights.factors, *weights.conditions)}
    factors = [numbers[f] for f in list_factors(body) if f not in gone]
    conditions = [numbers[c] for c in list_conjuncts(body) if c not in gone]
    for weights, summed in zip(found, made, strict=True):
        weight = builder.load(summed, *map(builder.add, weights.places))
        factors.append(weight)
        conditions.append(builder.apply("ne", weight, builder.add(Constant(summed.dtype, 0.0))))
    gone_axes = {index.axis for weights in found for index in weights.axes}
    axes = tuple(axis for axis in stage.axes if axis[0] not in gone_axes)
    made_body = builder.make(builder.fold("mul", factors), builder.join(conditions))
    return dataclasses.replace(stage, body=made_body, reduction=Reduction("sum", axes))
