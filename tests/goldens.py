"""The golden cases: their functions, what they are given, and how a result is judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dmlc import ir
from dmlc.scalars import Array
from tests import positions, reductions
from tests.agreement import disagreements
from tests.samples import sample

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.ir"))
INEXACT = {"batch_norm_apply": 4.0, "gelu": 4.0, "two_results": 4.0, "scale_by_one": 4.0}
"""Cases whose rounding may differ from the reference's by that many units in the last place."""

FOLDED = {
    "argmax_of_rows": 200,
    "batch_norm_training_grad": 6272,
    "batch_norm_training_grad_columns": 50,
    "batch_norm_training_grad_f16": 196,
    "batch_norm_training_grad_f16_planes": 6400,
    "layer_norm_grad": 512,
    "softmax_rows": 200,
    "sum_of_everything": 150_000,
}
"""Cases with reductions, and how many points each folds: they are given moderate values, and
differ as sums of so many do."""

PLACED = {
    "average_pool", "flip_rows", "gather", "max_pool_place", "pad", "resample_grad_linear",
    "resample_grad_nearest", "resample_grad_thirds", "resample_linear", "segments", "slice",
    "space_to_depth", "upsample_grad_of_mean",
}  # fmt: skip
"""Cases that compute with positions: they are given whole numbers, and come out exactly."""


def read_case(case: str) -> ir.Function:
    return ir.parse((GOLDEN / f"{case}.ir").read_text(encoding="utf-8"), f"{case}.ir")


def make_inputs(function: ir.Function, count: int) -> dict[str, Array]:
    if function.name in PLACED:
        return positions.make_inputs(function)
    if any(stage.reduction is not None for stage in function.stages):
        return reductions.make_inputs(function)
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        shape = tuple(e if isinstance(e, int) else count for e in p.extents)
        if p.strides is not None:  # one element where a stride of 0 repeats it
            own = tuple(e if s else 1 for e, s in zip(shape, p.strides, strict=True))
            inputs[p.name] = np.broadcast_to(sample(p.dtype, own, p.name), shape)
        else:
            inputs[p.name] = sample(p.dtype, shape, p.name)
    return inputs


def find_wrong(case: str, got: dict[str, Array], wanted: dict[str, Array]) -> list[str]:
    """What a device computed wrongly in a case."""
    if case in PLACED:
        return positions.find_differences(got, wanted)
    if case in FOLDED:
        return reductions.find_disagreements(got, wanted, FOLDED[case], size=4.0)
    ulps = INEXACT.get(case, 0.0)
    return [
        f"{name}: {wrong[:5]}"
        for name, values in wanted.items()
        if (wrong := disagreements(got[name], values, ulps, transcendental=ulps > 0)).size
    ]
