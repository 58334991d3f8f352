"""Numbers of steps of an operator's recurrences, and calls with given numbers.

A recurrence with 0 steps computes nothing, with 1 it has no previous step, and with 2 it has one
for the first time. Random calls have each of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.values import whole_number
from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition
from dmlc.language.recurrences import find_recurrences
from dmlc.source import DmlcError
from dmlc.testing.drafts import Draft

STEPS = (1, 2, 0)
"""Numbers of steps that calls are to have."""


def has_steps(definition: OperatorDefinition) -> bool:
    """Whether an operator has a recurrence, or is the gradient of one that has."""
    while definition.gradient is not None:
        definition = definition.gradient.forward
    return bool(_list_extents(definition))


def count_steps(binding: Binding) -> set[int]:
    """Numbers of steps of a bound operator's recurrences, as far as they follow from its sizes and
    attributes."""
    while binding.operator.gradient is not None and binding.forward is not None:
        binding = binding.forward
    evaluator = Evaluator(binding)
    for statement in binding.operator.compute or ():
        _define(evaluator, statement)
    found: set[int] = set()
    for extent in _list_extents(binding.operator):
        try:
            steps = whole_number(evaluator.constant(extent))
        except DmlcError:
            continue  # It depends on what is no name of the tables.
        if steps is not None:
            found.add(steps)
    return found


def list_moves(draft: Draft, steps: int) -> Iterator[Draft]:
    """Drafts with one size, or one attribute, set to `steps`; an equal size along the same axis of
    other tensors is set too."""
    for name, sizes in draft.sizes.items():
        for axis, size in enumerate(sizes):
            alike = [n for n, s in draft.sizes.items() if axis < len(s) and s[axis] == size]
            for chosen in ([name], alike) if len(alike) > 1 else ([name],):
                moved = draft.copy()
                for each in chosen:
                    own = draft.sizes[each]
                    moved.sizes[each] = (*own[:axis], steps, *own[axis + 1 :])
                yield moved
    for name, value in draft.attributes.items():
        if name != draft.wish.attribute and isinstance(value, int) and not isinstance(value, bool):
            moved = draft.copy()
            moved.attributes[name] = steps
            yield moved


def _list_extents(definition: OperatorDefinition) -> list[syntax.Expression]:
    """Extent of the first index of each name that a recurrence defines."""
    statements = definition.compute or ()
    tensors = {tensor.name for tensor in definition.newest.tensors}
    return [
        statement.indices[0].extent
        for recurrence in find_recurrences(statements, tensors)
        for statement in statements[recurrence.first : recurrence.last + 1]
        if isinstance(statement, syntax.Assignment)
        and statement.name.text in recurrence.names
        and statement.indices
        and statement.indices[0].extent is not None
    ]


def _define(evaluator: Evaluator, statement: syntax.Statement) -> None:
    """Defines a function, or a named number, of the formula in the evaluator."""
    if isinstance(statement, syntax.ScalarFunction):
        evaluator.functions[statement.name.text] = statement
    elif statement.indices is None:
        try:
            evaluator.locals[statement.name.text] = evaluator.constant(statement.value)
        except DmlcError:
            return  # It depends on elements.
