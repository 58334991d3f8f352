"""Running exported functions with IREE's compiler and runtime, on the CPU."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from iree import compiler, runtime

import dmlc
from dmlc import ir
from dmlc.mlir.export import COMPILE_FLAGS
from dmlc.scalars import Array, DataType

_UNHOISTED = "--iree-opt-const-expr-hoisting=false"
"""Where `linalg.fill` has become `linalg.generic`, IREE 3.13 hoists what it fills with, and in one
run of three it takes one such constant for another, of another size."""

_SIGNLESS = {np.dtype(f"u{size}"): np.dtype(f"i{size}") for size in (1, 2, 4, 8)}


def optimize(text: str, flags: Sequence[str]) -> str:
    """What `iree-opt` makes of a module, which it verifies."""
    command = [str(Path(sys.executable).parent / "iree-opt"), *flags, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


class Functions:
    """Functions in one module, compiled together, after passes of MLIR if any are named; each is
    called by its number."""

    def __init__(self, functions: Sequence[ir.Function], passes: Sequence[str] = ()) -> None:
        self._functions = [
            dataclasses.replace(function, name=f"f{number}_{function.name}")
            for number, function in enumerate(functions)
        ]
        text = "".join(map(dmlc.mlir.export, self._functions))
        text = optimize(text, passes) if passes else text
        flags = [*COMPILE_FLAGS, _UNHOISTED] if passes else list(COMPILE_FLAGS)
        binary = compiler.compile_str(text, extra_args=flags)
        self._config = runtime.Config("local-sync")
        module = runtime.VmModule.copy_buffer(self._config.vm_instance, binary)
        context = runtime.SystemContext(vm_modules=[module], config=self._config)
        self._module = context.modules.module

    def run(self, number: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What a function gives for these inputs."""
        function = self._functions[number]
        given = [self._give(inputs[p.name], p.dtype) for p in function.parameters]
        found = self._module[function.name](*given)
        several = found if len(function.results) > 1 else (found,)
        results: dict[str, Array] = {}
        for result, array in zip(function.results, several, strict=True):
            stage = function.stage(result.name)
            assert stage is not None
            results[result.name] = _read(array, stage.dtype)
        return results

    def _give(self, array: Array, dtype: DataType) -> object:
        """An array on the device; an integer's sign is the operations' to say."""
        packed = np.ascontiguousarray(array).reshape(array.shape)
        if dtype is not DataType.BFLOAT16:
            kind = _SIGNLESS.get(packed.dtype, packed.dtype)
            return runtime.asdevicearray(self._config.device, packed.view(kind))
        return self._config.device.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=runtime.BufferUsage.DEFAULT,
            device=self._config.device,
            buffer=packed.view(np.uint16),
            element_type=runtime.HalElementType.BFLOAT_16,
        )


def _read(array: runtime.DeviceArray, dtype: DataType) -> Array:
    """A copy of a result, which lies in memory of the runtime's."""
    return array.to_host().copy().view(dtype.dtype)
