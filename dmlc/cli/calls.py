"""Arguments of commands that run something: the subject, its arrays, and the device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

import dmlc
from dmlc import ir
from dmlc.binding import ir_name
from dmlc.cli.arguments import (
    attribute_option,
    dimension_option,
    find_function,
    find_subject,
    import_option,
    matrix_option,
    read_attributes,
    read_dimensions,
    read_pairs,
    read_tensors,
    refuse_attributes,
    schedule_option,
    table_options,
    tensor_option,
)
from dmlc.cli.arrays import bind_open, make_outputs, read_arrays, read_weights
from dmlc.cli.completion import complete_input, complete_operator
from dmlc.cli.device_names import complete_device
from dmlc.devices import DEFAULT
from dmlc.runtime.arrays import Array
from dmlc.source import Source


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """Run described by the options of a command."""

    subject: dmlc.Operator | dmlc.Graph | ir.Function
    arrays: Mapping[str, Array]
    attributes: Mapping[str, object]
    dims: Mapping[str, int]
    device: str
    arguments: tuple[Any, ...]
    """Arguments of `dmlc.run`."""


def call_options(devices: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Argument and options of a run on one of some `devices`. The command receives a `RunOptions`
    as its first parameter."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def read(
            operator: str,
            inputs: tuple[str, ...],
            tensors: tuple[str, ...],
            attributes: tuple[str, ...],
            dimensions: tuple[str, ...],
            folders: tuple[str, ...],
            device: str,
            schedule: Source | None,
            matrix_instructions: list[str],
            gpu_class: str | None,
            schedules: Source | None,
            **others: Any,
        ) -> Any:
            call = _read_call(
                operator, inputs, tensors, attributes, dimensions, folders, device,
                (schedule, matrix_instructions, gpu_class, schedules),
            )  # fmt: skip
            return command(call, **others)

        options = (
            click.argument("operator", shell_complete=complete_operator),
            click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
                         shell_complete=complete_input, help="An input tensor. May repeat."),
            tensor_option,
            attribute_option,
            dimension_option,
            import_option,
            click.option("--device", default=DEFAULT, show_default=True,
                         shell_complete=complete_device, help=devices),
            schedule_option,
            matrix_option,
            table_options,
        )  # fmt: skip
        return functools.reduce(lambda made, option: option(made), reversed(options), read)

    return decorate


def _read_call(
    operator: str,
    inputs: Sequence[str],
    tensors: Sequence[str],
    attributes: Sequence[str],
    dimensions: Sequence[str],
    folders: Sequence[str],
    device: str,
    rest: tuple[Any, ...],
) -> RunOptions:
    """Run of the given options, with the arrays of its inputs read; `rest` has the compiler's
    options. Raises `DmlcError` for wrong ones."""
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
    call = (found, arrays, given, outputs, device, dims, *rest)
    if function is not None:
        spelt = {ir_name(name): array for name, array in arrays.items()}
        call = (function, spelt, None, outputs, device, None, *rest)
    return RunOptions(found, arrays, given, dims, device, call)
