"""The table of what operators do: it has every operator of the library, and only names that are."""

from __future__ import annotations

from collections import Counter

import onnx.defs

from dmlc import library
from dmlc.library.equivalents import FAMILIES, list_operations, list_other_names, suggest_operators


def test_every_operator_of_the_library_has_a_task() -> None:
    listed = {name for operation in list_operations() for name in operation.operators}
    assert listed == set(library.names())
    assert {name.partition(".")[0] for name in listed} == set(FAMILIES)


def test_each_thing_stands_once_in_its_task() -> None:
    counted = Counter((o.task, o.what) for o in list_operations())
    assert [row for row, count in counted.items() if count > 1] == []


def test_names_of_onnx_are_operators_of_onnx() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    named = {name for operation in list_operations() for name in operation.onnx}
    assert named <= known


def test_other_names() -> None:
    assert list_other_names("directml.ACTIVATION_RELU_GRAD") == ("onednn.ReLUBackward",)
    assert list_other_names("onednn.ReLU") == (
        "directml.ACTIVATION_RELU", "onnx.Relu", "torch.nn.functional.relu",
    )  # fmt: skip
    assert list_other_names("activations.MINE") == ()


def test_names_of_others_are_known() -> None:
    assert suggest_operators("onnx.CumSum") == "did you mean 'directml.CUMULATIVE_SUMMATION'?"
    assert suggest_operators("onednn.relu") == "did you mean 'onednn.ReLU'?"
    assert suggest_operators("directml.NO_SUCH") is None
