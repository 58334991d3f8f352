"""`dmlc export --to ort-plugin`: operators as files of one library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Dmlc


def test_the_command(dmlc: Dmlc) -> None:
    """Operators of one folder become one library. Without bindings, shapes are open."""
    for name in ("directml.ACTIVATION_RELU", "directml.ACTIVATION_TANH"):
        found = dmlc("export", name, "--to", "ort-plugin", "-o", "out")
        assert found.status == 0
        assert "cmake --build build" in found.err
    assert {path.name for path in Path("out").iterdir()} == {
        "ACTIVATION_RELU.op.cpp", "ACTIVATION_RELU.hpp", "ACTIVATION_TANH.op.cpp",
        "ACTIVATION_TANH.hpp", "CMakeLists.txt", "dmlc_d3d12.cpp", "dmlc_d3d12.hpp",
        "dmlc_opencl.cpp", "dmlc_opencl.hpp", "dmlc_plugin.cpp", "dmlc_plugin.hpp",
    }  # fmt: skip
    assert "n, // the number of elements" in Path("out/ACTIVATION_TANH.op.cpp").read_text("utf-8")
    found = dmlc("export", "directml.GEMM", "--to", "ort-plugin", "-o", "out")
    assert found.status == 1
    assert "ATensor" in found.err


def test_without_dxc_it_is_for_opencl_alone(
    dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DMLC_DXC", str(tmp_path / "none.so"))
    found = dmlc("export", "directml.ACTIVATION_RELU", "--to", "ort-plugin", "-o", "out")
    assert found.status == 0
    said = "ACTIVATION_RELU is for OpenCL alone: no DXC was at hand"
    assert f"note: {said}" in found.err
    text = Path("out/ACTIVATION_RELU.op.cpp").read_text("utf-8")
    assert '#error "ACTIVATION_RELU: no DXC was at hand' in text
    assert not Path("out/ACTIVATION_RELU.hpp").exists()


@pytest.mark.parametrize(
    ("domain", "status", "said"),
    [
        ("my.ops", 0, '"my.ops",'),
        ("ai.onnx.ml", 1, "the domain 'ai.onnx.ml' is ONNX Runtime's own"),
        ("com.microsoft", 1, "the domain 'com.microsoft' is ONNX Runtime's own"),
        ('a"b', 1, "is no domain of operators"),
        ("", 1, "is no domain of operators"),
    ],
)
def test_the_domain(dmlc: Dmlc, domain: str, status: int, said: str) -> None:
    arguments = ("directml.ACTIVATION_RELU", "--domain", domain, "-o", "out")
    found = dmlc("export", *arguments, "--to", "ort-plugin")
    assert found.status == status
    text = found.err if status else Path("out/ACTIVATION_RELU.op.cpp").read_text("utf-8")
    assert said in text


def test_the_domain_is_of_this_format_alone(dmlc: Dmlc) -> None:
    for to in ("onnx", "dxdispatch"):
        found = dmlc("export", "directml.GEMM", "--domain", "a", "--to", to, "-o", "out")
        assert found.status == 2
        assert f"--domain says nothing of {to}" in found.err
