"""Loops are unrolled for toolchains that take none."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc.ir import Function, verify
from dmlc.reference import evaluate
from dmlc.source import UnsupportedError
from dmlc.transform.unroll import MOST_STEPS, unroll_loops

BOTH_WAYS = """
operator TWICE {
    tensors {
        | Tensor | Kind   | Ranks | Types |
        | x      | Input  | 2     | f32   |
        | first  | Input  | 1     | f32   |
        | there  | Output | 2     | f32   |
        | back   | Output | 1     | f32   |
    }
    constraints {
        x and there must have the same Sizes.
        back and first must have the same Sizes.
    }
    compute {
        sum[t : x.Sizes[0], c : x.Sizes[1]] = x[t, c] + 0.5 * (sum[t - 1, c] else first[c])
        late[t : x.Sizes[0], c : x.Sizes[1]] = sum[t, c] * (late[t + 1, c] else 2)
        there[t, c] = sum[t, c]
        back[c] = late[0, c]
    }
}
"""


def bind(steps: int) -> Function:
    operator = dmlc.parse(BOTH_WAYS).operators["TWICE"]
    return operator.bind({"x": (steps, 3), "first": (3,)})


@pytest.mark.parametrize("steps", [1, 2, 5, MOST_STEPS])
def test_steps_are_stages(steps: int) -> None:
    function = bind(steps)
    assert {loop.backwards for loop in function.loops} == {False, True}
    unrolled = unroll_loops(function, "a test")
    verify(unrolled)
    assert not unrolled.loops
    random = np.random.default_rng(steps)
    given = {p.name: random.uniform(-1, 1, p.extents).astype(np.float32)  # type: ignore[arg-type]
             for p in function.parameters}  # fmt: skip
    found, wanted = evaluate(unrolled, given), evaluate(function, given)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_function_without_loops_stays() -> None:
    function = dmlc.operator("onednn.ReLU").bind({"src": (2, 3)})
    assert unroll_loops(function, "a test") is function


def test_many_steps_are_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        unroll_loops(bind(MOST_STEPS + 1), "ONNX")
    said = str(caught.value)
    assert "'TWICE' has a loop over 65 steps, and ONNX takes loops unrolled, of at most 64" in said
