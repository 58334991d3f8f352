"""Draws calls of an operator from its own tables and constraints.

A call is first drafted: which tensors take part, the data types and sizes of some, and attributes.
What the sentences and the `Dimensions` column decide follows from those. A draft that breaks
constraints is moved, a little at a time and never to where it breaks more: sizes and attributes
that a broken constraint reads are drawn again, or set to what an equation asks for. Examples of the
operator are starting points too. What is permitted is for `Operator.resolve` to say.

Each call is given one *wish*, so that rare choices are not left to chance: a data type of a tensor,
a number of dimensions, an optional tensor there or not, a member of an enum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.attributes import convert
from dmlc.binding.evaluate import Evaluator
from dmlc.binding.facts import Binding, BoundTensor
from dmlc.binding.infer import infer_types, list_equations, spread_sizes
from dmlc.binding.values import Constant, whole_number
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition, TensorDefinition
from dmlc.language.walk import subexpressions
from dmlc.scalars import TENSOR_TYPES, DataType
from dmlc.source import Diagnostic, DmlcError, Span
from dmlc.testing.case import Call
from dmlc.testing.examples import read_cases

Random = np.random.Generator
_Item = TypeVar("_Item")
Shape = tuple[int, ...]

MOST_ELEMENTS = 32_768
"""A tensor has so many elements at most: what is drawn is evaluated in NumPy, too."""

_SIZES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 12)
_LONG_SIZES = (16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 255, 256, 257, 300, 512, 1000, 1025)
"""Sizes about those of vectors, groups and pieces."""
_WHOLE = (0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5)
_NEGATIVE = (-1, -1, -2, -3)
_FAR = (7, 16, 100, 2**31 - 1, 2**32 - 1)
_FLOATS = (0.0, 1.0, 1.0, 0.5, 2.0, -1.0, -0.5, 1.5, 3.0, 0.25, 1e-5, 1e-3, 0.9, 0.1)
_FAR_FLOATS = (-0.0, 1e-30, 1e-45, 1e6, -1e6, 3.4e38, -3.4e38, 65504.0)
_MOVES = 60
"""A draft is moved so often before another is begun."""
_DRAFTS = 12
"""So many drafts are begun for one call."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """A call that a table or a constraint forbids: to bind it must raise `DmlcError`."""

    call: Call
    span: Span
    """What forbids it."""
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Wish:
    """One choice that a call is to have."""

    tensor: str | None = None
    dtype: DataType | None = None
    rank: int | None = None
    present: bool | None = None
    attribute: str | None = None
    value: object = None


@dataclasses.dataclass(slots=True)
class _Draft:
    """What is drawn; the other tensors' types and sizes follow."""

    present: list[TensorDefinition]
    """With entries in place of arrays of tensors."""
    types: dict[str, DataType]
    sizes: dict[str, Shape]
    attributes: dict[str, object]
    fixed: frozenset[str] = frozenset()
    """The attributes that are wished for."""

    def copy(self) -> _Draft:
        return _Draft(
            list(self.present),
            dict(self.types),
            dict(self.sizes),
            dict(self.attributes),
            self.fixed,
        )


def draw_calls(operator: Operator, random: Random, count: int) -> Iterator[Call]:
    """So many calls that the operator permits, as different from each other as can be; fewer where
    none is found in many tries."""
    drawer = _Drawer(operator, random)
    wishes = drawer.list_wishes()
    order = [wishes[k] for k in random.permutation(len(wishes))] if wishes else [_Wish()]
    for wish in itertools.islice(itertools.cycle(order), count):
        call = drawer.draw(wish) or drawer.draw(_Wish())
        if call is not None:
            yield call


def draw_refused(operator: Operator, random: Random, count: int) -> Iterator[Refused]:
    """At most so many calls, each forbidden by one table or constraint and little else: each
    constraint in turn, and the types, dimension counts and tensors that the tables ask for."""
    drawer = _Drawer(operator, random)
    turns = drawer.list_forbidding()
    if not turns:
        return
    order = [turns[k] for k in random.permutation(len(turns))]
    for turn in itertools.islice(itertools.cycle(order), count):
        found = drawer.draw_refused(turn)
        if found is not None:
            yield found


class _Drawer:
    """Draws calls of one operator."""

    def __init__(self, operator: Operator, random: Random) -> None:
        self.operator = operator
        self.definition = operator.definition
        self.random = random
        self.rows = operator.definition.newest.tensors
        self.examples = _read_examples(operator)

    # Wishes -----------------------------------------------------------------------------------

    def list_wishes(self) -> list[_Wish]:
        """Every single choice that the tables offer."""
        found: list[_Wish] = []
        for row in self.rows:
            if row.optional:
                found += [_Wish(tensor=row.name, present=p) for p in (True, False)]
            if row is self.rows[0] or not row.output:
                found += [_Wish(tensor=row.name, dtype=t) for t in row.dtypes]
                found += [_Wish(tensor=row.name, rank=r) for r in row.ranks]
        for attribute in self.definition.attributes:
            found += [
                _Wish(attribute=attribute.name, value=value) for value in _list_values(attribute)
            ]
        return found

    # Permitted calls --------------------------------------------------------------------------

    def draw(self, wish: _Wish) -> Call | None:
        for _ in range(_DRAFTS):
            draft = self._begin(wish)
            found = None if draft is None else self._mend(draft)
            if found is None:
                continue
            draft, binding = found
            for _ in range(int(self.random.integers(0, 4))):
                draft, binding = self._vary(draft, binding)
            if not _grants(wish, binding):
                continue
            return self._lay_out(draft, binding)
        return None

    def _begin(self, wish: _Wish) -> _Draft | None:
        if self.examples and self.random.random() < 0.4:
            return self._from_example(wish)
        present = self._choose_present(wish)
        draft = _Draft(present, {}, {}, {})
        self._choose_types(draft, wish)
        if wish.attribute is not None:
            draft.attributes[wish.attribute] = wish.value
            draft.fixed = frozenset((wish.attribute,))
        if wish.rank is not None and wish.tensor is not None:
            first = next((t for t in present if t.row == wish.tensor), None)
            if first is not None:
                draft.sizes[first.name] = self._draw_sizes(wish.rank)
        binding = self._complete(draft)
        self._choose_attributes(draft, binding)
        return draft

    def _choose_present(self, wish: _Wish) -> list[TensorDefinition]:
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

    def _choose_types(self, draft: _Draft, wish: _Wish) -> None:
        """Some data types; those that the tables decide follow."""
        if wish.dtype is not None:
            draft.types.update((t.name, wish.dtype) for t in draft.present if t.row == wish.tensor)
        inputs = [t for t in draft.present if not t.output] or draft.present
        often = float(self.random.choice([0.0, 0.5]))
        for tensor in inputs:
            if tensor.name in draft.types:
                continue
            if tensor is not inputs[0] and self.random.random() >= often:
                continue
            tried = draft.copy()
            tried.types[tensor.name] = _pick(self.random, tensor.dtypes)
            if self._permits_types(tried):
                draft.types = tried.types
            elif tensor is inputs[0] and wish.dtype is None:
                draft.types.pop(tensor.name, None)

    def _permits_types(self, draft: _Draft) -> bool:
        binding = self._bind(draft)
        combinations = self.definition.combinations
        present = [t for t in infer_types(binding).tensors.values() if t.dtype is not None]
        if any(t.dtype not in t.definition.dtypes for t in present):
            return False
        return not combinations or any(
            all(t.dtype in c.types.get(t.definition.row, (t.dtype,)) for t in present)
            for c in combinations
        )

    def _bind(self, draft: _Draft) -> Binding:
        """What is known by now, worked out no further."""
        bound = {
            t.name: BoundTensor(
                t, draft.types.get(t.name), draft.sizes.get(t.name), None, t.name in draft.sizes
            )
            for t in draft.present
        }
        definitions = {t.name: t for t in self.rows} | {t.name: t for t in draft.present}
        attributes: dict[str, Constant] = {}
        for name, value in draft.attributes.items():
            attribute = self.definition.attribute(name)
            if attribute is not None:
                attributes[name] = convert(attribute, value)
        return Binding(self.definition, bound, attributes, definitions, False)

    def _complete(self, draft: _Draft) -> Binding:
        """Draws the sizes of inputs that nothing decides, one after another, into the draft."""
        binding = _spread(self._bind(draft))
        named = [t.name for t in draft.present if not t.output]
        # Where nothing is read, what is written decides.
        named = named or [t.name for t in draft.present]
        for k in self.random.permutation(len(named)):
            tensor = binding.tensors[named[k]]
            if tensor.sizes is None:
                draft.sizes[tensor.name] = self._draw_sizes_of(tensor, binding)
                binding = _spread(self._bind(draft))
        return binding

    def _draw_sizes_of(self, tensor: BoundTensor, binding: Binding) -> Shape:
        """Sizes for one tensor beside those of others: as many dimensions, mostly; and those of a
        tensor it is broadcastable to, with some of them 1."""
        definition = tensor.definition
        known = [t for t in binding.tensors.values() if t.sizes is not None]
        pattern = definition.dimensions
        if pattern is not None:
            named = {
                d.name: size
                for t in known
                if t.definition.dimensions is not None
                and len(t.definition.dimensions) == len(t.sizes or ())
                for d, size in zip(t.definition.dimensions, t.sizes or (), strict=True)
            }
            kept = [d for d in pattern if not d.optional or self.random.random() < 0.7]
            made = [
                d.size if d.size is not None else named.get(d.name, self._draw_size()) for d in kept
            ]
            if made:
                return tuple(int(size) for size in made)
        for constraint in self.definition.constraints:
            if not isinstance(constraint, syntax.Sentence) or definition.row not in {
                s.text for s in constraint.subjects
            }:
                continue
            if constraint.kind == "scalar":
                return (1,) * _pick(self.random, definition.ranks)
            target = binding.tensors.get(constraint.objects[0].text)
            if constraint.kind == "broadcastable" and target is not None and target.sizes:
                return self._shrink_axes(_whole(target.sizes))
        alike = [t for t in known if len(t.sizes or ()) in definition.ranks]
        if alike and self.random.random() < 0.8:
            other = alike[int(self.random.integers(len(alike)))]
            sizes = _whole(other.sizes or ())
            if self.random.random() < 0.6:
                return sizes
            return self._draw_sizes(len(sizes))
        return self._draw_sizes(_pick(self.random, definition.ranks))

    def _shrink_axes(self, sizes: Shape) -> Shape:
        often = float(self.random.choice([0.0, 0.5, 1.0]))
        return tuple(1 if self.random.random() < often else size for size in sizes)

    def _draw_size(self) -> int:
        if self.random.random() < 0.01:
            return 0
        return _pick(self.random, _SIZES)

    def _draw_sizes(self, rank: int) -> Shape:
        """Sizes with few elements in all: the more dimensions, the shorter."""
        sizes = [self._draw_size() for _ in range(rank)]
        while math.prod(sizes) > 2048:
            longest = sizes.index(max(sizes))
            sizes[longest] = (sizes[longest] + 1) // 2
        return tuple(sizes)

    # Attributes -------------------------------------------------------------------------------

    def _choose_attributes(self, draft: _Draft, binding: Binding) -> None:
        ranks = [len(t.sizes) for t in binding.tensors.values() if t.sizes is not None]
        lengths = [n for r in ranks for n in (r, r - 2) if n > 0] or [1, 2]
        common = _pick(self.random, lengths)
        defaults = self.random.random() < 0.15
        for attribute in self.definition.attributes:
            name = attribute.name
            if name in draft.attributes or self.definition.arrays_of_length(name):
                continue
            if attribute.default is not None and (defaults or self.random.random() < 0.25):
                continue
            length = None
            if attribute.is_array:
                length = self._find_length(draft, attribute)
                length = common if length is None else length
            draft.attributes[name] = self._draw_value(attribute, length)

    def _find_length(self, draft: _Draft, attribute: AttributeDefinition) -> int | None:
        """The length of an array where it follows from what is drawn; mostly the tables say it."""
        if attribute.length is None:
            return int(self.random.integers(1, 5)) if self.random.random() < 0.3 else None
        if isinstance(attribute.length, syntax.Reference):
            others = self.definition.arrays_of_length(attribute.length.name)
            for other in others:
                value = draft.attributes.get(other.name)
                if isinstance(value, tuple):
                    return len(value)
        try:
            found = whole_number(Evaluator(_spread(self._bind(draft))).constant(attribute.length))
        except DmlcError:
            return None  # It depends on what is not drawn yet.
        return found if found is not None and 0 <= found <= 16 else None

    def _draw_value(self, attribute: AttributeDefinition, length: int | None) -> object:
        if length is None:
            return self._draw_one(attribute)
        if self.random.random() < 0.5:
            return (self._draw_one(attribute),) * length
        return tuple(self._draw_one(attribute) for _ in range(length))

    def _draw_one(self, attribute: AttributeDefinition) -> object:
        listed = _list_values(attribute)
        if listed:
            return listed[int(self.random.integers(len(listed)))]
        far = self.random.random() < 0.06
        if attribute.base == "FLOAT":
            return _pick(self.random, _FAR_FLOATS if far else _FLOATS)
        pool = _FAR if far else _WHOLE
        if attribute.base == "INT" and self.random.random() < 0.25:
            pool = _NEGATIVE
        return _pick(self.random, pool)

    # Examples ---------------------------------------------------------------------------------

    def _from_example(self, wish: _Wish) -> _Draft | None:
        """An example's call, as few of its sizes kept as decide the others."""
        call = self.examples[int(self.random.integers(len(self.examples)))]
        binding = call.binding
        present = [t.definition for t in binding.tensors.values()]
        draft = _Draft(present, {}, {}, dict(call.attributes))
        order = self.random.permutation(len(present))
        self._choose_types(draft, wish)
        for outputs in (False, True):
            for k in order:
                tensor = present[k]
                if tensor.output == outputs and tensor.name in call.tensors:
                    spread = _spread(self._bind(draft)).tensors[tensor.name].sizes
                    sizes = _whole(call.tensors[tensor.name].sizes or ())
                    if spread is None and (not outputs or self._is_open(draft, tensor.name)):
                        draft.sizes[tensor.name] = sizes
        if wish.attribute is not None:
            draft.attributes[wish.attribute] = wish.value
            draft.fixed = frozenset((wish.attribute,))
        return draft

    def _is_open(self, draft: _Draft, name: str) -> bool:
        """Whether nothing decides an output's sizes."""
        found = self._resolve(draft)
        return not isinstance(found, Binding) and any(
            f"output '{name}' cannot be inferred" in d.message for d in found
        )

    # Mending ----------------------------------------------------------------------------------

    def _resolve(self, draft: _Draft) -> Binding | list[Diagnostic]:
        """What the operator makes of a draft, or what is wrong with it."""
        try:
            spread = _spread(self._bind(draft))
            described: dict[str, TensorDesc | Shape] = {}
            for tensor in spread.tensors.values():
                dtype = draft.types.get(tensor.name)
                if tensor.sizes is None:
                    if not tensor.definition.output:
                        return [Diagnostic(f"the sizes of '{tensor.name}' are open", None)]
                    continue
                sizes = _whole(tensor.sizes)
                described[tensor.name] = sizes if dtype is None else TensorDesc(dtype, sizes)
            wanted = [t.name for t in draft.present if t.output]
            binding = self.operator.resolve(described, draft.attributes, computed=wanted)
        except DmlcError as error:
            return list(error.diagnostics)
        if any(math.prod(_whole(t.sizes or ())) > MOST_ELEMENTS for t in binding.tensors.values()):
            return [Diagnostic("too many elements", None)]
        return binding

    def _mend(self, draft: _Draft) -> tuple[_Draft, Binding] | None:
        """The draft moved until nothing forbids it."""
        found = self._resolve(draft)
        for _ in range(_MOVES):
            if isinstance(found, Binding):
                return draft, found
            moved = draft.copy()
            wrong = found[int(self.random.integers(len(found)))]
            self._move(moved, wrong)
            try:
                self._complete(moved)
            except DmlcError:
                continue  # Sizes that no tensor has.
            after = self._resolve(moved)
            if isinstance(after, Binding) or len(after) <= len(found):
                draft, found = moved, after
        return (draft, found) if isinstance(found, Binding) else None

    def _move(self, draft: _Draft, wrong: Diagnostic) -> None:
        """One small change that may mend what is wrong, or bring what is broken nearer to it."""
        constraint = self._find_constraint(wrong)
        condition = constraint.condition if isinstance(constraint, syntax.Require) else None
        if condition is not None and self.random.random() < 0.5 and self._solve(draft, condition):
            return
        open_outputs = [
            t for t in draft.present
            if t.output and t.name not in draft.sizes and f"'{t.name}'" in wrong.message
        ]  # fmt: skip
        if open_outputs and condition is None:
            output = open_outputs[0]
            draft.sizes[output.name] = self._draw_sizes_of(
                self._bind(draft).tensors[output.name], _spread(self._bind(draft))
            )
            return
        names = self._list_names(draft, wrong, condition)
        name = names[int(self.random.integers(len(names)))] if names else None
        attribute = None if name is None else self.definition.attribute(name)
        if attribute is not None and name is not None and name not in draft.fixed:
            self._move_attribute(draft, attribute)
        elif name in draft.sizes:
            self._move_sizes(draft, name)
        elif draft.sizes:
            self._move_sizes(draft, _pick(self.random, tuple(draft.sizes)))

    def _find_constraint(self, wrong: Diagnostic) -> syntax.Constraint | None:
        return next((c for c in self.definition.constraints if c.span == wrong.span), None)

    def _list_names(
        self, draft: _Draft, wrong: Diagnostic, condition: syntax.Expression | None
    ) -> list[str]:
        """The attributes and the drawn tensors that a mistake speaks of."""
        movable = [a.name for a in self.definition.attributes
                   if not self.definition.arrays_of_length(a.name)]  # fmt: skip
        movable += list(draft.sizes)
        if condition is None:
            said = [n for n in movable if f"'{n}'" in wrong.message or n in str(wrong)]
        else:
            read = {p.name for p in subexpressions(condition) if isinstance(p, syntax.Reference)}
            said = [n for n in movable if n.partition("[")[0] in read]
        return said or movable

    def _solve(self, draft: _Draft, condition: syntax.Expression) -> bool:
        """Sets what an equation states: a tensor's sizes, one of them, or an attribute."""
        evaluator = Evaluator(_spread(self._bind(draft)))
        equations = list_equations(evaluator, condition)
        for name, other in equations:
            if name in draft.sizes:
                try:
                    value = evaluator.constant(other)
                except DmlcError:
                    continue  # It depends on what is not known.
                sizes = [whole_number(v) for v in value] if isinstance(value, tuple) else []
                whole = tuple(s for s in sizes if s is not None and 0 <= s <= MOST_ELEMENTS)
                if whole and len(whole) == len(sizes) <= 8:
                    draft.sizes[name] = whole
                    return True
        sides = [
            (s, o)
            for part in subexpressions(condition)
            if isinstance(part, syntax.Binary) and part.operator in ("==", "<=", ">=")
            for s, o in ((part.left, part.right), (part.right, part.left))
        ]
        for k in self.random.permutation(len(sides)):
            side, other = sides[k]
            if self._assign(draft, evaluator, side, other):
                return True
        return False

    def _assign(
        self,
        draft: _Draft,
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
                    name = _sized(base)
                    axis, size = whole_number(evaluator.constant(index)), whole_number(value)
                    if name not in draft.sizes or axis is None or size is None:
                        return False
                    sizes = list(draft.sizes[name])
                    if not 0 <= axis < len(sizes) or not 0 <= size <= MOST_ELEMENTS:
                        return False
                    sizes[axis] = size
                    draft.sizes[name] = tuple(sizes)
                    return True
                case _:
                    return False
        except DmlcError:
            return False  # It depends on what is not known.

    def _move_attribute(self, draft: _Draft, attribute: AttributeDefinition) -> None:
        name = attribute.name
        value = draft.attributes.get(name)
        if attribute.default is not None and self.random.random() < 0.2:
            draft.attributes.pop(name, None)
            return
        length = None
        if attribute.is_array:
            length = len(value) if isinstance(value, tuple) else None
            if length is None or self.random.random() < 0.4:
                ranks = [len(s) for s in draft.sizes.values()]
                length = _pick(self.random, [n for r in ranks for n in (r, r - 2) if n > 0] or [1])
            if isinstance(value, tuple) and len(value) == length and length:
                items = list(value)
                items[int(self.random.integers(length))] = self._draw_one(attribute)
                draft.attributes[name] = tuple(items)
                return
            counter = attribute.length
            if isinstance(counter, syntax.Reference):
                # Arrays of one length are as long as each other.
                for other in self.definition.arrays_of_length(counter.name):
                    if isinstance(draft.attributes.get(other.name), tuple):
                        draft.attributes[other.name] = self._draw_value(other, length)
        draft.attributes[name] = self._draw_value(attribute, length)

    def _move_sizes(self, draft: _Draft, name: str) -> None:
        sizes = list(draft.sizes[name])
        others = [s for n, s in draft.sizes.items() if n != name]
        roll = self.random.random()
        if roll < 0.25 and others:
            # As another tensor has it, there or throughout.
            other = others[int(self.random.integers(len(others)))]
            axis = int(self.random.integers(len(sizes)))
            if self.random.random() < 0.5:
                sizes = list(other)
            else:
                sizes[axis] = _pick(self.random, other)
        elif roll < 0.4:
            definition = next(t for t in draft.present if t.name == name)
            sizes = list(self._draw_sizes(_pick(self.random, definition.ranks)))
        else:
            sizes[int(self.random.integers(len(sizes)))] = self._draw_size()
        draft.sizes[name] = tuple(sizes)

    # Variation --------------------------------------------------------------------------------

    def _vary(self, draft: _Draft, binding: Binding) -> tuple[_Draft, Binding]:
        """The draft with one thing changed, where that is permitted; a long size, mostly."""
        moved = draft.copy()
        roll = self.random.random()
        if roll < 0.7 and moved.sizes:
            name = _pick(self.random, tuple(moved.sizes))
            axis = int(self.random.integers(len(moved.sizes[name])))
            size = moved.sizes[name][axis]
            pool = _LONG_SIZES if self.random.random() < 0.6 else _SIZES
            changed = _pick(self.random, pool)
            for other, sizes in moved.sizes.items():
                if axis < len(sizes) and sizes[axis] == size and (size != 1 or other == name):
                    moved.sizes[other] = (*sizes[:axis], changed, *sizes[axis + 1 :])
        elif self.definition.attributes:
            attribute = _pick(self.random, self.definition.attributes)
            if attribute.name not in moved.fixed and attribute.name in moved.attributes:
                self._move_attribute(moved, attribute)
        found = self._resolve(moved)
        return (moved, found) if isinstance(found, Binding) else (draft, binding)

    def _lay_out(self, draft: _Draft, binding: Binding) -> Call:
        """The call with every tensor described, some of them in other layouts than packed."""
        tensors: dict[str, TensorDesc] = {}
        often = float(self.random.choice([0.0, 0.0, 0.5, 1.0]))
        for name, tensor in binding.tensors.items():
            sizes = _whole(tensor.sizes or ())
            dtype = tensor.dtype or DataType.FLOAT32
            strides = None
            if self.random.random() < often and sizes and 0 not in sizes:
                strides = self._draw_strides(sizes, tensor.definition.output)
            tensors[name] = TensorDesc(dtype, sizes, strides)
        call = Call(self.operator, tensors, dict(draft.attributes))
        try:
            self.operator.resolve(tensors, draft.attributes)
        except DmlcError:
            # A constraint reads strides.
            packed = {n: TensorDesc(d.data_type, d.sizes) for n, d in tensors.items()}
            return Call(self.operator, packed, dict(draft.attributes))
        return call

    def _draw_strides(self, sizes: Shape, output: bool) -> Shape | None:
        order = list(range(len(sizes)))
        if self.random.random() < 0.5:
            order = [int(k) for k in self.random.permutation(len(sizes))]
        padded = self.random.random() < 0.4
        strides = [0] * len(sizes)
        step = _pick(self.random, (1, 1, 2)) if padded else 1
        for axis in reversed(order):
            strides[axis] = step
            step *= sizes[axis]
            if padded:
                step += _pick(self.random, (0, 1, 3))
        if not output and self.random.random() < 0.2:
            strides[int(self.random.integers(len(sizes)))] = 0
        return tuple(strides)

    # Forbidden calls --------------------------------------------------------------------------

    def list_forbidding(self) -> list[syntax.Constraint | TensorDefinition]:
        return [*self.definition.constraints, *self.rows]

    def draw_refused(self, turn: syntax.Constraint | TensorDefinition) -> Refused | None:
        """A permitted call changed until that constraint, or that row of the table, forbids it."""
        for _ in range(4):
            call = self.draw(_Wish())
            if call is None:
                continue
            for _ in range(24):
                if isinstance(turn, TensorDefinition):
                    found = self._forbid_row(call, turn)
                else:
                    found = self._forbid(call, turn)
                if found is not None:
                    return found
        return None

    def _forbid_row(self, call: Call, row: TensorDefinition) -> Refused | None:
        """A tensor of a type or with a number of dimensions that its row does not list, or that is
        missing."""
        names = [n for n in call.tensors if n.partition("[")[0] == row.name]
        if not names:
            return None
        name = _pick(self.random, names)
        desc = call.tensors[name]
        roll = self.random.random()
        tensors = dict(call.tensors)
        types = [t for t in TENSOR_TYPES if t not in row.dtypes]
        ranks = [r for r in range(1, 9) if r not in row.ranks]
        if roll < 0.4 and types:
            dtype = _pick(self.random, types)
            tensors[name] = TensorDesc(dtype, desc.sizes)
            why = f"'{name}' is {dtype.name}"
        elif roll < 0.7 and ranks:
            rank = _pick(self.random, ranks)
            tensors[name] = TensorDesc(desc.data_type, self._draw_sizes(rank))
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
        """The call with a size, a type or an attribute changed so that the constraint is broken, as
        far as can be said here without binding it."""
        moved = self._disturb(call, constraint)
        if moved is None:
            return None
        why = _find_broken(moved, constraint)
        return None if why is None else Refused(moved, constraint.span, why)

    def _disturb(self, call: Call, constraint: syntax.Constraint) -> Call | None:
        """The call with one thing changed that the constraint speaks of."""
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
        sizes = list(_whole(desc.sizes or ()))
        facts = (
            {o.text for o in constraint.objects}
            if isinstance(constraint, syntax.Sentence) and constraint.kind == "same"
            else {"Sizes"}
        )
        if "DataType" in facts and self.random.random() < 0.5:
            row = next(t for t in self.rows if t.name == name.partition("[")[0])
            changed = TensorDesc(_pick(self.random, row.dtypes), desc.sizes)
        else:
            axis = int(self.random.integers(len(sizes)))
            sizes[axis] = max(0, sizes[axis] + _pick(self.random, (-1, 1, 1, 2)))
            if "DimensionCount" in facts and self.random.random() < 0.4 and len(sizes) < 8:
                sizes = [1, *sizes]
            changed = TensorDesc(desc.data_type, sizes)
        return dataclasses.replace(call, tensors={**call.tensors, name: changed})

    def _step(self, attribute: AttributeDefinition, value: object) -> object:
        """A value just beside one, or any other."""
        if isinstance(value, tuple) and value:
            items = list(value)
            k = int(self.random.integers(len(items)))
            items[k] = self._step(attribute, items[k])
            return tuple(items)
        if isinstance(value, int) and not isinstance(value, bool) and attribute.base != "ENUM":
            stepped = value + _pick(self.random, (-1, 1))
            return max(stepped, 0) if attribute.base == "UINT" else stepped
        return self._draw_one(attribute)


# Parts ------------------------------------------------------------------------------------------


def _find_broken(call: Call, constraint: syntax.Constraint) -> str | None:
    """Why a constraint does not hold of a call, worked out from the call's own words; None where it
    does, or where that cannot be said."""
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
    """Whether a condition is false of what a call says, with every default in its place."""
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
            lengths = [v for a in arrays if isinstance(v := call.attributes.get(a.name), tuple)]
            if attribute.name in call.attributes:
                attributes[attribute.name] = convert(attribute, call.attributes[attribute.name])
            elif lengths:
                attributes[attribute.name] = len(lengths[0])
            elif attribute.default is not None:
                return None  # A default may follow from what was changed.
        value = evaluator.constant(constraint.condition)
    except DmlcError:
        return None  # It cannot be said of a call that is wrong in other ways.
    return None if _holds(value) else "the condition is false"


def _holds(value: Constant) -> bool:
    return all(_holds(v) for v in value) if isinstance(value, tuple) else value is True


def _grants(wish: _Wish, binding: Binding) -> bool:
    """Whether what was drawn has what was wished for."""
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


def _spread(binding: Binding) -> Binding:
    """The binding with what follows from what is known."""
    try:
        return spread_sizes(binding)
    except DmlcError:
        return binding  # What does not fit is found when it is resolved.


def _list_values(attribute: AttributeDefinition) -> list[object]:
    """What an attribute may be, where that is a short list."""
    if attribute.enum is not None:
        return list(attribute.enum.members)
    if attribute.base == "BOOL":
        return [False, True]
    if attribute.values is None:
        return []
    if attribute.base == "STRING":
        return list(attribute.values)
    found: list[object] = []
    for text in attribute.values:
        try:
            found.append(float(text) if attribute.base == "FLOAT" else int(text))
        except ValueError:
            return []
    return found


def _read_examples(operator: Operator) -> list[Call]:
    """The calls of the operator's examples that it permits."""
    found: list[Call] = []
    for example in operator.definition.examples:
        with contextlib.suppress(DmlcError):
            found.append(next(read_cases(operator, example)).call)
    return found


def _sized(expression: syntax.Expression) -> str:
    match expression:
        case syntax.Member(base=syntax.Reference(name=name), member=syntax.Name(text="Sizes")):
            return name
        case _:
            return ""


def _whole(sizes: Sequence[object]) -> Shape:
    return tuple(size for size in sizes if isinstance(size, int))


def _pick(random: Random, items: Sequence[_Item]) -> _Item:
    return items[int(random.integers(len(items)))]
