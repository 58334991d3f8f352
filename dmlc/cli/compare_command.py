"""`dmlc compare`: two arrays side by side, to judge what another machine gave."""

from __future__ import annotations

import json

import click
import numpy as np

from dmlc.cli.arrays import read_array
from dmlc.source import DmlcError
from dmlc.testing.compare import Tolerance, compare


@click.command(
    "compare",
    epilog="Example: dmlc compare dX.dmlc.npy dX.directml.npy --relative 1e-5",
)
@click.argument("actual", metavar="A.npy")
@click.argument("expected", metavar="B.npy")
@click.option("--relative", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="How far an element of A may be from B's, relative to B's.")  # fmt: skip
@click.option("--absolute", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="How far it may be in any case.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(actual: str, expected: str, relative: float, absolute: float, as_json: bool) -> int:
    """Compare two arrays, such as what two devices gave: exactly, or within a tolerance.

    Shapes may differ as long as the elements are as many: DxDispatch writes lines of elements.
    Exits with 1 where the arrays differ by more.
    """
    left, right = read_array(actual), read_array(expected)
    if left.dtype != right.dtype or left.size != right.size:
        raise DmlcError(
            f"'{actual}' has {left.size:,} elements of {left.dtype}, and '{expected}' "
            f"{right.size:,} of {right.dtype}: they cannot be compared"
        )
    found = compare(
        np.ravel(left), np.ravel(right), Tolerance(relative, absolute).allow(np.ravel(right))
    )
    if as_json:
        described = {
            "within": found.within,
            "elements": found.elements,
            "different": found.different,
            "largest_difference": found.largest,
            "largest_relative": found.largest_relative,
            "out_of_place": found.misplaced,
            "worst": None if found.worst is None else list(found.worst),
        }
        click.echo(json.dumps(described, indent=2))
    else:
        click.echo(str(found))
    return 0 if found.within else 1
