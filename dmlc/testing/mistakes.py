"""Likely cause of a failing kernel, found by trials.

The smallest failing case is changed in one way (packed, without NaN, with numbers whose sums are
exact, with an attribute's default) and run again. If it passes, that change is reported as the
cause.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dmlc.binding import TensorDesc
from dmlc.scalars import Array, DataType
from dmlc.source import join_words
from dmlc.testing.case import Call, Case, find_wanted, lay_out
from dmlc.testing.compare import find_within
from dmlc.testing.outcome import Cause, Outcome, Status, is_bindable

Run = Callable[[Case], Outcome]


def explain(
    case: Case, outcome: Outcome, results: Mapping[str, Array], items: int | None, run: Run
) -> list[str]:
    """Causes of a failure, one per line. `results` are those of the case, and `items` the work
    items that it runs."""
    if outcome.cause is Cause.RACE:
        return ["likely: work items depend on each other's order: a barrier is missing, or several "
                "store one element"]  # fmt: skip
    if outcome.cause is Cause.MEMORY:
        strides = (f"likely: {line}" for line in _explain_strides(case, results, run))
        return [*_explain_stores(case, outcome, items), *strides][:1]
    if outcome.cause is not Cause.RESULT:
        return []
    ways = (_explain_nan, _explain_strides, _explain_attributes, _explain_rounding)
    said = (line for way in ways for line in way(case, results, run))
    return [f"likely: {line}" for line in said][:1]


def _explain_stores(case: Case, outcome: Outcome, items: int | None) -> Iterator[str]:
    for name, desc in case.call.outputs.items():
        count = math.prod(desc.shape)
        stray = f"stores into {name} " in outcome.message and "behind its last" in outcome.message
        if items is not None and stray and items > count:
            yield (
                f"likely: no check of bounds: {items:,} work items run for {count:,} elements of "
                f"{name}"
            )


def _passes(run: Run, case: Case) -> bool:
    return is_bindable(case.call) and run(case).status is Status.PASSED


def _explain_nan(case: Case, results: Mapping[str, Array], run: Run) -> Iterator[str]:
    """NaN and infinities that are not propagated."""
    wanted = find_wanted(case.plain)
    for name, found in results.items():
        if not case.call.tensors[name].data_type.is_float:
            continue
        expected = wanted.expected[name].astype(np.float64)
        wrong = ~find_within(found, wanted.expected[name], wanted.allowed[name])
        got = found.astype(np.float64)[wrong]
        if not wrong.any():
            continue
        values = join_words((f"{v:.6g}" for v in np.unique(got)[:3]), "or")
        if np.isnan(expected[wrong]).all():
            plain = _with_values(case, lambda a: np.where(np.isnan(a), np.ones_like(a), a))
            if _passes(run, plain):
                yield f"NaN is lost: {name} is {values} where NaN is expected, and only there"
        elif np.isinf(expected[wrong]).all():
            yield f"infinity is lost: {name} is {values} where infinity is expected, and only there"


def _explain_strides(case: Case, results: Mapping[str, Array], run: Run) -> Iterator[str]:
    strided = [name for name, desc in case.call.tensors.items() if desc.strides is not None]
    if not strided or not _passes(run, _pack(case, strided)):
        return
    alone = [name for name in strided if _passes(run, _pack(case, [name]))]
    names = join_words(alone or strided, "or")
    yield f"the strides of {names} are ignored or misread: packed, the same case passes"


def _explain_attributes(case: Case, results: Mapping[str, Array], run: Run) -> Iterator[str]:
    call = case.call
    rows = {a.name: a for a in call.operator.definition.attributes}
    for name, value in call.attributes.items():
        others = {n: v for n, v in call.attributes.items() if n != name}
        other = dataclasses.replace(case, call=Call(call.operator, call.tensors, others))
        if rows[name].default is not None and _passes(run, other):
            yield f"{name} is ignored or misread: with its default in place of {value} it passes"


def _explain_rounding(case: Case, results: Mapping[str, Array], run: Run) -> Iterator[str]:
    floats = {d.data_type for d in case.call.tensors.values() if d.data_type.is_float}
    if not floats or not all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values()):
        return
    random = np.random.default_rng(0)
    exact = _with_values(case, lambda a: random.integers(-1, 2, a.shape).astype(a.dtype))
    if not _passes(run, exact):
        return
    narrow = [t.name for t in (DataType.FLOAT16, DataType.BFLOAT16) if t in floats]
    kept = f": a sum that is kept in {narrow[0]} does so" if narrow else ""
    yield f"it rounds more than the operator does, for with -1, 0 and 1 it passes{kept}"


def _pack(case: Case, names: list[str]) -> Case:
    """Case with some tensors packed."""
    call = case.call
    tensors = {
        n: TensorDesc(d.data_type, d.sizes) if n in names else d for n, d in call.tensors.items()
    }
    packed = Call(call.operator, tensors, call.attributes)
    inputs = {n: lay_out(case.inputs[n], d) for n, d in packed.inputs.items()}
    return dataclasses.replace(case, call=packed, inputs=inputs)


def _with_values(case: Case, change: Callable[[Array], Array]) -> Case:
    """Case with other numbers in its floating inputs."""
    inputs = {
        name: lay_out(change(np.array(array)), case.call.tensors[name])
        if case.call.tensors[name].data_type.is_float
        else array
        for name, array in case.inputs.items()
    }
    return dataclasses.replace(case.plain, inputs=inputs)
