"""Unique names in a kernel, derived from names of tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from dmlc.kernel.rewrite import NUMBER

PERMUTED = "@"
"""Separates a tensor's name and a number in the names of vectors made of its elements."""


class Names:
    """Unique names within one kernel."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = dict.fromkeys(taken, 0)

    def take(self, wanted: str) -> str:
        """`wanted`, with a number if it is taken. (`cleanup` makes the final names.)"""
        if wanted not in self._taken:
            self._taken[wanted] = 0
            return wanted
        self._taken[wanted] += 1
        return f"{wanted}{NUMBER}{self._taken[wanted]}"


def local_name(tensor: str) -> str:
    """Name for an element of a tensor: `input_gradient` for `InputGradientTensor`. A name that is
    not a tensor's ends in `#` and a note, which is dropped; so is the part after `PERMUTED`."""
    tensor = tensor.partition(PERMUTED)[0]
    words = split_words(tensor)
    return words if words != tensor else f"{tensor}_value"


@functools.lru_cache(4096)
def split_words(tensor: str) -> str:
    """Tensor name in snake case, for derived names."""
    name = tensor.partition("#")[0]
    short = name.removesuffix("Tensor").removesuffix("_") or name
    short = short.replace("Tensor_", "_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).lower()
