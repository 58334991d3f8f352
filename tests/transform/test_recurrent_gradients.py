"""Gradients of loops: against differences, and that they go the other way."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import compiler, ir
from dmlc.scalars import Array
from dmlc.source import UnsupportedError
from dmlc.transform.differentiate import differentiate
from dmlc.transform.simplify import rename_loop
from tests.gradients import check_gradient, make_inputs

# Two states that read each other, one of them at its own step; and a matrix at each step.
LAYER = """func @layer(%X: f64[5, 2, 3], %R: f64[3, 3], %c0: f64[2, 3]) -> (%Y, %last) {
  loop {
    %c_before: f64[5, 2, 3] = before %c
    %h_before: f64[5, 2, 3] = before %h
    %p: f64[i0 < 5, i1 < 2, i2 < 3] = sum[r0 < 3] mul(%h_before[i0, i1, r0], %R[i2, r0])
    %g: f64[i0 < 5, i1 < 2, i2 < 3] = sigmoid(add(%X[i0, i1, i2], %p[i0, i1, i2]))
    %c: f64[i0 < 5, i1 < 2, i2 < 3] = {
      v0 = select(FIRST, %c0[i1, i2], %c_before[i0, i1, i2])
      add(mul(%g[i0, i1, i2], v0), %X[i0, i1, i2])
    }
    %h: f64[i0 < 5, i1 < 2, i2 < 3] = mul(%g[i0, i1, i2], tanh(%c[i0, i1, i2]))
  }
  %Y: f64[i0 < 5, i1 < 2, i2 < 3] = mul(%h[i0, i1, i2], %X[i0, i1, i2])
  %last: f64[i0 < 2] = sum[r0 < 3] %c[4, i0, r0]
}"""
FORWARDS = ir.parse(LAYER.replace("FIRST", "eq(i0, 0)"))
BACKWARDS = ir.parse(LAYER.replace("FIRST", "eq(i0, 4)").replace("loop {", "loop backwards {"))
SIZES = {"X": (5, 2, 3), "R": (3, 3), "c0": (2, 3)}
SEEDS = {"Y": (5, 2, 3), "last": (2,)}


def derive(function: ir.Function) -> ir.Function:
    seeds = {name: f"d_{name}" for name in SEEDS}
    names = {name: f"by_{name}" for name in SIZES}
    return differentiate(function, tuple(SIZES), seeds, names).function


@pytest.mark.parametrize("function", [FORWARDS, BACKWARDS], ids=["forwards", "backwards"])
def test_gradients_are_those_of_differences(function: ir.Function) -> None:
    random = np.random.default_rng(4)
    given = {name: random.standard_normal(sizes) for name, sizes in SIZES.items()}
    seeds = {f"d_{name}": random.standard_normal(sizes) for name, sizes in SEEDS.items()}
    made = derive(function)
    found = compiler.evaluate(made, {p.name: {**given, **seeds}[p.name] for p in made.parameters})

    def value(**changed: Array) -> float:
        results = compiler.evaluate(function, {**given, **changed})
        return sum(float((results[n] * seeds[f"d_{n}"]).sum()) for n in SEEDS)

    for name, array in given.items():
        direction = random.standard_normal(array.shape)
        step = 1e-6 * direction
        slope = (value(**{name: array + step}) - value(**{name: array - step})) / 2e-6
        assert float((found[f"by_{name}"] * direction).sum()) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("function", [FORWARDS, BACKWARDS], ids=["forwards", "backwards"])
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_gradients_of_open_steps(device: str, function: ir.Function) -> None:
    """One program for all lengths, its tape as long as the run."""
    text = str(function).replace("f64", "f32").replace("[5, ", "[T, ").replace("i0 < 5", "i0 < T")
    for number, size in (("eq(i0, 4)", "eq(i0, {})"), ("%c[4,", "%c[{},")):
        text = text.replace(number, size.format("sub(size(T), 1)"))
    made = derive(ir.parse(text))
    random = np.random.default_rng(5)
    for steps in (1, 4):
        given = {
            p.name: random.standard_normal([steps if e == "T" else e for e in p.extents], "f")
            for p in made.parameters
        }
        wanted = compiler.evaluate(made, given)
        found = dmlc.run(made, given, device=device)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, 1e-5, 1e-6)


def test_adjoints_go_the_other_way_once() -> None:
    for function in (FORWARDS, BACKWARDS):
        (loop,) = function.loops
        made = derive(function)
        forward, back = made.loops
        assert forward == rename_loop(loop, {})
        assert back.backwards is not loop.backwards
        # A gradient of a matrix is summed over all steps at once, after them.
        assert "by_R" not in back.stages
        # Adjoints of sizes are as long as the function is, however many steps there are.
        longer = ir.parse(str(function).replace("5", "9").replace("[4,", "[8,"))
        assert len(derive(longer).stages) == len(made.stages)


def test_a_loop_that_nothing_needs_is_left_out() -> None:
    text = """func @sums(%X: f64[5, 2]) -> (%Y) {
  loop {
    %s_before: f64[5, 2] = before %s
    %s: f64[i0 < 5, i1 < 2] = add(%s_before[i0, i1], %X[i0, i1])
  }
  %Y: f64[i0 < 5, i1 < 2] = %s[i0, i1]
}"""
    made = differentiate(ir.parse(text), ("X",), {"Y": "dY"}, {"X": "dX"}).function
    (back,) = made.loops
    assert back.backwards
    assert [p.name for p in made.parameters] == ["dY"]
    seeds = np.arange(10.0).reshape(5, 2)
    found = compiler.evaluate(made, {"dY": seeds})["dX"]
    np.testing.assert_array_equal(found, np.cumsum(seeds[::-1], axis=0)[::-1])


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_loops_of_few_steps_and_their_second_gradients(steps: int, backwards: bool) -> None:
    way = "loop backwards {" if backwards else "loop {"
    first = f"eq(i0, {steps - 1 if backwards else 0})"
    # What b is in `a` moves no gradient, and a in `b` none: that chain goes no step further.
    text = f"""func @few(%X: f64[{steps}, 2]) -> (%Y) {{
  {way}
    %a_before: f64[{steps}, 2] = before %a
    %b_before: f64[{steps}, 2] = before %b
    %a: f64[i0 < {steps}, i1 < 2] = {{
      v0 = mul(select({first}, %X[i0, i1], %a_before[i0, i1]), %X[i0, i1])
      add(v0, %b_before[i0, i1])
    }}
    %b: f64[i0 < {steps}, i1 < 2] = add(floor(%a_before[i0, i1]), sin(%X[i0, i1]))
  }}
  %Y: f64[i0 < {steps}, i1 < 2] = add(mul(%a[i0, i1], %a[i0, i1]), %b[i0, i1])
}}"""
    function = ir.parse(text)
    first_order = check_gradient(function, make_inputs(function))
    assert len(first_order.loops) == (0 if steps < 2 else 2)
    check_gradient(first_order, make_inputs(first_order))


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_gradients_of_few_steps_on_devices(steps: int, device: str) -> None:
    module = dmlc.parse(
        """operator DECAY {
  tensors {
    | Tensor | Kind   | Dimensions | Types |
    | x      | Input  | { T, C }   | f32   |
    | y      | Output | { T, C }   | f32   |
  }
  compute {
    h[t : T, c : C] = (h[t - 1, c] else 1) * x[t, c] + x[t, c]
    y[t, c] = h[t, c] * h[t, c]
  }
}"""
    )
    (decay,) = module.operators.values()
    gradient = dmlc.gradient(decay, ["x"])
    x = np.array([[3, -2], [0.5, 1]], np.float32)[:steps]
    call = {"x": x, "d_y": np.ones_like(x)}
    expected = dmlc.run(gradient, call, device="reference")["d_x"]
    if steps == 1:
        # y is (2 x) squared.
        np.testing.assert_array_equal(expected, 8 * x)
    np.testing.assert_allclose(dmlc.run(gradient, call, device=device)["d_x"], expected, 1e-6)


def test_a_state_that_leaves_its_function_is_refused() -> None:
    text = str(FORWARDS).replace("-> (%Y, %last)", "-> (%h)")
    with pytest.raises(UnsupportedError, match="'h' is read a step later twice, or leaves its"):
        differentiate(ir.parse(text), ("X",), {"h": "dh"}, {"X": "dX"})
