"""Matrix instructions: products of small matrices computed jointly by the work items of a subgroup,
such as those of `VK_KHR_cooperative_matrix`.

A program may have kernels that use them beside the plain ones, with their requirements in its
manifest. A device lists its shapes and types, and the host chooses. The precision and order of the
sums are the device's own, so results are not bit-reproducible between devices.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from dmlc.scalars import DataType
from dmlc.source import UnknownNameError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Product that a device lists: `m` by `k` times `k` by `n` elements, added to `m` by `n`."""

    m: int
    n: int
    k: int
    factors: DataType
    sum: DataType
    """Type of the accumulator and of the result."""

    def __str__(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}"
        return f"{size} {self.factors.name} to {self.sum.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """Row of the table: a product, and the size of the subgroups that compute it."""

    name: str
    shape: Shape
    subgroup: int
    devices: str
    """Devices that list it, for people."""

    def to_json(self) -> dict[str, Any]:
        """Requirements of a kernel in a manifest."""
        shape = self.shape
        return {
            "name": self.name,
            "m": shape.m,
            "n": shape.n,
            "k": shape.k,
            "factors": shape.factors.name,
            "sum": shape.sum.name,
            "scope": "subgroup",
            "subgroup_size": self.subgroup,
        }


def _make_row(m: int, n: int, k: int, subgroup: int, devices: str) -> Instruction:
    shape = Shape(m, n, k, DataType.FLOAT16, DataType.FLOAT32)
    return Instruction(f"{m}x{n}x{k}/{subgroup}", shape, subgroup, devices)


INSTRUCTIONS: tuple[Instruction, ...] = (
    _make_row(16, 16, 16, 32, "NVIDIA from Turing on, AMD from RDNA 3 on"),
    _make_row(8, 16, 16, 16, "Intel from Xe2 on"),
    _make_row(8, 8, 16, 8, "Intel Arc A"),
    _make_row(8, 8, 8, 8, "lavapipe of Mesa 26"),
)
"""Table of instructions that kernels are written for, the largest first."""

_DENIED = MappingProxyType(
    {
        r"Intel.*Arc.* A\d{3}": "its products of matrices are slower than its plain ones",
    }
)
"""Devices whose matrix instructions are not used though they list them, by the name and the driver,
with the reason."""

WITHOUT = MappingProxyType({"opencl": "OpenCL C has no matrices of its own"})
"""Reason that a target has none."""


def find_instruction(name: str) -> Instruction:
    """Row of that name. Raises `UnknownNameError`, which names the known ones."""
    for each in INSTRUCTIONS:
        if each.name == name:
            return each
    raise UnknownNameError(unknown_name("matrix instruction", name, [i.name for i in INSTRUCTIONS]))


def find_denied(device: str) -> str:
    """Reason that a device's matrix instructions are not used, by its name and driver; empty if
    they are."""
    found = (why for pattern, why in _DENIED.items() if re.search(pattern, device))
    return next(found, "")


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Matrix instructions that a device lists."""

    shapes: tuple[Shape, ...] = ()
    subgroups: tuple[int, int] = (0, 0)
    """Smallest and largest size of a subgroup that a kernel may request."""
    denied: str = ""
    """Reason that none of it is used; empty if it is."""

    def has(self, wanted: Instruction) -> bool:
        """Whether kernels with an instruction run on the device."""
        least, most = self.subgroups
        return not self.denied and wanted.shape in self.shapes and least <= wanted.subgroup <= most

    def list_usable(self, rows: Sequence[Instruction] = INSTRUCTIONS) -> tuple[Instruction, ...]:
        """Rows that it supports."""
        return tuple(filter(self.has, rows))

    @property
    def facts(self) -> tuple[str, ...]:
        """Description for people."""
        if not self.shapes:
            return ()
        names = [each.name for each in self.list_usable()]
        used = f"used as {' and '.join(names)}" if names else "none of which is used"
        used = f"not used: {self.denied}" if self.denied else used
        return (f"matrix instructions ({'; '.join(map(str, self.shapes))}), {used}",)


NOTHING = Offer()
"""Offer of a device without matrix instructions."""
