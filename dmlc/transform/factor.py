"""Takes factors that are constant over a sum out of it: `sum(a * b)` becomes `a * sum(b)`.

This is the one transform that re-associates floating point. It leaves a sum of fewer operations,
and sums that differed in such factors alone become one: a gradient's sum of `dY * centered * c`
is the sum of `dY * centered`, which the same gradient needs anyway.

What it does to special values, where all else is equal: a factor that is infinite or NaN now meets
the sum and not each term, so that a NaN from infinity times 0, or from infinities of both signs,
may come out infinite, or as the NaN it was; a quotient by 0 likewise. Terms that overflowed, or
vanished, with the factor need not without it, and the other way round. A sum that comes to zero
may change the zero's sign. Sums over nothing stay as they are: none is taken apart whose guard may
let no point through. On integers, which wrap, products
and negations come out exactly the same; quotients are left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import Apply, Body, Function, Index, Instruction, Load, Stage, operands
from dmlc.ir.index import IndexFacts, list_arrays
from dmlc.ir.inside import find_open_reads
from dmlc.ir.naming import take_name
from dmlc.ir.ranges import Interval, table_ranges
from dmlc.scalars import OPERATIONS
from dmlc.transform.clamp import clamp_stage
from dmlc.transform.inline import TooManyPlacesError, inline_stages
from dmlc.transform.simplify import drop_unsound_pairs

_MOST_FACTORS = 32
"""How many factors leave one sum; a value that is squared again and again has any number."""

_MOST_LOOKED_THROUGH = 16
"""How many stages one sum is searched through for factors."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """One operation on the sum: `mul` or `div` by a value of the body, or `neg`."""

    operation: str
    factor: int | None


def take_out_factors(function: Function) -> Function:
    """The function with every factor that is constant over a sum applied to the sum.

    A sum that has such factors becomes two stages: the sum of what varies, and what it was, now
    element by element over the few values of its domain. The function itself where there is none.
    """
    names = {t.name: None for t in (*function.parameters, *function.stages)}
    earlier: dict[str, Stage] = {}
    stages: list[Stage] = []
    reach = table_ranges(function.tables)
    for stage in function.stages:
        pair = _split(stage, earlier, names)
        if pair is not None and _may_be_empty(stage, function):
            pair = None
        if pair is not None:
            pair = _prove_reads(pair, function, reach)
        stages += [stage] if pair is None else pair
        earlier[stage.name] = stage
    if len(stages) == len(function.stages):
        return function
    return drop_unsound_pairs(dataclasses.replace(function, stages=tuple(stages)))


def _split(
    stage: Stage, earlier: Mapping[str, Stage], names: dict[str, None]
) -> list[Stage] | None:
    """A sum without its constant factors, and what multiplies it; None where it has none."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner != "sum" or any(e == 0 for _, e in reduction.axes):
        return None
    parted = _part(stage.body)
    body = _look_through(stage, earlier)
    if body is not stage.body:
        deeper = _part(body)
        parted = deeper if len(deeper.steps) > len(parted.steps) else parted
    if not parted.steps:
        return None
    name = _fresh_name(stage.name, names)
    inner = Body.make(parted.instructions, parted.kept, parted.guard)
    total = Stage(name, stage.body.dtype, stage.domain, inner, reduction, stage.span)
    return [total, dataclasses.replace(stage, body=_apply(total, parted), reduction=None)]


def _may_be_empty(stage: Stage, function: Function) -> bool:
    """Whether the guard of a sum of floats may let no point of some element through: what is 0
    then would be NaN, if a factor is infinite or NaN."""
    if stage.body.guard is None or not stage.body.dtype.is_float:
        return False
    facts = IndexFacts(stage, list_arrays(function.tables))
    for joined in _join_conditions(facts.conditions, facts.dependencies):
        passing = facts.find_passing(joined)
        folded = tuple(n for n, i in enumerate(facts.depends_on(joined)) if i.reduced)
        if passing is None or not np.any(passing, axis=folded).all():
            return True
    return False


def _join_conditions(
    conditions: Sequence[int], moving: Sequence[tuple[Index, ...]]
) -> list[list[int]]:
    """Conditions apart from others that share no index with them."""
    found: list[list[int]] = []
    for condition in conditions:
        near = [g for g in found if any(set(moving[c]) & set(moving[condition]) for c in g)]
        found = [g for g in found if g not in near]
        found.append([c for g in near for c in g] + [condition])
    return found


def _prove_reads(
    pair: Sequence[Stage], function: Function, reach: Mapping[str, Interval]
) -> list[Stage] | None:
    """A sum and what multiplies it; None where the factors read what the sum's guard alone keeps
    inside."""
    total, outer = pair
    known = {**function.tensors(), total.name: total}
    if find_open_reads(outer, known, reach)[0]:
        return None
    return [clamp_stage(total, known, reach)[0], outer]


@dataclasses.dataclass(frozen=True, slots=True)
class _Parted:
    """A body in which `kept` is what varies over the reduction; the steps lead from its sum to
    the sum of the body's result."""

    instructions: tuple[Instruction, ...]
    kept: int
    steps: tuple[_Step, ...]
    guard: int | None


def _part(body: Body) -> _Parted:
    """Parts the factors of a body's result that vary over the reduction from those that do not."""
    made = list(body.instructions)
    varies: list[bool] = []
    parted: list[tuple[int, tuple[_Step, ...]]] = []
    for value, instruction in enumerate(body.instructions):
        own = isinstance(instruction, Index) and instruction.reduced
        varies.append(own or any(varies[o] for o in operands(instruction)))
        parted.append((value, ()))
        if not varies[value] or not isinstance(instruction, Apply):
            continue
        found = _part_operation(instruction, varies, parted)
        if found is None or not 0 < len(found[1]) <= _MOST_FACTORS:
            continue
        new, steps = found
        if len(new) == 1:
            parted[value] = (new[0], steps)
        else:
            parted[value] = (len(made), steps)
            made.append(dataclasses.replace(instruction, operands=new))
    kept, steps = parted[body.result]
    return _Parted(tuple(made), kept, steps, body.guard)


def _part_operation(
    instruction: Apply, varies: Sequence[bool], parted: Sequence[tuple[int, tuple[_Step, ...]]]
) -> tuple[tuple[int, ...], tuple[_Step, ...]] | None:
    """What is left of an operation's operands, and the steps taken out: one operand where the
    operation itself is a step; None where it is no factor's."""
    name = instruction.operation.name
    kept = [parted[o][0] for o in instruction.operands]
    if name == "neg":
        return (kept[0],), (*parted[instruction.operands[0]][1], _Step("neg", None))
    if name not in ("mul", "div") or (name == "div" and not instruction.dtype.is_float):
        return None
    left, right = instruction.operands
    if not varies[right]:
        return (kept[0],), (*parted[left][1], _Step(name, right))
    if name == "div":
        return ((kept[0], right), parted[left][1]) if varies[left] else None
    if not varies[left]:
        return (kept[1],), (*parted[right][1], _Step(name, left))
    return (kept[0], kept[1]), (*parted[left][1], *parted[right][1])


def _apply(total: Stage, parted: _Parted) -> Body:
    """The body that multiplies a sum: the steps, one after the other, on its elements."""
    made: list[Instruction] = [*parted.instructions]
    own = tuple(range(len(made), len(made) + len(total.domain)))
    made += [Index(axis) for axis in range(len(total.domain))]
    made.append(Load(total.name, own, total.dtype))
    for step in parted.steps:
        value = len(made) - 1
        given = (value,) if step.factor is None else (value, step.factor)
        made.append(Apply(OPERATIONS[step.operation], given, total.dtype))
    return Body.make(made, len(made) - 1)


def _look_through(stage: Stage, earlier: Mapping[str, Stage]) -> Body:
    """The body of a sum with the stages computed in it that may hold factors of it."""
    body = stage.body
    for _ in range(_MOST_LOOKED_THROUGH):
        found = _find_product(body, earlier)
        if found is None:
            break
        try:
            body = inline_stages(dataclasses.replace(stage, body=body), {found.name: found})
        except TooManyPlacesError:
            break
    return body


def _find_product(body: Body, earlier: Mapping[str, Stage]) -> Stage | None:
    """A stage read as a factor that is itself a product, a quotient or a negation with a factor
    that some reader could take out; storing it rounds nothing."""
    pending = [body.result]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        instruction = body.instructions[value]
        if isinstance(instruction, Apply) and instruction.operation.name in ("mul", "div", "neg"):
            quotient = instruction.operation.name == "div"
            pending += instruction.operands[: 1 if quotient else 2]
        elif isinstance(instruction, Load) and instruction.tensor in earlier:
            stage = earlier[instruction.tensor]
            root = stage.body.instructions[stage.body.result]
            plain = stage.reduction is None and not stage.dtype.is_storage_only
            if plain and isinstance(root, Apply) and _may_hold_factor(stage.body, root):
                return stage
    return None


def _may_hold_factor(body: Body, root: Apply) -> bool:
    """Whether one side of a product, or the divisor, stays the same along some axis the other
    side runs along."""
    if root.operation.name == "neg":
        return True
    if root.operation.name not in ("mul", "div"):
        return False
    axes: list[frozenset[int]] = []
    for instruction in body.instructions:
        own = frozenset((instruction.axis,)) if isinstance(instruction, Index) else frozenset[int]()
        axes.append(own.union(*(axes[o] for o in operands(instruction))))
    left, right = (axes[o] for o in root.operands)
    return bool(left - right) or (root.operation.name == "mul" and left != right)


def _fresh_name(stage: str, names: dict[str, None]) -> str:
    """A name for the sum inside a stage, taken from here on."""
    return take_name(stage if stage.endswith("_sum") else f"{stage}_sum", names)
