"""Sets of parameters: that every few values meet, in far fewer cases than there are."""

from __future__ import annotations

import itertools

import pytest

from tests.cover import cover

AXES = ("abcdefg", range(6), (True, False), ("x", "y", "z"), ("reference", "opencl", "vulkan"))


@pytest.mark.parametrize(("strength", "most"), [(1, 7), (2, 50), (3, 180), (5, 756)])
def test_every_few_values_meet(strength: int, most: int) -> None:
    cases = cover(strength, *AXES)
    for group in itertools.combinations(range(len(AXES)), strength):
        met = {tuple(case[a] for a in group) for case in cases}
        assert met == set(itertools.product(*(AXES[a] for a in group)))
    assert len(set(cases)) == len(cases) <= most


def test_cases_are_the_same_each_time_and_in_order() -> None:
    cases = cover(2, *AXES)
    assert cases == cover(2, *AXES)
    everything = list(itertools.product(*AXES))
    assert cases == sorted(cases, key=everything.index)


def test_axes_may_hold_what_has_no_hash() -> None:
    assert cover(1, [[1], [2]], [{}]) == [([1], {}), ([2], {})]
