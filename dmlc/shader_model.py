"""Shader models of generated HLSL: the compiler's arguments, and the requirements on a device. 6.2
has 16-bit types, if a device supports them in full; 6.0 runs everywhere, and stores such values two
to a word."""

from __future__ import annotations

import dataclasses
import re
from types import MappingProxyType

SHADER_MODELS: tuple[str, ...] = ("6.2", "6.0")
"""Shader models that HLSL is generated for, the default first."""

DRAFTS = MappingProxyType(
    {"6.10": "no DXC that packages of Python have compiles it: HLSL for it is text alone"}
)
"""Shader models that HLSL is generated for, and not compiled, with the reason."""

_NATIVE_16BIT = re.compile(r"\b(?:float|int|uint)16_t[1-4]?\b")


def needs_16bit_types(source: str) -> bool:
    """Whether HLSL uses 16-bit types. With native ones enabled, the compiler requires 16-bit
    arithmetic of every device that runs the shader, whether it is used or not."""
    return "16_t" in source and _NATIVE_16BIT.search(source) is not None


_NEEDS = {
    "64-bit integers": re.compile(r"\bu?int64_t[1-4]?\b"),
    "16-bit types": _NATIVE_16BIT,
    "FLOAT64": re.compile(r"\bdouble[1-4]?\b"),
}
NEEDS: tuple[str, ...] = tuple(_NEEDS)
"""Possible results of `list_needs`."""
_COMMENT = re.compile(r"//[^\n]*")


def list_needs(source: str) -> list[str]:
    """Optional device features that HLSL uses: `64-bit integers`, `16-bit types`, `FLOAT64`."""
    code = _COMMENT.sub("", source)
    return [need for need, pattern in _NEEDS.items() if pattern.search(code)]


def dxc_arguments(source: str, entry_point: str, shader_model: str) -> list[str]:
    """Arguments of DXC common to DXIL and SPIR-V."""
    profile = f"cs_{shader_model.replace('.', '_')}"
    arguments = ["-T", profile, "-E", entry_point, "-HV", "2021"]
    # Before 6.2 there are none, and the compiler refuses to be asked for them.
    if needs_16bit_types(source) and shader_model not in ("6.0", "6.1"):
        arguments.append("-enable-16bit-types")
    return arguments


def dxil_arguments(source: str, entry_point: str, shader_model: str) -> list[str]:
    """Arguments of DXC for DXIL: without `-Gis` it is compiled for fast arithmetic."""
    return [*dxc_arguments(source, entry_point, shader_model), "-Gis"]


def spirv_arguments(source: str, entry_point: str, shader_model: str) -> list[str]:
    """Arguments of DXC for SPIR-V, except the shifts of its bindings."""
    made = [*dxc_arguments(source, entry_point, shader_model), "-spirv"]
    # Without the last of these, wave operations ask for a vendor's extension.
    made += ["-fspv-target-env=vulkan1.1", "-fspv-extension=KHR"]
    if uses_matrices(source):
        made.append(_MEMORY_MODEL)
    return made


_MATRIX = "vk::SpirvOpaqueType<4456,"
_MEMORY_MODEL = "-Oconfig=-O,--upgrade-memory-model"
"""Usual optimizations, followed by a pass of SPIRV-Tools: matrices require Vulkan's memory model,
and DXC by itself writes modules for that of GLSL."""


def uses_matrices(source: str) -> bool:
    """Whether HLSL has matrix instructions, so that it is for Vulkan only."""
    return _MATRIX in source


def is_signed(container: bytes) -> bool:
    """Whether DXIL has a digest in its header, which retail Direct3D requires."""
    return container[:4] == b"DXBC" and any(container[4:20])


@dataclasses.dataclass(frozen=True, slots=True)
class RegisterShifts:
    """First binding of each register class in Vulkan, where the classes share one numbering."""

    t: int = 0
    u: int = 16
    b: int = 32

    @classmethod
    def for_counts(cls, t: int, u: int) -> RegisterShifts:
        """Shifts that keep `t` read-only and `u` written buffers apart."""
        first_u = max(16, t)
        return cls(0, first_u, first_u + max(16, u))

    def find_binding(self, slot: int, written: bool) -> int:
        """Binding of a buffer's register."""
        return slot + (self.u if written else self.t)
