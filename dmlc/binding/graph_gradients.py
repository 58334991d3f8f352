"""Gradients of a graph's values: what may be asked for, and the stages that derive them.

They stand beside the graph's own stages and read those where they need a value, so that nothing is
computed twice because it is differentiated. Fusion decides what is kept and what is computed again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dmlc import ir
from dmlc.binding.gradient import warn_of_nothing
from dmlc.binding.stages import drop_unread, rename_stage
from dmlc.binding.tensors import show_sizes
from dmlc.binding.values import span_text
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, Note, Span
from dmlc.transform.differentiate import differentiate


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph, and where it is named."""

    name: str
    dtype: DataType
    extents: tuple[ir.Extent, ...]
    span: Span


def check_asked(
    of: Sequence[Tensor], wrt: Sequence[Tensor], given: Sequence[Tensor]
) -> list[Diagnostic]:
    """What is wrong with gradients of some tensors, from the gradients of those if they are
    given."""
    found: list[Diagnostic] = []
    for tensor in (*of, *wrt):
        if not tensor.dtype.is_float:
            message = f"{span_text(tensor.span)} is {tensor.dtype.name}, and has no gradient"
            found.append(Diagnostic(message, tensor.span))
    for tensor in () if given else of:
        if any(extent != 1 for extent in tensor.extents):
            cure = "say from which gradient of it, as in 'from dy', or reduce it to one value"
            sizes = show_sizes(tensor.extents)
            message = f"{span_text(tensor.span)} has sizes {sizes}, and a gradient is of one value"
            found.append(Diagnostic(message, tensor.span, (Note(cure),)))
    for tensor, own in zip(of, given, strict=False):
        for what, one, two in (
            ("", own.dtype.name, tensor.dtype.name),
            ("sizes ", show_sizes(own.extents), show_sizes(tensor.extents)),
        ):
            if one != two:
                has = "has" if what else "is"
                message = (
                    f"{span_text(own.span)} {has} {what}{one}, but what it is the gradient of "
                    f"{has} {what}{two}"
                )
                note = Note("a gradient has the type and the sizes of its tensor", tensor.span)
                found.append(Diagnostic(message, own.span, (note,)))
    return found


def make_one(name: str, tensor: Tensor) -> ir.Stage:
    """The gradient of one value with respect to itself."""
    body = ir.Body.make([ir.Constant(tensor.dtype.compute, 1.0)], 0)
    return ir.Stage(name, tensor.dtype, tensor.extents, body, None, tensor.span)


def derive_stages(
    parameters: Sequence[ir.Parameter],
    stages: Sequence[ir.Stage],
    given: Mapping[str, str],
    wanted: Mapping[str, str],
    fresh: Callable[[str], str],
    span: Span,
) -> tuple[list[ir.Stage], list[Diagnostic]]:
    """The stages of gradients, to stand behind those of the graph, and warnings.

    `given` has the tensor that holds the gradient of each that is differentiated, and `wanted` the
    name for the gradient by each that is differentiated by.
    """
    made = {s.name for s in stages}
    needed = drop_unread(stages, [n for n in (*given, *wanted) if n in made])
    results = tuple(ir.Result(name) for name in given if name in made)
    function = ir.Function("forward", tuple(parameters), needed, results)
    # What is at hand comes in under names of its own, and is called again what it is.
    adjoints = {name: fresh(f"{name}_given") for name in given}
    kept = {name: fresh(f"{name}_kept") for name in wanted if name in made}
    found = differentiate(function, tuple(wanted), adjoints, wanted, kept)
    names = {adjoints[name]: own for name, own in given.items()}
    names |= {own: name for name, own in kept.items()}
    derived: list[ir.Stage] = []
    for stage in found.function.stages:
        if stage.name not in made:
            names[stage.name] = stage.name if stage.name in wanted.values() else fresh(stage.name)
            derived.append(rename_stage(stage, names, span))
    warnings = [warn_of_nothing(f"'{wanted[n]}'", f"'{n}'", span) for n in found.vanishing]
    return derived, warnings
