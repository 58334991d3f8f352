"""The corpus: a sample of it is as recorded, and what differs is found and named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlc.source import InternalError
from tests.corpus import __main__ as corpus
from tests.corpus import state
from tests.corpus.state import KINDS, Entry, compile_subject, find_differences, read_state
from tests.corpus.subjects import SUBJECTS


@pytest.mark.grid(40)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_programs_are_as_recorded(subject: str) -> None:
    compiled = compile_subject(subject)
    for kind in KINDS:
        recorded = read_state(kind)
        after = {each.name: each.entry for each in compiled if each.kind == kind}
        before = {name: recorded[name] for name in after if name in recorded}
        found = [d.show(kind) for d in find_differences(before, after)]
        assert not found, f"{kind}: see `make corpus`"


def test_every_subject_is_recorded_for_every_kind_of_devices() -> None:
    states = [read_state(kind) for kind in KINDS]
    names = list(states[0])
    assert all(list(each) == names for each in states)
    assert names == sorted(names)
    for subject in SUBJECTS:
        assert any(name == subject or name.startswith(f"{subject} ") for name in names), subject
    assert not [e for each in states for e in each.values() if e.refusal.startswith(state.FAILED)]
    assert len({str(corpus.find_file("recorded", "", name)).lower() for name in names}) == len(
        names
    )


def test_a_line_is_read_as_it_was_written() -> None:
    for entry in (Entry("12ab", "34cd", 2, (1.5, 20490.0)), Entry(refusal="no 64-bit floats")):
        assert Entry.read(entry.write("GEMM of 3, 4")) == ("GEMM of 3, 4", entry)


SUBJECT = "directml.ELEMENT_WISE_ABS"
GPU = "opencl-gpu"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Runs the command on one operator in folders of its own, where its state is recorded."""
    monkeypatch.setattr(corpus, "RECORDED", tmp_path / "recorded")
    monkeypatch.setattr(corpus, "OUT", tmp_path / "out")

    def run(*arguments: str) -> tuple[int, str]:
        code = corpus.main([SUBJECT, "--kind", GPU, "--jobs", "1", *arguments])
        return code, capsys.readouterr().out

    assert run("--update")[0] == 0
    return run


def change_sources(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Has the compiler write other sources."""
    compile_kernels = state.compile_kernels

    def compile_changed(*given: Any, **named: Any) -> Any:
        program, function, kernels = compile_kernels(*given, **named)
        sources = [dataclasses.replace(k, source=change(k.source)) for k in program.kernels]
        return dataclasses.replace(program, kernels=tuple(sources)), function, kernels

    monkeypatch.setattr(state, "compile_kernels", compile_changed)


def test_nothing_differs_from_what_was_recorded(run: Callable[..., tuple[int, str]]) -> None:
    code, out = run()
    assert code == 0
    assert out.startswith(f"{GPU}: 0 of ")
    assert out.count("\n") == 1


def test_other_code_is_named_with_its_difference(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change_sources(monkeypatch, lambda source: source.replace("fabs(", "0 + fabs("))
    code, out = run()
    assert code == 1
    assert re.search(f"^  {SUBJECT} FLOAT32: code, [0-9.]+ us on h100, ", out, re.M)
    path = tmp_path / "out" / "diff" / GPU / f"{SUBJECT}_FLOAT32.diff"
    assert f"    {path}\n" in out
    changed = [line for line in path.read_text("utf-8").splitlines() if line.startswith("+ ")]
    assert changed
    assert all("0 + fabs(" in line for line in changed)
    (tmp_path / "out" / "recorded" / GPU / f"{SUBJECT}_FLOAT32").unlink()
    assert "its recorded source is not in out/corpus" in run()[1]
    assert run("--update")[0] == 0
    assert run()[0] == 0


@pytest.mark.parametrize("more", ["Start", "And\n//\n    // so on.\n// Launch"])
def test_other_comments_are_counted_apart(
    more: str, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    change_sources(monkeypatch, lambda source: source.replace("Launch", more))
    code, out = run()
    assert code == 1
    assert "comments)\n" in out
    assert out.count("\n") == 1


def test_modelled_times_stand_beside_each_other(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "recorded" / f"{GPU}.tsv"
    lines = path.read_text("utf-8").splitlines()
    name, entry = Entry.read(next(line for line in lines if line.startswith(f"{SUBJECT} of any")))
    h100, *others = entry.figures
    slow = dataclasses.replace(entry, kernels=2, figures=(2 * h100, *others))
    gone = f"ABSENT\t1\t1\t1\t{h100}"
    path.write_text("\n".join([*lines, slow.write(name), gone]) + "\n", "utf-8")
    code, out = run()
    assert code == 1
    assert "1 of " in out  # What is of no subject that was asked for is left alone.
    assert f"  {name}: times, 2 -> 1 kernels, {2 * h100:.4g} -> {h100:.4g} us on h100 (-50%)" in out


def test_what_fails_is_named_and_not_recorded(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "recorded" / f"{GPU}.tsv"
    before = path.read_text("utf-8")

    def fail(*given: Any, **named: Any) -> Any:
        raise InternalError("two axes\nof one name")

    monkeypatch.setattr(state, "compile_kernels", fail)
    code, out = run("--update")
    assert code == 1
    assert f"  {SUBJECT} FLOAT32: failed: InternalError: " in out
    assert "two axes of one name" in out
    assert path.read_text("utf-8") == before


def test_what_is_there_no_more_is_named() -> None:
    entry = Entry("12ab", "34cd", 1, (3.0, 4.0, 5.0))
    refused = Entry(refusal="no 64-bit floats")
    found = find_differences({"a": entry, "b": entry, "c": refused}, {"b": refused, "c": entry})
    assert [d.show(GPU) for d in found] == [
        "a: gone, 3 us on h100, 4 us on rtx4070, 5 us on 8cu",
        "b: refused: no 64-bit floats, 3 us on h100, 4 us on rtx4070, 5 us on 8cu",
        "c: compiled, 3 us on h100, 4 us on rtx4070, 5 us on 8cu",
    ]
