"""Positions as sums, and their remainders."""

from __future__ import annotations

from dmlc.index.affine import Affine
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate
from dmlc.kernel.sums import Sum, add_up, express, find_remainder, note
from dmlc.scalars import DataType

_BOOL = k.Type(DataType.BOOL)


def test_each_choice_of_a_chain_is_looked_at_once() -> None:
    # Each local is one of two sums of the last one: 2^60 ways lead to the first.
    known: dict[str, Sum] = {"x0": Affine(8)}
    for number in range(60):
        last, condition = k.Local(f"x{number}", k.INDEX), k.Local(f"c{number}", _BOOL)
        chosen = k.Select(condition, add(last, index(4)), last, k.INDEX)
        note(k.Let(k.Local(f"x{number + 1}", k.INDEX), chosen), known)
    place = add_up(k.Local("x60", k.INDEX), known)
    assert find_remainder(place, 4, known) == 0
    assert find_remainder(place, 8, known) is None


def test_what_is_taken_off_a_number_stands_behind_it() -> None:
    place = k.Local("k2", k.INDEX)
    assert express(Affine(57, ((place, -1),))) == operate("sub", index(57), place)
    assert express(Affine(-2, ((place, 3),))) == operate("sub", multiply(place, 3), index(2))
    assert express(Affine(4)) == index(4)
