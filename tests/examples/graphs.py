"""The example graphs, and arrays to run them on, for the tests here and those against PyTorch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import dmlc
from dmlc.binding import Graph
from dmlc.scalars import Array

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "graphs"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.dml")))

SIZES: Mapping[str, Mapping[str, int]] = {
    "adam_clipped": {"A": 8, "B": 3, "C": 3, "D": 5},
    "conv_net_training_step": {"N": 5, "C": 2, "H": 4, "W": 3, "F": 6, "K": 7},
    "gelu_mlp_backward": {"N": 37, "F": 24},
    "gelu_mlp_training_step": {"N": 19, "D": 12, "F": 16, "K": 5},
    "relu_batch_norm_backward": {"N": 4, "C": 6, "H": 7, "W": 5},
    "residual_block_backward": {"N": 4, "C": 6, "H": 7, "W": 5},
    "sgd_momentum": {"M": 13, "K": 21},
    "softmax_cross_entropy_backward": {"N": 19, "K": 10},
    "unet_decoder_backward": {"N": 2, "C": 3, "S": 4, "H": 5, "W": 6},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph, its symbols and its inputs."""

    graph: Graph
    dims: Mapping[str, int]
    inputs: Mapping[str, Array]

    def run(self, device: str) -> dict[str, Array]:
        """The outputs; symbols are worked out from the arrays where they can be."""
        stated = {"C": self.dims["C"]} if self.graph.name == "unet_decoder_backward" else {}
        return dmlc.run(self.graph, self.inputs, device=device, dims=stated)


@functools.cache
def load(name: str) -> Graph:
    """The graph of an example file."""
    return dmlc.load(FOLDER / f"{name}.dml").graphs[name]


def make_case(name: str, seed: int = 0) -> Case:
    """An example graph with normally distributed inputs of small sizes."""
    graph, dims = load(name), SIZES[name]
    random = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for parameter in graph.bind(dims=dims).parameters:
        sizes = tuple(e for e in parameter.extents if isinstance(e, int))
        array = random.standard_normal(sizes).astype(parameter.dtype.dtype)
        match parameter.name:
            case "labels":
                array = random.integers(0, dims["K"], sizes).astype(np.int32)
            case "step":
                array = np.full(sizes, 3, np.uint32)
            case "variance" | "second" | "v_w1" | "v_b1" | "v_w2" | "v_b2":
                array = np.abs(array) + np.float32(0.1)
            case "rate":
                array = np.full(sizes, 0.05, np.float32)
            case _:
                pass
        inputs[parameter.name] = array
    return Case(graph, dims, inputs)
