"""Checks of `gradient of`: finds the forward operator, and matches its tensors with the tables'
rows.

Rows without a line are matched by name: tensors and attributes by their own, gradients by the
conventions of DirectML and oneDNN (`OutputGradientTensor`, `diff_src`) and of others (`d_x`, `dx`,
`xGradient`). The binder determines which values the derived formula reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.language import syntax
from dmlc.language.definitions import (
    AttributeDefinition,
    GradientDefinition,
    OperatorDefinition,
    TensorDefinition,
)
from dmlc.language.kinds import Reporter
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, Note, Span, join_words, nearest, replace_word

MOST_ORDERS = 4
"""Highest order of a gradient: each is several times as long as the formula it is of."""
TOO_MANY_ORDERS = f"gradients of gradients go {MOST_ORDERS} deep at most"

Find: TypeAlias = Callable[[syntax.Name], OperatorDefinition | None]
"""Lookup of an operator by name; reports an unknown one."""


def check_gradients(
    operators: Sequence[OperatorDefinition],
    find: Find,
    diagnostics: list[Diagnostic],
    warnings: list[Diagnostic],
) -> dict[str, OperatorDefinition]:
    """Operators with `gradient of`, complete, forward operators first. Inputs that match no tensor
    are added to `warnings`."""
    sections = {o.name: s for o in operators if (s := o.syntax.gradient_of) is not None}
    targets = {name: find(section.operator) for name, section in sections.items()}
    waiting = {o.name: o for o in operators if o.name in sections}
    found: dict[str, OperatorDefinition] = {}
    for start in operators:
        chain: dict[str, OperatorDefinition] = {}
        name: str | None = start.name
        while name is not None and name in waiting and name not in chain:
            chain[name] = waiting[name]
            target = targets[name]
            name = None if target is None else target.name
        if name is not None and name in chain:
            cycle = list(chain)[list(chain).index(name) :]
            _fail_cycle([chain[n] for n in cycle], sections[name], diagnostics)
            for each in cycle:
                del chain[each], waiting[each]
        for operator in reversed(chain.values()):
            del waiting[operator.name]
            target = targets[operator.name]
            if target is not None:
                forward = found.get(target.name, target)
                section = sections[operator.name]
                checker = _GradientMatcher(operator, section, forward, diagnostics, warnings)
                found[operator.name] = checker.run()
    return found


def check_forward(
    operator: OperatorDefinition, forward: OperatorDefinition, diagnostics: list[Diagnostic]
) -> None:
    """Checks the lines of `forward` in an operator with a formula of its own."""
    declared = operator.syntax.forward
    if declared is not None and declared.lines:
        section = syntax.GradientOf(declared.operator, (), (), span=declared.span)
        _GradientMatcher(operator, section, forward, diagnostics, []).check_lines()


def _fail_cycle(
    operators: Sequence[OperatorDefinition],
    section: syntax.GradientOf,
    diagnostics: list[Diagnostic],
) -> None:
    first = operators[0]
    shown = ", which is that of ".join(f"'{o.name}'" for o in (*operators[1:], first))
    notes = tuple(Note("declared here", o.syntax.name.span) for o in operators[1:4])
    message = f"'{first.name}' is derived from itself: it is the gradient of {shown}"
    diagnostics.append(Diagnostic(message, section.operator.span, notes, code="E0701"))


def spell_gradient(tensor: TensorDefinition) -> list[str]:
    """Names of the gradient of a forward operator's tensor by the known conventions."""
    name = tensor.name
    stem = name.removesuffix("Tensor")
    own, other = ("Output", "Input") if tensor.output else ("Input", "Output")
    spelt = [f"d_{name}", f"diff_{name}", f"d{name}", f"{name}Gradient"]
    if stem != name:
        # DirectML's gradient operators are given InputGradientTensor, that of OutputTensor, and
        # give OutputGradientTensor, and OutputScaleGradientTensor of ScaleTensor.
        spelt += [f"{other}{stem.removeprefix(own)}GradientTensor", f"{stem}GradientTensor"]
    return spelt


class _GradientMatcher(Reporter):
    """Matcher of an operator's tables with those of its forward operator."""

    def __init__(
        self,
        operator: OperatorDefinition,
        section: syntax.GradientOf,
        forward: OperatorDefinition,
        diagnostics: list[Diagnostic],
        warnings: list[Diagnostic],
    ) -> None:
        super().__init__(diagnostics)
        self.operator = operator
        self.section = section
        self.forward = forward
        self.target = section.operator.span
        self.warnings = warnings
        self.rows = {t.name: t for level in operator.levels for t in level.tensors}
        self.theirs = {t.name: t for t in forward.newest.tensors}
        self.left = dict(self.rows)
        """Rows that match nothing yet."""
        self.gradients: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.attributes: dict[str, str] = {}

    def refuse(self, what: str, name: syntax.Name, known: Iterable[str]) -> None:
        """Reports an unknown name, unless it may be that of a row which could not be read."""
        if name.text not in self.operator.broken | self.forward.broken:
            self.fail_unknown(what, name.text, known, name.span)

    def run(self) -> OperatorDefinition:
        before = len(self.diagnostics)
        declared = self.operator.syntax.forward
        if declared is not None and self.operator.forward != self.forward.name:
            other = f"'forward' names '{self.operator.forward}'"
            message = f"{other}, but this is the gradient of '{self.forward.name}'"
            note = Note("it is named here", declared.operator.span)
            self.fail(message, self.target, note, code="E0701")
        if self.forward.order >= MOST_ORDERS:
            self.fail(TOO_MANY_ORDERS, self.target, code="E0701")
        self.check_lines()
        wanted = self.list_wanted()
        self.find_values()
        self.find_gradients([t for t in self.forward.newest.outputs if t.holds_floats], False)
        self.find_gradients(wanted, True)
        self.find_attributes()
        # Where rows could not be read, what is missing may be among them.
        whole = not self.operator.broken and not self.forward.broken
        if whole and len(self.diagnostics) == before:
            self.check_complete(wanted)
        made = GradientDefinition(
            self.forward,
            MappingProxyType(self.gradients),
            MappingProxyType(self.values),
            MappingProxyType(self.attributes),
            self.section.span,
        )
        return dataclasses.replace(self.operator, gradient=made, forward=self.forward.name)

    # What is written ----------------------------------------------------------------------

    def check_lines(self) -> None:
        """Checks the lines of `forward`, and those of `gradient of`."""
        declared = self.operator.syntax.forward
        for line in (() if declared is None else declared.lines) + (self.section.lines or ()):
            self.check_line(line)

    def check_line(self, line: syntax.GradientLine) -> None:
        name, of = line.name, line.of
        row = self.rows.get(name.text)
        if row is None and not line.gradient and self.operator.attribute(name.text) is not None:
            self.check_attribute_line(line)
        elif row is None:
            attributes = () if line.gradient else (a.name for a in self.operator.attributes)
            what = "tensor" if line.gradient else "tensor or attribute"
            self.refuse(what, name, [*self.rows, *attributes])
        elif name.text not in self.left:
            self.fail(f"'{name.text}' stands before two '='", name.span, code="E0702")
        elif line.gradient:
            self.check_gradient_line(line, row)
        elif row.output:
            self.fail(
                f"'{name.text}' is an output, and this gives the gradients of inputs of "
                f"{self.forward.name}",
                name.span,
                f"say of which: '{name.text} = gradient of X'",
                code="E0702",
            )
        elif of.text not in self.theirs:
            self.refuse(f"tensor of {self.forward.name}", of, self.theirs)
        else:
            self.match(self.values, self.theirs[of.text], row, of)

    def check_gradient_line(self, line: syntax.GradientLine, row: TensorDefinition) -> None:
        """Checks that an input holds the gradient of an output, or an output that of an input."""
        of = line.of
        other = self.theirs.get(of.text)
        kind, side = ("output", "input") if row.output else ("input", "output")
        if other is None:
            known = [t.name for t in self.theirs.values() if t.output != row.output]
            self.refuse(f"{side} of {self.forward.name}", of, known)
        elif other.output == row.output:
            verb = "holds" if kind == "input" else "is"
            self.fail(
                f"'{row.name}' is an {kind}: it {verb} the gradient of an {side} of "
                f"{self.forward.name}, and '{of.text}' is an {kind}",
                of.span,
                Note("declared here", other.span),
                code="E0702",
            )
        elif not other.holds_floats:
            self.fail_without(other, of.span)
        else:
            self.match(self.gradients, other, row, of)

    def check_attribute_line(self, line: syntax.GradientLine) -> None:
        name, of = line.name, line.of
        theirs = self.forward.attribute(of.text)
        if theirs is None:
            known = [a.name for a in self.forward.attributes]
            self.refuse(f"attribute of {self.forward.name}", of, known)
        elif of.text in self.attributes:
            self.fail(f"'{of.text}' stands behind two '='", of.span, code="E0702")
        else:
            self.attributes[of.text] = name.text

    def match(
        self,
        found: dict[str, str],
        theirs: TensorDefinition,
        row: TensorDefinition,
        place: syntax.Name | None = None,
    ) -> None:
        """Records that a row holds a tensor of the forward operator, or its gradient."""
        span = row.span if place is None else place.span
        what = f"{'the gradient of ' if found is self.gradients else ''}'{theirs.name}'"
        del self.left[row.name]
        if theirs.name in found:
            self.fail(f"'{found[theirs.name]}' stands for {what} already", span, code="E0702")
            return
        found[theirs.name] = row.name
        both = f"'{row.name}' stands for {what} of {self.forward.name}"
        notes = (Note("declared here", theirs.span),)
        if row.array != theirs.array:
            self.fail(
                f"{both}: either both are arrays of tensors, or none is", span, *notes, code="E0702"
            )
        elif not set(row.dtypes) & set(theirs.dtypes):
            message = f"{both}, and one is {_types(row)} and the other {_types(theirs)}"
            self.fail(message, span, *notes, code="E0702")
        elif not set(row.ranks) & set(theirs.ranks):
            self.fail(
                f"{both}, and they have no dimension count in common", span, *notes, code="E0702"
            )

    def list_wanted(self) -> list[TensorDefinition]:
        """Inputs with respect to which gradients may be requested."""
        if self.section.lines is not None:
            return [t for t in self.forward.newest.inputs if t.holds_floats]
        seen: dict[str, TensorDefinition] = {}
        for name in self.section.tensors:
            tensor = self.theirs.get(name.text)
            if tensor is None or tensor.output:
                known = [t.name for t in self.forward.newest.inputs]
                self.refuse(f"input of {self.forward.name}", name, known)
            elif name.text in seen:
                first = next(n for n in self.section.tensors if n.text == name.text)
                note = Note("it is named here first", first.span)
                self.fail(f"'{name.text}' is named twice", name.span, note, code="E0702")
            elif not tensor.holds_floats:
                self.fail_without(tensor, name.span)
            else:
                seen[name.text] = tensor
        return list(seen.values())

    def fail_without(self, tensor: TensorDefinition, span: Span) -> None:
        self.fail(
            f"'{tensor.name}' of {self.forward.name} has no gradient: it holds no floating-point "
            "numbers",
            span,
            Note("declared here", tensor.span),
            code="E0703",
        )

    # What is found by name ----------------------------------------------------------------

    def find_values(self) -> None:
        for row in [r for r in self.left.values() if not r.output]:
            if row.name in self.theirs and row.name not in self.values:
                self.match(self.values, self.theirs[row.name], row)

    def find_gradients(self, candidates: Sequence[TensorDefinition], output: bool) -> None:
        """Matches rows with gradients of some tensors: by name, or because only one is left."""
        missing = [t for t in candidates if t.name not in self.gradients]
        for tensor in missing:
            spelt = (self.left.get(name) for name in spell_gradient(tensor))
            row = next((r for r in spelt if r is not None and r.output == output), None)
            if row is not None:
                self.match(self.gradients, tensor, row)
        missing = [t for t in missing if t.name not in self.gradients]
        rows = [r for r in self.left.values() if r.output == output]
        alone = output or len(missing) == len(candidates)
        if len(rows) == len(missing) == 1 and alone:
            self.match(self.gradients, missing[0], rows[0])

    def find_attributes(self) -> None:
        stated = tuple(self.attributes.values())
        for theirs in self.forward.attributes:
            name = self.attributes.get(theirs.name, theirs.name)
            own = self.operator.attribute(name)
            if own is None or (theirs.name not in self.attributes and name in stated):
                continue
            self.attributes[theirs.name] = own.name
            if _kind_of(own) != _kind_of(theirs):
                self.fail(
                    f"attribute '{own.name}' is {_kind_of(own)}, but '{theirs.name}' of "
                    f"{self.forward.name} is {_kind_of(theirs)}",
                    own.span,
                    Note("declared here", theirs.span),
                    code="E0704",
                )

    # What has to be there -----------------------------------------------------------------

    def check_complete(self, wanted: Sequence[TensorDefinition]) -> None:
        forward = self.forward
        for name in self.section.tensors:
            if name.text not in self.gradients:
                self.fail(
                    f"no output is the gradient with respect to '{name.text}'",
                    name.span,
                    *self.cure(name.text, "output"),
                    code="E0705",
                )
        known = join_words([f"'{t.name}'" for t in wanted])
        for row in self.left.values():
            if row.output:
                self.fail(
                    f"output '{row.name}' is the gradient of no input of {forward.name}",
                    row.span,
                    *((f"it may be that of {known}",) if wanted else ()),
                    *self.cure("X", "output", row.name),
                    code="E0705",
                )
            else:
                close = nearest(row.name, self.theirs)
                notes = () if close is None else (Note(f"did you mean '{close}'?"),)
                message = f"input '{row.name}' stands for nothing of {forward.name}"
                fixes = replace_word(row.span, row.name, close)
                self.warnings.append(
                    Diagnostic(message, row.span, notes, warning=True, code="W0701", fixes=fixes)
                )
        outputs = [t for t in forward.newest.outputs if t.holds_floats]
        if outputs and not any(t.name in self.gradients for t in outputs):
            self.fail(
                f"no input is the gradient of an output of {forward.name}",
                self.target,
                *self.cure(outputs[0].name, "input"),
                code="E0705",
            )
        elif not outputs:
            self.fail(
                f"{forward.name} has no floating-point output, and no gradient",
                self.target,
                code="E0703",
            )
        for theirs in forward.attributes:
            lengths = (a.name in self.attributes for a in forward.arrays_of_length(theirs.name))
            if theirs.name not in self.attributes and theirs.default is None and not any(lengths):
                self.fail(
                    f"there is no attribute '{theirs.name}', which {forward.name} needs",
                    self.target,
                    Note("declared here", theirs.span),
                    code="E0704",
                )

    def cure(self, name: str, kind: str, row: str | None = None) -> tuple[str, ...]:
        """Suggestion of a line that declares the tensor whose gradient a row holds."""
        line = f"{row or 'd_' + name} = gradient of {name}"
        stated = f"gradient of {self.forward.short_name} {{ {line} }}"
        called = "" if row is not None else f"call an {kind} 'd_{name}', or "
        return (f"{called}say which it is: '{stated}'",)


def _types(tensor: TensorDefinition) -> str:
    return join_words(_short(tensor.dtypes))


def _short(types: Sequence[DataType]) -> list[str]:
    return [t.name for t in types[:4]] + (["others"] if len(types) > 4 else [])


def _kind_of(attribute: AttributeDefinition) -> str:
    base = attribute.base if attribute.enum is None else attribute.enum.name
    return f"an array of {base}" if attribute.is_array else base
