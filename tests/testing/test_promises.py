"""What a device's results are held to follows from what it promises of floats.

The devices are made up: what each gives is the reference's results, with what it may do to
denormals done to them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dmlc import devices, operator
from dmlc.binding import TensorDesc
from dmlc.reference import evaluate
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.scalars import Array, DataType
from dmlc.testing import outcome
from dmlc.testing.case import Call, Case, judge
from dmlc.testing.outcome import Status, check_case

KEEPS = FloatPromises(denormals=(16, 32, 64))
X = np.array([[1e-40, -3e-40, 2e-39, -1e-41], [1e-40, 2.5, -3e-40, 2.5]], np.float32)
"""A row of denormals, and one where some other value decides."""


def make(name: str, output: tuple[int, ...], dtype: str = "FLOAT32", **attributes: object) -> Case:
    tensors = {
        "InputTensor": TensorDesc("FLOAT32", X.shape), "OutputTensor": TensorDesc(dtype, output),
    }  # fmt: skip
    return Case(Call(operator(f"directml.{name}"), tensors, attributes), {"InputTensor": X}, "made")


CASES: Mapping[str, Case] = {
    "ELEMENT_WISE_NEGATE": make("ELEMENT_WISE_NEGATE", X.shape),
    "ELEMENT_WISE_ABS": make("ELEMENT_WISE_ABS", X.shape),
    "ACTIVATION_RELU": make("ACTIVATION_RELU", X.shape),
    "ACTIVATION_HARDMAX1": make("ACTIVATION_HARDMAX1", X.shape, AxisCount=1, Axes=[1]),
    "ARGMAX": make("ARGMAX", (2, 1), "UINT32", AxisCount=1, Axes=[1], AxisDirection="INCREASING"),
    "REDUCE": make("REDUCE", (2, 1), Function="SUM", AxisCount=1, Axes=[1]),
}


def flush(values: Array) -> Array:
    """Zeros of their signs in place of denormals."""
    if values.dtype != np.float32:
        return values
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, values * np.float32(0), values)


def compute(case: Case, x: Array) -> dict[str, Array]:
    return {"OutputTensor": evaluate(case.call.function, {"InputTensor": x})["OutputTensor"]}


def holds(case: Case, results: Mapping[str, Array], floats: FloatPromises) -> bool:
    return all(verdict.holds for verdict in judge(case, results, floats).values())


@pytest.mark.parametrize("name", CASES)
def test_a_device_that_keeps_denormals_may_not_flush_them(name: str) -> None:
    case = CASES[name]
    exact, flushed = compute(case, X), compute(case, flush(X))
    assert not np.array_equal(exact["OutputTensor"], flushed["OutputTensor"])
    assert holds(case, exact, KEEPS)
    assert holds(case, exact, LEAST)
    assert not holds(case, flushed, KEEPS)
    assert holds(case, flushed, LEAST)


@pytest.mark.parametrize("name", CASES)
def test_a_device_that_flushes_denormals_may_do_nothing_else(name: str) -> None:
    """The second row's results are those of its largest value, whatever becomes of others."""
    case = CASES[name]
    for results in (compute(case, X), compute(case, flush(X))):
        wrong = results["OutputTensor"].copy()
        wrong[1] = (wrong[1] == 0) if name == "ACTIVATION_HARDMAX1" else wrong[1] + 1
        assert not holds(case, {"OutputTensor": wrong}, LEAST)


def test_what_moves_keeps_denormals_everywhere() -> None:
    case = make("ELEMENT_WISE_IDENTITY", X.shape)
    assert holds(case, compute(case, X), LEAST)
    assert not holds(case, compute(case, flush(X)), LEAST)


@pytest.mark.parametrize(("floats", "status"), [(LEAST, Status.PASSED), (KEEPS, Status.FAILED)])
def test_the_harness_asks_the_device_for_its_promises(
    floats: FloatPromises, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["ELEMENT_WISE_NEGATE"]

    def run(case: Case, _: str) -> dict[str, Array]:
        return compute(case, flush(X))

    def find(_: str) -> FloatPromises:
        return floats

    monkeypatch.setattr(outcome, "run_case", run)
    monkeypatch.setattr(outcome, "find_promises", find)
    assert check_case(case, "vulkan").status is status


def test_the_reference_promises_all_there_is() -> None:
    found = devices.find_promises("reference")
    assert found.denormals == found.special == (16, 32, 64)
    assert found.find_ulps("div", DataType.FLOAT32) == 0.5
    device = devices.find_device("vulkan")
    assert device is not None
    assert devices.find_promises("vulkan") == device.floats
