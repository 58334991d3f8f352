"""Points where a derived gradient is a choice among several, for `dmlc show`.

The derivation depends on the binding, on attributes above all, so each example is tried: those of
the operator, or else those of its forward operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.facts import Binding
from dmlc.binding.gradient import derive
from dmlc.binding.operator import Description
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from dmlc.transform.differentiate import Choice


def find_choices(operator: Operator) -> tuple[Choice, ...]:
    """Choices of an operator with `gradient of` at points without a unique derivative, over all its
    examples."""
    gradient = operator.definition.gradient
    if gradient is None:
        return ()
    found: dict[Choice, None] = {}
    for binding in _list_bindings(operator):
        try:
            found.update(dict.fromkeys(derive(binding, gradient).choices))
        except DmlcError:
            continue  # To bind it says why.
    return tuple(found)


def _list_bindings(operator: Operator) -> Iterator[Binding]:
    """Bindings of the operator's examples, or of those that its forward operator's examples
    imply."""
    definition = operator.definition
    for example in definition.examples:
        with contextlib.suppress(DmlcError):
            yield next(read_cases(operator, example)).call.binding
    gradient = definition.gradient
    if definition.examples:
        return
    if gradient is None:
        with contextlib.suppress(DmlcError):
            yield operator.resolve()
        return
    for forward in _list_bindings(Operator(gradient.forward)):
        described: dict[str, Description] = {}
        for name, tensor in forward.tensors.items():
            row = tensor.definition.row
            if tensor.dtype is None or tensor.sizes is None:
                continue
            for own in gradient.rows(row):
                described[name.replace(row, own, 1)] = TensorDesc(tensor.dtype, tensor.sizes)
        attributes = {own: forward.attributes[n] for n, own in gradient.attributes.items()
                      if n in forward.attributes}  # fmt: skip
        try:
            yield operator.resolve(described, attributes)
        except DmlcError:
            continue  # It does not take what its forward operator takes there.
