"""The table of built-in functions: the documentation names each, and one entry is all it takes."""

from __future__ import annotations

import bisect
import inspect
import re
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dmlc
from dmlc.language import builtins
from dmlc.language.builtins import Builtin, Evaluation, Given, Parameter, Takes
from dmlc.language.check import check_text
from dmlc.language.kinds import What
from dmlc.language.limits import MAX_DEPTH

PAGE = (Path(__file__).parents[2] / "docs/reference/language.md").read_text(encoding="utf-8")
TENSORS = "tensors { | Tensor | Kind | Types |\n | X | Input | f32 |\n | Y | Output | f32 | }"
SAME = "constraints { X and Y must have the same DataType, DimensionCount, and Sizes. }"


def operator(compute: str) -> str:
    return f"operator OP {{ {TENSORS} {SAME} compute {{ {compute} }} }}"


def test_the_documentation_lists_the_scalar_functions() -> None:
    _, _, behind = PAGE.partition("Scalar functions:\n\n")
    listed = re.findall(r"[a-z]\w*", behind.partition("\n\n")[0].replace("(x, TYPE)", ""))
    assert sorted(listed) == sorted(builtins.SCALAR_FUNCTIONS)


def test_the_documentation_has_the_table_of_array_functions() -> None:
    _, _, behind = PAGE.partition("| function | gives |\n| --- | --- |\n")
    rows = re.findall(r"^\| `(\w+)\(.*?\)` \| (.*) \|$", behind.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(f.name, f.says) for f in builtins.ARRAY_FUNCTIONS.values()]


def test_the_documentation_lists_reductions_and_names_everything_else() -> None:
    (listed,) = re.findall(r"^`([a-z ]+)` reduce a tensor:$", PAGE, re.MULTILINE)
    assert listed.split() == list(builtins.REDUCTIONS)
    (folding,) = re.findall(r"in a reduction of a pack: `([a-z ]+)` of `\(e\.\.\.\)`", PAGE)
    folds = [r.name for r in builtins.REDUCTIONS.values() if r.folds]
    assert sorted(folding.split()) == sorted(folds)
    for name in builtins.FUNCTIONS:
        assert re.search(rf"`[^`]*\b{name}\(|\b{name}\b", PAGE), name
    for name in (*builtins.FACTS, *builtins.ARRAY_FACTS):
        assert name in PAGE


def test_a_new_function_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(on: Evaluation, given: Given) -> object:
        between = on.apply("sub", Given(given.values[1::-1], given.spans[1::-1], given.span))
        part = on.apply("mul", Given((between, given.values[2]), given.spans[1:], given.span))
        return on.apply("add", Given((given.values[0], part), given.spans[:2], given.span))

    number = Parameter(Takes.VALUE, number="an argument of 'mix'")
    mix = Builtin("mix", (number,) * 3, What.NUMBER, evaluate)
    monkeypatch.setitem(cast("dict[str, Builtin]", builtins.FUNCTIONS), "mix", mix)
    op = dmlc.parse(operator("Y = mix(X, 2, 0.25)")).operators["OP"]
    (found,) = dmlc.run(op, {"X": np.array([0, 4], np.float32)}, device="reference").values()
    np.testing.assert_array_equal(found, np.array([0.5, 3.5], np.float32))
    with pytest.raises(dmlc.DmlcError, match="an argument of 'mix' must be a number"):
        check_text(operator("Y = mix(X, 2, X > 0)"), "a.dml")
    with pytest.raises(dmlc.DmlcError, match="'mix' takes 3 arguments, but is given 2"):
        check_text(operator("Y = mix(X, 2)"), "a.dml")


NESTS = {
    "-(": ("-(", "X", ")"),
    "exp(": ("exp(", "X", ")"),
    "max(1, ": ("max(1, ", "X", ")"),
    "f(": ("f(", "X", ")"),
    "sum(": ("sum(", "X", ", axes: [0])"),
    "join": ("squeeze(", "X", ", axes: [0])"),
    "1 +": ("1 + (", "X", ")"),
    "?:": ("X > 0 ? 1 : (", "X", ")"),
    "sum[": ("sum[k : 2](", "1", ")"),
    "[[": ("[", "1", "][0]"),
}


@pytest.mark.parametrize("nest", NESTS.values(), ids=list(NESTS))
def test_the_deepest_expressions_are_checked_on_the_usual_stack(nest: tuple[str, str, str]) -> None:
    """The checker recurses: what the parser lets pass must leave room on the stack."""
    before, inside, behind = nest

    def is_read(depth: int) -> bool:
        text = operator(f"f(x) = x\nY = {before * depth}{inside}{behind * depth}")
        try:
            check_text(text, "a.dml")
        except dmlc.DmlcError as error:
            return "nested deeper" not in str(error)
        return True

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 900)
    try:
        deepest = bisect.bisect_left(range(MAX_DEPTH + 1), True, key=lambda d: not is_read(d)) - 1
        assert deepest + 1 >= MAX_DEPTH // 3
        assert not is_read(MAX_DEPTH + 1)
    finally:
        sys.setrecursionlimit(limit)


def test_what_a_used_up_stack_cannot_hold_is_refused() -> None:
    text = operator("Y = " + "exp(" * 190 + "X" + ")" * 190)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 400)
    try:
        with pytest.raises(dmlc.DmlcError, match="deeper than the stack that is left") as caught:
            check_text(text, "a.dml")
    finally:
        sys.setrecursionlimit(limit)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is not None
    assert diagnostic.span.text.startswith("exp(exp(")
    check_text(text, "a.dml")
