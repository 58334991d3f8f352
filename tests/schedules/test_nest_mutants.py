"""A broken nest is found out with no device: most kinds by the verifier, and the others by that of
kernels, or by what the kernel does in the interpreter."""

from __future__ import annotations

import pytest

from tests.schedules.mutate_nests import KINDS
from tests.schedules.nest_mutants import CASES, OTHER, SAME, VERIFIER, find

FREE = {
    "a step is one longer": "vectors may be of any width, and what is left over has its own loops",
    "a step is doubled": "vectors and serial steps may be of any width",
    "a step is halved": "vectors and serial steps may be of any width",
    "an extent is one more": "steps beyond the end of a dimension do nothing",
    "a loop is missing": "a loop of one step walks what there is without it too",
    "a loop stands twice": "a loop of one step may stand around another",
    "a loop walks another dimension": "where both have one step of that length",
    "work items go one after the other": "what no axis shares, the first work item does",
    "a loop is written out once": "a loop of one step may be written out",
    "points beyond the end count": "points may be clamped where others are left out",
    "work groups take a loop inside": "where there are none, they may take the outermost loop",
    "a stretch of vectors ends one late": "where the point behind it is like those before",
    "neighbours change places": "two reductions, or two phases that keep nothing, have no order",
    "a reduction is missing": "points may enter the whole without a part of their own",
    "a reduction resumes, or not, the other way": "its own part may be added to the whole instead",
    "a tile has other lanes": "arrays in memory have no lanes of their own",
    "a buffer is filled from one on": "some of the zeros around a row are never read",
    "a buffer is filled up to one less": "some of the zeros around a row are never read",
    "a buffer is filled too far": "what is filled before anything is put there does no harm",
    "a buffer is shared no more": "a work item may read only what it has filled itself",
    "what is staged is not waited for": "where more is staged behind it, all is waited for there",
    "a pack is missing": "points may be stored one by one",
    "a dimension is one shorter": "a tile of whole blocks may have fewer rows that count",
}
"""Kinds that may make another order of the same phases instead of a broken nest: what passes all
checks has the right results. What has the same code says the same in another way."""


LATER = {
    "a part ends one early": "parts may go beyond the end of their dimension",
    "points beyond the end count": "points may be clamped where others are left out",
    "a read takes other lanes": "which lanes a read takes, its positions say",
    "a position takes other lanes": "which lanes a read takes, its positions say",
    "a condition of some lanes is forgotten": "which lanes a guard leaves out, its positions say",
    "a block of outputs is forgotten": "arrays of accumulators may be for vectors",
    "a row starts one on": "where rows start, those who read them say",
    "a buffer has no rows": "which rows a buffer has, those who read it say",
    "a buffer is filled from one on": "what is zero, those who read it say",
    "a buffer is filled up to one less": "what is zero, those who read it say",
    "a staged point has no conditions": "conditions are those of a phase",
    "what a tile leaves of its buffer stays": "what is zero, those who read it say",
    "a pack is missing": "points may be stored one by one",
    "patterns go on by one more": "which elements a vector takes, its phase says",
    "a vector is permuted otherwise": "which elements a vector takes, its phase says",
    "cases change places": "which case a point has, its phase says",
    "matrices are of another instruction": "which one a target has, its limits say",
}
"""Kinds that the verifier of nests leaves to that of kernels, or to the interpreter: they are about
elements, and not about the order of points."""


def test_there_are_many_kinds_and_cases_for_each() -> None:
    assert len(KINDS) - len(LATER) >= 40
    assert {*FREE, *LATER} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_broken_nests_are_found_out(kind: str) -> None:
    found = find(kind, list(CASES), most=2)
    finders = {finder for finder, _ in found} - {SAME}
    assert (VERIFIER in finders) is (kind not in LATER), dict(found)
    assert finders - {OTHER} or kind in FREE, f"no mutant is found out: {dict(found)}"
    assert OTHER not in finders or kind in FREE, dict(found)
