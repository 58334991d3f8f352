"""Custom operators for ONNX Runtime: a wheel of dmlc exports them, CMake builds them, and models
run through them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dmlc.scalars import Array
from docs import build
from tests.peers.installing import make_environment, run

EXAMPLES = build.ROOT / "examples"
PAGE = (build.ROOT / "docs/how-to/onnxruntime.md").read_text("utf-8")
EXPORTS, BUILD, USE = (
    re.findall(r"^```(?:sh|py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
)  # fmt: skip
X = np.random.default_rng(0).normal(size=(3, 70_001)).astype(np.float32)
QUARTER = np.array(0.25, np.float32)
G = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of all exports, by a dmlc that is installed from a wheel."""
    folder = tmp_path_factory.mktemp("plugin")
    python, _ = make_environment(folder / "new", Path(sys.prefix), wheel)
    for name in ("silu.dml", "hard_swish_grad.dml"):
        (folder / name).write_text((EXAMPLES / name).read_text("utf-8"), "utf-8")
    more = ("hard_swish_grad.dml", "directml.ACTIVATION_LEAKY_RELU --open Alpha")
    exports = [f"dmlc export {each} --to ort-plugin -o plugin" for each in more]
    for command in (*EXPORTS.splitlines(), *exports):
        run(python, "-m", *command.split(), cwd=folder)
    run("bash", "-ec", BUILD, cwd=folder)
    return folder / "plugin/build/dmlc_ort.so"


def open_session(
    library: Path,
    operator: str,
    inputs: Sequence[str],
    element: int = TensorProto.FLOAT,
    **attributes: object,
) -> onnxruntime.InferenceSession:
    """A session of a model with one node."""
    node = helper.make_node(operator, inputs, ["y"], domain="dmlc", **attributes)
    given = [helper.make_tensor_value_info(name, element, None) for name in inputs]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("dmlc", 1)]
    graph = helper.make_graph([node], "one", given, [result])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def hard_swish_grad(x: Array, g: Array) -> Array:
    inside = (x > -3) & (x < 3)
    return g * np.where(inside, x / 3 + 0.5, x >= 3)


def silu_grad(x: Array, g: Array) -> Array:
    gate = 1 / (1 + np.exp(-x))
    return g * gate * (1 + x * (1 - gate))


@pytest.mark.parametrize(
    ("operator", "inputs", "wanted"),
    [
        ("ACTIVATION_RELU_GRAD", {"x": X, "g": G}, np.where(X > 0, G, 0)),
        ("ACTIVATION_RELU_GRAD", {"x": X[:0], "g": G[:0]}, X[:0]),
        ("HARD_SWISH_GRAD", {"x": X[:, :5], "g": G[:, :5]}, hard_swish_grad(X, G)[:, :5]),
        ("SILU_GRAD", {"x": X[0], "g": G[0]}, silu_grad(X, G)[0]),
        ("ACTIVATION_SOFTMAX", {"x": X}, softmax(X)),
        ("ACTIVATION_LEAKY_RELU", {"x": X, "a": QUARTER}, np.where(X > 0, X, X / 4)),
    ],
)
def test_models_run(
    library: Path, operator: str, inputs: Mapping[str, Array], wanted: Array
) -> None:
    session = open_session(library, operator, list(inputs))
    given = {name: array.copy() for name, array in inputs.items()}
    for _ in range(2):  # The second run has the buffers of the first.
        (found,) = session.run(None, given)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


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
from tests.peers.test_ort_plugin import open_session
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
