"""Tests of operators: how near results are to the reference, and how near they must be.

The names below are the public face; the other modules may change. Each name is imported when it is
first used. `bindings` and `arrays` need Hypothesis, which `pip install 'dmlc[test]'` brings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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

_PLACES = {
    "Call": "dmlc.testing.case",
    "Case": "dmlc.testing.case",
    "Function": "dmlc.testing.function",
    "Judgement": "dmlc.testing.judging",
    "Kernel": "dmlc.testing.candidate",
    "Options": "dmlc.testing.candidate",
    "Outcome": "dmlc.testing.outcome",
    "arrays": "dmlc.testing.strategies",
    "assert_gradient": "dmlc.testing.asserts",
    "assert_matches_reference": "dmlc.testing.asserts",
    "bindings": "dmlc.testing.strategies",
    "judge": "dmlc.testing.judging",
    "run_tests": "dmlc.testing.harness",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'dmlc.testing' has no attribute '{name}'")
    try:
        module = importlib.import_module(_PLACES[name])
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise UnavailableError(
            f"dmlc.testing.{name} needs Hypothesis, which is not installed",
            notes=["pip install 'dmlc[test]' installs it"],
        ) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
