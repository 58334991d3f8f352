"""Tables of a function: both forms, what the verifier says of them, what reads of them give."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.reference import evaluate
from dmlc.source import DmlcError

TEXT = """func @f(%X: f32[6]) -> (%Y) {
  table %W: f32[2, 3] = {
    0.5, -inf, nan,
    1.0, 2.0, 1e-07
  }
  table %P: s32[3] = {4, 0, 5}
  table %B: boolean[2] = {true, false}
  table %D: f64[1] = {0.1}
  %Y: f32[i0 < 3] = mul(%W[1, i0], select(%B[0], %X[cast(%P[i0], index)], 0.0))
}"""


def test_forms() -> None:
    function = ir.parse(TEXT)
    assert str(function) == TEXT
    assert ir.from_json(ir.to_json(function)) == function
    assert [t.name for t in function.tables] == ["W", "P", "B", "D"]
    assert list(function.tensors()) == ["X", "W", "P", "B", "D", "Y"]


def test_read_by_the_reference() -> None:
    got = evaluate(ir.parse(TEXT), {"X": np.arange(6, dtype=np.float32)})
    assert got["Y"].tolist() == [4.0, 0.0, float(np.float32(5) * np.float32(1e-7))]


def function_with(table: str, body: str = "%W[i0]") -> str:
    return f"func @f(%X: f32[2]) -> (%Y) {{ table %W: {table}\n %Y: f32[i0 < 2] = {body} }}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (function_with("f32[2] = {1.0}"), "%W: it has 1 values"),
        (function_with("f16[2] = {1.0, 2.0}"), "a table holds a compute type, packed"),
        (function_with("u8[2] = {1, 300}"), "300 is no UINT8"),
        (function_with("f32[2] = {1.0, 2.0}", "%W[add(i0, 1)]"), "is left"),
        (function_with("s32[2] = {0, 2}", "%X[cast(%W[i0], index)]"), "is left"),
        (function_with("s32[2] = {1.5, 2}"), "'1.5' is no INT32"),
        (function_with("boolean[2] = {1, 2}"), "expected a value of type BOOL, found '1'"),
        (function_with("f32[2] = {true, 2}"), "expected a value of type FLOAT32, found 'true'"),
        ("func @f(%W: f32[2]) -> (%W) { table %W: f32[1] = {1.0} }", "defined twice"),
    ],
)
def test_faults(text: str, why: str) -> None:
    with pytest.raises(DmlcError) as caught:
        ir.parse(text)
    assert why in str(caught.value)


def test_a_table_of_the_text_is_a_constant_of_json() -> None:
    text = ir.to_json(ir.parse(TEXT)).replace('"nan"', '"much"')
    with pytest.raises(DmlcError):
        ir.from_json(text)
