"""Sums of products are rounded for each product and each addition, unless they may be rounded
once."""

from __future__ import annotations

import pytest

from dmlc.pipeline import compile
from tests.products import Product

FUSED = {"hlsl": "= mad(", "opencl": "= fma_float", "wgsl": "= fma("}


@pytest.mark.parametrize("target", FUSED)
def test_products_and_sums_are_fused_where_that_is_asked_for(target: str) -> None:
    function = Product(16, 16, 16).make()
    plain, fused = (compile(function, target, contract=each) for each in (False, True))
    assert [p.manifest()["contract"] for p in (plain, fused)] == [False, True]
    (before,), (after,) = plain.kernels, fused.kernels
    assert FUSED[target] not in before.source
    # In HLSL and OpenCL C it stands in a loop, which a compiler writes out.
    assert after.source.count(FUSED[target]) > (5 if target == "wgsl" else 0)
    # What comes after the sum keeps its roundings.
    assert "2.5" in after.source
    assert all("2.5" not in line for line in after.source.splitlines() if FUSED[target] in line)


@pytest.mark.parametrize("target", FUSED)
def test_other_work_is_the_same(target: str) -> None:
    sources = [
        [k.source for k in compile("directml.ACTIVATION_RELU_GRAD", target, contract=each).kernels]
        for each in (False, True)
    ]
    assert sources[0] == sources[1]
