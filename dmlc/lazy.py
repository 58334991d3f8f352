"""Names of a package that are imported when they are first used, and with them what they need."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Explain = Callable[[str, str], Exception | None]
"""The error for a name of the package and a Python package that it needs and that is not
installed; None where the package is none that an extra brings."""


def import_lazily(
    namespace: dict[str, Any], places: Mapping[str, Sequence[str]], explain: Explain
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package with this namespace. `places` are the
    modules that define its public names.

    The former raises what `explain` gives where something is not installed, and `AttributeError`
    for a name that is not there.
    """
    modules = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module '{namespace['__name__']}' has no attribute '{name}'")
        try:
            module = importlib.import_module(modules[name])
        except ModuleNotFoundError as error:
            explained = explain(name, (error.name or "").partition(".")[0])
            if explained is None:
                raise
            raise explained from None
        value = namespace[name] = getattr(module, name)
        return value

    return get, lambda: sorted(modules)
