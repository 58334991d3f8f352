"""Type rules of instructions: the types of their operands and results.

The body builder applies them to its callers' requests, the verifier to passes' output. Each
function returns the violation as a clause that starts in lower case, or None. The verifier checks
bounds of loads and axes of stages.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.ir.nodes import IR_OPERATIONS, Apply, Cast, Constant, Instruction, Load, Select, Tensor
from dmlc.scalars import DataType, Operation, integer_limits, is_float32
from dmlc.source import counted


def check_types(instruction: Instruction, given: Sequence[DataType]) -> str | None:
    """Type error of an instruction whose operands have the types `given`."""
    match instruction:
        case Constant():
            return check_constant(instruction)
        case Load():
            wrong = next((dtype for dtype in given if dtype is not DataType.INDEX), None)
            return None if wrong is None else f"a position is no INDEX, but {wrong.name}"
        case Apply():
            why = check_operands(instruction.operation, given)
            if why is None and instruction.dtype is not instruction.operation.result_type(given[0]):
                return f"{instruction.operation.name} does not give {instruction.dtype.name}"
            return why
        case Select():
            if given[0] is not DataType.BOOL:
                return f"the condition of a select is no BOOL, but {given[0].name}"
            if given[1] is not given[2] or instruction.dtype is not given[1]:
                return f"the branches of a select differ in type: {_list_types(given[1:])}"
        case Cast():
            return _check_held(instruction.dtype)
        case _:
            pass
    return None


def check_operands(operation: Operation, given: Sequence[DataType]) -> str | None:
    """Type error of an operation on values of these types."""
    name = operation.name
    if IR_OPERATIONS.get(name) is not operation:
        return f"{name} is not in the table of operations"
    if len(given) != operation.arity:
        return f"{name} takes {counted(operation.arity, 'operand')}, not {len(given)}"
    if len(set(given)) > 1:
        return f"the operands of {name} differ in type: {_list_types(given)}"
    if not operation.operands.accept(given[0]):
        return f"{name} takes {operation.operands.value}, not {given[0].name}"
    return None


def check_constant(constant: Constant) -> str | None:
    dtype, value = constant.dtype, constant.value
    if dtype.is_storage_only:
        return _check_held(dtype)
    wrong = f"{value!r} is no {dtype.name}"
    if dtype is DataType.BOOL or isinstance(value, bool):
        return None if dtype is DataType.BOOL and isinstance(value, bool) else wrong
    if dtype.is_float:
        if not isinstance(value, float):
            return wrong
        return None if dtype is DataType.FLOAT64 or is_float32(value) else wrong
    least, most = integer_limits(dtype)
    return None if isinstance(value, int) and least <= value <= most else wrong


def check_rank(tensor: Tensor, places: int) -> str | None:
    """Error of a load with a number of indices."""
    axes = len(tensor.extents)
    if places == axes:
        return None
    return f"%{tensor.name} is read at {counted(places, 'position')}, and its axes are {axes}"


def _check_held(dtype: DataType) -> str | None:
    """Error of a value that has a storage type."""
    if not dtype.is_storage_only:
        return None
    return f"a value has the storage type {dtype.name}; those read from it are {dtype.compute.name}"


def _list_types(types: Sequence[DataType]) -> str:
    return ", ".join(dtype.name for dtype in types)
