"""`dmlc run`: arrays in, arrays out, compared with the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dmlc as package
from dmlc.cli import run_command
from dmlc.cli.arrays import read_array
from dmlc.testing.compare import Verdict
from dmlc.testing.memory import name_tool
from tests.cli.conftest import Dmlc

Array = npt.NDArray[Any]
GRAD = "directml.ACTIVATION_RELU_GRAD"
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 6e-8, -6e-8, 65504.0, 1.0, -1.0]


def special(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int) -> Array:
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    place = random.permutation(values.size)[: len(SPECIAL)]
    values.reshape(-1)[place] = SPECIAL[: place.size]
    return values.astype(dtype)


def relu_grad(x: Array, dy: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(x > 0, dy, x.dtype.type(0))


def same_bits(actual: Array, expected: Array) -> bool:
    """NaN is NaN whatever its payload; everything else bit for bit, the sign of zero included."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    nan = np.isnan(expected.astype(np.float32))
    words = f"u{actual.dtype.itemsize}"
    bits = np.ascontiguousarray(actual).view(words), np.ascontiguousarray(expected).view(words)
    return bool(np.all(nan == np.isnan(actual.astype(np.float32)))) and bool(
        np.all(nan | (bits[0] == bits[1]))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(1000,), (4, 3, 17, 5), (2, 1, 3, 2, 2, 1, 3, 4)])
@pytest.mark.parametrize("layout", ["packed", "fortran", "byte order"])
def test_relu_grad(dtype: npt.DTypeLike, shape: tuple[int, ...], layout: str, dmlc: Dmlc) -> None:
    x, dy = special(shape, dtype, 1), special(shape, dtype, 2)
    np.save("x.npy", np.asfortranarray(x) if layout == "fortran" else x)
    swapped = dy.astype(dy.dtype.newbyteorder()) if layout == "byte order" else dy
    np.save("dy.npy", swapped)
    found = dmlc("run", GRAD, "--input", "InputTensor=x.npy", "--input",
                 "InputGradientTensor=dy.npy", "-o", "out", "--verify")  # fmt: skip
    assert found.status == 0
    shown = f"OutputGradientTensor {x.dtype}{list(shape)}: PASS, exact ({x.size:,} elements)"
    assert found.out.splitlines() == [shown]
    assert same_bits(read_array("out/OutputGradientTensor.npy"), relu_grad(x, dy))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("use_dst", ["true", "false"])
def test_relu_backward(dtype: npt.DTypeLike, use_dst: str, dmlc: Dmlc) -> None:
    x, dy = special((3, 50), dtype, 3), special((3, 50), dtype, 4)
    np.save("x.npy", x)
    np.save("dy.npy", dy)
    inputs = ("--input", "src=x.npy", "--input", "diff_dst=dy.npy")
    setting = ("--attr", f"use_dst={use_dst}")
    found = dmlc("run", "onednn.ReLUBackward", *inputs, *setting, "-o", "out", "--verify")
    assert found.status == 0
    assert found.out == f"diff_src {x.dtype}[3, 50]: PASS, exact (150 elements)\n"
    assert same_bits(read_array("out/diff_src.npy"), relu_grad(x, dy))


def test_bfloat16_words(dmlc: Dmlc) -> None:
    x = special((20,), ml_dtypes.bfloat16, 5)
    np.save("x.npy", x.view(np.uint16))
    words = dmlc("run", "onednn.ReLU", "--input", "src=x.npy", "-o", "out", "--verify")
    assert words.status == 1
    assert "UINT16" in words.err
    given = ("--input", "src=x.npy", "--tensor", "src=BFLOAT16")
    assert dmlc("run", "onednn.ReLU", *given, "-o", "out", "--verify").status == 0
    assert read_array("out/dst.npy").dtype == ml_dtypes.bfloat16


def test_without_a_folder_nothing_is_written(dmlc: Dmlc) -> None:
    np.save("x.npy", np.ones(3, np.float32))
    found = dmlc("run", "onednn.ReLU", "--input", "src=x.npy", "--device", "reference")
    assert found.out == "dst float32[3]\n  min 1, max 1, mean 1\n  [1, 1, 1]\n"
    assert found.err == "ran on reference\n"
    assert [p.name for p in Path().iterdir()] == ["x.npy"]


def test_json(dmlc: Dmlc) -> None:
    np.save("x.npy", np.ones((2, 3), np.float32))
    found = dmlc("run", "onednn.ReLU", "--input", "src=x.npy", "--verify", "--json")
    told = json.loads(found.out)
    assert told["outputs"]["dst"] == {
        "dtype": "float32",
        "sizes": [2, 3],
        "verified": {
            "holds": True, "different": 0, "largest_difference": 0.0, "largest_relative": 0.0,
            "largest_ulp": 0.0,
            "out_of_place": 0,
        },
    }  # fmt: skip


OPEN = ("--tensor", "InputTensor=FLOAT32[N, 64]", "--tensor", "InputGradientTensor=FLOAT32[N,64]")


@pytest.mark.parametrize("device", ["opencl", "vulkan", "reference"])
def test_sizes_left_open(device: str, dmlc: Dmlc) -> None:
    for rows in (1, 7):
        np.save("x.npy", special((rows, 64), np.float32, 0))
        np.save("dy.npy", special((rows, 64), np.float32, 1))
        found = dmlc("run", GRAD, *OPEN, "--input", "InputTensor=x.npy", "--input",
                     "InputGradientTensor=dy.npy", "--verify", "--device", device)  # fmt: skip
        assert found.status == 0, found.err
        assert found.out.startswith(f"OutputGradientTensor float32[{rows}, 64]: PASS, exact")
    np.save("dy.npy", np.zeros((8, 64), np.float32))
    found = dmlc("run", GRAD, *OPEN, "--input", "InputTensor=x.npy", "--input",
                 "InputGradientTensor=dy.npy", "--device", device)  # fmt: skip
    assert found.status == 1
    assert "the size 'N' is 7 along axis 0 of InputTensor, and 8 along axis 0 of Inp" in found.err


def test_sizes_left_open_beside_numbers(dmlc: Dmlc) -> None:
    np.save("x.npy", np.zeros((3, 63), np.float32))
    found = dmlc("run", GRAD, *OPEN, "--input", "InputTensor=x.npy")
    assert found.status == 1
    assert "'x.npy' does not fit what --tensor says: axis 1 of InputTensor has 64" in found.err
    found = dmlc("compile", GRAD, *OPEN, "--target", "hlsl")
    assert found.status == 0
    assert "uint n; // 64 * N" in found.out
    wrong = dmlc("compile", GRAD, "--tensor", "InputTensor=FLOAT32[N,6.5]")
    assert wrong.status == 2
    assert "expected whole numbers or names separated by commas, found 'N,6.5'" in wrong.err


def test_empty_arrays_run(dmlc: Dmlc) -> None:
    np.save("x.npy", np.ones((2, 0, 3), np.float32))
    found = dmlc("run", "onednn.ReLU", "--input", "src=x.npy", "-o", "out", "--verify")
    assert found.out == "dst float32[2, 0, 3]: PASS, exact (0 elements)\n"
    assert read_array("out/dst.npy").shape == (2, 0, 3)


def test_a_result_that_is_not_near_enough_is_status_1(
    dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = run_command.verify

    def verify_damaged(
        operator: Any, inputs: Any, attributes: Any, results: Any, dims: Any, floats: Any
    ) -> dict[str, Verdict]:
        damaged = {n: a + 1 for n, a in results.items()}
        return verify(operator, inputs, attributes, damaged, dims, floats)

    def explain(device: str) -> str:
        return f"{device} gives every known answer"

    monkeypatch.setattr(run_command, "verify", verify_damaged)
    monkeypatch.setattr(run_command, "explain_failure", explain)
    np.save("x.npy", np.ones(3, np.float32))
    found = dmlc("run", "onednn.ReLU", "--input", "src=x.npy", "--verify")
    assert found.status == 1
    assert found.out == (
        "dst float32[3]: FAIL, 3 of 3 elements differ, by 1 at most (1 relative, 8388608 ulp); "
        "at [0] it is 2 where 1 is expected: it must be exact\n"
        "  min 1, max 1, mean 1\n  [1, 1, 1]\n"
    )
    assert found.err.endswith("\nopencl gives every known answer\n")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--input", "src"], 2, "expected NAME=VALUE, found 'src'"),
        (["--input", "src=x.npy", "--input", "src=x.npy"], 2, "'src' is given twice"),
        (["--input", "src=none.npy"], 1, "cannot read 'none.npy': no such file"),
        (["--input", "scr=x.npy"], 1, "'scr'"),
        ([], 1, "src"),
        (["--input", "src=x.npy", "--attr", "slope=1"], 1, "unknown attribute 'slope'"),
        (["--input", "src=x.npy", "--tensor", "src=FLOAT16"], 1, "src is FLOAT16, but 'x.npy'"),
        (["--input", "src=x.npy", "--tensor", "dst=FLOAT32[7]"], 1, "Sizes"),
        (["--input", "src=x.npy", "--tensor", "src=FLOAT32[3]{1}"], 2, "leave the strides out"),
        (["--input", "src=x.npy", "--device", "opencl:none"], 3, "no OpenCL device matches 'none'"),
        (["--input", "src=x.npy", "--device", "d3d12:none"], 3, "Direct3D 12"),
        (["--input", "src=x.npy", "--device", "cuda"], 1, "unknown device 'cuda'"),
        (["--input", "src=d.npy"], 1, "FLOAT64"),
        (["--input", "src=x.npy", "-o", "x.npy"], 1, "cannot write"),
        (["--input", "src=x.npy", "-o", "x.npy/deeper"], 1, "cannot write"),
    ],
)
def test_mistakes(arguments: list[str], status: int, message: str, dmlc: Dmlc) -> None:
    np.save("x.npy", np.ones(3, np.float32))
    np.save("d.npy", np.ones(3, np.float64))
    found = dmlc("run", "onednn.ReLU", *arguments)
    assert found.status == status
    assert message in found.err
    assert found.out == ""
    assert sorted(p.name for p in Path().iterdir()) == ["d.npy", "x.npy"]


JOIN = """operator JOIN {
    tensors { | Tensor | Kind | Ranks | Types |
              | Parts | Array of inputs | 2 | f32 |
              | Whole | Output | 2 | f32 |
              | Halves | Array of outputs | 2 | f32 | }
    compute {
        Whole = join(Parts, axis: 1)
        Halves = split(Whole, axis: 0)
    }
}
"""


def test_arrays_of_tensors(dmlc: Dmlc) -> None:
    Path("join.dml").write_text(JOIN, "utf-8")
    parts = [np.ones((2, n), np.float32) * n for n in (1, 2)]
    for number, part in enumerate(parts):
        np.save(f"p{number}.npy", part)
    found = dmlc(
        "run", "join.dml", "--input", "Parts[0]=p0.npy", "--input", "Parts[1]=p1.npy",
        "--tensor", "Halves[0]=f32[1,3]", "--tensor", "Halves[1]=f32[1,3]",
        "--device", "reference", "-o", "out", "--verify",
    )  # fmt: skip
    assert found.err == "ran on reference\n"
    whole = np.concatenate(parts, axis=1)
    assert np.array_equal(np.load("out/Whole.npy"), whole)
    assert np.array_equal(np.load("out/Halves[1].npy"), whole[1:])
    result = package.run(
        package.load("join.dml").operators["JOIN"], {"Parts": parts},
        outputs={"Halves": [(1, 3), (1, 3)]}, device="reference",
    )  # fmt: skip
    assert list(result) == ["Whole", "Halves[0]", "Halves[1]"]
    assert np.array_equal(result["Halves[0]"], whole[:1])


def test_graphs(dmlc: Dmlc) -> None:
    path = Path(__file__).parents[2] / "examples/graphs/sgd_momentum.dml"
    random = np.random.default_rng(0)
    for name in ("weights", "velocity", "gradient"):
        np.save(f"{name}.npy", random.standard_normal((4, 5)).astype(np.float32))
    np.save("rate.npy", np.full((1, 1), 0.1, np.float32))
    inputs = [f"--input={n}={n}.npy" for n in ("weights", "velocity", "gradient", "rate")]
    found = dmlc("run", path, *inputs, "--dim", "M=4", "--verify", "-o", "out")
    assert found.status == 0, found.err
    assert [line.split(":")[0] for line in found.out.splitlines()] == [
        "new_velocity float32[4, 5]", "new_weights float32[4, 5]",
    ]  # fmt: skip
    velocity, weights = np.load("velocity.npy"), np.load("weights.npy")
    expected = 0.9 * velocity + np.load("gradient.npy") + 1e-4 * weights
    np.testing.assert_allclose(read_array("out/new_velocity.npy"), expected, rtol=1e-5, atol=1e-7)
    assert dmlc("run", path, *inputs[1:]).status == 1
    assert dmlc("run", path, *inputs, "--attr", "A=1").status == 2


def test_check_memory(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    x = special((4, 9), np.float32, 1)
    np.save("x.npy", x)
    given = ("--input", "InputTensor=x.npy", "--input", "InputGradientTensor=x.npy")
    found = dmlc("run", GRAD, *given, "--check-memory")
    assert found.status == 0
    tool = name_tool("opencl")
    assert found.out.splitlines()[3:] == [f"memory, by {tool}: nothing stray"]
    found = dmlc("run", GRAD, *given, "--check-memory", "--json", "--tensor",
                 "InputTensor=FLOAT32[N,9]", "--tensor",
                 "InputGradientTensor=FLOAT32[N,9]")  # fmt: skip
    assert json.loads(found.out)["memory"] == []
    assert json.loads(found.out)["memory_tool"] == tool

    def check_nothing(*_: object) -> list[str]:
        return ["cpu: the kernel k stores into X at element 3"]

    monkeypatch.setattr(run_command, "check_run", check_nothing)
    found = dmlc("run", GRAD, *given, "--check-memory")
    assert found.status == 1
    assert found.out.splitlines()[3:] == [
        f"memory, by {tool}: 1 problem", "cpu: the kernel k stores into X at element 3"
    ]  # fmt: skip
    found = dmlc("run", GRAD, *given, "--check-memory", "--json")
    assert found.status == 1
    assert json.loads(found.out)["memory"] == ["cpu: the kernel k stores into X at element 3"]


def test_the_reference_has_no_memory_to_check(dmlc: Dmlc) -> None:
    np.save("x.npy", np.ones(3, np.float32))
    given = ("--input", "InputTensor=x.npy", "--input", "InputGradientTensor=x.npy")
    found = dmlc("run", GRAD, *given, "--check-memory", "--device", "reference")
    assert found.status == 1
    assert "the reference has no kernels whose memory could be checked" in found.err
