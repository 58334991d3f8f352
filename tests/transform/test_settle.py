"""What depends on positions alone is known at compile time, be it a stage or a sum of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import DataType, TensorDesc, ir
from dmlc.kernel.target import CPU
from dmlc.pipeline import compile, rewrite
from dmlc.program import Role
from dmlc.reference import evaluate
from dmlc.transform.tabulate import settle

EXAMPLE = Path(__file__).parents[2] / "examples" / "bicubic_grad.dml"

OPERATOR = """
operator T {{
    tensors {{
        | Tensor | Kind   |
        | X      | Input  |
        | Z      | Output |
    }}
    compute {{
        {}
    }}
}}
"""

SUM = "sum[k : 4 where i + k == j](0.5 * k + 1)"


def bind(path: Path, *lines: str) -> ir.Function:
    path = path / "operator.dml"
    path.write_text(OPERATOR.format("\n        ".join(lines)), "utf-8")
    row = TensorDesc(DataType.FLOAT32, (64,))
    return dmlc.load(path).operators["T"].bind({"X": row, "Z": row})


def bind_example(size: int, outputs: int) -> ir.Function:
    operator = dmlc.load(EXAMPLE).operators["resampling.BICUBIC_GRAD"]
    given = TensorDesc(DataType.FLOAT32, (2, 3, outputs, outputs))
    made = TensorDesc(DataType.FLOAT32, (2, 3, size, size))
    scale = outputs / size
    return operator.bind({"diff_dst": given, "diff_src": made}, {"Scales": [1, 1, scale, scale]})


def list_folded(function: ir.Function) -> list[list[ir.Extent]]:
    return [[e for _, e in s.reduction.axes] for s in function.stages if s.reduction is not None]


@pytest.mark.parametrize(
    ("lines", "folded"),
    [
        ([f"Z[i : 64] = sum[j : 64](X[j] * {SUM})"], [[4]]),
        ([f"Z[j : 64] = sum[i : 64](X[i] * {SUM})"], [[4]]),
        ([f"Z[i : 64] = sum[j : 64](X[j] * {SUM} * (j - i > 1 ? 2 : 0))"], [[2]]),
        ([f"Z[i : 64] = sum[j : 64](X[j] * max(0, {SUM} - 1))"], [[3]]),
        ([f"w[i : 64, j : 64] = {SUM}", "Z[i : 64] = sum[j : 64](X[j] * w[i, j])"], [[4]]),
        ([f"w[i : 64, j : 64] = {SUM}", "Z[j : 64] = sum[i : 64](X[i] * w[i, j])"], [[4]]),
        (["w[i : 64, j : 64] = max(0, 1.5 - abs(i - j))",
          "Z[i : 64] = sum[j : 64](X[j] * w[i, j])"], [[3]]),
        ([f"w[i : 64, j : 64] = {SUM}",
          "Z[j : 64] = sum[i : 32](X[i] * w[clamp(2 * i + 1, 0, 63), j])"], [[2]]),
        (["Z[i : 64] = sum[j : 64 where any[k : 4](i + k == j)](X[j])"], [[4]]),
        (["Z[i : 64] = sum[j : 64 where abs(j - i) < 3](X[j])"
          " / sum[j : 64 where abs(j - i) < 3](1)"], [[5]]),
        (["n[i : 64] = max[k : 64 where k * 3 <= i](k)",
          "Z[i : 64] = sum[j : 64 where j <= n[i] && j > n[i] - 4](X[j])"], [[4]]),
    ],
)  # fmt: skip
def test_sums_take_no_more_than_what_counts(
    lines: list[str], folded: list[list[int]], tmp_path: Path
) -> None:
    function = bind(tmp_path, *lines)
    made = rewrite(function)
    assert list_folded(made) == folded
    values = {"X": (np.arange(64) % 7 - 3).astype(np.float32)}
    assert np.array_equal(evaluate(made, values)["Z"], evaluate(function, values)["Z"])


def test_what_a_tensor_decides_stays(tmp_path: Path) -> None:
    function = bind(tmp_path, "Z[i : 64] = sum[j : 64](X[j] * sum[k : 4 where i + k == j](X[k]))")
    assert [64] in list_folded(rewrite(function))
    assert settle(function).known == {}


def test_a_nan_where_a_weight_is_0_stays_there(tmp_path: Path) -> None:
    function = bind(tmp_path, f"Z[i : 64] = sum[j : 64](X[j] * {SUM})")
    values = {"X": np.ones(64, np.float32)}
    values["X"][40] = np.nan
    for each in (function, rewrite(function)):
        assert np.flatnonzero(np.isnan(evaluate(each, values)["Z"])).tolist() == [37, 38, 39, 40]


@pytest.mark.parametrize(("size", "outputs", "taps"), [(64, 128, 8), (48, 72, 6), (60, 40, 3)])
def test_bicubic_weights_are_looked_up(size: int, outputs: int, taps: int) -> None:
    """Each sum takes as many elements as have a weight, though a weight is a sum of four."""
    made = rewrite(bind_example(size, outputs), CPU.row)
    assert list_folded(made) == [[taps], [taps]]


@pytest.mark.parametrize(("size", "outputs"), [(12, 24), (9, 15), (10, 7)])
def test_bicubic_gradient(size: int, outputs: int) -> None:
    function = bind_example(size, outputs)
    values = np.random.default_rng(size).integers(-9, 10, (2, 3, outputs, outputs))
    inputs = {"diff_dst": values.astype(np.float32)}
    wanted = evaluate(function, inputs)["diff_src"]
    got = evaluate(rewrite(function, CPU.row), inputs)["diff_src"]
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_kernels_have_no_dense_weights(profile: str) -> None:
    program = compile(bind_example(64, 128), "opencl", profile)
    tables = [t for t in program.tensors if t.values]
    assert sum(len(t.values) for t in tables) <= 2 * 64 * 8


def test_what_ends_a_fold_is_stored_in_its_place() -> None:
    """The place of a window's largest is computed once, not by each of its elements."""
    function = ir.parse("""func @f(%x: f32[40, 64], %dy: f32[40, 32]) -> (%dx) {
      %largest: s32[i0 < 40, i1 < 32] = argmax[r0 < 64] {
        v0 = sub(r0, mul(i1, 2))
        where and(ge(v0, 0), lt(v0, 2))
        %x[i0, r0]
      }
      %dx: f32[i0 < 40, i1 < 64] = {
        v0 = div(i1, 2)
        select(eq(%largest[i0, v0], cast(i1, s32)), %dy[i0, v0], 0.0)
      }
    }""")
    program = compile(function, "opencl", "gpu")
    assert [t.name for t in program.tensors if t.role is Role.SCRATCH] == ["largest"]
    assert len(program.kernels) == 2
