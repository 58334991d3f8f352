"""Evaluates expression trees by the language's rules: what each element may be.

It walks the tree that was drawn, never the text, so that nothing of the compiler takes part.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dmlc.scalars import DataType as T
from tests.fuzz import folds
from tests.fuzz.operations import apply
from tests.fuzz.possible import (
    PLACES,
    Array,
    Floats,
    Rules,
    Values,
    Wholes,
    cast,
    constant,
    fold_rules,
    known_wholes,
    place_rules,
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
    walk,
)

Variables = tuple[tuple[str, int], ...]


@dataclasses.dataclass
class Evaluation:
    """One run of a formula: the tensors by name, and how floats are computed."""

    tensors: dict[str, Values]
    rules: Rules
    known: set[str] = dataclasses.field(default_factory=set)
    """The names of what depends on positions alone."""

    def is_known(self, node: Node) -> bool:
        """Whether a node depends on positions and numbers alone, whatever it reads and folds."""
        if isinstance(node, Name | Read) and node.name not in self.known:
            return False
        return all(map(self.is_known, node.parts))

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
        rules = fold_rules(self.run.rules, self.run.is_known(node))
        if node.placed:
            rules = place_rules(self.run.rules)
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
                if node.dtype is T.INDEX and node.name in ("floor", "ceil", "trunc"):
                    return self.round_quotient(node)
                kind = self.kind_of(node)
                given = [self.take(o, kind) for o in node.operands]
                return apply(rules, node.name, *given)
            case Cast():
                made = cast(rules, self.find(node.operand), node.dtype)
                if node.half is None:
                    return made
                return apply(rules, f"round_{node.half.name.lower()}", made)
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
        return node.operands[0].dtype if node.dtype is T.BOOL else node.dtype

    def take(self, node: Node, dtype: T) -> Values:
        """An operand in the type of what it meets."""
        value = self.find(node)
        return value if value.dtype is dtype else cast(PLACES, value, dtype)

    def round_quotient(self, node: Apply) -> Values:
        """`floor(a / b)` of whole numbers, which is exact."""
        (quotient,) = node.operands
        assert isinstance(quotient, Apply)
        a, b = (self.take(o, T.INDEX) for o in quotient.operands)
        assert isinstance(a, Wholes)
        assert isinstance(b, Wholes)
        down = a.value // b.value
        match node.name:
            case "floor":
                made = down
            case "ceil":
                made = -(-a.value // b.value)
            case _:
                made = np.where((a.value < 0) != (b.value < 0), -(-a.value // b.value), down)
        return Wholes(T.INDEX, made, a.known & b.known)

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
        tensor = self.run.tensors[node.name]
        held = tensor.low if isinstance(tensor, Floats) else tensor.value
        inside, known = np.asarray(True), np.asarray(True)
        places: list[Array] = []
        for position, size in zip(node.positions, held.shape, strict=True):
            found = _place(self.find(position))
            inside = inside & (found.value >= 0) & (found.value < size)
            known = known & found.known
            places.append(np.clip(found.value, 0, max(size - 1, 0)))
        if 0 in held.shape:
            assert node.otherwise is not None
            return self.take(node.otherwise, node.dtype)
        at = tuple(np.broadcast_arrays(*places))

        def pick(a: Array) -> Array:
            return np.broadcast_to(a, held.shape)[at]

        if isinstance(tensor, Wholes):
            value: Values = Wholes(tensor.dtype, pick(tensor.value), pick(tensor.known) & known)
        else:
            low = pick(tensor.low)
            high, nan = low if tensor.exact else pick(tensor.high), pick(tensor.nan)
            if not known.all():
                low = np.where(known, low, -np.inf)
                high, nan = np.where(known, high, np.inf), np.where(known, nan, True)
            top, least = pick(np.asarray(tensor.top)), pick(np.asarray(tensor.least))
            value = Floats(tensor.dtype, low, high, nan, top, least)
        if node.otherwise is None:
            return value
        otherwise = self.take(node.otherwise, node.dtype)
        return select(Wholes(T.BOOL, inside, known), value, otherwise)

    def reduce(self, node: Reduce) -> Values:
        over = (*self.over, *node.variables)
        inner = _Walk(self.run, over)
        guard: Wholes | None = None
        if node.condition is not None:
            condition = inner.find(node.condition)
            assert isinstance(condition, Wholes)
            guard = condition
        value = inner.find(node.body)
        if value.dtype is T.INDEX and node.combiner == "mean":
            value = cast(PLACES, value, node.dtype)
        shape, count = inner.shape, len(node.variables)
        # A read that is outside everywhere is its `else`, which may be of positions alone.
        below = [n for part in node.parts for n in walk(part)]
        placed = all(
            n.otherwise is not None or n.name in self.run.known
            for n in below
            if isinstance(n, Read)
        )
        rules = fold_rules(self.run.rules, placed)
        if node.combiner in ("sum", "mean"):
            value = inner.leave_out(node.body, value)
        if node.combiner == "mean":
            return folds.mean(rules, value, guard, shape, count)
        made = folds.fold(rules, node.combiner, value, guard, shape, count)
        return cast(PLACES, made, node.dtype)

    def leave_out(self, body: Node, value: Values) -> Values:
        """The terms of a sum, those with a factor that depends on positions alone and is 0 being
        0, whatever the others are."""
        if not isinstance(value, Floats) or body.placed:
            return value
        left = np.asarray(False)
        pending = [body]
        while pending:
            factor = pending.pop()
            if factor.placed:
                if any(isinstance(n, Variable) for n in walk(factor)):
                    found = self.find(factor)
                    zero = found.value == 0 if isinstance(found, Wholes) else found.low == 0
                    left = left | zero
            elif isinstance(factor, Apply) and factor.name == "mul":
                pending += factor.operands
            elif isinstance(factor, Apply) and factor.name in ("div", "neg"):
                pending.append(factor.operands[0])
            elif isinstance(factor, Cast) and factor.dtype is T.FLOAT64:
                pending.append(factor.operand)
        if not left.any():
            return value
        low = np.where(left, 0.0, value.low)
        return Floats(
            value.dtype, low, np.where(left, 0.0, value.high), np.where(left, False, value.nan),
            value.top, value.least,
        )  # fmt: skip


def _place(value: Values) -> Wholes:
    """A position: a number beyond every tensor stays beyond it."""
    if isinstance(value, Floats):
        return _place(cast(PLACES, value, T.INT64))
    if value.dtype is T.UINT64:
        least = np.minimum(value.value, np.uint64(2**62))
        return Wholes(T.INDEX, least.astype(np.int64), value.known)
    return Wholes(T.INDEX, value.value.astype(np.int64), value.known)
