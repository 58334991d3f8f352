"""Sums of terms: they add, divide, part and write as the numbers do that they stand for."""

from __future__ import annotations

import operator

from hypothesis import given
from hypothesis import strategies as st

from dmlc.index.affine import Affine, combine, single, solve

NAMES = "abc"


def make(constant: int, factors: dict[str, int]) -> Affine[str]:
    return Affine(constant, tuple((name, n) for name, n in factors.items() if n))


SUMS = st.builds(
    make, st.integers(-9, 9), st.dictionaries(st.sampled_from(NAMES), st.integers(-3, 3))
)
VALUES = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})
OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
COMPARED = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
            "eq": operator.eq, "ne": operator.ne}  # fmt: skip


def evaluate(form: Affine[str], values: dict[str, int]) -> int:
    return form.constant + sum(values[term] * factor for term, factor in form.factors)


def test_sums_are_equal_in_any_order_of_their_terms() -> None:
    first, second = Affine(1, (("a", 2), ("b", 3))), Affine(1, (("b", 3), ("a", 2)))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Affine(1, (("a", 3), ("b", 2)))
    assert single("a").plus(single("a"), -1) == Affine()


@given(st.sampled_from(sorted(OPERATIONS)), SUMS, SUMS, VALUES)
def test_sums_are_combined(
    name: str, left: Affine[str], right: Affine[str], values: dict[str, int]
) -> None:
    made = combine(name, [left, right])
    if made is not None:
        expected = OPERATIONS[name](evaluate(left, values), evaluate(right, values))
        assert evaluate(made, values) == expected
    assert (made is None) == (name == "mul" and bool(left.factors) and bool(right.factors))


@given(SUMS, st.integers(1, 5), VALUES)
def test_a_quotient_and_a_rest_make_the_sum(
    form: Affine[str], divisor: int, values: dict[str, int]
) -> None:
    whole, rest = form.divide(divisor)
    assert evaluate(whole, values) * divisor + evaluate(rest, values) == evaluate(form, values)
    assert 0 <= rest.constant < divisor
    assert all(factor % divisor for _, factor in rest.factors)


@given(SUMS, VALUES)
def test_a_sum_is_parted_bounded_and_written(form: Affine[str], values: dict[str, int]) -> None:
    own, others = form.part(lambda term: term == "a")
    assert own == single("a", form.factor("a")).plus(Affine()) or not form.factor("a")
    assert own.plus(others) == form
    low, high = form.interval(lambda _: (0, 9))
    assert low <= evaluate(form, values) <= high

    def apply(name: str, *given: int) -> int:
        return -given[0] if name == "neg" else OPERATIONS[name](*given)

    assert form.write(lambda term: values[term], int, apply) == evaluate(form, values)


@given(st.sampled_from(sorted(COMPARED)), SUMS, SUMS, VALUES)
def test_a_comparison_is_solved_for_a_term(
    name: str, left: Affine[str], right: Affine[str], values: dict[str, int]
) -> None:
    found = solve(name, left, right, lambda term: term == "a")
    assert (found is None) == (abs(left.factor("a") - right.factor("a")) != 1)
    if found is not None:
        term, compared, place = found
        holds = COMPARED[compared](values[term], evaluate(place, values))
        assert holds is COMPARED[name](evaluate(left, values), evaluate(right, values))
        assert not place.factor("a")
