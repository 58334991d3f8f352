"""Scripts of rules: what a kernel's nest was made by makes it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlc import ir
from dmlc.loops.nodes import Nest
from dmlc.loops.script import print_script
from tests.schedules.rules import TARGETS, choose_for, choose_nests, follow_scripts


def make_nests(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Nest, Nest]]:
    """The nests that rules choose for the first example of an operator, and what their scripts make
    of the naive ones, as text that is read again."""
    return follow_scripts(choose_nests(name, target, profile, monkeypatch))


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


def test_reductions_on_cpus_have_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "directml.BATCH_NORMALIZATION_GRAD"
    ((nest, _),) = make_nests(name, "opencl", "cpu", monkeypatch)
    assert print_script(nest.script).splitlines() == [
        "split i1 2 as part",
        "normalize part as block",
        "bind block group",
        "expand i1 as j",
        "hoist j as factors",
        "split k 2 as band",
        "reorder j",
        "unroll k",
        "resume k",
    ]


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_products_have_scripts(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = ir.parse("""
        func @f(%X: f32[4, 32, 20, 20], %W: f32[64, 16, 3, 3]) -> (%Y) {
          %Y: f32[i0 < 4, i1 < 64, i2 < 20, i3 < 20] = sum[r0 < 16, r1 < 3, r2 < 3 where
              and(ge(sub(add(i2, r1), 1), 0), lt(sub(add(i2, r1), 1), 20))]
            mul(%X[i0, add(mul(div(i1, 32), 16), r0), sub(add(i2, r1), 1), min(add(i3, r2), 19)],
                %W[i1, r0, r1, r2])
        }""")
    ((nest, again),) = follow_scripts(choose_for(function, target, None, monkeypatch))
    assert again == nest
    verbs = [call.verb for call in nest.script]
    assert [verbs.count(v) for v in ("part", "recheck", "tile", "stage", "jam")] == [1, 1, 3, 2, 2]


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
