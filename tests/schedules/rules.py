"""The nests that rules choose for the library's operators."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dmlc import ir, library
from dmlc.binding import Operator
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import Phase
from dmlc.loops.primitives import apply
from dmlc.loops.script import parse_script, print_script
from dmlc.lowering import assemble
from dmlc.pipeline import make_kernels
from dmlc.source import UnsupportedError
from dmlc.testing.examples import read_cases

TARGETS = (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", None), ("wgsl", None))


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A nest that a rule has chosen, and what it was told."""

    nest: Nest
    function: ir.Function
    phases: Sequence[Phase]
    limits: Limits
    count: k.Scalar | None


def choose_nests(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> list[Chosen]:
    """The nests of all kernels of the first example of an operator."""
    return choose_for(_find(name), target, profile, monkeypatch)


def choose_for(
    function: ir.Function, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> list[Chosen]:
    """The same for a function."""
    chosen: list[Chosen] = []
    choose = assemble.choose

    def watch(function: Any, phases: Any, p: Any, limits: Any, *rest: Any, **options: Any) -> Nest:
        nest = choose(function, phases, p, limits, *rest, **options)
        chosen.append(Chosen(nest, function, phases, limits, options["count"]))
        return nest

    monkeypatch.setattr(assemble, "choose", watch)
    _lower(function, target, profile)
    return chosen


def follow_scripts(chosen: Sequence[Chosen]) -> Iterator[tuple[Nest, Nest]]:
    """Nests that rules have chosen, and what their scripts, read as text again, make of the naive
    ones."""
    for each in chosen:
        script = parse_script(print_script(each.nest.script))
        begun = naive(each.phases, each.count)
        yield each.nest, apply(begun, each.function, each.limits, *script)


def list_nests(
    name: str, target: str, profile: str | None, monkeypatch: pytest.MonkeyPatch
) -> list[Nest]:
    """The nests of the same kernels, and of those that no rule chooses for."""
    nests: list[Nest] = []
    lower = assemble.lower_nest

    def watch(nest: Nest, *rest: Any) -> Any:
        nests.append(nest)
        return lower(nest, *rest)

    monkeypatch.setattr(assemble, "lower_nest", watch)
    _lower(_find(name), target, profile)
    return nests


def _find(name: str) -> ir.Function:
    operator = Operator(library.find(name).operators[name])
    return next(read_cases(operator, operator.definition.examples[0])).call.function


def _lower(function: ir.Function, target: str, profile: str | None) -> None:
    # HLSL has few operations of FLOAT64, and WGSL few types.
    with contextlib.suppress(UnsupportedError):
        make_kernels(function, target, profile)
