"""The driver of local rules that people bring: each replaces a value by others, or declines.

The rules of dmlc itself are `rules`' and have been used on every value that a builder holds. A rule
of one's own expands what a language lacks, or folds what a device does at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dmlc.ir.builder import BodyBuilder
from dmlc.ir.function import Function
from dmlc.ir.nodes import Instruction, Stage, value_type
from dmlc.parameters import expect, wrong_kind
from dmlc.source import DmlcError

LocalRule: TypeAlias = Callable[[BodyBuilder, Instruction], "int | None"]
"""Is given a body in the making and an instruction on its values. It gives the value of that body
that takes the instruction's place, of the same type, or None where it has nothing to say."""

MOST_ROUNDS = 100
"""Times that a body is gone through, at most: rules that undo each other would never end."""


def apply_rules(function: Function, *rules: LocalRule) -> Function:
    """The function with local rules used on every value, and on what they made, until none applies;
    the first that applies to a value is taken. What they do to results is theirs to answer for.

    Raises `DmlcError` where a rule changes the type of a value, or where they never come to an end.
    """
    expect("function", function, Function, "an ir.Function")
    for rule in rules:
        if not callable(rule):
            raise wrong_kind("a rule", "a function of a builder and an instruction", rule)
    return function.with_stages([_change_stage(stage, rules) for stage in function.stages])


def _change_stage(stage: Stage, rules: tuple[LocalRule, ...]) -> Stage:
    for _ in range(MOST_ROUNDS):
        builder, before = BodyBuilder(), stage
        stage = builder.remake(stage, lambda _, moved, b=builder: _try_rules(b, moved, rules))
        if stage is before:
            return stage
    raise DmlcError(
        f"the rules never come to an end at %{stage.name}: each of {MOST_ROUNDS} rounds changed it"
    )


def _try_rules(
    builder: BodyBuilder, instruction: Instruction, rules: tuple[LocalRule, ...]
) -> int | None:
    for rule in rules:
        found = rule(builder, instruction)
        if found is None:
            continue
        given, wanted = builder.type_of(found), value_type(instruction)
        if given is not wanted:
            raise DmlcError(f"a rule gives {given.name} for a value of type {wanted.name}")
        return found
    return None
