"""Fixtures of the whole test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlc.runtime.vulkan import set_validation


@pytest.fixture(autouse=True, scope="session")
def vulkan_validation() -> Iterator[None]:
    """Every use of Vulkan in the tests runs under the validation layer, synchronisation
    included: a single message is an InternalError in the test that caused it."""
    before = set_validation(True)
    yield
    set_validation(before)
