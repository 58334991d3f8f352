"""Assertions for tests of operators: equality with the reference, and correctness of a gradient.

A failure reports, for each wrong output, the worst element: its index, the value computed and the
value expected, the error, and the bound.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from dmlc.api import Outputs
from dmlc.binding import Operator, TensorDesc
from dmlc.binding.operator import Description, read_attributes
from dmlc.catalog import operator
from dmlc.devices import find_promises
from dmlc.parameters import expect, expect_mapping, expect_text, wrong_kind
from dmlc.scalars import Array, held_type
from dmlc.source import ArgumentError, DmlcError
from dmlc.testing.case import Call, Case, judge, run_case
from dmlc.testing.compare import Verdict
from dmlc.testing.pairs import check_derived, check_differences, check_pair, find_forward
from dmlc.testing.power import find_loose

_Value = bool | int | float

Arrays = Mapping[str, Array | Sequence[Array] | None]


def assert_matches_reference(
    subject: str | Operator | Case,
    inputs: Arrays | None = None,
    attributes: Mapping[str, object] | None = None,
    *,
    device: str = "opencl",
    outputs: Outputs | None = None,
) -> dict[str, Array]:
    """Runs an operator on a device and compares each result with the reference, within the error
    bound computed for each element. Returns the results by name.

    `subject` is an operator, or the name of one of the library, with `inputs` (arrays by name, of
    any strides; a list for an array of tensors), `attributes`, and `outputs`, arrays or sizes by
    name, as `dmlc.run` takes them; or it is a `Case`, which has all of these. `device` is `opencl`,
    `vulkan`, `d3d12` or `wgpu`, optionally followed by `:` and an index or part of a name.

    Raises `AssertionError` for a wrong result, and `DmlcError` for a call that the operator
    refuses. Warns (`UserWarning`) if the bounds exceed the results at more than a quarter of an
    output's inexact elements: other inputs test more.
    """
    __tracebackhide__ = True
    case = _make_case(subject, inputs, attributes, outputs)
    expect_text("device", device, "the name of a device")
    results, floats = run_case(case, device), find_promises(device)
    wrong = {name: v for name, v in judge(case, results, floats).items() if not v.holds}
    name = case.call.operator.name
    if wrong:
        lines = [f"{name} on {device} does not give what the reference gives"]
        lines += [f"  {output}{_describe(verdict)}" for output, verdict in wrong.items()]
        raise AssertionError("\n".join([*lines, f"  for {case.call}"]))
    weakness = find_loose(case)
    if weakness is not None:
        said = f"{name} on {device} is held to little: {weakness}\n  for {case.call}"
        warnings.warn(said, stacklevel=2)
    return results


def assert_gradient(
    subject: str | Operator | Case,
    inputs: Arrays | None = None,
    attributes: Mapping[str, object] | None = None,
    *,
    outputs: Outputs | None = None,
) -> None:
    """Compares a gradient with its forward operator, in float64 and away from kinks: with the
    gradient that dmlc derives, and with finite differences. No device is needed.

    An operator with a `forward` operator, or with `gradient of`, is called with the gradient's
    inputs; those that are results of the forward operator are recomputed. For any other operator
    the gradient that dmlc derives is compared with finite differences, for all floating-point
    inputs. Parameters are those of `assert_matches_reference`. Finite differences take two
    evaluations per input element: use small arrays.

    Raises `AssertionError` if the gradient is wrong or no element could be compared, and
    `DmlcError` if it cannot be compared with its forward operator.
    """
    __tracebackhide__ = True
    case = _make_case(subject, inputs, attributes, outputs)
    name = case.call.operator.name
    if case.call.operator.definition.forward is None:
        checks, of = [check_derived], name
    else:
        checks, of = [check_pair, check_differences], find_forward(case.call.operator).name
    judged = 0
    for check in checks:
        found = check(case)
        wrong = [f"  {output}: {v}" for output, v in found.items() if not v.holds]
        if wrong:
            means = "differences of" if check is not check_pair else "what is derived from"
            who = f"what is derived from {of}" if check is check_derived else name
            lines = [f"{who} is not the gradient of {of}, by {means} that", *wrong]
            raise AssertionError("\n".join([*lines, f"  for {case.call}"]))
        judged += sum(verdict.judged for verdict in found.values())
    if not judged:
        raise AssertionError(
            f"nothing is shown of the gradient of {of}: all elements are at kinks, or not finite\n"
            f"  for {case.call}"
        )


def _describe(verdict: Verdict) -> str:
    """Text of an output's error."""
    worst, most = verdict.worst, verdict.most
    got, expected = cast(_Value, verdict.found), cast(_Value, verdict.wanted)
    place = f" at {list(worst)}" if worst else ""
    error = abs(float(got) - float(expected))
    used = f"the error is {error:.3g}" if np.isfinite(error) else "they are infinitely far apart"
    allowed = f"{most:.3g} is allowed" if most else "none is allowed"
    count = f"{verdict.different:,} of {verdict.elements:,} elements differ"
    return f"{place}: got {got:.9g}, expected {expected:.9g}; {used}, and {allowed} ({count})"


# Cases ----------------------------------------------------------------------------------------


def _make_case(
    subject: object,
    inputs: Arrays | None,
    attributes: Mapping[str, object] | None,
    outputs: Outputs | None,
) -> Case:
    """Case of an assertion's parameters."""
    if isinstance(subject, Case):
        for name, given in (("inputs", inputs), ("attributes", attributes), ("outputs", outputs)):
            if given is not None:
                raise ArgumentError(f"a Case has its {name}: leave out {name}=")
        return subject
    found = operator(subject) if isinstance(subject, str) else subject
    if not isinstance(found, Operator):
        raise wrong_kind("subject", "an operator, the name of one, or a Case", found)
    arrays = dict(_list_arrays("inputs", inputs))
    stated = read_attributes(attributes)
    described: dict[str, Description] = {n: _describe_array(n, a) for n, a in arrays.items()}
    for name, value in _list_entries("outputs", outputs):
        described[name] = (
            _describe_array(name, cast(Array, value))
            if isinstance(value, np.ndarray)
            else cast("Sequence[int]", value)
        )
    binding = found.resolve(described, stated)
    tensors: dict[str, TensorDesc] = {}
    for tensor in binding.tensors.values():
        if tensor.dtype is None or tensor.sizes is None:
            raise DmlcError(f"the data type and the sizes of '{tensor.name}' do not follow")
        tensors[tensor.name] = TensorDesc(tensor.dtype, tensor.sizes)
    return Case(Call(found, tensors, stated), arrays, "a test's arrays")


def _list_entries(parameter: str, given: object) -> Iterator[tuple[str, object]]:
    """Values given by name, with arrays of tensors entry by entry."""
    if given is None:
        return
    named = expect_mapping(parameter, given, "a mapping of tensors' names")
    for name, value in named.items():
        items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else None
        if items is not None and any(isinstance(item, np.ndarray | list | tuple) for item in items):
            yield from ((f"{name}[{number}]", item) for number, item in enumerate(items))
        elif value is not None:
            yield name, value


def _list_arrays(parameter: str, given: object) -> Iterator[tuple[str, Array]]:
    for name, value in _list_entries(parameter, given):
        yield name, expect(f"{parameter}['{name}']", value, np.ndarray, "an array")


def _describe_array(name: str, array: Array) -> TensorDesc:
    dtype = held_type(array.dtype)
    if dtype is None:
        raise DmlcError(f"'{name}' holds {array.dtype}, which no tensor can hold")
    return TensorDesc(dtype, array.shape)
