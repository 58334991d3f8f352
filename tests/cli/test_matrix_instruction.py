"""`dmlc compile --matrix-instruction`, as `docs/how-to/vulkan.md` has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmlc.matrices import INSTRUCTIONS
from dmlc.pipeline import compile as compile_program
from dmlc.runtime.dxc import compile_spirv
from dmlc.source import UnsupportedError
from tests.cli.conftest import Dmlc
from tests.goldens import GOLDEN
from tests.products import Product

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


def test_opencl_has_none(dmlc: Dmlc) -> None:
    done = dmlc("compile", *GEMM, "--target", "opencl", "--matrix-instruction", "8x8x8/8")
    assert done.status != 0
    assert "--matrix-instruction needs another target than opencl: OpenCL C has no" in done.err


DRAFTS = {
    "dx::linalg": (("--target", "hlsl", "--shader-model", "6.10"), "linalg.hlsl"),
    "subgroup matrices": (("--target", "wgsl"), "subgroup_matrix.wgsl"),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_text_of_drafts_is_kept(
    dmlc: Dmlc, tmp_path: Path, draft: str, check_golden: Callable[[Path, str], None]
) -> None:
    """Nothing compiles it here: it is as somebody has read it."""
    given, kept = DRAFTS[draft]
    tensors = [text.replace("512", "96") for text in TENSORS]
    wanted = ("--matrix-instruction", "16x16x16/32", "-o", "out")
    assert dmlc("compile", "directml.GEMM", *tensors, *given, *wanted).status == 0
    name = f"GEMM_16x16x16_32.{given[1]}"
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made == {f"GEMM.{given[1]}", name, "manifest.json"}
    check_golden(GOLDEN / f"matrices.{kept}", (tmp_path / "out" / name).read_text())


def test_what_is_compiled_needs_another_shader_model(dmlc: Dmlc) -> None:
    given = (*GEMM, "--target", "hlsl", "--shader-model", "6.10")
    done = dmlc("compile", *given, "--host", "cpp")
    assert done.status != 0
    assert "--host cpp needs another shader model: no DXC" in done.err
    program = compile_program(Product(32, 32, 32).make(), "hlsl", shader_model="6.10")
    with pytest.raises(UnsupportedError, match=r"shader model 6\.10 is a draft: no DXC"):
        compile_spirv(program.kernels[0].source, shader_model="6.10")


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
