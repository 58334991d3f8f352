"""What every test folder shares: the option that rewrites golden files, quick builds on PoCL,
Vulkan under its validation layer, and a way out of coverage's sight."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dmlc.runtime.vulkan import set_validation
from tests.quick_builds import quick_builds

__all__ = ["quick_builds"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file; a missing file fails, as any difference does."""
    update = bool(request.config.getoption("--update-golden"))

    def check(path: Path, text: str) -> None:
        if update:
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path.name} is missing; `make golden` writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see `make golden`"

    return check


@pytest.fixture(autouse=True, scope="session")
def vulkan_validation() -> Iterator[None]:
    """Every use of Vulkan in the tests runs under the validation layer, synchronisation
    included: a single message is an InternalError in the test that caused it."""
    before = set_validation(True)
    yield
    set_validation(before)


@pytest.fixture
def untraced() -> Iterator[None]:
    """Without the trace of coverage: it is most of what is timed, or of what thousands of random
    cases take."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)
