"""Computer algebra on stages: their elements as polynomials, in which equal values are equal
objects.

`Normal` expresses a stage as a polynomial in elements of tensors, functions of other polynomials,
and sums over axes. Stages are substituted where they are read, constant factors are moved out of
sums, and powers of one base are combined. A gradient that is 0 algebraically is found to be 0: a
softmax does not depend on the maximum that it subtracts.

This is real arithmetic, which floats do not obey. It serves to analyse derived formulas before they
are written. Formulas that users wrote are not changed by it, except by `write`, which reorders
products and quotients, and expands no product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from dmlc.ir import (
    Apply,
    Cast,
    Constant,
    Extent,
    Index,
    Load,
    Select,
    Stage,
    Step,
    Symbol,
    value_type,
)
from dmlc.scalars import DataType
from dmlc.sizes import Size, measure

_MOST_TERMS = 64
"""Largest number of terms of an expanded sum; a larger one is one atom."""

_MOST_VALUES = 200
"""Largest number of body values examined for one tensor, as cancellation involves few stages."""

_MOST_NESTED = 8
"""Depth to which stages are substituted where they are read."""


class TooLargeError(Exception):
    """A polynomial exceeds the limits of this module."""


@dataclasses.dataclass(frozen=True, slots=True)
class OwnIndex:
    """Index along an axis of the tensor whose elements are expressed."""

    axis: int
    extent: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """Bound variable of a sum: how many enclosing sums outwards that sum is, and which of its axes
    it runs over. While a sum is being built, its depth is a unique negative number."""

    depth: int
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """Element of a tensor."""

    tensor: str
    places: tuple[Polynomial, ...]
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """Result of an operation: one of the table, `select` or `cast`; or a constant that polynomials
    cannot represent."""

    name: str
    operands: tuple[Polynomial, ...]
    dtype: DataType
    source: DataType
    """Type of the operands; of the branches for `select`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Total:
    """Sum over axes of a polynomial that depends on them. Sums inside it have smaller depths."""

    given: Polynomial
    guard: Polynomial | None
    depth: int
    extents: tuple[Extent, ...]
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """A polynomial of several terms, as one factor."""

    given: Polynomial


Atom: TypeAlias = "OwnIndex | Bound | Element | Made | Total | Whole | Symbol"


Change: TypeAlias = "Callable[[Atom], Polynomial | None]"


class Product:
    """Product of powers of atoms; order does not matter for equality."""

    __slots__ = ("_set", "factors", "free", "height")

    def __init__(self, factors: Iterable[tuple[Atom, Fraction]]) -> None:
        self.factors = tuple(factors)
        self._set = frozenset(self.factors)
        self.free: frozenset[int] = frozenset().union(*(find_free(a) for a, _ in self.factors))
        """Depths of the enclosing sums whose variables it contains."""
        self.height = max((_find_height(atom) for atom, _ in self.factors), default=0)
        """Depth of the deepest sum in it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Product) and self._set == other._set

    def __hash__(self) -> int:
        return hash(self._set)

    def times(self, other: Product) -> Product:
        powers = dict(self.factors)
        for atom, power in other.factors:
            powers[atom] = powers.get(atom, Fraction()) + power
        return Product((atom, power) for atom, power in powers.items() if power)

    def power(self, exponent: Fraction) -> Product:
        return Product((atom, power * exponent) for atom, power in self.factors)


def find_free(atom: Atom) -> frozenset[int]:
    """Depths of the enclosing sums whose variables an atom contains."""
    if isinstance(atom, Bound):
        return frozenset((atom.depth,))
    found = frozenset[int]().union(*(inner.free for inner in list_inner(atom)))
    return found - {atom.depth} if isinstance(atom, Total) else found


def _find_height(atom: Atom) -> int:
    own = atom.depth if isinstance(atom, Total) else 0
    return own or max((inner.height for inner in list_inner(atom)), default=0)


ONE = Product(())


class Polynomial:
    """Sum of products with coefficients; order does not matter for equality."""

    __slots__ = ("_set", "free", "height", "terms")

    def __init__(self, terms: Iterable[tuple[Product, Fraction]]) -> None:
        self.terms = tuple((product, number) for product, number in terms if number)
        self._set = frozenset(self.terms)
        self.free: frozenset[int] = frozenset().union(*(product.free for product, _ in self.terms))
        self.height = max((product.height for product, _ in self.terms), default=0)

    @staticmethod
    def of(atom: Atom) -> Polynomial:
        return Polynomial([(Product([(atom, Fraction(1))]), Fraction(1))])

    @staticmethod
    def number(value: Fraction) -> Polynomial:
        return Polynomial([(ONE, value)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self._set == other._set

    def __hash__(self) -> int:
        return hash(self._set)

    @property
    def single(self) -> tuple[Product, Fraction] | None:
        """The only term, if there is one."""
        return self.terms[0] if len(self.terms) == 1 else None

    def plus(self, other: Polynomial, times: Fraction = Fraction(1)) -> Polynomial:
        numbers = dict(self.terms)
        for product, number in other.terms:
            numbers[product] = numbers.get(product, Fraction()) + number * times
        return Polynomial(numbers.items())

    def times(self, other: Polynomial) -> Polynomial:
        numbers: dict[Product, Fraction] = {}
        for one, number in self.terms:
            for two, factor in other.terms:
                product = one.times(two)
                numbers[product] = numbers.get(product, Fraction()) + number * factor
        return Polynomial(numbers.items())

    def as_factor(self) -> Polynomial:
        """The same value as a single term."""
        return self if len(self.terms) <= 1 else Polynomial.of(Whole(self))


ZERO = Polynomial(())


def list_places(extents: Sequence[Extent]) -> tuple[Polynomial, ...]:
    """Own index along each axis of a tensor."""
    axes = enumerate(extents)
    return tuple(ZERO if e == 1 else Polynomial.of(OwnIndex(axis, e)) for axis, e in axes)


def list_atoms(given: Polynomial | Product) -> Iterator[Atom]:
    """Atoms of a polynomial, nested ones too, each once."""
    seen: dict[Atom, None] = {}
    pending = [given]
    while pending:
        part = pending.pop()
        products = [part] if isinstance(part, Product) else [p for p, _ in part.terms]
        for atom in (atom for product in products for atom, _ in product.factors):
            if atom not in seen:
                seen[atom] = None
                pending += list_inner(atom)
                yield atom


def list_inner(atom: Atom) -> tuple[Polynomial, ...]:
    """Polynomials inside an atom."""
    match atom:
        case Element(places=places):
            return places
        case Made(operands=operands):
            return operands
        case Total(given=given, guard=guard):
            return (given,) if guard is None else (given, guard)
        case Whole(given=given):
            return (given,)
        case OwnIndex() | Bound() | Symbol():
            return ()


def read_size(text: str) -> Polynomial:
    """Run-time size as a polynomial in its symbols."""
    size, total = measure(text), ZERO
    for symbols, number in size.terms if isinstance(size, Size) else (((), size),):
        term = Polynomial.number(Fraction(number))
        for symbol in symbols:
            term = term.times(Polynomial.of(Symbol(symbol)))
        total = total.plus(term)
    return total


class Normal:
    """Polynomials of a function's stages.

    With `expands`, products of sums are multiplied out, which is needed to detect equality;
    otherwise each stays one factor. Tensors in `opaque` are not substituted where they are read.
    """

    def __init__(
        self, stages: Mapping[str, Stage], *, expands: bool, opaque: Iterable[str] = ()
    ) -> None:
        self._stages = {n: s for n, s in stages.items() if n not in set(opaque)}
        self._expands = expands
        self._left = 0
        self._sums = 0
        self._nested = 0
        self._done: dict[tuple[str, tuple[Polynomial, ...]], Polynomial] = {}

    def find(self, stage: Stage) -> Polynomial:
        """Polynomial of a stage's element at its own index. Raises `TooLargeError`."""
        self._left, self._nested = _MOST_VALUES, 0
        return self._compute(stage, list_places(stage.extents))

    def _compute(self, stage: Stage, places: Sequence[Polynomial]) -> Polynomial:
        axes = stage.axes
        self._sums += bool(axes)
        depth = -self._sums
        indices = {Index(axis): place for axis, place in enumerate(places)}
        for number, (label, extent) in enumerate(axes):
            bound = Polynomial.of(Bound(depth, number))
            indices[Index(label, reduced=True)] = ZERO if extent == 1 else bound
        values: list[Polynomial] = []
        for instruction in stage.body.instructions:
            self._left -= 1
            if self._left < 0:
                raise TooLargeError
            if isinstance(instruction, Index):
                values.append(indices[instruction])
            else:
                values.append(self._make(stage, instruction, values))
        found = values[stage.body.result]
        if axes:
            guard = None if stage.body.guard is None else values[stage.body.guard]
            found = add_up(found, guard, depth, tuple(e for _, e in axes), stage.body.dtype)
        return found

    def _make(
        self,
        stage: Stage,
        instruction: Constant | Symbol | Step | Load | Apply | Select | Cast,
        values: Sequence[Polynomial],
    ) -> Polynomial:
        match instruction:
            case Constant(value=value):
                if value != value or value in (float("inf"), float("-inf")):
                    return Polynomial.of(Made(f"{value}", (), instruction.dtype, instruction.dtype))
                return Polynomial.number(Fraction(value))
            case Symbol(name=name):
                return read_size(name)
            case Step():
                return Polynomial.of(Made("step", (), instruction.dtype, instruction.dtype))
            case Load(tensor=tensor, indices=indices, dtype=dtype):
                return self._read(tensor, [values[n] for n in indices], dtype)
            case Select(condition=condition, then=then, otherwise=otherwise, dtype=dtype):
                given = (values[condition], values[then], values[otherwise])
                if given[1] == given[2]:
                    return given[1]
                return Polynomial.of(Made("select", given, dtype, dtype))
            case Cast(operand=operand, dtype=dtype):
                source = value_type(stage.body.instructions[operand])
                if source is DataType.INDEX and not any(list_atoms(values[operand])):
                    return values[operand]  # A constant.
                return Polynomial.of(Made("cast", (values[operand],), dtype, source))
            case Apply(operation=operation, operands=operands, dtype=dtype):
                name, given = operation.name, tuple(values[n] for n in operands)
                source = value_type(stage.body.instructions[operands[0]])
                real = dtype is source and (dtype.is_float or dtype is DataType.INDEX)
                made = self._calculate(name, given, dtype) if real else None
                return Polynomial.of(Made(name, given, dtype, source)) if made is None else made

    def _calculate(
        self, name: str, given: Sequence[Polynomial], dtype: DataType
    ) -> Polynomial | None:
        """Polynomial of an operation's result; None if it has none."""
        match name, *given:
            case (("add" | "sub"), left, right):
                made = left.plus(right, Fraction(1 if name == "add" else -1))
                return made.as_factor() if len(made.terms) > _MOST_TERMS else made
            case "neg", value:
                return ZERO.plus(value, Fraction(-1))
            case "mul", left, right:
                return self._multiply(left, right)
            case "div", left, right if dtype.is_float and right != ZERO:
                return self._multiply(left, raise_power(right, Fraction(-1)))
            case "sqrt", value if value != ZERO:
                return raise_power(value, Fraction(1, 2))
            case "rsqrt", value if value != ZERO:
                return raise_power(value, Fraction(-1, 2))
            case "exp", value:
                return exponential(value, dtype)
            case _:
                return None

    def _multiply(self, left: Polynomial, right: Polynomial) -> Polynomial:
        if not self._expands or len(left.terms) * len(right.terms) > _MOST_TERMS:
            left, right = left.as_factor(), right.as_factor()
        return left.times(right)

    def _read(self, tensor: str, places: Sequence[Polynomial], dtype: DataType) -> Polynomial:
        stage = self._stages.get(tensor)
        nested = self._nested >= _MOST_NESTED or tensor not in self._stages
        if stage is None or nested or stage.combiner not in (None, "sum"):
            return Polynomial.of(Element(tensor, tuple(places), dtype))
        if stage.dtype.is_storage_only or not stage.dtype.is_float:
            return Polynomial.of(Element(tensor, tuple(places), dtype))
        key = (tensor, tuple(places))
        if key not in self._done:
            own = [ZERO if e == 1 else p for e, p in zip(stage.extents, places, strict=True)]
            self._nested += 1
            self._done[key] = self._compute(stage, own)
            self._nested -= 1
        return self._done[key]


def add_up(
    given: Polynomial,
    guard: Polynomial | None,
    depth: int,
    extents: tuple[Extent, ...],
    dtype: DataType,
) -> Polynomial:
    """Sum of a polynomial over the axes of a depth, with constant factors moved out."""
    total = ZERO
    for product, number in given.terms:
        inside = Product(f for f in product.factors if depth in find_free(f[0]))
        outside = Product(f for f in product.factors if f not in inside.factors)
        if guard is None and not inside.factors and all(isinstance(e, int) for e in extents):
            for extent in extents:
                number *= extent if isinstance(extent, int) else 1
            total = total.plus(Polynomial([(outside, number)]))
            continue
        varying = Polynomial([(inside, Fraction(1))])
        within = [varying] if guard is None else [varying, guard]
        own = 1 + max(part.height for part in within)

        def rename(atom: Atom, own: int = own) -> Polynomial | None:
            """Replaces the sum's unique number by its depth."""
            if isinstance(atom, Bound) and atom.depth == depth:
                return Polynomial.of(Bound(own, atom.number))
            return None if depth in find_free(atom) else Polynomial.of(atom)

        varying, *held = (replace_atoms(part, rename) for part in within)
        atom = Total(varying, held[0] if held else None, own, extents, dtype)
        found = outside.times(Product([(atom, Fraction(1))]))
        total = total.plus(Polynomial([(found, number)]))
    return total


def replace_atoms(given: Polynomial, change: Change) -> Polynomial:
    """Polynomial with some atoms replaced, outermost first: `change` returns an atom's replacement,
    or None to keep it and change its inner polynomials."""

    done: dict[Atom, Polynomial] = {}

    def replace(atom: Atom) -> Polynomial:
        if atom not in done:
            done[atom] = make(atom)
        return done[atom]

    def make(atom: Atom) -> Polynomial:
        found = change(atom)
        if found is not None:
            return found
        match atom:
            case Element(places=places):
                made = dataclasses.replace(atom, places=tuple(map(whole, places)))
            case Made(operands=operands):
                made = dataclasses.replace(atom, operands=tuple(map(whole, operands)))
            case Total(given=given, guard=guard):
                guard = None if guard is None else whole(guard)
                made = dataclasses.replace(atom, given=whole(given), guard=guard)
            case Whole(given=given):
                made = Whole(whole(given))
            case OwnIndex() | Bound() | Symbol():
                made = atom
        return Polynomial.of(made)

    def whole(given: Polynomial) -> Polynomial:
        total = ZERO
        for product, number in given.terms:
            term = Polynomial.number(number)
            for atom, power in product.factors:
                term = term.times(raise_power(replace(atom), power))
            total = total.plus(term)
        return total

    return whole(given)


def raise_power(given: Polynomial, power: Fraction) -> Polynomial:
    """Power of a polynomial; of several terms, the power of them as one factor."""
    product, number = given.single or (Product([(Whole(given), Fraction(1))]), Fraction(1))
    if power.denominator != 1 and number != 1:
        product, number = Product([(Whole(given), Fraction(1))]), Fraction(1)
    return Polynomial([(product.power(power), number ** int(power) if number != 1 else number)])


def exponential(given: Polynomial, dtype: DataType) -> Polynomial:
    """Exponential of a polynomial, with `exp(a + n * log(b))` as `exp(a) * b ** n`."""
    before, rest = Polynomial.number(Fraction(1)), ZERO
    for product, number in given.terms:
        match product.factors:
            case ((Made(name="log", operands=(argument,)), power),) if power == 1:
                before = before.times(raise_power(argument, number))
            case _:
                rest = rest.plus(Polynomial([(product, number)]))
    if rest == ZERO:
        return before
    return before.times(Polynomial.of(Made("exp", (rest,), dtype, dtype)))


def is_zero(normal: Normal, stages: Sequence[Stage]) -> bool:
    """Whether stages over one domain add up to 0."""
    total = ZERO
    try:
        for stage in stages:
            total = total.plus(normal.find(stage))
    except TooLargeError:
        return False
    return total == ZERO
