"""Custom operators for ONNX Runtime as C++: what is refused, and that compilers take the rest.
`tests/peers` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto

import dmlc
from dmlc import TensorDesc, ir
from dmlc.interop.ort_plugin import ELEMENTS, export_files
from dmlc.source import UnsupportedError
from tests.interop.d3d12 import programs
from tests.interop.d3d12.compiler import run

RELU = dmlc.operator("directml.ACTIVATION_RELU")


def test_element_types_are_those_of_onnx() -> None:
    names = {"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}
    assert {
        name: TensorProto.DataType.Value(names.get(name, name)) for name in ELEMENTS
    } == ELEMENTS


def test_compilers_take_operators_of_every_kind(tmp_path: Path) -> None:
    """Loops, constants, scratch, names that C++ keeps, and sources longer than a literal may be."""
    tensor = programs.tensor
    lines = dict.fromkeys(("min", "OUT", "sizes", "class_"), tensor("FLOAT32", "sizes"))
    resample = dmlc.operator("directml.RESAMPLE")
    sizes = {programs.X: (1, 2, 50, 30), programs.Y: (1, 2, 65, 21)}
    given = {name: tensor("FLOAT32", *each) for name, each in sizes.items()}
    attributes = {"InterpolationMode": "LINEAR", "Scales": [1, 1, 1.3, 0.7]}
    functions = [
        (RELU.bind({"InputTensor": TensorDesc("FLOAT32")}), RELU),
        (programs.read_text(programs.LOOP, X=tensor("FLOAT32", "T", 1 << 20)), RELU),
        (programs.read_text(programs.NAMES, **lines), RELU),
        (programs.read_text(programs.CHAIN, X=tensor("FLOAT32", "N", "N")), RELU),
        (resample.bind(given, attributes), resample),
    ]
    texts: list[str] = []
    for function, subject in functions:
        for name, content in export_files(function, subject).files.items():
            (tmp_path / name).write_bytes(content)
        texts.append((tmp_path / f"{function.name}.op.cpp").read_text("utf-8"))
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    run("c++", *strict, *tmp_path.glob("*.op.cpp"))
    loop, chain = texts[1], texts[3]
    assert "for (std::uint64_t step = sizes[at::T]; step-- > 0;)" in loop
    assert max(map(len, chain.split('R"dmlc(')[1:])) < 16_380
    assert "values_" in texts[4]


def test_strides_are_refused() -> None:
    function = RELU.bind({"InputTensor": TensorDesc("FLOAT32", (2, 3), (8, 1))})
    with pytest.raises(UnsupportedError, match="'InputTensor' of ACTIVATION_RELU has strides"):
        export_files(function, RELU)


def test_what_direct3d_12_cannot_run_is_for_opencl_alone() -> None:
    """A sum of halves is a single half, which shader model 6.0 cannot store."""
    function = ir.parse(
        "func @f(%x: f16[3, 5]) -> (%y) { %y: f16[i0 < 3] = sum[r0 < 5] %x[i0, r0] }"
    )
    export = export_files(function, RELU, shader_model="6.0")
    (note,) = export.notes
    assert note.startswith("f is for OpenCL alone: ")
    assert "f.hpp" not in export.files
    assert f'#error "f: {note.partition(": ")[2][:20]}'.encode() in export.files["f.op.cpp"]
    assert not export_files(function, RELU, shader_model="6.2").notes
