"""Local search that changes a draft until the operator permits it. A move redraws a size or an
attribute that a broken constraint reads, or sets the value that an equation requires; a move that
breaks more is undone."""

from __future__ import annotations

import dataclasses

from dmlc.binding.attributes import complete_attributes, convert
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.infer import list_equations
from dmlc.binding.values import whole_number
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition
from dmlc.language.walk import subexpressions
from dmlc.scalars import as_data_type
from dmlc.source import Diagnostic, DmlcError
from dmlc.testing.drafts import MOST_ELEMENTS, Draft, Drafter, spread
from dmlc.testing.draw_values import (
    draw_one,
    draw_size,
    draw_sizes,
    draw_value,
    pick,
    read_items,
    shuffle,
)

_MOVES = 60
"""Number of moves before another draft is begun."""


class Mender:
    """Local search on the drafts of one operator."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.definition = drafter.definition
        self.random = drafter.random

    def mend(self, draft: Draft) -> tuple[Draft, Binding | list[Diagnostic]]:
        """Draft after moves until nothing forbids it, or with the remaining errors."""
        found = self.drafter.resolve(draft)
        known = {draft.show(): found}
        for _ in range(_MOVES):
            if isinstance(found, Binding):
                return draft, found
            moved = draft.copy()
            wrong = found[int(self.random.integers(len(found)))]
            self._move(moved, wrong)
            if not moved.keeps_rank():
                continue
            try:
                self.drafter.complete(moved)
            except DmlcError:
                continue  # Sizes that no tensor has.
            shown = moved.show()
            after = known.get(shown)
            if after is None:
                # Moves lead back to earlier drafts: a fifth of all that would be resolved.
                after = known[shown] = self.drafter.resolve(moved)
            if isinstance(after, Binding) or len(after) <= len(found):
                draft, found = moved, after
        return draft, found

    def _move(self, draft: Draft, wrong: Diagnostic) -> None:
        """One small change that may fix an error, or bring the broken constraint closer to
        holding."""
        constraint = self._find_constraint(wrong)
        condition = constraint.condition if isinstance(constraint, syntax.Require) else None
        if condition is not None and self.random.random() < 0.7 and self._solve(draft, condition):
            return
        if (
            condition is not None
            and self.random.random() < 0.7
            and self._move_type(draft, condition)
        ):
            return
        open_outputs = [
            t for t in draft.present
            if t.output and t.name not in draft.sizes and f"'{t.name}'" in wrong.message
        ]  # fmt: skip
        if open_outputs and condition is None:
            output = open_outputs[0]
            draft.sizes[output.name] = self.drafter.draw_sizes_of(
                self.drafter.bind(draft).tensors[output.name], spread(self.drafter.bind(draft))
            )
            return
        names = self._list_names(draft, wrong, condition)
        name = names[int(self.random.integers(len(names)))] if names else None
        attribute = None if name is None else self.definition.attribute(name)
        if attribute is not None and name is not None and name not in draft.fixed:
            self.move_attribute(draft, attribute)
        elif name in draft.sizes:
            self._move_sizes(draft, name)
        elif draft.sizes:
            self._move_sizes(draft, pick(self.random, tuple(draft.sizes)))

    def _find_constraint(self, wrong: Diagnostic) -> syntax.Constraint | None:
        return next((c for c in self.definition.constraints if c.span == wrong.span), None)

    def _list_names(
        self, draft: Draft, wrong: Diagnostic, condition: syntax.Expression | None
    ) -> list[str]:
        """Attributes and drawn tensors that an error names."""
        movable = [a.name for a in self.definition.attributes
                   if not self.definition.arrays_of_length(a.name)]  # fmt: skip
        movable += list(draft.sizes)
        if condition is None:
            said = [n for n in movable if f"'{n}'" in wrong.message or n in str(wrong)]
        else:
            read = {p.name for p in subexpressions(condition) if isinstance(p, syntax.Reference)}
            said = [n for n in movable if n.partition("[")[0] in read]
        return said or movable

    def _solve(self, draft: Draft, condition: syntax.Expression) -> bool:
        """Sets the values that an equation states: a tensor's sizes, one of them, or an
        attribute."""
        known = spread(self.drafter.bind(draft))
        evaluator = Evaluator(
            dataclasses.replace(known, attributes=complete_attributes(known, (), []))
        )
        for name, other in list_equations(evaluator, condition):
            root = _find_root(draft, known, name)
            try:
                value = None if root is None else evaluator.constant(other)
            except DmlcError:
                continue  # It depends on what is not known.
            sizes = [whole_number(v) for v in value] if isinstance(value, tuple) else []
            whole = tuple(s for s in sizes if s is not None and 0 <= s <= MOST_ELEMENTS)
            if root is not None and whole and len(whole) == len(sizes) <= 8:
                draft.sizes[root] = whole
                return True
        sides = [
            (s, o)
            for part in subexpressions(condition)
            if isinstance(part, syntax.Binary) and part.operator in ("==", "<=", ">=")
            for s, o in ((part.left, part.right), (part.right, part.left))
        ]
        for side, other in shuffle(self.random, sides):
            if self._assign(draft, evaluator, side, other):
                return True
        return False

    def _assign(
        self,
        draft: Draft,
        evaluator: Evaluator,
        side: syntax.Expression,
        other: syntax.Expression,
    ) -> bool:
        try:
            value = evaluator.constant(other)
            match side:
                case syntax.Reference(name=name) if name not in draft.fixed:
                    attribute = self.definition.attribute(name)
                    if attribute is None:
                        return False
                    draft.attributes[name] = convert(attribute, value)
                    return True
                case syntax.Index(base=base, indices=(index,)):
                    name = _find_root(draft, evaluator.binding, _sized(base))
                    axis, size = whole_number(evaluator.constant(index)), whole_number(value)
                    if name is None or axis is None or size is None:
                        return False
                    sizes = list(draft.sizes[name])
                    if not 0 <= axis < len(sizes) or not 0 <= size <= MOST_ELEMENTS:
                        return False
                    sizes[axis] = size
                    draft.sizes[name] = tuple(sizes)
                    return True
                case syntax.Member(base=of, member=syntax.Name(text="DataType")):
                    name = _name_entry(of)
                    if name not in {t.name for t in draft.present}:
                        return False
                    draft.types[name] = as_data_type(name, value)
                    return True
                case syntax.Member(
                    base=syntax.Reference(name=tensor), member=syntax.Name(text="DimensionCount")
                ):
                    name, rank = _find_root(draft, evaluator.binding, tensor), whole_number(value)
                    if name is None or rank is None or not 1 <= rank <= 8:
                        return False
                    kept = draft.sizes[name][:rank]
                    draft.sizes[name] = (*kept, *draw_sizes(self.random, rank - len(kept)))
                    return True
                case _:
                    return False
        except DmlcError:
            return False  # It depends on what is not known.

    def _move_type(self, draft: Draft, condition: syntax.Expression) -> bool:
        """Redraws the data type of a tensor whose type the condition reads."""
        asked = {
            _name_entry(part.base)
            for part in subexpressions(condition)
            if isinstance(part, syntax.Member) and part.member.text == "DataType"
        }
        tensors = [t for t in draft.present if t.name in asked]
        if not tensors:
            return False
        tensor = pick(self.random, tensors)
        draft.types[tensor.name] = pick(self.random, tensor.dtypes)
        return True

    def move_attribute(self, draft: Draft, attribute: AttributeDefinition) -> None:
        name = attribute.name
        value = draft.attributes.get(name)
        if attribute.default is not None and self.random.random() < 0.2:
            draft.attributes.pop(name, None)
            return
        length = None
        if attribute.is_array:
            items = read_items(value)
            length = None if items is None else len(items)
            if length is None or self.random.random() < 0.4:
                ranks = [len(s) for s in draft.sizes.values()]
                length = pick(self.random, [n for r in ranks for n in (r, r - 2) if n > 0] or [1])
            if items and len(items) == length:
                changed = list(items)
                changed[int(self.random.integers(length))] = draw_one(self.random, attribute)
                draft.attributes[name] = tuple(changed)
                return
            counter = attribute.length
            if isinstance(counter, syntax.Reference):
                # Arrays of one length are as long as each other.
                for other in self.definition.arrays_of_length(counter.name):
                    if isinstance(draft.attributes.get(other.name), tuple):
                        draft.attributes[other.name] = draw_value(self.random, other, length)
        draft.attributes[name] = draw_value(self.random, attribute, length)

    def _move_sizes(self, draft: Draft, name: str) -> None:
        sizes = list(draft.sizes[name])
        others = [s for n, s in draft.sizes.items() if n != name]
        roll = self.random.random()
        if roll < 0.25 and others:
            # Sizes of another tensor, along this axis or along all.
            other = others[int(self.random.integers(len(others)))]
            axis = int(self.random.integers(len(sizes)))
            if self.random.random() < 0.5:
                sizes = list(other)
            else:
                sizes[axis] = pick(self.random, other)
        elif roll < 0.4:
            definition = next(t for t in draft.present if t.name == name)
            sizes = list(draw_sizes(self.random, pick(self.random, definition.ranks)))
        else:
            sizes[int(self.random.integers(len(sizes)))] = draw_size(self.random)
        draft.sizes[name] = tuple(sizes)


def _find_root(draft: Draft, known: Binding, name: str) -> str | None:
    """Tensor whose drawn sizes a tensor has: itself, or one equated with it."""
    if name in draft.sizes:
        return name
    tensor = known.tensors.get(name)
    alike = [n for n, s in draft.sizes.items() if tensor is not None and tensor.sizes == s]
    return alike[0] if alike else None


def _name_entry(expression: syntax.Expression) -> str:
    """Tensor that an expression names, with an entry of an array as `InputTensors[0]`."""
    match expression:
        case syntax.Reference(name=name):
            return name
        case syntax.Index(
            base=syntax.Reference(name=name), indices=(syntax.Literal(value=number),)
        ):
            return f"{name}[{number}]"
        case _:
            return ""


def _sized(expression: syntax.Expression) -> str:
    match expression:
        case syntax.Member(base=syntax.Reference(name=name), member=syntax.Name(text="Sizes")):
            return name
        case _:
            return ""
