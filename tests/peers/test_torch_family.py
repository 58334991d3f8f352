"""The training operators beside PyTorch's: forward, and backward from random gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import dmlc

NONE, MEAN, SUM = "NONE", "MEAN", "SUM"


def draw(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def labels(most: int, *sizes: int) -> torch.Tensor:
    """Class indices, of which the first is to be ignored."""
    drawn = torch.randint(0, most, sizes, generator=torch.Generator().manual_seed(1))
    drawn.view(-1)[0] = -100
    return drawn


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator, what it is given, and what PyTorch makes of that."""

    name: str
    inputs: Mapping[str, torch.Tensor]
    expected: Callable[..., torch.Tensor]
    """Of the inputs, in their order."""
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    wanted: tuple[str, ...] = ("InputTensor",)
    """The inputs of which there is a gradient."""
    gradients: tuple[str, ...] = ("OutputGradientTensor",)
    needs: tuple[str, ...] | None = None
    """The inputs that the gradient operator takes; None for all."""


def group_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x, 3, scale, bias, 1e-5)


def list_losses() -> list[Case]:
    entropies = [
        Case(
            "CROSS_ENTROPY",
            {"InputTensor": 3 * draw(8, 40, *places), "LabelTensor": labels(40, 8, *places)},
            lambda x, t, r=reduction, s=smoothing: functional.cross_entropy(
                x, t, reduction=r.lower(), label_smoothing=s
            ).reshape(t.shape if r == NONE else [1] * t.ndim),
            {"Reduction": reduction, "LabelSmoothing": smoothing},
        )
        for reduction, smoothing, places in [(NONE, 0.0, (3,)), (MEAN, 0.1, ()), (SUM, 0.0, (2, 2))]
    ]
    weights = torch.rand(40, generator=torch.Generator().manual_seed(3)) + 0.5
    entropies += [
        Case(
            "CROSS_ENTROPY",
            {
                "InputTensor": 3 * draw(8, 40),
                "LabelTensor": labels(40, 8),
                "WeightTensor": weights,
            },
            lambda x, t, w, s=smoothing: functional.cross_entropy(
                x, t, w, label_smoothing=s
            ).reshape(1),
            {"LabelSmoothing": smoothing},
        )
        for smoothing in (0.0, 0.2)
    ]
    logits = {"InputTensor": 4 * draw(6, 50), "TargetTensor": torch.sigmoid(draw(6, 50, seed=2))}
    binary = [
        Case(
            "BINARY_CROSS_ENTROPY",
            logits,
            lambda x, t, r=reduction: functional.binary_cross_entropy_with_logits(
                x, t, reduction=r.lower()
            ).reshape(t.shape if r == NONE else [1, 1]),
            {"Reduction": reduction},
        )
        for reduction in (NONE, MEAN)
    ]
    return entropies + binary


CASES = [
    *list_losses(),
    Case(
        "GROUP_NORMALIZATION",
        {"InputTensor": draw(2, 6, 7, 5), "ScaleTensor": draw(6), "BiasTensor": draw(6)},
        group_norm,
        {"GroupCount": 3},
        ("InputTensor", "ScaleTensor", "BiasTensor"),
        ("OutputGradientTensor", "OutputScaleGradientTensor", "OutputBiasGradientTensor"),
    ),
    Case(
        "EMBEDDING",
        {"WeightTensor": draw(50, 6), "IndexTensor": labels(50, 4, 30).clamp(min=0)},
        lambda w, t: functional.embedding(t, w),
        wanted=("WeightTensor",),
        needs=("IndexTensor",),
    ),
    Case(
        "UPSAMPLE_NEAREST1D",
        {"InputTensor": draw(2, 3, 10)},
        lambda x: functional.interpolate(x, 25, mode="nearest"),
        {"OutputSize": 25},
        needs=(),
    ),
    Case(
        "CUMULATIVE_PRODUCT",
        {"InputTensor": torch.where(draw(3, 9, 4).abs() < 0.1, 0.0, draw(3, 9, 4))},
        lambda x: torch.cumprod(x, 1),
        {"Axis": 1},
    ),
]  # fmt: skip


def run(
    name: str, given: Mapping[str, Any], attributes: Mapping[str, Any], sizes: Mapping[str, Any]
) -> Mapping[str, torch.Tensor]:
    return dmlc.run(f"training.{name}", given, attributes, outputs=sizes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_and_backward(case: Case) -> None:
    given = dict(case.inputs)
    leaves = {n: given[n].double().requires_grad_() for n in case.wanted}
    doubled = {n: t.double() if t.is_floating_point() else t for n, t in given.items()} | leaves
    expected = case.expected(*doubled.values())
    found = run(case.name, given, case.attributes, {})["OutputTensor"]
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-6)

    seed = draw(*expected.shape, seed=3)
    expected.backward(seed.double())
    needs = tuple(given) if case.needs is None else case.needs
    rows = {n: given[n] for n in needs} | {"InputGradientTensor": seed}
    sizes = {g: tuple(leaves[n].shape) for n, g in zip(case.wanted, case.gradients, strict=True)}
    attributes = {n: v for n, v in case.attributes.items() if n != "OutputSize"}
    gradients = run(f"{case.name}_GRAD", rows, attributes, sizes)
    for name, gradient in zip(case.wanted, case.gradients, strict=True):
        torch.testing.assert_close(
            gradients[gradient].double(), leaves[name].grad, rtol=2e-5, atol=2e-6
        )


# Lists and optimizers --------------------------------------------------------------------------


def draw_lists(seed: int) -> list[torch.Tensor]:
    return [draw(*sizes, seed=seed + n) for n, sizes in enumerate([(7, 5), (1, 9), (30, 2)])]


def run_lists(
    name: str, attributes: Mapping[str, Any], **lists: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    (first, *_) = lists.values()
    outputs = {f"OutputTensors[{n}]": tuple(t.shape) for n, t in enumerate(first)}
    found = run(name, lists, attributes, outputs)
    return [found[n] for n in outputs]


@pytest.mark.parametrize("weight", [0.1, 0.5, 1.0])
def test_lists_are_interpolated(weight: float) -> None:
    starts, ends = draw_lists(0), draw_lists(5)
    expected = torch._foreach_lerp(starts, ends, weight)
    found = run_lists("LERP", {"Weight": weight}, StartTensors=starts, EndTensors=ends)
    torch.testing.assert_close(found, list(expected))


@pytest.mark.parametrize("most", [0.5, 100.0])
def test_gradients_are_clipped(most: float) -> None:
    leaves = [torch.nn.Parameter(torch.zeros_like(t)) for t in draw_lists(0)]
    given = draw_lists(0)
    for leaf, gradient in zip(leaves, given, strict=True):
        leaf.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(leaves, most)
    outputs: dict[str, Any] = {f"OutputTensors[{n}]": tuple(t.shape) for n, t in enumerate(given)}
    outputs["NormTensor"] = (1, 1)
    found = run("CLIP_GRADIENT_NORM", {"InputTensors": given}, {"MaxNorm": most}, outputs)
    torch.testing.assert_close(found["NormTensor"].reshape(()), norm)
    for n, leaf in enumerate(leaves):
        torch.testing.assert_close(found[f"OutputTensors[{n}]"], leaf.grad)


def test_steps_of_adamw() -> None:
    parameter = torch.nn.Parameter(draw(6, 5))
    settings = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.2}
    optimizer = torch.optim.AdamW([parameter], **settings)
    attributes = {"LearningRate": 0.05, "Beta1": 0.8, "Beta2": 0.95, "Epsilon": 1e-6,
                  "WeightDecay": 0.2}  # fmt: skip
    state = {"Parameters": parameter.detach().clone(), "FirstMoment": torch.zeros(6, 5),
             "SecondMoment": torch.zeros(6, 5)}  # fmt: skip
    for step in range(1, 6):
        parameter.grad = draw(6, 5, seed=step)
        optimizer.step()
        given = {f"Input{n}Tensor": t for n, t in state.items()}
        given |= {"GradientTensor": parameter.grad}
        number = torch.from_numpy(np.full((1, 1), step, np.uint32))
        found = run("ADAMW", {**given, "TrainingStepTensor": number}, attributes, {})
        state = {n: found[f"Output{n}Tensor"] for n in state}
        torch.testing.assert_close(state["Parameters"], parameter.detach(), rtol=1e-5, atol=1e-6)


# Dropout ---------------------------------------------------------------------------------------


def test_dropout_drops_its_share_and_the_gradient_the_same() -> None:
    x = torch.ones(200, 300)
    state = torch.from_numpy(np.array([[[[5, 0, 0, 0, 17, 4]]]], np.uint32))
    outputs: dict[str, Any] = {"OutputTensor": (200, 300), "OutputStateTensor": (1, 1, 1, 6)}
    given = {"InputTensor": x, "StateTensor": state}
    found = run("DROPOUT", given, {"Probability": 0.3}, outputs)
    dropped = found["OutputTensor"] == 0
    assert abs(dropped.float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / x.numel()) ** 0.5
    torch.testing.assert_close(
        found["OutputTensor"][~dropped], torch.full_like(x, 1 / 0.7)[~dropped]
    )
    assert found["OutputStateTensor"].flatten().tolist() == [5 + 15000, 0, 0, 0, 17, 4]
    gradient = run("DROPOUT_GRAD", {"StateTensor": state, "InputGradientTensor": x},
                   {"Probability": 0.3}, {})["OutputGradientTensor"]  # fmt: skip
    assert torch.equal(gradient, found["OutputTensor"])
    given["StateTensor"] = found["OutputStateTensor"]
    later = run("DROPOUT", given, {"Probability": 0.3}, outputs)["OutputTensor"] == 0
    agree = (later == dropped).float().mean().item()
    assert abs(agree - (0.3**2 + 0.7**2)) < 0.01
