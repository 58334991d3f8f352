"""Permitted deviations of other implementations: the conditions of an operator's sections
`differs`.

The reference evaluates a condition from a call's inputs. A condition with an output's sizes, or
broadcastable to them, selects the elements that may differ; any other lets the whole output differ
if it holds anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dmlc import ir
from dmlc.binding import ir_name
from dmlc.binding.compute import lower_condition
from dmlc.language import syntax
from dmlc.oracle import find_expected
from dmlc.scalars import Array
from dmlc.testing.case import Call, Case, find_wanted, store
from dmlc.testing.compare import find_within


def find_concerned(
    call: Call, difference: syntax.Difference, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Elements of each output that a section `differs` concerns: boolean arrays with the outputs'
    sizes, by name, without outputs that it does not concern. Raises `DmlcError` for a call that the
    operator refuses, and for an invalid condition."""
    binding = call.binding
    if difference.tensor is not None and difference.tensor.text not in binding.tensors:
        return {}
    found = _decide(lower_condition(binding, difference), inputs)
    if not found.any():
        return {}
    only = None if difference.tensor is None else difference.tensor.text
    concerned: dict[str, Array] = {}
    for name in call.outputs:
        if only is None or name == only:
            concerned[name] = _spread(found, binding.tensors[name].shape)
    return concerned


def find_all_concerned(call: Call, inputs: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Elements that each section `differs` of the operator concerns, by title, without sections
    that do not concern the call. Raises as `find_concerned` does."""
    found: dict[str, dict[str, Array]] = {}
    for difference in call.operator.definition.differences:
        concerned = find_concerned(call, difference, inputs)
        if concerned:
            found[difference.title] = concerned
    return found


def _decide(condition: ir.Function | bool, inputs: Mapping[str, Array]) -> Array:
    """Elements of a condition; one without sizes has a single element."""
    if isinstance(condition, bool):
        return np.array(condition)
    given = {ir_name(name): array for name, array in inputs.items()}
    (found,) = find_expected(condition, given).values()
    return found.astype(bool)


def _spread(found: Array, sizes: tuple[int, ...]) -> Array:
    """Condition broadcast to an output's sizes."""
    alike = found.ndim == len(sizes)
    if alike and all(n in (1, size) for n, size in zip(found.shape, sizes, strict=True)):
        return np.broadcast_to(found, sizes)
    return np.full(sizes, bool(found.any()))


def find_faults(case: Case) -> list[str]:
    """Errors in the case of a section `differs`, one sentence each: the other implementations'
    value must be outside the error bound of the expected one, and the condition must hold at each
    such element."""
    difference = case.difference
    if difference is None:
        return []
    concerned, wanted = find_concerned(case.call, difference, case.inputs), find_wanted(case)
    faults: list[str] = []
    for name, values in case.instead.items():
        expected, allowed = wanted.expected[name], wanted.allowed[name]
        dtype = case.call.tensors[name].data_type
        # Where nothing is known of a result, as of 0 / 0, any other number differs; of whole
        # numbers always, though floats that are cut to them may come to either.
        allowed = np.where(np.isfinite(allowed) & dtype.is_float, allowed, 0.0)
        instead = store(values, dtype)
        differs = ~find_within(instead, expected, allowed)
        if not differs.any():
            faults.append(f"{name}: what others give does not differ beyond the bounds")
        elif not (concerned.get(name, False) | ~differs).all():
            faults.append(f"{name}: the condition does not hold where it differs")
    return faults
