"""Positions that are sums: indices, each times a constant, and a constant.

What is no such sum may still be index-only: `positions` evaluates that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir.nodes import Apply, Body, Constant, Index, operands
from dmlc.scalars import DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """`constant + sum(index * factor)`."""

    constant: int
    factors: tuple[tuple[Index, int], ...] = ()


def find_affine(body: Body) -> tuple[Affine | None, ...]:
    """Each INDEX value as a sum of indices times constants, where it is one."""
    found: list[Affine | None] = []
    for instruction in body.instructions:
        given = [found[o] for o in operands(instruction)]
        form: Affine | None = None
        match instruction:
            case Index():
                form = Affine(0, ((instruction, 1),))
            case Constant(dtype=DataType.INDEX, value=value):
                form = Affine(int(value))
            case Apply(operation=operation, dtype=DataType.INDEX):
                known = [g for g in given if g is not None]
                if len(known) == len(given):
                    form = _combine(operation.name, known)
            case _:
                pass
        found.append(form)
    return tuple(found)


def _combine(name: str, given: Sequence[Affine]) -> Affine | None:
    match name:
        case "add":
            return _sum(given[0], given[1], 1)
        case "sub":
            return _sum(given[0], given[1], -1)
        case "neg":
            return _sum(Affine(0), given[0], -1)
        case "mul" if not given[0].factors:
            return _sum(Affine(0), given[1], given[0].constant)
        case "mul" if not given[1].factors:
            return _sum(Affine(0), given[0], given[1].constant)
        case _:
            return None


def _sum(left: Affine, right: Affine, factor: int) -> Affine:
    factors = dict(left.factors)
    for index, times in right.factors:
        factors[index] = factors.get(index, 0) + times * factor
    kept = tuple((index, times) for index, times in factors.items() if times)
    return Affine(left.constant + factor * right.constant, kept)
