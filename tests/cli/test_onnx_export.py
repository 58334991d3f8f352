"""`dmlc export --to onnx`: models as files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Dmlc

GRAPHS = Path(__file__).resolve().parents[2] / "examples/graphs"


def test_the_command(dmlc: Dmlc) -> None:
    found = dmlc("export", "directml.GEMM", "--to", "onnx", "-o", "out")
    assert (found.status, found.out, found.err) == (0, f"{Path('out', 'GEMM.onnx')}\n", "")
    model = onnx.load("out/GEMM.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [2, 3]
    bound = ("--tensor", "src=FLOAT16[2,5]", "--attr", "axis=1")
    assert dmlc("export", "onednn.SoftMax", *bound, "--to", "onnx", "-o", "out").status == 0
    element = onnx.load("out/SoftMax.onnx").graph.input[0].type.tensor_type.elem_type
    assert element == onnx.TensorProto.FLOAT16
    again = Path("out/SoftMax.onnx").read_bytes()
    assert dmlc("export", "onednn.SoftMax", *bound, "--to", "onnx", "-o", "out").status == 0
    assert Path("out/SoftMax.onnx").read_bytes() == again


def test_the_command_on_graphs(dmlc: Dmlc) -> None:
    path = str(GRAPHS / "sgd_momentum.dml")
    sizes = ("--dim", "M=4", "--dim", "K=3")
    assert dmlc("export", path, *sizes, "--to", "onnx", "-o", "out").status == 0
    assert [f.name for f in onnx.load("out/sgd_momentum.onnx").functions] == ["sgd_momentum"]


@pytest.mark.parametrize(
    "option", [("--seed", "1"), ("--input", "X=x.npy"), ("--shader-model", "6.0")]
)
def test_the_command_refuses_what_is_said_of_data(dmlc: Dmlc, option: tuple[str, ...]) -> None:
    found = dmlc("export", "directml.GEMM", "--to", "onnx", *option, "-o", "out")
    assert found.status == 2
    assert f"{option[0]} says nothing of onnx, which has no data" in found.err
    assert not Path("out").exists()


def test_the_command_refuses_open_sizes(dmlc: Dmlc) -> None:
    arguments = ("--tensor", "src=FLOAT32[N,3]", "--to", "onnx", "-o", "out")
    found = dmlc("export", "onednn.ReLU", *arguments)
    assert found.status == 1
    assert "'ReLU' has the open size 'N'" in found.err


def test_the_command_needs_an_example_or_sizes(dmlc: Dmlc) -> None:
    Path("own.dml").write_text("""operator NEGATE {
        tensors {
            | Tensor | Kind   | Ranks | Types |
            | ------ | ------ | ----- | ----- |
            | x      | Input  | 1     | f32   |
            | y      | Output | 1     | f32   |
        }
        constraints { x and y must have the same Sizes. }
        compute { y = -x }
    }""", "utf-8")  # fmt: skip
    found = dmlc("export", "own.dml", "--to", "onnx", "-o", "out")
    assert (found.status, "NEGATE has no example\n" in found.err) == (1, True)
    assert "--tensor NAME=FLOAT32[2,3]" in found.err
    bound = ("--tensor", "x=FLOAT32[3]")
    assert dmlc("export", "own.dml", *bound, "--to", "onnx", "-o", "out").status == 0
