"""Fourier transforms as products with matrices of cosines and sines.

A transform of n points is one product with a matrix of n rows, or it is decomposed. With
n = a * b, it is b transforms of a points, twiddle factors, and a transforms of b points
(Cooley and Tukey). For large prime factors it is a convolution, by transforms of a power of 2
(Bluestein). `_plan` chooses what takes the fewest multiplications.

A signal is a tensor of the axes [..., points, parts], with one part for real numbers and two for
complex ones, and a spectrum one of the axes [..., frequencies, 2].
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import clamp, normalize_axes
from dmlc.ir import Extent
from dmlc.onnx.importing.nodes import Node, Rule, need_number
from dmlc.scalars import Array, DataType
from dmlc.sizes import as_extent, divide_down, measure
from dmlc.source import DmlcError


def _dft(node: Node) -> Tensor:
    x = node.tensor(0)
    if node.version >= 20:
        axis = node.numbers(2)[0] if node.has(2) else -2
    else:
        axis = node.integer("axis")
    (place,) = normalize_axes([axis], x.rank)
    size = need_number(x.extents[place], "the size of its axis")
    inverse, one_sided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    mirrors = inverse and one_sided
    natural = 2 * (size - 1) if mirrors else size
    length = _check_length(node.numbers(1)[0] if node.has(1) else natural)
    results = length // 2 + 1 if one_sided and not inverse else length
    outer = [*x.extents[:place], *x.extents[place + 1 : -1]]
    used = length if mirrors else min(size, length)
    parts = 2 if mirrors or x.extents[-1] == 2 else 1

    def point(at: Point) -> Scalar:
        *own, step, part = at.indices
        if not mirrors:
            return at.read(x, *own[:place], step, *own[place:], part)
        # The second half of a real signal's spectrum is the conjugate of the first half.
        is_second = step * 2 > length
        step = is_second.select(length - step, step)
        read = at.read(x, *own[:place], clamp(step, at.size(size)), *own[place:], part)
        value = (is_second & part.equals(1)).select(-read, read)
        return (step < size).select(value, 0)

    signal = _lay_out(node, "signal", x.dtype, [*outer, used, parts], point)
    kept = 1 if mirrors else 2
    spectrum = _transform(node, signal, length, inverse, results, kept)

    def element(at: Point) -> Scalar:
        *own, part = at.indices
        value = at.read(spectrum, *own[:place], *own[place + 1 :], own[place], part)
        return value * (1 / length) if inverse else value

    extents = [*outer[:place], results, *outer[place:], kept]
    return node.builder.compute(node.name, extents, element, x.dtype)


def _stft(node: Node) -> Tensor:
    x, hop = node.tensor(0), node.numbers(1)[0]
    window = node.optional(2)
    length = _check_length(node.numbers(3)[0] if node.has(3) else node.fixed(node.tensor(2))[0])
    frames = as_extent(divide_down(measure(x.extents[1]) - length, hop) + 1)
    results = length // 2 + 1 if node.integer("onesided") else length
    parts = 2 if x.rank == 3 and x.extents[2] == 2 else 1

    def point(at: Point) -> Scalar:
        batch, frame, step, part = at.indices
        ends = (part,) if x.rank == 3 else ()
        value = at.read(x, batch, frame * hop + step, *ends)
        return value if window is None else value * at.read(window, step)

    signal = _lay_out(node, "frames", x.dtype, [x.extents[0], frames, length, parts], point)
    spectrum = _transform(node, signal, length, False, results)

    def element(at: Point) -> Scalar:
        return at.read(spectrum, *at.indices)

    return node.builder.compute(node.name, spectrum.extents, element, x.dtype)


def _check_length(length: int) -> int:
    if length < 1:
        raise DmlcError(f"it is a transform of {length:,} points, and must have 1 or more")
    return length


def _lay_out(
    node: Node, name: str, dtype: DataType, extents: Sequence[Extent],
    element: Callable[[Point], Scalar],
) -> Tensor:  # fmt: skip
    return node.builder.compute(f"{node.name}_{name}", extents, element, dtype.compute)


# Plans ------------------------------------------------------------------------------------------

_STORED = 64
"""Cost of a value that one product stores and the next one reads, in multiplications. Two products
for 100 frames of 512 points, 3.5 million multiplications and 54,000 values between them, took 140
us on two cores, and one product of 26 million took 650."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Plan of a transform of some length: one product, unless a field says otherwise."""

    cost: int
    radix: int = 0
    """Points of the first transforms of two."""
    convolved: int = 0
    """Points of the transforms that convolve."""


@functools.cache
def _plan(length: int, parts: int, results: int, kept: int) -> _Plan:
    """Cheapest plan for points with this number of `parts`, and frequencies of which that many
    parts are `kept`."""
    best = _Plan(length * parts * results * kept)
    for radix in _list_divisors(length):
        rest, kinds = length // radix, _count_kinds(radix, parts)
        values = 2 * rest * kinds
        cost = values * (radix * parts + _STORED) + kinds * _plan(rest, 2, rest, kept).cost
        if cost < best.cost:
            best = _Plan(cost, radix=radix)
    if length & (length - 1):
        convolved = 1 << (2 * length - 2).bit_length()
        cost = 2 * _plan(convolved, 2, convolved, 2).cost + 4 * convolved * _STORED
        if cost < best.cost:
            best = _Plan(cost, convolved=convolved)
    return best


def _list_divisors(number: int) -> list[int]:
    """Divisors, except 1 and the number."""
    small = [factor for factor in range(2, int(number**0.5) + 1) if number % factor == 0]
    return sorted({factor for each in small for factor in (each, number // each)})


def _count_kinds(length: int, parts: int) -> int:
    """Number of frequencies that determine the spectrum: half of them for a real signal."""
    return length if parts == 2 else length // 2 + 1


# Transforms -------------------------------------------------------------------------------------


def _transform(
    node: Node, signal: Tensor, length: int, inverse: bool, results: int, kept: int = 2
) -> Tensor:
    """The first `results` frequencies of a signal that is padded with 0 to `length`. With 1 part
    `kept`, only their real parts."""
    node.hold(64 * length)
    _, parts = _measure_signal(signal)
    kinds = _count_kinds(length, parts)
    if results > kinds:
        half = _transform(node, signal, length, inverse, kinds, kept)

        def element(at: Point) -> Scalar:
            *own, frequency, part = at.indices
            is_kept = frequency < kinds
            value = at.read(half, *own, is_kept.select(frequency, length - frequency), part)
            return (is_kept | part.equals(0)).select(value, -value)

        extents = [*signal.extents[:-2], results, kept]
        return _lay_out(node, "spectrum", signal.dtype, extents, element)
    plan = _plan(length, parts, results, kept)
    if plan.convolved:
        return _convolve(node, signal, length, inverse, results, plan.convolved)
    if plan.radix:
        return _split(node, signal, length, inverse, results, kept, plan.radix)
    return _multiply(node, signal, length, 1, inverse, results, kept)


def _measure_signal(signal: Tensor) -> tuple[int, int]:
    """Numbers of points and parts of a signal."""
    points, parts = (need_number(extent, "a size of a signal") for extent in signal.extents[-2:])
    return points, parts


def _multiply(
    node: Node, signal: Tensor, radix: int, stride: int, inverse: bool, results: int, kept: int
) -> Tensor:
    """Transforms of `radix` points that are `stride` apart, as one product. With a stride above 1,
    there are as many transforms, along an axis before the frequencies."""
    points, parts = _measure_signal(signal)
    used = -(-points // stride)
    node.hold(16 * used * results)
    turns = np.outer(np.arange(used), np.arange(results)) % radix
    circle = _circle(np.arange(radix), radix, inverse)
    rows = _split_complex(np.stack([circle, 1j * circle], 1), signal.dtype)[:, :parts, :kept]
    matrix = node.place(np.moveaxis(rows[turns], 2, 1), f"{node.name}_matrix")

    def element(at: Point) -> Scalar:
        *own, frequency, result_part = at.indices
        number, part = at.reduced
        step = number * stride + own.pop() if stride > 1 else number
        factor = at.read(matrix, number, part, frequency, result_part)
        if used * stride == points:
            return at.read(signal, *own, step, part) * factor
        value = at.read(signal, *own, clamp(step, at.size(points)), part)
        return (step < points).select(value, 0) * factor

    strides = [stride] if stride > 1 else []
    extents = [*signal.extents[:-2], *strides, results, kept]
    return node.builder.reduce(
        f"{node.name}_product", "sum", extents, [used, parts], element, signal.dtype
    )


def _split(
    node: Node, signal: Tensor, length: int, inverse: bool, results: int, kept: int, radix: int
) -> Tensor:
    """A transform by some of `radix` points, then some of the rest.

    A point is n = rest * n1 + n2 and a frequency k = k1 + radix * k2: a sum over n1 gives k1, and
    one over n2 gives k2."""
    rest = length // radix
    kinds = _count_kinds(radix, _measure_signal(signal)[1])
    first = _multiply(node, signal, radix, rest, inverse, kinds, 2)
    turns = np.outer(np.arange(kinds), np.arange(rest))
    twiddles = _circle(turns, length, inverse)
    turned = _scale(node, first, twiddles, swapped=True)
    second = _transform(node, turned, rest, inverse, rest, kept)

    def element(at: Point) -> Scalar:
        *own, frequency, part = at.indices
        kind, group = frequency % radix, frequency / radix
        if kinds == radix:
            return at.read(second, *own, kind, group, part)
        # The others are the conjugates of the frequencies that lie as far before `length`.
        is_kept = kind < kinds
        value = at.read(
            second, *own, is_kept.select(kind, radix - kind),
            is_kept.select(group, (length - frequency) / radix), part,
        )  # fmt: skip
        return (is_kept | part.equals(0)).select(value, -value)

    extents = [*signal.extents[:-2], results, kept]
    return _lay_out(node, "spectrum", signal.dtype, extents, element)


def _convolve(
    node: Node, signal: Tensor, length: int, inverse: bool, results: int, size: int
) -> Tensor:
    """A transform as a convolution, by transforms of `size` points.

    With n * k = (n * n + k * k - (k - n) * (k - n)) / 2, the factors of a product are functions of
    n, of k and of their difference."""
    node.hold(64 * size)
    numbers = np.arange(length)
    chirp = _circle(numbers * numbers, 2 * length, inverse)
    filter_points = np.zeros(size, np.complex128)
    filter_points[:length] = chirp.conj()
    filter_points[size - length + 1 :] = chirp[:0:-1].conj()
    chirped = _scale(node, signal, chirp[: _measure_signal(signal)[0]])
    spectrum = _transform(node, chirped, size, False, size)
    filtered = _scale(node, spectrum, np.fft.fft(filter_points) / size)
    convolved = _transform(node, filtered, size, True, size)
    return _scale(node, convolved, chirp[:results])


def _circle(turns: Array, length: int, inverse: bool) -> Array:
    """exp(-2 pi i turn / length) for integers, or its conjugate for `inverse`."""
    return np.exp((2j if inverse else -2j) * np.pi * (turns % length / length))


def _split_complex(values: Array, dtype: DataType) -> Array:
    """Complex numbers as an array whose last axis has their parts."""
    return np.stack([np.real(values), np.imag(values)], -1).astype(dtype.dtype)


def _scale(node: Node, tensor: Tensor, factors: Array, *, swapped: bool = False) -> Tensor:
    """A signal times complex constants of its last axes. The axes of the result are those of the
    constants, of which the signal may have its two `swapped`."""
    placed = node.place(_split_complex(factors, tensor.dtype), f"{node.name}_factors")
    outer = tensor.extents[: -1 - factors.ndim]

    def element(at: Point) -> Scalar:
        own, last, part = at.indices[: len(outer)], at.indices[len(outer) : -1], at.indices[-1]
        place = (*own, *(last[::-1] if swapped else last))
        cosine, sine = at.read(placed, *last, 0), at.read(placed, *last, 1)
        real = at.read(tensor, *place, 0)
        if tensor.extents[-1] == 1:
            return real * part.equals(0).select(cosine, sine)
        imaginary = at.read(tensor, *place, 1)
        return part.equals(0).select(
            real * cosine - imaginary * sine, real * sine + imaginary * cosine
        )

    return _lay_out(node, "scaled", tensor.dtype, [*outer, *factors.shape, 2], element)


RULES: Mapping[str, Rule] = {"DFT": _dft, "STFT": _stft}
