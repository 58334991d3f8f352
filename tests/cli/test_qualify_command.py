"""`dmlc qualify`: what it runs, writes, says and exits with."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dmlc.cli import qualify_command
from dmlc.devices import find_device, selector_of
from dmlc.qualify import gather
from dmlc.qualify.record import read_record, write_record
from tests.cli.conftest import Dmlc
from tests.qualify.records import FAILURE, fail, make_record

WRONG = Path(__file__).resolve().parent.parent / "data" / "testing" / "wrong.dml"
QUICK = ("--cases", "1", "--jobs", "1", "--rounds", "2", "--size", "32")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known answers have tests of their own, and two kernels show what ten do."""
    monkeypatch.setattr(gather, "find_all_wrong", lambda _: ())
    list_all = qualify_command.list_subjects
    monkeypatch.setattr(qualify_command, "list_subjects", lambda size: list_all(size)[6:8])


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_a_device_is_qualified(dmlc: Dmlc, device: str) -> None:
    done = dmlc("qualify", "onednn.ReLU", "--device", device, *QUICK, "--seconds", "60")
    assert done.status == 0
    first, *remarks = done.out.splitlines()[:-2]
    chosen = find_device(device)
    assert chosen is not None
    assert first.startswith(f"{selector_of(chosen)}, ")
    assert first.endswith(": qualified with remarks")
    assert all(line.startswith("  remark: ") for line in remarks)
    assert "Only 1 of the " in done.out
    page, record = map(Path, done.out.splitlines()[-2:])
    assert [page, record] == [Path("report", n) for n in (
        "qualification.html", "qualification.json")]  # fmt: skip
    found = read_record(record)
    assert found.machine.selector == selector_of(chosen)
    assert [tested.name for tested in found.tests.operators] == ["onednn.ReLU"]
    assert [each.problem for each in found.speeds.kernels] == ["", ""]
    assert found.machine.name in page.read_text("utf-8")
    assert "timing: transpose\n" in done.err


def test_a_device_that_fails_is_not(dmlc: Dmlc) -> None:
    done = dmlc("qualify", f"{WRONG}:DOUBLE", *QUICK[:-4], "--rounds", "0", "-o", "out")
    assert done.status == 1
    assert "not qualified\n  1 of " in done.out
    found = read_record("out/qualification.json")
    (failure,) = found.tests.failures
    assert Path(failure.folder).parent == Path("out/kept")
    assert dmlc("test", "--replay", failure.folder).status == 1
    assert found.speeds.kernels == ()


def test_two_records_are_compared(dmlc: Dmlc) -> None:
    Path("a.json").write_text(write_record(make_record()), encoding="utf-8")
    Path("b.json").write_text(write_record(make_record(tests=fail(FAILURE))), encoding="utf-8")
    done = dmlc("qualify", "--compare", "a.json", "b.json")
    assert done.status == 1
    assert "new failures:\n  a.MUL: a result is not near enough" in done.out
    done = dmlc("qualify", "--compare", "b.json", "a.json")
    assert done.status == 0
    assert "the verdict:\n  not qualified -> qualified" in done.out
    assert dmlc("qualify", "--compare", "a.json", "a.json").out == "nothing differs beyond noise\n"


def test_files_of_others_are_refused(dmlc: Dmlc) -> None:
    Path("a.json").write_text(write_record(make_record()), encoding="utf-8")
    Path("b.json").write_text(json.dumps({"form": "poem"}), encoding="utf-8")
    done = dmlc("qualify", "--compare", "a.json", "b.json")
    assert (done.status, done.out) == (1, "")
    assert "'b.json' is no file that this dmlc's `qualify` wrote: " in done.err
    done = dmlc("qualify", "--compare", "a.json", "none.json")
    assert "cannot read 'none.json'" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "reference"), "reference is no device"),
        (("--size", "100"), "100 is no multiple of 32"),
        (("--platform", "linux"), "--platform and --python are those of a --bundle"),
        (("--compare", "a", "b", "--bundle", "c"), "--compare and --bundle do not go together"),
        ((str(WRONG), "--bundle", "c"), "a bundle has no files of yours"),
        ((f"{WRONG}:DOUBLE", "--bundle", "c"), "a bundle has no files of yours"),
    ],
)
def test_wrong_usage(dmlc: Dmlc, arguments: Sequence[str], said: str) -> None:
    done = dmlc("qualify", *arguments)
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert not any(Path().iterdir())


def test_a_folder_that_cannot_be_written_to_is_refused_first(
    dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise AssertionError

    monkeypatch.setattr(qualify_command, "ask_answers", fail)
    Path("file").write_text("")
    done = dmlc("qualify", "-o", "file")
    assert done.status == 1
    assert "cannot write 'file'" in done.err
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = dmlc("qualify", "-o", "folder")
    assert done.status == 1
    assert "cannot write 'folder': permission denied" in done.err


def test_a_bundle_runs_what_was_asked_for(dmlc: Dmlc, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def write(*arguments: Any) -> list[Path]:
        given.append(arguments)
        return [Path("c/qualify.sh")]

    monkeypatch.setattr(qualify_command, "write_bundle", write)
    done = dmlc("qualify", "*SOFTMAX*", "--device", "d3d12", "--seconds", "9", "--bundle", "c",
                "--platform", "windows", "--python", "3.12")  # fmt: skip
    assert (done.status, done.out) == (0, "c/qualify.sh\n")
    ((folder, platform, version, arguments),) = given
    assert (folder, platform, version) == (Path("c"), "windows", "3.12")
    assert arguments == [
        "*SOFTMAX*", "--device", "d3d12", "--cases", "6", "--seed", "0", "--rounds", "9", "--size",
        "1024", "--seconds", "9",
    ]  # fmt: skip
