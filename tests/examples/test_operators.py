"""The example operators: how they are laid out, and gradients that two files have, one by a formula
and one by derivation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.scalars import Array
from dmlc.source import Source

FOLDER = Path(__file__).resolve().parents[2] / "examples"
MISTAKEN = {"mistakes.dml", "mistaken_graph.dml"}
FILES = sorted(p.name for p in FOLDER.glob("*.dml") if p.name not in MISTAKEN)
PASTED = {"relu_grad.dml"}
"""Those that show a table as a reference page has it."""


@pytest.mark.parametrize("name", [n for n in FILES if n not in PASTED])
def test_files_are_formatted_and_have_no_warnings(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert format_file(parse(Source(name, text))) == text
    assert dmlc.load(FOLDER / name).diagnostics == ()


def find(file: str, name: str) -> dmlc.Operator:
    return dmlc.load(FOLDER / f"{file}.dml").operators[name]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("device", ["opencl", "reference"])
def test_the_derived_gradient_of_hard_swish_is_the_written_one(device: str, dtype: type) -> None:
    """At the ends of the line too, at zeros of both signs, infinities and NaN: exactly in what is
    chosen, and within the roundings of a sum that each formula takes in an order of its own."""
    name = "activations.HARD_SWISH_GRAD"
    special = [0.0, -0.0, -2.0, 2.0, -4.0, 4.0, np.inf, -np.inf, np.nan]
    src = np.concatenate([special, np.linspace(-5, 5, 101)]).astype(dtype)
    given = {"src": src, "diff_dst": np.linspace(1, 2, src.size).astype(dtype)}
    attributes = {"Alpha": 0.25, "Beta": 0.5}
    written, derived = (
        dmlc.run(find(file, name), given, attributes, device=device)["diff_src"]
        for file in ("hard_swish_grad", "hard_swish")
    )
    np.testing.assert_array_equal(derived == 0, written == 0)
    rounding = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(derived, written, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("size", "outputs"), [(8, 16), (9, 9), (10, 25), (12, 4)])
def test_the_derived_gradient_of_bicubic_resampling_is_the_written_one(
    size: int, outputs: int
) -> None:
    name = "resampling.BICUBIC_GRAD"
    arriving: Array = np.random.default_rng(0).standard_normal((3, outputs)).astype(np.float32)
    attributes = {"Scales": [1, outputs / size]}
    written, derived = (
        dmlc.run(
            find(file, name), {"diff_dst": arriving}, attributes, {"diff_src": (3, size)}
        )["diff_src"]
        for file in ("bicubic_grad", "bicubic")
    )  # fmt: skip
    np.testing.assert_allclose(derived, written, rtol=1e-6, atol=1e-6)
