"""Every example graph on every device, against the reference."""

from __future__ import annotations

import pytest

import dmlc
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import Source
from dmlc.testing.verify import verify
from docs.build import GRAPH_SIZES
from tests.examples.graphs import FOLDER, NAMES, SIZES, load, make_case


def test_every_example_has_sizes() -> None:
    assert set(NAMES) == set(SIZES)
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_files_are_formatted_and_have_no_warnings(name: str) -> None:
    path = FOLDER / f"{name}.dml"
    text = path.read_text("utf-8")
    assert format_file(parse(Source(path.name, text))) == text
    assert dmlc.load(path).diagnostics == ()


@pytest.mark.parametrize("device", ["opencl", "vulkan", "wgpu"])
@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, device: str) -> None:
    case = make_case(name)
    results = case.run(device)
    assert tuple(results) == case.graph.outputs
    for output, verdict in verify(case.graph, case.inputs, {}, results, case.dims).items():
        assert verdict.holds, (output, str(verdict))


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("_training_step")])
def test_no_kernel_of_a_derived_backward_pass_is_slow(name: str) -> None:
    function = load(name).bind(dims=GRAPH_SIZES[name])
    for target in ("hlsl", "opencl"):
        assert dmlc.compile(function, target, profile="gpu").warnings == ()


def test_a_loss_does_not_move_with_the_maximum_that_its_softmax_subtracts() -> None:
    """Several stages lie between what cancels: the loss, its mean, the logits and a bias."""
    name = "gelu_mlp_training_step"
    reductions = [s.reduction for s in load(name).bind(dims=SIZES[name]).stages]
    assert "argmax" not in {r.combiner for r in reductions if r is not None}
