"""`FunctionBuilder`: a function of the tensor IR made in Python, tensor by tensor.

Where `GraphBuilder` writes the language, this writes the IR: a tensor is defined by its element at
a point, in index notation, and becomes a stage. Importers of other formats use it. `tensors` has
their common operations on whole tensors, such as broadcasting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.binding.stages import keep_loops, list_counted, list_least, rename_tensors
from dmlc.building.open_reads import hold_reads
from dmlc.ir import (
    Extent,
    Function,
    Instruction,
    Load,
    Loop,
    Parameter,
    Reduction,
    Result,
    Stage,
    Table,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.ir.verify import accept
from dmlc.scalars import (
    COMBINERS,
    Array,
    DataType,
    Value,
    as_data_type,
    data_type_of,
    is_positional,
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
from dmlc.source import DmlcError, UnsupportedError, check_known, counted
from dmlc.transform.inline import inline_stages
from dmlc.transform.simplify import list_live

Number: TypeAlias = bool | int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Tensor of a function under construction: a parameter, a table or a stage. `dtype` is its
    storage type; its elements are read in `dtype.compute`."""

    name: str
    dtype: DataType
    extents: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        return len(self.extents)


Scalar: TypeAlias = Value
"""Value of a body under construction, with Python's arithmetic."""
Operand: TypeAlias = Scalar | Number


LARGEST_BODY = 1 << 15
"""Largest number of values in a body."""


class _LimitedBody(BodyBuilder):
    """Builder of the body of one stage, which refuses a body that grows without end."""

    def add(self, instruction: Instruction) -> int:
        if len(self.instructions) >= LARGEST_BODY:
            raise UnsupportedError(f"the formula of a tensor has more than {LARGEST_BODY:,} values")
        return super().add(instruction)


class Point:
    """Point of a stage's domain, and of its reduction domain if any: the builder of its body."""

    def __init__(self, rank: int, reduced: int = 0) -> None:
        self.body = _LimitedBody()
        self.indices = tuple(self.body.wrap(self.body.index(axis)) for axis in range(rank))
        """Index along each axis of the domain, as INDEX."""
        self.reduced = tuple(self.body.wrap(self.body.reduced(axis)) for axis in range(reduced))
        """Index along each reduction axis."""

    def constant(self, value: Number, dtype: DataType) -> Scalar:
        """Number of a compute type."""
        return self.body.wrap(self.body.literal(value, dtype))

    def size(self, extent: Extent) -> Scalar:
        """Size of an axis, as INDEX."""
        return self.body.wrap(self.body.size(extent))

    def measure(self, size: Measure) -> Scalar:
        """Size as INDEX; it may be negative."""
        taken, rest = size.part_negative() if isinstance(size, Size) else (0, size)
        found = self.size(as_extent(rest))
        return found - self.size(as_extent(taken)) if taken else found

    def read(self, tensor: Tensor, *indices: Operand) -> Scalar:
        """Element of a tensor, with one INDEX per axis. The index must be in bounds, or the
        reduction's guard false."""
        if len(indices) != tensor.rank:
            has = counted(tensor.rank, "axis", "axes")
            raise DmlcError(f"{tensor.name} has {has}, and {len(indices)} positions are given")
        places: list[int] = []
        for index in indices:
            place = index if isinstance(index, Scalar) else self.constant(index, DataType.INDEX)
            if place.dtype is not DataType.INDEX:
                raise DmlcError(f"a position in {tensor.name} is {place.dtype.name}, and no INDEX")
            places.append(self.body.unwrap(place))
        return self.body.wrap(self.body.add(Load(tensor.name, tuple(places), tensor.dtype.compute)))


Element: TypeAlias = Callable[[Point], Scalar]
"""Definition of the element at a point."""


class FunctionBuilder:
    """Function under construction.

    Parameters are declared, tensors computed from them, and some made results. Every tensor keeps
    its given name, with a number appended if that is taken. Methods raise `DmlcError` for errors in
    one call, and `build` for a malformed function, such as one with a read that is not provably in
    bounds.
    """

    def __init__(
        self, name: str, count: Callable[[int], None] | None = None, *, assumes: bool = False
    ) -> None:
        """`count` is called with the number of instructions of each stage, and may refuse more by
        raising `DmlcError`."""
        self.name = name
        self._count = count
        self.assumes = assumes
        """Whether open sizes that must be equal are assumed to be, with a check in the function."""
        self.equal: dict[str, Measure] = {}
        """Values of symbols for which the assumed equalities hold: with these substituted, a
        function needs no checks."""
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
        """Parameter of the function. Sizes may be symbols; `strides` are in elements, None for a
        packed tensor. Its name must be unique."""
        if name in self._taken:
            raise DmlcError(f"two tensors are called {name}")
        self._taken[name] = None
        found = as_data_type("dtype", dtype)
        sizes = tuple(as_extent(measure(extent)) for extent in extents)
        steps = None if strides is None else tuple(strides)
        self._parameters.append(Parameter(name, found, sizes, steps))
        return Tensor(name, found, sizes)

    def table(self, name: str, values: Array) -> Tensor:
        """Constant tensor. 16-bit floats are stored as FLOAT32, which represents them exactly."""
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
        """Tensor of these sizes with `element` at each point. `dtype` is its storage type: that of
        its elements, or a 16-bit float for FLOAT32."""
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
        """Tensor of these sizes with elements reduced over further axes, of sizes `axes`:
        `combiner` is a key of `scalars.COMBINERS`; `argmin` and `argmax` give indices and need
        `dtype`. Points where `guard` is false do not take part."""
        check_known("combiner", COMBINERS, combiner)
        if is_positional(combiner) and dtype is None:
            raise DmlcError(f"{combiner} gives positions: say which type holds them")
        point = Point(len(extents), len(axes))
        condition = None if guard is None else guard(point)
        value = element(point)
        reduction = Reduction(combiner, tuple((k, _extent(e)) for k, e in enumerate(axes)))
        return self._append(name, extents, point, value, condition, reduction, dtype)

    def has_name(self, name: str) -> bool:
        """Whether a tensor has this name."""
        return name in self._taken

    def symbols(self) -> tuple[str, ...]:
        """Names of the open sizes of its parameters."""
        return find_symbols(extent for each in self._parameters for extent in each.extents)

    def call(
        self,
        function: Function,
        tensors: Mapping[str, Tensor],
        results: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> dict[str, Tensor]:
        """Inlines another function on tensors of this one, and returns its results by name. A
        tensor that only moves the elements of another, such as a transpose, is not read: the other
        is. The function's parameters and results must be packed. `results` renames some results.
        Tensors that are named after a parameter or a result are named after its new name, and
        others get the `prefix`. Raises `DmlcError` for a missing tensor, and for one of another
        type or other sizes than the parameter."""
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
        strided = (*function.parameters, *function.results)
        if any(tensor.strides is not None for tensor in strided):
            raise DmlcError(f"{function.name} has tensors that are not packed")
        check_known("parameter", names, *tensors)
        stems = names | dict(results or {})
        for each in (*function.tables, *function.delays(), *function.stages):
            wanted = (results or {}).get(each.name)
            if wanted is None:
                # `x_max` of the tensor `x` that a parameter `InputTensor` stands for.
                stem = next((own for own in stems if each.name.startswith(f"{own}_")), None)
                wanted = f"{prefix}{each.name}"
                if stem is not None:
                    wanted = f"{stems[stem]}{each.name[len(stem) :]}"
            names[each.name] = take_name(wanted, self._taken)
        made = rename_tensors(function, names)
        moved = self._list_moves([tensor.name for tensor in tensors.values()])
        for stage in made.stages:
            self._add_stage(inline_stages(stage, moved))
        self._tables += made.tables
        self._loops += made.loops
        self._checks += [check for check in made.checks if check not in self._checks]
        found = {t.name: Tensor(t.name, t.dtype, t.extents) for t in made.stages}
        return {result.name: found[names[result.name]] for result in function.results}

    def take_name(self, wanted: str) -> str:
        """Name that no tensor has, made of the one that is wanted."""
        return take_name(wanted, self._taken)

    def count_stages(self) -> int:
        """Number of stages so far."""
        return len(self._stages)

    def list_stages(self, start: int) -> list[Stage]:
        """Stages from number `start` on."""
        return self._stages[start:]

    def cut_stages(self, start: int) -> None:
        """Removes the stages from number `start` on. Raises `UnsupportedError`, with nothing
        removed, if some are of a loop."""
        names = {stage.name for stage in self._stages[start:]}
        if any(not names.isdisjoint(loop.stages) for loop in self._loops):
            raise UnsupportedError("a loop in a step of a loop")
        del self._stages[start:]

    def add_stages(self, stages: Iterable[Stage], loop: Loop | None = None) -> None:
        """Adds stages whose names are taken, which form a loop if one is given."""
        self._stages += stages
        self._loops += [] if loop is None else [loop]

    def _list_moves(self, names: Container[str]) -> dict[str, Stage]:
        """Stages of these names whose elements are those of one other tensor, by name."""
        dtypes = {t.name: t.dtype for t in (*self._parameters, *self._tables, *self._stages)}
        found: dict[str, Stage] = {}
        for stage in filter(lambda stage: stage.name in names, self._stages):
            value = stage.body.instructions[stage.body.result]
            types = [dtypes.get(load.tensor) for load in stage.body.loads()]
            if isinstance(value, Load) and types == [stage.dtype] and stage.reduction is None:
                found[stage.name] = stage
        return found

    def _add_stage(self, stage: Stage) -> None:
        if self._count is not None:
            self._count(len(stage.body.instructions))
        self._stages.append(stage)

    def unify(self, one: Extent, other: Extent) -> Extent | None:
        """Common size of two that must be equal; None if they differ, or if they are open and
        equality is not assumed."""
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
        """Assumes one size not to exceed another; checked at run time unless it holds for all
        symbols."""
        if find_least(most - least) < 0:
            self.check(write_condition(most, ">=", least))

    def check(self, condition: str) -> None:
        """Assumes a condition on the symbols, such as `N >= 2`; checked at run time."""
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
        """Verified function, without stages that no result needs."""
        names = {tensor.name: name for name, tensor in self._results.items()}
        # Another tensor with the name of a result is renamed.
        delays = (delay for loop in self._loops for delay in loop.delays)
        for other in (*self._stages, *self._tables, *delays):
            if other.name in self._results and other.name not in names:
                names[other.name] = take_name(other.name, self._taken)
        kept = list_live(self._stages, list(names), self._loops)
        loops = keep_loops(self._loops, kept)
        read = {load.tensor for stage in kept for load in stage.body.loads()}
        implied = (*list_counted(kept), *list_least(self._parameters, kept))
        function = Function(
            self.name,
            tuple(self._parameters),
            kept,
            tuple(Result(tensor.name) for tensor in self._results.values()),
            tables=tuple(table for table in self._tables if table.name in read),
            checks=tuple(dict.fromkeys((*self._checks, *implied))),
            loops=loops,
        )
        function = rename_tensors(function, names)
        return accept(hold_reads(function) if self.assumes else function)

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
        positions = reduction is not None and reduction.is_positional
        if found is DataType.INDEX or not (positions or found.compute is value.dtype):
            raise DmlcError(
                f"{name} is to hold {found.name}, and its elements are {value.dtype.name}"
            )
        number = None if guard is None else point.body.unwrap(guard)
        body = point.body.make(point.body.unwrap(value), number)
        own = take_name(name, self._taken)
        domain = tuple(_extent(extent) for extent in extents)
        self._add_stage(Stage(own, found, domain, body, reduction))
        return Tensor(own, found, domain)


def _extent(extent: Extent) -> Extent:
    """Size in the IR's spelling."""
    return as_extent(measure(extent))
