"""The JSON form of the tensor IR."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from dmlc import ir
from dmlc.source import DmlcError
from tests.ir.test_text import GUARDED, LITERALS, RELU_GRAD, SHARED
from tests.strategies import functions


@settings(max_examples=200, deadline=None)
@given(functions())
def test_reading_undoes_writing(function: ir.Function) -> None:
    text = ir.to_json(function)
    assert ir.from_json(text) == function
    assert ir.to_json(ir.from_json(text)) == text


@pytest.mark.parametrize("text", [RELU_GRAD, SHARED, GUARDED, LITERALS])
def test_has_the_content_of_the_text(text: str) -> None:
    assert str(ir.from_json(ir.to_json(ir.parse(text)))) == text


def test_is_plain_json_with_a_version() -> None:
    content = json.loads(ir.to_json(ir.parse(LITERALS)))
    assert content["version"] == "2.1"
    assert content["name"] == "literals"
    values = [i["value"] for s in content["stages"] for i in s["body"] if i["op"] == "constant"]
    assert "-inf" in values
    assert "nan" in values


def test_a_body_in_any_order_is_made_canonical() -> None:
    content = json.loads(ir.to_json(ir.parse(RELU_GRAD)))
    body = content["stages"][0]["body"]
    body.append({"op": "constant", "dtype": "FLOAT32", "value": 7})
    assert ir.from_json(json.dumps(content)) == ir.parse(RELU_GRAD)


Change = Callable[[dict[str, Any]], object]


def stage(content: dict[str, Any]) -> dict[str, Any]:
    return content["stages"][0]


BROKEN: list[tuple[Change, str]] = [
    (lambda c: c.pop("name"), "the function: 'name' is missing"),
    (lambda c: c.update(version=2), "expected version '2.1' of the IR's JSON form, found 2"),
    (lambda c: c.update(version="1.0"), "version '2.1' of the IR's JSON form, found '1.0'"),
    (lambda c: c.update(version="2"), "expected version '2.1' of the IR's JSON form, found '2'"),
    (lambda c: c.update(version=True), "expected version '2.1' of the IR's JSON form, found True"),
    (lambda c: c.update(version="3.0"),
     "this is version 3.0 of the IR's JSON form, in which the same may mean something else: this "
     "dmlc reads versions up to 2\n  note: a newer dmlc reads it"),
    (lambda c: c.update(name=3), "the function: expected a string for 'name', found 3"),
    (lambda c: c.update(stages={}), "the function: expected a list for 'stages', found {}"),
    (lambda c: c.update(in_place=[["dX"]]),
     "the function: expected pairs of a result and a parameter for 'in_place', found ['dX']"),
    (lambda c: c.update(parameters=[1]), "a parameter: expected an object, found 1"),
    (lambda c: c["parameters"][0].update(dtype="F31"),
     "parameter 'X': expected a data type for 'dtype', found 'F31'"),
    (lambda c: c["parameters"][0].update(strides=[1.5, 1]),
     "parameter 'X': expected an integer or the name of a run-time size for 'strides', found 1.5"),
    (lambda c: c["parameters"][0].update(extents=[-2, 3]), "at %X: an axis has size -2"),
    (lambda c: c["parameters"][0].update(extents=[None, 3]),
     "parameter 'X': expected an integer or the name of a run-time size for 'extents', found None"),
    (lambda c: c["results"].append({"name": "Q", "strides": None}), "at result %Q: no stage"),
    (lambda c: stage(c).update(result=99), "stage 'dX': expected the number of one of"),
    (lambda c: stage(c).update(guard=True),
     "stage 'dX': expected an integer for 'guard', found True"),
    (lambda c: stage(c).update(reduction={"combiner": "sum", "axes": [[1]]}),
     "stage 'dX', its reduction: expected an axis' label and extent for 'axes', found [1]"),
    (lambda c: stage(c)["body"].insert(0, {"op": "jump", "dtype": "FLOAT32", "operands": []}),
     "stage 'dX', value 0: unknown operation 'jump'"),
    (lambda c: stage(c)["body"].insert(0, {"op": "indx", "axis": 0, "reduced": False}),
     "stage 'dX', value 0: unknown operation 'indx' [E0201]\n  note: did you mean 'index'?"),
    (lambda c: stage(c)["body"].insert(0, {"op": "constnt", "value": 0}),
     "stage 'dX', value 0: unknown operation 'constnt' [E0201]\n  note: did you mean 'constant'?"),
    (lambda c: stage(c)["body"][2].update(indices=[8, 9]),
     "value 2 (load): expected the number of one of 2 earlier values for 'indices', found 8"),
    (lambda c: stage(c)["body"][0].update(reduced=0),
     "stage 'dX', value 0 (index): expected true or false for 'reduced', found 0"),
    (lambda c: stage(c)["body"][3].update(value="x"),
     "stage 'dX', value 3 (constant): expected a FLOAT32 for 'value', found 'x'"),
    (lambda c: stage(c)["body"][3].update(value=10**400),
     "stage 'dX', value 3 (constant): expected a FLOAT32 for 'value', found 1000"),
    (lambda c: stage(c)["body"][3].update(value=0.1), "0.1 is no FLOAT32"),
    (lambda c: stage(c)["body"][4].update(operands=[2]),
     "stage 'dX', value 4 (gt): expected 2 operands, found [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[m[:30] for _, m in BROKEN])
def test_refuses_broken_content(change: Change, message: str) -> None:
    content = json.loads(ir.to_json(ir.parse(RELU_GRAD)))
    assert [i["op"] for i in stage(content)["body"]][:5] == [
        "index", "index", "load", "constant", "gt"
    ]  # fmt: skip
    change(content)
    with pytest.raises(DmlcError) as raised:
        ir.from_json(json.dumps(content))
    assert message in str(raised.value)


EVERY_KIND = """func @f(%X: f32[4]) -> (%Y) {
  table %t: s32[2] = {1, 2}
  %Y: f32[i0 < 2] = sum[r0 < 2 where lt(r0, cast(%t[i0], index))]
    select(gt(%X[r0], 1.0), %X[i0], 0.0)
}"""


def find_objects(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """An object of every kind, by how messages call it."""
    body = content["stages"][0]["body"]
    values = {i["op"]: f"stage 'Y', value {n} ({i['op']})" for n, i in enumerate(body)}
    return {
        "the function": content,
        "parameter 'X'": content["parameters"][0],
        "table 't'": content["tables"][0],
        "stage 'Y'": content["stages"][0],
        "stage 'Y', its reduction": content["stages"][0]["reduction"],
        "result 'Y'": content["results"][0],
        **{where: next(i for i in reversed(body) if i["op"] == op) for op, where in values.items()},
    }


def list_fields() -> list[tuple[str, str]]:
    """The fields of every kind of object, but for the names and operations that these are called
    by in messages."""
    objects = find_objects(json.loads(ir.to_json(ir.parse(EVERY_KIND))))
    called_by = {"the function": ("version", "tables", "checks", "loops")}
    return [
        (where, key)
        for where, content in objects.items()
        for key in content
        if key not in called_by.get(where, ("name", "op"))
    ]


def refuse(change: Callable[[dict[str, Any]], object], where: str) -> str:
    content = json.loads(ir.to_json(ir.parse(EVERY_KIND)))
    change(find_objects(content)[where])
    with pytest.raises(DmlcError) as raised:
        ir.from_json(json.dumps(content))
    return raised.value.diagnostics[0].message


def test_there_are_objects_of_every_kind() -> None:
    kinds = {where.partition("(")[2] for where, _ in list_fields()}
    assert kinds == {"", "index)", "load)", "cast)", "lt)", "gt)", "constant)", "select)"}


@pytest.mark.parametrize(("where", "key"), list_fields())
def test_every_field_is_asked_for_by_its_name(where: str, key: str) -> None:
    assert refuse(lambda c: c.pop(key), where) == f"{where}: '{key}' is missing"
    # Nothing is of this type.
    message = refuse(lambda c: c.update({key: {"a": 1}}), where)
    assert message.startswith(f"{where}{', its reduction' * (key == 'reduction')}: ")
    assert f"'{key}'" in message or message.endswith(": unknown field 'a'")


@pytest.mark.parametrize("where", dict.fromkeys(where for where, _ in list_fields()))
def test_a_field_that_nothing_has_is_named(where: str) -> None:
    message = refuse(lambda c: c.update(colour="red"), where)
    assert message == f"{where}: unknown field 'colour'"


def test_a_newer_minor_version_may_have_further_fields() -> None:
    function = ir.parse(EVERY_KIND)
    content = json.loads(ir.to_json(function))
    content["version"] = "2.7"
    for each in find_objects(content).values():
        each["novelty"] = {"anything": [1]}
    assert ir.from_json(json.dumps(content)) == function
    # What it means by an operation that is not known here nobody can tell.
    next(i for i in stage(content)["body"] if i["op"] == "gt")["op"] = "gr"
    with pytest.raises(DmlcError, match="unknown operation 'gr'"):
        ir.from_json(json.dumps(content))


def test_version_1_is_read() -> None:
    function = ir.parse(EVERY_KIND)
    content = json.loads(ir.to_json(function))
    content["version"] = 1
    for each in content["stages"]:
        each["domain"] = each.pop("extents")
    assert ir.from_json(json.dumps(content)) == function
    content["version"] = "2.0"
    with pytest.raises(DmlcError, match="stage 'Y': unknown field 'domain'"):
        ir.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null", '{"version": 1}'])
def test_refuses_other_text(text: str) -> None:
    with pytest.raises(DmlcError):
        ir.from_json(text)
