"""Correspondence of a hand-written gradient's rows with its forward operator.

Rows are matched as those of `gradient of` are, by the lines of `forward` and by name, and by two
conventions: a statistic of a training pass (`mean`, `MeanTensor`) is its output (`batch_mean`,
`OutputMeanTensor`), and if `use_dst` is true, `src` is `dst`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dmlc.language import syntax
from dmlc.language.check_gradient import check_gradients
from dmlc.language.definitions import GradientDefinition, OperatorDefinition
from dmlc.source import Diagnostic, DmlcError, InternalError

_AT_HAND = ("batch_", "Output")
"""Prefixes of a training pass's outputs that the gradient's rows lack."""


def match_partner(
    gradient: OperatorDefinition, forward: OperatorDefinition, *, use_dst: bool
) -> GradientDefinition:
    """Forward tensor or gradient of each row. Raises `DmlcError` for rows that do not match."""
    if gradient.gradient is not None:
        return gradient.gradient
    span = gradient.syntax.name.span

    def named(text: str) -> syntax.Name:
        return syntax.Name(text, span=span)

    declared = gradient.syntax.forward
    stated = () if declared is None else tuple(line.name.text for line in declared.lines)
    lines = tuple(
        syntax.GradientLine(named(own), named(theirs), False, span=span)
        for own, theirs in _find_at_hand(gradient, forward, use_dst=use_dst)
        if own not in stated
    )
    section = syntax.GradientOf(named(forward.name), (), lines, span=span)
    derived = dataclasses.replace(gradient.syntax, compute=None, gradient_of=section)
    made = dataclasses.replace(gradient, compute=None, syntax=derived)
    mistakes: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    found = check_gradients([made], lambda _: forward, mistakes, warnings)
    if mistakes:
        raise DmlcError(mistakes)
    matched = found[gradient.name].gradient
    if matched is None:
        raise InternalError("what is checked as a gradient is one")
    return matched


def _find_at_hand(
    gradient: OperatorDefinition, forward: OperatorDefinition, *, use_dst: bool
) -> Iterator[tuple[str, str]]:
    """Rows with a result of the forward operator under another name."""
    outputs = [t.name for t in forward.newest.outputs]
    for row in gradient.newest.inputs:
        spelt = [f"{before}{row.name}" for before in _AT_HAND]
        if use_dst and row.name == "src":
            spelt.append("dst")
        for name in spelt:
            if name in outputs:
                yield row.name, name
                break
