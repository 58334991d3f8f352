"""Holds what the table of operations says to what NumPy does: every edge case is a fact."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dmlc.ir import (
    COMBINERS,
    CONVERSIONS,
    OPERATIONS,
    BodyBuilder,
    DataType,
    Function,
    Reduction,
    Result,
    Stage,
    combiner_identity,
)
from dmlc.reference import evaluate
from dmlc.scalars import Array, convert, find_same

KINDS = {
    "float": (DataType.FLOAT32, DataType.FLOAT64),
    "signed": (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.INDEX),
    "unsigned": (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64),
    "boolean": (DataType.BOOL,),
}
KINDS["integer"] = (*KINDS["signed"], *KINDS["unsigned"])
FACTS = [
    (name, kind, fact)
    for name, operation in OPERATIONS.items()
    for kind, facts in operation.edges.items()
    for fact in facts.split("; ")
]


def read(text: str, dtype: DataType) -> Array:
    if text in ("MIN", "MAX"):
        value = getattr(np.iinfo(dtype.dtype), text.lower())
    elif text == "WIDTH":
        value = dtype.bytes * 8
    elif text in ("true", "false"):
        value = text == "true"
    else:
        value = float(text) if dtype.is_float else int(text)
    return np.array([value], dtype.dtype)


def test_every_operation_has_a_meaning_and_edge_cases() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.meaning
        assert operation.edges, name
        assert set(operation.edges) <= set(KINDS)
        # Floats have NaN and two zeros: what takes them says what it does there.
        floats = operation.operands.accept(DataType.FLOAT32)
        assert floats == ("float" in operation.edges), name


def takes(name: str, kind: str) -> list[DataType]:
    return [dtype for dtype in KINDS[kind] if OPERATIONS[name].operands.accept(dtype)]


@pytest.mark.parametrize(("name", "kind", "fact"), FACTS, ids=[fact for _, _, fact in FACTS])
def test_an_edge_case_is_a_fact(name: str, kind: str, fact: str) -> None:
    found = re.fullmatch(r"(\w+)\((.*)\) = (\S+)", fact)
    assert found is not None
    assert found[1] == name
    operation = OPERATIONS[name]
    assert takes(name, kind)
    for dtype in takes(name, kind):
        given = [read(text, dtype) for text in found[2].split(", ")]
        assert len(given) == operation.arity
        expected = read(found[3], operation.result_type(dtype))
        with np.errstate(all="ignore"):
            actual = np.asarray(operation.evaluate(*given))
        assert actual.dtype == expected.dtype
        assert find_same(actual, expected).all(), (dtype, actual)


@pytest.mark.parametrize(("source", "value", "to", "gives"), CONVERSIONS)
def test_a_conversion_is_a_fact(source: str, value: float, to: str, gives: float) -> None:
    target = DataType[to]
    given = np.array([value], DataType[source].dtype)
    expected = np.array([gives], target.dtype)
    assert type(gives) is type(expected[0].item())
    actual = convert(given, target)
    assert actual.dtype == expected.dtype
    assert find_same(actual, expected).all(), actual


@pytest.mark.parametrize("name", [c.name for c in COMBINERS.values() if not c.positional])
def test_a_reduction_of_nothing_is_the_identity(name: str) -> None:
    for dtype in DataType:
        if dtype is DataType.INDEX or not COMBINERS[name].accepts(dtype.compute):
            continue
        identity = combiner_identity(name, dtype.compute)
        literal = True if dtype is DataType.BOOL else 1
        body = BodyBuilder()
        value = body.make(body.constant(literal, dtype.compute))
        stage = Stage("y", dtype, (1,), value, Reduction(name, ((0, 0),)))
        found = evaluate(Function("f", (), (stage,), (Result("y"),)), {})["y"]
        expected = convert(np.array([identity], dtype.compute.dtype), dtype)
        assert found.dtype == expected.dtype
        assert find_same(found, expected).all()
        # And combined with a value it gives the value.
        one = np.array([literal], dtype.compute.dtype)
        with np.errstate(all="ignore"):
            combined = COMBINERS[name].operation.evaluate(np.array([identity], one.dtype), one)
        assert find_same(np.asarray(combined), one).all()
