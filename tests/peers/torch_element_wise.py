"""DirectML's element-wise operators as PyTorch has them: a row of a table for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.library.run import Array, normal

Function = Callable[..., torch.Tensor]

PLAIN = normal(3, 4)
INSIDE = np.tanh(PLAIN) * np.float32(0.9)
POSITIVE = np.abs(PLAIN) + np.float32(0.5)
ABOVE = np.abs(PLAIN) + np.float32(1.5)
OTHER = normal(3, 4, seed=1)
SCALE, BIAS = 0.75, 0.125
"""Of what takes a ScaleBias: the tables below know nothing of it."""

UNARY: dict[str, tuple[Function, Array]] = {
    "ABS": (torch.abs, PLAIN), "ACOS": (torch.acos, INSIDE), "ACOSH": (torch.acosh, ABOVE * 2),
    "ASIN": (torch.asin, INSIDE), "ASINH": (torch.asinh, PLAIN), "ATAN": (torch.atan, PLAIN),
    "ATANH": (torch.atanh, INSIDE), "CEIL": (torch.ceil, PLAIN), "COS": (torch.cos, PLAIN),
    "COSH": (torch.cosh, PLAIN), "ERF": (torch.erf, PLAIN), "EXP": (torch.exp, PLAIN),
    "FLOOR": (torch.floor, PLAIN), "IDENTITY": (lambda x: x * 1.0, PLAIN),
    "LOG": (torch.log, POSITIVE), "RECIP": (torch.reciprocal, POSITIVE), "SIN": (torch.sin, PLAIN),
    "SINH": (torch.sinh, PLAIN), "SQRT": (torch.sqrt, POSITIVE), "TAN": (torch.tan, INSIDE),
    "TANH": (torch.tanh, PLAIN),
}  # fmt: skip
"""Those that take a ScaleBias and nothing else."""
SETTINGS: dict[str, tuple[Function, Array, dict[str, object]]] = {
    "NEGATE": (torch.neg, PLAIN, {}),
    "SIGN": (torch.sign, PLAIN, {}),
    "ROUND": (torch.round, PLAIN, {"RoundingMode": "HALVES_TO_NEAREST_EVEN"}),
    "CLIP": (lambda x: x.clamp(-0.5, 0.5), PLAIN, {"Min": -0.5, "Max": 0.5}),
    "CLIP1": (lambda x: x.clamp(-0.5, 0.5), PLAIN, {"Min": -0.5, "Max": 0.5}),
    "CONSTANT_POW": (lambda x: x.pow(3), PLAIN, {"Exponent": 3}),
    "THRESHOLD": (lambda x: x.clamp(min=0.25), PLAIN, {"Min": 0.25}),
}
BINARY: dict[str, tuple[Function, Array, Array]] = {
    "ADD": (torch.add, PLAIN, OTHER), "ADD1": (torch.add, PLAIN, OTHER),
    "ATAN_YX": (torch.atan2, PLAIN, OTHER), "DIVIDE": (torch.div, PLAIN, ABOVE),
    "DIFFERENCE_SQUARE": (lambda a, b: (a - b) ** 2, PLAIN, OTHER),
    "MAX": (torch.maximum, PLAIN, OTHER), "MEAN": (lambda a, b: (a + b) / 2, PLAIN, OTHER),
    "MIN": (torch.minimum, PLAIN, OTHER), "MODULUS_FLOOR": (torch.remainder, PLAIN * 3, ABOVE),
    "MODULUS_TRUNCATE": (torch.fmod, PLAIN * 3, ABOVE), "MULTIPLY": (torch.mul, PLAIN, OTHER),
    "SUBTRACT": (torch.sub, PLAIN, OTHER),
}  # fmt: skip
WITHOUT = {
    "CAST": "a type is no part of a formula there",
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE", "DYNAMIC_QUANTIZE_LINEAR"),
                    "its quantization has no gradient"),
    **dict.fromkeys((f"ELEMENT_WISE_{n}" for n in ("QUANTIZE_LINEAR", "DEQUANTIZE_LINEAR",
                                                   "QUANTIZED_LINEAR_ADD")),
                    "its quantization has no gradient"),
    **dict.fromkeys(("ELEMENT_WISE_CLIP_GRAD", "ELEMENT_WISE_CLIP_GRAD1"),
                    "the gradient of a gradient that is 0 or 1"),
}  # fmt: skip
"""What is not compared, and why."""


def list_calls() -> list[tuple[str, dict[str, Array], Callable[[Any], Any], dict[str, object]]]:
    """Operators by their short names, inputs, PyTorch's way to the outputs, and attributes."""
    made: list[tuple[str, dict[str, Array], Callable[[Any], Any], dict[str, object]]] = []
    one, two = "InputTensor", ("ATensor", "BTensor")

    def take(tensors: Any) -> list[torch.Tensor]:
        return [tensors[n] for n in two]

    for name, (function, x) in UNARY.items():
        made.append((name, {one: x}, lambda t, of=function: of(t[one] * SCALE + BIAS),
                     {"ScaleBias": [SCALE, BIAS]}))  # fmt: skip
    for name, (function, x, settings) in SETTINGS.items():
        made.append((name, {one: x}, lambda t, of=function: of(t[one]), settings))
    for name, (function, a, b) in BINARY.items():
        given = dict(zip(two, (a, b), strict=True))
        made.append((name, given, lambda t, of=function: of(*take(t)), {}))
    made.append(("POW", {one: POSITIVE, "ExponentTensor": OTHER},
                 lambda t: t[one].pow(t["ExponentTensor"]), {}))  # fmt: skip
    chosen = (PLAIN > 0).astype(np.uint8)
    given = {"ConditionTensor": chosen, "ATensor": PLAIN, "BTensor": OTHER}
    made.append(("IF", given, lambda t: torch.where(t["ConditionTensor"] != 0, *take(t)), {}))
    return [(f"ELEMENT_WISE_{n}", *rest) for n, *rest in made]
