"""What every test folder shares: the option that rewrites golden files, quick builds on PoCL,
drivers started as the runtime starts them, passes over kernels verified one by one, Vulkan under
its validation layer, and a way out of coverage's sight."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from dmlc.kernel.passes import set_verify_each
from dmlc.runtime import opencl
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
def opencl_instructions() -> None:
    """Some tests talk to OpenCL past the runtime: what it chooses for drivers, by asking for their
    devices first, is chosen for those too."""
    opencl.devices()


@pytest.fixture(autouse=True, scope="session")
def verify_each_pass() -> Iterator[None]:
    """In the tests the verifier looks at what each pass over kernels makes, so that it is the
    pass that broke a kernel which is named."""
    before = set_verify_each(True)
    yield
    set_verify_each(before)


@pytest.fixture(autouse=True, scope="session")
def vulkan_validation() -> Iterator[None]:
    """Every use of Vulkan in the tests runs under the validation layer, synchronisation
    included: a single message is an InternalError in the test that caused it."""
    before = set_validation(True)
    yield
    set_validation(before)


_RUNS_WATCHED = 10
_MANY_RUNS = ("tests/library/", "tests/codegen/", "tests/runtime/")
_runs: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage, which more than doubles what Python takes, watches no test of random cases, and
    where kernels run on devices, a test with its first 10 sets of parameters alone: more give
    other numbers on the same lines. What it misses so it can only report as not covered."""
    path, _, name = item.location
    test = f"{path}::{name.partition('[')[0]}"
    _runs[test] += 1
    often = path.startswith(_MANY_RUNS) and _runs[test] > _RUNS_WATCHED
    if often or is_hypothesis_test(getattr(item, "obj", None)):
        with _unwatched():
            return (yield)
    return (yield)


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


@pytest.fixture
def untraced() -> Iterator[None]:
    """Without the trace of coverage: it is most of what is timed, or of what thousands of random
    cases take."""
    with _unwatched():
        yield
