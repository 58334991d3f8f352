"""What the rows of a gradient operator that is written by hand stand for, of its forward operator.

Rows are matched as `gradient of` matches them, by the lines of `forward` and by name, and by two
habits of the families: what is at hand of a training pass (`mean`, `MeanTensor`) is its output
(`batch_mean`, `OutputMeanTensor`), and where `use_dst` is true, `src` is `dst`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dmlc.language import syntax
from dmlc.language.check_gradient import check_gradients
from dmlc.language.definitions import GradientDefinition, OperatorDefinition
from dmlc.source import Diagnostic, DmlcError, InternalError

_AT_HAND = ("batch_", "Output")
"""What stands before the name of a training pass's output, and not before that of the row that
holds it in the gradient's table."""


def match_partner(
    gradient: OperatorDefinition, forward: OperatorDefinition, *, use_dst: bool
) -> GradientDefinition:
    """Which row of a gradient operator stands for what of its forward operator. Raises `DmlcError`
    where rows cannot be matched."""
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
    """The rows that hold a result of the forward operator under another name than its own."""
    outputs = [t.name for t in forward.newest.outputs]
    for row in gradient.newest.inputs:
        spelt = [f"{before}{row.name}" for before in _AT_HAND]
        if use_dst and row.name == "src":
            spelt.append("dst")
        for name in spelt:
            if name in outputs:
                yield row.name, name
                break
