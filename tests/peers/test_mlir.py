"""Exported functions with IREE: a part of what `make mlir` runs."""

from __future__ import annotations

import pytest

import dmlc
from dmlc.scalars import DataType
from tests.goldens import CASES, read_case
from tests.peers.iree import optimize
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


@pytest.mark.parametrize("dtype", [DataType.INT8])
def test_operations(dtype: DataType) -> None:
    assert find_departures(dtype) == read_list(dtype)
