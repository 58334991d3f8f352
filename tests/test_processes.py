"""No process of dmlc's imports what lies in the folder that it is started in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlc.processes import find_program, isolating_workers, python_command, python_environment
from dmlc.runtime.opencl import oclgrind
from dmlc.runtime.vulkan import statistics
from dmlc.testing.harness import Settings
from dmlc.testing.jobs import Target, run_targets
from tests.runtime import handmade

PACKAGE = Path(sys.modules["dmlc"].__path__[0])
WRONG = PACKAGE.parent / "tests" / "data" / "testing" / "wrong.dml"
MODULES = ("numpy", "pickle", "multiprocessing", "json", "click")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that modules lying in the working directory write, where they are run."""
    marker = tmp_path / "marker"
    folder = tmp_path / "from a stranger"
    folder.mkdir()
    for name in MODULES:
        code = f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    # As in the command itself, which Python starts without the folder.
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p and Path(p) != folder])
    return marker


def test_workers_of_tests(planted: Path) -> None:
    settings = Settings(("reference",), cases=0, variants=0)
    targets = [Target(name, str(WRONG)) for name in ("DOUBLE", "CUBE")]
    assert [done.name for done in run_targets(targets, settings, 2)] == ["DOUBLE", "CUBE"]
    assert not planted.exists()
    assert "PYTHONSAFEPATH" not in os.environ


def test_the_process_under_oclgrind(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "oclgrind"
    stand_in.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(oclgrind, "find_oclgrind", lambda: str(stand_in))
    stop = oclgrind._simulator.stop  # pyright: ignore[reportPrivateUsage]
    stop()
    given = {"A": np.arange(8, dtype=np.float32)}
    assert oclgrind.find_objections(handmade.add_one((8,), None, "i"), given, {}) == []
    stop()
    assert not planted.exists()


def test_the_process_that_asks_a_driver(planted: Path) -> None:
    done = subprocess.run(
        python_command(statistics.__name__), input="", capture_output=True, text=True,
        env=python_environment(), check=False,
    )  # fmt: skip
    # There is nothing to read: it got as far as that.
    assert "EOFError" in done.stderr
    assert not planted.exists()


def test_the_command_started_as_a_module(planted: Path) -> None:
    """Python has put the folder first by then, and the command takes it out."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "dmlc", "--version"], capture_output=True, text=True,
        env=environment, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("dmlc"), done.stderr
    assert not planted.exists()


def test_a_choice_of_the_caller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    with isolating_workers():
        assert os.environ["PYTHONSAFEPATH"]
    assert os.environ["PYTHONSAFEPATH"] == ""


def test_no_other_module_starts_python() -> None:
    starts = [p for p in PACKAGE.rglob("*.py") if "sys.executable" in p.read_text("utf-8")]
    assert [p.name for p in starts] == ["processes.py"]
    spawns = [p for p in PACKAGE.rglob("*.py") if "multiprocessing.get_" in p.read_text("utf-8")]
    assert [p.name for p in spawns] == ["jobs.py"]


def plant(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("")
    (folder / name).chmod(0o755)
    return str(folder / name)


@pytest.mark.parametrize(
    ("platform", "joint", "file"), [("linux", ":", "dxc"), ("win32", ";", "dxc.EXE")]
)
def test_no_program_of_the_working_directory_is_found(
    platform: str, joint: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path / "here", file)
    plant(tmp_path / "here" / "below", file)
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "empty").mkdir()
    paths = ["", ".", "below", str(tmp_path / "empty")]
    assert find_program("dxc", {"PATH": joint.join(paths)}, platform) is None
    assert find_program("dxc", {"PATH": ""}, platform) is None
    (tmp_path / "empty" / file).write_text("")  # It is no program.
    own = plant(tmp_path / "bin", file)
    path = joint.join([*paths, str(tmp_path / "bin")])
    assert find_program("dxc", {"PATH": path}, platform) == own
    assert find_program("dxc", {"PATH": path, "PATHEXT": ".BAT"}, "win32") is None
