"""How the values of a body repeat along an index, against what they come to place by place."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dmlc import ir
from dmlc.ir.index import IndexFacts
from dmlc.ir.repeat import Cycle, join_repeats
from dmlc.scalars import OPERATIONS, DataType

_ARITHMETIC = ("add", "sub", "mul", "div", "mod", "min", "max", "neg", "abs")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def make_stage(rng: random.Random) -> ir.Stage:
    """A body of a dozen values on positions, most of which are not used by the next."""
    numbers = [rng.randint(-3, 40), rng.randint(1, 6), 2]
    made: list[ir.Instruction] = [ir.Index(0), ir.Index(1)]
    made += [ir.Constant(DataType.INDEX, number) for number in numbers]

    def pick(dtype: DataType) -> int:
        return rng.choice([n for n, i in enumerate(made) if ir.value_type(i) is dtype])

    index, boolean = DataType.INDEX, DataType.BOOL
    for _ in range(rng.randint(3, 12)):
        kind = rng.choice(("arithmetic", "arithmetic", "comparison", "choice", "joined"))
        if kind == "arithmetic":
            operation = OPERATIONS[rng.choice(_ARITHMETIC)]
            right = rng.choice((3, 4)) if operation.name in ("div", "mod") else pick(index)
            made.append(ir.Apply(operation, (pick(index), right)[: operation.arity], index))
        elif kind == "comparison" or not any(ir.value_type(i) is boolean for i in made):
            operation = OPERATIONS[rng.choice(_COMPARISONS)]
            made.append(ir.Apply(operation, (pick(index), pick(index)), boolean))
        elif kind == "choice":
            made.append(ir.Select(pick(boolean), pick(index), pick(index), index))
        else:
            operation = OPERATIONS[rng.choice(("and", "or"))]
            made.append(ir.Apply(operation, (pick(boolean), pick(boolean)), boolean))
    domain = (rng.choice((7, 60, 200)), rng.choice((1, 3, 5)))
    return ir.Stage("s", DataType.INT32, domain, ir.Body(tuple(made), len(made) - 1))


@pytest.mark.parametrize("seed", range(150))
def test_values_repeat_as_said(seed: int) -> None:
    stage = make_stage(random.Random(seed))
    facts = IndexFacts(stage)
    over = (ir.Index(0), ir.Index(1))
    every = facts.evaluate(range(len(stage.body.instructions)), over)
    assert every is not None
    for number, values in enumerate(every):
        repeat = facts.repeat(number, ir.Index(0))
        if repeat is None or repeat.first >= repeat.last:
            continue
        whole = np.broadcast_to(values, [int(facts.count_points([i])) for i in over])
        within = whole.astype(np.int64)[repeat.first : repeat.last]
        assert repeat.first >= 0
        assert repeat.last <= len(whole)
        if len(within) > repeat.period:
            assert (within[repeat.period :] - within[: -repeat.period] == repeat.rise).all()
        for place, row in enumerate(within, repeat.first):
            rest = [int(value) - repeat.slope * place for value in row]
            assert repeat.low <= min(rest)
            assert max(rest) <= repeat.high


def find(text: str, size: int) -> Cycle | None:
    """How a position along one axis repeats."""
    function = f"func @f() -> (%y) {{\n  %y: s32[i0 < {size}] = cast({text}, s32)\n}}"
    stage = ir.parse(function).stages[0]
    operand = ir.operands(stage.body.instructions[stage.body.result])[0]
    return IndexFacts(stage).repeat(operand, ir.Index(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mul(i0, 3)", (1, 3, 0, 1000)),
        ("div(mul(i0, 3), 2)", (2, 3, 0, 1000)),
        ("mod(i0, 12)", (12, 0, 0, 1000)),
        ("sub(i0, mod(i0, 2))", (2, 2, 0, 1000)),
        ("div(sub(i0, 5), 2)", (2, 1, 5, 1000)),
        ("max(sub(i0, 5), 0)", (1, 1, 6, 1000)),
        ("min(i0, 900)", (1, 1, 0, 900)),
        ("select(lt(i0, 10), 0, div(i0, 4))", (4, 1, 11, 1000)),
    ],
)
def test_stretches_lie_between_edges(text: str, expected: tuple[int, ...]) -> None:
    found = find(text, 1000)
    assert found is not None
    assert (found.period, found.rise, found.first, found.last) == expected


@pytest.mark.parametrize("text", ["mul(i0, i0)", "div(1000, add(i0, 1))"])
def test_what_never_repeats_is_not_said_to(text: str) -> None:
    assert find(text, 1000) is None


def test_repeats_join_to_the_stretch_of_all() -> None:
    every = [found for text in ("max(i0, 3)", "mod(i0, 6)") if (found := find(text, 100))]
    assert join_repeats(every, 100, 8) == (4, 100, 24)
