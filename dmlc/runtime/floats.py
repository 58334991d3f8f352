"""What a device promises of floating-point numbers, beyond what every device must do.

A runtime reads it of its devices. The compiler asks drivers for what can be promised, and the
harness and the known answers permit what is not promised, and no more.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dmlc.program import FLOAT_WIDTHS
from dmlc.scalars import DataType
from dmlc.source import join_words

CORRECT = 0.5
"""How far off a correctly rounded result is, in units of the last place."""


@dataclasses.dataclass(frozen=True, slots=True)
class Division:
    """How far quotients and square roots may be from the exact ones, in units of the last place."""

    quotient: float
    root: float

    def __str__(self) -> str:
        if max(self.quotient, self.root) <= CORRECT:
            return "correctly rounded"
        return f"within {self.quotient:g} ulp, square roots {self.root:g}"


@dataclasses.dataclass(frozen=True, slots=True)
class FloatPromises:
    """What a device promises. Widths are those of floats, in bits."""

    special: tuple[int, ...] = ()
    """The widths whose NaN, infinities and signs of zeros it keeps. Of others a driver may take for
    granted that there are none."""
    denormals: tuple[int, ...] = ()
    """The widths whose denormals it keeps. Those of others it may take for zeros of their sign
    where it computes with them or compares them, and it may give zeros in place of them. What only
    selects and moves keeps them all the same."""
    single: Division = Division(2.5, 4.5)
    """Of FLOAT32. Vulkan and WebGPU promise this: a root is 1 over a reciprocal root, which may be
    off by 2."""
    double: Division = Division(2.5, 4.5)
    """Of FLOAT64."""
    lost: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    """The widths whose NaN, infinities and signs of zeros it is known to lose, and not only allowed
    to: known answers leave them open."""

    def keeps_denormals(self, dtype: DataType) -> bool:
        """Whether denormals of a type are kept. FLOAT16 is for storage, and keeps them on every
        device; BFLOAT16 has the exponents of FLOAT32."""
        width = {DataType.FLOAT64: 64, DataType.FLOAT16: 16}.get(dtype, 32)
        return width == 16 or width in self.denormals

    def loses_special(self, dtype: DataType) -> bool:
        """Whether NaN and infinities are known to be lost where values of a type are computed."""
        return dtype.is_float and (64 if dtype is DataType.FLOAT64 else 32) in self.lost

    def find_ulps(self, operation: str, dtype: DataType) -> float:
        """How far one operation on floats may be off, in units of the last place, where languages
        differ in what they promise: `div` and `sqrt`. All others are correctly rounded."""
        division = self.double if dtype is DataType.FLOAT64 else self.single
        promised = {
            "div": division.quotient, "div_nearest": division.quotient, "sqrt": division.root
        }  # fmt: skip
        return promised.get(operation, CORRECT)

    @property
    def facts(self) -> tuple[str, ...]:
        """What is promised, for people."""
        return (
            f"NaN and signed zeros {_say_kept(self.special, self.lost)}",
            f"denormals {_say_kept(self.denormals)}",
            f"division {self.single}",
        )

    def to_json(self) -> dict[str, Any]:
        """The record as plain data for JSON."""
        made = dataclasses.asdict(self)
        return made | {name: list(made[name]) for name in ("special", "denormals", "lost")}


LEAST = FloatPromises()
"""What every device promises."""
KEEPING = FloatPromises(FLOAT_WIDTHS, FLOAT_WIDTHS)
"""What a device promises that keeps all numbers, and divides no better than others."""


def _say_kept(widths: tuple[int, ...], lost: tuple[int, ...] = ()) -> str:
    said = [
        f"{word} of {join_words(map(str, some), 'and')} bits"
        for word, some in (("kept", widths), ("lost", lost))
        if some
    ]
    return join_words(said, "and") or "not promised"
