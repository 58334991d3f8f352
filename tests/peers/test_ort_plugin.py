"""Custom operators for ONNX Runtime: a wheel of dmlc exports them, CMake builds them, and models
run through them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import dmlc
from dmlc.files import write_files
from dmlc.interop.export import DOMAIN
from dmlc.interop.ort_plugin import export_files
from dmlc.program import KernelSource
from dmlc.runtime import hlsl
from dmlc.scalars import Array
from docs import build
from tests.interop.d3d12 import runner
from tests.interop.d3d12.compiler import CXX, FOLDER, write_stubs
from tests.peers import ort_models
from tests.peers.installing import make_environment, run
from tests.peers.ort_models import (
    CASES,
    DOMAINS,
    EXAMPLES,
    EXPORTS,
    X,
    check,
    list_functions,
    open_session,
    silu_grad,
)

FILES = build.ROOT / "examples"
PAGE = (build.ROOT / "docs/how-to/onnxruntime.md").read_text("utf-8")
COMMANDS, BUILD, USE = (
    re.findall(r"^```(?:sh|py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)  # fmt: skip
PREFIX = "dmlc export "
SUFFIX = " --to ort-plugin -o plugin"


@pytest.fixture(scope="module")
def exported(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all exports, by a dmlc that is installed from a wheel."""
    folder = tmp_path_factory.mktemp("plugin")
    python, _ = make_environment(folder / "new", Path(sys.prefix), wheel)
    for name in EXAMPLES:
        (folder / name).write_text((FILES / name).read_text("utf-8"), "utf-8")
    of_page = [line.removeprefix(PREFIX).removesuffix(SUFFIX) for line in COMMANDS.splitlines()]
    assert set(of_page) < set(EXPORTS)
    for each in EXPORTS:
        run(python, "-m", *f"{PREFIX}{each}{SUFFIX}".split(), cwd=folder)
    return folder / "plugin"


@pytest.fixture(scope="module")
def library(exported: Path) -> Path:
    """The library of all exports, for OpenCL."""
    run("bash", "-ec", BUILD, cwd=exported.parent)
    return exported / "build/dmlc_ort.so"


@pytest.mark.parametrize(("operator", "inputs", "wanted"), CASES)
def test_models_run(
    library: Path, operator: str, inputs: Mapping[str, Array], wanted: Array
) -> None:
    check(library, operator, inputs, wanted)


def test_models_run_on_direct3d_12(tmp_path: Path) -> None:
    """On the mock of Direct3D 12, which checks states and root arguments, and has Vulkan compute
    each launch. In a process of its own: the mock ends it at the first mistake."""
    kernels: dict[bytes, KernelSource] = {}
    for function, operator in list_functions():
        domain = DOMAINS.get(function.name, DOMAIN)
        export = export_files(function, operator, domain=domain)
        assert not export.notes
        write_files(tmp_path, export.files)
        program = dmlc.compile(function, "hlsl", root_signature=False)
        made = hlsl.compile_files(program)
        kernels |= {made[f"{kernel.name}.dxil"]: kernel for kernel in program.kernels}
    write_stubs(tmp_path)
    (tmp_path / "mock.cpp").write_text('#include "mock_d3d12.hpp"\n', "utf-8")
    library, said = tmp_path / "plugin.so", tmp_path / "said.txt"
    folders = (f"-I{tmp_path}", f"-I{FOLDER}", "-include", "uuids.hpp")
    sources = ("dmlc_plugin.cpp", "dmlc_d3d12.cpp", "mock.cpp")
    operators = sorted(tmp_path.glob("*.op.cpp"))
    run(
        *CXX, "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-DDMLC_D3D12", *folders,
        "-o", library, *(tmp_path / name for name in sources), *operators, cwd=tmp_path,
    )  # fmt: skip
    names = [function.name for function, _ in list_functions()]
    command = [sys.executable, "-m", ort_models.__name__, str(library), *names]
    assert runner.run(command, kernels, said) == 0, said.read_text("utf-8")[-2000:]
    assert said.read_text("utf-8").count(" is right\n") == len(names) + 1


def test_the_page_runs(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(library.parents[2])
    names: dict[str, Array] = {}
    exec(USE, names)
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(names["found"], silu_grad(ones, ones), rtol=1e-6)


def test_wrong_arrays_are_refused(library: Path) -> None:
    grad = open_session(library, "ACTIVATION_RELU_GRAD", ["x", "g"])
    said = r"ACTIVATION_RELU_GRAD: the input InputGradientTensor has the shape \[2\], and others"
    with pytest.raises(Exception, match=said):
        grad.run(None, {"x": X[0, :3], "g": X[0, :2]})
    whole = open_session(library, "ACTIVATION_SOFTMAX", ["x"])
    with pytest.raises(Exception, match=r"the shape \[3\], 1 axes, and the kernels take 2"):
        whole.run(None, {"x": X[0, :3]})
    with pytest.raises(Exception, match="do not take these sizes: N = 0, C = 70001"):
        whole.run(None, {"x": X[:0]})


def test_wrong_models_are_refused(library: Path) -> None:
    with pytest.raises(Exception, match=r"of input parameter .* is invalid"):
        open_session(library, "ACTIVATION_SOFTMAX", ["x"], TensorProto.DOUBLE)
    with pytest.raises(Exception, match="the node gives the attribute 'Alpha', whose value is"):
        open_session(library, "HARD_SWISH_GRAD", ["x", "g"], Alpha=0.5)


_OPEN = """
import sys
from pathlib import Path
from tests.peers.ort_models import open_session
open_session(Path(sys.argv[1]), "ACTIVATION_SOFTMAX", ["x"])
"""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DMLC_OPENCL_DEVICE", "none such", "'none such', and no OpenCL device has that in its"),
        ("OCL_ICD_VENDORS", "/nowhere", "there is no OpenCL device on this machine: install"),
    ],
)
def test_a_missing_device_is_told(
    library: Path, name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: a device is chosen once."""
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{build.ROOT}:{':'.join(sys.path)}")
    command = [sys.executable, "-c", _OPEN, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
