"""Recurrences in `compute`: what they compute, on devices too, and what their mistakes are told."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.binding import TensorDesc
from dmlc.pipeline import Steps, compile_by
from dmlc.scalars import Array
from tests.binding.declare import ANY, declare, f32, refusals

X = f"X | Input | 1 to 8 | {ANY}"
Y = f"Y | Output | 1 to 8 | {ANY}"
DEVICES = ["reference", "opencl", "vulkan"]
FIBONACCI = """
    a[t : 6, c : 2] = b[t - 1, c] else 0
    b[t : 6, c : 2] = (a[t - 1, c] else 0) + (b[t - 1, c] else X[c])
    Y[t, c] = b[t, c]
"""


def bind(text: str, x: Array, out: tuple[int, ...]) -> ir.Function:
    kind = {"float32": "FLOAT32", "float64": "FLOAT64", "int32": "INT32", "float16": "FLOAT16"}
    dtype = kind[str(x.dtype)]
    return declare(text, X, Y).bind({"X": TensorDesc(dtype, x.shape), "Y": TensorDesc(dtype, out)})


@pytest.mark.parametrize("device", DEVICES)
def test_names_read_each_other(device: str) -> None:
    x = np.array([1, 10], np.int32)
    found = dmlc.run(bind(FIBONACCI, x, (6, 2)), {"X": x}, device=device)["Y"]
    assert found.T.tolist() == [[1, 1, 2, 3, 5, 8], [10, 10, 20, 30, 50, 80]]


@pytest.mark.parametrize("device", DEVICES)
def test_the_last_place_may_be_the_first_step(device: str) -> None:
    text = """
        rest[t : 70, c : 3] = rest[t + 1, c] / 2 + sum[k : 3] (X[t, k])
        Y[t, c] = rest[t, c] + c
    """
    x = np.random.default_rng(1).standard_normal((70, 3)).astype(np.float32)
    found = dmlc.run(bind(text, x, (70, 3)), {"X": x}, device=device)["Y"]
    state, expected = 0.0, np.empty((70, 3))
    for step in reversed(range(70)):
        state = state / 2 + float(x[step].astype(np.float64).sum())
        expected[step] = state + np.arange(3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_matrix_at_each_step(device: str, steps: int) -> None:
    text = f"""
        h[t : {steps}, n : 3, u : 4] = tanh(
            X[t, n, u] + sum[k : 4] ((h[t - 1, n, k] else 1) * X[0, k % 3, u]))
        Y[t, n, u] = h[t, n, u]
    """
    x = np.random.default_rng(2).standard_normal((steps, 3, 4)).astype(np.float32)
    found = dmlc.run(bind(text, x, (steps, 3, 4)), {"X": x}, device=device)["Y"]
    state, wide = np.ones((3, 4)), x.astype(np.float64)
    for step in range(steps):
        state = np.tanh(wide[step] + state @ wide[0][[0, 1, 2, 0]])
        np.testing.assert_allclose(found[step], state, atol=1e-5)


def test_what_depends_on_no_earlier_step_is_computed_before() -> None:
    text = """
        h[t : 9, u : 4] = (h[t - 1, u] else 0) + sum[k : 4] (X[t, k] * X[u, k])
        late[t : 9] = sum[u : 4] (h[t, u])
        Y[t, u] = h[t, u] * late[t]
    """
    function = bind(text, np.zeros((9, 4), np.float32), (9, 4))
    (loop,) = function.loops
    names = [stage.name for stage in function.stages]
    assert loop.stages == ("h",)
    assert names.index("X_sum" if "X_sum" in names else "h_sum") < names.index("h")
    program = compile_by(Steps(joins=False), function)
    (repeat,) = program.repeats
    assert (repeat.first, repeat.last, repeat.steps, repeat.backwards) == (1, 1, 9, False)
    order = [number for number, _ in program.order({})]
    assert order == [0, *[1] * 9, *range(2, len(program.kernels))]
    shorter = bind(text.replace("9", "5"), np.zeros((5, 4), np.float32), (5, 4))
    assert len(str(function)) == len(str(shorter))


def test_memory_of_a_loop_is_kept_through_all_of_it() -> None:
    function = bind(FIBONACCI, np.zeros(2, np.int32), (6, 2))
    program = compile_by(Steps(joins=False), function, "hlsl")
    (repeat,) = program.repeats
    for tensor in program.scratch:
        assert tensor.lifetime is not None
        assert tensor.lifetime[0] <= repeat.first
        assert tensor.lifetime[1] >= repeat.last
    manifest = program.manifest()
    assert manifest["repeats"][0]["steps"] == 6
    values = [s["value"] for kernel in manifest["kernels"] for s in kernel["scalars"]]
    assert "step" in values


def test_it_computes_in_what_it_is_made_of() -> None:
    text = "h[t : 4] = (h[t - 1] else 0) + X[t]\nY[t] = h[t]"
    for dtype, held in ((np.float16, "f32"), (np.float64, "f64"), (np.int32, "s32")):
        function = bind(text, np.zeros(4, dtype), (4,))
        assert f"%h: {held}[" in str(function)


REFUSED = [
    ("h[t : 4] = h[t - 2] + X[t]\nY[t] = h[t]", "a recurrence reads the step before"),
    ("h[t : 4] = h[3 - t] + X[t]\nY[t] = h[t]", "a recurrence reads the step before"),
    ("h[t : 4] = h[t] + X[t]\nY[t] = h[t]", "'h' is read at its own step before it is defined"),
    ("h[t : 4] = h[t - 1] + h[t + 1] + X[t]\nY[t] = h[t]", "a recurrence goes one way"),
    ("h[t : 4] = (h[t - 1] else 0) < X[t]\nY[t] = h[t] ? 1 : 0", "0 is a number, where a BOOL is"),
    (
        "a[t : 4] = b[t - 1] + X[t]\nb[t : 3] = a[t] * 2\nY[t] = a[t]",
        "'b' has 3 steps, and 'a', which takes part in the same recurrence, has 4",
    ),
    (
        "a[n : 4, t : 4] = b[t, n - 1] + X[n]\nb[t : 4, n : 4] = a[n, t] * 2\nY[n] = a[n, 0]",
        "a recurrence reads the step before",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_no_recurrence_is_refused(text: str, message: str) -> None:
    sizes = {"X": f32(4), "Y": f32(4)}
    found = refusals(lambda: declare(text, X, Y).bind(sizes))
    assert message in found[0].message


def test_an_output_takes_no_part() -> None:
    with pytest.raises(dmlc.DmlcError, match="'Y' is used before it is defined"):
        declare("Y[t] = (Y[t - 1] else 0) + X[t]", X, Y)


# Booleans, and few steps ------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_booleans(device: str) -> None:
    """Whether a number above 1 has been there, whether there are only such ahead, and an order of
    definition in which the boolean is read before anything says that it is one."""
    text = """
        seen[t : 4, c : 2] = X[t, c] > 1 || (seen[t - 1, c] else false)
        only[t : 4, c : 2] = X[t, c] > 1 && (only[t + 1, c] else true)
        many[t : 4, c : 2] = (many[t - 1, c] else 0) + ((flip[t - 1, c] else true) ? 1 : 0)
        flip[t : 4, c : 2] = t > 0 ? !flip[t - 1, c] : many[t, c] > 5
        ones(t, c) = (seen[t, c] ? 1 : 0) + (only[t, c] ? 10 : 0) + (flip[t, c] ? 100 : 0)
        Y[t, c] = ones(t, c) + 1000 * many[t, c]
    """
    x = np.array([[0, 0], [3, 2], [0, 2], [4, 3]], np.float32)
    found = dmlc.run(bind(text, x, (4, 2)), {"X": x}, device=device)["Y"]
    assert found.T.tolist() == [[1000, 1101, 2001, 2111], [1000, 1111, 2011, 2111]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_few_steps(steps: int, device: str) -> None:
    text = f"""
        all[t : {steps}, c : 2]  = X[t, c] > 0 && (all[t - 1, c] else true)
        last[t : {steps}, c : 2] = all[t, c] ? X[t, c] : (last[t - 1, c] else 7)
        Y[t, c] = last[t, c]
    """
    x = np.array([[1, -1], [-2, 2]], np.float32)[:steps]
    found = dmlc.run(bind(text, x, (steps, 2)), {"X": x}, device=device)["Y"]
    assert found.tolist() == [[1, 7], [1, 7]][:steps]


def test_steps_may_be_left_open() -> None:
    """Both ways."""
    text = """
        a[t : X.Sizes[0]] = (a[t - 1] else 7) + X[t]
        b[t : X.Sizes[0]] = (b[t + 1] else 9) + a[t]
        Y[t] = b[t]
    """
    found = declare(text, X, Y).bind({n: TensorDesc("FLOAT32", ("N",)) for n in "XY"})
    assert [loop.backwards for loop in found.loops] == [False, True]
    for steps in (1, 3):
        x = np.arange(steps, dtype=np.float32)
        total = np.cumsum(x) + 7
        expected = np.cumsum(total[::-1])[::-1] + 9
        assert dmlc.run(found, {"X": x}, device="reference")["Y"].tolist() == expected.tolist()


@pytest.mark.parametrize("next_to", ["t - 1", "t + 1"])
def test_steps_may_be_open(next_to: str) -> None:
    text = f"""
        a[t : X.Sizes[0]] = (b[{next_to}] else 1) + X[t]
        b[t : X.Sizes[0]] = (a[{next_to}] else 0) + a[t]
        Y[t] = b[t]
    """
    function = declare(text, X, Y).bind({n: TensorDesc("FLOAT32", ("N",)) for n in "XY"})
    for steps in (1, 2, 6):
        x = np.arange(steps, dtype=np.float32)
        a, b, wanted = 0.0, 1.0, np.empty(steps)
        for step in reversed(range(steps)) if "+" in next_to else range(steps):
            a, b = b + x[step], a + b + x[step]
            wanted[step] = b
        for device in ("reference", "opencl"):
            assert dmlc.run(function, {"X": x}, device=device)["Y"].tolist() == wanted.tolist()


def test_open_steps_of_one_recurrence_are_as_many() -> None:
    text = "a[t : X.Sizes[0]] = (b[t - 1] else 0) + X[t]\nb[t : 3] = a[t] * 2\nY[t] = a[t]"
    found = refusals(
        lambda: declare(text, X, Y).bind({n: TensorDesc("FLOAT32", ("N",)) for n in "XY"})
    )
    assert "'b' has 3 steps, and 'a', which takes part in the same" in found[0].message
    assert "recurrence, has N" in found[0].message


def test_one_direction_backwards_is_a_loop_backwards() -> None:
    """So that one kernel may go through its steps. It computes the bits of the other direction."""
    gru = dmlc.operator("directml.GRU")
    generator = np.random.default_rng(0)
    x, weights, recurrence = (
        generator.standard_normal(sizes).astype(np.float32)
        for sizes in ((1, 4, 2, 3), (1, 1, 6, 3), (1, 1, 6, 2))
    )
    found: list[list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = []
    for direction, turn in (("FORWARD", 1), ("BACKWARD", -1)):
        given = {"WeightTensor": weights, "RecurrenceTensor": recurrence}
        given["InputTensor"] = np.ascontiguousarray(x[:, ::turn])
        described = {name: TensorDesc("FLOAT32", array.shape) for name, array in given.items()}
        settings = {"Direction": direction}
        settings["ActivationDescs"] = ["ACTIVATION_SIGMOID", "ACTIVATION_TANH"]
        function = gru.bind(described, settings)
        assert [loop.backwards for loop in function.loops] == [turn < 0]
        made = dmlc.run(function, given, device="reference")
        found.append([made["OutputSequenceTensor"][::turn], made["OutputSingleTensor"]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
