"""Writes the programs of the Direct3D 12 example anew: HLSL, manifests and host code.

python examples/d3d12/generate.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from dmlc import cli

HERE = Path(__file__).resolve().parent
COMMANDS = {
    "ACTIVATION_RELU_GRAD": ["directml.ACTIVATION_RELU_GRAD"],
    "relu_bias_backward": [
        str(HERE / "relu_bias_backward.dml"), "--dim", "N=10000", "--dim", "C=48",
    ],
}  # fmt: skip


def write(folder: Path, *options: str) -> int:
    """Compiles the programs, each into a folder of its own. Gives the exit status."""
    for name, subject in COMMANDS.items():
        arguments = [*subject, "--target", "hlsl", "--host", "cpp", "-o", str(folder / name)]
        status = cli.run(["compile", *arguments, *options])
        if status:
            return status
    return 0


def main(folder: Path) -> int:
    status = write(folder)
    for name in COMMANDS:
        for binary in [*(folder / name).glob("*.dxil"), *(folder / name).glob("*.spv")]:
            binary.unlink()  # The build makes its own.
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else HERE / "generated"))
