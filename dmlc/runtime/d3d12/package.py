"""What the host for Direct3D 12 asks of what reaches it: the interface of the package compushady,
which is that on Windows; on Linux it is `vkd3d`.

What either refuses is an exception of any kind, whose text says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Abilities:
    """What a device says that it can do."""

    shader_model: str
    """The highest that it runs, such as `6.0`."""
    int16: bool
    """Whether it has native 16-bit types."""
    int64: bool
    float64: bool

    @property
    def dialect(self) -> str:
        """The shader model that programs are written for: 6.2 asks for native 16-bit types."""
        return "6.2" if self.int16 and self.reaches("6.2") else "6.0"

    def reaches(self, shader_model: str) -> bool:
        """Whether it runs shaders of a model."""
        own, asked = (
            tuple(map(int, model.split("."))) for model in (self.shader_model, shader_model)
        )
        return own >= asked

    def list_missing(self, needs: Sequence[str]) -> list[str]:
        """What it lacks of the needs that `shader_model.list_needs` finds."""
        has = {"64-bit integers": self.int64, "16-bit types": self.int16, "FLOAT64": self.float64}
        return [need for need in needs if not has[need]]


class Handle(Protocol):
    """A device. Sizes are in bytes. Where it says what it can do, it has `abilities` too, and the
    texts `driver` and `note`."""

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
        """Its bytes: whole multiples of 256."""
        ...

    def upload(self, data: Any) -> None:
        """Brings bytes to its beginning, from the host; of the upload heap."""
        ...

    def readback(self, target: Any) -> None:
        """Brings as many of its first bytes as `target` has to that; of the readback heap."""
        ...

    def copy_to(self, destination: Any) -> None:
        """Copies it to the beginning of another buffer, on the device, and waits for it."""
        ...


class Compute(Protocol):
    """A compute pipeline with its buffers."""

    def dispatch(self, x: int, y: int, z: int) -> None:
        """Runs so many groups, and waits for them."""
        ...


class Package(Protocol):
    """What reaches Direct3D 12."""

    HEAP_DEFAULT: int
    HEAP_UPLOAD: int
    HEAP_READBACK: int

    def get_discovered_devices(self) -> Sequence[Handle]:
        """Its devices."""
        ...

    def Buffer(self, size: int, heap_type: int, *, stride: int, device: Any) -> Buffer:
        """A buffer of at least `size` bytes, above 0; of structures of `stride` bytes, unless that
        is 0."""
        ...

    def Compute(
        self, shader: bytes, *, cbv: list[Any], srv: list[Any], uav: list[Any], device: Any
    ) -> Compute:
        """A pipeline of a DXIL container. Each list of buffers fills registers from 0 on."""
        ...
