"""Hypothesis strategies from an operator: permitted calls, and arrays for them.

Hypothesis selects one of the calls that `draw` makes, and the largest length of its axes; so a
failing example shrinks to short axes.
"""

from __future__ import annotations

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from dmlc.binding import Operator
from dmlc.catalog import operator
from dmlc.parameters import wrong_kind
from dmlc.testing.case import Call, Case
from dmlc.testing.draw import draw_calls
from dmlc.testing.fill import KINDS, fill

_NUMBERS = 256
"""Number of calls of an operator to select from."""
_LONGEST = (1, 2, 3, 5, 8, None, None, None, None, None)
"""Largest lengths of axes; half of the calls are not shortened."""
_SEEDS = 2**16


def bindings(op: str | Operator) -> st.SearchStrategy[Call]:
    """Strategy for permitted calls of an operator: a `Call` has the `tensors`, each with data type,
    sizes and strides, and the `attributes`, as `Operator.bind` takes them; tensors have at most
    32,768 elements.

    `op` is an operator, or the name of one of the library.
    """
    return _draw_calls(_Calls(_find(op)))


def arrays(op: str | Operator | Call) -> st.SearchStrategy[Case]:
    """Strategy for calls with arrays for their inputs: a `Case` has the `call`, and the `inputs` by
    name, with the call's data types, sizes and strides. The values are ordinary ones, or special
    ones, denormals, large ones or ties.

    `op` is an operator, the name of one of the library, or one call.
    """
    return _draw_cases(st.just(op) if isinstance(op, Call) else bindings(op))


def _find(op: object) -> Operator:
    found = operator(op) if isinstance(op, str) else op
    if isinstance(found, Operator):
        return found
    raise wrong_kind("op", "an operator, or the name of one", found)


class _Calls:
    """Calls of an operator by number, each drawn once, since drawing takes longer than most
    tests."""

    def __init__(self, op: Operator) -> None:
        self.operator = op
        self._found: dict[tuple[int, int | None], Call | None] = {}

    def find(self, number: int, most: int | None) -> Call | None:
        """Call of a number, with no axis longer than `most` if the operator permits that; None if
        no call is found."""
        if (number, most) not in self._found:
            if most is None:
                random = np.random.default_rng(number)
                call = next(draw_calls(self.operator, random, 1), None)
            else:
                call = self.find(number, None)
                call = call and (call.cut(most) or call)
            self._found[number, most] = call
        return self._found[number, most]


@st.composite
def _draw_calls(draw: st.DrawFn, calls: _Calls) -> Call:
    most = draw(st.sampled_from(_LONGEST))
    call = calls.find(draw(st.integers(0, _NUMBERS - 1)), most)
    return reject() if call is None else call


@st.composite
def _draw_cases(draw: st.DrawFn, calls: st.SearchStrategy[Call]) -> Case:
    call, kind = draw(calls), draw(st.sampled_from(KINDS))
    random = np.random.default_rng(draw(st.integers(0, _SEEDS - 1)))
    return Case(call, fill(call, kind, random), f"{kind} values")
