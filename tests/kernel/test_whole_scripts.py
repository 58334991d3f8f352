"""Kernels that one call makes of the naive nest: as that is, and by any numbers."""

from __future__ import annotations

import pytest

from dmlc.loops.script import ScheduleError
from tests.crossing import KINDS, Rows
from tests.kernel.whole_scripts import Whole, attend, lay_lines

EVEN, THIRDS = lay_lines(4, 40), lay_lines(3, 37, (3, 2))
VECTORS, ITEMS = attend(5, 17, "cpu", "causal"), attend(5, 17, "gpu", "causal")
GRADIENT = attend(16, 17, "cpu", gradient=True)
"""What has a pattern of known weights, with several scores."""
CROSSED = {kind: Whole(Rows((10, 16)).make(kind), "hlsl", "gpu") for kind in KINDS}


@pytest.mark.parametrize("whole", [EVEN, THIRDS, VECTORS, GRADIENT, *CROSSED.values()])
def test_as_they_were_written(whole: Whole) -> None:
    nests = whole.run("")
    assert nests
    assert not any(nest.script for nest in nests)


@pytest.mark.parametrize(
    ("whole", "script"),
    [
        *((EVEN, f"line_buffer {numbers}") for numbers in ("1 1 8", "12 1 16", "6 3 8", "4 4 16")),
        *((THIRDS, f"line_buffer {numbers}") for numbers in ("2 1 16", "9 1 8")),
        *((VECTORS, f"online {numbers} 1 0 0") for numbers in ("8 8 3", "4 4 8", "16 16 1")),
        *((ITEMS, f"online 4 {numbers}") for numbers in ("4 8 2 4 4", "16 8 4 8 2", "8 4 1 4 1")),
        # Rows of several vectors of a work item, which are transposed where they are shared.
        (ITEMS, "online 4 4 8 1 4 2"),
        *(
            (whole, f"cross {numbers}")
            for whole in CROSSED.values()
            for numbers in ("4 2 1", "2 1 4", "8 4 1", "2 2 8")
        ),
    ],
)
def test_by_any_numbers(whole: Whole, script: str) -> None:
    assert [str(call) for nest in whole.run(script) for call in nest.script] == [script]


@pytest.mark.parametrize(
    ("whole", "script", "message"),
    [
        (EVEN, "split i0 2", "kept by 'line_buffer' or 'online'"),
        (EVEN, "panel 4 8 8 8", "kept by 'line_buffer' or 'online'"),
        (EVEN, "online 4 4 8 1 0 0", "no sums of a row that are weighted"),
        (EVEN, "line_buffer 13 1 8", "a work group has 1 to 12 rows"),
        (EVEN, "line_buffer 4 3 8", "come to so many at a time"),
        (EVEN, "line_buffer 4 1 4", "vectors of 8 or 16 lanes"),
        (EVEN, "line_buffer 4 1 8\nsplit i 2", "what 'line_buffer' makes stays as it is"),
        (lay_lines(4, 10), "line_buffer 2 2 8", "rows that are not permuted are kept one at a"),
        (VECTORS, "line_buffer 1 1 8", "no reduction of which another one reduces rows"),
        (VECTORS, "online 6 6 8 1 0 0", "a work item has 4, 8 or 16 rows"),
        (VECTORS, "online 4 8 8 1 0 0", "work items that share nothing"),
        (VECTORS, "online 4 4 0 1 0 0", "a group has rows and keys"),
        (VECTORS, "online 4 4 100 1 0 0", "too many scores to write out"),
        (ITEMS, "online 8 8 8 1 4 2", "a work item has vectors of 4 rows"),
        (ITEMS, "online 4 6 8 1 4 2", "share rows and keys evenly"),
        (ITEMS, "online 4 8 8 1 4 3", "shared in equal parts"),
        (ITEMS, "online 4 4096 8 8 4 2", "work items at most"),
        *(
            (CROSSED["layer_norm"], script, message)
            for script, message in (
                ("bind i0 group", "columns are shared out by 'cross' alone"),
                ("panel 4 8 8 8", "columns are shared out by 'cross' alone"),
                ("cross 4 1 1\nsplit k 2", "what 'cross' makes stays as it is"),
                ("cross 3 1 1", "work items are a power of two"),
                ("cross 4 512 1", "a row has 2 to 2 work items"),
                ("cross 4 1 3", "elements do not begin where vectors of 4 do"),
                ("cross 2 1 12", "vectors do not come out even"),
            )
        ),
    ],
)
def test_other_scripts_are_refused(whole: Whole, script: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        whole.run(script)
