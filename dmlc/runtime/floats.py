"""Floating-point promises of a device, beyond those of every device.

A runtime queries them. The compiler requests from drivers what can be promised, and the harness and
the known answers permit exactly the deviations that remain.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dmlc.program import FLOAT_WIDTHS
from dmlc.scalars import DataType
from dmlc.source import join_words

CORRECT = 0.5
"""Error of a correctly rounded result, in units in the last place."""


@dataclasses.dataclass(frozen=True, slots=True)
class Division:
    """Largest errors of quotients and square roots, in units in the last place."""

    quotient: float
    root: float

    def __str__(self) -> str:
        if max(self.quotient, self.root) <= CORRECT:
            return "correctly rounded"
        return f"within {self.quotient:g} ulp, square roots {self.root:g}"


@dataclasses.dataclass(frozen=True, slots=True)
class FloatPromises:
    """Floating-point promises of a device. Widths are those of floats, in bits."""

    special: tuple[int, ...] = ()
    """Widths whose NaN, infinities and signs of zeros are kept. For others a driver may assume that
    there are none."""
    denormals: tuple[int, ...] = ()
    """Widths whose denormals are kept. Those of others may be flushed to zero, with their sign,
    when they are operands, compared, or results. Selections and copies keep them all the same."""
    single: Division = Division(2.5, 4.5)
    """Errors for FLOAT32. Vulkan and WebGPU promise these: a root is 1 over a reciprocal root,
    whose error may be 2."""
    double: Division = Division(2.5, 4.5)
    """Errors for FLOAT64."""
    lost: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    """Widths whose NaN, infinities and signs of zeros are known to be lost, not only permitted to
    be: known answers leave them undefined."""

    def keeps_denormals(self, dtype: DataType) -> bool:
        """Whether denormals of a type are kept. FLOAT16 is a storage type, and keeps them on every
        device; BFLOAT16 has the exponents of FLOAT32."""
        width = {DataType.FLOAT64: 64, DataType.FLOAT16: 16}.get(dtype, 32)
        return width == 16 or width in self.denormals

    def loses_special(self, dtype: DataType) -> bool:
        """Whether NaN and infinities are known to be lost in computations of a type."""
        return dtype.is_float and (64 if dtype is DataType.FLOAT64 else 32) in self.lost

    def find_ulps(self, operation: str, dtype: DataType) -> float:
        """Largest error of one floating-point operation, in units in the last place. Languages
        differ for `div` and `sqrt`; all others are correctly rounded."""
        division = self.double if dtype is DataType.FLOAT64 else self.single
        promised = {
            "div": division.quotient, "div_nearest": division.quotient, "sqrt": division.root
        }  # fmt: skip
        return promised.get(operation, CORRECT)

    @property
    def facts(self) -> tuple[str, ...]:
        """Promises in words."""
        return (
            f"NaN and signed zeros {_describe_kept(self.special, self.lost)}",
            f"denormals {_describe_kept(self.denormals)}",
            f"division {self.single}",
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        made = dataclasses.asdict(self)
        return made | {name: list(made[name]) for name in ("special", "denormals", "lost")}


LEAST = FloatPromises()
"""Promises of every device."""
KEEPING = FloatPromises(FLOAT_WIDTHS, FLOAT_WIDTHS)
"""Promises of a device that keeps all numbers, with the largest errors of divisions."""


def _describe_kept(widths: tuple[int, ...], lost: tuple[int, ...] = ()) -> str:
    said = [
        f"{word} of {join_words(map(str, some), 'and')} bits"
        for word, some in (("kept", widths), ("lost", lost))
        if some
    ]
    return join_words(said, "and") or "not promised"
