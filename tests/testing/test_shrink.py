"""Shrinking a case: to the smallest that fails, within the tries."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc
from dmlc.testing.case import Call, Case, lay_out
from dmlc.testing.shrink import shrink

SCALED = """operator SCALED {
    attributes {
        | Attribute | Type        | Default          |
        | Rank      | UINT        | x.DimensionCount |
        | Factor    | FLOAT       | 1                |
        | Offsets   | FLOAT[Rank] |                  |
    }
    tensors {
        | Tensor | Kind           | Ranks  | Types |
        | x      | Input          | 1 to 4 | f32   |
        | bias   | Optional input | 1 to 4 | f32   |
        | y      | Output         | 1 to 4 | f32   |
    }
    constraints {
        x and y must have the same Sizes.
        bias must be broadcastable to x.
    }
    compute {
        y = x * Factor + (present(bias) ? bias : 0)
    }
}
"""


def make_case() -> Case:
    operator = dmlc.parse(SCALED).operators["SCALED"]
    desc = TensorDesc("FLOAT32", (4, 5, 6), (40, 8, 1))
    bias = TensorDesc("FLOAT32", (1, 5, 1))
    values = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    values[2, 3, 4] = np.nan
    call = Call(
        operator,
        {"x": desc, "bias": bias, "y": TensorDesc("FLOAT32", (4, 5, 6))},
        {"Factor": 2.5, "Offsets": [1.0, 2.5, 3.0]},
    )
    assert call.function is not None
    inputs = {"x": lay_out(values, desc), "bias": np.ones((1, 5, 1), np.float32)}
    return Case(call, inputs, "drawn")


def test_all_that_does_not_matter_is_left_out() -> None:
    """A NaN is what makes it fail, wherever it is and whatever stands around it."""
    found = shrink(make_case(), lambda case: bool(np.isnan(case.inputs["x"]).any()))
    assert str(found.call) == "x=FLOAT32[1] y=FLOAT32[1] Offsets=0.0"
    np.testing.assert_array_equal(found.inputs["x"], [np.nan])


def test_what_matters_is_kept() -> None:
    def fails(case: Case) -> bool:
        x, wide = case.inputs["x"], case.call.tensors["x"]
        factor = case.call.attributes.get("Factor", 1)
        return x.shape[-1] > 2 and wide.strides is not None and factor != 0

    found = shrink(make_case(), fails)
    x = found.call.tensors["x"]
    assert x.sizes == (3,)
    assert x.strides is not None
    assert found.call.attributes == {"Offsets": [0.0]}
    np.testing.assert_array_equal(found.inputs["x"], [0, 0, 0])
    assert list(found.inputs) == ["x"]


def test_the_elements_that_matter_are_the_last_to_go() -> None:
    def fails(case: Case) -> bool:
        return np.count_nonzero(case.inputs["x"] > 1) >= 2

    found = shrink(make_case(), fails)
    assert str(found.call) == "x=FLOAT32[2] y=FLOAT32[2] Offsets=0.0"
    # One is rounded up; the other would be rounded to 1.
    assert max(found.inputs["x"]) == 2


@pytest.mark.parametrize("tries", [0, 1, 7])
def test_tries_are_bounded(tries: int) -> None:
    seen: list[Case] = []

    def fails(case: Case) -> bool:
        seen.append(case)
        return False

    case = make_case()
    assert shrink(case, fails, tries=tries) is case
    assert len(seen) == tries
    assert shrink(case, fails, seconds=0.0) is case


def test_every_step_is_a_call_that_is_permitted() -> None:
    sizes: list[int] = []

    def fails(case: Case) -> bool:
        assert case.call.function is not None
        for name, desc in case.call.inputs.items():
            assert case.inputs[name].shape == desc.sizes
        sizes.append(case.inputs["x"].size)
        return len(sizes) % 3 == 0

    shrink(make_case(), fails)
    assert len(sizes) > 20
