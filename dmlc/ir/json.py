"""The JSON form of the tensor IR, with the same content as the text form.

A body is a list of instructions whose operands are numbers of earlier ones. `records` converts
classes by their fields; this module has the exceptions for the IR's classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    IR_OPERATIONS,
    Apply,
    Body,
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
    Table,
    operands,
)
from dmlc.ir.records import Records, Shape, find_fields, read_number, refuse
from dmlc.ir.schema import describe
from dmlc.ir.verify import accept
from dmlc.parameters import expect, expect_text
from dmlc.scalars import COMBINERS, DataType


def to_json(function: Function) -> str:
    """Function as JSON text, stages in order, indented by two."""
    return _RECORDS.write(expect("function", function, Function, "an ir.Function"))


def from_json(text: str) -> Function:
    """Function from the text that `to_json` wrote. Raises `DmlcError` if the text is not a
    well-formed function."""
    return accept(_RECORDS.read(expect_text("text", text), Function))


def function_schema() -> dict[str, Any]:
    """JSON Schema of the documents that `to_json` writes."""
    return describe(_RECORDS, Function, "A function of dmlc's tensor IR")


def _read_stage(stage: Stage) -> dict[str, Any]:
    body = stage.body
    own = {name: getattr(stage, name) for name in ("name", "dtype", "extents", "reduction")}
    return {**own, "body": body.instructions, "result": body.result, "guard": body.guard}


def _make_stage(fields: dict[str, Any], where: str) -> Stage:
    instructions = cast("tuple[Instruction, ...]", fields.pop("body"))
    result, guard = fields.pop("result"), fields.pop("guard")
    for number, instruction in enumerate(instructions):
        tag = _RECORDS.tag(instruction)
        key = "indices" if isinstance(instruction, Load) else "operands"
        for operand in operands(instruction):
            _check_value(operand, number, f"{where}, value {number} ({tag})", key)
    _check_value(result, len(instructions), where, "result")
    if guard is not None:
        _check_value(guard, len(instructions), where, "guard")
    return Stage(**fields, body=Body.make(instructions, result, guard))


def _check_value(number: int, before: int, where: str, key: str) -> None:
    if not 0 <= number < before:
        raise refuse(where, f"the number of one of {before} earlier values for '{key}'", number)


def _make_table(fields: dict[str, Any], where: str) -> Table:
    values = [read_number(fields["dtype"], v, where, "values") for v in fields["values"]]
    return Table(fields["name"], fields["dtype"], fields["extents"], tuple(values))


def _read_operands(instruction: Select | Cast) -> dict[str, Any]:
    return {"operands": operands(instruction), "dtype": instruction.dtype}


def _shape_operands(kind: Callable[..., Select | Cast], arity: int) -> Shape:
    """Shape of an instruction whose operands are a list, as those of operations are."""
    fields = {"operands": tuple[int, ...], "dtype": DataType}
    return Shape(fields, lambda f, _: kind(*f["operands"], f["dtype"]), _read_operands, arity=arity)


_STAGE: dict[str, Any] = {
    "name": str,
    "dtype": DataType,
    "extents": tuple[Extent, ...],
    "reduction": Reduction | None,
    "body": tuple[Instruction, ...],
    "result": int,
    "guard": int | None,
}
SHAPES: dict[type, Shape] = {
    Function: Shape(
        find_fields(Function),
        lambda fields, _: Function(**fields),
        optional=("tables", "checks", "loops"),
    ),
    Stage: Shape(_STAGE, _make_stage, _read_stage, former={"domain": "extents"}),
    Table: Shape(find_fields(Table), _make_table),
    Reduction: Shape(
        find_fields(Reduction),
        lambda fields, _: Reduction(**fields),
        schema={"combiner": {"enum": [*COMBINERS]}},
    ),
    Constant: Shape(
        find_fields(Constant),
        lambda f, where: Constant(f["dtype"], read_number(f["dtype"], f["value"], where, "value")),
    ),
    Select: _shape_operands(Select, 3),
    Cast: _shape_operands(Cast, 1),
}
NOUNS: dict[str, tuple[type, ...]] = {
    "value": (Constant, Index, Symbol, Step, Load, Apply, Select, Cast)
}
TUPLES = {"in_place": "pairs of a result and a parameter", "axes": "an axis' label and extent"}
_RECORDS = Records(SHAPES, {}, NOUNS, TUPLES, operations=IR_OPERATIONS)
