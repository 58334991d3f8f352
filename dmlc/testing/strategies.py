"""Hypothesis strategies from an operator: calls that its tables and constraints permit, and arrays
for them.

`draw` makes a call by one small choice after another. Each is a choice of Hypothesis here, so that
a failing example shrinks to few short axes, packed, without optional tensors, with the first of
what a table lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from dmlc.binding import Operator
from dmlc.catalog import operator
from dmlc.parameters import wrong_kind
from dmlc.testing.case import Call, Case
from dmlc.testing.draw import draw_calls
from dmlc.testing.fill import KINDS, fill

_MOST_CHOICES = 256
"""Choices of one call that Hypothesis makes; what goes beyond is moving a call about until nothing
forbids it."""
_LONGEST_ORDER = 8
"""Orders of so many things are drawn; of more, where to begin."""
_CHANCES = 256
_SEEDS = 2**16


def bindings(op: str | Operator) -> st.SearchStrategy[Call]:
    """A strategy for calls that an operator permits: a `Call` has the `tensors`, each with data
    type, sizes and strides, and the `attributes`, as `Operator.bind` takes them; tensors have at
    most 32,768 elements.

    `op` is an operator, or the name of one of the library.
    """
    return _calls(_find(op))


def arrays(op: str | Operator | Call) -> st.SearchStrategy[Case]:
    """A strategy for calls with arrays for their inputs: a `Case` has the `call`, and the `inputs`
    by name, with the call's data types, sizes and strides. The values are ordinary ones, or special
    ones, denormals, large ones or ties.

    `op` is an operator, the name of one of the library, or one call.
    """
    return _cases(op if isinstance(op, Call) else _find(op))


def _find(op: object) -> Operator:
    found = operator(op) if isinstance(op, str) else op
    if isinstance(found, Operator):
        return found
    raise wrong_kind("op", "an operator, or the name of one", found)


@st.composite
def _calls(draw: st.DrawFn, op: Operator) -> Call:
    random = cast("np.random.Generator", _Choices(draw))
    for call in draw_calls(op, random, 1):
        return call
    return reject()


@st.composite
def _cases(draw: st.DrawFn, subject: Operator | Call) -> Case:
    call = subject if isinstance(subject, Call) else draw(_calls(subject))
    kind = draw(st.sampled_from(KINDS))
    random = np.random.default_rng(draw(st.integers(0, _SEEDS)))
    return Case(call, fill(call, kind, random), f"{kind} values")


class _Choices:
    """What `draw` asks of a `numpy.random.Generator`, as choices that Hypothesis makes and shrinks.
    The simpler choice is the smaller number, the first item, the order as it is, and, as `draw` asks
    whether a number between 0 and 1 is small, a large one."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._left = _MOST_CHOICES
        self._rest = np.random.default_rng(draw(st.integers(0, _SEEDS)))

    def _choose(self, count: int) -> int:
        """A number below `count`."""
        if count < 2:
            return 0
        self._left -= 1
        if self._left < 0:
            return int(self._rest.integers(count))
        return self._draw(st.integers(0, count - 1))

    def integers(self, low: int, high: int | None = None) -> int:
        start, end = (0, low) if high is None else (low, high)
        return start + self._choose(end - start)

    def random(self) -> float:
        return (_CHANCES - 1 - self._choose(_CHANCES)) / _CHANCES

    def choice(self, items: Sequence[Any]) -> Any:
        return items[self._choose(len(items))]

    def permutation(self, count: int) -> list[int]:
        if count > _LONGEST_ORDER:
            first = self._choose(count)
            return [(first + k) % count for k in range(count)]
        left = list(range(count))
        return [left.pop(self._choose(len(left))) for _ in range(count)]
