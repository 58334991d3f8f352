"""Operators of the library on tensors of a `FunctionBuilder`: what a file of the library states is
not stated again in Python.

A table of the library lists the data types that DirectML or oneDNN takes. The formula holds for
more: a row that takes some floats takes all of them here, and so with integers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import cast

from dmlc.binding import Operator, TensorDesc
from dmlc.binding.gradient import lower
from dmlc.building.functions import FunctionBuilder, Tensor
from dmlc.catalog import operator
from dmlc.ir import Function
from dmlc.scalars import DataType

_FUNCTIONS_KEPT = 256


def bind_operator(
    name: str,
    tensors: Mapping[str, Tensor],
    attributes: Mapping[str, object],
    outputs: Mapping[str, TensorDesc | None],
) -> Function:
    """Function of an operator of the library for tensors of a function under construction, by row.
    `outputs` has the rows to compute, described where the inputs leave that open. Raises
    `DmlcError` for what its table and its constraints refuse."""
    described = {row: TensorDesc(tensor.dtype, tensor.extents) for row, tensor in tensors.items()}
    described |= {row: desc for row, desc in outputs.items() if desc is not None}
    values = tuple((key, _freeze(value)) for key, value in attributes.items())
    return _bind(name, tuple(described.items()), values, tuple(outputs))


def apply_operator(
    builder: FunctionBuilder,
    name: str,
    operator_name: str,
    tensors: Mapping[str, Tensor],
    attributes: Mapping[str, object],
    stated: TensorDesc | None = None,
) -> Tensor:
    """`OutputTensor` of an operator of the library, under a name; `stated` describes it where the
    inputs leave it open. Raises as `bind_operator` does."""
    function = bind_operator(operator_name, tensors, attributes, {"OutputTensor": stated})
    return builder.call(function, tensors, {"OutputTensor": name}, f"{name}_")["OutputTensor"]


def _freeze(value: object) -> object:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


@functools.lru_cache(_FUNCTIONS_KEPT)
def _bind(
    name: str,
    tensors: Sequence[tuple[str, TensorDesc]],
    attributes: Sequence[tuple[str, object]],
    computed: Sequence[str],
) -> Function:
    found = _widen(name).resolve(dict(tensors), dict(attributes), computed=computed)
    return lower(found)


@functools.cache
def _widen(name: str) -> Operator:
    """Operator whose rows take all data types of a kind if they take some of it."""
    definition = operator(name).definition
    newest = definition.newest
    rows = tuple(dataclasses.replace(t, dtypes=_complete(t.dtypes)) for t in newest.tensors)
    levels = (dataclasses.replace(newest, tensors=rows),)
    return Operator(dataclasses.replace(definition, levels=levels))


def _complete(dtypes: Sequence[DataType]) -> tuple[DataType, ...]:
    """Data types and the others of their kinds; BOOL too for what takes floats and integers, and
    so moves elements."""
    floats, integers = any(t.is_float for t in dtypes), any(t.is_integer for t in dtypes)
    more = [
        t for t in DataType
        if (floats and t.is_float) or (integers and t.is_integer)
        or (floats and integers and t is DataType.BOOL)
    ]  # fmt: skip
    return tuple(dict.fromkeys((*dtypes, *more)))
