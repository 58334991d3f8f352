"""Inlining: what it made of a stage serves for as long as the same is inlined."""

from __future__ import annotations

from typing import Any

import pytest

from dmlc import ir
from dmlc.ir import Function
from dmlc.transform import inline
from dmlc.transform.cost import Budget
from dmlc.transform.inline import Attempts, inline_producers

_BUDGET = Budget()


def _make_chains(count: int) -> Function:
    """Results each of which is computed from two stages of its own."""
    lines = ["func @f(%x: f32[4]) -> (" + ", ".join(f"%r{n}" for n in range(count)) + ") {"]
    for n in range(count):
        lines += [
            f"  %a{n}: f32[i0 < 4] = mul(%x[i0], {n + 2}.0)",
            f"  %b{n}: f32[i0 < 4] = exp(%a{n}[i0])",
            f"  %r{n}: f32[i0 < 4] = add(%b{n}[i0], %a{n}[i0])",
        ]
    return ir.parse("\n".join([*lines, "}"]))


def test_only_what_changes_is_inlined_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    function, tried = _make_chains(6), list[str]()
    bounded = inline._inline_bounded

    def count(stage: Any, *rest: Any) -> Any:
        tried.append(stage.name)
        return bounded(stage, *rest)

    monkeypatch.setattr(inline, "_inline_bounded", count)
    attempts: Attempts = {}
    for stored, expected in (
        ({}, {f"r{n}" for n in range(6)}),
        ({"a3": "it is wanted"}, {"r3", "a3"}),
        ({"a3": "it is wanted", "b4": "it is wanted"}, {"r4", "b4"}),
        ({}, {"r3", "r4"}),
    ):
        tried.clear()
        kept = inline_producers(function, stored, (), _BUDGET, attempts)
        assert set(tried) == expected
        anew = inline_producers(function, stored, (), _BUDGET)
        assert kept == anew
