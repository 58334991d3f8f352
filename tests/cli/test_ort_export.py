"""`dmlc export --to ort-plugin`: operators as files of one library."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Dmlc


def test_the_command(dmlc: Dmlc) -> None:
    """Operators of one folder become one library. Without bindings, shapes are open."""
    for name in ("directml.ACTIVATION_RELU", "directml.ACTIVATION_TANH"):
        found = dmlc("export", name, "--to", "ort-plugin", "-o", "out")
        assert found.status == 0
        assert "cmake --build build" in found.err
    assert {path.name for path in Path("out").iterdir()} == {
        "ACTIVATION_RELU.op.cpp", "ACTIVATION_TANH.op.cpp", "CMakeLists.txt", "dmlc_plugin.hpp",
        "dmlc_plugin.cpp",
    }  # fmt: skip
    assert "n, // the number of elements" in Path("out/ACTIVATION_TANH.op.cpp").read_text("utf-8")
    found = dmlc("export", "directml.GEMM", "--to", "ort-plugin", "-o", "out")
    assert found.status == 1
    assert "ATensor" in found.err
