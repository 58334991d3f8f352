"""Layers: no box meets another, no link crosses a box, chains run straight; over random graphs."""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc.picture.layered import Arrangement, arrange, fit_rising
from dmlc.picture.ordering import Ties, count_crossings, order_layers
from dmlc.picture.placing import arrange_rows, lay_out
from dmlc.picture.ranking import Box, Gaps, Link, measure_links, rank_boxes
from dmlc.picture.shapes import draw_copy

GAPS = Gaps(across=10, down=20, beside_links=6)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Link]]:
    """Boxes of several sizes, some of them at the rims, and links that lead forward."""
    count = draw(st.integers(1, 24))
    size = st.integers(1, 12)
    boxes = [Box(10.0 * draw(size), 10.0 * draw(size)) for _ in range(count)]
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
                lambda p: p[0] < p[1]
            ),
            max_size=3 * count if count > 1 else 0,
            unique=True,
        )
    )
    ports = st.none() | st.floats(-5, 5)
    links = [Link(a, b, draw(st.floats(-5, 5)), draw(ports)) for a, b in pairs]
    top, bottom = (draw(st.integers(0, 3)) for _ in range(2))
    inward = {b for _, b in pairs}
    outward = {a for a, _ in pairs}
    rims = [
        Box(
            box.width,
            box.height,
            first=number < top and number not in inward,
            last=number >= count - bottom and number not in outward and number >= top,
        )
        for number, box in enumerate(boxes)
    ]
    return rims, links


def check(boxes: list[Box], links: list[Link], found: Arrangement) -> None:
    """Nothing overlaps or leaves the plane, and links meet boxes at their ends only."""
    spots = list(zip(boxes, found.corners, strict=True))
    for box, place in spots:
        assert place.x >= -0.01
        assert place.y >= -0.01
        assert place.x + box.width <= found.width + 0.01
        assert place.y + box.height <= found.height + 0.01
    for (a, p), (b, q) in itertools.combinations(spots, 2):
        apart = p.x + a.width <= q.x + 0.01 or q.x + b.width <= p.x + 0.01
        assert apart or p.y + a.height <= q.y + 0.01 or q.y + b.height <= p.y + 0.01
    for link, route in zip(links, found.routes, strict=True):
        (x1, y1), (x2, y2) = route[0], route[-1]
        upper, lower = found.corners[link.source], found.corners[link.target]
        assert y1 == pytest.approx(upper.y + boxes[link.source].height)
        assert y2 == pytest.approx(lower.y)
        assert upper.x - 10.01 <= x1 <= upper.x + boxes[link.source].width + 10.01
        assert lower.x - 10.01 <= x2 <= lower.x + boxes[link.target].width + 10.01
        for (xa, ya), (xb, yb) in itertools.pairwise(route):
            assert yb >= ya
            for number, (box, place) in enumerate(spots):
                if number in (link.source, link.target):
                    continue
                # A bend has vertical tangents: it stays between its ends, across and down.
                beside = max(xa, xb) < place.x + 0.01 or min(xa, xb) > place.x + box.width - 0.01
                assert beside or yb <= place.y + 0.01 or ya >= place.y + box.height - 0.01


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_nothing_overlaps(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    found = arrange(boxes, links, GAPS)
    check(boxes, links, found)
    tops = [place.y for place in found.corners]
    for link in links:
        assert tops[link.source] + boxes[link.source].height < tops[link.target]
    for box, top in zip(boxes, tops, strict=True):
        if box.first:
            assert top == 0
        if box.last:
            assert top == max(tops)
    assert arrange(boxes, links, GAPS) == found


LIMIT = 200.0


@pytest.mark.parametrize("in_order", [False, True])
@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_nothing_overlaps_within_a_width(
    in_order: bool, graph: tuple[list[Box], list[Link]]
) -> None:
    boxes, links = graph
    gaps = dataclasses.replace(GAPS, limit=LIMIT, in_order=in_order)
    # A rim is one row, however wide: what has no room there is no box of the rim.
    boxes = [dataclasses.replace(box, first=False, last=False) for box in boxes]
    found = arrange(boxes, links, gaps)
    check(boxes, links, found)
    layers: dict[float, float] = {}
    for box, place in zip(boxes, found.corners, strict=True):
        layers[place.y] = layers.get(place.y, -gaps.across) + box.width + gaps.across
    assert max(layers.values()) <= LIMIT
    ranks = rank_boxes(boxes, links, gaps)
    assert all(ranks[link.source] < ranks[link.target] for link in links)
    given = [n for n in range(len(boxes)) if any(link.target == n for link in links)]
    inner = [n for n in given if any(link.source == n for link in links)]
    if in_order:
        assert [ranks[n] for n in inner] == sorted(ranks[n] for n in inner)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_layouts_keep_the_width(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    boxes = [dataclasses.replace(box, first=False, last=False) for box in boxes]
    gaps = dataclasses.replace(GAPS, limit=LIMIT)
    layout = lay_out(boxes, links, gaps, lambda number: draw_copy(f"n{number}"))
    made = [*boxes, *(Box(s.width, s.height) for s in layout.copies)]
    assert layout.found.width <= LIMIT + 0.01
    assert not layout.found.routes or len(layout.found.routes) == len(links)
    for (a, p), (b, q) in itertools.combinations(zip(made, layout.found.corners, strict=True), 2):
        apart = p.x + a.width <= q.x + 0.01 or q.x + b.width <= p.x + 0.01
        assert apart or p.y + a.height <= q.y + 0.01 or q.y + b.height <= p.y + 0.01


@pytest.mark.parametrize("in_order", [False, True])
def test_rims_stay_rims_within_a_width(in_order: bool) -> None:
    rims = [Box(40, 10, first=True), Box(40, 10, first=True)]
    inner = [Box(60, 10)] * 3
    ends = [Box(40, 10, last=True)] * 3
    links = [Link(0, 2), Link(1, 4), Link(2, 3), Link(3, 4), Link(2, 5), Link(3, 6), Link(4, 7)]
    gaps = dataclasses.replace(GAPS, limit=LIMIT, in_order=in_order)
    assert rank_boxes([*rims, *inner, *ends], links, gaps) == [0, 0, 1, 2, 3, 4, 4, 4]


def test_order_yields_to_links() -> None:
    gaps = dataclasses.replace(GAPS, limit=LIMIT, in_order=True)
    boxes = [Box(60, 10)] * 4
    links = [Link(3, 1), Link(0, 3), Link(1, 2)]
    # A box of which nothing is given and a box to which nothing is given stand beside the others.
    assert rank_boxes(boxes, links, gaps) == [0, 2, 3, 1]
    check(boxes, links, arrange(boxes, links, gaps))


def test_rows_keep_first_and_last_apart() -> None:
    boxes = [Box(60, 10, last=True), Box(60, 20), Box(60, 30, first=True), Box(90, 10), Box(90, 5)]
    found = arrange_rows(boxes, Gaps(across=10, down=5, limit=200.0))
    assert [(p.x, p.y) for p in found.corners] == [(0, 70), (0, 35), (0, 0), (70, 35), (0, 60)]
    assert (found.width, found.height) == (160, 80)


def test_a_link_that_is_named_keeps_its_target_below() -> None:
    links = [Link(0, 1), Link(3, 2)]
    for gaps in (None, Gaps(across=1, down=1, limit=100.0)):
        ranks = rank_boxes([Box(10, 10)] * 4, links, gaps)
        assert ranks[2] <= ranks[1]
        after = [links[0], dataclasses.replace(links[1], after=1)]
        ranks = rank_boxes([Box(10, 10)] * 4, after, gaps)
        assert ranks[2] > ranks[1]


def test_a_chain_runs_straight_and_leaves_do_not_bend_it() -> None:
    boxes = [Box(80, 50)] * 12
    chain = [Link(n, n + 1) for n in range(8)]
    leaves = [Link(9, 3), Link(10, 5), Link(11, 7)]
    found = arrange(boxes, [*chain, *leaves], GAPS)
    middles = [place.x for place in found.corners[:9]]
    assert max(middles) - min(middles) < 40
    assert all(len({x for x, _ in route}) == 1 for route in found.routes[:2])


def test_no_boxes_take_no_room() -> None:
    assert arrange([], [], GAPS) == Arrangement((), (), 0.0, 0.0)


def test_links_in_a_cycle_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        arrange([Box(1, 1)] * 2, [Link(0, 1), Link(1, 0)], GAPS)


def test_links_are_measured_in_layers() -> None:
    links = [Link(0, 1), Link(1, 2), Link(2, 3), Link(0, 3)]
    assert measure_links([Box(1, 1)] * 4, links) == [1, 1, 1, 3]


def test_hundreds_of_boxes_take_no_time_to_speak_of() -> None:
    boxes = [Box(60, 30)] * 400
    links = [Link(max(n - d, 0), n) for n in range(1, 400) for d in (1, 4)]
    began = time.process_time()
    arrange(boxes, [k for k in links if k.source != k.target], GAPS)
    assert time.process_time() - began < 4


def test_crossings_that_need_not_be_are_removed() -> None:
    ties = Ties(6)
    for upper, lower in ((0, 5), (1, 4), (2, 3)):
        ties.add(upper, lower, 0.0, 0.0)
    layers = [[0, 1, 2], [3, 4, 5]]
    assert count_crossings(layers, ties) == 3
    assert count_crossings(order_layers(layers, ties), ties) == 0


def test_exchanging_neighbours_removes_what_means_leave() -> None:
    # Both lower nodes have the same mean place above them, so that only an exchange helps.
    ties = Ties(5)
    for upper, lower in ((0, 3), (2, 3), (1, 4)):
        ties.add(upper, lower, 0.0, 0.0)
    assert count_crossings(order_layers([[0, 1, 2], [4, 3]], ties), ties) <= 1


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), max_size=12))
def test_rising_numbers_are_the_nearest_there_are(pairs: list[tuple[int, int]]) -> None:
    wanted = [float(w) for w, _ in pairs]
    weights = [float(w) for _, w in pairs]
    found = fit_rising(wanted, weights)
    assert found == sorted(found)

    def cost(values: list[float]) -> float:
        return sum(w * (a - b) ** 2 for a, b, w in zip(values, wanted, weights, strict=True))

    # No block can be moved for the better: the problem is convex, so that this is the least.
    for number in range(len(found)):
        for step in (-0.01, 0.01):
            other = [v + step if at == number else v for at, v in enumerate(found)]
            if other == sorted(other):
                assert cost(other) >= cost(found) - 1e-9
    assert sum(w * (a - b) for a, b, w in zip(found, wanted, weights, strict=True)) == (
        pytest.approx(0, abs=1e-6)
    )
