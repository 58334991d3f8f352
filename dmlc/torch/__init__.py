"""PyTorch: dmlc's operators and graphs on its tensors. Names are imported when first used, so that
without PyTorch the error says what to install."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from dmlc.source import UnavailableError

if TYPE_CHECKING:
    from dmlc.torch.backend import Backend, report
    from dmlc.torch.call import Call
    from dmlc.torch.registration import register

__all__ = ["Backend", "Call", "register", "report"]

_PLACES = {
    "Backend": "dmlc.torch.backend",
    "Call": "dmlc.torch.call",
    "register": "dmlc.torch.registration",
    "report": "dmlc.torch.backend",
}

if importlib.util.find_spec("torch") is None:
    raise UnavailableError(
        "dmlc.torch needs PyTorch, which is not installed",
        notes=["install it with: pip install 'dmlc[torch]'"],
    )


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'dmlc.torch' has no attribute '{name}'")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
