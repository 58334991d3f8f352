"""Attributes that are left open until kernels run: inputs of one element, in no shader a number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import cli
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import DmlcError

STATISTICS = ("MeanTensor", "VarianceTensor", "ScaleTensor", "BiasTensor")
MOMENTS = ("InputParametersTensor", "InputFirstMomentTensor", "InputSecondMomentTensor",
           "GradientTensor")  # fmt: skip
SETTINGS = {"Beta1": 0.5, "Beta2": 0.75, "Epsilon": 1e-3, "WeightDecay": 0.5}


def bind_norm(epsilon: object, rows: int | str = "N") -> dmlc.ir.Function:
    whole = dmlc.TensorDesc("FLOAT32", (rows, 4, 5, 6))
    each = dict.fromkeys(STATISTICS, dmlc.TensorDesc("FLOAT32", (1, 4, 1, 1)))
    attributes = {"Spatial": True, "Epsilon": epsilon}
    return dmlc.operator("directml.BATCH_NORMALIZATION").bind(
        {"InputTensor": whole, **each}, attributes
    )


def bind_step(rate: object, attributes: Mapping[str, object] = SETTINGS) -> dmlc.ir.Function:
    tensors: dict[str, dmlc.TensorDesc] = {n: dmlc.TensorDesc("FLOAT32", (8,)) for n in MOMENTS}
    tensors["TrainingStepTensor"] = dmlc.TensorDesc("UINT32", (1,))
    given = {**attributes, "LearningRate": rate}
    return dmlc.operator("training.ADAMW").bind(tensors, given)


def draw_norm() -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    found = {n: numbers.uniform(0.1, 1, (1, 4, 1, 1)).astype(np.float32) for n in STATISTICS}
    return {"InputTensor": numbers.standard_normal((3, 4, 5, 6)).astype(np.float32), **found}


@pytest.mark.parametrize("device", ["reference", "opencl", "vulkan"])
def test_one_function_for_all_values(device: str) -> None:
    function, inputs = bind_norm(dmlc.OPEN), draw_norm()
    for epsilon in (0.5, 1e-5):
        wanted = evaluate(bind_norm(epsilon, 3), inputs)["OutputTensor"]
        given = {**inputs, "Epsilon": np.array(epsilon, np.float32)}
        got = dmlc.run(function, given, device=device)["OutputTensor"]
        assert np.allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_learning_rate_is_in_no_shader() -> None:
    function = bind_step(dmlc.OPEN)
    assert dmlc.ir.parse(str(function)) == function
    numbers = np.random.default_rng(0)
    inputs: dict[str, Array] = {n: numbers.uniform(0.1, 1, 8).astype(np.float32) for n in MOMENTS}
    inputs["TrainingStepTensor"] = np.array([3], np.uint32)
    for rate in (0.5, 0.125):
        wanted = evaluate(bind_step(rate), inputs)["OutputParametersTensor"]
        given = {**inputs, "LearningRate": np.array(rate, np.float32)}
        got = dmlc.run(function, given, device="opencl")["OutputParametersTensor"]
        assert np.allclose(got, wanted, rtol=1e-5)
    for target in ("hlsl", "opencl", "wgsl"):
        program = dmlc.compile(function, target)
        (rate_said,) = (t for t in program.manifest()["tensors"] if t["name"] == "LearningRate")
        assert (rate_said["role"], rate_said["sizes"], rate_said["bytes"]) == ("input", [], 4)


def test_runs_of_any_size_take_them_too() -> None:
    given = {"InputTensor": dmlc.TensorDesc("FLOAT16")}
    function = dmlc.operator("directml.ACTIVATION_LEAKY_RELU").bind(given, {"Alpha": dmlc.OPEN})
    inputs = {"InputTensor": np.array([-1, 2, -4], np.float16), "Alpha": np.array(0.25, np.float32)}
    for device in ("reference", "opencl", "vulkan"):
        got = dmlc.run(function, inputs, device=device)["OutputTensor"]
        assert got.tolist() == [-0.25, 2, -1]


def test_what_has_to_be_known_is_refused() -> None:
    with pytest.raises(DmlcError, match="'Spatial' is no FLOAT: no other is left open"):
        dmlc.operator("directml.BATCH_NORMALIZATION").bind({}, {"Spatial": dmlc.OPEN})
    # A condition on its value cannot be held to what a host gives.
    with pytest.raises(DmlcError, match="'Epsilon' is left open until kernels run, and this needs"):
        bind_step(0.5, {**SETTINGS, "Epsilon": dmlc.OPEN})
    gradient = next(
        name
        for name in dmlc.operators()
        if (found := dmlc.operator(name)).definition.gradient is not None
        and any(a.base == "FLOAT" for a in found.definition.attributes)
    )
    open_one = next(
        a.name for a in dmlc.operator(gradient).definition.attributes if a.base == "FLOAT"
    )
    with pytest.raises(DmlcError, match="is one of a gradient that is derived"):
        dmlc.operator(gradient).bind({}, {open_one: dmlc.OPEN})


def test_the_command_line_leaves_attributes_open(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "directml.ACTIVATION_LEAKY_RELU", "--open", "Alpha", "--target", "hlsl"]
    assert cli.run([*command, "--host", "cpp"]) == 0
    assert '{"Alpha", Role::input, "FLOAT32", 4, 0,' in capsys.readouterr().out
    assert cli.run([*command, "--attr", "Alpha=3"]) != 0
    assert "'Alpha' has a value by --attr" in capsys.readouterr().err
    assert cli.run([*command, "--open", "Alpa"]) != 0
    assert "did you mean 'Alpha'?" in capsys.readouterr().err
