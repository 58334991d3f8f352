"""Every operator with every size of its examples left open: the same results, or a refusal that
says which size is in the way."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import Operator, TensorDesc
from dmlc.binding import ir_name
from dmlc.binding.operator import Description
from dmlc.ir import Function
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import compile_kernels, make_kernels
from dmlc.reference import evaluate
from dmlc.source import DmlcError
from dmlc.testing.case import Case
from dmlc.testing.examples import read_cases

KINDS = (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"))
SAYS = (
    "left open", "is known at run time only", "broken constraint", "sizes are needed here",
    "the sizes of", "a window",
)  # fmt: skip
"""What a refusal speaks of."""


def list_cases(operator: Operator) -> list[Case]:
    """Each example of an operator, with the first data types that hold it."""
    return [next(read_cases(operator, example)) for example in operator.definition.examples]


def open_sizes(described: Mapping[str, Description]) -> dict[str, Description]:
    """The same descriptions with names for sizes above 1: one for each size."""

    def leave_open(sizes: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return tuple(e if isinstance(e, int) and e < 2 else f"S{e}" for e in sizes)

    return {
        name: TensorDesc(d.data_type, leave_open(d.sizes or ()))
        if isinstance(d, TensorDesc)
        else leave_open(tuple(d))
        for name, d in described.items()
    }


def bind_open(operator: Operator, case: Case, kind: tuple[str, str]) -> Function | str:
    """An example with its sizes left open, or why it does not compile so."""
    try:
        function = operator.bind(open_sizes(case.call.tensors), case.call.attributes)
        make_kernels(function, *kind)
    except DmlcError as error:
        return str(error)
    return function


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", dmlc.operators())
def test_examples_with_sizes_left_open(name: str) -> None:
    operator = dmlc.operator(name)
    kinds = itertools.cycle(KINDS)
    for case in list_cases(operator):
        function = bind_open(operator, case, next(kinds))
        if isinstance(function, str):
            assert any(words in function for words in SAYS), function
            continue
        program, fused, kernels = compile_kernels(function, *next(kinds))
        inputs = {ir_name(n): array for n, array in case.inputs.items()}
        known = evaluate(case.call.function, inputs)
        sizes = {f"S{size}": size for array in inputs.values() for size in array.shape}
        got = run_kernels(fused, kernels, inputs, order=program.order(sizes))
        found = evaluate(function, inputs)
        for result, wanted in known.items():
            assert np.array_equal(found[result], wanted, equal_nan=True), case.title
            wide = wanted.astype(np.float64)
            near = np.allclose(got[result].astype(np.float64), wide, 2e-3, 1e-3, equal_nan=True)
            assert near, case.title


def test_most_of_the_library_takes_some() -> None:
    """Element-wise work, normalization, softmax, sums and products do, whatever is left open."""
    served: list[str] = []
    for name, operator in dmlc.operators().items():
        for case in list_cases(operator):
            described = open_sizes(case.call.tensors)
            try:
                operator.bind(described, case.call.attributes)
            except DmlcError:
                continue
            served.append(name)
            break
    assert len(served) >= 40, served
    families = ("NORMALIZATION", "SOFTMAX", "GEMM", "REDUCE", "RELU", "ADAM")
    for family in families:
        named = [n for n in dmlc.operators() if family in n]
        assert named, family
        assert [n for n in named if n not in served] == [], family
