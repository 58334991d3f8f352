"""The example operators, and the gradients that are derived from them, beside PyTorch's in
float64."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

import dmlc
from dmlc.scalars import DataType
from tests.library.run import DEVICES, Array, check, normal

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EPSILON = float(np.float32(1e-5))


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator of an example file, whose gradient stands beside it: PyTorch's way to its
    output, what it is given, and the sizes of that where nets train. None are stated for what
    finds its places in data: its gradient goes through all of them."""

    file: str
    name: str
    forward: Callable[..., torch.Tensor]
    inputs: Mapping[str, Array]
    trained: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    wrt: tuple[str, ...] = ("src",)
    dtypes: tuple[Any, ...] = (np.float32, np.float16, ml_dtypes.bfloat16)
    output: str = "dst"

    def given(self, dtype: Any) -> dict[str, Array]:
        """The inputs, with those in the type that is asked for that may be."""
        table = self.operator(self.name).tensors
        wanted = DataType(np.dtype(dtype).name.upper())
        return {
            n: a.astype(dtype) if wanted in table[n].data_types else a
            for n, a in self.inputs.items()
        }

    def operator(self, name: str) -> dmlc.Operator:
        return load(self.file)[name]


@functools.cache
def load(file: str) -> dict[str, dmlc.Operator]:
    """The operators of an example file, without the module's name."""
    found = dmlc.load(FOLDER / f"{file}.dml").operators
    return {name.rpartition(".")[2]: operator for name, operator in found.items()}


def rms_norm(src: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(src, [src.shape[-1]], gamma, EPSILON)


def focal_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As torchvision has it."""
    t = labels.to(logits.dtype)
    p = logits.sigmoid()
    entropy = functional.binary_cross_entropy_with_logits(logits, t, reduction="none")
    wrong = 1 - (p * t + (1 - p) * (1 - t))
    return (0.25 * t + 0.75 * (1 - t)) * entropy * wrong**2


def rotary(src: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """As transformers have it, which repeat the angles for the second half."""
    first, second = src.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return src * torch.cat([cosine, cosine], -1) + turned * torch.cat([sine, sine], -1)


def swiglu(src: torch.Tensor) -> torch.Tensor:
    gate, value = src.chunk(2, -1)
    return functional.silu(gate) * value


def sample(corners: bool) -> Callable[..., torch.Tensor]:
    return lambda src, grid: functional.grid_sample(src, grid, align_corners=corners)


def resize(sizes: tuple[int, int]) -> Callable[..., torch.Tensor]:
    return lambda src: functional.interpolate(src, sizes, mode="bicubic")


def resized(*scales: float) -> dict[str, object]:
    return {"Scales": [1, 1, *scales]}


ANGLES = normal(6, 4, seed=1)
IMAGE = normal(2, 3, 5, 6)
GRID = np.random.default_rng(2).uniform(-1.3, 1.3, (2, 4, 3, 2)).astype(np.float32)
LABELS = (normal(7, 30, seed=1) > 0).astype(np.int32)
LARGE_IMAGE = (8, 64, 56, 56)
BOTH = (np.float32, np.float16)

CASES = [
    Case("hard_swish", "HARD_SWISH", functional.hardswish, {"src": 3 * IMAGE},
         {"src": LARGE_IMAGE}),
    Case("gelu", "GELU", functional.gelu, {"src": 2 * IMAGE}, {"src": (8192, 3072)}),
    Case("gelu", "GELU", lambda src: functional.gelu(src, approximate="tanh"), {"src": 2 * IMAGE},
         {"src": (8192, 3072)}, {"Approximate": "tanh"}),
    Case("swiglu", "SWIGLU", swiglu, {"src": normal(5, 14)}, {"src": (4096, 2 * 11008)}),
    Case("rms_norm", "RMS_NORM", rms_norm, {"src": normal(3, 4, 37), "gamma": normal(37, seed=1)},
         {"src": (8, 1024, 4096), "gamma": (4096,)}, {"epsilon": EPSILON}, ("src", "gamma"),
         (np.float32, ml_dtypes.bfloat16)),
    Case("group_norm", "GROUP_NORM",
         lambda src, gamma, beta: functional.group_norm(src, 3, gamma, beta, EPSILON),
         {"src": normal(2, 6, 5, 4), "gamma": normal(6, seed=1), "beta": normal(6, seed=2)},
         {"src": (8, 96, 56, 56), "gamma": (96,), "beta": (96,)},
         {"groups": 3, "epsilon": EPSILON}, ("src", "gamma", "beta")),
    Case("focal_loss", "FOCAL_LOSS", focal_loss, {"logits": 3 * normal(7, 30), "labels": LABELS},
         {"logits": (8, 100_000, 80), "labels": (8, 100_000, 80)}, {}, ("logits",), BOTH, "loss"),
    Case("rotary", "ROTARY", rotary,
         {"src": normal(2, 3, 6, 8), "cosine": np.cos(ANGLES), "sine": np.sin(ANGLES)},
         {"src": (2, 32, 2048, 128), "cosine": (2048, 64), "sine": (2048, 64)}),
    *(
        Case("bicubic", "BICUBIC", resize(sizes), {"src": IMAGE}, {"src": LARGE_IMAGE},
             resized(sizes[0] / 5, sizes[1] / 6), dtypes=BOTH)
        for sizes in ((10, 12), (5, 6), (15, 3))
    ),
    *(
        Case("grid_sample", "GRID_SAMPLE", sample(corners), {"src": IMAGE, "grid": GRID},
             {}, {"AlignCorners": corners}, ("src", "grid"), (np.float32,))
        for corners in (False, True)
    ),
]  # fmt: skip


def name_case(case: Case) -> str:
    return f"{case.file}{dict(case.attributes) or ''}"


def give_gradient(case: Case, arriving: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what there is, what the gradient's table has."""
    table = case.operator(f"{case.name}_GRAD").tensors
    known = {**given, f"diff_{case.output}": arriving}
    return {name: known[name] for name, row in table.items() if row.kind.endswith("nput")}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=name_case)
def test_examples(case: Case, device: str) -> None:
    for dtype in case.dtypes:
        given = case.given(dtype)
        leaves = {n: torch.from_numpy(a.astype(np.float64)) for n, a in given.items()}
        for name in case.wrt:
            leaves[name].requires_grad_()
        theirs = case.forward(*leaves.values())
        sizes = {case.output: tuple(theirs.shape)}
        ours = dmlc.run(case.operator(case.name), given, case.attributes, sizes, device)
        check(ours[case.output], theirs.detach().numpy())
        arriving = normal(*theirs.shape, seed=9, dtype=dtype)
        theirs.backward(torch.from_numpy(arriving.astype(np.float64)))
        wanted = {f"diff_{n}": tuple(leaves[n].shape) for n in case.wrt}
        found = dmlc.run(
            case.operator(f"{case.name}_GRAD"),
            give_gradient(case, arriving, given), case.attributes, wanted, device,
        )  # fmt: skip
        for name in case.wrt:
            gradient = leaves[name].grad
            assert gradient is not None
            check(found[f"diff_{name}"], gradient.numpy())


@pytest.mark.parametrize("case", [c for c in CASES if c.trained], ids=name_case)
def test_no_kernel_of_the_gradient_is_slow(case: Case) -> None:
    """None goes through all places for each, and none has too few lanes at work."""
    for dtype in case.dtypes:
        like = case.given(dtype)
        forward = {n: dmlc.TensorDesc(like[n].dtype, sizes) for n, sizes in case.trained.items()}
        made = case.operator(case.name).bind(forward, case.attributes)
        sizes = made.tensors()[case.output].extents
        arriving = dmlc.TensorDesc(dtype, [e for e in sizes if isinstance(e, int)])
        given = give_gradient(case, arriving, forward)
        wanted = {f"diff_{n}": forward[n] for n in case.wrt}
        function = case.operator(f"{case.name}_GRAD").bind({**given, **wanted}, case.attributes)
        for target in ("hlsl", "opencl"):
            assert dmlc.compile(function, target, profile="gpu").warnings == ()


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("case", [c for c in CASES if c.file != "grid_sample"], ids=name_case)
def test_second_derivatives(case: Case, device: str) -> None:
    """The gradient of the gradient. PyTorch's grid sampling has none."""
    backward = case.operator(f"{case.name}_GRAD")
    given = case.given(np.float32)
    leaves = {n: torch.from_numpy(a.astype(np.float64)) for n, a in given.items()}
    for name in case.wrt:
        leaves[name].requires_grad_()
    theirs = case.forward(*leaves.values())
    arriving = normal(*theirs.shape, seed=9)
    leaf = torch.from_numpy(arriving.astype(np.float64)).requires_grad_()
    first = torch.autograd.grad(theirs, [leaves[n] for n in case.wrt], leaf, create_graph=True)
    read = give_gradient(case, arriving, given)
    by = {n: leaf if n == f"diff_{case.output}" else leaves[n] for n in read}
    by = {n: t for n, t in by.items() if t.requires_grad}
    weights = [normal(*g.shape, seed=10 + k) for k, g in enumerate(first)]
    back = [torch.from_numpy(w.astype(np.float64)) for w in weights]
    second = torch.autograd.grad(first, list(by.values()), back, materialize_grads=True)
    names = {n: f"back_{n}" for n in (*(f"diff_{n}" for n in case.wrt), *by)}
    gradient = dmlc.gradient(backward, wrt=list(by), names=names)
    more = {f"back_diff_{n}": w for n, w in zip(case.wrt, weights, strict=True)}
    sizes = {f"back_{n}": tuple(t.shape) for n, t in by.items()}
    found = dmlc.run(gradient, {**read, **more}, case.attributes, sizes, device)
    for name, expected in zip(by, second, strict=True):
        check(found[f"back_{name}"], expected.numpy())
