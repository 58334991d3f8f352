"""The operators of DirectML have the fields that its schema has, in its order.

`directml_operators.json` holds facts of that schema: for each operator whether it may run in
place, and its fields with their kind, their type, and whether they may be left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dmlc import library
from dmlc.binding import Operator
from dmlc.language import syntax
from dmlc.language.definitions import AttributeDefinition, OperatorDefinition
from dmlc.testing.examples import read_cases

FILE = Path(__file__).parent.parent / "data" / "directml_operators.json"
OPERATORS: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))

BASES = {
    "bool": ("BOOL",),
    "float": ("FLOAT",),
    "float_array": ("FLOAT[]",),
    "int": ("INT",),
    "int_array": ("INT[]",),
    "operator_desc": ("STRING",),
    "operator_desc_array": ("STRING[]",),
    "scalar_union": ("NUMBER",),
    "scale_bias": ("FLOAT[]",),
    "size_2d": ("UINT[]",),
    "uint": ("UINT", "ENUM", "BOOL", "TYPE"),
    "uint_array": ("UINT[]",),
}
"""What an attribute may be for a type of the schema, which has enums, booleans and data types as
numbers."""
STRUCTURES = {"scale_bias": 2, "size_2d": 2}
"""Types that are structures, and of how many numbers."""
POINTERS = ("operator_desc", "scale_bias")
"""Types that a description may leave out: a number is always there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of an operator's description."""

    name: str
    kind: str
    type: str
    optional: bool


def fields_of(name: str) -> list[Field]:
    return [
        Field(field, kind, type_, need == "optional")
        for field, kind, type_, need in OPERATORS[name]["fields"]
    ]


def definition(name: str) -> OperatorDefinition:
    return library.find(f"directml.{name}").operators[f"directml.{name}"]


def test_every_operator_is_described() -> None:
    assert {f"directml.{name}" for name in OPERATORS} == {
        name for name in library.names() if name.startswith("directml.")
    }


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_are_those_of_the_schema(name: str) -> None:
    expected = [
        (f.name, f.kind == "output_tensor", f.optional, f.type == "tensor_desc_array")
        for f in fields_of(name)
        if f.kind != "attribute"
    ]
    tensors = definition(name).newest.tensors
    assert [(t.name, t.output, t.optional, t.array) for t in tensors] == expected


@pytest.mark.parametrize("name", OPERATORS)
def test_attributes_are_those_of_the_schema(name: str) -> None:
    expected = [f for f in fields_of(name) if f.kind == "attribute"]
    parameters = [f"{f.name}Parameters" for f in expected if f.type == "operator_desc"]
    if any(f.type == "operator_desc_array" for f in expected):
        parameters += ["ActivationAlphas", "ActivationBetas"]
    attributes = [a for a in definition(name).attributes if a.name not in parameters]
    assert [a.name for a in attributes] == [f.name for f in expected]
    for attribute, field in zip(attributes, expected, strict=True):
        base = attribute.base + ("[]" if attribute.is_array else "")
        assert base in BASES[field.type], attribute.name
        if field.type in STRUCTURES:
            assert literal(attribute.length) == STRUCTURES[field.type], attribute.name
        if field.optional and field.type in POINTERS:
            assert attribute.default is not None, attribute.name
    assert_lengths_are_named(attributes)


def literal(expression: syntax.Expression | None) -> object:
    return expression.value if isinstance(expression, syntax.Literal) else None


def assert_lengths_are_named(attributes: Sequence[AttributeDefinition]) -> None:
    """An array's length, where it is a field of the description, stands above the array."""
    names = [a.name for a in attributes]
    for place, attribute in enumerate(attributes):
        if isinstance(attribute.length, syntax.Reference) and attribute.length.name in names:
            assert attribute.length.name in names[:place]


RUNNING = ("CUMULATIVE_SUMMATION", "CUMULATIVE_PRODUCT")
"""What an element of a running total is made of is read for others too, in other kernels."""
IN_PLACE = [n for n in OPERATORS if OPERATORS[n]["in_place"] and n not in RUNNING]


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_may_run_in_place_does(name: str) -> None:
    """Where an input has the type of the output: elements of other types lie elsewhere."""
    operator = Operator(definition(name))
    function = next(read_cases(operator, operator.definition.examples[0])).call.function
    stored = {function.stage(r.name).dtype for r in function.results}
    alike = [p for p in function.parameters if p.dtype in stored]
    assert bool(function.in_place) == bool(alike)
