"""`dmlc compile --matrix-instruction`, as `docs/how-to/vulkan.md` has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dmlc.matrices import INSTRUCTIONS
from tests.cli.conftest import Dmlc

ROOT = Path(__file__).resolve().parents[2]
TENSORS = ("--tensor", "ATensor=FLOAT16[512,512]", "--tensor", "BTensor=FLOAT16[512,512]")
GEMM = ("directml.GEMM", *TENSORS)


def test_the_command_of_the_page_makes_all_kernels(dmlc: Dmlc, tmp_path: Path) -> None:
    given = (*GEMM, "--target", "hlsl", "--matrix-instruction", "all", "-o", "out")
    page = (ROOT / "docs/how-to/vulkan.md").read_text().replace("\\\n    ", "")
    assert f"dmlc compile {' '.join(given)}\n" in page
    assert dmlc("compile", *given).status == 0
    (kernel,) = json.loads((tmp_path / "out/manifest.json").read_text())["kernels"]
    assert [a["matrix"]["name"] for a in kernel["alternatives"]] == [i.name for i in INSTRUCTIONS]
    for each in INSTRUCTIONS:
        shape = each.shape
        row = f"| `{each.name}` | {shape.m} x {shape.n} outputs, {shape.k} points | {each.subgroup}"
        assert f"{row} | {each.devices} |" in page


@pytest.mark.parametrize(("target", "why"), [("opencl", "OpenCL C"), ("wgsl", "an experiment")])
def test_other_targets_have_none(dmlc: Dmlc, target: str, why: str) -> None:
    done = dmlc("compile", *GEMM, "--target", target, "--matrix-instruction", "8x8x8/8")
    assert done.status != 0
    assert "--matrix-instruction needs the target hlsl" in done.err
    assert why in done.err


def test_of_all_targets_hlsl_has_them(dmlc: Dmlc) -> None:
    done = dmlc("compile", *GEMM, "--matrix-instruction", "8x8x8/8", "--json")
    assert done.status == 0
    assert done.out.count('"matrix": {') == 1


def test_a_run_takes_the_option(dmlc: Dmlc, tmp_path: Path) -> None:
    ones = np.ones((48, 48), np.float16)
    np.save(tmp_path / "a.npy", ones)
    given = ("directml.GEMM", "--input", "ATensor=a.npy", "--input", "BTensor=a.npy")
    done = dmlc("run", *given, "--device", "vulkan", "--matrix-instruction", "all", "--verify")
    assert done.status == 0
    assert "PASS" in done.out
    done = dmlc("run", *given, "--device", "opencl", "--matrix-instruction", "all")
    assert done.status != 0
    assert "OpenCL C has no matrices" in done.err
