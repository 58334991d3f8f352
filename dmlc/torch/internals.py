"""What of PyTorch's dispatcher has no public name, and its own operators in Python are made of."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

_c: Any = importlib.import_module("torch._C")
_levels: Any = importlib.import_module("torch._functorch.autograd_function")


def _join_keys(*names: str) -> Any:
    first, *rest = (_c.DispatchKeySet(getattr(_c.DispatchKey, name)) for name in names)
    for each in rest:
        first = first | each
    return first


PLAIN_KEYS: int = _join_keys("CPU", "AutogradCPU").raw_repr()
"""What the dispatcher has left for tensors of the CPU at a gradient's kernel, where nothing traces
the call, batches it or looks on."""

AFTER_AUTOGRAD: Any = _c._after_autograd_keyset
"""What the dispatcher has after gradients."""


def apply(function: type[torch.autograd.Function], args: Sequence[Any]) -> Any:
    """Applies a function at the one level that the dispatcher is at. PyTorch's own `apply` would
    begin with the levels of `torch.func` again."""
    call: Any = super(torch.autograd.Function, function)
    if not _c._are_functorch_transforms_active():
        return call.apply(*args)
    with _levels.enable_single_level_autograd_function():
        return call.apply(*args)
