"""Simulated device: its promises, and its selectors."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from dmlc.freedoms import Freedom, Taken
from dmlc.program import FLOAT_WIDTHS, VERSION
from dmlc.runtime.floats import CORRECT, LEAST, Division, FloatPromises
from dmlc.runtime.interface import CompileOptions, part_of_selector
from dmlc.source import DmlcError, check_known, join_words

RUNTIME = "strict"
_EXACT = Division(CORRECT, CORRECT)


@dataclasses.dataclass(frozen=True, slots=True)
class StrictDevice:
    """Simulated device that takes some freedoms, decided by a seed."""

    runtime: ClassVar[str] = RUNTIME

    seed: int = 0
    freedoms: frozenset[Freedom] = frozenset(Freedom)

    @property
    def index(self) -> int | str:
        """Seed, followed by the freedoms that it takes unless it takes all."""
        if self.freedoms == frozenset(Freedom):
            return self.seed
        return ",".join((str(self.seed), *(sorted(self.freedoms) or ("none",))))

    @property
    def name(self) -> str:
        return "simulated strict device"

    @property
    def driver(self) -> str:
        """Version of the simulation."""
        return VERSION

    @property
    def note(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed}, {self._describe_freedoms()})"

    def _describe_freedoms(self) -> str:
        if self.freedoms == frozenset(Freedom):
            return "every freedom"
        return f"free in {join_words(sorted(self.freedoms), 'and')}" if self.freedoms else "exact"

    @property
    def floats(self) -> FloatPromises:
        """Promises with the mode that keeps NaN, infinities and signs of zeros, for kernels that
        request it."""
        division = LEAST.single if Freedom.DIVISION in self.freedoms else _EXACT
        denormals = () if Freedom.DENORMALS in self.freedoms else FLOAT_WIDTHS
        return FloatPromises(FLOAT_WIDTHS, denormals, division, division)

    @property
    def compile_options(self) -> CompileOptions:
        return {"interpreted": True}

    def take(self, special: tuple[int, ...]) -> Taken:
        """Freedoms taken with a kernel that requests NaN, infinities and the signs of zeros of
        floats of some widths."""
        division = self.floats.single
        quotient, root = int(division.quotient - CORRECT), int(division.root - CORRECT)
        return Taken(self.seed, self.freedoms, special, quotient, root)

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        return ("interprets kernels in NumPy", self._describe_freedoms(), *self.floats.facts)


def choose_device(selector: str | None) -> StrictDevice:
    """Device of a selector.

    `selector` is `strict`, `strict:SEED` for another seed than 0, or `strict:SEED,FREEDOM,...` for
    a device that takes only these freedoms; `none` is the empty freedom. DmlcError for a seed that
    is no number, UnknownNameError for an unknown freedom.
    """
    text = part_of_selector(selector, RUNTIME)
    if not text:
        return StrictDevice()
    seed, *names = (part.strip() for part in text.split(","))
    if not (seed.isascii() and seed.isdigit()):
        raise DmlcError(
            f"the device '{selector}' has the seed '{seed}', which is no number",
            notes=["write `strict`, `strict:SEED`, or `strict:SEED,FREEDOM`"],
        )
    known = {str(freedom): freedom for freedom in Freedom}
    check_known("freedom", (*known, "none"), *names)
    chosen = frozenset(known[name] for name in names if name in known)
    return StrictDevice(int(seed), chosen if names else frozenset(Freedom))
