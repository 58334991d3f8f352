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
    assert content["version"] == 1
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
    (lambda c: c.update(version=2), "expected version 1 of the IR's JSON form, found 2"),
    (lambda c: c.update(name=3), "the function: expected a string, found 3"),
    (lambda c: c.update(stages={}), "the function: expected a list, found {}"),
    (lambda c: c.update(in_place=[["dX"]]), "in_place: expected pairs of a result and a parameter"),
    (lambda c: c.update(parameters=[1]), "a parameter: expected an object, found 1"),
    (lambda c: c["parameters"][0].update(dtype="F31"), "parameter 'X': expected a data type"),
    (lambda c: c["parameters"][0].update(strides=[1.5, 1]), "parameter 'X': expected an integer"),
    (lambda c: c["parameters"][0].update(extents=[-2, 3]), "at %X: an axis has size -2"),
    (lambda c: c["results"].append({"name": "Q", "strides": None}), "at result %Q: no stage"),
    (lambda c: stage(c).update(result=99), "stage 'dX': expected the number of one of"),
    (lambda c: stage(c).update(guard=True), "stage 'dX': expected an integer, found True"),
    (lambda c: stage(c).update(reduction={"combiner": "sum", "axes": [[1]]}), "label and extent"),
    (lambda c: stage(c)["body"].insert(0, {"op": "jump", "dtype": "FLOAT32", "operands": []}),
     "unknown operation 'jump'"),
    (lambda c: stage(c)["body"][2].update(indices=[8, 9]), "of 2 earlier values, found 8"),
    (lambda c: stage(c)["body"][0].update(reduced=0), "expected true or false for 'reduced'"),
    (lambda c: stage(c)["body"][3].update(value="x"), "stage 'dX': expected a FLOAT32, found 'x'"),
    (lambda c: stage(c)["body"][3].update(value=10**400), "stage 'dX': expected a FLOAT32"),
    (lambda c: stage(c)["body"][3].update(value=0.1), "0.1 is no FLOAT32"),
    (lambda c: stage(c)["body"][4].update(operands=[2]), "expected 2 operands of 'gt', found"),
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


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null", '{"version": 1}'])
def test_refuses_other_text(text: str) -> None:
    with pytest.raises(DmlcError):
        ir.from_json(text)
