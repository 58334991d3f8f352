"""`python -m benchmarks.torch_networks`: training steps of whole networks, by backend.

Eleven networks of the kinds that are trained: convolutional, recurrent, attention, and mixed. A
step is a forward and a backward pass, from inputs and parameters without gradients. Eager, the
backend `inductor` (which needs a C++ compiler) and the backend `dmlc` are timed in one process,
interleaved, by the wall clock and by the processor's time, with what the first step takes, how far
results, gradients and buffers are from eager's, and which operators `dmlc` leaves to eager and why.
`inductor` draws other random numbers than eager, so that networks with dropout differ. At the end
comes the table of docs/how-to/pytorch.md: each median of the wall clock as a ratio to eager's.
"""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import nn
from torch.nn import functional

from benchmarks.table import lay_out
from benchmarks.torch_models import find_difference, train
from dmlc.torch.backend import Backend

Made = tuple[nn.Module, list[torch.Tensor]]


def _convolve(given: int, made: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _convolve(given, made, 3, stride), _convolve(made, made)
        self.norms = nn.ModuleList(nn.BatchNorm2d(made) for _ in range(2))
        self.short = nn.Sequential()
        if stride != 1 or given != made:
            self.short = nn.Sequential(_convolve(given, made, 1, stride), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        given = width
        for k in range(4):
            made = width << k
            layers += [BasicBlock(given, made, 1 + (k > 0)), BasicBlock(made, made, 1)]
            given = made
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 10)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class EncoderDecoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width]
        self.down = nn.ModuleList(
            nn.Sequential(_convolve(a, b, 3, 2), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in itertools.pairwise(sizes)
        )
        self.up = nn.ModuleList(
            nn.Sequential(_convolve(b, a), nn.BatchNorm2d(a), nn.ELU())
            for a, b in reversed(list(zip([width, *sizes[1:]], sizes[1:], strict=False)))
        )
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.down:
            x = layer(x)
        for layer in self.up:
            x = layer(functional.interpolate(x, scale_factor=2, mode="bilinear"))
        return torch.sigmoid(self.last(x))


class InvertedResidual(nn.Module):
    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        wide = 4 * given
        self.adds = stride == 1 and given == made
        self.layers = nn.Sequential(
            _convolve(given, wide, 1), nn.BatchNorm2d(wide), nn.Hardswish(),
            _convolve(wide, wide, 3, stride, wide), nn.BatchNorm2d(wide), nn.Hardswish(),
        )  # fmt: skip
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide // 4, 1), nn.ReLU(),
            nn.Conv2d(wide // 4, wide, 1), nn.Hardsigmoid(),
        )  # fmt: skip
        self.last = nn.Sequential(_convolve(wide, made, 1), nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        y = self.last(y * self.squeeze(y))
        return x + y if self.adds else y


class MobileNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _convolve(3, width, 3, 2), nn.BatchNorm2d(width), nn.Hardswish(),
            InvertedResidual(width, width, 1), InvertedResidual(width, 2 * width, 2),
            InvertedResidual(2 * width, 2 * width, 1), InvertedResidual(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * width, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def _double(given: int, made: int) -> nn.Module:
    return nn.Sequential(
        _convolve(given, made), nn.GroupNorm(4, made), nn.SiLU(),
        _convolve(made, made), nn.GroupNorm(4, made), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double(3, width), _double(width, 2 * width)])
        self.middle = _double(2 * width, 4 * width)
        self.up = nn.ModuleList([_double(6 * width, 2 * width), _double(3 * width, width)])
        self.drop = nn.Dropout2d(0.1)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for layer in self.down:
            kept.append(layer(x))
            x = functional.max_pool2d(kept[-1], 2)
        x = self.drop(self.middle(x))
        for layer in self.up:
            x = layer(torch.cat([functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.last(x)


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        x = x + functional.dropout(mixed, self.dropout, self.training)
        y = self.down(functional.gelu(self.up(self.norms[1](x))))
        return x + functional.dropout(y, self.dropout, self.training)


class VisionTransformer(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // 8) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, 4, False, 0.0) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class LanguageModel(nn.Module):
    def __init__(self, words: int, width: int, length: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4, True, 0.1) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        y = self.head(self.norm(self.blocks(functional.dropout(y, 0.1, self.training))))
        return functional.cross_entropy(y[:, :-1].flatten(0, 1), x[:, 1:].flatten())


class Recurrent(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, 1, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.layers(self.words(x))
        return functional.cross_entropy(self.head(y[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


class Mixer(nn.Module):
    """Products over places and over channels in turn."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(6))
        self.up = nn.ModuleList(nn.Linear(n, 2 * n) for _ in range(3) for n in (places, width))
        self.down = nn.ModuleList(nn.Linear(2 * n, n) for _ in range(3) for n in (places, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, (norm, up, down) in enumerate(zip(self.norms, self.up, self.down, strict=True)):
            y = norm(x)
            y = y if k % 2 else y.transpose(1, 2)
            y = down(functional.gelu(up(y)))
            x = x + (y if k % 2 else y.transpose(1, 2))
        return self.head(x.mean(1))


class VariationalAutoencoder(nn.Module):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(size, width), nn.Softplus(), nn.Dropout(0.1))
        self.mean, self.spread = nn.Linear(width, 32), nn.Linear(width, 32)
        self.decode = nn.Sequential(nn.Linear(32, width), nn.Softplus(), nn.Linear(width, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.encode(x)
        mean, spread = self.mean(y), self.spread(y).clamp(-6, 2)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        apart = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1)
        target = torch.sigmoid(x)
        lost = functional.binary_cross_entropy_with_logits(self.decode(code), target)
        return lost + 0.001 * apart.mean()


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(*(ConvNextBlock(width) for _ in range(3)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class RadianceField(nn.Module):
    """Points on rays to densities and colours, and these to what a ray shows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(39, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = [wave(x * 2.0**k) for k in range(6) for wave in (torch.sin, torch.cos)]
        y = self.layers(torch.cat([x, *waves], -1))
        opaque = 1 - torch.exp(-functional.softplus(y[..., 3]) * 0.1)
        left = torch.cumprod(1 - opaque + 1e-6, 1)
        seen = torch.cat([torch.ones_like(left[:, :1]), left[:, :-1]], 1)
        return ((opaque * seen).unsqueeze(-1) * torch.sigmoid(y[..., :3])).sum(1)


def _images(count: int, size: int) -> list[torch.Tensor]:
    return [torch.randn(count, 3, size, size)]


NETWORKS: Mapping[str, tuple[Callable[[], Made], Callable[[], Made]]] = MappingProxyType({
    "ResNet-18": (
        lambda: (ResNet18(64), _images(4, 96)), lambda: (ResNet18(4), _images(2, 64)),
    ),
    "encoder-decoder": (
        lambda: (EncoderDecoder(32), _images(4, 96)), lambda: (EncoderDecoder(4), _images(2, 16)),
    ),
    "MobileNet": (
        lambda: (MobileNet(24), _images(8, 96)), lambda: (MobileNet(8), _images(2, 32)),
    ),
    "U-Net": (lambda: (UNet(32), _images(2, 96)), lambda: (UNet(4), _images(2, 16))),
    "vision transformer": (
        lambda: (VisionTransformer(192, 96), _images(4, 96)),
        lambda: (VisionTransformer(16, 32), _images(2, 32)),
    ),
    "language model": (
        lambda: (LanguageModel(2000, 192, 128, 2), [torch.randint(2000, (4, 128))]),
        lambda: (LanguageModel(50, 16, 12, 1), [torch.randint(50, (2, 12))]),
    ),
    "LSTM": (
        lambda: (Recurrent(2000, 128), [torch.randint(2000, (16, 40))]),
        lambda: (Recurrent(50, 16), [torch.randint(50, (3, 6))]),
    ),
    "mixer": (
        lambda: (Mixer(64, 256), [torch.randn(8, 64, 256)]),
        lambda: (Mixer(8, 16), [torch.randn(2, 8, 16)]),
    ),
    "variational autoencoder": (
        lambda: (VariationalAutoencoder(784, 400), [torch.randn(256, 784)]),
        lambda: (VariationalAutoencoder(48, 24), [torch.randn(40, 48)]),
    ),
    "ConvNeXt": (
        lambda: (ConvNext(64), _images(4, 96)), lambda: (ConvNext(8), _images(2, 32)),
    ),
    "radiance field": (
        lambda: (RadianceField(128), [torch.rand(256, 32, 3)]),
        lambda: (RadianceField(16), [torch.rand(20, 8, 3)]),
    ),
})  # fmt: skip
"""Each network with its inputs, as it is timed and small."""

SEED = 3

EAGER = "eager"


def make(name: str, large: bool = True) -> Made:
    torch.manual_seed(0)
    return NETWORKS[name][0 if large else 1]()


def step(
    run: Callable[..., torch.Tensor], model: nn.Module, inputs: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """A step of training with the same random numbers each time."""
    torch.manual_seed(SEED)
    return train(run, model, inputs)


def time_network(
    name: str, backends: Sequence[str], rounds: int, explain: bool
) -> dict[str, float]:
    """Prints what a step takes with each backend. Returns the median seconds of each."""
    model, inputs = make(name)
    own = copy.deepcopy(model)
    runs = {EAGER: functools.partial(step, own, own, inputs)}
    expected = {k: v.clone() for k, v in runs[EAGER]().items()}
    first: dict[str, str] = {}
    eager: collections.Counter[str] = collections.Counter()
    for backend in backends:
        torch._dynamo.reset()
        own = copy.deepcopy(model)
        made = Backend() if backend == "dmlc" else backend
        run = torch.compile(own, backend=made)
        start, busy = time.perf_counter(), time.process_time()
        found = {k: v.clone() for k, v in step(run, own, inputs).items()}
        taken = time.perf_counter() - start, time.process_time() - busy
        apart = find_difference(found, expected)
        runs[backend] = functools.partial(step, run, own, inputs)
        start = time.perf_counter()
        runs[backend]()
        second = time.perf_counter() - start
        first[backend] = (
            f"first {taken[0]:.1f} s (cpu {taken[1]:.1f}), second {second:.1f} s, "
            f"{apart:.0e} from eager"
        )
        if isinstance(made, Backend):
            for report in made.reports:
                eager.update(f"{report.name[0]} {n}: {why}" for n, why in report.eager)
                eager.update(f"eager is faster: {group}" for group in report.slower)
                if report.step is not None:
                    print(f"    {report.name}: a step takes {report.step}")
                if explain:
                    print(report)
    walls: dict[str, list[float]] = {n: [] for n in runs}
    busy_times: dict[str, list[float]] = {n: [] for n in runs}
    for _ in range(rounds):
        for label, each in runs.items():
            time.sleep(0.02)
            each()
            start, busy = time.perf_counter(), time.process_time()
            each()
            walls[label].append(time.perf_counter() - start)
            busy_times[label].append(time.process_time() - busy)
    base = statistics.median(walls[EAGER])
    base_busy = statistics.median(busy_times[EAGER])
    for label in runs:
        wall, busy = statistics.median(walls[label]), statistics.median(busy_times[label])
        print(
            f"{name}: {label}: {wall * 1e3:.1f} ms ({wall / base:.2f}), cpu {busy * 1e3:.1f} ms "
            f"({busy / base_busy:.2f}) {first.get(label, '')}",
            flush=True,
        )
    for reason, count in eager.most_common():
        print(f"    {count} x {reason}")
    return {label: statistics.median(times) for label, times in walls.items()}


def show_ratios(rows: Mapping[str, Mapping[str, float]]) -> str:
    """A Markdown table of the seconds by network and backend, as ratios to eager's."""
    backends = dict.fromkeys(label for times in rows.values() for label in times if label != EAGER)
    cells = [["forward and backward", *backends]]
    for name, times in rows.items():
        cells.append([name, *(f"{times[label] / times[EAGER]:.2f}" for label in backends)])
    return lay_out(cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_networks")
    parser.add_argument("--network", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--backend", nargs="*", default=["inductor", "dmlc"])
    parser.add_argument("--rounds", type=int, default=11, help="rounds per network (default 11)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--explain", action="store_true", help="print dmlc's reports")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = {
        name: time_network(name, given.backend, given.rounds, given.explain)
        for name in given.network
    }
    print(show_ratios(rows))


if __name__ == "__main__":
    main()
