"""Tests of operators: how near results are to the reference, and how near they must be.

The names below are the public face; the other modules may change. Each name is imported when it is
first used. `bindings` and `arrays` need Hypothesis, which `pip install 'dmlc[test]'` brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import import_lazily
from dmlc.source import UnavailableError

if TYPE_CHECKING:
    from dmlc.testing.asserts import assert_gradient, assert_matches_reference
    from dmlc.testing.candidate import Kernel, Options
    from dmlc.testing.case import Call, Case
    from dmlc.testing.function import Function
    from dmlc.testing.harness import run_tests
    from dmlc.testing.judging import Judgement, judge
    from dmlc.testing.outcome import Outcome
    from dmlc.testing.strategies import arrays, bindings

__all__ = [
    "Call",
    "Case",
    "Function",
    "Judgement",
    "Kernel",
    "Options",
    "Outcome",
    "arrays",
    "assert_gradient",
    "assert_matches_reference",
    "bindings",
    "judge",
    "run_tests",
]


def _explain(name: str, package: str) -> UnavailableError | None:
    if package != "hypothesis":
        return None
    return UnavailableError(
        f"dmlc.testing.{name} needs Hypothesis, which is not installed",
        notes=["pip install 'dmlc[test]' installs it"],
    )


__getattr__, __dir__ = import_lazily(
    globals(),
    {
        "dmlc.testing.case": ("Call", "Case"),
        "dmlc.testing.function": ("Function",),
        "dmlc.testing.judging": ("Judgement", "judge"),
        "dmlc.testing.candidate": ("Kernel", "Options"),
        "dmlc.testing.outcome": ("Outcome",),
        "dmlc.testing.strategies": ("arrays", "bindings"),
        "dmlc.testing.asserts": ("assert_gradient", "assert_matches_reference"),
        "dmlc.testing.harness": ("run_tests",),
    },
    _explain,
)
