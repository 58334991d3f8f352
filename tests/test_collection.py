"""Searches for cycles are rarer while the compiler works, and as often as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dmlc import ir
from dmlc.collection import OBJECTS_BETWEEN_SEARCHES, throttle_garbage_collection
from dmlc.pipeline import compile
from dmlc.source import DmlcError


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield (700, 10, 10)
    gc.set_threshold(*before)


def test_searches_are_rarer_until_the_last_is_done(usual: tuple[int, int, int]) -> None:
    with throttle_garbage_collection():
        assert gc.get_threshold() == (OBJECTS_BETWEEN_SEARCHES, 10, 10)
        with throttle_garbage_collection():
            pass
        assert gc.get_threshold() == (OBJECTS_BETWEEN_SEARCHES, 10, 10)
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("chosen", [0, 3 * OBJECTS_BETWEEN_SEARCHES])
def test_who_has_chosen_fewer_keeps_them(chosen: int) -> None:
    gc.set_threshold(chosen, 5, 5)
    with throttle_garbage_collection():
        assert gc.get_threshold() == (chosen, 5, 5)
    assert gc.get_threshold() == (chosen, 5, 5)


def test_what_is_set_meanwhile_stays() -> None:
    with throttle_garbage_collection():
        gc.set_threshold(500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)


def test_compiling_leaves_all_as_it_was(usual: tuple[int, int, int]) -> None:
    function = ir.parse("func @f(%X: f32[n]) -> (%Y) { %Y: f32[i0 < n] = neg(%X[i0]) }")
    compile(function)
    assert gc.get_threshold() == usual
    with pytest.raises(DmlcError):
        compile(function, "metal")
    assert gc.get_threshold() == usual
