"""HLSL kernels of a program, compiled by DXC and checked against the program.

A kernel is compiled to DXIL even if only SPIR-V is used, since the compiler checks Direct3D's
limits only there. The bindings that the compiler reports must be the program's: a difference is a
bug of dmlc, so an InternalError.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path

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
from dmlc.shader_model import DRAFTS
from dmlc.source import InternalError, UnavailableError


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Kernel as both kinds of machine code, with its properties."""

    dxil: bytes
    """DXIL in DXC's form, with a checksum only on Windows, see `dxbc.sign`. Empty for a kernel with
    matrix instructions, which are Vulkan's."""
    spirv: bytes
    reflection: Reflection
    facts: ModuleFacts
    warnings: tuple[str, ...]


def compile_kernel(kernel: KernelSource, floats: FloatPromises | None = None) -> CompiledKernel:
    """Compiles and checks a kernel, once per source, compiler and promises.

    `floats` are a device's promises: the SPIR-V requests no others. Without it, for unknown
    devices, the SPIR-V requests what the kernel itself needs.
    """
    if kernel.spirv:
        return _wrap_foreign(kernel)
    special = kernel.float_controls if floats is None else list_special(kernel, floats)
    denormals = () if floats is None else floats.denormals
    return _compile(kernel, load_library(), special, denormals)


def _wrap_foreign(kernel: KernelSource) -> CompiledKernel:
    """Foreign compiled kernel, described by its module."""
    facts = read_module(kernel.spirv)
    reflection = Reflection(facts.group_size, (), ())
    return CompiledKernel(b"", kernel.spirv, reflection, facts, ())


def compile_kernels(
    kernels: Sequence[KernelSource], floats: FloatPromises | None = None
) -> list[CompiledKernel]:
    """Compiles and checks kernels in parallel, each as `compile_kernel` does."""
    load_library()
    compile_one = functools.partial(compile_kernel, floats=floats)
    return map_threads("compiling shaders", compile_one, kernels)


def list_special(kernel: KernelSource, floats: FloatPromises) -> tuple[int, ...]:
    """Float widths, in bits, for which a kernel requests NaN, infinities and the signs of zeros
    from a device with these promises."""
    return tuple(width for width in kernel.float_controls if width in floats.special)


def check_tools() -> None:
    """Raises UnavailableError, with the cure, if DXC is missing."""
    load_library()


def compile_files(program: Program) -> dict[str, bytes]:
    """Contents of the `.dxil` and `.spv` of every kernel, by file name; empty without DXC, and for
    a draft shader model. The `.dxil` always has its checksum."""
    if any(kernel.shader_model in DRAFTS for kernel in program.kernels):
        return {}
    try:
        load_library()
    except UnavailableError:
        return {}
    files: dict[str, bytes] = {}
    kernels = [each for own in program.kernels for each in (own, *own.alternatives)]
    for kernel, compiled in zip(kernels, compile_kernels(kernels), strict=True):
        if compiled.dxil:
            files[name_file(kernel.name, ".dxil")] = sign(compiled.dxil)
        files[name_file(kernel.name, ".spv")] = compiled.spirv
    return files


@functools.lru_cache(maxsize=256)
def _compile(
    kernel: KernelSource, library: Library, special: tuple[int, ...], denormals: tuple[int, ...]
) -> CompiledKernel:
    key = {
        "dmlc": [VERSION, _find_revision()],
        "compiler": library.identity,
        "source": kernel.source,
        "name": f"{kernel.name}.hlsl",
        "entry_point": kernel.entry_point,
        "shader_model": kernel.shader_model,
        "has_dxil": kernel.matrix is None,
        "shifts": dataclasses.astuple(kernel.shifts),
        "special": special,
        "denormals": denormals,
    }
    text = json.dumps(key, sort_keys=True).encode()
    made = SHADERS.find(text, lambda: _pack(_make(kernel, special, denormals)))
    compiled = _unpack(made)
    check_reflection(kernel, compiled.reflection)
    return compiled


def _make(
    kernel: KernelSource, special: tuple[int, ...], denormals: tuple[int, ...]
) -> CompiledKernel:
    name = f"{kernel.name}.hlsl"
    dxil = Shader(b"", ())
    if kernel.matrix is None:
        dxil = compile_dxil(
            kernel.source,
            kernel.entry_point,
            name=name,
            shader_model=kernel.shader_model,
        )
    module = compile_spirv(
        kernel.source,
        kernel.entry_point,
        name=name,
        shader_model=kernel.shader_model,
        shifts=kernel.shifts,
        special=special,
        denormals=denormals,
    )
    facts = read_module(module.code)
    reflection = Reflection(facts.group_size, (), ())
    if dxil.code:
        reflection = reflect(dxil.code)
    return CompiledKernel(
        dxil=dxil.code,
        spirv=module.code,
        reflection=reflection,
        facts=facts,
        warnings=tuple(dict.fromkeys((*dxil.warnings, *module.warnings))),
    )


@functools.cache
def _find_revision() -> str:
    """Identity of this compiler's own part in its products."""
    parts = (Path(str(module.__file__)).read_bytes() for module in (dxc, spirv))
    return hashlib.sha256(b"".join((*parts, Path(__file__).read_bytes()))).hexdigest()


_HEADER = struct.Struct("<QQ")


def _pack(compiled: CompiledKernel) -> bytes:
    """Compiled kernel as bytes, without the properties that its SPIR-V has."""
    said = {
        "reflection": dataclasses.asdict(compiled.reflection),
        "warnings": compiled.warnings,
    }
    header = _HEADER.pack(len(compiled.dxil), len(compiled.spirv))
    return header + compiled.dxil + compiled.spirv + json.dumps(said).encode()


def _unpack(packed: bytes) -> CompiledKernel:
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
        reflection=Reflection(
            tuple(found["group_size"]),
            tuple(Resource(**r) for r in resources),
            tuple(Constant(**c) for c in found["constants"]),
        ),
        facts=read_module(code),
        warnings=tuple(said["warnings"]),
    )


def check_reflection(kernel: KernelSource, reflection: Reflection) -> None:
    """Raises InternalError if a shader's registers, constants or group size are not the program's.
    A shader may leave bindings of the program unused."""
    wrong: list[str] = []
    expected = kernel.dispatch.items
    if reflection.group_size != expected:
        wrong.append(f"its groups are {reflection.group_size}, not {expected}")
    bound = {b.register: b for b in kernel.buffers}
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
