"""Points that are walked: each goes to the element that it says, in order, and comes out as the
formula has it, whatever combines them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc, ir
from dmlc.api import load_program
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.nodes import Kernel
from dmlc.loops.script import ScheduleError
from dmlc.pipeline import Steps, compile, describe_nests, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array, DataType
from dmlc.source import Source
from dmlc.transform import scatter
from tests.kernel.lowering import interpret
from tests.transform.test_inverse_index import FORMS, make_inputs, read

FEW = """func @few(%I: s32[{rows}, {n}], %V: {t}[{rows}, {n}]) -> (%Y) {{
  %Y: {t}[i0 < {rows}, i1 < {e}] = {combiner}[r0 < {n} where eq(%I[i0, r0], cast(i1, s32))]
    %V[i0, r0]
}}"""
COMBINERS = [("sum", "f32"), ("sum", "f16"), ("sum", "s32"), ("max", "f32"), ("min", "u32"),
             ("product", "s32"), ("product", "f16"), ("max", "s8"), ("any", "bool"),
             ("all", "bool")]  # fmt: skip
WALKED = "add to an element of"


@pytest.fixture
def _walks_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks where they hardly pay."""
    monkeypatch.setattr(scatter, "_LEAST_STEPS", 1)
    monkeypatch.setattr(scatter, "_GAIN", 0)


def make_few(combiner: str, dtype: str, rows: int, n: int, e: int) -> ir.Function:
    return ir.parse(FEW.format(combiner=combiner, t=dtype, rows=rows, n=n, e=e))


def draw(function: ir.Function, e: int) -> dict[str, Array]:
    random = np.random.default_rng(0)
    keys, values = function.parameters
    shape = tuple(n for n in keys.extents if isinstance(n, int))
    made = random.integers(0, 5, shape)
    if values.dtype is DataType.BOOL:
        made = made > 1
    return {
        "I": random.integers(-3, e + 3, shape).astype(np.int32),
        "V": made.astype(values.dtype.dtype),
    }


@pytest.mark.usefixtures("_walks_short")
@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize(("combiner", "dtype"), COMBINERS)
def test_every_combiner(combiner: str, dtype: str, rows: int) -> None:
    function = make_few(combiner, dtype, rows, 131, 37)
    assert WALKED in describe_nests(function, "opencl")
    inputs = draw(function, 37)
    found, expected = interpret(function, inputs), evaluate(function, inputs)
    np.testing.assert_array_equal(found["Y"], expected["Y"])


@pytest.mark.usefixtures("_walks_short")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_choice(form: str) -> None:
    function = read(form, 90, 40)
    assert WALKED in describe_nests(function, "opencl")
    inputs = make_inputs(function, 40)
    found, expected = interpret(function, inputs), evaluate(function, inputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def lower(function: ir.Function, schedule: str | None) -> tuple[ir.Function, tuple[Kernel, ...]]:
    source = None if schedule is None else Source("own.txt", f"kernel Y\n{schedule}")
    return make_kernels(function, "opencl", "cpu", steps=Steps(schedule=source))


@pytest.mark.usefixtures("_walks_short")
def test_walks_have_scripts_and_schedules_of_ones_own() -> None:
    function = make_few("sum", "s32", 5, 131, 37)
    inputs = draw(function, 37)
    fused, (kernel,) = lower(function, None)
    assert kernel.script[0] == "vectorize i1.0 16"
    fused, (own,) = lower(function, "split i0 2 as part\nbind part group\nvectorize i1.0 4")
    assert own.script == ("split i0 2 as part", "bind part group", "vectorize i1.0 4")
    found, expected = run_kernels(fused, (own,), inputs), evaluate(function, inputs)
    np.testing.assert_array_equal(found["Y"], expected["Y"])


@pytest.mark.usefixtures("_walks_short")
@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ("reverse k.1", "its points enter elements in their order"),
        ("bind k.1 lane", "its points enter elements in their order"),
        ("bind i1.0 lane", "one work item alone puts points into the elements of a row"),
        ("expand i0\nvectorize i0.2 4", "points enter elements one by one"),
    ],
)
def test_no_schedule_changes_the_order_of_points(calls: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        lower(make_few("sum", "s32", 8, 131, 32), calls)


def test_a_gpu_has_no_walks() -> None:
    function = make_few("sum", "f32", 1, 5000, 4000)
    assert WALKED in describe_nests(function, "opencl", "cpu")
    assert WALKED not in describe_nests(function, "opencl", "gpu")


def test_what_is_wide_or_long_to_add_up_is_not_walked() -> None:
    """Rows of many columns have an index; FLOAT64 holds no sum of so many FLOAT64."""
    assert WALKED not in describe_nests(read("rows", 9000, 5000, c=64), "opencl")
    assert WALKED not in describe_nests(make_few("sum", "f64", 1, 5000, 4000), "opencl")


# A million elements ----------------------------------------------------------------------------

MILLION = 1 << 20
ADD = """operator ADD_AT {
    tensors {
        | Tensor | Kind   | Dimensions | Ranks | Types   |
        | X      | Input  | { E }      | 1     | FLOAT32 |
        | I      | Input  | { P }      | 1     | INT32   |
        | U      | Input  | { P }      | 1     | FLOAT32 |
        | Y      | Output | { E }      | 1     | FLOAT32 |
    }
    compute {
        Y[e] = X[e] + sum[k : P where I[k] == e] (U[k])
    }
}"""


def describe(**arrays: Array) -> dict[str, TensorDesc]:
    return {n: TensorDesc(a.dtype.name.upper(), a.shape) for n, a in arrays.items()}


@pytest.mark.parametrize("few", [False, True])
def test_a_million_elements_come_out_the_same_ten_times(few: bool) -> None:
    random = np.random.default_rng(0)
    x, u = random.random((2, MILLION), np.float32)
    i = random.integers(0, 40 if few else MILLION, MILLION).astype(np.int32)
    added = dmlc.parse(ADD).operators["ADD_AT"].bind(describe(X=x, I=i, U=u))
    given: dict[str, Array] = {"InputTensor": x, "IndicesTensor": i, "UpdatesTensor": u}
    put = dmlc.operator("directml.SCATTER").bind(describe(**given), {"Axis": 0})
    total, last = x.astype(np.float64), x.copy()
    np.add.at(total, i, u)
    last[i] = u
    for function, inputs, wanted in ((added, {"X": x, "I": i, "U": u}, total), (put, given, last)):
        program = compile(function, "opencl")
        assert program.warnings == ()
        assert len(program.kernels) == 2
        assert not re.search("atomic", "".join(kernel.source for kernel in program.kernels))
        run = load_program(program, "opencl")
        (first,) = run(inputs).values()
        np.testing.assert_allclose(first, wanted, rtol=2e-7)
        for _ in range(9):
            (again,) = run(inputs).values()
            assert np.array_equal(again, first)
