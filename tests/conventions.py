"""Gradients at points where a formula has no one derivative, or an infinite one: what PyTorch's
autograd gives there, as `tests/peers` checks, and dmlc too."""

from __future__ import annotations

import dataclasses
import math

INF = math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Convention:
    """The gradient of the sum of a formula of x and y, by one of the two."""

    formula: str
    """In the language, on tensors of one axis."""
    torch: str
    """The same for PyTorch."""
    x: tuple[float, ...]
    gradient: tuple[float, ...]
    y: tuple[float, ...] = ()
    wrt: str = "x"


CONVENTIONS = (
    Convention("abs(x)", "x.abs()", (0.0, -0.0, -2.0), (0, 0, -1)),
    Convention("sqrt(x)", "x.sqrt()", (0.0, 4.0), (INF, 0.25)),
    Convention("rsqrt(x)", "x.rsqrt()", (0.0, 4.0), (-INF, -0.0625)),
    Convention("log(x)", "x.log()", (0.0, 4.0), (INF, 0.25)),
    Convention("max(x, 0)", "x.relu()", (0.0, -1.0, 1.0), (0, 0, 1)),
    Convention("max(x, -x)", "torch.maximum(x, -x)", (0.0, 3.0), (0, 1)),
    Convention("x + 0 * sign(x)", "x + 0 * x.sign()", (0.0, 3.0), (1, 1)),
    Convention("x * floor(x)", "x * x.floor()", (2.0, 2.5), (2, 2)),
    Convention("x * (x > 0 ? 1 : 0)", "x * (x > 0)", (0.0, 2.5), (0, 1)),
    Convention("pow(x, 0)", "x.pow(0)", (0.0, 3.0), (0, 0)),
    Convention("pow(x, 0.5)", "x.pow(0.5)", (0.0, 4.0), (INF, 0.25)),
    Convention("pow(x, y)", "x.pow(y)", (0, 0, 0, 2), (0, 0, 1, 4), (0, 2, 1, 2)),
    Convention("pow(x, y)", "x.pow(y)", (0, 0, 0, 1), (0, 0, -INF, 0), (0, 2, -1, 2), "y"),
    Convention("sqrt(sum(x * x, axes: [0]))", "torch.linalg.vector_norm(x)", (0.0, -0.0), (0, 0)),
    Convention(
        "sqrt(sum(x * x, axes: [0]))", "torch.linalg.vector_norm(x)", (3.0, -4.0), (0.6, -0.8)
    ),
    Convention("sum(abs(x), axes: [0])", "torch.linalg.vector_norm(x, 1)", (0.0, 2.0), (0, 1)),
    Convention(
        "pow(sum(pow(abs(x), 3), axes: [0]), 1 / 3)",
        "torch.linalg.vector_norm(x, 3)",
        (0.0, 0.0),
        (0, 0),
    ),
    Convention(
        "pow(sum(pow(abs(x), 1.5), axes: [0]), 1 / 1.5)",
        "torch.linalg.vector_norm(x, 1.5)",
        (0.0, 0.0),
        (0, 0),
    ),
    Convention(
        "pow(sum(pow(abs(x), 1.5), axes: [0]), 1 / 1.5)",
        "torch.linalg.vector_norm(x, 1.5)",
        (0.0, -2.0),
        (0, -1),
    ),
    Convention("max(abs(x), axes: [0])", "torch.linalg.vector_norm(x, torch.inf)", (0.0,), (0,)),
)
"""The rules are PyTorch's: JAX has others for `abs(x)` at 0, which it takes for x there, and for
`pow(0, y)` by y where that is negative."""
