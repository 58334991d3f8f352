"""When a backend's result agrees with the reference's."""

from __future__ import annotations

import numpy as np

from dmlc.scalars import Array, DataType, data_type_of

_EPSILON = {
    DataType.FLOAT64: 2.0**-52,
    DataType.FLOAT32: 2.0**-23,
    DataType.FLOAT16: 2.0**-10,
    DataType.BFLOAT16: 2.0**-7,
}


def disagreements(got: Array, wanted: Array, ulps: float, transcendental: bool = False) -> Array:
    """Flat positions where results differ: by more than `ulps` units in the last place (0: at
    all, the sign of a zero included), or, if transcendental, by more than 1e-5 relative and 1e-6
    absolute. NaN and infinities must agree in place."""
    dtype = data_type_of(wanted.dtype)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    got, wanted = got.ravel(), wanted.ravel()
    if dtype not in _EPSILON:
        return np.flatnonzero(got != wanted)
    with np.errstate(invalid="ignore"):  # a signalling NaN is as good as any
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    same = (got == wanted) & ((np.signbit(got) == np.signbit(wanted)) | (ulps > 0))
    same |= np.isnan(got) & np.isnan(wanted)
    finite = np.isfinite(got) & np.isfinite(wanted)
    with np.errstate(invalid="ignore"):
        allowed = ulps * _EPSILON[dtype] * np.abs(wanted)
        if transcendental:
            allowed = allowed + 1e-5 * np.abs(wanted) + 1e-6
        same |= finite & (np.abs(got - wanted) <= allowed) & (ulps > 0)
    return np.flatnonzero(~same)
