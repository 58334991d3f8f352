"""Failures kept in folders: what is written is what is read, and nothing else is trusted."""

from __future__ import annotations

import json
import math
import shlex
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc
from dmlc.scalars import Array, DataType
from dmlc.testing.case import Call, Case, lay_out
from dmlc.testing.outcome import Cause, CheckKind, Outcome, Status, check_case
from dmlc.testing.replay import read_failure, write_failure, write_operator

TEXT = """module own
enum MODE { PLAIN = 0, NEGATED = 1 }
function twice(v) = v + v
operator LINE {
    attributes {
        | Attribute | Type  | Default |
        | Mode      | MODE  | PLAIN   |
        | Limit     | FLOAT | 1       |
        | Steps     | INT[] | [1]     |
    }
    tensors {
        | Tensor | Kind           | Ranks  | Types      |
        | x      | Input          | 1 to 3 | bf16, f32  |
        | bias   | Optional input | 1 to 3 | bf16, f32  |
        | y      | Output         | 1 to 3 | bf16, f32  |
    }
    constraints {
        x, bias and y must have the same DataType and Sizes.
    }
    compute {
        once(v) = v + 0
        signed = Mode == NEGATED ? -x : x
        y = min(Limit, twice(once(signed)) + (present(bias) ? bias : 0))
    }
    example "doubles" {
        x = [1, 2]
        Limit = 8
        expect y = [2, 4]
    }
}
operator LINE_GRAD {
    forward LINE
    attributes {
        | Attribute | Type  | Default |
        | Mode      | MODE  | PLAIN   |
        | Limit     | FLOAT | 1       |
        | Steps     | INT[] | [1]     |
    }
    tensors {
        | Tensor | Kind   | Ranks  | Types |
        | x      | Input  | 1 to 3 | f32   |
        | dy     | Input  | 1 to 3 | f32   |
        | dx     | Output | 1 to 3 | f32   |
    }
    constraints {
        x, dy and dx must have the same DataType and Sizes.
    }
    gradient of LINE {
        dy = gradient of y
        dx = gradient of x
    }
}
"""
OPERATORS = dmlc.parse(TEXT, "own.dml").operators


def make_case() -> Case:
    x = TensorDesc("BFLOAT16", (2, 3), (8, 2))
    y = TensorDesc("BFLOAT16", (2, 3), (1, 2))
    values = np.array([[1, -2, np.nan], [0.5, -0.0, np.inf]], DataType.BFLOAT16.dtype)
    attributes = {"Mode": "NEGATED", "Limit": math.inf, "Steps": [3, -1]}
    call = Call(OPERATORS["own.LINE"], {"x": x, "y": y}, attributes)
    return Case(call, {"x": lay_out(values, x)}, "drawn")


def keep(case: Case, folder: Path, kind: CheckKind = CheckKind.CALL) -> Path:
    outcome = check_case(case, "reference", kind)
    return write_failure(folder, outcome, "reference", 7)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    case = make_case()
    folder = keep(case, tmp_path)
    assert sorted(p.name for p in folder.iterdir()) == [
        "case.json", "case.npz", "command.txt", "operator.dml",
    ]  # fmt: skip
    assert (folder / "command.txt").read_text() == f"dmlc test --replay {folder}\n"
    found = read_failure(folder)
    assert (found.kind, found.device, found.seed) == (CheckKind.CALL, "reference", 7)
    assert str(found.case.call) == str(case.call)
    assert found.case.call.attributes == case.call.attributes
    assert found.case.call.tensors == case.call.tensors
    x = found.case.inputs["x"]
    assert x.strides == case.inputs["x"].strides
    assert x.tobytes() == case.inputs["x"].tobytes()
    assert found.run().status is Status.PASSED
    # The same failure is kept in the same folder.
    assert keep(case, tmp_path) == folder


def test_the_command_is_quoted_for_a_shell(tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path / "a; touch b")
    command = (folder / "command.txt").read_text()
    assert shlex.split(command) == ["dmlc", "test", "--replay", str(folder)]


def test_an_example_keeps_what_it_expects(tmp_path: Path) -> None:
    x = TensorDesc("FLOAT32", (2,))
    call = Call(OPERATORS["own.LINE"], {"x": x, "y": x}, {"Limit": 8})
    inputs = {"x": np.array([1, 2], np.float32)}
    expected, within = {"y": np.array([2.0, 4.5])}, {"y": 0.25}
    folder = keep(Case(call, inputs, "doubles", expected, within), tmp_path, CheckKind.EXAMPLE)
    found = read_failure(folder)
    assert found.case.within == within
    np.testing.assert_array_equal(found.case.expected["y"], [2, 4.5])
    outcome = found.run()
    assert (outcome.status, outcome.cause) == (Status.FAILED, Cause.EXPECTED)
    assert outcome.place == f"{folder / 'operator.dml'}:28"


@pytest.mark.parametrize("name", OPERATORS)
def test_the_file_of_an_operator_is_complete(name: str) -> None:
    text = write_operator(OPERATORS[name].definition)
    again = dmlc.parse(text).operators
    assert list(again)[-1] == name
    assert str(again[name]) == str(OPERATORS[name])
    assert write_operator(again[name].definition) == text


def test_an_operator_of_the_library_is_kept_by_name(tmp_path: Path) -> None:
    x = TensorDesc("FLOAT32", (2,))
    call = Call(dmlc.operator("onednn.ReLU"), {"src": x, "dst": x}, {})
    folder = keep(Case(call, {"src": np.ones(2, np.float32)}, "drawn"), tmp_path)
    assert not (folder / "operator.dml").exists()
    assert read_failure(folder).case.call.operator is dmlc.operator("onednn.ReLU")


def test_another_operator_takes_the_place_of_the_one_kept(tmp_path: Path) -> None:
    """Such as one that was mended."""
    folder = keep(make_case(), tmp_path)
    mended = dmlc.parse(TEXT.replace("v + v", "2 * v")).operators
    found = read_failure(folder, list(mended.values()))
    assert found.case.call.operator is mended["own.LINE"]
    with pytest.raises(dmlc.DmlcError, match=r"is of 'own.LINE', and given is onednn.ReLU"):
        read_failure(folder, [dmlc.operator("onednn.ReLU")])


def spoil(folder: Path, key: str, value: object) -> None:
    path = folder / "case.json"
    described = json.loads(path.read_text())
    described[key] = value
    path.write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("version", 99, "another version"),
        ("operator", 5, "says no operator"),
        ("operator", "own.OTHER", "does not define 'own.OTHER'"),
        ("tensors", [1], "says no tensors"),
        ("tensors", {"x": "FLOAT32"}, "'FLOAT32' describes no tensor"),
        ("tensors", {"x": "BFLOAT16[2,30]{80,2}", "y": "BFLOAT16[2,30]"}, "not of the size"),
        ("tensors", {"x": "BFLOAT16[2,3]", "z": "BFLOAT16[2,3]"}, "has no tensor 'z'"),
        ("tensors", {"x": f"BFLOAT16[{'9' * 5000}]"}, "describes no tensor"),
        ("tensors", {"x": "BFLOAT16[2]{1000000000}"}, "more than 1 GiB"),
        ("attributes", 1, "says no attributes"),
        ("attributes", {"Limit": {"float": "much"}}, "'much' is no number"),
        ("attributes", {"Steps": [[1]]}, "a list of lists"),
        ("within", [1], "what outputs may differ by"),
        ("within", {"y": "little"}, "'little' is no number"),
        ("library", True, "unknown operator 'own.LINE'"),
        ("kind", "joke", "of no kind"),
        ("title", None, "says no title"),
        ("device", 1, "says no device"),
    ],
)
def test_a_damaged_folder_is_refused(key: str, value: object, said: str, tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path)
    spoil(folder, key, value)
    with pytest.raises(dmlc.DmlcError, match=said):
        read_failure(folder)


@pytest.mark.parametrize("name", ["case.json", "case.npz", "operator.dml"])
@pytest.mark.parametrize("content", [None, b"", b"[", b"PK\x03\x04 and no more", b"\xff\xfe"])
def test_damaged_files_are_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(dmlc.DmlcError):
        read_failure(folder)


def test_little_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path)
    with zipfile.ZipFile(folder / "case.npz", "w", zipfile.ZIP_DEFLATED) as stored:
        stored.writestr("input.x.npy", bytes(100 << 20))
    tracemalloc.start()
    with pytest.raises(dmlc.DmlcError, match="more than 64 MiB"):
        read_failure(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70 << 20


@pytest.mark.parametrize(
    "array", [np.ones(7), np.array(["x"]), np.ones((2, 3), np.complex64)], ids=str
)
@pytest.mark.parametrize("name", ["expected.y", "instead.z"])
def test_arrays_that_no_output_has(name: str, array: Array, tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path)
    np.savez(folder / "case.npz", **{name: array})
    with pytest.raises(dmlc.DmlcError, match="is not one of an output"):
        read_failure(folder)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    folder = keep(make_case(), tmp_path)
    np.savez(folder / "case.npz", **{"input.x": np.array([Outcome], object)})
    with pytest.raises(dmlc.DmlcError, match="damaged"):
        read_failure(folder)
