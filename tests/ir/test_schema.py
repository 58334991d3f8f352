"""The JSON Schemas of the IR's forms: what is written is of them, and what is broken is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dmlc
from dmlc import compiler, ir, library
from dmlc.catalog import operator
from dmlc.source import DmlcError
from dmlc.testing.examples import read_cases
from docs.build import GRAPH_SIZES
from tests.ir.test_json import EVERY_KIND, find_objects, list_fields

ROOT = Path(dmlc.__file__).parent
FUNCTION, FUSION, KERNEL = (
    jsonschema.Draft202012Validator(json.loads((ROOT / name).read_text("utf-8")))
    for name in (
        "ir/function.schema.json",
        "transform/fusion.schema.json",
        "kernel/kernel.schema.json",
    )
)


def find_faults(validator: jsonschema.Draft202012Validator, content: object) -> list[str]:
    return [error.message for error in validator.iter_errors(content)]


def test_they_are_schemas() -> None:
    written = (ir.function_schema(), compiler.fusion_schema(), compiler.kernel_schema())
    for validator, schema in zip((FUNCTION, FUSION, KERNEL), written, strict=True):
        jsonschema.Draft202012Validator.check_schema(validator.schema)
        assert validator.schema == schema, "run `make docs`"


@pytest.mark.parametrize("name", GRAPH_SIZES)
def test_graphs(name: str) -> None:
    path = ROOT.parent / "examples" / "graphs" / f"{name}.dml"
    function = dmlc.load(path).graphs[name].bind(dims=GRAPH_SIZES[name])
    assert find_faults(FUNCTION, json.loads(ir.to_json(function))) == []
    fusion = compiler.find_fusion(function)
    text = compiler.fusion_to_json(fusion)
    assert find_faults(FUSION, json.loads(text)) == []
    assert compiler.fusion_from_json(text) == fusion
    # The grouping is that of the fused function, and its moves are what `dmlc ir` shows.
    content = json.loads(text)
    for group, kernel in zip(fusion.groups, content["kernels"], strict=True):
        moved = [sum(move[what] for move in kernel["moves"]) for what in ("read", "written")]
        assert tuple(moved) == fusion.traffic(group)


@pytest.mark.parametrize("name", library.names())
def test_operators(name: str) -> None:
    example = operator(name).definition.examples[0]
    call = next(read_cases(operator(name), example)).call
    function = operator(name).bind(call.tensors, call.attributes)
    assert find_faults(FUNCTION, json.loads(ir.to_json(function))) == []


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_kernels(target: str) -> None:
    path = ROOT.parent / "examples" / "graphs" / "softmax_cross_entropy_backward.dml"
    graph = dmlc.load(path).graphs["softmax_cross_entropy_backward"]
    _, kernels = compiler.make_kernels(graph.bind(dims={"N": 64, "K": 1000}), target)
    assert kernels
    for kernel in kernels:
        content = json.loads(compiler.kernel_to_json(kernel))
        assert find_faults(KERNEL, content) == []
        content["body"][0]["op"] = "go_to"
        assert find_faults(KERNEL, content) != []


Change = Callable[[dict[str, Any]], object]

BROKEN: list[Change] = [
    lambda c: c.update(version="2.2"),
    lambda c: c.pop("name"),
    lambda c: c["parameters"][0].update(dtype="F31"),
    lambda c: c["parameters"][0].update(extents=[1.5]),
    lambda c: c["parameters"][0].update(strides=["a b", {}]),
    lambda c: c["stages"][0].update(guard="0"),
    lambda c: c["stages"][0]["reduction"].update(combiner="total"),
    lambda c: c["stages"][0]["reduction"].update(axes=[[0]]),
    lambda c: c["stages"][0]["body"][0].update(op="indx"),
    lambda c: next(i for i in c["stages"][0]["body"] if i["op"] == "gt").update(operands=[0]),
    lambda c: next(i for i in c["stages"][0]["body"] if i["op"] == "cast").update(operands=[0, 0]),
    lambda c: next(i for i in c["stages"][0]["body"] if i["op"] == "select").update(operands=[0]),
    lambda c: next(i for i in c["stages"][0]["body"] if i["op"] == "constant").update(value="x"),
    lambda c: c.update(in_place=[["Y", "X", "Y"]]),
]


@pytest.mark.parametrize("change", BROKEN)
def test_broken_documents_are_refused(change: Change) -> None:
    content = json.loads(ir.to_json(ir.parse(EVERY_KIND)))
    assert find_faults(FUNCTION, content) == []
    change(content)
    assert find_faults(FUNCTION, content) != []


@pytest.mark.parametrize(("where", "key"), list_fields())
def test_every_field_is_asked_for_and_has_a_type(where: str, key: str) -> None:
    content = json.loads(ir.to_json(ir.parse(EVERY_KIND)))
    changed = find_objects(content)[where]
    value = changed.pop(key)
    assert find_faults(FUNCTION, content) != []
    changed[key] = {"a": value}
    assert find_faults(FUNCTION, content) != []
    changed |= {key: value, "colour": "red"}
    assert find_faults(FUNCTION, content) != []


def test_a_broken_fusion_is_refused() -> None:
    fusion = compiler.fuse(ir.parse(EVERY_KIND))
    for change, message in [
        (lambda c: c["kernels"][0].update(stages=["Z"]), "unknown stage of kernel 0 'Z'"),
        (lambda c: c["kernels"][0].pop("reasons"), "the fusion, kernel 0: 'reasons' is missing"),
        (lambda c: c["kernels"][0]["moves"][0].update(read="8"), "expected an integer for 'read'"),
        (lambda c: c["function"]["stages"][0].update(extents=[9]),
         "'function' breaks a rule of the IR at %Y"),
    ]:  # fmt: skip
        content = json.loads(compiler.fusion_to_json(fusion))
        change(content)
        with pytest.raises(DmlcError) as raised:
            compiler.fusion_from_json(json.dumps(content))
        assert message in str(raised.value)
