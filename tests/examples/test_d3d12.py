"""The Direct3D 12 example: its generated files are current, and its program is right. Here it runs
on a mock of Direct3D 12, whose launches Vulkan computes from the same HLSL."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path

import pytest

from dmlc.manifest import read_manifest
from dmlc.program import KernelSource
from dmlc.runtime.hlsl import compile_kernel
from examples.d3d12 import generate
from tests.interop.d3d12 import runner
from tests.interop.d3d12.compiler import build, write_stubs

EXAMPLE = Path(generate.__file__).parent
GENERATED = EXAMPLE / "generated"
ROOT = EXAMPLE.parents[1]
PAGE = ROOT / "docs/how-to/d3d12-cpp.md"


def test_generated_files_are_current(tmp_path: Path) -> None:
    assert generate.main(tmp_path) == 0
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    kept = {p.relative_to(GENERATED): p.read_bytes() for p in GENERATED.rglob("*.*")}
    assert made == kept, "run: python examples/d3d12/generate.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, built with the mock."""
    folder = tmp_path_factory.mktemp("example")
    write_stubs(folder)
    source = folder / "example.cpp"
    source.write_text(f'#include "mock_d3d12.hpp"\n#include "{EXAMPLE / "main.cpp"}"\n', "utf-8")
    build(source, folder / "example", [folder, *(GENERATED / name for name in generate.PROGRAMS)])
    return folder


def compile_kernels(folder: Path) -> dict[bytes, KernelSource]:
    """Writes the shaders of the example, and gives the kernels by them."""
    kernels: dict[bytes, KernelSource] = {}
    programs = generate.make_programs().values()
    for kernel in (kernel for program in programs for kernel in program.kernels):
        shader = compile_kernel(kernel).dxil
        (folder / f"{kernel.name}.dxil").write_bytes(shader)
        kernels[shader] = kernel
    return kernels


def test_the_example_finds_its_results_right(example: Path) -> None:
    output = example / "output.txt"
    kernels = compile_kernels(example)
    assert runner.run([example / "example", example], kernels, output) == 0
    lines = output.read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith(("dispatch ", "barrier "))] == [
        "ACTIVATION_RELU_GRAD of 1 elements",
        "  OutputGradientTensor: 1 elements, largest difference 0, 0 wrong",
        "ACTIVATION_RELU_GRAD of 100003 elements",
        "  OutputGradientTensor: 100003 elements, largest difference 0, 0 wrong",
        "relu_bias_backward of 10000 rows and 48 columns",
        "  dx: 480000 elements, largest difference 0, 0 wrong",
        lines[-2],
        "all right",
    ]
    assert re.fullmatch(r"  dbias: 48 elements, largest difference \S+e-05, 0 wrong", lines[-2])


def test_the_example_finds_what_is_wrong(example: Path) -> None:
    """The second kernel of the layer is left undone."""
    output = example / "output.txt"
    kernels = compile_kernels(example)
    (last,) = (s for s, kernel in kernels.items() if kernel.name == "relu_bias_backward_2")
    source = kernels[last].source.replace("dbias[", "if (group_id.x > 9) dbias[")
    assert source != kernels[last].source
    kernels[last] = dataclasses.replace(kernels[last], source=source)
    assert runner.run([example / "example", example], kernels, output) == 1
    text = output.read_text("utf-8")
    assert "dbias: 48 elements" in text
    assert "48 wrong" in text
    assert text.endswith("something is wrong\n")


def test_the_example_says_what_it_lacks(example: Path, tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    assert runner.run([example / "example", tmp_path], {}, output) == 2
    assert output.read_text("utf-8") == f"cannot read {tmp_path}/ACTIVATION_RELU_GRAD.dxil\n"


def test_the_build_compiles_every_kernel() -> None:
    """CMake reads names, files and arguments of the manifests."""
    text = (EXAMPLE / "CMakeLists.txt").read_text("utf-8")
    folders = re.findall(r"^add_dmlc_program\(\S+ \S+/generated/(\w+)\)", text, re.MULTILINE)
    assert folders == list(generate.PROGRAMS)
    for name in folders:
        manifest = json.loads((GENERATED / name / "manifest.json").read_text("utf-8"))
        for kernel in manifest["kernels"]:
            assert (GENERATED / name / kernel["file"]).is_file()
            assert kernel["compile"]["compiler"] == "dxc"
        # CMake holds the files to these digests.
        assert read_manifest(GENERATED / name) == manifest
        assert f"{name}.hpp" in manifest["files"]


def test_listings_of_the_page_are_of_files_that_are_compiled() -> None:
    text = PAGE.read_text("utf-8")
    found = re.findall(r"<!-- part of: (\S+) -->\n```cpp\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```cpp") > 0
    for name, listing in found:
        whole = (ROOT / name).read_text("utf-8")
        depth = re.search(rf"^( *){re.escape(listing.splitlines()[0])}$", whole, re.MULTILINE)
        assert depth, f"{name} has no line {listing.splitlines()[0]!r}"
        assert textwrap.indent(listing, depth[1]) in whole, name
