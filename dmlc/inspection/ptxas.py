"""Kernels compiled by NVIDIA's compiler, on a machine that need not have a GPU.

The OpenCL C is compiled to PTX by clang, with libclc for the functions of OpenCL, and PTX to
machine code by `ptxas`; `nvdisasm` lists that. NVIDIA's tools come as Python wheels or with the
CUDA toolkit; clang and libclc come from the system.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dmlc.inspection.machine import MachineKernel
from dmlc.inspection.nvidia import read_listing
from dmlc.processes import find_program
from dmlc.program import KernelSource
from dmlc.source import InternalError, UnavailableError, UnknownNameError

_TOOLS = ("ptxas", "nvdisasm")
_INSTALL_TOOLS = "install them with: pip install dmlc[inspect]"
_INSTALL_CLANG = "on Debian 12: apt-get install clang-15 libclc-15; elsewhere, clang and libclc"
_LIBRARY = "nvptx64--nvidiacl.bc"
_VERSIONS = range(25, 13, -1)
_NEWEST_PTX = 80
"""Version of PTX that every supported clang can write. `ptxas` accepts it for newer GPUs too."""
_STORES = (
    "vstore_half_rte(a, i, p)=__builtin_store_halff(a, (p) + (i))",
    "vstore_half4_rte(a, i, p)=do { const float4 stored_ = (a); "
    + " ".join(
        f"vstore_half_rte(stored_.{lane}, 4 * (i) + {number}, p);"
        for number, lane in enumerate("xyzw")
    )
    + " } while (0)",
)
"""Stores of halves by an instruction, as in NVIDIA's OpenCL: libclc computes their bits."""
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")


def is_gpu(name: str) -> bool:
    """Whether a name has the form of NVIDIA's names of GPUs: `sm_90`."""
    return re.fullmatch(r"sm_\d+[a-z]?", name.lower()) is not None


def compile_kernels(kernels: Sequence[KernelSource], gpu: str) -> tuple[MachineKernel, ...]:
    """OpenCL kernels compiled by `ptxas` for a GPU. Raises `UnavailableError` for a missing tool,
    and `UnknownNameError` for a GPU that `ptxas` does not know."""
    tools = _find_tools()
    known = _list_gpus(tools[2])
    if known and gpu.lower() not in known:
        raise UnknownNameError(
            f"unknown GPU '{gpu}'", notes=[f"ptxas here compiles for {', '.join(known)}"]
        )
    return tuple(_compile(kernel.source, gpu.lower(), tools) for kernel in kernels)


_Tools = tuple[str, Path, str, str]
"""Paths of clang, its libclc, ptxas and nvdisasm."""


def _find_tools() -> _Tools:
    ptxas, nvdisasm = found = [_find_nvidia(name) for name in _TOOLS]
    if ptxas is None or nvdisasm is None:
        missing = " and ".join(n for n, p in zip(_TOOLS, found, strict=True) if p is None)
        raise UnavailableError(f"NVIDIA's {missing} cannot be found", notes=[_INSTALL_TOOLS])
    for name in ("clang", *(f"clang-{version}" for version in _VERSIONS)):
        clang = find_program(name)
        library = None if clang is None else _find_library(Path(clang))
        if clang is not None and library is not None:
            return clang, library, ptxas, nvdisasm
    raise UnavailableError(
        "clang with libclc, which make PTX of OpenCL C, is not installed", notes=[_INSTALL_CLANG]
    )


def _find_nvidia(name: str) -> str | None:
    """Path of a tool in the wheels, or else on the PATH."""
    found = importlib.util.find_spec("nvidia")
    for place in () if found is None else found.submodule_search_locations or ():
        for path in sorted(Path(place).glob(f"*/bin/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    return find_program(name)


def _find_library(clang: Path) -> Path | None:
    """Path of libclc for NVIDIA's GPUs: beside clang's tree, or in a usual place."""
    above = clang.resolve().parents
    places = [p / "clc" for p in above[1:3]] + [p / "share" / "clc" for p in above[1:4]]
    places += [Path("/usr/lib/clc"), Path("/usr/share/clc"), Path("/usr/local/share/clc")]
    return next((p / _LIBRARY for p in places if (p / _LIBRARY).is_file()), None)


@functools.cache
def _list_gpus(ptxas: str) -> tuple[str, ...]:
    """GPUs that ptxas compiles for; empty if it does not list them."""
    text = _run([ptxas, "--help"], "list its GPUs")
    return tuple(dict.fromkeys(re.findall(r"'(sm_\d+[a-z]?)'", text)))


def _run(command: Sequence[str], doing: str) -> str:
    """Output of a tool."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        name = Path(command[0]).name
        raise InternalError(f"{name} could not {doing}:\n{done.stderr.strip()}")
    return done.stdout + done.stderr


@functools.lru_cache(maxsize=64)
def _compile(source: str, gpu: str, tools: _Tools) -> MachineKernel:
    clang, library, ptxas, nvdisasm = tools
    number = min(int(re.sub(r"\D", "", gpu)), _NEWEST_PTX)
    with tempfile.TemporaryDirectory() as folder:
        text, ptx, cubin = (str(Path(folder) / f"kernel.{end}") for end in ("cl", "ptx", "cubin"))
        Path(text).write_text(source, encoding="utf-8")
        _run(
            [clang, "-x", "cl", "-cl-std=CL1.2", "--target=nvptx64-nvidia-nvcl",
             f"-march=sm_{number}", "-O2", "-w", "-DFP_FAST_FMAF",
             *(f"-D{each}" for each in _STORES), "-Xclang", "-finclude-default-header", "-Xclang",
             "-mlink-builtin-bitcode", "-Xclang", str(library), "-S", "-o", ptx, text],
            "make PTX",
        )  # fmt: skip
        said = _run([ptxas, f"-arch={gpu}", "-O3", "-v", ptx, "-o", cubin], "compile PTX")
        listing = _run([nvdisasm, "-c", cubin], "list machine code")
    return read_kernel(said, listing, gpu)


def read_kernel(said: str, listing: str, gpu: str) -> MachineKernel:
    """Compiled kernel from the outputs of `ptxas -v` and `nvdisasm`."""
    stack, shared, used = _STACK.search(said), _SHARED.search(said), _USED.search(said)
    if used is None:
        raise InternalError(f"ptxas says nothing of registers:\n{said.strip()}")
    return MachineKernel(
        gpu=gpu,
        isa=listing,
        listing=read_listing(listing),
        registers=int(used[1]),
        uniform_registers=None,
        spilled_registers=0 if stack is None else int(stack[2]) // 4,
        scratch_bytes=0 if stack is None else int(stack[1]),
        shared_bytes=0 if shared is None else int(shared[1]),
        waves=None,
        wave=32,
    )
