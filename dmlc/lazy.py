"""Work that is done when it is first needed: imports of a package's names (PEP 562), and results
that objects keep."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from dmlc.source import Note, UnavailableError

Held = TypeVar("Held")
Result = TypeVar("Result")


def kept(find: Callable[[Held], Result]) -> Callable[[Held], Result]:
    """Function of one frozen object, or method without parameters, whose result the object keeps
    from the first call on. Classes of such objects have no slots."""
    key = f"{find.__name__}()"

    @functools.wraps(find)
    def recall(given: Held) -> Result:
        results = given.__dict__
        if key not in results:
            results[key] = find(given)
        return results[key]

    return recall


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
