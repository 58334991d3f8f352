"""Intervals have in them all that comes of the numbers in others."""

from __future__ import annotations

import itertools
import math
import operator

from hypothesis import given
from hypothesis import strategies as st

from dmlc.index.intervals import UNKNOWN, Interval, compare, hull, is_within, meet, size_range
from dmlc.sizes import parse_size

COMPARED = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
            "eq": operator.eq, "ne": operator.ne}  # fmt: skip
INTERVALS = st.tuples(st.integers(-4, 4), st.integers(0, 3)).map(lambda i: (i[0], i[0] + i[1]))


@given(st.sampled_from(sorted(COMPARED)), INTERVALS, INTERVALS)
def test_comparisons_hold_where_some_numbers_compare_so(
    name: str, left: tuple[int, int], right: tuple[int, int]
) -> None:
    every = itertools.product(*(range(low, high + 1) for low, high in (left, right)))
    truths = [COMPARED[name](one, other) for one, other in every]
    assert compare(name, left, right) == (int(all(truths)), int(any(truths)))


@given(st.sampled_from(sorted(COMPARED)), INTERVALS)
def test_nothing_is_known_of_what_is_compared_with_anything(name: str, other: Interval) -> None:
    assert compare(name, other, UNKNOWN) == (0, 1)


def test_intervals_meet_and_are_joined() -> None:
    assert meet((0, 5), (3, math.inf)) == (3, 5)
    assert hull((0, 1), (4, 5)) == (0, 5)
    assert is_within((0, 4), 5)
    assert not is_within((-1, 4), 5)
    assert not is_within((0, 5), 5)


def test_sizes_are_bounded_as_texts_and_as_sizes() -> None:
    assert size_range("N + 2") == size_range(parse_size("N + 2"))
    assert size_range("N + 2")[0] == 3
    assert size_range(7) == (7, 7)
