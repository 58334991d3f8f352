"""ADAM_OPTIMIZER, against plain NumPy in float64, over several steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.run import DEVICES, Array, check, normal, run, wide

SETTINGS = {"LearningRate": 0.01, "Beta1": 0.9, "Beta2": 0.999, "Epsilon": 1e-8}
STATE = ("Parameters", "FirstMoment", "SecondMoment")


def expect(state: dict[str, Array], gradient: Array, step: int) -> dict[str, Array]:
    """The page's formula, on the values as stored."""
    rate, beta1, beta2, epsilon = (float(np.float32(v)) for v in SETTINGS.values())
    x, m, v, g = (wide(a) for a in (*(state[n] for n in STATE), gradient))
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    alpha = np.sqrt(1 - beta2**step) / (1 - beta1**step)
    return dict(zip(STATE, (x - rate * alpha * m / (np.sqrt(v) + epsilon), m, v), strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_steps(dtype: npt.DTypeLike, device: str) -> None:
    shape = (3, 2, 4, 5)
    zero = np.zeros(shape, dtype)
    state = {"Parameters": normal(*shape, dtype=dtype), "FirstMoment": zero, "SecondMoment": zero}
    for step in (1, 2, 3):
        gradient = normal(*shape, seed=step, dtype=dtype)
        inputs = {f"Input{n}Tensor": state[n] for n in STATE}
        count = np.full((1, 1, 1, 1), step, np.uint32)
        found = run(
            "directml.ADAM_OPTIMIZER",
            {**inputs, "GradientTensor": gradient, "TrainingStepTensor": count},
            SETTINGS,
            device=device,
        )
        expected = expect(state, gradient, step)
        state = {n: found[f"Output{n}Tensor"] for n in STATE}
        for name in STATE:
            check(state[name], expected[name])
