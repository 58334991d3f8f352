"""Compiles C++ for Direct3D 12 on this machine, with the DirectX headers and a mock of the rest.

The interfaces of Direct3D 12 are classes with pure virtual functions. `write_stubs` reads them from
the headers that are installed, and gives each a class whose every function ends the program; the
mock (`mock_d3d12.hpp`) derives from those, so that it has what it needs and nothing more.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
INCLUDES = Path("/usr/include")
CXX = (
    "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror",
    "-isystem", str(INCLUDES / "wsl/stubs"), "-isystem", str(INCLUDES / "directx"),
    "-include", str(INCLUDES / "wsl/winadapter.h"),
)  # fmt: skip
"""Warnings are errors, in all but the DirectX headers."""

MOCKED = (
    "ID3D10Blob", "ID3D12CommandAllocator", "ID3D12CommandQueue", "ID3D12Device", "ID3D12Fence",
    "ID3D12GraphicsCommandList", "ID3D12PipelineState", "ID3D12Resource", "ID3D12RootSignature",
)  # fmt: skip

_INTERFACE = re.compile(
    r"struct\s+(\w+)\s*:\s*public\s+(\w+)\s*\{\s*public:(.*?)\n\s*\};", re.DOTALL
)
"""An interface of the preprocessed headers: its name, its base, and its functions."""


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stderr or done.stdout)[:4000]
    return done.stdout


def write_stubs(folder: Path) -> None:
    """Writes `stubs.hpp`: for each interface of `MOCKED`, a class `Stub<Interface>`."""
    source = folder / "interfaces.cpp"
    source.write_text("#include <d3d12.h>\n", "utf-8")
    text = run(*CXX, "-E", "-P", source)
    found = _INTERFACE.findall(text)
    parts = {name: (base, _list_functions(body)) for name, base, body in found}
    lines = ["#pragma once", "#include <d3d12.h>"]
    lines.append("[[noreturn]] void unexpected(const char* function);")
    for name in MOCKED:
        lines.append(f"struct Stub{name} : {name} {{")
        base, functions = parts[name]
        while True:
            for result, function, parameters in functions:
                said = f'unexpected("{name}::{function}");'
                lines.append(f"    {result} {function}({parameters}) override {{ {said} }}")
            if base == "IUnknown":
                break
            base, functions = parts[base]
        lines.append("};")
    (folder / "stubs.hpp").write_text("\n".join([*lines, ""]), "utf-8")


def _list_functions(body: str) -> list[tuple[str, str, str]]:
    """The result, name and parameters' types of each pure virtual function."""
    made: list[tuple[str, str, str]] = []
    for text in re.findall(r"virtual\s+(.*?)=\s*0\s*;", body, re.S):
        result, name, parameters = re.fullmatch(
            r"(.*?)(\w+)\s*\((.*)\)\s*", " ".join(text.split())
        ).groups()  # type: ignore[union-attr]
        kinds = [] if parameters.strip() == "void" else parameters.split(",")
        made.append((result.strip(), name, ", ".join(map(_drop_name, kinds))))
    return made


def _drop_name(parameter: str) -> str:
    """A parameter without its name. Arrays are pointers."""
    kind, name, array = re.fullmatch(r"(.*?)(\w+)\s*(\[.*\])?\s*", parameter.strip()).groups()  # type: ignore[union-attr]
    assert name not in ("const", "UINT")
    return kind + ("*" if array else "")


def build(source: Path, target: Path, folders: Sequence[Path]) -> None:
    """Compiles and links a program against the mock. `folders` are searched for headers."""
    includes = [f"-I{folder}" for folder in (*folders, FOLDER)]
    run(*CXX, "-O0", *includes, "-o", target, source)


def check_syntax(sources: Sequence[Path], folders: Sequence[Path]) -> None:
    """Holds sources to the compiler's rules, in one call."""
    run(*CXX, "-fsyntax-only", *(f"-I{folder}" for folder in folders), *sources)
