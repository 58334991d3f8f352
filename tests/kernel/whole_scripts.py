"""Functions whose kernels one call of a primitive makes of the naive nest: what it is given decides
how points are shared out, and never what they come to."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.target import Limits
from dmlc.loops.naive import find_kept, naive
from dmlc.loops.nodes import Nest
from dmlc.loops.primitives import apply
from dmlc.loops.script import parse_script
from dmlc.lowering import assemble
from dmlc.pipeline import Steps, make_kernels
from dmlc.reference import evaluate
from dmlc.schedules.choose import choose
from dmlc.testing.bounds import bound_errors
from dmlc.transform import crossing
from tests.attention import ONLINE, Attention
from tests.crossing import Rows
from tests.reductions import make_inputs
from tests.schedules.nest_mutants import replaced
from tests.windows import make_windows


@dataclasses.dataclass(frozen=True)
class Whole:
    """A function, and the device whose fusion gives it such a kernel."""

    function: ir.Function
    target: str = "opencl"
    profile: str = "cpu"
    steps: Steps | None = None

    def run(self, script: str) -> list[Nest]:
        """The nests that a script makes of its kernels, or the naive ones without; their results in
        the interpreter are the reference's. Raises `ScheduleError`."""
        function = self.function
        inputs = make_inputs(function)
        with choosing(script) as nests:
            fused, kernels = make_kernels(
                function, self.target, self.profile, steps=self.steps or Steps()
            )
        found = run_kernels(fused, kernels, inputs)
        wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
        for name, values in found.items():
            got, expected = values.astype(np.float64), wanted[name].astype(np.float64)
            assert (np.abs(got - expected) <= allowed[name]).all(), f"'{name}' is wrong"
        return nests


@contextlib.contextmanager
def choosing(script: str) -> Iterator[list[Nest]]:
    """Has what keeps rows, or reduces down their columns, by a script of its own."""
    made: list[Nest] = []

    def choose_own(
        function: Any, phases: Any, p: Any, limits: Limits, *rest: Any, **how: Any
    ) -> Nest:
        if find_kept(phases) or any(phase.is_across for phase in phases):
            made.append(apply(naive(phases), function, limits, *parse_script(script)))
            return made[-1]
        return choose(function, phases, p, limits, *rest, **how)

    short = [(crossing, "_LEAST_ROW", 4), (crossing, "_LEAST_ROWS", 4)]
    with contextlib.ExitStack() as stack:
        for owner, name, value in ((assemble, "choose", choose_own), *short):
            stack.enter_context(replaced(owner, name, value))
        yield made


def lay_lines(rows: int, columns: int, step: tuple[int, int] = (2, 1)) -> Whole:
    """Sums of windows, whose rows are kept."""
    return Whole(make_windows(rows, columns, 4, step, 1))


def attend(
    queries: int, keys: int, profile: str, mask: str = "", *, gradient: bool = False
) -> Whole:
    """Attention of one head, or its gradient."""
    made = Attention(queries, keys, heads=1, mask=mask)
    function = made.differentiate() if gradient else made.make()
    return Whole(function, "opencl", profile, ONLINE)


def draw_whole(draw: random.Random) -> tuple[str, Whole, str]:
    """A function, with what it is called, and a script for its kernels."""
    kind = draw.choice(("cross", "cross", "line_buffer", "line_buffer", "online"))
    if kind == "cross":
        kernel, rows = draw.choice(("layer_norm", "softmax")), draw.randint(4, 20)
        function = Rows((rows, draw.choice((4, 8, 12, 16, 17, 32)))).make(kernel)
        numbers = draw.choice((2, 4, 8)), draw.choice((1, 2, 4)), draw.choice((1, 4, 8))
        return kernel, Whole(function, "hlsl", "gpu"), f"cross {' '.join(map(str, numbers))}"
    if kind == "line_buffer":
        step, rows = draw.choice(((2, 1), (3, 2), (1, 2), (1, 1))), draw.randint(2, 9)
        at_once = draw.choice([n for n in (1, 1, 2, 3, 4) if 3 * rows % n == 0])
        count = at_once * draw.randint(1, 3 * rows // at_once)
        made = lay_lines(rows, draw.randint(2, 40), step)
        return kind, made, f"line_buffer {count} {at_once} {draw.choice((8, 16))}"
    profile, mask = draw.choice(("cpu", "gpu")), draw.choice(("", "causal"))
    if draw.random() < 0.25:
        made = attend(draw.randint(16, 24), draw.randint(17, 40), profile, mask, gradient=True)
    else:
        made = attend(draw.randint(2, 9), draw.randint(16, 40), profile, mask)
    if profile == "cpu":
        lanes = draw.choice((4, 8, 16))
        return kind, made, f"online {lanes} {lanes} {draw.choice((1, 3, 4, 8))} 1 0 0"
    across, keys = draw.choice((1, 2, 4)), draw.choice((4, 8, 16))
    numbers = 4, draw.choice((4, 8, 16)), keys, across, draw.choice((4, 8)), draw.choice((2, 4))
    return kind, made, f"online {' '.join(map(str, numbers))}"
