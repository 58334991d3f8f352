"""`dmlc test`: what it runs, says, writes and exits with."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dmlc import cli
from dmlc.cli import test_command
from dmlc.cli.test_command import list_targets
from dmlc.source import UnavailableError
from dmlc.testing import outcome
from dmlc.testing.memory import name_tool
from tests.cli.conftest import Dmlc

WRONG = Path(__file__).resolve().parent.parent / "data" / "testing" / "wrong.dml"
QUICK = ("--device", "reference", "--cases", "3", "--variants", "0", "--jobs", "1")
COPY = """operator COPY {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | y      | Output | f32   |
    }
    constraints {
        x and y must have the same Sizes.
    }
    compute {
        y = x
    }
}
"""


def test_a_right_operator_passes(dmlc: Dmlc) -> None:
    Path("copy.dml").write_text(COPY)
    done = dmlc("test", "copy.dml", *QUICK)
    assert done.status == 0
    header, row, _, verdict = done.out.splitlines()
    assert header.split()[:2] == ["operator", "cases"]
    assert row.split()[0] == "COPY"
    assert verdict.startswith("PASS: ")
    assert verdict.endswith(" cases of 1 operator on reference, seed 0")
    assert done.err == ""
    assert not Path("dmlc-failures").exists()


def test_a_wrong_operator_fails_until_it_is_mended(dmlc: Dmlc) -> None:
    shutil.copy(WRONG, "own.dml")
    done = dmlc("test", "own.dml:PAIR_SUM", *QUICK, "-o", "kept")
    assert done.status == 1
    assert "FAIL PAIR_SUM: the constraints permit this call" in done.out
    assert "at own.dml:101" in done.out
    assert done.out.splitlines()[-1].startswith("FAIL: ")
    (folder,) = Path("kept").iterdir()
    assert f"again: dmlc test --replay {folder}" in done.out
    again = dmlc("test", "--replay", folder)
    assert again.status == 1
    assert again.out.startswith("FAIL PAIR_SUM: the constraints permit this call")
    # Its own copy mended, or the file that it came from.
    text = WRONG.read_text()
    Path("own.dml").write_text(text.replace("x[2 * i + 1]", "(x[2 * i + 1] else 0)"))
    mended = dmlc("test", "--replay", folder, "own.dml:PAIR_SUM")
    assert (mended.status, mended.err) == (0, "")
    assert mended.out.startswith("PASS PAIR_SUM on reference: drawn call")
    kept = folder / "operator.dml"
    kept.write_text(kept.read_text().replace("x[2 * i + 1]", "(x[2 * i + 1] else 0)"))
    assert dmlc("test", "--replay", folder).status == 0
    shown = json.loads(dmlc("test", "--replay", folder, "--json").out)
    assert [outcome["status"] for outcome in shown] == ["passed"]


def test_reports_for_machines(dmlc: Dmlc) -> None:
    done = dmlc("test", f"{WRONG}:DOUBLE", *QUICK, "--json", "--junit", "out/report.xml")
    assert done.status == 1
    found = json.loads(done.out)
    assert found["passed"] is False
    assert [f["line"] for f in found["failures"]] == [86]
    root = ElementTree.parse("out/report.xml").getroot()
    assert root.attrib["failures"] == "1"


def test_weak_cases_are_named_and_run_again(dmlc: Dmlc) -> None:
    text = COPY.replace("y = x", "y = (x + 0.01) * (x + 0.01) - x * x - 0.02 * x")
    Path("wide.dml").write_text(text.replace("COPY", "WIDE"))
    done = dmlc("test", "wide.dml", "--device", "reference", "--cases", "9", "--variants", "0")
    assert done.status == 0
    assert "\nweak cases, the smallest of each operator:\n  WIDE, " in done.out
    (again,) = re.findall("again: dmlc test --replay (.*)", done.out)
    replayed = dmlc("test", "--replay", again)
    assert replayed.status == 0
    first, second = replayed.out.splitlines()
    assert first.startswith("PASS WIDE on reference: drawn call, ")
    assert second.startswith("  weak: ")


def test_coverage_names_what_no_case_came_by(dmlc: Dmlc) -> None:
    Path("copy.dml").write_text(COPY)
    plain, told = (dmlc("test", "copy.dml", *QUICK, *more).out for more in ((), ("--coverage",)))
    assert "dimension count: 'x' has" not in plain
    assert "dimension count: 'x' has" in told
    assert "not hit: no case had it" in told


def test_check_memory(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("copy.dml").write_text(COPY)
    quick = ("test", "copy.dml", *QUICK[2:], "--check-memory", "--device")
    done = dmlc(*quick, "opencl")
    assert (done.status, done.err) == (0, "")
    assert f"memory on opencl: by {name_tool('opencl')}\n" in done.out
    said = json.loads(dmlc(*quick, "opencl", "--json").out)
    assert said["memory_tools"] == {"opencl": name_tool("opencl")}
    done = dmlc(*quick, "reference")
    assert done.status == 0
    assert "1 on reference: error: the reference has no kernels whose memory" in done.out

    def check_memory(*_: object) -> list[str]:
        if tool:
            raise UnavailableError("Oclgrind is not installed", notes=["apt-get install oclgrind"])
        return ["cpu: the kernel k stores into y at element 3"]

    tool = ""
    monkeypatch.setattr(outcome, "check_memory", check_memory)
    done = dmlc(*quick, "opencl")
    assert done.status == 1
    assert "FAIL COPY on opencl: a kernel reads or stores where it may not, or races" in done.out
    assert "  cpu: the kernel k stores into y at element 3\n" in done.out
    tool = "missing"
    done = dmlc(*quick, "opencl")
    assert done.status == 3
    assert "apt-get install oclgrind" in done.err


@pytest.mark.parametrize(
    ("to", "file"), [("dxdispatch", "DOUBLE.json"), ("offload-test-suite", "DOUBLE.test")]
)
def test_export(to: str, file: str, dmlc: Dmlc) -> None:
    quick = (*QUICK[:-1], "2")
    done = dmlc("test", f"{WRONG}:DOUBLE", f"{WRONG}:CUBE", *quick, "--export", to, "-o", "out")
    assert done.status == 1
    folders = {path.name for path in Path("out").iterdir() if (path / file).is_file()}
    assert folders == {"DOUBLE-example-001", *(f"DOUBLE-drawn-call-{n:03}" for n in (1, 2, 3))}
    assert (Path("out") / "CUBE-drawn-call-003").is_dir()
    (failure,) = Path("out").glob("*/case.json")
    assert (failure.parent / "export" / file).is_file()
    assert dmlc("test", "--replay", failure.parent).status == 1


def test_what_cannot_be_exported_is_told(dmlc: Dmlc) -> None:
    Path("copy.dml").write_text(COPY.replace("f32", "f64").replace("y = x", "y = exp(x)"))
    done = dmlc("test", "copy.dml", *QUICK, "--export", "dxdispatch", "-o", "out")
    assert done.status == 0
    assert "  3 not exported: copy.dml:" in done.out
    assert "error: target 'hlsl' cannot compute 'exp' of FLOAT64" in done.out
    assert not Path("out").exists()


def test_an_export_needs_a_folder(dmlc: Dmlc) -> None:
    done = dmlc("test", f"{WRONG}:DOUBLE", *QUICK, "--export", "dxdispatch")
    assert done.status == 2
    assert "-o DIR" in done.err
    Path("taken").write_text("")
    done = dmlc("test", f"{WRONG}:CUBE", *QUICK, "--export", "dxdispatch", "-o", "taken")
    assert done.status == 1
    assert "cannot write 'taken" in done.err


def test_after_failures_it_is_said_whether_the_device_is_to_blame(
    dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where an example is wrong, or nothing ran on a device."""

    def explain_failure(device: str) -> str:
        return f"{device} may be at fault"

    def run_case(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(test_command, "explain_failure", explain_failure)
    for name in ("DOUBLE", "PAIR_SUM"):
        done = dmlc("test", f"{WRONG}:{name}", *QUICK[2:], "--device", "opencl")
        assert (done.status, done.err) == (1, "")
    monkeypatch.setattr(outcome, "run_case", run_case)
    done = dmlc("test", f"{WRONG}:CUBE", *QUICK[2:], "--device", "opencl", "--device", "reference",
                "-o", "kept")  # fmt: skip
    assert done.status == 1
    assert done.err == "opencl may be at fault\nreference may be at fault\n"
    (folder,) = Path("kept").iterdir()
    again = dmlc("test", "--replay", folder, "--json")
    assert (again.status, again.err) == (1, "opencl may be at fault\n")
    assert len(json.loads(again.out)) == 1


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        ("onednn.ReLU", ["onednn.ReLU"]),
        ("*relubackward", ["onednn.PReLUBackward", "onednn.ReLUBackward"]),
        ("onednn.relu*", ["onednn.ReLU", "onednn.ReLUBackward"]),
    ],
)
def test_operators_by_name_and_pattern(subject: str, names: list[str], dmlc: Dmlc) -> None:
    quick = (*QUICK[:2], "--cases", "0", *QUICK[4:])
    found = json.loads(dmlc("test", subject, *quick, "--json").out)
    assert [operator["name"] for operator in found["operators"]] == names


def test_without_a_subject_the_library_is_tested() -> None:
    names = [target.name for target in list_targets([], [])]
    assert len(names) == len(set(names)) >= 75


def test_mistakes(dmlc: Dmlc) -> None:
    unknown = dmlc("test", "onednn.ReLUU", *QUICK)
    assert unknown.status == 1
    assert "did you mean 'onednn.ReLU'?" in unknown.err
    assert dmlc("test", "missing.dml", *QUICK).status == 1
    assert dmlc("test", "onednn.ReLU", "--device", "metal").status == 1
    assert dmlc("test", "onednn.ReLU", "--device", "opencl:99").status == 3
    assert dmlc("test", "--replay", "nowhere").status == 1
    assert dmlc("test", "--cases", "-1").status == 2
    assert dmlc("test", "--replay", "nowhere", "a", "b").status == 2
    Path("broken.dml").write_text(COPY.replace("y = x", "y = z"))
    broken = dmlc("test", "broken.dml", *QUICK)
    assert broken.status == 1
    assert "unknown name 'z'" in broken.err
    Path("none.dml").write_text("")
    assert "defines no operator" in dmlc("test", "none.dml", *QUICK).err


def test_help_shows_an_example(dmlc: Dmlc) -> None:
    assert "Example: dmlc test my_operators.dml" in " ".join(dmlc("test", "--help").out.split())
    assert "dmlc test FILE" in " ".join(dmlc("check", "--help").out.split())
    assert "test" in cli.COMMANDS


JUDGED = WRONG.parents[1] / "judged"
NAN = ("test", "directml.ACTIVATION_RELU", "--kernel", str(JUDGED / "relu_nan.hlsl"),
       "--cases", "3")  # fmt: skip


def test_a_kernel_of_others(dmlc: Dmlc) -> None:
    """It fails, its failure is kept, and runs again by itself."""
    done = dmlc(*NAN, "--junit", "junit.xml")
    assert done.status == 1
    assert "likely: NaN is lost" in done.out
    assert "relu_nan.hlsl (vulkan) is not directml.ACTIVATION_RELU" in done.out
    root = ElementTree.parse("junit.xml").getroot()
    assert int(root.get("failures", "0")) >= 1
    folder = re.findall(r"again: dmlc test --replay (\S+)", done.out)[0]
    again = dmlc("test", "--replay", folder)
    assert again.status == 1
    assert "where nan is expected" in again.out


def test_a_kernel_of_others_as_json(dmlc: Dmlc) -> None:
    done = dmlc(*NAN, "--json")
    (found,) = json.loads(done.out)
    assert not found["passed"]
    assert found["failures"][0]["cause"] == "a result is not near enough"
    assert found["candidate"][1] == "  InputTensor = InputTensor"


def test_what_goes_with_a_kernel(dmlc: Dmlc) -> None:
    for more, message in (
        (("--coverage",), "--kernel takes one operator"),
        (("--device", "opencl", "--device", "vulkan"), "--kernel takes one operator"),
    ):
        done = dmlc(*NAN, *more)
        assert done.status == 2
        assert message in done.err
    assert dmlc("test", "onednn.ReLU", "--groups", "1").status == 2
    many = dmlc("test", "*RELU*", *NAN[2:])
    assert many.status == 2
    assert "and this means directml." in many.err
