"""Comparison of a device's results with the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.ir import Function
from dmlc.oracle import find_expected
from dmlc.parameters import expect, expect_mapping
from dmlc.runtime.floats import LEAST, FloatPromises
from dmlc.scalars import Array, held_type
from dmlc.source import DmlcError
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict


def verify(
    subject: Operator | Graph | Function,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object],
    results: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
    floats: FloatPromises = LEAST,
) -> dict[str, Verdict]:
    """Evaluates an operator, a graph or a function in NumPy and compares each result with it.
    `floats` are the promises of the device that gave the results."""
    inputs = {n: _expect_array("inputs", n, a) for n, a in _expect_arrays("inputs", inputs)}
    results = {n: _expect_array("results", n, a) for n, a in _expect_arrays("results", results)}
    tensors = {name: _describe(name, array) for name, array in {**inputs, **results}.items()}
    function = (
        subject
        if isinstance(subject, Function)
        else bind_for_arrays(subject, tensors, attributes, dims)
    )
    spelt = {ir_name(name): array for name, array in inputs.items()}
    given = {p.name: spelt[p.name] for p in function.parameters}
    expected, allowed = find_expected(function, given), bound_errors(function, given, floats)
    verdicts: dict[str, Verdict] = {}
    for name, array in results.items():
        own = ir_name(name)
        verdicts[name] = Verdict.of(array, expected[own], allowed[own])
    return verdicts


def bind_for_arrays(
    subject: Operator | Graph,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, object],
    dims: Mapping[str, int] | None,
) -> Function:
    """Function for these tensors: an operator takes attributes, a graph symbols."""
    if isinstance(subject, Graph):
        return subject.bind(tensors, dims)
    return expect("subject", subject, Operator, "a dmlc.Operator or a dmlc.Graph").bind(
        tensors, attributes
    )


def _expect_arrays(parameter: str, given: object) -> Iterable[tuple[str, object]]:
    return expect_mapping(parameter, given, "a mapping of names to arrays").items()


def _expect_array(parameter: str, name: str, given: object) -> Array:
    return expect(f"{parameter}['{name}']", given, np.ndarray, "an array")


def _describe(name: str, array: Array) -> TensorDesc:
    dtype = held_type(array.dtype)
    if dtype is None:
        raise DmlcError(f"'{name}' holds {array.dtype}, which no tensor can hold")
    return TensorDesc(dtype, array.shape)
