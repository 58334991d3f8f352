"""Plan of a run on a Direct3D 12 device, made before any allocation, with all refusals.

Without its debug layer Direct3D does not report a view or a dispatch over its limits, so each limit
is checked here, by name. Nothing here calls a driver.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from dmlc.program import (
    BufferBinding,
    KernelSource,
    Program,
    TensorSpec,
    constant_buffer_bytes,
)
from dmlc.runtime import copied
from dmlc.runtime.arrays import tensor_bytes
from dmlc.runtime.copied import Window, check_groups, refuse_excess
from dmlc.runtime.d3d12 import device as limits
from dmlc.runtime.d3d12.device import D3D12Device, Limit
from dmlc.runtime.dxbc import sign
from dmlc.runtime.dxc import Resource, compile_dxil, reflect
from dmlc.runtime.hlsl import check_reflection
from dmlc.runtime.interface import check_target
from dmlc.shader_model import list_needs
from dmlc.source import UnsupportedError, join_words

_ALIGNMENT = 256
"""Granularity in bytes of buffers and views of constants."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shader:
    """Kernel as DXIL with its checksum, with its buffers in register order."""

    dxil: bytes
    read: tuple[View, ...]
    """Views in registers t0, t1, ..."""
    written: tuple[View, ...]
    """Views in registers u0, u1, ..."""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Tensor as structures of `stride` bytes; kernels may use different sizes for one tensor."""

    tensor: str
    stride: int


def check_program(program: Program, device: D3D12Device) -> None:
    """Raises UnsupportedError for a program that exceeds a device's features at all sizes."""
    check_target(program, "hlsl", "Direct3D 12 devices")
    for kernel in program.kernels:
        what = f"the kernel {kernel.name}"
        _check_abilities(kernel, device)
        threads = kernel.dispatch.group_size
        _refuse(threads, limits.GROUP_THREADS, f"{what} has {threads:,} threads per group")
        written = sum(b.written for b in kernel.buffers)
        _refuse(written, limits.WRITTEN_BUFFERS, f"{what} writes {written} buffers")
        block = constant_buffer_bytes(kernel.scalars)
        _refuse(block, limits.CONSTANT_BYTES, f"{what} has {block:,} bytes of constants")


def _check_abilities(kernel: KernelSource, device: D3D12Device) -> None:
    abilities, asked = device.abilities, kernel.shader_model
    if abilities is None:
        return
    if not abilities.reaches(asked):
        raise UnsupportedError(
            f"the kernel {kernel.name} is for shader model {asked}, and {device.name} runs "
            f"{abilities.shader_model}",
            notes=[f"compile it with shader_model='{abilities.dialect}'"],
        )
    missing = abilities.list_missing(list_needs(kernel.source))
    if missing:
        raise UnsupportedError(
            f"the kernel {kernel.name} needs {join_words(missing, 'and')}, which {device.name} "
            "does not have"
        )


def _refuse(have: int, limit: Limit, what: str) -> None:
    refuse_excess("Direct3D 12", what, have, limit.value, limit.name)


@functools.lru_cache(maxsize=256)
def build_shader(kernel: KernelSource) -> Shader:
    """Compiles a kernel, and finds its views of tensors. UnsupportedError for registers that cannot
    be filled, InternalError if the compiler's registers are not the program's."""
    made = compile_dxil(
        kernel.source,
        kernel.entry_point,
        name=f"{kernel.name}.hlsl",
        shader_model=kernel.shader_model,
    )
    reflection = reflect(made.code)
    check_reflection(kernel, reflection)
    used = {r.register: r for r in reflection.resources}
    read = [b for b in kernel.buffers if not b.written]
    written = [b for b in kernel.buffers if b.written]
    views = (_views(kernel, "t", read, used), _views(kernel, "u", written, used))
    return Shader(sign(made.code), *views)


def _views(
    kernel: KernelSource, kind: str, buffers: Sequence[BufferBinding], used: Mapping[str, Resource]
) -> tuple[View, ...]:
    """Views in the registers of one kind, from number 0 on without gaps."""
    made: list[View] = []
    for number, buffer in enumerate(sorted(buffers, key=lambda b: b.slot)):
        register = f"{kind}{buffer.slot}"
        if buffer.slot != number:
            raise UnsupportedError(
                f"the kernel {kernel.name} uses the register {register} and leaves {kind}{number} "
                "out; the host for Direct3D 12 fills registers without gaps, from 0 on"
            )
        resource = used.get(register)
        if resource is not None and not resource.kind.is_structured:
            raise UnsupportedError(
                f"the kernel {kernel.name} has a buffer of another kind than structured at "
                f"{register}, which the host for Direct3D 12 cannot bind"
            )
        made.append(View(buffer.tensor, buffer.structure_bytes))
    return tuple(made)


def buffer_bytes(tensor: TensorSpec, sizes: Mapping[str, int]) -> int:
    """Size of a tensor's buffer: a multiple of 256 bytes, and never 0, which is not permitted."""
    return max(-(-tensor_bytes(tensor, sizes) // _ALIGNMENT), 1) * _ALIGNMENT


def plan_windows(
    program: Program, shaders: Sequence[Shader], sizes: Mapping[str, int], device: D3D12Device
) -> tuple[Window, ...]:
    """Windows of a run, first to last; none if there is nothing to compute.

    An element-wise program on tensors larger than the promised buffer size runs in several windows.
    Any other program has one, and UnsupportedError names the limit it exceeds.
    """

    def check(sizes: Mapping[str, int]) -> None:
        bytes_of = {t.name: buffer_bytes(t, sizes) for t in program.tensors}
        for name, size in bytes_of.items():
            _refuse(size, limits.BUFFER_BYTES, f"the tensor {name} takes {size:,} bytes")
        for kernel, shader in zip(program.kernels, shaders, strict=True):
            for view in (*shader.read, *shader.written):
                count = bytes_of[view.tensor] // view.stride
                what = f"the kernel {kernel.name} sees {view.tensor} as {count:,} elements"
                _refuse(count, limits.VIEW_ELEMENTS, what)
        groups = limits.GROUPS
        check_groups("Direct3D 12", program, sizes, (groups.value,) * 3, groups.name)

    elements = limits.VIEW_ELEMENTS.value
    return copied.plan_windows(program, sizes, device.promised_bytes, elements, check)
