"""Exchange of cases and programs with other tools. Modules are imported when first used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlc.interop import cpp_header, dxdispatch, export, offload, proof, vulkan_hosts

__all__ = ["cpp_header", "dxdispatch", "export", "offload", "proof", "vulkan_hosts"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return importlib.import_module(f"{__name__}.{name}")
