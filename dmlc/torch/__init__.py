"""PyTorch: dmlc's operators and graphs on its tensors. Names are imported when first used, so that
without PyTorch the error says what to install."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from dmlc.lazy import import_lazily
from dmlc.source import UnavailableError

if TYPE_CHECKING:
    from dmlc.torch.backend import Backend, report
    from dmlc.torch.call import Call
    from dmlc.torch.registration import register

__all__ = ["Backend", "Call", "register", "report"]

if importlib.util.find_spec("torch") is None:
    raise UnavailableError(
        "dmlc.torch needs PyTorch, which is not installed",
        notes=["install it with: pip install 'dmlc[torch]'"],
    )


__getattr__, __dir__ = import_lazily(
    __name__,
    {"backend": ("Backend", "report"), "call": ("Call",), "registration": ("register",)},
)
