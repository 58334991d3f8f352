"""Function of a bound operator: its formula, or the derivative of its forward operator.

The forward operator is lowered for the same sizes, its tensors are renamed as in the table of the
gradient, and `transform.differentiate` derives from it. Every forward tensor that the derivative
reads must be an input of the gradient; an input that it does not read is a parameter all the same,
as in an operator with a formula.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from dmlc import ir
from dmlc.binding.call_errors import explain_at, raise_mistakes
from dmlc.binding.compute import lower_compute
from dmlc.binding.facts import Binding, ir_name
from dmlc.binding.stages import make_bound, rename_tensors
from dmlc.ir.naming import take_name
from dmlc.language.definitions import GradientDefinition
from dmlc.source import Diagnostic, DmlcError, InternalError, Note, Span, join_words
from dmlc.transform.differentiate import Choice, Gradient, differentiate


@dataclasses.dataclass(frozen=True, slots=True)
class Derived:
    """Derived function, with its derivatives if there are several."""

    function: ir.Function
    choices: tuple[Choice, ...]


def lower(binding: Binding) -> ir.Function:
    """Bound function. Raises `DmlcError` with every independent error."""
    gradient = binding.operator.gradient
    return lower_compute(binding) if gradient is None else derive(binding, gradient).function


def derive(binding: Binding, gradient: GradientDefinition) -> Derived:
    """Function of an operator with `gradient of`. Raises `DmlcError` if the tables lack a tensor
    that the derivative reads."""
    forward = binding.forward
    if forward is None:
        raise InternalError("a gradient is bound with its forward operator", gradient.span)
    outer = forward.operator.gradient
    try:
        inner = None if outer is None else derive(forward, outer)
        lowered = lower_compute(forward) if inner is None else inner.function
    except DmlcError as error:
        raise explain_at(error, forward.operator, gradient.span, {}) from None
    deriving = _Deriving(binding, gradient, forward, lowered)
    deriving.check_asked()
    found = deriving.differentiate()
    deriving.check_needed(found)
    choices = (*(() if inner is None else inner.choices), *found.choices)
    made = deriving.rename(found)
    function = make_bound(binding, made.stages, (*lowered.checks, *binding.checks), made.loops)
    warnings = (*lowered.warnings, *deriving.list_warnings(found))
    function = dataclasses.replace(function, tables=made.tables, warnings=warnings)
    return Derived(function, tuple(dict.fromkeys(choices)))


class _Deriving:
    """Binding of a gradient, and its forward function with tensors renamed as in the gradient's
    table."""

    def __init__(
        self,
        binding: Binding,
        gradient: GradientDefinition,
        forward: Binding,
        lowered: ir.Function,
    ) -> None:
        self.binding = binding
        self.gradient = gradient
        self.theirs = {ir_name(t.name): t.definition for t in forward.tensors.values()}
        inputs = [p.name for p in lowered.parameters]
        outputs = [r.name for r in lowered.results]
        self.taken = dict.fromkeys(ir_name(name) for name in binding.definitions)
        values = self.find_rows(inputs, gradient.values)
        self.names = {name: values.get(name) or take_name(name, self.taken) for name in inputs}
        made = (*lowered.delays(), *lowered.stages)
        self.names |= {s.name: take_name(s.name, self.taken) for s in made}
        self.own = {name: inner for inner, name in self.names.items()}
        """Forward operator's names of its tensors, by their names in this table."""
        self.function = rename_tensors(lowered, self.names)
        self.wanted = self.find_named(inputs, gradient.gradients)
        self.given = self.find_named(outputs, gradient.gradients)
        self.kept = self.find_named(outputs, gradient.values)

    def find_rows(self, names: Iterable[str], rows: Mapping[str, str]) -> dict[str, str]:
        """Tensors of the binding that stand for some tensors of the forward function."""
        present = {ir_name(t.name) for t in self.binding.tensors.values()}
        found: dict[str, str] = {}
        for name in names:
            definition = self.theirs[name]
            row = rows.get(definition.row)
            own = "" if row is None else ir_name(definition.name.replace(definition.row, row, 1))
            if own in present:
                found[name] = own
        return found

    def find_named(self, names: Iterable[str], rows: Mapping[str, str]) -> dict[str, str]:
        """Tensors of the binding, by the new names of the forward tensors that they stand for."""
        return {self.names[n]: row for n, row in self.find_rows(names, rows).items()}

    def differentiate(self, kept: Mapping[str, str] | None = None) -> Gradient:
        """Derivative, with further results of the forward function in `kept`."""
        at_hand = {**(kept or {}), **self.kept}
        return differentiate(self.function, tuple(self.wanted), self.given, self.wanted, at_hand)

    def rename(self, found: Gradient) -> ir.Function:
        """Derived function, of which no stage or delay has the name of another table row."""
        rows = [ir_name(name) for name in self.binding.definitions]
        made = (*found.function.delays(), *found.function.stages)
        clashing = [s.name for s in made if s.name in rows and s.name not in self.wanted.values()]
        taken = self.taken | dict.fromkeys(s.name for s in made)
        return rename_tensors(found.function, {name: take_name(name, taken) for name in clashing})

    # What is said -------------------------------------------------------------------------

    def check_asked(self) -> None:
        """Raises `DmlcError` for a binding without a given gradient, or without a wanted one."""
        holding = self.gradient.gradients.values()
        rows = [t for t in self.binding.definitions.values() if t.row in holding]
        diagnostics: list[Diagnostic] = []
        for what, output, found in (("given", False, self.given), ("wanted", True, self.wanted)):
            if not found:
                names = join_words(f"'{t.name}'" for t in rows if t.output == output)
                message = f"no gradient is {what}: describe {names}"
                diagnostics.append(Diagnostic(message, self.gradient.span, code="E0705"))
        raise_mistakes(diagnostics)

    def check_needed(self, found: Gradient) -> None:
        """Raises `DmlcError` if the derivative reads a value that no input holds."""
        missing = self.list_missing(found)
        if not missing:
            return
        results = {r.name: take_name(r.name, self.taken) for r in self.function.results}
        instead = self.differentiate(results)
        read = [p.name for p in instead.function.parameters]
        left = self.list_missing(instead, results.values())
        would_do = [self.own[name] for name, kept in results.items() if kept in read]
        forward = self.gradient.forward
        diagnostics: list[Diagnostic] = []
        for name in missing:
            tensor = self.theirs[self.own[name]]
            notes = [Note("declared here", tensor.span)]
            line = f"'X = {tensor.row}'"
            notes.append(Note(f"add an input '{tensor.row}', or say which it is: {line}"))
            if name not in left and would_do:
                shown = join_words([f"'{n}'" for n in would_do], "and")
                notes.append(Note(f"{shown}, which {forward.short_name} gives, would do instead"))
            message = f"the gradient of {forward.name} needs '{tensor.name}', and no input holds it"
            diagnostics.append(Diagnostic(message, self.gradient.span, tuple(notes), code="E0705"))
        raise_mistakes(diagnostics)

    def list_missing(self, found: Gradient, kept: Iterable[str] = ()) -> list[str]:
        """Forward inputs that the derivative reads and no input holds."""
        present = {ir_name(t.name) for t in self.binding.tensors.values()} | set(kept)
        function = found.function
        read = {load.tensor for stage in function.stages for load in stage.body.loads()}
        return [p.name for p in function.parameters if p.name in read and p.name not in present]

    def list_warnings(self, found: Gradient) -> list[Diagnostic]:
        """Warnings about gradients that are 0 for all inputs."""
        return [
            warn_of_nothing(f"'{self.wanted[name]}'", f"'{self.own[name]}'", self.gradient.span)
            for name in found.vanishing
        ]


def warn_of_nothing(gradient: str, tensor: str, span: Span) -> Diagnostic:
    """The warning of a gradient that is 0 everywhere."""
    return Diagnostic(
        f"{gradient} is 0 everywhere: no operation whose derivative is not 0 leads from {tensor}",
        span,
        (
            Note("rounding, comparisons, positions and integers have the derivative 0"),
            Note(
                "a function may have a gradient of its own: function f(x) = floor(x), then "
                "gradient of f with respect to x = 1"
            ),
            Note("where 0 is meant, stop_gradient(x) says so"),
        ),
        warning=True,
        code="W0702",
    )
