"""A sample of ONNX's node tests, sizes opened at random: each is imported and right, or refused.

`python -m tests.onnx.opened 0 100` tries all of them with a hundred seeds.
"""

from __future__ import annotations

import numpy as np

from tests.onnx.node_cases import collect, read_excluded
from tests.onnx.opened import Outcome, try_opened

MODULES = ("concat", "matmul", "pad", "reshape", "resize", "slice", "split")
"""The modules whose tests are in the sample."""


def test_sizes_opened_at_random() -> None:
    cases = {n: c for n, c in collect(MODULES).items() if n not in read_excluded()}
    with np.errstate(all="ignore"):
        found = {name: try_opened(case, 0) for name, case in cases.items()}
    assert [name for name, outcome in found.items() if outcome is Outcome.WRONG] == []
    right = sum(outcome is Outcome.RIGHT for outcome in found.values())
    assert right > len(cases) * 0.7
