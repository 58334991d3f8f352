"""What is special about element-wise operators, fills and quantization: whole numbers at the ends
of their types, numbers of any type, blocks, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from tests.library.run import Array, normal, run


def ewise(name: str, *arrays: Array, **attributes: object) -> Array:
    operator = dmlc.operator(f"directml.ELEMENT_WISE_{name}")
    names = [t.name for t in operator.definition.newest.inputs]
    (found,) = run(operator.name, dict(zip(names, arrays, strict=True)), attributes).values()
    return found


WIDTHS = (8, 16, 32, 64)
WHOLE = (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32)


@pytest.mark.parametrize("exponents", WHOLE)
@pytest.mark.parametrize("dtype", WHOLE)
def test_powers_of_whole_numbers_are_exact_and_wrap(dtype: Any, exponents: Any) -> None:
    most = np.iinfo(exponents).max
    base, power = np.meshgrid([0, 1, 2, 3, 5, 7, 127], [0, 1, 2, 3, 7, 31, 100, most])
    found = ewise("POW", base.astype(dtype), power.astype(exponents))
    width = 8 * np.dtype(dtype).itemsize
    exact = [pow(int(b), int(p), 1 << width) for b, p in zip(base.flat, power.flat, strict=True)]
    expected = np.array(exact, np.uint64).astype(f"u{width // 8}").view(dtype)
    np.testing.assert_array_equal(found.reshape(-1), expected)


def test_only_ones_have_negative_whole_powers() -> None:
    base = np.array([-2, -1, -1, 0, 1, 2], np.int32)
    found = ewise("POW", base, np.array([-1, -1, -2, -3, -3, -1], np.int8))
    assert found.tolist() == [0, -1, 1, 0, 1, 0]
    assert ewise("POW", np.array([2, 9], np.int32), np.array([0.5, 0.5], np.float32)).tolist() == [
        1, 3,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [f"{sign}int{width}" for sign in ("u", "") for width in WIDTHS])
def test_bits_are_counted(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.min, limits.max, 50, dtype, endpoint=True)
    x[:3] = 0, limits.min, limits.max
    bits = x.view(f"u{x.itemsize}")
    assert ewise("BIT_COUNT", x).tolist() == [int(each).bit_count() for each in bits]


def test_signs_are_of_numbers_that_have_one() -> None:
    found = ewise("SIGN", np.array([-np.inf, -0.5, -0.0, 0, 2, np.nan], np.float32))
    np.testing.assert_array_equal(found, [-1, -1, 0, 0, 1, 0])
    assert not np.signbit(found[2:]).any()
    assert ewise("SIGN", np.array([0, 1, 200], np.uint8)).tolist() == [0, 1, 1]


def test_bounds_of_64_bits_are_exact() -> None:
    x = np.array([0, 2**53 + 1, 2**63, 2**64 - 1], np.uint64)
    found = ewise("CLIP1", x, Min=2**53 + 3, Max=2**64 - 2)
    assert found.tolist() == [2**53 + 3, 2**53 + 3, 2**63, 2**64 - 2]
    assert ewise("CLIP1", np.array([1, 5], np.int8), Min=4, Max=2).tolist() == [4, 4]


def test_integers_are_scaled_in_their_own_type() -> None:
    x = np.array([2**31 - 1, -5, 7], np.int32)
    assert ewise("IDENTITY", x, ScaleBias=[-1, 0]).tolist() == [-(2**31) + 1, 5, -7]
    assert ewise("ABS", x, ScaleBias=[1, -2]).tolist() == [2**31 - 3, 7, 5]
    with pytest.raises(DmlcError, match="ScaleBias must be numbers of the type of InputTensor"):
        ewise("IDENTITY", x, ScaleBias=[0.5, 0])


def test_halves_round_as_the_mode_says() -> None:
    x = np.array([-2.5, -0.5, 0.49999997, 0.5, 1.5, 2**23 + 1, np.inf, np.nan], np.float32)
    away = np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)
    modes = {"HALVES_TO_NEAREST_EVEN": np.rint(x), "TOWARD_ZERO": np.trunc(x),
             "TOWARD_INFINITY": away}  # fmt: skip
    for mode, expected in modes.items():
        found = ewise("ROUND", x, RoundingMode=mode)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(expected[:-1]))


def test_a_sequence_of_bytes_goes_down_and_around() -> None:
    given = {"ValueStart": 3, "ValueDelta": -2}
    out = {"OutputTensor": np.zeros((2, 2), np.uint8)}
    found = run("directml.FILL_VALUE_SEQUENCE", {}, given, out)["OutputTensor"]
    assert found.tolist() == [[3, 1], [255, 253]]
    for wrong in ({"ValueStart": 256}, {"ValueDelta": 0.5}, {"ValueDataType": "INT8"}):
        with pytest.raises(DmlcError, match="must be"):
            run("directml.FILL_VALUE_SEQUENCE", {}, {**given, **wrong}, out)


# Blocks ---------------------------------------------------------------------------------------

SCALES = np.array([[0.5, 2.0], [4.0, 0.25]], np.float32)
ZEROS = np.array([[3, -7], [0, 100]], np.int8)
BLOCKS = {"QuantizationType": "SCALE_ZERO_POINT"}


def spread(array: Array) -> Array:
    """A block of two by three for each element."""
    return array.repeat(2, axis=0).repeat(3, axis=1).astype(np.float64)


def test_blocks_have_a_scale_and_a_zero_point() -> None:
    tensors: dict[str, Any] = {"QuantizationTensors[0]": SCALES, "QuantizationTensors[1]": ZEROS}
    x = normal(4, 6) * 100
    out = {"OutputTensor": np.zeros((4, 6), np.int8)}
    packed = run("directml.QUANTIZE", {"InputTensor": x, **tensors}, BLOCKS, out)["OutputTensor"]
    exact = np.clip(np.rint(x / spread(SCALES)) + spread(ZEROS), -128, 127)
    np.testing.assert_array_equal(packed, exact)
    back = run("directml.DEQUANTIZE", {"InputTensor": packed, **tensors}, BLOCKS)["OutputTensor"]
    np.testing.assert_array_equal(back, (exact - spread(ZEROS)) * spread(SCALES))


@pytest.mark.parametrize(
    ("sizes", "settings", "message"),
    [
        ((3, 6), BLOCKS, "each size of InputTensor must be a multiple of that of the scale"),
        ((4, 6), {"QuantizationType": "SCALE"}, "there must be a scale, and for SCALE_ZERO_POINT"),
        ((4, 6), {"QuantizationType": "NONE"}, "nothing is quantized without a scale"),
    ],
)
def test_blocks_that_do_not_fit(
    sizes: tuple[int, ...], settings: dict[str, object], message: str
) -> None:
    given: dict[str, Any] = {
        "InputTensor": np.zeros(sizes, np.int8),
        "QuantizationTensors[0]": SCALES,
        "QuantizationTensors[1]": ZEROS,
    }
    with pytest.raises(DmlcError, match=message):
        run("directml.DEQUANTIZE", given, settings)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("x", [[0, 2, -3, -2.5, 1.34, 0.5], [-1, -2.1, -4], [1, 2.1, 4], [0, 0]])
def test_a_range_is_quantized_with_zero_in_it(x: list[float], dtype: Any) -> None:
    out = {"OutputTensor": np.zeros(len(x), dtype)}
    given = np.array(x, np.float32)
    found = run("directml.DYNAMIC_QUANTIZE_LINEAR", {"InputTensor": given}, {}, out)
    scale, zero = (found[f"Output{n}Tensor"][0] for n in ("Scale", "ZeroPoint"))
    span = max(0.0, *x) - min(0.0, *x)
    assert scale == pytest.approx(span / 255, rel=1e-6)
    if span:
        assert zero == np.rint(np.iinfo(dtype).min - min(0.0, *x) / (span / 255))
    back = (found["OutputTensor"].astype(np.float64) - zero) * scale
    np.testing.assert_allclose(back, given, atol=span / 255 * 0.51)


# Sizes and fusion -----------------------------------------------------------------------------

NAMES = [name for name in dmlc.operators() if name.startswith("directml.ELEMENT_WISE_")]
SCALARS = ("directml.ELEMENT_WISE_QUANTIZED_LINEAR_ADD",)
"""Scales of one element beside tensors of any size need to know the sizes."""


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SCALARS])
def test_one_kernel_serves_every_size(name: str) -> None:
    operator = dmlc.operator(name)
    case = next(read_cases(operator, operator.definition.examples[0]))
    types = {n: desc.data_type for n, desc in case.call.tensors.items()}
    described = {n: dmlc.TensorDesc(t) for n, t in types.items()}
    operator.bind(described, case.call.attributes)


def test_calls_in_a_row_are_one_kernel() -> None:
    module = dmlc.parse("""
        graph row[N](x: FLOAT32[N], y: FLOAT32[N]) {
            scaled = directml.ELEMENT_WISE_IDENTITY(InputTensor: x, ScaleBias: [2, 1])
            most   = directml.ELEMENT_WISE_MAX(ATensor: scaled, BTensor: y)
            small  = directml.ELEMENT_WISE_LOGICAL_LESS_THAN(
                ATensor: most, BTensor: y, OutputTensor: UINT32[N])
            output z = directml.ELEMENT_WISE_ADD(ATensor: most, BTensor: cast(small, FLOAT32))
        }
    """)
    program = dmlc.compile(module.graphs["row"].bind())
    assert len(program.kernels) == 1
