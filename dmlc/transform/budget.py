"""The numbers that fusion decides by: what memory and arithmetic cost, and how large a kernel may
get. Plain numbers, which a caller takes from a device profile and an output language.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import Apply, Body, Cast, Load, Select
from dmlc.scalars import DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What fusion may spend. Costs are in bytes: of so much traffic as takes the same time."""

    bytes_per_operation: float = 0.25
    """One addition."""
    launch_bytes: int = 1 << 18
    """One more kernel."""
    near_bytes: int = 1 << 18
    """What is read again is still at hand where no more than this was read in between."""
    most_buffers: int = 120
    """Tensors that one kernel reads and writes, at most."""
    most_repeated: int = 64
    """Instructions of a stage that are written out again for further places, at most."""
    most_instructions: int = 2048
    """Instructions of the stages of one kernel, at most; a single stage may have more."""
    lanes: int = 1
    """Neighbouring elements that are computed at once."""
    paired_types: tuple[DataType, ...] = ()
    """Types that are stored two elements at a time."""


_WEIGHTS = {
    "div": 4, "mod": 8, "sqrt": 4, "rsqrt": 8, "round_float16": 8, "round_bfloat16": 4, "pow": 40,
    "erf": 40, "tan": 40, "atan2": 40, "asinh": 40, "acosh": 40, "atanh": 40,
}  # fmt: skip
"""The time of operations, in additions, where it is not 1; other functions take 20."""


def count_operations(body: Body) -> int:
    """The time that a body's arithmetic takes, in additions; that of positions is free."""
    count = 0
    for instruction in body.instructions:
        if isinstance(instruction, Apply) and instruction.dtype is not DataType.INDEX:
            default = 20 if instruction.operation.transcendental else 1
            count += _WEIGHTS.get(instruction.operation.name, default)
        elif isinstance(instruction, Select | Cast) and instruction.dtype is not DataType.INDEX:
            count += 1
    return count


def count_loaded(body: Body) -> int:
    """The number of tensors that a body reads."""
    return len({i.tensor for i in body.instructions if isinstance(i, Load)})
