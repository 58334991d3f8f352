"""The HLSL kernels of a program, compiled by DXC and held against what the program says of them.

A kernel is compiled to DXIL even where only SPIR-V is wanted: the compiler checks Direct3D's
limits there alone. What the compiler reports a shader to bind must be what the program says:
a disagreement is a bug of dmlc, so an InternalError.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlc.files import name_file
from dmlc.program import VERSION, BufferBinding, KernelSource, Program
from dmlc.runtime import dxc, spirv
from dmlc.runtime.dxbc import sign
from dmlc.runtime.dxc import (
    Constant,
    Reflection,
    Resource,
    ResourceKind,
    Shader,
    compile_dxil,
    compile_spirv,
    reflect,
)
from dmlc.runtime.dxc_library import Library, load_library
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.kept import SHADERS
from dmlc.runtime.spirv import ModuleFacts, read_module
from dmlc.runtime.threads import map_threads
from dmlc.shader_model import DRAFTS, RegisterShifts
from dmlc.source import InternalError, UnavailableError


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel as both kinds of machine code, and what is known of it."""

    dxil: bytes
    """As DXC gives it: only Windows' DXC writes its checksum, see `dxbc.sign`. Nothing of a kernel
    with matrix instructions, which are Vulkan's."""
    spirv: bytes
    shifts: RegisterShifts
    """Where the registers lie among the SPIR-V's bindings."""
    reflection: Reflection
    facts: ModuleFacts
    warnings: tuple[str, ...]


def compile_kernel(
    kernel: KernelSource, library: Library | None = None, floats: FloatPromises | None = None
) -> CompiledKernel:
    """Compiles and checks a kernel; the work is done once per source, compiler and promises.

    For a device, `floats` is what that can promise: its SPIR-V asks for nothing else. Without it,
    the SPIR-V asks for what the kernel itself says, for devices that are not known.
    """
    if kernel.spirv:
        return _take(kernel)
    special = kernel.float_controls if floats is None else list_special(kernel, floats)
    denormals = () if floats is None else floats.denormals
    return _compile(kernel, library or load_library(), special, denormals)


def _take(kernel: KernelSource) -> CompiledKernel:
    """A kernel that others compiled, as its module has it."""
    facts = read_module(kernel.spirv)
    reflection = Reflection(facts.group_size, (), ())
    return CompiledKernel(b"", kernel.spirv, _find_shifts(kernel), reflection, facts, ())


def compile_kernels(
    kernels: Sequence[KernelSource],
    library: Library | None = None,
    floats: FloatPromises | None = None,
) -> list[CompiledKernel]:
    """Compiles and checks kernels side by side, each as `compile_kernel` does."""
    found = library or load_library()

    def compile_one(kernel: KernelSource) -> CompiledKernel:
        return compile_kernel(kernel, found, floats)

    return map_threads("compiling shaders", compile_one, kernels)


def list_special(kernel: KernelSource, floats: FloatPromises) -> tuple[int, ...]:
    """The widths of floats, in bits, of which a kernel asks a device with these promises to keep
    NaN, infinities and the signs of zeros."""
    return tuple(width for width in kernel.float_controls if width in floats.special)


def check_tools() -> None:
    """UnavailableError, with the cure, where DXC is not at hand."""
    load_library()


def compile_files(program: Program) -> dict[str, bytes]:
    """The `.dxil` and `.spv` of every kernel, by file name; none where DXC is not at hand, or for a
    shader model that is a draft. The `.dxil` holds its checksum, whatever DXC has written."""
    if any(kernel.shader_model in DRAFTS for kernel in program.kernels):
        return {}
    try:
        library = load_library()
    except UnavailableError:
        return {}
    files: dict[str, bytes] = {}
    kernels = [each for own in program.kernels for each in (own, *own.alternatives)]
    for kernel, compiled in zip(kernels, compile_kernels(kernels, library), strict=True):
        if compiled.dxil:
            files[name_file(kernel.name, ".dxil")] = sign(compiled.dxil)
        files[name_file(kernel.name, ".spv")] = compiled.spirv
    return files


@functools.lru_cache(maxsize=256)
def _compile(
    kernel: KernelSource, library: Library, special: tuple[int, ...], denormals: tuple[int, ...]
) -> CompiledKernel:
    shifts = _find_shifts(kernel)
    key = {
        "dmlc": [VERSION, _find_revision()],
        "compiler": library.identity,
        "source": kernel.source,
        "name": f"{kernel.name}.hlsl",
        "entry_point": kernel.entry_point,
        "shader_model": kernel.shader_model,
        "has_dxil": kernel.matrix is None,
        "shifts": dataclasses.astuple(shifts),
        "special": special,
        "denormals": denormals,
    }
    text = json.dumps(key, sort_keys=True).encode()
    made = SHADERS.find(text, lambda: _pack(_make(kernel, library, shifts, special, denormals)))
    compiled = _unpack(made, shifts)
    check_reflection(kernel, compiled.reflection)
    return compiled


def _make(
    kernel: KernelSource,
    library: Library,
    shifts: RegisterShifts,
    special: tuple[int, ...],
    denormals: tuple[int, ...],
) -> CompiledKernel:
    name = f"{kernel.name}.hlsl"
    dxil = Shader(b"", ())
    if kernel.matrix is None:
        dxil = compile_dxil(
            kernel.source,
            kernel.entry_point,
            name=name,
            shader_model=kernel.shader_model,
            library=library,
        )
    module = compile_spirv(
        kernel.source,
        kernel.entry_point,
        name=name,
        shader_model=kernel.shader_model,
        shifts=shifts,
        special=special,
        denormals=denormals,
        library=library,
    )
    facts = read_module(module.code)
    reflection = Reflection(facts.group_size, (), ())
    if dxil.code:
        reflection = reflect(dxil.code, library=library)
    return CompiledKernel(
        dxil=dxil.code,
        spirv=module.code,
        shifts=shifts,
        reflection=reflection,
        facts=facts,
        warnings=tuple(dict.fromkeys((*dxil.warnings, *module.warnings))),
    )


def _find_shifts(kernel: KernelSource) -> RegisterShifts:
    return RegisterShifts.for_registers((b.slot, b.written) for b in kernel.buffers)


@functools.cache
def _find_revision() -> str:
    """What tells this compiler's own part in what is made from that of another."""
    parts = (Path(str(module.__file__)).read_bytes() for module in (dxc, spirv))
    return hashlib.sha256(b"".join((*parts, Path(__file__).read_bytes()))).hexdigest()


_HEADER = struct.Struct("<QQ")


def _pack(compiled: CompiledKernel) -> bytes:
    """A compiled kernel as bytes, without what its SPIR-V says."""
    said = {
        "reflection": dataclasses.asdict(compiled.reflection)
        | {"resources": [_pack_resource(r) for r in compiled.reflection.resources]},
        "warnings": compiled.warnings,
    }
    header = _HEADER.pack(len(compiled.dxil), len(compiled.spirv))
    return header + compiled.dxil + compiled.spirv + json.dumps(said).encode()


def _pack_resource(resource: Resource) -> dict[str, Any]:
    return dataclasses.asdict(resource) | {"kind": resource.kind.value}


def _unpack(packed: bytes, shifts: RegisterShifts) -> CompiledKernel:
    start = _HEADER.size
    end, length = _HEADER.unpack_from(packed)
    end += start
    code = packed[end : end + length]
    said = json.loads(packed[end + length :])
    found = said["reflection"]
    resources = (r | {"kind": ResourceKind(r["kind"])} for r in found["resources"])
    return CompiledKernel(
        dxil=packed[start:end],
        spirv=code,
        shifts=shifts,
        reflection=Reflection(
            tuple(found["group_size"]),
            tuple(Resource(**r) for r in resources),
            tuple(Constant(**c) for c in found["constants"]),
        ),
        facts=read_module(code),
        warnings=tuple(said["warnings"]),
    )


def check_reflection(kernel: KernelSource, reflection: Reflection) -> None:
    """InternalError where a shader's registers, constants or group size are not the program's.

    A shader may leave unused what the program binds.
    """
    wrong: list[str] = []
    expected = kernel.dispatch.items
    if reflection.group_size != expected:
        wrong.append(f"its groups are {reflection.group_size}, not {expected}")
    bound = {f"{'u' if b.written else 't'}{b.slot}": b for b in kernel.buffers}
    for resource in reflection.resources:
        wrong += _resource_faults(kernel, resource, bound.get(resource.register))
    for constant in reflection.constants:
        # A vector has a scalar for each component.
        own = [s for s in kernel.scalars if s.name == constant.name]
        size = sum(s.bits // 8 for s in own)
        if not own:
            wrong.append(f"it reads the constant {constant.name}, which nothing sets")
        elif (constant.offset, constant.size) != (own[0].offset, size):
            wrong.append(
                f"the constant {constant.name} has {constant.size} bytes at offset "
                f"{constant.offset}, not {size} at {own[0].offset}"
            )
    if wrong:
        raise InternalError(
            "\n".join([f"DXC sees the kernel {kernel.name} otherwise than its program:", *wrong])
        )


def _resource_faults(
    kernel: KernelSource, resource: Resource, binding: BufferBinding | None
) -> list[str]:
    if resource.space != 0:
        return [f"{resource.name} is in register space {resource.space}"]
    if resource.kind.register_class == "b":
        if resource.slot == 0 and kernel.scalars:
            return []
        return [f"it has a constant buffer {resource.name} at {resource.register}"]
    if binding is None:
        return [f"it has {resource.name} at {resource.register}, where nothing is bound"]
    if binding.name != resource.name:
        return [f"{resource.register} is {resource.name}, not {binding.name}"]
    if resource.stride not in (0, binding.structure_bytes):
        return [
            f"{resource.name} has elements of {resource.stride} bytes, not "
            f"{binding.structure_bytes}"
        ]
    return []
