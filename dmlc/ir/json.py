"""The JSON form of the tensor IR: the content of the text form, for programs.

A body is the list of its instructions; operands are numbers of earlier ones. Floats that JSON
cannot spell are the strings `"inf"`, `"-inf"` and `"nan"`.
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Table,
)
from dmlc.ir.verify import find_fault
from dmlc.parameters import expect, expect_text
from dmlc.scalars import OPERATIONS, DataType, find_data_type
from dmlc.source import DmlcError, unknown_name

VERSION = 1

_Object = dict[str, Any]


def to_json(function: Function) -> str:
    """The function as JSON text, one stage after another, indented by two."""
    expect("function", function, Function, "an ir.Function")
    content: _Object = {
        "version": VERSION,
        "name": function.name,
        "parameters": [_parameter(p) for p in function.parameters],
        "stages": [_stage(s) for s in function.stages],
        "results": [{"name": r.name, "strides": _list(r.strides)} for r in function.results],
        "in_place": [list(pair) for pair in function.in_place],
        "tables": [_table(t) for t in function.tables],
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _list(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)


def _parameter(parameter: Parameter) -> _Object:
    return {
        "name": parameter.name,
        "dtype": parameter.dtype.name,
        "extents": list(parameter.extents),
        "strides": _list(parameter.strides),
    }


def _table(table: Table) -> _Object:
    return {
        "name": table.name,
        "dtype": table.dtype.name,
        "extents": list(table.extents),
        "values": [_value(v) for v in table.values],
    }


def _value(value: bool | int | float) -> bool | int | float | str:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _stage(stage: Stage) -> _Object:
    reduction = stage.reduction
    return {
        "name": stage.name,
        "dtype": stage.dtype.name,
        "domain": list(stage.domain),
        "reduction": None
        if reduction is None
        else {"combiner": reduction.combiner, "axes": [list(axis) for axis in reduction.axes]},
        "body": [_instruction(i) for i in stage.body.instructions],
        "result": stage.body.result,
        "guard": stage.body.guard,
    }


def _instruction(instruction: Instruction) -> _Object:
    match instruction:
        case Constant():
            value = _value(instruction.value)
            return {"op": "constant", "dtype": instruction.dtype.name, "value": value}
        case Index():
            return {"op": "index", "axis": instruction.axis, "reduced": instruction.reduced}
        case Load():
            return {
                "op": "load",
                "tensor": instruction.tensor,
                "indices": list(instruction.indices),
                "dtype": instruction.dtype.name,
            }
        case Apply():
            return {
                "op": instruction.operation.name,
                "operands": list(instruction.operands),
                "dtype": instruction.dtype.name,
            }
        case Select():
            operands = [instruction.condition, instruction.then, instruction.otherwise]
            return {"op": "select", "operands": operands, "dtype": instruction.dtype.name}
        case Cast():
            operands = [instruction.operand]
            return {"op": "cast", "operands": operands, "dtype": instruction.dtype.name}


# Reading -----------------------------------------------------------------------------------


def from_json(text: str) -> Function:
    """The function that `to_json` wrote. Raises `DmlcError` on anything that is no well-formed
    function."""
    try:
        content = json.loads(expect_text("text", text))
    except (ValueError, RecursionError) as error:
        raise DmlcError(f"the text is not JSON: {error}") from error
    reader = _Reader()
    whole = reader.object(content, "the function")
    version = reader.get(whole, "version", "the function")
    if version != VERSION:
        shown = repr(version)[:40]
        raise DmlcError(f"expected version {VERSION} of the IR's JSON form, found {shown}")
    function = reader.function(whole)
    fault = find_fault(function)
    if fault is not None:
        raise DmlcError(f"this breaks a rule of the IR at {fault.node}: {fault.why}")
    return function


class _Reader:
    """Turns JSON values into nodes; `where` says what was being read, for messages."""

    def fail(self, where: str, expected: str, found: object) -> DmlcError:
        shown = repr(found)
        return DmlcError(f"{where}: expected {expected}, found {shown[:60]}")

    def object(self, value: object, where: str) -> _Object:
        if not isinstance(value, dict):
            raise self.fail(where, "an object", value)
        return cast(_Object, value)

    def get(self, content: _Object, key: str, where: str) -> Any:
        if key not in content:
            raise DmlcError(f"{where}: '{key}' is missing")
        return content[key]

    def list(self, value: object, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(where, "a list", value)
        return cast(list[Any], value)

    def integer(self, value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(where, "an integer", value)
        return value

    def string(self, value: object, where: str) -> str:
        if not isinstance(value, str):
            raise self.fail(where, "a string", value)
        return value

    def extent(self, value: object, where: str) -> Extent:
        return value if isinstance(value, str) else self.integer(value, where)

    def dtype(self, content: _Object, where: str) -> DataType:
        name = self.string(self.get(content, "dtype", where), where)
        found = DataType.INDEX if name == DataType.INDEX.name else find_data_type(name)
        if found is None:
            raise self.fail(where, "a data type", name)
        return found

    def strides(self, content: _Object, where: str) -> tuple[int, ...] | None:
        value = self.get(content, "strides", where)
        if value is None:
            return None
        return tuple(self.integer(s, where) for s in self.list(value, where))

    def function(self, content: _Object) -> Function:
        where = "the function"
        name = self.string(self.get(content, "name", where), where)
        given = self.list(self.get(content, "parameters", where), where)
        stages = self.list(self.get(content, "stages", where), where)
        returned = self.list(self.get(content, "results", where), where)
        pairs = [
            [self.string(n, "in_place") for n in self.list(pair, "in_place")]
            for pair in self.list(self.get(content, "in_place", where), where)
        ]
        if any(len(pair) != 2 for pair in pairs):
            raise self.fail("in_place", "pairs of a result and a parameter", pairs)
        return Function(
            name,
            tuple(self.parameter(p) for p in given),
            tuple(self.stage(s) for s in stages),
            tuple(self.result(r) for r in returned),
            tuple((pair[0], pair[1]) for pair in pairs),
            tables=tuple(self.table(t) for t in self.list(content.get("tables", []), where)),
        )

    def table(self, value: object) -> Table:
        content = self.object(value, "a table")
        name = self.string(self.get(content, "name", "a table"), "a table")
        where = f"table '{name}'"
        dtype = self.dtype(content, where)
        extents = self.list(self.get(content, "extents", where), where)
        values = self.list(self.get(content, "values", where), where)
        return Table(
            name,
            dtype,
            tuple(self.integer(e, where) for e in extents),
            tuple(self.constant(dtype, v, where).value for v in values),
        )

    def parameter(self, value: object) -> Parameter:
        content = self.object(value, "a parameter")
        name = self.string(self.get(content, "name", "a parameter"), "a parameter")
        where = f"parameter '{name}'"
        extents = self.list(self.get(content, "extents", where), where)
        return Parameter(
            name,
            self.dtype(content, where),
            tuple(self.extent(e, where) for e in extents),
            self.strides(content, where),
        )

    def result(self, value: object) -> Result:
        content = self.object(value, "a result")
        name = self.string(self.get(content, "name", "a result"), "a result")
        return Result(name, self.strides(content, f"result '{name}'"))

    def stage(self, value: object) -> Stage:
        content = self.object(value, "a stage")
        name = self.string(self.get(content, "name", "a stage"), "a stage")
        where = f"stage '{name}'"
        domain = self.list(self.get(content, "domain", where), where)
        instructions = tuple(
            self.instruction(i, number, where)
            for number, i in enumerate(self.list(self.get(content, "body", where), where))
        )
        count = len(instructions)
        guard = self.get(content, "guard", where)
        return Stage(
            name,
            self.dtype(content, where),
            tuple(self.extent(e, where) for e in domain),
            Body.make(
                instructions,
                self.value(self.get(content, "result", where), count, where),
                None if guard is None else self.value(guard, count, where),
            ),
            self.reduction(self.get(content, "reduction", where), where),
        )

    def reduction(self, value: object, where: str) -> Reduction | None:
        if value is None:
            return None
        content = self.object(value, where)
        combiner = self.string(self.get(content, "combiner", where), where)
        axes: list[tuple[int, Extent]] = []
        for axis in self.list(self.get(content, "axes", where), where):
            pair = self.list(axis, where)
            if len(pair) != 2:
                raise self.fail(where, "an axis' label and extent", pair)
            axes.append((self.integer(pair[0], where), self.extent(pair[1], where)))
        return Reduction(combiner, tuple(axes))

    def value(self, number: object, before: int, where: str) -> int:
        found = self.integer(number, where)
        if not 0 <= found < before:
            raise self.fail(where, f"the number of one of {before} earlier values", found)
        return found

    def instruction(self, value: object, number: int, where: str) -> Instruction:
        content = self.object(value, where)
        name = self.string(self.get(content, "op", where), where)
        if name == "index":
            axis = self.integer(self.get(content, "axis", where), where)
            reduced = self.get(content, "reduced", where)
            if not isinstance(reduced, bool):
                raise self.fail(where, "true or false for 'reduced'", reduced)
            return Index(axis, reduced)
        dtype = self.dtype(content, where)
        if name == "constant":
            return self.constant(dtype, self.get(content, "value", where), where)
        if name == "load":
            tensor = self.string(self.get(content, "tensor", where), where)
            indices = self.list(self.get(content, "indices", where), where)
            return Load(tensor, tuple(self.value(i, number, where) for i in indices), dtype)
        given = tuple(
            self.value(o, number, where)
            for o in self.list(self.get(content, "operands", where), where)
        )
        operation = OPERATIONS.get(name)
        arity = {"select": 3, "cast": 1}.get(name, operation.arity if operation else -1)
        if len(given) != arity:
            if arity < 0:
                raise DmlcError(unknown_name("operation", name, [*OPERATIONS, "select", "cast"]))
            raise self.fail(where, f"{arity} operands of '{name}'", given)
        if name == "select":
            return Select(given[0], given[1], given[2], dtype)
        if operation is None:
            return Cast(given[0], dtype)
        return Apply(operation, given, dtype)

    def constant(self, dtype: DataType, value: object, where: str) -> Constant:
        if dtype is DataType.BOOL and isinstance(value, bool):
            return Constant(dtype, value)
        if dtype.is_float and value in ("inf", "-inf", "nan"):
            return Constant(dtype, float(cast(str, value)))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(where, f"a {dtype.name}", value)
        if dtype.is_float:
            try:
                return Constant(dtype, float(value))
            except OverflowError as error:
                raise self.fail(where, f"a {dtype.name}", value) from error
        return Constant(dtype, self.integer(value, where))
