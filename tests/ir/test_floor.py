"""Sequences as formulas: found where there is one, and never wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.floor import FloorForm, PeriodicForm, fit_clamped, fit_floor, fit_periodic
from dmlc.ir.index import evaluate_positions
from dmlc.scalars import Array, DataType

PLACES = np.arange(23)

forms = st.builds(
    FloorForm,
    st.integers(0, 9),
    st.integers(-20, 20),
    st.integers(1, 7),
    st.none() | st.integers(-5, 5),
    st.none() | st.integers(10, 30),
)


@given(forms, st.integers(2, 40))
def test_what_a_formula_made_is_found_again(form: FloorForm, count: int) -> None:
    places = np.arange(count)
    values = form.evaluate(places)
    found = fit_clamped(places, values)
    if form.low is None and form.high is None:
        assert found is not None
    if found is not None:
        assert found.evaluate(places).tolist() == values.tolist()


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12))
def test_a_formula_is_exact(values: list[int]) -> None:
    array = np.array(values)
    for fit in (fit_floor, fit_clamped):
        found = fit(np.arange(len(values)), array)
        assert found is None or found.evaluate(np.arange(len(values))).tolist() == values


@given(forms)
def test_written_as_a_position(form: FloorForm) -> None:
    builder = BodyBuilder()
    value = form.write(builder, builder.add(ir.Index(0)))
    builder.add(ir.Cast(value, DataType.INT32))
    body = ir.Body.make(builder.instructions, len(builder.instructions) - 1)
    stage = ir.Stage("y", DataType.INT32, (len(PLACES),), body)
    (found,) = evaluate_positions(stage, [body.result], (ir.Index(0),))
    wanted = np.broadcast_to(form.evaluate(PLACES), PLACES.shape)
    assert np.broadcast_to(found, PLACES.shape).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (PLACES * 2 - 1, FloorForm(2, -1, 1)),
        (PLACES // 2, FloorForm(1, 0, 2)),
        (PLACES * 5 // 12, FloorForm(5, 0, 12)),
        (np.full(23, 7), FloorForm(0, 7, 1)),
        (-PLACES, FloorForm(-1, 0, 1)),
        (np.clip(PLACES - 3, 0, 15), FloorForm(1, -3, 1, 0, 15)),
    ],
)
def test_forms(values: Array, form: FloorForm) -> None:
    assert fit_clamped(PLACES, values) == form


def test_ends_are_held_rather_than_divided() -> None:
    # (103 * i) / 13 comes to the same.
    places = np.arange(14)
    assert fit_clamped(places, np.maximum(8 * places - 1, 0)) == FloorForm(8, -1, 1, 0)


def test_a_position_that_is_held_is_never_negative_on_the_way() -> None:
    builder = BodyBuilder()
    value = FloorForm(8, -1, 1, 0).write(builder, builder.add(ir.Index(0)))
    body = ir.Body.make(builder.instructions, value)
    stage = ir.Stage("y", DataType.INT32, (len(PLACES),), body)
    found = evaluate_positions(stage, range(len(body.instructions)), (ir.Index(0),))
    assert min(int(values.min()) for values in found) == 0


def test_no_formula() -> None:
    assert fit_floor(np.arange(0), np.arange(0)) is None
    assert fit_clamped(np.arange(4), np.array([0, 9, 1, 7])) is None


@given(st.integers(0, 20), st.integers(2, 9), st.integers(0, 4), st.integers(1, 30))
def test_numbers_that_begin_anew(shift: int, period: int, low: int, more: int) -> None:
    values = (np.arange(period + more) + shift) % period + low
    found = fit_periodic(values)
    # Of the first turn alone a part may be there, which another formula gives.
    if set(values) == set(range(low, low + period)):
        assert found == PeriodicForm(shift % period, period, low)
    builder = BodyBuilder()
    for form in [found] if found is not None else []:
        value = form.write(builder, builder.add(ir.Index(0)))
        body = ir.Body.make(builder.instructions, value)
        stage = ir.Stage("y", DataType.INT32, (len(values),), body)
        (own,) = evaluate_positions(stage, [body.result], (ir.Index(0),))
        assert own.tolist() == values.tolist()


@pytest.mark.parametrize("values", [[], [3], [0, 1, 2], [0, 1, 0, 2], [2, 1, 0, 2], [-1, 0, -1, 0]])
def test_others_do_not_begin_anew(values: list[int]) -> None:
    assert fit_periodic(np.array(values, np.int64)) is None
