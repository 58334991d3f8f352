"""Writes the programs of the Direct3D 12 example anew: HLSL, manifests and host code.

python examples/d3d12/generate.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import dmlc
from dmlc.binding import TensorDesc
from dmlc.interop.cpp_header import header_name, write_header
from dmlc.ir import Function
from dmlc.program import write_programs

HERE = Path(__file__).resolve().parent


def bind_relu() -> Function:
    """Of any number of elements."""
    vector = TensorDesc("FLOAT32")
    relu = dmlc.operator("directml.ACTIVATION_RELU_GRAD")
    return relu.bind({"InputTensor": vector, "InputGradientTensor": vector})


def bind_layer() -> Function:
    layer = dmlc.load(HERE / "relu_bias_backward.dml").graphs["relu_bias_backward"]
    return layer.bind(dims={"N": 10000, "C": 48})


PROGRAMS = {"ACTIVATION_RELU_GRAD": bind_relu, "relu_bias_backward": bind_layer}
"""By the folder that a program is in."""


def make_programs() -> dict[str, dmlc.Program]:
    return {
        name: dmlc.compile(bind(), target="hlsl", root_signature=False)
        for name, bind in PROGRAMS.items()
    }


def main(folder: Path) -> int:
    for name, program in make_programs().items():
        header = {header_name(program): write_header(program).encode()}
        write_programs([program], folder / name, header)  # The build makes its own shaders.
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else HERE / "generated"))
