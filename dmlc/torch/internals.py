"""Parts of PyTorch's dispatcher that have no public name, but on which its own Python operators are
built."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch

_c: Any = importlib.import_module("torch._C")
_modes: Any = importlib.import_module("torch.utils._python_dispatch")
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
    """Applies an autograd function at the dispatcher's current level. PyTorch's own `apply` would
    start with the levels of `torch.func` again."""
    call: Any = super(torch.autograd.Function, function)
    if not _c._are_functorch_transforms_active():
        return call.apply(*args)
    with _levels.enable_single_level_autograd_function():
        return call.apply(*args)


@contextlib.contextmanager
def untraced() -> Generator[None]:
    """Context in which operators compute although PyTorch traces in this thread; a trace's tensors
    have no elements."""
    with _modes._disable_current_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


_COMPOSED: tuple[Any, ...] = (_c.DispatchKey.Autograd, _c.DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def traced_as(definitions: Mapping[Any, Callable[..., Any] | None]) -> Generator[None]:
    """Context in which a trace uses these definitions of operators instead of PyTorch's own in
    Python. An operator with None is traced as itself, with the gradient of eager mode. PyTorch
    compiles under a lock, so that no other trace sees the change."""
    kept = {each: dict(each.py_kernels) for each in definitions}
    try:
        for each, definition in definitions.items():
            for key in _COMPOSED:
                each.py_kernels.pop(key, None)
                if definition is not None:
                    each.py_kernels[key] = definition
            each._dispatch_cache.clear()
        yield
    finally:
        for each, kernels in kept.items():
            each.py_kernels.clear()
            each.py_kernels.update(kernels)
            each._dispatch_cache.clear()
