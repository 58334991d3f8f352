"""Report of a run."""

from __future__ import annotations

import dataclasses

from dmlc.runtime.arrays import Copy
from dmlc.source import join_words


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Report of a run: its device, the arrays copied on the host, the time of the kernels by the
    device's clock if requested, and the matrix instructions used."""

    device: str
    copies: tuple[Copy, ...] = ()
    seconds: float | None = None
    matrices: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [f"ran on {self.device}", *(str(copy) for copy in self.copies)]
        if self.seconds is not None:
            said.append(f"the kernels took {self.seconds * 1e3:.3f} ms")
        if self.matrices:
            names = join_words(self.matrices, "and")
            said.append(f"matrix instructions {names} were used: bits depend on the device")
        return "; ".join(said)
