"""Binding gradients of files whose words were exchanged for others: `DmlcError` or a function.

What stands in such a file is mostly well formed and means something else: other tensors, other
operators, other sizes. 2,000 cases from fixed seeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from dmlc import ir
from dmlc.binding import Module, TensorDesc
from dmlc.language.check import check_text
from dmlc.source import DmlcError

SEEDS = (
    """operator F {
    attributes { | Attribute | Type | Default |
                 | k         | FLOAT | 2      | }
    tensors { | Tensor | Kind   | Types   |
              | x      | Input  | f32, s8 |
              | w      | Input  | f32     |
              | y      | Output | f32     | }
    compute { y = max(x * w, k) + floor(x) }
}
operator FG {
    attributes { | Attribute | Type  |
                 | k         | FLOAT | }
    tensors { | Tensor | Kind   | Types |
              | x      | Input  | f32   |
              | v      | Input  | f32   |
              | d_y    | Input  | f32   |
              | dx     | Output | f32   |
              | dv     | Output | f32   | }
    gradient of F { v = w dv = gradient of w }
}
operator FGG {
    tensors { | Tensor | Kind   | Types |
              | x      | Input  | f32   |
              | v      | Input  | f32   |
              | d_y    | Input  | f32   |
              | d_dx   | Input  | f32   |
              | d_v    | Output | f32   | }
    gradient of FG with respect to v
}
""",
    """operator F {
    tensors { | Tensor | Kind            |
              | x      | Input           |
              | y      | Output          |
              | z      | Optional output | }
    compute {
        y    = sum(x * x, axes: [0])
        z[i] = x[i, 0] * x[0, 0]
    }
}
operator FG {
    tensors { | Tensor | Kind           |
              | x      | Input          |
              | dy     | Input          |
              | dz     | Optional input |
              | dx     | Output         | }
    gradient of F with respect to x
}
graph g[N](x: FLOAT32[N, 2], dy: FLOAT32[1, 2], dz: FLOAT32[N]) {
    a = F(x: x)
    output b    = FG(x: x, dy: dy, dz: dz)
    output c, d = gradient of a.y, a.z with respect to x, dy from dy, dz
    output e    = gradient of sum(c * b, axes: [0, 1]) with respect to x
}
""",
    """graph g[N](x: FLOAT32[N, 2], w: FLOAT16[1, 2], dy: FLOAT32[N, 2], i: INT32[N, 2]) {
    h = x * w
    y = exp(h) + (i > 1 ? h : 0)
    loss = sum(y, axes: [0, 1])
    output dx, dw = gradient of loss with respect to x, w
    dh = gradient of y with respect to h from dy
    output g = dh + gradient(loss, wrt: h)
}
""",
)
NAME = re.compile(r"\b(?:[a-z]_?[a-z]{0,2}|F\w*|loss|max|sum|exp|floor|[0-9]+)\b")
CASES, SHARES = 2_000, 4


def exchange(random_source: random.Random) -> str:
    """A valid file, some words of which stand in the place of others."""
    text = random_source.choice(SEEDS)
    for _ in range(random_source.choice((1, 1, 2, 3))):
        words = list(NAME.finditer(text))
        one, other = random_source.choice(words), random_source.choice(words)
        text = text[: one.start()] + other.group() + text[one.end() :]
    return text


def bind(module: Module) -> Iterator[ir.Function]:
    """Everything in a file that binds for some sizes."""
    for graph in module.graphs.values():
        for dims in ({}, dict.fromkeys(graph.symbols, 3)):
            try:
                yield graph.bind(dims=dims)
            except DmlcError:
                continue
    for operator in module.operators.values():
        for sizes in ((2,), (3, 2), (1, 2)):
            rows = [t for t in operator.tensors.values() if len(sizes) == 2 or not t.output]
            try:
                yield operator.bind({t.name: TensorDesc(t.data_types[0], sizes) for t in rows})
            except DmlcError:
                continue


@pytest.mark.grid(2)
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("share", range(SHARES))
def test_gradients_bind_or_are_refused(share: int) -> None:
    random_source = random.Random(share)
    bound = 0
    for _ in range(CASES // SHARES):
        text = exchange(random_source)
        try:
            module = Module.of(check_text(text, "fuzz.dml"))
        except DmlcError:
            continue
        try:
            bound += sum(1 for function in bind(module) if function.results)
        except Exception as error:
            raise AssertionError(f"{error!r} on:\n{text}") from error
    assert bound > 50
