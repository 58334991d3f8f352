"""Kernels compiled by Mesa's RADV for AMD's GPUs, on a machine that need not have one.

RADV compiles for the GPU that the variable `RADV_FORCE_FAMILY` names. It reads the variable once
per process, which then has no real devices: so a separate process compiles. HLSL is compiled for
RADV as for any Vulkan device, through DXC and SPIR-V.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmlc.inspection.amd import read_listing
from dmlc.inspection.machine import MachineKernel
from dmlc.processes import python_command, python_environment
from dmlc.program import KernelSource
from dmlc.runtime import hlsl
from dmlc.runtime.hlsl import CompiledKernel
from dmlc.runtime.manifests import find_library, list_manifests
from dmlc.runtime.vulkan import statistics
from dmlc.source import InternalError, UnavailableError, UnknownNameError, UnsupportedError

DEFAULT = "gfx1100"
"""Default GPU."""

_LIBRARY = "vulkan_radeon"
_INSTALL = "on Debian or Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers"
_FAMILIES = (
    "tahiti", "pitcairn", "verde", "oland", "hainan", "bonaire", "kaveri", "kabini", "hawaii",
    "tonga", "iceland", "carrizo", "fiji", "stoney", "polaris10", "polaris11", "polaris12",
    "vegam", "vega10", "vega12", "vega20", "raven", "raven2", "renoir", "mi100", "mi200",
    "gfx940", "navi10", "navi12", "navi14", "navi21", "navi22", "navi23", "navi24", "vangogh",
    "rembrandt", "raphael_mendocino", "navi31", "navi32", "navi33", "phoenix", "phoenix2",
    "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1103_r1", "gfx1103_r2", "gfx1150",
    "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
)  # fmt: skip
"""Names of GPUs in versions of Mesa, oldest GPUs first. A driver knows those it contains."""
_RENAMED = {
    "gfx1036": "raphael_mendocino", "gfx1100": "navi31", "gfx1101": "navi32", "gfx1102": "navi33",
    "gfx1103_r1": "phoenix", "gfx1103_r2": "phoenix2",
}  # fmt: skip
"""Names of the same GPUs in older versions and in newer ones (Mesa 23): a driver knows one name of
each."""
_OLDER = {newer: older for older, newer in _RENAMED.items()}

_HIDDEN = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_INSTANCE_LAYERS",
           "RADV_DEBUG", "RADV_PERFTEST")  # fmt: skip
"""Environment variables that would select other drivers, or change RADV's behaviour."""


def compile_kernels(kernels: Sequence[KernelSource], gpu: str) -> tuple[MachineKernel, ...]:
    """HLSL kernels compiled by RADV for a GPU. Raises `UnavailableError` without DXC, Vulkan or
    RADV, `UnknownNameError` for a GPU that RADV does not know, and `UnsupportedError` for a type
    that the GPU lacks."""
    manifest, library = _find_driver()
    family = _list_names(library).get(gpu.lower())
    if family is None:
        raise _unknown(gpu)
    compiled = hlsl.compile_kernels(kernels)
    found = _run(tuple(map(_make_module, kernels, compiled)), family, manifest, library)
    if found.get("missing"):
        lacking = ", ".join(found["missing"])
        notes = ["bind it with other data types, or name another GPU"]
        if kernels[0].shader_model != "6.0" and any("16" in each for each in found["missing"]):
            notes.append("HLSL for shader model 6.0 needs no 16-bit types of a GPU")
        raise UnsupportedError(f"{gpu} lacks what the kernels need: {lacking}", notes=notes)
    return tuple(read_kernel(each, gpu) for each in found["kernels"])


def _make_module(kernel: KernelSource, compiled: CompiledKernel) -> statistics.Module:
    shifts = kernel.shifts
    storage = tuple(shifts.find_binding(b.slot, b.written) for b in kernel.buffers)
    return statistics.Module(
        compiled.spirv,
        kernel.entry_point,
        storage,
        (shifts.b,) if kernel.scalars else (),
        compiled.facts.capabilities,
    )


@functools.lru_cache(maxsize=64)
def _run(
    modules: tuple[statistics.Module, ...], family: str, manifest: Path, library: Path
) -> dict[str, Any]:
    """Output of the compiling process."""
    environment = {n: v for n, v in os.environ.items() if n not in _HIDDEN}
    environment |= {
        "VK_ICD_FILENAMES": str(manifest),
        "VK_DRIVER_FILES": str(manifest),
        "RADV_FORCE_FAMILY": family,
        # A cache has machine code without its listing.
        "MESA_SHADER_CACHE_DISABLE": "true",
        "XDG_RUNTIME_DIR": environment.get("XDG_RUNTIME_DIR", tempfile.gettempdir()),
    }
    done = subprocess.run(
        python_command(statistics.__name__),
        input=statistics.dump(modules), capture_output=True, text=True, check=False,
        env=python_environment(environment),
    )  # fmt: skip
    if "Unknown family" in done.stderr:
        raise _unknown(family)
    if done.returncode:
        raise InternalError(
            f"{library.name} could not compile for {family}:\n{done.stderr.strip()}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    if found["device"] is None:
        said = [found["error"]] if "error" in found else []
        raise UnavailableError(
            f"Mesa's RADV offers no device for {family}", notes=[*said, f"the driver is {library}"]
        )
    return found


def _unknown(gpu: str) -> UnknownNameError:
    return UnknownNameError(
        f"unknown GPU '{gpu}'", notes=[f"RADV here compiles for {', '.join(list_gpus())}"]
    )


def list_gpus() -> tuple[str, ...]:
    """GPUs that RADV here compiles for, by each of their names. Raises `UnavailableError` without
    RADV."""
    return tuple(_list_names(_find_driver()[1]))


@functools.cache
def _list_names(library: Path) -> dict[str, str]:
    """Names of GPUs that a driver compiles for, each with the one that it knows."""
    words = set(re.findall(rb"\0([A-Z0-9_]{4,20})(?=\0)", library.read_bytes()))
    found: dict[str, str] = {}
    for name in _FAMILIES:
        for known in (name, _RENAMED.get(name, name), _OLDER.get(name, name)):
            if known.upper().encode() in words:
                found.setdefault(name, known)
    return found


def _find_driver() -> tuple[Path, Path]:
    """Paths of RADV's manifest and library."""
    environment: Mapping[str, str] = {n: v for n, v in os.environ.items() if n not in _HIDDEN}
    for manifest in list_manifests(environment):
        library = find_library(manifest, _LIBRARY, environment)
        if library is not None and library.exists():
            return manifest, library
    raise UnavailableError(
        "Mesa's RADV, which compiles for AMD's GPUs, is not installed", notes=[_INSTALL]
    )


def read_kernel(found: Mapping[str, Any], gpu: str) -> MachineKernel:
    """Compiled kernel from the output of the compiling process."""
    numbers: Mapping[str, int] = found["statistics"]
    text = next((t for name, t in found["texts"].items() if name == "Assembly"), "")
    listing = read_listing(text, gpu)
    if not listing.instructions:
        raise UnsupportedError(
            f"RADV here does not list its machine code for {gpu}", notes=["newer GPUs it does"]
        )
    return MachineKernel(
        gpu=gpu,
        isa=text,
        listing=listing,
        registers=numbers["VGPRs"],
        uniform_registers=numbers["SGPRs"],
        spilled_registers=numbers["Spilled VGPRs"] + numbers["Spilled SGPRs"],
        scratch_bytes=numbers["Scratch size"],
        shared_bytes=numbers["LDS size"],
        waves=numbers["Subgroups per SIMD"],
        wave=found["wave"],
    )
