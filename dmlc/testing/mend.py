"""Local search that changes a draft until the operator permits it. A move redraws a size, a data
type or an attribute, or sets the sizes that an equation requires; a move that breaks more is
undone."""

from __future__ import annotations

import dataclasses

from dmlc.binding.attributes import complete_attributes
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.infer import list_equations
from dmlc.binding.values import whole_number
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.source import Diagnostic, DmlcError
from dmlc.testing.drafts import MOST_ELEMENTS, Draft, Drafter, spread
from dmlc.testing.draw_values import (
    draw_one,
    draw_size,
    draw_sizes,
    draw_value,
    pick,
    read_items,
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
            self._move(moved, pick(self.random, found))
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
        requires = (c for c in self.definition.constraints if isinstance(c, syntax.Require))
        condition = next((c.condition for c in requires if c.span == wrong.span), None)
        if condition is not None and self.random.random() < 0.7 and self._solve(draft, condition):
            return
        for output in draft.present:
            open_output = output.output and output.name not in draft.sizes
            if condition is None and open_output and f"'{output.name}'" in wrong.message:
                known = spread(self.drafter.bind(draft))
                sizes = self.drafter.draw_sizes_of(known.tensors[output.name], known)
                draft.sizes[output.name] = sizes
                return
        attributes = [
            a for a in self.definition.attributes
            if a.name != draft.wish.attribute and not self.definition.arrays_of_length(a.name)
        ]  # fmt: skip
        choice = pick(self.random, (*attributes, *draft.sizes, *draft.present))
        match choice:
            case str():
                self._move_sizes(draft, choice)
            case TensorDefinition():
                draft.types[choice.name] = pick(self.random, choice.dtypes)
            case _:
                self.move_attribute(draft, choice)

    def _solve(self, draft: Draft, condition: syntax.Expression) -> bool:
        """Sets a tensor's sizes to those that an equation states."""
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
        return False

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
