"""16-bit values in registers: the same bits as through memory, and memory of 16 bits where any."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir import Function
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.transform.storage import carry_rounding, store_rounded
from tests.strategies import functions, make_inputs, same_bits


@settings(max_examples=100, deadline=None)
@given(functions(), st.integers(0, 99))
def test_results_stay_bit_for_bit(function: Function, seed: int) -> None:
    inputs = make_inputs(function, seed)
    expected = evaluate(function, inputs)
    carried = carry_rounding(function)
    ir.verify(carried, "carry_rounding")
    read = {load.tensor for stage in carried.stages for load in stage.body.loads()}
    assert not [s.name for s in carried.stages if s.name in read and s.dtype.is_storage_only]
    stored = store_rounded(carried, ())
    ir.verify(stored, "store_rounded")
    for made in (carried, stored):
        found = evaluate(made, inputs)
        assert list(found) == list(expected)
        assert all(same_bits(expected[name], found[name]) for name in expected)


def test_a_reduction_is_folded_exactly_and_rounded_where_read() -> None:
    function = ir.parse("""func @f(%X: f16[4, 8]) -> (%S, %Y) {
      %S: bf16[i0 < 4] = sum[r1 < 8] %X[i0, r1]
      %Y: f32[i0 < 4] = neg(%S[i0])
    }""")
    assert str(carry_rounding(function)).splitlines()[1:-1] == [
        "  %S_exact: f32[i0 < 4] = sum[r1 < 8] %X[i0, r1]",
        "  %S_rounded: f32[i0 < 4] = round_bfloat16(%S_exact[i0])",
        "  %S: bf16[i0 < 4] = %S_rounded[i0]",
        "  %Y: f32[i0 < 4] = neg(%S_rounded[i0])",
    ]


def test_choosing_between_16_bit_values_rounds_nothing() -> None:
    function = ir.parse("""func @f(%X: f16[4], %Z: f32[4]) -> (%Y) {
      %a: f16[i0 < 4] = select(gt(%Z[i0], 0.0), neg(%X[i0]), max(%X[i0], 0.5))
      %b: f16[i0 < 4] = select(gt(%Z[i0], 0.0), %a[i0], 0.1)
      %Y: f32[i0 < 4] = add(%a[i0], %b[i0])
    }""")
    carried = carry_rounding(function)
    stages = {s.name: s for s in carried.stages}
    assert "round" not in str(stages["a"].body)
    assert "%b: f32[i0 < 4] = round_float16(select(" in str(carried)
    back = store_rounded(carried, ())
    assert str(back) == str(function)
    assert next(iter(store_rounded(carried, ("a",)).stages)).dtype is DataType.FLOAT32
