"""Reductions of no point and tensors of no element, on every device."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc.binding import Operator
from dmlc.language.check import check_text
from dmlc.scalars import TENSOR_TYPES, DataType, combiner_identity
from tests.library.run import DEVICES

TYPES = [t for t in TENSOR_TYPES if t is not DataType.BOOL]
PLACES = [
    (dtype, device)
    for dtype in TYPES
    for device in DEVICES
    # Shaders have no 8 bits, and lavapipe chooses wrongly among constants of 16.
    if device != "vulkan" or dtype.is_float or dtype.bytes >= 4
]


def declare(compute: str, types: str, result: str) -> Operator:
    text = f"""operator OP {{
        tensors {{
            | Tensor | Kind   | Types    |
            | X      | Input  | {types}  |
            | Z      | Output | {result} | }}
        compute {{ {compute} }}
    }}"""
    return Operator(check_text(text, "op.dml").operators["OP"])


@pytest.mark.parametrize(("dtype", "device"), PLACES, ids=str)
@pytest.mark.parametrize("combiner", ["min", "max", "sum", "product", "argmin", "argmax"])
def test_what_folds_nothing_has_the_type_of_what_it_reads(
    combiner: str, dtype: DataType, device: str
) -> None:
    positional = combiner.startswith("arg")
    result = DataType.UINT32 if positional else dtype
    formula = f"Z[i : 3] = {combiner}[j : 5 where j > 3 + i](X[j + 9] else 1)"
    operator = declare(formula, dtype.name, result.name)
    found = dmlc.run(operator, {"X": np.ones(5, dtype.dtype)}, device=device)["Z"]
    nothing = 0 if positional else combiner_identity(combiner, dtype.compute)
    expected = np.array([4 if positional else 1, nothing, nothing], result.dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [(0,), (5,)])
def test_what_lies_outside_must_have_the_type_of_the_tensor(sizes: tuple[int, ...]) -> None:
    operator = declare("Z[i : 3] = X[i + 9] else 0.5", "INT32", "INT32")
    with pytest.raises(dmlc.DmlcError, match=r"0\.5 meets INT32 values"):
        operator.bind({"X": sizes})
