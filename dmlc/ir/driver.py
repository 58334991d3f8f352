"""Driver of user-defined local rules, which replace a value by others.

The compiler's own rules are in `rules`, and a builder applies them to every value. A user's rule
expands an operation that a language lacks, or fuses some that a device has as one.
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
"""Takes a builder and an instruction on its values. Returns the builder's value that replaces the
instruction, of the same type, or None to keep it."""

MOST_ROUNDS = 100
"""Largest number of passes over a body, as rules that undo each other would never end."""


def apply_rules(function: Function, *rules: LocalRule) -> Function:
    """Function with local rules applied to every value, and to the values that they made, until
    none applies. The first rule that applies to a value is taken. Rules need not preserve results:
    that is up to their author.

    Raises `DmlcError` if a rule changes the type of a value, or if the rules do not terminate.
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
