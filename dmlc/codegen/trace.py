"""Tracer of scalar routines into functions of the kernel IR.

A `scalars` routine is a Python function of `Value`s; here these are expressions of the kernel IR,
and its named steps are the function's. A `Definition` is a function of its own in generated code,
called by its name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import evaluate_function
from dmlc.kernel.names import Names
from dmlc.scalars import OPERATIONS, Array, DataType, Operands, Operation, Routine, Value, Writer
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scope(Writer[k.Expression]):
    """Function under construction."""

    names: Names
    steps: list[k.Let]

    def type_of(self, value: k.Expression) -> DataType:
        return value.type.dtype

    def apply(self, name: str, *given: k.Expression) -> k.Expression:
        return _call(OPERATIONS[name], given)

    def select(
        self, condition: k.Expression, then: k.Expression, otherwise: k.Expression
    ) -> k.Expression:
        _expect(otherwise, then.type.dtype)
        return k.Select(condition, then, otherwise, then.type)

    def literal(self, value: int | float, dtype: DataType) -> k.Expression:
        rounded = np.float32(value) if dtype is DataType.FLOAT32 else value
        return k.Literal(k.Type(dtype), float(rounded) if dtype.is_float else int(value))

    def name(self, wanted: str, held: k.Expression) -> k.Expression:
        local = k.Local(self.names.take(wanted), held.type)
        self.steps.append(k.Let(local, held))
        return local

    def reinterpret(self, held: k.Expression, dtype: DataType) -> k.Expression:
        return k.Reinterpret(held, k.Type(dtype))

    def cast(self, value: k.Expression, dtype: DataType) -> k.Expression:
        return k.Convert(value, k.Type(dtype))

    def call(self, routine: Routine, given: Sequence[k.Expression]) -> k.Expression:
        return _call(write_out(routine), given)


def _expect(expression: k.Expression, dtype: DataType) -> None:
    if expression.type.dtype is not dtype:
        raise InternalError(f"{expression.type.dtype.short} stands where {dtype.short} must")


def _call(operation: Operation, given: Sequence[k.Expression]) -> k.Expression:
    dtype = given[0].type.dtype
    for each in given:
        _expect(each, dtype)
    if len(given) != operation.arity or not operation.operands.accept(dtype):
        raise InternalError(f"{operation.name} takes no {len(given)} {dtype.short}")
    return k.Operate(operation, tuple(given), k.Type(operation.result_type(dtype)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Definition(Operation):
    """Operation with a generated function, traced from its routine."""

    routine: Routine
    function: Callable[[], k.Function]
    """Traced routine, computed at first use."""


@functools.cache
def write_out(routine: Routine) -> Definition:
    """Operation of the kernel IR for a routine."""
    parameters = tuple(inspect.signature(routine.function).parameters)

    @functools.cache
    def trace() -> k.Function:
        return _trace(routine, parameters)

    def evaluate(*given: Array) -> Array:
        return evaluate_function(trace(), given)

    kinds = {DataType.FLOAT32: Operands.FLOAT32, DataType.FLOAT64: Operands.FLOAT}
    accepted = kinds.get(routine.dtype, Operands.INTEGER)
    name = routine.name
    return Definition(name, len(parameters), accepted, evaluate, routine=routine, function=trace)


def _trace(routine: Routine, parameters: tuple[str, ...]) -> k.Function:
    scope = _Scope(Names(parameters), [])
    given = tuple(k.Scalar(name, k.Type(routine.dtype)) for name in parameters)
    result: Value = routine.function(*map(scope.wrap, given))
    held = scope.unwrap(result)
    _expect(held, routine.dtype)
    note = tuple(inspect.cleandoc(routine.function.__doc__ or "").splitlines())
    return k.Function(routine.name, given, tuple(scope.steps), held, note)


FUNCTIONS: Mapping[str, Definition] = MappingProxyType(
    {
        name: write_out(operation.float32)
        for name, operation in OPERATIONS.items()
        if operation.transcendental and operation.float32 is not None
    }
)
"""Transcendental functions of the scalar records, generated for FLOAT32."""
