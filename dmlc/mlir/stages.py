"""Stage as `linalg.generic`: its operands and maps, and the body that computes an element."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.index.intervals import Interval
from dmlc.ir import (
    Apply,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Reduction,
    Select,
    Stage,
    Step,
    Symbol,
)
from dmlc.ir.nodes import Tensor
from dmlc.mlir.operations import write_beats, write_conversion, write_operation
from dmlc.mlir.reads import (
    Cut,
    Extraction,
    Operand,
    list_missing,
    list_used,
    plan_reads,
)
from dmlc.mlir.region import FunctionSymbols, Region, Value
from dmlc.mlir.sizes import Sizes
from dmlc.mlir.spelling import spell_tensor, spell_type
from dmlc.scalars import DataType, convert
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    """Operand in the text of the operation."""

    value: str
    kind: str
    map: str
    argument: str
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class _Total:
    """Tensor that an operation initialises or accumulates into: its value before and after."""

    result: str
    start: str
    kind: str
    argument: Value


class StageWriter:
    """Writer of the stages of a function, in order."""

    def __init__(
        self,
        region: Region,
        sizes: Sizes,
        tensors: Mapping[str, Tensor],
        reach: Mapping[str, Interval],
    ) -> None:
        self._region = region
        self._sizes = sizes
        self._tensors = tensors
        self._reach = reach
        self._slices: dict[Operand, str] = {}

    def write(self, stage: Stage) -> None:
        """Writes the operations that define a stage."""
        reduction, constant = stage.reduction, _find_constant(stage)
        if constant is not None:
            self._fill(stage.name, stage.dtype, stage.extents, constant)
        elif reduction is None:
            self._write_elements(stage)
        elif reduction.is_positional:
            self._write_positions(stage, reduction)
        else:
            self._write_reduction(stage, reduction)

    # What an operation starts from ---------------------------------------------------------

    def _make_empty(self, name: str, dtype: DataType, extents: tuple[Extent, ...]) -> str:
        text = f"tensor.empty({self._sizes.list_open(extents)}) : {spell_tensor(dtype, extents)}"
        return self._region.define(text, self._take(f"{name}.empty"))

    def _fill(
        self, name: str, dtype: DataType, extents: tuple[Extent, ...], value: bool | int | float
    ) -> str:
        """Tensor filled with one value. That of a stage has the stage's name."""
        kind = spell_tensor(dtype, extents)
        number = self._region.constant(value, dtype)
        empty = self._make_empty(name.removesuffix(".init"), dtype, extents)
        text = f"linalg.fill ins({number} : {spell_type(dtype)}) outs({empty} : {kind}) -> {kind}"
        taken = f"%{name}" if name in self._tensors else self._take(name)
        return self._region.define(text, taken)

    def _take(self, wanted: str) -> str:
        return self._region.names.take(wanted)

    # The three kinds of stages -------------------------------------------------------------

    def _write_elements(self, stage: Stage) -> None:
        body = _Body(self, stage)
        out = spell_type(stage.dtype)
        start = self._make_empty(stage.name, stage.dtype, stage.extents)
        kind = spell_tensor(stage.dtype, stage.extents)
        result = write_conversion(body.region, body.write(stage.body.result), stage.dtype)
        argument = Value(body.region.name("out"), stage.dtype)
        body.region.lines.append(f"linalg.yield {result} : {out}")
        body.close([_Total(f"%{stage.name}", start, kind, argument)])

    def _write_reduction(self, stage: Stage, reduction: Reduction) -> None:
        dtype = stage.body.dtype
        narrow = dtype is not stage.dtype
        identity = reduction.record.identity(dtype)
        body = _Body(self, stage)
        start = self._fill(f"{stage.name}.init", dtype, stage.extents, identity)
        total = Value(body.region.name("acc"), dtype)
        value = body.write(stage.body.result)
        made = write_operation(body.region, reduction.record.operation, (total, value))
        if stage.body.guard is not None:
            made = body.region.select(body.write(stage.body.guard), made, total)
        body.region.lines.append(f"linalg.yield {made} : {spell_type(dtype)}")
        kind = spell_tensor(dtype, stage.extents)
        name = self._take(f"{stage.name}.{dtype.short}") if narrow else f"%{stage.name}"
        body.close([_Total(name, start, kind, total)])
        if narrow:
            self._store(stage, name, dtype)

    def _store(self, stage: Stage, source: str, dtype: DataType) -> None:
        """Rounds the result of a reduction to the storage type."""
        axes = _name_dimensions(len(stage.extents))
        plain = f"affine_map<({axes}) -> ({axes})>"
        inner = Region(self._region.names)
        total, out = Value(inner.name("total"), dtype), Value(inner.name("out"), stage.dtype)
        made = write_conversion(inner, total, stage.dtype)
        inner.lines.append(f"linalg.yield {made} : {spell_type(stage.dtype)}")
        start = self._make_empty(stage.name, stage.dtype, stage.extents)
        given = _Given(source, spell_tensor(dtype, stage.extents), plain, str(total), dtype)
        kind = spell_tensor(stage.dtype, stage.extents)
        written = [_Total(f"%{stage.name}", start, kind, out)]
        kinds = ["parallel"] * len(stage.extents)
        self.write_generic([given], written, [plain], kinds, inner.lines)

    def _write_positions(self, stage: Stage, reduction: Reduction) -> None:
        """Writes an argmin or argmax: the best value is carried along with its index, and with a
        flag that there is one if a guard may exclude all points so far."""
        dtype, domain = stage.body.dtype, stage.extents
        identity = reduction.record.identity(dtype)
        guarded = stage.body.guard is not None
        body = _Body(self, stage)
        region = body.region
        parts: list[tuple[str, str, DataType, bool | int | float]] = [
            (self._take(f"{stage.name}.best"), "best", dtype, identity),
            (f"%{stage.name}", "place", stage.dtype, 0),
        ]
        if guarded:
            parts.append((self._take(f"{stage.name}.found"), "found", DataType.BOOL, False))
        totals = [
            _Total(
                name,
                self._fill(f"{name[1:]}.init", kind, domain, start),
                spell_tensor(kind, domain),
                Value(region.name(argument), kind),
            )
            for name, argument, kind, start in parts
        ]
        best, place, *found = (total.argument for total in totals)
        value = body.write(stage.body.result)
        better = write_beats(region, reduction.record.beats, value, best)
        if stage.body.guard is not None:
            first = region.apply("arith.xori", found[0], region.constant(True, DataType.BOOL))
            better = region.apply("arith.ori", better, first)
            better = region.apply("arith.andi", body.write(stage.body.guard), better)
        number = write_conversion(region, body.number_point(reduction), stage.dtype)
        made = [region.select(better, value, best), region.select(better, number, place)]
        made += [region.apply("arith.ori", each, better) for each in found]
        kinds = ", ".join(spell_type(each.dtype) for each in made)
        region.lines.append(f"linalg.yield {', '.join(map(str, made))} : {kinds}")
        body.close(totals)

    # What operations are made of -----------------------------------------------------------

    def give(self, operand: Operand) -> tuple[str, str]:
        """Value and type of an operand; equal slices are shared between stages."""
        tensor = self._tensors[operand.tensor]
        if operand.is_whole:
            return f"%{operand.tensor}", spell_tensor(tensor.dtype, tensor.extents)
        kind = spell_tensor(tensor.dtype, (cut.size for cut in operand.kept))
        if operand not in self._slices:
            offsets = [str(cut.offset) for cut in operand.cuts]
            sizes = [self._spell_size(cut.size) for cut in operand.cuts]
            strides = [str(cut.stride) for cut in operand.cuts]
            lists = " ".join(f"[{', '.join(each)}]" for each in (offsets, sizes, strides))
            whole = spell_tensor(tensor.dtype, tensor.extents)
            text = f"tensor.extract_slice %{operand.tensor}{lists} : {whole} to {kind}"
            name = self._take(f"{operand.tensor}.slice")
            self._slices[operand] = self._region.define(text, name)
        return self._slices[operand], kind

    def _spell_size(self, size: Extent) -> str:
        return str(self._sizes.value(size)) if isinstance(size, str) else str(size)

    def make_window(self, stage: Stage, missing: Sequence[Index]) -> tuple[str, str]:
        """Tensor whose only purpose is to give loop indices their extents."""
        extents = tuple(extent for i in missing if (extent := stage.extent(i)) is not None)
        kind = spell_tensor(stage.body.dtype, extents)
        text = f"tensor.empty({self._sizes.list_open(extents)}) : {kind}"
        return self._region.define(text, self._take(f"{stage.name}.window")), kind

    def write_generic(
        self,
        given: Sequence[_Given],
        totals: Sequence[_Total],
        result_maps: Sequence[str],
        kinds: Sequence[str],
        lines: Sequence[str],
    ) -> None:
        """Writes one operation, with the lines of its body."""
        add = self._region.lines.append
        types = ", ".join(total.kind for total in totals)
        add(f"{', '.join(total.result for total in totals)} = linalg.generic {{")
        maps = [*(each.map for each in given), *result_maps]
        add("  indexing_maps = [")
        self._region.lines += [f"    {each}," for each in maps[:-1]]
        add(f"    {maps[-1]}")
        add("  ],")
        quoted = ", ".join(f'"{kind}"' for kind in kinds)
        add(f"  iterator_types = [{quoted}]")
        ins = ", ".join(each.value for each in given)
        typed = ", ".join(each.kind for each in given)
        outs = ", ".join(total.start for total in totals)
        inputs = f"ins({ins} : {typed}) " if given else ""
        add(f"}} {inputs}outs({outs} : {types}) {{")
        arguments = [f"{each.argument}: {spell_type(each.dtype)}" for each in given]
        arguments += [f"{t.argument}: {spell_type(t.argument.dtype)}" for t in totals]
        add(f"^bb0({', '.join(arguments)}):")
        self._region.lines += [f"  {line}" for line in lines]
        add(f"}} -> {types if len(totals) == 1 else f'({types})'}")

    @property
    def names(self) -> FunctionSymbols:
        return self._region.names

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def size(self, extent: Extent) -> Value:
        return self._sizes.value(extent)

    def plan(self, stage: Stage) -> dict[int, Operand | Extraction]:
        return plan_reads(stage, self._tensors, self._reach)


class _Body:
    """Body of one stage: its reads, and the values written so far."""

    def __init__(self, writer: StageWriter, stage: Stage) -> None:
        self._writer = writer
        self._stage = stage
        self._reads = writer.plan(stage)
        self.region = Region(writer.names)
        self._values: dict[int, Value] = {}
        self._indices: dict[Index, Value] = {}
        self._arguments: dict[Operand, _Given] = {}
        self._used = list_used(stage, self._reads)

    def write(self, value: int) -> Value:
        """Writes a value and its operands, and returns it."""
        if not self._values:
            for number in self._used:
                instruction = self._stage.body.instructions[number]
                self._values[number] = self._write(number, instruction)
        return self._values[value]

    def _write(self, number: int, instruction: Instruction) -> Value:
        region, values = self.region, self._values
        match instruction:
            case Constant(dtype=dtype, value=value):
                return region.constant(value, dtype)
            case Index():
                return self.index(instruction)
            case Symbol(name=name):
                return self._writer.size(name)
            case Step():
                raise InternalError("a step of a loop has no value of its own")
            case Load():
                return self._load(number, instruction)
            case Apply(operation=operation, operands=given):
                return write_operation(region, operation, [values[o] for o in given])
            case Select(condition=condition, then=then, otherwise=otherwise):
                return region.select(values[condition], values[then], values[otherwise])
            case Cast(operand=operand, dtype=dtype):
                return write_conversion(region, values[operand], dtype)

    def index(self, index: Index) -> Value:
        """Loop index along an axis."""
        if index not in self._indices:
            self._indices[index] = Value(self.region.name(index.name), DataType.INDEX)
        return self._indices[index]

    def number_point(self, reduction: Reduction) -> Value:
        """Linear index of a point of the reduction, last axis fastest."""
        number: Value | None = None
        for label, extent in reduction.axes:
            place = self.index(Index(label, reduced=True))
            if number is not None:
                number = self.region.apply("arith.muli", number, self._writer.size(extent))
                place = self.region.apply("arith.addi", number, place)
            number = place
        return self.region.constant(0, DataType.INDEX) if number is None else number

    def _load(self, number: int, load: Load) -> Value:
        tensor, read = self._writer.tensor(load.tensor), self._reads[number]
        if isinstance(read, Operand):
            element = Value(self._argument(read).argument, tensor.dtype)
        elif 0 in tensor.extents:
            # No point that passes the guard reads an empty tensor.
            return self.region.constant(0, load.dtype)
        else:
            at = [self._values[i] for i in load.indices]
            for axis in read.held:
                at[axis] = self._clamp(at[axis], tensor.extents[axis])
            kind = spell_tensor(tensor.dtype, tensor.extents)
            element = self.region.extract(f"%{load.tensor}", kind, at, tensor.dtype)
        return write_conversion(self.region, element, load.dtype)

    def _clamp(self, position: Value, extent: Extent) -> Value:
        """Index clamped to an axis."""
        region = self.region
        if isinstance(extent, int):
            last = region.constant(extent - 1, DataType.INDEX)
        else:
            one = region.constant(1, DataType.INDEX)
            last = region.apply("arith.subi", self._writer.size(extent), one)
        above = region.apply("arith.maxsi", position, region.constant(0, DataType.INDEX))
        return region.apply("arith.minsi", above, last)

    def _argument(self, operand: Operand) -> _Given:
        if operand not in self._arguments:
            value, kind = self._writer.give(operand)
            argument = self.region.name(f"{operand.tensor}.in")
            dtype = self._writer.tensor(operand.tensor).dtype
            mapped = self._map([_spell_form(self._stage, cut) for cut in operand.kept])
            self._arguments[operand] = _Given(value, kind, mapped, argument, dtype)
        return self._arguments[operand]

    def _map(self, forms: Sequence[str]) -> str:
        dimensions = _name_dimensions(len(self._stage.indices))
        return f"affine_map<({dimensions}) -> ({', '.join(forms)})>"

    def close(self, totals: Sequence[_Total]) -> None:
        """Writes the operation around the body."""
        stage = self._stage
        given = list(self._arguments.values())
        missing = list_missing(stage, list(self._arguments))
        if missing:
            value, kind = self._writer.make_window(stage, missing)
            mapped = self._map([f"d{stage.indices.index(i)}" for i in missing])
            argument = self.region.name("window")
            given.append(_Given(value, kind, mapped, argument, stage.body.dtype))
        results = self._map([f"d{axis}" for axis in range(len(stage.extents))])
        kinds = ["reduction" if index.reduced else "parallel" for index in stage.indices]
        maps = [results] * len(totals)
        positions = [
            f"{self._indices[index]} = linalg.index {dimension} : index"
            for dimension, index in enumerate(stage.indices)
            if index in self._indices
        ]
        self._writer.write_generic(given, totals, maps, kinds, [*positions, *self.region.lines])


def _spell_form(stage: Stage, cut: Cut) -> str:
    """Index as an affine expression."""
    parts: list[str] = []
    for index, factor in cut.factors:
        dimension = f"d{stage.indices.index(index)}"
        parts.append(dimension if factor == 1 else f"{dimension} * {factor}")
    return " + ".join(parts)


def _name_dimensions(count: int) -> str:
    return ", ".join(f"d{n}" for n in range(count))


def _find_constant(stage: Stage) -> bool | int | float | None:
    """Common value of all elements if it is constant; 0 if there are none."""
    if 0 in stage.extents:
        return 0
    result = stage.body.instructions[stage.body.result]
    if stage.reduction is not None or not isinstance(result, Constant):
        return None
    value = np.asarray(result.value, result.dtype.dtype)
    return convert(value, stage.dtype).item()
