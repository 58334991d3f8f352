"""Tests of operators against the reference, within computed error bounds.

The names below are public; the other modules may change. Each name is imported at its first use.
`bindings` and `arrays` need Hypothesis, which `pip install 'dmlc[test]'` brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import Extra, import_lazily

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

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "asserts": ("assert_gradient", "assert_matches_reference"),
        "candidate": ("Kernel", "Options"),
        "case": ("Call", "Case"),
        "function": ("Function",),
        "harness": ("run_tests",),
        "judging": ("Judgement", "judge"),
        "outcome": ("Outcome",),
        "strategies": ("arrays", "bindings"),
    },
    Extra("test", {"hypothesis": "hypothesis"}),
)
