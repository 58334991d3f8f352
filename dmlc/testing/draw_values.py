"""Random numbers: sizes, strides, and values of attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np

from dmlc.language.attribute_types import Holds, What
from dmlc.language.definitions import AttributeDefinition
from dmlc.scalars import TENSOR_TYPES

Random = np.random.Generator
Shape = tuple[int, ...]
_Item = TypeVar("_Item")

SIZES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 12)
LONG_SIZES = (16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 255, 256, 257, 300, 512, 1000, 1025)
"""Sizes around those of vectors, groups and tiles."""
_WHOLE = (0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5)
_NEGATIVE = (-1, -1, -2, -3)
_FAR = (7, 16, 100, 2**31 - 1, 2**32 - 1)
_FLOATS = (0.0, 1.0, 1.0, 0.5, 2.0, -1.0, -0.5, 1.5, 3.0, 0.25, 1e-5, 1e-3, 0.9, 0.1)
_FAR_FLOATS = (-0.0, 1e-30, 1e-45, 1e6, -1e6, 3.4e38, -3.4e38, 65504.0)
_FEW_ELEMENTS = 2048


def pick(random: Random, items: Sequence[_Item]) -> _Item:
    return items[int(random.integers(len(items)))]


def shuffle(random: Random, items: Sequence[_Item]) -> list[_Item]:
    """Items in random order."""
    return [items[int(k)] for k in random.permutation(len(items))]


def read_items(value: object) -> tuple[object, ...] | None:
    """Entries of an array attribute's value; None for a single value."""
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else None


def draw_size(random: Random) -> int:
    if random.random() < 0.01:
        return 0
    return pick(random, SIZES)


def draw_sizes(random: Random, rank: int) -> Shape:
    """Random sizes with few elements in all: the higher the rank, the shorter the axes."""
    sizes = [draw_size(random) for _ in range(rank)]
    while math.prod(sizes) > _FEW_ELEMENTS:
        longest = sizes.index(max(sizes))
        sizes[longest] = (sizes[longest] + 1) // 2
    return tuple(sizes)


def draw_value(random: Random, attribute: AttributeDefinition, length: int | None) -> object:
    if length is None:
        return draw_one(random, attribute)
    if random.random() < 0.5:
        return (draw_one(random, attribute),) * length
    return tuple(draw_one(random, attribute) for _ in range(length))


def draw_one(random: Random, attribute: AttributeDefinition) -> object:
    listed = list_values(attribute)
    if listed:
        return listed[int(random.integers(len(listed)))]
    if attribute.type.what is What.TYPE:
        return pick(random, TENSOR_TYPES).name
    far = random.random() < 0.06
    holds = attribute.type.holds
    if holds is Holds.FLOAT or (holds is Holds.EITHER and random.random() < 0.25):
        return pick(random, _FAR_FLOATS if far else _FLOATS)
    pool = _FAR if far else _WHOLE
    if attribute.type.limits[0] < 0 and random.random() < 0.25:
        pool = _NEGATIVE
    return pick(random, pool)


def draw_strides(random: Random, sizes: Shape, output: bool) -> Shape | None:
    order = list(range(len(sizes)))
    if random.random() < 0.5:
        order = [int(k) for k in random.permutation(len(sizes))]
    padded = random.random() < 0.4
    strides = [0] * len(sizes)
    step = pick(random, (1, 1, 2)) if padded else 1
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
        if padded:
            step += pick(random, (0, 1, 3))
    if not output and random.random() < 0.2:
        strides[int(random.integers(len(sizes)))] = 0
    return tuple(strides)


def list_values(attribute: AttributeDefinition) -> list[object]:
    """Values that an attribute may have, if there are few."""
    if attribute.enum is not None:
        return list(attribute.enum.members)
    if attribute.type.what is What.BOOL:
        return [False, True]
    if attribute.values is None:
        return []
    if attribute.type.what is What.STRING:
        return list(attribute.values)
    found: list[object] = []
    for text in attribute.values:
        try:
            found.append(float(text) if attribute.type.holds is Holds.FLOAT else int(text))
        except ValueError:
            return []
    return found
