"""The public face of `dmlc.testing`: its names, its assertions and its strategies."""

from __future__ import annotations

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings

import dmlc
import dmlc.testing
from dmlc import api
from dmlc.runtime.report import Report
from dmlc.scalars import Array
from dmlc.testing import arrays, assert_gradient, assert_matches_reference, bindings
from dmlc.testing.case import Call, Case

CUBE = """
operator CUBE {
    tensors {
        | Tensor | Kind   | Ranks  | Types    |
        | src    | Input  | 1 to 4 | f32, f16 |
        | dst    | Output | 1 to 4 | f32, f16 |
    }
    constraints { src and dst must have the same DataType, DimensionCount, and Sizes. }
    compute { dst = src * src * src }
}
operator CUBE_GRAD {
    forward CUBE
    tensors {
        | Tensor | Kind   | Ranks  | Types    |
        | src    | Input  | 1 to 4 | f32, f16 |
        | d_dst  | Input  | 1 to 4 | f32, f16 |
        | d_src  | Output | 1 to 4 | f32, f16 |
    }
    constraints { src, d_dst, and d_src must have the same DataType, DimensionCount, and Sizes. }
    compute { d_src = 3 * src * src * d_dst }
}
operator CUBE_DERIVED {
    tensors {
        | Tensor | Kind   | Ranks  | Types    |
        | src    | Input  | 1 to 4 | f32, f16 |
        | d_dst  | Input  | 1 to 4 | f32, f16 |
        | d_src  | Output | 1 to 4 | f32, f16 |
    }
    gradient of CUBE with respect to src
}
"""
MODULE = dmlc.parse(CUBE)
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)

settings.register_profile("short", max_examples=15, deadline=None, database=None,
                          suppress_health_check=list(HealthCheck))  # fmt: skip
SHORT = settings.get_profile("short")


# Names ----------------------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    assert dir(dmlc.testing) == sorted(dmlc.testing.__all__)
    for name in dmlc.testing.__all__:
        found = getattr(dmlc.testing, name)
        assert found.__name__ == name
        assert found.__doc__
    with pytest.raises(AttributeError, match=r"module 'dmlc\.testing' has no attribute 'nothing'"):
        _ = dmlc.testing.nothing


def test_without_hypothesis_its_extra_is_named() -> None:
    program = """
import sys
sys.modules["hypothesis"] = None
import dmlc.testing
from dmlc.testing import assert_matches_reference
try:
    dmlc.testing.bindings
except dmlc.UnavailableError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "error: dmlc.testing.bindings needs the Python package 'hypothesis', "
        "which is not installed [E0902]",
        "  note: install it with: pip install 'dmlc[test]'",
    ]


# Assertions -----------------------------------------------------------------------------------


def test_what_is_right_is_given_back() -> None:
    found = assert_matches_reference("onednn.ReLU", {"src": X})
    np.testing.assert_array_equal(found["dst"], np.maximum(X, 0))
    joined = assert_matches_reference(
        "directml.JOIN", {"InputTensors": [X, X]}, {"Axis": 1}, device="reference"
    )
    assert joined["OutputTensor"].shape == (2, 6)
    half = X.T.astype(ml_dtypes.bfloat16)
    out = np.empty((3, 2), half.dtype)
    assert_matches_reference("onednn.ReLU", {"src": half}, outputs={"dst": out})


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(operator: object, inputs: dict[str, Array], *_: object) -> api.Results:
        result = inputs["src"] ** 3
        result[1, 0] += 0.5
        return api.Results({"dst": result}, Report("reference"))

    monkeypatch.setattr("dmlc.testing.case.run", run)
    with pytest.raises(AssertionError) as raised:
        assert_matches_reference(MODULE.operators["CUBE"], {"src": X}, device="opencl")
    assert re.fullmatch(
        r"CUBE on opencl does not give what the reference gives\n"
        r"  dst at \[1, 0\]: got 0\.564\d*, expected 0\.064\d*; the error is 0\.5, and "
        r"\S+e-08 is allowed \(\d of 6 elements differ\)\n"
        r"  for src=FLOAT32\[2,3\] dst=FLOAT32\[2,3\]",
        str(raised.value),
    )


def test_what_shows_little_is_said() -> None:
    """The results are given back all the same."""
    text = CUBE.replace("src * src * src", "(src + 1) * (src + 1) - src * src - 2 * src")
    wide = dmlc.parse(text.partition("operator CUBE_GRAD")[0]).operators["CUBE"]
    far = np.full(4, 1e4, np.float32)
    said = r"^CUBE on reference is held to little: the bound is larger than the result at 4 of 4 "
    with pytest.warns(UserWarning, match=said) as warned:
        found = assert_matches_reference(wide, {"src": far}, device="reference")
    assert warned[0].filename == __file__
    assert found["dst"].shape == (4,)
    assert_matches_reference(wide, {"src": far / 1e4}, device="reference")


def test_calls_that_are_not_permitted_are_refused() -> None:
    with pytest.raises(dmlc.DmlcError, match="unknown tensor 'source'"):
        assert_matches_reference("onednn.ReLU", {"source": X})
    with pytest.raises(dmlc.ArgumentError, match=r"inputs\['src'\] must be an array"):
        assert_matches_reference("onednn.ReLU", {"src": 5})
    with pytest.raises(dmlc.ArgumentError, match="subject must be an operator"):
        assert_matches_reference(3)
    case = Case(Call(MODULE.operators["CUBE"], {}, {}), {}, "")
    with pytest.raises(dmlc.ArgumentError, match="a Case has its inputs: leave out inputs="):
        assert_matches_reference(case, {"src": X})


def test_gradients_that_are_right() -> None:
    for name in ("CUBE_GRAD", "CUBE_DERIVED"):
        assert_gradient(MODULE.operators[name], {"src": X, "d_dst": X})
    assert_gradient(MODULE.operators["CUBE"], {"src": X})
    assert_gradient("onednn.SoftMaxBackward", {"dst": X, "diff_dst": X}, {"axis": 0})


DECAY = """
operator DECAY {
    tensors {
        | Tensor | Kind            | Dimensions | Types |
        | x      | Input           | { T }      | f32   |
        | first  | Optional input  | { 1 }      | f32   |
        | last   | Output          | { 1 }      | f32   |
        | all    | Optional output | { T }      | f32   |
    }
    compute {
        h[t : T] = (h[t - 1] else (present(first) ? first[0] : 0)) * x[t] + x[t]
        last[z] = h[T - 1]
        all[t] = h[t] * h[t]
    }
}
operator DECAY_GRAD {
    tensors {
        | Tensor  | Kind            | Dimensions | Types |
        | x       | Input           | { T }      | f32   |
        | first   | Optional input  | { 1 }      | f32   |
        | d_last  | Input           | { 1 }      | f32   |
        | d_all   | Optional input  | { T }      | f32   |
        | d_x     | Output          | { T }      | f32   |
        | d_first | Optional output | { 1 }      | f32   |
    }
    gradient of DECAY {}
}
operator DECAY_BACKWARD {
    forward DECAY
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { T }      | f32   |
        | d_last | Input  | { 1 }      | f32   |
        | d_x    | Output | { T }      | f32   |
    }
    compute {
        h[t : T] = (h[t - 1] else 0) * x[t] + x[t]
        g[t : T] = t < T - 1 ? g[t + 1] * (x[t + 1] else 0) : d_last[0]
        d_x[t] = g[t] * ((h[t - 1] else 0) + 1)
    }
}
"""


@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_of_recurrences_are_held_to_their_forward_operators(steps: int) -> None:
    module = dmlc.parse(DECAY)
    x, one = X.reshape(-1)[:steps], np.ones(1, np.float32)
    assert_gradient(module.operators["DECAY_GRAD"], {"x": x, "d_last": one})
    assert_gradient(
        module.operators["DECAY_GRAD"],
        {"x": x, "first": one, "d_last": 2 * one, "d_all": np.ones(steps, np.float32)},
        outputs={"d_first": (1,)},
    )
    assert_gradient(module.operators["DECAY"], {"x": x, "first": one}, outputs={"all": (steps,)})
    assert_gradient(module.operators["DECAY_BACKWARD"], {"x": x, "d_last": one})
    second = dmlc.gradient(module.operators["DECAY_GRAD"], ["x"], {"x": "dd_x"})
    assert_gradient(second, {"x": x, "d_last": one, "d_d_x": np.ones(steps, np.float32)})
    wrong = dmlc.parse(DECAY.replace("((h[t - 1] else 0) + 1)", "(h[t] + 1)"))
    with pytest.raises(AssertionError, match="DECAY_BACKWARD is not the gradient of DECAY"):
        assert_gradient(wrong.operators["DECAY_BACKWARD"], {"x": x, "d_last": one})


def test_a_gradient_that_is_wrong_is_said() -> None:
    wrong = dmlc.parse(CUBE.replace("3 * src", "2 * src")).operators["CUBE_GRAD"]
    with pytest.raises(AssertionError) as raised:
        assert_gradient(wrong, {"src": X, "d_dst": np.ones_like(X)})
    assert str(raised.value) == (
        "CUBE_GRAD is not the gradient of CUBE, by what is derived from that\n"
        "  d_src: the gradient with respect to 'src' at [0, 0] is 8, and what its forward operator "
        "implies is 12: they may be 1.05e-05 apart at most\n"
        "  for src=FLOAT32[2,3] d_dst=FLOAT32[2,3] d_src=FLOAT32[2,3]"
    )


def test_an_assertion_that_compares_nothing_fails() -> None:
    nan = np.full((2, 3), np.nan, np.float32)
    with pytest.raises(AssertionError, match="nothing is shown of the gradient of CUBE"):
        assert_gradient(MODULE.operators["CUBE_GRAD"], {"src": nan, "d_dst": nan})
    window = {"InputWindowOffsets": [0, 0], "InputWindowSizes": [2, 2]}
    window["InputWindowStrides"] = [1, 1]
    with pytest.raises(dmlc.UnsupportedError, match="has no gradient of these data types"):
        assert_gradient("directml.SLICE1", {"InputTensor": X.astype(np.int32)}, window)


# Strategies -----------------------------------------------------------------------------------


@SHORT
@given(call=bindings("directml.REDUCE"))
def test_calls_are_permitted(call: Call) -> None:
    assert call.operator is dmlc.operator("directml.REDUCE")
    assert set(call.inputs) == {"InputTensor"}
    assert call.binding.attributes.keys() >= call.attributes.keys()


@SHORT
@given(case=arrays(MODULE.operators["CUBE"]))
def test_arrays_are_those_of_the_call(case: Case) -> None:
    (described,) = case.call.inputs.values()
    assert case.inputs["src"].dtype == described.data_type.dtype
    assert case.inputs["src"].shape == described.sizes
    assert_matches_reference(case, device="reference")


@SHORT
@given(
    case=arrays(
        Call(
            MODULE.operators["CUBE"],
            {"src": dmlc.TensorDesc("f32", (2, 3), (1, 2)), "dst": dmlc.TensorDesc("f32", (2, 3))},
            {},
        )
    )
)
def test_arrays_of_one_call(case: Case) -> None:  # fmt: skip
    assert case.inputs["src"].strides == (4, 8)


def test_examples_shrink_to_short_axes() -> None:
    call = find(
        bindings(MODULE.operators["CUBE"]),
        lambda call: (call.tensors["src"].sizes or (0,))[0] > 2,
        settings=settings(SHORT, max_examples=200),
    )
    sizes = call.tensors["src"].sizes
    assert sizes is not None
    assert sizes[0] == 3
    assert all(isinstance(size, int) and size <= 3 for size in sizes)


def test_what_is_drawn_is_shown_in_a_line() -> None:
    call = Call(MODULE.operators["CUBE"], {"src": dmlc.TensorDesc("f32", (2, 3))}, {})
    assert repr(call) == "<call of CUBE: src=FLOAT32[2,3]>"
    assert repr(Case(call, {"src": X}, "ties")) == "<case of CUBE, ties: src=FLOAT32[2,3]>"
    with pytest.raises(dmlc.ArgumentError, match="op must be an operator, or the name of one"):
        bindings(3)
