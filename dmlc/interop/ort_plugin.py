"""A library of custom operators for ONNX Runtime, as C++ with CMake: `dmlc export --to ort-plugin`.

Tensors are in host memory. The kernels run on an OpenCL device, by the variant for CPUs or for GPUs
that suits it, or on Direct3D 12. `templates/ort_operator.cpp.j2` is filled from `host_program`; for
Direct3D 12 it holds the DXIL, and `cpp_header` launches it. The hosts (`ort_plugin.cpp`, and
`ort_opencl.cpp` or `ort_d3d12.cpp`) are the same for all operators. A folder may hold several
operators, one file each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dmlc.binding import Graph, Operator
from dmlc.codegen.names import make_comment, make_file_stem
from dmlc.codegen.targets import find_target
from dmlc.files import name_file
from dmlc.interop.cpp_header import header_name, write_header
from dmlc.interop.cpp_names import CPP, is_reserved
from dmlc.interop.cpp_text import fill_lines
from dmlc.interop.export import DOMAIN, Export
from dmlc.interop.host_names import Names, Spelling
from dmlc.interop.host_program import describe_program
from dmlc.ir import Function
from dmlc.pipeline import compile
from dmlc.program import Program, Role
from dmlc.resources import read_resource
from dmlc.runtime.interface import find_compiler
from dmlc.source import DmlcError, UnsupportedError
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
    "dmlc_opencl.hpp": "ort_opencl.hpp",
    "dmlc_opencl.cpp": "ort_opencl.cpp",
    "dmlc_d3d12.hpp": "ort_d3d12.hpp",
    "dmlc_d3d12.cpp": "ort_d3d12.cpp",
}
"""The files that are the same for all operators, and the templates with their text."""

_DOMAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_OWN_DOMAINS = re.compile(r"ai\.onnx(\..*)?|com\.microsoft(\..*)?")
"""Those of ONNX and of ONNX Runtime themselves."""


def export_files(
    function: Function,
    subject: Operator | Graph,
    *,
    domain: str = DOMAIN,
    shader_model: str | None = None,
) -> Export:
    """Plug-in of a function: an operator with the function's name, in a domain, with the function's
    inputs and outputs in order. `shader_model` is that of the DXIL for Direct3D 12, 6.2 by default.
    A function that Direct3D 12 cannot run, or that is exported without DXC, is for OpenCL alone; a
    note of the export says why. Raises `UnsupportedError` if a tensor has strides, and the errors
    of `compile` for OpenCL; `DmlcError` for a domain that is not a name, or is reserved."""
    _check_domain(domain)
    programs = {profile: compile(function, "opencl", profile) for profile in _PROFILES}
    for program in programs.values():
        _refuse(program)
    attributes: list[str] = []
    if isinstance(subject, Operator):
        attributes = [attribute.name for attribute in subject.definition.attributes]
    d3d12, files, why = _compile_dxil(function, shader_model)
    text = _write_operator(programs, attributes, domain, d3d12, why)
    files[name_file(make_file_stem(function.name), ".op.cpp")] = text.encode()
    files |= {name: read_resource(f"templates/{found}").encode() for name, found in _FILES.items()}
    return Export(
        files,
        ("cmake -B build -DCMAKE_BUILD_TYPE=Release", "cmake --build build --config Release"),
        (f"{function.name} is for OpenCL alone: {why}",) if why else (),
    )


def _check_domain(domain: str) -> None:
    if not _DOMAIN.fullmatch(domain):
        raise DmlcError(
            f"'{domain}' is no domain of operators",
            notes=["it begins with a letter, and has letters, digits, dots and dashes"],
        )
    if _OWN_DOMAINS.fullmatch(domain):
        raise DmlcError(f"the domain '{domain}' is ONNX Runtime's own", notes=["name one of yours"])


def _compile_dxil(
    function: Function, shader_model: str | None
) -> tuple[dict[str, Any] | None, dict[str, bytes], str]:
    """Variables of the template for a function's DXIL, with the header that launches it; or the
    reason that there is none."""
    try:
        program = compile(function, "hlsl", root_signature=False, shader_model=shader_model)
        shaders = find_compiler(find_target("hlsl").compiler).compile_files(program)
        header = write_header(program, shaders)
    except UnsupportedError as error:
        return None, {}, error.diagnostics[0].message
    if not shaders:
        return None, {}, "no DXC was at hand to compile HLSL: pip install 'dmlc[d3d12]'"
    names = Names(program, CPP)
    described = describe_program(program, names, {})
    needs = [f"shader model {max(kernel.shader_model for kernel in program.kernels)}"]
    needs += dict.fromkeys(n for k in program.manifest()["kernels"] for n in k["requires"])
    kernels = [
        {
            "name": make_comment(kernel.name),
            "shader": fill_lines([str(b) for b in shaders[name_file(kernel.name, ".dxil")]]),
        }
        for kernel in program.kernels
    ]
    known = {
        "header": header_name(program),
        "space": names.space,
        "symbols": list(names.symbols.values()),
        "tensors": described["tensors"],
        "kernels": kernels,
        "needs": ", ".join(needs),
    }
    return known, {header_name(program): header.encode()}, ""


def _write_operator(
    programs: Mapping[str, Program],
    attributes: list[str],
    domain: str,
    d3d12: dict[str, Any] | None,
    why: str,
) -> str:
    described: list[dict[str, Any]] = []
    for profile, program in programs.items():
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
        domain=domain,
        symbols=first["symbols"],
        counter=first["counter"],
        programs=described,
        d3d12=d3d12,
        refusal=make_comment(f"{programs['cpu'].name}: {why}").replace('"', "'"),
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
