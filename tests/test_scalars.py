"""The tables of data types and operations: every rule the module's docstring gives, by type."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from dmlc.scalars import (
    COMBINERS,
    OPERATIONS,
    TENSOR_TYPES,
    Array,
    Combiner,
    DataType,
    Kind,
    Operands,
    combiner_identity,
    convert,
    data_type_names,
    data_type_of,
    find_data_type,
    find_same,
)
from dmlc.scalars import DataType as T
from dmlc.scalars.defined import OpenDomain
from dmlc.source import UnknownNameError

FLOATS = [T.FLOAT32, T.FLOAT64]
SIGNED = [t for t in TENSOR_TYPES if t.kind is Kind.SIGNED]
UNSIGNED = [t for t in TENSOR_TYPES if t.kind is Kind.UNSIGNED]
INTEGERS = [*SIGNED, *UNSIGNED]
COMPUTED = [*FLOATS, *INTEGERS, T.BOOL]


def apply(name: str, dtype: DataType, *operands: list[float]) -> Array:
    with np.errstate(all="ignore"):
        arrays = [np.array(o, dtype.dtype) for o in operands]
        return OPERATIONS[name].evaluate(*arrays)


# Data types --------------------------------------------------------------------------------


def test_names_are_found_in_any_case() -> None:
    for dtype in TENSOR_TYPES:
        for name in (dtype.name, dtype.short, dtype.name.lower(), dtype.short.upper()):
            assert find_data_type(name) is dtype
    assert find_data_type("BOOLEAN") is find_data_type("bool") is T.BOOL
    assert find_data_type("INDEX") is find_data_type("float") is None
    assert {find_data_type(name) for name in data_type_names()} == set(TENSOR_TYPES)


def test_numpy_types_are_found_in_any_byte_order() -> None:
    for dtype in TENSOR_TYPES:
        assert data_type_of(dtype.dtype) is dtype
        if dtype is not T.BFLOAT16:
            assert data_type_of(dtype.dtype.newbyteorder()) is dtype
    assert data_type_of(np.complex64) is data_type_of(object) is data_type_of("U3") is None


def test_sizes_and_kinds() -> None:
    sizes = {t.short: t.bytes for t in TENSOR_TYPES}
    assert sizes == {
        "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "s8": 1, "s16": 2, "s32": 4, "s64": 8,
        "u8": 1, "u16": 2, "u32": 4, "u64": 8, "boolean": 1,
    }  # fmt: skip
    assert T.INDEX not in TENSOR_TYPES
    assert [t for t in TENSOR_TYPES if t.is_storage_only] == [T.FLOAT16, T.BFLOAT16]
    assert all(t.compute is (T.FLOAT32 if t.is_storage_only else t) for t in TENSOR_TYPES)
    assert [t for t in TENSOR_TYPES if t.is_integer] == INTEGERS
    assert not T.INDEX.is_integer
    assert not T.BOOL.is_float


# Conversions -------------------------------------------------------------------------------


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", [T.FLOAT64, T.FLOAT32, T.FLOAT16, T.BFLOAT16])
def test_floats_to_integers_truncate_and_saturate(source: DataType, to: DataType) -> None:
    limits = np.iinfo(to.dtype)
    values = np.array([1.75, -1.75, 0.5, -0.5, np.inf, -np.inf, np.nan], source.dtype)
    low = -1 if to.kind is Kind.SIGNED else 0
    assert convert(values, to).tolist() == [1, low, 0, 0, limits.max, limits.min, 0]
    assert convert(values, to).dtype == to.dtype


@pytest.mark.parametrize("to", INTEGERS)
def test_saturation_at_the_very_limits(to: DataType) -> None:
    limits = np.iinfo(to.dtype)
    edge = np.array([float(limits.max), float(limits.min), float(limits.max) * 1.5 + 1])
    assert convert(edge, to).tolist() == [limits.max, limits.min, limits.max]
    below = np.nextafter(float(limits.max), 0)
    assert int(convert(np.array(below), to)) == int(below)


def test_integers_to_integers_wrap() -> None:
    assert convert(np.array([300, -1]), T.UINT8).tolist() == [44, 255]
    assert convert(np.array([2**63 + 5], np.uint64), T.INT64).tolist() == [-(2**63) + 5]
    assert convert(np.array([True, False]), T.INT32).tolist() == [1, 0]


def test_to_bool_is_not_zero() -> None:
    values = np.array([0.0, -0.0, np.nan, 1e-300])
    assert convert(values, T.BOOL).tolist() == [False, False, True, True]
    assert convert(np.array([0, -3], np.int8), T.BOOL).tolist() == [False, True]


def test_to_index_saturates_as_an_integer_does() -> None:
    assert convert(np.array([1.9, -np.inf, np.nan]), T.INDEX).tolist() == [1, -(2**63), 0]


@pytest.mark.parametrize("dtype", [T.FLOAT16, T.BFLOAT16])
@pytest.mark.parametrize("sign", [1, -1])
def test_narrowing_rounds_once_to_nearest_even(dtype: DataType, sign: int) -> None:
    infinity = int(np.array(np.inf, dtype.dtype).view(np.uint16))
    values = np.arange(infinity, dtype=np.uint16).view(dtype.dtype).astype(np.float64)
    below, above = values[:-1], values[1:]
    middle = (below + above) / 2
    for given, expected in (
        (np.nextafter(middle, np.inf), above),
        (np.nextafter(middle, 0), below),
        (below, below),
    ):
        assert np.array_equal(convert(sign * given, dtype).astype(np.float64), sign * expected)
    assert not np.any(convert(sign * middle, dtype).view(np.uint16) & 1)


def test_narrowing_special_values() -> None:
    given = np.array([np.nan, np.inf, -np.inf, -0.0, 1e308, -1e-320])
    for dtype in (T.FLOAT16, T.BFLOAT16, T.FLOAT32):
        found = convert(given, dtype).astype(np.float64)
        assert np.array_equal(found, [np.nan, np.inf, -np.inf, 0, np.inf, 0], equal_nan=True)
        assert np.signbit(found).tolist()[2:] == [True, True, False, True]


def test_widening_is_exact() -> None:
    for dtype in (T.FLOAT16, T.BFLOAT16):
        stored = np.arange(2**16, dtype=np.uint16).view(dtype.dtype)
        with np.errstate(invalid="ignore"):  # Signalling NaNs are among them.
            expected = stored.astype(np.float64)
        wide = convert(stored, T.FLOAT32)
        assert np.array_equal(wide, expected, equal_nan=True)
        again = convert(convert(wide, T.FLOAT64), dtype).astype(np.float64)
        assert np.array_equal(again, expected, equal_nan=True)
    half = np.array([1.5, np.inf], np.float16)
    assert convert(half, T.BFLOAT16).astype(float).tolist() == [1.5, np.inf]


# Operations --------------------------------------------------------------------------------


def test_every_operation_takes_the_operands_it_says() -> None:
    for operation in OPERATIONS.values():
        for dtype in COMPUTED:
            if not operation.operands.accept(dtype):
                continue
            given = [np.array([1, 0, 1], dtype.dtype)] * operation.arity
            with np.errstate(all="ignore"):
                found = np.asarray(operation.evaluate(*given))
            assert found.dtype == operation.result_type(dtype).dtype, (operation, dtype)
            assert found.shape == (3,)


def test_names_are_keys_and_symbols_are_unambiguous() -> None:
    assert all(operation.name == name for name, operation in OPERATIONS.items())
    infix = [o.symbol for o in OPERATIONS.values() if o.symbol and o.arity == 2]
    assert len(set(infix)) == len(infix)
    assert repr(OPERATIONS["add"]) == "Operation(add)"


def test_operands_accept() -> None:
    accepted = {o: [t for t in DataType if o.accept(t)] for o in Operands}
    assert accepted[Operands.BOOL] == [T.BOOL]
    assert accepted[Operands.ANY] == list(DataType)
    assert accepted[Operands.NUMBER] == [t for t in DataType if t is not T.BOOL]
    assert accepted[Operands.INTEGER] == [*INTEGERS, T.INDEX]
    assert accepted[Operands.FLOAT] == [T.FLOAT64, T.FLOAT32, T.FLOAT16, T.BFLOAT16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_min_and_max_propagate_nan_and_keep_the_first_of_equals(dtype: DataType) -> None:
    x = [1, math.nan, 2, -math.inf, 0.0, -0.0]
    y = [2, 1, math.nan, 3, -0.0, 0.0]
    small, large = apply("min", dtype, x, y), apply("max", dtype, x, y)
    assert np.array_equal(small, [1, np.nan, np.nan, -np.inf, 0, 0], equal_nan=True)
    assert np.array_equal(large, [2, np.nan, np.nan, 3, 0, 0], equal_nan=True)
    for found in (small, large):
        assert np.signbit(found[4:]).tolist() == [False, True]
        assert found.dtype == dtype.dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_sign_keeps_zeros_and_nan(dtype: DataType) -> None:
    found = apply("sign", dtype, [0.0, -0.0, math.nan, 3, -math.inf])
    assert np.array_equal(found, [0, 0, np.nan, 1, -1], equal_nan=True)
    assert np.signbit(found[:2]).tolist() == [False, True]


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_functions(dtype: DataType) -> None:
    x = [0.5, 1.5, 2.5, -0.5, -1.5, -2.7]
    assert apply("round", dtype, x).tolist() == [0, 2, 2, 0, -2, -3]
    assert np.signbit(apply("round", dtype, x))[3]
    assert apply("floor", dtype, x).tolist() == [0, 1, 2, -1, -2, -3]
    assert apply("ceil", dtype, x).tolist() == [1, 2, 3, 0, -1, -2]
    assert apply("trunc", dtype, x).tolist() == [0, 1, 2, 0, -1, -2]


@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_with_nan_are_false(dtype: DataType) -> None:
    for name in ("eq", "lt", "le", "gt", "ge"):
        assert not apply(name, dtype, [math.nan, math.nan, 1], [math.nan, 1, math.nan]).any()
    assert apply("ne", dtype, [math.nan, 1, 1], [math.nan, math.nan, 1]).tolist() == [1, 1, 0]
    assert apply("eq", dtype, [0.0], [-0.0]).all()
    assert apply("isnan", dtype, [math.nan, math.inf, 0]).tolist() == [True, False, False]
    assert apply("isinf", dtype, [math.nan, -math.inf, 0]).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_division_and_remainder(dtype: DataType) -> None:
    x, y = [1, -1, 0, 7, -7, 5.5], [0, 0, 0, -2, 2, math.inf]
    assert np.array_equal(
        apply("div", dtype, x, y), [np.inf, -np.inf, np.nan, -3.5, -3.5, 0], equal_nan=True
    )
    assert np.array_equal(
        apply("mod", dtype, x, y), [np.nan, np.nan, np.nan, 1, -1, 5.5], equal_nan=True
    )


@pytest.mark.parametrize("dtype", SIGNED)
def test_signed_division_truncates(dtype: DataType) -> None:
    least = int(np.iinfo(dtype.dtype).min)
    x, y = [7, -7, 7, -7, 5, 0, least, least], [2, 2, -2, -2, 0, 0, -1, 1]
    assert apply("div", dtype, x, y).tolist() == [3, -3, -3, 3, 0, 0, least, least]
    assert apply("mod", dtype, x, y).tolist() == [1, -1, 1, -1, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_division(dtype: DataType) -> None:
    most = int(np.iinfo(dtype.dtype).max)
    assert apply("div", dtype, [7, 5, most], [2, 0, most]).tolist() == [3, 0, 1]
    assert apply("mod", dtype, [7, 5, most], [2, 0, 2]).tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(dtype: DataType) -> None:
    limits = np.iinfo(dtype.dtype)
    least, most = int(limits.min), int(limits.max)
    assert apply("add", dtype, [most], [1]).tolist() == [least]
    assert apply("sub", dtype, [least], [1]).tolist() == [most]
    assert apply("mul", dtype, [most], [2]).tolist() == [
        (2 * most) % 2 ** (8 * dtype.bytes) if (dtype.kind is Kind.UNSIGNED) else -2
    ]
    negated = apply("neg", dtype, [1, least]).tolist()
    assert negated == ([-1, least] if dtype.kind is Kind.SIGNED else [most, 0])
    assert apply("abs", dtype, [least, 3]).tolist() == [least, 3]
    assert apply("sign", dtype, [0, 5]).tolist() == [0, 1]
    assert apply("min", dtype, [1, 9], [5, 5]).tolist() == [1, 5]
    assert apply("max", dtype, [1, 9], [5, 5]).tolist() == [5, 9]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_and_shifts(dtype: DataType) -> None:
    width = dtype.bytes * 8
    assert apply("bit_and", dtype, [12], [10]).tolist() == [8]
    assert apply("bit_or", dtype, [12], [10]).tolist() == [14]
    assert apply("bit_xor", dtype, [12], [10]).tolist() == [6]
    ones = -1 if dtype.kind is Kind.SIGNED else int(np.iinfo(dtype.dtype).max)
    assert apply("bit_not", dtype, [0]).tolist() == [ones]
    # A distance counts modulo the width.
    assert apply("shift_left", dtype, [3, 3, 3], [1, width, width + 1]).tolist() == [6, 3, 6]
    assert apply("shift_right", dtype, [12, 12], [2, width + 2]).tolist() == [3, 3]
    if dtype.kind is Kind.SIGNED:
        assert apply("shift_right", dtype, [-8], [1]).tolist() == [-4]


def test_logic() -> None:
    x, y = [True, True, False, False], [True, False, True, False]
    assert apply("and", T.BOOL, x, y).tolist() == [True, False, False, False]
    assert apply("or", T.BOOL, x, y).tolist() == [True, True, True, False]
    assert apply("not", T.BOOL, x).tolist() == [False, False, True, True]
    assert apply("eq", T.BOOL, x, y).tolist() == [True, False, False, True]


TRANSCENDENTAL = {
    "exp": math.exp, "exp2": lambda x: 2.0**x, "expm1": math.expm1, "log": math.log,
    "log2": math.log2, "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh,
    "cosh": math.cosh, "tanh": math.tanh, "asinh": math.asinh, "atanh": math.atanh,
    "erf": math.erf, "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "rsqrt": lambda x: x**-0.5,
    "acosh": lambda x: math.acosh(x), "pow": math.pow, "atan2": math.atan2,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", list(TRANSCENDENTAL))
def test_transcendental_functions(name: str, dtype: DataType) -> None:
    assert OPERATIONS[name].transcendental
    points = [0.125, 0.5, 0.875] if name != "acosh" else [1.25, 2, 9]
    given = [points, [1.5, -2, 0.25]][: OPERATIONS[name].arity]
    expected = [TRANSCENDENTAL[name](*values) for values in zip(*given, strict=True)]
    found = apply(name, dtype, *given)
    assert found.dtype == dtype.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype is T.FLOAT32 else 1e-14)


def test_every_inexact_operation_is_marked() -> None:
    marked = {o.name for o in OPERATIONS.values() if o.transcendental}
    assert marked == set(TRANSCENDENTAL)


def test_sigmoid_at_the_ends() -> None:
    found = apply("sigmoid", T.FLOAT32, [-math.inf, math.inf, -1000, math.nan])
    assert np.array_equal(found, [0, 1, 0, np.nan], equal_nan=True)


# Combiners ---------------------------------------------------------------------------------


@pytest.mark.parametrize("combiner", list(COMBINERS))
def test_the_record_of_a_combiner_says_what_its_operation_does(combiner: str) -> None:
    record = COMBINERS[combiner]
    evaluate = record.operation.evaluate
    for dtype in COMPUTED:
        if not record.accepts(dtype):
            continue
        numbers = [0, 1, -5, 7, -0.0, math.inf, -math.inf, math.nan] if dtype.is_float else [0, 1]
        values = np.array(numbers, dtype.dtype)
        one, other = values[:, None], values[None, :]
        with np.errstate(all="ignore"):
            combined = evaluate(*np.broadcast_arrays(one, other))
            first = evaluate(np.full_like(values, record.identity(dtype)), values)
            kept = evaluate(np.full_like(values, record.neutral(dtype)), values)
        assert np.array_equal(first, values, equal_nan=dtype.is_float)
        assert find_same(kept, values).all()
        assert find_same(first, values).all() == record.keeps_zeros(dtype)
        if record.idempotent:
            assert find_same(np.diagonal(combined), values).all()
        if record.beats:
            beats = OPERATIONS[record.beats].evaluate(other, one)
            finite = ~np.isnan(one) & ~np.isnan(other)
            assert find_same(combined, np.where(beats, other, one))[finite].all()
            matches = OPERATIONS[record.matches].evaluate(other, one)
            assert np.array_equal(matches, beats | (one == other))
        if record.signless:
            positive = (one >= 0) & (other >= 0) & ~np.isnan(combined)
            assert (combined[positive] >= 0).all()
            assert record.empty(dtype) >= 0
        if dtype.is_float:
            x, y, z = np.random.default_rng(0).uniform(0.5, 2, (3, 100)).astype(dtype.dtype)
            moved = evaluate(evaluate(x, y), z) != evaluate(x, evaluate(y, z))
            assert moved.any() == record.ordered


def test_combiners_name_each_other() -> None:
    for record in COMBINERS.values():
        if record.position:
            position = COMBINERS[record.position]
            assert position.positional
            assert (position.operation, position.beats) == (record.operation, record.beats)
        if record.counterpart:
            other = COMBINERS[record.counterpart]
            assert other.counterpart == record.name
            assert other.accepts(T.BOOL) is not record.accepts(T.BOOL)
            bits = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
            kinds = (bool, int) if record.accepts(T.BOOL) else (int, bool)
            found, same = (
                each.operation.evaluate(*bits.astype(kind))
                for each, kind in zip((record, other), kinds, strict=True)
            )
            assert np.array_equal(found, same)


def test_a_combiner_without_a_field_is_an_error_that_names_it() -> None:
    given = {f.name: getattr(COMBINERS["sum"], f.name) for f in dataclasses.fields(Combiner)}
    for name in given:
        with pytest.raises(TypeError, match=f"'{name}'"):
            Combiner(**{other: value for other, value in given.items() if other != name})


def test_unknown_combiners_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown combiner 'mean'"):
        combiner_identity("mean", T.FLOAT32)


def test_bfloat16_is_the_one_of_ml_dtypes() -> None:
    assert T.BFLOAT16.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (17,)])
def test_a_power_of_a_half_is_no_square_root(dtype: DataType, shape: tuple[int, ...]) -> None:
    """Of a negative infinity it is infinite, and of -0 it is 0, for any number of elements."""
    half = np.asarray(0.5, dtype.dtype)
    for given, expected in ((-math.inf, math.inf), (-0.0, 0.0), (4.0, 2.0)):
        found = OPERATIONS["pow"].evaluate(np.full(shape, given, dtype.dtype), half)
        assert np.shape(found) == shape
        assert (found == expected).all()
        assert not np.signbit(found).any()


_WITHOUT = """
import sys
if sys.argv[1:]:
    sys.modules["ml_dtypes"] = None
import numpy as np
import dmlc
from dmlc.reference import evaluate
from dmlc.scalars import DataType, convert

T = DataType
random = np.random.default_rng(7)
bits = random.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
wide = random.standard_normal(4000) * 10.0 ** random.uniform(-46, 40, 4000)
with np.errstate(all="ignore"):
    halves = bits.astype(np.float16)
for values in (bits, wide, halves, np.arange(-300, 300) * 333, np.array([np.nan, -np.nan, 1e39])):
    held = convert(values, T.BFLOAT16)
    print(held.view(np.uint16).tolist())
    for dtype in (T.FLOAT32, T.FLOAT16, T.INT32, T.BOOL):
        print(convert(held, dtype).tolist())
(operator,) = dmlc.parse('''operator O {
    tensors {
        | Tensor | Kind | Supported dimension counts | Supported data types |
        | ------ | ---- | -------------------------- | -------------------- |
        | X | Input | 1 to 8 | BFLOAT16 |
        | Y | Output | 1 to 8 | BFLOAT16 |
    }
    constraints { *X* and *Y* must have the same *DataType* and *Sizes*. }
    compute { Y = exp(X) + 1.1 }
}''').operators.values()
function = operator.bind({"X": dmlc.TensorDesc("BFLOAT16", (4,))})
for target in ("hlsl", "opencl"):
    print(dmlc.compile(function, target).kernels[0].source)
found = evaluate(function, {"X": convert(np.array([1.0, 2.5, -3.0, np.nan]), T.BFLOAT16)})
print(found["Y"].view(np.uint16))
"""


def test_bfloat16_is_the_same_without_the_package_that_has_its_type() -> None:
    """Python in a browser has no ml_dtypes."""
    with_it, without_it = (
        subprocess.run(
            [sys.executable, "-c", _WITHOUT, *arguments],
            capture_output=True, text=True, check=True,
        ).stdout
        for arguments in ([], ["without"])
    )  # fmt: skip
    assert len(with_it) > 10_000
    assert without_it == with_it


# Languages that leave cases open --------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OpenArrays(OpenDomain[Array]):
    """Arrays whose own operations refuse what MLIR and ONNX leave open."""

    def type_of(self, value: Array) -> DataType:
        return DataType.BOOL if value.dtype == np.bool_ else data_type_of(value.dtype) or T.INDEX

    def number(self, held: Array) -> int | float | None:
        return held.item() if held.ndim == 0 else None

    def plain(self, name: str, *given: Array) -> Array | None:
        x, last = given[0], given[-1]
        dtype = self.type_of(x)
        if name in ("min", "max", "sign") and (dtype.is_float or name == "sign"):
            return None
        if not dtype.is_float and name in ("div", "mod"):
            least = np.iinfo(x.dtype).min
            assert (last != 0).all()
            assert not ((last == -1) & (x == least) & (least < 0)).any()
        if name.startswith("shift"):
            assert ((last >= 0) & (last < 8 * dtype.bytes)).all()
        assert name != "abs" or dtype.kind is not Kind.UNSIGNED
        with np.errstate(all="ignore"):
            return OPERATIONS[name].evaluate(*given)

    def truncate(self, held: Array, dtype: DataType) -> Array:
        limits = np.iinfo(dtype.dtype)
        # As a float, the largest number of 64 bits is outside of them.
        assert ((held >= float(limits.min)) & (held < float(limits.max))).all()
        return held.astype(dtype.dtype)

    def apply(self, name: str, *given: Array) -> Array:
        made = self.define(OPERATIONS[name], *given)
        assert made is not None
        return made

    def select(self, condition: Array, then: Array, otherwise: Array) -> Array:
        return np.where(condition, then, otherwise)

    def cast(self, value: Array, dtype: DataType) -> Array:
        return convert(value, dtype)

    def literal(self, value: float, dtype: DataType) -> Array:
        return np.array(value, dtype.dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_languages_that_leave_cases_open_compute_the_same(dtype: DataType) -> None:
    domain = OpenArrays()
    if dtype.is_float:
        numbers = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1, -2], dtype.dtype)
        names = {"min": 2, "max": 2, "sign": 1}
    else:
        limits = np.iinfo(dtype.dtype)
        ends = [limits.min, limits.min + 1, 0, 1, 3, limits.max - 1, limits.max]
        numbers = np.array([*ends, *([-1, -3] if limits.min else [])], dtype.dtype)
        names = {"div": 2, "mod": 2, "abs": 1, "sign": 1, "shift_left": 2, "shift_right": 2}
    x, y = (each.ravel() for each in np.meshgrid(numbers, numbers))
    for name, arity in names.items():
        with np.errstate(all="ignore"):
            wanted = OPERATIONS[name].evaluate(*(x, y)[:arity])
        assert find_same(domain.apply(name, *(x, y)[:arity]), wanted).all(), name
        for number in numbers if arity == 2 else ():
            # A number that is known spares a language what asks for the others.
            for given in ((numbers, np.array(number)), (np.array(number), numbers)):
                with np.errstate(all="ignore"):
                    wanted = OPERATIONS[name].evaluate(*given)
                assert find_same(domain.apply(name, *given), wanted).all(), (name, number)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_are_held_within_integers(dtype: DataType) -> None:
    domain = OpenArrays()
    for to in (*INTEGERS, T.INDEX):
        limits = np.iinfo(to.dtype)
        ends = np.array([limits.min, limits.max], dtype.dtype)
        near = np.concatenate([np.nextafter(ends, np.array(0, dtype.dtype)), ends * 2, ends])
        x = np.array([math.nan, math.inf, -math.inf, -0.0, 1.75, -1.75, *near], dtype.dtype)
        assert find_same(domain.saturate(x, to), convert(x, to)).all(), to
