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
    Bindings,
    binding_options,
    matrix_option,
    read_pairs,
    read_tensors,
    schedule_option,
    table_options,
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
            *,
            operator: str,
            inputs: tuple[str, ...],
            bindings: Bindings,
            device: str,
            schedule: Source | None,
            matrix_instructions: list[str],
            gpu_class: str | None,
            schedules: Source | None,
            **others: Any,
        ) -> Any:
            rest = (schedule, matrix_instructions, gpu_class, schedules)
            return command(_read_call(operator, inputs, bindings, device, rest), **others)

        options = (
            click.argument("operator", shell_complete=complete_operator),
            click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy",
                         shell_complete=complete_input, help="An input tensor. May repeat."),
            binding_options,
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
    bindings: Bindings,
    device: str,
    rest: tuple[Any, ...],
) -> RunOptions:
    """Run of the given options, with the arrays of its inputs read; `rest` has the compiler's
    options. Raises `DmlcError` for wrong ones."""
    is_function = operator.endswith(".ir")
    found = bindings.read_function(operator, ()) if is_function else bindings.find(operator)
    described = read_tensors(bindings.tensors)
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
        _, given, dims = bindings.read(found)
        outputs = make_outputs(found, arrays, described, given, dims)
        function = bind_open(found, arrays, described, given, dims)
    call = (found, arrays, given, outputs, device, dims, *rest)
    if function is not None:
        spelt = {ir_name(name): array for name, array in arrays.items()}
        call = (function, spelt, None, outputs, device, None, *rest)
    return RunOptions(found, arrays, given, dims, device, call)
