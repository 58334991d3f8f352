"""Errors of a binding: raised together, and relocated to the call in a graph."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from dmlc.language import syntax
from dmlc.language.definitions import OperatorDefinition
from dmlc.source import Diagnostic, DmlcError, Note, Span

_OPEN = re.compile(r"the sizes of (?:output )?'(\w+)'")
"""Beginning of the messages about sizes that a caller of `bind` must give."""


_MOST_ERRORS = 20


def raise_mistakes(diagnostics: Iterable[Diagnostic], kind: type[DmlcError] = DmlcError) -> None:
    """Raises the first diagnostics, without duplicates; returns if there are none."""
    found = list(dict.fromkeys(diagnostics))
    if found:
        raise kind(found[:_MOST_ERRORS])


def explain_at_call(error: DmlcError, operator: OperatorDefinition, call: syntax.Call) -> DmlcError:
    """Error of a bound operator, relocated to its call: at the wrong argument, or else at the
    operator's name. The operator's own line becomes a note."""
    given = {a.name.text: a.value.span for a in call.arguments if a.name is not None}
    outputs = [t.name for t in operator.newest.outputs]
    made: list[Diagnostic] = []
    for found in error.diagnostics:
        opened = _OPEN.match(found.message)
        if opened is not None and opened[1] in outputs and opened[1] not in given:
            message = (
                f"the sizes of '{opened[1]}' do not follow from this call: state them, as in "
                f"'{opened[1]}: FLOAT32[...]'"
            )
            found = dataclasses.replace(found, message=message, notes=())
        made.append(found)
    return explain_at(type(error)(made), operator, call.function.span, given)


def explain_at(
    error: DmlcError, operator: OperatorDefinition, span: Span, given: Mapping[str, Span]
) -> DmlcError:
    """Error of a bound operator, relocated to the span in `given` of what is wrong, or else to
    `span`. The operator's own line becomes a note."""
    declared = {t.span: t.name for level in operator.levels for t in level.tensors}
    declared |= {a.span: a.name for a in operator.attributes}
    made: list[Diagnostic] = []
    for found in error.diagnostics:
        labels = [
            declared[n.span] for n in found.notes if n.span is not None and n.span in declared
        ]
        place = next((given[label] for label in labels if label in given), span)
        notes = found.notes
        if found.span is not None:
            notes = (Note(f"in {operator.name}", found.span), *notes)
        message = f"{operator.name}: {found.message}"
        made.append(dataclasses.replace(found, message=message, span=place, notes=notes))
    return type(error)(made)
