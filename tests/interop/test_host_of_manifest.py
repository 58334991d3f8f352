"""A host that knows a manifest alone, and C's rules for its formulas: it runs programs of open
sizes, whichever versions of their kernels these take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import dmlc
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict
from tests.open_sizes import SUBJECTS, evaluate_formula
from tests.opencl_launch import build, open_queue


def run(folder: Path, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The outputs of the program in a folder."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    queue = open_queue()
    buffers: dict[str, cl.Buffer] = {}
    arrays: dict[str, Array] = {}
    for tensor in manifest["tensors"]:
        known = tensor["bytes"]
        size = evaluate_formula(tensor["formulas"]["bytes"], sizes) if known is None else known
        buffers[tensor["name"]] = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, max(4, size))
        if tensor["role"] == "input":
            cl.enqueue_copy(queue, buffers[tensor["name"]], inputs[tensor["name"]])
        if tensor["role"] == "output":
            shape = tuple(evaluate_formula(extent, sizes) for extent in tensor["sizes"])
            arrays[tensor["name"]] = np.zeros(shape, tensor["data_type"].lower())
    for said in manifest["kernels"]:
        dispatch = said["dispatch"]
        formulas = dispatch["groups"] or dispatch["formulas"]
        groups, *_ = (evaluate_formula(formula, sizes) for formula in formulas)
        if groups == 0:
            continue
        program = build((folder / said["file"]).read_text("utf-8"))
        kernel = cl.Kernel(program, said["entry_point"])
        for buffer in said["buffers"]:
            kernel.set_arg(buffer["argument"], buffers[buffer["tensor"]])
        for scalar in said["scalars"]:
            value = evaluate_formula(scalar["value"], sizes)
            kernel.set_arg(scalar["argument"], np.dtype(scalar["type"].lower()).type(value))
        size, _, _ = said["group_size"]
        cl.enqueue_nd_range_kernel(queue, kernel, (groups * size,), (size,))
    for name, array in arrays.items():
        cl.enqueue_copy(queue, array, buffers[name])
    return arrays


RUNS = {
    "whole_sum": [{"R": 1, "C": c} for c in (1, 17, 4096, 1_000_003)],
    "softmax": [{"R": 2, "C": c} for c in (1, 17, 4096, 1_000_003)] + [{"R": 300, "C": 9}],
    "layer_norm": [{"T": 2, "C": c} for c in (1, 17, 4096, 100_003)] + [{"T": 4096, "C": 3}],
    "gemm": [
        {"M": 1, "N": 1, "K": 1}, {"M": 70, "N": 17, "K": 33}, {"M": 17, "N": 70, "K": 4096},
        {"M": 3, "N": 4096, "K": 17}, {"M": 2, "N": 3, "K": 1_000_003},
        {"M": 300, "N": 64, "K": 2000},
    ],
}  # fmt: skip


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_all_versions(name: str, profile: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    dmlc.compile(subject.bind(), "opencl", profile).write(tmp_path)
    for sizes in RUNS[name]:
        inputs = subject.make(sizes, 0)
        bound = subject.bind(sizes)
        (name, wanted), *_ = evaluate(bound, inputs).items()
        got = run(tmp_path, inputs, sizes)[name]
        verdict = Verdict.of(got, wanted, bound_errors(bound, inputs)[name])
        assert verdict.holds, f"{sizes}: {verdict}"


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_it_scans_rows_of_any_length(profile: str, tmp_path: Path) -> None:
    """What is scanned are whole numbers, whose sums no order of additions changes."""
    dmlc.compile(SUBJECTS["scan"].bind(), "opencl", profile).write(tmp_path)
    for size in (1, 17, 4096, 4097, 1_000_003):
        x = np.random.default_rng(size).integers(-2, 3, size).astype(np.float32)
        got = run(tmp_path, {"InputTensor": x}, {"N": size})["OutputTensor"]
        np.testing.assert_array_equal(got, np.cumsum(x))


def test_it_gives_attributes_that_are_left_open(tmp_path: Path) -> None:
    given = {"InputTensor": dmlc.TensorDesc("FLOAT32", ("N",))}
    function = dmlc.operator("directml.ACTIVATION_LEAKY_RELU").bind(given, {"Alpha": dmlc.OPEN})
    dmlc.compile(function, "opencl").write(tmp_path)
    inputs = {"InputTensor": np.array([-8, 3], np.float32), "Alpha": np.array(0.5, np.float32)}
    assert run(tmp_path, inputs, {"N": 2})["OutputTensor"].tolist() == [-4, 3]
