from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlc.binding import TensorDesc
from dmlc.scalars import DataType
from dmlc.source import DmlcError


def test_a_description_takes_names_lists_and_numpy_integers() -> None:
    desc = TensorDesc("f16", [np.int64(2), 3], [np.int32(3), 1])
    assert (desc.data_type, desc.sizes, desc.strides) == (DataType.FLOAT16, (2, 3), (3, 1))
    assert desc == TensorDesc(DataType.FLOAT16, (2, 3), (3, 1))
    assert str(desc) == "FLOAT16[2, 3]{3, 1}"
    assert str(TensorDesc("FLOAT32")) == "FLOAT32[...]"


@pytest.mark.parametrize(
    ("dtype", "sizes", "strides", "expected"),
    [
        ("FLOAT32", (2, 3), None, 24),
        ("FLOAT16", (3,), None, 8),
        ("UINT8", (5,), None, 8),
        ("UINT8", (2, 2), (4, 1), 8),
        ("FLOAT32", (2, 3), (0, 1), 12),
        ("FLOAT32", (2, 0), None, 0),
    ],
)
def test_total_bytes(
    dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...] | None, expected: int
) -> None:
    assert TensorDesc(dtype, sizes, strides).total_bytes == expected


@pytest.mark.parametrize(
    ("sizes", "strides", "stored"),
    [
        ((2, 3), (3, 1), None),
        ((2, 1), (1, 7), None),
        ((2, 3), (1, 2), (1, 2)),
        ((2, 0), (5, 5), None),
        ((4, 3), (0, 1), (0, 1)),
    ],
)
def test_stored_strides_say_only_what_is_not_packed(
    sizes: tuple[int, ...], strides: tuple[int, ...], stored: tuple[int, ...] | None
) -> None:
    assert TensorDesc("FLOAT32", sizes, strides).stored_strides == stored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("FLOAT33", (1,)), "unknown data type 'FLOAT33'"),
        ((DataType.INDEX, (1,)), "data_type is INDEX, which no tensor can hold"),
        (("FLOAT32", ()), "a tensor has 1 to 8 dimensions, but sizes has 0"),
        (("FLOAT32", (1,) * 9), "a tensor has 1 to 8 dimensions, but sizes has 9"),
        (("FLOAT32", (2, -1)), "sizes must not be negative, but along axis 1 it is -1"),
        (("FLOAT32", (2.5,)), "each of sizes must be a whole number, not 2.5"),
        (("FLOAT32", (2, 3), (1,)), "2 sizes need 2 strides, but there are 1"),
        (("FLOAT32", (2,), (-1,)), "strides must not be negative, but along axis 0 it is -1"),
        (("FLOAT32", None, (1,)), "strides need sizes: give both, or neither"),
        (("FLOAT32", (True,)), "each of sizes must be a whole number, not True"),
        (("FLOAT32", (2, 2**63)), "sizes are at most 9223372036854775807, but along axis 1 it is "
         "9223372036854775808"),
        (("FLOAT32", (2,), (2**63,)), "strides are at most 9223372036854775807, but along axis 0 "
         "it is 9223372036854775808"),
        (("FLOAT32", (2**40, 2**40)), "sizes [1099511627776, 1099511627776] are "
         "1208925819614629174706176 elements, and 9223372036854775807 is the most"),
        (("FLOAT32", (2**62, 2)), "sizes [4611686018427387904, 2] are 9223372036854775808 "
         "elements, and 9223372036854775807 is the most"),
        (("FLOAT32", (0, 2**62, 8)), "sizes [0, 4611686018427387904, 8] are 36893488147419103232 "
         "elements, and 9223372036854775807 is the most"),
        (("FLOAT32", (2,), (2**63 - 1,)), "a tensor of sizes [2] and strides "
         "[9223372036854775807] reaches over 9223372036854775808 elements, and "
         "9223372036854775807 is the most"),
    ],
)  # fmt: skip
def test_descriptions_that_cannot_be(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DmlcError) as caught:
        TensorDesc(*arguments)
    assert caught.value.diagnostics[0].message == message


def test_no_sizes_no_bytes() -> None:
    with pytest.raises(DmlcError, match="without sizes has no extent in memory"):
        _ = TensorDesc("FLOAT32").total_bytes
