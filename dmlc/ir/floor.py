"""Integer sequences as formulas: `floor((a * i + b) / c)`, perhaps clamped, or `(i + b) % c`.

A formula is exact at every index that it was fitted to.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import Array

_MOST_DIVISOR = 16
"""Largest divisor tried, besides those that the sequence's slope suggests."""


@dataclasses.dataclass(frozen=True, slots=True)
class FloorForm:
    """`floor((scale * i + offset) / divisor)`, clamped to `low` and `high` where they are given."""

    scale: int
    offset: int
    divisor: int
    low: int | None = None
    high: int | None = None

    def evaluate(self, places: Array) -> Array:
        """Values of the sequence at some indices, as INT64."""
        values = (places * self.scale + self.offset) // self.divisor
        if self.low is not None:
            values = np.maximum(values, self.low)
        return values if self.high is None else np.minimum(values, self.high)

    def write(self, builder: BodyBuilder, place: int) -> int:
        """Formula as an INDEX value of a body; `place` is the value of `i`, which must not be
        negative."""
        # INDEX division rounds towards zero, so no intermediate value may be negative: multiples of
        # the divisor are added after the division, and bounds are applied before that.
        whole, rest = divmod(self.offset, self.divisor)
        if self.scale < 0:
            whole, rest = 0, self.offset
        steps = [
            ("mul", self.scale),
            ("add", rest),
            ("div", self.divisor),
            ("max", None if self.low is None else self.low - whole),
            ("min", None if self.high is None else self.high - whole),
            ("add" if whole >= 0 else "sub", abs(whole)),
        ]
        value = place
        for name, by in steps:
            if by is not None:
                value = builder.apply(name, value, builder.constant(by))
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class PeriodicForm:
    """`(i + shift) % period + low`."""

    shift: int
    period: int
    low: int

    def write(self, builder: BodyBuilder, place: int) -> int:
        """Formula as an INDEX value of a body; `place` is the value of `i`."""
        return builder.unwrap((builder.wrap(place) + self.shift) % self.period + self.low)


def fit_periodic(values: Array) -> PeriodicForm | None:
    """Formula that gives `values` at the indices from 0; None unless they rise by one, and begin
    anew after the largest."""
    if values.size == 0:
        return None
    low = int(values.min())
    form = PeriodicForm(int(values[0]) - low, int(values.max()) - low + 1, low)
    own = (np.arange(values.size) + form.shift) % form.period + low
    is_found = low >= 0 and 1 < form.period < values.size and bool((own == values).all())
    return form if is_found else None


def fit_floor(places: Array, values: Array) -> FloorForm | None:
    """Formula with the smallest divisor that gives `values` at the ascending indices `places`; None
    if none is found. It may differ from the sequence at other indices."""
    if values.size == 0:
        return None
    first, last = int(places[0]), int(places[-1])
    if first == last:
        return FloorForm(0, int(values[0]), 1)
    slope = Fraction(int(values[-1]) - int(values[0]), last - first)
    near = slope.limit_denominator(max(1, (last - first) // 2)).denominator
    divisors = dict.fromkeys((*range(1, _MOST_DIVISOR + 1), near, slope.denominator, 2 * near))
    for divisor in divisors:
        below = slope * divisor
        scales = dict.fromkeys((round(below), int(below // 1), int(-(-below // 1))))
        for scale in scales:
            least = values * divisor - places * scale
            low, high = int(least.max()), int(least.min()) + divisor - 1
            if low <= high and (scale >= 0 or divisor == 1):
                # The valid offset nearest 0 reads best.
                return FloorForm(scale, min(max(0, low), high), divisor)
    return None


def fit_clamped(places: Array, values: Array) -> FloorForm | None:
    """Formula as by `fit_floor`; or a formula clamped to the smallest and largest value, if that
    avoids the division or a divisor larger than any tried."""
    whole = fit_floor(places, values)
    if values.size == 0 or (whole is not None and whole.divisor == 1):
        return whole
    forms = [form for form in (whole, _fit_held(places, values)) if form is not None]
    return min(forms, key=_rank, default=None)


def _rank(form: FloorForm) -> tuple[bool, int]:
    """Sort key of formulas: those without a division first, then those with a small divisor."""
    return form.divisor > 1, form.divisor if form.divisor > _MOST_DIVISOR else 0


def _fit_held(places: Array, values: Array) -> FloorForm | None:
    """Formula of the values between the smallest and the largest, clamped to these where it exceeds
    them."""
    low, high = int(values.min()), int(values.max())
    free = (values > low) & (values < high)
    form = fit_floor(places[free], values[free])
    if form is None:
        return None
    own = form.evaluate(places)
    held = dataclasses.replace(
        form,
        low=low if int(own.min()) < low else None,
        high=high if int(own.max()) > high else None,
    )
    return held if bool((held.evaluate(places) == values).all()) else None
