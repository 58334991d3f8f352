"""The words the language itself gives a meaning to: functions, reductions, facts, enum members.

The checker and the binder both ask here, so that what is accepted and what is computed agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dmlc.language.definitions import EnumDefinition
from dmlc.scalars import OPERATIONS

SCALAR_FUNCTIONS: Mapping[str, int] = MappingProxyType(
    {o.name: o.arity for o in OPERATIONS.values() if o.symbol is None and o.rounds_to is None}
    | {"clamp": 3, "cast": 2}
)
"""The number of arguments of every built-in scalar function."""

REDUCTIONS: tuple[str, ...] = (
    "sum", "mean", "max", "min", "product", "any", "all", "argmin", "argmax",
)  # fmt: skip
"""What may stand before `[k : n](...)` and take `like:` or `axes:`."""

FOLDS: tuple[str, ...] = ("sum", "product", "all", "any", "max", "min")
"""What folds a pack or a compile-time array."""

AXIS_FUNCTIONS: tuple[str, ...] = ("squeeze", "unsqueeze")
"""What drops or adds axes of size 1; each takes a tensor and `axes:`."""

ARRAY_FUNCTIONS: Mapping[str, int] = MappingProxyType(
    {"other_axes": 2, "range": 2, "inverse": 1, "length": 1, "flatten": 2, "unflatten": 2}
)
"""The number of arguments of every function that takes or makes whole arrays."""

BUILT_IN: tuple[str, ...] = (
    *SCALAR_FUNCTIONS, *REDUCTIONS, *AXIS_FUNCTIONS, *ARRAY_FUNCTIONS, "join", "split", "present",
    "gradient",
)  # fmt: skip
"""Every name a call may use without declaring it, duplicates included (`min` is two things)."""

FACTS: tuple[str, ...] = ("DataType", "DimensionCount", "Sizes", "ElementCount", "Strides")
"""What `T.` may be followed by."""

ARRAY_FACTS: tuple[str, ...] = ("Count",)
"""What the name of an array of tensors may be followed by."""

TENSOR_ARRAY_FUNCTIONS: tuple[str, ...] = ("join", "split")
"""What makes one tensor of an array of tensors, and the reverse; each takes `axis:`."""

SENTENCE_FACTS: tuple[str, ...] = ("DataType", "DimensionCount", "Sizes")
"""What tensors may have the same of."""


def find_member(enum: EnumDefinition, name: str) -> str | None:
    """The member with that name, short (`LINEAR`) or full (`DML_INTERPOLATION_MODE_LINEAR`)."""
    if name in enum.members:
        return name
    short = name.removeprefix(enum.name + "_")
    return short if short in enum.members else None
