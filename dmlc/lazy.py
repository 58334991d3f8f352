"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

from dmlc.source import Note, UnavailableError


@dataclasses.dataclass(frozen=True)
class Extra:
    """An extra of dmlc: the optional packages that some of its modules import."""

    name: str
    packages: Mapping[str, str]
    """Name of each package in the registry, by the name that it is imported by."""


def import_lazily(
    package: str, modules: Mapping[str, Iterable[str]], extra: Extra | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package, from the names that each of its modules
    defines. `__getattr__` raises `UnavailableError` if a package of the extra is missing."""
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            module = importlib.import_module(homes[name])
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if extra is None or missing not in extra.packages:
                raise
            raise UnavailableError(
                f"{package}.{name} needs the Python package '{extra.packages[missing]}', "
                "which is not installed",
                notes=[Note(f"install it with: pip install 'dmlc[{extra.name}]'")],
            ) from None
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(homes)
