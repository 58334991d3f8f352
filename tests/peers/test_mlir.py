"""Exported functions with IREE: a part of what `make mlir` runs."""

from __future__ import annotations

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from tests.goldens import CASES, read_case
from tests.peers.iree import Functions, optimize
from tests.peers.mlir_corpus import (
    find_wrong_cases,
    find_wrong_goldens,
    find_wrong_sizes,
    list_cases,
)
from tests.peers.mlir_operations import find_departures, read_list

PASSES = (
    "--canonicalize",
    "--cse",
    "--linalg-specialize-generic-ops",
    "--linalg-generalize-named-ops",
)
LOOPS = ("--one-shot-bufferize=bufferize-function-boundaries", "--convert-linalg-to-loops")


@pytest.mark.parametrize("flags", [(), PASSES, LOOPS], ids=["verify", "passes", "loops"])
def test_every_golden_case_goes_through_the_passes(flags: tuple[str, ...]) -> None:
    texts = [dmlc.mlir.export(read_case(case)) for case in CASES]
    made = optimize("\n// -----\n\n".join(texts), ["--split-input-file", *flags])
    assert made.count("func.func") == len(CASES)
    assert ("linalg.generic" in made) is (flags != LOOPS)


@pytest.mark.parametrize(("start", "passes"), [(0, ()), (40, PASSES)])
def test_examples_of_the_library(start: int, passes: tuple[str, ...]) -> None:
    assert list(find_wrong_cases(list_cases()[start::80], passes)) == []


def test_golden_cases() -> None:
    names = ["argmax_of_rows", "average_pool", "gather", "resample_linear", "doubles", "bytes"]
    assert list(find_wrong_goldens([n for n in names if n in CASES])) == []


def test_sizes_left_open() -> None:
    assert list(find_wrong_sizes(["average_pooling", "softmax"])) == []


def test_reductions_of_what_depends_on_positions_alone() -> None:
    texts = (
        "func @f() -> (%y) { %y: u16[i0 < 3] = product[r12 < 2] 91:u16 }",
        "func @f(%x: f32[n]) -> (%y) { %y: s32[] = sum[r0 < n] 3:s32 }",
        "func @f(%x: f32[n]) -> (%y) { %y: s32[] = sum[r0 < n, r1 < 3] cast(r1, s32) }",
    )
    functions = [ir.parse(text) for text in texts]
    made = Functions(functions)
    for number, function in enumerate(functions):
        inputs = {p.name: np.zeros(4, np.float32) for p in function.parameters}
        assert made.run(number, inputs)["y"].tolist() == evaluate(function, inputs)["y"].tolist()


@pytest.mark.parametrize("dtype", [DataType.INT8])
def test_operations(dtype: DataType) -> None:
    assert find_departures(dtype) == read_list(dtype)
