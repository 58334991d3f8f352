"""Programs with matrix instructions: what they need, what hosts choose, what DXC makes of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.devices import list_matrices
from dmlc.interop.cpp_header import write_header
from dmlc.matrices import INSTRUCTIONS, NOTHING, Offer, Shape, find_denied, find_instruction
from dmlc.program import Program
from dmlc.runtime import vulkan
from dmlc.runtime.hlsl import compile_files, compile_kernel
from dmlc.scalars import Array, DataType
from dmlc.source import UnknownNameError, UnsupportedError
from dmlc.testing.verify import verify
from tests.products import Product

NAMES = tuple(each.name for each in INSTRUCTIONS)
HALVES = Product(33, 65, 40, dtype="f16").make()
LARGE, SMALL = find_instruction("16x16x16/32"), find_instruction("8x8x8/8")


def compile_product(*names: str, target: str = "hlsl", model: str | None = None) -> Program:
    return dmlc.compile(HALVES, target, shader_model=model, matrix_instructions=names)


def draw_halves() -> dict[str, Array]:
    random = np.random.default_rng(0)
    sizes = {p.name: tuple(map(int, p.extents)) for p in HALVES.parameters}
    return {n: random.standard_normal(s).astype(np.float16) for n, s in sizes.items()}


def offer(*rows: str, denied: str = "", subgroups: tuple[int, int] = (8, 32)) -> Offer:
    shapes = (find_instruction(row).shape for row in rows)
    return Offer(tuple(shapes), subgroups, denied)


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (NOTHING, None),
        (offer("8x8x8/8"), SMALL),
        (offer("8x8x8/8", "16x16x16/32"), LARGE),
        # Of these a kernel cannot have the subgroups that it is written for.
        (offer("16x16x16/32", subgroups=(64, 64)), None),
        (offer("16x16x16/32", denied="it is slow"), None),
        (Offer((dataclasses.replace(LARGE.shape, sum=DataType.FLOAT16),), (8, 32)), None),
    ],
)
def test_a_host_takes_the_first_that_a_device_has(listed: Offer, chosen: object) -> None:
    program = compile_product("16x16x16/32", "8x8x8/8")
    (plain,) = program.kernels
    (taken,) = program.choose(listed).kernels
    assert taken.matrix == chosen
    assert taken.alternatives == ()
    if chosen is None:
        assert taken.source == plain.source == compile_product().kernels[0].source
    assert (taken.buffers, taken.scalars, taken.after) == (
        plain.buffers, plain.scalars, plain.after,
    )  # fmt: skip


def test_the_manifest_says_what_is_needed(tmp_path: Path) -> None:
    program = compile_product(*NAMES)
    program.write(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (kernel,) = manifest["kernels"]
    assert "matrix" not in kernel
    assert [each["matrix"]["name"] for each in kernel["alternatives"]] == list(NAMES)
    assert kernel["alternatives"][0]["matrix"] == {
        "name": "16x16x16/32", "m": 16, "n": 16, "k": 16, "factors": "FLOAT16", "sum": "FLOAT32",
        "scope": "subgroup", "subgroup_size": 32,
    }  # fmt: skip
    for each in (kernel, *kernel["alternatives"]):
        assert (tmp_path / each["file"]).is_file()
        assert [b["register"] for b in each["buffers"]] == [
            b["register"] for b in kernel["buffers"]
        ]
    arguments = kernel["alternatives"][0]["compile"]["arguments"]
    assert "-spirv" in arguments
    assert "-Gis" not in arguments
    assert "alternatives" not in compile_product().manifest()["kernels"][0]


@pytest.mark.parametrize("name", NAMES)
def test_dxc_makes_spirv_of_it(name: str) -> None:
    """What `spirv-val` says of it, `make d3d12` asks: that of Debian 12 is too old."""
    program = compile_product(name)
    ((made,),) = (kernel.alternatives for kernel in program.kernels)
    compiled = compile_kernel(made)
    assert compiled.dxil == b""
    assert {"CooperativeMatrixKHR", "VulkanMemoryModel"} <= set(compiled.facts.capabilities)
    assert compiled.facts.group_size == (made.dispatch.group_size, 1, 1)
    files = compile_files(program)
    assert sorted(files) == sorted(
        [f"{program.kernels[0].name}.dxil", f"{program.kernels[0].name}.spv", f"{made.name}.spv"]
    )


def test_results_are_right_whatever_the_device_has() -> None:
    device, inputs = vulkan.find_device(), draw_halves()
    executable = vulkan.load_on(compile_product(*NAMES), device)
    results, report = executable.run(inputs)
    assert executable.bind(inputs).report.matrices == report.matrices
    assert report.matrices == tuple(each.name for each in device.matrices.list_usable()[:1])
    assert ("bits depend on the device" in str(report)) is bool(report.matrices)
    (verdict,) = verify(HALVES, inputs, {}, results, floats=device.floats).values()
    assert verdict.holds


def test_a_run_takes_what_the_device_has() -> None:
    inputs = draw_halves()
    results = dmlc.run(HALVES, inputs, device="vulkan", matrix_instructions=NAMES)
    rows = list_matrices(vulkan.find_device())
    assert results.report.matrices == tuple(each.name for each in rows[:1])
    (verdict,) = verify(HALVES, inputs, {}, results).values()
    assert verdict.holds
    for device, why in (("opencl", "OpenCL C has no matrices"), ("reference", "has no kernels")):
        with pytest.raises(UnsupportedError, match=why):
            dmlc.run(HALVES, inputs, device=device, matrix_instructions=NAMES)


def test_host_code_for_direct3d_runs_the_plain_kernel() -> None:
    headers = (
        write_header(dmlc.compile(HALVES, "hlsl", root_signature=False, matrix_instructions=names))
        for names in (NAMES, ())
    )
    assert len(set(headers)) == 1


@pytest.mark.parametrize(
    ("target", "model", "why"),
    [
        ("opencl", None, "OpenCL C has no matrices"),
        ("hlsl", "6.0", "need 16-bit types, which shader model 6.0 has not"),
    ],
)
def test_other_languages_are_refused(target: str, model: str | None, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        compile_product("8x8x8/8", target=target, model=model)


def test_unknown_instructions_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown matrix instruction '8x8'"):
        compile_product("8x8")


@pytest.mark.parametrize(
    ("device", "denied"),
    [
        ("Intel(R) Arc(tm) A770 Graphics (DG2), Intel open-source Mesa driver Mesa 25.1", True),
        ("Intel(R) Arc(TM) A380 Graphics, Intel Corporation 101.5590", True),
        ("Intel(R) Arc(tm) B580 Graphics (BMG G21), Intel open-source Mesa driver", False),
        ("NVIDIA A100-SXM4-80GB, NVIDIA 580.159", False),
    ],
)
def test_devices_that_are_slow_at_it_are_denied(device: str, denied: bool) -> None:
    assert bool(find_denied(device)) is denied


def test_what_a_device_lists_is_said() -> None:
    other = Shape(16, 16, 32, DataType.INT8, DataType.INT32)
    listed = Offer((LARGE.shape, other), (32, 32))
    (said,) = listed.facts
    assert said == (
        "matrix instructions (16x16x16 FLOAT16 to FLOAT32; 16x16x32 INT8 to INT32), "
        "used as 16x16x16/32"
    )
    assert Offer((other,), (32, 32)).facts[0].endswith("none of which is used")
    assert dataclasses.replace(listed, denied="slow").facts[0].endswith("not used: slow")
    assert NOTHING.facts == ()
