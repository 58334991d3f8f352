"""Steps of a Scan, unrolled or as stages over all steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.recurrences import State, View, repeat_stages
from dmlc.building.tensors import normalize_axes
from dmlc.ir import Extent
from dmlc.onnx.importing.nodes import Value
from dmlc.onnx.importing.values import Values
from dmlc.sizes import measure
from dmlc.source import UnsupportedError

FEW_STEPS = 4
"""The most steps that are laid out where a loop can take them."""

Enter = Callable[[Sequence[Tensor]], Sequence[Value] | None]
"""Adds the stages of a step for its inputs, and gives its outputs: None where a node is not
supported."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scanned:
    """Tensor of which each step reads a slice along an axis, from the last one if `backwards`."""

    tensor: Tensor
    axis: int
    backwards: bool

    @property
    def steps(self) -> Extent:
        return self.tensor.extents[self.axis]

    @property
    def extents(self) -> list[Extent]:
        """Sizes of a slice."""
        return [e for axis, e in enumerate(self.tensor.extents) if axis != self.axis]

    def read(self, at: Point, places: Sequence[Scalar]) -> Scalar:
        """Element of a slice at a point whose first index is the number of the step."""
        return self.read_step(at, at.indices[0], places)

    def read_step(self, at: Point, step: Scalar, places: Sequence[Scalar]) -> Scalar:
        """Element of a step's slice."""
        step = at.size(self.steps) - 1 - step if self.backwards else step
        return at.read(self.tensor, *places[: self.axis], step, *places[self.axis :])


def take_slice(values: Values, scanned: Scanned, step: int, name: str) -> Tensor:
    """Slice of a step."""

    def element(at: Point) -> Scalar:
        return scanned.read_step(at, at.size(step), at.indices)

    made = values.builder.compute(name, scanned.extents, element, scanned.tensor.dtype)
    values.derive(made, [scanned.tensor])
    return made


def repeat_step(
    values: Values, prefix: str, states: Sequence[Tensor], scanned: Sequence[Scanned], enter: Enter
) -> list[Tensor] | None:
    """Outputs of all steps along a first axis, states first. None if the step cannot be in a loop
    of the IR: the size of a state changes, a state determines a size, or the step has a loop."""
    builder, steps = values.builder, scanned[0].steps
    start = builder.count_stages()
    inputs: list[Tensor] = []
    for number, (given, extents) in enumerate(
        [*((state, state.extents) for state in states),
         *((each.tensor, each.extents) for each in scanned)]
    ):  # fmt: skip
        name = builder.take_name(f"{prefix}input{number}")
        inputs.append(Tensor(name, given.dtype, tuple(extents)))
        values.derive(inputs[-1], [given])
    found = enter(inputs)
    if found is None:
        return None
    own = {stage.name for stage in builder.list_stages(start)}
    outputs: list[Tensor] = []
    for value in found:
        tensor = values.tensor(value)
        if tensor is not value or tensor.name not in own:
            tensor = _copy(values, tensor, f"{prefix}output")
        outputs.append(tensor)
    pairs = [*zip(states, inputs, outputs, strict=False)]
    if any((first.dtype, first.extents) != (after.dtype, after.extents)
           for first, _, after in pairs):  # fmt: skip
        return None
    views: dict[str, View] = {
        tensor.name: each.read for tensor, each in zip(inputs[len(states) :], scanned, strict=True)
    }
    kept = [State(before, first, after) for first, before, after in pairs]
    try:
        whole = repeat_stages(builder, start, steps, kept, views)
    except UnsupportedError:
        return None
    made = [whole.get(each.name) or _spread(values, each, steps) for each in outputs]
    for each in made:
        values.derive(each, [*states, *(each.tensor for each in scanned)])
    return made


def _copy(values: Values, tensor: Tensor, name: str) -> Tensor:
    return values.builder.compute(
        name, tensor.extents, lambda at: at.read(tensor, *at.indices), tensor.dtype
    )


def _spread(values: Values, tensor: Tensor, steps: Extent) -> Tensor:
    """Tensor that is the same at all steps, broadcast along them."""
    return values.builder.compute(
        f"{tensor.name}_steps", (steps, *tensor.extents),
        lambda at: at.read(tensor, *at.indices[1:]), tensor.dtype,
    )  # fmt: skip


def take_last(values: Values, tensor: Tensor) -> Tensor:
    """Slice of the last step."""
    last = measure(tensor.extents[0]) - 1
    made = values.builder.compute(
        f"{tensor.name}_last", tensor.extents[1:],
        lambda at: at.read(tensor, at.measure(last), *at.indices), tensor.dtype,
    )  # fmt: skip
    values.derive(made, [tensor])
    return made


def move_steps(values: Values, tensor: Tensor, axis: int, backwards: bool) -> Tensor:
    """Slices of all steps along another axis, from the last one if `backwards`."""
    steps, (place,) = tensor.extents[0], normalize_axes([axis], tensor.rank)
    extents = [*tensor.extents[1 : place + 1], steps, *tensor.extents[place + 1 :]]

    def element(at: Point) -> Scalar:
        step = at.indices[place]
        step = at.size(steps) - 1 - step if backwards else step
        return at.read(tensor, step, *at.indices[:place], *at.indices[place + 1 :])

    made = values.builder.compute(f"{tensor.name}_steps", extents, element, tensor.dtype)
    values.derive(made, [tensor])
    return made
