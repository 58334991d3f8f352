"""A library of custom operators for ONNX Runtime, as C++ with CMake: `dmlc export --to ort-plugin`.

Tensors lie in the host's memory, and the kernels run on an OpenCL device: those for CPUs or those
for GPUs, whichever it is. `templates/ort_operator.cpp.j2` is filled from `host_program`; the host
(`ort_plugin.cpp`) is the same for all. A folder may hold several operators, one file each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dmlc.binding import Graph, Operator
from dmlc.codegen.names import make_file_stem
from dmlc.files import name_file
from dmlc.interop.cpp_names import is_reserved
from dmlc.interop.export import Export
from dmlc.interop.host_names import Names, Spelling
from dmlc.interop.host_program import describe_program
from dmlc.ir import Function
from dmlc.pipeline import compile
from dmlc.program import Program, Role
from dmlc.resources import read_resource
from dmlc.source import UnsupportedError
from dmlc.templates import load_template

SPELLING = Spelling(is_reserved, "sizes[at::{}]", own_names=("at", "cpu", "gpu", "registered"))
"""C++ as the plug-in's operators have it: sizes are an array."""

ELEMENTS: Mapping[str, int] = MappingProxyType(
    {
        "FLOAT32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7,
        "BOOL": 9, "FLOAT16": 10, "FLOAT64": 11, "UINT32": 12, "UINT64": 13, "BFLOAT16": 16,
    }
)  # fmt: skip
"""ONNX's numbers of the data types, which are those of ONNX Runtime's C interface too."""

_PROFILES = {"cpu": "For OpenCL devices that are processors.", "gpu": "For all other devices."}
_FILES = {
    "CMakeLists.txt": "ort_CMakeLists.txt",
    "dmlc_plugin.hpp": "ort_plugin.hpp",
    "dmlc_plugin.cpp": "ort_plugin.cpp",
}
"""The files that are the same for all operators, and the templates with their text."""


def export_files(function: Function, subject: Operator | Graph) -> Export:
    """The plug-in of a function: its operator has the function's name, in the domain `dmlc`, and
    its inputs and outputs are the function's, in order.

    Raises `UnsupportedError` where a tensor has strides, and what `compile` raises for OpenCL.
    """
    programs = {profile: compile(function, "opencl", profile) for profile in _PROFILES}
    attributes: list[str] = []
    if isinstance(subject, Operator):
        attributes = [attribute.name for attribute in subject.definition.attributes]
    text = _write_operator(programs, attributes)
    files = {name_file(make_file_stem(function.name), ".op.cpp"): text.encode()}
    files |= {name: read_resource(f"templates/{found}").encode() for name, found in _FILES.items()}
    return Export(files, ("cmake -B build -DCMAKE_BUILD_TYPE=Release", "cmake --build build"))


def _write_operator(programs: Mapping[str, Program], attributes: list[str]) -> str:
    described: list[dict[str, Any]] = []
    for profile, program in programs.items():
        _refuse(program)
        names = Names(program, SPELLING)
        described.append(
            {**describe_program(program, names, {}), "title": _PROFILES[profile],
             "profile": profile}
        )  # fmt: skip
    first = described[0]
    return load_template("ort_operator.cpp.j2").render(
        program=first["program"],
        version=first["version"],
        name=programs["cpu"].name,
        symbols=first["symbols"],
        counter=first["counter"],
        programs=described,
        attributes=attributes,
        elements=ELEMENTS,
    )


def _refuse(program: Program) -> None:
    for tensor in program.tensors:
        if tensor.strides is not None and tensor.role in (Role.INPUT, Role.OUTPUT):
            raise UnsupportedError(
                f"'{tensor.name}' of {program.name} has strides, and ONNX Runtime's tensors are "
                "packed",
                notes=["leave the strides out"],
            )
