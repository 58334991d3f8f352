"""Random forbidden calls, each of which breaks one constraint, or one row of a table. This module
evaluates the constraints itself, from the call alone, since the operator's answer is what is
tested."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.attributes import convert
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, BoundTensor
from dmlc.binding.values import Constant
from dmlc.language import syntax
from dmlc.language.attribute_types import Holds, What
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.language.walk import subexpressions
from dmlc.scalars import TENSOR_TYPES
from dmlc.source import DmlcError, Span
from dmlc.testing.case import Call
from dmlc.testing.drafts import Wish
from dmlc.testing.draw import Drawer
from dmlc.testing.draw_values import (
    Random,
    draw_one,
    draw_sizes,
    pick,
    read_items,
    shuffle,
)

_DRAWN = 4
"""Number of permitted calls drawn for a forbidden one."""
_CHANGED = 24
"""Number of changes tried on each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Call that a table or a constraint forbids: its binding must raise `DmlcError`."""

    call: Call
    span: Span
    """Span of the table row or constraint."""
    why: str


def draw_refused(operator: Operator, random: Random, count: int) -> Iterator[Refused]:
    """At most `count` calls, each forbidden by little more than one table row or constraint: each
    constraint in turn, and the types, ranks and tensors that the tables require."""
    drawer = _Forbidder(operator, random)
    turns = drawer.list_forbidding()
    if not turns:
        return
    order = shuffle(random, turns)
    for turn in itertools.islice(itertools.cycle(order), count):
        found = drawer.draw_refused(turn)
        if found is not None:
            yield found


class _Forbidder:
    """Generator of forbidden calls of one operator, by changes of permitted ones."""

    def __init__(self, operator: Operator, random: Random) -> None:
        self.operator = operator
        self.definition = operator.definition
        self.random = random
        self.drawer = Drawer(operator, random)
        self.rows = operator.definition.newest.tensors

    def list_forbidding(self) -> list[syntax.Constraint | TensorDefinition]:
        return [*self.definition.constraints, *self.rows]

    def draw_refused(self, turn: syntax.Constraint | TensorDefinition) -> Refused | None:
        """Permitted call, changed until that constraint or table row forbids it."""
        for _ in range(_DRAWN):
            call = self.drawer.draw(Wish())
            if call is None:
                continue
            for _ in range(_CHANGED):
                if isinstance(turn, TensorDefinition):
                    found = self._forbid_row(call, turn)
                else:
                    found = self._forbid(call, turn)
                if found is not None:
                    return found
        return None

    def _forbid_row(self, call: Call, row: TensorDefinition) -> Refused | None:
        """Call with a tensor of a type or rank that its row does not list, or without the
        tensor."""
        names = [n for n in call.tensors if n.partition("[")[0] == row.name]
        if not names:
            return None
        name = pick(self.random, names)
        desc = call.tensors[name]
        roll = self.random.random()
        tensors = dict(call.tensors)
        types = [t for t in TENSOR_TYPES if t not in row.dtypes]
        ranks = [r for r in range(1, 9) if r not in row.ranks]
        if roll < 0.4 and types:
            dtype = pick(self.random, types)
            tensors[name] = TensorDesc(dtype, desc.sizes)
            why = f"'{name}' is {dtype.name}"
        elif roll < 0.7 and ranks:
            rank = pick(self.random, ranks)
            tensors[name] = TensorDesc(desc.data_type, draw_sizes(self.random, rank))
            why = f"'{name}' has {rank} dimensions"
        elif not row.output and not row.optional:
            del tensors[name]
            why = f"'{name}' is missing"
            if row.array and len(names) > 1:
                return None
        else:
            return None
        return Refused(Call(self.operator, tensors, call.attributes), row.span, why)

    def _forbid(self, call: Call, constraint: syntax.Constraint) -> Refused | None:
        """Call with a size, a type or an attribute changed so that the constraint is broken, as far
        as decidable without a binding."""
        moved = self._disturb(call, constraint)
        if moved is None:
            return None
        why = _find_broken(moved, constraint)
        return None if why is None else Refused(moved, constraint.span, why)

    def _disturb(self, call: Call, constraint: syntax.Constraint) -> Call | None:
        """Call with one property changed that the constraint reads."""
        parts = subexpressions(constraint.condition) if isinstance(
            constraint, syntax.Require
        ) else ()  # fmt: skip
        read = {p.name for p in parts if isinstance(p, syntax.Reference)}
        if isinstance(constraint, syntax.Sentence):
            read = {s.text for s in constraint.subjects}
        tensors = [n for n in call.tensors if n.partition("[")[0] in read]
        attributes = [
            a for a in self.definition.attributes if a.name in read and a.name in call.attributes
        ]
        count = len(tensors) + len(attributes)
        if not count:
            return None
        k = int(self.random.integers(count))
        if k >= len(tensors):
            attribute = attributes[k - len(tensors)]
            value = self._step(attribute, call.attributes[attribute.name])
            return dataclasses.replace(call, attributes={**call.attributes, attribute.name: value})
        name = tensors[k]
        desc = call.tensors[name]
        sizes = list(desc.shape)
        facts = (
            {o.text for o in constraint.objects}
            if isinstance(constraint, syntax.Sentence) and constraint.kind == "same"
            else {"Sizes"}
        )
        if "DataType" in facts and self.random.random() < 0.5:
            row = next(t for t in self.rows if t.name == name.partition("[")[0])
            changed = TensorDesc(pick(self.random, row.dtypes), desc.sizes)
        else:
            axis = int(self.random.integers(len(sizes)))
            sizes[axis] = max(0, sizes[axis] + pick(self.random, (-1, 1, 1, 2)))
            if "DimensionCount" in facts and self.random.random() < 0.4 and len(sizes) < 8:
                sizes = [1, *sizes]
            changed = TensorDesc(desc.data_type, sizes)
        return dataclasses.replace(call, tensors={**call.tensors, name: changed})

    def _step(self, attribute: AttributeDefinition, value: object) -> object:
        """Value next to another one, or any other."""
        found = read_items(value)
        if found:
            items = list(found)
            k = int(self.random.integers(len(items)))
            items[k] = self._step(attribute, items[k])
            return tuple(items)
        if isinstance(value, int) and attribute.type.what is What.NUMBER:
            stepped = value + pick(self.random, (-1, 1))
            bound = attribute.type.limits[0]
            return max(stepped, bound) if attribute.type.holds is Holds.INTEGER else stepped
        return draw_one(self.random, attribute)


def _find_broken(call: Call, constraint: syntax.Constraint) -> str | None:
    """Reason that a call breaks a constraint, from the call alone; None if it does not, or if
    undecidable."""
    described = call.tensors
    if isinstance(constraint, syntax.Require):
        return _find_false(call, constraint)
    subjects = {s.text for s in constraint.subjects}
    present = {n: d for n, d in described.items() if n.partition("[")[0] in subjects}
    shapes = {n: d.sizes or () for n, d in present.items()}
    if constraint.kind == "scalar":
        wrong = [n for n, s in shapes.items() if any(size != 1 for size in s)]
        return f"'{wrong[0]}' has more than one element" if wrong else None
    if constraint.kind == "broadcastable":
        target = described.get(constraint.objects[0].text)
        if target is None or target.sizes is None:
            return None
        for name, sizes in shapes.items():
            if len(sizes) != len(target.sizes) or any(
                a not in (1, b) for a, b in zip(sizes, target.sizes, strict=True)
            ):
                return f"'{name}' is not broadcastable to '{constraint.objects[0].text}'"
        return None
    for fact in constraint.objects:
        found = {
            n: d.data_type
            if fact.text == "DataType"
            else len(d.sizes or ())
            if fact.text == "DimensionCount"
            else d.sizes
            for n, d in present.items()
        }
        if len(set(found.values())) > 1:
            return f"{' and '.join(list(found)[:2])} differ in {fact.text}"
    return None


def _find_false(call: Call, constraint: syntax.Require) -> str | None:
    """Reason that a condition is false of a call with all defaults; None if it is not."""
    rows = {t.name: t for t in call.operator.definition.newest.tensors}
    bound: dict[str, BoundTensor] = {}
    for name, desc in call.tensors.items():
        row, _, rest = name.partition("[")
        definition = rows[row].entry(int(rest[:-1])) if rest else rows[row]
        bound[name] = BoundTensor(definition, desc.data_type, desc.sizes, desc.strides, True)
    definition = call.operator.definition
    attributes: dict[str, Constant] = {}
    binding = Binding(definition, bound, attributes, dict(rows), False)
    evaluator = Evaluator(binding)
    try:
        for attribute in definition.attributes:
            arrays = definition.arrays_of_length(attribute.name)
            given = [read_items(call.attributes.get(a.name)) for a in arrays]
            lengths = [len(items) for items in given if items is not None]
            if attribute.name in call.attributes:
                attributes[attribute.name] = convert(attribute, call.attributes[attribute.name])
            elif lengths:
                attributes[attribute.name] = lengths[0]
            elif attribute.default is not None:
                return None  # A default may follow from what was changed.
        value = evaluator.constant(constraint.condition)
    except DmlcError:
        return None  # It cannot be said of a call that is wrong in other ways.
    return None if _holds(value) else "the condition is false"


def _holds(value: Constant) -> bool:
    return all(_holds(v) for v in value) if isinstance(value, tuple) else value is True
