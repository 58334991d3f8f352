"""`python -m benchmarks.torch_models`: training steps of parts of models, by backend.

A step is a forward and a backward pass, from inputs and parameters without gradients. Eager, the
backend `inductor` (which needs a C++ compiler) and the backend `dmlc` are timed in one process,
interleaved; `inductor` and `dmlc` are held to eager's results and gradients first.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

import dmlc.torch.backend
from benchmarks.measure import measure, sample
from benchmarks.table import show_rows

BACKENDS = ("eager", "inductor", dmlc.torch.backend.NAME)


class ResidualBlock(nn.Module):
    """Two normalizations with what lies between them, and a sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + y)


class GeluNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(functional.gelu(x))


class RmsSilu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.norm(x))


class CrossEntropy(nn.Module):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, labels)


class ResNetBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        convolve = functools.partial(nn.Conv2d, channels, channels, 3, padding=1, bias=False)
        self.convolutions = nn.ModuleList(convolve() for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norms[0](self.convolutions[0](x)))
        return functional.relu(self.norms[1](self.convolutions[1](y)) + x)


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


NEAR = 1e-4
"""How far a backend may be from eager: sums of 100,000 terms differ by more than small ones."""

Made = tuple[nn.Module, list[torch.Tensor]]


def make(name: str, large: bool = True) -> Made:
    """A model by its name, with its inputs. Its scales and biases are no ones and zeros: the
    gradient of a scale would come to nothing where a normalization follows."""
    model, inputs = _make(name, large)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 0.7, 0.2)
    return model, inputs


def _make(name: str, large: bool) -> Made:
    match name:
        case "residual block":
            sizes = (32, 64, 56, 56) if large else (4, 8, 9, 7)
            return ResidualBlock(sizes[1]), [torch.randn(sizes), torch.randn(sizes)]
        case "GELU and layer norm":
            sizes = (4096, 1024) if large else (48, 64)
            return GeluNorm(sizes[1]), [torch.randn(sizes)]
        case "RMS norm and SiLU":
            sizes = (4096, 1024) if large else (48, 64)
            return RmsSilu(sizes[1]), [torch.randn(sizes)]
        case "cross entropy":
            rows, classes = (1024, 32000) if large else (48, 51)
            labels = torch.randint(classes, (rows,))
            # One of them is that which is ignored.
            labels[7] = -100
            return CrossEntropy(), [torch.randn(rows, classes), labels]
        case "ResNet block":
            sizes = (16, 64, 56, 56) if large else (4, 8, 9, 7)
            return ResNetBlock(sizes[1]), [torch.randn(sizes)]
        case "transformer block":
            sizes, heads = ((4, 128, 512), 8) if large else ((2, 16, 64), 4)
            return TransformerBlock(sizes[2], heads), [torch.randn(sizes)]
        case _:
            raise ValueError(f"no model is called {name!r}")


MODELS = (
    "residual block", "GELU and layer norm", "RMS norm and SiLU", "cross entropy", "ResNet block",
    "transformer block",
)  # fmt: skip


def train(
    run: Callable[..., torch.Tensor], model: nn.Module, inputs: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The result, the gradients and the buffers after a step."""
    for parameter in (*model.parameters(), *inputs):
        parameter.grad = None
    y = run(*inputs)
    y.backward(_gradient_like(y.shape, y.dtype))
    found = {"result": y.detach()}
    found |= {f"input {k}": x.grad for k, x in enumerate(inputs) if x.grad is not None}
    found |= {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return found | dict(model.named_buffers())


@functools.cache
def _gradient_like(sizes: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(5)).to(dtype)


def find_difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of a tensor's elements, in parts of the tensor's largest."""
    worst = 0.0
    for name, value in expected.items():
        largest = max(float(value.abs().max()), 0.1)
        worst = max(worst, float((found[name] - value).abs().max()) / largest)
    return worst


def time_model(name: str, rounds: int) -> dict[str, float]:
    """Seconds of a step by backend."""
    torch.manual_seed(0)
    model, inputs = make(name)
    for x in inputs:
        x.requires_grad_(x.is_floating_point())
    runs: dict[str, Callable[[], object]] = {}
    expected: dict[str, torch.Tensor] = {}
    for backend in BACKENDS:
        torch._dynamo.reset()
        own = copy.deepcopy(model)
        run = own if backend == "eager" else torch.compile(own, backend=backend, fullgraph=True)
        found = {k: v.clone() for k, v in train(run, own, inputs).items()}
        if not expected:
            expected = found
        apart = find_difference(found, expected)
        print(f"{name}: {backend} is {apart:.1e} from eager", flush=True)
        if apart > NEAR:
            raise SystemExit(f"{backend} gives something else than eager for the {name}")
        runs[backend] = functools.partial(train, run, own, inputs)
    return measure({n: functools.partial(sample, r, 1) for n, r in runs.items()}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_models")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=21, help="rounds per model (default 21)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = {name: time_model(name, arguments.rounds) for name in arguments.model}
    print(show_rows("forward and backward", rows, "inductor"))


if __name__ == "__main__":
    main()
