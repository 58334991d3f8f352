"""Derived gradients at 0 and at ties are those that other frameworks publish."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from tests.conventions import CONVENTIONS, Convention


@pytest.mark.filterwarnings("ignore:.*is 0 everywhere")
@pytest.mark.parametrize("case", CONVENTIONS, ids=lambda case: f"{case.formula}-{case.wrt}")
def test_a_gradient_is_the_published_one(case: Convention) -> None:
    given = {name: np.array(v, np.float32) for name, v in (("x", case.x), ("y", case.y)) if v}
    inputs = ", ".join(f"{name}: FLOAT32[{len(values)}]" for name, values in given.items())
    text = (
        f"graph g({inputs}) {{ loss = sum({case.formula}, axes: [0])\n"
        f"output d = gradient of loss with respect to {case.wrt} }}"
    )
    found = dmlc.run(dmlc.parse(text).graphs["g"], given, device="reference")["d"]
    assert np.allclose(found, case.gradient, rtol=1e-6, atol=0)
