"""Buffers and bindings of a WebGPU run, in execution order. WebGPU itself inserts the barriers
between dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlc.program import KernelSource, Program, Role
from dmlc.runtime.arrays import Bytes, as_bytes, constant_array, is_loaded, tensor_bytes
from dmlc.runtime.copied import Window, list_launches
from dmlc.runtime.wgpu.device import Context, reporting
from dmlc.runtime.wgpu.plan import buffer_bytes


class Pipeline:
    """Kernel prepared for a device."""

    def __init__(self, context: Context, kernel: KernelSource) -> None:
        device, package = context.handle, context.package
        kinds = package.BufferBindingType
        types = [kinds.storage if b.written else kinds.read_only_storage for b in kernel.buffers]
        types += [kinds.uniform] if kernel.scalars else []
        with reporting(f"WebGPU refuses the WGSL of {kernel.name}"):
            module = device.create_shader_module(code=kernel.source)
            self.layout: Any = device.create_bind_group_layout(
                entries=[
                    {
                        "binding": number,
                        "visibility": package.ShaderStage.COMPUTE,
                        "buffer": {"type": kind},
                    }
                    for number, kind in enumerate(types)
                ]
            )
            self.handle: Any = device.create_compute_pipeline(
                layout=device.create_pipeline_layout(bind_group_layouts=[self.layout]),
                compute={"module": module, "entry_point": kernel.entry_point},
            )


class Frame:
    """Device buffers and launches for the windows of one size. Used by one thread at a time."""

    def __init__(
        self, context: Context, program: Program, pipelines: list[Pipeline], window: Window
    ) -> None:
        self._device: Any = context.handle
        usage: Any = context.package.BufferUsage
        sizes = window.sizes
        self._sizes = {t.name: tensor_bytes(t, sizes) for t in program.tensors}
        # A dispatch may not read and store in parts of one buffer, so that scratch shares whole
        # ones.
        homes = program.scratch_homes()
        needed = dict.fromkeys(homes.get(t.name, t.name) for t in program.tensors)
        self._buffers = {
            name: self._device.create_buffer(
                size=buffer_bytes(self._sizes[name]),
                usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST,
            )
            for name in needed
        }
        self._inputs = [t.name for t in program.tensors if is_loaded(t) and self._sizes[t.name]]
        self._outputs = [t.name for t in program.outputs if self._sizes[t.name]]
        self.bytes: int = sum(buffer.size for buffer in self._buffers.values())
        """Size of the frame's buffers in bytes."""
        for tensor in program.tensors:
            if tensor.role is Role.CONSTANT:
                self._upload(tensor.name, as_bytes(constant_array(tensor)))
        self._launches: list[tuple[Any, Any, tuple[int, int, int]]] = []
        for launch in list_launches(program, sizes):
            kernel, pipeline = program.kernels[launch.kernel], pipelines[launch.kernel]
            bound = [self._buffers[homes.get(b.tensor, b.tensor)] for b in kernel.buffers]
            if launch.constants:
                bound.append(
                    self._device.create_buffer_with_data(data=launch.constants, usage=usage.UNIFORM)
                )
            entries = [
                {
                    "binding": number,
                    "resource": {"buffer": buffer, "offset": 0, "size": buffer.size},
                }
                for number, buffer in enumerate(bound)
            ]
            group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            self._launches.append((pipeline.handle, group, launch.groups))

    def _upload(self, name: str, memory: Bytes) -> None:
        """Uploads values to a tensor's buffer, as whole words."""
        loose = -memory.size % 4
        data = np.concatenate([memory, np.zeros(loose, np.uint8)]) if loose else memory
        self._device.queue.write_buffer(self._buffers[name], 0, data)

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs the window on these bytes of each input and output."""
        for name in self._inputs:
            self._upload(name, memories[name])
        encoder = self._device.create_command_encoder()
        steps = encoder.begin_compute_pass()
        for pipeline, group, groups in self._launches:
            steps.set_pipeline(pipeline)
            steps.set_bind_group(0, group)
            steps.dispatch_workgroups(*groups)
        steps.end()
        self._device.queue.submit([encoder.finish()])
        for name in self._outputs:
            found = self._device.queue.read_buffer(self._buffers[name])
            size = self._sizes[name]
            memories[name][:size] = np.frombuffer(found, np.uint8)[:size]
