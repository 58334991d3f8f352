"""Random calls of an operator, from its own tables and constraints.

A call begins as a draft (`drafts`): the tensors present, the data types and sizes of some, and
attributes. The sentences and the `Dimensions` column imply more. A draft that breaks constraints is
mended (`mend`). Examples of the operator are starting points too. `Operator.resolve` decides
whether a call is permitted.

Each call has one *wish*, so that rare choices are not left to chance: a data type of a tensor, a
rank, an optional tensor present or absent, a member of an enum. For an operator with a recurrence,
calls also get each number of steps in turn.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding
from dmlc.binding.infer import list_equations
from dmlc.language import syntax
from dmlc.language.definitions import TensorDefinition
from dmlc.oracle import find_work, shorten
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError
from dmlc.testing.case import Call
from dmlc.testing.drafts import Draft, Drafter, Wish, spread
from dmlc.testing.draw_values import (
    LONG_SIZES,
    SIZES,
    Random,
    draw_sizes,
    draw_strides,
    list_values,
    pick,
    shuffle,
)
from dmlc.testing.examples import read_cases
from dmlc.testing.mend import Mender
from dmlc.testing.steps import STEPS, count_steps, has_steps, list_moves

_DRAFTS = 12
"""Number of drafts tried for one call."""
_STEP_DRAFTS = 4
"""Number of drafts tried for a call with a given number of steps."""
_MOST_WORK = 1 << 26
"""Largest work of the reference for one call, in instructions: some seconds."""


def draw_calls(operator: Operator, random: Random, count: int) -> Iterator[Call]:
    """At most `count` permitted calls, as different from each other as possible; fewer if many
    tries find no more."""
    drawer = Drawer(operator, random)
    wishes = drawer.list_wishes()
    order = shuffle(random, wishes) or [Wish()]
    turns = [*STEPS, None] if has_steps(operator.definition) else [None]
    for number, wish in enumerate(itertools.islice(itertools.cycle(order), count)):
        steps = turns[number % len(turns)]
        call = drawer.draw(wish, steps) or drawer.draw(Wish(), steps)
        if call is not None:
            yield call


class Drawer:
    """Random generator of calls of one operator."""

    def __init__(self, operator: Operator, random: Random) -> None:
        self.operator = operator
        self.random = random
        self.drafter = Drafter(operator, random)
        self.mender = Mender(self.drafter)
        self.rows = self.drafter.rows
        self.examples = _read_examples(operator)
        self.refused: set[int] = set()
        """Numbers of steps that no recurrence of the operator seems to permit."""
        self.forbidding: dict[Diagnostic, None] = {}
        """Errors of the drafts that could not be mended."""

    def list_wishes(self) -> list[Wish]:
        """Wishes: every single choice that the tables offer."""
        found: list[Wish] = []
        for row in self.rows:
            if row.optional:
                found += [Wish(tensor=row.name, present=p) for p in (True, False)]
            if row is self.rows[0] or not row.output:
                found += [Wish(tensor=row.name, dtype=t) for t in row.dtypes]
                found += [Wish(tensor=row.name, rank=r) for r in row.ranks]
        for attribute in self.operator.definition.attributes:
            # The length of an array follows from the draft; its entries are random.
            values = [] if attribute.is_array else list_values(attribute)
            found += [Wish(attribute=attribute.name, value=value) for value in values]
        return found

    def draw(self, wish: Wish, steps: int | None = None) -> Call | None:
        """Call with the property wished for, and with recurrences of `steps` steps if permitted;
        None if none is found."""
        for number in range(_DRAFTS):
            draft = self.begin(wish)
            if draft is None:
                continue
            draft, binding = self.mender.mend(draft)
            if not isinstance(binding, Binding):
                self.forbidding.update(dict.fromkeys(binding))
                continue
            for _ in range(int(self.random.integers(0, 4))):
                draft, binding = self._vary(draft, binding)
            if steps is not None and steps not in self.refused:
                draft, binding = self._set_steps(draft, binding, steps)
                if count_steps(binding) != {steps}:
                    if number + 1 < _STEP_DRAFTS:
                        continue
                    self.refused.add(steps)
            if not _grants(wish, binding):
                continue
            call = self._lay_out(draft, binding)
            if _is_short(call):
                return call
        return None

    def begin(self, wish: Wish) -> Draft | None:
        """Draft with the property wished for, permitted or not; None if impossible."""
        if self.examples and self.random.random() < 0.4:
            return self._from_example(wish)
        present = self._choose_present(wish)
        draft = Draft(wish, present, {}, {}, {})
        self.drafter.choose_types(draft)
        if wish.attribute is not None:
            draft.attributes[wish.attribute] = wish.value
        if wish.rank is not None and wish.tensor is not None:
            first = next((t for t in present if t.row == wish.tensor), None)
            if first is not None:
                draft.sizes[first.name] = draw_sizes(self.random, wish.rank)
        binding = self.drafter.complete(draft)
        self.drafter.choose_attributes(draft, binding)
        return draft

    def _choose_present(self, wish: Wish) -> list[TensorDefinition]:
        found: list[TensorDefinition] = []
        many = int(self.random.integers(1, 5))
        often = float(self.random.choice([0.0, 0.5, 1.0]))
        for row in self.rows:
            wished = wish.present if row.name == wish.tensor else None
            needed = row.name == wish.tensor and wish.present is None
            if row.optional and not needed:
                takes_part = self.random.random() < often if wished is None else wished
                if not takes_part:
                    continue
            found += [row.entry(k) for k in range(many)] if row.array else [row]
        return found

    def _from_example(self, wish: Wish) -> Draft | None:
        """Draft from an example's call, with as few of its sizes as determine the others."""
        call = self.examples[int(self.random.integers(len(self.examples)))]
        binding = call.binding
        present = [
            t.definition
            for t in binding.tensors.values()
            if wish.present is not False or t.definition.row != wish.tensor
        ]
        present += [
            row
            for row in self.rows
            if row.name == wish.tensor
            and row.optional
            and row.name not in binding.tensors
            and wish.present is not False
        ]
        draft = Draft(wish, present, {}, {}, dict(call.attributes))
        ranked = binding.members(wish.tensor) if wish.rank and wish.tensor is not None else []
        further = (wish.rank or 0) - len(ranked[0].sizes or ()) if ranked else 0
        order = shuffle(self.random, present)
        self.drafter.choose_types(draft)
        for outputs in (False, True):
            for tensor in order:
                if tensor.output == outputs and tensor.name in call.tensors:
                    known = spread(self.drafter.bind(draft)).tensors[tensor.name].sizes
                    sizes = call.tensors[tensor.name].shape
                    moved = (*((1,) * further), *sizes[max(-further, 0) :])
                    sizes = moved if len(moved) in tensor.ranks else sizes
                    if known is None and (not outputs or self._is_open(draft, tensor.name)):
                        draft.sizes[tensor.name] = sizes
        if wish.attribute is not None:
            draft.attributes[wish.attribute] = wish.value
        return draft

    def _is_open(self, draft: Draft, name: str) -> bool:
        """Whether an output's sizes do not follow from anything."""
        found = self.drafter.resolve(draft)
        return not isinstance(found, Binding) and any(
            f"output '{name}' cannot be inferred" in d.message for d in found
        )

    def _vary(self, draft: Draft, binding: Binding) -> tuple[Draft, Binding]:
        """Draft with one property changed, mostly to a long size, if that is permitted."""
        moved = draft.copy()
        chosen = _list_chosen(binding)
        if chosen and self.random.random() < 0.4:
            # Those that follow are one choice of several.
            name = pick(self.random, chosen)
            sizes = list(binding.tensors[name].shape)
            axis = int(self.random.integers(len(sizes)))
            sizes[axis] = max(1, sizes[axis] + pick(self.random, (-1, 1, 1, 2)))
            moved.sizes[name] = tuple(sizes)
            found = self.drafter.resolve(moved)
            return (moved, found) if isinstance(found, Binding) else (draft, binding)
        roll = self.random.random()
        if roll < 0.7 and moved.sizes:
            name = pick(self.random, tuple(moved.sizes))
            axis = int(self.random.integers(len(moved.sizes[name])))
            size = moved.sizes[name][axis]
            pool = LONG_SIZES if self.random.random() < 0.6 else SIZES
            changed = pick(self.random, pool)
            for other, sizes in moved.sizes.items():
                if axis < len(sizes) and sizes[axis] == size and (size != 1 or other == name):
                    moved.sizes[other] = (*sizes[:axis], changed, *sizes[axis + 1 :])
        elif self.operator.definition.attributes:
            attribute = pick(self.random, self.operator.definition.attributes)
            if moved.wish.attribute != attribute.name and attribute.name in moved.attributes:
                self.mender.move_attribute(moved, attribute)
        found = self.drafter.resolve(moved)
        return (moved, found) if isinstance(found, Binding) else (draft, binding)

    def _set_steps(self, draft: Draft, binding: Binding, steps: int) -> tuple[Draft, Binding]:
        """Draft with recurrences of `steps` steps, if that is permitted."""
        if count_steps(binding) == {steps}:
            return draft, binding
        for moved in list_moves(draft, steps):
            found = self.drafter.resolve(moved)
            if isinstance(found, Binding) and count_steps(found) == {steps}:
                return moved, found
        return draft, binding

    def _lay_out(self, draft: Draft, binding: Binding) -> Call:
        """Call with every tensor described, some of them not packed."""
        tensors: dict[str, TensorDesc] = {}
        often = float(self.random.choice([0.0, 0.0, 0.5, 1.0]))
        for name, tensor in binding.tensors.items():
            sizes = tensor.shape
            dtype = tensor.dtype or DataType.FLOAT32
            strides = None
            if self.random.random() < often and sizes and 0 not in sizes:
                strides = draw_strides(self.random, sizes, tensor.definition.output)
            tensors[name] = TensorDesc(dtype, sizes, strides)
        call = Call(self.operator, tensors, dict(draft.attributes))
        try:
            self.operator.resolve(tensors, draft.attributes)
        except DmlcError:
            # A constraint reads strides.
            packed = {n: TensorDesc(d.data_type, d.sizes) for n, d in tensors.items()}
            return Call(self.operator, packed, dict(draft.attributes))
        return call


def _list_chosen(binding: Binding) -> list[str]:
    """Outputs whose sizes a `require` states as the first of several alternatives."""
    evaluator = Evaluator(binding)
    return [
        name
        for constraint in binding.operator.constraints
        if isinstance(constraint, syntax.Require)
        and isinstance(constraint.condition, syntax.Binary)
        and constraint.condition.operator == "||"
        for name, _ in list_equations(evaluator, constraint.condition.left)
        if name in binding.tensors and binding.tensors[name].definition.output
    ]


def _is_short(call: Call) -> bool:
    """Whether the reference computes or refuses the call quickly: an attribute may be a size, and
    have any value."""
    try:
        function = call.function
    except Exception:
        return True  # That is found again where the call is run.
    return find_work(function) <= _MOST_WORK or find_work(shorten(function)) <= _MOST_WORK


def _grants(wish: Wish, binding: Binding) -> bool:
    """Whether a binding has the property wished for."""
    if wish.attribute is not None:
        return True
    if wish.tensor is None:
        return True
    members = binding.members(wish.tensor)
    if wish.present is not None:
        return bool(members) == wish.present
    if wish.dtype is not None:
        return any(t.dtype is wish.dtype for t in members)
    return any(len(t.sizes or ()) == wish.rank for t in members)


def _read_examples(operator: Operator) -> list[Call]:
    """Permitted calls among the operator's examples."""
    found: list[Call] = []
    for example in operator.definition.examples:
        with contextlib.suppress(DmlcError):
            found.append(next(read_cases(operator, example)).call)
    return found
