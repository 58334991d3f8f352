"""Tensor IR: index notation, with one kind of node.

A `Function` is a flat list of stages in definition order. A `Stage` defines a tensor element by
element: a domain, an optional reduction, and one scalar `Body`. Element-wise work, broadcasts,
transposes, slices, reductions and contractions are all this one node.

Values inside a body have a *compute* type: a load from a FLOAT16 or BFLOAT16 tensor gives a
FLOAT32, and a stage whose tensor is FLOAT16 or BFLOAT16 has a FLOAT32 body that is rounded to
nearest even when stored. Index arithmetic has the type `DataType.INDEX`.

This module holds what a function is made of; `function` holds `Function` itself, and `verify`
says which functions are well formed.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np

from dmlc.parameters import expect, wrong_kind
from dmlc.scalars import GRADIENT_MARKS, OPERATIONS, Array, DataType, Operation, Record
from dmlc.source import InternalError, Span

Extent: TypeAlias = int | str
"""The size of an axis: a number of elements, or the text of a size that is known at run time only:
a symbol, or what is made of some, as `sizes` spells it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal. Two constants are equal when they are the same bits (so -0.0 is not 0.0, and
    every NaN is the one NaN)."""

    dtype: DataType
    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or self.dtype is not other.dtype:
            return False
        one, two = self.value, other.value
        if isinstance(one, float) is not isinstance(two, float):
            return False
        if one == two:
            return one != 0 or math.copysign(1, one) == math.copysign(1, two)
        return one != one and two != two  # NaN alone differs from itself.

    def __hash__(self) -> int:
        return hash((self.dtype, 0 if self.value != self.value else self.value))


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """The position along an axis, as an INDEX: `i2` of the domain, or `r0` of the reduction."""

    axis: int
    reduced: bool = False

    @property
    def name(self) -> str:
        return f"{'r' if self.reduced else 'i'}{self.axis}"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """One element of a parameter or an earlier stage. `indices` are INDEX values of this body,
    one per axis of the tensor. The result has the tensor's compute type, `dtype`."""

    tensor: str
    indices: tuple[int, ...]
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Apply:
    """A scalar operation on values of one type; `dtype` is its result's type."""

    operation: Operation
    operands: tuple[int, ...]
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Select:
    """`condition ? then : otherwise`. What is not chosen does not leak, NaN or not."""

    condition: int
    then: int
    otherwise: int
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Cast:
    """A conversion to a compute type, as `scalars.convert` does it."""

    operand: int
    dtype: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """The size that a symbol has at run time, as an INDEX: 1 or more; or what is made of such
    sizes."""

    name: str

    @property
    def dtype(self) -> DataType:
        return DataType.INDEX


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """The number of the step that a loop is at, as an INDEX: below `steps`. It stands in what one
    step of a loop computes, and nowhere else: a stage of a loop has `i0` instead."""

    steps: Extent

    @property
    def dtype(self) -> DataType:
        return DataType.INDEX


Instruction: TypeAlias = Constant | Index | Symbol | Step | Load | Apply | Select | Cast


def operands(instruction: Instruction) -> tuple[int, ...]:
    """The values an instruction reads, in evaluation order."""
    # Passes spend much of their time here and below.
    read = _OPERANDS.get(type(instruction))
    if read is None:
        raise wrong_kind("instruction", "an instruction of the IR", instruction)
    return read(instruction)


_OPERANDS: Mapping[type[object], Callable[[Any], tuple[int, ...]]] = MappingProxyType(
    {
        Apply: operator.attrgetter("operands"),
        Load: operator.attrgetter("indices"),
        Select: operator.attrgetter("condition", "then", "otherwise"),
        Cast: lambda cast: (cast.operand,),
        Constant: lambda _: (),
        Index: lambda _: (),
        Symbol: lambda _: (),
        Step: lambda _: (),
    }
)


def with_operands(instruction: Instruction, new: tuple[int, ...]) -> Instruction:
    """The same instruction on other values; itself where they are its own."""
    make = _WITH_OPERANDS.get(type(instruction))
    if make is None:
        raise wrong_kind("instruction", "an instruction of the IR", instruction)
    return make(instruction, new)


def _apply_to(apply: Apply, new: tuple[int, ...]) -> Apply:
    return apply if new == apply.operands else Apply(apply.operation, new, apply.dtype)


def _load_at(load: Load, new: tuple[int, ...]) -> Load:
    return load if new == load.indices else Load(load.tensor, new, load.dtype)


def _select_of(select: Select, new: tuple[int, ...]) -> Select:
    condition, then, otherwise = _take(new, 3)
    return Select(condition, then, otherwise, select.dtype)


def _cast_of(cast: Cast, new: tuple[int, ...]) -> Cast:
    (operand,) = _take(new, 1)
    return Cast(operand, cast.dtype)


def _keep(instruction: Any, new: tuple[int, ...]) -> Any:
    return instruction


_WITH_OPERANDS: Mapping[type[object], Callable[[Any, tuple[int, ...]], Instruction]] = (
    MappingProxyType(
        {
            Apply: _apply_to,
            Load: _load_at,
            Select: _select_of,
            Cast: _cast_of,
            Constant: _keep,
            Index: _keep,
            Symbol: _keep,
            Step: _keep,
        }
    )
)


def _take(new: object, count: int) -> tuple[int, ...]:
    if isinstance(new, tuple) and len(cast("tuple[int, ...]", new)) == count:
        return cast("tuple[int, ...]", new)
    raise wrong_kind("new", f"a tuple of {count} value numbers", cast("object", new))


def value_type(instruction: Instruction) -> DataType:
    """The type of the value an instruction defines."""
    try:
        return DataType.INDEX if isinstance(instruction, Index) else instruction.dtype
    except AttributeError:
        raise wrong_kind("instruction", "an instruction of the IR", instruction) from None


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A scalar computation as flat SSA. Value `k` is what instruction `k` defines.

    Canonical form, which `Body.make` gives and the verifier demands: instructions stand in the
    order a depth-first walk from the guard and then the result finishes them, every one is
    reached, and no constant, index or symbol stands twice. Sharing is kept: a value used twice is
    one instruction.
    """

    instructions: tuple[Instruction, ...]
    result: int
    guard: int | None = None
    """A BOOL value: where it is false, the point takes no part in the reduction."""
    _loads: list[tuple[Load, ...]] = dataclasses.field(
        default_factory=list[tuple[Load, ...]], init=False, compare=False, repr=False
    )
    """What `loads` gives, once it has been asked."""
    index_only: dict[bool, tuple[bool, ...]] = dataclasses.field(
        default_factory=dict[bool, tuple[bool, ...]], init=False, compare=False, repr=False
    )
    """What `index.find_index_only` has found without tables, by whether open sizes count."""

    @staticmethod
    def make(instructions: Sequence[Instruction], result: int, guard: int | None = None) -> Body:
        """The canonical body with this result: dead instructions dropped, the rest in order.

        Operands may stand before or after their uses, as long as no value depends on itself.
        """
        made: list[Instruction] = []
        number: dict[int, int] = {}
        leaves: dict[Instruction, int] = {}
        pending = [result] if guard is None else [result, guard]
        while pending:
            value = pending[-1]
            if value in number:
                pending.pop()
                continue
            instruction = instructions[value]
            given = operands(instruction)
            missing = [o for o in given if o not in number]
            if len(given) == 3 and isinstance(instruction, Apply):
                missing.sort(key=given[2].__ne__)  # What is added to comes first, as in a sum.
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if given:
                number[value] = len(made)
                made.append(with_operands(instruction, tuple([number[o] for o in given])))
                continue
            if isinstance(instruction, Constant | Index | Symbol | Step):
                if instruction in leaves:
                    number[value] = leaves[instruction]
                    continue
                leaves[instruction] = len(made)
            number[value] = len(made)
            made.append(instruction)
        return Body(tuple(made), number[result], None if guard is None else number[guard])

    @property
    def dtype(self) -> DataType:
        """The type of the result."""
        return value_type(self.instructions[self.result])

    def loads(self) -> tuple[Load, ...]:
        if not self._loads:
            self._loads.append(tuple([i for i in self.instructions if isinstance(i, Load)]))
        return self._loads[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """What reduces a stage's body over further axes. `axes` are (label, extent) pairs: label 2 is
    the axis `r2`. `combiner` is a key of `scalars.COMBINERS`, or `argmin` or `argmax`.

    The last two give the position of the first smallest or largest value, a NaN being more
    extreme than any number: the number of the point, counting the last axis fastest from 0. It is
    0 where the guard lets no point through. Their stage holds integers, whatever the body's type.
    """

    combiner: str
    axes: tuple[tuple[int, Extent], ...]


def list_folded(values: Sequence[object], root: int, combiner: str) -> tuple[int, ...]:
    """What a reduction takes of a point whose value is `root`: that; or, of a sum of products, the
    two factors, whose product in FLOAT32 is added before it is rounded."""
    match values[root]:
        case Apply(operation=operation, operands=factors) if operation.name == "mul":
            return factors if combiner == "sum" else (root,)
        case _:
            return (root,)


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A tensor, defined element by element; packed in memory, last axis fastest, unless the
    function gives a result other strides. Its extents are the domain that the body is over."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    body: Body
    reduction: Reduction | None = None
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def axes(self) -> tuple[tuple[int, Extent], ...]:
        """Those of the reduction, if it has one."""
        return () if self.reduction is None else self.reduction.axes

    @property
    def combiner(self) -> str | None:
        """That of the reduction, if it has one."""
        return None if self.reduction is None else self.reduction.combiner

    @property
    def indices(self) -> tuple[Index, ...]:
        """Those of the domain, and then those of the reduction."""
        folded = (Index(label, reduced=True) for label, _ in self.axes)
        return (*(Index(axis) for axis in range(len(self.extents))), *folded)

    @property
    def sizes(self) -> tuple[Extent, ...]:
        """Those of the axes that the indices run over, in their order."""
        return (*self.extents, *(extent for _, extent in self.axes))

    def extent(self, index: Index) -> Extent | None:
        """The size of the axis an index runs over, or None if the stage has no such axis."""
        if index.reduced:
            return dict(self.axes).get(index.axis)
        return self.extents[index.axis] if 0 <= index.axis < len(self.extents) else None


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """An input tensor. `strides` are in elements, one per axis, spelled as sizes are; None means
    packed. A stride of 0 repeats the same element."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    strides: tuple[Extent, ...] | None = None
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A constant tensor of a compute type, packed: `values` with the last axis fastest. A pass
    makes it of what depends on positions alone. Tables are equal as constants are, bit by bit."""

    name: str
    dtype: DataType
    extents: tuple[int, ...]
    values: tuple[bool | int | float, ...]
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)
    _array: list[Array] = dataclasses.field(
        default_factory=list[Array], init=False, compare=False, repr=False
    )
    """What `array` gives, once it has been asked."""

    @property
    def strides(self) -> None:
        """A table is packed; what reads a tensor asks it for its strides."""
        return None

    def array(self) -> Array:
        """The values in their sizes, not to be written to."""
        if not self._array:
            self._array.append(np.array(self.values, self.dtype.dtype).reshape(self.extents))
            self._array[0].flags.writeable = False
        return self._array[0]

    def constants(self) -> tuple[Constant, ...]:
        """The values as literals."""
        return tuple(Constant(self.dtype, value) for value in self.values)

    def _key(self) -> tuple[str, DataType, tuple[int, ...], tuple[Constant, ...]]:
        return self.name, self.dtype, self.extents, self.constants()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """What a stage of a loop was at the step before: a tensor of its type and extents, whose
    elements at each step are those of the stage `of` at the one before, and 0 at the first."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    of: str
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def strides(self) -> None:
        """It lies in memory as its stage does, packed."""
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """Stages that are computed together, step by step along `i0`, their first axis: neighbours
    among the stages of a function. At each step they read each other at that very step, and what
    they were at the step before in `delays`, which are theirs alone."""

    stages: tuple[str, ...]
    delays: tuple[Delay, ...]
    backwards: bool = False
    """Whether the last place along the axis is the first step."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A tensor in what one step of a loop computes: the part of `whole` that belongs to the step,
    or to the one before, `size` elements after the part before it in memory."""

    whole: str
    size: Extent
    before: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class OneStep:
    """That a function is what a loop computes at each of its `steps`: tensors in `rows` are parts
    of longer ones. The steps are numbered by the places that they compute."""

    steps: Extent
    rows: Mapping[str, Row]
    backwards: bool = False


Tensor: TypeAlias = Parameter | Table | Stage | Delay
"""What a load can read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """A stage that leaves the function, and the strides it is stored with (None: packed)."""

    name: str
    strides: tuple[Extent, ...] | None = None


IR_OPERATIONS: Mapping[str, Record] = MappingProxyType({**OPERATIONS, **GRADIENT_MARKS})
"""Every scalar operation that a body may apply, by name: those of kernels, and marks that only
differentiation reads."""

POSITIONAL_COMBINERS: tuple[str, ...] = ("argmin", "argmax")
"""Reductions that give a position instead of a value."""


def fixed_strides(tensor: Parameter | Result) -> tuple[int, ...] | None:
    """The strides of a tensor of which none is known at run time only: those of whatever a kernel
    is made of."""
    expect("tensor", tensor, (Parameter, Result), "an ir.Parameter or ir.Result")
    if tensor.strides is None:
        return None
    fixed = tuple(step for step in tensor.strides if isinstance(step, int))
    if len(fixed) < len(tensor.strides):
        raise InternalError(f"strides of %{tensor.name} are known at run time only")
    return fixed


def packed_strides(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a packed tensor of these sizes: last axis fastest."""
    strides: list[int] = []
    step = 1
    try:
        for extent in reversed(extents):
            strides.append(step)
            step *= max(extent, 1)
    except (TypeError, ValueError):
        raise wrong_kind("extents", "a tuple of sizes", extents) from None
    return tuple(reversed(strides))
