"""Folders as KernelBench has them, judged: `dmlc.torch.models`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc import cli
from dmlc.source import DmlcError, UnsupportedError
from dmlc.torch.models import judge_models

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, self.slope)

def get_inputs():
    return [torch.randn(16, 16384)]

def get_init_inputs():
    return [0.5]
"""
RIGHT = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.where(x < 0, x * self.slope, x)
"""
WHERE = "alpha == 0.5"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "20_LeakyReLU.py").write_text(REFERENCE)
    (tmp_path / "a_right.py").write_text(RIGHT)
    wrong = RIGHT.replace("torch.where(x < 0, x * self.slope, x)",
                          "torch.where(x > 0, x, x.nan_to_num() * self.slope)")  # fmt: skip
    (tmp_path / "b_wrong.py").write_text(wrong)
    return tmp_path


def test_a_folder(folder: Path) -> None:
    found = judge_models(folder, "onednn.LeakyReLU", where=WHERE, cases=6)
    titles = [judgement.name for judgement in found]
    assert titles == ["Model of 20_LeakyReLU.py (Python)", "ModelNew of a_right.py (Python)",
                      "ModelNew of b_wrong.py (Python)"]  # fmt: skip
    assert [judgement.passed for judgement in found] == [True, True, False], str(found[0])
    assert found[1].roofline is not None
    assert "likely: NaN is lost" in str(found[2])


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["test", "onednn.LeakyReLU", "--kernel", str(folder), "--where", WHERE, "--cases", "6"]
    assert cli.run(given) == 1
    said = capsys.readouterr().out
    assert "ModelNew of b_wrong.py (Python) is not onednn.LeakyReLU" in said
    alone = [str(folder / "20_LeakyReLU.py") if word == str(folder) else word for word in given]
    assert cli.run(alone) == 0
    assert cli.run([*alone, "--groups", "1"]) == 2


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(DmlcError, match="has 0 files with a class Model"):
        judge_models(tmp_path, "onednn.ReLU")
    path = tmp_path / "model.py"
    path.write_text("class Model:\n    pass\n1 / 0\n")
    with pytest.raises(DmlcError, match="cannot be imported: ZeroDivisionError"):
        judge_models(tmp_path, "onednn.ReLU")
    path.write_text(REFERENCE.replace("self.slope = slope", "self.own = torch.nn.Linear(2, 2)"))
    with pytest.raises(UnsupportedError, match=r"parameters of its own: own.weight, own.bias"):
        judge_models(tmp_path, "onednn.ReLU")
    path.write_text("class Model(:")
    with pytest.raises(DmlcError, match="is no Python"):
        judge_models(tmp_path, "onednn.ReLU")
