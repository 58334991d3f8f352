"""Runtimes: a `Program` and arrays in, arrays out. They know no IR and generate no code.

The modules below are imported when they are first used: to compile takes none of them.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlc.runtime import hlsl

__all__ = ["hlsl"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return importlib.import_module(f"{__name__}.{name}")
