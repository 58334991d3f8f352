"""What a run does on a Direct3D 12 device, decided before anything is made, and its refusals.

Without its debug layer Direct3D says nothing of a view or a dispatch over its limits, so each limit
is checked here, by name. Nothing here talks to a driver.
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
from dmlc.runtime.copied import Window, groups_of, list_windows, tensor_bytes
from dmlc.runtime.d3d12 import device as limits
from dmlc.runtime.d3d12.device import D3D12Device, Limit
from dmlc.runtime.dxbc import sign
from dmlc.runtime.dxc import Resource, ResourceKind, compile_dxil, reflect
from dmlc.runtime.dxc_library import Library, load_library
from dmlc.runtime.hlsl import check_reflection
from dmlc.runtime.interface import check_target
from dmlc.shader_model import list_needs
from dmlc.source import UnsupportedError, join_words

_ALIGNMENT = 256
"""Buffers and views of constants are whole multiples of so many bytes."""
_STRUCTURED = (ResourceKind.STRUCTURED_BUFFER, ResourceKind.READ_WRITE_STRUCTURED_BUFFER)


@dataclasses.dataclass(frozen=True, slots=True)
class Shader:
    """A kernel as DXIL with its checksum, with its buffers in the order of their registers."""

    dxil: bytes
    read: tuple[View, ...]
    """Registers t0, t1, ..."""
    written: tuple[View, ...]
    """Registers u0, u1, ..."""


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A tensor as structures of so many bytes: kernels may disagree on the size for one tensor."""

    tensor: str
    stride: int


def check_program(program: Program, device: D3D12Device) -> None:
    """UnsupportedError where a program exceeds what a device can do, whatever its sizes."""
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
    if have > limit.value:
        raise UnsupportedError(f"{what}, and Direct3D 12 allows {limit.value:,} ({limit.name})")


def build_shader(kernel: KernelSource) -> Shader:
    """Compiles a kernel, and finds the views that it wants of its tensors.

    UnsupportedError for registers that cannot be filled, InternalError where the compiler sees
    other registers than the program.
    """
    return _build(kernel, load_library())


@functools.lru_cache(maxsize=256)
def _build(kernel: KernelSource, library: Library) -> Shader:
    made = compile_dxil(
        kernel.source,
        kernel.entry_point,
        name=f"{kernel.name}.hlsl",
        shader_model=kernel.shader_model,
        library=library,
    )
    reflection = reflect(made.code, library=library)
    check_reflection(kernel, reflection)
    used = {r.register: r for r in reflection.resources}
    read = [b for b in kernel.buffers if not b.written]
    written = [b for b in kernel.buffers if b.written]
    views = (_views(kernel, "t", read, used), _views(kernel, "u", written, used))
    return Shader(sign(made.code), *views)


def _views(
    kernel: KernelSource, kind: str, buffers: Sequence[BufferBinding], used: Mapping[str, Resource]
) -> tuple[View, ...]:
    """The views for the registers of one kind, number 0 first: they are filled in a row."""
    made: list[View] = []
    for number, buffer in enumerate(sorted(buffers, key=lambda b: b.slot)):
        register = f"{kind}{buffer.slot}"
        if buffer.slot != number:
            raise UnsupportedError(
                f"the kernel {kernel.name} uses the register {register} and leaves {kind}{number} "
                "out; the host for Direct3D 12 fills registers without gaps, from 0 on"
            )
        resource = used.get(register)
        if resource is not None and resource.kind not in _STRUCTURED:
            raise UnsupportedError(
                f"the kernel {kernel.name} has a buffer of another kind than structured at "
                f"{register}, which the host for Direct3D 12 cannot bind"
            )
        made.append(View(buffer.tensor, buffer.structure_bytes))
    return tuple(made)


def buffer_bytes(tensor: TensorSpec, sizes: Mapping[str, int]) -> int:
    """The size of the buffer for a tensor: whole multiples of 256 bytes, and never 0, which
    cannot be made."""
    return max(-(-tensor_bytes(tensor, sizes) // _ALIGNMENT), 1) * _ALIGNMENT


def plan_windows(
    program: Program, shaders: Sequence[Shader], sizes: Mapping[str, int], device: D3D12Device
) -> tuple[Window, ...]:
    """The stretches of a run, first to last; none where there is nothing to compute.

    An element-wise program of tensors larger than a buffer is promised to be runs in several. Any
    other goes to the device whole, and UnsupportedError says which limit it exceeds.
    """
    windows = list_windows(program, sizes, device.promised_bytes, limits.VIEW_ELEMENTS.value)
    for window in windows:
        _check_window(program, shaders, window.sizes)
    return tuple(w for w in windows if any(0 not in groups_of(k, w) for k in program.kernels))


def _check_window(program: Program, shaders: Sequence[Shader], sizes: Mapping[str, int]) -> None:
    bytes_of = {t.name: buffer_bytes(t, sizes) for t in program.tensors}
    for name, size in bytes_of.items():
        _refuse(size, limits.BUFFER_BYTES, f"the tensor {name} takes {size:,} bytes")
    for kernel, shader in zip(program.kernels, shaders, strict=True):
        for view in (*shader.read, *shader.written):
            count = bytes_of[view.tensor] // view.stride
            what = f"the kernel {kernel.name} sees {view.tensor} as {count:,} elements"
            _refuse(count, limits.VIEW_ELEMENTS, what)
        for axis, have in zip("xyz", kernel.dispatch.groups(dict(sizes)), strict=True):
            what = f"the kernel {kernel.name} needs {have:,} groups along {axis}"
            _refuse(have, limits.GROUPS, what)
