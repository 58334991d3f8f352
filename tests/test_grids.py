"""Of a test that is marked as a grid, a run takes a part, in which every shared value is."""

from __future__ import annotations

import pytest

from tests.conftest import choose_of_grids

pytest_plugins = ["pytester"]

TESTS = """
import pytest

PAIRS = [(left, right) for left in range(6) for right in range(10)]

@pytest.mark.grid(5)
@pytest.mark.parametrize("kind", [["list"], {"dict"}, 3])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_pairs(left, right, kind):
    pass

@pytest.mark.grid(5)
@pytest.mark.parametrize("name", range(100))
def test_names(name):
    pass

@pytest.mark.grid(5)
@pytest.mark.parametrize("name", range(100))
def test_the_same_names(name):
    pass

@pytest.mark.grid(5, every="left")
@pytest.mark.parametrize(("left", "right"), [(max(n - 7, 0), n) for n in range(20)])
def test_each(left, right):
    pass

@pytest.mark.parametrize("name", range(20))
def test_all(name):
    pass
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Function]:
    pytester.makeini("[pytest]\nmarkers = grid(n, every)\n")
    return [item for item in pytester.getitems(TESTS) if isinstance(item, pytest.Function)]


def list_chosen(items: list[pytest.Function], test: str) -> list[dict[str, object]]:
    chosen = choose_of_grids(list(items))
    return [i.callspec.params for i in items if i.originalname == test and i.nodeid in chosen]


def test_what_is_no_grid_is_whole(items: list[pytest.Function]) -> None:
    assert len(list_chosen(items, "test_all")) == 20


def test_a_grid_has_its_part(items: list[pytest.Function]) -> None:
    assert len(list_chosen(items, "test_names")) == 20
    assert 36 <= len(list_chosen(items, "test_pairs")) <= 46


def test_every_value_has_its_turn(items: list[pytest.Function]) -> None:
    pairs = list_chosen(items, "test_pairs")
    assert {p["left"] for p in pairs} == set(range(6))
    assert {p["right"] for p in pairs} == set(range(10))
    assert len({str(p["kind"]) for p in pairs}) == 3


def test_every_value_of_a_parameter_has_its_turn_though_none_shares_it(
    items: list[pytest.Function],
) -> None:
    found = list_chosen(items, "test_each")
    assert {p["left"] for p in found} == set(range(13))
    assert len(found) < 20


def test_two_tests_over_a_grid_take_different_parts(items: list[pytest.Function]) -> None:
    assert list_chosen(items, "test_names") != list_chosen(items, "test_the_same_names")
    assert list_chosen(items, "test_names") == list_chosen(items, "test_names")
