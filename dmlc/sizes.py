"""Sizes known only at run time: sums of products of symbols and whole numbers.

A symbol is 1 or more. A sum has a normal form, so that equal sizes are equal values; a sum without
symbols is an integer. A quotient rounded down is a factor like a symbol; its dividend has no
negative part, so that unsigned division computes it. The text of a size is C: `64 * N + 1`, `3 *
((N + 63) / 64)`. This module does not know the values of symbols.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from dmlc.source import DmlcError, InternalError

TYPICAL = 1024
"""Assumed value of a symbol in cost estimates."""

LARGEST = 2**31 - 2**16
"""Largest value at run time of a symbol, and of the number of elements of a tensor that has one:
indices then fit in 32 bits, also those of windows beyond a tensor, and do not wrap when the last
group is rounded up."""

MOST_TERMS = 256
"""Largest number of products in a size: a product of sums has as many as theirs multiplied."""
MOST_FACTORS = 64
"""Largest number of symbols in one product."""
LARGEST_NUMBER = 2**127
"""Bound on the numbers in a size."""
_MOST_CHARACTERS = 1 << 16
_DEEPEST = 64
"""Largest nesting of parentheses."""
_MOST_PARTS = 1 << 14
"""Largest number of parts in the search for a size's bound."""

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([-+*/()]))", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Sum of products, each of symbols and one number."""

    terms: tuple[tuple[tuple[str, ...], int], ...]
    """Terms in sorted order: the symbols of each product, sorted too, and its number, which is not
    0."""

    @staticmethod
    def of(symbol: str) -> Size:
        """Size of a symbol."""
        return Size((((symbol,), 1),))

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols that it depends on, in order of first use."""
        return list_symbols(" ".join(s for symbols, _ in self.terms for s in symbols))

    def __add__(self, other: Measure) -> Measure:
        return _collect((*self.terms, *_terms(other)))

    def __radd__(self, other: int) -> Measure:
        return self + other

    def __sub__(self, other: Measure) -> Measure:
        return self + other * -1

    def __rsub__(self, other: int) -> Measure:
        return self * -1 + other

    def __mul__(self, other: Measure) -> Measure:
        factors = _terms(other)
        if len(self.terms) * len(factors) > MOST_TERMS**2:
            raise _too_large()
        pairs = ((a, x, b, y) for a, x in self.terms for b, y in factors)
        return _collect((tuple(sorted((*a, *b))), x * y) for a, x, b, y in pairs)

    def __rmul__(self, other: int) -> Measure:
        return self * other

    def divide(self, by: int) -> Measure | None:
        """Quotient; None if it is no size for all values of the symbols."""
        if any(n % by for _, n in self.terms):
            return None
        return Size(tuple((symbols, n // by) for symbols, n in self.terms))

    def bounds(self) -> tuple[float, float]:
        """Least and largest known value, without regard to `LARGEST`."""
        return _least(self.terms), -_least(tuple((symbols, -n) for symbols, n in self.terms))

    def part_negative(self) -> tuple[Measure, Measure]:
        """Magnitude of its negative terms, and its positive terms: neither is negative."""
        taken = _collect((symbols, -n) for symbols, n in self.terms if n < 0)
        return taken, self + taken

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Value for these values of the symbols."""
        return sum(n * math.prod(_find(s, sizes) for s in symbols) for symbols, n in self.terms)

    def sort_terms(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Terms in text order: positive ones first if there are any, since sizes in C are
        unsigned."""
        first = next((term for term in self.terms if term[1] > 0), self.terms[0])
        yield first
        yield from (term for term in self.terms if term is not first)

    def __str__(self) -> str:
        return self.spell(str)

    def spell(self, symbol: Callable[[str], str]) -> str:
        """Text with each symbol, or quotient, as `symbol` writes it."""
        made = ""
        for symbols, number in self.sort_terms():
            plain = abs(number) == 1 and bool(symbols)
            factors = [*([] if plain else [str(abs(number))]), *map(symbol, symbols)]
            sign = "-" if number < 0 else "+"
            lead = ("-" if number < 0 else "") if not made else f" {sign} "
            made += lead + " * ".join(factors)
        return made


def _find(symbol: str, sizes: Mapping[str, int]) -> int:
    """Value of a symbol, or of a quotient."""
    if symbol not in sizes and part_choice(symbol) is not None:
        return evaluate_size(symbol, sizes)
    quotient = None if symbol in sizes else part_quotient(symbol)
    if quotient is None:
        return sizes[symbol]
    size, by = quotient
    return (size.evaluate(sizes) if isinstance(size, Size) else size) // by


Measure: TypeAlias = int | Size
"""Number of elements, known at compile time or at run time."""


def _terms(of: Measure) -> tuple[tuple[tuple[str, ...], int], ...]:
    return of.terms if isinstance(of, Size) else (((), of),)


def _collect(terms: Iterable[tuple[tuple[str, ...], int]]) -> Measure:
    """Normal form of a sum of products: those of most symbols first, numbers last."""
    found: dict[tuple[str, ...], int] = {}
    for symbols, number in terms:
        found[symbols] = found.get(symbols, 0) + number
    kept = [(symbols, number) for symbols, number in found.items() if number]
    if not any(symbols for symbols, _ in kept):
        return kept[0][1] if kept else 0
    if len(kept) > MOST_TERMS or any(
        len(symbols) > MOST_FACTORS or abs(number) >= LARGEST_NUMBER for symbols, number in kept
    ):
        raise _too_large()
    return Size(tuple(sorted(kept, key=lambda term: (-len(term[0]), term[0]))))


def _too_large() -> DmlcError:
    return DmlcError(
        f"a size comes to more than {MOST_TERMS} products, or to one of more than {MOST_FACTORS} "
        "symbols or of a number beyond 127 bits",
        code="E0807",
    )


def measure(extent: int | str) -> Measure:
    """Size of an extent: a number, or the value of its text."""
    if isinstance(extent, int):
        return extent
    return parse_size(extent) if part_choice(extent) is None else Size.of(extent)


def as_extent(size: Measure) -> int | str:
    """Extent of a size: a number, or its text."""
    return size if isinstance(size, int) else str(size)


def multiply(extents: Iterable[int | str | Size]) -> Measure:
    """Product of extents."""
    product: Measure = 1
    for extent in extents:
        product = (measure(extent) if isinstance(extent, str) else extent) * product
    return product


def divide_down(size: Measure, by: int) -> Measure:
    """Quotient, rounded down."""
    if isinstance(size, int):
        return size // by
    whole = _collect((symbols, n // by) for symbols, n in size.terms)
    rest = _collect((symbols, n % by) for symbols, n in size.terms)
    if isinstance(rest, int):
        return whole + rest // by
    moving = [(symbols, n) for symbols, n in rest.terms if symbols]
    shared = math.gcd(by, *(n for _, n in moving))
    number = dict(rest.terms).get((), 0)
    if shared > 1:
        # All but the number is a multiple, which what is over of the number does not reach.
        rest = _collect(
            [*((symbols, n // shared) for symbols, n in moving), ((), number // shared)]
        )
        return whole + divide_down(rest, by // shared)
    inner = part_quotient(moving[0][0][0]) if len(moving) == len(moving[0][0]) == 1 else None
    if inner is not None and moving[0][1] == 1:
        # A quotient of a quotient is one.
        return whole + divide_down(inner[0] + number * inner[1], by * inner[1])
    text = str(rest) if len(rest.terms) == 1 else f"({rest})"
    return whole + Size.of(f"({text} / {by})")


def divide_up(size: Measure, by: int) -> Measure:
    """Quotient, rounded up."""
    return divide_down(size + (by - 1), by)


def divide_exactly(size: Measure, by: Measure) -> Measure | None:
    """Quotient of two sizes; None if it is no size for all values of the symbols, and by 0."""
    if isinstance(by, int):
        if isinstance(size, Size):
            return size.divide(by) if by else None
        return size // by if by and size % by == 0 else None
    quotient: Measure = 0
    factors, number = by.terms[0]
    for _ in range(MOST_TERMS):
        if size == 0:
            return quotient
        symbols, count = _terms(size)[0]
        rest = list(symbols)
        for symbol in factors:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if count % number:
            return None
        part = _collect([(tuple(rest), count // number)])
        quotient, size = quotient + part, size - by * part
    return None


def replace_symbols(size: Measure, values: Mapping[str, Measure]) -> Measure:
    """Size with other sizes substituted for some symbols, also inside quotients."""
    total: Measure = 0
    for symbols, number in _terms(size):
        product: Measure = number
        for symbol in symbols:
            quotient = None if symbol in values else part_quotient(symbol)
            if quotient is None:
                product = product * values.get(symbol, Size.of(symbol))
            else:
                product = product * divide_down(replace_symbols(quotient[0], values), quotient[1])
        total = total + product
    return total


def solve_equal(one: Measure, other: Measure) -> tuple[str, Measure] | None:
    """Symbol and its value that make two sizes equal; None if no symbol stands alone in their
    difference."""
    terms = _terms(one - other)
    for symbols, number in sorted(terms, reverse=True):
        alone = len(symbols) == 1 and abs(number) == 1 and part_quotient(symbols[0]) is None
        rest = [(s, n * -number) for s, n in terms if s != symbols]
        if alone and symbols[0] not in list_symbols(" ".join(f for s, _ in rest for f in s)):
            return symbols[0], _collect(rest)
    return None


def list_measured(size: Measure) -> tuple[str, ...]:
    """Symbols of a size; empty for a number."""
    return size.symbols if isinstance(size, Size) else ()


@functools.lru_cache(4096)
def part_quotient(symbol: str) -> tuple[Measure, int] | None:
    """Dividend and divisor of a quotient; None for a symbol."""
    if not symbol.startswith("("):
        return None
    divided, _, by = symbol[1:-1].rpartition(" / ")
    return parse_size(divided), int(by)


def is_multiple(size: Measure, of: int) -> bool:
    """Whether a size is a multiple of a number for all values of the symbols."""
    if isinstance(size, int):
        return size % of == 0
    return size.divide(of) is not None


def find_least(size: Measure) -> float:
    """Lower bound of a size."""
    return size.bounds()[0] if isinstance(size, Size) else size


def has_quotients(size: Measure) -> bool:
    """Whether a size contains a quotient."""
    return any(symbol.startswith("(") for symbols, _ in _terms(size) for symbol in symbols)


_Terms: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]


@functools.lru_cache(4096)
def _least(given: _Terms) -> float:
    """Lower bound of a sum, with its quotients bounded as they are, or by their dividends. It is
    cached, since dividends may contain quotients."""
    found = _least_of(given, exact=False)
    if any(symbol.startswith("(") for symbols, _ in given for symbol in symbols):
        return max(found, _least_of(given, exact=True))
    return found


def _least_of(terms: _Terms, *, exact: bool) -> float:
    """Lower bound with each symbol as 1 plus a nonnegative number; if all terms are added, its
    least is at 1."""
    if not exact and all(n >= 0 for symbols, n in terms if symbols):
        # Each part is least where its symbols are.
        return math.ceil(sum(n * math.prod(map(_least_symbol, symbols)) for symbols, n in terms))
    pending: list[tuple[tuple[str, ...], tuple[str, ...], Fraction]] = []
    pending += [(symbols, (), Fraction(n)) for symbols, n in terms]
    found: dict[tuple[str, ...], Fraction] = {}
    parts = 0
    while pending:
        parts += 1
        if parts > _MOST_PARTS:
            return -math.inf
        symbols, spread, n = pending.pop()
        if not symbols:
            key = tuple(sorted(spread))
            found[key] = found.get(key, Fraction(0)) + n
            continue
        symbol, rest = symbols[0], symbols[1:]
        quotient = part_quotient(symbol)
        if quotient is None or not exact:
            low = _least_symbol(symbol)
            # What is above the least goes by the symbol's name.
            pending.append((rest, (*spread, symbol), n))
            pending += [(rest, spread, n * low)] if low else []
            continue
        divided, by = quotient
        # The quotient is at most what is divided by the number, and less than 1 below that.
        if spread or any(each.startswith("(") for each in rest):
            return -math.inf
        moved = divided if n < 0 else divided - (by - 1)
        pending += [((*rest, *each), (), n * m / by) for each, m in _terms(moved)]
    constant = found.pop((), Fraction(0))
    return math.ceil(constant) if all(n >= 0 for n in found.values()) else -math.inf


def _least_symbol(symbol: str) -> int:
    """Least value of a symbol, or of a quotient from its dividend."""
    quotient = part_quotient(symbol)
    return 1 if quotient is None else _floor_least(*quotient)


def _floor_least(divided: Measure, by: int) -> int:
    low = divided.bounds()[0] if isinstance(divided, Size) else divided
    return max(int(low) // by, 0) if math.isfinite(low) else 0


def pack_strides(extents: Sequence[int | str | Size]) -> tuple[Measure, ...]:
    """Strides in elements of a packed tensor of these sizes: last axis fastest."""
    strides: list[Measure] = []
    step: Measure = 1
    for extent in reversed(extents):
        strides.append(step)
        size = measure(extent) if isinstance(extent, int | str) else extent
        step = (max(size, 1) if isinstance(size, int) else size) * step
    return tuple(reversed(strides))


def show_count(count: int | str) -> str:
    """A number for people, or the text of a size."""
    return f"{count:,}" if isinstance(count, int) else count


def known(sizes: Iterable[int | str | Size]) -> tuple[int, ...]:
    """Sizes that are all numbers. Raises `InternalError` for any other."""
    given = tuple(sizes)
    found = tuple(size for size in given if isinstance(size, int))
    if len(found) < len(given):
        raise InternalError(f"a size is known at run time only: {', '.join(map(str, given))}")
    return found


Taken: TypeAlias = tuple[tuple[str, int], ...]
"""Assumed values of some symbols in cost estimates."""


def estimate(size: int | str | Size, taken: Taken = ()) -> int:
    """Estimate of a size: symbols have the values in `taken`, or else `TYPICAL`."""
    found = measure(size) if isinstance(size, str) else size
    return found.evaluate(_Typical(taken)) if isinstance(found, Size) else found


def find_most(size: Measure, bounds: Taken) -> int | None:
    """The most that a size is where symbols have such bounds; None where one of them has none, or
    something is subtracted."""
    if isinstance(size, int):
        return size
    known = dict(bounds)
    grows = all(n > 0 or not symbols for symbols, n in size.terms)
    return size.evaluate(known) if grows and known.keys() >= set(list_measured(size)) else None


class _Typical(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return TYPICAL


@functools.lru_cache(4096)
def parse_size(text: str) -> Measure:
    """Size of a text in the form of `str`. Raises `DmlcError`."""
    if len(text) > _MOST_CHARACTERS:
        raise DmlcError(f"a size of {len(text):,} characters is too long", code="E0807")
    reader = _Reader(text)
    found = reader.sum()
    if found is None or reader.tokens:
        raise DmlcError(
            f"'{_cut(text)}' is no size: expected sums, products and quotients by numbers, of "
            "numbers and symbols, such as 'N + 2' or '(N + 1) / 2'",
            code="E0807",
        )
    return found


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


class _Reader:
    """Parser of the text of a size, from its first token on; returns None for an invalid one."""

    def __init__(self, text: str) -> None:
        self.tokens: deque[str] = deque()
        self.depth = 0
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            self.tokens.append("" if match is None else match[0].strip())
            at = end if match is None else match.end()

    def _accept(self, *tokens: str) -> str:
        return self.tokens.popleft() if self.tokens and self.tokens[0] in tokens else ""

    def sum(self) -> Measure | None:
        sign = self._accept("-", "+")
        total = self._product()
        total = total * -1 if sign == "-" and total is not None else total
        while total is not None and (sign := self._accept("-", "+")):
            term = self._product()
            total = None if term is None else total + term * (-1 if sign == "-" else 1)
            _refuse_large(total)
        return total

    def _product(self) -> Measure | None:
        product = self._factor()
        while product is not None and (sign := self._accept("*", "/")):
            factor = self._factor()
            if factor is None or (sign == "/" and (isinstance(factor, Size) or factor < 1)):
                return None
            if sign == "*":
                product = factor * product
            elif isinstance(factor, int):
                product = divide_down(product, factor)
            _refuse_large(product)
        return product

    def _factor(self) -> Measure | None:
        token = self.tokens.popleft() if self.tokens else ""
        if token == "(":
            self.depth += 1
            if self.depth > _DEEPEST:
                raise DmlcError(
                    f"more than {_DEEPEST} parentheses stand in one another in a size",
                    code="E0807",
                )
            found = self.sum()
            self.depth -= 1
            return found if self._accept(")") else None
        if token.isdecimal():
            if len(token) > 39:
                raise _too_large()
            return int(token)
        return Size.of(token) if token[:1].isidentifier() else None


def _refuse_large(size: Measure | None) -> None:
    if isinstance(size, int) and abs(size) >= LARGEST_NUMBER:
        raise _too_large()


def evaluate_size(size: int | str, sizes: Mapping[str, int]) -> int:
    """Value of a size given as a number or as a text, also of one made by `choose_size`."""
    if isinstance(size, int):
        return size
    if size in sizes:
        return sizes[size]
    choice = part_choice(size)
    if choice is not None:
        condition, then, otherwise = choice
        return evaluate_size(then if holds(condition, sizes) else otherwise, sizes)
    found = parse_size(size)
    return found.evaluate(sizes) if isinstance(found, Size) else found


# Conditions ---------------------------------------------------------------------------------

_RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_CONDITION = re.compile(r"(.+?) (==|!=|<=|>=|<|>) (.+)")


def write_condition(left: Measure, relation: str, right: Measure) -> str:
    """Comparison of sizes in C, without subtractions: sizes are unsigned there."""
    difference = left - right
    terms = _terms(difference)
    quotient = part_quotient(terms[0][0][0]) if len(terms[0][0]) == 1 else None
    if (
        relation not in ("==", "!=")
        and quotient is not None
        and terms[0][1] == 1
        and not any(symbols for symbols, _ in terms[1:])
    ):
        # A quotient reaches a number where what is divided reaches a multiple.
        if relation in (">", "<="):
            relation, terms = {">": ">=", "<=": "<"}[relation], _terms(difference - 1)
        terms = _terms(quotient[0] + dict(terms).get((), 0) * quotient[1])
    above = _collect((symbols, n) for symbols, n in terms if n > 0)
    below = _collect((symbols, -n) for symbols, n in terms if n < 0)
    return f"{above} {relation} {below}"


def part_condition(condition: str) -> tuple[str, str, str]:
    """Parts of a condition by `write_condition`: a size, the relation, and another size. Raises
    `DmlcError` for any other text."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise DmlcError(
            f"'{condition}' is no condition on sizes: expected one such as 'N != 1'", code="E0807"
        )
    return match[1], match[2], match[3]


def holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition by `write_condition` holds. Raises `DmlcError` for any other."""
    left, relation, right = part_condition(condition)
    return _RELATIONS[relation](evaluate_size(left, sizes), evaluate_size(right, sizes))


def read_counted(conditions: Iterable[str]) -> list[Measure]:
    """Sizes that are nonnegative where conditions by `write_condition` hold."""
    found: list[Measure] = []
    for condition in conditions:
        match = _CONDITION.fullmatch(condition)
        if match is None or match[2] == "!=":
            continue
        difference = parse_size(match[1]) - parse_size(match[3])
        strict = 1 if match[2] in ("<", ">") else 0
        if match[2] in (">=", ">", "=="):
            found.append(difference - strict)
        if match[2] in ("<=", "<", "=="):
            found.append(difference * -1 - strict)
    return found


def choose_size(condition: str, size: int | str, otherwise: int | str) -> int | str:
    """Size in C that depends on a condition by `write_condition`: `(N < 9 ? 4 * N : 0)`. Programs
    have such sizes, and no tensor of a function does."""
    return size if size == otherwise else f"({condition} ? {size} : {otherwise})"


def choose_where(count: int | str, size: str) -> int | str:
    """Size in C that is `size` where a count by `choose_size` is not 0, and 0 elsewhere."""
    choice = part_choice(count) if isinstance(count, str) else None
    if choice is None:
        return 0 if count in (0, "0") else size
    condition, then, otherwise = choice
    return choose_size(condition, choose_where(then, size), choose_where(otherwise, size))


_MOST_CHOICES = 64


@functools.lru_cache(4096)
def part_choice(size: str) -> tuple[str, str, str] | None:
    """Condition and both values of a size by `choose_size`; None for any other size."""
    condition, asked, rest = size[1:-1].partition(" ? ")
    if not asked or (size[0], size[-1]) != ("(", ")"):
        return None
    depth, text = 0, rest
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth and text.startswith(" : ", place):
            return condition, text[:place], text[place + 3 :]
    raise DmlcError(f"'{size}' is no choice between sizes")


def check_count(size: str) -> str:
    """Size in C, also one by `choose_size`. Raises `DmlcError` for any other text."""
    if size.count("?") > _MOST_CHOICES:
        raise DmlcError(f"a size is chosen among {_MOST_CHOICES} at most")
    choice = part_choice(size)
    if choice is None:
        parse_size(size)
    else:
        condition, then, otherwise = choice
        left, _, right = part_condition(condition)
        for each in (left, right, then, otherwise):
            check_count(each)
    return size


def refuse_sizes(name: str, conditions: Iterable[str], sizes: Mapping[str, int]) -> None:
    """Raises `DmlcError` for sizes that break a condition that something was compiled for."""
    for condition in conditions:
        if not holds(condition, sizes):
            values = " and ".join(f"{s} is {sizes[s]}" for s in list_symbols(condition))
            raise DmlcError(
                f"{name} was made for sizes where {condition}, and {values}",
                notes=["bind the sizes themselves: that gives a function for these"],
                code="E0812",
            )


def list_symbols(text: str) -> tuple[str, ...]:
    """Symbols in the text of a size or a condition, in order of first use."""
    return tuple(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))


def find_symbols(extents: Iterable[int | str]) -> tuple[str, ...]:
    """Symbols in extents, in order of first use."""
    texts = [extent for extent in extents if isinstance(extent, str)]
    return list_symbols(" ".join(texts)) if texts else ()


class Shapes:
    """Values of symbols, inferred from the shapes of arrays one after the other."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self._made: list[tuple[str, int, str]] = []
        """Sizes of symbols that were not all known: each with the given value, and its location."""

    def match(self, name: str, extents: Sequence[int | str], shape: Sequence[int]) -> str | None:
        """Reason that an array does not have its tensor's sizes; None if it has, with symbols
        inferred from it. A size made of several symbols is checked once they are known."""
        shown = ", ".join(map(str, extents))
        if len(shape) != len(extents):
            return (
                f"{name} has the sizes [{shown}], {len(extents)} of them, and the array given has "
                f"{len(shape)}: {list(shape)}"
            )
        for axis, (extent, size) in enumerate(zip(extents, shape, strict=True)):
            place = f"axis {axis} of {name}"
            if isinstance(extent, int):
                if extent != size:
                    return f"{place} has {extent} elements, and the array given has {size} there"
                continue
            if size == 0:
                return (
                    f"{place} has 0 elements, and the size '{extent}' that is left open there is 1 "
                    "or more: bind the sizes themselves"
                )
            if list_symbols(extent) != (extent,):
                self._made.append((extent, size, place))
                continue
            if self.sizes.setdefault(extent, size) != size:
                known = self.sizes[extent]
                return (
                    f"the size '{extent}' is {known} along {self._places[extent]}, and {size} "
                    f"along {place}"
                )
            self._places.setdefault(extent, place)
        return self._find_broken()

    def _find_broken(self) -> str | None:
        """Error in the sizes whose symbols are known by now."""
        for made in list(self._made):
            extent, size, place = made
            symbols = list_symbols(extent)
            if not all(symbol in self.sizes for symbol in symbols):
                continue
            self._made.remove(made)
            wanted = evaluate_size(extent, self.sizes)
            if wanted != size:
                values = " and ".join(
                    f"'{s}' is {self.sizes[s]} along {self._places[s]}" for s in symbols
                )
                return (
                    f"the size '{extent}' is {wanted} where {values}, and the array given has "
                    f"{size} along {place}"
                )
        return None
