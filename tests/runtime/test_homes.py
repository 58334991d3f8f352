"""Users without a home, homes that cannot be written to, and what others left in caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmlc.files import cache_folder, can_keep_files, expand_home, private_folder
from dmlc.processes import python_environment
from dmlc.runtime.answers import Verdicts
from dmlc.runtime.environment import find_caches, keeping_caches
from dmlc.runtime.manifests import list_manifests


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME, and no entry of the user in the list of users."""

    def fail(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", fail)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("homeless")
def test_without_a_home() -> None:
    assert cache_folder() is None
    assert expand_home("~/x") is None
    assert expand_home("/x") == Path("/x")
    assert Path("/etc/vulkan/icd.d") not in list(list_manifests({"XDG_CONFIG_DIRS": "/nowhere"}))
    assert Verdicts(None).find({"a": "b"}, lambda: ("wrong",)) == ("wrong",)
    place = find_caches()
    assert place == str(private_folder())
    with keeping_caches():
        assert os.environ["XDG_CACHE_HOME"] == place
    assert "XDG_CACHE_HOME" not in os.environ
    assert os.stat(place).st_mode & 0o077 == 0


def test_a_usable_home_is_left(tmp_path: Path) -> None:
    assert find_caches({"HOME": str(tmp_path)}) is None
    assert find_caches({"XDG_CACHE_HOME": str(tmp_path / "c"), "HOME": "/proc"}) is None
    with keeping_caches():
        assert can_keep_files(tmp_path)


def test_a_home_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_keep_files(Path("/proc/nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    assert find_caches(dict(os.environ)) == str(private_folder())
    with keeping_caches():
        assert os.environ["XDG_CACHE_HOME"] == str(private_folder())
    assert os.environ["XDG_CACHE_HOME"] == "/proc/nothing"


def test_devices_are_found_without_a_usable_home() -> None:
    script = "import dmlc.runtime.opencl.driver as d; print(len(d.discover()) > 0)"
    environment = python_environment() | {"HOME": "/proc/1", "XDG_CACHE_HOME": "/proc/nothing"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_what_is_no_file_in_a_cache_is_passed_over(tmp_path: Path) -> None:
    """A pipe has no end, and nobody writes to this one."""
    asked: list[int] = []
    Verdicts(tmp_path).find({"a": "b"}, lambda: ())
    (entry,) = tmp_path.iterdir()
    entry.unlink()
    os.mkfifo(entry)
    assert Verdicts(tmp_path).find({"a": "b"}, lambda: asked.append(1) or ()) == ()
    assert asked == [1]
    assert entry.is_fifo()
