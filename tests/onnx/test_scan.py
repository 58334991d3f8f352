"""Scans of ONNX as loops, beside the same in NumPy step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import dmlc
from dmlc.onnx import ImportedModel
from dmlc.onnx.importing.steps import FEW_STEPS

WINDOWS = """
    g (float[N, 3] first, float[STEPS, N, 2] x) => (float[N, 3] last, float[U, N, 5] y) {
        two = Constant <value_ints = [2]> ()
        five = Constant <value_ints = [5]> ()
        one = Constant <value_ints = [1]> ()
        last, y = Scan <num_scan_inputs = 1, body = step
            (float[N, 3] before, float[N, 2] part) => (float[N, 3] after, float[N, 5] frame) {
                frame = Concat <axis = 1> (before, part)
                after = Slice (frame, two, five, one)
            }> (first, x)
    }"""
"""Each state is the end of a window."""
ALL_KINDS = """
    g (float[2] a, float[2] b, float[2, STEPS] x, float[STEPS, 2] z, float[2] w)
        => (float[2] c, float[2] d, float[2, U] p, float[U, 2] q, float[U, 2] r, float[U, 2] s) {
        c, d, p, q, r, s = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0],
            scan_input_directions = [0, 1], scan_output_axes = [1, 0, 0, -2],
            scan_output_directions = [0, 1, 0, 0], body = step
            (float[2] a1, float[2] b1, float[2] x1, float[2] z1)
            => (float[2] a2, float[2] b2, float[2] p1, float[2] q1, float[2] r1, float[2] s1) {
                sum = Add (a1, x1)
                a2 = Mul (sum, w)
                less = Tanh (z1)
                b2 = Sub (b1, less)
                p1 = Exp (a1)
                q1 = Add (a2, b1)
                r1 = Sqrt (w)
                s1 = Identity (z1)
            }> (a, b, x, z)
    }"""
"""Two states, slices along two axes in both directions; outputs of a state before and after a step,
of neither, and of a slice."""
COUNTED = """
    g (float[1] a, float[STEPS, 1] x) => (float[1] b, float[U, 1] y) {
        zero = Constant <value_ints = [0]> ()
        b, n, y = Scan <num_scan_inputs = 1, body = step
            (float[1] a1, int64[1] n1, float[1] x1) => (float[1] a2, int64[1] n2, float[1] y1) {
                one = Constant <value_ints = [1]> ()
                n2 = Add (n1, one)
                wide = Expand (x1, n2)
                y1 = ReduceSum <keepdims = 1> (wide)
                a2 = Add (a1, y1)
            }> (a, zero, x)
    }"""
"""A state decides a size of each step."""


def load(text: str, steps: int | str) -> ImportedModel:
    """A model of so many steps, or of an open number of them."""
    text = text.replace("STEPS", str(steps))
    return dmlc.onnx.load(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    )


def draw(**sizes: tuple[int, ...]) -> dict[str, Any]:
    generator = np.random.default_rng(1)
    return {name: generator.random(size).astype(np.float32) for name, size in sizes.items()}


@pytest.mark.parametrize("device", ["reference", "opencl"])
@pytest.mark.parametrize("steps", [FEW_STEPS, FEW_STEPS + 1, 300, "M"])
def test_windows(steps: int | str, device: str) -> None:
    """More steps than are laid out, and any number of them, are a loop."""
    model = load(WINDOWS, steps)
    assert len(model.function.loops) == (steps != FEW_STEPS)
    for count in (1, 2, 17) if isinstance(steps, str) else (steps,):
        given = draw(first=(2, 3), x=(count, 2, 2))
        signal = np.concatenate([given["first"], *given["x"]], 1)
        wanted = np.stack([signal[:, 2 * step : 2 * step + 5] for step in range(count)])
        found = model.run(given, device=device)
        assert (found["y"] == wanted).all()
        assert (found["last"] == wanted[-1][:, 2:]).all()


@pytest.mark.parametrize("steps", [FEW_STEPS, FEW_STEPS + 1, "M"])
def test_states_slices_and_outputs_of_all_kinds(steps: int | str) -> None:
    model = load(ALL_KINDS, steps)
    for count in (1, 6) if isinstance(steps, str) else (steps,):
        given = draw(a=(2,), b=(2,), x=(2, count), z=(count, 2), w=(2,))
        a, b = given["a"], given["b"]
        rows: list[tuple[Any, ...]] = []
        for step in range(count):
            x, z = given["x"][:, step], given["z"][count - 1 - step]
            after = (a + x) * given["w"]
            rows.append((np.exp(a), after + b, np.sqrt(given["w"]), z))
            a, b = after, b - np.tanh(z)
        p, q, r, s = (np.stack(column) for column in zip(*rows, strict=True))
        wanted = {"c": a, "d": b, "p": p.T, "q": q[::-1], "r": r, "s": s}
        found = model.run(given)
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, 1e-5, 1e-6, err_msg=name)


def test_only_what_the_next_step_needs_is_in_the_loop() -> None:
    (loop,) = load(ALL_KINDS, 9).function.loops
    assert sorted(loop.stages) == ["c_a2", "c_b2", "c_sum"]


def test_a_size_that_steps_decide_lays_them_out() -> None:
    model = load(COUNTED, 6)
    assert not model.function.loops
    given = draw(a=(1,), x=(6, 1))
    wanted = given["x"] * np.arange(1, 7, dtype=np.float32)[:, None]
    found = model.run(given)
    np.testing.assert_allclose(found["y"], wanted, 1e-6)
    np.testing.assert_allclose(found["b"], given["a"] + wanted.sum(0), 1e-6)
    with pytest.raises(dmlc.DmlcError, match="the number of its steps is M, which is left open"):
        load(COUNTED, "M")


def test_16_bit_states_are_laid_out() -> None:
    """A loop holds values as they are computed, so these would not be rounded at each step."""
    model = load(WINDOWS.replace("float", "float16"), 6)
    assert not model.function.loops
    given = draw(first=(2, 3), x=(6, 2, 2))
    given = {name: array.astype(np.float16) for name, array in given.items()}
    signal = np.concatenate([given["first"], *given["x"]], 1)
    assert (model.run({**given})["y"][3] == signal[:, 6:11]).all()
