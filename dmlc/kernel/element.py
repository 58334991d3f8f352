"""One kernel's scalar work: the bodies of its stages merged into one list of values.

Loads become reads of a `View`, that is a tensor with one stride per axis of the kernel's domain.
Equal values of different stages become one. How the domain is walked is not decided here.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from dmlc import ir
from dmlc.scalars import DataType
from dmlc.source import InternalError, Span, UnsupportedError


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Where a tensor's element for a point of the domain lies: `offset + sum(i * stride)`."""

    tensor: str
    dtype: DataType
    strides: tuple[int, ...]
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """The element of a view, in the tensor's compute type."""

    view: View
    dtype: DataType


Value: TypeAlias = ir.Constant | Read | ir.Apply | ir.Select | ir.Cast


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """What a kernel computes at each point of its domain. Values stand before their readers."""

    domain: tuple[ir.Extent, ...]
    values: tuple[Value, ...]
    results: tuple[tuple[View, int], ...]
    """Which value each stored view takes, in the order of the stages."""

    def views(self) -> tuple[View, ...]:
        """Every view, reads first, in order of first use."""
        reads = {v.view: None for v in self.values if isinstance(v, Read)}
        return (*reads, *(view for view, _ in self.results))


def operands(value: Value) -> tuple[int, ...]:
    """The values a value reads, in evaluation order."""
    return () if isinstance(value, Read) else ir.operands(value)


def collect_elements(function: ir.Function, stages: tuple[str, ...]) -> Elements:
    """The merged scalar work of element-wise stages over one domain.

    Raises `UnsupportedError` for a reduction, and for a read at a computed position.
    """
    first = _find_stage(function, stages[0])
    collector = _Collector(function, first.domain)
    for name in stages:
        stage = _find_stage(function, name)
        if stage.domain != first.domain:
            raise InternalError(f"stages of one kernel differ in domain: {first.name}, {name}")
        collector.add_stage(stage)
    return Elements(first.domain, tuple(collector.values), tuple(collector.results))


def _find_stage(function: ir.Function, name: str) -> ir.Stage:
    stage = function.stage(name)
    if stage is None:
        raise InternalError(f"a kernel names a stage that is not there: {name}")
    return stage


def _tensor_strides(function: ir.Function, name: str) -> tuple[int, ...]:
    tensor = function.tensors()[name]
    if isinstance(tensor, ir.Parameter):
        extents, strides = tensor.extents, tensor.strides
    else:
        result = next((r for r in function.results if r.name == name), None)
        extents, strides = tensor.domain, result.strides if result else None
    if strides is not None:
        return strides
    sizes = tuple(e for e in extents if isinstance(e, int))
    # A size known at run time stands alone, as the verifier demands.
    return ir.packed_strides(sizes) if len(sizes) == len(extents) else (1,)


class _Collector:
    """Copies bodies into one list of values, equal values once."""

    def __init__(self, function: ir.Function, domain: tuple[ir.Extent, ...]) -> None:
        self._function = function
        self._domain = domain
        self._strides = {name: _tensor_strides(function, name) for name in function.tensors()}
        self._dtypes = {name: t.dtype for name, t in function.tensors().items()}
        self._numbers: dict[Value, int] = {}
        self._stored: dict[str, int] = {}
        self.values: list[Value] = []
        self.results: list[tuple[View, int]] = []

    def add_stage(self, stage: ir.Stage) -> None:
        if stage.reduction is not None:
            raise UnsupportedError(
                f"'{stage.name}' is a reduction ({stage.reduction.combiner}); "
                "kernels for reductions are not supported yet",
                stage.span,
            )
        instructions = stage.body.instructions
        numbers: dict[int, int] = {}
        for number, instruction in enumerate(instructions):
            if ir.value_type(instruction) is DataType.INDEX:
                continue  # only loads may use it, and those look it up themselves
            match instruction:
                case ir.Load():
                    numbers[number] = self._add_load(stage, instruction)
                case _:
                    mapped: list[int] = []
                    for operand in ir.operands(instruction):
                        if operand not in numbers:
                            raise _refuse_position(stage, stage.span)
                        mapped.append(numbers[operand])
                    new = ir.with_operands(instruction, tuple(mapped))
                    if isinstance(new, ir.Index | ir.Load):
                        raise InternalError(f"{stage.name}: not a scalar operation: {new}")
                    numbers[number] = self._add(new)
        result = numbers.get(stage.body.result)
        if result is None:
            raise _refuse_position(stage, stage.span)
        self._stored[stage.name] = result
        view = View(stage.name, stage.dtype, self._strides[stage.name])
        self.results.append((view, result))

    def _add(self, value: Value) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def _add_load(self, stage: ir.Stage, load: ir.Load) -> int:
        strides = [0] * len(self._domain)
        offset = 0
        for axis, number in enumerate(load.indices):
            step = self._strides[load.tensor][axis]
            match stage.body.instructions[number]:
                case ir.Index(axis=domain_axis, reduced=False):
                    strides[domain_axis] += step
                case ir.Constant(value=value):
                    offset += int(value) * step
                case _:
                    raise UnsupportedError(
                        f"'{stage.name}' reads '{load.tensor}' at a computed position; only reads "
                        "at the element's own position or at a constant are supported yet",
                        stage.span,
                    )
        dtype = self._dtypes[load.tensor]
        view = View(load.tensor, dtype, tuple(strides), offset)
        if load.tensor in self._stored:
            if view.strides != self._strides[load.tensor] or offset or dtype.is_storage_only:
                raise InternalError(
                    f"{stage.name} reads {load.tensor}, which the same kernel stores, elsewhere "
                    "than at its own element or before it is rounded"
                )
            return self._stored[load.tensor]
        return self._add(Read(view, load.dtype))


def _refuse_position(stage: ir.Stage, span: Span | None) -> UnsupportedError:
    return UnsupportedError(
        f"'{stage.name}' computes with the position of its element; only whole-tensor formulas "
        "are supported yet",
        span,
    )
