"""The activations of DirectML: each has one formula, whether it stands alone or is fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from tests.library.run import run

GEMM = dmlc.operator("directml.GEMM")
FUSED = [
    name
    for name in GEMM.attributes["FusedActivation"].values or ()
    if name.startswith("ACTIVATION")
]
"""Every activation that an operator can fuse."""
X = np.array(
    [[-np.inf, -1e4, -88.5, -3, -1e-6, -0.0, 0, 1e-6, 0.5, 3, 1e4, np.inf, np.nan]], np.float32
)
SMOOTH_OR_FUSED = sorted({*FUSED, "ACTIVATION_GELU", "ACTIVATION_SWISH", "ACTIVATION_HARD_SWISH"})
NAN_GIVES_0 = ("ACTIVATION_SHRINK",)
"""Those that give 0 for all that is not beyond a threshold."""


def set_parameters(name: str) -> dict[str, object]:
    """A value for each attribute of an activation, in the order of its table."""
    names = dmlc.operator(f"directml.{name}").attributes
    # A Steepness below 1 counts as 1 where it is fused.
    first = 1.25 if name == "ACTIVATION_SOFTPLUS" else 0.75
    return dict(zip(names, (first, 0.5), strict=False))


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_activation_is_the_operator_itself(name: str) -> None:
    parameters = set_parameters(name)
    fused = {"FusedActivation": name, "FusedActivationParameters": list(parameters.values())}
    x = X[:, 1:-2].T
    given = {"ATensor": x, "BTensor": np.ones((1, 1), np.float32)}
    found = run("directml.GEMM", given, fused)["OutputTensor"]
    alone = run(f"directml.{name}", {"InputTensor": x}, parameters)["OutputTensor"]
    np.testing.assert_array_equal(found, alone)


def test_a_fused_steepness_below_1_is_1() -> None:
    x = X[:, 1:-2].T
    given = {"ATensor": x, "BTensor": np.ones((1, 1), np.float32)}
    for steepness in (0.5, 0.0, -2.0, np.nan):
        fused = {"FusedActivation": "ACTIVATION_SOFTPLUS", "FusedActivationParameters": [steepness]}
        found = run("directml.GEMM", given, fused)["OutputTensor"]
        alone = run("directml.ACTIVATION_SOFTPLUS", {"InputTensor": x}, {"Steepness": 1})
        np.testing.assert_array_equal(found, alone["OutputTensor"])


@pytest.mark.parametrize("name", FUSED)
def test_parameters_of_a_fused_activation_are_its_own_defaults(name: str) -> None:
    attributes = dmlc.operator(f"directml.{name}").attributes
    resolved = GEMM.resolve({"ATensor": (1, 1), "BTensor": (1, 1)}, {"FusedActivation": name})
    found = resolved.attributes["FusedActivationParameters"]
    assert isinstance(found, tuple)
    assert len(found) == len(attributes)
    for value, attribute in zip(found, attributes.values(), strict=True):
        if attribute.default is not None:
            assert value == np.float32(attribute.default)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"FusedActivation": "ACTIVATION_ELU", "FusedActivationParameters": [1, 2]},
         "'FusedActivationParameters' needs 1 values, but has 2"),
        ({"FusedActivationParameters": [1]},
         "'FusedActivationParameters' needs 0 values, but has 1"),
        ({"FusedActivation": "ACTIVATION_SOFTMAX"}, "unknown value 'ACTIVATION_SOFTMAX'"),
    ],
)  # fmt: skip
def test_what_cannot_be_fused_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=message):
        GEMM.resolve({"ATensor": (1, 1), "BTensor": (1, 1)}, attributes)


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("name", SMOOTH_OR_FUSED)
def test_what_nan_gives_and_that_nothing_overflows(name: str, device: str) -> None:
    found = run(f"directml.{name}", {"InputTensor": X}, set_parameters(name), device=device)
    y = found["OutputTensor"]
    assert y[0, -1] == 0 if name in NAN_GIVES_0 else np.isnan(y[0, -1])
    assert np.isfinite(y[0, 1:-2]).all()


def test_small_numbers_keep_their_digits() -> None:
    """e^x - 1 and ln(1 + e^x) computed as they are written would have none of them."""
    x = np.array([-1e-6, -20.0], np.float32)
    wide = x.astype(np.float64)
    for name, expected in (
        ("ELU", np.expm1(wide)),
        ("CELU", np.expm1(wide)),
        ("SOFTPLUS", np.log1p(np.exp(wide))),
    ):
        found = run(f"directml.ACTIVATION_{name}", {"InputTensor": x}, {}, device="opencl")
        np.testing.assert_allclose(found["OutputTensor"], expected, rtol=1e-6)


def test_axes_of_hardmax_may_stand_in_any_order() -> None:
    x = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(np.float32)
    first, second = (
        run("directml.ACTIVATION_HARDMAX1", {"InputTensor": x}, {"Axes": axes})["OutputTensor"]
        for axes in ([0, 2], [2, 0])
    )
    np.testing.assert_array_equal(first, second)
    rows = x.transpose(1, 0, 2).reshape(4, 15)
    expected = np.eye(15, dtype=np.float32)[rows.argmax(1)].reshape(4, 3, 5).transpose(1, 0, 2)
    np.testing.assert_array_equal(first, expected)


@pytest.mark.parametrize("axes", [[1], [2, 0], [0, 1, 2]])
@pytest.mark.parametrize("direction", ["INCREASING", "DECREASING"])
@pytest.mark.parametrize("name", ["ARGMAX", "ARGMIN"])
def test_which_of_equals_a_position_is_of(name: str, direction: str, axes: list[int]) -> None:
    x = np.random.default_rng(1).integers(0, 3, (3, 4, 5)).astype(np.float32)
    attributes = {"Axes": axes, "AxisDirection": direction}
    found = run(f"directml.{name}", {"InputTensor": x}, attributes)["OutputTensor"]
    others = [k for k in range(3) if k not in axes]
    rows = x.transpose(*others, *sorted(axes)).reshape(*(x.shape[k] for k in others), -1)
    pick = np.argmax if name == "ARGMAX" else np.argmin
    last = direction == "DECREASING"
    expected = rows.shape[-1] - 1 - pick(rows[..., ::-1], -1) if last else pick(rows, -1)
    np.testing.assert_array_equal(found.ravel(), expected.ravel())


def test_a_position_among_nothing_is_0() -> None:
    for direction in ("INCREASING", "DECREASING"):
        attributes = {"Axes": [1], "AxisDirection": direction}
        found = run("directml.ARGMAX", {"InputTensor": np.zeros((2, 0), np.float32)}, attributes)
        np.testing.assert_array_equal(found["OutputTensor"], [[0], [0]])
