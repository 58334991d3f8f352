"""What every test folder shares: options that rewrite golden files and that say how much of the
suite runs, quick builds on PoCL, drivers started as the runtime starts them, passes over kernels
verified one by one, Vulkan under its validation layer, and a way out of coverage's sight."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from dmlc.kernel.passes import set_verify_each
from dmlc.runtime import opencl
from dmlc.runtime.vulkan import Validation, set_validation
from tests.quick_builds import quick_builds

__all__ = ["quick_builds"]


collect_ignore_glob = ["*.dml"]
"""Where dmlc is installed, its plugin collects such files: these are data of tests."""

os.environ["DMLC_NO_PROGRESS"] = "1"
"""Commands say how far they have come where they take long, as they may beside other tests."""

settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")
"""Tests of random cases draw the same ones in every run of a commit; others with
`--hypothesis-profile=random`, as `make fuzz` has it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )
    parser.addoption(
        "--all",
        action="store_true",
        help="run every set of parameters, also of tests that are marked as grids",
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
    """The runs of pytest that tests start load no plugins of themselves, as this one does not."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--disable-plugin-autoload -p xdist")
    return pytester


@pytest.fixture(autouse=True, scope="session")
def opencl_instructions() -> None:
    """Some tests talk to OpenCL past the runtime: what it chooses for drivers, by asking for their
    devices first, is chosen for those too."""
    opencl.devices()


def pytest_sessionstart() -> None:
    """Hypothesis draws constants from the code of the project's modules, all of which it reads once
    tests are collected: others in each worker, by the tests that ran before. Where cases are the
    same, it takes none."""
    if settings().derandomize:
        providers.is_local_module_file = lambda path: False


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
    """Leaves out what `--sample` does, or else, without `--all`, most of each grid. Tests that are
    named one by one all run."""
    most = config.getoption("--sample")
    if most is not None:
        chosen = choose_few(items, most)
    elif config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    else:
        chosen = choose_of_grids(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def list_tests(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The sets of parameters of each test."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests


def choose_few(items: list[pytest.Item], most: int) -> set[str]:
    """A few sets of parameters of each test, spread over all, and no test of random cases.
    Coverage more than doubles what Python takes, and more sets give other numbers on the same
    lines."""
    drawn = [item for item in items if not is_hypothesis_test(getattr(item, "obj", None))]
    return {
        sets[n * len(sets) // min(most, len(sets))].nodeid
        for sets in list_tests(drawn).values()
        for n in range(min(most, len(sets)))
    }


def choose_of_grids(items: list[pytest.Item]) -> set[str]:
    """Every test that is no grid. Of a grid, marked `grid(n)`, one set of parameters in n, and
    more until each value of a parameter that several sets share has its turn, and each of the
    parameter that the mark names as `every`. The order is that of a hash of each name: every run
    takes the same sets, and two tests over the same grid take different ones."""
    chosen: set[str] = set()
    for sets in list_tests(items).values():
        mark = sets[0].get_closest_marker("grid")
        if mark is None:
            chosen.update(item.nodeid for item in sets)
            continue
        values = [list_values(item) for item in sets]
        every = mark.kwargs.get("every")
        shared = {
            value
            for value, times in Counter(chain(*values)).items()
            if times > 1 or value[0] == every
        }
        order = sorted(range(len(sets)), key=lambda n: zlib.crc32(sets[n].nodeid.encode()))
        least = -(-len(sets) // mark.args[0])
        for place, number in enumerate(order):
            if place < least or not shared.isdisjoint(values[number]):
                chosen.add(sets[number].nodeid)
                shared.difference_update(values[number])
    return chosen


def list_values(item: pytest.Item) -> list[tuple[str, object]]:
    """The parameters of a test with their values; those that have no hash by identity."""
    assert isinstance(item, pytest.Function)
    return [(name, identify(value)) for name, value in item.callspec.params.items()]


def identify(value: object) -> object:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


@pytest.fixture
def untraced() -> Iterator[None]:
    """Without the trace of coverage: it is most of what is timed, or of what thousands of random
    cases take."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)
