"""Evaluates expression trees by the language's rules: what each element may be.

It walks the tree that was drawn, never the text, so that nothing of the compiler takes part.
"""

from __future__ import annotations

import dataclasses
import numpy as np

from dmlc.scalars import DataType as T
from tests.fuzz import folds
from tests.fuzz.possible import (
    PLACES,
    Array,
    Floats,
    Rules,
    Values,
    Wholes,
    apply,
    cast,
    constant,
    known_wholes,
    select,
)
from tests.fuzz.trees import (
    Apply,
    Cast,
    Choose,
    Fold,
    Name,
    Node,
    Number,
    Read,
    Reduce,
    Variable,
)

Variables = tuple[tuple[str, int], ...]


def spread(v: Values, shape: tuple[int, ...]) -> Values:
    """The values of every element of a shape."""
    def wide(a: Array) -> Array:
        return np.broadcast_to(a, shape)

    if isinstance(v, Wholes):
        return Wholes(v.dtype, wide(v.value), wide(v.known))
    low = wide(v.low)
    top, least = wide(np.asarray(v.top)), wide(np.asarray(v.least))
    return Floats(v.dtype, low, low if v.exact else wide(v.high), wide(v.nan), top, least)


@dataclasses.dataclass
class Evaluation:
    """One run of a formula: the tensors by name, and how floats are computed."""

    tensors: dict[str, Values]
    rules: Rules

    def take(self, node: Node, dtype: T | None, over: Variables = ()) -> Values:
        """The value of a node over a mesh of index variables, if there are any, in a type where
        what it is assigned to has one."""
        with np.errstate(all="ignore"):
            value = _Walk(self, over).find(node)
            return value if dtype is None else cast(PLACES, value, dtype.compute)


class _Walk:
    """A node's values at every point of the index variables in scope."""

    def __init__(self, run: Evaluation, over: Variables) -> None:
        self.run = run
        self.over = over
        self.found: dict[int, Values] = {}
        self.kept: list[Node] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, extent in self.over)

    def find(self, node: Node) -> Values:
        if id(node) not in self.found:
            self.found[id(node)] = self.make(node)
            self.kept.append(node)
        return self.found[id(node)]

    def make(self, node: Node) -> Values:
        rules = PLACES if node.placed else self.run.rules
        match node:
            case Name():
                return self.run.tensors[node.name]
            case Number():
                return constant(node.dtype, node.value)
            case Variable():
                place = [name for name, _ in self.over].index(node.name)
                extent = self.over[place][1]
                shape = [1] * len(self.over)
                shape[place] = extent
                return known_wholes(T.INDEX, np.arange(extent).reshape(shape))
            case Apply():
                kind = self.kind_of(node)
                given = [self.take(o, kind) for o in node.operands]
                if kind is T.INDEX and node.name in ("div", "floor", "ceil", "trunc"):
                    return self.round_quotient(node)
                return apply(rules, node.name, *given)
            case Cast():
                return cast(rules, self.find(node.operand), node.dtype)
            case Choose():
                condition = self.find(node.condition)
                assert isinstance(condition, Wholes)
                then, otherwise = (self.take(n, node.dtype) for n in (node.then, node.otherwise))
                return select(condition, then, otherwise)
            case Fold():
                return self.fold(node)
            case Read():
                return self.read(node)
            case Reduce():
                return self.reduce(node)
        raise TypeError(node)

    @staticmethod
    def kind_of(node: Apply) -> T:
        """The type that operands are computed in: the one that some of them have."""
        given = [o.dtype for o in node.operands if not o.free]
        if given:
            return given[0]
        if node.soft or node.dtype is T.BOOL:
            kinds = {o.dtype for o in node.operands}
            if kinds == {T.INDEX}:
                return T.INDEX
            return next(k for k in (T.FLOAT32, *kinds) if k in kinds)
        return node.dtype if node.dtype is not T.BOOL else node.operands[0].dtype

    def take(self, node: Node, dtype: T) -> Values:
        """An operand in the type of what it meets."""
        value = self.find(node)
        return value if value.dtype is dtype else cast(PLACES, value, dtype)

    def round_quotient(self, node: Apply) -> Values:
        raise NotImplementedError(node)

    # Whole tensors -------------------------------------------------------------------------

    def fold(self, node: Fold) -> Values:
        value = self.find(node.operand)
        low = value.low if isinstance(value, Floats) else value.value
        shape = low.shape
        folded = [a for a in node.axes if shape[a] != 1]
        positional = node.combiner.startswith("arg")
        if not folded:
            zero = known_wholes(T.INT64, np.zeros(shape, np.int64))
            return cast(PLACES, zero, node.dtype) if positional else value
        kept = [a for a in range(len(shape)) if a not in folded]
        order = (*kept, *folded)
        moved = tuple(shape[a] for a in order)

        def turn(a: Array) -> Array:
            return np.transpose(np.broadcast_to(a, shape), order)

        if isinstance(value, Wholes):
            turned: Values = Wholes(value.dtype, turn(value.value), turn(value.known))
        else:
            low = turn(value.low)
            turned = Floats(
                value.dtype, low, low if value.exact else turn(value.high), turn(value.nan),
                turn(np.asarray(value.top)), turn(np.asarray(value.least)),
            )  # fmt: skip
        fold = folds.mean if node.combiner == "mean" else None
        if fold is not None:
            made = fold(self.run.rules, turned, None, moved, len(folded))
        else:
            made = folds.fold(self.run.rules, node.combiner, turned, None, moved, len(folded))
        rest = tuple(1 if a in folded else n for a, n in enumerate(shape))
        if isinstance(made, Wholes):
            made = Wholes(made.dtype, made.value.reshape(rest), made.known.reshape(rest))
            return cast(PLACES, made, node.dtype) if positional else made
        return Floats(
            made.dtype, made.low.reshape(rest), made.high.reshape(rest), made.nan.reshape(rest),
            np.asarray(made.top).reshape(rest), np.asarray(made.least).reshape(rest),
        )  # fmt: skip

    # Index notation ------------------------------------------------------------------------

    def read(self, node: Read) -> Values:
        raise NotImplementedError(node)

    def reduce(self, node: Reduce) -> Values:
        raise NotImplementedError(node)
