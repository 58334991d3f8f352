"""Nodes of the tensor IR: index notation, with one kind of statement.

A `Function` is a flat list of stages in definition order. A `Stage` defines a tensor element by
element: a domain, an optional reduction, and one scalar `Body`. Element-wise work, broadcasts,
transposes, slices, reductions and contractions are all this one node.

Values inside a body have a *compute* type: a load from a FLOAT16 or BFLOAT16 tensor gives a
FLOAT32, and a stage whose tensor is FLOAT16 or BFLOAT16 has a FLOAT32 body that is rounded to
nearest even when stored. Index arithmetic has the type `DataType.INDEX`.

`function` holds `Function` itself, and `verify` the rules of well-formed functions.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from dmlc.lazy import kept
from dmlc.parameters import expect, wrong_kind
from dmlc.scalars import (
    COMBINERS,
    GRADIENT_MARKS,
    OPERATIONS,
    Array,
    Combiner,
    DataType,
    Operation,
    Record,
    is_positional,
)
from dmlc.source import InternalError, Span

Extent: TypeAlias = int | str
"""Size of an axis: a number of elements, or the text of a size known at run time only (a symbol or
an expression of symbols, spelled as `sizes` does)."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal. Constants are equal if their bits are (so -0.0 is not 0.0), except that all NaNs
    are equal."""

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
    """Index along an axis, of type INDEX: `i2` of the domain, or `r0` of the reduction."""

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
    """`condition ? then : otherwise`. The branch not chosen has no effect, even if it is NaN."""

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
    """Run-time size as an INDEX, 1 or more: a symbol, or an expression of symbols."""

    name: str

    @property
    def dtype(self) -> DataType:
        return DataType.INDEX


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Number of a loop's current step as an INDEX, from 0 to `steps - 1`. It occurs only in
    functions that compute one step of a loop; a stage of a `Loop` has `i0` instead."""

    steps: Extent

    @property
    def dtype(self) -> DataType:
        return DataType.INDEX


Instruction: TypeAlias = Constant | Index | Symbol | Step | Load | Apply | Select | Cast
_Found = TypeVar("_Found")


def operands(instruction: Instruction) -> tuple[int, ...]:
    """Values that an instruction reads, in evaluation order."""
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
        **dict.fromkeys((Constant, Index, Symbol, Step), lambda _: ()),
    }
)


def with_operands(instruction: Instruction, new: tuple[int, ...]) -> Instruction:
    """Instruction with other operands; the same object if they are equal to its own."""
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
            **dict.fromkeys((Constant, Index, Symbol, Step), _keep),
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


@dataclasses.dataclass(frozen=True)
class Body:
    """A scalar computation as flat SSA. Value `k` is the result of instruction `k`.

    Canonical form, which `Body.make` produces and the verifier demands: instructions are in the
    post-order of a depth-first walk from the guard and then the result, every one is reached, and
    no constant, index or symbol occurs twice. Sharing is preserved: a value used twice is one
    instruction.
    """

    instructions: tuple[Instruction, ...]
    result: int
    guard: int | None = None
    """BOOL value: points where it is false take no part in the reduction."""

    @staticmethod
    def make(instructions: Sequence[Instruction], result: int, guard: int | None = None) -> Body:
        """Canonical body with this result: dead instructions dropped, the rest in order.

        Operands may come before or after their uses, as long as no value depends on itself.
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
                missing.sort(key=given[2].__ne__)  # The addend of an fma comes first, as in a sum.
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

    def map(self, change: Callable[[Instruction], Instruction]) -> Body:
        """Body with every instruction changed, each of which keeps its operands; the same object if
        none changes."""
        made = tuple(map(change, self.instructions))
        is_same = all(map(operator.is_, made, self.instructions))
        return self if is_same else Body.make(made, self.result, self.guard)

    def interpret(self, find: Callable[[Instruction, list[_Found]], _Found]) -> tuple[_Found, ...]:
        """Abstract interpretation: the result of `find` for each value, in order, from the
        instruction and the results for its operands."""
        found: list[_Found] = []
        for instruction in self.instructions:
            found.append(find(instruction, [found[o] for o in operands(instruction)]))
        return tuple(found)

    @property
    def dtype(self) -> DataType:
        """The type of the result."""
        return value_type(self.instructions[self.result])

    @kept
    def loads(self) -> tuple[Load, ...]:
        return tuple([i for i in self.instructions if isinstance(i, Load)])


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """Combination of a stage's body over further axes. `axes` are (label, extent) pairs: label 2 is
    the axis `r2`. `combiner` is a key of `scalars.COMBINERS`.

    The positional ones, `argmin` and `argmax`, give the linear index (last axis fastest, from 0) of
    the first smallest or largest value, with NaN more extreme than any number, and 0 if the guard
    is false everywhere. Their stage holds integers, whatever the body's type.
    """

    combiner: str
    axes: tuple[tuple[int, Extent], ...]

    @property
    def record(self) -> Combiner:
        """All that is known of the combiner. Raises `KeyError` for a name without a record."""
        return COMBINERS[self.combiner]

    @property
    def is_positional(self) -> bool:
        return is_positional(self.combiner)


def list_folded(values: Sequence[object], root: int, combiner: str) -> tuple[int, ...]:
    """Values that a reduction accumulates at a point whose value is `root`: `root` itself; or the
    two factors of a product that is summed, as the sum adds the product by fused multiply-add."""
    match values[root]:
        case Apply(operation=operation, operands=factors) if operation.name == "mul":
            return factors if combiner == "sum" else (root,)
        case _:
            return (root,)


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Tensor defined element by element, over the domain given by its extents. It is packed in
    memory, last axis fastest, unless the function gives a result other strides."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    body: Body
    reduction: Reduction | None = None
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def axes(self) -> tuple[tuple[int, Extent], ...]:
        """Axes of the reduction, as (label, extent) pairs; empty without one."""
        return () if self.reduction is None else self.reduction.axes

    @property
    def combiner(self) -> str | None:
        """Combiner of the reduction; None without one."""
        return None if self.reduction is None else self.reduction.combiner

    @property
    def is_positional(self) -> bool:
        """Whether it gives the numbers of points."""
        return self.reduction is not None and self.reduction.is_positional

    @property
    def indices(self) -> tuple[Index, ...]:
        """Indices of the domain, followed by those of the reduction."""
        folded = (Index(label, reduced=True) for label, _ in self.axes)
        return (*(Index(axis) for axis in range(len(self.extents))), *folded)

    @property
    def sizes(self) -> tuple[Extent, ...]:
        """Extents of the axes of `indices`, in the same order."""
        return (*self.extents, *(extent for _, extent in self.axes))

    def extent(self, index: Index) -> Extent | None:
        """Size of the axis of an index, or None if the stage has no such axis."""
        if index.reduced:
            return dict(self.axes).get(index.axis)
        return self.extents[index.axis] if 0 <= index.axis < len(self.extents) else None

    def size(self, index: Index, unknown: int = 1) -> int:
        """Size of the axis of an index; `unknown` if it is known at run time only."""
        extent = self.extent(index)
        return extent if isinstance(extent, int) else unknown


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """An input tensor. `strides` are in elements, one per axis, spelled as sizes are; None means
    packed. A stride of 0 repeats the same element."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    strides: tuple[Extent, ...] | None = None
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Constant tensor of a compute type, packed: `values` with the last axis fastest. Passes make
    tables of values that depend on indices alone. Tables are equal as constants are, bit by bit."""

    name: str
    dtype: DataType
    extents: tuple[int, ...]
    values: tuple[bool | int | float, ...]
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def strides(self) -> None:
        """None: a table is packed. (Every tensor node has strides.)"""
        return None

    @kept
    def array(self) -> Array:
        """Values as a read-only array of the table's extents."""
        made = np.array(self.values, self.dtype.dtype).reshape(self.extents)
        made.flags.writeable = False
        return made

    def constants(self) -> tuple[Constant, ...]:
        """Values as literals."""
        return tuple(Constant(self.dtype, value) for value in self.values)

    def _key(self) -> tuple[str, DataType, tuple[int, ...]]:
        return self.name, self.dtype, self.extents

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or self._key() != other._key():
            return False
        return self.values is other.values or self.constants() == other.constants()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """Values of a loop's stage at the previous step: a tensor of the type and extents of the stage
    `of`, whose elements at a step are those of `of` at the step before, and 0 at the first step."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]
    of: str
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def strides(self) -> None:
        """None: it is packed, as its stage is."""
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """Adjacent stages of a function that are computed together, step by step along their first axis
    `i0`. At each step they read each other's values of the same step, and values of the previous
    step through `delays`, which no other stage may read."""

    stages: tuple[str, ...]
    delays: tuple[Delay, ...]
    backwards: bool = False
    """Whether steps go from the last index along `i0` to the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Tensor in a function that computes one step of a loop: the slice of tensor `whole` that
    belongs to the current step, or to the previous one with `before`. Slices are `size` elements
    apart in memory."""

    whole: str
    size: Extent
    before: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class OneStep:
    """Loop of which a function computes one of the `steps`: each tensor in `rows` is a slice of a
    longer one. A step's number is its index along the loop's axis."""

    steps: Extent
    rows: Mapping[str, Row]
    backwards: bool = False


Tensor: TypeAlias = Parameter | Table | Stage | Delay
"""Any tensor that a load can read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """Stage that is an output of the function, with its strides in elements (None: packed)."""

    name: str
    strides: tuple[Extent, ...] | None = None


IR_OPERATIONS: Mapping[str, Record] = MappingProxyType({**OPERATIONS, **GRADIENT_MARKS})
"""Scalar operations that a body may apply, by name: those of kernels, and the marks that only
differentiation reads."""


def fixed_strides(tensor: Parameter | Result) -> tuple[int, ...] | None:
    """Strides of a tensor as integers, in elements; None if packed. Raises `InternalError` if one
    is known at run time only."""
    expect("tensor", tensor, (Parameter, Result), "an ir.Parameter or ir.Result")
    if tensor.strides is None:
        return None
    fixed = tuple(step for step in tensor.strides if isinstance(step, int))
    if len(fixed) < len(tensor.strides):
        raise InternalError(f"strides of %{tensor.name} are known at run time only")
    return fixed


def packed_strides(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a packed tensor of these extents: last axis fastest."""
    strides: list[int] = []
    step = 1
    try:
        for extent in reversed(extents):
            strides.append(step)
            step *= max(extent, 1)
    except (TypeError, ValueError):
        raise wrong_kind("extents", "a tuple of sizes", extents) from None
    return tuple(reversed(strides))
