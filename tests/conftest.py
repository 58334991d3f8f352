"""What every test folder shares: options that rewrite golden files and that run a sample of the
suite, quick builds on PoCL, drivers started as the runtime starts them, passes over kernels
verified one by one, Vulkan under its validation layer, and a way out of coverage's sight."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from dmlc.kernel.passes import set_verify_each
from dmlc.runtime import opencl
from dmlc.runtime.vulkan import Validation, set_validation
from tests.quick_builds import quick_builds

__all__ = ["quick_builds"]


collect_ignore_glob = ["*.dml"]
"""Where dmlc is installed, its plugin collects such files: these are data of tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )
    parser.addoption(
        "--sample",
        type=int,
        metavar="N",
        help="run N sets of parameters of each test, spread over all, and no tests of random cases",
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


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The runs of pytest that tests start load no more plugins than this one: that of pytest-lsp
    fails on items that are no functions, as dmlc's are."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:pytest-lsp -p no:asyncio")
    return pytester


@pytest.fixture(autouse=True, scope="session")
def opencl_instructions() -> None:
    """Some tests talk to OpenCL past the runtime: what it chooses for drivers, by asking for their
    devices first, is chosen for those too."""
    opencl.devices()


@pytest.fixture(autouse=True, scope="session")
def collect_garbage_seldom() -> Iterator[None]:
    """Collection is a fifteenth of the suite's time otherwise: trees of nodes are many, and few of
    them are cycles."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    yield
    gc.set_threshold(*before)


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
    before = set_validation(Validation.CALLS)
    yield
    set_validation(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Coverage, which more than doubles what Python takes, watches no test of random cases, and a
    few sets of parameters of every other: more give other numbers on the same lines."""
    most = config.getoption("--sample")
    if most is None:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not is_hypothesis_test(getattr(item, "obj", None)):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = {
        sets[n * len(sets) // min(most, len(sets))].nodeid
        for sets in tests.values()
        for n in range(min(most, len(sets)))
    }
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


@pytest.fixture
def untraced() -> Iterator[None]:
    """Without the trace of coverage: it is most of what is timed, or of what thousands of random
    cases take."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)
