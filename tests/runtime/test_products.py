"""Matrix products and convolutions on every device: as the reference has them, within the bounds of
rounding, and the same bits in every run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests.products import KINDS, Product, Windows, draw_product, draw_windows

WAYS = (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"))


def make_inputs(function: ir.Function, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        p.name: random.standard_normal([int(e) for e in p.extents]).astype(p.dtype.dtype)
        for p in function.parameters
    }


def run(
    function: ir.Function, inputs: Mapping[str, Array], way: tuple[str, str]
) -> dict[str, Array]:
    program = compile(function, *way)
    load = vulkan.load if way[0] == "hlsl" else opencl.load
    return load(program)(inputs)


def check(function: ir.Function, way: tuple[str, str]) -> None:
    inputs = make_inputs(function)
    found = run(function, inputs, way)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in found.items():
        apart = np.abs(values.astype(np.float64) - wanted[name].astype(np.float64))
        assert (apart <= allowed[name]).all()


@settings(deadline=None, max_examples=8)
@given(product=draw_product(1 << 20), way=st.sampled_from(WAYS))
@example(product=Product(130, 130, 65, 2, "b"), way=WAYS[0])
@example(product=Product(130, 130, 65, 2, "b"), way=WAYS[1])
@example(product=Product(130, 130, 65, 2, "b"), way=WAYS[2])
@example(product=Product(128, 64, 64, before=True, dtype="f16"), way=WAYS[2])
@example(product=Product(8, 130, 300), way=WAYS[1])
@example(product=Product(3, 129, 257, 2, b_transposed=True), way=WAYS[2])
@example(product=Product(129, 16, 65, 2, "b", dtype="f16"), way=WAYS[1])
@example(product=Product(4, 64, 264, dtype="f16", b_transposed=True), way=WAYS[2])
@example(product=Product(65, 33, 20, 128), way=WAYS[1])
@example(product=Product(65, 33, 20, 128), way=WAYS[2])
@example(product=Product(63, 17, 65, 3, a_transposed=True, apart=3), way=WAYS[0])
@example(product=Product(65, 129, 17, apart=4), way=WAYS[2])
def test_products_on_devices(product: Product, way: tuple[str, str]) -> None:
    check(product.make(), way)


@settings(deadline=None, max_examples=8)
@given(
    windows=draw_windows(),
    kind=st.sampled_from(KINDS),
    way=st.sampled_from(WAYS),
)
@example(windows=Windows(2, 18, 9, 7, 32, 3, 1, 2, 2, 2), kind="forward", way=WAYS[2])
@example(windows=Windows(2, 16, 9, 9, 17, 3, 2, 1), kind="data", way=WAYS[0])
@example(windows=Windows(2, 16, 9, 9, 17, 3, 1, 1), kind="weights", way=WAYS[1])
@example(windows=Windows(2, 6, 6, 8, 16, 3, 4, 1, 2), kind="data", way=WAYS[0])
@example(windows=Windows(2, 9, 7, 9, 9, 3, 2, 1, 2, 9), kind="forward", way=WAYS[2])
@example(windows=Windows(1, 34, 7, 9, 66, 3, 2, 1, 1, 2), kind="transposed", way=WAYS[1])
def test_windows_on_devices(windows: Windows, kind: str, way: tuple[str, str]) -> None:
    if min(*windows.results, *windows.spread) >= 1:
        check(windows.make(kind), way)


@pytest.mark.parametrize("way", WAYS)
def test_repeated_runs_give_the_same_bits(way: tuple[str, str]) -> None:
    function = Product(65, 130, 3000).make()
    inputs = make_inputs(function)
    first, second = (run(function, inputs, way)["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "product",
    # The second has tiles enough for work items of eight by eight outputs.
    [Product(130, 65, 300, 2, b_transposed=True), Product(130, 65, 30, 48, b_transposed=True)],
)
def test_tiles_give_the_same_bits_on_every_device(product: Product) -> None:
    function = product.make()
    # A product of halves is exact: it does not show which device rounds it.
    inputs = {
        name: values.astype(np.float16).astype(np.float32)
        for name, values in make_inputs(function).items()
    }
    on_opencl, on_vulkan = (run(function, inputs, way)["y"] for way in WAYS[1:])
    np.testing.assert_array_equal(on_opencl, on_vulkan)


@pytest.mark.parametrize("way", WAYS)
def test_padding_meets_no_infinity(way: tuple[str, str]) -> None:
    function = Windows(1, 16, 6, 6, 16, 3, 1, 1).make("forward")
    inputs = {name: np.sign(values) for name, values in make_inputs(function).items()}
    weights = inputs["weights"]
    weights[0, 0, 0, 0], weights[5, 3, 2, 1], weights[7, 9, 0, 2] = np.inf, np.nan, -np.inf
    wanted = evaluate(function, inputs)
    for name, values in run(function, inputs, way).items():
        np.testing.assert_array_equal(values, wanted[name])
