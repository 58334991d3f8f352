"""The arguments of commands that run something: the subject, its arrays, and the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

import dmlc
from dmlc import ir
from dmlc.binding import ir_name
from dmlc.cli.arguments import (
    find_function,
    find_subject,
    read_attributes,
    read_dimensions,
    read_pairs,
    read_tensors,
    refuse_attributes,
)
from dmlc.cli.arrays import bind_open, make_outputs, read_arrays, read_weights
from dmlc.runtime.arrays import Array
from dmlc.source import Source


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A run as its options say it."""

    subject: dmlc.Operator | dmlc.Graph | ir.Function
    arrays: Mapping[str, Array]
    attributes: Mapping[str, object]
    dims: Mapping[str, int]
    arguments: tuple[Any, ...]
    """The arguments of `dmlc.run`."""


def read_call(
    operator: str,
    inputs: Sequence[str],
    tensors: Sequence[str],
    attributes: Sequence[str],
    dimensions: Sequence[str],
    folders: Sequence[str],
    device: str,
    schedule: Source | None,
    matrix_instructions: list[str],
) -> Call:
    """The run that options mean, the arrays of its inputs read. Raises as these do."""
    bound = find_function(operator, (), attributes, dimensions)
    found = find_subject(operator, folders) if bound is None else bound
    described = read_tensors(tensors)
    if any(desc.strides is not None for desc in described.values()):
        raise click.BadParameter(
            "an array brings its own layout: leave the strides out", param_hint="'--tensor'"
        )
    arrays = read_arrays(read_pairs("--input", inputs), described)
    given: dict[str, object] = {}
    dims: dict[str, int] = {}
    outputs: dict[str, Array] = {}
    function: ir.Function | None = None
    if isinstance(found, ir.Function):
        arrays |= read_weights(operator, found, arrays)
    else:
        dims = read_dimensions(dimensions, found)
        if isinstance(found, dmlc.Graph):
            refuse_attributes(attributes, found)
        given = read_attributes(attributes, found)
        outputs = make_outputs(found, arrays, described, given, dims)
        function = bind_open(found, arrays, described, given, dims)
    rest = (schedule, matrix_instructions)
    call = (found, arrays, given, outputs, device, dims, *rest)
    if function is not None:
        spelt = {ir_name(name): array for name, array in arrays.items()}
        call = (function, spelt, None, outputs, device, None, *rest)
    return Call(found, arrays, given, dims, call)
