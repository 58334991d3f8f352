"""Budgets of kernels as they are compiled for GPUs, which depend on the driver's version."""

from __future__ import annotations

import functools
import re
from typing import TypeVar

from dmlc.inspection import radv

T = TypeVar("T")

NEWER = 23
"""From this version of Mesa on, RADV spends registers so that loads wait less, and fewer waves run
beside each other. Versions 22.3 and 25.0 were tried."""


@functools.cache
def find_version() -> int:
    """The major version of Mesa whose RADV is here."""
    name, *_ = radv.list_gpus()
    driver = radv._run((), radv._list_names(radv._find_driver()[1])[name], *radv._find_driver())
    found = re.search(r"Mesa (\d+)\.", driver["driver"])
    assert found is not None, driver
    return int(found[1])


def by_mesa(older: T, newer: T) -> T:
    """A budget as the version of Mesa has it that is here."""
    return newer if find_version() >= NEWER else older
