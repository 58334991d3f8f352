"""The built-in operators: found by name, true to their examples and to NumPy."""

from __future__ import annotations

import re
import time
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from dmlc import library
from dmlc.binding import Operator, TensorDesc
from dmlc.kernel.interpret import run_kernels
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.pipeline import compile_kernels, rewrite
from dmlc.reference import evaluate
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnknownNameError, UnsupportedError
from dmlc.testing.examples import read_cases
from dmlc.transform.loops import part_loops
from tests.library.run import list_unlike

SEEDS = (
    "directml.ACTIVATION_RELU",
    "directml.ACTIVATION_RELU_GRAD",
    "onednn.ReLU",
    "onednn.ReLUBackward",
)


def operator(name: str) -> Operator:
    return Operator(library.find(name).operators[name])


def test_names_are_sorted_and_hold_the_seeds() -> None:
    names = library.names()
    assert list(names) == sorted(names)
    assert set(SEEDS) <= set(names)


def test_every_file_holds_the_operator_it_is_named_after() -> None:
    for name in library.names():
        definition = library.find(name).operators[name]
        assert definition.doc
        assert definition.examples
        assert library.find(name) is library.find(name)


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError) as caught:
        library.find("directml.ACTIVATION_RELUU")
    assert (
        caught.value.diagnostics[0].notes[0].message == "did you mean 'directml.ACTIVATION_RELU'?"
    )


@pytest.mark.parametrize("name", library.names())
def test_files_are_formatted(name: str) -> None:
    source = library.find(name).operators[name].syntax.span.source
    assert format_file(parse(source)) == source.text


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("name", library.names())
def test_binding_and_simplifying_is_quick(name: str) -> None:
    """Each below 0.1 s; the fastest of ten, for a machine that does other things too."""
    example = operator(name).definition.examples[0]
    call = next(read_cases(operator(name), example)).call
    times: list[float] = []
    while len(times) < 10 and min(times, default=1.0) >= 0.1:
        start = time.process_time()
        for part in part_loops(operator(name).bind(call.tensors, call.attributes)):
            rewrite(part.function)
        times.append(time.process_time() - start)
    assert min(times) < 0.1


SPECIAL = [-3.0, -1e-40, -0.0, 0.0, 1e-40, 2.5, np.nan, np.inf, -np.inf]
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


def grid(dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Every pair of special values."""
    x, dy = np.meshgrid(SPECIAL, SPECIAL)
    return x.astype(dtype), dy.astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_directml_relu_grad_is_exact(dtype: npt.DTypeLike) -> None:
    x, dy = grid(dtype)
    op = operator("directml.ACTIVATION_RELU_GRAD")
    desc = TensorDesc(np.dtype(dtype).name, x.shape)
    function = op.bind({"InputTensor": desc, "InputGradientTensor": desc})
    found = evaluate(function, {"InputTensor": x, "InputGradientTensor": dy})
    expected = np.where(x > 0, dy, np.zeros_like(dy))
    np.testing.assert_array_equal(found["OutputGradientTensor"], expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("use_dst", [True, False])
def test_onednn_relu_backward_is_exact(dtype: npt.DTypeLike, use_dst: bool) -> None:
    x, dy = grid(dtype)
    desc = TensorDesc(np.dtype(dtype).name, x.shape)
    function = operator("onednn.ReLUBackward").bind(
        {"src": desc, "diff_dst": desc}, {"use_dst": use_dst}
    )
    found = evaluate(function, {"src": x, "diff_dst": dy})["diff_src"]
    expected = np.where(x.astype(np.float32) > 0, dy, np.zeros_like(dy))
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_onednn_types_do_not_mix() -> None:
    op = operator("onednn.ReLUBackward")
    with pytest.raises(DmlcError, match="combination of data types is not permitted"):
        op.bind({"src": TensorDesc("f32", (2,)), "diff_dst": TensorDesc("f16", (2,))})


def test_relu_takes_what_its_feature_level_takes() -> None:
    op = operator("directml.ACTIVATION_RELU")
    integers = {"InputTensor": TensorDesc("INT8", (2, 3))}
    assert op.bind(integers).stages[0].dtype is DataType.INT8
    with pytest.raises(DmlcError, match="'InputTensor' cannot be INT8"):
        op.bind(integers, level="DML_FEATURE_LEVEL_4_0")
    with pytest.raises(DmlcError, match="takes 4 or 5 dimensions"):
        op.bind({"InputTensor": TensorDesc("FLOAT32", (2,))}, level="DML_FEATURE_LEVEL_2_0")


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", list_unlike())
def test_no_kernel_scatters(name: str) -> None:
    """Each element of a result is stored by one work item, at its own place, and none by an atomic
    operation that depends on an order: a kernel reads nothing that it writes but in place, or what
    an earlier step of a loop wrote. A work item of a CPU reads back what it stored itself: the
    interpreter finds no other's. Bytes that share a word with those of another work item are put in
    by setting bits, which no order changes."""
    bound = operator(name)
    compiled = 0
    for example in bound.definition.examples:
        case = next(read_cases(bound, example))
        function = case.call.function
        for target in ("opencl", "hlsl"):
            try:
                program, fused, kernels = compile_kernels(function, target)
            except UnsupportedError:
                continue  # HLSL has few operations of FLOAT64
            compiled += 1
            steps = {n for r in program.repeats for n in range(r.first, r.last + 1)}
            steps |= {number for number, kernel in enumerate(kernels) if kernel.steps}
            for number, kernel in enumerate(program.kernels):
                assert re.search(r"atomic|atom_|Interlocked(?!And|Or)", kernel.source) is None
                if number not in steps and any(b.written and b.read for b in kernel.buffers):
                    assert kernels[number].launch.group_size == 1
                    run_kernels(fused, kernels, dict(case.inputs))
    assert compiled >= len(bound.definition.examples)
