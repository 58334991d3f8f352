"""Interface to Direct3D 12: that of the package compushady on Windows, and of `vkd3d` on Linux.
Either raises exceptions of any kind, whose text has the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Abilities:
    """Features of a device."""

    shader_model: str
    """Highest shader model that it runs, such as `6.0`."""
    int16: bool
    """Whether it has native 16-bit types."""
    int64: bool
    float64: bool

    @property
    def dialect(self) -> str:
        """Shader model of programs for it: 6.2 requires native 16-bit types."""
        return "6.2" if self.int16 and self.reaches("6.2") else "6.0"

    def reaches(self, shader_model: str) -> bool:
        """Whether it runs shaders of a model."""
        own, asked = (
            tuple(map(int, model.split("."))) for model in (self.shader_model, shader_model)
        )
        return own >= asked

    def list_missing(self, needs: Sequence[str]) -> list[str]:
        """Needs found by `shader_model.list_needs` that it lacks."""
        has = {"64-bit integers": self.int64, "16-bit types": self.int16, "FLOAT64": self.float64}
        return [need for need in needs if not has[need]]


class Handle(Protocol):
    """Device. Sizes are in bytes. If its features are known, it also has `abilities`, `driver` and
    `note`."""

    name: str
    vendor_id: int
    is_hardware: bool
    is_discrete: bool
    dedicated_video_memory: int
    shared_system_memory: int


class Buffer(Protocol):
    """A buffer of one heap."""

    @property
    def size(self) -> int:
        """Size in bytes: a multiple of 256."""
        ...

    def upload(self, data: Any) -> None:
        """Copies bytes from the host to its beginning; for the upload heap."""
        ...

    def readback(self, target: Any) -> None:
        """Copies its first bytes to `target`, filling it; for the readback heap."""
        ...

    def copy_to(self, destination: Any) -> None:
        """Copies it to the beginning of another buffer, on the device, and waits for the end."""
        ...


class Compute(Protocol):
    """Compute pipeline with its buffers."""

    def dispatch(self, x: int, y: int, z: int) -> None:
        """Runs this many groups, and waits for the end."""
        ...


class Package(Protocol):
    """Implementation of Direct3D 12."""

    HEAP_DEFAULT: int
    HEAP_UPLOAD: int
    HEAP_READBACK: int

    def get_discovered_devices(self) -> Sequence[Handle]:
        """Devices."""
        ...

    def Buffer(self, size: int, heap_type: int, *, stride: int, device: Any) -> Buffer:
        """Buffer of at least `size` bytes, above 0; of structures of `stride` bytes, unless that is
        0."""
        ...

    def Compute(
        self, shader: bytes, *, cbv: list[Any], srv: list[Any], uav: list[Any], device: Any
    ) -> Compute:
        """Pipeline of a DXIL container. Each list of buffers fills registers from 0 on."""
        ...
