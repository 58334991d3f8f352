"""A constant in a formula gives the bits that the same value gives when it is read from memory:
no compiler or driver may fold what IEEE arithmetic does not allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.ir.print import constant_text
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.opencl.executable import Executable as OpenCLExecutable
from dmlc.scalars import OPERATIONS, DataType
from dmlc.scalars.operation import Unsupported
from tests.agreement import disagreements

CONSTANTS = (0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan, 1e-38, 3e38)

INPUTS = (*CONSTANTS, 2.5, -3.0, 1e-45, -1e-45, -3e38)

LOADERS = {"opencl": opencl.load, "hlsl": vulkan.load}

CASES = [
    (target, operation.name, dtype)
    for target in LOADERS
    for operation in OPERATIONS.values()
    for dtype in (DataType.FLOAT32, DataType.FLOAT64)
    if operation.arity == 2 and operation.operands.accept(dtype)
    if not isinstance(find_dialect(target).operations[operation.name, dtype], Unsupported)
]


Executable = OpenCLExecutable | vulkan.Executable


VECTORS = 512 * len(INPUTS)
"""As many values as HLSL computes four at a time."""


def build(
    target: str, dtype: DataType, inputs: str, stages: dict[str, str], count: int = len(INPUTS)
) -> Executable:
    """Stages over the inputs' one axis, each by its formula, on the target's first device."""
    shape = f"{dtype.short}[{count}]"
    parameters = ", ".join(f"%{name}: {shape}" for name in inputs)
    domain = shape.replace("[", "[i0 < ")
    lines = "\n".join(f"  %{name}: {domain} = {formula}" for name, formula in stages.items())
    results = ", ".join(f"%{name}" for name in stages)
    function = ir.parse(f"func @f({parameters}) -> ({results}) {{\n{lines}\n}}")
    return LOADERS[target](compile(function, target))


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("target", "name", "dtype", "size"),
    [
        (*case, size)
        for case in CASES
        for size in ((len(INPUTS), VECTORS) if case[0] == "hlsl" else (len(INPUTS),))
    ],
)
def test_literals_compute_like_values_read(
    target: str, name: str, dtype: DataType, size: int
) -> None:
    comparison = OPERATIONS[name].gives_bool

    def formula(left: str, right: str) -> str:
        text = f"{name}({left}, {right})"
        return f"select({text}, 1.0:{dtype.short}, 0.0:{dtype.short})" if comparison else text

    x = np.resize(np.array(INPUTS, dtype.dtype), size)
    literals = {"SAME": formula("%X[i0]", "%X[i0]")}
    for count, value in enumerate(CONSTANTS):
        constant = constant_text(ir.Constant(dtype, float(dtype.dtype.type(value))))
        literals[f"LEFT{count}"] = formula(constant, "%X[i0]")
        literals[f"RIGHT{count}"] = formula("%X[i0]", constant)
    actual = build(target, dtype, "X", literals, size)({"X": x})
    sides = {"LEFT": formula("%Y[i0]", "%X[i0]"), "RIGHT": formula("%X[i0]", "%Y[i0]")}
    read = build(target, dtype, "XY", sides, size)
    expected = {"SAME": read({"X": x, "Y": x.copy()})["LEFT"]}
    for count, value in enumerate(CONSTANTS):
        results = read({"X": x, "Y": np.full_like(x, value)})
        expected |= {f"{side}{count}": array for side, array in results.items()}
    for stage, wanted in expected.items():
        got = actual[stage]
        same = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
        same |= np.isnan(got) & np.isnan(wanted)
        assert same.all(), (literals[stage], x[~same], got[~same], wanted[~same])


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64])
@pytest.mark.parametrize("constant", ["nan", "inf", "-inf"])
def test_functions_of_what_is_known_when_compiled(constant: str, dtype: DataType) -> None:
    """PoCL leaves out the loop over what follows its vectors, where it knows a NaN."""
    compute = dtype.compute
    formulas = {
        operation.name.upper(): f"{operation.name}(add(%X[i0], {constant}:{compute.short}))"
        for operation in OPERATIONS.values()
        if operation.arity == 1 and operation.operands.accept(compute)
        if not operation.gives_bool and operation.rounds_to is None
    }
    shape = f"{dtype.short}[19]"
    domain = shape.replace("[", "[i0 < ")
    stages = "\n".join(f"  %{name}: {domain} = {text}" for name, text in formulas.items())
    results = ", ".join(f"%{name}" for name in formulas)
    function = ir.parse(f"func @f(%X: {shape}) -> ({results}) {{\n{stages}\n}}")
    given = {"X": np.arange(1, 20).astype(dtype.dtype)}
    wanted = evaluate(function, given)
    for name, got in opencl.load(compile(function, "opencl"))(given).items():
        assert disagreements(got, wanted[name], 4.0, transcendental=True).size == 0, name


@pytest.mark.parametrize("size", [len(INPUTS), VECTORS])
@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT64], ids=lambda t: t.short)
@pytest.mark.parametrize("target", LOADERS)
def test_choices_between_literals_keep_the_sign_of_zero(
    target: str, dtype: DataType, size: int
) -> None:
    kind, constants = dtype.short, (0.0, -0.0, 1.0, -1.0, 2.0)
    pairs = [(a, b) for a in constants for b in constants if a != b or str(a) != str(b)]
    texts = [tuple(constant_text(ir.Constant(dtype, v)) for v in pair) for pair in pairs]
    stages = {
        f"y{n}": f"select(gt(%x[i0], 0.0:{kind}), {a}, {b})" for n, (a, b) in enumerate(texts)
    }
    x = np.resize(np.array(INPUTS, dtype.dtype), size)
    got = build(target, dtype, "x", stages, size)({"x": x})
    for number, (a, b) in enumerate(pairs):
        wanted = np.where(x > 0, a, b).astype(dtype.dtype)
        assert got[f"y{number}"].tobytes() == wanted.tobytes(), pairs[number]


@pytest.mark.parametrize("size", [len(INPUTS), VECTORS])
@pytest.mark.parametrize("target", LOADERS)
def test_what_functions_make_of_zero_keeps_its_sign(target: str, size: int) -> None:
    names = (
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "tanh",
        "asinh",
        "atanh",
        "expm1",
        "log1p",
        "erf",
    )
    stages = {name: f"mul({name}(0.0), %x[i0])" for name in names}
    x = np.resize(np.array(INPUTS, np.float32), size)
    got = build(target, DataType.FLOAT32, "x", stages, size)({"x": x})
    finite = np.isfinite(x)
    for name in names:
        assert (np.signbit(got[name]) == np.signbit(x))[finite].all(), name


@pytest.mark.parametrize(
    "place", ["i0", "add(i0, i0)", "select(lt(i0, 1:index), i0, 3:index)"], ids=lambda p: p[:6]
)
@pytest.mark.parametrize("target", LOADERS)
def test_a_position_that_is_always_zero_computes_like_a_zero_that_is_read(
    target: str, place: str
) -> None:
    """Along an axis of one element, be it a result's or a reduction's."""
    reduced = place.replace("i0", "r0")
    function = ir.parse(
        f"""func @f(%x: f32[{len(INPUTS)}]) -> (%y, %z, %w) {{
          %y: f32[i0 < 1, i1 < {len(INPUTS)}] = div(%x[i1], cast({place}, f32))
          %w: f32[i0 < 1, i1 < {len(INPUTS)}] = mul(%x[i1], neg(cast({place}, f32)))
          %z: f32[i0 < {len(INPUTS)}] = sum[r0 < 1] div(%x[i0], cast({reduced}, f32))
        }}"""
    )
    x = np.array(INPUTS, np.float32)
    got = LOADERS[target](compile(function, target))({"x": x})
    for name, wanted in evaluate(function, {"x": x}).items():
        same = (got[name] == wanted) & (np.signbit(got[name]) == np.signbit(wanted))
        assert (same | (np.isnan(got[name]) & np.isnan(wanted))).all(), (name, got[name], wanted)


@pytest.mark.parametrize(
    "value",
    [
        "sum[r0 < 5] div(%x[i0, r0], cast(r0, f32))",
        "sum[r0 < 5] mul(%x[i0, r0], cast(gt(r0, 2:index), f32))",
        "min[r0 < 5] div(%x[i0, r0], cast(r0, f32))",
        "min[r0 < 5] mul(%x[i0, 1:index], cast(cast(r0, s32), f32))",
        "min[r0 < 5] mul(%x[i0, r0], neg(cast(r0, f32)))",
        "min[r0 < 5] div(%x[i0, r0], select(gt(r0, 2:index), -2.0, 0.0))",
        "min[r0 < 5] div(%x[i0, r0], sub(select(gt(r0, 2:index), 2.0, 1.0), 2.0))",
    ],
)
@pytest.mark.parametrize("count", [4, 1024])
@pytest.mark.parametrize("target", LOADERS)
def test_zeros_of_a_loop_that_drivers_unroll(target: str, count: int, value: str) -> None:
    """What is counted in it, or chosen by that, is a literal then."""
    function = ir.parse(
        f"func @f(%x: f32[{count}, 5]) -> (%y) {{\n  %y: f32[i0 < {count}] = {value}\n}}"
    )
    x = np.resize(np.array([*INPUTS, *[0.0] * 6, *[-0.0] * 7, *range(1, 6)], np.float32), count * 5)
    x = x.reshape(count, 5)
    got = LOADERS[target](compile(function, target))({"x": x})["y"]
    wanted = evaluate(function, {"x": x})["y"]
    assert disagreements(got, wanted, 2.0).size == 0, (got, wanted)
    zeros = wanted == 0
    assert (np.signbit(got) == np.signbit(wanted))[zeros].all()


@pytest.mark.parametrize("target", LOADERS)
def test_a_sum_of_negative_zeros_is_zero(target: str) -> None:
    """A loop over few of them is unrolled, and its first term is added to a literal."""
    function = ir.parse(
        "func @f(%x: f32[1000, 2]) -> (%y) { %y: f32[i0 < 1000] = sum[r0 < 2] %x[i0, r0] }"
    )
    x = np.full((1000, 2), -0.0, np.float32)
    assert not np.signbit(LOADERS[target](compile(function, target))({"x": x})["y"]).any()
