"""Matrix instructions: products of small matrices that the work items of a subgroup make together,
such as those of `VK_KHR_cooperative_matrix`.

A program may have kernels that use them beside the plain ones, and says in its manifest what they
need. A device lists the shapes and types that it has, and the host chooses. How exact the sums are,
and in which order they are added up, is the device's own: bits depend on it.
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
    """A product that a device lists: `m` by `k` times `k` by `n` elements, added to `m` by `n`."""

    m: int
    n: int
    k: int
    factors: DataType
    sum: DataType
    """The type of what is added up, and of what comes out."""

    def __str__(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}"
        return f"{size} {self.factors.name} to {self.sum.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """A row of the table: a product, and the items of the subgroups that make it together."""

    name: str
    shape: Shape
    subgroup: int
    devices: str
    """Those that list it, for people."""

    def to_json(self) -> dict[str, Any]:
        """What a manifest says that a kernel needs."""
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
"""The table: what kernels are written for. A device offers more; the largest come first."""

_DENIED = MappingProxyType(
    {
        r"Intel.*Arc.* A\d{3}": "its products of matrices are slower than its plain ones",
    }
)
"""Devices whose matrix instructions are not used though they list them, by the name and the driver,
with the reason."""

WITHOUT = MappingProxyType({"opencl": "OpenCL C has no matrices of its own"})
"""Why a target has none."""


def find_instruction(name: str) -> Instruction:
    """The row of that name. Raises `UnknownNameError`, naming those there are."""
    for each in INSTRUCTIONS:
        if each.name == name:
            return each
    raise UnknownNameError(unknown_name("matrix instruction", name, [i.name for i in INSTRUCTIONS]))


def find_denied(device: str) -> str:
    """Why a device's matrix instructions are not used, by its name and driver; empty where they
    are."""
    found = (why for pattern, why in _DENIED.items() if re.search(pattern, device))
    return next(found, "")


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a device lists."""

    shapes: tuple[Shape, ...] = ()
    subgroups: tuple[int, int] = (0, 0)
    """The least and the largest number of items of a subgroup that a kernel may ask for."""
    denied: str = ""
    """Why none of it is used; empty where it is."""

    def has(self, wanted: Instruction) -> bool:
        """Whether kernels with an instruction run on the device."""
        least, most = self.subgroups
        return not self.denied and wanted.shape in self.shapes and least <= wanted.subgroup <= most

    def list_usable(self, rows: Sequence[Instruction] = INSTRUCTIONS) -> tuple[Instruction, ...]:
        """The rows that it has."""
        return tuple(filter(self.has, rows))

    @property
    def facts(self) -> tuple[str, ...]:
        """What it is, for people."""
        if not self.shapes:
            return ()
        names = [each.name for each in self.list_usable()]
        used = f"used as {' and '.join(names)}" if names else "none of which is used"
        used = f"not used: {self.denied}" if self.denied else used
        return (f"matrix instructions ({'; '.join(map(str, self.shapes))}), {used}",)


NOTHING = Offer()
"""Of a device without matrix instructions."""
