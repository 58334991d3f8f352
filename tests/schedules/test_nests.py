"""The nests of kernels as text and as JSON: what is printed says all, and is read back."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from dmlc.kernel.names import Names
from dmlc.loops.nodes import Loop, Nest
from dmlc.loops.parse import nest_from_json, nest_to_json, parse_nest
from dmlc.loops.script import print_script
from dmlc.lowering import assemble
from dmlc.source import DmlcError
from tests.corpus.subjects import SUBJECTS
from tests.schedules.nest_mutants import CASES, is_same, make
from tests.schedules.rules import TARGETS, choose_for, follow_scripts, list_nests

SCALED = "directml.BATCH_NORMALIZATION_TRAINING_GRAD"


@pytest.mark.grid(16)
@pytest.mark.parametrize(("target", "profile"), TARGETS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_nests_are_made_again_of_scripts_and_of_what_they_print(
    subject: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first example of an operator, and of every other row of the corpus: the script makes
    the nest that a rule has chosen of the naive one, and what is read of the nest's text is what
    the kernel that ships is lowered from."""
    lower, texts = assemble.lower_nest, list[str]()

    def watch(nest: Nest, names: Names, *rest: Any) -> Any:
        text, own = parse_nest(str(nest), nest.phases), copy.deepcopy(names)
        texts.append(str(text))
        assert text == nest
        assert str(text) == str(nest)
        assert nest_from_json(nest_to_json(nest), nest.phases) == nest
        lowered = lower(nest, names, *rest)
        assert lower(text, own, *rest) == lowered
        return lowered

    monkeypatch.setattr(assemble, "lower_nest", watch)
    _, function = next(SUBJECTS[subject]())
    for nest, again in follow_scripts(choose_for(function, target, profile, monkeypatch)):
        assert again == nest, print_script(nest.script)
        assert str(again) in texts


@pytest.mark.parametrize("case", CASES)
def test_a_nest_of_each_family_reads_back(case: str) -> None:
    for nest in make(case).nests:
        assert parse_nest(str(nest), nest.phases) == nest
        assert nest_from_json(nest_to_json(nest), nest.phases) == nest


def test_a_nest_that_is_read_makes_the_same_kernel() -> None:
    made = make("product, panels")
    (nest,) = made.nests
    # What is for a person is in no text.
    again = dataclasses.replace(parse_nest(str(nest), nest.phases), words=nest.words)
    assert is_same(made.lower(0, again), made.kernels[0])


def choose_one(monkeypatch: pytest.MonkeyPatch, name: str = SCALED) -> Nest:
    return list_nests(name, "hlsl", None, monkeypatch)[0]


def test_a_print_says_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = choose_one(monkeypatch)
    changed = {
        "lanes": (("lane", 512),), "block": nest.dims[0][0], "streams": frozenset({1, 2}),
        "holds": True, "script": nest.script[1:],
    }  # fmt: skip
    for field, value in changed.items():
        other = dataclasses.replace(nest, **{field: value})
        assert str(other) != str(nest), field
        assert parse_nest(str(other), nest.phases) == other


def test_a_dimension_is_one_object_after_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = choose_one(monkeypatch)
    again = parse_nest(str(nest), nest.phases)
    (output,) = again.body
    assert isinstance(output, Loop)
    *_, strip = output.body
    assert isinstance(strip, Loop)
    assert strip.dim is again.dims[2][0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  reduce 0", "  reduces 0", "no node is called 'reduces'"),
        ("  reduce 0", "  reduce 0 again yes", "unknown field 'again'"),
        ("  reduce 0", "  reduce 0 serial 5", "true or false for 'serial'"),
        ("[[k]", "[[k", "a bracket is not closed"),
        ("  reduce 0", "  reduce 0 into", "a value is missing"),
        ("loop k", "loop q", "a dimension for 'dim'"),
        ("dim output ", "dim k ", "there is another 'k'"),
    ],
)
def test_what_is_no_nest_is_refused(
    old: str, new: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nest = choose_one(monkeypatch)
    assert old in str(nest)
    with pytest.raises(DmlcError, match=message):
        parse_nest(str(nest).replace(old, new), nest.phases)


def test_json_that_is_no_nest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = choose_one(monkeypatch)
    with pytest.raises(DmlcError, match="expected 'nest' for 'form'"):
        nest_from_json('{"version": "1.0"}', nest.phases)
