"""Summary of an array's values for people."""

from __future__ import annotations

import numpy as np

from dmlc.scalars import Array

_FIRST = 6
"""Number of values shown."""


def describe_values(array: Array) -> list[str]:
    """Lines with the smallest, the largest and the mean of the finite values, the number of others,
    and the first values in order."""
    if array.size == 0:
        return ["no elements"]
    if array.dtype == np.bool_:
        said = f"{int(array.sum()):,} of {array.size:,} true"
    else:
        said = _describe_numbers(array)
    first = ", ".join(_show(value) for value in array.reshape(-1)[:_FIRST])
    return [said, f"[{first}{', ...' if array.size > _FIRST else ''}]"]


def _describe_numbers(array: Array) -> str:
    exact = array.dtype.kind in "iu"
    values = array if exact else array.astype(np.float64)
    finite = values if exact else values[np.isfinite(values)]
    parts: list[str] = []
    if finite.size:
        mean = float(finite.mean(dtype=np.float64))
        parts.append(f"min {_show(finite.min())}, max {_show(finite.max())}, mean {_show(mean)}")
    if not exact:
        nans, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        counts = ((nans, "NaN"), (infinite, "inf"))
        parts += [f"{count:,} {what}" for count, what in counts if count]
    return "; ".join(parts)


def _show(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    # As every scalar of NumPy and of ml_dtypes spells itself.
    text = str(value)
    return text if text.lstrip("-").isdigit() else f"{float(text):.6g}"
