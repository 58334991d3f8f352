"""Names for what a kernel computes: unique ones, made of the names of tensors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from dmlc.kernel.rewrite import NUMBER

PERMUTED = "@"
"""Stands between a tensor's name and a number, where vectors are made of its elements."""


class Names:
    """Unique names within one kernel."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = dict.fromkeys(taken, 0)

    def take(self, wanted: str) -> str:
        """`wanted`, or that and a number where it is taken: `cleanup` has the last word."""
        if wanted not in self._taken:
            self._taken[wanted] = 0
            return wanted
        self._taken[wanted] += 1
        return f"{wanted}{NUMBER}{self._taken[wanted]}"


def local_name(tensor: str) -> str:
    """A name for an element of a tensor: `InputGradientTensor` gives `input_gradient`. What is no
    tensor's name ends in `#` and a note, which is dropped; so is what follows `PICKED`."""
    tensor = tensor.partition(PERMUTED)[0]
    words = split_words(tensor)
    return words if words != tensor else f"{tensor}_value"


@functools.lru_cache(4096)
def split_words(tensor: str) -> str:
    """A tensor's name in small letters, for names to be made of."""
    name = tensor.partition("#")[0]
    short = name.removesuffix("Tensor").removesuffix("_") or name
    short = short.replace("Tensor_", "_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", short).lower()
