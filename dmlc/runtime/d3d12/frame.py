"""Buffers and pipelines of a run on a Direct3D 12 device, in execution order.

Values are uploaded through a buffer of the upload heap and read back through one of the readback
heap; kernels work on buffers of the default heap. The stride of a buffer is fixed, so a tensor that
kernels access as structures of different sizes has a buffer for each, and values are copied between
them before a kernel reads what another one stored. Each copy and each dispatch ends before the next
one begins, so none needs a barrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlc.program import Program, Role
from dmlc.runtime.arrays import Bytes, as_bytes, constant_array, is_loaded, tensor_bytes
from dmlc.runtime.copied import Window, list_launches
from dmlc.runtime.d3d12.device import Context
from dmlc.runtime.d3d12.plan import Shader, View, buffer_bytes


class Frame:
    """Device buffers and launches for the windows of one size. Used by one thread at a time."""

    def __init__(
        self, context: Context, program: Program, shaders: Sequence[Shader], window: Window
    ) -> None:
        package = context.package
        sizes = window.sizes
        self._shaders = shaders
        self._bytes = {t.name: tensor_bytes(t, sizes) for t in program.tensors}
        whole = {t.name: buffer_bytes(t, sizes) for t in program.tensors}
        self._uploads: dict[str, Any] = {}
        self._readbacks: dict[str, Any] = {}
        for tensor in program.tensors:
            name = tensor.name
            if self._bytes[name] == 0 or tensor.role in (Role.SCRATCH, Role.CONSTANT):
                continue
            if is_loaded(tensor):
                self._uploads[name] = context.make_buffer(package.HEAP_UPLOAD, whole[name])
            if tensor.role is Role.OUTPUT:
                self._readbacks[name] = context.make_buffer(package.HEAP_READBACK, whole[name])
        self._views: dict[View, Any] = {}
        # A buffer is in one state as a whole, so that scratch shares whole buffers.
        homes, buffers = program.scratch_homes(), dict[View, Any]()
        for view in dict.fromkeys(v for s in shaders for v in (*s.read, *s.written)):
            home = View(homes.get(view.tensor, view.tensor), view.stride)
            if home not in buffers:
                size = whole[home.tensor]
                buffers[home] = context.make_buffer(package.HEAP_DEFAULT, size, home.stride)
            self._views[view] = buffers[home]
        self._launches: list[tuple[Shader, Any, tuple[int, int, int]]] = []
        for launch in list_launches(program, sizes):
            shader, cbv = shaders[launch.kernel], list[Any]()
            if launch.constants:
                cbv.append(context.make_buffer(package.HEAP_UPLOAD, len(launch.constants)))
                cbv[0].upload(launch.constants)
            srv = [self._views[v] for v in shader.read]
            uav = [self._views[v] for v in shader.written]
            pipeline = context.make_compute(shader.dxil, cbv, srv, uav)
            self._launches.append((shader, pipeline, launch.groups))
        self._tables = self._upload_tables(context, program, whole)
        parts = (*self._uploads.values(), *self._readbacks.values(), *buffers.values())
        self.bytes: int = sum(buffer.size for buffer in parts)
        """Size of the frame in bytes, on the host and the device together."""

    def _upload_tables(
        self, context: Context, program: Program, whole: Mapping[str, int]
    ) -> dict[str, list[View]]:
        """Uploads the program's constants to every view of them, once."""
        tables: dict[str, list[View]] = {}
        for tensor in program.constants:
            upload = context.make_buffer(context.package.HEAP_UPLOAD, whole[tensor.name])
            upload.upload(as_bytes(constant_array(tensor)))
            tables[tensor.name] = [v for v in self._views if v.tensor == tensor.name]
            for view in tables[tensor.name]:
                upload.copy_to(self._views[view])
        return tables

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs the window on these bytes of each input and output."""
        current: dict[str, list[View]] = {n: list(views) for n, views in self._tables.items()}
        for name, upload in self._uploads.items():
            views = [v for v in self._views if v.tensor == name]
            if views:
                upload.upload(memories[name])
                upload.copy_to(self._views[views[0]])
                current[name] = views[:1]
        for shader, pipeline, groups in self._launches:
            for view in (*shader.read, *shader.written):
                self._update_view(view, current)
            pipeline.dispatch(*groups)
            for view in shader.written:
                current[view.tensor] = [view]
        for name, readback in self._readbacks.items():
            if name in current:
                self._views[current[name][0]].copy_to(readback)
                readback.readback(memories[name])

    def _update_view(self, view: View, current: dict[str, list[View]]) -> None:
        """Copies a tensor's values to a view that lacks them. `current` lists the views that have
        them; a tensor that is not in it has no values yet."""
        having = current.setdefault(view.tensor, [view])
        if view not in having:
            self._views[having[0]].copy_to(self._views[view])
            having.append(view)
