"""Rewrites derived formulas in terms of tensors that are available.

The gradient of a softmax is derived from the exponentials and their sum, and needs neither if the
softmax itself is in memory. The formulas of available tensors are searched for in a stage: as a
factor, `e / s` in `dy * e / s`; in a sum with its constant factors; in the argument of an
exponential or a comparison. Matches are replaced by loads.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from dmlc.ir import Cast, Constant, Index, Load, Reduction, Stage, Symbol
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import DataType
from dmlc.transform.algebra import (
    ZERO,
    Atom,
    Bound,
    Element,
    Made,
    Normal,
    OwnIndex,
    Polynomial,
    Product,
    TooLargeError,
    Total,
    Whole,
    add_up,
    exponential,
    find_free,
    list_atoms,
    list_inner,
    list_places,
    replace_atoms,
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pattern:
    """A product over the index of a tensor, and its value in terms of the tensor."""

    product: Product
    meant: Polynomial
    own: Element
    """An element in the product that is read at each index of the tensor."""


@functools.lru_cache(4096)
def _move(pattern: _Pattern, to: tuple[Polynomial, ...]) -> tuple[Product, Polynomial] | None:
    """Product and value of a pattern at another index of its tensor; None if it has none."""
    places = dict(zip(pattern.own.places, to, strict=True))
    if _captures(pattern.product, places):
        return None

    def change(atom: Atom) -> Polynomial | None:
        return places[Polynomial.of(atom)] if isinstance(atom, OwnIndex) else None

    found = replace_atoms(Polynomial([(pattern.product, Fraction(1))]), change).single
    return None if found is None else (found[0], replace_atoms(pattern.meant, change))


def _list_elements(product: Product, rank: int) -> Iterator[Element]:
    """Elements of a product that are read at each index of a tensor of a given rank."""
    for atom in list_atoms(product):
        if isinstance(atom, Element):
            axes = {place for place in atom.places if place != ZERO}
            plain = all(
                p.single is not None and isinstance(next(list_atoms(p), None), OwnIndex)
                for p in axes
            )
            if plain and len(axes) >= rank:
                yield atom


def _captures(product: Product, places: Mapping[Polynomial, Polynomial]) -> bool:
    """Whether substituting an index inside a sum would capture a bound variable of that sum."""
    for total in list_atoms(product):
        if not isinstance(total, Total):
            continue
        inner = {Polynomial.of(a) for p in list_inner(total) for a in list_atoms(p)}
        for place, meant in places.items():
            bound = (a.depth for a in list_atoms(meant) if isinstance(a, Bound))
            if place in inner and any(depth <= total.depth for depth in bound):
                return True
    return False


class Reuse:
    """Available tensors, by their formulas."""

    def __init__(self, stages: Mapping[str, Stage], kept: Sequence[str]) -> None:
        self._kept = kept
        normal = Normal(stages, expands=False)
        self._patterns: list[_Pattern] = []
        for name in kept:
            stage = stages[name]
            try:
                form = normal.find(stage)
            except TooLargeError:
                continue
            rank = sum(extent != 1 for extent in stage.extents)
            for product, meant in _list_known(stage, form):
                elements = itertools.islice(_list_elements(product, rank), 1)
                self._patterns += [_Pattern(product, meant, own) for own in elements]

    def rewrite(
        self,
        list_stages: Callable[[], Mapping[str, Stage]],
        stage: Stage,
        take_name: Callable[[], str],
    ) -> tuple[Stage, ...] | None:
        """Stage in terms of available tensors, after the new sums that it reads; None if nothing
        matches. `list_stages` gives the existing stages, and `take_name` names for new ones."""
        if not self._patterns:
            return None
        try:
            form = Normal(list_stages(), expands=False, opaque=self._kept).find(stage)
        except TooLargeError:
            return None
        made = self._replace(form)
        return None if made == form else _Writer(stage, take_name).write(made)

    def _replace(self, given: Polynomial) -> Polynomial:
        inner = replace_atoms(given, self._replace_within)
        total = ZERO
        for product, number in inner.terms:
            total = total.plus(self._replace_product(product), number)
        return total

    def _replace_within(self, atom: Atom) -> Polynomial | None:
        match atom:
            case Whole(given=given):
                return Polynomial.of(Whole(self._replace(given)))
            case Made(operands=operands):
                made = dataclasses.replace(atom, operands=tuple(map(self._replace, operands)))
                return self._replace_product(Product([(made, Fraction(1))]))
            case Total(given=given, guard=guard, depth=depth, extents=extents, dtype=dtype):
                guard = None if guard is None else self._replace(guard)
                return add_up(self._replace(given), guard, depth, extents, dtype)
            case _:
                return None

    def _replace_product(self, product: Product) -> Polynomial:
        """Product with every pattern in it replaced, inside sums too."""
        for _ in range(len(product.factors) * 4):
            found = self._find(product)
            if found is None:
                break
            if found.single is None or found.single[1] != 1:
                return found
            product = found.single[0]
        return Polynomial([(product, Fraction(1))])

    def _find(self, product: Product) -> Polynomial | None:
        places: dict[str, dict[tuple[Polynomial, ...], None]] = {}
        for atom in list_atoms(product):
            if isinstance(atom, Element):
                places.setdefault(atom.tensor, {})[atom.places] = None
        for pattern in self._patterns:
            moved = (_move(pattern, at) for at in places.get(pattern.own.tensor, ()))
            for wanted, meant in filter(None, moved):
                rest = _divide(product, wanted)
                if rest is not None:
                    return Polynomial([(rest, Fraction(1))]).times(meant)
                found = _find_in_sum(product, wanted, meant)
                if found is not None:
                    return found
        return None


def _find_in_sum(product: Product, wanted: Product, meant: Polynomial) -> Polynomial | None:
    """Product in which some factors of the pattern `wanted` are inside a sum and the others
    outside, with `meant` in their place; None if it does not match."""
    for total, power in product.factors:
        if not isinstance(total, Total) or power != 1:
            continue
        summed = total.given.single
        if summed is None:
            continue
        inside = Product(f for f in wanted.factors if total.depth in find_free(f[0]))
        outside = Product(f for f in wanted.factors if f not in inside.factors)
        within = _divide(summed[0], inside) if inside.factors else None
        others = Product(f for f in product.factors if f[0] != total)
        before = None if within is None else _divide(others, outside)
        if within is None or before is None:
            continue
        varying = Polynomial([(within, summed[1])]).times(meant)
        made = add_up(varying, total.guard, total.depth, total.extents, total.dtype)
        return Polynomial([(before, Fraction(1))]).times(made)
    return None


def _divide(product: Product, by: Product) -> Product | None:
    """Product without the factors of another; None if it lacks some."""
    powers = dict(product.factors)
    for atom, power in by.factors:
        left = powers.get(atom, Fraction()) / power
        if left < 1:
            return None
    return product.times(by.power(Fraction(-1)))


def _list_known(stage: Stage, form: Polynomial) -> Iterator[tuple[Product, Polynomial]]:
    """Products that equal an available tensor, or that its elements determine, with their
    values."""
    dtype = stage.dtype.compute
    own = Polynomial.of(Element(stage.name, list_places(stage.extents), dtype))
    product, number = form.as_factor().single or (Product(()), Fraction(0))
    if number == 0 or all(isinstance(atom, Element) for atom, _ in product.factors):
        return
    yield product, own.times(Polynomial.number(1 / number))
    powers = exponential(form, dtype).single
    if powers is not None and powers[1] == 1:
        yield powers[0], Polynomial.of(Made("exp", (own,), dtype, dtype))
    match product.factors:
        case ((Made(name="max" | "min", operands=operands, source=source), power),) if power == 1:
            # A comparison with the bound of a clamp can use the clamped value.
            name = "gt" if product.factors[0][0].name == "max" else "lt"
            for given, bound in (operands, operands[::-1]):
                asked = Made(name, (given, bound), DataType.BOOL, source)
                meant = Made(name, (own, bound), DataType.BOOL, source)
                yield Product([(asked, Fraction(1))]), Polynomial.of(meant)
        case _:
            pass


# Stages -------------------------------------------------------------------------------------


class _Writer:
    """Writes a polynomial over a stage's index as the stage."""

    def __init__(self, stage: Stage, take_name: Callable[[], str]) -> None:
        self._stage = stage
        self._take_name = take_name
        self._made: list[Stage] = []
        self._sums: dict[Total, Stage] = {}

    def write(self, form: Polynomial) -> tuple[Stage, ...] | None:
        builder = BodyBuilder()
        try:
            result = self._sum(builder, form, self._stage.body.dtype)
        except _UnwritableError:
            return None
        body = builder.make(result)
        return (*self._made, dataclasses.replace(self._stage, body=body, reduction=None))

    def _sum(self, builder: BodyBuilder, form: Polynomial, dtype: DataType) -> int:
        total: int | None = None
        for product, number in sorted(form.terms, key=lambda term: term[1] < 0):
            if total is None:
                total = self._product(builder, product, number, dtype)
                continue
            value = self._product(builder, product, abs(number), dtype)
            total = builder.apply("sub" if number < 0 else "add", total, value)
        return _number(builder, Fraction(0), dtype) if total is None else total

    def _product(
        self, builder: BodyBuilder, product: Product, number: Fraction, dtype: DataType
    ) -> int:
        made: int | None = None
        multiplier, divisor = _split(abs(number), dtype)
        for atom, power in product.factors:
            if power > 0:
                value = self._power(builder, atom, power, dtype)
                made = value if made is None else builder.apply("mul", made, value)
        if multiplier != 1 or made is None:
            value = _number(builder, multiplier, dtype)
            made = value if made is None else builder.apply("mul", made, value)
        if number < 0:
            made = builder.apply("neg", made)
        if divisor != 1:
            made = builder.apply("div", made, _number(builder, divisor, dtype))
        for atom, power in product.factors:
            if power < 0:
                made = builder.apply("div", made, self._power(builder, atom, -power, dtype))
        return made

    def _power(self, builder: BodyBuilder, atom: Atom, power: Fraction, dtype: DataType) -> int:
        value = self._atom(builder, atom, dtype)
        if power.denominator == 2:
            root = builder.apply("sqrt", value)
            rest = power - Fraction(1, 2)
            if not rest:
                return root
            return builder.apply("mul", root, self._power(builder, atom, rest, dtype))
        if power.denominator != 1:
            raise _UnwritableError
        made = value
        for _ in range(int(power) - 1):
            made = builder.apply("mul", made, value)
        return made

    def _atom(self, builder: BodyBuilder, atom: Atom, dtype: DataType) -> int:
        match atom:
            case OwnIndex(axis=axis):
                return builder.add(Index(axis))
            case Bound(number=number):
                return builder.add(Index(number, reduced=True))
            case Symbol():
                return builder.add(atom)
            case Element(tensor=tensor, places=places, dtype=own):
                at = tuple(self._sum(builder, place, DataType.INDEX) for place in places)
                return builder.add(Load(tensor, at, own))
            case Whole(given=given):
                return self._sum(builder, given, dtype)
            case Made():
                return self._operation(builder, atom)
            case Total():
                return self._total(builder, atom)

    def _operation(self, builder: BodyBuilder, made: Made) -> int:
        if made.name == "select":
            kinds = (DataType.BOOL, made.dtype, made.dtype)
            given = (self._sum(builder, p, k) for p, k in zip(made.operands, kinds, strict=True))
            return builder.select(*given)
        given = [self._sum(builder, p, made.source) for p in made.operands]
        if made.name == "cast":
            return builder.add(Cast(given[0], made.dtype))
        if made.name in IR_OPERATIONS:
            return builder.apply(made.name, *given)
        return builder.add(Constant(made.dtype, float(made.name)))

    def _total(self, builder: BodyBuilder, total: Total) -> int:
        """Element of a sum, which becomes a stage over the indices that it depends on."""
        inner = [atom for p in list_inner(total) for atom in list_atoms(p)]
        if find_free(total) or any(isinstance(a, Total) for a in inner):
            raise _UnwritableError
        used = {atom.axis for atom in inner if isinstance(atom, OwnIndex)}
        if total not in self._sums:
            own = BodyBuilder()
            result = self._sum(own, total.given, total.dtype)
            guard = None if total.guard is None else self._sum(own, total.guard, DataType.BOOL)
            extents = tuple(e if axis in used else 1 for axis, e in enumerate(self._stage.extents))
            body, axes = own.make(result, guard), tuple(enumerate(total.extents))
            reduction = Reduction("sum", axes)
            made = Stage(self._take_name(), total.dtype, extents, body, reduction, self._stage.span)
            self._made.append(made)
            self._sums[total] = made
        stage = self._sums[total]
        own_axes = range(len(stage.extents))
        at = (builder.index(axis) if axis in used else builder.constant(0) for axis in own_axes)
        return builder.load(stage, *at)


class _UnwritableError(Exception):
    """A polynomial that no stage with one body and plain sums can express."""


def _split(number: Fraction, dtype: DataType) -> tuple[Fraction, Fraction]:
    """Multiplier and divisor for a positive number: itself if it or its reciprocal is an integer;
    otherwise its nearest value in a float type, and 1."""
    parts = (Fraction(number.numerator), Fraction(number.denominator))
    if not dtype.is_float or (1 in parts and all(_nearest(p, dtype) == p for p in parts)):
        return parts
    nearest = _nearest(number, dtype)
    if nearest is None:
        raise _UnwritableError
    return nearest, Fraction(1)


def _nearest(value: Fraction, dtype: DataType) -> Fraction | None:
    """Nearest value of a float type to a positive number; None beyond its largest."""
    if value > Fraction(float(np.finfo(dtype.dtype).max)):
        return None
    return Fraction(dtype.dtype.type(float(value)).item())


def _number(builder: BodyBuilder, value: Fraction, dtype: DataType) -> int:
    kind = bool if dtype is DataType.BOOL else float if dtype.is_float else int
    return builder.add(Constant(dtype, kind(value)))
