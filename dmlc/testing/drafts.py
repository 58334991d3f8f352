"""Drafts of calls: data types, sizes and attributes drawn at random, and their implications."""

from __future__ import annotations

import dataclasses
import math

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.attributes import convert
from dmlc.binding.facts import Binding, BoundTensor, match_dimensions, name_sizes
from dmlc.binding.infer import infer_types, spread_sizes
from dmlc.binding.values import Constant
from dmlc.language import syntax
from dmlc.language.definitions import TensorDefinition
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError
from dmlc.testing.draw_values import (
    Random,
    Shape,
    draw_size,
    draw_sizes,
    draw_value,
    pick,
    shuffle,
)

MOST_ELEMENTS = 32_768
"""Largest number of elements of a tensor, since NumPy evaluates each call too."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """Property that a call is to have."""

    tensor: str | None = None
    dtype: DataType | None = None
    rank: int | None = None
    present: bool | None = None
    attribute: str | None = None
    value: object = None


@dataclasses.dataclass(slots=True)
class Draft:
    """Random choices of a call; the other tensors' types and sizes follow from them."""

    wish: Wish
    present: list[TensorDefinition]
    """Tensors present, with arrays replaced by their entries."""
    types: dict[str, DataType]
    sizes: dict[str, Shape]
    attributes: dict[str, object]

    def keeps_rank(self) -> bool:
        """Whether the draft has the rank that is wished for."""
        wanted = [self.sizes.get(t.name) for t in self.present if t.row == self.wish.tensor]
        rank = self.wish.rank
        return rank is None or all(sizes is None or len(sizes) == rank for sizes in wanted)

    def show(self) -> str:
        """Text of everything that a binding depends on: equal for equal drafts alone."""
        present = [tensor.name for tensor in self.present]
        return repr((present, self.types, self.sizes, self.attributes))

    def copy(self) -> Draft:
        return Draft(
            self.wish,
            list(self.present),
            dict(self.types),
            dict(self.sizes),
            dict(self.attributes),
        )


class Drafter:
    """Drafter of calls of one operator."""

    def __init__(self, operator: Operator, random: Random) -> None:
        self.operator = operator
        self.definition = operator.definition
        self.random = random
        self.rows = operator.definition.newest.tensors

    def choose_types(self, draft: Draft) -> None:
        """Draws data types; those that the tables imply follow."""
        wished = draft.wish.dtype
        if wished is not None:
            draft.types |= {t.name: wished for t in draft.present if t.row == draft.wish.tensor}
        inputs = [t for t in draft.present if not t.output] or draft.present
        often = float(self.random.choice([0.0, 0.5]))
        for tensor in inputs:
            drawn = tensor is inputs[0] or self.random.random() < often
            if drawn and tensor.name not in draft.types:
                draft.types[tensor.name] = pick(self.random, tensor.dtypes)

    def bind(self, draft: Draft) -> Binding:
        """Binding with what is known so far, without inference."""
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

    def complete(self, draft: Draft) -> Binding:
        """Draws the sizes of inputs that nothing implies, one after another, and adds them to the
        draft."""
        binding = spread(self.bind(draft))
        named = [t.name for t in draft.present if not t.output]
        # Without inputs, the outputs decide.
        named = named or [t.name for t in draft.present]
        for name in shuffle(self.random, named):
            tensor = binding.tensors[name]
            if tensor.sizes is None:
                draft.sizes[tensor.name] = self.draw_sizes_of(tensor, binding)
                binding = spread(self.bind(draft))
        return binding

    def draw_sizes_of(self, tensor: BoundTensor, binding: Binding) -> Shape:
        """Random sizes for one tensor, mostly of the same rank as the others; if it is
        broadcastable to another, that one's sizes with some replaced by 1."""
        definition = tensor.definition
        known = [t for t in binding.tensors.values() if t.sizes is not None]
        pattern = definition.dimensions
        if pattern is not None:
            named = name_sizes(known)
            optional = [d for d in pattern if d.optional]
            spare = 0
            # A dimension of another tensor is omitted only if its size is 1.
            while (
                spare < len(optional)
                and named.get(optional[spare].name or "", 1) == 1
                and self.random.random() < 0.4
            ):
                spare += 1
            kept = match_dimensions(pattern, len(pattern) - spare) or pattern
            made = [
                d.size if d.size is not None else named.get(d.name or "", draw_size(self.random))
                for d in kept
            ]
            if made:
                return tuple(int(size) for size in made)
        for constraint in self.definition.constraints:
            if not isinstance(constraint, syntax.Sentence) or definition.row not in {
                s.text for s in constraint.subjects
            }:
                continue
            if constraint.kind == "scalar":
                return (1,) * pick(self.random, definition.ranks)
            target = binding.tensors.get(constraint.objects[0].text)
            if constraint.kind == "broadcastable" and target is not None and target.sizes:
                return self._shrink_axes(target.shape)
        alike = [t for t in known if len(t.sizes or ()) in definition.ranks]
        if alike and self.random.random() < 0.8:
            other = alike[int(self.random.integers(len(alike)))]
            sizes = other.shape
            if self.random.random() < 0.6:
                return sizes
            return draw_sizes(self.random, len(sizes))
        return draw_sizes(self.random, pick(self.random, definition.ranks))

    def _shrink_axes(self, sizes: Shape) -> Shape:
        often = float(self.random.choice([0.0, 0.5, 1.0]))
        return tuple(1 if self.random.random() < often else size for size in sizes)

    def choose_attributes(self, draft: Draft, binding: Binding) -> None:
        ranks = [len(t.sizes) for t in binding.tensors.values() if t.sizes is not None]
        lengths = [n for r in ranks for n in (r, r - 2) if n > 0] or [1, 2]
        common = pick(self.random, lengths)
        defaults = self.random.random() < 0.15
        for attribute in self.definition.attributes:
            name = attribute.name
            if name in draft.attributes or self.definition.arrays_of_length(name):
                continue
            if attribute.default is not None and (defaults or self.random.random() < 0.25):
                continue
            length = common if attribute.is_array else None
            if length is not None and attribute.length is None and self.random.random() < 0.3:
                length = int(self.random.integers(1, 5))
            draft.attributes[name] = draw_value(self.random, attribute, length)

    def describe(self, draft: Draft) -> dict[str, TensorDesc]:
        """Inputs of a draft, and outputs whose sizes are drawn."""
        binding = infer_types(spread(self.bind(draft)))
        return {
            name: TensorDesc(tensor.dtype or DataType.FLOAT32, tensor.sizes)
            for name, tensor in binding.tensors.items()
            if not tensor.definition.output or name in draft.sizes
        }

    def resolve(self, draft: Draft) -> Binding | list[Diagnostic]:
        """Binding of a draft, or the errors in it."""
        try:
            known = spread(self.bind(draft))
            described: dict[str, TensorDesc | Shape] = {}
            for tensor in known.tensors.values():
                dtype = draft.types.get(tensor.name)
                if tensor.sizes is None:
                    if not tensor.definition.output:
                        return [Diagnostic(f"the sizes of '{tensor.name}' are open", None)]
                    continue
                sizes = tensor.shape
                described[tensor.name] = sizes if dtype is None else TensorDesc(dtype, sizes)
            wanted = [t.name for t in draft.present if t.output]
            binding = self.operator.resolve(described, draft.attributes, computed=wanted)
        except DmlcError as error:
            return list(error.diagnostics)
        if any(math.prod(t.shape) > MOST_ELEMENTS for t in binding.tensors.values()):
            return [Diagnostic("too many elements", None)]
        return binding


def spread(binding: Binding) -> Binding:
    """Binding with everything that the known types and sizes imply."""
    try:
        return spread_sizes(binding)
    except DmlcError:
        return binding  # What does not fit is found when it is resolved.
