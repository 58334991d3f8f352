"""Scripts of rules: what a kernel's nest was made by makes it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlc import library
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Nest
from dmlc.loops.primitives import apply
from dmlc.loops.script import parse_script, print_script
from tests.schedules.rules import TARGETS, choose_nests


def make_nests(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Nest, Nest]]:
    """The nests that rules choose for the first example of an operator, and what their scripts make
    of the naive ones, as text that is read again."""
    for each in choose_nests(name, target, profile, monkeypatch):
        if each.nest.script:
            script = parse_script(print_script(each.nest.script))
            begun = naive(each.phases, each.count)
            yield each.nest, apply(begun, each.function, each.limits, *script)


@pytest.mark.grid(16)
@pytest.mark.parametrize(("target", "profile"), TARGETS)
@pytest.mark.parametrize("name", library.names())
def test_a_script_makes_its_nest_again(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nest, again in make_nests(name, target, profile, monkeypatch):
        assert again == nest, print_script(nest.script)


@pytest.mark.parametrize(("target", "profile"), TARGETS)
@pytest.mark.parametrize(
    "name", ["directml.ACTIVATION_RELU_GRAD", "directml.RESAMPLE_GRAD1", "onednn.StaticTranspose"]
)
def test_the_seed_operators_have_scripts(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(make_nests(name, target, profile, monkeypatch))


def test_reductions_that_are_shared_have_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "directml.BATCH_NORMALIZATION_TRAINING_GRAD"
    ((nest, _),) = make_nests(name, "hlsl", None, monkeypatch)
    verbs = [call.verb for call in nest.script]
    assert verbs[:2] == ["axis", "axis"]
    assert verbs.count("share") == 2


def test_a_script_is_as_the_rule_of_a_gpu_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ((nest, _),) = make_nests("directml.ACTIVATION_RELU_GRAD", "hlsl", None, monkeypatch)
    assert print_script(nest.script).splitlines() == [
        "split i 4096 as group",
        "bind group group",
        "split i 1024 as k",
        "unroll k",
        "split i 4 as lane",
        "bind lane lane",
        "vectorize i 4 whole",
        "reorder k",
    ]
    assert nest.list_lines() == [
        "group i by 4,096 as group: 0..n",
        "  lane i by 4 as lane extent 256",
        "    unroll i by 1,024 as k extent 4",
        "      vector i by 4 as i extent 1",
        "        point 0: store OutputGradientTensor",
    ]
