"""What several of these tests use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.installing import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def forget() -> None:
    """Nothing that `torch.compile` compiled before, and the same random numbers each time."""
    import torch

    torch._dynamo.reset()
    torch.manual_seed(0)
