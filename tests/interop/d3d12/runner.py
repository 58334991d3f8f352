"""Computes what a program launches on the mock of Direct3D 12: with Vulkan, from the same HLSL."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dmlc.program import KernelSource, Program
from dmlc.scalars import Array
from dmlc.shader_model import dxil_arguments
from tests.interop import shaders
from tests.interop.d3d12.recording import Dispatch


def run(command: Sequence[object], kernels: Mapping[bytes, KernelSource], output: Path) -> int:
    """Runs a program that was built with the mock, and gives its status. `kernels` are known by
    their shaders, as the program gives these to the device; what it prints goes into a file."""
    requests, to_us = os.pipe()
    from_us, answers = os.pipe()
    environment = {**os.environ, "DMLC_MOCK_RUNNER": f"{from_us},{to_us}"}
    with output.open("wb") as printed, subprocess.Popen(
        [str(c) for c in command], stdout=printed, stderr=printed, env=environment,
        pass_fds=(from_us, to_us),
    ) as process:  # fmt: skip
        os.close(to_us)
        os.close(from_us)
        with os.fdopen(requests, "rb") as given, os.fdopen(answers, "wb") as taken:
            while head := given.readline():
                _answer(head.decode().split(), given, taken, kernels)
        return process.wait()


def replay(calls: Sequence[object], program: Program, memory: Sequence[Array]) -> None:
    """Computes the launches of a program as they were recorded, in lines of bytes for buffers."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    for call in calls:
        if isinstance(call, Dispatch):
            kernel = kernels[call.kernel]
            constants = np.array(call.constants, np.uint32).view(np.uint8)
            names = {f"{'u' if b.written else 't'}{b.slot}": b for b in kernel.buffers}
            bound = {
                names[register].name: memory[buffer].view(names[register].dtype.dtype)
                for register, (buffer, _) in call.views.items()
            }
            _compute(kernel, bound, constants, call.groups)


def _compute(
    kernel: KernelSource, bound: Mapping[str, Array], constants: Array, groups: Sequence[int]
) -> None:
    arguments = dxil_arguments(kernel.source, kernel.entry_point, kernel.shader_model)
    shaders.dispatch(kernel.source, arguments, bound, constants, groups)


def _answer(
    head: Sequence[str], given: BinaryIO, taken: BinaryIO, kernels: Mapping[bytes, KernelSource]
) -> None:
    """Computes one launch: the views that it stores go back."""
    shader_bytes, *groups, words, _ = map(int, head[:6])
    kernel = kernels[given.read(shader_bytes)]
    constants = np.frombuffer(given.read(4 * words), np.uint8)
    names = {f"{'u' if b.written else 't'}{b.slot}": b for b in kernel.buffers}
    bound: dict[str, Array] = {}
    for register, size in zip(head[6::2], head[7::2], strict=True):
        buffer = names[register]
        values = np.frombuffer(given.read(int(size)), buffer.dtype.dtype)
        bound[buffer.name] = values.copy()
    _compute(kernel, bound, constants, groups)
    for register in head[6::2]:
        if register[0] == "u":
            taken.write(bound[names[register].name].tobytes())
    taken.flush()
