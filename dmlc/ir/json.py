"""The JSON form of the tensor IR: the content of the text form, for programs.

A body is the list of its instructions; operands are numbers of earlier ones. Floats that JSON
cannot spell are the strings `"inf"`, `"-inf"` and `"nan"`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
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
    whole = _Node.of(content, "the function")
    version = whole.get("version")
    if version != VERSION:
        shown = repr(version)[:40]
        raise DmlcError(f"expected version {VERSION} of the IR's JSON form, found {shown}")
    whole.check(_FUNCTION, _OPTIONAL)
    function = _read_function(whole)
    fault = find_fault(function)
    if fault is not None:
        raise DmlcError(f"this breaks a rule of the IR at {fault.node}: {fault.why}")
    return function


_OPTIONAL = ("tables",)
"""Fields that files without them are read with."""
_FUNCTION = ("version", "name", "parameters", "stages", "results", "in_place", *_OPTIONAL)
_FIELDS = {
    "parameter": ("name", "dtype", "extents", "strides"),
    "table": ("name", "dtype", "extents", "values"),
    "stage": ("name", "dtype", "domain", "reduction", "body", "result", "guard"),
    "result": ("name", "strides"),
}
"""The fields of what has a name, by what it is."""
_INSTRUCTIONS = {
    "constant": ("op", "dtype", "value"),
    "index": ("op", "axis", "reduced"),
    "load": ("op", "tensor", "indices", "dtype"),
}
"""The fields of the instructions that have no operands."""
_OPERATION = ("op", "operands", "dtype")
_ARITIES = {"select": 3, "cast": 1, **{o.name: o.arity for o in OPERATIONS.values()}}


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """The fields of a JSON object, and where it stands, for messages."""

    content: _Object
    where: str

    @staticmethod
    def read(value: object, where: str, fields: Sequence[str]) -> _Node:
        """An object that has these fields and no others."""
        node = _Node.of(value, where)
        node.check(fields)
        return node

    @staticmethod
    def of(value: object, where: str) -> _Node:
        if not isinstance(value, dict):
            raise _fail(where, "an object", value)
        return _Node(cast(_Object, value), where)

    @staticmethod
    def named(value: object, what: str) -> _Node:
        """An object with a name, which messages call it by."""
        article = f"a {what}"
        name = _Node.of(value, article).string("name")
        return _Node.read(value, f"{what} '{name}'", _FIELDS[what])

    def check(self, fields: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Raises `DmlcError` for a field too many, or one that is missing."""
        for key in self.content:
            if key not in fields:
                unknown = unknown_name("field", key, fields)
                raise DmlcError(
                    dataclasses.replace(unknown, message=f"{self.where}: {unknown.message}")
                )
        for key in fields:
            if key not in optional:
                self.get(key)

    def get(self, key: str) -> Any:
        if key not in self.content:
            raise DmlcError(f"{self.where}: '{key}' is missing")
        return self.content[key]

    def fail(self, key: str, expected: str, found: object) -> DmlcError:
        return _fail(self.where, f"{expected} for '{key}'", found)

    def list(self, key: str) -> list[Any]:
        value = self.get(key)
        if not isinstance(value, list):
            raise self.fail(key, "a list", value)
        return cast(list[Any], value)

    def string(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.fail(key, "a string", value)
        return value

    def boolean(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def integer(self, key: str) -> int:
        return self.as_integer(key, self.get(key))

    def as_integer(self, key: str, value: object) -> int:
        """A value of a field, or an item of it."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(key, "an integer", value)
        return value

    def as_extent(self, key: str, value: object) -> Extent:
        if isinstance(value, str):
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(key, "an integer or the name of a run-time size", value)
        return value

    def extents(self, key: str) -> tuple[Extent, ...]:
        return tuple(self.as_extent(key, e) for e in self.list(key))

    def strides(self) -> tuple[int, ...] | None:
        if self.get("strides") is None:
            return None
        return tuple(self.as_integer("strides", s) for s in self.list("strides"))

    def dtype(self) -> DataType:
        name = self.string("dtype")
        found = DataType.INDEX if name == DataType.INDEX.name else find_data_type(name)
        if found is None:
            raise self.fail("dtype", "a data type", name)
        return found

    def as_value(self, key: str, number: object, before: int) -> int:
        """The number of an instruction among those before."""
        found = self.as_integer(key, number)
        if not 0 <= found < before:
            raise self.fail(key, f"the number of one of {before} earlier values", found)
        return found

    def values(self, key: str, before: int) -> tuple[int, ...]:
        return tuple(self.as_value(key, n, before) for n in self.list(key))


def _fail(where: str, expected: str, found: object) -> DmlcError:
    return DmlcError(f"{where}: expected {expected}, found {repr(found)[:60]}")


def _read_function(node: _Node) -> Function:
    pairs = [_read_pair(node, pair) for pair in node.list("in_place")]
    tables = node.list("tables") if "tables" in node.content else []
    return Function(
        node.string("name"),
        tuple(_read_parameter(p) for p in node.list("parameters")),
        tuple(_read_stage(s) for s in node.list("stages")),
        tuple(_read_result(r) for r in node.list("results")),
        tuple(pairs),
        tables=tuple(_read_table(t) for t in tables),
    )


def _read_pair(node: _Node, value: object) -> tuple[str, str]:
    match cast(Any, value):
        case [str(result), str(parameter)]:
            return result, parameter
        case _:
            raise node.fail("in_place", "pairs of a result and a parameter", value)


def _read_parameter(value: object) -> Parameter:
    node = _Node.named(value, "parameter")
    return Parameter(node.string("name"), node.dtype(), node.extents("extents"), node.strides())


def _read_result(value: object) -> Result:
    node = _Node.named(value, "result")
    return Result(node.string("name"), node.strides())


def _read_table(value: object) -> Table:
    node = _Node.named(value, "table")
    dtype = node.dtype()
    return Table(
        node.string("name"),
        dtype,
        tuple(node.as_integer("extents", e) for e in node.list("extents")),
        tuple(_read_constant(node, "values", dtype, v).value for v in node.list("values")),
    )


def _read_stage(value: object) -> Stage:
    node = _Node.named(value, "stage")
    instructions = tuple(
        _read_instruction(i, number, f"{node.where}, value {number}")
        for number, i in enumerate(node.list("body"))
    )
    count = len(instructions)
    guard = node.get("guard")
    return Stage(
        node.string("name"),
        node.dtype(),
        node.extents("domain"),
        Body.make(
            instructions,
            node.as_value("result", node.get("result"), count),
            None if guard is None else node.as_value("guard", guard, count),
        ),
        _read_reduction(node),
    )


def _read_reduction(stage: _Node) -> Reduction | None:
    value = stage.get("reduction")
    if value is None:
        return None
    node = _Node.read(value, f"{stage.where}, its reduction", ("combiner", "axes"))
    axes: list[tuple[int, Extent]] = []
    for axis in node.list("axes"):
        match axis:
            case [label, extent]:
                pair = node.as_integer("axes", label), node.as_extent("axes", extent)
                axes.append(pair)
            case _:
                raise node.fail("axes", "an axis' label and extent", axis)
    return Reduction(node.string("combiner"), tuple(axes))


def _read_instruction(value: object, number: int, where: str) -> Instruction:
    name = _Node.of(value, where).string("op")
    if name not in _INSTRUCTIONS and name not in _ARITIES:
        unknown = unknown_name("operation", name, [*_ARITIES, *_INSTRUCTIONS])
        raise DmlcError(dataclasses.replace(unknown, message=f"{where}: {unknown.message}"))
    node = _Node.read(value, f"{where} ({name})", _INSTRUCTIONS.get(name, _OPERATION))
    if name == "index":
        return Index(node.integer("axis"), node.boolean("reduced"))
    dtype = node.dtype()
    if name == "constant":
        return _read_constant(node, "value", dtype, node.get("value"))
    if name == "load":
        return Load(node.string("tensor"), node.values("indices", number), dtype)
    given = node.values("operands", number)
    if len(given) != _ARITIES[name]:
        plural = "" if _ARITIES[name] == 1 else "s"
        raise _fail(node.where, f"{_ARITIES[name]} operand{plural}", list(given))
    if name == "select":
        return Select(given[0], given[1], given[2], dtype)
    if name == "cast":
        return Cast(given[0], dtype)
    return Apply(OPERATIONS[name], given, dtype)


def _read_constant(node: _Node, key: str, dtype: DataType, value: object) -> Constant:
    if dtype is DataType.BOOL and isinstance(value, bool):
        return Constant(dtype, value)
    if dtype.is_float and value in ("inf", "-inf", "nan"):
        return Constant(dtype, float(cast(str, value)))
    whole = isinstance(value, int) and not isinstance(value, bool) and dtype is not DataType.BOOL
    if dtype.is_float and (whole or isinstance(value, float)):
        try:
            return Constant(dtype, float(cast(float, value)))
        except OverflowError as error:
            raise node.fail(key, f"a {dtype.name}", value) from error
    if not whole or dtype.is_float:
        raise node.fail(key, f"a {dtype.name}", value)
    return Constant(dtype, cast(int, value))
