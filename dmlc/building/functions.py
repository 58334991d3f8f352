"""`FunctionBuilder`: a function of the tensor IR made in Python, tensor by tensor.

Where `GraphBuilder` writes the language, this writes the IR: a tensor is defined by what its
element at a point is, in index notation, and becomes a stage as it is written. Importers of other
formats are its users. What is common to their operations on whole tensors, such as broadcasting, is
in `tensors`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.binding.stages import (
    drop_unread,
    keep_loops,
    list_counted,
    list_least,
    rename_loop,
    rename_stage,
)
from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Cast,
    Constant,
    Delay,
    Extent,
    Function,
    Index,
    Instruction,
    Load,
    Loop,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Symbol,
    Table,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.inside import find_open_reads
from dmlc.ir.naming import take_name
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.ir.ranges import number_ranges, table_ranges
from dmlc.ir.verify import accept
from dmlc.scalars import (
    COMBINERS,
    LARGEST_INDEX,
    Array,
    DataType,
    Kind,
    as_data_type,
    data_type_of,
)
from dmlc.sizes import (
    Measure,
    Size,
    as_extent,
    find_least,
    find_symbols,
    measure,
    solve_equal,
    write_condition,
)
from dmlc.source import DmlcError, UnsupportedError, counted, unknown_name
from dmlc.transform.loops import gather_loop

Number: TypeAlias = bool | int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a function in the making: a parameter, a table or a stage. `dtype` is what it is
    stored in; its elements are read in `dtype.compute`."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        return len(self.extents)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A value of a body in the making, with Python's arithmetic.

    Both sides have one type; a Python number takes that of the other. Integers divide as the IR
    does: `/` truncates, and by 0 gives 0. `&`, `|`, `^` and `~` work on the bits of integers, and
    on booleans as `and`, `or`, `ne` and `not`. Values are compared for equality by `equals` and
    `differs`.
    """

    body: BodyBuilder
    number: int

    @property
    def dtype(self) -> DataType:
        return value_type(self.body.instructions[self.number])

    def apply(self, operation: str, *others: Operand) -> Scalar:
        """An operation of the IR on this value and others. Raises `DmlcError` where it is unknown
        or does not take them."""
        found = IR_OPERATIONS.get(operation)
        if found is None:
            raise DmlcError(unknown_name("operation", operation, IR_OPERATIONS))
        given = (self, *(self._adapt(other) for other in others))
        if len(given) != found.arity:
            takes = counted(found.arity, "operand")
            raise DmlcError(f"{operation} takes {takes}, and {len(given)} are given")
        dtype = self.dtype
        for value in given:
            if value.dtype is not dtype or not found.operands.accept(value.dtype):
                types = ", ".join(v.dtype.name for v in given)
                takes = f"{found.operands.value} of one type"
                raise DmlcError(f"{operation} takes {takes}, and these are {types}")
        numbers = tuple(value.number for value in given)
        return self._add(Apply(found, numbers, found.result_type(dtype)))

    def cast(self, dtype: DataType) -> Scalar:
        """The value in another compute type, as the language's `cast` converts it."""
        if dtype is self.dtype:
            return self
        if dtype.is_storage_only:
            raise DmlcError(
                f"values are never {dtype.name}: they are computed in FLOAT32",
                notes=[f"apply('round_{dtype.name.lower()}') rounds as storing one does"],
            )
        return self._add(Cast(self.number, dtype))

    def select(self, then: Operand, otherwise: Operand) -> Scalar:
        """`then` where this, a boolean, is true, and `otherwise` elsewhere. One is a `Scalar`."""
        if self.dtype is not DataType.BOOL:
            raise DmlcError(f"a condition is a BOOL, and this is {self.dtype.name}")
        typed = then if isinstance(then, Scalar) else otherwise
        if not isinstance(typed, Scalar):
            raise DmlcError("one of the values chosen from must say its type")
        first, second = typed._adapt(then), typed._adapt(otherwise)
        if first.dtype is not second.dtype:
            types = f"{first.dtype.name} and {second.dtype.name}"
            raise DmlcError(f"the values chosen from have one type, and these are {types}")
        return self._add(Select(self.number, first.number, second.number, first.dtype))

    def equals(self, other: Operand) -> Scalar:
        return self.apply("eq", other)

    def differs(self, other: Operand) -> Scalar:
        return self.apply("ne", other)

    def __add__(self, other: Operand) -> Scalar:
        return self.apply("add", other)

    def __radd__(self, other: Number) -> Scalar:
        return self._adapt(other).apply("add", self)

    def __sub__(self, other: Operand) -> Scalar:
        return self.apply("sub", other)

    def __rsub__(self, other: Number) -> Scalar:
        return self._adapt(other).apply("sub", self)

    def __mul__(self, other: Operand) -> Scalar:
        return self.apply("mul", other)

    def __rmul__(self, other: Number) -> Scalar:
        return self._adapt(other).apply("mul", self)

    def __truediv__(self, other: Operand) -> Scalar:
        return self.apply("div", other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return self._adapt(other).apply("div", self)

    def __mod__(self, other: Operand) -> Scalar:
        return self.apply("mod", other)

    def __neg__(self) -> Scalar:
        return self.apply("neg")

    def __lt__(self, other: Operand) -> Scalar:
        return self.apply("lt", other)

    def __le__(self, other: Operand) -> Scalar:
        return self.apply("le", other)

    def __gt__(self, other: Operand) -> Scalar:
        return self.apply("gt", other)

    def __ge__(self, other: Operand) -> Scalar:
        return self.apply("ge", other)

    def __and__(self, other: Operand) -> Scalar:
        return self.apply("and" if self.dtype is DataType.BOOL else "bit_and", other)

    def __or__(self, other: Operand) -> Scalar:
        return self.apply("or" if self.dtype is DataType.BOOL else "bit_or", other)

    def __xor__(self, other: Operand) -> Scalar:
        return self.apply("ne" if self.dtype is DataType.BOOL else "bit_xor", other)

    def __invert__(self) -> Scalar:
        return self.apply("not" if self.dtype is DataType.BOOL else "bit_not")

    def _adapt(self, other: Operand) -> Scalar:
        """A value, or a Python number as one of this type."""
        if isinstance(other, Scalar):
            if other.body is not self.body:
                raise DmlcError("these values are of two bodies: a stage reads another's tensor")
            return other
        return self._add(make_constant(other, self.dtype))

    def _add(self, instruction: Apply | Cast | Select | Constant) -> Scalar:
        return _add(self.body, instruction)


LARGEST_BODY = 1 << 15
"""The most values of a body."""


def _add(body: BodyBuilder, instruction: Instruction) -> Scalar:
    if len(body.instructions) >= LARGEST_BODY:
        raise UnsupportedError(f"the formula of a tensor has more than {LARGEST_BODY:,} values")
    return Scalar(body, body.add(instruction))


Operand: TypeAlias = Scalar | Number


def make_constant(value: Number, dtype: DataType) -> Constant:
    """A Python number as a literal of a compute type. Raises `DmlcError` where the type has no such
    number: a fraction or an infinity among integers, or what is too large for them."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return Constant(dtype, float(dtype.dtype.type(value)))
    if dtype is DataType.BOOL:
        return Constant(dtype, bool(value))
    if isinstance(value, float) and not value.is_integer():
        raise DmlcError(f"{value} is no {dtype.name}")
    low, high = (
        (-LARGEST_INDEX - 1, LARGEST_INDEX)
        if dtype.kind is Kind.INDEX
        else (int(np.iinfo(dtype.dtype).min), int(np.iinfo(dtype.dtype).max))
    )
    if not low <= int(value) <= high:
        raise DmlcError(f"{value} is no {dtype.name}")
    return Constant(dtype, int(value))


class Point:
    """A point of a stage's domain, and of its reduction if it has one: where its body is made."""

    def __init__(self, rank: int, reduced: int = 0) -> None:
        self.body = BodyBuilder()
        self.indices = tuple(self._add(Index(axis)) for axis in range(rank))
        """The position along each axis of the domain, an INDEX."""
        self.reduced = tuple(self._add(Index(axis, reduced=True)) for axis in range(reduced))
        """The position along each axis that is reduced."""

    def constant(self, value: Number, dtype: DataType) -> Scalar:
        """A number of a compute type."""
        return self._add(make_constant(value, dtype))

    def size(self, extent: Extent) -> Scalar:
        """The size of an axis, as an INDEX."""
        if isinstance(extent, str):
            return self._add(Symbol(extent))
        return self.constant(extent, DataType.INDEX)

    def measure(self, size: Measure) -> Scalar:
        """A size as an INDEX, also one that may be negative."""
        taken, rest = size.part_negative() if isinstance(size, Size) else (0, size)
        found = self.size(as_extent(rest))
        return found - self.size(as_extent(taken)) if taken else found

    def read(self, tensor: Tensor, *indices: Operand) -> Scalar:
        """The element of a tensor at some place, one INDEX for each of its axes. The place must be
        inside of the tensor, or the guard of the reduction be false."""
        if len(indices) != tensor.rank:
            has = counted(tensor.rank, "axis", "axes")
            raise DmlcError(f"{tensor.name} has {has}, and {len(indices)} positions are given")
        places: list[int] = []
        for index in indices:
            place = index if isinstance(index, Scalar) else self.constant(index, DataType.INDEX)
            if place.dtype is not DataType.INDEX:
                raise DmlcError(f"a position in {tensor.name} is {place.dtype.name}, and no INDEX")
            places.append(place.number)
        return self._add(Load(tensor.name, tuple(places), tensor.dtype.compute))

    def _add(self, instruction: Constant | Index | Symbol | Load) -> Scalar:
        return _add(self.body, instruction)


Element: TypeAlias = Callable[[Point], Scalar]
"""What the element at a point is."""


class FunctionBuilder:
    """A function in the making.

    Parameters are declared, tensors computed of them, and some made results. Every tensor keeps the
    name that it is given, with a number behind it where another has that.

    Methods raise `DmlcError` for what is wrong in itself, and `build` where the function is not
    well formed: where a read cannot be proved to be inside, say.
    """

    def __init__(
        self, name: str, count: Callable[[int], None] | None = None, *, assumes: bool = False
    ) -> None:
        """`count` is told how many instructions each stage has, and may refuse more by raising
        `DmlcError`."""
        self.name = name
        self._count = count
        self.assumes = assumes
        """Whether open sizes that meet are taken to be equal, and the function checks that."""
        self.equal: dict[str, Measure] = {}
        """What symbols have to be for sizes to be equal that met: a function with these in their
        place needs no checks."""
        self._parameters: list[Parameter] = []
        self._tables: list[Table] = []
        self._stages: list[Stage] = []
        self._loops: list[Loop] = []
        self._results: dict[str, Tensor] = {}
        self._checks: list[str] = []
        self._taken: dict[str, None] = {}

    def parameter(
        self,
        name: str,
        dtype: DataType | str,
        extents: Sequence[Extent],
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        """A tensor that the function is given. Sizes may be symbols; `strides` are in elements,
        None where it is packed. No other tensor may have its name."""
        if name in self._taken:
            raise DmlcError(f"two tensors are called {name}")
        self._taken[name] = None
        found = as_data_type("dtype", dtype)
        sizes = tuple(as_extent(measure(extent)) for extent in extents)
        steps = None if strides is None else tuple(strides)
        self._parameters.append(Parameter(name, found, sizes, steps))
        return Tensor(name, found, sizes)

    def table(self, name: str, values: Array) -> Tensor:
        """A constant tensor. 16-bit floats are held as FLOAT32, which has their very values."""
        array = np.asarray(values)
        found = data_type_of(array.dtype)
        if found is None:
            raise DmlcError(f"{name} holds {array.dtype}, which no tensor can hold")
        held = array.astype(found.compute.dtype)
        own = take_name(name, self._taken)
        table = Table(own, found.compute, held.shape, tuple(held.ravel().tolist()))
        self._tables.append(table)
        return Tensor(own, table.dtype, table.extents)

    def compute(
        self,
        name: str,
        extents: Sequence[Extent],
        element: Element,
        dtype: DataType | None = None,
    ) -> Tensor:
        """The tensor of these sizes that has `element` at each point. `dtype` is what it is stored
        in: that of its elements, or a 16-bit float for FLOAT32."""
        point = Point(len(extents))
        return self._append(name, extents, point, element(point), None, None, dtype)

    def reduce(
        self,
        name: str,
        combiner: str,
        extents: Sequence[Extent],
        axes: Sequence[Extent],
        element: Element,
        dtype: DataType | None = None,
        guard: Element | None = None,
    ) -> Tensor:
        """The same with elements combined over further axes, of the sizes `axes`: `combiner` is a
        key of `scalars.COMBINERS`, or `argmin` or `argmax`, which give positions and need `dtype`.
        Points where `guard` is false take no part."""
        known = (*COMBINERS, *POSITIONAL_COMBINERS)
        if combiner not in known:
            raise DmlcError(unknown_name("combiner", combiner, known))
        if combiner in POSITIONAL_COMBINERS and dtype is None:
            raise DmlcError(f"{combiner} gives positions: say which type holds them")
        point = Point(len(extents), len(axes))
        condition = None if guard is None else guard(point)
        value = element(point)
        reduction = Reduction(combiner, tuple((k, _extent(e)) for k, e in enumerate(axes)))
        return self._append(name, extents, point, value, condition, reduction, dtype)

    def before(self, name: str, dtype: DataType, extents: Sequence[Extent]) -> Tensor:
        """What a tensor of a loop was at the step before, along its first axis, and 0 at the first
        step. `close_loop` says which tensor that is. Only tensors of the loop may read it, at their
        own step."""
        own = take_name(name, self._taken)
        return Tensor(own, dtype, tuple(_extent(extent) for extent in extents))

    def close_loop(self, states: Sequence[tuple[Tensor, Tensor]], backwards: bool = False) -> None:
        """Makes a loop over the first axis of all that leads from what `before` gave to the tensors
        that this is of: pairs of both. `backwards` begins it at the last place."""
        delays = [Delay(held.name, held.dtype, held.extents, of.name) for held, of in states]
        self._stages, loop = gather_loop(self._stages, delays, backwards, self._loops)
        if loop is not None:
            self._loops.append(loop)

    def symbols(self) -> tuple[str, ...]:
        """The sizes of its parameters that are left open."""
        return find_symbols(extent for each in self._parameters for extent in each.extents)

    def call(self, function: Function, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The results, by name, of another function on tensors of this one: its stages become
        stages here. Its parameters and results are packed. Raises `DmlcError` where a tensor is
        missing, or has another type or other sizes than the parameter."""
        names: dict[str, str] = {}
        for parameter in function.parameters:
            given = tensors.get(parameter.name)
            if given is None:
                raise DmlcError(f"{function.name} needs a tensor for '{parameter.name}'")
            if (given.dtype, given.extents) != (parameter.dtype, parameter.extents):
                raise DmlcError(
                    f"{given.name} is not of the type and sizes of '{parameter.name}' of "
                    f"{function.name}"
                )
            names[parameter.name] = given.name
        function.refuse_loops("functions that are built have none")
        strided = (*function.parameters, *function.results)
        if any(tensor.strides is not None for tensor in strided):
            raise DmlcError(f"{function.name} has tensors that are not packed")
        unknown = [name for name in tensors if name not in names]
        if unknown:
            raise DmlcError(unknown_name("parameter", unknown[0], names))
        for table in function.tables:
            names[table.name] = take_name(table.name, self._taken)
            self._tables.append(dataclasses.replace(table, name=names[table.name]))
        found: dict[str, Tensor] = {}
        for stage in function.stages:
            names[stage.name] = take_name(stage.name, self._taken)
            made = rename_stage(stage, names, None)
            self._stages.append(made)
            found[stage.name] = Tensor(made.name, made.dtype, made.extents)
        self._checks += [check for check in function.checks if check not in self._checks]
        return {result.name: found[result.name] for result in function.results}

    def unify(self, one: Extent, other: Extent) -> Extent | None:
        """One size for two that have to be equal; None where they never are, or where nothing is
        taken to hold of open sizes."""
        if one == other:
            return one
        left, right = measure(one), measure(other)
        difference = left - right
        low, high = difference.bounds() if isinstance(difference, Size) else (1, 1)
        if not self.assumes or low > 0 or high < 0:
            return None
        solved = solve_equal(left, right)
        if solved is not None:
            self.equal.setdefault(*solved)
        self.check(write_condition(left, "==", right))
        return min((one, other), key=lambda size: (isinstance(size, str), len(str(size))))

    def check_at_most(self, least: Measure, most: Measure) -> None:
        """Takes a size not to be above another: checked at run time, where it is not so whatever
        the symbols are."""
        if find_least(most - least) < 0:
            self.check(write_condition(most, ">=", least))

    def check(self, condition: str) -> None:
        """Takes a condition to hold of the symbols, such as `N >= 2`: it is checked at run time."""
        if condition not in self._checks:
            self._checks.append(condition)

    def result(self, name: str, tensor: Tensor) -> None:
        """Makes a tensor a result of the function, under this name."""
        if name in self._results:
            raise DmlcError(f"two results are called {name}")
        if any(parameter.name == name for parameter in self._parameters):
            raise DmlcError(f"a parameter and a result are called {name}")
        stages = {stage.name for stage in self._stages}
        if tensor.name not in stages or tensor in self._results.values():
            tensor = self.compute(name, tensor.extents, lambda at: at.read(tensor, *at.indices),
                                  tensor.dtype)  # fmt: skip
        self._results[name] = tensor

    def build(self) -> Function:
        """The function, verified. Stages that no result needs are left out."""
        names = {tensor.name: name for name, tensor in self._results.items()}
        # What has the name of a result, and is another tensor, makes room.
        delays = (delay for loop in self._loops for delay in loop.delays)
        for other in (*self._stages, *self._tables, *delays):
            if other.name in self._results and other.name not in names:
                names[other.name] = take_name(other.name, self._taken)
        kept = drop_unread(self._stages, list(names), self._loops)
        loops = keep_loops(self._loops, kept)
        read = {load.tensor for stage in kept for load in stage.body.loads()}
        implied = (*list_counted(kept), *list_least(self._parameters, kept))
        function = Function(
            self.name,
            tuple(self._parameters),
            tuple(rename_stage(stage, names, None) for stage in kept),
            tuple(Result(name) for name in self._results),
            tables=tuple(
                dataclasses.replace(table, name=names.get(table.name, table.name))
                for table in self._tables
                if table.name in read
            ),
            checks=tuple(dict.fromkeys((*self._checks, *implied))),
            loops=tuple(rename_loop(loop, names) for loop in loops),
        )
        return accept(_hold_reads(function) if self.assumes else function)

    def _append(
        self,
        name: str,
        extents: Sequence[Extent],
        point: Point,
        value: Scalar,
        guard: Scalar | None,
        reduction: Reduction | None,
        dtype: DataType | None,
    ) -> Tensor:
        found = value.dtype if dtype is None else dtype
        positions = reduction is not None and reduction.combiner in POSITIONAL_COMBINERS
        if found is DataType.INDEX or not (positions or found.compute is value.dtype):
            raise DmlcError(
                f"{name} is to hold {found.name}, and its elements are {value.dtype.name}"
            )
        body = point.body.make(value.number, None if guard is None else guard.number)
        if self._count is not None:
            self._count(len(body.instructions))
        own = take_name(name, self._taken)
        domain = tuple(_extent(extent) for extent in extents)
        self._stages.append(Stage(own, found, domain, body, reduction))
        return Tensor(own, found, domain)


def _hold_reads(function: Function) -> Function:
    """The function with each position clamped of which it is not clear that it is inside, where
    sizes are left open: by its checks, or by arithmetic that the verifier does not know."""
    if not function.symbols():
        return function
    reach = table_ranges(function.tables) | number_ranges(function.stages)
    known = function.tensors()

    def hold(stage: Stage) -> Stage:
        found, _ = find_open_reads(stage, known, reach)
        builder = BodyBuilder()

        def change(number: int, moved: Instruction) -> int | None:
            if number not in found or not isinstance(moved, Load):
                return None
            places = list(moved.indices)
            for axis in found[number]:
                size = measure(known[moved.tensor].extents[axis])
                end = builder.size(as_extent(size))
                last = builder.apply("sub", end, builder.constant(1))
                place = builder.apply("max", places[axis], builder.constant(0))
                places[axis] = builder.apply("min", place, last)
            return builder.add(dataclasses.replace(moved, indices=tuple(places)))

        return builder.remake(stage, change) if found else stage

    return function.with_stages(map(hold, function.stages))


def _extent(extent: Extent) -> Extent:
    """A size as the IR spells it."""
    return as_extent(measure(extent))
