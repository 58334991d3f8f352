"""The least that functions must do, against counts by hand."""

from __future__ import annotations

import pytest

import dmlc
from dmlc import ir
from dmlc.inspection.model import Reread
from dmlc.inspection.work import count_work
from dmlc.kernel.slow import count_points, find_density
from dmlc.pipeline import make_kernels


def bind(name: str, attributes: dict[str, object], **sizes: tuple[int, ...]) -> dmlc.ir.Function:
    tensors = {n: dmlc.TensorDesc("FLOAT32", s) for n, s in sizes.items()}
    return make_kernels(dmlc.operator(name).bind(tensors, attributes=attributes), "hlsl")[0]


def test_an_element_wise_function_moves_each_tensor_once() -> None:
    whole = (64, 64)
    work = count_work(
        bind("directml.ACTIVATION_RELU_GRAD", {}, InputTensor=whole, InputGradientTensor=whole)
    )
    assert work.bytes == 3 * 4 * 4096
    assert work.operations == 4096  # a comparison each
    assert work.rereads == ()


def test_a_product_multiplies_and_adds_at_each_point() -> None:
    given = {"ATensor": (1, 1, 64, 32), "BTensor": (1, 1, 32, 16)}
    function = bind("directml.GEMM", {}, **given)
    work = count_work(function)
    assert work.bytes == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert work.operations == 64 * 32 * 16  # at once
    assert max(count_points(stage) for stage in function.stages) == 64 * 32 * 16


def test_what_batch_normalization_folds_it_needs_again() -> None:
    whole, ones = (4, 8, 6, 6), (1, 8, 1, 1)
    function = bind(
        "directml.BATCH_NORMALIZATION_TRAINING_GRAD", {"Epsilon": 1e-5},
        InputTensor=whole, InputGradientTensor=whole, MeanTensor=ones, VarianceTensor=ones,
        ScaleTensor=ones,
    )  # fmt: skip
    rereads = count_work(function).rereads
    large = 4 * 8 * 36 * 4
    assert [r.bytes for r in rereads if r.bytes == large] == [large, large]
    # One channel of both, and its mean.
    assert {r.slice_bytes for r in rereads if r.bytes == large} == {(2 * large + 32) // 8}
    assert isinstance(rereads[0], Reread)


def test_only_points_that_take_part_are_operations() -> None:
    ones = [1, 1]
    function = bind(
        "directml.CONVOLUTION",
        {"Strides": ones, "Dilations": ones, "StartPadding": ones, "EndPadding": ones,
         "OutputPadding": [0, 0]},
        InputTensor=(1, 2, 4, 4), FilterTensor=(2, 2, 3, 3),
    )  # fmt: skip
    window = function.stages[0]
    # Along each axis the outer two of four outputs have one of three taps in the padding.
    assert find_density(function, window) == pytest.approx((10 / 12) ** 2)
    assert count_points(window) == 2 * 16 * 18
    assert count_work(function).operations == pytest.approx(2 * 16 * 18 * (10 / 12) ** 2)


def test_a_point_that_names_its_element_is_added_to_that_one_alone() -> None:
    rows, found = dmlc.TensorDesc("FLOAT32", (1 << 16,)), dmlc.TensorDesc("UINT32", (1 << 16,))
    operator = dmlc.operator("directml.TOP_K1").bind(
        {"InputTensor": rows, "OutputValueTensor": rows, "OutputIndexTensor": found},
        attributes={"Axis": 0, "K": 1 << 16, "AxisDirection": "INCREASING"},
    )
    work = count_work(make_kernels(operator, "hlsl")[0])
    assert work.operations <= 4 << 16


def test_a_reduction_of_pieces_needs_all_of_them() -> None:
    function = ir.parse("""\
func @scaled(%x: f32[8, 65536]) -> (%y) {
  %parts: f32[i0 < 8, i1 < 16] = max[r0 < 4096] %x[i0, add(mul(i1, 4096), r0)]
  %most: f32[i0 < 8] = max[r0 < 16] %parts[i0, r0]
  %y: f32[i0 < 8, i1 < 65536] = div(%x[i0, i1], %most[i0])
}""")
    (reread,) = count_work(function).rereads
    assert reread.slice_bytes == 4 * 65536
