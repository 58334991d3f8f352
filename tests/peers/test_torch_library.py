"""Every operator of the library, registered: its first example, and the same without values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import dmlc
from dmlc.binding import ir_name
from dmlc.binding.values import EnumValue
from dmlc.testing.case import Case
from dmlc.testing.examples import read_cases
from dmlc.torch import registration
from dmlc.torch.subjects import OperatorSubject, default_name
from dmlc.torch.tensors import TORCH_TYPES

WITHOUT_TENSORS = (
    "directml.DIAGONAL_MATRIX", "directml.FILL_VALUE_CONSTANT", "directml.FILL_VALUE_SEQUENCE",
)  # fmt: skip
NAMES = [name for name in dmlc.operators() if name not in WITHOUT_TENSORS]


def spell(value: object) -> object:
    """An attribute as PyTorch takes it."""
    if isinstance(value, tuple | list):
        return [spell(each) for each in value]
    return str(value) if isinstance(value, EnumValue) else value


def make_subject(case: Case) -> OperatorSubject:
    """The operator with the outputs that the example has."""
    given = case.call.outputs
    rows = case.call.operator.definition.newest.outputs
    optional = tuple(t.name for t in rows if t.optional and t.name in given)
    counts = {t.name: sum(n.partition("[")[0] == t.name for n in given) for t in rows if t.array}
    return OperatorSubject(case.call.operator, optional, tuple(counts.items()))


def gather(case: Case, tensors: Mapping[str, torch.Tensor]) -> list[Any]:
    """The arguments in the order of the table."""
    args: list[Any] = []
    for row in case.call.operator.definition.newest.inputs:
        if row.array:
            names = [n for n in tensors if n.partition("[")[0] == row.name]
            args.append([tensors[n] for n in names])
        else:
            args.append(tensors.get(row.name))
    return args


@pytest.mark.parametrize("name", NAMES)
def test_the_first_example(name: str) -> None:
    operator = dmlc.operator(name)
    case = next(read_cases(operator, operator.definition.examples[0]))
    tensors = {
        n: torch.from_numpy(case.inputs[n].astype(np.float64 if d.data_type.is_float else None))
        .to(TORCH_TYPES[d.data_type])
        for n, d in case.call.inputs.items()
    }  # fmt: skip
    settings = {n: spell(value) for n, value in case.call.attributes.items()}
    subject = make_subject(case)
    for row in subject.outputs:
        desc = case.call.outputs[row.name]
        if row.sizes:
            settings[f"{ir_name(row.name)}_sizes"] = list(desc.sizes or ())
        if row.types:
            settings[f"{ir_name(row.name)}_dtype"] = TORCH_TYPES[desc.data_type]
    op = registration.register_subject(subject, default_name(subject)).op
    found = op(*gather(case, tensors), **settings)
    results = [found] if isinstance(found, torch.Tensor) else list(found)
    fake = op(*gather(case, {n: t.to("meta") for n, t in tensors.items()}), **settings)
    shapes = [fake] if isinstance(fake, torch.Tensor) else list(fake)
    for row, result, shape in zip(subject.outputs, results, shapes, strict=True):
        assert (result.shape, result.dtype, result.stride()) == (
            shape.shape, shape.dtype, shape.stride(),
        )  # fmt: skip
        if row.name in case.expected:
            exact = torch.from_numpy(np.asarray(case.expected[row.name], np.float64))
            torch.testing.assert_close(result.double(), exact, rtol=1e-2, atol=1e-3, equal_nan=True)
