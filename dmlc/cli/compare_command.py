"""`dmlc compare`: comparison of two arrays, such as the results of another machine."""

from __future__ import annotations

import json
import math

import click
import numpy as np

from dmlc.cli.arrays import read_array
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError
from dmlc.testing.compare import Tolerance, Verdict


@click.command(
    "compare",
    epilog="Example: dmlc compare Y.dmlc.npy expected.Y.npy --bounds bound.Y.npy",
)
@click.argument("actual", metavar="A.npy")
@click.argument("expected", metavar="B.npy")
@click.option("--relative", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="The largest difference permitted, relative to the element of B.")  # fmt: skip
@click.option("--absolute", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="The absolute difference permitted in addition.")  # fmt: skip
@click.option("--bounds", "bounds", multiple=True, metavar="BOUND.npy",
              help="A further difference permitted for each element, such as dmlc export writes. "
              "May repeat, for the errors of A and of B: they are added.")  # fmt: skip
@click.option("--bfloat16", is_flag=True,
              help="The arrays' 16-bit words are bfloat16, which .npy files have no name for.",
              )  # fmt: skip
@click.option("--elements", type=click.IntRange(min=1), metavar="N",
              help="The number of elements to compare, of arrays that are padded at their end.",
              )  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(
    actual: str,
    expected: str,
    relative: float,
    absolute: float,
    bounds: tuple[str, ...],
    bfloat16: bool,
    elements: int | None,
    as_json: bool,
) -> int:
    """Compare two arrays, such as the results of two devices: exactly, within a tolerance, or
    within a bound for each element.

    Shapes may differ if the number of elements is the same, as DxDispatch writes flat arrays. If
    the arrays differ by more, the exit status is 1, and the worst element is shown."""
    dtype = DataType.BFLOAT16 if bfloat16 else None
    left, right = read_array(actual, dtype), read_array(expected, dtype)
    if elements is not None:
        left, right = (_trim(a, elements) for a in (left, right))
    if left.dtype != right.dtype or left.size != right.size:
        raise DmlcError(
            f"'{actual}' has {left.size:,} elements of {left.dtype}, and '{expected}' "
            f"{right.size:,} of {right.dtype}: they cannot be compared"
        )
    allowed = Tolerance(relative, absolute).allow(right)
    for path in bounds:
        allowed = allowed + _read_bound(path, right)
    verdict = Verdict.of(left.reshape(right.shape), right, allowed)
    if as_json:
        described = {
            "within": verdict.holds,
            "elements": verdict.elements,
            "different": verdict.different,
            "largest_difference": verdict.largest,
            "largest_relative": verdict.largest_relative,
            "out_of_place": verdict.misplaced,
            "worst": None if verdict.worst is None else list(verdict.worst),
            "worst_actual": _spell(verdict.found),
            "worst_expected": _spell(verdict.wanted),
            "worst_allowed": _spell(verdict.most),
        }
        click.echo(json.dumps(described, indent=2))
    else:
        click.echo(f"{'PASS' if verdict.holds else 'FAIL'}: {verdict}")
    return 0 if verdict.holds else 1


def _trim(array: Array, count: int) -> Array:
    """One-dimensional array without its padding."""
    return array[:count] if array.ndim == 1 else array


def _read_bound(path: str, expected: Array) -> Array:
    """Error bound of each element, from a file. Raises `DmlcError` for any other array."""
    bound = read_array(path)
    if bound.dtype.kind != "f" or bound.size != expected.size:
        raise DmlcError(
            f"'{path}' has {bound.size:,} elements of {bound.dtype}, and a bound is needed for "
            f"each of {expected.size:,}, as floating-point numbers"
        )
    bound = bound.astype(np.float64).reshape(expected.shape)
    if not np.all(bound >= 0):
        raise DmlcError(
            f"'{path}' has elements that are no bounds: each must be a number of 0 or more"
        )
    return bound


def _spell(value: bool | int | float | None) -> bool | int | float | str | None:
    """Number for JSON; one that JSON lacks as a text, such as `"inf"`."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
