"""The datasheets of operators: their code runs, and they have every section."""

from __future__ import annotations

import doctest
import math
import re
from pathlib import Path

import pytest

import dmlc
from dmlc import cli
from dmlc.datasheet import write_datasheet
from dmlc.datasheet.enlarge import enlarge
from dmlc.datasheet.sections import find_case
from dmlc.datasheet.usage import write_command, write_cpp, write_python
from dmlc.interop.cpp_header import header_name, write_header
from dmlc.testing.case import Call
from tests.interop.d3d12.compiler import check_syntax

SESSIONS = (
    "directml.GEMM", "directml.CAST", "directml.ELEMENT_WISE_LOGICAL_NOT", "directml.JOIN",
    "directml.QUANTIZE", "directml.RESAMPLE1", "training.LSTM_CELL_GRAD",
)  # fmt: skip
"""Operators with enumerations, BOOL, arrays of tensors, and results of a size or type of their
own."""


def find_call(name: str) -> Call:
    case = find_case(dmlc.operator(name))
    assert case is not None
    return case.call


@pytest.mark.parametrize("name", SESSIONS)
def test_the_session_of_python_gives_what_it_shows(name: str) -> None:
    case = find_case(dmlc.operator(name))
    assert case is not None
    text = "\n".join([*write_python(case), ""]).replace("dmlc.run(", "run(")

    def run(*given: object, **named: object) -> object:
        return dmlc.run(*given, **named, device="reference")  # type: ignore[arg-type]

    session = doctest.DocTestParser().get_doctest(text, {"run": run}, name, None, None)
    result = doctest.DocTestRunner(verbose=False).run(session)
    assert result.attempted > 2
    assert result.failed == 0


def test_the_code_in_cpp_compiles(tmp_path: Path) -> None:
    sources: list[Path] = []
    for name in ("directml.GEMM", "training.LSTM_CELL_GRAD"):
        program = dmlc.compile(find_call(name).function, target="hlsl", root_signature=False)
        (tmp_path / header_name(program)).write_text(write_header(program), "utf-8")
        sources.append(tmp_path / f"{name}.cpp")
        sources[-1].write_text("\n".join([*write_cpp(program), ""]), "utf-8")
    check_syntax(sources, [tmp_path])


def test_a_command_takes_its_own_description(capsys: pytest.CaptureFixture[str]) -> None:
    call = find_call("directml.RESAMPLE1")
    lines = write_command("ir", call, "--after fuse")
    assert all(len(line) <= 100 for line in lines)
    words = " ".join(line.removesuffix("\\") for line in lines).replace("'", "").split()
    assert cli.run(words[1:]) == 0
    assert "func @RESAMPLE1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("directml.GEMM", {"ATensor": (1024, 1024), "BTensor": (1024, 1536)}),
        # The window stays, and the channels of both tensors grow together.
        ("directml.CONVOLUTION", {"InputTensor": (32, 32, 32, 96), "FilterTensor": (1, 32, 1, 2)}),
        ("directml.GATHER", {"InputTensor": (1572864,), "IndicesTensor": (2097152,)}),
    ],
)
def test_the_axes_that_can_grow_do(name: str, expected: dict[str, tuple[int, ...]]) -> None:
    larger = enlarge(find_call(name))
    assert larger is not None
    assert {tensor: larger.tensors[tensor].sizes for tensor in expected} == expected
    bytes_ = [
        math.prod(map(int, d.sizes or ())) * d.data_type.bytes for d in larger.tensors.values()
    ]
    assert 1 << 23 < sum(bytes_) <= 1 << 26


def test_a_call_with_strides_does_not_grow() -> None:
    tensors = {"InputTensor": dmlc.TensorDesc("FLOAT32", (2, 2), (1, 2)),
               "OutputTensor": dmlc.TensorDesc("FLOAT32", (2, 2))}  # fmt: skip
    assert enlarge(Call(dmlc.operator("directml.ACTIVATION_RELU"), tensors, {})) is None


def test_a_datasheet_has_every_section() -> None:
    text = write_datasheet(dmlc.operator("directml.ACTIVATION_RELU"))
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "One call", "In Python", "In C++", "The shader", "Gradient", "Cost on a GPU",
        "Where DirectML differs", "The same elsewhere", "As the library has it",
    ]  # fmt: skip
    assert "OutputTensor[i0, i1] = max(0, InputTensor[i0, i1])" in text
    assert "`directml.ACTIVATION_RELU_GRAD` is its gradient." in text
    assert "d_InputTensor[i0, i1] = " in text
    (row,) = re.findall(r"^\| H100 .*$", text, re.MULTILINE)
    least, modelled = re.findall(r"([\d.]+) us", row)
    assert 0 < float(least) <= float(modelled)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("directml.ACTIVATION_RELU_GRAD", "It is the gradient of `directml.ACTIVATION_RELU`."),
        ("directml.ELEMENT_WISE_BIT_AND", "It has no derived gradient"),
        ("directml.NONZERO_COORDINATES", "No size of the call can grow by itself."),
        ("directml.GRU", "A loop over time has no modelled cost"),
    ],
)
def test_a_datasheet_says_what_an_operator_lacks(name: str, sentence: str) -> None:
    assert sentence in write_datasheet(dmlc.operator(name))


def test_a_short_page_has_no_kernels() -> None:
    text = write_datasheet(dmlc.operator("directml.GEMM"), whole=False)
    assert "RWStructuredBuffer" not in text
    assert "## The same elsewhere" in text


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "directml.ACTIVATION_RELU", "--datasheet"]) == 0
    assert capsys.readouterr().out == write_datasheet(dmlc.operator("directml.ACTIVATION_RELU"))
    graph = "examples/graphs/sgd_momentum.dml"
    assert cli.run(["show", str(Path(__file__).parents[1] / graph), "--datasheet"]) == 1
    assert "is a graph, and a datasheet is an operator's" in capsys.readouterr().err
