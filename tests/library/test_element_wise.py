"""What is special about element-wise operators, fills and quantization: whole numbers at the ends
of their types, numbers of any type, blocks, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from tests.library.run import DEVICES, Array, normal, run


def ewise(name: str, *arrays: Array, **attributes: object) -> Array:
    operator = dmlc.operator(f"directml.ELEMENT_WISE_{name}")
    names = [t.name for t in operator.definition.newest.inputs]
    (found,) = run(operator.name, dict(zip(names, arrays, strict=True)), attributes).values()
    return found


def narrow(x: Array, dtype: Any) -> Array:
    """Integers as DirectML converts them: the low 32 bits, read with the sign of a type of 8 or 16
    bits, and held to it; the low bits of all others."""
    limits = np.iinfo(dtype)
    if limits.bits > 16:
        return x.astype(dtype)
    low = x.astype(np.int32 if limits.min < 0 else np.uint32)
    return np.clip(low, limits.min, limits.max).astype(dtype)


WIDTHS = (8, 16, 32, 64)
EVERY = tuple(f"{sign}int{width}" for sign in ("u", "") for width in WIDTHS)
WHOLE = (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32)


@pytest.mark.parametrize("exponents", WHOLE)
@pytest.mark.parametrize("dtype", WHOLE)
def test_powers_of_whole_numbers_are_exact(dtype: Any, exponents: Any) -> None:
    """They wrap at 32 bits; shorter types give the nearest number of theirs to that."""
    most = np.iinfo(exponents).max
    base, power = np.meshgrid([0, 1, 2, 3, 5, 7, 127], [0, 1, 2, 3, 7, 31, 100, most])
    found = ewise("POW", base.astype(dtype), power.astype(exponents))
    exact = [pow(int(b), int(p), 1 << 32) for b, p in zip(base.flat, power.flat, strict=True)]
    np.testing.assert_array_equal(found.reshape(-1), narrow(np.array(exact, np.uint32), dtype))


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


@pytest.mark.parametrize("device", DEVICES)
def test_integers_are_scaled_in_float32(device: str) -> None:
    def scale(name: str, x: Any, dtype: str, scale: list[float], **more: object) -> list[int]:
        given = {"InputTensor": np.array(x, dtype)}
        if name == "POW":
            given["ExponentTensor"] = np.ones(len(x), dtype)
        settings = {"ScaleBias": scale, **more}
        found = run(f"directml.ELEMENT_WISE_{name}", given, settings, device=device)
        return found["OutputTensor"].tolist()

    wide, halves = [16777217, 1500000000, -(2**31)], [3, 5, -3, -5]
    # The reference rounds once, where floats are cut to whole numbers.
    first = 33554437 if device == "reference" else 33554436
    assert scale("IDENTITY", wide, "int32", [2, 5]) == [first, 2**31 - 1, -(2**31)]
    assert scale("IDENTITY", halves, "int32", [0.5, 0]) == [1, 2, -1, -2]
    assert scale("ABS", halves, "int8", [0.5, 0]) == [1, 2, 1, 2]
    assert scale("CLIP", halves, "int16", [0.5, 0], Min=-1, Max=1) == [1, 1, -1, -1]
    assert scale("CLIP1", halves, "int64", [0.5, 0], Min=-1, Max=1) == [1, 1, -1, -1]
    assert scale("THRESHOLD", halves, "int32", [0.5, 0], Min=-1) == [1, 2, -1, -1]
    assert scale("POW", halves, "int32", [0.5, 0]) == [1, 2, -1, -2]
    for name, settings in (("IDENTITY", {}), ("CLIP", {"Min": 0, "Max": 1e9}), ("POW", {})):
        found = scale(name, [255, 1, 128], "uint8", [2, 5], **settings)
        assert found == [255, 7, 255], name
        assert scale(name, [255, 1, 128], "uint8", [-1, 5], **settings) == [0, 4, 0], name


@pytest.mark.parametrize("name", ["IDENTITY", "ABS"])
def test_integers_of_64_bits_are_not_scaled(name: str) -> None:
    x = np.array([2**53 + 1, -5], np.int64)
    with pytest.raises(DmlcError, match="integers of 64 bits have no ScaleBias"):
        ewise(name, x, ScaleBias=[1, 1])
    assert ewise(name, x, ScaleBias=[1, 0])[0] == 2**53 + 1


@pytest.mark.grid(2)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("to", EVERY)
def test_integers_become_others(to: str, device: str) -> None:
    for dtype in EVERY:
        limits = np.iinfo(dtype)
        x = np.random.default_rng(1).integers(limits.min, limits.max, 40, dtype, endpoint=True)
        near = np.arange(-20, 20) + np.array([[0], [127], [255], [-128], [32767], [65535]])
        x = np.concatenate([x, near.reshape(-1).astype(dtype), np.array([limits.max], dtype)])
        outputs = {"OutputTensor": np.zeros(x.size, to)}
        found = run("directml.CAST", {"InputTensor": x}, {}, outputs, device=device)
        np.testing.assert_array_equal(found["OutputTensor"], narrow(x, to), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["ABS", "NEGATE"])
def test_the_least_integers(name: str, device: str) -> None:
    for dtype in EVERY[4:]:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = np.array([least, least + 1, -5, 0, most], dtype)
        found = run(f"directml.ELEMENT_WISE_{name}", {"InputTensor": x}, device=device)
        first = most if dtype in ("int8", "int16") else least
        last = most if name == "ABS" else -most
        assert found["OutputTensor"].tolist() == [first, most, 5, 0, last], dtype


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "shift"), [("LEFT", np.left_shift), ("RIGHT", np.right_shift)])
def test_bits_are_shifted_by_5_bits_of_a_count(name: str, shift: Any, device: str) -> None:
    """By 6 of those of 64 bits. Types of 8 and 16 bits are shifted as 32."""
    for dtype in EVERY[:4]:
        x, count = np.meshgrid(
            [0, 1, 3, 129, 255], [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 255]
        )
        x, count = x.astype(dtype), count.astype(dtype)
        found = run(f"directml.ELEMENT_WISE_BIT_SHIFT_{name}", {"ATensor": x, "BTensor": count},
                    device=device)["OutputTensor"]  # fmt: skip
        width = 64 if dtype == "uint64" else 32
        wide = shift(x.astype(f"uint{width}"), (count % width).astype(f"uint{width}"))
        np.testing.assert_array_equal(found, wide.astype(dtype), dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_whole_numbers_shrink_to_the_nearest_even(device: str) -> None:
    x = np.array([-9, -4, 4, 5, 9], np.int32)
    for dtype, bias, expected in (
        ("int32", 1.5, [-8, -2, 2, 4, 8]),
        ("int8", 1.5, [-8, -2, 2, 4, 8]),
        ("int16", 0.001, [-9, -4, 4, 5, 9]),
        ("int8", -200, [-128, -128, 127, 127, 127]),
    ):
        given, settings = {"InputTensor": x.astype(dtype)}, {"Bias": bias, "Threshold": 3}
        found = run("directml.ACTIVATION_SHRINK", given, settings, device=device)
        assert found["OutputTensor"].tolist() == expected


@pytest.mark.parametrize("device", DEVICES)
def test_whole_numbers_to_the_power_of_floats_lose_the_fraction(device: str) -> None:
    for dtype, exponents, expected in (
        ("uint16", [2.5, 0.5, 20], [5, 1, 65535]),
        ("int8", [2.5, 0.5, 20], [5, 1, 127]),
        ("int32", [2.5, 0.5, 20], [5, 1, 2**31 - 1]),
    ):
        given = {"InputTensor": np.array([2, 3, 9], dtype),
                 "ExponentTensor": np.array(exponents, np.float32)}  # fmt: skip
        found = run("directml.ELEMENT_WISE_POW", given, device=device)["OutputTensor"]
        assert found.tolist() == expected


@pytest.mark.parametrize("name", ["CLIP_GRAD", "CLIP_GRAD1"])
def test_no_gradient_of_clipping_reaches_nan(name: str) -> None:
    x, gradient = np.array([np.nan, 0.5, 0, 1], np.float32), np.array([5, 7, 8, 9], np.float32)
    assert ewise(name, x, gradient, Min=0, Max=1).tolist() == [0, 7, 0, 0]


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
